-- Spike for decision 0001: claiming on Postgres, one call, one round trip. Tables: postgres-commit.sql.
--
--   SELECT * FROM holdfast_claim($1 worker, $2 lease_ms, $3 limit, $4 workflows, $5 versions, $6 state versions, $7 queues, $8 offset)
--
-- Two statements in one function, on purpose. The first takes runs. The second reads thread and input with a fresh snapshot:
-- an edit or a release that committed between the first snapshot and the row lock is seen. In one statement the claim could
-- return an old head_seq, or no input at all for a run that was just released with a new one.
--
-- Cost: one index probe a lane (queue, workflow, version, priority that the worker can execute) plus the runs taken. Sleeping
-- runs, runs behind others of their thread and other workers' workflows are never touched, however many there are.

CREATE FUNCTION holdfast_claim(
  p_worker text, p_lease_ms bigint, p_limit int, p_workflows text[], p_versions int[], p_state_versions int[], p_queues text[], p_offset_ms bigint)
RETURNS TABLE (run json, lease_id text, input text, input_bytes bytea, thread json, taken_from text, taken_until bigint, has_mail boolean, now bigint)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
  v_now bigint := floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint + p_offset_ms;
  v_ids bigint[]; v_from text[]; v_until bigint[];
BEGIN
  -- SKIP LOCKED inside the lane: racing workers get different runs instead of the same candidates. At most p_limit rows a lane
  -- are locked for the moment of the claim; those not taken are free again at its end. The lock rechecks wake_at and is_next.
  WITH candidate AS MATERIALIZED (
    SELECT r.id, r.wake_at, r.lease_holder, r.status, l.priority
      FROM lanes l
      JOIN unnest(p_workflows, p_versions, p_state_versions) AS w(workflow, version, state_version) ON w.workflow = l.workflow AND w.version = l.version
      CROSS JOIN LATERAL (
        SELECT b.id, b.wake_at, b.lease_holder, b.status FROM runs b JOIN threads t ON t.id = b.thread
          WHERE b.lane = l.id AND b.is_next AND b.wake_at <= v_now AND (w.state_version IS NULL OR t.state_version <= w.state_version)
          ORDER BY b.wake_at LIMIT p_limit FOR NO KEY UPDATE OF b SKIP LOCKED
      ) r
      WHERE p_queues IS NULL OR l.queue = ANY (p_queues)
  ), chosen AS (
    SELECT * FROM candidate ORDER BY priority DESC, wake_at, id LIMIT p_limit
  ), taken AS (
    UPDATE runs r SET status = 'running', reason = NULL, epoch = r.epoch + 1, lease_id = gen_random_uuid()::text, lease_holder = p_worker,
        wake_at = v_now + p_lease_ms, wait_key = NULL, is_started = true, claims_without_progress = r.claims_without_progress + 1
      FROM chosen c WHERE r.id = c.id
      RETURNING r.id, c.priority, c.wake_at AS since, CASE WHEN c.status = 'running' THEN c.lease_holder END AS holder
  )
  SELECT array_agg(id ORDER BY priority DESC, since, id), array_agg(holder ORDER BY priority DESC, since, id), array_agg(since ORDER BY priority DESC, since, id)
    INTO v_ids, v_from, v_until FROM taken;

  RETURN QUERY
    SELECT to_json(r), r.lease_id, g.payload, g.payload_bytes, to_json(t), k.holder, k.until, r.mail_count > 0, v_now
      FROM unnest(v_ids, v_from, v_until) WITH ORDINALITY AS k(id, holder, until, n)
      JOIN runs r ON r.id = k.id JOIN threads t ON t.id = r.thread
      LEFT JOIN log g ON g.thread = r.thread AND g.seq = r.input_seq
      ORDER BY k.n;
END $$;
