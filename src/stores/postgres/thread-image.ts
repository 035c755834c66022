import { sealChecksum, storedChecksum } from '../../model/checksum.ts'
import { isTerminal, type Run } from '../../model/run.ts'
import { pageOf, readCursor } from '../../store/page.ts'
import type { ScanQuery, Store, Thread, ThreadKey } from '../../store/store.ts'
import type { RunImage, ThreadImage, WholeThread } from '../../store/thread-image.ts'
import { chunkRows, insertChunksSql, streamsOfThreadSql } from './chunks.ts'
import type { PgClientLike } from './driver.ts'
import { isConnectionLost, serverCodeOf, toHoldfastError } from './errors.ts'
import { atLeastZero } from './integers.ts'
import { insertRecordsSql, makeRoomSql, recordRows } from './records.ts'
import {
  byteLengthOf,
  hexOf,
  newMessageChecksum,
  operationChecksum,
  runOfJson,
  sealSnapshot,
  selectThreadColumns,
  textOf,
  threadColumnCount,
  toMessage,
  toOperation,
  toThread,
} from './rows.ts'
import type { StoreParts } from './store-parts.ts'
import type { Writer } from './writes.ts'

type Json = Readonly<Record<string, string | number | boolean | null>>

/** Reads what moves to another store: one statement each, so each sees one state of the tables. */
export function prepareImages({ connections, prepare }: StoreParts) {
  const scan = prepare(`SELECT t.id, ${selectThreadColumns} FROM holdfast.threads t WHERE t.id > $1 ORDER BY t.id LIMIT $2`)
  const image = prepare(imageSql)

  return {
    async scanThreads({ limit: asked, cursor }: ScanQuery): Promise<{ items: Thread[]; cursor?: string }> {
      const limit = atLeastZero(asked)
      const rows = await connections.read(scan, [readCursor(cursor), limit + 1])
      return pageOf(rows, limit, { numberOf: (row) => Number(row[0]), toItem: (row) => toThread(row, 1) })
    },

    async readThreadImage({ owner, threadId }: ThreadKey): Promise<ThreadImage | null> {
      const [row] = await connections.read(image, [owner, threadId])
      if (row === undefined) return null
      const [epochFloor, runs, messages, operations, delivered, lengths] = row.slice(threadColumnCount) as string[]
      const streams = JSON.parse(lengths as string) as [number, string, number][]
      const inbox = JSON.parse(messages as string) as (string | number | null)[][]
      const deliveredIds = JSON.parse(delivered as string) as [number, string][]
      return {
        thread: toThread(row),
        epochFloor: Number(epochFloor),
        runs: (JSON.parse(runs as string) as Json[]).map((run) => toRunImage(run, { threadId, inbox, deliveredIds, streams })),
        operations: (JSON.parse(operations as string) as Record<string, string | number | null>[]).map(toOperation),
      }
    },
  }
}

const imageSql = `
  SELECT ${selectThreadColumns}, t.epoch_floor,
    (SELECT coalesce(json_agg(r ORDER BY r.id), '[]') FROM holdfast.runs r WHERE r.thread = t.id),
    (SELECT coalesce(json_agg(json_build_array(m.run, m.id, m.at, m.checksum, m.kind, m.name, m.payload, m.payload_bytes) ORDER BY m.id), '[]')
       FROM holdfast.runs r JOIN holdfast.inbox m ON m.run = r.id WHERE r.thread = t.id),
    (SELECT coalesce(json_agg(o ORDER BY o.key), '[]') FROM holdfast.operations o WHERE o.owner = t.owner AND o.thread_id = t.thread_id),
    (SELECT coalesce(json_agg(json_build_array(d.run, d.id) ORDER BY d.id), '[]') FROM holdfast.runs r JOIN holdfast.delivered d ON d.run = r.id WHERE r.thread = t.id),${streamsOfThreadSql}
  FROM holdfast.threads t WHERE t.owner = $1 AND t.thread_id = $2`

interface ImageParts {
  readonly threadId: string
  readonly inbox: readonly (string | number | null)[][]
  readonly deliveredIds: readonly [run: number, id: string][]
  readonly streams: readonly [run: number, stream: string, length: number][]
}

