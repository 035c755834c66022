import type { EffectOptions } from '../../define/context.ts'
import { checkMs } from '../../model/duration.ts'
import { codeOf, HoldfastError, isNotHappened } from '../../model/errors.ts'
import type { NewEvent } from '../../model/event.ts'
import { checkId } from '../../model/ids.ts'
import { isOpen, type Operation } from '../../model/operation.ts'
import type { CallHost } from '../execution/call-host.ts'
import { never } from '../execution/never.ts'
import { lastPartOf } from '../replay/call-key.ts'
import { reportHangingEffect } from '../reports/run-reports.ts'
import { isOutage } from '../writing/committer.ts'
import { askPatiently } from './ask-patiently.ts'
import type { Call } from './calls.ts'
import {
  hasOtherKey,
  lookAgainMs,
  otherName,
  pauseOnOtherKey,
  readOperation,
  refuseWhereIntentsGetLost,
  standingKey,
} from './effect-key.ts'
import { EffectRecords, type Next, type Stage } from './effect-records.ts'
import { holdKey, releaseKey, setBetweenAttempts } from './effect-senders.ts'
import { failureEvent, policyOf, recordFailure, waitForRetry } from './failure-policy.ts'
import { nextAttempt } from './next-attempt.ts'
import { resultOf } from './recorded-result.ts'
import { takeUndo } from './undo-option.ts'
import { withTimeout } from './with-timeout.ts'

/** How long another run may have an effect under way before the logger hears that a run waits for it. */
const hangsMs = 60_000

/**
 * Carries out an effect: the intent is durable before `run`, the result after it, both under one key.
 *
 *   F1  `run` is never entered before its intent is durable.
 *   F2  A hidden outcome (crash, throw, time-out) is looked up (`check`), sent again under the same key (`idempotent`),
 *       or left to a person. It is never repeated blindly. What this process is still sending is awaited first.
 *   F3  A key that was completed before answers with the recorded result; one that is open elsewhere is waited for.
 */
export async function runEffect<T>(host: CallHost, call: Call, options: EffectOptions<T>): Promise<T> {
  const key = options.key === undefined ? host.calls.keyOf(call) : checkId('operation key', options.key)
  refuseWhereIntentsGetLost(host, call, options)
  if (options.undo !== undefined) takeUndo(host, call, options.undo)
  if (hasOtherKey(host, call, key, options)) return pauseOnOtherKey(host, call, key)
  if (call.history?.outcome !== undefined) return resultOf<T>(host, call, await host.admission.recorded(call))
  if (call.history === undefined) checkMs(`timeoutMs of effect "${call.path}"`, options.timeoutMs)
  if (call.history?.effect !== undefined && call.history.effect !== 'not_happened') holdKey(host, call, key)
  const admitted = host.admission.admit(call)
  if (admitted !== null) await admitted
  if (call.history?.retryAt !== undefined) await waitForRetry(host, call, call.history.retryAt)
  const standing = options.key === undefined && call.history === undefined ? await standingKey(host, call) : undefined
  // What it does to the world is awaited, and recorded, although the run is cancelled meanwhile.
  return host.activity.orThrow(host.activity.work.follow(new Effect<T>(host, call, options, standing ?? key).carryOut()))
}

class Effect<T> {
  readonly #host: CallHost
  readonly #call: Call
  readonly #options: EffectOptions<T>
  readonly #key: string
  readonly #records: EffectRecords<T>
  /** The logger was told that another run has it under way for long. */
  #isReported = false

  constructor(host: CallHost, call: Call, options: EffectOptions<T>, key: string) {
    this.#host = host
    this.#call = call
    this.#options = options
    this.#key = key
    this.#records = new EffectRecords(host, call, options, key)
  }

