import { judgeSql } from './apply-judge-sql.ts'
import { hasMailSql, writeSql } from './apply-write-sql.ts'

/**
 * One change that is neither leased nor a plain start: judged first, written after, under the locks of its thread and its run.
 *
 * Answers as JSON, and with the places of its events: slot, thread, head before and run, four numbers each. A judge that
 * has to write (an intent, whose key two processes may take at once) may be overruled by a later one, and so may a thread
 * or run that another process creates meanwhile (HF001: judge again). The caller has set a savepoint where that can be (P2).
 */
export const applyFunction = `
CREATE OR REPLACE FUNCTION holdfast.fn_apply(
  p_change jsonb, v_now bigint, p_thread_ids bigint[], p_run_ids bigint[], extra_crc bigint[], extra_payload text[], extra_payload_bytes bytea[],
  OUT is_refused boolean, OUT answer jsonb, OUT places bigint[]
) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  c record; op record; n record; m record;
  t holdfast.threads; r holdfast.runs; a holdfast.runs; o holdfast.operations; ct holdfast.threads;
  v_is_own boolean; v_before bigint; v_first bigint; v_last bigint := 0; v_is_wait_over boolean; v_woken int := 0;
  v_created jsonb := '[]'; v_new_runs text[] := '{}'; v_new_queues text[] := '{}'; v_busy_threads text[] := '{}'; v_key text; v_id bigint;
BEGIN
  is_refused := true;
  places := '{}';
  SELECT * INTO c FROM jsonb_to_record(p_change) AS x(
    owner text, thread text, run text, count int, slot int, rank int, is_checkpoint boolean, label text, state_version bigint, snapshot int, read bigint[], mail_seen bigint, delivers jsonb, records jsonb,
    patch int, patch_crc bigint, guard text, epoch bigint, lease text, guard_written bigint, guard_status text, is_undisturbed boolean, guard_head bigint,
    has_run boolean, status text, sets_reason boolean, reason text, due_kind int, due bigint, wait_key text, sets_step boolean, step text,
    has_progress boolean, uncounts boolean, starts_tape boolean, has_new_input boolean, sets_end boolean, lease_ms bigint, operation jsonb, creates jsonb);
  SELECT * INTO t FROM holdfast.threads x WHERE x.owner = c.owner AND x.thread_id = c.thread FOR NO KEY UPDATE;
  IF c.run IS NOT NULL THEN
    SELECT * INTO r FROM holdfast.runs x WHERE x.owner = c.owner AND x.run_id = c.run FOR NO KEY UPDATE;
  END IF;
  ${judgeSql}
  is_refused := false;
  ${writeSql}

  -- A run created on this thread has moved its head; a change with events answers with their positions.
  IF c.count = 0 AND c.creates IS NOT NULL THEN
    SELECT coalesce(max(x.head_seq), 0) INTO v_before FROM holdfast.threads x WHERE x.owner = c.owner AND x.thread_id = c.thread;
    v_first := v_before;
  END IF;
  answer := jsonb_build_object('first', v_first, 'last', v_before + c.count, 'mail', ${hasMailSql}, 'woken', v_woken > 0, 'created', v_created);
END $$;
`