function toRunImage(json: Json, { threadId, inbox, deliveredIds, streams }: ImageParts): RunImage {
  const run = runOfJson({ ...json, thread_id: threadId })
  const messages = inbox.filter(([number]) => number === json['id'])
  return {
    run,
    waitKey: json['wait_key'] as string | null,
    inbox: messages.map(([, ...row]) =>
      toMessage(
        row.map((value) => (value === null ? null : String(value))),
        { owner: run.owner, runId: run.id },
      ),
    ),
    deliveredIds: deliveredIds.filter(([number]) => number === json['id']).map(([, id]) => id),
    streams: streams.filter(([number]) => number === json['id']).map(([, stream, length]) => ({ stream, length })),
  }
}

/** A run id or an operation key is taken. */
const uniqueViolation = '23505'

/** About how much of a log goes to the server at once. */
const partBytes = 8 * 1024 * 1024

/** Writes a thread as it was elsewhere, in one transaction of several statements: a long log goes in parts. */
export function prepareRestore({ connections, writes, watch, prepare, clock, isFull }: StoreParts): Store['restoreThread'] {
  const sql = {
    thread: prepare(insertThreadSql).text,
    runs: prepare(insertRunsSql).text,
    rest: prepare(insertRestSql).text,
    log: prepare(insertLogSql).text,
    chunks: prepare(insertChunksSql).text,
    room: prepare(makeRoomSql).text,
    records: prepare(insertRecordsSql).text,
    record: prepare('SELECT holdfast.fn_record($1, $2, $3)').text,
  }

  return async function restoreThread(whole) {
    if (!(await restore(whole))) return { ok: false, refusal: 'conflict' }
    const { owner, threadId } = whole.thread
    watch.tell([{ owner, threadId, isClaimable: true }])
    return { ok: true }
  }

  /** Whether it was written; false where something is in its place. */
  function restore(whole: WholeThread): Promise<boolean> {
    return writes.withWriter(async (writer) => {
      let lost: unknown
      try {
        const answer = await connections.withClient((client) => carryOut(client, whole, writer))
        if (typeof answer === 'boolean') return answer
        lost = answer.lost
      } catch (error) {
        if (serverCodeOf(error) === uniqueViolation) return false
        throw toHoldfastError(error, 'write')
      }
      if ((await writes.settle(writer, lost)) === null) throw toHoldfastError(lost, 'write')
      return true
    })
  }

  async function carryOut(client: PgClientLike, whole: WholeThread, writer: Writer): Promise<boolean | { lost: unknown }> {
    await client.query(`BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL synchronous_commit = ${isFull ? 'on' : 'off'}`)
    const { rows } = await client.query({ text: sql.thread, values: threadValues(whole) })
    const thread = (rows[0] as { id: string } | undefined)?.id
    if (thread === undefined) {
      await client.query('ROLLBACK')
      return false
    }
    await client.query({ text: sql.runs, values: [thread, JSON.stringify(runRows(whole))] })
    for (const part of parts(logRows(whole))) await client.query({ text: sql.log, values: [thread, `[${part.join(',')}]`] })
    for (const part of parts(chunkRows(whole))) await client.query({ text: sql.chunks, values: [thread, `[${part.join(',')}]`] })
    const { owner } = whole.thread
    for (const part of parts(recordRows(owner, whole.records))) {
      const rows = `[${part.join(',')}]`
      await client.query({ text: sql.room, values: [owner, rows, clock.offset()] })
      await client.query({ text: sql.records, values: [owner, rows] })
    }
    await client.query({ text: sql.rest, values: [thread, ...restValues(whole)] })
    await client.query({ text: sql.record, values: [writer.id, writer.batch, 'true'] })
    try {
      await client.query('COMMIT')
      return true
    } catch (error) {
      if (!isConnectionLost(error)) throw error
      return { lost: error }
    }
  }
}

const insertThreadSql = `
  INSERT INTO holdfast.threads (owner, thread_id, head_seq, base_seq, incarnation, state_version, epoch_floor, created_at, deleted_at, written_seq,
    patch_seq, patch_checksum)
  VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT DO NOTHING RETURNING id::text`

function threadValues({ thread, epochFloor }: WholeThread): unknown[] {
  const { owner, threadId, headSeq, baseSeq, incarnation, stateVersion, createdAt, deletedAt } = thread
  const { writtenSeq, patchSeq, patchChecksum } = thread
  return [
    ...[owner, threadId, headSeq, baseSeq, incarnation, stateVersion, epochFloor, createdAt, deletedAt],
    ...[writtenSeq, patchSeq, patchChecksum],
  ]
}

