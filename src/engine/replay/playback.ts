import type { CallKey } from './call-key.ts'
import { EnclosingSteps } from './enclosing-steps.ts'
import { OptionalResults } from './optional-results.ts'
import { Patience } from './patience.ts'
import { RequiredResults } from './required-results.ts'
import type { Outcome } from './tape.ts'
import { WaitingCalls } from './waiting-calls.ts'

/**
 * Hands out recorded results in log order, one per turn of the event loop, so that Promise.all and Promise.race take the same course
 * as before. Once all are consumed the run is live and new work may start.
 *
 *   P1  No new step starts until every required result was consumed.
 *   P2  Between two results everything that the first one set off has run.
 *   P3  Optional results are handed out by their position too, as soon as they are asked for and what must come before them has come. New
 *       results wait for those that were asked for before them.
 */
export class Playback {
  readonly #options: PlaybackOptions
  readonly #required: RequiredResults
  readonly #optional: OptionalResults
  readonly #enclosing: EnclosingSteps
  readonly #patience: Patience
  readonly #waiting = new WaitingCalls()
  readonly #onceLive: (() => void)[] = []
  readonly #onceIdle: (() => void)[] = []
  /** Set while the function has ended and the calls that it left behind may still ask. */
  #onAsked: (() => void) | undefined
  #isScheduled = false
  #isStopped = false
  #grace: NodeJS.Timeout | undefined
  /** The function has ended. */
  isEnding = false
  isLive = false

  constructor({ outcomes, ...options }: PlaybackOptions & { readonly outcomes: readonly Outcome[] }) {
    const hasOptional = outcomes.some(({ isOptional }) => isOptional === true)
    const isAskable = ({ isOptional, isShowing }: Outcome) => isOptional === true && isShowing !== true
    this.#options = options
    this.#required = new RequiredResults(hasOptional ? outcomes.filter(({ isOptional }) => isOptional !== true) : outcomes)
    this.#optional = new OptionalResults(hasOptional ? outcomes.filter(isAskable) : [])
    this.#enclosing = new EnclosingSteps(options.begunAt)
    this.#patience = new Patience(this.#required, options)
  }

  /** All required results were handed out; the run is live in a moment. */
  get isConsumed(): boolean {
    return this.#required.head === undefined
  }

  /** Optional results that were asked for are still to be handed out, one per turn. New results come after them. */
  get isHandingOut(): boolean {
    return this.#optional.hasAsked && !this.#isStopped
  }

  /** A call gets a result within the next turns: one that was asked for, or a new one that comes after those. */
  get isAwaited(): boolean {
    return (this.#optional.hasAsked || this.#onceIdle.length > 0) && !this.#isStopped
  }

  /** Begins. With nothing recorded the run is live at once. */
  start(): void {
    this.#passShowings()
    if (this.isConsumed) this.#goLive()
  }

  /** The recorded result of a call, in its turn. */
  take(key: CallKey): Promise<Outcome> {
    const optional = this.#optional.take(key)
    const result = optional === undefined ? this.#waiting.waitForResult(key) : this.#optional.ask(optional)
    this.#onAsked?.()
    this.#schedule()
    return result
  }

  /** The recorded result of a call whose caller does not wait for its end: at once, whatever comes before it in the log. */
  takeAtOnce(key: CallKey): Outcome {
    const optional = this.#optional.take(key)
    const outcome = optional ?? this.#required.takeAhead(key)
    if (optional === undefined) this.#schedule()
    this.#options.onResult(outcome)
    return outcome
  }

  /**
   * The recorded failure of a step that the function ends itself, in its turn; or before it, if no call asks for what comes first: that
   * may be inside the step.
   */
  takeFailure(key: CallKey): Promise<{ readonly outcome: Outcome; readonly isInTurn: boolean }> {
    const inTurn = (outcome: Outcome) => ({ outcome, isInTurn: true })
    return this.#enclosing.untilLetGo(key, this.take(key), inTurn, () => ({ outcome: this.#giveUpTurn(key), isInTurn: false }))
  }

  /** The same for a step that the function continues inside at once. The failure keeps its turn while a call inside is waited for. */
  takeFailureAhead(key: CallKey): Outcome {
    const optional = this.#optional.get(key)
    if (optional !== undefined) return optional
    this.#enclosing.add(key, () => this.#giveUpTurn(key))
    return this.#required.get(key)
  }

  /** Its call no longer waits for it, and no other has to. */
  #giveUpTurn(key: CallKey): Outcome {
    const optional = this.#optional.findAsked(key)
    if (optional !== undefined) return this.#optional.withdraw(optional)
    this.#waiting.takeForResult(key)
    return this.#required.takeAhead(key)
  }

