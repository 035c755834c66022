import { insertRunSql, insertThreadSql, newRunSql, newThreadSql } from './new-run-sql.ts'
import { runAfterSql, runColumnNames } from './run-change-sql.ts'
import { sealSql, settleOpenSql } from './sql.ts'

/** Parts of fn_apply (apply-sql.ts) that write a change which was not refused. */

const snapshotPlace = { seq: 'v_before + c.count', stateVersion: 'coalesce(c.state_version, t.state_version)' }

const threadSql = `
  IF t.id IS NULL AND (c.count > 0 OR c.guard = 'thread') THEN
    ${insertThreadSql(`VALUES (${newThreadSql({ id: 'p_thread_ids[c.rank]', owner: 'c.owner', thread: 'c.thread', headSeq: 0 })})`)} RETURNING * INTO t;
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
        VALUES (t.id, v_before + c.count, coalesce(c.state_version, t.state_version), ${sealSql('extra_crc[c.snapshot]', snapshotPlace)},
          extra_payload[c.snapshot], extra_payload_bytes[c.snapshot])
        ON CONFLICT (thread, seq) DO UPDATE SET state_version = excluded.state_version, checksum = excluded.checksum,
          state = excluded.state, state_bytes = excluded.state_bytes;
    END IF;
    IF c.label IS NOT NULL AND c.is_checkpoint AND c.count > 0 THEN
      DELETE FROM holdfast.labels x WHERE x.thread = t.id AND x.label = c.label;
      INSERT INTO holdfast.labels (thread, label, seq, run, created_at, owner) VALUES (t.id, c.label, v_before + c.count, r.id, r.created_at, r.owner);
    END IF;
  END IF;`

/** Those that are not opened but changed. */
const operationSql = `
  IF op.kind IN ('complete', 'resolve') THEN
    UPDATE holdfast.operations x SET
        status = CASE WHEN op.kind = 'complete' OR op.has_happened THEN 'completed' ELSE 'failed' END,
        result = CASE WHEN op.kind = 'complete' OR op.has_happened THEN extra_payload[op.payload] ELSE x.result END,
        result_bytes = CASE WHEN op.kind = 'complete' OR op.has_happened THEN extra_payload_bytes[op.payload] ELSE x.result_bytes END,
        result_checksum = CASE WHEN op.kind = 'complete' OR op.has_happened THEN coalesce(extra_crc[op.payload], 0) ELSE x.result_checksum END,
        resolved_by = CASE WHEN op.kind = 'resolve' THEN op.resolved_by ELSE x.resolved_by END, closed_at = v_now
      WHERE x.owner = c.owner AND x.key = op.key;
  ELSIF op.kind IN ('fail', 'undo') THEN
    UPDATE holdfast.operations x SET status = CASE op.kind WHEN 'fail' THEN 'failed' ELSE 'undone' END, closed_at = v_now WHERE x.owner = c.owner AND x.key = op.key;
  ELSIF op.kind = 'doubt' THEN
    UPDATE holdfast.operations x SET status = 'unsure' WHERE x.owner = c.owner AND x.key = op.key;
  ELSIF op.kind = 'note' THEN
    UPDATE holdfast.operations x SET evidence = extra_payload[op.payload], evidence_bytes = extra_payload_bytes[op.payload], evidence_checksum = extra_crc[op.payload]
      WHERE x.owner = c.owner AND x.key = op.key AND x.status <> 'completed';
  END IF;
  IF op.kind IN ('complete', 'fail', 'resolve') THEN
    -- A later statement than the one that locked the operation: it sees all runs that began to wait until then.
    UPDATE holdfast.runs x SET due_at = least(coalesce(x.due_at, v_now), v_now), wake_at = least(coalesce(x.due_at, v_now), v_now)
      WHERE x.wait_key = op.key AND x.owner || '' = c.owner AND x.status || '' = 'waiting';
    GET DIAGNOSTICS v_woken = ROW_COUNT;
  END IF;`

const readMessagesSql = `
    v_last := r.last_message;
    IF c.read IS NOT NULL THEN
      DELETE FROM holdfast.inbox x WHERE x.run = r.id AND x.id = ANY (c.read);
      SELECT coalesce(max(x.id), 0) INTO v_last FROM holdfast.inbox x WHERE x.run = r.id;
      IF v_last <> r.last_message THEN UPDATE holdfast.runs x SET last_message = v_last WHERE x.id = r.id; END IF;
    END IF;`

/** Whether messages wait that the writer does not know. */
export const hasMailSql = 'v_last > coalesce(c.mail_seen, 0)'

/** Locked, so that a process that closes it has done so before, and this one sees it, or does so later, and sees this run wait. */
const lockWaitedForSql = `
      v_is_wait_over := false;
      IF c.wait_key IS NOT NULL THEN
        PERFORM FROM holdfast.operations x WHERE x.owner = c.owner AND x.key = c.wait_key FOR SHARE;
        v_is_wait_over := NOT EXISTS (
          SELECT FROM holdfast.operations x WHERE x.owner = c.owner AND x.key = c.wait_key AND x.status IN ('intended', 'unsure'));
      END IF;`

/** `r` is the row as it was locked. */
const after = runAfterSql({
  ...{ status: 'c.status', setsReason: 'c.sets_reason', reason: 'c.reason', setsStep: 'c.sets_step', step: 'c.step' },
  ...{ hasProgress: 'c.has_progress', uncountsClaim: 'c.uncounts', waitKey: 'c.wait_key', isWaitOver: 'v_is_wait_over' },
  ...{ startsTape: 'c.starts_tape', tapeSeq: 'v_first', hasNewInput: 'c.starts_tape AND c.has_new_input', inputSeq: 'v_first' },
  ...{ setsEnd: 'c.sets_end', endSeq: 'v_before + c.count', dueKind: 'c.due_kind', due: 'c.due', hasMail: hasMailSql },
  leaseMs: "CASE c.guard WHEN 'lease' THEN c.lease_ms END",
})

