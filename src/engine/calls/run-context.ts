import { randomUUID } from 'node:crypto'
import type { Artifacts } from '../../define/artifacts.ts'
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
import type { Memory } from '../../define/memory.ts'
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
import { checkStepName } from '../../model/ids.ts'
import { checkUsage, refuseUnknownUsage, type Usage } from '../../model/usage.ts'
import type { SqlTransaction } from '../../store/store.ts'
import type { CallHost } from '../execution/call-host.ts'
import { never } from '../execution/never.ts'
import { checkReport, type Progress } from '../writing/progress.ts'
import { checkOptions, checkReserved, checkStepOptions, requireFunction } from './call-checks.ts'
import type { Call } from './calls.ts'
import { recordCheckpoint } from './checkpoint.ts'
import { callChild } from './child.ts'
import { continueAs } from './continue-as.ts'
import { runEffect } from './effect.ts'
import { mapInParallel } from './map-in-parallel.ts'
import { beginStep } from './open-step.ts'
import { askPerson } from './question.ts'
import { recordedArtifacts } from './recorded-artifacts.ts'
import { type RecordStep, recordedMemory } from './recorded-memory.ts'
import { recordedValue } from './recorded-value.ts'
import { runScope } from './section.ts'
import { waitForSignal } from './signal.ts'
import { runStep } from './step.ts'
import { sleep } from './timer.ts'
import { runTransaction } from './transaction.ts'
import type { UnawaitedCalls } from './unawaited-calls.ts'
import { checkWithdrawable } from './withdrawal.ts'

/** What a body or a fallback returned. Context says how the types of a call hang together. */
// biome-ignore lint/suspicious/noExplicitAny: any result of the user's
type Value = any

/** The `ctx` of one execution: each call is entered on the tape, then carried out by its runner. */
export class RunContext implements Context<never, never> {
  readonly #host: CallHost
  readonly #record: RecordStep = (name, body, options) =>
    this.#enter('step', name, true, (call) => runStep(this.#host, call, body, options), undefined, name)
  /** Calls whose promises nothing waits for. */
  readonly #unawaited: UnawaitedCalls

  constructor(host: CallHost, unawaited: UnawaitedCalls) {
    this.#host = host
    this.#unawaited = unawaited
  }

  get runId(): string {
    return this.#host.run.runId
  }

  get threadId(): string {
    return this.#host.run.claim.run.threadId
  }

  get owner(): string {
    return this.#host.run.owner
  }

  get scheduledAt(): number | undefined {
    return this.#host.run.origin.scheduledAt
  }

  get signal(): AbortSignal {
    return this.#host.calls.attempt?.signal ?? this.#host.activity.signal
  }

  get state(): never {
    return this.#host.state.view.state as never
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
      return runStep(this.#host, call, fn, options)
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
      return runEffect(this.#host, call, options)
    })
  }

  transaction<T>(name: string, fn: (tx: SqlTransaction) => Promise<T> | T): Promise<T> {
    const carryOut = (call: Call) => {
      requireFunction(fn, 'Transaction', call.path)
      return runTransaction(this.#host, call, fn)
    }
    return this.#enter('step', name, false, carryOut, undefined, 'transaction')
  }

  map<Item>(
    name: string,
    items: readonly Item[],
    fn: (item: Item, index: number, step: StepHandle<never>) => Value,
    options: MapOptions<Value> = {},
  ): Promise<Value[]> {
    const { concurrency = 16, summary = true, ...stepOptions } = options
    const check = () => {
      if (!(concurrency >= 1))
        throw new HoldfastError('invalid_input', `concurrency is ${String(concurrency)}; it must be at least 1.`)
      // Names are checked once; the items carry brackets, which users' names may not.
      this.#host.calls.checkGroup(name, 'map')
      requireFunction(fn, 'Map', name)
    }
    const run = (item: Item, index: number) =>
      this.#enter('step', `${name}[${index}]`, true, (call) => {
        checkStepOptions(call, `ctx.map("${name}")`, options, mapOptionNames)
        return runStep(this.#host, call, (step) => fn(item, index, step), summary ? { ...stepOptions, item } : stepOptions)
      })
    return this.#unawaited.watch(mapInParallel(check, items, concurrency, run), name)
  }

