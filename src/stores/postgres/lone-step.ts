import { storedChecksum } from '../../model/checksum.ts'
import type { NewEvent } from '../../model/event.ts'
import type { Change } from '../../store/change.ts'
import { readAnswers } from './answers.ts'
import type { Batch, CommitOptions } from './commit.ts'
import { count32, wholeMs } from './integers.ts'
import { flagsOf } from './leased-columns.ts'
import { callSql, declareSql, ParameterList, writerParameters } from './parameters.ts'
import { byteLengthOf } from './rows.ts'
import { isChangedSql, runAfterSql, setSql } from './run-change-sql.ts'
import { isLeasedKind } from './sort-changes.ts'
import { durableSql, nowSql, planSql, recordSql, sealSql, takenSql } from './sql.ts'

/** An event's columns in the log. */
const eventColumns = new ParameterList({
  ...({ type: 'text', step: 'text', count: 'int', attempt: 'int', at: 'float8', duration_ms: 'float8' } as const),
  ...({ checkpoint_bytes: 'bigint', checksum: 'bigint', payload: 'text', patch: 'text' } as const),
})
const eventNames = eventColumns.parameters.map(({ name }) => name)
const eventParameters = (n: number) => eventColumns.parameters.map(({ name, type }) => ({ name: `e${n}_${name}`, type }))

const stepList = new ParameterList({
  ...({
    p_offset: 'bigint',
    p_sync: 'boolean',
    p_thread: 'bigint',
    p_run: 'bigint',
    p_epoch: 'bigint',
    p_lease: 'text',
  } as const),
  ...({ p_written: 'bigint', p_flags: 'int', p_step: 'text', p_lease_ms: 'bigint', p_count: 'int' } as const),
})
const stepParameters = [...writerParameters, ...stepList.parameters, ...eventParameters(1), ...eventParameters(2)]
export const stepSql = `SELECT ${callSql('fn_step', stepParameters)}`

const eventRow = (n: number) => {
  const values = eventNames.map((name) =>
    name === 'checksum' ? sealSql(`e${n}_checksum`, { seq: `v_before + ${n}` }) : `e${n}_${name}`,
  )
  return `(p_thread, v_before + ${n}, p_run, ${values.join(', ')})`
}
const insertEvents = `INSERT INTO holdfast.log (thread, seq, run, ${eventNames.join(', ')}) VALUES`

const after = runAfterSql({
  ...{ setsStep: 'p_flags & 2 <> 0', step: 'p_step', hasProgress: 'p_flags & 1 <> 0', uncountsClaim: 'p_flags & 4 <> 0' },
  leaseMs: 'p_lease_ms',
})

/**
 * A lone step: one leased change of one or two events with text payloads, which moves nothing but the step, the count of claims and
 * the lease. The same as fn_commit does with a batch of it (commit-sql.ts), in a few simple statements over plain values: what that saves
 * is in decision 0017. The thread's lock comes first (P1), so the run's row is only written when the step changes it.
 */
