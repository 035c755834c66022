import type { EffectOptions } from '../../define/context.ts'
import { codeOf } from '../../model/errors.ts'
import type { Operation } from '../../model/operation.ts'
import type { Payload } from '../../model/payload.ts'
import { toStorableError } from '../../model/stored-error.ts'
import type { Change } from '../../store/change.ts'
import type { CallHost } from '../execution/call-host.ts'
import { never } from '../execution/never.ts'
import { reportUnsureEffect } from '../reports/run-reports.ts'
import type { Call } from './calls.ts'
import { failureEvent, storedFailure } from './failure-policy.ts'
import { recordedUndo } from './undo-option.ts'

/** What the world is known to have done about the effect. */
export type Stage =
  | { readonly kind: 'nothing' }
  /** The intent is durable and `run` may be entered for the first time. */
  | { readonly kind: 'intended' }
  /** `run` was entered and its outcome is not known. */
  | { readonly kind: 'hidden'; readonly error: unknown; readonly byCrash: boolean }
  | { readonly kind: 'unsure' }
  | { readonly kind: 'resolved'; readonly result: unknown }

export type Next<T> = { readonly value: T } | { readonly stage: Stage }

/** Writes what becomes of an effect: its events, and with each the change of its operation. */
export class EffectRecords<T> {
  readonly #host: CallHost
  readonly #call: Call
  readonly #options: EffectOptions<T>
  readonly #key: string
  failures: number
  /** Its failure is on record: what is thrown now is the function's. */
  hasFailed = false

  constructor(host: CallHost, call: Call, options: EffectOptions<T>, key: string) {
    this.#host = host
    this.#call = call
    this.#options = options
    this.#key = key
    this.failures = call.history?.failures ?? 0
  }

  get attempt(): number {
    return this.failures + 1
  }

  async notSent(message: string): Promise<void> {
    const failure = { error: new Error(message), final: false, next: 'retry', counts: false } as const
    const event = failureEvent(this.#host, this.#call, failure, this.attempt, null)
    await this.#host.journal.commit([event], { operation: { kind: 'fail', key: this.#key }, canBeOverruled: true })
    this.#host.run.history.effects.closed(this.#key)
  }

  async complete(result: T, how: { via?: 'check' | 'resolve'; durationMs?: number }): Promise<Next<T>> {
    const { via, durationMs } = how
    let payload: Payload | null
    try {
      payload = result === undefined ? null : this.#host.run.codec.encode(result)
    } catch (error) {
      // It happened, but what it returned can't be kept: the operation is closed, so that it is not sent again.
      if (codeOf(error) === 'value_not_storable' || codeOf(error) === 'value_too_large')
        return this.failForGood(error, 'complete')
      throw error
    }
    const undo = this.#options.undo === undefined ? undefined : recordedUndo(this.#options.undo)
    const data = { key: this.#key, ...(via && { via }), ...(undo && { undo }), ...(result !== undefined && { result }) }
    const event = this.#host.journal.event('effect_completed', this.#call, {
      attempt: this.attempt,
      data,
      ...(durationMs !== undefined && { durationMs }),
    })
    // The run has continued or ended without it, and the operation waits for a person: this tells what to decide.
    if (this.#host.admission.isDetached) {
      this.#noteEvidence({ result, at: event.at })
      return never()
    }
    const { effects } = this.#host.run.history
    effects.answered(this.#key, { result: payload, at: event.at })
    try {
      await this.#host.journal.commitResult([event], {
        ...(via !== 'resolve' && { operation: { kind: 'complete', key: this.#key, result: payload }, canBeOverruled: true }),
        ...(undo && { undoable: { key: this.#call.key, undo, operationKey: this.#key } }),
      })
      effects.completed(this.#key)
    } catch (error) {
      if (codeOf(error) === 'lease_lost' || codeOf(error) === 'run_cancelled') this.#noteEvidence({ result, at: event.at })
      throw error
    }
    const recorded = event.payload === null ? {} : (this.#host.run.codec.decode(event.payload) as { result?: T })
    return { value: recorded.result as T }
  }

  async skip(done: Operation): Promise<Next<T>> {
    const { codec } = this.#host.run
    const result = done.result === null ? undefined : codec.decode(done.result)
    const data = { key: this.#key, by: done.runId, ...(result !== undefined && { result }) }
    const event = this.#host.journal.event('effect_skipped', this.#call, { attempt: this.attempt, data })
    await this.#host.journal.commitResult([event], {})
    return { value: result as T }
  }

  /** Recorded, and thrown into the function now and at every replay. */
  async failForGood(error: unknown, operation: 'fail' | 'complete' | 'nothing'): Promise<never> {
    const event = failureEvent(this.#host, this.#call, { error, final: true, next: 'throw' }, this.attempt, null)
    const change =
      operation === 'fail'
        ? ({ kind: 'fail', key: this.#key } as const)
        : operation === 'complete'
          ? ({ kind: 'complete', key: this.#key, result: null } as const)
          : undefined
    await this.#host.journal.commitResult([event], {
      ...{ failureOf: this.#call.key, canBeOverruled: true },
      ...(change !== undefined && { operation: change }),
    })
    this.hasFailed = true
    if (operation === 'fail') this.#host.run.history.effects.closed(this.#key)
    throw storedFailure(this.#host, this.#call, event)
  }

  /** It can't be known: a person decides, and the run waits. */
  async markUnsure(error: unknown): Promise<Next<T>> {
    const host = this.#host
    const message = error === undefined ? 'the worker died while the effect was under way' : toStorableError(error).message
    const event = host.journal.event('effect_unsure', this.#call, { attempt: this.attempt, data: { key: this.#key, message } })
    await host.journal.commit([event], { hasProgress: true, operation: { kind: 'doubt', key: this.#key }, canBeOverruled: true })
    reportUnsureEffect(host.run, { step: this.#call.path, key: this.#key, message })
    return { stage: { kind: 'unsure' } }
  }

  /** A late answer, of a fenced holder or after the end of a run or tape: kept beside the operation, for the person who decides. */
  #noteEvidence(evidence: unknown): void {
    const { owner, threadId, runId, codec, log, engine } = this.#host.run
    const key = this.#key
    const change: Change = {
      ...{ owner, threadId, runId, guard: { kind: 'none' }, events: [], isCheckpoint: false },
      operation: { kind: 'note', key, evidence: codec.encode(evidence) },
    }
    engine.committer.commit(change).catch((error: unknown) => log.warn('late answer could not be kept', { key, error }))
  }
}
