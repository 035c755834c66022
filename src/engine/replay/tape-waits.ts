import { type CallKind, keyOfRecord } from './call-key.ts'
import { noteLateFailure } from './reopen.ts'
import type { TapeHandlers } from './tape-builder.ts'

/** Sleeps, signals, questions and children. */
export const onWaits = {
  timer_set(tape, record) {
    const { fireAt, ms, for: kind = 'timer' } = tape.data<TimerData>(record)
    const history = tape.call(kind, record)
    if (fireAt !== undefined) history.fireAt = fireAt
    if (kind !== 'timer') return
    history.setSeq = record.seq
    delete history.ms
    if (ms !== undefined) history.ms = ms
    // It may have been set before, for a sleep that the function no longer asks for.
    delete history.isOptional
    delete history.outcome
    tape.outcomes.delete(keyOfRecord('timer', record))
  },
  timer_fired(tape, record) {
    const { for: kind = 'timer', error } = tape.data<TimerData>(record)
    tape.settle(kind, record, error !== undefined)
    if (error !== undefined) noteLateFailure(tape, kind, record)
  },
  wait_withdrawn(tape, record) {
    const { for: kind = 'timer' } = tape.data<TimerData>(record)
    tape.settle(kind, record, true)
    noteLateFailure(tape, kind, record)
  },
  signal_received: (tape, record) => tape.settle('signal', record),
  question_asked(tape, record) {
    tape.call('question', record).begun = { seq: record.seq, data: tape.data(record) }
  },
  question_answered: (tape, record) => tape.settle('question', record),
  child_started(tape, record) {
    const data = tape.data<{ isDetached?: boolean }>(record)
    tape.call('child', record).begun = { seq: record.seq, data }
    if (data.isDetached === true) tape.settle('child', record)
  },
  child_completed(tape, record) {
    const { error, endSeq } = tape.data<{ error?: Error; endSeq?: number }>(record)
    tape.settle('child', record, error !== undefined)
    if (endSeq !== undefined) tape.call('child', record).childEndSeq = endSeq
    if (error !== undefined) noteLateFailure(tape, 'child', record)
  },
} satisfies TapeHandlers

/** What timer_set, timer_fired and wait_withdrawn say. */
interface TimerData {
  readonly fireAt?: number
  /** A sleep's length; one until a date has none. */
  readonly ms?: number
  /** The kind of call whose time it limits; absent for a sleep. */
  readonly for?: CallKind
  readonly error?: Error
}