  async carryOut(): Promise<T> {
    let stage = this.#stageOnTape()
    try {
      for (;;) {
        const next = await this.#advance(stage).catch((error: unknown) => this.#decidedMeanwhile(error))
        if ('value' in next) return next.value
        stage = next.stage
        if (stage.kind === 'intended' && this.#host.admission.isCancelled) {
          // `run` was not entered: it surely did not happen.
          await this.#records.notSent('The run was cancelled before the effect happened')
        }
        this.#host.admission.throwIfEnded()
      }
    } finally {
      releaseKey(this.#host, this.#call, this.#key)
    }
  }

  /**
   * A run that ended with the effect under way left it to a person, and was taken up again: both may decide at the same time. What is on record
   * counts.
   */
  async #decidedMeanwhile(error: unknown): Promise<Next<T>> {
    if (codeOf(error) !== 'conflict' || this.#records.hasFailed || this.#host.admission.hasEnded) throw error
    const operation = await readOperation(this.#host, this.#call, this.#key)
    if (operation === null || isOpen(operation.status)) return this.#host.stopping.startOver(error)
    return { stage: toDecided(this.#host, operation) }
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
        return this.#records.complete(stage.result as T, { via: 'resolve' })
    }
  }

  async #intend(): Promise<Next<T>> {
    const { path } = this.#call
    const { undo } = this.#options
    const event = this.#host.journal.event('effect_intended', this.#call, {
      attempt: this.#records.attempt,
      data: { key: this.#key, ...(undo !== undefined && { hasUndo: true }), ...(typeof undo === 'string' && { undo }) },
    })
    holdKey(this.#host, this.#call, this.#key)
    // The name without its scopes: the same effect may be called from several.
    const name = lastPartOf(path)
    const taken = await this.#host.activity.followIntent(this.#writeIntent(event, name))
    if (taken === null) return this.#host.activity.isFinishing ? this.#rest(() => never()) : { stage: { kind: 'intended' } }
    if (taken.name !== name) return this.#records.failForGood(otherName(this.#host, this.#call, taken), 'nothing')
    // Left behind by an earlier holder, and forgotten by a rollback or by the store since: nothing else will close it.
    const isLeftBehind =
      taken.status === 'intended' && taken.runId === this.#host.run.runId && holdKey(this.#host, this.#call, this.#key)
    if (isLeftBehind) {
      // On this tape it has begun here.
      this.#host.journal.defer(event)
      return { stage: { kind: 'hidden', error: undefined, byCrash: true } }
    }
    if (!isOpen(taken.status))
      return (await this.#isDecided(taken)) ? { stage: toDecided(this.#host, taken) } : this.#records.skip(taken)
    const hangsAt = taken.status === 'intended' ? taken.intendedAt + hangsMs : Number.POSITIVE_INFINITY
    const hangs = hangsAt <= this.#host.clock.now()
    if (hangs && !this.#isReported) reportHangingEffect(this.#host.run, { step: path, key: this.#key, holder: taken.runId })
    this.#isReported ||= hangs
    await this.#rest(async () => {
      await this.#host.suspension.park({
        dueAt: this.#host.clock.now() + lookAgainMs,
        rowDueAt: hangs ? Number.POSITIVE_INFINITY : hangsAt,
        reason: taken.status === 'unsure' ? 'person' : 'effect',
        waitKey: this.#key,
      })
      if (!this.#host.admission.isOpen) await this.#host.admission.pass(this.#call)
    })
    return { stage: { kind: 'nothing' } }
  }

  /** The run's last commit waits for this: what was not sent by then is not sent after it. */
  async #writeIntent(event: NewEvent, name: string): Promise<Operation | null> {
    const taken = await this.#host.journal.intend(event, { kind: 'intend', key: this.#key, name })
    if (taken === null && this.#host.activity.isFinishing) await this.#records.notSent('The run ended before the effect was sent')
    return taken
  }

  /**
   * Whether a person has decided that the effect has happened, since a rollback that left it unsure, and no call has recorded it: it is this
   * one's to undo.
   */
  async #isDecided(taken: Operation): Promise<boolean> {
    const { owner, codec, claim } = this.#host.run
    const { threadId, id: runId } = claim.run
    if (this.#options.undo === undefined || taken.runId !== runId || !holdKey(this.#host, this.#call, this.#key)) return false
    const types = ['effect_resolved', 'effect_completed'] as const
    const records = await askPatiently(
      this.#host,
      this.#call,
      () => this.#host.run.store.readLog({ owner, threadId, runId, types }),
      {
        ...{ inMs: lookAgainMs, reason: 'timer' },
      },
    )
    const last = records.findLast(
      ({ payload }) => payload !== null && (codec.decode(payload) as { key: string }).key === this.#key,
    )
    return last?.type === 'effect_resolved'
  }

  async #send(): Promise<Next<T>> {
    const host = this.#host
    const started = performance.now()
    const sent = await this.#working(() =>
      host.run.engine.sendings.send(host.run.owner, this.#key, host.run.runId, () => this.#enter()),
    )
    const durationMs = Math.round(performance.now() - started)
    if (sent.ok) return this.#records.complete(sent.value, { durationMs })
    // Whatever `run` throws besides NotHappened leaves the outcome hidden (F2).
    if (!isNotHappened(sent.error)) return { stage: { kind: 'hidden', error: sent.error, byCrash: false } }
    if (host.admission.isLost) host.admission.throwIfEnded()
    return this.#retryOrFail(sent.error, { isOpen: false })
  }

