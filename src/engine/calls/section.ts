import { sourcesOf, tagSource } from '../../define/failure-source.ts'
import type { RecordedScope } from '../../define/plan-context.ts'
import { HoldfastError } from '../../model/errors.ts'
import type { Payload } from '../../model/payload.ts'
import { reviveError, toStorableError } from '../../model/stored-error.ts'
import { type Execution, never } from '../execution/execution.ts'
import { fallbackPath, isInside, pathOf } from '../replay/scope-paths.ts'
import { sectionsBegun } from '../replay/section-around.ts'
import type { CallKey } from '../replay/tape.ts'
import type { At, StateView } from '../state/state-line.ts'
import type { Wait } from '../waiting/waits.ts'
import type { Call, ScopeAttempt } from './calls.ts'
import { explainInPlaceChange } from './in-place-change.ts'
import { nextAttempt } from './next-attempt.ts'
import { deathOf, failureEvent, pauseForPerson, policyOf, recordFailure, resultOf, waitForRetry } from './step.ts'
import { recordedUndo, takeUndo } from './undo-option.ts'

/**
 * Returns the recorded result of a scope, or runs its function, whose calls are recorded each for itself.
 *
 *   A1  A scope with a recorded result is not entered again.
 *   A2  Another attempt is a replay: the tape is read anew, the calls that succeeded answer from it, and those that failed the scope are
 *       open again. So an attempt goes the same way whether the worker lived or died before it.
 *   A3  While its function waits for nothing of ours, the scope counts as at work, like the body of a step.
 *   A4  What an attempt that is over still calls does not return.
 *   A5  What is done inside is undone by name, or by the undo of the scope as a whole: its function is not called again for that.
 */
export async function runScope<T>(execution: Execution, call: Call, scope: RecordedScope<T>): Promise<T> {
  return new ScopeRunner(execution, call, scope).run()
}

class ScopeRunner<T> {
  readonly #execution: Execution
  readonly #call: Call
  readonly #scope: RecordedScope<T>
  readonly #failures: number

  constructor(execution: Execution, call: Call, scope: RecordedScope<T>) {
    this.#execution = execution
    this.#call = call
    this.#scope = scope
    this.#failures = call.history?.failures ?? 0
  }

  async run(): Promise<T> {
    const execution = this.#execution
    const call = this.#call
    const { history } = call
    const { undo, undoGets } = this.#scope
    if (undo !== undefined) takeUndo(execution, call, undo, { getsState: undoGets === 'state' })
    if (history?.outcome !== undefined) {
      return resultOf<T>(execution, call, await execution.recorded(call))
    }
    // Refused before it waits for its turn: nothing of it is on the tape.
    policyOf(execution, this.#scope)
    const death = deathOf(execution, call)
    if (history?.isRunning !== true || death !== null) {
      if (!execution.isOpen) await execution.pass(call)
      if (execution.account.isLimited && history === undefined) await execution.budget.admit(call)
      else if (history === undefined) execution.account.countStep()
      if (history?.retryAt !== undefined) await waitForRetry(execution, call, history.retryAt)
    }
    if (history?.next === 'pause') return pauseForPerson(execution, call, history.lastError)
    if (history?.next === 'fallback') {
      if (death !== null) return this.#failed(death, { mayFallBack: false })
      return this.#fallBack(history.lastError)
    }
    if (death !== null) return this.#failed(death, { mayFallBack: true })
    const tried = await this.#attempt(this.#scope.path, this.#scope.body, {})
    return tried.ok ? tried.value : this.#failed(tried.error, { mayFallBack: true, durationMs: tried.durationMs })
  }

  async #fallBack(error: Error | undefined): Promise<T> {
    const { path, fallback } = this.#scope
    const cause = reviveError(error ?? new Error('unknown failure'))
    if (fallback === undefined) return this.#failed(cause, { mayFallBack: false })
    const tried = await this.#attempt(fallbackPath(path), () => fallback(cause), { via: 'fallback' })
    return tried.ok ? tried.value : this.#failed(tried.error, { mayFallBack: false, durationMs: tried.durationMs })
  }

