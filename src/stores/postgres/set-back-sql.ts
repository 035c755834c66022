import { setBackToleranceMs } from '../../model/clock-set-back.ts'
import { nowSql, planSql, readCommittedSql } from './sql.ts'

/** Unfinished runs, as the index of queues has them. */
const unfinished = "r.status IN ('pending', 'running', 'waiting', 'paused')"
const heldTooLong = "r.status = 'running' AND r.wake_at > v_now + p_longest_ms"
const heldUp = `r.status = 'pending' AND r.due_at > v_now AND (r.started_at IS NOT NULL OR r.due_at <= r.created_at)`
/** How many are moved at once, so that no claim waits long for it. */
const limit = 1_000

/**
 * Moves runs that would be held up by a clock that was set back, as model/clock-set-back.ts says. Whatever is locked is left for the next
 * call, which `is_done` says is needed.
 */
export const setBackFunction = `
CREATE OR REPLACE FUNCTION holdfast.fn_set_back(p_offset bigint, p_lease_ms bigint, p_longest_ms bigint, OUT now bigint, OUT is_done boolean)
LANGUAGE plpgsql VOLATILE ${planSql}
AS $$
#variable_conflict use_column
DECLARE
  v_now bigint := ${nowSql};
  v_queues text[];
BEGIN
  ${readCommittedSql}
  WITH RECURSIVE q AS (
    (SELECT r.queue FROM holdfast.runs r WHERE ${unfinished} ORDER BY r.queue LIMIT 1)
    UNION ALL
    SELECT x.queue FROM q CROSS JOIN LATERAL (SELECT r.queue FROM holdfast.runs r WHERE ${unfinished} AND r.queue > q.queue ORDER BY r.queue LIMIT 1) x
  ) SELECT array_agg(q.queue) INTO v_queues FROM q;
  UPDATE holdfast.runs x SET wake_at = v_now + p_lease_ms
    FROM unnest(v_queues) AS q(queue) CROSS JOIN LATERAL (
      SELECT r.id FROM holdfast.runs r WHERE r.queue = q.queue AND ${heldTooLong} LIMIT ${limit} FOR NO KEY UPDATE SKIP LOCKED) a
    WHERE x.id = a.id;
  UPDATE holdfast.runs x SET due_at = v_now, wake_at = v_now
    FROM unnest(v_queues) AS q(queue) CROSS JOIN LATERAL (
      SELECT r.id FROM holdfast.runs r WHERE r.queue = q.queue AND ${heldUp} ORDER BY r.due_at LIMIT ${limit} FOR NO KEY UPDATE SKIP LOCKED) a
    WHERE x.id = a.id;
  -- Of other claims that came a moment later, and ended before this, starts are later than now, too: they count.
  DELETE FROM holdfast.queue_starts s WHERE s.at > v_now + ${setBackToleranceMs};
  now := v_now;
  is_done := NOT EXISTS (SELECT FROM unnest(v_queues) AS q(queue) CROSS JOIN LATERAL (
    (SELECT FROM holdfast.runs r WHERE r.queue = q.queue AND ${heldTooLong} LIMIT 1)
    UNION ALL
    (SELECT FROM holdfast.runs r WHERE r.queue = q.queue AND ${heldUp} LIMIT 1)) a);
END $$;
`

export const setBackSql = 'SELECT now, is_done FROM holdfast.fn_set_back($1, $2, $3)'
