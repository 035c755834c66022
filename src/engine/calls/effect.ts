import type { EffectOptions } from '../../define/context.ts'
import { tagSource } from '../../define/failure-source.ts'
import { checkMs } from '../../model/duration.ts'
import { codeOf, HoldfastError, isNotHappened } from '../../model/errors.ts'
import { checkId } from '../../model/ids.ts'
import { isOpen, type Operation } from '../../model/operation.ts'
import type { Payload } from '../../model/payload.ts'
import { restoreAdvice } from '../../model/restore-advice.ts'
import { reviveError, toStorableError } from '../../model/stored-error.ts'
import type { Store } from '../../store/store.ts'
import { type Execution, never } from '../execution/execution.ts'
import { reportHangingEffect, reportUnsureEffect } from '../reports/run-reports.ts'
import { isOutage } from '../writing/committer.ts'
import type { Call } from './calls.ts'
import { nextAttempt } from './next-attempt.ts'
import { failureEvent, policyOf, recordFailure, resultOf, waitForRetry } from './step.ts'
import { recordedUndo, takeUndo } from './undo-option.ts'
import { withTimeout } from './with-timeout.ts'

/** How often a run in memory looks whether somebody else has closed the operation it waits for. */
const lookAgainMs = 500
/** How long somebody else may have an effect under way before the logger hears that a run waits for it. */
const hangsMs = 60_000

/**
 * Carries out an effect: the intent is durable before `run`, the result after it, both under one key.
 *
 *   F1  `run` is never entered before its intent is durable.
 *   F2  A hidden outcome (crash, throw, time-out) is looked up (`check`), sent again under the same key (`idempotent`),
 *       or left to a person. It is never repeated blindly. What this process is still sending is awaited first.
 *   F3  A key that was completed before answers with the recorded result; one that is open elsewhere is waited for.
 */
export async function runEffect<T>(execution: Execution, call: Call, options: EffectOptions<T>): Promise<T> {
  const key = options.key === undefined ? execution.calls.keyOf(call) : checkId('operation key', options.key)
  refuseWhereIntentsGetLost(execution, call, options)
  if (options.undo !== undefined) takeUndo(execution, call, options.undo)
  if (hasOtherKey(execution, call, key, options)) return pauseOnOtherKey(execution, call, key)
  if (call.history?.outcome !== undefined) return resultOf<T>(execution, call, await execution.recorded(call))
  if (call.history === undefined) checkMs(`timeoutMs of effect "${call.path}"`, options.timeoutMs)
  if (call.history?.effect !== undefined && call.history.effect !== 'not_happened') hold(execution, call, key)
  if (!execution.isOpen) await execution.pass(call)
  if (execution.account.isLimited && call.history === undefined) await execution.budget.admit(call)
  else if (call.history === undefined) execution.account.countStep()
  if (call.history?.retryAt !== undefined) await waitForRetry(execution, call, call.history.retryAt)
  const standing = options.key === undefined && call.history === undefined ? await standingKey(execution, call) : undefined
  // What it does to the world is awaited, and recorded, although the run is cancelled meanwhile.
  return execution.orThrow(execution.work.follow(new Effect<T>(execution, call, options, standing ?? key).carryOut()))
}

/** After a rollback: the key under which the effect has happened, or may have, and was not undone. It is not sent again under another. */
async function standingKey(execution: Execution, call: Call): Promise<string | undefined> {
  for (const key of execution.calls.namesBefore(call)) {
    const operation = await readPatiently(execution, call, key)
    if (operation !== null && operation.status !== 'failed' && operation.status !== 'undone') return key
  }
  return undefined
}

/** A store out of reach is waited for: it is no failure of the effect. */
async function readPatiently(execution: Execution, call: Call, key: string): Promise<Operation | null> {
  return patiently(execution, call, (store) => store.readOperation({ owner: execution.owner, key }))
}

async function patiently<R>(execution: Execution, call: Call, read: (store: Store) => Promise<R>): Promise<R> {
  for (;;) {
    const reading = read(execution.store).catch((error: unknown) => {
      if (!isOutage(error)) throw error
      return undefined
    })
    const found = await execution.working(reading)
    if (found !== undefined) return found
    await execution.park({ dueAt: execution.now() + lookAgainMs, reason: 'timer' })
    if (!execution.isOpen) await execution.pass(call)
  }
}

