import type { StandardSchemaV1 } from '@standard-schema/spec'
import type { RetryOptions } from '../model/retry.ts'
import type { SqlTransaction } from '../store/store.ts'

/** What a workflow's function works with. Every recording call is remembered; a replay gets the same answers. */
export interface Context<State = Record<string, unknown>> {
  readonly runId: string
  readonly threadId: string
  readonly owner: string
  /** Aborted when the run is cancelled, its lease is lost or the process shuts down. */
  readonly signal: AbortSignal
  /** The thread's state, read-only. Change it through `update`. */
  readonly state: Readonly<State>
  /** Runs `fn` and records its result. A recorded step never executes again. */
  step<T>(name: string, fn: (step: StepHandle<State>) => Promise<T> | T, options?: StepOptions<T>): Promise<T>
  /** An effect on the world: recorded before and after, under an operation key, never repeated blindly. */
  once<T>(name: string, options: EffectOptions<T>): Promise<T>
  /** Parallel steps `name[0]`, `name[1]`, …; finished ones are kept if another fails. */
  map<Item, T>(
    name: string,
    items: readonly Item[],
    fn: (item: Item, index: number, step: StepHandle<State>) => Promise<T> | T,
    options?: MapOptions<T>,
  ): Promise<T[]>
  /**
   * Groups calls: inner names become `name/inner`. With options, be they empty, the scope is recorded as a whole, like a step: one with
   * a recorded result is not entered again, and another attempt keeps what succeeded inside.
   */
  scope<T>(name: string, fn: (ctx: Context<State>) => Promise<T> | T, options?: ScopeOptions<T, State>): Promise<T>
  /** Writes the user's own tables in the same transaction as the checkpoint. SQLite and Postgres; 5 s at most. */
  transaction<T>(name: string, fn: (tx: SqlTransaction) => Promise<T> | T): Promise<T>
  /** The two halves of a step, for loops that Holdfast does not drive. */
  begin<T>(name: string): Promise<OpenStep<T>>
  /** Changes the state synchronously. Visible at once, committed with the next recorded result or at the end. */
  update(recipe: (draft: State) => unknown): void
  /** A durable timer: milliseconds or a date. A long one holds no worker. */
  sleep(duration: number | Date): Promise<void>
  /** A checkpoint by hand. A labelled one can be named instead of its position, and retention keeps it. */
  checkpoint(label?: string): Promise<void>
  /** Ends this tape and goes on with a fresh one, on the same thread and state. Never returns. */
  continueAs(input: unknown): Promise<never>
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
  /** A log line joined to the run. */
  log(message: string, data?: Readonly<Record<string, unknown>>): void
}

/** What a step's body works with. What it writes is committed with its result and dropped if it throws. */
export interface StepHandle<State = Record<string, unknown>> {
  /** Recorded failures of this step plus one. */
  readonly attempt: number
  /** The same for every attempt: an idempotency key for providers that take one. */
  readonly key: string
  /** Aborted on time-out, cancel, a lost lease and shutdown. */
  readonly signal: AbortSignal
  /** Changes the state when the step's result is recorded; the recipe runs then. */
  update(recipe: (draft: State) => unknown): void
  /** Says how far the run is, from 0 to 1; in a plan, how far the plan's step is. */
  progress(fraction: number, note?: string): void
  log(message: string, data?: Readonly<Record<string, unknown>>): void
}

export interface StepOptions<T> {
  readonly retry?: RetryOptions
  /** Longest time of one attempt, in ms. Default none. */
  readonly timeoutMs?: number
  /** Makes the result when all attempts have failed. */
  readonly fallback?: (error: Error) => Promise<T> | T
  /** When all attempts have failed and there is no fallback: throw (default), go on with undefined, or pause the run. */
  readonly onFailure?: 'fail' | 'skip' | 'pause'
  /** Recorded with the step; on a replay another input is a mismatch. */
  readonly input?: unknown
  readonly kind?: 'model' | 'tool'
  /** Validates the result. */
  readonly schema?: StandardSchemaV1<unknown, T>
  /** False: the result rides with the next commit. A crash before that runs the step again. Default true. */
  readonly checkpoint?: boolean
}

export interface ScopeOptions<T, State = Record<string, unknown>> {
  /** Attempts of the scope as a whole. Default: those of a step, but what a call inside has retried in vain is not tried again. */
  readonly retry?: RetryOptions
  /** Longest time of one attempt, waits inside and restarts included, in ms. Default none. */
  readonly timeoutMs?: number
  /** Makes the result when all attempts have failed. Its calls are recorded like those of the scope. */
  readonly fallback?: (error: Error, ctx: Context<State>) => Promise<T> | T
  /** When all attempts have failed and there is no fallback: throw (default), go on with undefined, or pause the run. */
  readonly onFailure?: 'fail' | 'skip' | 'pause'
}

export interface MapOptions<T> extends StepOptions<T> {
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
}

export interface EffectCheck<T> {
  readonly happened: boolean
  /** What the effect returned, where it happened. */
  readonly result?: T
}

export interface OpenStep<T> {
  /** Present when the step was recorded before: its result. */
  readonly recorded?: T
  /** Records the result. */
  complete(value: T): Promise<T>
  /** Records a final failure. The same error is thrown by `begin` on replay. */
  fail(error: unknown): Promise<void>
}
