import { describe, expect, it } from 'vitest'
import { record, tapeOf } from '../../../test/tape-records.ts'

describe('a sleep on the tape', () => {
  const set = (seq: number, data: object) => record(seq, 'timer_set', { step: 'nap', data })

  it('has a length and a time at which it fires, and an outcome once it did', () => {
    expect(tapeOf(set(2, { fireAt: 9, ms: 7 })).calls.get('timer:nap#1')).toMatchObject({ fireAt: 9, ms: 7, setSeq: 2 })
    const tape = tapeOf(set(2, { fireAt: 9 }), record(3, 'timer_fired', { step: 'nap' }))
    expect(tape.outcomes).toMatchObject([{ key: 'timer:nap#1', seq: 3, isFailure: false }])
  })

  it('that is set again has no outcome, and only the new length', () => {
    const fired = record(3, 'timer_fired', { step: 'nap' })
    const tape = tapeOf(set(2, { fireAt: 9, ms: 7 }), fired, set(4, { fireAt: 20 }))
    expect(tape.outcomes).toEqual([])
    expect(tape.calls.get('timer:nap#1')).toMatchObject({ fireAt: 20, setSeq: 4 })
    expect(tape.calls.get('timer:nap#1')?.ms).toBeUndefined()
  })
})

describe('a wait on the tape', () => {
  it('for a signal may have a time limit, and fails when that is over', () => {
    const limit = record(2, 'timer_set', { step: 'go', data: { fireAt: 9, for: 'signal' } })
    const history = tapeOf(limit).calls.get('signal:go#1')
    expect(history).toMatchObject({ fireAt: 9 })
    expect(history?.setSeq).toBeUndefined()
    const over = record(3, 'timer_fired', { step: 'go', data: { for: 'signal', error: new Error('late') } })
    expect(tapeOf(limit, over).outcomes).toMatchObject([{ key: 'signal:go#1', seq: 3, isFailure: true }])
  })

  it('that the function withdrew throws', () => {
    const tape = tapeOf(record(3, 'wait_withdrawn', { step: 'go', data: { for: 'signal' } }))
    expect(tape.outcomes).toMatchObject([{ key: 'signal:go#1', isFailure: true, isWithdrawn: true }])
  })

  it('for a signal ends when one is received', () => {
    expect(tapeOf(record(3, 'signal_received', { step: 'go' })).outcomes).toMatchObject([{ key: 'signal:go#1', seq: 3 }])
  })

  it('for an answer remembers what was asked', () => {
    const asked = record(2, 'question_asked', { step: 'ok', data: { key: 'q' } })
    const tape = tapeOf(asked, record(3, 'question_answered', { step: 'ok' }))
    expect(tape.calls.get('question:ok#1')).toMatchObject({ begun: { seq: 2, data: { key: 'q' } }, outcome: { seq: 3 } })
  })
})

describe('a child on the tape', () => {
  const started = (data: object) => record(2, 'child_started', { step: 'sub', data: { runId: 'c', ...data } })

  it('is open until it completes; a detached one has its outcome at once', () => {
    expect(tapeOf(started({})).calls.get('child:sub#1')).toMatchObject({ begun: { seq: 2, data: { runId: 'c' } } })
    expect(tapeOf(started({})).outcomes).toEqual([])
    expect(tapeOf(started({ isDetached: true })).outcomes).toMatchObject([{ key: 'child:sub#1', seq: 2 }])
    const completed = record(5, 'child_completed', { step: 'sub', data: { runId: 'c' } })
    expect(tapeOf(started({}), completed).outcomes).toMatchObject([{ key: 'child:sub#1', seq: 5, isFailure: false }])
  })

  it('that failed says where its own log has that', () => {
    const failed = record(5, 'child_completed', { step: 'sub', data: { runId: 'c', error: new Error('no'), endSeq: 12 } })
    const tape = tapeOf(started({}), failed)
    expect(tape.outcomes).toMatchObject([{ key: 'child:sub#1', isFailure: true }])
    expect(tape.calls.get('child:sub#1')?.childEndSeq).toBe(12)
  })
})