const runColumns = [
  ...['epoch bigint', 'wake_at bigint', 'due_at bigint', 'claims_without_progress bigint', 'input_seq bigint', 'tape_seq bigint'],
  ...['end_seq bigint', 'created_at bigint', 'started_at bigint', 'finished_at bigint', 'version bigint', 'priority bigint'],
  ...['last_message bigint', 'is_next boolean', 'status text', 'owner text', 'run_id text', 'workflow text', 'queue text'],
  ...['fingerprint text', 'reason text', 'current_step text', 'wait_key text'],
]
const names = (columns: readonly string[]) => columns.map((column) => column.split(' ')[0]).join(', ')

/** Numbers are given out in the order of the list, which is the order in which they are executed. */
const insertRunsSql = `
  INSERT INTO holdfast.runs (thread, ${names(runColumns)})
  SELECT $1, ${names(runColumns)} FROM json_to_recordset($2::json) AS x (number integer, ${runColumns.join(', ')}) ORDER BY number`

function runRows({ runs }: WholeThread): Json[] {
  const next = runs.findIndex(({ run }) => !isTerminal(run.status))
  return runs.map(({ run, waitKey }, number) => ({
    ...{
      number,
      epoch: run.epoch,
      wake_at: wakeAtOf(run),
      due_at: run.dueAt,
      claims_without_progress: run.claimsWithoutProgress,
    },
    ...{ input_seq: run.inputSeq, tape_seq: run.tapeSeq, end_seq: run.endSeq, created_at: run.createdAt },
    ...{ started_at: run.startedAt, finished_at: run.finishedAt, version: run.version, priority: run.priority },
    ...{ is_next: number === next, last_message: 0, status: run.status, owner: run.owner, run_id: run.id },
    ...{ workflow: run.workflow, queue: run.queue, fingerprint: run.fingerprint, reason: run.reason },
    ...{ current_step: run.currentStep, wait_key: waitKey },
  }))
}

function wakeAtOf({ status, dueAt }: Run): number | null {
  return status === 'pending' || status === 'waiting' ? dueAt : null
}

const logColumns = [
  ...['seq bigint', 'at double precision', 'duration_ms double precision', 'checksum bigint', 'checkpoint_bytes bigint'],
  ...['count integer', 'attempt integer', 'type text', 'step text', 'payload text', 'payload_bytes bytea'],
  ...['patch text', 'patch_bytes bytea'],
]

const insertLogSql = `
  INSERT INTO holdfast.log (thread, run, ${names(logColumns)})
  SELECT $1, r.id, ${logColumns.map((column) => `x.${column.split(' ')[0]}`).join(', ')}
  FROM json_to_recordset($2::json) AS x (run_id text, ${logColumns.join(', ')})
    LEFT JOIN holdfast.runs r ON r.thread = $1 AND r.run_id = x.run_id`

function* logRows({ thread, log, checkpoints }: WholeThread): Generator<string> {
  const bytesAt = new Map(checkpoints.map(({ seq, bytes }) => [seq, bytes]))
  for (const record of log) {
    const { seq, runId, type, step, count, attempt, at, durationMs, payload, patch, isCheckpoint } = record
    yield JSON.stringify({
      ...{ run_id: runId, seq, at, duration_ms: durationMs, count, attempt, type, step },
      checksum: sealChecksum(storedChecksum(thread, record), seq),
      checkpoint_bytes: isCheckpoint ? (bytesAt.get(seq) ?? byteLengthOf(payload) + byteLengthOf(patch)) : null,
      ...{ payload: textOf(payload), payload_bytes: hexOf(payload), patch: textOf(patch), patch_bytes: hexOf(patch) },
    })
  }
}

const messageColumns = [
  ...[
    'number integer',
    'run_id text',
    'at bigint',
    'checksum bigint',
    'kind text',
    'name text',
    'payload text',
    'payload_bytes bytea',
  ],
]
const snapshotColumns = ['seq bigint', 'state_version bigint', 'checksum bigint', 'state text', 'state_bytes bytea']
const operationColumns = [
  ...[
    'owner text',
    'key text',
    'kind text',
    'name text',
    'run_id text',
    'thread_id text',
    'status text',
    'result text',
    'result_bytes bytea',
  ],
  ...['result_checksum bigint', 'evidence text', 'evidence_bytes bytea', 'evidence_checksum bigint', 'resolved_by text'],
  ...['intended_at bigint', 'closed_at bigint'],
]

