import type { CallHost } from '../execution/call-host.ts'
import type { StateView } from '../state/state-timeline.ts'
import type { Call, ScopeAttempt } from './calls.ts'

/**
 * One attempt while its function runs: whether it is at work (A3), whether it still counts (A4), and whether what it brings is awaited by a
 * run that is being stopped: unless all that its function waits for are calls that rest, which a run that is being stopped leaves as they are.
 */
export class SectionAttempt implements ScopeAttempt {
  readonly #host: CallHost
  readonly #call: Call
  readonly #abort: AbortController | undefined
  readonly #outer: AbortSignal | undefined
  readonly #passOn = () => this.#abort?.abort(this.#outer?.reason)
  #inFlight = 0
  #resting = 0
  #isResting = false
  #isCounting = false
  #isAtWork = false
  #isOver = false
  #isUndoable = false
  #hasReturned = false
  #lacks = false
  /** What its function returns. */
  made: Promise<unknown> | undefined
  readonly view: StateView

  constructor(host: CallHost, call: Call, hasLimit: boolean, view: StateView) {
    this.#host = host
    this.#call = call
    this.view = view
    if (!hasLimit) return
    this.#abort = new AbortController()
    this.#outer = call.within?.signal ?? host.activity.signal
    if (this.#outer.aborted) this.#passOn()
    else this.#outer.addEventListener('abort', this.#passOn, { once: true })
  }

  get signal(): AbortSignal | undefined {
    return this.#abort?.signal ?? this.#call.within?.signal
  }

  get isOver(): boolean {
    return this.#isOver || this.#call.within?.isOver === true
  }

  get isAwaited(): boolean {
    return this.#isUndoable && !this.#hasReturned
  }

  get isRecordedAnyway(): boolean {
    return this.#isUndoable && !this.#isOver
  }

  /** What its function comes to lacks something. What a branch misses that it did not wait for does not count. */
  get lacksSomething(): boolean {
    return this.#lacks
  }

  miss(): void {
    if (this.#isOver) return
    this.#lacks = true
    if (this.#call.within?.isOver === true) this.#call.within.miss()
  }

  async run<T>(path: string, body: () => Promise<T> | T): Promise<T> {
    this.#work(true)
    try {
      // A cancelled run does not wait for a function that ignores its signal.
      const made = this.#host.calls.inScope(path, async () => body(), this)
      this.made = made
      if (this.#isUndoable) {
        const returned = () => {
          this.#hasReturned = true
        }
        made.then(returned, returned)
      }
      return await this.#host.activity.orThrow(made)
    } finally {
      this.end()
      this.#host.activity.abandonOpenInside(path)
    }
  }

  follow(call: Promise<unknown>): void {
    this.#inFlight++
    this.#work(false)
    this.#lookWhetherResting()
    const done = () => {
      if (--this.#inFlight === 0 && !this.isOver) this.#work(true)
      this.#lookWhetherResting()
    }
    call.then(done, done)
  }

  rest(isResting: boolean): void {
    this.#resting += isResting ? 1 : -1
    this.#lookWhetherResting()
  }

  /** From here on it is among what a run that is being stopped awaits. */
  beginCounting(): void {
    this.#isUndoable = true
    this.#isCounting = true
    if (!this.#isResting) this.#host.activity.work.begin()
  }

  endCounting(): void {
    if (!this.#isCounting) return
    this.#isCounting = false
    if (!this.#isResting) this.#host.activity.work.end()
  }

  #lookWhetherResting(): void {
    const isResting = !this.#isOver && this.#inFlight > 0 && this.#resting >= this.#inFlight
    if (isResting === this.#isResting) return
    this.#isResting = isResting
    this.#call.within?.rest(isResting)
    if (!this.#isCounting) return
    if (isResting) this.#host.activity.work.end()
    else this.#host.activity.work.begin()
  }

  /** With an error: it took too long, and its signal says so. */
  end(error?: unknown): void {
    this.#isOver = true
    this.#lookWhetherResting()
    this.#work(false)
    this.#outer?.removeEventListener('abort', this.#passOn)
    if (error !== undefined) this.#abort?.abort(error)
  }

  #work(isAtWork: boolean): void {
    if (this.#isAtWork === isAtWork) return
    this.#isAtWork = isAtWork
    if (isAtWork) this.#host.activity.begin(this.#call)
    else this.#host.activity.end(this.#call)
  }
}
