/**
 * One batch of changes: one call, one round trip, one transaction, one flush. Isolation is READ COMMITTED, nothing stronger.
 *
 *   P1  Whatever decides over a thread or its runs does so under the lock of the thread's row. Locks come first, in the order of
 *       ids: threads, then runs, then operations. Each later statement of a function has a snapshot of its own and so sees what
 *       was committed before the lock was granted. (One statement has one snapshot: what it waited for it would see half.)
 *   P2  A refused change leaves nothing: it is judged before it writes, or its writes are taken back by a savepoint.
 *   P3  A position is given out by raising threads.head_seq; the primary key of the log is the last line of defence.
 *   P4  The batch leaves its answer in the row of its writer (writes.ts), so that a lost connection hides nothing.
 *
 * The client sorts the changes into three kinds:
 *
 *   held    (h_) under a lease that this process claimed, so that the row numbers are known: nearly every step, and how a run
 *           begins, waits and ends. Sorted by thread; each thread is named once and by no other change. Set by set.
 *   starts  (c_) one new run on a thread that nobody else in the batch names. Set by set where the thread is new.
 *   others  (p_others) everything else, one by one in order: apply-sql.ts.
 *
 * Every change that appends events, and every run that is created, has a slot: an index into v_thread, v_before, v_run and
 * v_incarnation, which say where its events (e_) go. The log is written in one statement at the end.
 *
 * Flags of a held change: 1 has progress, 2 sets the step, 4 uncounts the claim, 8 sets the reason.
 * Kinds of due: 1 from now, 2 at, 3 never. m_tape, m_input and m_end are positions counted from the head before the change.
 */
