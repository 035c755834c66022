import type { StandardSchemaV1 } from '@standard-schema/spec'
import type { RetryOptions } from '../model/retry.ts'
import type { StateDefinition } from '../model/state.ts'
import type { Budget, Usage } from '../model/usage.ts'
import type { SqlTransaction } from '../store/store.ts'
import type { Artifacts } from './artifacts.ts'
import type { Memory } from './memory.ts'

/**
 * What a workflow's function works with. The results of its calls are recorded: when the run continues after a crash or a wait, the
 * function executes again from its start, and calls with a recorded result return it instead of executing.
 *
 * A helper function that takes a plain `Context` accepts the context of any workflow, without access to its state. `Given` is the
 * input that `continueAs` takes, the same as for a start.
 */
export interface Context<State = unknown, Given = never> {
  readonly runId: string
  readonly threadId: string
  readonly owner: string
  /** The tick of the schedule that started this run, in ms since 1970; undefined if no schedule started it. */
  readonly scheduledAt: number | undefined
  /** Aborts when the run is cancelled, its lease is lost or the process shuts down. */
  readonly signal: AbortSignal
  /** The thread's state, read-only. `update` changes it. */
  readonly state: Readonly<State>
  /** Runs `fn` and records its result as transformed by the schema. A step with a recorded result never executes again. */
  step<T, Returned, Policy extends OnFailure = 'fail' | 'pause'>(
    name: string,
    fn: (step: StepHandle<State>) => Promise<Returned> | Returned,
    options: StepOptions<T, Policy, Returned> & { readonly schema: StandardSchemaV1<Returned, T> },
  ): Promise<Kept<T, Policy>>
  /** Runs `fn` and records its result. A step with a recorded result never executes again. */
  step<T, Policy extends OnFailure = 'fail' | 'pause'>(
    name: string,
    fn: (step: StepHandle<State>) => Promise<T> | T,
    options?: StepOptions<T, Policy>,
  ): Promise<Kept<T, Policy>>
  /** A side effect: recorded before and after it is carried out, under an operation key, and never repeated blindly. */
  once<T>(name: string, options: EffectOptions<T>): Promise<T>
  /** One step per item, in parallel: `name[0]`, `name[1]`, …, with results transformed by the schema. Finished ones are kept if another fails. */
  map<Item, T, Returned, Policy extends OnFailure = 'fail' | 'pause'>(
    name: string,
    items: readonly Item[],
    fn: (item: Item, index: number, step: StepHandle<State>) => Promise<Returned> | Returned,
    options: MapOptions<T, Policy, Returned> & { readonly schema: StandardSchemaV1<Returned, T> },
  ): Promise<Kept<T, Policy>[]>
  /** One step per item, in parallel: `name[0]`, `name[1]`, …. Finished ones are kept if another fails. */
  map<Item, T, Policy extends OnFailure = 'fail' | 'pause'>(
    name: string,
    items: readonly Item[],
    fn: (item: Item, index: number, step: StepHandle<State>) => Promise<T> | T,
    options?: MapOptions<T, Policy>,
  ): Promise<Kept<T, Policy>[]>
  /** Groups calls: names inside become `name/inner`. Nothing is recorded for the scope itself. */
  scope<T>(name: string, fn: (ctx: Context<State, Given>) => Promise<T> | T): Promise<T>
  /**
   * A scope that is recorded as a whole, like a step: with a recorded result it is not entered again. A retry keeps what succeeded
   * inside.
   */
  section<T, Policy extends OnFailure = 'fail' | 'pause'>(
    name: string,
    fn: (ctx: Context<State, Given>) => Promise<T> | T,
    options?: SectionOptions<T, State, Policy>,
  ): Promise<Kept<T, Policy>>
  /** Writes to your own tables in the same transaction as the checkpoint. SQLite and Postgres only; 5 s at most. */
  transaction<T>(name: string, fn: (tx: SqlTransaction) => Promise<T> | T): Promise<T>
  /** Opens a step that your code completes or fails later, for loops that another framework drives. */
  begin<T>(name: string): Promise<OpenStep<T>>
  /** Changes the state. Visible to this run at once; committed with the next recorded result, or at the end of the run. */
  update(recipe: (draft: State) => unknown): void
  /** A durable timer: a number of milliseconds, or a Date to sleep until. A long sleep occupies no worker. */
  sleep(duration: number | Date, options?: Withdrawable): Promise<void>
  /**
   * Waits for `hf.signal(runId, name, value)`. A signal that was sent earlier is kept for this call. If several calls wait for the same
   * name, the latest gets the signal. Throws `timeout` after `timeoutMs`.
   */
  waitFor<T = unknown>(name: string, options?: WaitForOptions<T>): Promise<T>
  /** Waits for one of several signals: the oldest that was sent already, or the first to arrive. */
  waitFor<Name extends string, T = unknown>(
    names: readonly Name[],
    options?: WaitForOptions<T>,
  ): Promise<{ readonly name: Name; readonly value: T }>
  /** Asks a person and waits for `hf.answer(runId, name, value)`. */
  ask<T = unknown>(name: string, options: AskOptions<T>): Promise<T>
  /** Starts a run of another workflow as a child, on a separate thread, and waits for its output. */
  call<ChildGiven, Output>(
    // biome-ignore lint/suspicious/noExplicitAny: what its function gets and its state do not matter here
    workflow: Workflow<any, Output, any, ChildGiven>,
    ...inputAndOptions: InputAndOptions<
      NoInfer<ChildGiven>,
      CallOptions & { readonly detached?: false; readonly undo?: Undo<NoInfer<Output>> }
    >
  ): Promise<Output>
  /** Starts a run and does not wait for it: it is independent of this one. */
  call<ChildGiven, Output>(
    // biome-ignore lint/suspicious/noExplicitAny: as above
    workflow: Workflow<any, Output, any, ChildGiven>,
    input: NoInfer<ChildGiven>,
    options: CallOptions & { readonly detached: true },
  ): Promise<{ readonly id: string; readonly threadId: string }>
  /** By name, for a workflow that this process does not have. */
  call<Output = unknown>(
    workflow: string,
    input?: unknown,
    options?: CallOptions & { readonly detached?: false; readonly version?: number; readonly undo?: Undo<Output> },
  ): Promise<Output>
  call(
    workflow: string,
    input: unknown,
    options: CallOptions & { readonly detached: true; readonly version?: number },
  ): Promise<{ readonly id: string; readonly threadId: string }>
  /** What outlives the run: each call is recorded like a step, and a replay sees what it saw. In the body of a step use `step.memory`. */
  readonly memory: Memory
  /**
   * Named content: files, exports, results, parts of a conversation. Each call is recorded like a step; of what is opened, which artifact it was. In
   * the body of a step use `step.artifacts`.
   */
  readonly artifacts: Artifacts
  /** Adds what a model or a paid service consumed to the run's usage. A run that exceeds its budget pauses at the next safe point. */
  usage(usage: Usage): void
  /** Call it before something expensive: if the budget has no room for the amount, the run pauses here. A number is a cost. */
  reserve(amount: number | { readonly cost?: number; readonly tokens?: number }): Promise<void>
  /** Records a checkpoint. A label can be used in place of its position, and retention keeps labelled checkpoints. */
  checkpoint(label?: string): Promise<void>
  /** Continues the run with a new input and an empty history, on the same thread and state. Never returns. */
  continueAs(input: Given): Promise<never>
  /** The time in ms since 1970. Recorded: a replay returns the same. */
  now(): number
  /** A random number in [0, 1). Recorded. */
  random(): number
  /** A v4 UUID. Recorded. */
  uuid(): string
  /**
   * Reports progress, from 0 to 1: of the run, or inside a plan of its current step. About two reports per second are kept; a replay
   * makes none.
   */
  progress(fraction: number, note?: string): void
  /**
   * An ordered, durable output of the run, which `run.stream(name)` reads from any process while it is being written. A replay does not
   * write chunks again that are stored. Inside a step's body, use `step.stream`.
   */
  stream(name: string): StreamWriter
  /** Writes a log line with the run's ids. */
  log(message: string, data?: Readonly<Record<string, unknown>>): void
}

