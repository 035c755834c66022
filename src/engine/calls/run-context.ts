import { randomUUID } from 'node:crypto'
import type {
  AskOptions,
  ChildOptions,
  Context,
  EffectOptions,
  MapOptions,
  OpenStep,
  SectionOptions,
  StepHandle,
  StepOptions,
  StreamWriter,
  WaitForOptions,
  Withdrawable,
} from '../../define/context.ts'
import { sourcesOf, tagSource } from '../../define/failure-source.ts'
import {
  askOptionNames,
  callOptionNames,
  effectOptionNames,
  mapOptionNames,
  sectionOptionNames,
  sleepOptionNames,
  stepOptionNames,
  waitForOptionNames,
} from '../../define/option-names.ts'
import type { RecordedScope } from '../../define/plan-context.ts'
import { checkScopeOptions } from '../../define/section-options.ts'
import type { AnyWorkflow } from '../../define/workflow.ts'
import { checkMs } from '../../model/duration.ts'
import { HoldfastError } from '../../model/errors.ts'
import { checkId, checkStepName } from '../../model/ids.ts'
import { type KnownOptions, refuseUnknownOptions } from '../../model/known-options.ts'
import { restoreAdvice } from '../../model/restore-advice.ts'
import { checkUsage, refuseUnknownUsage, type Usage } from '../../model/usage.ts'
import type { SqlTransaction } from '../../store/store.ts'
import { type Execution, never } from '../execution/execution.ts'
import { type CallHistory, callKey, type Outcome } from '../replay/tape.ts'
import { checkReport, type Progress } from '../writing/progress.ts'
import type { Call } from './calls.ts'
import { callChild } from './child.ts'
import { runEffect } from './effect.ts'
import { askPerson } from './question.ts'
import { runScope } from './section.ts'
import { waitForSignal } from './signal.ts'
import { deathOf, failureEvent, isOwnDeath, refuseDeadly, resultOf, runStep } from './step.ts'
import { runTransaction } from './transaction.ts'
import { checkWithdrawable, parkUnlessAborted, withdraw } from './withdrawal.ts'

/** What a body or a fallback returned. Context says how the types of a call hang together. */
// biome-ignore lint/suspicious/noExplicitAny: any result of the user's
type Value = any

/** The `ctx` of one execution: each call is entered on the tape, then carried out by its runner. */
export class RunContext implements Context<never, never> {
  readonly #execution: Execution

  constructor(execution: Execution) {
    this.#execution = execution
  }

  get runId(): string {
    return this.#execution.runId
  }

  get threadId(): string {
    return this.#execution.claim.run.threadId
  }

  get owner(): string {
    return this.#execution.owner
  }

  get scheduledAt(): number | undefined {
    return this.#execution.origin.scheduledAt
  }

  get signal(): AbortSignal {
    return this.#execution.calls.attempt?.signal ?? this.#execution.signal
  }

  get state(): never {
    return this.#execution.view.state as never
  }

  set state(_: never) {
    throw new HoldfastError(
      'invalid_input',
      `ctx.state of run "${this.runId}" can't be assigned, and is as it was. Change it through a draft: ctx.update((draft) => …); a recipe that returns a value replaces all of it.`,
      { details: { runId: this.runId } },
    )
  }

