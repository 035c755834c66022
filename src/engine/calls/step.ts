import type { StepHandle, StepOptions } from '../../define/context.ts'
import { fingerprint } from '../../model/codec.ts'
import { checkMs } from '../../model/duration.ts'
import { HoldfastError } from '../../model/errors.ts'
import { restoreAdvice } from '../../model/restore-advice.ts'
import { validate } from '../../model/schema.ts'
import { reviveError } from '../../model/stored-error.ts'
import { summaryOf } from '../../model/summary.ts'
import type { CallHost } from '../execution/call-host.ts'
import { never } from '../execution/never.ts'
import type { RecordedUndo } from '../undo/undoable.ts'
import type { Call } from './calls.ts'
import {
  type FailedAttempt,
  type FailurePolicy,
  pauseForPerson,
  policyOf,
  type Settled,
  settleFailure,
  waitForRetry,
} from './failure-policy.ts'
import { explainInPlaceChange } from './in-place-change.ts'
import { nextAttempt } from './next-attempt.ts'
import { resultOf } from './recorded-result.ts'
import { deathOf } from './step-deaths.ts'
import { AttemptWrites, Handle } from './step-handle.ts'
import { recordedUndo, takeUndo } from './undo-option.ts'
import { withTimeout } from './with-timeout.ts'

/** `item`: of a map, what the step is about. */
type RunStepOptions<T> = StepOptions<T> & { readonly item?: unknown }

type Body<T> = (step: StepHandle<never>) => Promise<T> | T

/** Returns the recorded result of a step, or runs its attempts until one is recorded. */
export async function runStep<T>(host: CallHost, call: Call, body: Body<T>, options: RunStepOptions<T> = {}): Promise<T> {
  if (hasOtherInput(call, options)) return pauseOnOtherInput(host, call)
  if (options.undo !== undefined) takeUndo(host, call, options.undo)
  if (call.history?.outcome !== undefined) return resultOf<T>(host, call, await host.admission.recorded(call))
  const policy = policyOf(host, options)
  // Refused before it waits for its turn: nothing of it is on the tape.
  if (options.timeoutMs !== undefined) checkMs(`timeoutMs of step "${call.path}"`, options.timeoutMs)
  if (options.input !== undefined) host.budget.noticeRepeat(call, fingerprint(options.input))
  let failures = call.history?.failures ?? 0
  const reopened = call.history?.reopenedFailures ?? 0

  const admitted = host.admission.admit(call)
  if (admitted !== null) await admitted
  if (call.history?.retryAt !== undefined) await waitForRetry(host, call, call.history.retryAt)
  if (call.history?.next === 'fallback') {
    // Counted anew since the failure: these are deaths of the fallback.
    const { fallback: _, ...rest } = options
    const death = deathOf(host, call)
    if (death !== null) return fail(host, call, rest, { error: death, attempt: failures + 1, durationMs: null })
    return runFallback(host, call, options, call.history.lastError, failures)
  }
  // The worker died between the last failure and the pause: it pauses now, without another attempt.
  if (call.history?.next === 'pause') return pauseForPerson(host, call, call.history.lastError)
  const death = deathOf(host, call)
  if (death !== null) return fail(host, call, options, { error: death, attempt: failures + 1, durationMs: null })

  for (;;) {
    const attempt = failures + 1
    const outcome = await runAttempt(host, call, body, options, attempt)
    if (outcome.ok) return outcome.value
    host.admission.throwIfEnded()
    failures++
    const { error, delayMs } = nextAttempt(policy, failures - reopened, outcome.error)
    const failure = { error, attempt, durationMs: outcome.durationMs }
    const settled = await settleFailure(host, call, failure, policyAfter(options, delayMs))
    if (settled.next !== 'retry') return concluded(host, call, options, settled, attempt)
    await waitForRetry(host, call, settled.retryAt)
  }
}

function policyAfter<T>({ fallback, onFailure }: StepOptions<T>, delayMs: number | null): FailurePolicy {
  return { delayMs, hasFallback: fallback !== undefined, onFailure }
}

