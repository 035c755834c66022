import type { StandardSchemaV1 } from '@standard-schema/spec'
import { checkMs } from '../model/duration.ts'
import { HoldfastError } from '../model/errors.ts'
import { checkId } from '../model/ids.ts'
import { internalPrefix, isInternal } from '../model/internal.ts'
import { refuseUnknownOptions } from '../model/known-options.ts'
import type { RetryOptions } from '../model/retry.ts'
import type { StateDefinition } from '../model/state.ts'
import { type Budget, checkBudget } from '../model/usage.ts'
import type { Context, UndoInfo } from './context.ts'
import { workflowOptionNames } from './option-names.ts'

export type WorkflowFunction<Input, Output, State, Given = Input> = (
  ctx: Context<State, NoInfer<Given>>,
  input: Input,
) => Promise<Output> | Output

/** Functions that take something back, by name. Each is called with the result that was recorded. */
// biome-ignore lint/suspicious/noExplicitAny: each takes the result of the calls that name it
export type Undos = Readonly<Record<string, (result: any, info: UndoInfo) => unknown>>

/**
 * Two pairs of types differ only where a schema transforms or has defaults: whoever starts a run gives `Given` and the function gets `Input`;
 * the function returns `Returned` and `result()` gives `Output`.
 */
export interface WorkflowOptions<Input, Output, State, Given = Input, Returned = Output> {
  readonly name: string
  /** Versions live side by side: a run finishes on the version it began with. A whole number, default 1. */
  readonly version?: number
  /**
   * Checked, and transforms, once: when a run is started, or first claimed where the starter does not have the workflow, and by
   * `ctx.continueAs`. zod, valibot, arktype or any other Standard Schema.
   */
  readonly input?: StandardSchemaV1<Given, Input>
  /** Checked, and transforms, when the function returns. */
  readonly output?: StandardSchemaV1<Returned, Output>
  readonly state?: StateDefinition<State>
  /** Where its runs are queued. Default `default`. */
  readonly queue?: string
  /** Higher goes first. Default 0. */
  readonly priority?: number
  /** Longest time from the start of a run to its end, waiting included, in ms. Default none. */
  readonly timeoutMs?: number
  /** Retry policy of its steps, where they do not say otherwise. */
  readonly retry?: RetryOptions
  /** Limits of a run. Past one it pauses, until `run.resume({ budget })`. Default none. */
  readonly budget?: Budget
  /** A run that fails first undoes what it did, last in first out. Default false. */
  readonly undoOnFailure?: boolean
  /** Undos by name: what a step, effect, section or child has as `undo: 'name'` runs from the log, without the function. */
  readonly undos?: Undos
}

/** An async function with a name, whose steps survive the process. `Given` is what a start takes: what its input schema takes, else `Input`. */
export interface Workflow<Input = unknown, Output = unknown, State = unknown, Given = Input> {
  readonly name: string
  readonly version: number
  readonly options: WorkflowOptions<Input, Output, State, Given, unknown>
  readonly fn: WorkflowFunction<Input, unknown, State, Given>
}

/** A workflow of any types, as lists of them hold it. */
// biome-ignore lint/suspicious/noExplicitAny: the parameter positions make every concrete workflow assignable only this way
export type AnyWorkflow = Workflow<any, any, any, any>

/** What a start of the workflow takes as its input; anything for a bare name. */
// biome-ignore lint/suspicious/noExplicitAny: the other types do not matter here
export type GivenTo<W> = W extends Workflow<any, any, any, infer Given> ? Given : unknown

/** What a run of the workflow returns. */
// biome-ignore lint/suspicious/noExplicitAny: the other types do not matter here
export type OutputOf<W> = W extends Workflow<any, infer Output, any, any> ? Output : unknown

/** What follows the workflow in a start. The input can be left out only where it may be undefined. */
export type InputAndOptions<Given, Options> = undefined extends Given
  ? [input?: Given, options?: Options | undefined]
  : [input: Given, options?: Options | undefined]

/** The input among the properties of a request, under the same rule. */
export type InputProperty<Given> = undefined extends Given ? { readonly input?: Given } : { readonly input: Given }

