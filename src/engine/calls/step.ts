import type { StepHandle, StepOptions } from '../../define/context.ts'
import { tagSource } from '../../define/failure-source.ts'
import { fingerprint } from '../../model/codec.ts'
import { checkMs } from '../../model/duration.ts'
import { codeOf, HoldfastError } from '../../model/errors.ts'
import type { Payload } from '../../model/payload.ts'
import { restoreAdvice } from '../../model/restore-advice.ts'
import { defaultRetryPolicy, type RetryPolicy, retryPolicy } from '../../model/retry.ts'
import { stepDeathLimit } from '../../model/run.ts'
import { validate } from '../../model/schema.ts'
import { reviveError, toStorableError } from '../../model/stored-error.ts'
import { checkUsage, refuseUnknownUsage } from '../../model/usage.ts'
import { type Execution, never } from '../execution/execution.ts'
import type { FailureData, Outcome } from '../replay/tape.ts'
import type { RecordedUndo } from '../undo/undos.ts'
import type { Call } from './calls.ts'
import { explainInPlaceChange } from './in-place-change.ts'
import { nextAttempt } from './next-attempt.ts'
import { recordedUndo, takeUndo } from './undo-option.ts'
import { withTimeout } from './with-timeout.ts'

type Body<T> = (step: StepHandle<never>) => Promise<T> | T
type Recipe = (draft: never) => unknown

/** Returns the recorded result of a step, or runs its attempts until one is recorded. */
export async function runStep<T>(execution: Execution, call: Call, body: Body<T>, options: StepOptions<T> = {}): Promise<T> {
  if (hasOtherInput(call, options)) return pauseOnOtherInput(execution, call)
  if (options.undo !== undefined) takeUndo(execution, call, options.undo)
  if (call.history?.outcome !== undefined) return resultOf<T>(execution, call, await execution.recorded(call))
  const policy = policyOf(execution, options)
  // Refused before it waits for its turn: nothing of it is on the tape.
  if (options.timeoutMs !== undefined) checkMs(`timeoutMs of step "${call.path}"`, options.timeoutMs)
  if (options.input !== undefined) execution.budget.noticeRepeat(call, fingerprint(options.input))
  let failures = call.history?.failures ?? 0
  const reopened = call.history?.reopenedFailures ?? 0

  if (!execution.isOpen) await execution.pass(call)
  if (execution.account.isLimited && call.history === undefined) await execution.budget.admit(call)
  else if (call.history === undefined) execution.account.countStep()
  if (call.history?.retryAt !== undefined) await waitForRetry(execution, call, call.history.retryAt)
  if (call.history?.next === 'fallback') {
    // Counted anew since the failure: these are deaths of the fallback.
    const { fallback: _, ...rest } = options
    const death = deathOf(execution, call)
    if (death !== null) return failed(execution, call, rest, death, failures + 1, null)
    return runFallback(execution, call, options, call.history.lastError, failures)
  }
  // The worker died between the last failure and the pause: it pauses now, without another attempt.
  if (call.history?.next === 'pause') return pauseForPerson(execution, call, call.history.lastError)
  const death = deathOf(execution, call)
  if (death !== null) return failed(execution, call, options, death, failures + 1, null)

  for (;;) {
    const attempt = failures + 1
    const outcome = await runAttempt(execution, call, body, options, attempt)
    if (outcome.ok) return outcome.value
    execution.throwIfEnded()
    failures++
    const { error, delayMs } = nextAttempt(policy, failures - reopened, outcome.error)
    if (delayMs === null) return failed(execution, call, options, error, attempt, outcome.durationMs)
    const retryAt = execution.now() + delayMs
    await recordFailure(execution, call, { error, final: false, next: 'retry', retryAt }, attempt, outcome.durationMs)
    await waitForRetry(execution, call, retryAt)
  }
}

/** The error of a step that was running at too many deaths of its worker; null if it may be tried. */
export function deathOf({ runId }: Execution, call: Call): HoldfastError | null {
  if ((call.history?.deaths ?? 0) < stepDeathLimit) return null
  return new HoldfastError(
    'worker_died',
    `Step "${call.path}" of run "${runId}" was running at ${stepDeathLimit} deaths of its worker and is not tried again. ` +
      'Give it a fallback, or find out why it brings the process down (out of memory?).',
    { details: { runId, step: call.path } },
  )
}

/** Whether a recorded failure says that: its body was not entered for it. */
export function isOwnDeath({ codec, runId }: Execution, call: Call, { payload }: Outcome): boolean {
  const { error } = (payload === null ? {} : codec.decode(payload)) as { error?: Partial<HoldfastError> }
  return codeOf(error) === 'worker_died' && error?.details?.['runId'] === runId && error.details['step'] === call.path
}

