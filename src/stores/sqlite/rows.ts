import { verifyRun, verifyThread } from '../../model/check-rows.ts'
import { type Place, payloadChecksum, verifyChecksum, verifyRecord } from '../../model/checksum.ts'
import type { EventType, LogRecord } from '../../model/event.ts'
import { type Operation, type OperationKind, type OperationStatus, readKind } from '../../model/operation.ts'
import type { Payload } from '../../model/payload.ts'
import type { Run } from '../../model/run.ts'
import type { Message, Snapshot, Thread } from '../../store/store.ts'
import { workerOf } from './holder.ts'

/** Rows as the tables keep them, and the nouns they stand for. A noun leaves here only after its checksum was verified. */

export interface ThreadRow {
  readonly id: number
  readonly owner: string
  readonly thread_id: string
  readonly head_seq: number
  readonly head_record: number | null
  readonly written_seq: number
  readonly patch_seq: number
  readonly patch_checksum: number
  readonly state_version: number
  readonly incarnation: number
  readonly base_seq: number
  readonly epoch_floor: number
  readonly created_at: number
  readonly deleted_at: number | null
}

export interface RunRow {
  readonly id: number
  readonly owner: string
  readonly run_id: string
  readonly thread: number
  readonly workflow: string
  readonly version: number
  readonly status: Run['status']
  readonly reason: Run['reason']
  readonly queue: string
  readonly priority: number
  readonly fingerprint: string
  readonly epoch: number
  readonly lease_id: string | null
  readonly lease_until: number | null
  readonly lease_holder: number | null
  readonly due_at: number | null
  readonly claim_at: number | null
  readonly ready: number
  readonly wait_key: string | null
  readonly claims_without_progress: number
  readonly current_step: string | null
  readonly input_seq: number
  readonly input_id: number
  readonly tape_seq: number | null
  readonly end_seq: number | null
  readonly created_at: number
  readonly started_at: number | null
  readonly finished_at: number | null
  readonly unread_message: number
}

export interface LogRow {
  readonly id: number
  readonly thread: number
  readonly seq: number
  readonly run: number | null
  readonly type: EventType
  readonly step: string | null
  readonly count: number | null
  readonly attempt: number | null
  readonly at: number
  readonly duration_ms: number | null
  readonly payload: string | Uint8Array | null
  readonly patch: string | Uint8Array | null
  readonly checkpoint_bytes: number | null
  readonly checksum: number
}

/** What a read without contents brings. */
export type BareLogRow = Omit<LogRow, 'payload' | 'patch'> & { readonly has_patch: number }

/** The same with contents, where they were asked for. */
export type SomeLogRow = LogRow & { readonly has_patch: number }

export interface SnapshotRow {
  readonly seq: number
  readonly state: string | Uint8Array
  readonly state_version: number
  readonly checksum: number
}

export interface OperationRow {
  readonly id: number
  readonly owner: string
  readonly key: string
  readonly kind: OperationKind
  readonly name: string
  readonly run_id: string
  readonly thread_id: string
  readonly status: OperationStatus
  readonly result: string | Uint8Array | null
  readonly evidence: string | Uint8Array | null
  readonly resolved_by: string | null
  readonly intended_at: number
  readonly closed_at: number | null
  readonly checksum: number
}

export interface MessageRow {
  readonly id: number
  readonly kind: string
  readonly name: string | null
  readonly payload: string | Uint8Array | null
  readonly at: number
  readonly checksum: number
}

const runColumns = [
  ...['id', 'owner', 'run_id', 'thread', 'workflow', 'version', 'status', 'reason', 'queue', 'priority', 'fingerprint', 'epoch'],
  ...[
    'lease_id',
    'lease_until',
    'lease_holder',
    'due_at',
    'claim_at',
    'ready',
    'wait_key',
    'claims_without_progress',
    'current_step',
  ],
  ...['input_seq', 'input_id', 'tape_seq', 'end_seq', 'created_at', 'started_at', 'finished_at', 'unread_message'],
] as const

/** Selects a run as `toRun` needs it: its row, its thread's id and its holder's name. */
export const selectRun = `
  SELECT ${runColumns.map((column) => `r.${column}`).join(', ')}, t.thread_id AS thread_id, h.holder AS holder
  FROM holdfast_runs r JOIN holdfast_threads t ON t.id = r.thread LEFT JOIN holdfast_holders h ON h.id = r.lease_holder`

export type NamedRunRow = RunRow & { readonly thread_id: string; readonly holder: string | null }

export function toRun(row: NamedRunRow): Run {
  return verifyRun({
    owner: row.owner,
    id: row.run_id,
    threadId: row.thread_id,
    workflow: row.workflow,
    version: row.version,
    status: row.status,
    reason: row.reason,
    queue: row.queue,
    priority: row.priority,
    fingerprint: row.fingerprint,
    epoch: row.epoch,
    leaseId: row.lease_id,
    leaseUntil: row.lease_until,
    leaseHolder: workerOf(row.holder),
    dueAt: row.due_at,
    claimsWithoutProgress: row.claims_without_progress,
    currentStep: row.current_step,
    inputSeq: row.input_seq,
    tapeSeq: row.tape_seq,
    endSeq: row.end_seq,
    createdAt: row.created_at,
    startedAt: row.started_at,
    finishedAt: row.finished_at,
  })
}

