import type { WaitReason } from '../../model/run.ts'

/** Waits up to this long stay in memory; longer ones become a row and free the worker. */
export const longWaitMs = 5_000

export interface Wait {
  /** Store time at which it is over; null when something else ends it. */
  readonly dueAt: number | null
  /** As a row the run sleeps until then; default dueAt. */
  readonly rowDueAt?: number
  readonly reason: WaitReason
  /** The operation that it waits for. */
  readonly waitKey?: string
  /** It is over when a message of one of these keys comes, too. */
  readonly wakeUpKeys?: readonly string[]
}

/** The calls of one execution that wait for time to pass or for something else. */
export class Waits {
  readonly #clock: Clock
  readonly #inMemoryMs: number
  readonly #waiting = new Map<Wait, Waiting>()
  #byWakeUp: Map<string, Set<Wait>> | undefined
  #isFrozen = false

  constructor(clock: Clock, inMemoryMs = longWaitMs) {
    this.#clock = clock
    this.#inMemoryMs = inMemoryMs
  }

  get size(): number {
    return this.#waiting.size
  }

  /** Resolves when the wait is due. Each wait is an object of its own. */
  add(wait: Wait): Promise<void> {
    return new Promise((resolve, reject) => {
      const waiting: Waiting = { resolve, reject }
      this.#waiting.set(wait, waiting)
      for (const key of wait.wakeUpKeys ?? []) this.#waitersFor(key).add(wait)
      if (wait.dueAt !== null) this.#setTimer(wait, waiting, wait.dueAt)
    })
  }

  /** What it waited for is of no interest any more: it never ends. */
  withdraw(wait: Wait): void {
    this.#take(wait)
  }

  /** It is over now. */
  wake(wait: Wait): void {
    this.#take(wait)?.resolve()
  }

  /** Whether one of them is over so soon that the run stays in memory. */
  get isAnyDueSoon(): boolean {
    const soon = this.#clock.now() + this.#inMemoryMs
    for (const wait of this.#waiting.keys()) if (dueAsRow(wait) <= soon) return true
    return false
  }

  /** How the run would be persisted as waiting: until when, for what, for which operations. Null while something is due soon. */
  asRow(): { readonly dueAt: number; readonly reason: WaitReason; readonly waitKeys: readonly string[] } | null {
    if (this.isAnyDueSoon) return null
    const waits = [...this.#waiting.keys()]
    const dueAt = waits.reduce((soonest, wait) => Math.min(soonest, dueAsRow(wait)), Number.POSITIVE_INFINITY)
    const first = waits.find((wait) => dueAsRow(wait) === dueAt)
    if (first === undefined) return null
    // A person who is waited for should find the run, whatever else it waits for.
    const reason = waits.some((wait) => wait.reason === 'person') ? 'person' : first.reason
    return { dueAt, reason, waitKeys: [...new Set(waits.flatMap((wait) => wait.waitKey ?? []))] }
  }

  /** Whether a call waits for messages of this key. */
  awaitsWakeUp(key: string): boolean {
    return this.#byWakeUp?.has(key) === true
  }

  /** Messages of these keys have come: the calls that wait for them look again. */
  wakeFor(keys: Iterable<string>): void {
    for (const key of keys) for (const wait of [...(this.#byWakeUp?.get(key) ?? [])]) this.wake(wait)
  }

  /** The clock is ahead of where it was: timers that were set by it are set anew. */
  clockMoved(): void {
    if (this.#isFrozen) return
    for (const [wait, waiting] of this.#waiting) {
      clearTimeout(waiting.timer)
      if (wait.dueAt !== null) this.#setTimer(wait, waiting, wait.dueAt)
    }
  }

  /** The execution ends: waits stay as they are, for ever. */
  freeze(): void {
    this.#isFrozen = true
    for (const { timer } of this.#waiting.values()) clearTimeout(timer)
  }

  throw(error: Error): void {
    this.freeze()
    for (const { reject } of this.#waiting.values()) reject(error)
    this.#waiting.clear()
    this.#byWakeUp = undefined
  }

  #setTimer(wait: Wait, waiting: Waiting, dueAt: number): void {
    const delayMs = Math.max(0, dueAt - this.#clock.now())
    // Longer than setTimeout can count: looked at again. As a rule the run is a row long before.
    waiting.timer = setTimeout(
      () => (dueAt > this.#clock.now() ? this.#setTimer(wait, waiting, dueAt) : this.wake(wait)),
      Math.min(delayMs, 60_000),
    )
  }

  #take(wait: Wait): Waiting | undefined {
    const waiting = this.#waiting.get(wait)
    clearTimeout(waiting?.timer)
    this.#waiting.delete(wait)
    for (const key of wait.wakeUpKeys ?? []) {
      const others = this.#byWakeUp?.get(key)
      others?.delete(wait)
      if (others?.size === 0) this.#byWakeUp?.delete(key)
    }
    return waiting
  }

  #waitersFor(key: string): Set<Wait> {
    this.#byWakeUp ??= new Map()
    const known = this.#byWakeUp.get(key)
    if (known !== undefined) return known
    const waiters = new Set<Wait>()
    this.#byWakeUp.set(key, waiters)
    return waiters
  }
}

function dueAsRow(wait: Wait): number {
  return wait.rowDueAt ?? wait.dueAt ?? Number.POSITIVE_INFINITY
}

/** Says what time it is, in ms. */
interface Clock {
  now(): number
}

interface Waiting {
  timer?: NodeJS.Timeout
  readonly resolve: () => void
  readonly reject: (error: Error) => void
}
