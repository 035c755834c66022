/** The longest quiet time of a run, however often it was caught at work. */
export const longestQuietMs = 60_000

/** What a worker is told where it says nothing else. */
export const defaultQuietMs = 1_000

/** A run of which nothing is known to be at work. */
export interface QuietRun {
  /** When its quiet time is over, by performance.now(). */
  readonly quietUntil: number
  endQuiet(): void
}

/**
 * The runs of one worker that are in their quiet time, with one timer for all of them. Past `most` the first of them do not get
 * the rest of it: one that was at work all the same is caught at it, and has more time when it is executed next.
 */
export class QuietTimes {
  /** How long a run has to be quiet before it is persisted as waiting. */
  readonly quietMs: number
  readonly #most: number
  readonly #runs = new Set<QuietRun>()
  #timer: NodeJS.Timeout | undefined
  #firesAt = Number.POSITIVE_INFINITY

  constructor({ quietMs, most }: { readonly quietMs: number; readonly most: number }) {
    this.quietMs = quietMs
    this.#most = most
  }

  add(run: QuietRun): void {
    this.#runs.add(run)
    if (this.#runs.size > this.#most) this.#endSome()
    else this.#fireAt(run.quietUntil)
  }

  delete(run: QuietRun): void {
    this.#runs.delete(run)
    if (this.#runs.size === 0) this.#stopTimer()
  }

  /** A tenth of them: first those that were never caught at work, which are in order of time. */
  #endSome(): void {
    let left = Math.ceil(this.#most / 10)
    const latest = performance.now() + this.quietMs
    for (const run of this.#runs) {
      if (left === 0) return
      if (run.quietUntil > latest) continue
      this.#end(run)
      left--
    }
    for (const run of [...this.#runs].slice(0, left)) this.#end(run)
  }

  #end(run: QuietRun): void {
    this.#runs.delete(run)
    run.endQuiet()
  }

  #fireAt(at: number): void {
    if (at >= this.#firesAt) return
    this.#stopTimer()
    this.#firesAt = at
    this.#timer = setTimeout(() => this.#fire(), Math.max(0, at - performance.now()))
  }

  #stopTimer(): void {
    clearTimeout(this.#timer)
    this.#firesAt = Number.POSITIVE_INFINITY
  }

  /** Ends those whose time is over, and those that would be next: runs that went quiet together are written together. */
  #fire(): void {
    this.#firesAt = Number.POSITIVE_INFINITY
    const now = performance.now()
    let next = Number.POSITIVE_INFINITY
    for (const run of this.#runs) {
      if (run.quietUntil <= now) this.#end(run)
      else next = Math.min(next, run.quietUntil)
    }
    if (next < Number.POSITIVE_INFINITY) this.#fireAt(Math.max(next, now + this.quietMs / 20))
  }
}
