import { pageOf, readCursor } from '../../store/page.ts'
import type { CheckpointQuery, CheckpointRow, Snapshot, Store, Thread, ThreadKey, ThreadQuery } from '../../store/store.ts'
import { atLeastZero, position } from './integers.ts'
import { bareRecordColumns, selectSnapshotColumns, selectThreadColumns, toBareRecord, toSnapshot, toThread } from './rows.ts'
import type { StatementReader } from './statement-reader.ts'
import type { StoreParts } from './store-parts.ts'

/** Threads with their snapshots and checkpoints. */
export function prepareThreadReads(reader: StatementReader) {
  return {
    async readThread({ owner, threadId }: ThreadKey): Promise<Thread | null> {
      const [row] = await reader.read(threadSql, [owner, threadId])
      return row === undefined ? null : toThread(row)
    },

    async listThreads({ owner, limit: asked, cursor }: ThreadQuery): Promise<{ items: Thread[]; cursor?: string }> {
      const limit = atLeastZero(asked)
      const rows = await reader.read(threadsSql, [owner, readCursor(cursor), limit + 1])
      return pageOf(rows, limit, { numberOf: (row) => Number(row[0]), toItem: (row) => toThread(row, 1) })
    },

    async readSnapshot({ owner, threadId, atSeq }: ThreadKey & { readonly atSeq: number }): Promise<Snapshot | null> {
      const [row] = await reader.read(snapshotSql, [owner, threadId, position(atSeq)])
      return row === undefined ? null : toSnapshot(row, { owner, threadId })
    },

    async listCheckpoints({ owner, threadId, afterSeq, limit, label }: CheckpointQuery): Promise<CheckpointRow[]> {
      const values = [owner, threadId, position(afterSeq ?? 0), limit === undefined ? null : atLeastZero(limit)]
      const rows = await reader.read(
        checkpointsSql({ isLabelled: label !== undefined }),
        label === undefined ? values : [...values, label],
      )
      return rows.map((row) => {
        const [runId = null, found = null] = row
        const { seq, at, step } = toBareRecord(row, { owner, threadId }, runId, 2).record
        return { seq, at, runId, step, label: found, bytes: Number(row[5]) }
      })
    },
  }
}

const threadSql = `SELECT ${selectThreadColumns} FROM holdfast.threads t WHERE t.owner = $1 AND t.thread_id = $2`

const threadsSql = `
  SELECT t.id, ${selectThreadColumns} FROM holdfast.threads t
  WHERE t.owner = $1 AND t.deleted_at IS NULL AND t.id > $2 ORDER BY t.id LIMIT $3`

const snapshotSql = `
  SELECT ${selectSnapshotColumns} FROM holdfast.threads t
    CROSS JOIN LATERAL (SELECT * FROM holdfast.snapshots s WHERE s.thread = t.id AND s.seq <= $3 ORDER BY s.seq DESC LIMIT 1) s
  WHERE t.owner = $1 AND t.thread_id = $2`

/** The limit is inside: what is joined to the checkpoints is looked up for those of the page alone. */
function checkpointsSql({ isLabelled }: { isLabelled: boolean }): string {
  const labelled = `
      AND l.seq = (SELECT b.seq FROM holdfast.labels b WHERE b.thread = t.id AND b.label = $5 LIMIT 1)`
  return `
  SELECT r.run_id, b.label, ${bareRecordColumns('false')}
  FROM (SELECT t.id FROM holdfast.threads t WHERE t.owner = $1 AND t.thread_id = $2) t
    CROSS JOIN LATERAL (
      SELECT * FROM holdfast.log l
      WHERE l.thread = t.id AND l.seq > $3 AND l.checkpoint_bytes IS NOT NULL ${isLabelled ? labelled : ''}
      ORDER BY l.seq LIMIT $4) l
    LEFT JOIN LATERAL (SELECT b.label FROM holdfast.labels b WHERE b.thread = t.id AND b.seq = l.seq LIMIT 1) b ON true
    LEFT JOIN LATERAL (SELECT r.run_id FROM holdfast.runs r WHERE r.id = l.run LIMIT 1) r ON true
  ORDER BY l.seq`
}

/** Labels a checkpoint, under the lock of its thread: a deletion comes before or after. */
export const tagFunction = `
CREATE OR REPLACE FUNCTION holdfast.fn_tag(p_writer bigint, p_batch bigint, p_owner text, p_thread text, p_seq bigint, p_label text) RETURNS text
LANGUAGE plpgsql VOLATILE SET lock_timeout = '10s' AS $$
DECLARE
  v_thread bigint;
BEGIN
  SELECT t.id INTO v_thread FROM holdfast.threads t WHERE t.owner = p_owner AND t.thread_id = p_thread FOR NO KEY UPDATE;
  IF NOT EXISTS (SELECT FROM holdfast.log l WHERE l.thread = v_thread AND l.seq = p_seq AND l.checkpoint_bytes IS NOT NULL) THEN RETURN 'false'; END IF;
  DELETE FROM holdfast.labels b WHERE b.thread = v_thread AND (b.label = p_label OR b.seq = p_seq);
  INSERT INTO holdfast.labels (thread, label, seq, run, created_at, owner)
    SELECT v_thread, p_label, p_seq, r.id, r.created_at, r.owner FROM holdfast.log l LEFT JOIN holdfast.runs r ON r.id = l.run
    WHERE l.thread = v_thread AND l.seq = p_seq;
  PERFORM holdfast.fn_record(p_writer, p_batch, 'true');
  RETURN 'true';
END $$;
`
const tagSql = 'SELECT holdfast.fn_tag($1, $2, $3, $4, $5, $6)'

export function prepareTag({ writes, prepare }: StoreParts): Store['tag'] {
  const statement = prepare(tagSql)
  return async ({ owner, threadId, seq, label }) => {
    return { ok: (await writes.call(statement, [owner, threadId, position(seq), label])) === 'true' }
  }
}
