import { codeOf, HoldfastError } from '../model/errors.ts'
import type { Change, Committed } from '../store/change.ts'
import type { Store } from '../store/store.ts'

/**
 * Group commit: one committer a process, in front of the store.
 *
 * Idle, it writes as soon as the current turn of the event loop is over; busy, it gathers what arrives and writes it as
 * one batch. It owns the order: changes reach the store in the order in which they were handed in.
 *
 *   C1  A promise of `commit` resolves only after the store has acknowledged a flush that covers it.
 *   C2  Changes are never reordered, also when a batch is tried again.
 *   C3  A change that breaks its batch is found by writing one by one; its neighbours do not suffer.
 *   C4  Nothing is written twice or out of order: a batch whose outcome is not known is not tried again, and once a change of
 *       a lease has failed, no later one of that lease is written.
 */
export class Committer {
  readonly #store: Store
  readonly #maxBatch: number
  readonly #maxQueue: number
  #queue: Entry[] = []
  #isFlushing = false
  #isClosed = false
  /** How many of the next changes are written alone, to find the one that broke its batch. */
  #oneByOne = 0
  #whenRoom: (() => void)[] = []
  #whenIdle: (() => void)[] = []
  /** Leases of which a change has failed, with the reason. */
  readonly #broken = new Map<string, unknown>()
  /** Counts flushes: acknowledgements with the same number arrived in the same turn of the event loop. */
  turn = 0

  constructor(store: Store, options: { maxBatch?: number; maxQueue?: number } = {}) {
    this.#store = store
    this.#maxBatch = options.maxBatch ?? 250
    this.#maxQueue = options.maxQueue ?? 10_000
  }

  /**
   * Hands a change in. With `isPatient` an unavailable or full store is waited for (a run's own progress);
   * without, it is an error to the caller.
   */
  commit(change: Change, isPatient = false): Promise<Committed> {
    if (this.#isClosed) return Promise.reject(closedError())
    if (this.#broken.size > 0 && change.guard.kind === 'lease' && this.#broken.has(change.guard.leaseId)) {
      return Promise.reject(this.#broken.get(change.guard.leaseId))
    }
    return new Promise((resolve, reject) => {
      this.#queue.push({ change, isPatient, resolve, reject })
      this.#schedule()
    })
  }

  /** Resolves when there is room: callers that hand in without end wait here. */
  async room(): Promise<void> {
    while (this.#queue.length >= this.#maxQueue) await new Promise<void>((resolve) => this.#whenRoom.push(resolve))
  }

  /** Writes what was handed in, then refuses more. What the store does not take within `limitMs` is refused too. */
  async close(limitMs = 5_000): Promise<void> {
    const timer = setTimeout(() => this.#abandon(), limitMs)
    while (this.#queue.length > 0 || this.#isFlushing) await new Promise<void>((resolve) => this.#whenIdle.push(resolve))
    clearTimeout(timer)
    this.#isClosed = true
  }

  #abandon(): void {
    this.#isClosed = true
    for (const entry of this.#queue.splice(0)) entry.reject(closedError())
  }

  #schedule(): void {
    if (this.#isFlushing) return
    this.#isFlushing = true
    setImmediate(this.#flush)
  }

  readonly #flush = async (): Promise<void> => {
    let failures = 0
    while (this.#queue.length > 0) {
      const batch = this.#queue.splice(0, this.#oneByOne > 0 ? 1 : this.#maxBatch)
      const isDone = await this.#write(batch)
      failures = isDone ? 0 : failures + 1
      if (!isDone) await sleep(Math.min(1_000, 10 * 2 ** failures))
      if (this.#queue.length < this.#maxQueue) for (const wake of this.#whenRoom.splice(0)) wake()
      // What the acknowledgements set off in this turn joins the next batch.
      if (isDone) await nextTurn()
    }
    this.#isFlushing = false
    for (const wake of this.#whenIdle.splice(0)) wake()
  }

  /** Writes a batch; what has to wait for the store goes back to the front of the queue. */
  async #write(batch: Entry[]): Promise<boolean> {
    try {
      const answers = await this.#store.commit(batch.map((entry) => entry.change))
      this.turn++
      for (let i = 0; i < batch.length; i++) batch[i]?.resolve(answers[i] as Committed)
    } catch (error) {
      if (isOutage(error)) return this.#putBack(batch, error)
      if (batch.length > 1 && codeOf(error) !== 'outcome_unknown') {
        this.#queue.unshift(...batch)
        this.#oneByOne = batch.length
        return true
      }
      this.#fail(batch, error)
    }
    if (this.#oneByOne > 0) this.#oneByOne--
    return true
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
  readonly isPatient: boolean
  readonly resolve: (answer: Committed) => void
  readonly reject: (error: unknown) => void
}

/** Nothing was written, and trying again may help. */
export function isOutage(error: unknown): boolean {
  const code = codeOf(error)
  return code === 'store_unavailable' || code === 'storage_full'
}

function closedError(): HoldfastError {
  return new HoldfastError('closed', 'This Holdfast was closed; nothing was written. Open it again to go on.')
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms))
}

function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}