export type UntypedState = Record<string, unknown>

/** Names an async function so that its runs can be found again by any process that has it. */
export function workflow<Input = undefined, Output = unknown, State = UntypedState>(
  name: string,
  fn: WorkflowFunction<Input, Output, State>,
): Workflow<Input, Output, State>
export function workflow<Input = undefined, Returned = unknown, State = UntypedState, Given = Input, Output = Returned>(
  options: WorkflowOptions<Input, Output, State, Given, Returned>,
  fn: WorkflowFunction<Input, Returned, State, Given>,
): Workflow<Input, Output, State, Given>
export function workflow<Input, Output, State, Given>(
  nameOrOptions: string | WorkflowOptions<Input, Output, State, Given, unknown>,
  fn: WorkflowFunction<Input, unknown, State, Given>,
): Workflow<Input, Output, State, Given> {
  const options = typeof nameOrOptions === 'string' ? { name: nameOrOptions } : nameOrOptions
  if (isInternal(checkId('workflow name', options?.name))) {
    throw new HoldfastError(
      'invalid_input',
      `Workflow "${options.name}" can't be called that: names that begin with "${internalPrefix}" are Holdfast's own.`,
    )
  }
  refuseUnknownOptions(`Workflow "${options.name}"`, options, workflowOptionNames)
  return makeWorkflow(options, fn)
}

/** A workflow under any name, also one of Holdfast's own. */
export function makeWorkflow<Input, Output, State, Given = Input>(
  options: WorkflowOptions<Input, Output, State, Given, unknown>,
  fn: WorkflowFunction<Input, unknown, State, Given>,
): Workflow<Input, Output, State, Given> {
  const name = checkId('workflow name', options.name)
  const version = options.version ?? 1
  if (!Number.isInteger(version) || version < 1) {
    throw new HoldfastError(
      'invalid_input',
      `Workflow "${name}" has version ${String(version)}; a version is a whole number of at least 1`,
    )
  }
  if (typeof fn !== 'function') {
    throw new HoldfastError('invalid_input', `Workflow "${name}" needs a function (ctx, input) => output`)
  }
  checkMs(`timeoutMs of workflow "${name}"`, options.timeoutMs)
  if (options.budget !== undefined) checkBudget(options.budget, `workflow "${name}"`)
  for (const [undo, run] of Object.entries(options.undos ?? {})) {
    if (typeof run === 'function') continue
    throw new HoldfastError('invalid_input', `Undo "${undo}" of workflow "${name}" must be a function, not ${typeof run}.`)
  }
  return Object.freeze({ name, version, options, fn })
}

const maxMissed = 100

/** The workflows that a process can execute, by name and version. */
export class Registry {
  readonly #workflows = new Map<string, Map<number, AnyWorkflow>>()
  readonly #missed = new Set<string>()

  /** Adds a workflow. The same name and version with another function is a mistake; the same object again is not. */
  add(added: AnyWorkflow): void {
    const versions = this.#workflows.get(added.name) ?? new Map<number, AnyWorkflow>()
    const known = versions.get(added.version)
    if (known !== undefined && known.fn !== added.fn) {
      throw new HoldfastError(
        'conflict',
        `Two different workflows are called "${added.name}" version ${added.version}. Give one another name or a higher version.`,
      )
    }
    versions.set(added.version, added)
    this.#workflows.set(added.name, versions)
  }

  get(name: string, version: number): AnyWorkflow | undefined {
    return this.#workflows.get(name)?.get(version)
  }

  /** It is not here, and nobody has missed it before. Of the first hundred. */
  isMissedAnew(name: string, version: number): boolean {
    const key = JSON.stringify([name, version])
    if (this.get(name, version) !== undefined || this.#missed.has(key) || this.#missed.size >= maxMissed) return false
    this.#missed.add(key)
    return true
  }

  /** The highest version: what a new run takes. */
  latest(name: string): AnyWorkflow | undefined {
    const versions = this.#workflows.get(name)
    return versions === undefined ? undefined : versions.get(Math.max(...versions.keys()))
  }

  all(): AnyWorkflow[] {
    return [...this.#workflows.values()].flatMap((versions) => [...versions.values()])
  }
}
