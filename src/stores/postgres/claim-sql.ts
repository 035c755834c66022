import {
  runColumns,
  selectRecordColumns,
  selectRunColumns,
  selectThreadColumns,
  textRunColumns,
  threadColumnCount,
} from './rows.ts'
import { durableSql, nowSql, planSql, readCommittedSql } from './sql.ts'

/** What a claim returns of each run: the run, its thread, the record of its input, and from whom it was taken. */
const claimedColumns = `${selectRunColumns}, ${selectThreadColumns}, ${selectRecordColumns}, r.last_message > 0, a.holder, a.until,
  EXISTS (SELECT FROM holdfast.queues q WHERE q.name = r.queue AND num_nonnulls(q.concurrency, q.rate_count) > 0)`

const claimedTypes = [
  ...runColumns.map((column) => (textRunColumns.has(column) ? 'text' : 'bigint')),
  ...['text', 'text', 'text', ...Array(threadColumnCount - 2).fill('bigint')],
  ...['bigint', 'float8', 'float8', 'bigint', 'int', 'int', 'text', 'text', 'bigint', 'text', 'bytea', 'text', 'bytea'],
  ...['boolean', 'text', 'bigint', 'boolean'],
]

/** Reads what was claimed, as far as it still is under the same leases. */
const readClaimed = (arrays: string) => `
    SELECT ${claimedColumns} FROM unnest(${arrays}) WITH ORDINALITY AS a(run, lease, holder, until, n)
      JOIN holdfast.runs r ON r.id = a.run AND r.lease_id = a.lease JOIN holdfast.threads t ON t.id = r.thread
      LEFT JOIN holdfast.log l ON l.thread = r.thread AND l.seq = r.input_seq ORDER BY a.n`

/** Runs of one lane of those that are ready. */
const inLane = `r.is_next AND r.wake_at IS NOT NULL AND r.ready > 0 AND r.ready = v_lane.ready AND r.workflow = p_workflows[v_lane.n]
  AND r.version = p_versions[v_lane.n] AND r.queue = v_lane.queue AND r.priority = v_lane.priority`
/** As the index of the lanes has it, so that no index which begins with the owner is taken for it. */
const owner = "(r.owner || '')"
/** Those of it that are due and that the worker understands, for a joined thread. */
const isDue = `r.wake_at <= v_now AND (p_state_versions[v_lane.n] IS NULL OR t.state_version <= p_state_versions[v_lane.n])`
/** Lanes of runs that are ready. */
const findReadyLanes = `WITH RECURSIVE lane AS (
    SELECT w.n, x.queue, x.priority, x.ready FROM unnest(p_workflows, p_versions) WITH ORDINALITY AS w(name, version, n)
      CROSS JOIN LATERAL (SELECT r.queue, r.priority, r.ready FROM holdfast.runs r
        WHERE r.is_next AND r.wake_at IS NOT NULL AND r.ready > 0 AND r.workflow = w.name AND r.version = w.version
        ORDER BY r.queue, r.priority, r.ready LIMIT 1) x
    UNION ALL
    SELECT l.n, x.queue, x.priority, x.ready FROM lane l
      CROSS JOIN LATERAL (SELECT r.queue, r.priority, r.ready FROM holdfast.runs r
        WHERE r.is_next AND r.wake_at IS NOT NULL AND r.ready > 0 AND r.workflow = p_workflows[l.n] AND r.version = p_versions[l.n]
          AND (r.queue, r.priority, r.ready) > (l.queue, l.priority, l.ready)
        ORDER BY r.queue, r.priority, r.ready LIMIT 1) x
  )
  SELECT array_agg(l.n), array_agg(l.queue), array_agg(l.priority), array_agg(l.ready)
    INTO r_n, r_queue, r_priority, r_ready FROM lane l
    WHERE (p_queues IS NULL OR l.queue = ANY (p_queues))
      AND NOT EXISTS (SELECT FROM holdfast.queues q WHERE q.name = l.queue AND q.is_paused);`