/** Whether the effect is on record, begun or done, under another key than the function gives now. */
function hasOtherKey({ calls }: Execution, call: Call, key: string, options: Pick<EffectOptions<unknown>, 'key'>): boolean {
  const { history } = call
  const isFree = history?.outcome === undefined && (history?.effect === undefined || history.effect === 'not_happened')
  if (isFree || history?.key === undefined) return false
  if (options.key !== undefined) return key !== history.key
  // A default one is what is on record, unless that was given by the function.
  return ![calls.plainName(call), calls.newName(call), ...calls.namesBefore(call)].includes(key)
}

function pauseOnOtherKey(execution: Execution, call: Call, key: string): Promise<never> {
  const recorded = call.history?.key
  const { runId } = execution
  const given = key === recorded ? 'none' : `"${key}"`
  execution.mismatch(
    new HoldfastError(
      'nondeterminism',
      `Effect "${call.path}" (call ${call.count}) of run "${runId}" was recorded with key "${recorded}"; the function gives ${given} now. ` +
        `A key must be the same at every replay: make it of the input or of recorded results. ${restoreAdvice(execution.workflow)}`,
      { details: { runId, step: call.path, recorded: [recorded], asked: [key === recorded ? null : key] } },
    ),
  )
  return never()
}

/** An intent that may be lost with the machine: an effect that has neither `check` nor `idempotent` could be sent twice. */
function refuseWhereIntentsGetLost(
  { store, runId }: Execution,
  call: Call,
  options: Pick<EffectOptions<unknown>, 'check' | 'idempotent'>,
): void {
  if (store.keepsIntents !== false || options.check !== undefined || options.idempotent === true) return
  throw new HoldfastError(
    'durability_too_weak',
    `Effect "${call.path}" of run "${runId}" has neither check nor idempotent, and this ${store.kind} store may lose its intent with the machine. ` +
      'Give it one of them, or open a store that flushes every write (Redis: appendonly yes, appendfsync always).',
    { details: { runId, step: call.path } },
  )
}

/** Which call of an execution sends under a key: others wait for it. */
const senders = new WeakMap<Execution, Map<string, Sender>>()

interface Sender {
  readonly call: Call
  /** It waits for its next attempt, which does not come once its section is over. */
  readonly isBetweenAttempts?: boolean
}

/** Whether this call is the one that sends under the key. The first to ask is. */
function hold(execution: Execution, call: Call, key: string): boolean {
  const keys = senders.get(execution) ?? new Map<string, Sender>()
  senders.set(execution, keys)
  const sender = keys.get(key)
  const isFree = sender === undefined || (sender.isBetweenAttempts === true && sender.call.within?.isOver === true)
  if (isFree) keys.set(key, { call })
  return isFree || sender.call.key === call.key
}

function release(execution: Execution, call: Call, key: string): void {
  const keys = senders.get(execution)
  if (keys?.get(key)?.call.key === call.key) keys.delete(key)
}

/** What the world is known to have done about the effect. */
type Stage =
  | { readonly kind: 'nothing' }
  /** The intent is durable and `run` may be entered for the first time. */
  | { readonly kind: 'intended' }
  /** `run` was entered and its outcome is not known. */
  | { readonly kind: 'hidden'; readonly error: unknown; readonly byCrash: boolean }
  | { readonly kind: 'unsure' }
  | { readonly kind: 'resolved'; readonly result: unknown }

class Effect<T> {
  readonly #execution: Execution
  readonly #call: Call
  readonly #options: EffectOptions<T>
  readonly #key: string
  #failures: number
  /** Its failure is on record: what is thrown now is the function's. */
  #hasFailed = false
  /** The logger has heard that somebody else has it under way for long. */
  #isReported = false

  constructor(execution: Execution, call: Call, options: EffectOptions<T>, key: string) {
    this.#execution = execution
    this.#call = call
    this.#options = options
    this.#key = key
    this.#failures = call.history?.failures ?? 0
  }

