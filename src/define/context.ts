import type { StandardSchemaV1 } from '@standard-schema/spec'
import type { RetryOptions } from '../model/retry.ts'
import type { Budget, Usage } from '../model/usage.ts'
import type { SqlTransaction } from '../store/store.ts'
import type { InputAndOptions, Workflow } from './workflow.ts'

/**
 * What a workflow's function works with. Every recording call is remembered; a replay gets the same answers.
 * A function of your own that takes a plain `Context` takes that of any workflow, and knows nothing of its state. `Given` is what
 * `continueAs` takes, which is what a start takes.
 */
export interface Context<State = unknown, Given = never> {
  readonly runId: string
  readonly threadId: string
  readonly owner: string
  /** The tick of the schedule that started this run, in ms since 1970; undefined in a run that no schedule started. */
  readonly scheduledAt: number | undefined
  /** Aborted when the run is cancelled, its lease is lost or the process shuts down. */
  readonly signal: AbortSignal
  /** The thread's state, read-only. Change it through `update`. */
  readonly state: Readonly<State>
  /** Runs `fn` and records what the schema makes of its result. A recorded step never executes again. */
  step<T, Returned, Policy extends OnFailure = 'fail' | 'pause'>(
    name: string,
    fn: (step: StepHandle<State>) => Promise<Returned> | Returned,
    options: StepOptions<T, Policy, Returned> & { readonly schema: StandardSchemaV1<Returned, T> },
  ): Promise<Kept<T, Policy>>
  /** Runs `fn` and records its result. A recorded step never executes again. */
  step<T, Policy extends OnFailure = 'fail' | 'pause'>(
    name: string,
    fn: (step: StepHandle<State>) => Promise<T> | T,
    options?: StepOptions<T, Policy>,
  ): Promise<Kept<T, Policy>>
  /** An effect on the world: recorded before and after, under an operation key, never repeated blindly. */
  once<T>(name: string, options: EffectOptions<T>): Promise<T>
  /** Parallel steps `name[0]`, `name[1]`, …, each with what the schema makes of its result; finished ones are kept if another fails. */
  map<Item, T, Returned, Policy extends OnFailure = 'fail' | 'pause'>(
    name: string,
    items: readonly Item[],
    fn: (item: Item, index: number, step: StepHandle<State>) => Promise<Returned> | Returned,
    options: MapOptions<T, Policy, Returned> & { readonly schema: StandardSchemaV1<Returned, T> },
  ): Promise<Kept<T, Policy>[]>
  /** Parallel steps `name[0]`, `name[1]`, …; finished ones are kept if another fails. */
  map<Item, T, Policy extends OnFailure = 'fail' | 'pause'>(
    name: string,
    items: readonly Item[],
    fn: (item: Item, index: number, step: StepHandle<State>) => Promise<T> | T,
    options?: MapOptions<T, Policy>,
  ): Promise<Kept<T, Policy>[]>
  /** Groups calls: inner names become `name/inner`. Nothing is recorded for the scope itself. */
  scope<T>(name: string, fn: (ctx: Context<State, Given>) => Promise<T> | T): Promise<T>
  /**
   * A scope that is recorded as a whole, like a step: one with a recorded result is not entered again, and another attempt keeps what
   * succeeded inside.
   */
  section<T, Policy extends OnFailure = 'fail' | 'pause'>(
    name: string,
    fn: (ctx: Context<State, Given>) => Promise<T> | T,
    options?: SectionOptions<T, State, Policy>,
  ): Promise<Kept<T, Policy>>
  /** Writes the user's own tables in the same transaction as the checkpoint. SQLite and Postgres; 5 s at most. */
  transaction<T>(name: string, fn: (tx: SqlTransaction) => Promise<T> | T): Promise<T>
  /** The two halves of a step, for loops that Holdfast does not drive. */
  begin<T>(name: string): Promise<OpenStep<T>>
  /** Changes the state synchronously. Visible at once, committed with the next recorded result or at the end. */
  update(recipe: (draft: State) => unknown): void
  /** A durable timer: a number of milliseconds, or a Date to sleep until. A long one holds no worker. */
  sleep(duration: number | Date, options?: Withdrawable): Promise<void>
  /**
   * Waits for `hf.signal(runId, name, value)`; one that was sent before is kept. Where several calls wait for one name, the
   * latest gets the signal. Throws `timeout` when `timeoutMs` has passed.
   */
  waitFor<T = unknown>(name: string, options?: WaitForOptions<T>): Promise<T>
  /** Waits for one signal of several names: the oldest that is there, else the first that comes. */
  waitFor<Name extends string, T = unknown>(
    names: readonly Name[],
    options?: WaitForOptions<T>,
  ): Promise<{ readonly name: Name; readonly value: T }>
  /** Asks a person and waits for `hf.answer(runId, name, value)`. */
  ask<T = unknown>(name: string, options: AskOptions<T>): Promise<T>
  /** Starts a run of another workflow, in the same commit, on a thread of its own, and waits for its output. */
  call<ChildGiven, Output>(
    // biome-ignore lint/suspicious/noExplicitAny: what its function gets and its state do not matter here
    workflow: Workflow<any, Output, any, ChildGiven>,
    ...inputAndOptions: InputAndOptions<
      NoInfer<ChildGiven>,
      CallOptions & { readonly detached?: false; readonly undo?: Undo<NoInfer<Output>> }
    >
  ): Promise<Output>
  /** Starts it and does not wait: it lives on its own. */
  call<ChildGiven, Output>(
    // biome-ignore lint/suspicious/noExplicitAny: as above
    workflow: Workflow<any, Output, any, ChildGiven>,
    input: NoInfer<ChildGiven>,
    options: CallOptions & { readonly detached: true },
  ): Promise<{ readonly id: string; readonly threadId: string }>
  /** By name: a workflow that only other processes need to have. */
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
  /** Books what a model or a paid service took on the run's account. Past its budget the run pauses at the next safe point. */
  usage(usage: Usage): void
  /** Before a call that costs: passes when the budget has room for it, otherwise the run pauses here. A number is a cost. */
  reserve(amount: number | { readonly cost?: number; readonly tokens?: number }): Promise<void>
  /** A checkpoint by hand. A labelled one can be named instead of its position, and retention keeps it. */
  checkpoint(label?: string): Promise<void>
  /** Ends this tape and goes on with a fresh one, on the same thread and state. Never returns. */
  continueAs(input: Given): Promise<never>
  /** The time in ms, recorded. */
  now(): number
  /** A number in [0, 1), recorded. */
  random(): number
  /** A v4 UUID, recorded. */
  uuid(): string
  /**
   * Says how far the run is, from 0 to 1; in a plan, how far its step is. For whoever watches: about two reports a second are kept, and
   * a replay makes none.
   */
  progress(fraction: number, note?: string): void
  /**
   * An ordered durable output of the run, which `run.stream(name)` reads from any process while it is written. Of the chunks
   * that the function itself writes a replay skips those that are stored. Inside a step's body it is `step.stream`.
   */
  stream(name: string): StreamWriter
  /** A log line joined to the run. */
  log(message: string, data?: Readonly<Record<string, unknown>>): void
}

