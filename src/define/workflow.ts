import { checkMs } from '../model/duration.ts'
import { HoldfastError } from '../model/errors.ts'
import { checkId } from '../model/ids.ts'
import { internalPrefix, isInternal } from '../model/internal.ts'
import { type OptionNames, refuseUnknownOptions } from '../model/known-options.ts'
import { checkBudget } from '../model/usage.ts'
import type { Workflow, WorkflowFunction, WorkflowOptions } from './context.ts'

export type { InputAndOptions, Undos, Workflow, WorkflowFunction, WorkflowOptions } from './context.ts'

/** A workflow of any types, for lists of workflows. */
// biome-ignore lint/suspicious/noExplicitAny: the parameter positions make every concrete workflow assignable only this way
export type AnyWorkflow = Workflow<any, any, any, any>

/** The input that a start of the workflow takes; anything for a name. */
// biome-ignore lint/suspicious/noExplicitAny: the other types do not matter here
export type GivenTo<W> = W extends Workflow<any, any, any, infer Given> ? Given : unknown

/** What a run of the workflow returns. */
// biome-ignore lint/suspicious/noExplicitAny: the other types do not matter here
export type OutputOf<W> = W extends Workflow<any, infer Output, any, any> ? Output : unknown

/** The input as a property of a request, under the same rule as in `InputAndOptions`. */
export type InputProperty<Given> = undefined extends Given ? { readonly input?: Given } : { readonly input: Given }

export type UntypedState = Record<string, unknown>

const workflowOptionNames: OptionNames<WorkflowOptions<unknown, unknown, unknown>> = {
  name: true,
  version: true,
  input: true,
  output: true,
  state: true,
  queue: true,
  priority: true,
  timeoutMs: true,
  retry: true,
  budget: true,
  undoOnFailure: true,
  undos: true,
  streams: true,
}

/** Defines a workflow: an async function under a name, so that any process that has it can continue its runs. */
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
      `Workflow "${options.name}" can't have this name: names that begin with "${internalPrefix}" are reserved.`,
    )
  }
  refuseUnknownOptions(`Workflow "${options.name}"`, options, workflowOptionNames)
  return makeWorkflow(options, fn)
}

/** A workflow under any name, including reserved ones. */
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
  if (![undefined, 'kept', 'recent'].includes(options.streams)) {
    throw new HoldfastError(
      'invalid_input',
      `streams of workflow "${name}" is ${JSON.stringify(options.streams)}; it must be "kept" or "recent".`,
    )
  }
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

  /** Adds a workflow. The same one may be added again; another function under the same name and version is refused. */
  add(added: AnyWorkflow): void {
    const versions = this.#workflows.get(added.name) ?? new Map<number, AnyWorkflow>()
    const known = versions.get(added.version)
    if (known !== undefined && known.fn !== added.fn) {
      throw new HoldfastError(
        'conflict',
        `Two different workflows are named "${added.name}", version ${added.version}. Give one of them another name or a higher version.`,
      )
    }
    versions.set(added.version, added)
    this.#workflows.set(added.name, versions)
  }

  get(name: string, version: number): AnyWorkflow | undefined {
    return this.#workflows.get(name)?.get(version)
  }

  /** Whether the workflow is missing and was not reported yet. Remembers the first hundred. */
  isMissedAnew(name: string, version: number): boolean {
    const key = JSON.stringify([name, version])
    if (this.get(name, version) !== undefined || this.#missed.has(key) || this.#missed.size >= maxMissed) return false
    this.#missed.add(key)
    return true
  }

  /** The highest version, which new runs get. */
  latest(name: string): AnyWorkflow | undefined {
    const versions = this.#workflows.get(name)
    return versions === undefined ? undefined : versions.get(Math.max(...versions.keys()))
  }

  all(): AnyWorkflow[] {
    return [...this.#workflows.values()].flatMap((versions) => [...versions.values()])
  }
}
