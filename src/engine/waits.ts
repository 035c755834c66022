import type { WaitReason } from '../model/run.ts'

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
  /** It is over when a letter comes, too. */
  readonly wakesOnMail?: boolean
}

/** The calls of one execution that wait for time to pass or for somebody else. */
export class Waits {
  readonly #now: () => number
  readonly #inMemoryMs: number
  readonly #waiting = new Set<Waiting>()

  constructor(now: () => number, inMemoryMs = longWaitMs) {
    this.#now = now
    this.#inMemoryMs = inMemoryMs
  }

  get size(): number {
    return this.#waiting.size
  }

  /** Resolves when the wait is due. */
  add(wait: Wait): Promise<void> {
    return new Promise((resolve, reject) => {
      const waiting: Waiting = { ...wait, of: wait, resolve, reject }
      this.#waiting.add(waiting)
      if (wait.dueAt !== null) this.#setTimer(waiting, wait.dueAt)
    })
  }

  /** What it waited for is of no interest any more. */
  withdraw(wait: Wait): void {
    for (const waiting of this.#waiting) {
      if (waiting.of !== wait) continue
      clearTimeout(waiting.timer)
      this.#waiting.delete(waiting)
    }
  }

  /** How the run would wait as a row: until when, for what, for which operations. Null while something is due soon. */
  asRow(): { readonly dueAt: number; readonly reason: WaitReason; readonly waitKeys: readonly string[] } | null {
    const waits = [...this.#waiting]
    const dueAt = waits.reduce((soonest, wait) => Math.min(soonest, dueAsRow(wait)), Number.POSITIVE_INFINITY)
    const first = waits.find((wait) => dueAsRow(wait) === dueAt)
    if (first === undefined || dueAt - this.#now() <= this.#inMemoryMs) return null
    // A person who is waited for should find the run, whatever else it waits for.
    const reason = waits.some((wait) => wait.reason === 'person') ? 'person' : first.reason
    return { dueAt, reason, waitKeys: [...new Set(waits.flatMap((wait) => wait.waitKey ?? []))] }
  }

  /** Letters have come: who waits for one looks again. */
  wakeForMail(): void {
    for (const waiting of this.#waiting) {
      if (waiting.wakesOnMail !== true) continue
      clearTimeout(waiting.timer)
      this.#wake(waiting)
    }
  }

  /** The execution ends: waits stay as they are, for ever. */
  freeze(): void {
    for (const waiting of this.#waiting) clearTimeout(waiting.timer)
  }

  throw(error: Error): void {
    this.freeze()
    for (const waiting of this.#waiting) waiting.reject(error)
    this.#waiting.clear()
  }

  #setTimer(waiting: Waiting, dueAt: number): void {
    const delayMs = Math.max(0, dueAt - this.#now())
    // Longer than setTimeout can count: looked at again. As a rule the run is a row long before.
    waiting.timer = setTimeout(
      () => (dueAt > this.#now() ? this.#setTimer(waiting, dueAt) : this.#wake(waiting)),
      Math.min(delayMs, 60_000),
    )
  }

  #wake(waiting: Waiting): void {
    this.#waiting.delete(waiting)
    waiting.resolve()
  }
}

function dueAsRow(wait: Wait): number {
  return wait.rowDueAt ?? wait.dueAt ?? Number.POSITIVE_INFINITY
}

interface Waiting extends Wait {
  readonly of: Wait
  timer?: NodeJS.Timeout
  readonly resolve: () => void
  readonly reject: (error: Error) => void
}
