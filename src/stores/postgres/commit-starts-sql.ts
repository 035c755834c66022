import { insertRunSql, insertThreadSql, newRunSql, newThreadSql } from './new-run-sql.ts'
import { startColumns } from './start-columns.ts'

/**
 * Parts of fn_commit (commit-sql.ts): starts on threads that are new to the store, written set by set. What meets an existing thread or
 * run, or a queue without room, joins the other changes.
 */

/** LIMIT keeps the look-ups from becoming joins, which on empty tables are planned as full scans. */
const insertThreadsSql = `
    WITH thread AS (
      ${insertThreadSql(`SELECT ${newThreadSql({ id: 'v_thread_ids[a.rank]', owner: 'a.owner', thread: 'a.thread', headSeq: 1 })}
          FROM ${startColumns.rowsSql(['rank', 'owner', 'thread', 'run', 'queue'], { as: 'a' })}
          WHERE (SELECT t.id FROM holdfast.threads t WHERE t.owner = a.owner AND t.thread_id = a.thread LIMIT 1) IS NULL
            AND (SELECT r.id FROM holdfast.runs r WHERE r.owner = a.owner AND r.run_id = a.run LIMIT 1) IS NULL
            AND (v_tight IS NULL OR a.queue <> ALL (v_tight))`)} RETURNING id
    ) SELECT count(*), array_agg(id) INTO v_new, v_ids FROM thread;
    IF v_new < v_starts THEN
      SELECT coalesce(array_agg(s), '{}') INTO v_made FROM generate_series(1, v_starts) s WHERE v_thread_ids[start_rank[s]] = ANY (v_ids);
    END IF;`

const runColumns = startColumns.rowsSql(
  ['rank', 'owner', 'run', 'workflow', 'version', 'queue', 'priority', 'fingerprint', 'due_kind', 'due'],
  { as: 'a', number: 'slot' },
)
const isStarted = '(v_made IS NULL OR s = ANY (v_made))'

/** Where another process has created a run of this id, on another thread, at this moment, the new thread is deleted again. */
const insertRunsSql = `
    WITH made AS (
      ${insertRunSql(`SELECT ${newRunSql({ as: 'a', id: 'v_run_ids[a.rank]', thread: 'v_thread_ids[a.rank]', epoch: '0', isNext: 'true', inputSeq: '1' })}
          FROM ${runColumns}
          WHERE v_made IS NULL OR a.slot = ANY (v_made)`)} RETURNING id
    ) SELECT count(*), array_agg(id) INTO v_written, v_ids FROM made;
    IF v_written < v_new THEN
      SELECT coalesce(array_agg(s), '{}') INTO v_slots
        FROM generate_series(1, v_starts) s WHERE ${isStarted} AND v_run_ids[start_rank[s]] = ANY (v_ids);
      DELETE FROM holdfast.threads t USING generate_series(1, v_starts) s
        WHERE ${isStarted} AND s <> ALL (v_slots) AND t.id = v_thread_ids[start_rank[s]];
      v_made := v_slots;
    END IF;`

const createColumns = [
  ...(['rank', 'owner', 'thread', 'run', 'workflow', 'version', 'queue', 'priority', 'fingerprint'] as const),
  ...(['due_kind', 'due', 'reject'] as const),
].map((name) => `'${name}', start_${name}[s]`)

/** The same shape as change-json.ts gives to other changes. */
const joinOthersSql = `
    IF v_made IS NOT NULL THEN
      SELECT coalesce(p_others, '[]') || coalesce(jsonb_agg(jsonb_build_object('index', start_index[s], 'owner', start_owner[s], 'thread', start_thread[s],
            'count', 0, 'guard', 'none', 'creates', jsonb_build_array(jsonb_build_object('slot', v_leased + s, ${createColumns.join(', ')})))), '[]')
        INTO v_others FROM generate_series(1, v_starts) s WHERE s <> ALL (v_made);
      SELECT jsonb_agg(x ORDER BY (x->'index')::int) INTO v_others FROM jsonb_array_elements(v_others) x;
    END IF;`

const setSlotsSql = `
    SELECT v_thread || array_agg(CASE WHEN ${isStarted} THEN v_thread_ids[start_rank[s]] ELSE 0 END),
           v_run || array_agg(v_run_ids[start_rank[s]]), v_before || array_fill(0::bigint, ARRAY[v_starts])
      INTO v_thread, v_run, v_before FROM generate_series(1, v_starts) s;`

export const startsSql = `
  IF v_starts > 0 THEN
    ${insertThreadsSql}
    ${insertRunsSql}
    ${joinOthersSql}
    ${setSlotsSql}
  END IF;`
