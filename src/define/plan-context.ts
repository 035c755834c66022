import type { NewEvent } from '../model/event.ts'
import type { RetryOptions } from '../model/retry.ts'
import type { OnFailure, Undo } from './context.ts'

/** What a plan uses of its run's context beyond the public `Context`. */
export interface PlanContext {
  readonly state: unknown
  readonly progressReports: {
    /** Sets the share of each step of the plan. */
    weigh(weights: ReadonlyMap<string, number>): void
    finish(step: string): readonly NewEvent[]
  }
  update(recipe: (draft: never) => unknown): void
  recordedScope<T>(name: string, scope: Omit<RecordedScope<T>, 'path'>): Promise<T>
}

/** A scope that is recorded as a whole: the path of its calls, what it does, and what happens when that fails. */
export interface RecordedScope<T> {
  /** Prefix of the paths of its calls. */
  readonly path: string
  readonly body: () => Promise<T> | T
  readonly fallback?: (error: Error) => Promise<T> | T
  /** What is recorded for the value that the function returned. */
  readonly record: (value: T) => ScopeRecord<T>
  /** Events that are committed with its result. */
  readonly alongside?: () => readonly NewEvent[]
  /** Undoes the scope as a whole. */
  readonly undo?: Undo<T>
  /** `undo` is called with the state as the scope left it, instead of the result. */
  readonly undoGets?: 'state'
  readonly retry?: RetryOptions
  readonly timeoutMs?: number
  readonly onFailure?: OnFailure
}

export interface ScopeRecord<T> {
  readonly result: T | undefined
  /** Changes of the state in the same commit. */
  readonly recipes: readonly ((draft: never) => unknown)[]
}
