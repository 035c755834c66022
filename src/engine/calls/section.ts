import { sourcesOf } from '../../define/failure-source.ts'
import type { RecordedScope } from '../../define/plan-context.ts'
import { HoldfastError } from '../../model/errors.ts'
import { reviveError } from '../../model/stored-error.ts'
import type { CallHost } from '../execution/call-host.ts'
import { never } from '../execution/never.ts'
import type { CallKey } from '../replay/call-key.ts'
import { pathOf } from '../replay/call-key.ts'
import { fallbackPath, isInside } from '../replay/scope-paths.ts'
import { sectionsBegun } from '../replay/section-around.ts'
import type { StatePoint } from '../state/state-timeline.ts'
import type { Wait } from '../waiting/waits.ts'
import type { Call } from './calls.ts'
import { pauseForPerson, policyOf, settleFailure, waitForRetry } from './failure-policy.ts'
import { explainInPlaceChange } from './in-place-change.ts'
import { nextAttempt } from './next-attempt.ts'
import { resultOf } from './recorded-result.ts'
import { SectionAttempt } from './section-attempt.ts'
import { deathOf } from './step-deaths.ts'
import { recordedUndo, takeUndo } from './undo-option.ts'

/**
 * Returns the recorded result of a scope, or runs its function, whose calls are recorded each for itself.
 *
 *   A1  A scope with a recorded result is not entered again.
 *   A2  Another attempt is a replay: the tape is read anew, the calls that succeeded answer from it, and those that failed the scope are
 *       open again. So an attempt goes the same way whether the worker lived or died before it.
 *   A3  While its function waits for nothing of ours, the scope counts as at work, like the body of a step.
 *   A4  What an attempt that is over still calls does not return, unless it is on the tape.
 *   A5  What is done inside is undone by name, or by the undo of the scope as a whole: its function is not called again for that.
 */
export async function runScope<T>(host: CallHost, call: Call, scope: RecordedScope<T>): Promise<T> {
  return new ScopeRunner(host, call, scope).run()
}

class ScopeRunner<T> {
  readonly #host: CallHost
  readonly #call: Call
  readonly #scope: RecordedScope<T>
  readonly #failures: number

  constructor(host: CallHost, call: Call, scope: RecordedScope<T>) {
    this.#host = host
    this.#call = call
    this.#scope = scope
    this.#failures = call.history?.failures ?? 0
  }

