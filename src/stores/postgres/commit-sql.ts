import { dueSql, durableSql, endedSql, nowSql, planSql, rowChanges, sealSql, settleOpenSql, takenSql } from './sql.ts'

const dueAfter = dueSql({
  before: 'r.due_at',
  kind: 'a.due_kind',
  due: 'a.due',
  status: 'a.status',
  hasMail: 'r.last_message > coalesce(a.seen, 0)',
})
/** Whether a held change changes anything in the run's row. */
const isMoved = `(num_nonnulls(a.status, a.tape, a.input, a.ending, a.due_kind) > 0 OR ${rowChanges({ flags: 'a.flags', step: 'a.step', leaseMs: 'a.lease_ms' })})`
const snapshotPlace = { seq: 'v_before[a.slot] + a.ord', stateVersion: 'coalesce(a.version, t.state_version)' }

/**
 * One batch of changes: one call, one round trip, one transaction, one flush. Isolation is READ COMMITTED, nothing stronger.
 *
 *   P1  Whatever decides over a thread or its runs does so under the lock of the thread's row. Locks come first, in the order of
 *       ids: threads, then runs, then operations; those of runs that messages are delivered to, too. Each later statement of a function has a snapshot of its own and so sees what
 *       was committed before the lock was granted. (One statement has one snapshot: of what it waited for it would see half.)
 *   P2  A refused change leaves nothing: it is judged before it writes, or its writes are taken back by a savepoint.
 *   P3  A position is given out by raising threads.head_seq; the primary key of the log is the last line of defence. Whatever is
 *       written under a lease raises threads.written_seq with it, and a holder that knows a greater one is refused.
 *   P4  Row numbers that a client remembers are looked up together with epoch and lease id: after a failover they may have been
 *       given out again, and then name rows of others.
 *   P5  The batch leaves its answer in the row of its writer (writes.ts), so that a lost connection hides nothing.
 *
 * The client sorts the changes into three kinds:
 *
 *   held    (h_, m_, s_, k_) under a lease that this process claimed, so that row numbers are known: nearly every step, and how a run
 *           begins, waits and ends. Sorted by thread; each thread is named once and by no other change. Written set by set.
 *   starts  (c_) one new run on a thread that nobody else in the batch names. Written set by set where the thread is new.
 *   others  (p_others) everything else, one by one in order: apply-sql.ts.
 *
 * Every change that appends events, and every run that is created, has a slot: an index into v_thread, v_before and v_run,
 * which say where its events (e_) go. The log is written in one statement at the end. Whatever creates a thread
 * or a run has a rank, so that numbers rise in the order of the changes, however they are written.
 *
 * Flags of a held change: 1 has progress, 2 sets the step, 4 uncounts the claim, 8 sets the reason. m_tape, m_input and m_end
 * are positions counted from the head before the change.
 */
