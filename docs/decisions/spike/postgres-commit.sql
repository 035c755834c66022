-- Spike for decision 0001: one batch of changes, one call, one round trip, on Postgres.
--
--   SELECT * FROM holdfast_commit($1 plain, $2 bounds, $3 starts, $4 others, $5 blob, $6 clock offset, $7 sync, $8 … $24 events)
--
-- A prepared, autocommitted call is one transaction and one flush. Isolation: READ COMMITTED, nothing stronger.
--
-- Why a function and not one WITH chain: a statement has ONE snapshot. When it waits for a row lock, READ COMMITTED
-- refreshes the locked row and nothing else. Whatever is decided over a second row (who waits for this operation? does
-- this run exist by now? who is next in line? a key met twice in one batch) must be read by a LATER statement than the one
-- that took the lock. Inside a VOLATILE function every statement has a fresh snapshot.
--
-- The client sorts the changes of a batch into four JSON arrays, null when empty:
--
--   plain   a lease guard; changes only current_step, claims_without_progress, the lease and the state version. Nearly every step.
--   bounds  a lease guard; also status, reason, due, tape, input, end or a snapshot: how a run begins, waits and ends.
--   starts  no guard, no events, exactly one run to create.
--   others  everything else (operations, waitKey, other guards, labels, messages), and every change whose thread or run is named
--           by another change of the batch: judged one by one, so later ones see the earlier.
--
-- plain, bounds and starts decide over their own run and thread, so each is a WITH chain over all of them at once (about 40 µs
-- of the server's time a change); others are a loop (about 200 µs). A plain or bounds change without a row in the answer was refused
-- with lease_lost. A start without a row met an existing thread or run: the function has moved it to `others` itself.
--
-- Lock order: runs by id, then threads by id, then operations. It has a few rare gaps (waking the waiters of two operations
-- crosswise; a run that got in line between two of our locks). They end as 40P01 with nothing written: send the batch again.

-- Tables ------------------------------------------------------------------------------------------------------------------
-- Ids are compared bytewise: COLLATE "C", and server_encoding must be UTF8 (checked when the store is opened).
-- fillfactor leaves room for heap-only updates: a plain step changes no indexed column of `runs` or `threads`.

CREATE TABLE threads (
  id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  owner         text COLLATE "C" NOT NULL,
  thread_id     text COLLATE "C" NOT NULL,
  head_seq      bigint NOT NULL DEFAULT 0,
  base_seq      bigint NOT NULL DEFAULT 0,
  incarnation   int    NOT NULL DEFAULT 1,
  state_version int    NOT NULL DEFAULT 0,
  epoch_floor   int    NOT NULL DEFAULT 0,   -- highest epoch of a deleted life: new runs start there
  created_at    bigint NOT NULL,
  deleted_at    bigint,
  UNIQUE (owner, thread_id)
) WITH (fillfactor = 70);

-- A lane is one combination a claim can ask for. Few rows; written when a run is created; the client caches the ids.
CREATE TABLE lanes (
  id       int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  queue    text COLLATE "C" NOT NULL,
  workflow text COLLATE "C" NOT NULL,
  version  int NOT NULL,
  priority int NOT NULL,
  UNIQUE (queue, workflow, version, priority)
);

CREATE TABLE runs (
  id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,   -- order of creation, hence the order in a thread's line
  owner         text COLLATE "C" NOT NULL,
  run_id        text COLLATE "C" NOT NULL,
  thread        bigint NOT NULL,
  lane          int    NOT NULL,
  status        text   NOT NULL,
  reason        text,
  fingerprint   text   NOT NULL,
  epoch         int    NOT NULL,
  lease_id      text,
  lease_holder  text,
  due_at        bigint,
  wake_at       bigint,             -- when a claim may take it: due_at, or the end of the lease while it is running
  is_next       boolean NOT NULL,   -- earliest unfinished run of its thread, kept by commit; claim never looks at neighbours
  is_started    boolean NOT NULL DEFAULT false,
  claims_without_progress int NOT NULL DEFAULT 0,
  mail_count    int    NOT NULL DEFAULT 0,
  current_step  text,
  wait_key      text COLLATE "C",
  input_seq     bigint NOT NULL,
  tape_seq      bigint,
  end_seq       bigint,
  created_at    bigint NOT NULL,
  started_at    bigint,
  finished_at   bigint,
  UNIQUE (owner, run_id)
) WITH (fillfactor = 50);
CREATE INDEX runs_wake ON runs (lane, wake_at) WHERE is_next;
CREATE INDEX runs_line ON runs (thread, id) WHERE finished_at IS NULL;
CREATE INDEX runs_wait ON runs (owner, wait_key) WHERE wait_key IS NOT NULL;

-- A payload is text or bytes: two columns, of which one is null (a null costs one bit). Text stays readable in psql and
-- travels without hex. `checksum` is sealed: (base + seq) mod 2^32.
CREATE TABLE log (
  thread        bigint NOT NULL,
  seq           bigint NOT NULL,
  run           bigint,
  type          text NOT NULL,
  step          text,
  count         int NOT NULL,
  attempt       int NOT NULL,
  at            bigint NOT NULL,
  duration_ms   double precision,
  payload       text,
  payload_bytes bytea,
  patch         text,
  patch_bytes   bytea,
  is_checkpoint boolean NOT NULL,
  commit_bytes  int,               -- on the last record of a commit: bytes of payloads and patches the commit added
  checksum      bigint NOT NULL,
  PRIMARY KEY (thread, seq)
);

CREATE TABLE snapshots (
  thread bigint, seq bigint, state text, state_bytes bytea, state_version int NOT NULL, checksum bigint NOT NULL,
  PRIMARY KEY (thread, seq)
);
CREATE TABLE labels (thread bigint, label text COLLATE "C", seq bigint NOT NULL, PRIMARY KEY (thread, label));
CREATE TABLE inbox (
  run bigint, id bigint GENERATED ALWAYS AS IDENTITY, kind text NOT NULL, name text, payload text, payload_bytes bytea, at bigint NOT NULL,
  PRIMARY KEY (run, id)
);
CREATE TABLE operations (
  owner text COLLATE "C", key text COLLATE "C", name text NOT NULL, run bigint NOT NULL, thread bigint NOT NULL, status text NOT NULL,
  result text, result_bytes bytea, evidence text, evidence_bytes bytea, resolved_by text, intended_at bigint NOT NULL, closed_at bigint,
  PRIMARY KEY (owner, key)
);
CREATE INDEX operations_open ON operations (run) WHERE status = 'intended';   -- what a run leaves behind at its end

-- A change on the wire -----------------------------------------------------------------------------------------------------
-- `slot` numbers the places that get log positions: every change is one, and every run that a change creates is one more.
-- The type is that of `others`; plain, bounds and starts use some of the fields.

CREATE TYPE holdfast_change AS (
  slot int, owner text, thread text, run text, n int,
  guard text, epoch int, lease text, guard_status text, undisturbed boolean, guard_head bigint,
  status text, set_reason boolean, reason text, due text, due_ms bigint, wait_key text, set_step boolean, step text,
  progress boolean, uncount boolean, starts_tape boolean, new_input boolean, sets_end boolean, lease_ms bigint,
  state_version int, op json, creates json, snapshot text, snapshot_off int, snapshot_len int, snapshot_crc bigint, label text, read json
);

-- What a change came to: places given out (slot → thread, run, first position), or the refusal.
CREATE TYPE holdfast_outcome AS (
  refusal text, operation json, created json, first_seq bigint, last_seq bigint, has_mail boolean,
  slots int[], threads bigint[], runs bigint[], firsts bigint[]
);

-- One change of `others`. Judges first, writes after; the operation is the last judge but for creates that refuse to get in line.
-- Its runs and threads are locked already as far as they exist. The order of statements matters: see the head of this file.
CREATE FUNCTION holdfast_apply(c holdfast_change, p_now bigint, p_blob bytea) RETURNS holdfast_outcome LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  o holdfast_outcome;
  t threads; r runs; other runs; op operations; ct threads;
  x record;
  d bigint; was_finished boolean; is_finished boolean; taken int; new_run bigint; new_thread bigint; is_new boolean; lane_id int;
BEGIN
  o.slots := '{}'; o.threads := '{}'; o.runs := '{}'; o.firsts := '{}';

  -- guard
  SELECT * INTO t FROM threads WHERE owner = c.owner AND thread_id = c.thread;
  IF c.run IS NOT NULL THEN SELECT * INTO r FROM runs WHERE owner = c.owner AND run_id = c.run AND thread = t.id; END IF;
  IF c.guard = 'lease' THEN
    IF r.id IS NULL OR r.epoch <> c.epoch OR r.lease_id IS DISTINCT FROM c.lease THEN o.refusal := 'lease_lost'; RETURN o; END IF;
  ELSIF c.guard = 'run' THEN
    IF r.id IS NULL THEN o.refusal := 'run_not_found'; RETURN o; END IF;
    IF r.epoch <> c.epoch OR r.status <> c.guard_status THEN o.refusal := 'conflict'; RETURN o; END IF;
    IF c.undisturbed AND EXISTS (SELECT FROM runs l WHERE l.thread = r.thread AND l.id > r.id AND l.is_started) THEN
      o.refusal := 'conflict'; RETURN o;
    END IF;
  ELSIF t.deleted_at IS NOT NULL AND (c.guard = 'thread' OR c.n > 0) THEN
    o.refusal := 'thread_deleted'; RETURN o;
  ELSIF c.guard = 'thread' THEN          -- a claim of this moment is waited for here and seen by the next statement
    PERFORM FROM runs l WHERE l.thread = t.id AND l.finished_at IS NULL AND l.is_next FOR NO KEY UPDATE;
    IF coalesce(t.head_seq, 0) <> c.guard_head OR EXISTS (SELECT FROM runs l WHERE l.thread = t.id AND l.is_next AND l.status = 'running') THEN
      o.refusal := 'conflict'; RETURN o;
    END IF;
  ELSIF c.run IS NOT NULL AND r.id IS NULL AND c.n > 0 THEN
    o.refusal := 'run_not_found'; RETURN o;
  END IF;
  IF t.id IS NULL AND (c.n > 0 OR c.guard = 'thread') THEN   -- an edit opens a thread; whoever was faster is a conflict
    INSERT INTO threads (owner, thread_id, created_at) VALUES (c.owner, c.thread, p_now) ON CONFLICT (owner, thread_id) DO NOTHING RETURNING * INTO t;
    IF t.id IS NULL THEN o.refusal := 'conflict'; RETURN o; END IF;
  END IF;

  -- operation: the last judge
  IF c.op IS NOT NULL THEN
    CASE c.op->>'kind'
      WHEN 'intend' THEN
        INSERT INTO operations (owner, key, name, run, thread, status, intended_at)
          VALUES (c.owner, c.op->>'key', c.op->>'name', r.id, t.id, 'intended', p_now)
          ON CONFLICT (owner, key) DO UPDATE SET name = excluded.name, run = excluded.run, thread = excluded.thread, status = 'intended',
            result = NULL, result_bytes = NULL, evidence = NULL, evidence_bytes = NULL, resolved_by = NULL, intended_at = p_now, closed_at = NULL
          WHERE operations.status IN ('failed', 'undone');
      WHEN 'complete', 'fail', 'doubt' THEN
        UPDATE operations SET status = CASE c.op->>'kind' WHEN 'complete' THEN 'completed' WHEN 'fail' THEN 'failed' ELSE 'unsure' END,
            result = c.op->>'result', closed_at = CASE WHEN c.op->>'kind' <> 'doubt' THEN p_now END,
            result_bytes = CASE WHEN c.op->>'len' IS NOT NULL THEN substr(p_blob, (c.op->>'off')::int + 1, (c.op->>'len')::int) END
          WHERE owner = c.owner AND key = c.op->>'key' AND run = r.id AND status IN ('intended', 'unsure');
      WHEN 'resolve' THEN
        UPDATE operations SET status = CASE WHEN (c.op->>'happened')::boolean THEN 'completed' ELSE 'failed' END,
            result = c.op->>'result', resolved_by = c.op->>'by', closed_at = p_now,
            result_bytes = CASE WHEN c.op->>'len' IS NOT NULL THEN substr(p_blob, (c.op->>'off')::int + 1, (c.op->>'len')::int) END
          WHERE owner = c.owner AND key = c.op->>'key' AND status = 'unsure';
      WHEN 'note' THEN
        UPDATE operations SET evidence = c.op->>'evidence' WHERE owner = c.owner AND key = c.op->>'key' AND status <> 'completed';
    END CASE;
    IF NOT FOUND AND c.op->>'kind' <> 'note' THEN
      SELECT * INTO op FROM operations WHERE owner = c.owner AND key = c.op->>'key';
      o.refusal := CASE c.op->>'kind' WHEN 'intend' THEN 'operation_taken' WHEN 'resolve' THEN 'already_answered' ELSE 'conflict' END;
      IF op.key IS NOT NULL AND o.refusal <> 'conflict' THEN o.operation := to_json(op); END IF;
      RETURN o;
    END IF;
    IF c.op->>'kind' IN ('complete', 'fail', 'resolve') THEN   -- this statement sees who began to wait while we waited for the row
      UPDATE runs SET due_at = p_now, wake_at = p_now, wait_key = NULL WHERE owner = c.owner AND wait_key = c.op->>'key' AND status = 'waiting';
    END IF;
  END IF;

  -- positions
  IF c.n > 0 THEN
    UPDATE threads SET head_seq = head_seq + c.n, state_version = coalesce(c.state_version, state_version) WHERE id = t.id;
    o.slots := o.slots || c.slot; o.threads := o.threads || t.id; o.runs := o.runs || r.id; o.firsts := o.firsts || (t.head_seq + 1);
  END IF;
  o.first_seq := t.head_seq + least(c.n, 1); o.last_seq := t.head_seq + c.n;

  -- run
  IF r.id IS NOT NULL THEN
    DELETE FROM inbox WHERE c.read IS NOT NULL AND run = r.id AND id IN (SELECT e::bigint FROM json_array_elements_text(c.read) e);
    GET DIAGNOSTICS taken = ROW_COUNT;
    was_finished := r.finished_at IS NOT NULL;
    is_finished := CASE WHEN c.status IS NULL THEN was_finished ELSE c.status IN ('completed', 'failed', 'cancelled') END;
    d := CASE c.due WHEN 'in' THEN p_now + c.due_ms WHEN 'at' THEN c.due_ms WHEN 'never' THEN NULL ELSE r.due_at END;
    IF c.wait_key IS NOT NULL THEN         -- FOR SHARE: whoever closes it comes before us (we see it closed) or after (he sees us wait)
      SELECT * INTO op FROM operations WHERE owner = c.owner AND key = c.wait_key FOR SHARE;
      IF NOT FOUND OR op.status NOT IN ('intended', 'unsure') THEN d := p_now; END IF;
    END IF;
    IF c.status = 'waiting' AND r.mail_count > taken THEN d := least(d, p_now); END IF;   -- no message is overlooked
    UPDATE runs SET
      status = coalesce(c.status, status),
      reason = CASE WHEN c.set_reason THEN c.reason ELSE reason END,
      due_at = d,
      lease_id = CASE WHEN c.status <> 'running' THEN NULL ELSE lease_id END,
      lease_holder = CASE WHEN c.status <> 'running' THEN NULL ELSE lease_holder END,
      wake_at = CASE
        WHEN coalesce(c.status, status) IN ('pending', 'waiting') THEN d
        WHEN coalesce(c.status, status) <> 'running' THEN NULL
        WHEN c.lease_ms IS NOT NULL AND wake_at < p_now + c.lease_ms * 2 / 3 THEN p_now + c.lease_ms   -- lazily: keeps updates heap-only
        ELSE wake_at END,
      wait_key = CASE WHEN c.wait_key IS NOT NULL THEN c.wait_key WHEN c.status IS NOT NULL THEN NULL ELSE wait_key END,
      current_step = CASE WHEN c.set_step THEN c.step ELSE current_step END,
      claims_without_progress = CASE WHEN c.progress THEN 0 WHEN c.uncount THEN greatest(claims_without_progress - 1, 0) ELSE claims_without_progress END,
      tape_seq = CASE WHEN c.starts_tape THEN t.head_seq + 1 ELSE tape_seq END,
      input_seq = CASE WHEN c.new_input THEN t.head_seq + 1 ELSE input_seq END,
      started_at = CASE WHEN c.starts_tape THEN coalesce(started_at, p_now) ELSE started_at END,
      end_seq = CASE WHEN c.sets_end THEN t.head_seq + c.n ELSE end_seq END,
      finished_at = CASE WHEN is_finished THEN coalesce(finished_at, p_now) END,
      mail_count = mail_count - taken
      WHERE id = r.id RETURNING mail_count > 0 INTO o.has_mail;
    IF was_finished <> is_finished THEN    -- the line of the thread moves
      SELECT min(id) INTO new_run FROM runs WHERE thread = r.thread AND finished_at IS NULL;
      UPDATE runs SET is_next = false WHERE (id = r.id OR (thread = r.thread AND finished_at IS NULL)) AND is_next AND id IS DISTINCT FROM new_run;
      UPDATE runs SET is_next = true WHERE id = new_run AND NOT is_next;
      IF is_finished THEN UPDATE operations SET status = 'unsure' WHERE run = r.id AND status = 'intended'; END IF;
    END IF;
  END IF;

  IF c.snapshot IS NOT NULL OR c.snapshot_len IS NOT NULL THEN
    INSERT INTO snapshots VALUES (t.id, t.head_seq + c.n, c.snapshot,
      CASE WHEN c.snapshot_len IS NOT NULL THEN substr(p_blob, c.snapshot_off + 1, c.snapshot_len) END,
      coalesce(c.state_version, t.state_version), (c.snapshot_crc + t.head_seq + c.n) & 4294967295);
  END IF;
  IF c.label IS NOT NULL THEN
    INSERT INTO labels VALUES (t.id, c.label, t.head_seq + c.n) ON CONFLICT (thread, label) DO UPDATE SET seq = excluded.seq;
  END IF;

  -- creates: last, since a run that ends here makes room. A refusal is undone by the savepoint around this call.
  FOR x IN SELECT * FROM json_to_recordset(c.creates) AS n(slot int, owner text, id text, thread text, workflow text, version int, queue text,
                                              priority int, fingerprint text, due_at bigint, due_ms bigint, reject boolean) LOOP
    SELECT * INTO other FROM runs WHERE owner = x.owner AND run_id = x.id;
    is_new := NOT FOUND;
    IF is_new THEN
      new_thread := NULL;
      INSERT INTO threads (owner, thread_id, created_at) VALUES (x.owner, x.thread, p_now) ON CONFLICT (owner, thread_id) DO NOTHING RETURNING id INTO new_thread;
      SELECT * INTO ct FROM threads WHERE owner = x.owner AND thread_id = x.thread FOR NO KEY UPDATE;
      IF x.reject AND EXISTS (SELECT FROM runs l WHERE l.thread = ct.id AND l.finished_at IS NULL) THEN o.refusal := 'conflict'; RETURN o; END IF;
      SELECT id INTO lane_id FROM lanes WHERE queue = x.queue AND workflow = x.workflow AND version = x.version AND priority = x.priority;
      IF NOT FOUND THEN
        INSERT INTO lanes (queue, workflow, version, priority) VALUES (x.queue, x.workflow, x.version, x.priority)
          ON CONFLICT (queue, workflow, version, priority) DO UPDATE SET queue = excluded.queue RETURNING id INTO lane_id;
      END IF;
      d := coalesce(x.due_at, p_now + x.due_ms);
      INSERT INTO runs (owner, run_id, thread, lane, status, fingerprint, epoch, due_at, wake_at, is_next, input_seq, created_at)
        VALUES (x.owner, x.id, ct.id, lane_id, 'pending', x.fingerprint, ct.epoch_floor, d, d,
                NOT EXISTS (SELECT FROM runs l WHERE l.thread = ct.id AND l.finished_at IS NULL), ct.head_seq + 1, p_now)
        ON CONFLICT (owner, run_id) DO NOTHING RETURNING id INTO new_run;
      is_new := FOUND;
      IF is_new THEN                      -- on a deleted thread a new life begins: positions and epochs go on
        UPDATE threads SET head_seq = head_seq + 1, deleted_at = NULL,
            incarnation   = CASE WHEN deleted_at IS NULL THEN incarnation ELSE incarnation + 1 END,
            base_seq      = CASE WHEN deleted_at IS NULL THEN base_seq ELSE head_seq END,
            state_version = CASE WHEN deleted_at IS NULL THEN state_version ELSE 0 END,
            created_at    = CASE WHEN deleted_at IS NULL THEN created_at ELSE p_now END
          WHERE id = ct.id;
        o.slots := o.slots || x.slot; o.threads := o.threads || ct.id; o.runs := o.runs || new_run; o.firsts := o.firsts || (ct.head_seq + 1);
      ELSIF new_thread IS NOT NULL THEN   -- the id was taken in this very moment, on another thread
        DELETE FROM threads WHERE id = new_thread;
      END IF;
    END IF;
    SELECT * INTO other FROM runs WHERE owner = x.owner AND run_id = x.id;
    o.created := coalesce(o.created::jsonb, '[]') || jsonb_build_object('new', is_new, 'run', to_jsonb(other));
  END LOOP;
  IF c.creates IS NOT NULL AND c.n = 0 AND t.id IS NOT NULL THEN   -- no events: answers with the head, which a create may have moved
    SELECT head_seq, head_seq INTO o.first_seq, o.last_seq FROM threads WHERE id = t.id;
  END IF;
  RETURN o;
END $$;

-- The batch ------------------------------------------------------------------------------------------------------------------
-- Events are parallel arrays: the server reads an array in less than half the time of the same JSON, and most bytes are here.
-- e_slot: whose event; e_ord: which of that slot, from 0. Text payloads and patches go in arrays, bytes in the blob (offset, length;
-- the four arrays are null in a batch without bytes).
--
-- force_generic_plan: a plan made for arrays of a known length is thrown away every time, and planning costs more than the
-- step. enable_seqscan: a plan made while the tables were empty must not scan them once they are full. Hash joins stay
-- allowed: without them the joins over a batch are quadratic.

CREATE FUNCTION holdfast_commit(
  p_plain json, p_bounds json, p_starts json, p_others json, p_blob bytea, p_offset_ms bigint, p_sync boolean,
  e_slot int[], e_ord int[], e_type text[], e_step text[], e_count int[], e_attempt int[], e_at bigint[], e_duration float8[],
  e_payload text[], e_payload_off int[], e_payload_len int[], e_patch text[], e_patch_off int[], e_patch_len int[],
  e_is_checkpoint boolean[], e_commit_bytes int[], e_crc bigint[])
RETURNS TABLE (slot int, refusal text, first_seq bigint, last_seq bigint, now bigint, has_mail boolean, created json, operation json)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
  v_now bigint := floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint + p_offset_ms;
  c holdfast_change;
  o holdfast_outcome;
  v_slots int[] := '{}'; v_threads bigint[] := '{}'; v_runs bigint[] := '{}'; v_firsts bigint[] := '{}';
  v_ids bigint[]; v_starts int[]; v_rest json;
BEGIN
  IF p_sync THEN PERFORM set_config('synchronous_commit', 'on', true); END IF;   -- an intent in a relaxed session: this transaction only

  -- 1. With changes that are not plain: lock everything that exists, in order. (A batch of plain ones locks in part 2.)
  --    Ids first, then the locks by id = ANY: one statement with IN (…) was planned as a walk over the whole index.
  IF p_others IS NOT NULL THEN
    SELECT array_agg(x.id) INTO v_ids FROM (
      SELECT b.id FROM json_to_recordset(p_others) AS a(owner text, thread text)      -- the head of the line, which a claim then skips,
        CROSS JOIN LATERAL (SELECT t.id FROM threads t WHERE t.owner = a.owner AND t.thread_id = a.thread LIMIT 1) t
        CROSS JOIN LATERAL (SELECT l.id FROM runs l WHERE l.thread = t.id AND l.finished_at IS NULL ORDER BY l.id LIMIT 2) b   -- and the one that may move up
      UNION SELECT b.id FROM json_to_recordset(p_others) AS a(owner text, run text)
        CROSS JOIN LATERAL (SELECT r.id FROM runs r WHERE r.owner = a.owner AND r.run_id = a.run LIMIT 1) b
      UNION SELECT b.id FROM (SELECT p_plain UNION ALL SELECT p_bounds) j(c), json_to_recordset(j.c) AS a(owner text, run text)
        CROSS JOIN LATERAL (SELECT r.id FROM runs r WHERE r.owner = a.owner AND r.run_id = a.run LIMIT 1) b) x;
    PERFORM FROM runs WHERE id = ANY (v_ids) ORDER BY id FOR NO KEY UPDATE;
    SELECT array_agg(t.id) INTO v_ids FROM (
      SELECT a.owner, a.thread FROM json_to_recordset(p_others) AS a(owner text, thread text)
      UNION SELECT a.owner, a.thread FROM (SELECT p_plain UNION ALL SELECT p_bounds) j(c), json_to_recordset(j.c) AS a(owner text, thread text)
      UNION SELECT n.owner, n.thread FROM json_to_recordset(p_others) AS a(creates json), json_to_recordset(a.creates) AS n(owner text, thread text)) x
      CROSS JOIN LATERAL (SELECT t.id FROM threads t WHERE t.owner = x.owner AND t.thread_id = x.thread LIMIT 1) t;
    PERFORM FROM threads WHERE id = ANY (v_ids) ORDER BY id FOR NO KEY UPDATE;
  END IF;

  -- 2. Plain steps, all at once. The guard is the WHERE of the update, which is rechecked on the newest row: no lock by hand.
  --    (To refuse a change that names another thread than its run's as well, keep thread_id in `runs` and compare it here.)
  IF p_plain IS NOT NULL THEN
    RETURN QUERY
      WITH run AS (
        UPDATE runs r SET
          current_step = CASE WHEN a.set_step THEN a.step ELSE r.current_step END,
          claims_without_progress = CASE WHEN a.progress THEN 0 WHEN a.uncount THEN greatest(r.claims_without_progress - 1, 0) ELSE r.claims_without_progress END,
          -- lazily, when a third of the lease is gone: an unchanged wake_at keeps the update heap-only
          wake_at = CASE WHEN a.lease_ms IS NOT NULL AND r.wake_at < v_now + a.lease_ms * 2 / 3 THEN v_now + a.lease_ms ELSE r.wake_at END
          FROM json_to_recordset(p_plain) AS a(slot int, owner text, run text, epoch int, lease text, n int, state_version int,
                                               set_step boolean, step text, progress boolean, uncount boolean, lease_ms bigint)
          WHERE r.owner = a.owner AND r.run_id = a.run AND r.epoch = a.epoch AND r.lease_id = a.lease
          RETURNING a.slot, a.n, a.state_version, r.thread, r.id AS run_ref, r.mail_count > 0 AS has_mail
      ), head AS (
        UPDATE threads t SET head_seq = t.head_seq + u.n, state_version = coalesce(u.state_version, t.state_version)
          FROM (SELECT * FROM run ORDER BY thread) u WHERE t.id = u.thread
          RETURNING u.slot, u.thread, u.run_ref, t.head_seq - u.n AS before, t.head_seq AS last_seq, u.has_mail
      ), entries AS (
        INSERT INTO log (thread, seq, run, type, step, count, attempt, at, duration_ms, payload, payload_bytes, patch, patch_bytes, is_checkpoint, commit_bytes, checksum)
          SELECT h.thread, h.before + 1 + e.ord, h.run_ref, e.type, e.step, e.count, e.attempt, e.at, e.duration,
                 e.payload, CASE WHEN e.payload_len IS NOT NULL THEN substr(p_blob, e.payload_off + 1, e.payload_len) END,
                 e.patch, CASE WHEN e.patch_len IS NOT NULL THEN substr(p_blob, e.patch_off + 1, e.patch_len) END,
                 e.is_checkpoint, e.commit_bytes, (e.crc + h.before + 1 + e.ord) & 4294967295
            FROM head h JOIN unnest(e_slot, e_ord, e_type, e_step, e_count, e_attempt, e_at, e_duration, e_payload, e_payload_off, e_payload_len, e_patch,
                                   e_patch_off, e_patch_len, e_is_checkpoint, e_commit_bytes, e_crc)
                         AS e(slot, ord, type, step, count, attempt, at, duration, payload, payload_off, payload_len, patch, patch_off, patch_len,
                              is_checkpoint, commit_bytes, crc) ON e.slot = h.slot
      )
      SELECT h.slot, NULL::text, least(h.before + 1, h.last_seq), h.last_seq, v_now, h.has_mail, NULL::json, NULL::json FROM head h;
  END IF;

  -- 3. Bounds. The run row needs the positions, so the rows are locked first (15 µs more a change), which also reads them newest.
  IF p_bounds IS NOT NULL THEN
    RETURN QUERY
      WITH held AS MATERIALIZED (
        SELECT a.*, t.id AS thread_ref, r.id AS run_ref, t.head_seq AS before, t.state_version AS old_version, r.mail_count > 0 AS has_mail,
               least(CASE a.due WHEN 'in' THEN v_now + a.due_ms WHEN 'at' THEN a.due_ms WHEN 'never' THEN NULL ELSE r.due_at END,
                     CASE WHEN a.status = 'waiting' AND r.mail_count > 0 THEN v_now END) AS due_at   -- no message is overlooked
          FROM json_to_recordset(p_bounds) AS a(slot int, owner text, thread text, run text, epoch int, lease text, n int, state_version int, set_step boolean, step text,
                 progress boolean, uncount boolean, lease_ms bigint, status text, set_reason boolean, reason text, due text, due_ms bigint, starts_tape boolean,
                 new_input boolean, sets_end boolean, snapshot text, snapshot_off int, snapshot_len int, snapshot_crc bigint)
          JOIN runs r ON r.owner = a.owner AND r.run_id = a.run AND r.epoch = a.epoch AND r.lease_id = a.lease
          JOIN threads t ON t.id = r.thread AND t.thread_id = a.thread
          ORDER BY r.id FOR NO KEY UPDATE OF r, t
      ), run AS (
        UPDATE runs r SET
          status = coalesce(h.status, r.status),
          reason = CASE WHEN h.set_reason THEN h.reason ELSE r.reason END,
          due_at = h.due_at,
          lease_id = CASE WHEN h.status <> 'running' THEN NULL ELSE r.lease_id END,
          lease_holder = CASE WHEN h.status <> 'running' THEN NULL ELSE r.lease_holder END,
          wake_at = CASE
            WHEN h.status IN ('pending', 'waiting') THEN h.due_at
            WHEN h.status <> 'running' THEN NULL
            WHEN h.lease_ms IS NOT NULL AND r.wake_at < v_now + h.lease_ms * 2 / 3 THEN v_now + h.lease_ms
            ELSE r.wake_at END,
          current_step = CASE WHEN h.set_step THEN h.step ELSE r.current_step END,
          claims_without_progress = CASE WHEN h.progress THEN 0 WHEN h.uncount THEN greatest(r.claims_without_progress - 1, 0) ELSE r.claims_without_progress END,
          tape_seq = CASE WHEN h.starts_tape THEN h.before + 1 ELSE r.tape_seq END,
          input_seq = CASE WHEN h.new_input THEN h.before + 1 ELSE r.input_seq END,
          started_at = CASE WHEN h.starts_tape THEN coalesce(r.started_at, v_now) ELSE r.started_at END,
          end_seq = CASE WHEN h.sets_end THEN h.before + h.n ELSE r.end_seq END,
          finished_at = CASE WHEN h.status IN ('completed', 'failed', 'cancelled') THEN v_now ELSE r.finished_at END,
          is_next = r.is_next AND (h.status IS NULL OR h.status NOT IN ('completed', 'failed', 'cancelled'))
          FROM held h WHERE r.id = h.run_ref
      ), head AS (
        UPDATE threads t SET head_seq = h.before + h.n, state_version = coalesce(h.state_version, t.state_version)
          FROM (SELECT * FROM held ORDER BY thread_ref) h WHERE t.id = h.thread_ref
      ), snapshot AS (
        INSERT INTO snapshots SELECT h.thread_ref, h.before + h.n, h.snapshot, CASE WHEN h.snapshot_len IS NOT NULL THEN substr(p_blob, h.snapshot_off + 1, h.snapshot_len) END,
            coalesce(h.state_version, h.old_version), (h.snapshot_crc + h.before + h.n) & 4294967295
          FROM held h WHERE h.snapshot_crc IS NOT NULL
      ), entries AS (
        INSERT INTO log (thread, seq, run, type, step, count, attempt, at, duration_ms, payload, payload_bytes, patch, patch_bytes, is_checkpoint, commit_bytes, checksum)
          SELECT h.thread_ref, h.before + 1 + e.ord, h.run_ref, e.type, e.step, e.count, e.attempt, e.at, e.duration,
                 e.payload, CASE WHEN e.payload_len IS NOT NULL THEN substr(p_blob, e.payload_off + 1, e.payload_len) END,
                 e.patch, CASE WHEN e.patch_len IS NOT NULL THEN substr(p_blob, e.patch_off + 1, e.patch_len) END,
                 e.is_checkpoint, e.commit_bytes, (e.crc + h.before + 1 + e.ord) & 4294967295
            FROM held h JOIN unnest(e_slot, e_ord, e_type, e_step, e_count, e_attempt, e_at, e_duration, e_payload, e_payload_off, e_payload_len, e_patch,
                                   e_patch_off, e_patch_len, e_is_checkpoint, e_commit_bytes, e_crc)
                         AS e(slot, ord, type, step, count, attempt, at, duration, payload, payload_off, payload_len, patch, patch_off, patch_len,
                              is_checkpoint, commit_bytes, crc) ON e.slot = h.slot
      )
      SELECT h.slot, NULL::text, h.before + least(h.n, 1), h.before + h.n, v_now, h.has_mail, NULL::json, NULL::json FROM held h;

    -- The lines of the threads move up. A later statement: it must see runs that got in line while we waited for the thread.
    UPDATE runs SET is_next = true WHERE NOT is_next AND id IN (
      SELECT b.id FROM json_to_recordset(p_bounds) AS a(owner text, thread text, status text)
        CROSS JOIN LATERAL (SELECT t.id FROM threads t WHERE t.owner = a.owner AND t.thread_id = a.thread LIMIT 1) t
        CROSS JOIN LATERAL (SELECT l.id FROM runs l WHERE l.thread = t.id AND l.finished_at IS NULL ORDER BY l.id LIMIT 1) b
        WHERE a.status IN ('completed', 'failed', 'cancelled'));
    -- What a finished run left intended nobody else can close. (Of a refused change the run is not finished, or this was done.)
    UPDATE operations SET status = 'unsure' WHERE status = 'intended' AND run IN (
      SELECT b.id FROM json_to_recordset(p_bounds) AS a(owner text, run text, status text)
        CROSS JOIN LATERAL (SELECT r.id FROM runs r WHERE r.owner = a.owner AND r.run_id = a.run AND r.finished_at IS NOT NULL LIMIT 1) b
        WHERE a.status IN ('completed', 'failed', 'cancelled'));
  END IF;

  -- 4. Starts. A thread that is new to the store has no line, no earlier life and cannot be busy: three inserts for all of them.
  --    What meets an existing thread or run goes to `others`.
  IF p_starts IS NOT NULL THEN
    INSERT INTO lanes (queue, workflow, version, priority)
      SELECT DISTINCT a.queue, a.workflow, a.version, a.priority FROM json_to_recordset(p_starts) AS a(queue text, workflow text, version int, priority int)
        WHERE NOT EXISTS (SELECT FROM lanes l WHERE (l.queue, l.workflow, l.version, l.priority) = (a.queue, a.workflow, a.version, a.priority))
      ON CONFLICT DO NOTHING;
    -- Two statements, each in one order: in one chain the two inserts would alternate, and two processes that start the same
    -- runs would stand in each other's way.
    WITH thread AS (
      INSERT INTO threads (owner, thread_id, head_seq, created_at)
        SELECT a.owner, a.thread, 1, v_now FROM json_to_recordset(p_starts) AS a(owner text, id text, thread text)
          WHERE NOT EXISTS (SELECT FROM runs r WHERE r.owner = a.owner AND r.run_id = a.id) ORDER BY a.owner, a.thread
        ON CONFLICT (owner, thread_id) DO NOTHING RETURNING id
    ) SELECT array_agg(id) INTO v_ids FROM thread;
    WITH asked AS MATERIALIZED (
      SELECT a.*, l.id AS lane, t.id AS thread_ref
        FROM json_to_recordset(p_starts) AS a(slot int, queued int, owner text, id text, thread text, workflow text, version int, queue text,
                                              priority int, fingerprint text, due_at bigint, due_ms bigint)
        JOIN lanes l ON (l.queue, l.workflow, l.version, l.priority) = (a.queue, a.workflow, a.version, a.priority)
        JOIN threads t ON t.owner = a.owner AND t.thread_id = a.thread AND t.id = ANY (v_ids)
        ORDER BY a.owner, a.id
    ), run AS (
      INSERT INTO runs (owner, run_id, thread, lane, status, fingerprint, epoch, due_at, wake_at, is_next, input_seq, created_at)
        SELECT a.owner, a.id, a.thread_ref, a.lane, 'pending', a.fingerprint, 0, coalesce(a.due_at, v_now + a.due_ms), coalesce(a.due_at, v_now + a.due_ms), true, 1, v_now
          FROM asked a
        ON CONFLICT (owner, run_id) DO NOTHING RETURNING id, owner, run_id, thread
    )
    SELECT array_agg(a.slot), array_agg(a.queued), array_agg(r.thread), array_agg(r.id) INTO v_starts, v_slots, v_threads, v_runs
      FROM run r JOIN asked a ON a.owner = r.owner AND a.id = r.run_id;
    -- A run id that another process created in this very moment leaves a thread without a run: take it away again.
    IF coalesce(cardinality(v_starts), 0) < json_array_length(p_starts) THEN
      DELETE FROM threads WHERE id = ANY (v_ids) AND NOT id = ANY (coalesce(v_threads, '{}'));
      SELECT json_agg(json_build_object('slot', a.slot, 'owner', a.owner, 'n', 0, 'guard', 'none', 'creates', a.creates)) INTO v_rest
        FROM (SELECT (x->>'slot')::int AS slot, x->>'owner' AS owner,
                     json_build_array((x::jsonb || jsonb_build_object('slot', x->'queued'))) AS creates FROM json_array_elements(p_starts) x) a
        WHERE NOT a.slot = ANY (coalesce(v_starts, '{}'));
    END IF;
    RETURN QUERY SELECT u.slot, NULL::text, 0::bigint, 0::bigint, v_now, false, '[{"new":true}]'::json, NULL::json FROM unnest(v_starts) AS u(slot);
    v_firsts := array_fill(1::bigint, ARRAY[coalesce(cardinality(v_starts), 0)]);
    v_slots := coalesce(v_slots, '{}'); v_threads := coalesce(v_threads, '{}'); v_runs := coalesce(v_runs, '{}');
  END IF;

  -- 5. The others, in order; later ones see the earlier.
  IF p_others IS NOT NULL OR v_rest IS NOT NULL THEN
    FOR c IN SELECT a.* FROM (SELECT p_others UNION ALL SELECT v_rest) j(c), json_populate_recordset(NULL::holdfast_change, j.c) a ORDER BY a.slot LOOP
      IF NOT EXISTS (SELECT FROM json_to_recordset(c.creates) AS n(reject boolean) WHERE n.reject) THEN
        o := holdfast_apply(c, v_now, p_blob);
      ELSE
        BEGIN                            -- a create may refuse after the rest was written: a savepoint, only for this rare shape
          o := holdfast_apply(c, v_now, p_blob);
          IF o.refusal IS NOT NULL THEN RAISE EXCEPTION USING ERRCODE = 'HF001'; END IF;
        EXCEPTION WHEN SQLSTATE 'HF001' THEN NULL;
        END;
      END IF;
      slot := c.slot; refusal := o.refusal; first_seq := o.first_seq; last_seq := o.last_seq; now := v_now; has_mail := coalesce(o.has_mail, false);
      created := o.created; operation := o.operation;
      RETURN NEXT;
      IF o.refusal IS NULL THEN
        v_slots := v_slots || o.slots; v_threads := v_threads || o.threads; v_runs := v_runs || o.runs; v_firsts := v_firsts || o.firsts;
      END IF;
    END LOOP;
  END IF;

  -- 6. Log entries of starts and others, in one statement. The primary key is the last line of defence for positions.
  IF cardinality(v_slots) > 0 THEN
    INSERT INTO log (thread, seq, run, type, step, count, attempt, at, duration_ms, payload, payload_bytes, patch, patch_bytes, is_checkpoint, commit_bytes, checksum)
      SELECT h.thread, h.first + e.ord, h.run, e.type, e.step, e.count, e.attempt, e.at, e.duration,
             e.payload, CASE WHEN e.payload_len IS NOT NULL THEN substr(p_blob, e.payload_off + 1, e.payload_len) END,
             e.patch, CASE WHEN e.patch_len IS NOT NULL THEN substr(p_blob, e.patch_off + 1, e.patch_len) END,
             e.is_checkpoint, e.commit_bytes, (e.crc + h.first + e.ord) & 4294967295
        FROM unnest(v_slots, v_threads, v_runs, v_firsts) AS h(slot, thread, run, first)
        JOIN unnest(e_slot, e_ord, e_type, e_step, e_count, e_attempt, e_at, e_duration, e_payload, e_payload_off, e_payload_len, e_patch,
                               e_patch_off, e_patch_len, e_is_checkpoint, e_commit_bytes, e_crc)
                     AS e(slot, ord, type, step, count, attempt, at, duration, payload, payload_off, payload_len, patch, patch_off, patch_len,
                          is_checkpoint, commit_bytes, crc) ON e.slot = h.slot;
  END IF;
END $$;

-- The lone step ----------------------------------------------------------------------------------------------------------------
-- A batch of one plain change, which is what a lone run sends: the same chain with scalar parameters, without function, JSON and
-- arrays. Half of what the guarded step costs above a raw insert is reading those. One prepared statement for each number of
-- events (here two; one to four are enough, more go through the function). No row in the answer: lease_lost.

PREPARE holdfast_step_2 (
  text, text, int, text,                    -- $1 owner, $2 run, $3 epoch, $4 lease
  boolean, text, boolean, boolean, bigint,  -- $5 set_step, $6 step, $7 progress, $8 uncount, $9 lease_ms
  int, bigint,                              -- $10 state_version, $11 clock offset
  text, text, int, int, bigint, float8, text, bytea, text, bytea, boolean, int, bigint,   -- $12 … first event
  text, text, int, int, bigint, float8, text, bytea, text, bytea, boolean, int, bigint    -- $25 … second event
) AS
WITH run AS (
  UPDATE runs SET
    current_step = CASE WHEN $5 THEN $6 ELSE current_step END,
    claims_without_progress = CASE WHEN $7 THEN 0 WHEN $8 THEN greatest(claims_without_progress - 1, 0) ELSE claims_without_progress END,
    wake_at = CASE WHEN wake_at < floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint + $11 + $9 * 2 / 3
                   THEN floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint + $11 + $9 ELSE wake_at END
    WHERE owner = $1 AND run_id = $2 AND epoch = $3 AND lease_id = $4
    RETURNING id, thread, mail_count > 0 AS has_mail
), head AS (
  UPDATE threads t SET head_seq = t.head_seq + 2, state_version = coalesce($10, t.state_version) FROM run r WHERE t.id = r.thread
    RETURNING t.id AS thread, r.id AS run, t.head_seq - 2 AS before, r.has_mail
), entries AS (
  INSERT INTO log (thread, seq, run, type, step, count, attempt, at, duration_ms, payload, payload_bytes, patch, patch_bytes, is_checkpoint, commit_bytes, checksum)
    SELECT h.thread, h.before + e.n, h.run, e.type, e.step, e.count, e.attempt, e.at, e.duration, e.payload, e.payload_bytes, e.patch, e.patch_bytes,
           e.is_checkpoint, e.commit_bytes, (e.crc + h.before + e.n) & 4294967295
      FROM head h, (VALUES (1, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24),
                           (2, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37))
                   AS e(n, type, step, count, attempt, at, duration, payload, payload_bytes, patch, patch_bytes, is_checkpoint, commit_bytes, crc)
)
SELECT before + 1 AS first_seq, before + 2 AS last_seq, has_mail, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint + $11 AS now FROM head;