  step(name: string, fn: (step: StepHandle<never>) => Value, options?: StepOptions<Value>): Promise<Value> {
    return this.#enter('step', name, false, (call) => {
      requireFunction(fn, 'Step', call.path)
      if (options !== undefined) checkStepOptions(call, `ctx.step("${name}")`, options, stepOptionNames)
      return runStep(this.#execution, call, fn, options)
    })
  }

  once<T>(name: string, options: EffectOptions<T>): Promise<T> {
    return this.#enter('effect', name, false, (call) => {
      if (typeof options?.run !== 'function')
        throw new HoldfastError(
          'invalid_input',
          `ctx.once("${name}") needs { run }: a function that carries out effect "${call.path}". Its run is ${typeof options?.run}.`,
        )
      checkOptions(call, `ctx.once("${name}")`, options, effectOptionNames)
      return runEffect(this.#execution, call, options)
    })
  }

  transaction<T>(name: string, fn: (tx: SqlTransaction) => Promise<T> | T): Promise<T> {
    const carryOut = (call: Call) => {
      requireFunction(fn, 'Transaction', call.path)
      return runTransaction(this.#execution, call, fn)
    }
    return this.#enter('step', name, false, carryOut, undefined, 'transaction')
  }

  map<Item>(
    name: string,
    items: readonly Item[],
    fn: (item: Item, index: number, step: StepHandle<never>) => Value,
    options: MapOptions<Value> = {},
  ): Promise<Value[]> {
    return this.#execution.unawaited.watch(this.#map(name, items, fn, options), name)
  }

  async #map<Item, T>(
    name: string,
    items: readonly Item[],
    fn: (item: Item, index: number, step: StepHandle<never>) => Promise<T> | T,
    options: MapOptions<T>,
  ): Promise<T[]> {
    const { concurrency = 16, ...stepOptions } = options
    if (!(concurrency >= 1))
      throw new HoldfastError('invalid_input', `concurrency is ${String(concurrency)}; it must be at least 1.`)
    // Names are checked once; the items carry brackets, which users' names may not.
    this.#execution.calls.checkGroup(name, 'map')
    requireFunction(fn, 'Map', name)
    const list = [...items]
    const results = new Array<T>(list.length)
    const errors: Error[] = []
    let next = 0
    const lane = async (): Promise<void> => {
      while (next < list.length && errors.length === 0) {
        const index = next++
        try {
          const body = (step: StepHandle<never>) => fn(list[index] as Item, index, step)
          results[index] = await this.#enter('step', `${name}[${index}]`, true, (call) => {
            checkStepOptions(call, `ctx.map("${name}")`, options, mapOptionNames)
            return runStep(this.#execution, call, body, stepOptions)
          })
        } catch (error) {
          errors.push(error instanceof Error ? error : new Error(String(error)))
        }
      }
    }
    await Promise.all(Array.from({ length: Math.min(Math.max(1, concurrency), list.length) }, lane))
    const [first] = errors
    if (first === undefined) return results
    throw tagSource(first, errors.flatMap(sourcesOf))
  }

  scope<T>(name: string, fn: (ctx: Context<never>) => Promise<T> | T, ...more: readonly unknown[]): Promise<T> {
    const { calls } = this.#execution
    return this.#execution.unawaited.watch(
      (async () => {
        if (more[0] !== undefined)
          throw new HoldfastError(
            'invalid_input',
            `ctx.scope("${name}") only groups names and takes no options. A scope that is recorded as a whole is ctx.section(name, fn, options).`,
          )
        calls.checkGroup(name, 'scope')
        return calls.inScope(calls.scopePath(name, false), () => fn(this))
      })(),
      name,
    )
  }

  section(name: string, fn: (ctx: Context<never>) => Value, options: SectionOptions<Value, never> = {}): Promise<Value> {
    const { fallback, ...policy } = options
    const scope = {
      ...policy,
      body: () => fn(this),
      ...(fallback !== undefined && { fallback: (error: Error) => fallback(error, this) }),
      record: (result: Value) => ({ result, recipes: [] }),
    }
    const check = () => {
      requireFunction(fn, 'Section', name)
      checkScopeOptions(`Section "${name}"`, options)
    }
    const checkNew = (call: Call) => checkOptions(call, `ctx.section("${name}")`, options, sectionOptionNames)
    return this.recordedScope(name, scope, check, checkNew)
  }

  /** A scope that is recorded as a whole: `section`, and the steps of a plan. */
  recordedScope<T>(
    name: string,
    scope: Omit<RecordedScope<T>, 'path'>,
    check?: () => void,
    checkNew?: (call: Call) => void,
  ): Promise<T> {
    const { calls } = this.#execution
    const checkAll = () => {
      calls.checkGroup(name, 'section')
      check?.()
    }
    const carryOut = (call: Call) => {
      checkNew?.(call)
      return runScope(this.#execution, call, { ...scope, path: calls.scopePath(name, true) })
    }
    return this.#enter('step', name, false, carryOut, checkAll)
  }

  begin<T>(name: string): Promise<OpenStep<T>> {
    return this.#enter('step', name, false, (call) => this.#begin<T>(call), undefined, 'begin')
  }

  update(recipe: (draft: never) => unknown): void {
    this.#execution.update(recipe)
  }

  sleep(duration: number | Date, options: Withdrawable = {}): Promise<void> {
    const check = () => checkWithdrawable('ctx.sleep', options)
    const carryOut = (call: Call) => {
      checkOptions(call, 'ctx.sleep', options, sleepOptionNames)
      return this.#sleep(call, duration, options.signal)
    }
    return this.#enter('timer', 'sleep', true, carryOut, check)
  }

  // biome-ignore lint/suspicious/noExplicitAny: the overloads of Context say what comes back
  waitFor<T>(given: string | readonly string[], options: WaitForOptions<T> = {}): Promise<any> {
    // The names of several in one: what is counted and recorded as the call's own.
    const name = Array.isArray(given) ? given.join('|') : (given as string)
    const names = Array.isArray(given) ? [...new Set(given as readonly string[])] : [given as string]
    const check = () => {
      if (names.length === 0)
        throw new HoldfastError('invalid_input', 'ctx.waitFor got an empty list of names; name at least one signal.')
      for (const one of names) checkStepName(one)
      checkWithdrawable(`ctx.waitFor("${name}")`, options)
    }
    const carryOut = async (call: Call) => {
      checkOptions(call, `ctx.waitFor("${name}")`, options, waitForOptionNames)
      const received = await waitForSignal(this.#execution, call, names, options)
      return Array.isArray(given) ? received : received.value
    }
    return this.#enter('signal', name, false, carryOut, check)
  }

  ask<T = unknown>(name: string, options: AskOptions<T>): Promise<T> {
    return this.#enter('question', name, false, (call) => {
      if (typeof options !== 'object' || options === null || (options.question === undefined && call.history === undefined))
        throw new HoldfastError('invalid_input', `ctx.ask("${name}") needs { question }: what the person is shown.`)
      checkOptions(call, `ctx.ask("${name}")`, options, askOptionNames)
      checkWithdrawable(`ctx.ask("${name}")`, options)
      if (call.history === undefined) checkMs(`timeoutMs of "${call.path}"`, options.timeoutMs)
      return askPerson(this.#execution, call, options)
    })
  }

  // biome-ignore lint/suspicious/noExplicitAny: the overloads of Context say what comes back
  call(workflow: AnyWorkflow | string, input?: unknown, options: ChildOptions = {}): Promise<any> {
    // A workflow's name may contain what separates the parts of a path.
    const name = String(typeof workflow === 'string' ? workflow : workflow?.name).replace(/[/[\]]/g, '_')
    this.#execution.unawaited.callsChild(name)
    return this.#enter('child', name, true, (call) => {
      checkOptions(call, `ctx.call("${name}")`, options, callOptionNames)
      return callChild(this.#execution, call, workflow, input, options)
    })
  }

  usage(usage: Usage): void {
    const checked = checkUsage(usage)
    if (this.#execution.comesToNothing('usage')) return
    const call = this.#execution.enter('value', 'usage', true)
    if (this.#execution.tape.booked.has(call.key)) return
    refuseUnknownUsage('ctx.usage', usage)
    this.#execution.budget.book(call, checked)
  }

  reserve(amount: number | { readonly cost?: number; readonly tokens?: number }): Promise<void> {
    return this.#enter('value', 'reserve', true, (call) => {
      const asked = typeof amount === 'number' ? { cost: amount } : amount
      checkOptions(call, 'ctx.reserve', asked, { cost: true, tokens: true })
      const { cost = 0, tokens = 0 } = asked ?? {}
      if (!(cost >= 0 && tokens >= 0 && Number.isFinite(cost + tokens)))
        throw new HoldfastError(
          'invalid_input',
          `ctx.reserve takes a cost, or { cost, tokens }, from 0; not ${JSON.stringify(amount)}.`,
        )
      return this.#execution.budget.reserve(call, asked)
    })
  }

  checkpoint(label?: string): Promise<void> {
    return this.#enter('value', 'checkpoint', true, async (call) => {
      const execution = this.#execution
      if (label !== undefined) checkId('checkpoint label', label)
      if (call.history?.outcome !== undefined) return void (await execution.recorded(call))
      if (!execution.isOpen) await execution.pass(call)
      const event = execution.event('value_recorded', call, label === undefined ? {} : { data: { label } })
      await execution.commitResult([event], { isCheckpoint: true, ...(label !== undefined && { label }) })
    })
  }

  continueAs(input: unknown): Promise<never> {
    const carryOut = async (call: Call): Promise<never> => {
      const execution = this.#execution
      const { name, options } = execution.workflow
      const checked =
        options.input === undefined ? input : await execution.validate(options.input, input, `The input of workflow "${name}"`)
      if (!execution.isOpen) await execution.pass(call)
      await execution.endNamed()
      // It may have been told to stop meanwhile.
      if (!execution.isOpen) await execution.pass(call)
      await execution.continueWith(checked)
      return never()
    }
    return this.#enter('value', 'continue', true, carryOut, undefined, 'continueAs')
  }

  now(): number {
    return this.#value('now', () => this.#execution.now())
  }

  random(): number {
    return this.#value('random', () => Math.random())
  }

  uuid(): string {
    return this.#value('uuid', () => randomUUID())
  }

  progress(fraction: number, note?: string): void {
    const { calls, playback, progress } = this.#execution
    checkReport(fraction, note)
    const { attempt } = calls
    if (playback.isLive && !attempt?.isOver) progress.report(calls.place, fraction, note)
  }

  /** For plans, which know how much of the run each of their steps is. */
  get progressReports(): Progress {
    return this.#execution.progress
  }

  stream(name: string): StreamWriter {
    if (!this.#execution.comesToNothing(name)) this.#execution.throwIfEnded()
    this.#execution.calls.refuseInBody('stream', name)
    return this.#execution.streams.ofFunction(name)
  }

  log(message: string, data?: Readonly<Record<string, unknown>>): void {
    if (this.#execution.playback.isLive) this.#execution.log.info(message, { runId: this.runId, ...data })
  }

  #enter<T>(
    kind: Call['kind'],
    name: string,
    isOurName: boolean,
    carryOut: (call: Call) => Promise<T>,
    check?: () => void,
    method?: string,
  ): Promise<T> {
    if (this.#execution.isDetached && !this.#execution.isOver) return this.#execution.cameTooLate()
    let result: Promise<T>
    try {
      check?.()
      const call = this.#execution.enter(kind, name, isOurName, method)
      if (call.within?.isOver === true) {
        // Its function waits for this: it is no longer at work.
        const unanswered = never<T>()
        call.within.follow(unanswered)
        call.within.miss()
        return unanswered
      }
      result = carryOut(call)
      call.within?.follow(result)
    } catch (error) {
      result = Promise.reject(error)
    }
    return this.#execution.unawaited.watch(result, name)
  }

  /** Values ride with the next commit: a value nothing durable depends on yet may differ after a crash. */
  #value<T>(name: string, make: () => T): T {
    if (this.#execution.comesToNothing(name)) return make()
    const call = this.#execution.enter('value', name, true)
    const key = callKey('value', call.path, call.count)
    if (this.#execution.tape.values.has(key)) return this.#execution.tape.values.get(key) as T
    const value = make()
    if (!this.#execution.hasEnded && !call.within?.isOver)
      this.#execution.ride(this.#execution.event('value_recorded', call, { data: { value } }))
    return value
  }

  async #sleep(call: Call, duration: number | Date, signal: AbortSignal | undefined): Promise<void> {
    const execution = this.#execution
    // Refused before it waits for its turn: nothing of it is on the tape.
    fireTime(duration, execution.now())
    const history = call.history?.isLoose && isOtherSleep(call.history, duration) ? undefined : call.history
    const { ms } = history ?? {}
    if (ms !== undefined && ms !== duration) return pauseOnOtherSleep(execution, call, ms, duration)
    if (history?.outcome !== undefined) return resultOf(execution, call, await execution.recorded(call))
    if (!execution.isOpen) await execution.pass(call)
    if (signal?.aborted) return withdraw(execution, call, signal)
    let fireAt = history?.fireAt
    if (fireAt === undefined) {
      fireAt = fireTime(duration, execution.now())
      await execution.commit(
        [execution.event('timer_set', call, { data: { fireAt, ...(typeof duration === 'number' && { ms: duration }) } })],
        { hasProgress: true },
      )
    }
    if (fireAt > execution.now()) await parkUnlessAborted(execution, { dueAt: fireAt, reason: 'timer' }, signal)
    if (!execution.isOpen) await execution.pass(call)
    if (signal?.aborted && fireAt > execution.now()) return withdraw(execution, call, signal)
    await execution.commitResult([execution.event('timer_fired', call)], {})
  }

  async #begin<T>(call: Call): Promise<OpenStep<T>> {
    const execution = this.#execution
    const refuse = async (): Promise<never> => {
      throw new HoldfastError('conflict', `Step "${call.path}" of run "${execution.runId}" is recorded already.`)
    }
    const onTape = call.history?.outcome
    if (onTape?.isFailure) {
      // It was not begun that time, and must not be now.
      if (isOwnDeath(execution, call, onTape))
        return resultOf(execution, call, await execution.recorded(call, { showsState: false }))
      await execution.begun(call)
      if (execution.recordsInside(call)) return this.#failAgain(call, execution.recordedFailureAhead(call), refuse)
      const { outcome, isThrown } = await execution.recordedFailure(call)
      // Thrown where the function threw it, once `fail` had returned.
      if (isThrown) return resultOf(execution, call, outcome)
      return this.#failAgain(call, outcome, refuse)
    }
    if (onTape !== undefined) {
      const outcome = execution.recordedAtOnce(call)
      const recorded = resultOf<T>(execution, call, outcome)
      let isComplete = false
      const complete = async (): Promise<T> => {
        if (isComplete) await refuse()
        isComplete = true
        await execution.turnOf(outcome)
        return recorded
      }
      await execution.begun(call)
      return { recorded, complete, fail: refuse }
    }
    // It began before, and what the function asks for next may be on the tape: it is not kept waiting, as it was not the first time.
    const hasBegun = call.history !== undefined
    const isUnderWay = call.history?.isRunning === true && deathOf(execution, call) === null
    const isOpenAtOnce = isUnderWay || execution.isOpen
    if (!isOpenAtOnce) {
      await execution.begun(call)
      const isInside = hasBegun && !execution.playback.isLive && execution.recordsInside(call)
      if (!isInside) await (hasBegun ? execution.passInto(call) : execution.pass(call))
    }
    // Where it encloses what is on the tape the function has to come by that, and it is not failed as a whole.
    if (execution.playback.isLive && deathOf(execution, call) !== null) await refuseDeadly(execution, call)
    const attempt = (call.history?.failures ?? 0) + 1
    const started = performance.now()
    const isFirst = execution.mustRecordStarts && execution.playback.isLive
    execution.ride(execution.event('step_started', call, { attempt, ...(isFirst && { data: { isFirst } }) }))
    execution.beginOpen(call)
    if (isFirst) await execution.commit([], {})
    else if (execution.mustRecordStarts) execution.commit([], {}).catch(() => {})
    if (isOpenAtOnce && !isFirst) await execution.begun(call)
    let isOpen = true
    const close = async (event: ReturnType<Execution['event']>): Promise<void> => {
      if (!isOpen) await refuse()
      isOpen = false
      try {
        if (!execution.playback.isLive) await execution.playback.untilLive(call.key)
        // A replay hands it out where it began: what it shows of the state is what was shown before.
        await execution.commitResult([event], { showsState: false })
      } finally {
        execution.endOpen(call)
      }
    }
    const elapsed = () => Math.round(performance.now() - started)
    return {
      complete: async (value) => {
        const data = value === undefined ? {} : { data: { result: value } }
        await close(execution.event('step_completed', call, { attempt, durationMs: elapsed(), ...data }))
        return value
      },
      fail: async (error) => {
        await close(failureEvent(execution, call, { error, final: true, next: 'throw' }, attempt, elapsed()))
        // Thrown on by the function, it is this failure that failed the run.
        if (error instanceof Error) tagSource(error, [call.key])
      },
    }
  }

  /** A begun step that failed, with calls between its halves: the function comes by them again, and then to its failure. */
  #failAgain<T>(call: Call, outcome: Outcome, refuse: () => Promise<never>): OpenStep<T> {
    const execution = this.#execution
    execution.beginOpen(call)
    let isOpen = true
    const close = async (): Promise<void> => {
      if (!isOpen) await refuse()
      isOpen = false
      try {
        await execution.turnOf(outcome)
      } finally {
        execution.endOpen(call)
      }
    }
    return {
      complete: async () => {
        await close()
        return resultOf<T>(execution, call, outcome)
      },
      fail: async (error) => {
        await close()
        if (error instanceof Error) tagSource(error, [call.key])
      },
    }
  }
}

