import type { RecordWrites } from './record-writes.ts'

/** Both as one. */
export function joinWrites(first: RecordWrites | undefined, second: RecordWrites | undefined): RecordWrites | undefined {
  if (first === undefined || second === undefined) return first ?? second
  return {
    get isEmpty() {
      return first.isEmpty && second.isEmpty
    },
    get isContested() {
      return first.isContested || second.isContested
    },
    get canWait() {
      return first.canWait && second.canWait
    },
    prepare: async () => {
      await first.prepare()
      await second.prepare()
    },
    get records() {
      return [...first.records, ...second.records]
    },
    get events() {
      return [...first.events, ...second.events]
    },
    recordsAfter: async (found) => [...(await first.recordsAfter(found)), ...(await second.recordsAfter(found))],
    answered: () => {
      first.answered?.()
      second.answered?.()
    },
  }
}
