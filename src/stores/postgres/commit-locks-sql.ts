import { startColumns } from './start-columns.ts'

/** Parts of fn_commit (commit-sql.ts): the locks of batches that have more than leased changes. */

const hasOthers = 'p_others IS NOT NULL OR start_run IS NOT NULL'

/**
 * Queues that may be full are locked before everything else: what is counted afterwards includes the starts of other processes that had
 * the locks before. v_tight are those without room for the whole batch, where starts are judged one by one.
 */
const lockQueuesSql = `
    SELECT array_agg(q.name) INTO v_queues FROM (
        SELECT q.name FROM holdfast.queues q WHERE q.max_queued IS NOT NULL AND (q.name = ANY (start_queue) OR q.name IN (
          SELECT n.queue FROM jsonb_to_recordset(p_others) AS a(creates jsonb), jsonb_to_recordset(a.creates) AS n(queue text)))
          ORDER BY q.name FOR NO KEY UPDATE
      ) q;
    IF v_queues IS NOT NULL THEN
      SELECT array_agg(q.name) INTO v_tight FROM holdfast.queues q WHERE q.name = ANY (v_queues) AND q.max_queued <
        coalesce(cardinality(array_positions(start_queue, q.name)), 0)
        + (SELECT count(*) + coalesce(sum(jsonb_array_length(a.creates)), 0) FROM jsonb_to_recordset(p_others) AS a(creates jsonb))
        + (SELECT count(*) FROM (SELECT FROM holdfast.runs r WHERE r.queue = q.name AND r.status = 'pending'
          LIMIT q.max_queued + 1) x);
    END IF;`

/** All threads that exist and that the batch names: its own, those of runs to be created, those of runs that messages go to. */
const lockThreadsSql = `
    SELECT array_agg(id) INTO v_ids FROM (
        SELECT t.id FROM (
            SELECT a.owner, a.thread FROM jsonb_to_recordset(p_others) AS a(owner text, thread text)
            UNION ALL
            SELECT n.owner, n.thread FROM jsonb_to_recordset(p_others) AS a(creates jsonb), jsonb_to_recordset(a.creates) AS n(owner text, thread text)
            UNION ALL
            SELECT a.owner, a.thread FROM ${startColumns.rowsSql(['owner', 'thread'], { as: 'a' })}
          ) k CROSS JOIN LATERAL (SELECT t.id FROM holdfast.threads t WHERE t.owner = k.owner AND t.thread_id = k.thread LIMIT 1) t
        UNION ALL
        SELECT r.thread FROM jsonb_to_recordset(p_others) AS a(delivers jsonb) CROSS JOIN jsonb_to_recordset(a.delivers) AS m(owner text, run text)
          CROSS JOIN LATERAL (SELECT r.thread FROM holdfast.runs r WHERE r.owner = m.owner AND r.run_id = m.run LIMIT 1) r
      ) x;
    IF p_others IS NOT NULL OR v_ids IS NOT NULL THEN
      PERFORM FROM holdfast.threads t WHERE t.id = ANY (leased_thread || v_ids) ORDER BY t.id FOR NO KEY UPDATE;
    END IF;`

const lockRunsSql = `
    IF p_others IS NOT NULL THEN
      SELECT array_agg(r.id) INTO v_ids FROM (
          SELECT a.owner, a.run FROM jsonb_to_recordset(p_others) AS a(owner text, run text)
          UNION ALL
          SELECT m.owner, m.run FROM jsonb_to_recordset(p_others) AS a(delivers jsonb) CROSS JOIN jsonb_to_recordset(a.delivers) AS m(owner text, run text)
        ) k CROSS JOIN LATERAL (SELECT r.id FROM holdfast.runs r WHERE r.owner = k.owner AND r.run_id = k.run LIMIT 1) r;
      PERFORM FROM holdfast.runs r WHERE r.id = ANY (leased_run || v_ids) ORDER BY r.thread, r.id FOR NO KEY UPDATE;
    END IF;`

/** Those that exist, in the order of their keys, so that two batches that write the same ones meet in the same order. */
const lockRecordsSql = `
    IF p_records THEN
      PERFORM FROM (
          SELECT a.owner, w.collection, w.key FROM jsonb_to_recordset(p_others) AS a(owner text, records jsonb)
            CROSS JOIN jsonb_to_recordset(a.records) AS w(collection text, key text) ORDER BY 1, 2, 3
        ) k CROSS JOIN LATERAL (
          SELECT FROM holdfast.records x WHERE x.owner = k.owner AND x.collection = k.collection AND x.key = k.key FOR UPDATE) x;
    END IF;`

/** Under the locks, because a thread's runs are executed in the order of their numbers. */
const drawNumbersSql = `
    IF p_ranks > 0 THEN
      SELECT array_agg(nextval('holdfast.threads_id_seq')), array_agg(nextval('holdfast.runs_id_seq')) INTO v_thread_ids, v_run_ids
        FROM generate_series(1, p_ranks);
    END IF;`

/** A batch of nothing but leased changes takes its locks as it writes. */
export const locksSql = `
  IF ${hasOthers} THEN
    ${lockQueuesSql}
    ${lockThreadsSql}
    ${lockRunsSql}
    ${lockRecordsSql}
    ${drawNumbersSql}
  END IF;`