  async #attempt(
    path: string,
    body: () => Promise<T> | T,
    how: { readonly via?: 'fallback' },
  ): Promise<{ ok: true; value: T } | { ok: false; error: unknown; durationMs: number }> {
    const execution = this.#execution
    const { history } = this.#call
    // On the tape it has begun, and the calls of its function are there to be asked for.
    const isGoingOn = history?.isRunning === true && (history.next === 'fallback') === (how.via === 'fallback')
    const { started: begun } = history ?? {}
    const started = isGoingOn && begun !== undefined ? { at: begun.at, seen: begun.patchCount } : await this.#start(how)
    const elapsed = () => Math.max(0, execution.now() - started.at)
    const limit = how.via === 'fallback' ? undefined : this.#scope.timeoutMs
    const attempt = new Attempt(execution, this.#call, limit !== undefined, execution.line.viewAt(started.seen))
    if (this.#scope.undo !== undefined) attempt.beginCounting()
    let isMade = false
    try {
      const made = attempt.run(path, body)
      const value = await (limit === undefined ? made : this.#withLimit(attempt, made, started.at + limit, path))
      if (this.#isIncomplete(attempt)) return await never()
      await this.#untilLive()
      this.#hear(path)
      if (await this.#isGoneBackInto()) {
        attempt.endCounting()
        await execution.park({ dueAt: null, reason: 'timer' }, null)
      }
      isMade = true
      return { ok: true, value: await this.#record(value, elapsed(), how) }
    } catch (error) {
      attempt.end()
      // What it still brings within the grace is recorded: only so can it be undone.
      if (execution.isCancelled && !isMade && this.#scope.undo !== undefined && attempt.made !== undefined)
        execution.work.follow(attempt.made.then((value) => this.#record(value as T, elapsed(), how)))
      execution.throwIfEnded()
      if (this.#isIncomplete(attempt)) return await never()
      await this.#untilLive()
      return { ok: false, error: explainInPlaceChange(execution, this.#call.path, error), durationMs: elapsed() }
    } finally {
      attempt.endCounting()
    }
  }

  /** An attempt around it is over, and kept it from something. The next one would keep its outcome, and never do that. */
  #isIncomplete(attempt: Attempt): boolean {
    return attempt.lacksSomething && this.#scope.undo === undefined
  }

  /** The run is to go back to inside of it: with its result its undo would take back also what was done before that (O7). */
  async #isGoneBackInto(): Promise<boolean> {
    const execution = this.#execution
    const to = execution.rollbackTo
    if (to === undefined || this.#scope.undo === undefined) return false
    const { path, count } = this.#call
    const begun = await sectionsBegun(execution, execution.place, to).catch(() => null)
    return begun === null || begun.some((start) => start.step === path && start.count === count)
  }

  /** Shows everything there is of the state first, so that another attempt, and a replay of it, sees the same. */
  async #start(how: { readonly via?: 'fallback' }): Promise<{ readonly at: number; readonly seen: At | number }> {
    const execution = this.#execution
    const at = execution.now()
    const attempt = this.#attemptNumber(how.via === 'fallback')
    const data = { scope: this.#scope.path, ...how, ...(this.#scope.undo !== undefined && { hasUndo: true }) }
    execution.ride(execution.event('step_started', this.#call, { attempt, at, data }))
    const seen = execution.line.mark
    if (execution.mustRecordStarts) await execution.commit([], {})
    return { at, seen }
  }

  async #withLimit(attempt: Attempt, made: Promise<T>, overAt: number, path: string): Promise<T> {
    const execution = this.#execution
    const wait: Wait = { dueAt: overAt, reason: 'timer' }
    const over = (async (): Promise<never> => {
      // What is recorded is not too late: the limit is looked at once the run is live.
      await execution.playback.live
      if (attempt.isOver) return never()
      await execution.park(wait, null)
      const error = this.#tookTooLong()
      attempt.end(error)
      execution.abandonInside(path)
      throw error
    })()
    over.catch(() => {})
    try {
      return await Promise.race([made, over])
    } finally {
      execution.withdraw(wait)
    }
  }

  #tookTooLong(): HoldfastError {
    const { path } = this.#call
    const { runId } = this.#execution
    return new HoldfastError('timeout', `"${path}" of run "${runId}" took longer than ${this.#scope.timeoutMs} ms.`, {
      retryable: true,
      details: { runId, step: path },
    })
  }

  async #record(value: T, durationMs: number, how: { readonly via?: 'fallback' }): Promise<T> {
    const execution = this.#execution
    if (execution.isDetached) return execution.cameTooLate()
    const { result, recipes } = this.#scope.record(value)
    const { undo: given, undoGets } = this.#scope
    const undo = given === undefined ? undefined : recordedUndo(given)
    const isBare = result === undefined && how.via === undefined && undo === undefined
    const data = isBare
      ? undefined
      : { ...how, ...(undo && { undo, ...(undoGets && { undoGets }) }), ...(result !== undefined && { result }) }
    const attempt = this.#attemptNumber(how.via === 'fallback')
    // Encoded first: a result that can't be stored must leave nothing on the state line.
    const completed = execution.event('step_completed', this.#call, { attempt, durationMs, ...(data && { data }) })
    const event = recipes.length === 0 ? completed : { ...completed, patch: execution.line.stage(recipes) }
    await execution.commitResult(
      [...(this.#scope.alongside?.() ?? []), event],
      undo === undefined ? {} : { undoable: { key: this.#call.key, undo } },
    )
    // The caller gets what a replay would give: a copy that shares nothing with what the function returned.
    return typeof result === 'object' && result !== null && event.payload !== null
      ? (execution.codec.decode(event.payload) as { result: T }).result
      : (result as T)
  }

  /** An attempt has failed: another one, the fallback, skip, pause or throw. */
  async #failed(error: unknown, how: { readonly mayFallBack: boolean; readonly durationMs?: number }): Promise<T> {
    const execution = this.#execution
    const call = this.#call
    const { fallback, onFailure } = this.#scope
    const isOfFallback = !how.mayFallBack
    const attempt = this.#attemptNumber(isOfFallback)
    const failed = this.#failuresBehind(error, isOfFallback ? fallbackPath(this.#scope.path) : this.#scope.path)
    const durationMs = how.durationMs ?? null
    const next = isOfFallback ? { error, delayMs: null } : this.#next(error, failed)
    const failure = { error: next.error, failed }
    if (next.delayMs !== null) {
      const retryAt = execution.now() + next.delayMs
      await recordFailure(execution, call, { ...failure, final: false, next: 'retry', retryAt }, attempt, durationMs)
      return this.#retry(retryAt)
    }
    if (how.mayFallBack && fallback !== undefined) {
      await recordFailure(execution, call, { ...failure, final: true, next: 'fallback' }, attempt, durationMs)
      return this.#fallBack(toStorableError(next.error))
    }
    if (onFailure === 'skip') {
      const event = failureEvent(execution, call, { ...failure, final: true, next: 'skip' }, attempt, durationMs)
      const skipped = execution.event('step_skipped', call, { attempt })
      await execution.commitResult([event, ...(this.#scope.alongside?.() ?? []), skipped], {})
      return undefined as T
    }
    if (onFailure === 'pause') {
      await recordFailure(execution, call, { ...failure, final: true, next: 'pause' }, attempt, durationMs)
      return pauseForPerson(execution, call, next.error)
    }
    const event = failureEvent(execution, call, { ...failure, final: true, next: 'throw' }, attempt, durationMs)
    await execution.commitResult([event], { failureOf: call.key })
    throw tagSource(reviveError((execution.codec.decode(event.payload as Payload) as { error: Error }).error), [call.key])
  }

  /** Recorded failures plus one; the failure before the fallback is on the tape or was just recorded. */
  #attemptNumber(isOfFallback: boolean): number {
    return this.#failures + (isOfFallback && this.#call.history?.next !== 'fallback' ? 2 : 1)
  }

  /** Without a policy of its own, a scope does not try again what a call inside has tried often enough. */
  #next(error: unknown, failed: readonly CallKey[]): { error: unknown; delayMs: number | null } {
    if (this.#scope.retry === undefined && failed.length > 0) return { error, delayMs: null }
    const used = this.#failures + 1 - (this.#call.history?.reopenedFailures ?? 0)
    return nextAttempt(policyOf(this.#execution, this.#scope), used, error)
  }

  /** Waits in memory or as a row. In memory the tape is read anew when nothing of the run is at work (A2). */
  async #retry(retryAt: number): Promise<never> {
    if (retryAt > this.#execution.now()) await this.#execution.park({ dueAt: retryAt, reason: 'retry' })
    this.#execution.requestReload()
    await this.#execution.park({ dueAt: null, reason: 'retry' })
    return never()
  }

  /** The recorded failures that an error of the scope came from, as `run.retry()` finds them for a run. They are dealt with here. */
  #failuresBehind(error: unknown, path: string): CallKey[] {
    const execution = this.#execution
    const isMine = (key: CallKey) => isInside(pathOf(key), path)
    const known = sourcesOf(error)
    const own = known.length === 0 ? execution.failures.behind(isMine) : []
    const failed = [...new Set([...known, ...own, ...[...execution.failures.unheard].filter(isMine)])]
    this.#hear(path)
    return failed
  }

  /** What failed inside and did not fail the scope, or fails it, is no failure of the run by itself. */
  #hear(path: string): void {
    this.#execution.failures.forget((key) => isInside(pathOf(key), path))
  }

  /** Its outcome is new: whatever is recorded comes first. One that is being stopped may still record it, like a step. */
  async #untilLive(): Promise<void> {
    const execution = this.#execution
    if (!execution.playback.isLive) await execution.playback.untilLive(this.#call.key)
    execution.throwIfEnded()
    if (execution.isDetached) return execution.cameTooLate()
  }
}

/**
 * One attempt while its function runs: whether it is at work (A3), whether it still counts (A4), and whether what it brings is awaited by a
 * run that is being stopped: unless all that its function waits for are calls that rest, which a run that is being stopped leaves as they are.
 */
class Attempt implements ScopeAttempt {
  readonly #execution: Execution
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

  constructor(execution: Execution, call: Call, hasLimit: boolean, view: StateView) {
    this.#execution = execution
    this.#call = call
    this.view = view
    if (!hasLimit) return
    this.#abort = new AbortController()
    this.#outer = call.within?.signal ?? execution.signal
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
      const made = this.#execution.calls.inScope(path, async () => body(), this)
      this.made = made
      if (this.#isUndoable) {
        const returned = () => {
          this.#hasReturned = true
        }
        made.then(returned, returned)
      }
      return await this.#execution.orThrow(made)
    } finally {
      this.end()
      this.#execution.abandonOpenInside(path)
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
    if (!this.#isResting) this.#execution.work.begin()
  }

  endCounting(): void {
    if (!this.#isCounting) return
    this.#isCounting = false
    if (!this.#isResting) this.#execution.work.end()
  }

  #lookWhetherResting(): void {
    const isResting = !this.#isOver && this.#inFlight > 0 && this.#resting >= this.#inFlight
    if (isResting === this.#isResting) return
    this.#isResting = isResting
    this.#call.within?.rest(isResting)
    if (!this.#isCounting) return
    if (isResting) this.#execution.work.end()
    else this.#execution.work.begin()
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
    if (isAtWork) this.#execution.begin(this.#call)
    else this.#execution.end(this.#call)
  }
}