/** What a step's body works with. Its updates are committed with the step's result, and dropped if it throws. */
export interface StepHandle<State = unknown> {
  /** Recorded failures of this step, plus one. */
  readonly attempt: number
  /** An idempotency key: the same for every attempt of this step. */
  readonly key: string
  /** Aborts on time-out, cancel, a lost lease and shutdown. */
  readonly signal: AbortSignal
  /** An ordered, durable output of the run, such as model tokens. If the attempt fails, readers see its chunks marked as void. */
  stream(name: string): StreamWriter
  /** Changes the state in the commit that records the step's result. The recipe runs at that time. */
  update(recipe: (draft: State) => unknown): void
  /** What outlives the run. What this attempt writes there is seen by its own reads, and committed with its result; if it fails it is dropped. */
  readonly memory: Memory
  /** Named content. What this attempt saves is complete when `save` resolves, and there with the step's result; if the attempt fails it is dropped. */
  readonly artifacts: Artifacts
  /** Reports progress, from 0 to 1: of the run, or inside a plan of its current step. */
  progress(fraction: number, note?: string): void
  /** Adds what this attempt consumed to the run's usage. It counts even if the attempt fails. */
  usage(usage: Usage): void
  log(message: string, data?: Readonly<Record<string, unknown>>): void
}