/** Another attempt is of no use: fallback, skip, pause or throw. */
async function fail<T>(host: CallHost, call: Call, options: StepOptions<T>, failure: FailedAttempt): Promise<T> {
  const settled = await settleFailure(host, call, failure, policyAfter(options, null))
  return concluded(host, call, options, settled, failure.attempt)
}

function concluded<T>(host: CallHost, call: Call, options: StepOptions<T>, settled: Settled, attempt: number): Promise<T> | T {
  return settled.next === 'fallback' ? runFallback(host, call, options, settled.error, attempt) : (undefined as T)
}

type Attempt<T> = { ok: true; value: T } | { ok: false; error: unknown; durationMs: number }

async function runAttempt<T>(
  host: CallHost,
  call: Call,
  body: Body<T>,
  options: RunStepOptions<T>,
  attempt: number,
): Promise<Attempt<T>> {
  const started = performance.now()
  const startedAt = host.clock.now()
  const isDescribed = options.input !== undefined || options.kind !== undefined || options.undo !== undefined || 'item' in options
  const described = isDescribed ? inputData(options) : undefined
  const input = host.calls.hasPlainNames ? described : { ...described, key: host.calls.keyOf(call) }
  const durable = host.journal.begin(call, { attempt, at: startedAt, data: input })
  const writes = new AttemptWrites()
  try {
    if (durable !== null) {
      await durable
      host.admission.throwIfEnded()
    }
    const made = runBody(host, call, body, options, attempt, writes)
    if (options.undo !== undefined)
      return { ok: true, value: await recordToEnd(host, call, made, { attempt, started, writes, options }) }
    let value = await made
    if (options.schema !== undefined) value = await checked(call, options, value)
    writes.isOver = true
    if (writes.records !== undefined) await writes.records.prepare()
    const durationMs = Math.round(performance.now() - started)
    const result = {
      attempt,
      durationMs,
      data: plainData(value),
      writes,
      undo: undefined,
      isDeferred: options.checkpoint === false,
    }
    return { ok: true, value: await host.journal.recordResult(call, value, result) }
  } catch (error) {
    host.output.streams.abort(call, attempt)
    return {
      ok: false,
      error: explainInPlaceChange(host, call.path, error),
      durationMs: Math.round(performance.now() - started),
    }
  } finally {
    // With an undo the body may still be at work, and what it writes is recorded.
    if (options.undo === undefined) writes.isOver = true
    host.activity.end(call)
  }
}

/** The result of a step's body: with an undo as it comes, otherwise only until the run is cancelled. */
function runBody<T>(
  host: CallHost,
  call: Call,
  body: Body<T>,
  options: StepOptions<T>,
  attempt: number,
  writes: AttemptWrites,
): Promise<T> | T {
  if (options.timeoutMs !== undefined) return runLimited(host, call, body, options, attempt, writes)
  const handle = new Handle(host, call, attempt, writes, call.within?.signal)
  if (options.undo !== undefined) return host.calls.inBody(call.path, body, handle)
  return host.activity.runBody(call, body, handle)
}

function runLimited<T>(
  host: CallHost,
  call: Call,
  body: Body<T>,
  { timeoutMs = 0, undo }: StepOptions<T>,
  attempt: number,
  writes: AttemptWrites,
): Promise<T> {
  const limit = withTimeout(timeoutMs, `Step "${call.path}"`, call.within?.signal ?? host.activity.signal)
  const handle = new Handle(host, call, attempt, writes, limit.signal)
  const made = limit.run(async () => host.calls.inBody(call.path, body, handle))
  return undo === undefined ? host.activity.orThrow(made) : made
}

async function checked<T>(call: Call, { schema }: StepOptions<T>, value: T): Promise<T> {
  return schema === undefined ? value : ((await validate(schema, value, `The result of step "${call.path}"`)) as T)
}

/** In a function of its own, so that a step without an undo pays nothing for it. */
function recordToEnd<T>(
  host: CallHost,
  call: Call,
  made: Promise<T> | T,
  how: { attempt: number; started: number; writes: AttemptWrites; options: StepOptions<T> },
): Promise<T> {
  const { attempt, started, writes, options } = how
  const closed = Promise.resolve(made).finally(() => {
    writes.isOver = true
  })
  return toEnd(host, options, closed, async (value) => {
    const result = await checked(call, options, value)
    if (writes.records !== undefined) await writes.records.prepare()
    const durationMs = Math.round(performance.now() - started)
    return recordResult(host, call, result, { attempt, durationMs, writes, options })
  })
}