export const commitFunction = `
CREATE OR REPLACE FUNCTION holdfast.fn_commit(
  p_offset bigint, p_sync boolean, p_writer bigint, p_batch bigint,
  h_thread bigint[], h_run bigint[], h_epoch bigint[], h_lease text[], h_count int[], h_flags int[], h_step text[], h_lease_ms bigint[],
  m_status text[], m_reason text[], m_due_kind int[], m_due bigint[], m_tape int[], m_input int[], m_end int[], m_version bigint[],
  s_slot int[], s_ord int[], s_version bigint[], s_crc bigint[], s_text text[], s_bytes bytea[],
  c_owner text[], c_thread text[], c_run text[], c_workflow text[], c_version bigint[], c_queue text[], c_priority float8[],
  c_fingerprint text[], c_due_kind int[], c_due bigint[],
  p_others jsonb, x_crc bigint[], x_text text[], x_bytes bytea[],
  e_slot int[], e_ord int[], e_type text[], e_step text[], e_count int[], e_attempt int[], e_at float8[], e_duration float8[],
  e_checkpoint_bytes bigint[], e_crc bigint[], e_payload text[], e_payload_bytes bytea[], e_patch text[], e_patch_bytes bytea[]
) RETURNS text LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET lock_timeout = '10s'
AS $$
#variable_conflict use_column
DECLARE
  v_now bigint := holdfast.fn_now(p_offset);
  v_held int := coalesce(cardinality(h_thread), 0);
  v_thread bigint[] := '{}'; v_before bigint[] := '{}'; v_run bigint[] := '{}'; v_incarnation bigint[] := '{}';
  v_refused int[]; v_mail int[]; v_written int;
  v_made int[]; v_ids bigint[]; v_new_runs bigint[];
  v_change jsonb; v_rest jsonb; v_outcome record; v_outcomes jsonb[] := '{}'; i int; v_tries int;
  v_answer text;
BEGIN
  PERFORM holdfast.fn_durable(p_sync);

  -- With changes of other kinds everything that exists is locked first, in order. A batch without them locks as it goes.
  IF p_others IS NOT NULL THEN
    SELECT array_agg(t.id) INTO v_ids FROM (
        SELECT a.owner, a.thread FROM jsonb_to_recordset(p_others) AS a(owner text, thread text)
        UNION SELECT n.owner, n.thread FROM jsonb_to_recordset(p_others) AS a(creates jsonb), jsonb_to_recordset(a.creates) AS n(owner text, thread text)
      ) k CROSS JOIN LATERAL (SELECT t.id FROM holdfast.threads t WHERE t.owner = k.owner AND t.thread_id = k.thread LIMIT 1) t;
    PERFORM FROM holdfast.threads t WHERE t.id = ANY (h_thread || v_ids) ORDER BY t.id FOR NO KEY UPDATE;
    SELECT array_agg(r.id) INTO v_ids FROM jsonb_to_recordset(p_others) AS a(owner text, run text)
      CROSS JOIN LATERAL (SELECT r.id FROM holdfast.runs r WHERE r.owner = a.owner AND r.run_id = a.run LIMIT 1) r;
    PERFORM FROM holdfast.runs r WHERE r.id = ANY (h_run || v_ids) ORDER BY r.thread, r.id FOR NO KEY UPDATE;
  END IF;

  IF v_held > 0 THEN
    -- Raising the heads is also what locks the threads (P1); a refused change takes its positions back below.
    WITH raised AS (
      UPDATE holdfast.threads t SET head_seq = t.head_seq + a.count
        FROM unnest(h_thread, h_count) WITH ORDINALITY AS a(thread, count, slot) WHERE t.id = a.thread
        RETURNING a.slot, t.head_seq - a.count AS before, t.incarnation
    ) SELECT array_agg(before ORDER BY slot), array_agg(incarnation ORDER BY slot) INTO v_before, v_incarnation FROM raised;

    WITH written AS (
      UPDATE holdfast.runs r SET
          status = coalesce(a.status, r.status),
          reason = CASE WHEN a.flags & 8 <> 0 THEN a.reason ELSE r.reason END,
          current_step = CASE WHEN a.flags & 2 <> 0 THEN a.step ELSE r.current_step END,
          claims_without_progress = CASE WHEN a.flags & 1 <> 0 THEN 0
            WHEN a.flags & 4 <> 0 THEN greatest(r.claims_without_progress - 1, 0) ELSE r.claims_without_progress END,
          tape_seq = CASE WHEN a.tape IS NULL THEN r.tape_seq ELSE a.before + a.tape END,
          started_at = CASE WHEN a.tape IS NULL THEN r.started_at ELSE coalesce(r.started_at, v_now) END,
          input_seq = CASE WHEN a.input IS NULL THEN r.input_seq ELSE a.before + a.input END,
          end_seq = CASE WHEN a.ending IS NULL THEN r.end_seq ELSE a.before + a.ending END,
          finished_at = CASE WHEN a.status IN ('completed', 'failed', 'cancelled') THEN v_now ELSE r.finished_at END,
          is_next = r.is_next AND (a.status IS NULL OR a.status NOT IN ('completed', 'failed', 'cancelled')),
          lease_id = CASE WHEN a.status <> 'running' THEN NULL ELSE r.lease_id END,
          lease_holder = CASE WHEN a.status <> 'running' THEN NULL ELSE r.lease_holder END,
          due_at = CASE WHEN a.due_kind IS NULL AND a.status IS NULL THEN r.due_at ELSE holdfast.fn_due(r.due_at, a.due_kind, a.due, v_now, a.status, r.has_mail) END,
          wake_at = CASE
            WHEN a.status IS NULL OR a.status = 'running' THEN
              CASE WHEN r.wake_at - v_now NOT BETWEEN a.lease_ms * 2 / 3 AND a.lease_ms THEN v_now + a.lease_ms ELSE r.wake_at END
            WHEN a.status IN ('pending', 'waiting') THEN holdfast.fn_due(r.due_at, a.due_kind, a.due, v_now, a.status, r.has_mail) END
        FROM unnest(h_run, h_epoch, h_lease, h_flags, h_step, h_lease_ms, m_status, m_reason, m_due_kind, m_due, m_tape, m_input, m_end, v_before)
          WITH ORDINALITY AS a(run, epoch, lease, flags, step, lease_ms, status, reason, due_kind, due, tape, input, ending, before, slot)
        WHERE r.id = a.run AND r.epoch = a.epoch AND r.lease_id = a.lease
        RETURNING a.slot, r.has_mail
    ) SELECT count(*), array_agg(slot) FILTER (WHERE has_mail), CASE WHEN count(*) < v_held THEN array_agg(slot) END
        INTO v_written, v_mail, v_refused FROM written;

    v_thread := h_thread;
    v_run := h_run;
    IF v_written < v_held THEN
      SELECT array_agg(s) INTO v_refused FROM generate_series(1, v_held) s WHERE s <> ALL (coalesce(v_refused, '{}'));
      UPDATE holdfast.threads t SET head_seq = t.head_seq - h_count[s] FROM unnest(v_refused) s WHERE t.id = h_thread[s];
      FOREACH i IN ARRAY v_refused LOOP
        v_thread[i] := 0; v_run[i] := 0; v_before[i] := -1;
      END LOOP;
    END IF;

    IF m_version IS NOT NULL OR s_slot IS NOT NULL THEN
      INSERT INTO holdfast.snapshots AS z (thread, seq, state_version, checksum, state, state_bytes)
        SELECT t.id, v_before[a.slot] + a.ord, coalesce(a.version, t.state_version),
            holdfast.fn_seal(a.crc, v_before[a.slot] + a.ord, t.incarnation, coalesce(a.version, t.state_version)), a.text, a.bytes
          FROM unnest(s_slot, s_ord, s_version, s_crc, s_text, s_bytes) AS a(slot, ord, version, crc, text, bytes)
          JOIN holdfast.threads t ON t.id = v_thread[a.slot]
        ON CONFLICT (thread, seq) DO UPDATE SET state_version = excluded.state_version, checksum = excluded.checksum,
          state = excluded.state, state_bytes = excluded.state_bytes;
      UPDATE holdfast.threads t SET state_version = a.version FROM unnest(v_thread, m_version) AS a(thread, version)
        WHERE t.id = a.thread AND t.state_version <> a.version;
    END IF;

    IF m_status IS NOT NULL THEN
      -- The lines move up, and what an ended run left intended only a person can close.
      UPDATE holdfast.runs r SET is_next = true
        FROM unnest(v_thread, m_status) AS a(thread, status)
        CROSS JOIN LATERAL (SELECT l.id FROM holdfast.runs l WHERE l.thread = a.thread AND l.finished_at IS NULL ORDER BY l.id LIMIT 1) n
        WHERE a.status IN ('completed', 'failed', 'cancelled') AND r.id = n.id AND NOT r.is_next;
      UPDATE holdfast.operations o SET status = 'unsure'
        FROM unnest(v_run, m_status) AS a(run, status)
        WHERE a.status IN ('completed', 'failed', 'cancelled') AND o.run = a.run AND o.status = 'intended';
    END IF;
  END IF;

  IF c_run IS NOT NULL THEN
    -- A thread that is new to the store has no line and no earlier life. What meets an existing thread or run goes to the others.
    -- Two statements, each in one order, so that two processes that start the same runs do not stand in each other's way.
    WITH thread AS (
      INSERT INTO holdfast.threads (owner, thread_id, head_seq, base_seq, incarnation, state_version, epoch_floor, created_at)
        SELECT a.owner, a.thread, 1, 0, 1, 0, 0, v_now FROM unnest(c_owner, c_thread, c_run) AS a(owner, thread, run)
          WHERE NOT EXISTS (SELECT FROM holdfast.runs r WHERE r.owner = a.owner AND r.run_id = a.run)
            AND NOT EXISTS (SELECT FROM holdfast.threads t WHERE t.owner = a.owner AND t.thread_id = a.thread)
          ORDER BY a.owner COLLATE "C", a.thread COLLATE "C"
        ON CONFLICT (owner, thread_id) DO NOTHING RETURNING id
    ) SELECT array_agg(id) INTO v_ids FROM thread;
    WITH made AS (
      INSERT INTO holdfast.runs AS r (owner, run_id, thread, workflow, version, queue, priority, fingerprint, status, epoch, due_at, wake_at,
          is_next, has_mail, claims_without_progress, input_seq, created_at)
        SELECT t.owner, a.run, t.id, a.workflow, a.version, a.queue, a.priority, a.fingerprint, 'pending', 0, d.due, d.due, true, false, 0, 1, v_now
          FROM (SELECT t.id, t.owner, t.thread_id FROM holdfast.threads t WHERE t.id = ANY (v_ids)) t
          JOIN (SELECT * FROM unnest(c_owner, c_thread, c_run, c_workflow, c_version, c_queue, c_priority, c_fingerprint, c_due_kind, c_due)
                  AS a(owner, thread, run, workflow, version, queue, priority, fingerprint, due_kind, due)) a ON false
          CROSS JOIN LATERAL (SELECT CASE a.due_kind WHEN 1 THEN v_now + a.due ELSE a.due END AS due) d
        ON CONFLICT (owner, run_id) DO NOTHING RETURNING r.id
    ) SELECT array_agg(id) INTO v_new_runs FROM made;
  END IF;
  RETURN v_answer;
END $$;
`
