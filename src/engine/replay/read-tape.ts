import type { Codec } from '../../model/codec.ts'
import type { EventType, LogRecord } from '../../model/event.ts'
import { type CallKind, keyOfRecord } from './call-key.ts'
import { forkMarkOf } from './fork-mark.ts'
import { countRollbacks, isIn, rolledBackStretches, type Stretch } from './rolled-back.ts'
import type { Tape } from './tape.ts'
import { TapeBuilder, type TapeHandlers } from './tape-builder.ts'
import { onCalls } from './tape-calls.ts'
import { onControl, onLasting } from './tape-control.ts'
import { addPatch, onState } from './tape-state.ts'
import { onWaits } from './tape-waits.ts'

const on: TapeHandlers = { ...onCalls, ...onWaits, ...onState, ...onControl }
const lasting: TapeHandlers = onLasting

/** What a rollback does not take back: what was paid, which tape it is, what was written to streams. */
const kept: ReadonlySet<EventType> = new Set(['usage_recorded', 'budget_raised', 'run_started', 'stream_opened'])

/** Reads the tape of a run from the log of its thread, in which other runs and edits by hand may have records too. */
export function readTape(records: readonly LogRecord[], codec: Codec, runId: string): Tape {
  const tape = new TapeBuilder(codec)
  const rolledBack = rolledBackStretches(records, runId, tape.data)
  const given = rolledBack.length === 0 ? [] : givenResults(records, codec)
  const isForgotten = ({ seq, type }: LogRecord) =>
    rolledBack.length > 0 && isIn(rolledBack, seq) && !kept.has(type) && !isIn(given, seq)
  for (const record of records) {
    const { type } = record
    const isOwn = record.runId === runId
    const isGone = isForgotten(record)
    tape.here = record.seq
    // A rollback adds a patch in any case: the log's state may be the one it goes back to, while the state without what was dropped differs.
    const patch = record.patch ?? (isOwn && type === 'run_rolled_back' ? codec.encode([]) : null)
    if (patch !== null) addPatch(tape, record, patch, !isOwn || isGone)
    if (!isOwn) continue
    lasting[type]?.(tape, record)
    if (isGone) forgetBeginning(tape, record)
    else on[type]?.(tape, record)
  }
  const { data, begunAnew: counts } = tape
  return tape.build({ rolledBack, rollbacks: countRollbacks(records, rolledBack, { runId, data, counts }) })
}

/** Results that a fork was given for calls that it had not made yet: a rollback does not take them back. */
function givenResults(records: readonly LogRecord[], codec: Codec): readonly Stretch[] {
  return records.flatMap((record) => {
    const from = forkMarkOf(record, codec)?.optionalFrom
    return from === undefined ? [] : [{ from: from - 1, to: record.seq }]
  })
}

/**
 * A record that was rolled back, while the beginning of its call may not have been. What is known of an effect is kept with its operation, so
 * the call begins again. So does a step or child that was undone. A call that had failed for good before that has its failure again.
 */
function forgetBeginning(tape: TapeBuilder, record: LogRecord): void {
  const kind = kindOfForgotten(tape, record)
  if (kind === undefined) return
  const key = keyOfRecord(kind, record)
  if (!tape.outcomes.has(key)) tape.calls.delete(key)
}

function kindOfForgotten(tape: TapeBuilder, record: LogRecord): CallKind | undefined {
  if (/^effect_(?!intended)/.test(record.type)) return 'effect'
  const kind = record.type === 'child_completed' ? 'child' : record.type === 'step_completed' ? 'step' : undefined
  const isUndone = kind !== undefined && tape.data<{ undo?: unknown }>(record).undo !== undefined
  return isUndone && tape.calls.get(keyOfRecord(kind, record))?.scope === undefined ? kind : undefined
}