/** What a step with an undo did is recorded although the run was cancelled meanwhile: only so can it be undone. */
function toEnd<T>(host: CallHost, { undo }: StepOptions<T>, made: Promise<T> | T, record: (made: T) => Promise<T>): Promise<T> {
  const recording = host.activity.work.follow(Promise.resolve(made).then(record))
  if (typeof undo === 'string') host.activity.followNamed(recording)
  return host.activity.orThrow(recording)
}

function recordResult<T>(
  host: CallHost,
  call: Call,
  value: T,
  made: { attempt: number; durationMs: number; writes: AttemptWrites; options: StepOptions<T>; via?: 'fallback' },
): Promise<T> {
  const { attempt, durationMs, writes, options, via } = made
  const undo = options.undo === undefined ? undefined : recordedUndo(options.undo)
  const data = via === undefined && undo === undefined ? plainData(value) : describedData(value, via, undo)
  const isDeferred = options.checkpoint === false && undo === undefined
  return host.journal.recordResult(call, value, { attempt, durationMs, data, writes, undo, isDeferred })
}

function plainData(value: unknown): Record<string, unknown> | undefined {
  return value === undefined ? undefined : { result: value }
}

function describedData(value: unknown, via: 'fallback' | undefined, undo: RecordedUndo | undefined): Record<string, unknown> {
  return { ...(via && { via }), ...(undo && { undo }), ...(value !== undefined && { result: value }) }
}

async function runFallback<T>(
  host: CallHost,
  call: Call,
  options: StepOptions<T>,
  error: Error | undefined,
  failures: number,
): Promise<T> {
  const { fallback } = options
  if (fallback === undefined) return fail(host, call, options, { error, attempt: failures, durationMs: null })
  const started = performance.now()
  const durable = host.journal.begin(call, { attempt: failures + 1, data: { via: 'fallback' } })
  try {
    if (durable !== null) await durable
    const cause = reviveError(error ?? new Error('unknown failure'))
    const record = (value: T) =>
      recordResult(host, call, value, {
        attempt: failures + 1,
        durationMs: Math.round(performance.now() - started),
        writes: new AttemptWrites(),
        options: options.undo === undefined ? {} : { undo: options.undo },
        via: 'fallback',
      })
    const made = host.calls.inBody(call.path, async () => fallback(cause))
    if (options.undo !== undefined) return await toEnd(host, options, made, record)
    return await record(await host.activity.orThrow(made))
  } catch (fallbackError) {
    host.admission.throwIfEnded()
    const { fallback: _, ...rest } = options
    const durationMs = Math.round(performance.now() - started)
    return await fail(host, call, rest, { error: fallbackError, attempt: failures + 1, durationMs })
  } finally {
    host.activity.end(call)
  }
}

function inputData(options: Pick<RunStepOptions<never>, 'kind' | 'input' | 'undo' | 'item'>): Record<string, unknown> {
  const data: Record<string, unknown> = {}
  if (options.kind !== undefined) data['kind'] = options.kind
  // A client that cancels the run without executing it can see that there is something to undo.
  if (options.undo !== undefined) data['hasUndo'] = true
  if ('item' in options) data['item'] = summaryOf(options.item)
  if (options.input !== undefined) Object.assign(data, { input: options.input, inputFingerprint: fingerprint(options.input) })
  return data
}

function hasOtherInput(call: Call, options: { readonly input?: unknown }): boolean {
  const recorded = call.history?.inputFingerprint
  return recorded !== undefined && options.input !== undefined && fingerprint(options.input) !== recorded
}

/** A recorded input that differs from the one given now means that the code no longer does what its log says. */
function pauseOnOtherInput(host: CallHost, call: Call): Promise<never> {
  const error = new HoldfastError(
    'nondeterminism',
    `Step "${call.path}" (call ${call.count}) of run "${host.run.runId}" was recorded with another input than the function gives now. ` +
      restoreAdvice(host.run.workflow),
    { details: { runId: host.run.runId, step: call.path } },
  )
  host.stopping.mismatch(error)
  return never()
}
