import { codeOf, HoldfastError } from '../../model/errors.ts'
import { type Logger, silentLogger } from '../../model/logger.ts'
import { leaveOutRepeats } from '../../model/repeats.ts'
import type { Change, Committed } from '../../store/change.ts'
import type { Store } from '../../store/store.ts'
import type { LeaseHistory } from './lease-history.ts'

/** With a batch under way, so many changes of other threads are worth a batch of their own. */
const worthASecond = 64

/**
 * Group commit: one committer a process, in front of the store.
 *
 * Idle, it writes as soon as the current turn of the event loop is over; busy, it gathers what arrives and writes it as
 * one batch. Where the store says that it gains from it, a second batch goes out while the first is under way.
 *
 *   C1  A promise of `commit` resolves only after the store has acknowledged a flush that covers it.
 *   C2  Changes that concern the same thread are never reordered, also when a batch is tried again, and never in two
 *       batches that are under way at once: the second could be written where the first was not.
 *   C3  A change that breaks its batch is found by writing one by one; its neighbours do not suffer.
 *   C4  Nothing is written twice or out of order: a batch whose outcome is not known is not tried again, and once a change of
 *       a lease has failed, no later one of that lease is written.
 */
export class Committer {
  readonly #store: Store
  readonly #maxBatch: number
  readonly #maxQueue: number
  readonly #log: Logger
  #queue: Entry[] = []
  /** Loops that write: one, or two with a store that can pipeline. */
  #flushing = 0
  /** Batches that the store has not answered for. */
  readonly #underWay = new Set<Batch>()
  /** How many changes have to wait before it is worth looking for a second batch among them. */
  #nextLook = worthASecond
  #isClosed = false
  /** How many of the next changes are written alone, to find the one that broke its batch. */
  #oneByOne = 0
  #whenRoom: (() => void)[] = []
  #whenIdle: (() => void)[] = []
  /** Leases of which a change has failed, with the reason. */
  readonly #broken = new Map<string, unknown>()
  /** Counts turns of the event loop in which something was acknowledged: what has the same number arrived in the same turn. */
  turn = 0
  #isTurnCounted = false

  constructor(store: Store, options: { maxBatch?: number; maxQueue?: number; log?: Logger } = {}) {
    this.#store = store
    this.#maxBatch = options.maxBatch ?? 250
    this.#maxQueue = options.maxQueue ?? 10_000
    this.#log = options.log ?? silentLogger
  }