  async carryOut(): Promise<T> {
    let stage = this.#stageOnTape()
    try {
      for (;;) {
        const next = await this.#advance(stage).catch((error: unknown) => this.#decidedMeanwhile(error))
        if ('value' in next) return next.value
        stage = next.stage
        if (stage.kind === 'intended' && this.#execution.isCancelled) await this.#withdraw()
        this.#execution.throwIfEnded()
      }
    } finally {
      release(this.#execution, this.#call, this.#key)
    }
  }

  /**
   * A run that ended with the effect under way left it to a person, and was taken up again: both may decide at the same time. What is on record
   * counts.
   */
  async #decidedMeanwhile(error: unknown): Promise<Next<T>> {
    if (codeOf(error) !== 'conflict' || this.#hasFailed || this.#execution.hasEnded) throw error
    const operation = await readPatiently(this.#execution, this.#call, this.#key)
    if (operation === null || isOpen(operation.status)) return this.#execution.startOver(error)
    return { stage: toDecided(this.#execution, operation) }
  }

  #stageOnTape(): Stage {
    const history = this.#call.history
    switch (history?.effect) {
      case 'intended':
        return { kind: 'hidden', error: history.lastError, byCrash: true }
      case 'unsure':
        return { kind: 'unsure' }
      case 'happened':
        return { kind: 'resolved', result: history.resolution }
      default:
        return { kind: 'nothing' }
    }
  }

  #advance(stage: Stage): Promise<Next<T>> {
    switch (stage.kind) {
      case 'nothing':
        return this.#intend()
      case 'intended':
        return this.#send()
      case 'hidden':
        return this.#settleHidden(stage)
      case 'unsure':
        return this.#awaitPerson()
      case 'resolved':
        return this.#complete(stage.result as T, { via: 'resolve' })
    }
  }

  async #intend(): Promise<Next<T>> {
    const { path } = this.#call
    const { undo } = this.#options
    const event = this.#execution.event('effect_intended', this.#call, {
      attempt: this.#attempt,
      data: { key: this.#key, ...(undo !== undefined && { hasUndo: true }), ...(typeof undo === 'string' && { undo }) },
    })
    hold(this.#execution, this.#call, this.#key)
    // The name without its scopes: the same effect may be called from several.
    const name = path.slice(path.lastIndexOf('/') + 1)
    const taken = await this.#execution.intend(event, { kind: 'intend', key: this.#key, name })
    if (taken === null) return { stage: { kind: 'intended' } }
    if (taken.name !== name) return this.#failForGood(this.#otherName(taken), 'nothing')
    // Left behind by an earlier holder, and forgotten by a rollback or by the store since: nobody else will close it.
    const isLeftBehind =
      taken.status === 'intended' && taken.runId === this.#execution.runId && hold(this.#execution, this.#call, this.#key)
    if (isLeftBehind) {
      // On this tape it has begun here.
      this.#execution.ride(event)
      return { stage: { kind: 'hidden', error: undefined, byCrash: true } }
    }
    if (!isOpen(taken.status))
      return (await this.#isDecided(taken)) ? { stage: toDecided(this.#execution, taken) } : this.#skip(taken)
    const hangsAt = taken.status === 'intended' ? taken.intendedAt + hangsMs : Number.POSITIVE_INFINITY
    const hangs = hangsAt <= this.#execution.now()
    if (hangs && !this.#isReported) reportHangingEffect(this.#execution, { step: path, key: this.#key, holder: taken.runId })
    this.#isReported ||= hangs
    await this.#rest(async () => {
      await this.#execution.park({
        dueAt: this.#execution.now() + lookAgainMs,
        rowDueAt: hangs ? Number.POSITIVE_INFINITY : hangsAt,
        reason: taken.status === 'unsure' ? 'person' : 'effect',
        waitKey: this.#key,
      })
      if (!this.#execution.isOpen) await this.#execution.pass(this.#call)
    })
    return { stage: { kind: 'nothing' } }
  }

  /**
   * Whether a person has decided that the effect has happened, since a rollback that left it unsure, and no call has recorded it: it is this
   * one's to undo.
   */
  async #isDecided(taken: Operation): Promise<boolean> {
    const { owner, codec, claim } = this.#execution
    const { threadId, id: runId } = claim.run
    if (this.#options.undo === undefined || taken.runId !== runId || !hold(this.#execution, this.#call, this.#key)) return false
    const types = ['effect_resolved', 'effect_completed'] as const
    const records = await patiently(this.#execution, this.#call, (store) => store.readLog({ owner, threadId, runId, types }))
    const last = records.findLast(
      ({ payload }) => payload !== null && (codec.decode(payload) as { key: string }).key === this.#key,
    )
    return last?.type === 'effect_resolved'
  }

  async #send(): Promise<Next<T>> {
    const execution = this.#execution
    const started = performance.now()
    const sent = await this.#working(() =>
      execution.sendings.send(execution.owner, this.#key, execution.runId, () => this.#enter()),
    )
    const durationMs = Math.round(performance.now() - started)
    if (sent.ok) return this.#complete(sent.value, { durationMs })
    // Whatever `run` throws besides NotHappened leaves the outcome hidden (F2).
    if (!isNotHappened(sent.error)) return { stage: { kind: 'hidden', error: sent.error, byCrash: false } }
    if (execution.stop?.kind === 'lost') execution.throwIfEnded()
    return this.#retryOrFail(sent.error, { isOpen: false })
  }

  /** Runs a body of the user's while the run counts as at work. */
  async #working<R>(body: () => Promise<R> | R): Promise<{ ok: true; value: R } | { ok: false; error: unknown }> {
    this.#execution.begin(this.#call)
    try {
      return { ok: true, value: await body() }
    } catch (error) {
      return { ok: false, error }
    } finally {
      this.#execution.end(this.#call)
    }
  }