/** What a step's body works with. What it writes is committed with its result and dropped if it throws. */
export interface StepHandle<State = unknown> {
  /** Recorded failures of this step plus one. */
  readonly attempt: number
  /** The same for every attempt: an idempotency key for providers that take one. */
  readonly key: string
  /** Aborted on time-out, cancel, a lost lease and shutdown. */
  readonly signal: AbortSignal
  /** An ordered durable output of the run: model tokens. If the attempt fails, its chunks are marked as void for the readers. */
  stream(name: string): StreamWriter
  /** Changes the state when the step's result is recorded; the recipe runs then. */
  update(recipe: (draft: State) => unknown): void
  /** Says how far the run is, from 0 to 1; in a plan, how far the plan's step is. */
  progress(fraction: number, note?: string): void
  /** Books what this attempt took on the run's account; kept although the attempt fails. */
  usage(usage: Usage): void
  log(message: string, data?: Readonly<Record<string, unknown>>): void
}

/** The writing end of a stream. */
export interface StreamWriter {
  /**
   * Appends a chunk: any value that can be stored. Chunks are gathered and written together, about 20 times a second, and no later
   * than the step's result. Await it for back-pressure: it resolves when there is room, which is nearly always at once.
   */
  write(chunk: unknown): Promise<void>
}

/** What an undo is told besides the result. */
export interface UndoInfo {
  /** The undo's own key: the same when it runs again after a crash, and no other undo has it. For providers that take one. */
  readonly key: string
  /** Path of the step, effect or child that is undone. */
  readonly step: string
  /** Effects: the key under which it was carried out. */
  readonly effectKey?: string
}

/** How a result is taken back: a function, or the name of one in the workflow's `undos`. */
export type Undo<T> = ((result: T, info: UndoInfo) => unknown) | string

/** When all attempts have failed and there is no fallback: throw, continue with undefined, or pause the run. */
export type OnFailure = 'fail' | 'skip' | 'pause'

/** A result; or undefined, where a failure may be skipped. */
export type Kept<T, Policy extends OnFailure> = 'skip' extends Policy ? T | undefined : T