  /**
   * Hands a change in. With `isPatient` an unavailable or full store is waited for (a run's own progress);
   * without, it is an error to the caller. With a history it is sent as that says (H1), or refused by it (H2).
   */
  commit(change: Change, isPatient = false, history?: LeaseHistory): Promise<Committed> {
    if (this.#isClosed) return Promise.reject(closedError())
    if (this.#broken.size > 0 && change.guard.kind === 'lease' && this.#broken.has(change.guard.leaseId)) {
      return Promise.reject(this.#broken.get(change.guard.leaseId))
    }
    return new Promise((resolve, reject) => {
      const threads = this.#store.canPipeline === true ? threadsOf(change) : []
      this.#queue.push({ change: withoutRepeats(change), history, threads, isPatient, resolve, reject })
      this.#schedule()
    })
  }

  /** Resolves when there is room: callers that hand in without end wait here. */
  async room(): Promise<void> {
    while (this.#queue.length >= this.#maxQueue) await new Promise<void>((resolve) => this.#whenRoom.push(resolve))
  }

  /**
   * Writes what was handed in, then refuses more. What the store does not take within `limitMs` is refused too; what it took and does
   * not answer for within `answerMs`, which is longer than any store of ours waits, is `outcome_unknown`.
   */
  async close({ limitMs = 5_000, answerMs = 40_000 } = {}): Promise<void> {
    const timers = [setTimeout(() => this.#abandon(), limitMs), setTimeout(() => this.#giveUp(answerMs), answerMs)]
    while (this.#queue.length > 0 || this.#flushing > 0) await new Promise<void>((resolve) => this.#whenIdle.push(resolve))
    for (const timer of timers) clearTimeout(timer)
    this.#isClosed = true
  }

  #abandon(): void {
    this.#isClosed = true
    for (const entry of this.#queue.splice(0)) entry.reject(closedError())
  }

  #giveUp(afterMs: number): void {
    this.#abandon()
    const changes = [...this.#underWay].reduce((sum, { entries }) => sum + entries.length, 0)
    this.#log.error('the store did not answer while closing; whether the last changes were written is not known', {
      changes,
      afterMs,
    })
    for (const { giveUp } of this.#underWay) giveUp(unansweredError(afterMs))
  }

  #schedule(): void {
    if (this.#flushing > 0 && !this.#isWorthASecond()) return
    this.#flushing++
    setImmediate(this.#flush)
  }

  #isWorthASecond(): boolean {
    if (this.#store.canPipeline !== true || this.#flushing > 1) return false
    return this.#underWay.size === 1 && this.#oneByOne === 0 && this.#queue.length >= this.#nextLook
  }

  readonly #flush = async (): Promise<void> => {
    let failures = 0
    for (let batch = this.#take(); batch.length > 0; batch = this.#take()) {
      const isAlone = this.#oneByOne > 0
      const isDone = await this.#write(batch, isAlone)
      failures = isDone ? 0 : failures + 1
      if (!isDone) await sleep(Math.min(1_000, 10 * 2 ** failures))
      if (this.#queue.length < this.#maxQueue) for (const wake of this.#whenRoom.splice(0)) wake()
      // What the acknowledgements set off joins the next batch. A store that answers over a network lets others have their turn anyway.
      if (isDone) await (this.#store.canPipeline === true ? endOfMicrotasks() : nextTurn())
    }
    this.#flushing--
    if (this.#flushing === 0) for (const wake of this.#whenIdle.splice(0)) wake()
  }

  #take(): Entry[] {
    if (this.#underWay.size > 0) return this.#takeSecond()
    this.#nextLook = worthASecond
    return this.#queue.splice(0, this.#oneByOne > 0 ? 1 : this.#maxBatch)
  }

  /** With another batch under way: what concerns none of its threads, in order, where that is worth it (C2). */
  #takeSecond(): Entry[] {
    if (this.#oneByOne > 0 || this.#queue.length < this.#nextLook) return []
    const passedBy = new Set([...this.#underWay].flatMap(({ entries }) => entries.flatMap(({ threads }) => threads)))
    const taken: Entry[] = []
    const left: Entry[] = []
    for (const entry of this.#queue) {
      if (taken.length < this.#maxBatch && !entry.threads.some((thread) => passedBy.has(thread))) taken.push(entry)
      else {
        left.push(entry)
        for (const thread of entry.threads) passedBy.add(thread)
      }
    }
    const isWorthIt = taken.length >= worthASecond
    this.#nextLook = isWorthIt ? worthASecond : this.#queue.length + worthASecond
    if (!isWorthIt) return []
    this.#queue = left
    return taken
  }

  /** Writes a batch; what has to wait for the store goes back to the front of the queue. */
  async #write(batch: Entry[], isAlone: boolean): Promise<boolean> {
    const entries = batch.some(({ history }) => history?.isOver === true) ? this.#refuseLost(batch) : batch
    try {
      if (entries.length > 0) this.#settle(entries, await this.#ask(entries))
    } catch (error) {
      if (isOutage(error)) return this.#putBack(entries, error)
      if (entries.length > 1 && codeOf(error) !== 'outcome_unknown') {
        this.#queue.unshift(...entries)
        this.#oneByOne += entries.length
        return true
      }
      this.#fail(entries, error)
    }
    if (isAlone) this.#oneByOne--
    return true
  }

  #settle(entries: readonly Entry[], answers: readonly Committed[]): void {
    this.#countTurn()
    // Before anybody hears of his own: what he hands in next may be sent at once.
    for (let i = 0; i < entries.length; i++) entries[i]?.history?.note(entries[i]?.change as Change, answers[i] as Committed)
    for (let i = 0; i < entries.length; i++) entries[i]?.resolve(answers[i] as Committed)
  }

  /** Answers those whose leases are known to be lost (H2). Returns the others. */
  #refuseLost(batch: readonly Entry[]): Entry[] {
    return batch.filter(({ history, resolve }) => {
      if (history?.isOver !== true) return true
      resolve({ ok: false, refusal: 'lease_lost' })
      return false
    })
  }

  /** Two batches can be answered in one turn. */
  #countTurn(): void {
    if (this.#isTurnCounted) return
    this.turn++
    this.#isTurnCounted = true
    setImmediate(() => {
      this.#isTurnCounted = false
    })
  }

  async #ask(entries: Entry[]): Promise<readonly Committed[]> {
    const { promise, resolve, reject } = Promise.withResolvers<readonly Committed[]>()
    const batch: Batch = { entries, giveUp: reject }
    this.#underWay.add(batch)
    for (const { history } of entries) history?.sent.begin()
    try {
      const changes = entries.map(({ change, history }) => (history === undefined ? change : history.stamp(change)))
      this.#store.commit(changes).then(resolve, reject)
      if (this.#queue.length > 0) this.#schedule()
      return await promise
    } finally {
      this.#underWay.delete(batch)
      for (const { history } of entries) history?.sent.end()
    }
  }

  /** Rejects these changes, and of their leases also what waits behind them (C4). */
  #fail(batch: readonly Entry[], error: unknown): void {
    const leases = new Set(batch.flatMap(({ change: { guard } }) => (guard.kind === 'lease' ? guard.leaseId : [])))
    for (const leaseId of leases) this.#broken.set(leaseId, error)
    const isBroken = ({ change: { guard } }: Entry) => guard.kind === 'lease' && leases.has(guard.leaseId)
    const behind = this.#queue.filter(isBroken)
    this.#queue = this.#queue.filter((entry) => !isBroken(entry))
    for (const entry of [...batch, ...behind]) entry.reject(error)
  }

  #putBack(batch: Entry[], error: unknown): boolean {
    const patient = this.#isClosed ? [] : batch.filter((entry) => entry.isPatient)
    for (const entry of batch) if (!patient.includes(entry)) entry.reject(error)
    this.#queue.unshift(...patient)
    return patient.length === 0
  }
}

interface Entry {
  readonly change: Change
  readonly history: LeaseHistory | undefined
  /** The threads that it concerns; empty where it is not asked for. */
  readonly threads: readonly string[]
  readonly isPatient: boolean
  readonly resolve: (answer: Committed) => void
  readonly reject: (error: unknown) => void
}

interface Batch {
  readonly entries: readonly Entry[]
  readonly giveUp: (error: unknown) => void
}

function withoutRepeats(change: Change): Change {
  const events = leaveOutRepeats(change.events)
  return events === change.events ? change : { ...change, events }
}

function threadsOf({ owner, threadId, creates = [] }: Change): string[] {
  return [{ owner, threadId }, ...creates].map((one) => `${one.owner.length}:${one.owner}${one.threadId}`)
}

/** Nothing was written, and trying again may help. */
export function isOutage(error: unknown): boolean {
  const code = codeOf(error)
  return code === 'store_unavailable' || code === 'storage_full'
}

function closedError(): HoldfastError {
  return new HoldfastError('closed', 'This Holdfast was closed; nothing was written. Open it again to continue.')
}

function unansweredError(afterMs: number): HoldfastError {
  return new HoldfastError(
    'outcome_unknown',
    `The store did not answer within ${afterMs} ms of closing; whether this change was written is not known. Open again and read it.`,
    { details: { afterMs } },
  )
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms))
}

function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}

function endOfMicrotasks(): Promise<void> {
  return new Promise((resolve) => process.nextTick(resolve))
}