/** A call that is on the tape was accepted before, by whatever rules there were. */
function checkOptions(call: Call, what: string, given: unknown, known: KnownOptions): void {
  if (call.history === undefined) refuseUnknownOptions(what, given, known)
}

function checkStepOptions(
  call: Call,
  what: string,
  given: Pick<StepOptions<never>, 'onFailure' | 'kind'>,
  known: KnownOptions,
): void {
  if (call.history !== undefined) return
  refuseUnknownOptions(what, given, known)
  const { onFailure, kind } = given
  const refuse = (name: string, value: unknown, must: string): never => {
    throw new HoldfastError('invalid_input', `${name} of ${what} is ${JSON.stringify(value)}; it must be ${must}.`)
  }
  if (onFailure !== undefined && onFailure !== 'fail' && onFailure !== 'skip' && onFailure !== 'pause')
    refuse('onFailure', onFailure, "'fail', 'skip' or 'pause'")
  if (kind !== undefined && kind !== 'model' && kind !== 'tool') refuse('kind', kind, "'model' or 'tool'")
}

function requireFunction(given: unknown, what: string, name: string): void {
  if (typeof given !== 'function')
    throw new HoldfastError('invalid_input', `${what} "${name}" needs a function, not ${typeof given}.`)
}

/** Earlier logs do not have the length. */
function isOtherSleep({ ms, fireAt }: CallHistory, duration: number | Date): boolean {
  return typeof duration === 'number' ? ms !== undefined && ms !== duration : ms !== undefined || fireAt !== duration.getTime()
}

function pauseOnOtherSleep(execution: Execution, call: Call, recordedMs: number, asked: number | Date): Promise<never> {
  const { runId } = execution
  const shown = typeof asked === 'number' ? `${asked} ms` : `until ${asked.toISOString()}`
  execution.mismatch(
    new HoldfastError(
      'nondeterminism',
      `Sleep ${call.count} ("${call.path}") of run "${runId}" was recorded as ${recordedMs} ms; the function sleeps ${shown} now. ` +
        `Use ctx.now() for the time. ${restoreAdvice(execution.workflow)}`,
      {
        details: { runId, step: call.path, recorded: [recordedMs], asked: [typeof asked === 'number' ? asked : asked.getTime()] },
      },
    ),
  )
  return never()
}

function fireTime(duration: number | Date, now: number): number {
  const fireAt = duration instanceof Date ? duration.getTime() : now + duration
  // The range of Date, in ms.
  if (!Number.isFinite(fireAt) || Math.abs(fireAt) > 8.64e15) {
    throw new HoldfastError('invalid_input', `ctx.sleep takes milliseconds or a valid Date, not ${String(duration)}`)
  }
  return Math.round(fireAt)
}