/** Whether a queue has room for one more run. */
const hasRoom = (isHeld: string, isNew: string) =>
  `v_takes[v_at] > 0 AND (${isHeld} OR v_places[v_at] > 0) AND (NOT ${isNew} OR v_starts[v_at] > 0)`

/**
 * Claims runs and extends leases. One call, one round trip; nothing is written when nothing is due.
 *
 * Two indexes keep claimable runs in lanes of one workflow, version, queue and priority. Runs that are held or sleep are in order of
 * time; those that were claimed in vain have lanes of their own. Runs that are ready are by owner, and then in order of time. A claim
 * hops from lane to lane among the workflows it was asked for, and from owner to owner: runs that sleep, stand
 * behind others of their thread or are for other workers are never touched, however many there are. The order is that of
 * model/turns.ts: of each lane the first runs in the order of turns are found, and then those of all lanes of a priority are put in order.
 *
 * SKIP LOCKED inside a lane: racing workers get different runs instead of waiting for the same ones. A claim locks thread and run
 * (P1), sees both again as they are then, and never waits for them, so it cannot be part of a deadlock. What it returns is read by a
 * later statement, which sees all that was committed until the locks were granted.
 *
 * The limits of a queue are kept under the lock of its row, which is taken before any other and only where there is something to
 * take: what is counted afterwards includes the claims of whoever had the lock before. Only claims make runs running.
 */