/** The writing end of a stream. */
export interface StreamWriter {
  /**
   * Appends a chunk: any value that can be stored. Chunks are buffered and written in batches, about 20 per second, and no later than the
   * step's result. Await the call for back-pressure: it resolves when the buffer has room, which is almost always immediately.
   */
  write(chunk: unknown): Promise<void>
}

/** What an undo receives besides the result. */
export interface UndoInfo {
  /** An idempotency key: the same when this undo runs again after a crash, and different from that of every other undo. */
  readonly key: string
  /** The path of the step, effect or child that is undone. */
  readonly step: string
  /** For an effect: the key under which it was carried out. */
  readonly effectKey?: string
}

/** How a result is undone: a function, or the name of one in the workflow's `undos`. */
export type Undo<T> = ((result: T, info: UndoInfo) => unknown) | string

/** When all attempts have failed and there is no fallback: throw, continue with undefined, or pause the run. */
export type OnFailure = 'fail' | 'skip' | 'pause'

/** A result, or undefined where a failure may be skipped. */
export type Kept<T, Policy extends OnFailure> = 'skip' extends Policy ? T | undefined : T

/** The body returns `Returned`, which `schema` transforms into `T`; without a schema they are the same. */
export interface StepOptions<T, Policy extends OnFailure = OnFailure, Returned = T> {
  readonly retry?: RetryOptions
  /** Time limit of one attempt, in ms. Default none. */
  readonly timeoutMs?: number
  /** Provides the result when all attempts have failed. */
  readonly fallback?: (error: Error) => Promise<T> | T
  /** Default: throw. */
  readonly onFailure?: Policy
  /** Undoes the step: called with its result when the run is cancelled or rolled back. May be called again after a crash. */
  readonly undo?: Undo<T>
  /** Recorded with the step. A replay with a different input is a mismatch. */
  readonly input?: unknown
  readonly kind?: 'model' | 'tool'
  /** Validates and transforms what the body returned. */
  readonly schema?: StandardSchemaV1<Returned, T>
  /** False: the result is buffered until the next commit, and a crash before that executes the step again. Default true. */
  readonly checkpoint?: boolean
}

export interface SectionOptions<T, State = unknown, Policy extends OnFailure = OnFailure> {
  /** Retries of the section as a whole. Default: as for a step, but a failure that a call inside has retried is not retried again. */
  readonly retry?: RetryOptions
  /** Time limit of one attempt, including waits inside and restarts, in ms. Default none. */
  readonly timeoutMs?: number
  /** Provides the result when all attempts have failed. Its calls are recorded like those of the section. */
  readonly fallback?: (error: Error, ctx: Context<State>) => Promise<T> | T
  /** Default: throw. */
  readonly onFailure?: Policy
  /** Undoes the section as a whole, before its calls are undone. */
  readonly undo?: Undo<T>
}

export interface MapOptions<T, Policy extends OnFailure = OnFailure, Returned = T> extends StepOptions<T, Policy, Returned> {
  /** How many steps execute in parallel. Default 16. */
  readonly concurrency?: number
  /** The start of each step records its item in short, in at most 256 bytes, to be shown. Default true. */
  readonly summary?: boolean
}

export interface EffectOptions<T> {
  /** Unique per owner: one key is one effect. Default: derived from run, path and count. */
  readonly key?: string
  /** Carries it out. Throw `NotHappened` if it certainly did not happen. */
  readonly run: (key: string, effect: { readonly signal: AbortSignal; readonly attempt: number }) => Promise<T> | T
  /** Finds out whether it happened, when a crash, an error or a time-out left the outcome unknown. */
  readonly check?: (key: string) => Promise<EffectCheck<T>> | EffectCheck<T>
  /** The provider deduplicates by key: with an unknown outcome, it is sent again under the same key. */
  readonly idempotent?: boolean
  readonly retry?: RetryOptions
  /** Time limit of one attempt, in ms. After it the outcome is unknown. Default none. */
  readonly timeoutMs?: number
  /** Undoes it when the run is cancelled or rolled back. Its key can be used again afterwards. */
  readonly undo?: Undo<T>
}

export interface WaitForOptions<T> extends Withdrawable {
  /** How long to wait, in ms. Default forever. */
  readonly timeoutMs?: number
  /** Validates the value. An invalid one fails the call. */
  readonly schema?: StandardSchemaV1<unknown, T>
}

export interface Withdrawable {
  /** Withdraws the wait when it aborts: the call consumes nothing and rejects with the signal's reason, now and in every replay. */
  readonly signal?: AbortSignal
}