export function toThread(row: ThreadRow): Thread {
  return verifyThread({
    owner: row.owner,
    threadId: row.thread_id,
    headSeq: row.head_seq,
    writtenSeq: row.written_seq,
    patchSeq: row.patch_seq,
    patchChecksum: row.patch_checksum,
    stateVersion: row.state_version,
    incarnation: row.incarnation,
    baseSeq: row.base_seq,
    createdAt: row.created_at,
    deletedAt: row.deleted_at,
  })
}

/** Whether a position is in the log of this life. */
export function isInLog(thread: ThreadRow, seq: number): boolean {
  return thread.deleted_at === null && Number.isInteger(seq) && seq > thread.base_seq && seq <= thread.head_seq
}

function placeOf(thread: Pick<ThreadRow, 'owner' | 'thread_id'>): Place {
  return { owner: thread.owner, threadId: thread.thread_id }
}

export function toRecord(
  row: Omit<LogRow, 'id' | 'thread' | 'run'>,
  thread: Pick<ThreadRow, 'owner' | 'thread_id'>,
  runId: string | null,
): LogRecord {
  const record: LogRecord = {
    seq: row.seq,
    runId,
    type: row.type,
    step: row.step,
    count: row.count ?? 0,
    attempt: row.attempt ?? 0,
    at: row.at,
    durationMs: row.duration_ms,
    payload: toPayload(row.payload),
    patch: toPayload(row.patch),
    isCheckpoint: row.checkpoint_bytes !== null,
  }
  verifyRecord(row.checksum, placeOf(thread), record)
  return record
}

export function toBareRecord(row: BareLogRow, thread: Pick<ThreadRow, 'owner' | 'thread_id'>, runId: string | null): LogRecord {
  const record: LogRecord = {
    seq: row.seq,
    runId,
    type: row.type,
    step: row.step,
    count: row.count ?? 0,
    attempt: row.attempt ?? 0,
    at: row.at,
    durationMs: row.duration_ms,
    payload: null,
    patch: null,
    isCheckpoint: row.checkpoint_bytes !== null,
  }
  verifyRecord(row.checksum, placeOf(thread), record, true)
  return record
}

export function toSnapshot(row: SnapshotRow, thread: ThreadRow): Snapshot {
  const snapshot = { seq: row.seq, state: toPayload(row.state), stateVersion: row.state_version }
  verifyChecksum(row.checksum, snapshotChecksum(placeOf(thread), snapshot), `The snapshot of ${thread.thread_id}@${row.seq}`)
  return snapshot
}

export function snapshotChecksum({ owner, threadId }: Place, { seq, stateVersion, state }: Snapshot): number {
  return payloadChecksum(['snapshot', owner, threadId, seq, stateVersion], state)
}

export function toOperation(row: OperationRow): Operation {
  const operation: Operation = {
    owner: row.owner,
    key: row.key,
    kind: row.kind,
    name: row.name,
    runId: row.run_id,
    threadId: row.thread_id,
    status: row.status,
    result: toPayload(row.result),
    evidence: toPayload(row.evidence),
    resolvedBy: row.resolved_by,
    intendedAt: row.intended_at,
    closedAt: row.closed_at,
  }
  verifyChecksum(row.checksum, operationChecksum(operation), `Operation ${JSON.stringify(row.key)}`)
  return { ...operation, ...readKind(row.kind, row.name) }
}

export function operationChecksum(operation: Operation): number {
  const { owner, key, name, runId, threadId, status, resolvedBy, intendedAt, closedAt } = operation
  const account = [owner, key, name, runId, threadId, status, resolvedBy, intendedAt, closedAt]
  return payloadChecksum(['operation', ...account, payloadChecksum([], operation.evidence)], operation.result)
}

export function toMessage(row: MessageRow, key: { readonly owner: string; readonly runId: string }): Message {
  const message: Message = { ...key, id: row.id, kind: row.kind, name: row.name, payload: toPayload(row.payload), at: row.at }
  verifyChecksum(row.checksum, messageChecksum(message), `Message ${row.id} to run ${key.runId}`)
  return message
}

/** Without the message's id, which is assigned while it is written. */
export function messageChecksum({ owner, runId, kind, name, at, payload }: Omit<Message, 'id'>): number {
  return payloadChecksum(['message', owner, runId, kind, name, at], payload)
}

/**
 * Bytes as a plain Uint8Array, on every store. Empty ones are made anew: those that SQLite of Node 22 returns have no memory behind them, so it
 * would store them as NULL, and crc32 would begin again at 0.
 */
export function toPayload(value: string | Uint8Array): Payload
export function toPayload(value: string | Uint8Array | null): Payload | null
export function toPayload(value: string | Uint8Array | null): Payload | null {
  if (value === null || typeof value === 'string') return value
  return value.byteLength === 0 ? new Uint8Array(0) : new Uint8Array(value.buffer, value.byteOffset, value.byteLength)
}