  /** Runs a body of the user's while the run counts as at work. */
  async #working<R>(body: () => Promise<R> | R): Promise<{ ok: true; value: R } | { ok: false; error: unknown }> {
    this.#host.activity.begin(this.#call)
    try {
      return { ok: true, value: await body() }
    } catch (error) {
      return { ok: false, error }
    } finally {
      this.#host.activity.end(this.#call)
    }
  }

  #enter(): Promise<T> | T {
    const { run, timeoutMs } = this.#options
    const host = this.#host
    const outer = this.#call.within?.signal
    const limit =
      timeoutMs === undefined ? undefined : withTimeout(timeoutMs, `Effect "${this.#call.path}"`, outer ?? host.activity.signal)
    const attempt = this.#records.attempt
    const handle = {
      attempt,
      get signal() {
        return limit?.signal ?? outer ?? host.activity.signal
      },
    }
    const body = () => host.calls.inBody(this.#call.path, () => run(this.#key, handle))
    return limit === undefined ? body() : limit.run(async () => body())
  }

  async #settleHidden(stage: { error: unknown; byCrash: boolean }): Promise<Next<T>> {
    // Hidden from this execution only: a look-up now could find nothing, and it would happen after that.
    if (stage.byCrash && this.#host.run.engine.sendings.has(this.#host.run.owner, this.#key)) return this.#send()
    if (this.#options.check !== undefined) return this.#lookUp(stage)
    // A mistake in the code, and the same every time: there is nothing that a person could decide.
    if (isNestedIn(this.#call.path, this.#host.run.runId, stage.error)) return this.#records.failForGood(stage.error, 'fail')
    if (this.#options.idempotent !== true) return this.#records.markUnsure(stage.error)
    if (stage.byCrash) return this.#send()
    return this.#retryOrFail(stage.error, { isOpen: true })
  }

  async #lookUp(stage: { error: unknown; byCrash: boolean }): Promise<Next<T>> {
    const { check } = this.#options
    const host = this.#host
    const policy = policyOf(host, this.#options)
    for (let tries = 1; ; tries++) {
      const looked = await this.#working(() =>
        host.calls.inBody(this.#call.path, async () => (check as NonNullable<typeof check>)(this.#key)),
      )
      if (!looked.ok) {
        const { error, delayMs } = nextAttempt(policy, tries, looked.error)
        if (delayMs === null) return this.#records.markUnsure(error)
        await this.#untilRetry(host.clock.now() + delayMs)
        continue
      }
      const answer = looked.value
      host.admission.throwIfEnded()
      if (answer?.happened === true) return this.#records.complete(answer.result as T, { via: 'check' })
      if (answer?.happened !== false) {
        return this.#records.markUnsure(
          new HoldfastError(
            'invalid_input',
            `check of effect "${this.#call.path}" must return { happened: true or false, result? }`,
          ),
        )
      }
      if (!stage.byCrash) return this.#retryOrFail(stage.error, { isOpen: false, via: 'check' })
      await this.#records.notSent('The worker died before the effect happened')
      return { stage: { kind: 'nothing' } }
    }
  }

  /** A failed attempt: another one later, or the end of them. */
  async #retryOrFail(error: unknown, how: { isOpen: boolean; via?: 'check' }): Promise<Next<T>> {
    const host = this.#host
    const cause = isNotHappened(error) && (error as Error).cause instanceof Error ? (error as Error).cause : error
    const attempt = this.#records.attempt
    this.#records.failures++
    const used = this.#records.failures - (this.#call.history?.reopenedFailures ?? 0)
    const next = nextAttempt(policyOf(host, this.#options), used, cause)
    if (next.delayMs === null) {
      this.#records.failures--
      return how.isOpen
        ? this.#records.markUnsure(next.error === cause ? error : next.error)
        : this.#records.failForGood(next.error, 'fail')
    }
    const retryAt = host.clock.now() + next.delayMs
    const failure = {
      error: cause,
      final: false,
      next: 'retry',
      retryAt,
      ...(how.isOpen && { open: true }),
      ...(how.via && { via: how.via }),
    } as const
    if (how.isOpen) await recordFailure(host, this.#call, failure, attempt, null)
    else {
      const event = failureEvent(host, this.#call, failure, attempt, null)
      await host.journal.commit([event], { hasProgress: true, operation: { kind: 'fail', key: this.#key }, canBeOverruled: true })
      host.run.history.effects.closed(this.#key)
    }
    await this.#untilRetry(retryAt)
    return { stage: { kind: how.isOpen ? 'intended' : 'nothing' } }
  }

  async #awaitPerson(): Promise<Next<T>> {
    const host = this.#host
    const reading = host.run.store.readOperation({ owner: host.run.owner, key: this.#key }).catch((error: unknown) => {
      if (!isOutage(error)) throw error
      // Out of reach for now: it is looked at again.
      return null
    })
    const operation = await host.activity.working(reading)
    if (operation !== null && !isOpen(operation.status)) return { stage: toDecided(host, operation) }
    await this.#rest(() =>
      host.suspension.park({
        dueAt: host.clock.now() + lookAgainMs,
        rowDueAt: Number.POSITIVE_INFINITY,
        reason: 'person',
        waitKey: this.#key,
      }),
    )
    return { stage: { kind: 'unsure' } }
  }

  async #untilRetry(retryAt: number): Promise<void> {
    const host = this.#host
    setBetweenAttempts(host, this.#call, this.#key, true)
    await this.#rest(() => waitForRetry(host, this.#call, retryAt))
    setBetweenAttempts(host, this.#call, this.#key, false)
  }

  /** Waits with nothing under way: a run that is being stopped does not wait for it, since the wait does not end then. */
  async #rest<R>(wait: () => Promise<R>): Promise<R> {
    const { work } = this.#host.activity
    work.end()
    try {
      return await wait()
    } finally {
      work.begin()
    }
  }
}

/** What was decided about the effect elsewhere. */
function toDecided({ run: { codec } }: CallHost, { status, result }: Operation): Stage {
  if (status !== 'completed') return { kind: 'nothing' }
  return { kind: 'resolved', result: result === null ? undefined : codec.decode(result) }
}

/** Whether a body was refused a call on its own ctx. */
function isNestedIn(step: string, runId: string, error: unknown): boolean {
  if (codeOf(error) !== 'nested_call') return false
  const { details } = error as HoldfastError
  return details?.['runId'] === runId && details['step'] === step
}
