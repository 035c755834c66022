import { runColumns, selectRecordColumns, selectRunColumns, selectThreadColumns, textRunColumns } from './rows.ts'
import { durableSql, nowSql, planSql } from './sql.ts'

/** What a claim returns of each run: the run, its thread, the record of its input, and from whom it was taken. */
const claimedColumns = `${selectRunColumns}, ${selectThreadColumns}, ${selectRecordColumns}, r.last_message > 0, a.holder, a.until`

const claimedTypes = [
  ...runColumns.map((column) => (textRunColumns.has(column) ? 'text' : 'bigint')),
  ...['text', 'text', 'text', 'bigint', 'bigint', 'bigint', 'bigint', 'bigint', 'bigint'],
  ...['bigint', 'float8', 'float8', 'bigint', 'int', 'int', 'text', 'text', 'bigint', 'text', 'bytea', 'text', 'bytea'],
  ...['boolean', 'text', 'bigint'],
]

/** Reads what was claimed, as far as it still is under the same leases. */
const readClaimed = (arrays: string) => `
    SELECT ${claimedColumns} FROM unnest(${arrays}) WITH ORDINALITY AS a(run, lease, holder, until, n)
      JOIN holdfast.runs r ON r.id = a.run AND r.lease_id = a.lease JOIN holdfast.threads t ON t.id = r.thread
      LEFT JOIN holdfast.log l ON l.thread = r.thread AND l.seq = r.input_seq ORDER BY a.n`

/**
 * Claims runs and extends leases. One call, one round trip; nothing is written when nothing is due.
 *
 * The index keeps claimable runs in lanes of one workflow, version, queue and priority, each in order of time. Those that were claimed
 * in vain have lanes of their own, and so have those that somebody holds, which go first once they are abandoned. A claim hops from lane to lane among the workflows it was asked for: runs that sleep, stand
 * behind others of their thread or are for other workers are never touched, however many there are.
 *
 * SKIP LOCKED inside a lane: racing workers get different runs instead of waiting for the same ones. A claim locks thread and run
 * (P1), sees both again as they are then, and never waits, so it cannot be part of a deadlock. What it returns is read by a
 * later statement, which sees all that was committed until the locks were granted.
 */
