import type { Payload } from './payload.ts'

/**
 * The account of one effect, unique per (owner, key). Opened before the effect is attempted, closed after.
 *
 *   intended ──▶ completed            it happened, the result is kept
 *      │  └────▶ failed               it surely did not happen: the key is free
 *      └───────▶ unsure ──resolve──▶ completed or failed
 *   completed ─▶ undone               the key is free
 */
export type OperationStatus = 'intended' | 'completed' | 'failed' | 'unsure' | 'undone'

export interface Operation {
  readonly owner: string
  readonly key: string
  /** Name of the effect that uses the key; another name under the same key is input_mismatch. */
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
