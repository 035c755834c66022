import type { Call, Calls } from '../calls/calls.ts'
import { expectRejections } from '../calls/expected-rejections.ts'
import type { CallKind } from '../replay/call-key.ts'
import type { Playback } from '../replay/playback.ts'
import type { Outcome } from '../replay/tape.ts'
import { hasUnaskedBetween, hasUnaskedRightAfter } from '../replay/unasked-between.ts'
import type { StateView } from '../state/state-timeline.ts'
import type { QuietTime } from '../waiting/quiet-time.ts'
import type { Wait } from '../waiting/waits.ts'
import { errorOfEnd, reportLateCall } from './end-errors.ts'
import type { Failures } from './failures.ts'
import type { HeldRun } from './held-run.ts'
import { never } from './never.ts'
import type { Phase } from './phase.ts'

/**
 * How a call gets in: its name, its recorded result in its turn, and the point from which it may do something new. Keeps E4 (a stop never throws
 * into user code; a cancel and a lost lease do).
 */
export class Admission {
  readonly #run: AdmittingRun
  /** The workflow's function has come to its end. */
  isFunctionOver = false

  constructor(run: AdmittingRun) {
    this.#run = run
  }

  /** The run continues without this execution: its calls do not return (E4). */
  get isDetached(): boolean {
    return this.#run.phase.isDetached
  }

  /** It was persisted as waiting. */
  get isSuspended(): boolean {
    return this.#run.phase.isSuspended
  }

  /** The tape is consumed: what happens now is new. */
  get isLive(): boolean {
    return this.#run.playback.isLive
  }

  /** Everything recorded was handed out; the run is live in a moment. */
  get isConsumed(): boolean {
    return this.#run.playback.isLive || this.#run.playback.isConsumed
  }

  /** Resolves when the run is live, and watches for no mismatch meanwhile. */
  get live(): Promise<void> {
    return this.#run.playback.live
  }

  /** For what is new of a call: resolves when everything recorded was handed out. */
  untilLive(call: Call): Promise<void> {
    return this.#run.playback.untilLive(call.key)
  }

  /** Every call on ctx throws; what is under way still ends. */
  get isCancelled(): boolean {
    return this.#run.phase.isCancelled
  }

  get isLost(): boolean {
    return this.#run.phase.isLost
  }

  get hasEnded(): boolean {
    return this.#run.phase.hasEnded
  }

  /** The run, or its tape, has come to its end here: what is called on its ctx comes too late, and is told so. */
  get isOver(): boolean {
    return this.#run.phase.isOver
  }

