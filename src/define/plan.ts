import { HoldfastError } from '../model/errors.ts'
import { checkStepName } from '../model/ids.ts'
import { type OptionNames, refuseUnknownOptions } from '../model/known-options.ts'
import type { RetryOptions } from '../model/retry.ts'
import type { Context, OnFailure, Undo } from './context.ts'
import { sourcesOf, tagSource } from './failure-source.ts'
import { sectionOptionNames } from './option-names.ts'
import type { PlanContext } from './plan-context.ts'
import { checkScopeOptions } from './section-options.ts'
import { type AnyWorkflow, type UntypedState, type Workflow, type WorkflowOptions, workflow } from './workflow.ts'

/** What a plan's step returns: the parts of the state that it changes, or nothing. */
export type PlanPatch<State> = Partial<State> | undefined | void

/** The function of a plan's step. Names of calls on its `ctx` become `step/inner`. */
export type PlanFunction<State> = (state: Readonly<State>, ctx: Context<State>) => Promise<PlanPatch<State>> | PlanPatch<State>

/** What happens when a plan's step fails, and its share of the progress. */
export interface PlanStepOptions<State> {
  /** Retries of the step as a whole. Default: the plan's, else 3 attempts, without what a call inside has retried already. */
  readonly retry?: RetryOptions
  /** Time limit of one attempt, in ms. Default none. */
  readonly timeoutMs?: number
  /** Executes instead of the step when all attempts have failed. */
  readonly fallback?: (state: Readonly<State>, ctx: Context<State>, error: Error) => Promise<PlanPatch<State>> | PlanPatch<State>
  /** When all attempts have failed and there is no fallback: fail the run (default), continue without the step, or pause the run. */
  readonly onFailure?: OnFailure
  /** Undoes the step as a whole. Called with the state as the step left it. */
  readonly undo?: Undo<Readonly<State>>
  /** Its share of the run's progress, relative to the weights of the other steps. Default 1. */
  readonly weight?: number
  /** For the recovery plan: what can go wrong. */
  readonly canFail?: string
  /** For the recovery plan: what it means for the user when the step does not succeed. */
  readonly impact?: string
}

const planStepOptionNames: OptionNames<PlanStepOptions<unknown>> = {
  ...sectionOptionNames,
  weight: true,
  canFail: true,
  impact: true,
}

/** A step as `.parallel` takes it. */
export type PlanStepEntry<State> = readonly [name: string, fn: PlanFunction<State>, options?: PlanStepOptions<State>]

export interface PlanStep<State> {
  readonly name: string
  readonly fn: PlanFunction<State>
  readonly options: PlanStepOptions<State>
}

export type PlanOptions<Input, State, Given = Input> = Omit<WorkflowOptions<Input, State, State, Given>, 'output'>

/** A workflow written as a list of named steps over the state. Its output is the final state. */
export interface Plan<Input = unknown, State = unknown, Given = Input> extends Workflow<Input, State, State, Given> {
  /** Executed one after another. The steps of one stage execute in parallel. */
  readonly stages: readonly (readonly PlanStep<State>[])[]
  /** Returns the plan with one more step at its end. */
  step(name: string, fn: PlanFunction<State>, options?: PlanStepOptions<State>): Plan<Input, State, Given>
  /** Returns the plan with a group of parallel steps at its end, each as `[name, fn, options?]`. */
  parallel(steps: readonly PlanStepEntry<State>[]): Plan<Input, State, Given>
}

/** A plan of any types, as `recoveryPlan` takes it. */
// biome-ignore lint/suspicious/noExplicitAny: the parameter positions make every concrete plan assignable only this way
export type AnyPlan = Plan<any, any, any>

/**
 * Starts a plan, to which `.step` and `.parallel` add steps. The input of a run is an object, which is merged into the state before the
 * first step.
 */
export function plan<State = UntypedState, Input = Partial<State> | undefined, Given = Input>(
  name: string,
  options?: Omit<PlanOptions<Input, State, Given>, 'name'>,
): Plan<Input, State, Given>
export function plan<State = UntypedState, Input = Partial<State> | undefined, Given = Input>(
  options: PlanOptions<Input, State, Given>,
): Plan<Input, State, Given>
export function plan<State, Input, Given>(
  nameOrOptions: string | PlanOptions<Input, State, Given>,
  options: Omit<PlanOptions<Input, State, Given>, 'name'> = {},
): Plan<Input, State, Given> {
  return makePlan(typeof nameOrOptions === 'string' ? { ...options, name: nameOrOptions } : nameOrOptions, [])
}

