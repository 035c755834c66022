import { longestQuietMs, type QuietRun, type QuietTimes } from './quiet-times.ts'

/**
 * The quiet time of one execution: how long nothing may be heard of its function, with nothing of ours at work, before the run is persisted as
 * waiting. The function may await something that is not ctx's meanwhile. In its quiet time the run is held, and needs no place in the worker.
 */
export class QuietTime implements QuietRun {
  /** The worker is told when the run needs its place no more, and when it needs it again. */
  onPlace: ((isNeeded: boolean) => void) | undefined
  readonly #times: QuietTimes
  readonly #onOver: () => void
  readonly #onBroken: () => void
  readonly #keepsPlace: boolean
  readonly #isNever: boolean
  #ms: number
  #heardAt = 0
  isQuiet = false
  #quietSince = 0
  #waitedMs = 0
  #hasPlace = true

  constructor(options: QuietTimeOptions) {
    this.#times = options.times
    this.#onOver = options.onOver
    this.#onBroken = options.onBroken
    this.#keepsPlace = options.isLimited
    this.#isNever = options.isInternal
    this.#ms = options.isLimited || options.isInternal ? 0 : options.times.quietMs
  }

  /** What the next holder is to wait, when this one turns out to have waited too short. */
  get longerMs(): number {
    const least = this.#times.quietMs > 0 ? this.#times.quietMs : 1_000
    return Math.min(longestQuietMs, this.#ms === 0 ? least : 2 * this.#ms)
  }

  get quietUntil(): number {
    return this.#heardAt + this.#ms
  }

  get isOver(): boolean {
    return this.#ms === 0 || this.quietUntil <= performance.now()
  }

  /** How long the run has waited in its quiet times, as far as is known. */
  get waitedMs(): number {
    return this.#waitedMs + (this.isQuiet ? performance.now() - this.#quietSince : 0)
  }

  /** An earlier holder was caught at work: this one waits longer. */
  raise(ms: number): void {
    if (this.#isNever || !(ms > this.#ms)) return
    this.#ms = Math.min(longestQuietMs, ms)
    this.heard()
  }

  /** The function called, or got a result: it may be at work from here on. */
  heard(): void {
    if (this.#ms > 0) this.#heardAt = performance.now()
    const wasQuiet = this.isQuiet
    // It acts by itself: it was at work, and did not wait.
    if (wasQuiet) this.#quietSince = performance.now()
    if (wasQuiet || !this.#hasPlace) this.work()
    if (wasQuiet) this.#onBroken()
  }

  /** Something is at work: the run needs its place. */
  work(): void {
    this.#leave()
    if (this.#hasPlace) return
    this.#hasPlace = true
    this.onPlace?.(true)
  }

  /** Nothing is known to be at work. `onOver` is called when that was so for long enough. */
  begin(): void {
    if (this.isQuiet) return
    this.isQuiet = true
    this.#quietSince = performance.now()
    this.#times.add(this)
    if (this.#keepsPlace || !this.#hasPlace) return
    this.#hasPlace = false
    this.onPlace?.(false)
  }

  /** It is over, or cut short. */
  endQuiet(): void {
    this.#waitedMs = this.waitedMs
    this.isQuiet = false
    this.#heardAt = Number.NEGATIVE_INFINITY
    this.#onOver()
  }

  /** The execution is over: what its function still does needs no place. */
  end(): void {
    this.#leave()
    this.onPlace = undefined
  }

  #leave(): void {
    if (!this.isQuiet) return
    this.#waitedMs = this.waitedMs
    this.isQuiet = false
    this.#times.delete(this)
  }
}

export interface QuietTimeOptions {
  readonly times: QuietTimes
  /** Its queue is limited: it keeps its place. */
  readonly isLimited: boolean
  readonly isInternal: boolean
  /** Nothing was heard for long enough. */
  readonly onOver: () => void
  /** Something was heard before that. Where it sets nothing off, nothing else looks whether the function is quiet again. */
  readonly onBroken: () => void
}
