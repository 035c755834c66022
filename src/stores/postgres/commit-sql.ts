import { leasedSql } from './commit-leased-sql.ts'
import { locksSql } from './commit-locks-sql.ts'
import { commitParameters } from './commit-parameters.ts'
import { startsSql } from './commit-starts-sql.ts'
import { eventColumns } from './event-columns.ts'
import { declareSql } from './parameters.ts'
import { durableSql, nowSql, planSql, recordSql, sealSql } from './sql.ts'

/**
 * One batch of changes: one call, one round trip, one transaction, one flush. Isolation is READ COMMITTED, nothing stronger.
 *
 *   P1  Whatever decides over a thread or its runs does so under the lock of the thread's row. Locks come first, in the order of
 *       ids: threads, then runs, then operations; those of runs that messages are delivered to, too. Each later statement of a function
 *       has its own snapshot and so sees what was committed before the lock was granted. (One statement has one snapshot: of what it
 *       waited for it would see half.)
 *   P2  A refused change leaves nothing: it is judged before it writes, or its writes are undone by a savepoint.
 *   P3  A position is given out by raising threads.head_seq; the primary key of the log is the last line of defence. Whatever is
 *       written under a lease raises threads.written_seq with it, and a holder that knows a greater one is refused.
 *   P4  Row numbers that a client remembers are looked up together with epoch and lease id: after a failover they may have been
 *       given out again, and then name other rows.
 *   P5  The batch leaves its answer in the row of its writer (writes.ts), so that a lost connection hides nothing.
 *
 * The client sorts the changes into three kinds (sort-changes.ts):
 *
 *   leased  under a lease that this process claimed, so that row numbers are known: nearly every step, and how a run begins, waits and
 *           ends. Sorted by thread; each thread is named once and by no other change. Written set by set: commit-leased-sql.ts.
 *   starts  one new run on a thread that no other change of the batch names. Written set by set where the thread is new:
 *           commit-starts-sql.ts.
 *   others  everything else, as JSON, one by one in order: apply-sql.ts.
 *
 * Every change that appends events, and every run that is created, has a slot: an index into v_thread, v_before and v_run,
 * which say where its events go. The log is written in one statement at the end. Whatever creates a thread
 * or a run has a rank, so that numbers rise in the order of the changes, however they are written.
 *
 * The text is put together from parts, one per act: functions that call each other would cost more time.
 */
const declarationsSql = `
  v_now bigint := ${nowSql};
  v_leased int := coalesce(cardinality(leased_thread), 0);
  v_starts int := coalesce(cardinality(start_run), 0);
  v_thread bigint[] := '{}'; v_before bigint[] := '{}'; v_run bigint[] := '{}';
  v_written int; v_raised int; v_new int; v_slots int[]; v_mail int[]; v_last bigint[];
  v_thread_ids bigint[]; v_run_ids bigint[]; v_ids bigint[]; v_made int[];
  v_others jsonb := p_others; v_change jsonb; v_result record; v_results jsonb[] := '{}'; i int;
  v_answer text; v_queues text[]; v_tight text[];`

const applyCall = 'holdfast.fn_apply(v_change, v_now, v_thread_ids, v_run_ids, extra_crc, extra_payload, extra_payload_bytes)'

/** Those with a savepoint may be refused after they wrote, or meet a process that creates the same thread or run at this moment (P2). */
const othersSql = `
  FOR v_change IN SELECT x FROM jsonb_array_elements(v_others) x LOOP
    IF v_change->'creates' IS NULL AND v_change->'records' IS NULL AND v_change->>'guard' IN ('lease', 'run') THEN
      v_result := ${applyCall};
    ELSE
      FOR i IN 1..5 LOOP
        BEGIN
          v_result := ${applyCall};
          IF v_result.is_refused THEN RAISE EXCEPTION USING ERRCODE = 'HF002'; END IF;
          EXIT;
        EXCEPTION
          WHEN SQLSTATE 'HF002' THEN EXIT;
          WHEN SQLSTATE 'HF001' THEN IF i = 5 THEN RAISE EXCEPTION 'the same run is being created elsewhere' USING ERRCODE = '40001'; END IF;
        END;
      END LOOP;
    END IF;
    v_results := v_results || v_result.answer;
    IF NOT v_result.is_refused THEN
      FOR i IN 1..cardinality(v_result.places) BY 4 LOOP
        v_thread[v_result.places[i]] := v_result.places[i + 1];
        v_before[v_result.places[i]] := v_result.places[i + 2];
        v_run[v_result.places[i]] := v_result.places[i + 3];
      END LOOP;
    END IF;
  END LOOP;`

const eventRows = eventColumns.rowsSql(
  [
    ...(['slot', 'ord', 'at', 'duration_ms', 'crc', 'checkpoint_bytes', 'count', 'attempt', 'type', 'step'] as const),
    ...(['payload', 'patch'] as const),
  ],
  { as: 'e' },
)

const logSql = `
  IF event_slot IS NOT NULL THEN
    INSERT INTO holdfast.log (thread, seq, run, at, duration_ms, checksum, checkpoint_bytes, count, attempt, type, step, payload, payload_bytes, patch, patch_bytes)
      SELECT v_thread[e.slot], v_before[e.slot] + e.ord, nullif(v_run[e.slot], 0), e.at, e.duration_ms,
          ${sealSql('e.crc', { seq: 'v_before[e.slot] + e.ord' })},
          e.checkpoint_bytes, e.count, e.attempt, e.type, e.step, e.payload, e.payload_bytes, e.patch, e.patch_bytes
        FROM ${eventRows}
        WHERE v_thread[e.slot] > 0;
  END IF;`

/** As answers.ts reads it. */
const answerSql = `
  v_answer := concat('{"now":', v_now, ',"before":', array_to_json(v_before[1:v_leased]), ',"mail":', coalesce(array_to_json(v_mail)::text, '[]'),
    ',"last":', coalesce(array_to_json(v_last)::text, '[]'),
    CASE WHEN v_made IS NOT NULL THEN concat(',"made":', array_to_json(v_made)) END,
    CASE WHEN v_results <> '{}' THEN concat(',"others":[', array_to_string(v_results, ','), ']') END, '}');`

export const commitFunction = `
CREATE OR REPLACE FUNCTION holdfast.fn_commit(${declareSql(commitParameters)}) RETURNS text LANGUAGE plpgsql VOLATILE ${planSql}
AS $$
#variable_conflict use_column
DECLARE
  ${declarationsSql}
BEGIN
  ${durableSql}
  ${locksSql}
  ${leasedSql}
  ${startsSql}
  ${othersSql}
  ${logSql}
  ${answerSql}
  ${recordSql}
  RETURN v_answer;
END $$;
`