  #enter(): Promise<T> | T {
    const { run, timeoutMs } = this.#options
    const execution = this.#execution
    const outer = this.#call.within?.signal
    const limit =
      timeoutMs === undefined ? undefined : withTimeout(timeoutMs, `Effect "${this.#call.path}"`, outer ?? execution.signal)
    const attempt = this.#attempt
    const handle = {
      attempt,
      get signal() {
        return limit?.signal ?? outer ?? execution.signal
      },
    }
    const body = () => execution.calls.inBody(this.#call.path, () => run(this.#key, handle))
    return limit === undefined ? body() : limit.run(async () => body())
  }

  async #settleHidden(stage: { error: unknown; byCrash: boolean }): Promise<Next<T>> {
    // Hidden from this execution only: whoever looks it up now could find nothing, and it would happen after that.
    if (stage.byCrash && this.#execution.sendings.has(this.#execution.owner, this.#key)) return this.#send()
    if (this.#options.check !== undefined) return this.#lookUp(stage)
    // A mistake in the code, and the same every time: there is nothing that a person could decide.
    if (isNestedIn(this.#call.path, this.#execution.runId, stage.error)) return this.#failForGood(stage.error, 'fail')
    if (this.#options.idempotent !== true) return this.#doubt(stage.error)
    if (stage.byCrash) return this.#send()
    return this.#retryOrFail(stage.error, { isOpen: true })
  }

  async #lookUp(stage: { error: unknown; byCrash: boolean }): Promise<Next<T>> {
    const { check } = this.#options
    const execution = this.#execution
    const policy = policyOf(execution, this.#options)
    for (let tries = 1; ; tries++) {
      const looked = await this.#working(() =>
        execution.calls.inBody(this.#call.path, async () => (check as NonNullable<typeof check>)(this.#key)),
      )
      if (!looked.ok) {
        const { error, delayMs } = nextAttempt(policy, tries, looked.error)
        if (delayMs === null) return this.#doubt(error)
        await this.#untilRetry(execution.now() + delayMs)
        continue
      }
      const answer = looked.value
      execution.throwIfEnded()
      if (answer?.happened === true) return this.#complete(answer.result as T, { via: 'check' })
      if (answer?.happened !== false) {
        return this.#doubt(
          new HoldfastError(
            'invalid_input',
            `check of effect "${this.#call.path}" must return { happened: true or false, result? }`,
          ),
        )
      }
      if (!stage.byCrash) return this.#retryOrFail(stage.error, { isOpen: false, via: 'check' })
      await this.#notSent('The worker died before the effect happened')
      return { stage: { kind: 'nothing' } }
    }
  }

  /** The run was cancelled before `run` was entered: it surely did not happen. */
  async #withdraw(): Promise<void> {
    await this.#notSent('The run was cancelled before the effect happened')
  }

  async #notSent(message: string): Promise<void> {
    const failure = { error: new Error(message), final: false, next: 'retry', counts: false } as const
    const event = failureEvent(this.#execution, this.#call, failure, this.#attempt, null)
    await this.#execution.commit([event], { operation: { kind: 'fail', key: this.#key }, canBeOverruled: true })
    this.#execution.history.effects.closed(this.#key)
  }

  async #complete(result: T, how: { via?: 'check' | 'resolve'; durationMs?: number }): Promise<Next<T>> {
    const { via, durationMs } = how
    let payload: Payload | null
    try {
      payload = result === undefined ? null : this.#execution.codec.encode(result)
    } catch (error) {
      // It happened, but what it returned can't be kept: the operation is closed, so that nobody sends it again.
      if (codeOf(error) === 'value_not_storable' || codeOf(error) === 'value_too_large')
        return this.#failForGood(error, 'complete')
      throw error
    }
    const undo = this.#options.undo === undefined ? undefined : recordedUndo(this.#options.undo)
    const data = { key: this.#key, ...(via && { via }), ...(undo && { undo }), ...(result !== undefined && { result }) }
    const event = this.#execution.event('effect_completed', this.#call, {
      attempt: this.#attempt,
      data,
      ...(durationMs !== undefined && { durationMs }),
    })
    // The run has continued or ended without it, and the operation waits for a person: this tells what to decide.
    if (this.#execution.isDetached) {
      this.#execution.noteEvidence(this.#key, { result, at: event.at })
      return never()
    }
    const { effects } = this.#execution.history
    effects.answered(this.#key, { result: payload, at: event.at })
    try {
      await this.#execution.commitResult([event], {
        ...(via !== 'resolve' && { operation: { kind: 'complete', key: this.#key, result: payload }, canBeOverruled: true }),
        ...(undo && { undoable: { key: this.#call.key, undo, operationKey: this.#key } }),
      })
      effects.completed(this.#key)
    } catch (error) {
      if (codeOf(error) === 'lease_lost' || codeOf(error) === 'run_cancelled')
        this.#execution.noteEvidence(this.#key, { result, at: event.at })
      throw error
    }
    const recorded = event.payload === null ? {} : (this.#execution.codec.decode(event.payload) as { result?: T })
    return { value: recorded.result as T }
  }

  async #skip(done: Operation): Promise<Next<T>> {
    const { codec } = this.#execution
    const result = done.result === null ? undefined : codec.decode(done.result)
    const data = { key: this.#key, by: done.runId, ...(result !== undefined && { result }) }
    const event = this.#execution.event('effect_skipped', this.#call, { attempt: this.#attempt, data })
    await this.#execution.commitResult([event], {})
    return { value: result as T }
  }

  /** A failed attempt: another one later, or the end of them. */
  async #retryOrFail(error: unknown, how: { isOpen: boolean; via?: 'check' }): Promise<Next<T>> {
    const execution = this.#execution
    const cause = isNotHappened(error) && (error as Error).cause instanceof Error ? (error as Error).cause : error
    const attempt = this.#attempt
    this.#failures++
    const used = this.#failures - (this.#call.history?.reopenedFailures ?? 0)
    const next = nextAttempt(policyOf(execution, this.#options), used, cause)
    if (next.delayMs === null) {
      this.#failures--
      return how.isOpen ? this.#doubt(next.error === cause ? error : next.error) : this.#failForGood(next.error, 'fail')
    }
    const retryAt = execution.now() + next.delayMs
    const failure = {
      error: cause,
      final: false,
      next: 'retry',
      retryAt,
      ...(how.isOpen && { open: true }),
      ...(how.via && { via: how.via }),
    } as const
    if (how.isOpen) await recordFailure(execution, this.#call, failure, attempt, null)
    else {
      const event = failureEvent(execution, this.#call, failure, attempt, null)
      await execution.commit([event], { hasProgress: true, operation: { kind: 'fail', key: this.#key }, canBeOverruled: true })
      execution.history.effects.closed(this.#key)
    }
    await this.#untilRetry(retryAt)
    return { stage: { kind: how.isOpen ? 'intended' : 'nothing' } }
  }

  /** Recorded, and thrown into the function now and at every replay. */
  async #failForGood(error: unknown, operation: 'fail' | 'complete' | 'nothing'): Promise<never> {
    const event = failureEvent(this.#execution, this.#call, { error, final: true, next: 'throw' }, this.#attempt, null)
    const change =
      operation === 'fail'
        ? ({ kind: 'fail', key: this.#key } as const)
        : operation === 'complete'
          ? ({ kind: 'complete', key: this.#key, result: null } as const)
          : undefined
    await this.#execution.commitResult([event], {
      ...{ failureOf: this.#call.key, canBeOverruled: true },
      ...(change !== undefined && { operation: change }),
    })
    this.#hasFailed = true
    if (operation === 'fail') this.#execution.history.effects.closed(this.#key)
    const stored = (this.#execution.codec.decode(event.payload as Payload) as { error: Error }).error
    throw tagSource(reviveError(stored), [this.#call.key])
  }

  /** Nobody can know: a person decides, and the run waits. */
  async #doubt(error: unknown): Promise<Next<T>> {
    const execution = this.#execution
    const message = error === undefined ? 'the worker died while the effect was under way' : toStorableError(error).message
    const event = execution.event('effect_unsure', this.#call, { attempt: this.#attempt, data: { key: this.#key, message } })
    await execution.commit([event], { hasProgress: true, operation: { kind: 'doubt', key: this.#key }, canBeOverruled: true })
    reportUnsureEffect(execution, { step: this.#call.path, key: this.#key, message })
    return { stage: { kind: 'unsure' } }
  }

  async #awaitPerson(): Promise<Next<T>> {
    const execution = this.#execution
    const reading = execution.store.readOperation({ owner: execution.owner, key: this.#key }).catch((error: unknown) => {
      if (!isOutage(error)) throw error
      // Out of reach for now: it is looked at again.
      return null
    })
    const operation = await execution.working(reading)
    if (operation !== null && !isOpen(operation.status)) return { stage: toDecided(execution, operation) }
    await this.#rest(() =>
      execution.park({
        dueAt: execution.now() + lookAgainMs,
        rowDueAt: Number.POSITIVE_INFINITY,
        reason: 'person',
        waitKey: this.#key,
      }),
    )
    return { stage: { kind: 'unsure' } }
  }

  async #untilRetry(retryAt: number): Promise<void> {
    const execution = this.#execution
    const keys = senders.get(execution)
    const isMine = () => keys?.get(this.#key)?.call.key === this.#call.key
    if (isMine()) keys?.set(this.#key, { call: this.#call, isBetweenAttempts: true })
    await this.#rest(() => waitForRetry(execution, this.#call, retryAt))
    if (isMine()) keys?.set(this.#key, { call: this.#call })
  }

  /** Waits with nothing under way: a run that is being stopped does not wait for it, since the wait does not end then. */
  async #rest(wait: () => Promise<void>): Promise<void> {
    const { work } = this.#execution
    work.end()
    try {
      await wait()
    } finally {
      work.begin()
    }
  }

  get #attempt(): number {
    return this.#failures + 1
  }

  #otherName(taken: Operation): HoldfastError {
    return new HoldfastError(
      'input_mismatch',
      `Operation key "${this.#key}" belongs to effect "${taken.name}" of run "${taken.runId}"; effect "${this.#call.path}" of run ` +
        `"${this.#execution.runId}" can't use it. Give each effect keys of its own.`,
      { details: { key: this.#key, effect: taken.name, runId: taken.runId } },
    )
  }
}

/** What somebody else has decided about the effect. */
function toDecided({ codec }: Execution, { status, result }: Operation): Stage {
  if (status !== 'completed') return { kind: 'nothing' }
  return { kind: 'resolved', result: result === null ? undefined : codec.decode(result) }
}

/** Whether a body was refused a call on its own ctx. */
function isNestedIn(step: string, runId: string, error: unknown): boolean {
  if (codeOf(error) !== 'nested_call') return false
  const { details } = error as HoldfastError
  return details?.['runId'] === runId && details['step'] === step
}

type Next<T> = { readonly value: T } | { readonly stage: Stage }