const claimFunction = `
CREATE OR REPLACE FUNCTION holdfast.fn_claim(
  p_writer bigint, p_batch bigint, p_offset bigint, p_sync boolean, p_worker text, p_lease_ms bigint, p_limit int,
  p_workflows text[], p_versions bigint[], p_state_versions bigint[], p_queues text[], p_suspects int,
  p_limit_queues text[], p_limits bigint[], p_last_priorities bigint[], p_last_owners text[], p_expected bigint
) RETURNS TABLE (c0 bigint, ${claimedTypes.map((type, index) => `c${index + 1} ${type}`).join(', ')}) LANGUAGE plpgsql VOLATILE ${planSql}
AS $$
#variable_conflict use_column
DECLARE
  v_now bigint := ${nowSql};
  v_runs bigint[] := '{}'; v_leases text[]; v_holders text[] := '{}'; v_untils bigint[] := '{}';
  v_left int := p_limit; v_suspects int := p_suspects; v_size int; v_turns int; v_found record; v_priority bigint; v_is_woken boolean := false;
  -- Lanes in order of time, and lanes that are ready.
  v_lane record; t_n int[]; t_queue text[]; t_priority bigint[]; t_suspect boolean[]; t_held boolean[];
  r_n int[]; r_queue text[]; r_priority bigint[]; r_ready int[];
  -- Queues with limits, and what they leave.
  v_names text[]; v_takes bigint[]; v_places bigint[]; v_starts bigint[]; v_rates bigint[]; v_new text[] := '{}'; v_at int;
  -- The first runs of each lane of a priority.
  k_id bigint[]; k_owner text[]; k_queue text[]; k_new boolean[]; k_since bigint[]; v_owners text[]; v_last text COLLATE "C";
BEGIN
  IF v_now < p_expected THEN
    -- The clock was set back. A row with nothing but the time says so.
    c0 := v_now;
    RETURN NEXT;
    RETURN;
  END IF;

  WITH RECURSIVE lane AS (
    SELECT w.n, x.queue, x.priority, x.is_suspect, x.is_held, x.wake_at FROM unnest(p_workflows, p_versions) WITH ORDINALITY AS w(name, version, n)
      CROSS JOIN LATERAL (SELECT r.queue, r.priority, r.is_suspect, r.is_held, r.wake_at FROM holdfast.runs r
        WHERE r.is_next AND r.wake_at IS NOT NULL AND r.ready = 0 AND r.workflow = w.name AND r.version = w.version
        ORDER BY r.queue, r.priority, r.is_suspect, r.is_held, r.wake_at LIMIT 1) x
    UNION ALL
    SELECT l.n, x.queue, x.priority, x.is_suspect, x.is_held, x.wake_at FROM lane l
      CROSS JOIN LATERAL (SELECT r.queue, r.priority, r.is_suspect, r.is_held, r.wake_at FROM holdfast.runs r
        WHERE r.is_next AND r.wake_at IS NOT NULL AND r.ready = 0 AND r.workflow = p_workflows[l.n] AND r.version = p_versions[l.n]
          AND (r.queue, r.priority, r.is_suspect, r.is_held) > (l.queue, l.priority, l.is_suspect, l.is_held)
        ORDER BY r.queue, r.priority, r.is_suspect, r.is_held, r.wake_at LIMIT 1) x
  )
  SELECT array_agg(l.n), array_agg(l.queue), array_agg(l.priority), array_agg(l.is_suspect), array_agg(l.is_held)
    INTO t_n, t_queue, t_priority, t_suspect, t_held FROM lane l
    WHERE l.wake_at <= v_now AND (p_queues IS NULL OR l.queue = ANY (p_queues))
      AND NOT EXISTS (SELECT FROM holdfast.queues q WHERE q.name = l.queue AND q.is_paused);

  ${findReadyLanes}
  IF t_n IS NULL AND r_n IS NULL THEN RETURN; END IF;

  -- Once without the lock, so that a full queue costs a look and no more.
  FOR i IN 1..2 LOOP
    SELECT array_agg(q.name), array_agg(q.takes), array_agg(q.places), array_agg(q.starts), array_agg(q.rate_per_ms)
      INTO v_names, v_takes, v_places, v_starts, v_rates FROM (
        SELECT coalesce(q.name, a.queue) AS name, q.rate_per_ms, CASE WHEN q.is_paused THEN 0 ELSE coalesce(a.takes, p_limit) END AS takes,
            coalesce(q.concurrency - (SELECT count(*) FROM holdfast.runs r
              WHERE r.queue = q.name AND r.status = 'running' AND q.concurrency IS NOT NULL), p_limit) AS places,
            coalesce(q.rate_count - (SELECT coalesce(sum(s.count), 0) FROM holdfast.queue_starts s
              WHERE s.queue = q.name AND s.at > v_now - q.rate_per_ms), p_limit)::bigint AS starts
          FROM unnest(p_limit_queues, p_limits) AS a(queue, takes)
            FULL JOIN (SELECT q.* FROM holdfast.queues q WHERE q.name = ANY (t_queue || r_queue)
              AND (q.is_paused OR num_nonnulls(q.concurrency, q.rate_count) > 0)) q ON q.name = a.queue
      ) q;
    EXIT WHEN i = 2 OR v_names IS NULL;
    PERFORM FROM unnest(v_names, v_takes, v_places, v_starts) AS a(name, takes, places, starts)
      JOIN holdfast.queues q ON q.name = a.name AND num_nonnulls(q.concurrency, q.rate_count) > 0
      WHERE a.takes > 0 AND a.places > 0 AND (a.starts > 0 OR a.name = ANY (t_queue)
        OR EXISTS (SELECT FROM unnest(r_queue, r_ready) AS l(queue, ready) WHERE l.queue = a.name AND l.ready = 1));
    EXIT WHEN NOT FOUND;
    PERFORM FROM holdfast.queues q WHERE q.name = ANY (v_names) ORDER BY q.name FOR NO KEY UPDATE;
    v_now := ${nowSql};
  END LOOP;

  -- What has slept until now gets ready: after the locks of queues, which are waited for. After a downtime in several claims, so that
  -- none takes long.
  FOR v_lane IN SELECT * FROM unnest(t_n, t_queue, t_priority, t_suspect, t_held) AS l(n, queue, priority, is_suspect, is_held)
      WHERE NOT l.is_suspect AND NOT l.is_held LOOP
    UPDATE holdfast.runs x SET ready = CASE WHEN x.epoch = t.epoch_floor THEN 2 ELSE 1 END
      FROM (SELECT r.id, r.thread FROM holdfast.runs r
          WHERE r.is_next AND r.wake_at <= v_now AND r.ready = 0 AND r.workflow = p_workflows[v_lane.n] AND r.version = p_versions[v_lane.n]
            AND r.queue = v_lane.queue AND r.priority = v_lane.priority AND NOT r.is_suspect AND NOT r.is_held
          ORDER BY r.wake_at, r.id LIMIT greatest(p_limit, 1000) FOR NO KEY UPDATE OF r SKIP LOCKED) a
        JOIN holdfast.threads t ON t.id = a.thread WHERE x.id = a.id;
    v_is_woken := true;
  END LOOP;
  IF v_is_woken THEN
  ${findReadyLanes}
  END IF;

  FOR v_priority IN SELECT DISTINCT x FROM unnest(t_priority || r_priority) x ORDER BY x DESC LOOP
    -- Abandoned runs and suspects.
    FOR v_found IN
      SELECT x.*, a.queue, a.is_suspect, a.is_held
        FROM unnest(t_n, t_queue, t_priority, t_suspect, t_held) AS a(n, queue, priority, is_suspect, is_held)
        CROSS JOIN LATERAL (
          SELECT r.id, r.wake_at, CASE WHEN r.status = 'running' THEN coalesce(r.lease_holder, '') END AS holder
            FROM holdfast.runs r JOIN holdfast.threads t ON t.id = r.thread
            WHERE r.is_next AND r.wake_at <= v_now AND r.ready = 0 AND r.workflow = p_workflows[a.n] AND r.version = p_versions[a.n] AND r.queue = a.queue
              AND r.priority = v_priority AND r.is_suspect = a.is_suspect AND r.is_held = a.is_held AND (p_state_versions[a.n] IS NULL OR t.state_version <= p_state_versions[a.n])
            ORDER BY r.wake_at, r.id LIMIT CASE WHEN a.is_suspect THEN least(v_suspects, v_left) ELSE v_left END FOR NO KEY UPDATE OF r, t SKIP LOCKED
        ) x WHERE a.priority = v_priority AND (a.is_suspect OR a.is_held) ORDER BY x.wake_at, x.id
    LOOP
      CONTINUE WHEN v_found.is_suspect AND v_suspects <= 0;
      v_at := array_position(v_names, v_found.queue);
      CONTINUE WHEN v_at IS NOT NULL AND NOT (${hasRoom('v_found.is_held', 'false')});
      IF v_at IS NOT NULL THEN
        v_takes[v_at] := v_takes[v_at] - 1;
        IF NOT v_found.is_held THEN v_places[v_at] := v_places[v_at] - 1; END IF;
      END IF;
      IF v_found.is_suspect THEN v_suspects := v_suspects - 1; END IF;
      v_runs := v_runs || v_found.id; v_holders := array_append(v_holders, v_found.holder); v_untils := v_untils || v_found.wake_at;
      v_left := v_left - 1;
      EXIT WHEN v_left <= 0;
    END LOOP;
    EXIT WHEN v_left <= 0;

    v_last := p_last_owners[array_position(p_last_priorities, v_priority)];
    k_id := '{}'; k_owner := '{}'; k_queue := '{}'; k_new := '{}'; k_since := '{}';
    FOR v_lane IN SELECT * FROM unnest(r_n, r_queue, r_priority, r_ready) AS l(n, queue, priority, ready) WHERE l.priority = v_priority LOOP
      v_at := array_position(v_names, v_lane.queue);
      CONTINUE WHEN v_at IS NOT NULL AND NOT (${hasRoom('false', 'v_lane.ready = 2')});
      v_size := CASE WHEN v_at IS NULL THEN v_left ELSE least(v_left, v_takes[v_at], v_places[v_at]) END;
      -- Owners that have something due, beginning after the one who had the last turn.
      WITH RECURSIVE o(owner, is_round, n, is_due) AS (
        SELECT v_last, false, 0, false
        UNION ALL
        SELECT y.owner, y.is_round, o.n + x.is_due::int, x.is_due FROM o
          CROSS JOIN LATERAL (
            (SELECT r.owner, o.is_round FROM holdfast.runs r WHERE ${inLane} AND ${owner} > o.owner ORDER BY ${owner} LIMIT 1)
            UNION ALL
            (SELECT r.owner, true FROM holdfast.runs r WHERE NOT o.is_round AND ${inLane} ORDER BY ${owner} LIMIT 1)
            LIMIT 1) y(owner, is_round)
          -- Not EXISTS: that may be planned as a hash of the whole lane.
          CROSS JOIN LATERAL (SELECT count(*) > 0 FROM (SELECT FROM holdfast.runs r JOIN holdfast.threads t ON t.id = r.thread
            WHERE ${inLane} AND ${owner} = y.owner AND ${isDue} LIMIT 1) x) x(is_due)
          WHERE o.n < v_size AND (NOT y.is_round OR v_last IS NULL OR y.owner <= v_last)
      ) SELECT array_agg(o.owner) INTO v_owners FROM o WHERE o.is_due;
      CONTINUE WHEN v_owners IS NULL;
      -- With fewer owners than runs to take: as many of each as there may be turns.
      v_turns := ceil(v_size::float8 / cardinality(v_owners));
      WHILE cardinality(v_owners) BETWEEN 2 AND v_size - 1 LOOP
        SELECT sum(x.count) AS count, max(x.count) AS most INTO v_found FROM unnest(v_owners) AS a(owner) CROSS JOIN LATERAL (
          SELECT count(*) AS count FROM (SELECT FROM holdfast.runs r JOIN holdfast.threads t ON t.id = r.thread
            WHERE ${inLane} AND ${owner} = a.owner AND ${isDue} LIMIT v_turns) x) x;
        EXIT WHEN v_found.count >= v_size OR v_found.most < v_turns;
        v_turns := 2 * v_turns;
      END LOOP;
      SELECT k_id || array_agg(x.id), k_owner || array_agg(a.owner), k_queue || array_agg(v_lane.queue), k_new || array_agg(v_lane.ready = 2),
          k_since || array_agg(x.wake_at)
        INTO k_id, k_owner, k_queue, k_new, k_since FROM unnest(v_owners) AS a(owner) CROSS JOIN LATERAL (
          SELECT r.id, r.wake_at FROM holdfast.runs r JOIN holdfast.threads t ON t.id = r.thread WHERE ${inLane} AND ${owner} = a.owner AND ${isDue}
            ORDER BY r.wake_at, r.id LIMIT v_turns FOR NO KEY UPDATE OF r, t SKIP LOCKED) x;
    END LOOP;
    FOR v_found IN
      SELECT x.* FROM (
        SELECT k.*, row_number() OVER (PARTITION BY k.queue, k.owner, k.is_new ORDER BY k.since, k.id) AS turn
          FROM unnest(k_id, k_owner, k_queue, k_new, k_since) AS k(id, owner, queue, is_new, since)
      ) x ORDER BY x.turn, coalesce(x.owner COLLATE "C" <= v_last, false), x.owner COLLATE "C", x.is_new, x.since, x.id
    LOOP
      v_at := array_position(v_names, v_found.queue);
      CONTINUE WHEN v_at IS NOT NULL AND NOT (${hasRoom('false', 'v_found.is_new')});
      IF v_at IS NOT NULL THEN
        v_takes[v_at] := v_takes[v_at] - 1; v_places[v_at] := v_places[v_at] - 1;
        IF v_found.is_new THEN
          v_starts[v_at] := v_starts[v_at] - 1;
          v_new := v_new || v_found.queue;
        END IF;
      END IF;
      v_runs := v_runs || v_found.id; v_holders := array_append(v_holders, NULL); v_untils := v_untils || v_found.since;
      v_left := v_left - 1;
      EXIT WHEN v_left <= 0;
    END LOOP;
    EXIT WHEN v_left <= 0;
  END LOOP;
  IF v_runs = '{}' THEN RETURN; END IF;
  ${durableSql}
  IF v_new <> '{}' THEN
    DELETE FROM holdfast.queue_starts s USING unnest(v_names, v_rates) AS a(queue, per_ms) WHERE s.queue = a.queue AND s.at <= v_now - a.per_ms;
    INSERT INTO holdfast.queue_starts AS s (queue, at, count)
      SELECT a.queue, v_now, count(*) FROM unnest(v_new) AS a(queue) JOIN unnest(v_names, v_rates) AS q(name, per_ms) ON q.name = a.queue
        WHERE q.per_ms IS NOT NULL GROUP BY a.queue
      ON CONFLICT (queue, at) DO UPDATE SET count = s.count + excluded.count;
  END IF;
  SELECT array_agg(gen_random_uuid()::text) INTO v_leases FROM generate_series(1, cardinality(v_runs));
  UPDATE holdfast.runs r SET status = 'running', epoch = r.epoch + 1, lease_id = a.lease, lease_holder = p_worker, wake_at = v_now + p_lease_ms,
      ready = 0, claims_without_progress = r.claims_without_progress + 1, end_seq = NULL, wait_key = NULL
    FROM unnest(v_runs, v_leases) AS a(run, lease) WHERE r.id = a.run;
  PERFORM holdfast.fn_record(p_writer, p_batch,
    jsonb_build_object('now', v_now, 'runs', v_runs, 'leases', v_leases, 'holders', v_holders, 'untils', v_untils)::text);
  RETURN QUERY SELECT v_now, x.* FROM (${readClaimed('v_runs, v_leases, v_holders, v_untils')}) x;
END $$;
`

