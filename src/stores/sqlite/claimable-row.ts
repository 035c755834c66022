import type { Payload } from '../../model/payload.ts'
import type { Claim } from '../../store/store.ts'
import { workerOf } from './holder.ts'
import type { NamedRunRow } from './rows.ts'

/** Selects a run by its number as a claim takes it. */
export const selectClaimable = `
  SELECT r.owner, r.run_id, r.thread, r.workflow, r.version, r.status, r.reason, r.queue, r.priority, r.fingerprint, r.epoch, r.lease_until,
    r.due_at, r.claims_without_progress, r.current_step, r.input_seq, r.tape_seq, r.created_at, r.started_at, r.unread_message, h.holder,
    t.thread_id, t.head_seq, t.written_seq, t.patch_seq, t.patch_checksum, t.state_version, t.incarnation, t.base_seq, t.created_at AS began_at,
    l.seq, l.type, l.step, l.count, l.attempt, l.at, l.duration_ms, l.payload, l.patch, l.checkpoint_bytes, l.checksum
  FROM holdfast_runs r CROSS JOIN holdfast_threads t ON t.id = r.thread
    LEFT JOIN holdfast_log l ON l.id = r.input_id AND l.thread = r.thread AND l.seq = r.input_seq
    LEFT JOIN holdfast_holders h ON h.id = r.lease_holder
  WHERE r.id = ?`

/** An unfinished run, its thread, and the record that brings its input, as far as a claim tells of them; the record's columns are null where it is missing. */
export interface ClaimableRow extends Omit<NamedRunRow, UnreadColumn> {
  readonly head_seq: number
  readonly written_seq: number
  readonly patch_seq: number
  readonly patch_checksum: number
  readonly state_version: number
  readonly incarnation: number
  readonly base_seq: number
  readonly began_at: number
  readonly seq: number | null
}

type UnreadColumn =
  | 'id'
  | 'lease_id'
  | 'lease_holder'
  | 'claim_at'
  | 'ready'
  | 'wait_key'
  | 'end_seq'
  | 'input_id'
  | 'finished_at'

interface Taking {
  readonly leaseId: string
  readonly leaseUntil: number
  readonly input: Payload
  readonly holder: string
  readonly now: number
  readonly holderIsDead: boolean
  readonly isQueueLimited: boolean
}

/** The claim of a run, as it is once taken. */
export function toClaim(before: ClaimableRow, taking: Taking): Claim {
  const { leaseId, leaseUntil, input, holder, now, holderIsDead, isQueueLimited } = taking
  const { owner, thread_id: threadId } = before
  const why = holderIsDead ? 'holder_died' : 'lease_expired'
  const isAbandoned = before.status === 'running'
  return {
    run: {
      owner,
      id: before.run_id,
      threadId,
      workflow: before.workflow,
      version: before.version,
      status: 'running',
      reason: before.reason,
      queue: before.queue,
      priority: before.priority,
      fingerprint: before.fingerprint,
      epoch: before.epoch + 1,
      leaseId,
      leaseUntil,
      leaseHolder: workerOf(holder),
      dueAt: before.due_at,
      claimsWithoutProgress: before.claims_without_progress + 1,
      currentStep: before.current_step,
      inputSeq: before.input_seq,
      tapeSeq: before.tape_seq,
      endSeq: null,
      createdAt: before.created_at,
      startedAt: before.started_at,
      finishedAt: null,
    },
    leaseId,
    input,
    thread: {
      owner,
      threadId,
      headSeq: before.head_seq,
      writtenSeq: before.written_seq,
      patchSeq: before.patch_seq,
      patchChecksum: before.patch_checksum,
      stateVersion: before.state_version,
      incarnation: before.incarnation,
      baseSeq: before.base_seq,
      createdAt: before.began_at,
      deletedAt: null,
    },
    takenFrom: isAbandoned ? { holder: workerOf(before.holder) ?? '', why, leaseUntil: before.lease_until ?? now } : null,
    hasMail: before.unread_message > 0,
    isQueueLimited,
    now,
  }
}
