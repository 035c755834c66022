import { verifyRun, verifyThread } from '../../model/check-rows.ts'
import { type Place, payloadChecksum, sealChecksum, verifyChecksum, verifyRecord } from '../../model/checksum.ts'
import type { EventType, LogRecord } from '../../model/event.ts'
import { type Operation, type OperationStatus, readKind } from '../../model/operation.ts'
import type { Payload } from '../../model/payload.ts'
import type { Run } from '../../model/run.ts'
import type { Message, Snapshot, Thread } from '../../store/store.ts'

/**
 * Rows as the server sends them, and the nouns they stand for. A noun leaves here only after its checksum was verified.
 *
 * Positions and times are given out inside the statement, so a checksum is made of the rest by the client and sealed with
 * them by the server.
 */

/** A row in text form, column by column. */
export type Row = readonly (string | null)[]

export const runColumns = [
  ...[
    'id',
    'thread',
    'owner',
    'run_id',
    'workflow',
    'version',
    'status',
    'reason',
    'queue',
    'priority',
    'fingerprint',
    'epoch',
    'lease_id',
  ],
  ...[
    'wake_at',
    'lease_holder',
    'due_at',
    'claims_without_progress',
    'current_step',
    'input_seq',
    'tape_seq',
    'end_seq',
    'created_at',
  ],
  ...['started_at', 'finished_at'],
] as const

export const textRunColumns: ReadonlySet<string> = new Set([
  ...['owner', 'run_id', 'workflow', 'status', 'reason', 'queue', 'fingerprint', 'lease_id', 'lease_holder', 'current_step'],
])

/** Columns of a run as `toRun` reads them: its own, then its thread's id. */
export const selectRunColumns = `${runColumns.map((column) => `r.${column}`).join(', ')}, t.thread_id`
export const runColumnCount = runColumns.length + 1

export function toRun(row: Row, at = 0): Run {
  const text = (index: number) => row[at + index] as string
  const status = text(6) as Run['status']
  return verifyRun({
    owner: text(2),
    id: text(3),
    threadId: text(24),
    workflow: text(4),
    version: Number(row[at + 5]),
    status,
    reason: (row[at + 7] ?? null) as Run['reason'],
    queue: text(8),
    priority: Number(row[at + 9]),
    fingerprint: text(10),
    epoch: Number(row[at + 11]),
    leaseId: row[at + 12] ?? null,
    leaseUntil: status === 'running' ? toNumber(row[at + 13]) : null,
    leaseHolder: row[at + 14] ?? null,
    dueAt: toNumber(row[at + 15]),
    claimsWithoutProgress: Number(row[at + 16]),
    currentStep: row[at + 17] ?? null,
    inputSeq: Number(row[at + 18]),
    tapeSeq: toNumber(row[at + 19]),
    endSeq: toNumber(row[at + 20]),
    createdAt: Number(row[at + 21]),
    startedAt: toNumber(row[at + 22]),
    finishedAt: toNumber(row[at + 23]),
  })
}

/** A run inside an answer in JSON, by the names of its columns. */
export function runOfJson(json: Record<string, string | number | boolean | null>): Run {
  const row = [...runColumns, 'thread_id'].map((column) => json[column] ?? null)
  return toRun(row.map((value) => (value === null ? null : String(value))))
}

const threadColumns = [
  ...['owner', 'thread_id', 'head_seq', 'state_version', 'incarnation', 'base_seq', 'created_at', 'deleted_at'],
  ...['written_seq', 'patch_seq', 'patch_checksum'],
]
export const selectThreadColumns = threadColumns.map((column) => `t.${column}`).join(', ')
export const threadColumnCount = threadColumns.length

export function toThread(row: Row, at = 0): Thread {
  return verifyThread({
    owner: row[at] as string,
    threadId: row[at + 1] as string,
    headSeq: Number(row[at + 2]),
    writtenSeq: Number(row[at + 8]),
    patchSeq: Number(row[at + 9]),
    patchChecksum: Number(row[at + 10]),
    stateVersion: Number(row[at + 3]),
    incarnation: Number(row[at + 4]),
    baseSeq: Number(row[at + 5]),
    createdAt: Number(row[at + 6]),
    deletedAt: toNumber(row[at + 7]),
  })
}

const bareColumns = 'l.seq, l.at, l.duration_ms, l.checkpoint_bytes, l.count, l.attempt, l.type, l.step'
export const selectRecordColumns = `${bareColumns}, l.checksum, l.payload, l.payload_bytes, l.patch, l.patch_bytes`
/** As `selectRecordColumns`, with contents only of records for which `wanted` holds; then whether it does, and whether there is a patch. */
export function bareRecordColumns(wanted: string): string {
  const contents = ['payload', 'payload_bytes', 'patch', 'patch_bytes'].map(
    (column) => `CASE WHEN ${wanted} THEN l.${column} END`,
  )
  const hasPatch = '(l.patch IS NOT NULL OR l.patch_bytes IS NOT NULL)'
  return [bareColumns, 'l.checksum', ...contents, `(${wanted})::text`, `${hasPatch}::text`].join(', ')
}

export function toRecord(row: Row, place: Place, runId: string | null, at = 0): LogRecord {
  const record: LogRecord = { ...headOf(row, runId, at), payload: toPayload(row, at + 9), patch: toPayload(row, at + 11) }
  verifyRecord(Number(row[at + 8]), place, record)
  return record
}

