import { describe, expect, it } from 'vitest'
import { record, tapeOf } from '../../../test/tape-records.ts'
import type { LogRecord } from '../../model/event.ts'

const a = { step: 'a' }

describe('a step on the tape', () => {
  it('is running from its start on', () => {
    const data = { inputFingerprint: 'f', hasUndo: true, key: 'k', isFirst: true }
    const history = tapeOf(record(2, 'step_started', { ...a, data })).calls.get('step:a#1')
    expect(history).toEqual({
      ...{ begunAt: 2, isRunning: true, failures: 0, reopenedFailures: 0, deaths: 0 },
      ...{ inputFingerprint: 'f', hasUndo: true, key: 'k', begunFirstAt: 2 },
    })
  })

  it('has an outcome once it completed, with the patches that were applied by then', () => {
    const tape = tapeOf(
      record(1, 'state_updated', { count: 1, sets: 'before' }),
      record(2, 'step_started', a),
      record(3, 'step_completed', { ...a, durationMs: 5, sets: 'own' }),
    )
    expect(tape.outcomes).toMatchObject([{ key: 'step:a#1', seq: 3, isFailure: false, durationMs: 5, patchCount: 2 }])
    expect(tape.outcomes[0]?.patch).toBe(tape.patches[1])
    expect(tape.calls.get('step:a#1')).toMatchObject({ isRunning: false, outcome: { seq: 3 } })
  })

  it('may have been skipped', () => {
    expect(tapeOf(record(2, 'step_skipped', a)).outcomes).toMatchObject([{ key: 'step:a#1', isSkip: true, isFailure: false }])
  })

  it.each([
    ['retry', { retryAt: 9 }],
    ['fallback', { next: 'fallback' }],
    ['pause', { next: 'pause' }],
  ])('has no outcome after a failure that leads to %s', (next, known) => {
    const data = { next, final: next !== 'retry', error: new Error('no'), ...(next === 'retry' && { retryAt: 9 }) }
    const tape = tapeOf(record(2, 'step_started', a), record(3, 'step_failed', { ...a, attempt: 1, data }))
    expect(tape.outcomes).toEqual([])
    expect(tape.calls.get('step:a#1')).toMatchObject({ isRunning: false, failures: 1, lastError: { message: 'no' }, ...known })
  })

  it('has a failure as its outcome if that was thrown', () => {
    const data = { next: 'throw', final: true }
    const tape = tapeOf(record(2, 'step_started', a), record(3, 'step_failed', { ...a, data }))
    expect(tape.outcomes).toMatchObject([{ key: 'step:a#1', seq: 3, isFailure: true }])
  })

  it('opens streams, which are void once the attempt failed or another begins', () => {
    const opened = record(3, 'stream_opened', { ...a, attempt: 1, data: { stream: 's' } })
    const started = record(2, 'step_started', a)
    const streamsAfter = (...more: LogRecord[]) => tapeOf(started, opened, ...more).calls.get('step:a#1')?.opened
    expect(streamsAfter()).toEqual([{ attempt: 1, stream: 's' }])
    expect(streamsAfter(record(4, 'step_failed', { ...a, data: { next: 'retry' } }))).toBeUndefined()
    expect(streamsAfter(record(4, 'step_started', a))).toBeUndefined()
  })
})

describe('a section on the tape', () => {
  const start = (seq: number) => record(seq, 'step_started', { step: 'gather', data: { scope: 'gather' } })

  it('knows where its calls are and where its attempt started', () => {
    const tape = tapeOf(record(1, 'state_updated', { count: 1, sets: 'x' }), start(2))
    expect(tape.calls.get('step:gather#1')).toMatchObject({ scope: 'gather', started: { seq: 2, at: 2_000, patchCount: 1 } })
  })

  it('is not what kills the worker if something in it gets done', () => {
    const death = record(3, 'run_recovered', { data: { epoch: 2, running: ['step:gather#1'] } })
    expect(tapeOf(start(2), death).calls.get('step:gather#1')?.deaths).toBe(1)
    const tape = tapeOf(start(2), death, record(4, 'step_completed', { step: 'gather/fetch' }))
    expect(tape.calls.get('step:gather#1')?.deaths).toBe(0)
  })

  it('uses again on another attempt what it used in its own code', () => {
    const used = record(3, 'usage_recorded', { step: 'gather/usage', data: { cost: 5 } })
    expect(tapeOf(start(2), used).booked).toEqual(new Set(['value:gather/usage#1']))
    const tape = tapeOf(start(2), used, record(4, 'step_failed', { step: 'gather', data: { next: 'retry' } }))
    expect(tape.booked.size).toBe(0)
    expect(tape.usage.cost).toBe(5)
  })
})

describe('an effect on the tape', () => {
  const intended = record(2, 'effect_intended', { ...a, data: { key: 'k', hasUndo: true, undo: 'u' } })
  const historyAfter = (...more: LogRecord[]) => tapeOf(intended, ...more).calls.get('effect:a#1')

  it('is intended, then unsure', () => {
    expect(historyAfter()).toMatchObject({ effect: 'intended', key: 'k', hasUndo: true, undo: 'u' })
    expect(historyAfter(record(3, 'effect_unsure', { ...a, data: { key: 'k' } }))).toMatchObject({ effect: 'unsure', key: 'k' })
  })

  it('is not known by an intent that was written again after the store had lost it', () => {
    const again = record(2, 'effect_intended', { ...a, data: { key: 'k', wasForgotten: true } })
    expect(tapeOf(again).calls.size).toBe(0)
  })

  it('is resolved by a decision about its own key', () => {
    const decision = (key: string) => record(4, 'effect_resolved', { ...a, data: { key, happened: true, result: 7 } })
    expect(historyAfter(decision('k'))).toMatchObject({ effect: 'happened', resolution: 7, decided: { seq: 4 } })
    expect(historyAfter(decision('other'))).toMatchObject({ effect: 'intended' })
    expect(historyAfter(record(4, 'effect_resolved', { ...a, data: { key: 'k', happened: false } }))).toMatchObject({
      effect: 'not_happened',
    })
    expect(tapeOf(decision('k')).calls.size).toBe(0)
  })

  it.each(['effect_completed', 'effect_skipped'] as const)('has an outcome and its key after %s', (type) => {
    const tape = tapeOf(record(3, type, { ...a, data: { key: 'k' } }))
    expect(tape.outcomes).toMatchObject([{ key: 'effect:a#1', seq: 3 }])
    expect(tape.outcomes[0]?.isSkip).toBe(type === 'effect_skipped' ? true : undefined)
    expect(tape.calls.get('effect:a#1')?.key).toBe('k')
  })

  it('did not happen if an attempt failed, unless its operation stays open', () => {
    const failed = (data: object) => historyAfter(record(3, 'effect_failed', { ...a, data: { next: 'retry', ...data } }))
    expect(failed({})).toMatchObject({ effect: 'not_happened', failures: 1 })
    expect(failed({ open: true, counts: false })).toMatchObject({ effect: 'intended', failures: 0 })
  })

  it('starts from the beginning after its result was undone', () => {
    const history = historyAfter(
      record(3, 'effect_completed', { ...a, data: { key: 'k' } }),
      record(4, 'step_undone', { ...a, data: { of: 3 } }),
    )
    expect(history).toMatchObject({ outcome: { seq: 3 } })
    expect(history?.effect).toBeUndefined()
  })
})
