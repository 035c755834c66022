import type { Message, RunKey, Store } from '../../store/store.ts'
import { bytesOf, newMessageChecksum, selectMessageColumns, textOf, toMessage } from './rows.ts'
import { durableSql, endedSql, nowSql, planSql } from './sql.ts'
import type { StatementReader } from './statement-reader.ts'
import type { StoreParts } from './store-parts.ts'

/**
 * Accepts a message, under the locks of the run and its thread (P1). Its id is drawn under them, too, and they are held until it
 * is visible: so a run's messages become visible in the order of their ids, and reading those later than the latest known one overlooks none.
 */
const putMessageFunction = `
CREATE OR REPLACE FUNCTION holdfast.fn_put_message(
  p_now bigint, p_owner text, p_run text, p_kind text, p_name text, p_crc bigint, p_text text, p_bytes bytea, p_dedupe text,
  OUT refusal text, OUT thread_id text, OUT is_waiting boolean
) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
  r holdfast.runs; v_id bigint;
BEGIN
  SELECT * INTO r FROM holdfast.runs x WHERE x.owner = p_owner AND x.run_id = p_run;
  SELECT t.thread_id INTO thread_id FROM holdfast.threads t WHERE t.id = r.thread FOR NO KEY UPDATE;
  SELECT * INTO r FROM holdfast.runs x WHERE x.id = r.id FOR NO KEY UPDATE;
  is_waiting := false;
  IF p_dedupe IS NOT NULL AND EXISTS (SELECT FROM holdfast.delivered d WHERE d.run = r.id AND d.id = p_dedupe) THEN RETURN; END IF;
  refusal := CASE WHEN r.id IS NULL THEN 'run_not_found' WHEN r.status IN ${endedSql} THEN 'conflict' END;
  IF refusal IS NOT NULL THEN RETURN; END IF;
  is_waiting := r.status = 'waiting';
  IF p_dedupe IS NOT NULL THEN INSERT INTO holdfast.delivered (run, id) VALUES (r.id, p_dedupe); END IF;
  INSERT INTO holdfast.inbox (run, at, checksum, kind, name, payload, payload_bytes)
    VALUES (r.id, p_now, (p_crc + p_now) & 4294967295, p_kind, p_name, p_text, p_bytes) RETURNING id INTO v_id;
  UPDATE holdfast.runs x SET last_message = v_id,
      due_at = CASE WHEN is_waiting THEN least(coalesce(x.due_at, p_now), p_now) ELSE x.due_at END,
      wake_at = CASE WHEN is_waiting THEN least(coalesce(x.due_at, p_now), p_now) ELSE x.wake_at END
    WHERE x.id = r.id;
END $$;
`

const deliverFunction = `
CREATE OR REPLACE FUNCTION holdfast.fn_deliver(
  p_writer bigint, p_batch bigint, p_offset bigint, p_sync boolean, p_owner text, p_run text, p_kind text, p_name text, p_crc bigint, p_text text, p_bytes bytea, p_dedupe text
) RETURNS text LANGUAGE plpgsql VOLATILE ${planSql} AS $$
DECLARE
  v_now bigint := ${nowSql};
  m record; v_answer text;
BEGIN
  ${durableSql}
  m := holdfast.fn_put_message(v_now, p_owner, p_run, p_kind, p_name, p_crc, p_text, p_bytes, p_dedupe);
  IF m.refusal IS NOT NULL THEN RETURN jsonb_build_object('refusal', m.refusal); END IF;
  v_answer := jsonb_build_object('thread', m.thread_id, 'claimable', m.is_waiting);
  PERFORM holdfast.fn_record(p_writer, p_batch, v_answer);
  RETURN v_answer;
END $$;
`
export const deliverFunctions = [putMessageFunction, deliverFunction]
const deliverSql = 'SELECT holdfast.fn_deliver($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)'

export function prepareDeliver({ writes, watch, clock, prepare, isFull }: StoreParts): Store['deliver'] {
  const statement = prepare(deliverSql)
  return async (message) => {
    const { owner, runId, kind, name, payload } = message
    const bytes = bytesOf(payload)
    const values = [
      ...[clock.offset(), isFull, owner, runId, kind, name, newMessageChecksum(message), textOf(payload)],
      ...[bytes === null ? null : Buffer.from(bytes), message.dedupeId ?? null],
    ]
    const delivered = JSON.parse(await writes.call(statement, values)) as Delivered
    if (delivered.refusal !== undefined) return { ok: false, refusal: delivered.refusal }
    const { thread: threadId, claimable } = delivered
    watch.tell([{ owner, threadId, runId, hasMail: true, ...(claimable ? { isClaimable: true } : {}) }])
    return { ok: true }
  }
}

type Delivered =
  | { readonly refusal: 'run_not_found' | 'conflict' }
  | { readonly refusal?: undefined; readonly thread: string; readonly claimable: boolean }

const inboxSql = `
  SELECT ${selectMessageColumns} FROM holdfast.runs r JOIN holdfast.inbox m ON m.run = r.id
  WHERE r.owner = $1 AND r.run_id = $2 ORDER BY m.id`

export function prepareReadInbox(reader: StatementReader) {
  return async ({ owner, runId }: RunKey): Promise<Message[]> => {
    const rows = await reader.read(inboxSql, [owner, runId])
    return rows.map((row) => toMessage(row, { owner, runId }))
  }
}
