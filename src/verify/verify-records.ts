import type { Contents } from '../artifacts/contents.ts'
import type { Codec } from '../model/codec.ts'
import type { KeyedRecord } from '../model/record.ts'
import { type Damage, damageTo } from './damage.ts'
import { attempt, type Source } from './findings.ts'
import { ArtifactCheck } from './verify-artifacts.ts'

export interface RecordFindings {
  readonly records: number
  readonly artifacts: number
  readonly bytes: number
  readonly damaged: readonly Damage[]
}

/** Records in one read; fewer near one that is damaged. */
const most = 512

/** Records of all owners. One that can't be read is noted and passed over; where a store does not say how, the rest is not looked at. */
export async function verifyRecords(source: Source, contents: Contents): Promise<RecordFindings> {
  const { store, codec, signal } = source
  const damaged: Damage[] = []
  const artifacts = new ArtifactCheck(source, contents)
  let [records, bytes, limit] = [0, 0, most]
  const found = () => ({
    ...{ records, artifacts: artifacts.artifacts, bytes: bytes + artifacts.bytes },
    damaged: [...damaged, ...artifacts.damaged],
  })
  for (let cursor: string | undefined; ; ) {
    signal?.throwIfAborted()
    const query = { limit, ...(cursor !== undefined && { cursor }) }
    const page = await attempt(store, () => store.scanRecords(query))
    if ('damage' in page && limit > 1) {
      limit = Math.floor(limit / 2)
    } else if ('damage' in page) {
      const { owner, cursor: next } = page.damage.details ?? {}
      const isLast = typeof next !== 'string' || next === cursor
      const rest = isLast ? ' Values that come after it were not looked at.' : ''
      damaged.push(damageTo({ owner: String(owner ?? ''), threadId: '' }, 'memory', `${page.damage.message}${rest}`))
      if (isLast) return found()
      cursor = next
    } else {
      for (const record of page.value.items) {
        signal?.throwIfAborted()
        if (!record.collection.startsWith('artifact')) records++
        bytes += Buffer.byteLength(record.payload)
        const problems = unreadable(record, codec)
        damaged.push(...problems)
        if (record.collection === 'artifact' && problems.length === 0) await artifacts.check(record)
      }
      cursor = page.value.cursor
      if (cursor === undefined) return found()
      limit = Math.min(most, 2 * limit)
    }
  }
}

function unreadable({ owner, threadId, collection, key, payload }: KeyedRecord, codec: Codec): Damage[] {
  try {
    codec.decode(payload)
    return []
  } catch (error) {
    const message = `The value of ${JSON.stringify(key)} in ${collection} can't be read: ${(error as Error).message}`
    return [damageTo({ owner, threadId: threadId ?? '' }, 'memory', message)]
  }
}
