import { storedChecksum } from '../../model/checksum.ts'
import type { NewEvent } from '../../model/event.ts'
import type { Change } from '../../store/change.ts'
import { namesHead } from '../../store/kinds-of-change.ts'
import { type Answers, isMail } from './answers.ts'
import { flagsOf } from './held-columns.ts'
import type { LeasePlace, Leases } from './leases.ts'
import { byteLengthOf } from './rows.ts'
import { durableSql, nowSql, planSql, rowChanges, sealSql, takenSql } from './sql.ts'
import { count32, wholeMs } from './whole-numbers.ts'

/** An event's columns, in the order in which `eventValues` has them. */
const eventColumns = 'type step count attempt at duration_ms checkpoint_bytes checksum payload patch'.split(' ')
const eventTypes = 'text text int int float8 float8 bigint bigint text text'.split(' ')

const eventParameters = (n: number) => eventColumns.map((column, at) => `e${n}_${column} ${eventTypes[at]}`).join(', ')
const eventRow = (n: number) => {
  const columns = eventColumns.map((column) =>
    column === 'checksum' ? sealSql(`e${n}_checksum`, { seq: `v_before + ${n}` }) : `e${n}_${column}`,
  )
  return `(p_thread, v_before + ${n}, p_run, ${columns.join(', ')})`
}
const insertEvents = `INSERT INTO holdfast.log (thread, seq, run, ${eventColumns.join(', ')}) VALUES`

/**
 * A lone step: one held change of one or two events with text payloads, which moves nothing but the step, the count of claims and
 * the lease. The same as fn_commit does with a batch of it (commit-sql.ts), in a few simple statements over plain values: a third
 * of the server's time. The thread's lock comes first (P1), so the run's row is only written when the step changes it.
 */
export const stepFunction = `
CREATE OR REPLACE FUNCTION holdfast.fn_step(
  p_writer bigint, p_batch bigint, p_offset bigint, p_sync boolean,
  p_thread bigint, p_run bigint, p_epoch bigint, p_lease text, p_written bigint, p_flags int, p_step text, p_lease_ms bigint, p_count int,
  ${eventParameters(1)}, ${eventParameters(2)}
) RETURNS text LANGUAGE plpgsql VOLATILE ${planSql}
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
  IF NOT FOUND THEN RETURN '{"now":' || v_now || ',"before":[-1]}'; END IF;
  SELECT r.last_message, ${rowChanges({ flags: 'p_flags', step: 'p_step', leaseMs: 'p_lease_ms' })} INTO v_last, v_is_moved FROM holdfast.runs r
    WHERE r.id = p_run AND r.epoch = p_epoch AND r.lease_id = p_lease;
  ${takenSql('NOT FOUND')}
  IF v_is_moved THEN
    UPDATE holdfast.runs r SET
      current_step = CASE WHEN p_flags & 2 <> 0 THEN p_step ELSE r.current_step END,
      claims_without_progress = CASE WHEN p_flags & 1 <> 0 THEN 0
        WHEN p_flags & 4 <> 0 THEN greatest(r.claims_without_progress - 1, 0) ELSE r.claims_without_progress END,
      wake_at = CASE WHEN r.wake_at - v_now NOT BETWEEN p_lease_ms * 2 / 3 AND p_lease_ms THEN v_now + p_lease_ms ELSE r.wake_at END
      WHERE r.id = p_run;
  END IF;
  IF p_count = 1 THEN
    ${insertEvents} ${eventRow(1)};
  ELSE
    ${insertEvents} ${eventRow(1)}, ${eventRow(2)};
  END IF;
  v_answer := '{"now":' || v_now || ',"before":[' || v_before || '],"last":' || v_last || '}';
  UPDATE holdfast.writers w SET batch = p_batch, used_at = v_now - p_offset, answer = v_answer WHERE w.id = p_writer AND w.batch < p_batch;
  IF NOT FOUND THEN PERFORM holdfast.fn_record(p_writer, p_batch, v_answer); END IF;
  RETURN v_answer;
END $$;
`