export const stepFunction = `
CREATE OR REPLACE FUNCTION holdfast.fn_step(${declareSql(stepParameters)}) RETURNS text LANGUAGE plpgsql VOLATILE ${planSql}
AS $$
DECLARE
  v_now bigint := ${nowSql};
  v_before bigint; v_last bigint; v_is_moved boolean; v_answer text;
BEGIN
  ${durableSql}
  UPDATE holdfast.threads t SET head_seq = t.head_seq + p_count, written_seq = t.head_seq + p_count,
      patch_seq = CASE WHEN e2_patch IS NOT NULL THEN t.head_seq + 2 WHEN e1_patch IS NOT NULL THEN t.head_seq + 1 ELSE t.patch_seq END,
      patch_checksum = CASE WHEN e2_patch IS NOT NULL THEN ${sealSql('(e2_checksum & 4294967295)', { seq: 't.head_seq + 2' })}
        WHEN e1_patch IS NOT NULL THEN ${sealSql('(e1_checksum & 4294967295)', { seq: 't.head_seq + 1' })} ELSE t.patch_checksum END
    WHERE t.id = p_thread AND t.written_seq >= p_written
      AND EXISTS (SELECT FROM holdfast.runs r WHERE r.id = p_run AND r.thread + 0 = p_thread AND r.epoch = p_epoch AND r.lease_id = p_lease)
    RETURNING t.head_seq - p_count INTO v_before;
  IF NOT FOUND THEN RETURN '{"now":' || v_now || ',"before":[-1],"mail":[],"last":[]}'; END IF;
  SELECT r.last_message, ${isChangedSql({ flags: 'p_flags', step: 'p_step', leaseMs: 'p_lease_ms' })} INTO v_last, v_is_moved FROM holdfast.runs r
    WHERE r.id = p_run AND r.epoch = p_epoch AND r.lease_id = p_lease;
  ${takenSql('NOT FOUND')}
  IF v_is_moved THEN
    UPDATE holdfast.runs r SET
          ${setSql(after, ['current_step', 'claims_without_progress', 'wake_at'])}
      WHERE r.id = p_run;
  END IF;
  IF p_count = 1 THEN
    ${insertEvents} ${eventRow(1)};
  ELSE
    ${insertEvents} ${eventRow(1)}, ${eventRow(2)};
  END IF;
  v_answer := '{"now":' || v_now || ',"before":[' || v_before || '],"mail":[1],"last":[' || v_last || ']}';
  ${recordSql}
  RETURN v_answer;
END $$;
`

/** The batch as fn_step takes it; null if it is not a lone step. */
export function encodeLoneStep(changes: readonly Change[], { offset, isDurable, leases }: CommitOptions): Batch | null {
  const [change] = changes
  if (changes.length !== 1 || change === undefined || change.guard.kind !== 'lease' || !isLoneStep(change)) return null
  const { epoch, leaseId, writtenSeq } = change.guard
  const place = leases.placeOf(change)
  if (place === undefined) return null
  const { run = {} } = change
  const [first, second] = change.events as [NewEvent, NewEvent?]
  const step = stepList.values({
    ...{ p_offset: offset, p_sync: isDurable, p_thread: place.thread, p_run: place.run, p_epoch: epoch },
    ...{ p_lease: leaseId, p_written: writtenSeq ?? 0, p_flags: flagsOf(run), p_step: run.currentStep ?? null },
    ...{ p_lease_ms: run.leaseMs === undefined ? null : wholeMs(run.leaseMs), p_count: change.events.length },
  })
  const events = [
    ...eventValues(change, first, second === undefined),
    ...(second === undefined ? noEvent : eventValues(change, second, true)),
  ]
  const group = { place, epoch, leaseId, writtenSeq, indexes: [0] }
  const sorted = { leased: [group], starts: [], others: [], rankCount: 0 }
  return { values: [...step, ...events], readAnswer: (text) => readAnswers(text, changes, { sorted, leases }) }
}

function isLoneStep(change: Change): boolean {
  const { events, run, snapshot, stateVersion, chunks } = change
  if (!isLeasedKind(change) || events.length === 0 || events.length > 2) return false
  if (snapshot !== undefined || stateVersion !== undefined || chunks !== undefined) return false
  if (events.some(({ payload, patch }) => payload instanceof Uint8Array || patch instanceof Uint8Array)) return false
  if (run === undefined) return true
  const isStill = run.status === undefined && run.reason === undefined && run.due === undefined
  return isStill && run.startsTape !== true && run.setsEnd !== true
}

function eventValues(change: Change, event: NewEvent, isLast: boolean): unknown[] {
  const { type, step, count, attempt, at, durationMs, payload, patch } = event
  const isCheckpoint = isLast && change.isCheckpoint
  const record = { runId: change.runId, type, step, count, attempt, at, durationMs, payload, patch, isCheckpoint }
  return eventColumns.values({
    ...{ type, step, count: count32(count), attempt: count32(attempt), at, duration_ms: durationMs, payload, patch },
    checkpoint_bytes: isCheckpoint ? bytesOfEvents(change.events) : null,
    checksum: storedChecksum(change, record),
  })
}

function bytesOfEvents(events: readonly NewEvent[]): number {
  let bytes = 0
  for (const { payload, patch } of events) bytes += byteLengthOf(payload) + byteLengthOf(patch)
  return bytes
}

const noEvent: readonly null[] = eventNames.map(() => null)