export const commitFunction = `
CREATE OR REPLACE FUNCTION holdfast.fn_commit(
  p_writer bigint, p_batch bigint, p_offset bigint, p_sync boolean, p_ranks int,
  h_thread bigint[], h_run bigint[], h_epoch bigint[], h_lease text[], h_written bigint[], h_count int[], h_patch int[], h_patch_crc bigint[], h_flags int[], h_step text[], h_lease_ms bigint[],
  m_status text[], m_reason text[], m_due_kind int[], m_due bigint[], m_seen bigint[], m_tape int[], m_input int[], m_end int[], m_version bigint[],
  s_slot int[], s_ord int[], s_version bigint[], s_crc bigint[], s_text text[], s_bytes bytea[],
  c_index int[], c_rank int[], c_owner text[], c_thread text[], c_run text[], c_workflow text[], c_version bigint[], c_queue text[],
  c_priority bigint[], c_fingerprint text[], c_due_kind int[], c_due bigint[], c_reject boolean[],
  p_others jsonb, k_chunks jsonb, x_crc bigint[], x_text text[], x_bytes bytea[],
  e_slot int[], e_ord int[], e_type text[], e_step text[], e_count int[], e_attempt int[], e_at float8[], e_duration float8[],
  e_checkpoint_bytes bigint[], e_crc bigint[], e_payload text[], e_payload_bytes bytea[], e_patch text[], e_patch_bytes bytea[]
) RETURNS text LANGUAGE plpgsql VOLATILE ${planSql}
AS $$
#variable_conflict use_column
DECLARE
  v_now bigint := ${nowSql};
  v_held int := coalesce(cardinality(h_thread), 0);
  v_starts int := coalesce(cardinality(c_run), 0);
  v_thread bigint[] := '{}'; v_before bigint[] := '{}'; v_run bigint[] := '{}';
  v_written int; v_raised int; v_new int; v_slots int[]; v_mail int[]; v_last bigint[];
  v_thread_ids bigint[]; v_run_ids bigint[]; v_ids bigint[]; v_made int[];
  v_others jsonb := p_others; v_change jsonb; v_result record; v_results jsonb[] := '{}'; i int;
  v_answer text; v_queues text[]; v_tight text[];
BEGIN
  ${durableSql}

  -- Queues that may be full come before all other locks: what is counted afterwards includes the starts of whoever had them before.
  IF p_others IS NOT NULL OR c_run IS NOT NULL THEN
    SELECT array_agg(q.name) INTO v_queues FROM (
        SELECT q.name FROM holdfast.queues q WHERE q.max_queued IS NOT NULL AND (q.name = ANY (c_queue) OR q.name IN (
          SELECT n.queue FROM jsonb_to_recordset(p_others) AS a(creates jsonb), jsonb_to_recordset(a.creates) AS n(queue text)))
          ORDER BY q.name FOR NO KEY UPDATE
      ) q;
    IF v_queues IS NOT NULL THEN
      -- Where there is room for all of the batch nothing need be judged; where there is not, starts are judged one by one.
      SELECT array_agg(q.name) INTO v_tight FROM holdfast.queues q WHERE q.name = ANY (v_queues) AND q.max_queued <
        coalesce(cardinality(array_positions(c_queue, q.name)), 0)
        + (SELECT count(*) + coalesce(sum(jsonb_array_length(a.creates)), 0) FROM jsonb_to_recordset(p_others) AS a(creates jsonb))
        + (SELECT count(*) FROM (SELECT FROM holdfast.runs r WHERE r.queue = q.name AND r.status = 'pending'
          LIMIT q.max_queued + 1) x);
    END IF;
  END IF;

  -- With changes of other kinds everything that exists is locked first, in order. A batch without them locks as it goes (P1).
  IF p_others IS NOT NULL OR c_run IS NOT NULL THEN
    SELECT array_agg(id) INTO v_ids FROM (
        SELECT t.id FROM (
            SELECT a.owner, a.thread FROM jsonb_to_recordset(p_others) AS a(owner text, thread text)
            UNION ALL
            SELECT n.owner, n.thread FROM jsonb_to_recordset(p_others) AS a(creates jsonb), jsonb_to_recordset(a.creates) AS n(owner text, thread text)
            UNION ALL
            SELECT a.owner, a.thread FROM unnest(c_owner, c_thread) AS a(owner, thread)
          ) k CROSS JOIN LATERAL (SELECT t.id FROM holdfast.threads t WHERE t.owner = k.owner AND t.thread_id = k.thread LIMIT 1) t
        UNION ALL
        SELECT r.thread FROM jsonb_to_recordset(p_others) AS a(delivers jsonb) CROSS JOIN jsonb_to_recordset(a.delivers) AS m(owner text, run text)
          CROSS JOIN LATERAL (SELECT r.thread FROM holdfast.runs r WHERE r.owner = m.owner AND r.run_id = m.run LIMIT 1) r
      ) x;
    IF p_others IS NOT NULL OR v_ids IS NOT NULL THEN
      PERFORM FROM holdfast.threads t WHERE t.id = ANY (h_thread || v_ids) ORDER BY t.id FOR NO KEY UPDATE;
    END IF;
    IF p_others IS NOT NULL THEN
      SELECT array_agg(r.id) INTO v_ids FROM (
          SELECT a.owner, a.run FROM jsonb_to_recordset(p_others) AS a(owner text, run text)
          UNION ALL
          SELECT m.owner, m.run FROM jsonb_to_recordset(p_others) AS a(delivers jsonb) CROSS JOIN jsonb_to_recordset(a.delivers) AS m(owner text, run text)
        ) k CROSS JOIN LATERAL (SELECT r.id FROM holdfast.runs r WHERE r.owner = k.owner AND r.run_id = k.run LIMIT 1) r;
      PERFORM FROM holdfast.runs r WHERE r.id = ANY (h_run || v_ids) ORDER BY r.thread, r.id FOR NO KEY UPDATE;
    END IF;
    -- Under the locks: a thread's runs are in line in the order of their numbers.
    IF p_ranks > 0 THEN
      SELECT array_agg(nextval('holdfast.threads_id_seq')), array_agg(nextval('holdfast.runs_id_seq')) INTO v_thread_ids, v_run_ids
        FROM generate_series(1, p_ranks);
    END IF;
  END IF;

  IF v_held > 0 THEN
    -- Raising the heads is also what locks the threads. A thread whose lease is lost is neither raised nor locked (P4).
    WITH raised AS (
      UPDATE holdfast.threads t SET head_seq = t.head_seq + a.count,
          written_seq = CASE WHEN a.count > 0 THEN t.head_seq + a.count ELSE t.written_seq END,
          patch_seq = coalesce(t.head_seq + a.patch, t.patch_seq),
          patch_checksum = coalesce(${sealSql('a.patch_crc', { seq: 't.head_seq + a.patch' })}, t.patch_checksum)
        FROM unnest(h_thread, h_run, h_epoch, h_lease, h_written, h_count, h_patch, h_patch_crc)
          WITH ORDINALITY AS a(thread, run, epoch, lease, written, count, patch, patch_crc, slot)
          JOIN holdfast.runs r ON r.id = a.run AND r.thread + 0 = a.thread AND r.epoch = a.epoch AND r.lease_id = a.lease
        WHERE t.id = a.thread AND t.written_seq >= coalesce(a.written, 0)
        RETURNING a.slot, t.head_seq - a.count AS before
    ) SELECT array_agg(before ORDER BY slot), array_agg(slot ORDER BY slot) INTO v_before, v_slots FROM raised;
    v_raised := coalesce(cardinality(v_before), 0);
    v_thread := h_thread;
    v_run := h_run;
    IF v_raised < v_held THEN
      v_thread := array_fill(0::bigint, ARRAY[v_held]); v_run := v_thread;
      v_last := v_before; v_before := array_fill(-1::bigint, ARRAY[v_held]);
      FOR i IN 1..v_raised LOOP
        v_before[v_slots[i]] := v_last[i]; v_thread[v_slots[i]] := h_thread[v_slots[i]]; v_run[v_slots[i]] := h_run[v_slots[i]];
      END LOOP;
    END IF;

    -- Under the threads' locks nobody else can claim or end these runs: one that a step leaves as it is need not be written.
    WITH held AS (
      SELECT a.*, r.last_message, ${isMoved} AS is_moved
        FROM unnest(h_run, h_epoch, h_lease, h_flags, h_step, h_lease_ms, m_status, m_reason, m_due_kind, m_due, m_seen, m_tape, m_input, m_end, v_before)
          WITH ORDINALITY AS a(run, epoch, lease, flags, step, lease_ms, status, reason, due_kind, due, seen, tape, input, ending, before, slot)
        JOIN holdfast.runs r ON r.id = a.run AND r.epoch = a.epoch AND r.lease_id = a.lease
        WHERE a.before >= 0
    ), written AS (
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
          finished_at = CASE WHEN a.status IN ${endedSql} THEN v_now ELSE r.finished_at END,
          is_next = r.is_next AND coalesce(a.status NOT IN ${endedSql}, true),
          lease_id = CASE WHEN a.status <> 'running' THEN NULL ELSE r.lease_id END,
          lease_holder = CASE WHEN a.status <> 'running' THEN NULL ELSE r.lease_holder END,
          due_at = ${dueAfter},
          wake_at = CASE
            WHEN coalesce(a.status, 'running') = 'running' THEN  -- lazily: an unchanged wake_at keeps the update off the indexes
              CASE WHEN r.wake_at - v_now NOT BETWEEN a.lease_ms * 2 / 3 AND a.lease_ms THEN v_now + a.lease_ms ELSE r.wake_at END
            WHEN a.status IN ('pending', 'waiting') THEN ${dueAfter} END
        FROM held a WHERE r.id = a.run AND a.is_moved
    ) SELECT count(*), array_agg(slot) FILTER (WHERE last_message > 0), array_agg(last_message) FILTER (WHERE last_message > 0)
        INTO v_written, v_mail, v_last FROM held;
    ${takenSql('v_written < v_raised')}

    IF k_chunks IS NOT NULL THEN
      FOR v_change IN SELECT x FROM jsonb_array_elements(k_chunks) x LOOP
        i := v_change->'slot';
        IF v_run[i] > 0 THEN PERFORM holdfast.fn_append_chunks(v_run[i], v_change->'chunks', x_text, x_bytes); END IF;
      END LOOP;
    END IF;
    IF s_slot IS NOT NULL THEN
      INSERT INTO holdfast.snapshots (thread, seq, state_version, checksum, state, state_bytes)
        SELECT t.id, v_before[a.slot] + a.ord, coalesce(a.version, t.state_version), ${sealSql('a.crc', snapshotPlace)}, a.text, a.bytes
          FROM unnest(s_slot, s_ord, s_version, s_crc, s_text, s_bytes) AS a(slot, ord, version, crc, text, bytes)
          JOIN holdfast.threads t ON t.id = v_thread[a.slot]
        ON CONFLICT (thread, seq) DO UPDATE SET state_version = excluded.state_version, checksum = excluded.checksum,
          state = excluded.state, state_bytes = excluded.state_bytes;
    END IF;
    IF m_version IS NOT NULL THEN
      UPDATE holdfast.threads t SET state_version = a.version FROM unnest(v_thread, m_version) AS a(thread, version)
        WHERE t.id = a.thread AND t.state_version <> a.version;
    END IF;
    IF m_status IS NOT NULL THEN
      -- The lines move up.
      UPDATE holdfast.runs r SET is_next = true
        FROM unnest(v_thread, m_status) AS a(thread, status)
        CROSS JOIN LATERAL (SELECT l.id FROM holdfast.runs l WHERE l.thread = a.thread AND l.finished_at IS NULL ORDER BY l.finished_at, l.id LIMIT 1) n
        WHERE a.status IN ${endedSql} AND r.id = n.id AND NOT r.is_next;
    END IF;
    IF m_status IS NOT NULL OR m_input IS NOT NULL THEN
      ${settleOpenSql({
        from: 'FROM unnest(v_run, m_status, m_input) AS a(run, status, input)',
        left: `(a.status IN ${endedSql} OR a.input IS NOT NULL) AND x.run = a.run`,
        now: 'v_now',
      })};
    END IF;
  END IF;

  IF v_starts > 0 THEN
    -- A thread that is new to the store has no line and no earlier life. What meets an existing thread or run joins the others.
    WITH thread AS (
      INSERT INTO holdfast.threads (id, owner, thread_id, head_seq, base_seq, incarnation, state_version, epoch_floor, created_at)
        OVERRIDING SYSTEM VALUE
        SELECT v_thread_ids[a.rank], a.owner, a.thread, 1, 0, 1, 0, 0, v_now
          FROM unnest(c_rank, c_owner, c_thread, c_run, c_queue) AS a(rank, owner, thread, run, queue)
          -- LIMIT keeps these from becoming joins, which on empty tables are planned as full scans.
          WHERE (SELECT t.id FROM holdfast.threads t WHERE t.owner = a.owner AND t.thread_id = a.thread LIMIT 1) IS NULL
            AND (SELECT r.id FROM holdfast.runs r WHERE r.owner = a.owner AND r.run_id = a.run LIMIT 1) IS NULL
            AND (v_tight IS NULL OR a.queue <> ALL (v_tight))
        ON CONFLICT (owner, thread_id) DO NOTHING RETURNING id
    ) SELECT count(*), array_agg(id) INTO v_new, v_ids FROM thread;
    IF v_new < v_starts THEN
      SELECT coalesce(array_agg(s), '{}') INTO v_made FROM generate_series(1, v_starts) s WHERE v_thread_ids[c_rank[s]] = ANY (v_ids);
    END IF;
    WITH made AS (
      INSERT INTO holdfast.runs (id, thread, owner, run_id, workflow, version, queue, priority, fingerprint, status, epoch, due_at, wake_at,
          ready, is_next, last_message, claims_without_progress, input_seq, created_at)
        OVERRIDING SYSTEM VALUE
        SELECT v_run_ids[a.rank], v_thread_ids[a.rank], a.owner, a.run, a.workflow, a.version, a.queue, a.priority, a.fingerprint, 'pending', 0,
            CASE a.due_kind WHEN 1 THEN v_now + a.due ELSE a.due END, CASE a.due_kind WHEN 1 THEN v_now + a.due ELSE a.due END,
            CASE WHEN a.due <= CASE a.due_kind WHEN 1 THEN 0 ELSE v_now END THEN 2 ELSE 0 END, true, 0, 0, 1, v_now
          FROM unnest(c_rank, c_owner, c_run, c_workflow, c_version, c_queue, c_priority, c_fingerprint, c_due_kind, c_due)
            WITH ORDINALITY AS a(rank, owner, run, workflow, version, queue, priority, fingerprint, due_kind, due, slot)
          WHERE v_made IS NULL OR a.slot = ANY (v_made)
        ON CONFLICT (owner, run_id) DO NOTHING RETURNING id
    ) SELECT count(*), array_agg(id) INTO v_written, v_ids FROM made;
    IF v_written < v_new THEN
      -- Another process has created a run of this id, on another thread, in this very moment: its new thread goes again.
      SELECT coalesce(array_agg(s), '{}') INTO v_slots
        FROM generate_series(1, v_starts) s WHERE (v_made IS NULL OR s = ANY (v_made)) AND v_run_ids[c_rank[s]] = ANY (v_ids);
      DELETE FROM holdfast.threads t USING generate_series(1, v_starts) s
        WHERE (v_made IS NULL OR s = ANY (v_made)) AND s <> ALL (v_slots) AND t.id = v_thread_ids[c_rank[s]];
      v_made := v_slots;
    END IF;
    IF v_made IS NOT NULL THEN
      SELECT coalesce(p_others, '[]') || coalesce(jsonb_agg(jsonb_build_object('index', c_index[s], 'owner', c_owner[s], 'thread', c_thread[s], 'count', 0,
            'guard', 'none', 'creates', jsonb_build_array(jsonb_build_object('slot', v_held + s, 'rank', c_rank[s], 'owner', c_owner[s],
              'thread', c_thread[s], 'run', c_run[s], 'workflow', c_workflow[s], 'version', c_version[s], 'queue', c_queue[s],
              'priority', c_priority[s], 'fingerprint', c_fingerprint[s], 'due_kind', c_due_kind[s], 'due', c_due[s], 'reject', c_reject[s])))), '[]')
        INTO v_others FROM generate_series(1, v_starts) s WHERE s <> ALL (v_made);
      SELECT jsonb_agg(x ORDER BY (x->'index')::int) INTO v_others FROM jsonb_array_elements(v_others) x;
    END IF;
    SELECT v_thread || array_agg(CASE WHEN v_made IS NULL OR s = ANY (v_made) THEN v_thread_ids[c_rank[s]] ELSE 0 END),
           v_run || array_agg(v_run_ids[c_rank[s]]), v_before || array_fill(0::bigint, ARRAY[v_starts])
      INTO v_thread, v_run, v_before FROM generate_series(1, v_starts) s;
  END IF;

  FOR v_change IN SELECT x FROM jsonb_array_elements(v_others) x LOOP
    IF v_change->'creates' IS NULL AND v_change->>'guard' IN ('lease', 'run') THEN
      v_result := holdfast.fn_apply(v_change, v_now, v_thread_ids, v_run_ids, x_crc, x_text, x_bytes);
    ELSE
      -- May be refused after it wrote, or meet somebody who creates the same in this moment (P2).
      FOR i IN 1..5 LOOP
        BEGIN
          v_result := holdfast.fn_apply(v_change, v_now, v_thread_ids, v_run_ids, x_crc, x_text, x_bytes);
          IF v_result.is_refused THEN RAISE EXCEPTION USING ERRCODE = 'HF002'; END IF;
          EXIT;
        EXCEPTION
          WHEN SQLSTATE 'HF002' THEN EXIT;
          WHEN SQLSTATE 'HF001' THEN IF i = 5 THEN RAISE EXCEPTION 'the same run is being created elsewhere' USING ERRCODE = '40001'; END IF;
        END;
      END LOOP;
    END IF;
    v_results := v_results || v_result.answer;
    IF NOT v_result.is_refused THEN
      FOR i IN 1..cardinality(v_result.places) BY 4 LOOP
        v_thread[v_result.places[i]] := v_result.places[i + 1];
        v_before[v_result.places[i]] := v_result.places[i + 2];
        v_run[v_result.places[i]] := v_result.places[i + 3];
      END LOOP;
    END IF;
  END LOOP;

  IF e_slot IS NOT NULL THEN
    INSERT INTO holdfast.log (thread, seq, run, at, duration_ms, checksum, checkpoint_bytes, count, attempt, type, step, payload, payload_bytes, patch, patch_bytes)
      SELECT v_thread[e.slot], v_before[e.slot] + e.ord, nullif(v_run[e.slot], 0), e.at, e.duration,
          ${sealSql('e.crc', { seq: 'v_before[e.slot] + e.ord' })},
          e.checkpoint_bytes, e.count, e.attempt, e.type, e.step, e.payload, e.payload_bytes, e.patch, e.patch_bytes
        FROM unnest(e_slot, e_ord, e_at, e_duration, e_crc, e_checkpoint_bytes, e_count, e_attempt, e_type, e_step, e_payload, e_payload_bytes, e_patch, e_patch_bytes)
          AS e(slot, ord, at, duration, crc, checkpoint_bytes, count, attempt, type, step, payload, payload_bytes, patch, patch_bytes)
        WHERE v_thread[e.slot] > 0;
  END IF;

  v_answer := concat('{"now":', v_now, ',"before":', array_to_json(v_before[1:v_held]), ',"mail":', coalesce(array_to_json(v_mail)::text, '[]'),
    ',"last":', coalesce(array_to_json(v_last)::text, '[]'),
    CASE WHEN v_made IS NOT NULL THEN concat(',"made":', array_to_json(v_made)) END,
    CASE WHEN v_results <> '{}' THEN concat(',"others":[', array_to_string(v_results, ','), ']') END, '}');
  PERFORM holdfast.fn_record(p_writer, p_batch, v_answer);
  RETURN v_answer;
END $$;
`