const extendFunction = `
CREATE OR REPLACE FUNCTION holdfast.fn_extend(
  p_offset bigint, p_lease_ms bigint, p_owners text[], p_runs text[], p_epochs bigint[], p_leases text[], p_written bigint[]
) RETURNS TABLE (n bigint, has_mail boolean) LANGUAGE plpgsql VOLATILE ${planSql}
AS $$
#variable_conflict use_column
DECLARE
  v_now bigint := ${nowSql};
  v_ids bigint[];
BEGIN
  ${readCommittedSql}
  -- An extension that is lost with the machine only lets the lease run out earlier: heartbeats do not wait for the disk.
  PERFORM set_config('synchronous_commit', 'off', true);
  SELECT array_agg(r.id) INTO v_ids FROM unnest(p_owners, p_runs) AS a(owner, run)
    CROSS JOIN LATERAL (SELECT r.id FROM holdfast.runs r WHERE r.owner = a.owner AND r.run_id = a.run LIMIT 1) r;
  PERFORM FROM holdfast.runs r WHERE r.id = ANY (v_ids) ORDER BY r.thread, r.id FOR NO KEY UPDATE;
  RETURN QUERY
    WITH held AS (
      SELECT a.n, r.id, r.last_message > 0 AS has_mail
        FROM unnest(p_owners, p_runs, p_epochs, p_leases, p_written) WITH ORDINALITY AS a(owner, run, epoch, lease, written, n)
        CROSS JOIN LATERAL (SELECT * FROM holdfast.runs r WHERE r.owner = a.owner AND r.run_id = a.run LIMIT 1) r
        WHERE r.epoch = a.epoch AND r.lease_id = a.lease
          AND (SELECT t.written_seq FROM holdfast.threads t WHERE t.id = r.thread) >= coalesce(a.written, 0)
    ), extended AS (
      UPDATE holdfast.runs r SET wake_at = v_now + p_lease_ms FROM held h WHERE r.id = h.id
    ) SELECT h.n, h.has_mail FROM held h;
END $$;
`

export const claimFunctions = [claimFunction, extendFunction]

export const claimSql =
  'SELECT * FROM holdfast.fn_claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)'
/** After a lost connection: what the claim had taken, and what time it is by now. */
export const readClaimedSql = `SELECT ${nowSql.replace('p_offset', '$5::bigint')}, x.*
  FROM (${readClaimed('$1::bigint[], $2::text[], $3::text[], $4::bigint[]')}) x`
export const extendSql = 'SELECT n, has_mail FROM holdfast.fn_extend($1, $2, $3, $4, $5, $6, $7)'