/** For a step without policies of its own: fails it for good when it was running at too many deaths of its worker. */
export async function refuseDeadly(execution: Execution, call: Call): Promise<void> {
  const death = deathOf(execution, call)
  if (death !== null) await failed(execution, call, {}, death, (call.history?.failures ?? 0) + 1, null)
}

/** The value of a recorded outcome, or the recorded failure thrown again. */
export function resultOf<T>(execution: Execution, call: Call, outcome: Outcome): T {
  const data = outcome.payload === null ? {} : (execution.codec.decode(outcome.payload) as { result?: T; error?: Error })
  if (!outcome.isFailure) return data.result as T
  if (outcome.isWithdrawn === true) throw reviveError(data.error as Error)
  throw tagSource(reviveError(data.error as Error), [call.key])
}

type Attempt<T> = { ok: true; value: T } | { ok: false; error: unknown; durationMs: number }

async function runAttempt<T>(
  execution: Execution,
  call: Call,
  body: Body<T>,
  options: StepOptions<T>,
  attempt: number,
): Promise<Attempt<T>> {
  const started = performance.now()
  const startedAt = execution.now()
  const isDescribed = options.input !== undefined || options.kind !== undefined || options.undo !== undefined
  const described = isDescribed ? inputData(options) : undefined
  const input = execution.calls.hasPlainNames ? described : { ...described, key: execution.calls.keyOf(call) }
  execution.ride(execution.event('step_started', call, { attempt, at: startedAt, data: input }))
  execution.begin(call)
  const recipes: Recipe[] = []
  try {
    if (execution.mustRecordStarts) {
      await execution.commit([], {})
      execution.throwIfEnded()
    }
    const made = runBody(execution, call, body, options, attempt, recipes)
    if (options.undo !== undefined)
      return { ok: true, value: await recordToEnd(execution, call, made, { attempt, started, recipes, options }) }
    let value = await made
    if (options.schema !== undefined) value = await checked(call, options, value)
    // A cancelled or fenced run takes no result; nobody waits for it any more.
    execution.throwIfEnded()
    const durationMs = Math.round(performance.now() - started)
    return { ok: true, value: await recordResult(execution, call, value, { attempt, durationMs, recipes, options }) }
  } catch (error) {
    execution.streams.abort(call, attempt)
    return {
      ok: false,
      error: explainInPlaceChange(execution, call.path, error),
      durationMs: Math.round(performance.now() - started),
    }
  } finally {
    execution.end(call)
  }
}

/** The result of a step's body: with an undo as it comes, otherwise only until the run is cancelled. */
function runBody<T>(
  execution: Execution,
  call: Call,
  body: Body<T>,
  options: StepOptions<T>,
  attempt: number,
  recipes: Recipe[],
): Promise<T> | T {
  const { calls } = execution
  if (options.timeoutMs !== undefined) return runLimited(execution, call, body, options, attempt, recipes)
  const handle = new Handle(execution, call, attempt, recipes, call.within?.signal)
  if (options.undo !== undefined) return calls.inBody(call.path, body, handle)
  const frame = calls.openBody(call.path)
  const made = calls.inOpenBody(frame, body, handle)
  // A cancelled run does not wait for a body that ignores its signal. Only promises that are still open need watching.
  return made instanceof Promise ? execution.orThrow(made, frame) : made
}

function runLimited<T>(
  execution: Execution,
  call: Call,
  body: Body<T>,
  { timeoutMs = 0, undo }: StepOptions<T>,
  attempt: number,
  recipes: Recipe[],
): Promise<T> {
  const limit = withTimeout(timeoutMs, `Step "${call.path}"`, call.within?.signal ?? execution.signal)
  const handle = new Handle(execution, call, attempt, recipes, limit.signal)
  const made = limit.run(async () => execution.calls.inBody(call.path, body, handle))
  return undo === undefined ? execution.orThrow(made) : made
}

async function checked<T>(call: Call, { schema }: StepOptions<T>, value: T): Promise<T> {
  return schema === undefined ? value : ((await validate(schema, value, `The result of step "${call.path}"`)) as T)
}

/** A class, because an object literal with getters takes longer to make than all the rest of a short step's bookkeeping. */
class Handle implements StepHandle<never> {
  readonly attempt: number
  readonly update: StepHandle<never>['update']
  readonly usage: StepHandle<never>['usage']
  readonly log: StepHandle<never>['log']
  readonly #execution: Execution
  readonly #call: Call
  readonly #signal: AbortSignal | undefined

