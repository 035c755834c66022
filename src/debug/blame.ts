import type { EventType } from '../model/event.ts'
import type { Path } from '../model/patch-operation.ts'
import { type Trace, traceBack } from '../model/patch-trace.ts'
import { findAgain, isSameValue } from '../model/state-diff.ts'
import { followPath, parsePath, type StatePath } from '../model/state-path.ts'
import type { History, HistoryEvent, HistoryOrigin } from './history.ts'

/** Who wrote a value of a state, and who before. */
export interface Blame {
  readonly checkpoint: string
  /** The keys that lead to it. */
  readonly path: Path
  readonly isThere: boolean
  readonly value: unknown
  /** Null where nothing on record has written it. */
  readonly last: Writer | null
  /** Those before, latest first. They end where an item was put into a list, or where the history begins. */
  readonly before: readonly Writer[]
}

/** An event that wrote a value. */
export interface Writer {
  /** Where it is in the history. */
  readonly checkpoint: string
  readonly at: number
  readonly event: EventType
  /** Null: a person, with `thread.update`. */
  readonly runId: string | null
  /** Null: the function of the run itself, with `ctx.update`, or a person. */
  readonly step: string | null
  readonly attempt: number
  /** Who did it, where that was told. */
  readonly by: string | null
  /** `set`: the value as a whole; `changed`: a part of it; `removed`: it was there until then. */
  readonly how: 'set' | 'changed' | 'removed'
  /** Where the value was then: items of lists move. */
  readonly path: Path
  /** What brought the value here, latest first: rollbacks, rewinds, forks, states that were rebuilt for another attempt, migrations. */
  readonly through: readonly { readonly checkpoint: string; readonly event: EventType; readonly by: string | null }[]
}

/** Walks back through the changes of the state, through rollbacks and rewinds to what they went back to, and from a fork into what it was made from. */
export async function blamePath(
  { history, id }: { readonly history: History; readonly id: string },
  asked: StatePath,
  limit: number,
): Promise<Blame> {
  const state = await history.stateAt(id)
  const { path, isThere, value } = followPath(state, parsePath(asked))
  const walk = new Walk(history.whole(), { position: history.positionOf(id), path })
  const writers: Writer[] = []
  while (writers.length < limit) {
    const writer = await walk.next()
    if (writer === null) break
    writers.push(writer)
  }
  const [last = null, ...before] = writers
  return { checkpoint: id, path, isThere, value, last, before }
}

/** Pages double: most values were written a little before, and some at the very beginning. */
const [firstPage, longestPage] = [100, 1_000]
/** So many states are looked at for an item that was put back. */
const mostLookedAt = 50

class Walk {
  #history: History
  #position: number
  /** Null: what is looked for was made by the last event that was told. */
  #path: Path | null
  /** Changes at and before the position, the next one last, and the rollbacks among and after them. */
  #changes: HistoryEvent[] = []
  #rollbacks: readonly HistoryEvent[] = []
  #pageSize = firstPage
  #through: Writer['through'] = []
  /** Undefined where it was not looked for yet. */
  #origin: HistoryOrigin | null | undefined
  /** Changes that a later event made void: they wrote nothing that was left. */
  readonly #voided = new Set<number>()

  constructor(history: History, from: { readonly position: number; readonly path: Path }) {
    this.#history = history
    this.#position = from.position
    this.#path = from.path
  }