const claimFunction = `
CREATE OR REPLACE FUNCTION holdfast.fn_claim(
  p_writer bigint, p_batch bigint, p_offset bigint, p_sync boolean, p_worker text, p_lease_ms bigint, p_limit int,
  p_workflows text[], p_versions bigint[], p_state_versions bigint[], p_queues text[], p_suspects int
) RETURNS TABLE (c0 bigint, ${claimedTypes.map((type, index) => `c${index + 1} ${type}`).join(', ')}) LANGUAGE plpgsql VOLATILE ${planSql}
AS $$
#variable_conflict use_column
DECLARE
  v_now bigint := ${nowSql};
  v_runs bigint[] := '{}'; v_leases text[]; v_holders text[] := '{}'; v_untils bigint[] := '{}';
  v_lane record; v_left int := p_limit; v_suspects int := p_suspects; v_found record;
BEGIN
  FOR v_lane IN
    WITH RECURSIVE lane AS (
      SELECT w.n, x.queue, x.priority, x.is_suspect, x.is_held, x.wake_at FROM unnest(p_workflows, p_versions) WITH ORDINALITY AS w(name, version, n)
        CROSS JOIN LATERAL (SELECT r.queue, r.priority, r.is_suspect, r.is_held, r.wake_at FROM holdfast.runs r
          WHERE r.is_next AND r.wake_at IS NOT NULL AND r.workflow = w.name AND r.version = w.version
          ORDER BY r.queue, r.priority, r.is_suspect, r.is_held, r.wake_at LIMIT 1) x
      UNION ALL
      SELECT l.n, x.queue, x.priority, x.is_suspect, x.is_held, x.wake_at FROM lane l
        CROSS JOIN LATERAL (SELECT r.queue, r.priority, r.is_suspect, r.is_held, r.wake_at FROM holdfast.runs r
          WHERE r.is_next AND r.wake_at IS NOT NULL AND r.workflow = p_workflows[l.n] AND r.version = p_versions[l.n]
            AND (r.queue, r.priority, r.is_suspect, r.is_held) > (l.queue, l.priority, l.is_suspect, l.is_held)
          ORDER BY r.queue, r.priority, r.is_suspect, r.is_held, r.wake_at LIMIT 1) x
    )
    SELECT l.priority, array_agg(l.n) AS n, array_agg(l.queue) AS queues, array_agg(l.is_suspect) AS suspects, array_agg(l.is_held) AS helds FROM lane l
      WHERE l.wake_at <= v_now AND (p_queues IS NULL OR l.queue = ANY (p_queues)) GROUP BY l.priority ORDER BY l.priority DESC
  LOOP
    SELECT array_agg(x.id) AS runs, array_agg(x.holder) AS holders, array_agg(x.wake_at) AS untils, count(*) FILTER (WHERE x.is_suspect) AS suspects
      INTO v_found FROM (
        SELECT x.* FROM (
          SELECT x.*, a.is_suspect, a.is_held, row_number() OVER (PARTITION BY a.is_suspect ORDER BY a.is_held DESC, x.wake_at, x.id) AS n
            FROM unnest(v_lane.n, v_lane.queues, v_lane.suspects, v_lane.helds) AS a(n, queue, is_suspect, is_held)
            CROSS JOIN LATERAL (
              SELECT r.id, r.wake_at, CASE WHEN r.status = 'running' THEN coalesce(r.lease_holder, '') END AS holder
                FROM holdfast.runs r JOIN holdfast.threads t ON t.id = r.thread
                WHERE r.is_next AND r.wake_at <= v_now AND r.workflow = p_workflows[a.n] AND r.version = p_versions[a.n] AND r.queue = a.queue
                  AND r.priority = v_lane.priority AND r.is_suspect = a.is_suspect AND r.is_held = a.is_held AND (p_state_versions[a.n] IS NULL OR t.state_version <= p_state_versions[a.n])
                ORDER BY r.wake_at, r.id LIMIT CASE WHEN a.is_suspect THEN least(v_suspects, v_left) ELSE v_left END FOR NO KEY UPDATE OF r, t SKIP LOCKED
            ) x
        ) x WHERE NOT x.is_suspect OR x.n <= v_suspects ORDER BY x.is_held DESC, x.wake_at, x.id LIMIT v_left
      ) x;
    CONTINUE WHEN v_found.runs IS NULL;
    v_runs := v_runs || v_found.runs; v_holders := v_holders || v_found.holders; v_untils := v_untils || v_found.untils;
    v_left := v_left - cardinality(v_found.runs); v_suspects := v_suspects - v_found.suspects;
    EXIT WHEN v_left <= 0;
  END LOOP;
  IF v_runs = '{}' THEN RETURN; END IF;
  ${durableSql}
  SELECT array_agg(gen_random_uuid()::text) INTO v_leases FROM generate_series(1, cardinality(v_runs));
  UPDATE holdfast.runs r SET status = 'running', epoch = r.epoch + 1, lease_id = a.lease, lease_holder = p_worker, wake_at = v_now + p_lease_ms,
      claims_without_progress = r.claims_without_progress + 1, end_seq = NULL, wait_key = NULL
    FROM unnest(v_runs, v_leases) AS a(run, lease) WHERE r.id = a.run;
  PERFORM holdfast.fn_record(p_writer, p_batch,
    jsonb_build_object('now', v_now, 'runs', v_runs, 'leases', v_leases, 'holders', v_holders, 'untils', v_untils)::text);
  RETURN QUERY SELECT v_now, x.* FROM (${readClaimed('v_runs, v_leases, v_holders, v_untils')}) x;
END $$;
`

const extendFunction = `
CREATE OR REPLACE FUNCTION holdfast.fn_extend(
  p_offset bigint, p_lease_ms bigint, p_owners text[], p_runs text[], p_epochs bigint[], p_leases text[]
) RETURNS TABLE (n bigint, has_mail boolean) LANGUAGE plpgsql VOLATILE ${planSql}
AS $$
#variable_conflict use_column
DECLARE
  v_now bigint := ${nowSql};
  v_ids bigint[];
BEGIN
  -- An extension that is lost with the machine only lets the lease run out earlier: heartbeats do not wait for the disk.
  PERFORM set_config('synchronous_commit', 'off', true);
  SELECT array_agg(r.id) INTO v_ids FROM unnest(p_owners, p_runs) AS a(owner, run)
    CROSS JOIN LATERAL (SELECT r.id FROM holdfast.runs r WHERE r.owner = a.owner AND r.run_id = a.run LIMIT 1) r;
  PERFORM FROM holdfast.runs r WHERE r.id = ANY (v_ids) ORDER BY r.thread, r.id FOR NO KEY UPDATE;
  RETURN QUERY
    UPDATE holdfast.runs r SET wake_at = v_now + p_lease_ms
      FROM unnest(p_owners, p_runs, p_epochs, p_leases) WITH ORDINALITY AS a(owner, run, epoch, lease, n)
      WHERE r.owner = a.owner AND r.run_id = a.run AND r.epoch = a.epoch AND r.lease_id = a.lease
      RETURNING a.n, r.last_message > 0;
END $$;
`

export const claimFunctions = [claimFunction, extendFunction]

export const claimSql = 'SELECT * FROM holdfast.fn_claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)'
/** After a lost connection: what the claim had taken. */
export const readClaimedSql = readClaimed('$1::bigint[], $2::text[], $3::text[], $4::bigint[]')
export const extendSql = 'SELECT n, has_mail FROM holdfast.fn_extend($1, $2, $3, $4, $5, $6)'