  scope<T>(name: string, fn: (ctx: Context<never>) => Promise<T> | T, ...more: readonly unknown[]): Promise<T> {
    const { calls } = this.#host
    return this.#unawaited.watch(
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
    const { calls } = this.#host
    const checkAll = () => {
      calls.checkGroup(name, 'section')
      check?.()
    }
    const carryOut = (call: Call) => {
      checkNew?.(call)
      return runScope(this.#host, call, { ...scope, path: calls.scopePath(name, true) })
    }
    return this.#enter('step', name, false, carryOut, checkAll)
  }

  begin<T>(name: string): Promise<OpenStep<T>> {
    return this.#enter('step', name, false, (call) => beginStep<T>(this.#host, call), undefined, 'begin')
  }

  update(recipe: (draft: never) => unknown): void {
    this.#host.state.update(recipe)
  }

  sleep(duration: number | Date, options: Withdrawable = {}): Promise<void> {
    const check = () => checkWithdrawable('ctx.sleep', options)
    const carryOut = (call: Call) => {
      checkOptions(call, 'ctx.sleep', options, sleepOptionNames)
      return sleep(this.#host, call, duration, options.signal)
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
      const received = await waitForSignal(this.#host, call, names, options)
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
      return askPerson(this.#host, call, options)
    })
  }

  // biome-ignore lint/suspicious/noExplicitAny: the overloads of Context say what comes back
  call(workflow: AnyWorkflow | string, input?: unknown, options: ChildOptions = {}): Promise<any> {
    // A workflow's name may contain what separates the parts of a path.
    const name = String(typeof workflow === 'string' ? workflow : workflow?.name).replace(/[/[\]]/g, '_')
    this.#unawaited.callsChild(name)
    return this.#enter('child', name, true, (call) => {
      checkOptions(call, `ctx.call("${name}")`, options, callOptionNames)
      return callChild(this.#host, call, workflow, input, options)
    })
  }

  /** Each call is a step, so it is recorded, retried and replayed like one. */
  get memory(): Memory {
    return recordedMemory(this.#record)
  }

  get artifacts(): Artifacts {
    return recordedArtifacts(this.#host.run, this.#record)
  }

  usage(usage: Usage): void {
    const checked = checkUsage(usage)
    if (this.#host.admission.comesToNothing('usage')) return
    const call = this.#host.admission.enter('value', 'usage', true)
    if (this.#host.run.tape.booked.has(call.key)) return
    refuseUnknownUsage('ctx.usage', usage)
    this.#host.budget.book(call, checked)
  }

  reserve(amount: number | { readonly cost?: number; readonly tokens?: number }): Promise<void> {
    return this.#enter('value', 'reserve', true, (call) => {
      const asked = typeof amount === 'number' ? { cost: amount } : amount
      checkOptions(call, 'ctx.reserve', asked, { cost: true, tokens: true })
      checkReserved(amount)
      return this.#host.budget.reserve(call, asked)
    })
  }

  checkpoint(label?: string): Promise<void> {
    return this.#enter('value', 'checkpoint', true, (call) => recordCheckpoint(this.#host, call, label))
  }

  continueAs(input: unknown): Promise<never> {
    return this.#enter('value', 'continue', true, (call) => continueAs(this.#host, call, input), undefined, 'continueAs')
  }

  now(): number {
    return recordedValue(this.#host, 'now', () => this.#host.clock.now())
  }

  random(): number {
    return recordedValue(this.#host, 'random', () => Math.random())
  }

  uuid(): string {
    return recordedValue(this.#host, 'uuid', () => randomUUID())
  }

  progress(fraction: number, note?: string): void {
    const { calls, admission, output } = this.#host
    checkReport(fraction, note)
    const { attempt } = calls
    if (admission.isLive && !attempt?.isOver) output.progress.report(calls.place, fraction, note)
  }

  /** For plans, which know how much of the run each of their steps is. */
  get progressReports(): Progress {
    return this.#host.output.progress
  }

  stream(name: string): StreamWriter {
    if (!this.#host.admission.comesToNothing(name)) this.#host.admission.throwIfEnded()
    this.#host.calls.refuseInBody('stream', name)
    return this.#host.output.streams.ofFunction(name)
  }

  log(message: string, data?: Readonly<Record<string, unknown>>): void {
    if (this.#host.admission.isLive) this.#host.run.log.info(message, { runId: this.runId, ...data })
  }

  #enter<T>(
    kind: Call['kind'],
    name: string,
    isOurName: boolean,
    carryOut: (call: Call) => Promise<T>,
    check?: () => void,
    method?: string,
  ): Promise<T> {
    if (this.#host.admission.isDetached && !this.#host.admission.isOver) return this.#host.admission.cameTooLate()
    let result: Promise<T>
    try {
      check?.()
      const call = this.#host.admission.enter(kind, name, isOurName, method)
      if (call.within?.isOver === true && !this.#host.admission.isStillToConsume(call)) {
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
    return this.#unawaited.watch(result, name)
  }
}