/** A record with its contents where `bareRecordColumns` brought them. */
export function toBareRecord(
  row: Row,
  place: Place,
  runId: string | null,
  at: number,
): { readonly record: LogRecord; readonly hasPatch: boolean } {
  const isWhole = row[at + 13] === 'true'
  const record = isWhole ? toRecord(row, place, runId, at) : headOf(row, runId, at)
  if (!isWhole) verifyRecord(Number(row[at + 8]), place, record, true)
  return { record, hasPatch: row[at + 14] === 'true' }
}

function headOf(row: Row, runId: string | null, at: number): LogRecord {
  return {
    seq: Number(row[at]),
    runId,
    type: row[at + 6] as EventType,
    step: row[at + 7] ?? null,
    count: Number(row[at + 4]),
    attempt: Number(row[at + 5]),
    at: Number(row[at + 1]),
    durationMs: toNumber(row[at + 2]),
    payload: null,
    patch: null,
    isCheckpoint: row[at + 3] !== null,
  }
}

export const selectSnapshotColumns = 's.seq, s.state_version, s.checksum, s.state, s.state_bytes'

export function toSnapshot(row: Row, place: Place, at = 0): Snapshot {
  const snapshot: Snapshot = { seq: Number(row[at]), stateVersion: Number(row[at + 1]), state: toPayload(row, at + 3) as Payload }
  verifyChecksum(Number(row[at + 2]), sealSnapshot(place, snapshot), `The snapshot of ${place.threadId}@${snapshot.seq}`)
  return snapshot
}

export function sealSnapshot(place: Place, { seq, state, stateVersion }: Snapshot): number {
  return sealChecksum(newSnapshotChecksum(place, state), seq + (Math.imul(stateVersion, 2_246_822_519) >>> 0))
}

/** Before it has a position and a state version. */
export function newSnapshotChecksum({ owner, threadId }: Place, state: Payload): number {
  return payloadChecksum(['snapshot', owner, threadId], state)
}

/** An operation as to_jsonb shows its row: bytes are in hex. */
export function toOperation(json: Readonly<Record<string, string | number | null>>): Operation {
  const text = (column: string) => json[column] as string
  const operation: Operation = {
    owner: text('owner'),
    key: text('key'),
    ...readKind(text('kind'), text('name')),
    runId: text('run_id'),
    threadId: text('thread_id'),
    status: text('status') as OperationStatus,
    result: toPayload([json['result'] as string | null, json['result_bytes'] as string | null], 0),
    evidence: toPayload([json['evidence'] as string | null, json['evidence_bytes'] as string | null], 0),
    resolvedBy: (json['resolved_by'] ?? null) as string | null,
    intendedAt: Number(json['intended_at']),
    closedAt: json['closed_at'] === null || json['closed_at'] === undefined ? null : Number(json['closed_at']),
  }
  const { owner, key, result, evidence } = operation
  const what = `Operation ${JSON.stringify(key)}`
  verifyChecksum(Number(json['result_checksum']), operationChecksum({ owner, key }, 'result', result), what)
  verifyChecksum(Number(json['evidence_checksum']), operationChecksum({ owner, key }, 'evidence', evidence), what)
  return operation
}

/** 0 where there is nothing to be damaged. */
export function operationChecksum(
  at: { readonly owner: string; readonly key: string },
  what: 'result' | 'evidence',
  payload: Payload | null,
): number {
  return payload === null ? 0 : payloadChecksum(['operation', at.owner, at.key, what], payload)
}

export const selectMessageColumns = 'm.id, m.at, m.checksum, m.kind, m.name, m.payload, m.payload_bytes'

export function toMessage(row: Row, key: { readonly owner: string; readonly runId: string }): Message {
  const message: Message = {
    ...key,
    id: Number(row[0]),
    kind: row[3] as string,
    name: row[4] ?? null,
    payload: toPayload(row, 5),
    at: Number(row[1]),
  }
  verifyChecksum(
    Number(row[2]),
    sealChecksum(newMessageChecksum(message), message.at),
    `Message ${message.id} to run ${key.runId}`,
  )
  return message
}

export function newMessageChecksum({ owner, runId, kind, name, payload }: Omit<Message, 'id' | 'at'>): number {
  return payloadChecksum(['message', owner, runId, kind, name], payload)
}

/** Two columns, of which one is null: text, and bytes in hex. Bytes are a plain Uint8Array, on every store. */
export function toPayload(row: Row, at: number): Payload | null {
  const text = row[at] ?? null
  if (text !== null) return text
  const bytes = row[at + 1] ?? null
  return bytes === null
    ? null
    : new Uint8Array(bytes.startsWith('\\x') ? Buffer.from(bytes.slice(2), 'hex') : unescapeBytes(bytes))
}

/** The older form, of a session that was told bytea_output = escape. */
function unescapeBytes(text: string): Buffer {
  return Buffer.from(
    text.replaceAll(/\\(\\|[0-7]{3})/g, (_, code: string) =>
      code === '\\' ? code : String.fromCharCode(Number.parseInt(code, 8)),
    ),
    'latin1',
  )
}

/** The two columns for a payload. */
export function textOf(payload: Payload | null): string | null {
  return typeof payload === 'string' ? payload : null
}

export function bytesOf(payload: Payload | null): Uint8Array | null {
  return payload === null || typeof payload === 'string' ? null : payload
}

/** Bytes as JSON can carry them to the server. */
export function hexOf(payload: string | Uint8Array | null): string | null {
  const bytes = bytesOf(payload)
  return bytes === null ? null : `\\x${Buffer.from(bytes).toString('hex')}`
}

export function byteLengthOf(payload: Payload | null): number {
  return payload === null ? 0 : typeof payload === 'string' ? Buffer.byteLength(payload) : payload.byteLength
}

export function toNumber(text: string | null | undefined): number | null {
  return text === null || text === undefined ? null : Number(text)
}
