import { leasedColumns, snapshotColumns } from './leased-columns.ts'
import { isChangedSql, runAfterSql, setSql } from './run-change-sql.ts'
import { endedSql, sealSql, settleOpenSql, takenSql } from './sql.ts'

/** Parts of fn_commit (commit-sql.ts): changes under leases of this process, written set by set. */

/** Raising the heads is also what locks the threads. A thread whose lease is lost is neither raised nor locked (P4). */
const raiseHeadsSql = `
    WITH raised AS (
      UPDATE holdfast.threads t SET head_seq = t.head_seq + a.count,
          written_seq = CASE WHEN a.count > 0 THEN t.head_seq + a.count ELSE t.written_seq END,
          patch_seq = coalesce(t.head_seq + a.patch, t.patch_seq),
          patch_checksum = coalesce(${sealSql('a.patch_crc', { seq: 't.head_seq + a.patch' })}, t.patch_checksum)
        FROM ${leasedColumns.rowsSql(['thread', 'run', 'epoch', 'lease', 'written', 'count', 'patch', 'patch_crc'], { as: 'a', number: 'slot' })}
          JOIN holdfast.runs r ON r.id = a.run AND r.thread + 0 = a.thread AND r.epoch = a.epoch AND r.lease_id = a.lease
        WHERE t.id = a.thread AND t.written_seq >= coalesce(a.written, 0)
        RETURNING a.slot, t.head_seq - a.count AS before
    ) SELECT array_agg(before ORDER BY slot), array_agg(slot ORDER BY slot) INTO v_before, v_slots FROM raised;
    v_raised := coalesce(cardinality(v_before), 0);
    v_thread := leased_thread;
    v_run := leased_run;
    IF v_raised < v_leased THEN
      v_thread := array_fill(0::bigint, ARRAY[v_leased]); v_run := v_thread;
      v_last := v_before; v_before := array_fill(-1::bigint, ARRAY[v_leased]);
      FOR i IN 1..v_raised LOOP
        v_before[v_slots[i]] := v_last[i]; v_thread[v_slots[i]] := leased_thread[v_slots[i]]; v_run[v_slots[i]] := leased_run[v_slots[i]];
      END LOOP;
    END IF;`

/** Whether a change alters the run's row at all. */
const isMoved = `(num_nonnulls(a.status, a.tape, a.input, a.ending, a.due_kind) > 0 OR ${isChangedSql({ flags: 'a.flags', step: 'a.step', leaseMs: 'a.lease_ms' })})`

const after = runAfterSql({
  ...{ status: 'a.status', setsReason: 'a.flags & 8 <> 0', reason: 'a.reason', setsStep: 'a.flags & 2 <> 0', step: 'a.step' },
  ...{ hasProgress: 'a.flags & 1 <> 0', uncountsClaim: 'a.flags & 4 <> 0' },
  ...{ startsTape: 'a.tape IS NOT NULL', tapeSeq: 'a.before + a.tape', hasNewInput: 'a.input IS NOT NULL' },
  ...{ inputSeq: 'a.before + a.input', setsEnd: 'a.ending IS NOT NULL', endSeq: 'a.before + a.ending' },
  ...{ dueKind: 'a.due_kind', due: 'a.due', hasMail: 'r.last_message > coalesce(a.seen, 0)', leaseMs: 'a.lease_ms' },
})

const runColumns = leasedColumns.rowsSql(
  [
    ...(['run', 'epoch', 'lease', 'flags', 'step', 'lease_ms', 'status', 'reason'] as const),
    ...(['due_kind', 'due', 'seen', 'tape', 'input', 'ending'] as const),
  ],
  { as: 'a', also: { before: 'v_before' }, number: 'slot' },
)

/** Under the threads' locks no other process can claim or end these runs: one that a step leaves as it is need not be written. */
const writeRunsSql = `
    WITH leased AS (
      SELECT a.*, r.last_message, ${isMoved} AS is_moved
        FROM ${runColumns}
        JOIN holdfast.runs r ON r.id = a.run AND r.epoch = a.epoch AND r.lease_id = a.lease
        WHERE a.before >= 0
    ), written AS (
      UPDATE holdfast.runs r SET
          ${setSql(after)}
        FROM leased a WHERE r.id = a.run AND a.is_moved
    ) SELECT count(*), array_agg(slot) FILTER (WHERE last_message > 0), array_agg(last_message) FILTER (WHERE last_message > 0)
        INTO v_written, v_mail, v_last FROM leased;
    ${takenSql('v_written < v_raised')}`

const appendChunksSql = `
    IF p_chunks IS NOT NULL THEN
      FOR v_change IN SELECT x FROM jsonb_array_elements(p_chunks) x LOOP
        i := v_change->'slot';
        IF v_run[i] > 0 THEN PERFORM holdfast.fn_append_chunks(v_run[i], v_change->'chunks', extra_payload, extra_payload_bytes); END IF;
      END LOOP;
    END IF;`

const snapshotPlace = { seq: 'v_before[a.slot] + a.ord', stateVersion: 'coalesce(a.state_version, t.state_version)' }

const writeStatesSql = `
    IF snapshot_slot IS NOT NULL THEN
      INSERT INTO holdfast.snapshots (thread, seq, state_version, checksum, state, state_bytes)
        SELECT t.id, ${snapshotPlace.seq}, ${snapshotPlace.stateVersion}, ${sealSql('a.crc', snapshotPlace)}, a.state, a.state_bytes
          FROM ${snapshotColumns.rowsSql(['slot', 'ord', 'state_version', 'crc', 'state'], { as: 'a' })}
          JOIN holdfast.threads t ON t.id = v_thread[a.slot]
        ON CONFLICT (thread, seq) DO UPDATE SET state_version = excluded.state_version, checksum = excluded.checksum,
          state = excluded.state, state_bytes = excluded.state_bytes;
    END IF;
    IF leased_state_version IS NOT NULL THEN
      UPDATE holdfast.threads t SET state_version = a.state_version
        FROM ${leasedColumns.rowsSql(['state_version'], { as: 'a', also: { thread: 'v_thread' } })}
        WHERE t.id = a.thread AND t.state_version <> a.state_version;
    END IF;`

/** Where a run has ended, the next one of its thread can be claimed. */
const moveUpSql = `
    IF leased_status IS NOT NULL THEN
      UPDATE holdfast.runs r SET is_next = true
        FROM ${leasedColumns.rowsSql(['status'], { as: 'a', also: { thread: 'v_thread' } })}
        CROSS JOIN LATERAL (SELECT l.id FROM holdfast.runs l WHERE l.thread = a.thread AND l.finished_at IS NULL ORDER BY l.finished_at, l.id LIMIT 1) n
        WHERE a.status IN ${endedSql} AND r.id = n.id AND NOT r.is_next;
    END IF;`

const settleSql = `
    IF leased_status IS NOT NULL OR leased_input IS NOT NULL THEN
      ${settleOpenSql({
        from: `FROM ${leasedColumns.rowsSql(['status', 'input'], { as: 'a', also: { run: 'v_run' } })}`,
        left: `(a.status IN ${endedSql} OR a.input IS NOT NULL) AND x.run = a.run`,
        now: 'v_now',
      })};
    END IF;`

export const leasedSql = `
  IF v_leased > 0 THEN
    ${raiseHeadsSql}
    ${writeRunsSql}
    ${appendChunksSql}
    ${writeStatesSql}
    ${moveUpSql}
    ${settleSql}
  END IF;`
