import type { NewEvent } from '../model/event.ts'
import type { RetryOptions } from '../model/retry.ts'
import type { OnFailure, Undo } from './context.ts'

/** What a plan asks of the context of its run, besides what every workflow may. */
export interface PlanContext {
  readonly state: unknown
  readonly progressReports: {
    /** How much each step of the plan counts for. */
    weigh(weights: ReadonlyMap<string, number>): void
    finish(step: string): readonly NewEvent[]
  }
  update(recipe: (draft: never) => unknown): void
  recordedScope<T>(name: string, scope: Omit<RecordedScope<T>, 'path'>): Promise<T>
}

/** A scope that is recorded as a whole: what its calls stand under, what it does, and what happens when that fails. */
export interface RecordedScope<T> {
  /** Where the calls of its function stand. */
  readonly path: string
  readonly body: () => Promise<T> | T
  readonly fallback?: (error: Error) => Promise<T> | T
  /** What is recorded of the value that the function returned. */
  readonly record: (value: T) => ScopeRecord<T>
  /** Events that belong into the commit of its result. */
  readonly alongside?: () => readonly NewEvent[]
  /** Takes back what the scope as a whole did. */
  readonly undo?: Undo<T>
  /** It is called with the state as the scope left it, instead of the result. */
  readonly undoGets?: 'state'
  readonly retry?: RetryOptions
  readonly timeoutMs?: number
  readonly onFailure?: OnFailure
}

export interface ScopeRecord<T> {
  readonly result: T | undefined
  /** What it does to the state, in the same commit. */
  readonly recipes: readonly ((draft: never) => unknown)[]
}