  constructor(execution: Execution, call: Call, attempt: number, recipes: Recipe[], signal: AbortSignal | undefined) {
    this.attempt = attempt
    // Functions of its own, so that they can be taken apart: ({ update }) => update(…).
    this.update = (recipe) => void recipes.push(recipe as Recipe)
    this.usage = (usage) => {
      refuseUnknownUsage('step.usage', usage)
      execution.budget.book(call, checkUsage(usage), attempt)
    }
    this.log = (message, data) => execution.log.info(message, { runId: execution.runId, step: call.path, attempt, ...data })
    this.#execution = execution
    this.#call = call
    this.#signal = signal
  }

  get stream(): StepHandle<never>['stream'] {
    return (name) => this.#execution.streams.ofStep(this.#call, this.attempt, name)
  }

  get key(): string {
    return this.#execution.calls.keyOf(this.#call)
  }

  get signal(): AbortSignal {
    return this.#signal ?? this.#execution.signal
  }

  get progress(): StepHandle<never>['progress'] {
    return (fraction, note) => this.#execution.progress.report(this.#call.path, fraction, note)
  }
}

/** In a function of its own, so that a step without an undo pays nothing for it. */
function recordToEnd<T>(
  execution: Execution,
  call: Call,
  made: Promise<T> | T,
  how: { attempt: number; started: number; recipes: readonly Recipe[]; options: StepOptions<T> },
): Promise<T> {
  const { attempt, started, recipes, options } = how
  return toEnd(execution, options, made, async (value) => {
    const result = await checked(call, options, value)
    const durationMs = Math.round(performance.now() - started)
    return recordResult(execution, call, result, { attempt, durationMs, recipes, options })
  })
}

/** What a step with an undo did is recorded although the run was cancelled meanwhile: only so can it be undone. */
function toEnd<T>(
  execution: Execution,
  { undo }: StepOptions<T>,
  made: Promise<T> | T,
  record: (made: T) => Promise<T>,
): Promise<T> {
  const recording = execution.work.follow(Promise.resolve(made).then(record))
  if (typeof undo === 'string') execution.followNamed(recording)
  return execution.orThrow(recording)
}

async function recordResult<T>(
  execution: Execution,
  call: Call,
  value: T,
  made: { attempt: number; durationMs: number; recipes: readonly Recipe[]; options: StepOptions<T>; via?: 'fallback' },
): Promise<T> {
  const { attempt, durationMs, recipes, options, via } = made
  const undo = options.undo === undefined ? undefined : recordedUndo(options.undo)
  const data = via === undefined && undo === undefined ? plainData(value) : describedData(value, via, undo)
  // Whatever it brings, nobody writes it: it must not reach the state line either.
  if (execution.isDetached) return execution.cameTooLate()
  // Encoded first: a result that can't be stored must leave nothing on the state line.
  const completed = execution.event('step_completed', call, { attempt, durationMs, data })
  const event = recipes.length === 0 ? completed : { ...completed, patch: execution.line.stage(recipes) }
  execution.leave(call)
  execution.streamsSoFar?.settle(call)
  if (options.checkpoint === false && options.undo === undefined && !execution.hasResultsOnTheirWay) {
    await execution.rideResult(event)
  } else {
    await execution.commitResult([event], undo === undefined ? plainResult : { undoable: { key: call.key, undo } }, call)
  }
  // The caller gets what a replay would give: a copy that shares nothing with the body.
  return typeof value === 'object' && value !== null && event.payload !== null
    ? (execution.codec.decode(event.payload) as { result: T }).result
    : value
}

const plainResult = {}

function plainData(value: unknown): Record<string, unknown> | undefined {
  return value === undefined ? undefined : { result: value }
}

function describedData(value: unknown, via: 'fallback' | undefined, undo: RecordedUndo | undefined): Record<string, unknown> {
  return { ...(via && { via }), ...(undo && { undo }), ...(value !== undefined && { result: value }) }
}

/** All attempts have failed, or another is of no use: fallback, skip, pause or throw. */
async function failed<T>(
  execution: Execution,
  call: Call,
  options: StepOptions<T>,
  error: unknown,
  attempt: number,
  durationMs: number | null,
): Promise<T> {
  if (options.fallback !== undefined) {
    await recordFailure(execution, call, { error, final: true, next: 'fallback' }, attempt, durationMs)
    return runFallback(execution, call, options, toStorableError(error), attempt)
  }
  if (options.onFailure === 'skip') {
    const event = failureEvent(execution, call, { error, final: true, next: 'skip' }, attempt, durationMs)
    await execution.commitResult([event, execution.event('step_skipped', call, { attempt })], {})
    return undefined as T
  }
  if (options.onFailure === 'pause') {
    await recordFailure(execution, call, { error, final: true, next: 'pause' }, attempt, durationMs)
    return pauseForPerson(execution, call, error)
  }
  const event = failureEvent(execution, call, { error, final: true, next: 'throw' }, attempt, durationMs)
  await execution.commitResult([event], { failureOf: call.key })
  throw tagSource(reviveError((execution.codec.decode(event.payload as Payload) as { error: Error }).error), [call.key])
}

