import { describe, expect, it } from 'vitest'
import { record, tapeOf } from '../../../test/tape-records.ts'

describe('a tape', () => {
  it('is empty for an empty log', () => {
    expect(tapeOf()).toMatchObject({ outcomes: [], patches: [], number: 1, renewedSeq: 0 })
  })

  it('has the outcomes of its run, in log order (T1), by kind, path and count (T2)', () => {
    const tape = tapeOf(
      record(2, 'step_completed', { step: 'b', count: 2 }),
      record(3, 'step_completed', { step: 'b', count: 1 }),
      record(4, 'signal_received', { step: 'b' }),
      record(5, 'step_completed', { step: 'of-another', runId: 'other' }),
    )
    expect(tape.outcomes.map(({ key }) => key)).toEqual(['step:b#2', 'step:b#1', 'signal:b#1'])
  })
})

describe('a tape that was rolled back', () => {
  const rollback = (seq: number, to: number) => record(seq, 'run_rolled_back', { data: { to } })

  it('has nothing of what came after the position, and counts the rollback for what has a name', () => {
    const tape = tapeOf(
      ...[record(2, 'step_completed', { step: 'a' }), record(3, 'step_completed', { step: 'b' })],
      record(4, 'signal_received', { step: 'go' }),
      rollback(5, 2),
    )
    expect(tape.outcomes.map(({ key }) => key)).toEqual(['step:a#1'])
    expect(tape.rolledBack).toEqual([{ from: 2, to: 5 }])
    expect(tape.rollbacks).toEqual(new Map([['step:b#1', 1]]))
  })

  it('still has what was paid and what was written to streams', () => {
    const tape = tapeOf(
      record(3, 'usage_recorded', { step: 'usage', data: { cost: 5 } }),
      record(4, 'budget_raised', { data: { budget: { tokens: 9 } } }),
      record(5, 'stream_opened', { data: { stream: 's' } }),
      rollback(6, 2),
    )
    expect(tape).toMatchObject({ usage: { cost: 5 }, raised: { tokens: 9 } })
    expect(tape.streams.get('s')).toEqual({ isStale: true })
  })

  it('to between the intent of an effect and its result begins the call again', () => {
    const intended = record(2, 'effect_intended', { step: 'a', data: { key: 'k' } })
    const completed = record(3, 'effect_completed', { step: 'a', data: { key: 'k' } })
    expect(tapeOf(intended, completed, rollback(4, 2)).calls.size).toBe(0)
    expect(tapeOf(intended, rollback(4, 2)).calls.get('effect:a#1')).toMatchObject({ effect: 'intended' })
  })

  it('to between the start of a step and its result begins it again only if it had an undo', () => {
    const started = record(2, 'step_started', { step: 'a' })
    const callsAfter = (data: object) => tapeOf(started, record(3, 'step_completed', { step: 'a', data }), rollback(4, 2)).calls
    expect(callsAfter({ undo: true }).size).toBe(0)
    expect(callsAfter({}).size).toBe(1)
  })

  it('has the failure again that a call had before the position', () => {
    const failed = record(2, 'effect_failed', { step: 'a', data: { next: 'throw', final: true } })
    const retried = record(3, 'run_retried', { data: { reopened: ['effect:a#1'] } })
    const completed = record(4, 'effect_completed', { step: 'a', data: { key: 'k' } })
    expect(tapeOf(failed, retried, completed, rollback(5, 2)).outcomes).toMatchObject([{ key: 'effect:a#1', isFailure: true }])
  })
})