export const stepSql = `SELECT holdfast.fn_step(${Array.from({ length: 13 + 2 * eventColumns.length }, (_, index) => `$${index + 1}`).join(', ')})`

/** Parameters of fn_step after those of the writer; null if the batch is not a lone step. */
export function stepValues(
  changes: readonly Change[],
  options: { offset: number; isDurable: boolean; leases: Leases },
): unknown[] | null {
  const [change] = changes
  if (changes.length !== 1 || change === undefined || change.guard.kind !== 'lease' || !isLoneStep(change)) return null
  const { epoch, leaseId, writtenSeq = 0 } = change.guard
  const place = options.leases.find(leaseId)
  if (place === undefined || !isOf(place, change) || !Number.isSafeInteger(epoch) || !Number.isSafeInteger(writtenSeq))
    return null
  const { run = {} } = change
  const [first, second] = change.events as [NewEvent, NewEvent?]
  return [
    ...[options.offset, options.isDurable, place.thread, place.run, epoch, leaseId, writtenSeq],
    ...[flagsOf(run), run.currentStep ?? null],
    ...[run.leaseMs === undefined ? null : wholeMs(run.leaseMs), change.events.length],
    ...eventValues(change, first, second === undefined),
    ...(second === undefined ? noEvent : eventValues(change, second, true)),
  ]
}

export function readStepAnswer(text: string, change: Change, leases: Leases): Answers {
  const {
    now,
    before: [before = -1],
    last = 0,
  } = JSON.parse(text) as { now: number; before: number[]; last?: number }
  if (before >= 0) {
    return {
      now,
      answers: [
        {
          ok: true,
          firstSeq: before + 1,
          lastSeq: before + change.events.length,
          now,
          created: [],
          hasMail: isMail(last, change),
        },
      ],
    }
  }
  if (change.guard.kind === 'lease') leases.forget(change.guard.leaseId)
  return { now, answers: [{ ok: false, refusal: 'lease_lost' }] }
}

function isLoneStep(change: Change): boolean {
  const { events, run, creates, operation, snapshot, stateVersion, label, readMessages, delivers, chunks } = change
  if (namesHead(change.guard) || events.length === 0 || events.length > 2 || creates !== undefined || operation !== undefined)
    return false
  if (snapshot !== undefined || stateVersion !== undefined || label !== undefined) return false
  if (readMessages !== undefined || delivers !== undefined || chunks !== undefined) return false
  if (events.some(({ payload, patch }) => payload instanceof Uint8Array || patch instanceof Uint8Array)) return false
  if (run === undefined) return true
  const isStill = run.status === undefined && run.reason === undefined && run.due === undefined && run.waitKey === undefined
  return isStill && run.startsTape !== true && run.setsEnd !== true
}

function isOf(place: LeasePlace, { owner, threadId, runId }: Change): boolean {
  return place.runId === runId && place.threadId === threadId && place.owner === owner
}

function eventValues(change: Change, event: NewEvent, isLast: boolean): unknown[] {
  const { type, step, count, attempt, at, durationMs, payload, patch } = event
  const isCheckpoint = isLast && change.isCheckpoint
  const checksum = storedChecksum(change, {
    runId: change.runId,
    type,
    step,
    count,
    attempt,
    at,
    durationMs,
    payload,
    patch,
    isCheckpoint,
  })
  return [
    type,
    step,
    count32(count),
    count32(attempt),
    at,
    durationMs,
    isCheckpoint ? bytesOfEvents(change.events) : null,
    checksum,
    payload,
    patch,
  ]
}

function bytesOfEvents(events: readonly NewEvent[]): number {
  let bytes = 0
  for (const { payload, patch } of events) bytes += byteLengthOf(payload) + byteLengthOf(patch)
  return bytes
}

const noEvent: readonly null[] = Array(eventColumns.length).fill(null)
