import { HoldfastError } from '../../model/errors.ts'
import { restoreAdvice } from '../../model/restore-advice.ts'
import type { PauseReason } from '../../model/run.ts'
import { toStorableError } from '../../model/stored-error.ts'
import type { CallKey } from '../replay/call-key.ts'
import { whereToRollBack } from '../replay/rolled-back.ts'
import { openOn } from '../replay/run-past.ts'
import type { Order } from '../replay/tape.ts'
import { Unwinding } from '../undo/unwinding.ts'
import { outranks } from '../waiting/outranks.ts'
import { cancelGraceMs } from './activity.ts'
import { stopAgainMs } from './ending.ts'
import { type OrderedRun, orderEnding } from './order-ending.ts'
import { type Stop, stopFor } from './phase.ts'

/**
 * How a run is stopped: at a safe point, for a pause, a release or a reload; and by an order, a cancel, a rollback or a failure, which first takes
 * back what the run did. The phases are drawn in phase.ts.
 */
export class Stopping {
  readonly #run: OrderedRun
  #undoGivenUp: { readonly promise: Promise<void>; readonly resolve: () => void } | undefined
  /** Why the function could not be replayed, where that kept undos from being found. */
  #unreplayed: Error | null = null
  #orderedAt = 0

  constructor(run: OrderedRun) {
    this.#run = run
  }

  /** Stop at the next safe point: what runs may finish, nothing new starts. */
  requestPause(by?: string): void {
    this.#request({ kind: 'pause', reason: 'asked', data: by === undefined ? {} : { by } })
  }

  /** The same with a reason of the run's own. */
  pauseBecause(reason: PauseReason, error: Error, step?: string): void {
    this.#request({ kind: 'pause', reason, data: { error: toStorableError(error), ...(step !== undefined && { step }) } })
  }

  /** Shutdown: hand the run back. Not a death. */
  requestRelease(): void {
    this.#request({ kind: 'release' })
  }

  /** A scope is to be tried again: at the next safe point the tape is read anew, as after a crash, under the same lease. */
  requestReload(): void {
    if (!this.#run.phase.isStopping) this.#request({ kind: 'reload' })
  }

  #request(stop: Stop): void {
    const { phase, suspension } = this.#run
    if (!phase.request(stop)) return
    // A wait is a safe point: it stays as it is.
    suspension.freeze()
    suspension.considerStopping()
  }

  /** To do something else than to continue. What was done has to be known before it can be undone: the tape is played to its end first. */
  order(asked: Order): void {
    const { phase, run, inbox } = this.#run
    // What came before its tape is not the run's to take back, or is forgotten; what a failure has begun to undo is not there to go back
    // to. The client that asked is told so.
    const isFailing = (phase.isUnwinding ? phase.order : run.tape.order)?.kind === 'fail'
    if (asked.kind === 'rollback' && (asked.to < run.earliestSeq || isFailing)) {
      inbox.messages.forget('rollback')
      return
    }
    const order = asked.kind === 'rollback' ? { ...asked, to: whereToRollBack(run.tape.rolledBack, asked.to) } : asked
    const current = phase.overruledBy ?? phase.order
    if (phase.hasEnded || (current !== null && !outranks(order, current))) return
    if (phase.isUnwinding) this.#overrule(order)
    else if (!phase.keep(order)) this.runOrder(order)
  }

  /** The undo under way comes to its end first, or to the end of its grace where nothing is to be undone any more. */
  #overrule(order: Order): void {
    this.#run.phase.overrule(order)
    if (order.kind === 'cancel' && order.undo === false) setTimeout(() => this.#undoGivenUp?.resolve(), cancelGraceMs).unref()
  }

  /** Something that ranks higher is to be done than what is being carried out. */
  get isOverruled(): boolean {
    return this.#run.phase.overruledBy !== null
  }

  /** Resolves when an undo that is under way is no longer waited for. */
  get undoGivenUp(): Promise<void> {
    this.#undoGivenUp ??= Promise.withResolvers<void>()
    return this.#undoGivenUp.promise
  }

  /** The position that the run was told to go back to. */
  get rollbackTo(): number | undefined {
    const { order } = this.#run.phase
    return order?.kind === 'rollback' ? order.to : undefined
  }

  /** The run has taken longer than its workflow allows: an order like the others, and none where it has one. */
  overtime(error: Error): void {
    if (this.#run.phase.order === null) this.order(this.#failure(error, []))
  }

  /** The function threw. */
  async fail(error: unknown, failed: readonly CallKey[]): Promise<void> {
    this.order(this.#failure(toStorableError(error), failed))
    await this.runPendingOrder()
  }

  #failure(error: Error, failed: readonly CallKey[]): Order {
    const { undoOnFailure } = this.#run.run.workflow.options
    return { kind: 'fail', error, failed, ...(undoOnFailure !== true && { undo: false }) }
  }

  /** The tape is consumed: an order is carried out from here on. */
  runOrder(order: Order): void {
    this.#orderedAt = performance.now()
    if (order.kind === 'cancel') this.#cancel(order)
    else if (order.kind === 'rollback') this.#request(stopFor(order))
    else void this.carryOut(order)
  }

  /** Reaches running bodies through their signal; every later call on ctx throws. */
  #cancel(order: Order): void {
    const { phase, ending } = this.#run
    phase.cancel(order)
    ending.throwEverywhere()
    // A function that does not come to an end is not waited for for ever.
    setTimeout(() => void this.carryOut(phase.order ?? order), cancelGraceMs).unref()
  }