  /** Registers a recording call; refused inside a body and in a run that was cancelled or fenced. */
  enter(kind: CallKind, name: string, isOurName = false, method?: string): Call {
    this.throwIfEnded()
    if (this.#run.phase.isOver) throw reportLateCall(this.#run.run, this.#run.phase, name)
    this.#run.quiet.heard()
    if (this.#run.phase.isSuspended) this.#run.suspension.noticeWork()
    if (kind !== 'value') this.#run.failures.callBegan()
    return this.#run.calls.enter(kind, name, isOurName, method)
  }

  /**
   * On a replay an attempt may be over sooner than it was then: what the tape has of a branch of it that comes later is consumed all the same, and
   * nothing else is.
   */
  isStillToConsume({ history }: Call): boolean {
    if (this.isLive || history === undefined) return false
    const { outcome, scope, isRunning } = history
    return outcome === undefined ? scope !== undefined && isRunning : outcome.isOptional !== true
  }

  /** The recorded result of a call, in its turn; the call must have one. */
  async recorded(call: Call, { showsState = true } = {}): Promise<Outcome> {
    const outcome = await this.#run.playback.take(call.key)
    this.throwIfEnded()
    this.#run.quiet.heard()
    call.resultSeq = outcome.seq
    if (showsState) this.#run.state.viewOf(call.within).advance(outcome.patchCount)
    return outcome
  }

  /** The recorded result of what the function began and ends itself: it does not wait for it (ctx.begin). */
  recordedAtOnce(call: Call): Outcome {
    const outcome = this.#run.playback.takeAtOnce(call.key)
    call.resultSeq = outcome.seq
    return outcome
  }

  /**
   * The recorded failure of what the function began and ended itself. In its turn, and when the function has reached all that it recorded
   * meanwhile, it is thrown; otherwise the function has to get on inside it, as it did then.
   */
  async recordedFailure(call: Call): Promise<{ readonly outcome: Outcome; readonly isThrown: boolean }> {
    const { outcome, isInTurn } = await this.#run.playback.takeFailure(call.key)
    this.throwIfEnded()
    this.#run.quiet.heard()
    call.resultSeq = outcome.seq
    const begunAt = call.history?.begunAt ?? outcome.seq
    return { outcome, isThrown: isInTurn && !hasUnaskedBetween(this.#run.run.tape, this.#run.calls, begunAt, outcome.seq) }
  }

  /**
   * The function gets what it began where it did then: a microtask after it called, or once the beginning was recorded. In a microtask branches
   * that began in the same turn have made the updates and values that they make at once: what the log has beyond those was made inside.
   */
  async begun({ key, history }: Call): Promise<void> {
    if (history?.begunFirstAt !== undefined) await this.#run.playback.turnOfBeginning(key, history.begunFirstAt)
    if (this.isDetached) return never()
    this.throwIfEnded()
  }

  /** The same failure where the function has to continue inside the step at once. */
  recordedFailureAhead(call: Call): Outcome {
    const outcome = this.#run.playback.takeFailureAhead(call.key)
    call.resultSeq = outcome.seq
    return outcome
  }

  /** What the function began encloses an update or a value that it made before it got any result, and has not reached yet. */
  recordsInside(call: Call): boolean {
    this.throwIfEnded()
    return hasUnaskedRightAfter(this.#run.run.tape, this.#run.calls, call)
  }

  /** The function ends what it began, and has its result already: it continues where it did then. */
  async turnOf(outcome: Outcome): Promise<void> {
    await this.#run.playback.turnOf(outcome)
    if (this.isDetached) return this.cameTooLate()
    this.throwIfEnded()
    this.#run.quiet.heard()
  }

  /**
   * Lets a call begin: once new work may start and, for a call that is not on the tape, once the budget has room for it. Null: at once, which
   * saves the hot path a turn of the microtask queue.
   */
  admit(call: Call): Promise<void> | null {
    const isNew = call.history === undefined
    if (!this.isOpen) return this.pass(call, isNew)
    return isNew ? this.#run.budget.count(call) : null
  }

  /** Passes when new work may start: the tape is consumed and nothing asked the run to stop. */
  async pass(call: Call, isCounted = false): Promise<void> {
    if (!this.#run.playback.isLive) await this.#run.playback.untilLive(call.key)
    this.throwIfEnded()
    if (this.isDetached) return never()
    if (this.#run.phase.isStopping) await this.#run.suspension.park({ dueAt: null, reason: 'timer' })
    const counted = isCounted ? this.#run.budget.count(call) : null
    if (counted !== null) await counted
  }

  /** The same for a step that the function begins once more; it may enclose what is on the tape, and so comes first. */
  async passInto(call: Call): Promise<void> {
    if (!this.#run.playback.isLive) await this.#run.playback.untilLiveOrInside(call.key)
    if (this.#run.playback.isLive) return this.pass(call)
    this.throwIfEnded()
  }

  /** Whether `pass` would let a call through without waiting: saves the hot path a turn of the microtask queue. */
  get isOpen(): boolean {
    return this.#run.phase.isOpen
  }

  /** A cancelled or fenced run throws at every later call (E4). */
  throwIfEnded(): void {
    if (!this.#run.phase.isTakenAway) return
    // A branch that is not awaited any more may call at any time.
    expectRejections()
    throw this.endError()
  }

  /**
   * A call that returns no promise comes after the end, of the run or of its function: in a timer that was left behind nothing would catch
   * an error, and it would end the process. So it is told to the logger, and does nothing.
   */
  comesToNothing(name: string): boolean {
    if (this.#run.phase.isTakenAway ? !this.isFunctionOver : !this.#run.phase.isOver) return false
    reportLateCall(this.#run.run, this.#run.phase, name)
    return true
  }

  /** What a call of a run that was taken away throws. */
  endError(): Error {
    return errorOfEnd(this.#run.run, this.#run.phase)
  }

  /**
   * The function calls, ends or records something although the run continues without this execution. Where it was only thought to be idle it
   * was at work: the run is due at once, and its next holder waits longer (E6). The call does not return (E4).
   */
  cameTooLate(): Promise<never> {
    if (this.#run.phase.isSuspended) this.#run.suspension.noticeWork()
    return never()
  }
}

/** The parts of the run that admit its calls. */
interface AdmittingRun {
  readonly run: HeldRun
  readonly phase: Phase
  readonly calls: Calls
  readonly playback: Playback
  readonly failures: Failures
  readonly quiet: QuietTime
  readonly budget: { count(call: Call): Promise<void> | null }
  readonly state: { viewOf(attempt: Call['within']): StateView }
  readonly suspension: { park(wait: Wait): Promise<void>; noticeWork(): void }
}
