import { endedSql } from './sql.ts'

/** Parts of fn_apply (apply-sql.ts) that may refuse a change. A refusal is set as the answer, and the function returns. */

const guardSql = `
  v_is_own := r.id IS NOT NULL AND t.id IS NOT NULL AND r.thread = t.id;
  answer := CASE c.guard
    WHEN 'lease' THEN CASE
      WHEN NOT v_is_own OR r.epoch IS DISTINCT FROM c.epoch OR r.lease_id IS DISTINCT FROM c.lease
        OR t.written_seq < c.guard_written THEN '{"refusal":"lease_lost"}'
      WHEN c.guard_head <> t.head_seq THEN '{"refusal":"conflict"}' END
    WHEN 'run' THEN CASE
      WHEN NOT v_is_own THEN '{"refusal":"run_not_found"}'
      WHEN r.epoch IS DISTINCT FROM c.epoch OR r.status IS DISTINCT FROM c.guard_status OR c.guard_head <> t.head_seq
        THEN '{"refusal":"conflict"}'
      -- A later run that was claimed and has written nothing yet counts too: it would be executed in parallel with the earlier one.
      WHEN c.is_undisturbed AND EXISTS (SELECT FROM holdfast.runs x WHERE x.thread = t.id AND x.id + 0 > r.id AND (x.started_at IS NOT NULL OR x.status = 'running'))
        THEN '{"refusal":"conflict"}' END
    WHEN 'thread' THEN CASE
      WHEN t.id IS NULL THEN CASE WHEN c.guard_head IS DISTINCT FROM 0 THEN '{"refusal":"conflict"}' END
      WHEN t.deleted_at IS NOT NULL THEN '{"refusal":"thread_deleted"}'
      WHEN t.head_seq IS DISTINCT FROM c.guard_head OR EXISTS (SELECT FROM holdfast.runs x WHERE x.thread = t.id AND x.finished_at IS NULL AND x.lease_id IS NOT NULL)
        THEN '{"refusal":"conflict"}' END
    -- Without a guard a late writer must still not bring a deleted thread back, nor write for a run that no longer exists.
    WHEN 'none' THEN CASE
      WHEN c.count = 0 AND c.has_run IS NOT TRUE THEN NULL
      WHEN t.deleted_at IS NOT NULL THEN '{"refusal":"thread_deleted"}'
      WHEN c.run IS NOT NULL AND NOT v_is_own THEN '{"refusal":"run_not_found"}' END
  END;
  IF answer IS NOT NULL THEN RETURN; END IF;`

/** An operation is opened here, because two processes may take its key at once; all others are only judged. */
const operationSql = `
  SELECT * INTO op FROM jsonb_to_record(coalesce(c.operation, '{}')) AS x(kind text, key text, name text, payload int, has_happened boolean, resolved_by text);
  IF op.kind IS NOT NULL THEN
    IF op.kind IN ('intend', 'ask') THEN
      INSERT INTO holdfast.operations AS x (owner, key, kind, name, run, run_id, thread_id, status, result_checksum, evidence_checksum, intended_at)
        VALUES (c.owner, op.key, CASE op.kind WHEN 'ask' THEN 'question' ELSE 'effect' END, op.name, r.id, coalesce(c.run, ''), c.thread,
          CASE op.kind WHEN 'ask' THEN 'unsure' ELSE 'intended' END, 0, 0, v_now)
        ON CONFLICT (owner, key) DO UPDATE SET kind = excluded.kind, name = excluded.name, run = excluded.run, run_id = excluded.run_id, thread_id = excluded.thread_id,
          status = excluded.status, result = NULL, result_bytes = NULL, result_checksum = 0, evidence = NULL, evidence_bytes = NULL, evidence_checksum = 0,
          resolved_by = NULL, intended_at = v_now, closed_at = NULL
          WHERE x.status IN ('failed', 'undone');
      IF NOT FOUND THEN
        SELECT jsonb_build_object('refusal', 'operation_taken', 'operation', to_jsonb(x)) INTO answer
          FROM holdfast.operations x WHERE x.owner = c.owner AND x.key = op.key;
        RETURN;
      END IF;
    ELSE
      SELECT * INTO o FROM holdfast.operations x WHERE x.owner = c.owner AND x.key = op.key FOR NO KEY UPDATE;
      IF op.kind IN ('complete', 'fail', 'doubt') AND (o.key IS NULL OR o.run_id IS DISTINCT FROM c.run OR o.status NOT IN ('intended', 'unsure')) THEN
        answer := '{"refusal":"conflict"}';
        RETURN;
      ELSIF op.kind = 'undo' AND (o.key IS NULL OR o.run_id IS DISTINCT FROM c.run OR o.status <> 'completed') THEN
        answer := '{"refusal":"conflict"}';
        RETURN;
      ELSIF op.kind = 'resolve' AND o.status IS DISTINCT FROM 'unsure' THEN
        answer := jsonb_strip_nulls(jsonb_build_object('refusal', 'already_answered', 'operation', CASE WHEN o.key IS NOT NULL THEN to_jsonb(o) END));
        RETURN;
      END IF;
    END IF;
  END IF;`

/** Records are written as they are judged: the caller has set a savepoint. */
const recordsSql = `
  IF c.records IS NOT NULL THEN
    answer := holdfast.fn_write_records(c.owner, c.records, v_now, extra_crc, extra_payload, extra_payload_bytes);
    IF answer IS NOT NULL THEN RETURN; END IF;
  END IF;`

/** Whether a run to be created refuses to wait behind other runs of its thread, and would have to. */
const busyThreadSql = `
  FOR n IN SELECT * FROM jsonb_to_recordset(c.creates) AS x(owner text, thread text, run text, queue text, reject boolean) LOOP
    v_key := jsonb_build_array(n.owner, n.run);
    CONTINUE WHEN v_key = ANY (v_new_runs) OR EXISTS (SELECT FROM holdfast.runs x WHERE x.owner = n.owner AND x.run_id = n.run);
    v_new_runs := v_new_runs || v_key;
    v_new_queues := v_new_queues || n.queue;
    v_key := jsonb_build_array(n.owner, n.thread);
    SELECT * INTO ct FROM holdfast.threads x WHERE x.owner = n.owner AND x.thread_id = n.thread FOR NO KEY UPDATE;
    IF n.reject AND (v_key = ANY (v_busy_threads) OR EXISTS (
        SELECT FROM holdfast.runs x WHERE x.thread = ct.id AND x.finished_at IS NULL AND (x.id IS DISTINCT FROM r.id OR coalesce(c.status NOT IN ${endedSql}, true)))) THEN
      answer := '{"refusal":"conflict"}';
      RETURN;
    END IF;
    v_busy_threads := v_busy_threads || v_key;
  END LOOP;`

/** Whether a queue has no room for the runs to be created. The batch has locked those that may be full. */
const fullQueueSql = `
  IF c.guard = 'none' AND v_new_queues <> '{}' AND EXISTS (
      SELECT FROM holdfast.queues q WHERE q.name = ANY (v_new_queues) AND q.max_queued < cardinality(array_positions(v_new_queues, q.name))
        + (SELECT count(*) FROM (SELECT FROM holdfast.runs x WHERE x.queue = q.name AND x.status = 'pending' LIMIT q.max_queued) x)) THEN
    answer := '{"refusal":"queue_full"}';
    RETURN;
  END IF;`

export const judgeSql = `
  ${guardSql}
  ${operationSql}
  ${recordsSql}
  ${busyThreadSql}
  ${fullQueueSql}`