function makePlan<Input, State, Given>(
  options: PlanOptions<Input, State, Given>,
  stages: Plan<Input, State>['stages'],
): Plan<Input, State, Given> {
  const made = workflow<Input, State, State, Given>(options, (ctx, input) =>
    carryOut(ctx as unknown as PlanContext, input, stages),
  )
  const add = (entries: readonly PlanStepEntry<State>[]): Plan<Input, State, Given> => {
    const names = new Set(stages.flat().map(({ name }) => name))
    const stage = entries.map((entry) => toStep(made, entry, names))
    return makePlan(options, [...stages, Object.freeze(stage)])
  }
  return Object.freeze({
    ...made,
    stages: Object.freeze(stages),
    step: (name: string, fn: PlanFunction<State>, stepOptions?: PlanStepOptions<State>) => add([[name, fn, stepOptions ?? {}]]),
    parallel: (entries: readonly PlanStepEntry<State>[]) => {
      if (!Array.isArray(entries) || entries.length === 0)
        throw invalid(`parallel of plan "${made.name}" takes a list of [name, function, options?].`)
      return add(entries)
    },
  })
}

function toStep<State>(
  { name: plan, options: { undos } }: AnyWorkflow,
  entry: PlanStepEntry<State>,
  names: Set<string>,
): PlanStep<State> {
  if (!Array.isArray(entry)) throw invalid(`A step in parallel of plan "${plan}" must be [name, function, options?].`)
  const [given, fn, options = {}] = entry
  const name = checkStepName(given)
  const what = `Step "${name}" of plan "${plan}"`
  if (names.has(name)) throw invalid(`${what} exists already. Give each step a different name.`)
  names.add(name)
  if (typeof fn !== 'function') throw invalid(`${what} needs a function (state, ctx) => patch`)
  refuseUnknownOptions(what, options, planStepOptionNames)
  checkScopeOptions(what, options)
  if (typeof options.undo === 'string' && !Object.hasOwn(undos ?? {}, options.undo))
    throw invalid(`${what} has undo "${options.undo}", which is not one of the undos of the plan.`)
  const { weight = 1 } = options
  if (!(weight > 0 && weight < Number.POSITIVE_INFINITY)) throw invalid(`${what}: weight is ${weight}; it must be more than 0.`)
  return Object.freeze({ name, fn, options })
}

async function carryOut<State>(ctx: PlanContext, input: unknown, stages: Plan<unknown, State>['stages']): Promise<State> {
  ctx.progressReports.weigh(new Map(stages.flat().map(({ name, options }) => [name, options.weight ?? 1])))
  const changes = patchOf('The input of a plan', input)
  if (changes !== null) ctx.update(merging(changes))
  for (const stage of stages) {
    const errors: Error[] = []
    const steps = stage.map((step) => runPlanStep(ctx, step).catch((error: unknown) => void errors.push(error as Error)))
    // All of them, so that the results of those that succeed are kept when another fails.
    await Promise.all(steps)
    const [first] = errors
    if (first !== undefined) throw errors.length === 1 ? first : tagSource(first, errors.flatMap(sourcesOf))
  }
  return ctx.state as State
}

async function runPlanStep<State>(ctx: PlanContext, step: PlanStep<State>): Promise<void> {
  const { name, fn, options } = step
  const { fallback, retry, timeoutMs, onFailure, undo } = options
  const inner = ctx as unknown as Context<State>
  await ctx.recordedScope<PlanPatch<State>>(name, {
    ...(retry !== undefined && { retry }),
    ...(timeoutMs !== undefined && { timeoutMs }),
    ...(onFailure !== undefined && { onFailure }),
    ...(undo !== undefined && { undo: undo as Undo<PlanPatch<State>>, undoGets: 'state' }),
    body: () => fn(inner.state, inner),
    ...(fallback !== undefined && { fallback: (error: Error) => fallback(inner.state, inner, error) }),
    record: (patch) => {
      const changes = patchOf(`What step "${name}" returned`, patch)
      return { result: undefined, recipes: changes === null ? [] : [merging(changes)] }
    },
    alongside: () => ctx.progressReports.finish(name),
  })
  ctx.progressReports.finish(name)
}

function patchOf(what: string, value: unknown): object | null {
  if (value === undefined || value === null) return null
  if (isPlainObject(value)) return value
  throw invalid(`${what} is merged into the state, so it must be an object; it is ${describe(value)}.`)
}

/** A recipe that merges the parts into the state. Spread, so that a key named __proto__ is an ordinary key. */
function merging(parts: object): (draft: never) => unknown {
  return (draft: object) => {
    if (isPlainObject(draft)) return { ...draft, ...parts }
    throw invalid(`The state of a plan must be an object; it is ${describe(draft)}.`)
  }
}

function isPlainObject(value: unknown): value is object {
  if (typeof value !== 'object' || value === null) return false
  const prototype = Object.getPrototypeOf(value)
  return prototype === Object.prototype || prototype === null
}

function describe(value: unknown): string {
  if (Array.isArray(value)) return 'an array'
  return typeof value === 'object' ? 'an instance of a class' : `a ${typeof value}`
}

function invalid(message: string): HoldfastError {
  return new HoldfastError('invalid_input', message)
}
