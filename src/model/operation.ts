import { HoldfastError } from './errors.ts'
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

/** Whether a run that meets the key has to wait for somebody else to close it. */
export function isOpen(status: OperationStatus): boolean {
  return status === 'intended' || status === 'unsure'
}

/** Whether an end of its run closes it: nobody will wait for the answer. */
export function isOpenQuestion({ kind, status }: Pick<Operation, 'kind' | 'status'>): boolean {
  return kind === 'question' && status === 'unsure'
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
