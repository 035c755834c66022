import type { StepOptions } from '../../define/context.ts'
import { tagSource } from '../../define/failure-source.ts'
import type { NewEvent } from '../../model/event.ts'
import type { Payload } from '../../model/payload.ts'
import { defaultRetryPolicy, type RetryPolicy, retryPolicy } from '../../model/retry.ts'
import { reviveError, toStorableError } from '../../model/stored-error.ts'
import type { CallHost } from '../execution/call-host.ts'
import { never } from '../execution/never.ts'
import type { CallKey } from '../replay/call-key.ts'
import type { FailureData } from '../replay/tape.ts'
import type { ChangeOptions } from '../writing/run-writer.ts'
import type { Call } from './calls.ts'

/**
 * What becomes of a step or a section of which an attempt has failed: another attempt, the fallback, a skip, a pause for a person, or a failure that
 * is thrown into the function. Each is on record before it is done. A skip answers with nothing to do; a pause does not return; the last throws.
 */
export async function settleFailure(host: CallHost, call: Call, failure: FailedAttempt, policy: FailurePolicy): Promise<Settled> {
  const { error, attempt, durationMs, failed } = failure
  const data = (next: FailureData['next']) => ({ error, ...(failed && { failed }), final: next !== 'retry', next })
  if (policy.delayMs !== null) {
    const retryAt = host.clock.now() + policy.delayMs
    await recordFailure(host, call, { ...data('retry'), retryAt }, attempt, durationMs)
    return { next: 'retry', retryAt }
  }
  if (policy.hasFallback) {
    await recordFailure(host, call, data('fallback'), attempt, durationMs)
    return { next: 'fallback', error: toStorableError(error) }
  }
  if (policy.onFailure === 'skip') {
    const event = failureEvent(host, call, data('skip'), attempt, durationMs)
    const skipped = host.journal.event('step_skipped', call, { attempt })
    await host.journal.commitResult([event, ...(policy.alongside?.() ?? []), skipped], {})
    return { next: 'skip' }
  }
  if (policy.onFailure === 'pause') {
    await recordFailure(host, call, data('pause'), attempt, durationMs)
    return pauseForPerson(host, call, error)
  }
  return throwFailure(host, call, [failureEvent(host, call, data('throw'), attempt, durationMs)])
}

export interface FailedAttempt {
  readonly error: unknown
  readonly attempt: number
  readonly durationMs: number | null
  /** Sections: the recorded failures inside that it came from. */
  readonly failed?: readonly CallKey[]
}

export interface FailurePolicy {
  /** Until the next attempt; null where there is none. */
  readonly delayMs: number | null
  readonly hasFallback: boolean
  readonly onFailure?: StepOptions<unknown>['onFailure'] | undefined
  /** What belongs into the commit of a skip. */
  readonly alongside?: (() => readonly NewEvent[]) | undefined
}

export type Settled =
  | { readonly next: 'retry'; readonly retryAt: number }
  | { readonly next: 'fallback'; readonly error: Error }
  | { readonly next: 'skip' }

/** Records a final failure, the last of these events, and throws it into the function. */
export async function throwFailure(
  host: CallHost,
  call: Call,
  events: readonly NewEvent[],
  options: ChangeOptions = {},
): Promise<never> {
  await host.journal.commitResult(events, { failureOf: call.key, ...options })
  throw storedFailure(host, call, events.at(-1) as NewEvent)
}

/** A recorded failure as a replay will throw it: its class is not stored. */
export function storedFailure({ run }: CallHost, call: Call, { payload }: NewEvent): Error {
  return tagSource(reviveError((run.codec.decode(payload as Payload) as { error: Error }).error), [call.key])
}

/** Does not return: the run is paused, and the step gets fresh attempts when it is resumed. */
export async function pauseForPerson(host: CallHost, call: Call, error: unknown): Promise<never> {
  host.stopping.pauseBecause('retries', toStorableError(error ?? new Error('unknown failure')), call.path)
  await host.suspension.park({ dueAt: null, reason: 'retry' })
  return never()
}

export async function recordFailure(
  host: CallHost,
  call: Call,
  failure: Failure,
  attempt: number,
  durationMs: number | null,
): Promise<void> {
  await host.journal.commit([failureEvent(host, call, failure, attempt, durationMs)], { hasProgress: true })
}

export type Failure = Omit<FailureData, 'error'> & { readonly error: unknown }

export function failureEvent(host: CallHost, call: Call, failure: Failure, attempt: number, durationMs: number | null): NewEvent {
  const type = call.kind === 'effect' ? 'effect_failed' : 'step_failed'
  const data = { ...failure, error: toStorableError(failure.error) }
  return host.journal.event(type, call, { attempt, data, ...(durationMs !== null && { durationMs }) })
}

export async function waitForRetry(host: CallHost, call: Call, retryAt: number): Promise<void> {
  if (retryAt > host.clock.now()) await host.suspension.park({ dueAt: retryAt, reason: 'retry' })
  if (call.within?.isOver === true) return never()
  if (!host.admission.isOpen) await host.admission.pass(call)
}

export function policyOf({ run }: CallHost, options: { readonly retry?: StepOptions<unknown>['retry'] }): RetryPolicy {
  const ofWorkflow = run.workflow.options.retry
  return options.retry === undefined && ofWorkflow === undefined ? defaultRetryPolicy : retryPolicy(options.retry, ofWorkflow)
}