export interface AskOptions<T> extends Withdrawable {
  /** What the person is shown: text or any data. An answer is bound to exactly this. */
  readonly question: unknown
  /** Validates the answer. An invalid one is refused, and the question stays open. */
  readonly schema?: StandardSchemaV1<unknown, T>
  /** How long to wait, in ms. After it, `default` is the answer; without a default, `timeout` is thrown. */
  readonly timeoutMs?: number
  readonly default?: T
  /** Who should answer: a name, a role, an address. */
  readonly to?: string
}

export interface CallOptions {
  /** The same id is the same run. Default: derived from this run, the workflow's name and the count of the call. */
  readonly id?: string
  /** Default: a thread with the run's id. */
  readonly threadId?: string
  readonly queue?: string
  readonly priority?: number
  /** Its limits, at most what is left of this run's own. Default: those of its workflow. */
  readonly budget?: Budget
}

/** Options of a call, including those that only the engine and schedules set. */
export interface ChildOptions extends CallOptions {
  /** Undoes what the child did. Called with its output, if it has completed. */
  readonly undo?: Undo<never>
  readonly detached?: boolean
  /** For a call by name: the workflow's version. Default: the highest registered in this process, else 1. */
  readonly version?: number
  /** The tick of a schedule, whose input was checked when the schedule was set. */
  readonly scheduledAt?: number
  /** The input was not checked: the process that set the schedule did not have the workflow. */
  readonly unchecked?: boolean
}

export interface EffectCheck<T> {
  readonly happened: boolean
  /** What the effect returned, if it happened. */
  readonly result?: T
}

export interface OpenStep<T> {
  /** The result, if it was recorded before. */
  readonly recorded?: T
  /** Records the result. If one was recorded before, returns that instead, in the order in which results originally arrived. */
  complete(value: T): Promise<T>
  /** Records a final failure. On a replay `begin` throws the same error; around other calls it is `fail` that returns once more. */
  fail(error: unknown): Promise<void>
}

// A context calls workflows, and a workflow's function gets a context: types that name each other are in one file.

export type WorkflowFunction<Input, Output, State, Given = Input> = (
  ctx: Context<State, NoInfer<Given>>,
  input: Input,
) => Promise<Output> | Output

/** Undos by name. Each is called with the recorded result. */
// biome-ignore lint/suspicious/noExplicitAny: each takes the result of the calls that name it
export type Undos = Readonly<Record<string, (result: any, info: UndoInfo) => unknown>>

/**
 * A start takes `Given` and the function gets `Input`; the function returns `Returned` and `result()` gives `Output`. Each pair differs
 * only if a schema transforms values or has defaults.
 */
export interface WorkflowOptions<Input, Output, State, Given = Input, Returned = Output> {
  readonly name: string
  /** Versions coexist: a run finishes on the version it started with. A whole number, default 1. */
  readonly version?: number
  /**
   * Validates and transforms the input, once: when a run is started, or when it is first claimed if the process that started it does not
   * have the workflow; and in `ctx.continueAs`. zod, valibot, arktype or any other Standard Schema.
   */
  readonly input?: StandardSchemaV1<Given, Input>
  /** Validates and transforms what the function returns. */
  readonly output?: StandardSchemaV1<Returned, Output>
  readonly state?: StateDefinition<State>
  /** The queue of its runs. Default `default`. */
  readonly queue?: string
  /** Runs with a higher priority execute first. Default 0. */
  readonly priority?: number
  /** Time limit of a run, from its start to its end, including waits, in ms. Default none. */
  readonly timeoutMs?: number
  /** The retry policy of steps that have none. */
  readonly retry?: RetryOptions
  /** Limits of a run. A run that exceeds one pauses until `run.resume({ budget })`. Default none. */
  readonly budget?: Budget
  /** A run that fails first undoes what it did, in reverse order. Default false. */
  readonly undoOnFailure?: boolean
  /**
   * How long the chunks of its runs' streams are kept: as long as their thread (`kept`, the default), or while the run is one of the thread's two latest
   * of this workflow (`recent`), where the state tells the same. Those of cancelled runs stay.
   */
  readonly streams?: 'kept' | 'recent'
  /** Undos that a step, effect, section or child refers to as `undo: 'name'`. They run from the log, without executing the function. */
  readonly undos?: Undos
}

/** A named async function whose steps survive the process. A start takes `Given`: the input of its schema, or `Input` without one. */
export interface Workflow<Input = unknown, Output = unknown, State = unknown, Given = Input> {
  readonly name: string
  readonly version: number
  readonly options: WorkflowOptions<Input, Output, State, Given, unknown>
  readonly fn: WorkflowFunction<Input, unknown, State, Given>
}

/** The arguments of a start after the workflow. The input is optional only if it may be undefined. */
export type InputAndOptions<Given, Options> = undefined extends Given
  ? [input?: Given, options?: Options | undefined]
  : [input: Given, options?: Options | undefined]