/** Does not return: the run is paused, and the step gets fresh attempts when it is resumed. */
export async function pauseForPerson(execution: Execution, call: Call, error: unknown): Promise<never> {
  execution.pauseBecause('retries', toStorableError(error ?? new Error('unknown failure')), call.path)
  await execution.park({ dueAt: null, reason: 'retry' })
  return never()
}

async function runFallback<T>(
  execution: Execution,
  call: Call,
  options: StepOptions<T>,
  error: Error | undefined,
  failures: number,
): Promise<T> {
  const { fallback } = options
  if (fallback === undefined) return failed(execution, call, options, error, failures, null)
  const started = performance.now()
  execution.ride(execution.event('step_started', call, { attempt: failures + 1, data: { via: 'fallback' } }))
  execution.begin(call)
  try {
    if (execution.mustRecordStarts) await execution.commit([], {})
    const cause = reviveError(error ?? new Error('unknown failure'))
    const record = (value: T) =>
      recordResult(execution, call, value, {
        attempt: failures + 1,
        durationMs: Math.round(performance.now() - started),
        recipes: [],
        options: options.undo === undefined ? {} : { undo: options.undo },
        via: 'fallback',
      })
    const made = execution.calls.inBody(call.path, async () => fallback(cause))
    if (options.undo !== undefined) return await toEnd(execution, options, made, record)
    return await record(await execution.orThrow(made))
  } catch (fallbackError) {
    execution.throwIfEnded()
    const { fallback: _, ...rest } = options
    return await failed(execution, call, rest, fallbackError, failures + 1, Math.round(performance.now() - started))
  } finally {
    execution.end(call)
  }
}

export async function recordFailure(
  execution: Execution,
  call: Call,
  failure: Failure,
  attempt: number,
  durationMs: number | null,
): Promise<void> {
  await execution.commit([failureEvent(execution, call, failure, attempt, durationMs)], { hasProgress: true })
}

export type Failure = Omit<FailureData, 'error'> & { readonly error: unknown }

export function failureEvent(execution: Execution, call: Call, failure: Failure, attempt: number, durationMs: number | null) {
  const type = call.kind === 'effect' ? 'effect_failed' : 'step_failed'
  const data = { ...failure, error: toStorableError(failure.error) }
  return execution.event(type, call, { attempt, data, ...(durationMs !== null && { durationMs }) })
}

export async function waitForRetry(execution: Execution, call: Call, retryAt: number): Promise<void> {
  if (retryAt > execution.now()) await execution.park({ dueAt: retryAt, reason: 'retry' })
  if (call.within?.isOver === true) return never()
  if (!execution.isOpen) await execution.pass(call)
}

export function policyOf(execution: Execution, options: { readonly retry?: StepOptions<unknown>['retry'] }): RetryPolicy {
  const ofWorkflow = execution.workflow.options.retry
  return options.retry === undefined && ofWorkflow === undefined ? defaultRetryPolicy : retryPolicy(options.retry, ofWorkflow)
}

function inputData(options: Pick<StepOptions<never>, 'kind' | 'input' | 'undo'>): Record<string, unknown> {
  const data: Record<string, unknown> = {}
  if (options.kind !== undefined) data['kind'] = options.kind
  // Whoever cancels the run without executing it can see that there is something to undo.
  if (options.undo !== undefined) data['hasUndo'] = true
  if (options.input !== undefined) Object.assign(data, { input: options.input, inputFingerprint: fingerprint(options.input) })
  return data
}

function hasOtherInput(call: Call, options: { readonly input?: unknown }): boolean {
  const recorded = call.history?.inputFingerprint
  return recorded !== undefined && options.input !== undefined && fingerprint(options.input) !== recorded
}

/** A recorded input that differs from the one given now means that the code no longer does what its log says. */
function pauseOnOtherInput(execution: Execution, call: Call): Promise<never> {
  const error = new HoldfastError(
    'nondeterminism',
    `Step "${call.path}" (call ${call.count}) of run "${execution.runId}" was recorded with another input than the function gives now. ` +
      restoreAdvice(execution.workflow),
    { details: { runId: execution.runId, step: call.path } },
  )
  execution.mismatch(error)
  return never()
}
