import type { Store } from '../../store/store.ts'
import { deleteRecordsSql } from './records.ts'
import { durableSql, settleOpenSql } from './sql.ts'
import type { StoreParts } from './store-parts.ts'

/** Deletes a thread; what is left is its row, from which a new incarnation would continue. */
export const deleteThreadFunction = `
CREATE OR REPLACE FUNCTION holdfast.fn_delete_thread(p_writer bigint, p_batch bigint, p_sync boolean, p_owner text, p_thread text, p_at bigint) RETURNS text
LANGUAGE plpgsql VOLATILE SET lock_timeout = '10s' AS $$
DECLARE
  v_thread bigint; v_deleted_at bigint; v_runs bigint[]; v_epoch bigint;
BEGIN
  SELECT t.id, t.deleted_at INTO v_thread, v_deleted_at FROM holdfast.threads t WHERE t.owner = p_owner AND t.thread_id = p_thread FOR NO KEY UPDATE;
  IF v_thread IS NULL OR v_deleted_at IS NOT NULL THEN RETURN 'false'; END IF;
  ${durableSql}
  PERFORM FROM holdfast.runs r WHERE r.thread = v_thread ORDER BY r.thread, r.id FOR UPDATE;
  SELECT array_agg(r.id), max(r.epoch) INTO v_runs, v_epoch FROM holdfast.runs r WHERE r.thread = v_thread;
  UPDATE holdfast.threads t SET state_version = 0, patch_seq = 0, patch_checksum = 0, epoch_floor = greatest(t.epoch_floor, v_epoch), deleted_at = p_at WHERE t.id = v_thread;
  ${settleOpenSql({ left: 'x.run = ANY (v_runs)', now: 'p_at' })};
  DELETE FROM holdfast.inbox m WHERE m.run = ANY (v_runs);
  DELETE FROM holdfast.delivered d WHERE d.run = ANY (v_runs);
  DELETE FROM holdfast.chunks c WHERE c.run = ANY (v_runs);
  DELETE FROM holdfast.runs r WHERE r.thread = v_thread;
  DELETE FROM holdfast.log l WHERE l.thread = v_thread;
  DELETE FROM holdfast.snapshots s WHERE s.thread = v_thread;
  DELETE FROM holdfast.labels b WHERE b.thread = v_thread;${deleteRecordsSql}
  PERFORM holdfast.fn_record(p_writer, p_batch, 'true');
  RETURN 'true';
END $$;
`
const deleteThreadSql = 'SELECT holdfast.fn_delete_thread($1, $2, $3, $4, $5, $6)'

export function prepareDeleteThread({ writes, watch, prepare, isFull }: StoreParts): Store['deleteThread'] {
  const statement = prepare(deleteThreadSql)
  return async ({ owner, threadId, at }) => {
    const isDeleted = (await writes.call(statement, [isFull, owner, threadId, Math.round(at)])) === 'true'
    if (isDeleted) watch.tell([{ owner, threadId }])
    return isDeleted
  }
}