  async run(): Promise<T> {
    const host = this.#host
    const call = this.#call
    const { history } = call
    const { undo, undoGets } = this.#scope
    if (undo !== undefined) takeUndo(host, call, undo, { getsState: undoGets === 'state' })
    if (history?.outcome !== undefined) {
      return resultOf<T>(host, call, await host.admission.recorded(call))
    }
    // Refused before it waits for its turn: nothing of it is on the tape.
    policyOf(host, this.#scope)
    const death = deathOf(host, call)
    if (history?.isRunning !== true || death !== null) {
      const admitted = host.admission.admit(call)
      if (admitted !== null) await admitted
      if (history?.retryAt !== undefined) await waitForRetry(host, call, history.retryAt)
    }
    if (history?.next === 'pause') return pauseForPerson(host, call, history.lastError)
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
    const host = this.#host
    const { history } = this.#call
    // On the tape it has begun, and the calls of its function are there to be asked for.
    const isGoingOn = history?.isRunning === true && (history.next === 'fallback') === (how.via === 'fallback')
    const { started: begun } = history ?? {}
    const started = isGoingOn && begun !== undefined ? { at: begun.at, seen: begun.patchCount } : await this.#start(how)
    const elapsed = () => Math.max(0, host.clock.now() - started.at)
    const limit = how.via === 'fallback' ? undefined : this.#scope.timeoutMs
    const attempt = new SectionAttempt(host, this.#call, limit !== undefined, host.state.timeline.viewAt(started.seen))
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
        await host.suspension.park({ dueAt: null, reason: 'timer' }, null)
      }
      isMade = true
      return { ok: true, value: await this.#record(value, elapsed(), how) }
    } catch (error) {
      attempt.end()
      // What it still brings within the grace is recorded: only so can it be undone.
      if (host.admission.isCancelled && !isMade && this.#scope.undo !== undefined && attempt.made !== undefined)
        host.activity.work.follow(attempt.made.then((value) => this.#record(value as T, elapsed(), how)))
      host.admission.throwIfEnded()
      if (this.#isIncomplete(attempt)) return await never()
      await this.#untilLive()
      return { ok: false, error: explainInPlaceChange(host, this.#call.path, error), durationMs: elapsed() }
    } finally {
      attempt.endCounting()
    }
  }

  /** An attempt around it is over, and kept it from something. The next one would keep its outcome, and never do that. */
  #isIncomplete(attempt: SectionAttempt): boolean {
    return attempt.lacksSomething && this.#scope.undo === undefined
  }

  /** The run is to go back to inside of it: with its result its undo would take back also what was done before that (O7). */
  async #isGoneBackInto(): Promise<boolean> {
    const host = this.#host
    const to = host.stopping.rollbackTo
    if (to === undefined || this.#scope.undo === undefined) return false
    const { path, count } = this.#call
    const begun = await sectionsBegun(host.run, host.run.place, to).catch(() => null)
    return begun === null || begun.some((start) => start.step === path && start.count === count)
  }

  /** Shows everything there is of the state first, so that another attempt, and a replay of it, sees the same. */
  async #start(how: { readonly via?: 'fallback' }): Promise<{ readonly at: number; readonly seen: StatePoint | number }> {
    const host = this.#host
    const at = host.clock.now()
    const attempt = this.#attemptNumber(how.via === 'fallback')
    const data = { scope: this.#scope.path, ...how, ...(this.#scope.undo !== undefined && { hasUndo: true }) }
    host.journal.defer(host.journal.event('step_started', this.#call, { attempt, at, data }))
    const seen = host.state.timeline.mark
    if (host.journal.mustRecordStarts) await host.journal.commit([], {})
    return { at, seen }
  }

  async #withLimit(attempt: SectionAttempt, made: Promise<T>, overAt: number, path: string): Promise<T> {
    const host = this.#host
    const wait: Wait = { dueAt: overAt, reason: 'timer' }
    const over = (async (): Promise<never> => {
      // What is recorded is not too late: the limit is looked at once the run is live.
      await host.admission.live
      if (attempt.isOver) return never()
      await host.suspension.park(wait, null)
      const error = this.#tookTooLong()
      attempt.end(error)
      host.activity.abandonInside(path)
      throw error
    })()
    over.catch(() => {})
    try {
      return await Promise.race([made, over])
    } finally {
      host.suspension.withdraw(wait)
    }
  }

  #tookTooLong(): HoldfastError {
    const { path } = this.#call
    const { runId } = this.#host.run
    return new HoldfastError('timeout', `"${path}" of run "${runId}" took longer than ${this.#scope.timeoutMs} ms.`, {
      retryable: true,
      details: { runId, step: path },
    })
  }

  async #record(value: T, durationMs: number, how: { readonly via?: 'fallback' }): Promise<T> {
    const host = this.#host
    if (host.admission.isDetached) return host.admission.cameTooLate()
    const { result, recipes } = this.#scope.record(value)
    const { undo: given, undoGets } = this.#scope
    const undo = given === undefined ? undefined : recordedUndo(given)
    const isBare = result === undefined && how.via === undefined && undo === undefined
    const data = isBare
      ? undefined
      : { ...how, ...(undo && { undo, ...(undoGets && { undoGets }) }), ...(result !== undefined && { result }) }
    const attempt = this.#attemptNumber(how.via === 'fallback')
    // Encoded first: a result that can't be stored must leave nothing on the state timeline.
    const completed = host.journal.event('step_completed', this.#call, { attempt, durationMs, ...(data && { data }) })
    const event = recipes.length === 0 ? completed : { ...completed, patch: host.state.timeline.stage(recipes) }
    await host.journal.commitResult(
      [...(this.#scope.alongside?.() ?? []), event],
      undo === undefined ? {} : { undoable: { key: this.#call.key, undo } },
    )
    // The caller gets what a replay would give: a copy that shares nothing with what the function returned.
    return typeof result === 'object' && result !== null && event.payload !== null
      ? (host.run.codec.decode(event.payload) as { result: T }).result
      : (result as T)
  }

  /** An attempt has failed: another one, the fallback, skip, pause or throw. */
  async #failed(error: unknown, how: { readonly mayFallBack: boolean; readonly durationMs?: number }): Promise<T> {
    const { fallback, onFailure } = this.#scope
    const isOfFallback = !how.mayFallBack
    const failed = this.#failuresBehind(error, isOfFallback ? fallbackPath(this.#scope.path) : this.#scope.path)
    const next = isOfFallback ? { error, delayMs: null } : this.#next(error, failed)
    const attempt = this.#attemptNumber(isOfFallback)
    const failure = { error: next.error, attempt, durationMs: how.durationMs ?? null, failed }
    const hasFallback = how.mayFallBack && fallback !== undefined
    const policy = { delayMs: next.delayMs, hasFallback, onFailure, alongside: this.#scope.alongside }
    const settled = await settleFailure(this.#host, this.#call, failure, policy)
    if (settled.next === 'retry') return this.#retry(settled.retryAt)
    return settled.next === 'fallback' ? this.#fallBack(settled.error) : (undefined as T)
  }

  /** Recorded failures plus one; the failure before the fallback is on the tape or was just recorded. */
  #attemptNumber(isOfFallback: boolean): number {
    return this.#failures + (isOfFallback && this.#call.history?.next !== 'fallback' ? 2 : 1)
  }

  /** Without a policy of its own, a scope does not try again what a call inside has tried often enough. */
  #next(error: unknown, failed: readonly CallKey[]): { error: unknown; delayMs: number | null } {
    if (this.#scope.retry === undefined && failed.length > 0) return { error, delayMs: null }
    const used = this.#failures + 1 - (this.#call.history?.reopenedFailures ?? 0)
    return nextAttempt(policyOf(this.#host, this.#scope), used, error)
  }

  /** Waits in memory, or with the run persisted as waiting. In memory the tape is read anew when nothing of the run is at work (A2). */
  async #retry(retryAt: number): Promise<never> {
    if (retryAt > this.#host.clock.now()) await this.#host.suspension.park({ dueAt: retryAt, reason: 'retry' })
    this.#host.stopping.requestReload()
    await this.#host.suspension.park({ dueAt: null, reason: 'retry' })
    return never()
  }

  /** The recorded failures that an error of the scope came from, as `run.retry()` finds them for a run. They are dealt with here. */
  #failuresBehind(error: unknown, path: string): CallKey[] {
    const host = this.#host
    const isMine = (key: CallKey) => isInside(pathOf(key), path)
    const known = sourcesOf(error)
    const own = known.length === 0 ? host.failures.behind(isMine) : []
    const failed = [...new Set([...known, ...own, ...[...host.failures.unthrown].filter(isMine)])]
    this.#hear(path)
    return failed
  }

  /** What failed inside and did not fail the scope, or fails it, is no failure of the run by itself. */
  #hear(path: string): void {
    this.#host.failures.forget((key) => isInside(pathOf(key), path))
  }

  /** Its outcome is new: whatever is recorded comes first. One that is being stopped may still record it, like a step. */
  async #untilLive(): Promise<void> {
    const host = this.#host
    if (!host.admission.isLive) await host.admission.untilLive(this.#call)
    host.admission.throwIfEnded()
    if (host.admission.isDetached) return host.admission.cameTooLate()
  }
}
