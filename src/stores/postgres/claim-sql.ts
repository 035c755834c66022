import { findLanesSql, makeReadySql, readLimitsSql } from './claim-lanes-sql.ts'
import { takeRunsSql } from './claim-turns-sql.ts'
import { callSql, declareSql, ParameterList, writerParameters } from './parameters.ts'
import {
  runColumns,
  selectRecordColumns,
  selectRunColumns,
  selectThreadColumns,
  textRunColumns,
  threadColumnCount,
} from './rows.ts'
import { durableSql, nowSql, planSql } from './sql.ts'

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

const claimList = new ParameterList({
  ...({ p_offset: 'bigint', p_sync: 'boolean', p_worker: 'text', p_lease_ms: 'bigint', p_limit: 'int' } as const),
  ...({
    p_workflows: 'text[]',
    p_versions: 'bigint[]',
    p_state_versions: 'bigint[]',
    p_queues: 'text[]',
    p_suspects: 'int',
  } as const),
  ...({ p_limit_queues: 'text[]', p_limits: 'bigint[]', p_last_priorities: 'bigint[]', p_last_owners: 'text[]' } as const),
  ...({ p_expected: 'bigint' } as const),
})
const claimParameters = [...writerParameters, ...claimList.parameters]
export const claimSql = `SELECT * FROM ${callSql('fn_claim', claimParameters)}`

/** Values for its parameters, without those of the writer. */
export function claimValues(values: Readonly<Record<keyof typeof claimList.types, unknown>>): unknown[] {
  return claimList.values(values)
}

const declarationsSql = `
  v_now bigint := ${nowSql};
  v_runs bigint[] := '{}'; v_leases text[]; v_holders text[] := '{}'; v_untils bigint[] := '{}';
  v_left int := p_limit; v_suspects int := p_suspects; v_size int; v_turns int; v_found record; v_priority bigint; v_is_woken boolean := false;
  -- Lanes in order of time, and lanes that are ready.
  v_lane record; t_n int[]; t_queue text[]; t_priority bigint[]; t_suspect boolean[]; t_held boolean[];
  r_n int[]; r_queue text[]; r_priority bigint[]; r_ready int[];
  -- Queues with limits, and what they leave.
  v_names text[]; v_takes bigint[]; v_places bigint[]; v_starts bigint[]; v_rates bigint[]; v_new text[] := '{}'; v_at int;
  -- The first runs of each lane of a priority.
  k_id bigint[]; k_owner text[]; k_queue text[]; k_new boolean[]; k_since bigint[]; v_owners text[]; v_last text COLLATE "C";`

/** A row with nothing but the time says that the clock was set back. */
const refuseSetBackSql = `
  IF v_now < p_expected THEN
    c0 := v_now;
    RETURN NEXT;
    RETURN;
  END IF;`

const writeSql = `
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
    jsonb_build_object('now', v_now, 'runs', v_runs, 'leases', v_leases, 'holders', v_holders, 'untils', v_untils)::text);`

/**
 * Claims runs. One call, one round trip; nothing is written when nothing is due.
 *
 * Two indexes keep claimable runs in lanes of one workflow, version, queue and priority. Runs that are held or sleep are in order of
 * time; those that were claimed without making progress have separate lanes. Runs that are ready are by owner, and then in order of time. A claim
 * hops from lane to lane among the workflows it was asked for, and from owner to owner: runs that sleep, wait
 * behind others of their thread or are for other workers are never touched, however many there are. The order is that of
 * model/claim-order.ts: of each lane the first runs in the order of turns are found, and then those of all lanes of a priority are put in order.
 *
 * SKIP LOCKED inside a lane: racing workers get different runs instead of waiting for the same ones. A claim locks thread and run
 * (P1), sees both again as they are then, and never waits for them, so it cannot be part of a deadlock. What it returns is read by a
 * later statement, which sees all that was committed until the locks were granted.
 *
 * The limits of a queue are kept under the lock of its row, which is taken before any other and only where there is something to
 * take: what is counted afterwards includes the claims of all that had the lock before. Only claims make runs running.
 */
export const claimFunction = `
CREATE OR REPLACE FUNCTION holdfast.fn_claim(${declareSql(claimParameters)})
RETURNS TABLE (c0 bigint, ${claimedTypes.map((type, index) => `c${index + 1} ${type}`).join(', ')}) LANGUAGE plpgsql VOLATILE ${planSql}
AS $$
#variable_conflict use_column
DECLARE
  ${declarationsSql}
BEGIN
  ${refuseSetBackSql}
  ${findLanesSql}
  ${readLimitsSql}
  ${makeReadySql}
  ${takeRunsSql}
  IF v_runs = '{}' THEN RETURN; END IF;
  ${durableSql}
  ${writeSql}
  RETURN QUERY SELECT v_now, x.* FROM (${readClaimed('v_runs, v_leases, v_holders, v_untils')}) x;
END $$;
`

/** After a lost connection: what the claim had taken, and what time it is by now. */
export const readClaimedSql = `SELECT ${nowSql.replace('p_offset', '$5::bigint')}, x.*
  FROM (${readClaimed('$1::bigint[], $2::text[], $3::text[], $4::bigint[]')}) x`