  /**
   * The function has come to its end. Where the run was told to do something else than to continue, that is done now, and true
   * returned: undoing what it did, for a cancel or a rollback, or stopping because its budget is used up.
   */
  async runPendingOrder(): Promise<boolean> {
    const { phase, playback, undos, ending } = this.#run
    const { order, stop } = phase
    if (phase.isUnwinding || phase.hasEnded) return true
    if (order !== null) {
      // A branch that lost may come to the call that gives one when what it awaits of its own is over, as it did then.
      if (!playback.isLive && undos.lacksGiven(afterSeqOf(order))) await playback.finish({ isReported: false })
      await this.carryOut(phase.order ?? order)
    } else if (stop?.kind === 'pause' && stop.reason === 'budget') await ending.stopFor(stop)
    else return false
    return true
  }

  /** Carries an order out without calling the function, where all that is due can be undone from the log. */
  async runOrderFromLog(): Promise<boolean> {
    const { phase, undos, ending, run } = this.#run
    const { order } = phase
    if (order === null) return false
    const afterSeq = afterSeqOf(order)
    if (afterSeq !== Number.POSITIVE_INFINITY) {
      try {
        await undos.readDecisions()
      } catch (error) {
        await ending.couldNotStop(error)
        return true
      }
    }
    // A child may have completed meanwhile.
    const due = [...undos.due(afterSeq), ...openOn(run.tape).children.filter(({ seq }) => seq > afterSeq)]
    if (order.replays === false)
      this.#unreplayed = new HoldfastError('worker_died', 'its function brought its workers down and is not called')
    else if (due.some(({ undo }) => undo === true)) return false
    await this.carryOut(order, { isFromLog: order.replays !== false })
    return true
  }

  /** Takes back what the run did, then ends it as the order says. An undo that fails, or can't be found, pauses it. */
  async carryOut(order: Order, { isFromLog = false } = {}): Promise<void> {
    const { phase, activity, suspension, admission, ending } = this.#run
    if (!phase.unwind(order)) return
    if (order.kind === 'fail') activity.abort(() => admission.endError())
    suspension.freeze()
    activity.beginWork()
    try {
      const finish = await orderEnding(this.#run, order)
      if (order.kind === 'fail' && order.undo === false) return await finish([])
      const graceMs = Math.max(0, this.#orderedAt + cancelGraceMs - performance.now())
      const failure = await new Unwinding(this.#run, order, { graceMs, isFromLog, why: this.#unreplayed }).run(finish)
      if (failure !== null) await this.#couldNotUnwind(failure, order)
    } catch (error) {
      await ending.couldNotStop(error)
    } finally {
      activity.endWork()
    }
  }

  async #couldNotUnwind(failure: Error | 'later' | 'overruled' | 'unreplayed' | 'refused', order: Order): Promise<void> {
    const { ending, inbox } = this.#run
    // What is to be done is in the inbox or in the log: the execution that reads the run anew finds it there.
    if (failure === 'overruled' || failure === 'unreplayed') return ending.stopFor({ kind: 'reload' })
    if (failure === 'refused') {
      // The client that asked sees it in the log; the run continues.
      inbox.messages.forget('rollback')
      return ending.stopFor({ kind: 'reload' })
    }
    if (failure === 'later') return ending.handBack(stopAgainMs, { isCounted: false })
    await ending.stopFor({ kind: 'pause', reason: 'undo', data: { error: toStorableError(failure), order } })
  }

  /** The run starts its next tape with this input. */
  continueWith(input: unknown): Promise<void> {
    return this.#run.ending.continueWith(input)
  }

  /** What the store has is not what this execution was told: the run is read anew. */
  startOver(error: unknown): Promise<never> {
    return this.#run.ending.startOver(error)
  }

  get ended(): Promise<unknown> {
    return this.#run.ending.ended
  }

  /** The function asks for something else than comes next in its log. */
  mismatchAt(recorded: CallKey[], asked: CallKey[]): void {
    const { runId, workflow } = this.#run.run
    const shown = (keys: CallKey[]) =>
      keys.length === 0 ? 'nothing' : keys.slice(0, 10).join(', ') + (keys.length > 10 ? ', …' : '')
    const error = new HoldfastError(
      'nondeterminism',
      `Run "${runId}" no longer matches its log: next in the log is ${shown(recorded)}; the function asked for ${shown(asked)}. ` +
        restoreAdvice(workflow),
      { details: { runId, recorded: recorded.slice(0, 10), asked: asked.slice(0, 10) } },
    )
    this.mismatch(error)
  }

  /** The function does something else than its log says: the run pauses as it stands. */
  mismatch(error: HoldfastError): void {
    const { phase, playback, ending } = this.#run
    const { order } = phase
    // One that is to be taken back needs no further replay: what can't be found without it stops there.
    if (order !== null && order.kind !== 'fail') {
      this.#unreplayed = error
      playback.stop()
      void this.carryOut(order)
    } else void ending.pauseNow('mismatch', error)
  }
}

/** After this position what was done is undone. */
function afterSeqOf(order: Order): number {
  return order.kind === 'rollback' ? order.to : order.undo === false ? Number.POSITIVE_INFINITY : 0
}