const insertRestSql = `
  WITH messages AS (
    INSERT INTO holdfast.inbox (run, at, checksum, kind, name, payload, payload_bytes)
    SELECT r.id, x.at, x.checksum, x.kind, x.name, x.payload, x.payload_bytes
    FROM json_to_recordset($2::json) AS x (${messageColumns.join(', ')}) JOIN holdfast.runs r ON r.thread = $1 AND r.run_id = x.run_id
    ORDER BY x.number RETURNING run, id
  ), last_messages AS (
    UPDATE holdfast.runs r SET last_message = m.id FROM (SELECT run, max(id) AS id FROM messages GROUP BY run) m WHERE r.id = m.run
  ), delivered AS (
    INSERT INTO holdfast.delivered (run, id) SELECT r.id, x.id FROM json_to_recordset($6::json) AS x (run_id text, id text)
      JOIN holdfast.runs r ON r.thread = $1 AND r.run_id = x.run_id
  ), labels AS (
    INSERT INTO holdfast.labels (thread, seq, label, run, created_at, owner) SELECT $1, x.seq, x.label, r.id, r.created_at, r.owner
      FROM json_to_recordset($3::json) AS x (seq bigint, label text) JOIN holdfast.log l ON l.thread = $1 AND l.seq = x.seq
        LEFT JOIN holdfast.runs r ON r.id = l.run
  ), snapshots AS (
    INSERT INTO holdfast.snapshots (thread, ${names(snapshotColumns)})
    SELECT $1, ${names(snapshotColumns)} FROM json_to_recordset($4::json) AS x (${snapshotColumns.join(', ')})
  )
  INSERT INTO holdfast.operations (run, ${names(operationColumns)})
  SELECT r.id, ${operationColumns.map((column) => `x.${column.split(' ')[0]}`).join(', ')}
  FROM json_to_recordset($5::json) AS x (${operationColumns.join(', ')}) LEFT JOIN holdfast.runs r ON r.thread = $1 AND r.run_id = x.run_id`

function restValues({ thread, runs, checkpoints, snapshots, operations }: WholeThread): string[] {
  const messages = runs.flatMap(({ inbox }) => inbox)
  const rows = [
    messages.map((message, number) => ({
      ...{ number, run_id: message.runId, at: message.at, kind: message.kind, name: message.name },
      checksum: sealChecksum(newMessageChecksum(message), message.at),
      ...{ payload: textOf(message.payload), payload_bytes: hexOf(message.payload) },
    })),
    checkpoints.filter(({ label }) => label !== null).map(({ seq, label }) => ({ seq, label })),
    snapshots.map((snapshot) => ({
      ...{ seq: snapshot.seq, state_version: snapshot.stateVersion, checksum: sealSnapshot(thread, snapshot) },
      ...{ state: textOf(snapshot.state), state_bytes: hexOf(snapshot.state) },
    })),
    operations.map((operation) => ({
      ...{ owner: operation.owner, key: operation.key, kind: operation.kind, name: operation.name, run_id: operation.runId },
      ...{ thread_id: operation.threadId, status: operation.status, resolved_by: operation.resolvedBy },
      ...{ result: textOf(operation.result), result_bytes: hexOf(operation.result) },
      result_checksum: operationChecksum(operation, 'result', operation.result),
      ...{ evidence: textOf(operation.evidence), evidence_bytes: hexOf(operation.evidence) },
      evidence_checksum: operationChecksum(operation, 'evidence', operation.evidence),
      ...{ intended_at: operation.intendedAt, closed_at: operation.closedAt },
    })),
    runs.flatMap(({ run, deliveredIds }) => deliveredIds.map((id) => ({ run_id: run.id, id }))),
  ]
  return rows.map((list) => JSON.stringify(list))
}

function* parts(rows: Iterable<string>): Generator<string[]> {
  let part: string[] = []
  let length = 0
  for (const row of rows) {
    part.push(row)
    length += row.length
    if (length < partBytes) continue
    yield part
    part = []
    length = 0
  }
  if (part.length > 0) yield part
}
