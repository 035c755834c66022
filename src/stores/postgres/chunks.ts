import type { RunStatus } from '../../model/run.ts'
import {
  type ChunkRecord,
  chunksChecksum,
  droppedChunks,
  newChunksChecksum,
  verifyChunks,
  verifyGapless,
} from '../../model/stream.ts'
import type { Change } from '../../store/change.ts'
import type { ChunkQuery, KeptStream, Store, StreamQuery } from '../../store/store.ts'
import type { RunChunks, WholeThread } from '../../store/thread-image.ts'
import type { ExtraPayloads } from './extra-payloads.ts'
import { atLeastZero, count32, position, whole } from './integers.ts'
import { hexOf, type Row, textOf, toPayload } from './rows.ts'
import type { LeasedGroup } from './sort-changes.ts'
import { durableSql, planSql, sealSql } from './sql.ts'
import type { StoreParts } from './store-parts.ts'

/** Appends the chunks of a change, as `chunksJson` has them, under the lock of the run. */
export const appendChunksFunction = `
CREATE OR REPLACE FUNCTION holdfast.fn_append_chunks(p_run bigint, p_chunks jsonb, extra_payload text[], extra_payload_bytes bytea[]) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  k record; v_next bigint;
BEGIN
  FOR k IN SELECT * FROM jsonb_to_recordset(p_chunks)
      AS x(stream text, size bigint, tape bigint, step text, count int, attempt int, crc bigint, payload int) LOOP
    SELECT c.first + c.size INTO v_next FROM holdfast.chunks c WHERE c.run = p_run AND c.stream = k.stream ORDER BY c.first DESC LIMIT 1;
    v_next := coalesce(v_next, 0);
    INSERT INTO holdfast.chunks (run, stream, first, size, checksum, tape, step, count, attempt, payload, payload_bytes)
      VALUES (p_run, k.stream, v_next, k.size, ${sealSql('k.crc', { seq: 'v_next' })}, k.tape, k.step, k.count, k.attempt,
        extra_payload[k.payload], extra_payload_bytes[k.payload]);
  END LOOP;
END $$;
`

/** Under the lock of the thread no run of it begins again: what has ended stays as it is. */
export const dropChunksFunction = `
CREATE OR REPLACE FUNCTION holdfast.fn_drop_chunks(p_writer bigint, p_batch bigint, p_sync boolean, p_owner text, p_thread text, p_marks jsonb) RETURNS text
LANGUAGE plpgsql VOLATILE ${planSql} AS $$
DECLARE
  v_thread bigint; v_run bigint; v_count bigint := 0; k record;
BEGIN
  ${durableSql}
  SELECT t.id INTO v_thread FROM holdfast.threads t WHERE t.owner = p_owner AND t.thread_id = p_thread FOR NO KEY UPDATE;
  FOR k IN SELECT * FROM jsonb_to_recordset(p_marks) AS x(run_id text, stream text, size bigint, checksum bigint) LOOP
    SELECT r.id INTO v_run FROM holdfast.runs r WHERE r.owner = p_owner AND r.run_id = k.run_id AND r.thread = v_thread AND r.finished_at IS NOT NULL;
    CONTINUE WHEN v_run IS NULL;
    CONTINUE WHEN k.size IS DISTINCT FROM (SELECT c.first + c.size FROM holdfast.chunks c WHERE c.run = v_run AND c.stream = k.stream ORDER BY c.first DESC LIMIT 1);
    CONTINUE WHEN NOT EXISTS (SELECT 1 FROM holdfast.chunks c WHERE c.run = v_run AND c.stream = k.stream AND c.tape > 0);
    DELETE FROM holdfast.chunks c WHERE c.run = v_run AND c.stream = k.stream;
    INSERT INTO holdfast.chunks (run, stream, first, size, checksum, tape, count, attempt) VALUES (v_run, k.stream, 0, k.size, k.checksum, 0, 0, 0);
    v_count := v_count + 1;
  END LOOP;
  PERFORM holdfast.fn_record(p_writer, p_batch, v_count::text);
  RETURN v_count::text;
END $$;
`

export function prepareDropChunks({ writes, prepare, isFull }: StoreParts): Store['dropChunks'] {
  const statement = prepare('SELECT holdfast.fn_drop_chunks($1, $2, $3, $4, $5, $6)')
  return async ({ owner, threadId, streams }) => {
    if (streams.length === 0) return 0
    const marks = streams.map(({ runId, stream, length }) => {
      const checksum = chunksChecksum({ owner, runId }, droppedChunks(stream, length))
      return { run_id: runId, stream, size: whole(length, 'length of a stream'), checksum }
    })
    return Number(await writes.call(statement, [isFull, owner, threadId, JSON.stringify(marks)]))
  }
}

/** `runs` says which runs of thread `t` are looked at. */
const keptSql = (runs: string) => `
  SELECT r.run_id, c.stream, c.length, r.workflow, r.status, r.finished_at FROM holdfast.threads t
  CROSS JOIN LATERAL (SELECT * FROM holdfast.runs r WHERE ${runs} r.thread = t.id AND r.finished_at < $3) r
  CROSS JOIN LATERAL (
    SELECT c.stream, max(c.first + c.size) AS length FROM holdfast.chunks c WHERE c.run = r.id GROUP BY c.stream HAVING max(c.tape) > 0) c
  WHERE t.owner = $1 AND t.thread_id = $2 ORDER BY r.id, c.stream LIMIT $4`

