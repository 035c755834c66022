/** Parts of fn_claim (claim-sql.ts): runs of one priority, in the order of model/claim-order.ts. */

/** Whether a queue has room for one more run. */
const hasRoom = (isHeld: string, isNew: string) =>
  `v_takes[v_at] > 0 AND (${isHeld} OR v_places[v_at] > 0) AND (NOT ${isNew} OR v_starts[v_at] > 0)`

/** Abandoned runs and suspects come first. */
const takeAbandonedSql = `
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
    END LOOP;`

/** Ready runs of one lane. */
const inLane = `r.is_next AND r.wake_at IS NOT NULL AND r.ready > 0 AND r.ready = v_lane.ready AND r.workflow = p_workflows[v_lane.n]
  AND r.version = p_versions[v_lane.n] AND r.queue = v_lane.queue AND r.priority = v_lane.priority`
/** As the index of the lanes has it, so that no index that begins with the owner is used instead. */
const owner = "(r.owner || '')"
/** Those of it that are due and that the worker understands, for a joined thread. */
const isDue = `r.wake_at <= v_now AND (p_state_versions[v_lane.n] IS NULL OR t.state_version <= p_state_versions[v_lane.n])`

/** The first runs of each lane in the order of turns. */
const findCandidatesSql = `
    v_last := p_last_owners[array_position(p_last_priorities, v_priority)];
    k_id := '{}'; k_owner := '{}'; k_queue := '{}'; k_new := '{}'; k_since := '{}';
    FOR v_lane IN SELECT * FROM unnest(r_n, r_queue, r_priority, r_ready) AS l(n, queue, priority, ready) WHERE l.priority = v_priority LOOP
      v_at := array_position(v_names, v_lane.queue);
      CONTINUE WHEN v_at IS NOT NULL AND NOT (${hasRoom('false', 'v_lane.ready = 2')});
      v_size := CASE WHEN v_at IS NULL THEN v_left ELSE least(v_left, v_takes[v_at], v_places[v_at]) END;
      -- Owners that have something due, beginning after the one that had the last turn.
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
    END LOOP;`

/** Those of all lanes, in turns. */
const takeInTurnsSql = `
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
    END LOOP;`

export const takeRunsSql = `
  FOR v_priority IN SELECT DISTINCT x FROM unnest(t_priority || r_priority) x ORDER BY x DESC LOOP
    ${takeAbandonedSql}
    EXIT WHEN v_left <= 0;
    ${findCandidatesSql}
    ${takeInTurnsSql}
    EXIT WHEN v_left <= 0;
  END LOOP;`
