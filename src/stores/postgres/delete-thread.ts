import type { CollectVerdict, Store } from '../../store/store.ts'
import { position } from './integers.ts'
import { deleteRecordsSql } from './records.ts'
import { durableSql, planSql, settleOpenSql } from './sql.ts'
import type { StoreParts } from './store-parts.ts'

/** All that belongs to thread `v_thread` with the runs `v_runs`, its own row and its operations aside. */
const deletePartsSql = `
  DELETE FROM holdfast.inbox m WHERE m.run = ANY (v_runs);
  DELETE FROM holdfast.delivered d WHERE d.run = ANY (v_runs);
  DELETE FROM holdfast.chunks c WHERE c.run = ANY (v_runs);
  DELETE FROM holdfast.runs r WHERE r.thread = v_thread;
  DELETE FROM holdfast.log l WHERE l.thread = v_thread;
  DELETE FROM holdfast.snapshots s WHERE s.thread = v_thread;
  DELETE FROM holdfast.labels b WHERE b.thread = v_thread;${deleteRecordsSql}`

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
  ${deletePartsSql}
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

/** Removes threads that nothing needs any more, each judged under the lock of its row. Answers with the verdicts, in order. */
export const collectThreadsFunction = `
CREATE OR REPLACE FUNCTION holdfast.fn_collect_threads(p_writer bigint, p_batch bigint, p_sync boolean, p_closed_before bigint, p_keeps_labelled boolean,
  p_is_dry boolean, p_is_forced boolean, p_threads jsonb) RETURNS text
LANGUAGE plpgsql VOLATILE ${planSql} AS $$
DECLARE
  v_thread bigint; v_head bigint; v_created bigint; v_runs bigint[]; v_verdict text; v_verdicts text[] := '{}'; p_owner text; p_thread text; k record;
BEGIN
  ${durableSql}
  FOR k IN SELECT x.value->>0 AS owner, x.value->>1 AS thread_id, (x.value->>2)::bigint AS head_seq
      FROM jsonb_array_elements(p_threads) WITH ORDINALITY x ORDER BY x.ordinality LOOP
    p_owner := k.owner;
    p_thread := k.thread_id;
    SELECT t.id, t.head_seq, t.created_at INTO v_thread, v_head, v_created FROM holdfast.threads t
      WHERE t.owner = k.owner AND t.thread_id = k.thread_id FOR UPDATE;
    v_verdict := CASE
      WHEN v_thread IS NULL THEN 'gone'
      WHEN p_is_forced THEN 'removed'
      WHEN v_head <> k.head_seq THEN 'changed'
      WHEN EXISTS (SELECT 1 FROM holdfast.runs r WHERE r.thread = v_thread AND r.finished_at IS NULL) THEN 'unfinished'
      WHEN EXISTS (SELECT 1 FROM holdfast.operations o WHERE o.owner = k.owner AND o.thread_id = k.thread_id
        AND (o.closed_at IS NULL OR o.closed_at >= p_closed_before)) THEN 'operations'
      WHEN v_created >= p_closed_before THEN 'changed'
      WHEN p_keeps_labelled AND EXISTS (SELECT 1 FROM holdfast.labels b WHERE b.thread = v_thread) THEN 'labelled'
      ELSE 'removed' END;
    v_verdicts := v_verdicts || v_verdict;
    CONTINUE WHEN v_verdict <> 'removed' OR p_is_dry;
    PERFORM FROM holdfast.runs r WHERE r.thread = v_thread ORDER BY r.thread, r.id FOR UPDATE;
    SELECT array_agg(r.id) INTO v_runs FROM holdfast.runs r WHERE r.thread = v_thread;
    ${deletePartsSql}
    DELETE FROM holdfast.operations o WHERE o.owner = k.owner AND o.thread_id = k.thread_id;
    DELETE FROM holdfast.threads t WHERE t.id = v_thread;
  END LOOP;
  PERFORM holdfast.fn_record(p_writer, p_batch, array_to_string(v_verdicts, ','));
  RETURN array_to_string(v_verdicts, ',');
END $$;
`

export function prepareCollectThreads({ writes, watch, prepare, isFull }: StoreParts): Store['collectThreads'] {
  const statement = prepare('SELECT holdfast.fn_collect_threads($1, $2, $3, $4, $5, $6, $7, $8)')
  return async ({ threads, closedBefore, keepsLabelled, isDryRun, isForced = false }) => {
    if (threads.length === 0) return []
    const asked = JSON.stringify(threads.map(({ owner, threadId, headSeq }) => [owner, threadId, position(headSeq)]))
    const answer = await writes.call(statement, [isFull, position(closedBefore), keepsLabelled, isDryRun, isForced, asked])
    const verdicts = answer.split(',') as CollectVerdict[]
    const removed = threads.filter((_, index) => verdicts[index] === 'removed' && !isDryRun)
    watch.tell(removed.map(({ owner, threadId }) => ({ owner, threadId })))
    return verdicts
  }
}
