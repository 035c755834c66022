import type { RunEvent } from '../control/read-events.ts'

/** How many of the last events are remembered, to find where the store's log differs. */
const mostSeen = 200
const pageSize = 1_000

type Read = (range: { after: number; limit: number }) => Promise<RunEvent[]>

/**
 * What a watcher has seen of a run. A store that has lost its last commits assigns their positions again, so the last event is read once
 * more with those that follow. If it differs, the watcher continues from the last one that is still the same.
 */
export class SeenEvents {
  readonly #begun: number
  #seen: RunEvent[] = []

  /** The position after which events are read. */
  constructor(begun: number) {
    this.#begun = begun
  }

  note(event: RunEvent): void {
    this.#seen.push(event)
    if (this.#seen.length > 2 * mostSeen) this.#seen = this.#seen.slice(-mostSeen)
  }

  /** The events that come next. */
  async next(read: Read): Promise<RunEvent[]> {
    const last = this.#seen.at(-1)
    if (last === undefined) return read({ after: this.#begun, limit: pageSize })
    const [again, ...events] = await read({ after: last.seq - 1, limit: pageSize })
    if (again !== undefined && isSame(again, last)) return events
    await this.#forget(read)
    return read({ after: this.#seen.at(-1)?.seq ?? this.#begun, limit: pageSize })
  }

  async #forget(read: Read): Promise<void> {
    const first = this.#seen[0]
    const there = first === undefined ? [] : await read({ after: first.seq - 1, limit: this.#seen.length })
    const isThere = (event: RunEvent) => there.some((one) => isSame(one, event))
    this.#seen = this.#seen.slice(0, this.#seen.findLastIndex(isThere) + 1)
  }
}

function isSame(one: RunEvent, other: RunEvent): boolean {
  return one.seq === other.seq && one.at === other.at && one.type === other.type && one.step === other.step
}