  /**
   * Resolves in the turn of a beginning at a position of the log, or before it, if no call asks for what may be inside the step. It does not
   * have to be asked for.
   */
  turnOfBeginning(key: CallKey, seq: number): Promise<unknown> {
    const beginning: Outcome = { key, seq, at: 0, payload: null, isFailure: false, patchCount: 0 }
    return new Promise((resolve) => {
      const inTurn = () => {
        this.#enclosing.delete(key)
        resolve(beginning)
      }
      this.#optional.add({ outcome: beginning, resolve: inTurn })
      this.#enclosing.add(key, () => resolve(this.#optional.withdraw(beginning)))
      this.#schedule()
    })
  }

  /** Resolves in the turn of a result that was taken before it; at once, if that is over. */
  turnOf(outcome: Outcome): Promise<unknown> {
    // It was passed over early if only optional results come before it: those that were asked for still come first (P3).
    if (outcome.isOptional !== true && this.#required.hasPassed(outcome)) return this.#optional.turnOf(outcome)
    this.#required.putBack(outcome.key)
    this.#enclosing.delete(outcome.key)
    if (outcome.isOptional === true) this.#optional.putBack(outcome)
    return this.take(outcome.key)
  }

  /** Resolves in a turn in which no recorded result is handed out. */
  idle(): Promise<void> {
    return new Promise((resolve) => this.#onceIdle.push(resolve))
  }

  /** For a call with no recorded result: resolves when the run is live. */
  untilLive(key: CallKey): Promise<void> {
    const live = this.#waiting.waitForLive(key)
    this.#watchForMismatch()
    return live
  }

  /** For a step that the function begins once more: resolves when the run is live, or earlier if the next result may be inside it. */
  untilLiveOrInside(key: CallKey): Promise<void> {
    const live = this.#waiting.waitForLive(key)
    const first = this.#enclosing.untilLetGo(
      key,
      live,
      () => {},
      () => this.#waiting.withdrawForLive(key),
    )
    this.#watchForMismatch()
    return first
  }

  /** Resolves when the run is live, and watches for no mismatch meanwhile. */
  get live(): Promise<void> {
    if (this.isLive) return Promise.resolve()
    return new Promise((resolve) => this.#onceLive.push(resolve))
  }

  /**
   * The function has ended: nothing may be left over. What it asked for and did not wait for (the losers of a race) is
   * handed out first. Returns whether it matched its log; what is left over is reported as a mismatch unless the caller does not want it.
   */
  async finish({ isReported = true } = {}): Promise<boolean> {
    clearTimeout(this.#grace)
    this.#passShowings()
    if (this.isConsumed) return true
    this.isEnding = true
    await this.#handOutRest()
    clearTimeout(this.#grace)
    if (this.isConsumed) return true
    if (isReported) this.#mismatch()
    return false
  }

  async #handOutRest(): Promise<void> {
    const endedAt = performance.now()
    const aheadMs = this.#patience.beforeMismatch(this.#waitingKeys)
    for (let head = this.#required.head; head !== undefined; head = this.#required.head) {
      // If the function was given what is after this in the log, it may have ended sooner than it did then.
      const isAhead = !this.#isStopped && this.#required.hasTakenAfter(head.seq)
      const leftMs = endedAt + (isAhead ? aheadMs : this.#patience.afterEnd(head)) - performance.now()
      const enclosing = this.#enclosing.innermostAt(head.seq)
      if (this.#waiting.hasForResult(head.key)) await nextTurn()
      else if (enclosing !== undefined && !this.#isStopped) {
        this.#letGo(enclosing)
        await nextTurn()
      } else if (leftMs > 0 && !this.#isStopped) await this.#untilAsked(leftMs)
      else return
    }
  }

  /** Until a call asks for a recorded result, or the time is over. */
  async #untilAsked(ms: number): Promise<void> {
    let timer: NodeJS.Timeout | undefined
    await new Promise<void>((resolve) => {
      this.#onAsked = resolve
      timer = setTimeout(resolve, ms)
    })
    clearTimeout(timer)
    this.#onAsked = undefined
  }

  /** The run was cancelled or fenced: every call that waits for its turn throws. */
  throw(error: Error): void {
    this.#waiting.reject(error)
    this.stop()
  }

  stop(): void {
    clearTimeout(this.#grace)
    this.#isStopped = true
    this.#onAsked?.()
    this.#required.passAll()
    this.#waiting.clear()
    for (const tell of this.#onceIdle.splice(0)) tell()
  }

  #schedule(): void {
    if (this.#isScheduled) return
    this.#isScheduled = true
    setImmediate(this.#handOut)
  }

  readonly #handOut = (): void => {
    this.#isScheduled = false
    if (this.#isStopped) return
    const { head } = this.#required
    const optional = this.#optional.takeFirst(head)
    if (optional !== undefined) {
      this.#options.onResult(optional.outcome)
      optional.resolve(optional.outcome)
      this.#schedule()
      return
    }
    for (const tell of this.#onceIdle.splice(0)) tell()
    if (head === undefined) setImmediate(this.#goLive)
    else if (head.isShowing === true) {
      this.#passShowings()
      this.#schedule()
    } else this.#handOutRequired(head)
  }

  #handOutRequired(head: Outcome): void {
    const waiting = this.#waiting.takeForResult(head.key)
    if (waiting === undefined) {
      this.#watchForMismatch()
      return
    }
    this.#required.pass()
    clearTimeout(this.#grace)
    this.#grace = undefined
    this.#options.onResult(head)
    waiting.resolve(head)
    if (!this.isConsumed || this.#optional.hasAsked) this.#schedule()
    else setImmediate(this.#goLive)
  }

  /** No call asks for the edits that the function was shown. */
  #passShowings(): void {
    for (let head = this.#required.head; head?.isShowing === true; head = this.#required.head) {
      this.#required.pass()
      this.#options.onResult(head)
    }
  }

  readonly #goLive = (): void => {
    if (!this.isConsumed || this.isLive || this.#isStopped || this.isEnding) return
    if (this.#optional.hasAsked) {
      this.#schedule()
      return
    }
    this.isLive = true
    this.#options.onLive()
    for (const tell of this.#onceLive.splice(0)) tell()
    this.#waiting.releaseForLive()
  }

  /** A call waits for a later result or to do new work: unless one asks for the next result in time, the function differs from its log. */
  #watchForMismatch(): void {
    const waiting = this.#waitingKeys
    if (this.isLive || waiting.length === 0) return
    clearTimeout(this.#grace)
    const { head } = this.#required
    const enclosing = head && this.#enclosing.innermostAt(head.seq)
    const onTimeout = () => {
      if (this.isConsumed || this.#waiting.hasForResult(this.#required.head?.key ?? '') || this.#isStopped) return
      if (enclosing !== undefined) this.#letGo(enclosing)
      else if (this.#options.isAtWork()) this.#watchForMismatch()
      else this.#mismatch()
    }
    const isEnclosed = head !== undefined && enclosing !== undefined
    this.#grace = setTimeout(onTimeout, isEnclosed ? this.#patience.insideStep(head) : this.#patience.beforeMismatch(waiting))
  }

  #letGo(step: CallKey): void {
    this.#enclosing.letGo(step)
    this.#schedule()
  }

  get #waitingKeys(): CallKey[] {
    return [...this.#waiting.keysForResult, ...this.#optional.askedKeys, ...this.#waiting.keysForLive]
  }

  #mismatch(): void {
    const recorded = this.#required.left.map(({ key }) => key)
    this.#options.onMismatch(recorded, this.#waitingKeys)
  }
}

interface PlaybackOptions {
  /** Called just before a result is handed out. */
  readonly onResult: (outcome: Outcome) => void
  /** Called once, when everything recorded is consumed. */
  readonly onLive: () => void
  readonly onMismatch: (recorded: CallKey[], asked: CallKey[]) => void
  /** Something of the run is known to be at work: the function may yet ask for more. */
  readonly isAtWork: () => boolean
  /** Position at which a call began; undefined if it is not in the log. */
  readonly begunAt: (key: CallKey) => number | undefined
  /** Store time at which the function was first called. */
  readonly startedAt: number
  /** As in WorkerOptions. */
  readonly mismatchMs?: number | undefined
}

function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}