/** `T` is what `schema` makes of what the body has `Returned`; without one they are the same. */
export interface StepOptions<T, Policy extends OnFailure = OnFailure, Returned = T> {
  readonly retry?: RetryOptions
  /** Longest time of one attempt, in ms. Default none. */
  readonly timeoutMs?: number
  /** Makes the result when all attempts have failed. */
  readonly fallback?: (error: Error) => Promise<T> | T
  /** Default: throw. */
  readonly onFailure?: Policy
  /** Takes back what the step did: called with its result when the run is cancelled or rolled back. May be called again after a crash. */
  readonly undo?: Undo<T>
  /** Recorded with the step; on a replay another input is a mismatch. */
  readonly input?: unknown
  readonly kind?: 'model' | 'tool'
  /** Validates, and transforms, what the body returned. */
  readonly schema?: StandardSchemaV1<Returned, T>
  /** False: the result rides with the next commit. A crash before that runs the step again. Default true. */
  readonly checkpoint?: boolean
}

export interface SectionOptions<T, State = unknown, Policy extends OnFailure = OnFailure> {
  /** Attempts of the section as a whole. Default: those of a step, but what a call inside has retried in vain is not tried again. */
  readonly retry?: RetryOptions
  /** Longest time of one attempt, waits inside and restarts included, in ms. Default none. */
  readonly timeoutMs?: number
  /** Makes the result when all attempts have failed. Its calls are recorded like those of the section. */
  readonly fallback?: (error: Error, ctx: Context<State>) => Promise<T> | T
  /** Default: throw. */
  readonly onFailure?: Policy
  /** Takes back what the section as a whole did, before what its calls did is taken back. */
  readonly undo?: Undo<T>
}

export interface MapOptions<T, Policy extends OnFailure = OnFailure, Returned = T> extends StepOptions<T, Policy, Returned> {
  /** How many run at a time. Default 16. */
  readonly concurrency?: number
}

export interface EffectOptions<T> {
  /** Unique per owner: one key is one effect. Default: made from run, path and count. */
  readonly key?: string
  /** Touches the world. Throw `NotHappened` when it surely did not. */
  readonly run: (key: string, effect: { readonly signal: AbortSignal; readonly attempt: number }) => Promise<T> | T
  /** Looks whether it happened, when a crash, a throw or a time-out hid the outcome. */
  readonly check?: (key: string) => Promise<EffectCheck<T>> | EffectCheck<T>
  /** The provider deduplicates by key: when the outcome is hidden it may be sent again with the same one. */
  readonly idempotent?: boolean
  readonly retry?: RetryOptions
  /** Longest time of one attempt, in ms. Past it the outcome is hidden. Default none. */
  readonly timeoutMs?: number
  /** Takes back what it did, when the run is cancelled or rolled back. Its key is free again afterwards. */
  readonly undo?: Undo<T>
}

export interface WaitForOptions<T> extends Withdrawable {
  /** How long to wait, in ms. Default for ever. */
  readonly timeoutMs?: number
  /** Validates the value. One that does not fit fails the call. */
  readonly schema?: StandardSchemaV1<unknown, T>
}

export interface Withdrawable {
  /** Aborted, it withdraws the wait: the call takes nothing any more, and rejects with the signal's reason, now and at every replay. */
  readonly signal?: AbortSignal
}

export interface AskOptions<T> extends Withdrawable {
  /** What the person is shown: text, or any data. The answer counts for exactly this. */
  readonly question: unknown
  /** Validates the answer. One that does not fit is refused, and the question stays open. */
  readonly schema?: StandardSchemaV1<unknown, T>
  /** How long to wait, in ms. Then `default` is the answer, or `timeout` is thrown. */
  readonly timeoutMs?: number
  readonly default?: T
  /** Who should answer: a name, a role, an address. */
  readonly to?: string
}

export interface CallOptions {
  /** Same id, same run. Default: made from this run, the workflow's name and the count of the call. */
  readonly id?: string
  /** Default: a thread with the run's id. */
  readonly threadId?: string
  readonly queue?: string
  readonly priority?: number
  /** Its limits; never more than what is left of this run's own. Default: those of its workflow. */
  readonly budget?: Budget
}

/** The same, with what only the engine and schedules say. */
export interface ChildOptions extends CallOptions {
  /** Takes back what the child did, once it has completed; called with its output. */
  readonly undo?: Undo<never>
  readonly detached?: boolean
  /** For a bare name: which version is meant. Default: the highest registered here, else 1. With a workflow itself another than its own is refused. */
  readonly version?: number
  /** The tick of a schedule. Its input was checked when the schedule was set. */
  readonly scheduledAt?: number
  /** It was not: whoever set the schedule did not have the workflow. */
  readonly unchecked?: boolean
}

export interface EffectCheck<T> {
  readonly happened: boolean
  /** What the effect returned, where it happened. */
  readonly result?: T
}

export interface OpenStep<T> {
  /** Present when the step was recorded before: its result. */
  readonly recorded?: T
  /** Records the result. Where one is recorded already it returns that, in the order in which results came before. */
  complete(value: T): Promise<T>
  /** Records a final failure. On a replay `begin` throws the same error; around other calls it is `fail` that returns once more. */
  fail(error: unknown): Promise<void>
}
