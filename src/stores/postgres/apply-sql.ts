import { dueSql, endedSql, sealSql, settleOpenSql } from './sql.ts'

/** Whether messages wait that the writer does not know. */
const isMail = 'v_last > coalesce(c.mail_seen, 0)'
const dueAfter = dueSql({ before: 'r.due_at', kind: 'c.due_kind', due: 'c.due', status: 'c.status', hasMail: isMail })
const snapshotPlace = { seq: 'v_before + c.count', stateVersion: 'coalesce(c.state_version, t.state_version)' }

/**
 * One change that is neither held nor a plain start: judged first, written after, under the locks of its thread and its run.
 *
 * Answers as JSON, and with the places of its events: slot, thread, head before and run, four numbers each. A judge that
 * has to write (an intent, whose key two processes may take at once) may be overruled by a later one, and so may a thread
 * or run that somebody else creates meanwhile (HF001: judge again). The caller has set a savepoint where that can be (P2).
 */
export const applyFunction = `
CREATE OR REPLACE FUNCTION holdfast.fn_apply(
  p_change jsonb, v_now bigint, p_thread_ids bigint[], p_run_ids bigint[], x_crc bigint[], x_text text[], x_bytes bytea[],
  OUT is_refused boolean, OUT answer jsonb, OUT places bigint[]
) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  c record; op record; n record; m record;
  t holdfast.threads; r holdfast.runs; o holdfast.operations; ct holdfast.threads;
  v_is_own boolean; v_before bigint; v_first bigint; v_last bigint := 0; v_was_finished boolean; v_woken int := 0;
  v_due bigint; v_created jsonb := '[]'; v_new_runs text[] := '{}'; v_new_queues text[] := '{}'; v_busy_threads text[] := '{}'; v_key text; v_id bigint;
BEGIN
  is_refused := true;
  places := '{}';
  SELECT * INTO c FROM jsonb_to_record(p_change) AS x(
    owner text, thread text, run text, count int, slot int, rank int, is_checkpoint boolean, label text, state_version bigint, snapshot int, read bigint[], mail_seen bigint, delivers jsonb,
    patch int, patch_crc bigint, guard text, epoch bigint, lease text, guard_written bigint, guard_status text, is_undisturbed boolean, guard_head bigint,
    has_run boolean, status text, sets_reason boolean, reason text, due_kind int, due bigint, wait_key text, sets_step boolean, step text,
    has_progress boolean, uncounts boolean, starts_tape boolean, has_new_input boolean, sets_end boolean, lease_ms bigint, operation jsonb, creates jsonb);
  SELECT * INTO t FROM holdfast.threads x WHERE x.owner = c.owner AND x.thread_id = c.thread FOR NO KEY UPDATE;
  IF c.run IS NOT NULL THEN
    SELECT * INTO r FROM holdfast.runs x WHERE x.owner = c.owner AND x.run_id = c.run FOR NO KEY UPDATE;
  END IF;

  -- The guard.
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
      -- A later run that was claimed and wrote nothing yet counts too: it would run beside the earlier one.
      WHEN c.is_undisturbed AND EXISTS (SELECT FROM holdfast.runs x WHERE x.thread = t.id AND x.id + 0 > r.id AND (x.started_at IS NOT NULL OR x.status = 'running'))
        THEN '{"refusal":"conflict"}' END
    WHEN 'thread' THEN CASE
      WHEN t.id IS NULL THEN CASE WHEN c.guard_head IS DISTINCT FROM 0 THEN '{"refusal":"conflict"}' END
      WHEN t.deleted_at IS NOT NULL THEN '{"refusal":"thread_deleted"}'
      WHEN t.head_seq IS DISTINCT FROM c.guard_head OR EXISTS (SELECT FROM holdfast.runs x WHERE x.thread = t.id AND x.finished_at IS NULL AND x.lease_id IS NOT NULL)
        THEN '{"refusal":"conflict"}' END
    -- Without a guard a late writer must still not bring a deleted thread back, nor write for a run that is gone.
    WHEN 'none' THEN CASE
      WHEN c.count = 0 AND c.has_run IS NOT TRUE THEN NULL
      WHEN t.deleted_at IS NOT NULL THEN '{"refusal":"thread_deleted"}'
      WHEN c.run IS NOT NULL AND NOT v_is_own THEN '{"refusal":"run_not_found"}' END
  END;
  IF answer IS NOT NULL THEN RETURN; END IF;

  -- The operation.
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
  END IF;

  -- Whether a run to be created refuses to get in line and would have to.
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
  END LOOP;
  -- Whether a queue has no room for the runs to be created. The batch has locked those that may be full.
  IF c.guard = 'none' AND v_new_queues <> '{}' AND EXISTS (
      SELECT FROM holdfast.queues q WHERE q.name = ANY (v_new_queues) AND q.max_queued < cardinality(array_positions(v_new_queues, q.name))
        + (SELECT count(*) FROM (SELECT FROM holdfast.runs x WHERE x.queue = q.name AND x.status = 'pending' LIMIT q.max_queued) x)) THEN
    answer := '{"refusal":"queue_full"}';
    RETURN;
  END IF;
  is_refused := false;

  -- The thread and its state.
  IF t.id IS NULL AND (c.count > 0 OR c.guard = 'thread') THEN
    INSERT INTO holdfast.threads (id, owner, thread_id, head_seq, base_seq, incarnation, state_version, epoch_floor, created_at)
      OVERRIDING SYSTEM VALUE VALUES (p_thread_ids[c.rank], c.owner, c.thread, 0, 0, 1, 0, 0, v_now)
      ON CONFLICT (owner, thread_id) DO NOTHING RETURNING * INTO t;
    IF NOT FOUND THEN RAISE EXCEPTION USING ERRCODE = 'HF001'; END IF;
  END IF;
  v_before := coalesce(t.head_seq, 0);
  v_first := v_before + least(c.count, 1);
  IF t.id IS NOT NULL THEN
    IF c.count > 0 OR c.state_version IS NOT NULL THEN
      UPDATE holdfast.threads x SET head_seq = x.head_seq + c.count, state_version = coalesce(c.state_version, x.state_version),
          written_seq = CASE WHEN c.guard = 'lease' AND c.count > 0 THEN x.head_seq + c.count ELSE x.written_seq END,
          patch_seq = coalesce(x.head_seq + c.patch, x.patch_seq),
          patch_checksum = coalesce(${sealSql('c.patch_crc', { seq: 'x.head_seq + c.patch' })}, x.patch_checksum)
        WHERE x.id = t.id;
    END IF;
    IF c.count > 0 THEN places := places || ARRAY[c.slot, t.id, v_before, coalesce(r.id, 0)]; END IF;
    IF c.snapshot IS NOT NULL THEN
      INSERT INTO holdfast.snapshots (thread, seq, state_version, checksum, state, state_bytes)
        VALUES (t.id, v_before + c.count, coalesce(c.state_version, t.state_version), ${sealSql('x_crc[c.snapshot]', snapshotPlace)},
          x_text[c.snapshot], x_bytes[c.snapshot])
        ON CONFLICT (thread, seq) DO UPDATE SET state_version = excluded.state_version, checksum = excluded.checksum,
          state = excluded.state, state_bytes = excluded.state_bytes;
    END IF;
    IF c.label IS NOT NULL AND c.is_checkpoint AND c.count > 0 THEN
      DELETE FROM holdfast.labels x WHERE x.thread = t.id AND x.label = c.label;
      INSERT INTO holdfast.labels (thread, label, seq) VALUES (t.id, c.label, v_before + c.count);
    END IF;
  END IF;

  -- The operation again: those that are not opened but changed.
  IF op.kind IN ('complete', 'resolve') THEN
    UPDATE holdfast.operations x SET
        status = CASE WHEN op.kind = 'complete' OR op.has_happened THEN 'completed' ELSE 'failed' END,
        result = CASE WHEN op.kind = 'complete' OR op.has_happened THEN x_text[op.payload] ELSE x.result END,
        result_bytes = CASE WHEN op.kind = 'complete' OR op.has_happened THEN x_bytes[op.payload] ELSE x.result_bytes END,
        result_checksum = CASE WHEN op.kind = 'complete' OR op.has_happened THEN coalesce(x_crc[op.payload], 0) ELSE x.result_checksum END,
        resolved_by = CASE WHEN op.kind = 'resolve' THEN op.resolved_by ELSE x.resolved_by END, closed_at = v_now
      WHERE x.owner = c.owner AND x.key = op.key;
  ELSIF op.kind IN ('fail', 'undo') THEN
    UPDATE holdfast.operations x SET status = CASE op.kind WHEN 'fail' THEN 'failed' ELSE 'undone' END, closed_at = v_now WHERE x.owner = c.owner AND x.key = op.key;
  ELSIF op.kind = 'doubt' THEN
    UPDATE holdfast.operations x SET status = 'unsure' WHERE x.owner = c.owner AND x.key = op.key;
  ELSIF op.kind = 'note' THEN
    UPDATE holdfast.operations x SET evidence = x_text[op.payload], evidence_bytes = x_bytes[op.payload], evidence_checksum = x_crc[op.payload]
      WHERE x.owner = c.owner AND x.key = op.key AND x.status <> 'completed';
  END IF;
  IF op.kind IN ('complete', 'fail', 'resolve') THEN
    -- A later statement than the one that locked the operation: it sees who began to wait until then.
    UPDATE holdfast.runs x SET due_at = least(coalesce(x.due_at, v_now), v_now), wake_at = least(coalesce(x.due_at, v_now), v_now)
      WHERE x.wait_key = op.key AND x.owner || '' = c.owner AND x.status || '' = 'waiting';
    GET DIAGNOSTICS v_woken = ROW_COUNT;
  END IF;

  -- The run.
  IF r.id IS NOT NULL THEN
    v_last := r.last_message;
    IF c.read IS NOT NULL THEN
      DELETE FROM holdfast.inbox x WHERE x.run = r.id AND x.id = ANY (c.read);
      SELECT coalesce(max(x.id), 0) INTO v_last FROM holdfast.inbox x WHERE x.run = r.id;
      IF v_last <> r.last_message THEN UPDATE holdfast.runs x SET last_message = v_last WHERE x.id = r.id; END IF;
    END IF;
    IF c.has_run THEN
      v_was_finished := r.finished_at IS NOT NULL;
      IF c.status IS NOT NULL THEN
        r.status := c.status;
        r.finished_at := CASE WHEN c.status IN ${endedSql} THEN v_now END;
        IF c.status <> 'waiting' THEN r.wait_key := NULL; END IF;
      END IF;
      IF r.status <> 'running' THEN
        r.lease_id := NULL; r.lease_holder := NULL;
      ELSIF c.guard = 'lease' AND r.wake_at - v_now NOT BETWEEN c.lease_ms * 2 / 3 AND c.lease_ms THEN
        r.wake_at := v_now + c.lease_ms;
      END IF;
      IF c.sets_reason THEN r.reason := c.reason; END IF;
      IF c.sets_step THEN r.current_step := c.step; END IF;
      IF c.uncounts THEN r.claims_without_progress := greatest(r.claims_without_progress - 1, 0); END IF;
      IF c.has_progress THEN r.claims_without_progress := 0; END IF;
      IF c.starts_tape THEN
        r.tape_seq := v_first;
        r.started_at := coalesce(r.started_at, v_now);
        IF c.has_new_input THEN r.input_seq := v_first; END IF;
      END IF;
      IF c.sets_end THEN r.end_seq := v_before + c.count; END IF;
      v_due := ${dueAfter};
      IF c.wait_key IS NOT NULL THEN
        r.wait_key := c.wait_key;
        -- Whoever closes it comes before us, and we see it closed, or after, and he sees us wait.
        PERFORM FROM holdfast.operations x WHERE x.owner = c.owner AND x.key = c.wait_key FOR SHARE;
        IF NOT EXISTS (SELECT FROM holdfast.operations x WHERE x.owner = c.owner AND x.key = c.wait_key AND x.status IN ('intended', 'unsure')) THEN
          v_due := v_now;
        END IF;
      END IF;
      r.due_at := v_due;
      IF r.status IN ('pending', 'waiting') THEN r.wake_at := v_due; ELSIF r.status <> 'running' THEN r.wake_at := NULL; END IF;
      UPDATE holdfast.runs x SET status = r.status, reason = r.reason, finished_at = r.finished_at, wait_key = r.wait_key, lease_id = r.lease_id,
          lease_holder = r.lease_holder, current_step = r.current_step, claims_without_progress = r.claims_without_progress, tape_seq = r.tape_seq,
          started_at = r.started_at, input_seq = r.input_seq, end_seq = r.end_seq, due_at = r.due_at, wake_at = r.wake_at,
          is_next = x.is_next AND r.finished_at IS NULL
        WHERE x.id = r.id;
      IF v_was_finished <> (r.finished_at IS NOT NULL) THEN
        -- The line of the thread moves: up, or a finished run has its old place back.
        SELECT x.id INTO v_id FROM holdfast.runs x WHERE x.thread = r.thread AND x.finished_at IS NULL ORDER BY x.finished_at, x.id LIMIT 1;
        UPDATE holdfast.runs x SET is_next = (x.id = v_id) WHERE x.thread = r.thread AND x.finished_at IS NULL AND x.is_next <> (x.id = v_id);
      END IF;
      IF r.finished_at IS NOT NULL OR (c.starts_tape AND c.has_new_input) THEN
        ${settleOpenSql({ left: 'x.run = r.id', now: 'v_now' })};
      END IF;
    END IF;
  END IF;

  IF r.id IS NOT NULL AND p_change ? 'chunks' THEN
    PERFORM holdfast.fn_append_chunks(r.id, p_change->'chunks', x_text, x_bytes);
  END IF;

  -- New runs.
  FOR n IN SELECT * FROM jsonb_to_recordset(c.creates) AS x(slot int, rank int, owner text, thread text, run text, workflow text, version bigint, queue text,
      priority bigint, fingerprint text, due_kind int, due bigint, patch int, patch_crc bigint) LOOP
    SELECT x.id INTO v_id FROM holdfast.runs x WHERE x.owner = n.owner AND x.run_id = n.run;
    IF NOT FOUND THEN
      SELECT * INTO ct FROM holdfast.threads x WHERE x.owner = n.owner AND x.thread_id = n.thread FOR NO KEY UPDATE;
      IF NOT FOUND THEN
        INSERT INTO holdfast.threads (id, owner, thread_id, head_seq, base_seq, incarnation, state_version, epoch_floor, created_at)
          OVERRIDING SYSTEM VALUE VALUES (p_thread_ids[n.rank], n.owner, n.thread, 0, 0, 1, 0, 0, v_now)
          ON CONFLICT (owner, thread_id) DO NOTHING RETURNING * INTO ct;
        IF NOT FOUND THEN RAISE EXCEPTION USING ERRCODE = 'HF001'; END IF;
      END IF;
      UPDATE holdfast.threads x SET head_seq = x.head_seq + 1, deleted_at = NULL,
          incarnation = CASE WHEN x.deleted_at IS NULL THEN x.incarnation ELSE x.incarnation + 1 END,
          base_seq = CASE WHEN x.deleted_at IS NULL THEN x.base_seq ELSE x.head_seq END,
          patch_seq = coalesce(x.head_seq + n.patch, x.patch_seq),
          patch_checksum = coalesce(${sealSql('n.patch_crc', { seq: 'x.head_seq + n.patch' })}, x.patch_checksum)
        WHERE x.id = ct.id RETURNING * INTO ct;
      v_due := CASE n.due_kind WHEN 1 THEN v_now + n.due ELSE n.due END;
      INSERT INTO holdfast.runs (id, thread, owner, run_id, workflow, version, queue, priority, fingerprint, status, epoch, due_at, wake_at,
          ready, is_next, last_message, claims_without_progress, input_seq, created_at)
        OVERRIDING SYSTEM VALUE
        VALUES (p_run_ids[n.rank], ct.id, n.owner, n.run, n.workflow, n.version, n.queue, n.priority, n.fingerprint, 'pending', ct.epoch_floor, v_due, v_due, CASE WHEN v_due <= v_now THEN 2 ELSE 0 END,
          NOT EXISTS (SELECT FROM holdfast.runs x WHERE x.thread = ct.id AND x.finished_at IS NULL), 0, 0, ct.head_seq, v_now)
        ON CONFLICT (owner, run_id) DO NOTHING RETURNING id INTO v_id;
      IF NOT FOUND THEN RAISE EXCEPTION USING ERRCODE = 'HF001'; END IF;
      places := places || ARRAY[n.slot, ct.id, ct.head_seq - 1, v_id];
      v_created := v_created || jsonb_build_object('is_new', true);
    ELSE
      v_created := v_created || jsonb_build_object('is_new', false);
    END IF;
    SELECT jsonb_set(v_created, '{-1,run}', to_jsonb(x) || jsonb_build_object('thread_id', y.thread_id)) INTO v_created
      FROM holdfast.runs x JOIN holdfast.threads y ON y.id = x.thread WHERE x.id = v_id;
  END LOOP;

  -- Messages, to this run perhaps; one to a run that is gone or has ended is dropped.
  IF c.delivers IS NOT NULL THEN
    FOR m IN SELECT * FROM jsonb_to_recordset(c.delivers) AS x(owner text, run text, kind text, name text, crc bigint, payload int) LOOP
      PERFORM holdfast.fn_put_message(v_now, m.owner, m.run, m.kind, m.name, m.crc, x_text[m.payload], x_bytes[m.payload], NULL);
    END LOOP;
    IF r.id IS NOT NULL THEN SELECT x.last_message INTO v_last FROM holdfast.runs x WHERE x.id = r.id; END IF;
  END IF;

  -- A run created on this thread has moved its head; a change with events answers with their positions.
  IF c.count = 0 AND c.creates IS NOT NULL THEN
    SELECT coalesce(max(x.head_seq), 0) INTO v_before FROM holdfast.threads x WHERE x.owner = c.owner AND x.thread_id = c.thread;
    v_first := v_before;
  END IF;
  answer := jsonb_build_object('first', v_first, 'last', v_before + c.count, 'mail', ${isMail}, 'woken', v_woken > 0, 'created', v_created);
END $$;
`
