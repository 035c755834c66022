import { describe, expect, it } from 'vitest'
import { record, tapeOf } from '../../../test/tape-records.ts'

const a = { step: 'a' }

describe('the run on its tape', () => {
  it('begins with the number of its tape, and with what earlier ones used', () => {
    expect(tapeOf(record(1, 'run_started', { count: 3, data: { usage: { cost: 4 } } }))).toMatchObject({
      ...{ number: 3, usage: { cost: 4 } },
    })
  })

  it('counts a death of its worker for what was running', () => {
    const tape = tapeOf(
      record(2, 'step_started', a),
      record(3, 'run_recovered', { data: { epoch: 2, running: ['step:a#1', 'step:unknown#1'] } }),
    )
    expect(tape.recoveries).toEqual([{ epoch: 2, running: ['step:a#1', 'step:unknown#1'] }])
    expect(tape.calls.get('step:a#1')?.deaths).toBe(1)
    expect(tape.calls.has('step:unknown#1')).toBe(false)
  })

  it('that is retried tries again what failed it, and writes its streams again', () => {
    const tape = tapeOf(
      record(1, 'stream_opened', { data: { stream: 's' } }),
      record(3, 'step_failed', { ...a, data: { next: 'throw', final: true } }),
      record(4, 'run_failed', {}),
      record(5, 'run_retried', { data: { reopened: ['step:a#1'] } }),
    )
    expect(tape).toMatchObject({ retriedAt: 5_000, renewedSeq: 5, outcomes: [] })
    expect(tape.streams.get('s')).toEqual({ isStale: true })
    expect(tape.calls.get('step:a#1')).toMatchObject({ wasReopened: true, failures: 1, reopenedFailures: 1 })
  })

  it('that is retried does again, under another name, what was undone', () => {
    const tape = tapeOf(
      record(2, 'effect_completed', { ...a, data: { key: 'k', undo: true } }),
      record(3, 'step_undone', { ...a, data: { of: 2 } }),
      record(4, 'run_failed', { data: { isUndone: true } }),
      record(5, 'run_retried', {}),
    )
    expect(tape.outcomes).toEqual([])
    expect(tape.calls.get('effect:a#1')).toMatchObject({ isDueAnew: true })
    expect(tape.calls.get('effect:a#1')?.key).toBeUndefined()
    expect(tape.rollbacks).toEqual(new Map([['effect:a#1', 1]]))
  })

  it('that failed and was undone starts other children if it is retried', () => {
    const child = record(2, 'child_started', { step: 'sub', data: { runId: 'c' } })
    const failed = (isUndone: boolean) => tapeOf(child, record(3, 'run_failed', { data: { isUndone } })).calls.get('child:sub#1')
    expect(failed(false)?.begun).toMatchObject({ data: { runId: 'c' } })
    expect(failed(true)).toMatchObject({ isDueAnew: true })
    expect(failed(true)?.begun).toBeUndefined()
  })

  it('that is resumed tries again the steps that paused it', () => {
    const tape = tapeOf(record(2, 'step_failed', { ...a, data: { next: 'pause' } }), record(4, 'run_resumed'))
    expect(tape.calls.get('step:a#1')).toMatchObject({ wasReopened: true })
    expect(tape.calls.get('step:a#1')?.next).toBeUndefined()
  })

  it('that is resumed after a rollback sees at its last result what was edited since', () => {
    const tape = tapeOf(
      record(2, 'step_completed', { ...a, sets: 'a' }),
      record(3, 'step_completed', { step: 'b', sets: 'b' }),
      record(4, 'run_rolled_back', { data: { to: 2 } }),
      record(5, 'state_updated', { runId: null, sets: 'edit' }),
      record(6, 'run_resumed'),
    )
    expect(tape.outcomes).toMatchObject([{ key: 'step:a#1', patchCount: 4 }])
    expect(tape.calls.get('step:a#1')?.outcome).toBe(tape.outcomes[0])
  })
})

describe('an order on the tape', () => {
  const order = { kind: 'cancel', replays: false }

  it.each(['run_paused', 'undo_ordered'] as const)('is given by %s', (type) => {
    expect(tapeOf(record(2, type, { data: { order } })).order).toEqual(order)
  })

  it('stays while a run pauses for another reason, and lets the function be called again when it is resumed', () => {
    const ordered = record(2, 'undo_ordered', { data: { order } })
    expect(tapeOf(ordered, record(3, 'run_paused', { data: {} })).order).toEqual(order)
    expect(tapeOf(ordered, record(3, 'run_resumed')).order).toEqual({ kind: 'cancel' })
  })

  it.each(['run_cancelled', 'run_failed', 'run_rolled_back'] as const)('is carried out by %s', (type) => {
    const tape = tapeOf(record(2, 'undo_ordered', { data: { order } }), record(3, type, { data: { to: 2 } }))
    expect(tape.order).toBeUndefined()
  })
})

describe('usage on the tape', () => {
  it('is added up, for a child also by its run', () => {
    const tape = tapeOf(
      record(2, 'usage_recorded', { step: 'usage', data: { cost: 2 } }),
      record(3, 'usage_recorded', { step: 'a', attempt: 1, data: { cost: 3 } }),
      record(4, 'usage_recorded', { data: { cost: 5, child: 'c' } }),
    )
    expect(tape.usage.cost).toBe(10)
    expect(tape.usageOfChildren.get('c')?.cost).toBe(5)
    // A replay makes the call of ctx.usage again, but not what the body of a step reported.
    expect(tape.booked).toEqual(new Set(['value:usage#1']))
  })

  it('has the limits that were raised last', () => {
    const raise = (seq: number, budget: object) => record(seq, 'budget_raised', { data: { budget } })
    expect(tapeOf(raise(2, { tokens: 1, steps: 2 }), raise(3, { tokens: 9 })).raised).toEqual({ tokens: 9, steps: 2 })
  })
})

describe('what holds although it was rolled back', () => {
  it('is the usage of a child, and that it was undone', () => {
    const tape = tapeOf(
      record(2, 'child_completed', { step: 'sub', data: { runId: 'c', usage: { cost: 5 } } }),
      record(3, 'step_undone', { step: 'sub', data: { of: 2 } }),
      record(4, 'run_rolled_back', { data: { to: 1 } }),
    )
    expect(tape.outcomes).toEqual([])
    expect(tape.usage.cost).toBe(5)
    expect(tape.usageOfChildren.get('c')?.cost).toBe(5)
    expect([tape.undone, tape.undoneChildren]).toEqual([new Set([2]), new Set(['c'])])
  })
})