export function prepareListStreams({ connections, prepare }: StoreParts) {
  const ofThread = prepare(keptSql(''))
  const ofRuns = prepare(keptSql('r.owner = $1 AND r.run_id = ANY ($5::text[]) AND'))
  return async ({ owner, threadId, runIds, endedBefore, limit }: StreamQuery): Promise<readonly KeptStream[]> => {
    const values = [owner, threadId, position(endedBefore ?? Number.MAX_SAFE_INTEGER), atLeastZero(limit)]
    const rows = await (runIds === undefined ? connections.read(ofThread, values) : connections.read(ofRuns, [...values, runIds]))
    return rows.map(([runId, stream, length, workflow, status, finishedAt]) => ({
      ...{ runId: runId as string, stream: stream as string, length: Number(length) },
      ...{ workflow: workflow as string, status: status as RunStatus, finishedAt: Number(finishedAt) },
    }))
  }
}

/** For fn_append_chunks. */
export function chunksJson({ owner, runId, chunks = [] }: Change, extras: ExtraPayloads): object[] {
  return chunks.map((one) => {
    const { stream, size, tape, step, count, attempt, payload } = one
    const crc = newChunksChecksum({ owner, runId: runId ?? '' }, one)
    return {
      ...{ stream, size: whole(size, 'number of chunks'), tape: whole(tape, 'tape'), step, crc },
      ...{ count: count32(count), attempt: count32(attempt), payload: payload === null ? null : extras.add(payload, crc) },
    }
  })
}

/** Chunks of leased changes, by slot; null where there are none. */
export function encodeLeasedChunks(
  changes: readonly Change[],
  groups: readonly LeasedGroup[],
  extras: ExtraPayloads,
): string | null {
  const leased = groups.flatMap(({ indexes }, at) => {
    const chunks = indexes.flatMap((index) => chunksJson(changes[index] as Change, extras))
    return chunks.length === 0 ? [] : [{ slot: at + 1, chunks }]
  })
  return leased.length === 0 ? null : JSON.stringify(leased)
}

const columns = 'c.stream, c.first, c.size, c.tape, c.step, c.count, c.attempt, c.checksum, c.payload, c.payload_bytes'

/** The record that holds the offset is the last that begins at or before it. */
const pageSql = `
  SELECT ${columns} FROM holdfast.runs r
  CROSS JOIN LATERAL (SELECT coalesce(max(b.first), 0) AS first FROM holdfast.chunks b WHERE b.run = r.id AND b.stream = $3 AND b.first <= $4) f
  CROSS JOIN LATERAL (SELECT * FROM holdfast.chunks c WHERE c.run = r.id AND c.stream = $3 AND c.first >= f.first ORDER BY c.first LIMIT $5) c
  WHERE r.owner = $1 AND r.run_id = $2 ORDER BY c.first`

const voidSql = `
  SELECT ${columns} FROM holdfast.runs r CROSS JOIN LATERAL (
    SELECT * FROM holdfast.chunks c WHERE c.run = r.id AND c.stream = $3 AND c.first >= $4 AND c.payload IS NULL AND c.payload_bytes IS NULL
    ORDER BY c.first LIMIT $5) c
  WHERE r.owner = $1 AND r.run_id = $2 ORDER BY c.first`

export function prepareReadChunks({ connections, prepare }: StoreParts) {
  const [page, voids] = [prepare(pageSql), prepare(voidSql)]

  return async function readChunks(query: ChunkQuery): Promise<readonly ChunkRecord[]> {
    const { owner, runId, stream, from, limit, abortsOnly } = query
    const values = [owner, runId, stream, position(from), atLeastZero(limit)]
    const rows = await connections.read(abortsOnly === true ? voids : page, values)
    const records = rows.map((row) => toChunks(row, query)).filter(({ offset, size }) => offset + size > from)
    return abortsOnly === true ? records : verifyGapless(query, records, from)
  }
}

function toChunks(row: Row, { owner, runId }: ChunkQuery): ChunkRecord {
  const [stream, first, size, tape, step, count, attempt, checksum] = row
  const record: ChunkRecord = {
    ...{ stream: stream as string, offset: Number(first), size: Number(size), tape: Number(tape), step: step ?? null },
    ...{ count: Number(count), attempt: Number(attempt), payload: toPayload(row, 8) },
  }
  return verifyChunks({ owner, runId }, record, Number(checksum))
}

/** Part of the image of a thread `t`: run, stream and length of each. */
export const streamsOfThreadSql = `
  (SELECT coalesce(json_agg(json_build_array(c.run, c.stream, c.length) ORDER BY c.run, c.stream), '[]') FROM (
     SELECT c.run, c.stream, max(c.first + c.size) AS length FROM holdfast.runs r JOIN holdfast.chunks c ON c.run = r.id
     WHERE r.thread = t.id GROUP BY c.run, c.stream) c)`

const restored = [
  ...['stream text', 'first bigint', 'size bigint', 'checksum bigint', 'tape bigint', 'step text', 'count integer'],
  ...['attempt integer', 'payload text', 'payload_bytes bytea'],
]
const names = restored.map((column) => column.split(' ')[0] as string)

export const insertChunksSql = `
  INSERT INTO holdfast.chunks (run, ${names.join(', ')})
  SELECT r.id, ${names.map((name) => `x.${name}`).join(', ')}
  FROM json_to_recordset($2::json) AS x (run_id text, ${restored.join(', ')}) JOIN holdfast.runs r ON r.thread = $1 AND r.run_id = x.run_id`

export function* chunkRows({ thread: { owner }, chunks }: WholeThread): Generator<string> {
  for (const record of chunks) yield JSON.stringify(chunkRow(owner, record))
}

function chunkRow(owner: string, record: RunChunks): object {
  const { runId, stream, offset, size, tape, step, count, attempt, payload } = record
  const checksum = chunksChecksum({ owner, runId }, record)
  return {
    ...{ run_id: runId, stream, first: offset, size, checksum, tape, step, count, attempt },
    ...{ payload: textOf(payload), payload_bytes: hexOf(payload) },
  }
}