/** Column by column into a copy of the row: one statement over all of these expressions takes longer to set up than to execute. */
const updateRunSql = `
      a := r;
      ${runColumnNames.map((column) => `a.${column} := ${after[column]};`).join('\n      ')}
      UPDATE holdfast.runs x SET ${runColumnNames.map((column) => `${column} = a.${column}`).join(', ')}
        WHERE x.id = r.id;`

const runEndSql = `
      IF (r.finished_at IS NULL) <> (a.finished_at IS NULL) THEN
        -- The next run of the thread moves up, or a finished run has its old place back.
        SELECT x.id INTO v_id FROM holdfast.runs x WHERE x.thread = r.thread AND x.finished_at IS NULL ORDER BY x.finished_at, x.id LIMIT 1;
        UPDATE holdfast.runs x SET is_next = (x.id = v_id) WHERE x.thread = r.thread AND x.finished_at IS NULL AND x.is_next <> (x.id = v_id);
      END IF;
      IF a.finished_at IS NOT NULL OR (c.starts_tape AND c.has_new_input) THEN
        ${settleOpenSql({ left: 'x.run = r.id', now: 'v_now' })};
      END IF;`

const runSql = `
  IF r.id IS NOT NULL THEN
    ${readMessagesSql}
    IF c.has_run THEN
      ${lockWaitedForSql}
      ${updateRunSql}
      ${runEndSql}
    END IF;
    IF p_change ? 'chunks' THEN
      PERFORM holdfast.fn_append_chunks(r.id, p_change->'chunks', extra_payload, extra_payload_bytes);
    END IF;
  END IF;`

const createdRun = newRunSql({
  ...{ as: 'n', id: 'p_run_ids[n.rank]', thread: 'ct.id', epoch: 'ct.epoch_floor', inputSeq: 'ct.head_seq' },
  isNext: 'NOT EXISTS (SELECT FROM holdfast.runs x WHERE x.thread = ct.id AND x.finished_at IS NULL)',
})

const newRunsSql = `
  FOR n IN SELECT * FROM jsonb_to_recordset(c.creates) AS x(slot int, rank int, owner text, thread text, run text, workflow text, version bigint, queue text,
      priority bigint, fingerprint text, due_kind int, due bigint, patch int, patch_crc bigint) LOOP
    SELECT x.id INTO v_id FROM holdfast.runs x WHERE x.owner = n.owner AND x.run_id = n.run;
    IF NOT FOUND THEN
      SELECT * INTO ct FROM holdfast.threads x WHERE x.owner = n.owner AND x.thread_id = n.thread FOR NO KEY UPDATE;
      IF NOT FOUND THEN
        ${insertThreadSql(`VALUES (${newThreadSql({ id: 'p_thread_ids[n.rank]', owner: 'n.owner', thread: 'n.thread', headSeq: 0 })})`)} RETURNING * INTO ct;
        IF NOT FOUND THEN RAISE EXCEPTION USING ERRCODE = 'HF001'; END IF;
      END IF;
      UPDATE holdfast.threads x SET head_seq = x.head_seq + 1, deleted_at = NULL,
          incarnation = CASE WHEN x.deleted_at IS NULL THEN x.incarnation ELSE x.incarnation + 1 END,
          base_seq = CASE WHEN x.deleted_at IS NULL THEN x.base_seq ELSE x.head_seq END,
          patch_seq = coalesce(x.head_seq + n.patch, x.patch_seq),
          patch_checksum = coalesce(${sealSql('n.patch_crc', { seq: 'x.head_seq + n.patch' })}, x.patch_checksum)
        WHERE x.id = ct.id RETURNING * INTO ct;
      ${insertRunSql(`VALUES (${createdRun})`)} RETURNING id INTO v_id;
      IF NOT FOUND THEN RAISE EXCEPTION USING ERRCODE = 'HF001'; END IF;
      places := places || ARRAY[n.slot, ct.id, ct.head_seq - 1, v_id];
      v_created := v_created || jsonb_build_object('is_new', true);
    ELSE
      v_created := v_created || jsonb_build_object('is_new', false);
    END IF;
    SELECT jsonb_set(v_created, '{-1,run}', to_jsonb(x) || jsonb_build_object('thread_id', y.thread_id)) INTO v_created
      FROM holdfast.runs x JOIN holdfast.threads y ON y.id = x.thread WHERE x.id = v_id;
  END LOOP;`

/** To this run perhaps; a message to a run that no longer exists or has ended is dropped. */
const messagesSql = `
  IF c.delivers IS NOT NULL THEN
    FOR m IN SELECT * FROM jsonb_to_recordset(c.delivers) AS x(owner text, run text, kind text, name text, crc bigint, payload int) LOOP
      PERFORM holdfast.fn_put_message(v_now, m.owner, m.run, m.kind, m.name, m.crc, extra_payload[m.payload], extra_payload_bytes[m.payload], NULL);
    END LOOP;
    IF r.id IS NOT NULL THEN SELECT x.last_message INTO v_last FROM holdfast.runs x WHERE x.id = r.id; END IF;
  END IF;`

export const writeSql = `
  ${threadSql}
  ${operationSql}
  ${runSql}
  ${newRunsSql}
  ${messagesSql}`
