import { HoldfastError } from './errors.ts'
import type { Refusal } from './guard.ts'
import type { Payload } from './payload.ts'

/**
 * The account of one effect, or of one asking of a question, unique per (owner, key). An effect's is opened before the effect is
 * attempted, and closed after:
 *
 *   intended ──▶ completed            it happened, the result is kept
 *      │  └────▶ failed               it surely did not happen: the key is free
 *      └───────▶ unsure ──resolve──▶ completed or failed
 *   completed ─▶ undone               the key is free
 *
 * A question's is opened unsure, because a person has to decide, and closed by the answer (completed) or by the run, which no longer
 * wants one (failed). Its key is the id of the asking.
 */
export type OperationStatus = 'intended' | 'completed' | 'failed' | 'unsure' | 'undone'

export type OperationKind = 'effect' | 'question'

export interface Operation {
  readonly owner: string
  readonly key: string
  readonly kind: OperationKind
  /** Name of the effect that uses the key; another name under the same key is input_mismatch. A question's name with its scopes. */
  readonly name: string
  readonly runId: string
  readonly threadId: string
  readonly status: OperationStatus
  readonly result: Payload | null
  /** What a fenced holder reported late. */
  readonly evidence: Payload | null
  readonly resolvedBy: string | null
  readonly intendedAt: number
  readonly closedAt: number | null
}

/** A change of one operation, keyed by (owner, key). */
export type OperationChange =
  /**
   * Opens the operation for this run, before the effect. Refused with `operation_taken` when the key is there,
   * unless it was closed as failed or undone.
   */
  | { readonly kind: 'intend'; readonly key: string; readonly name: string }
  /** Opens a question for this run: unsure, so that it can be answered (`resolve`) from here on. Refused like an intent. */
  | { readonly kind: 'ask'; readonly key: string; readonly name: string }
  /** It happened. Only the run that opened it; wakes the runs that wait for the key, like `fail` and `resolve`. */
  | { readonly kind: 'complete'; readonly key: string; readonly result: Payload | null }
  /** It surely did not happen: the key is free again. Only the run that opened it. */
  | { readonly kind: 'fail'; readonly key: string }
  /** Its outcome is hidden: a person decides. Only the run that opened it. */
  | { readonly kind: 'doubt'; readonly key: string }
  /** A person decided. Refused with `already_answered` unless the operation is unsure. */
  | {
      readonly kind: 'resolve'
      readonly key: string
      readonly hasHappened: boolean
      readonly result: Payload | null
      readonly by: string | null
    }
  /** What it did was taken back: the key is free again. Only the run that opened it, and only once it is completed. */
  | { readonly kind: 'undo'; readonly key: string }
  /** A late answer, of a fenced holder or after the end of a run, kept as evidence for the person who decides; ignored once the operation completed. */
  | { readonly kind: 'note'; readonly key: string; readonly evidence: Payload }

/** Whether a run that meets the key has to wait until it is closed. */
export function isOpen(status: OperationStatus): boolean {
  return status === 'intended' || status === 'unsure'
}

/** Whether the end of its run closes it: nothing waits for the answer any more. */
export function isOpenQuestion({ kind, status }: Pick<Operation, 'kind' | 'status'>): boolean {
  return kind === 'question' && status === 'unsure'
}

type Opening = Extract<OperationChange, { kind: 'intend' | 'ask' }>

export function opens(to: OperationChange): to is Opening {
  return to.kind === 'intend' || to.kind === 'ask'
}

/** Null: the change of the operation may be written. The answer shows the operation with every refusal but `conflict`. */
export function judgeOperation(
  found: Pick<Operation, 'status' | 'runId'> | undefined,
  to: OperationChange,
  runId: string | null,
): Extract<Refusal, 'operation_taken' | 'conflict' | 'already_answered'> | null {
  switch (to.kind) {
    case 'intend':
    case 'ask':
      return found === undefined || found.status === 'failed' || found.status === 'undone' ? null : 'operation_taken'
    case 'complete':
    case 'fail':
    case 'doubt':
      return found !== undefined && found.runId === runId && isOpen(found.status) ? null : 'conflict'
    case 'undo':
      return found?.status === 'completed' && found.runId === runId ? null : 'conflict'
    case 'resolve':
      return found?.status === 'unsure' ? null : 'already_answered'
    case 'note':
      return null
  }
}

/** A new account, also under a key that was free again: nothing is left of the old one. */
export function openedOperation(
  { owner, runId, threadId }: { readonly owner: string; readonly runId: string | null; readonly threadId: string },
  { kind, key, name }: Opening,
  now: number,
): Operation {
  return {
    ...{ owner, key, kind: kind === 'ask' ? 'question' : 'effect', name, runId: runId ?? '', threadId },
    ...{ status: kind === 'ask' ? 'unsure' : 'intended', result: null, evidence: null, resolvedBy: null },
    ...{ intendedAt: now, closedAt: null },
  }
}

export function amendedOperation(operation: Operation, to: Exclude<OperationChange, Opening>, now: number): Operation {
  switch (to.kind) {
    case 'complete':
      return { ...operation, status: 'completed', result: to.result, closedAt: now }
    case 'fail':
      return { ...operation, status: 'failed', closedAt: now }
    case 'doubt':
      return { ...operation, status: 'unsure' }
    case 'resolve':
      return to.hasHappened
        ? { ...operation, status: 'completed', result: to.result, resolvedBy: to.by, closedAt: now }
        : { ...operation, status: 'failed', resolvedBy: to.by, closedAt: now }
    case 'undo':
      return { ...operation, status: 'undone', closedAt: now }
    case 'note':
      return operation.status === 'completed' ? operation : { ...operation, evidence: to.evidence }
  }
}

/** Whether the change wakes runs that wait for the key: it closes the operation. */
export function wakesWaiting({ kind }: OperationChange): boolean {
  return kind === 'complete' || kind === 'fail' || kind === 'resolve'
}

/**
 * The operation after the end of its run, or of the tape that opened it: an effect that is still intended can only be closed by a person,
 * an open question needs no answer. Null where it stays as it is.
 */
export function settledOperation(operation: Operation, now: number): Operation | null {
  if (isOpenQuestion(operation)) return { ...operation, status: 'failed', closedAt: now }
  return operation.status === 'intended' ? { ...operation, status: 'unsure' } : null
}

/**
 * Kind and name as they were stored. Operations that version 0.1 wrote have no kind, or that of an effect; a question's name was
 * `ask[name]`, which no effect can have.
 */
export function readKind(kind: string | null | undefined, name: string): Pick<Operation, 'kind' | 'name'> {
  const [, asked] = /^ask\[([^/[]+)\]$/.exec(name) ?? []
  if (asked !== undefined) return { kind: 'question', name: asked }
  if (kind === 'question') return { kind, name }
  if (kind === 'effect' || kind == null || kind === '') return { kind: 'effect', name }
  throw new HoldfastError(
    'corrupt_record',
    `Operation "${name}" is damaged: there is no kind "${kind}". Restore it from a backup.`,
  )
}