  /** The next event back that wrote it. */
  async next(): Promise<Writer | null> {
    for (;;) {
      if (this.#path === null) return null
      const change = await this.#nextChange()
      if (await this.#goToOrigin(change?.position ?? 0)) continue
      const rollback = this.#rollbacks.findLast(({ position }) => position <= this.#position)
      if (
        rollback !== undefined &&
        rollback.position >= (change?.position ?? 0) &&
        (await this.#goBackWith(rollback, this.#path))
      )
        continue
      if (change === undefined) return null
      this.#changes.pop()
      this.#position = change.position - 1
      const trace = traceBack(this.#path, change.patch ?? [])
      const path = this.#path
      this.#path = trace.before
      if (trace.how === null || this.#voided.has(change.position)) continue
      if (trace.how === 'removed' && !followPath(await this.#history.stateBefore(change.id), path).isThere) continue
      const event = await this.#history.event(change.id)
      if (await this.#isSeenThrough(event, path, trace)) continue
      return this.#writer(event, path, trace.how)
    }
  }

  async #nextChange(): Promise<HistoryEvent | undefined> {
    if (this.#changes.length === 0) {
      this.#rollbacks = []
      for (let to = this.#position; this.#changes.length === 0; ) {
        const query = { to: this.#history.idAt(to), limit: this.#pageSize, newestFirst: true, withReturns: true }
        const page = (await this.#history.changes(query)).toReversed()
        if (page[0] === undefined) break
        this.#changes = page.filter(({ patch }) => patch !== null)
        this.#rollbacks = [...page.filter(({ backTo }) => backTo !== null), ...this.#rollbacks]
        this.#pageSize = Math.min(2 * this.#pageSize, longestPage)
        to = page[0].position - 1
      }
    }
    return this.#changes.at(-1)
  }

  /** True where the value is the one that the rollback went back to: the walk continues there. */
  async #goBackWith(rollback: HistoryEvent, path: Path): Promise<boolean> {
    const { backTo, id } = rollback
    if (backTo === null) return false
    const there = this.#history.idAt(backTo)
    const [then, now] = await Promise.all([this.#history.stateAt(there), this.#history.stateAt(id)])
    const [before, after] = [followPath(then, path), followPath(now, path)]
    if (before.isThere !== after.isThere || !isSameValue(before.value, after.value)) return false
    this.#continueAt(backTo, await this.#history.event(id))
    return true
  }

  /** Whether an event only brought back or carried over what another had written. */
  async #isSeenThrough(event: HistoryEvent, path: Path, { before }: Trace): Promise<boolean> {
    const { id, type, data } = event
    if (type === 'state_migrated') {
      // It writes the state as a whole.
      const there = await this.#placeBefore(id, path)
      if (there === null) return false
      this.#path = there
      this.#noteThrough(event)
      return true
    }
    const { from } = (data['rebuilt'] ?? {}) as { from?: number }
    if (type !== 'state_updated' || from === undefined) return false
    for (const position of await this.#history.voidedBy(id)) this.#voided.add(position)
    if (before === null) return this.#findPutBack(event, path, from)
    this.#noteThrough(event)
    return true
  }

  /** Where a value was before an event that wrote the whole state; null where it was not there, or another one. */
  async #placeBefore(id: string, path: Path): Promise<Path | null> {
    const [then, now] = await Promise.all([this.#history.stateBefore(id), this.#history.stateAt(id)])
    const [before, after] = [followPath(then, path), followPath(now, path)]
    if (!after.isThere) return null
    const found = findAgain(path, { from: now, to: then })
    return found ?? (before.isThere && isSameValue(before.value, after.value) ? path : null)
  }

  /** An item that was put back into a list: it was there before something that was made void took it away. */
  async #findPutBack(event: HistoryEvent, path: Path, from: number): Promise<boolean> {
    const history = this.#history
    const range = { after: history.idAt(from - 1), to: history.idAt(event.position - 1) }
    const between = await history.changes({ ...range, limit: mostLookedAt, newestFirst: true })
    const now = await history.stateAt(event.id)
    for (const position of [...between.slice(0, mostLookedAt).map((change) => change.position), from - 1]) {
      const there = findAgain(path, { from: now, to: await history.stateAt(history.idAt(position)) })
      if (there === null) continue
      this.#path = there
      this.#continueAt(position, event)
      return true
    }
    return false
  }

  /** In a copy the walk continues in what that was made from. True where it does. */
  async #goToOrigin(next: number): Promise<boolean> {
    if (this.#origin === undefined) this.#origin = await this.#history.origin()
    if (this.#origin === null || next > this.#origin.upTo) return false
    const { history, event, upTo, positionOf } = this.#origin
    this.#history = history
    this.#origin = undefined
    this.#continueAt(positionOf(Math.min(this.#position, upTo)), event)
    return true
  }

  #continueAt(position: number, through: HistoryEvent): void {
    this.#position = position
    this.#changes = []
    this.#pageSize = firstPage
    this.#noteThrough(through)
  }

  #noteThrough(event: HistoryEvent): void {
    this.#through = [...this.#through, { checkpoint: event.id, event: event.type, by: byOf(event) }]
  }

  #writer(event: HistoryEvent, path: Path, how: Writer['how']): Writer {
    const { id, at, type, runId, step, attempt } = event
    const through = this.#through
    this.#through = []
    return { checkpoint: id, at, event: type, runId, step, attempt, by: byOf(event), how, path, through }
  }
}

function byOf({ data }: HistoryEvent): string | null {
  return typeof data['by'] === 'string' ? data['by'] : null
}
