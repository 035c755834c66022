import { nowSql } from './sql.ts'

/** Parts of fn_claim (claim-sql.ts): which lanes have runs that can be claimed, and what the limits of their queues leave. */

/** Lanes in order of time: runs that are held or sleep. */
const findTimedLanesSql = `
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
      AND NOT EXISTS (SELECT FROM holdfast.queues q WHERE q.name = l.queue AND q.is_paused);`

/** Lanes of runs that are ready. */
const findReadyLanesSql = `
  WITH RECURSIVE lane AS (
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

export const findLanesSql = `
  ${findTimedLanesSql}
  ${findReadyLanesSql}
  IF t_n IS NULL AND r_n IS NULL THEN RETURN; END IF;`

/** Read once without the lock, so that a full queue costs one read and no more. */
export const readLimitsSql = `
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
  END LOOP;`

/**
 * What has slept until now becomes ready: after the locks of queues, which may have been waited for. After a downtime that takes several
 * claims, so that none takes long.
 */
export const makeReadySql = `
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
  ${findReadyLanesSql}
  END IF;`
