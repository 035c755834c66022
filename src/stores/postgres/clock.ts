import { ClockWatch } from '../../model/clock-set-back.ts'

/** How long an estimate of the server's time is used before it is asked again. */
const validMs = 1_000

/**
 * The server's clock, kept going by this process's monotonic one between answers that say what time it is there.
 * An answer takes a while to arrive, so the estimate is behind the server and never ahead of it.
 */
export class Clock {
  readonly #offsetMs: () => number
  #lead = Number.NEGATIVE_INFINITY
  #learnedAt = Number.NEGATIVE_INFINITY
  /** Whether it was set back. */
  readonly watch = new ClockWatch()

  constructor(offsetMs: () => number) {
    this.#offsetMs = offsetMs
  }

  /** Whole ms to be added to the server's time. */
  offset(): number {
    return Math.round(this.#offsetMs())
  }

  /** An answer came in that was made at this time; `offset` is what had been added to it. */
  learn(now: number, offset = this.offset()): void {
    const at = performance.now()
    this.watch.see({ now, at })
    const lead = now - offset - at
    if (lead < this.#lead && at - this.#learnedAt < validMs) return
    this.#lead = lead
    this.#learnedAt = at
  }

  /** The store's time, or null when it has to be asked. */
  estimate(): number | null {
    const at = performance.now()
    return at - this.#learnedAt > validMs ? null : Math.floor(at + this.#lead) + this.offset()
  }
}
