import type { NewMessage } from '../../store/store.ts'
import { bytesOf, newMessageChecksum, textOf } from './rows.ts'
import { durableSql, endedSql, nowSql } from './sql.ts'

/** Takes a message in, under the locks of the run and its thread (P1). */
export const deliverFunction = `
CREATE OR REPLACE FUNCTION holdfast.fn_deliver(
  p_writer bigint, p_batch bigint, p_offset bigint, p_sync boolean, p_owner text, p_run text, p_kind text, p_name text, p_crc bigint, p_text text, p_bytes bytea
) RETURNS text LANGUAGE plpgsql VOLATILE SET lock_timeout = '10s' AS $$
DECLARE
  v_now bigint;
  r holdfast.runs; v_thread text; v_answer text;
BEGIN
  SELECT * INTO r FROM holdfast.runs x WHERE x.owner = p_owner AND x.run_id = p_run;
  SELECT t.thread_id INTO v_thread FROM holdfast.threads t WHERE t.id = r.thread FOR NO KEY UPDATE;
  SELECT * INTO r FROM holdfast.runs x WHERE x.id = r.id FOR NO KEY UPDATE;
  IF r.id IS NULL THEN RETURN '{"refusal":"run_not_found"}'; END IF;
  IF r.status IN ${endedSql} THEN RETURN '{"refusal":"conflict"}'; END IF;
  ${durableSql}
  v_now := ${nowSql};
  INSERT INTO holdfast.inbox (run, at, checksum, kind, name, payload, payload_bytes)
    VALUES (r.id, v_now, (p_crc + v_now) & 4294967295, p_kind, p_name, p_text, p_bytes);
  UPDATE holdfast.runs x SET has_mail = true,
      due_at = CASE WHEN x.status = 'waiting' THEN least(coalesce(x.due_at, v_now), v_now) ELSE x.due_at END,
      wake_at = CASE WHEN x.status = 'waiting' THEN least(coalesce(x.due_at, v_now), v_now) ELSE x.wake_at END
    WHERE x.id = r.id;
  v_answer := jsonb_build_object('thread', v_thread, 'claimable', r.status = 'waiting');
  PERFORM holdfast.fn_record(p_writer, p_batch, v_answer);
  RETURN v_answer;
END $$;
`
export const deliverSql = 'SELECT holdfast.fn_deliver($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)'

/** Parameters of fn_deliver after those of the writer. */
export function deliverValues(
  message: NewMessage,
  { offset, isDurable }: { readonly offset: number; readonly isDurable: boolean },
): unknown[] {
  const { owner, runId, kind, name, payload } = message
  const bytes = bytesOf(payload)
  return [
    offset,
    isDurable,
    owner,
    runId,
    kind,
    name,
    newMessageChecksum(message),
    textOf(payload),
    bytes === null ? null : Buffer.from(bytes),
  ]
}

export type Delivered =
  | { readonly refusal: 'run_not_found' | 'conflict' }
  | { readonly refusal?: undefined; readonly thread: string; readonly claimable: boolean }
