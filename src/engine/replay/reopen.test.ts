import { describe, expect, it } from 'vitest'
import { record, tapeOf } from '../../../test/tape-records.ts'

const failure = { next: 'throw', final: true }
const section = (seq: number) => record(seq, 'step_started', { step: 'gather', data: { scope: 'gather' } })
const fails = (seq: number, step: string) => record(seq, 'step_failed', { step, data: failure })
const completes = (seq: number, step: string) => record(seq, 'step_completed', { step, sets: step })
const retried = (seq: number, ...reopened: string[]) => record(seq, 'run_retried', { data: { reopened } })
const sectionFails = (seq: number, next: string, ...failed: string[]) =>
  record(seq, 'step_failed', { step: 'gather', data: { next, failed, final: next !== 'retry' } })

describe('another attempt of a section', () => {
  it('keeps what succeeded in it, and tries again what failed it', () => {
    const tape = tapeOf(
      ...[section(2), completes(3, 'gather/one'), fails(4, 'gather/two')],
      sectionFails(5, 'retry', 'step:gather/two#1'),
    )
    expect(tape.outcomes.map(({ key }) => key)).toEqual(['step:gather/one#1'])
    expect(tape.calls.get('step:gather/two#1')).toMatchObject({ wasReopened: true, reopenedFailures: 1 })
    expect(tape.patches.map(({ droppedAt }) => droppedAt)).toEqual([undefined])
  })

  it('updates again what its function updated after the failure', () => {
    const update = (seq: number, count: number) => record(seq, 'state_updated', { step: 'gather', count, sets: `update${count}` })
    const tape = tapeOf(
      ...[section(2), update(3, 1), fails(4, 'gather/two'), update(5, 2)],
      sectionFails(6, 'retry', 'step:gather/two#1'),
    )
    expect([...tape.updates.keys()]).toEqual(['gather#1'])
    expect(tape.patches.map(({ droppedAt }) => droppedAt)).toEqual([undefined, 6])
  })

  it('waits again for what it withdrew after the failure', () => {
    const withdrawn = (seq: number, step: string) => record(seq, 'wait_withdrawn', { step, data: { for: 'signal' } })
    const tape = tapeOf(
      ...[section(2), withdrawn(3, 'gather/before'), fails(4, 'gather/two'), withdrawn(5, 'gather/after')],
      sectionFails(6, 'retry', 'step:gather/two#1'),
    )
    expect(tape.outcomes.map(({ key }) => key)).toEqual(['signal:gather/before#1'])
  })

  it('waits again for all that it withdrew if nothing says where it failed', () => {
    const withdrawn = record(3, 'wait_withdrawn', { step: 'gather/go', data: { for: 'signal' } })
    expect(tapeOf(section(2), withdrawn, sectionFails(4, 'retry')).outcomes).toEqual([])
  })

  it('tries again a failure that was recorded when the last one was over', () => {
    const between = tapeOf(section(2), sectionFails(3, 'retry'), fails(4, 'gather/late'))
    expect(between.outcomes).toEqual([])
    const inFallback = tapeOf(section(2), sectionFails(3, 'fallback'), fails(4, 'gather/late'))
    expect(inFallback.outcomes.map(({ key }) => key)).toEqual(['step:gather/late#1'])
    expect(inFallback.calls.get('step:gather#1')?.failed).toEqual(['step:gather/late#1'])
  })
})

describe('another attempt of a run', () => {
  it('does not have to ask for what was recorded after the failure', () => {
    const tape = tapeOf(completes(2, 'before'), fails(3, 'a'), completes(4, 'after'), retried(6, 'step:a#1'))
    expect(tape.outcomes.map(({ key, isOptional = false }) => [key, isOptional])).toEqual([
      ['step:before#1', false],
      ['step:after#1', true],
    ])
    expect(tape.calls.get('step:after#1')?.outcome).toBe(tape.outcomes[1])
  })

  it('updates again what the function updated after the failure; sections that are not entered keep their updates', () => {
    const tape = tapeOf(
      ...[
        record(2, 'state_updated', { count: 1, sets: 'x' }),
        fails(3, 'a'),
        record(4, 'state_updated', { count: 2, sets: 'y' }),
      ],
      ...[section(5), record(6, 'state_updated', { step: 'gather', count: 1, sets: 'z' }), completes(7, 'gather')],
      retried(9, 'step:a#1'),
    )
    expect([...tape.updates.keys()]).toEqual(['#1', 'gather#1'])
    expect(tape.patches.map(({ seq, droppedAt }) => [seq, droppedAt])).toEqual([
      ...[
        [2, undefined],
        [4, 9],
        [6, undefined],
        [7, undefined],
      ],
    ])
  })

  it('enters a section again that failed, and tries again what failed that', () => {
    const tape = tapeOf(
      ...[section(2), completes(3, 'gather/one'), fails(4, 'gather/two')],
      sectionFails(5, 'throw', 'step:gather/two#1'),
      retried(7, 'step:gather#1'),
    )
    expect(tape.outcomes.map(({ key, isOptional = false }) => [key, isOptional])).toEqual([['step:gather/one#1', false]])
  })

  it('sleeps again for another length where the sleep began after the failure', () => {
    const sleep = record(4, 'timer_set', { step: 'nap', data: { fireAt: 9, ms: 5 } })
    const tape = tapeOf(fails(3, 'a'), sleep, retried(6, 'step:a#1'))
    expect(tape.calls.get('timer:nap#1')?.isOptional).toBe(true)
    expect(tapeOf(sleep, fails(5, 'a'), retried(6, 'step:a#1')).calls.get('timer:nap#1')?.isOptional).toBeUndefined()
  })

  it('keeps a signal that did not match its schema, to be checked again', () => {
    const tape = tapeOf(record(3, 'signal_received', { step: 'go' }), retried(5, 'signal:go#1'))
    expect(tape.calls.get('signal:go#1')).toMatchObject({ refused: { seq: 3 } })
    expect(tape.outcomes).toEqual([])
  })

  it('starts a section again that was running and had started with a patch that is made again', () => {
    const update = record(4, 'state_updated', { count: 1, sets: 'x' })
    expect(tapeOf(fails(3, 'a'), update, section(5), retried(7, 'step:a#1')).calls.get('step:gather#1')?.isRunning).toBe(false)
    expect(tapeOf(fails(3, 'a'), section(5), retried(7, 'step:a#1')).calls.get('step:gather#1')?.isRunning).toBe(true)
  })

  it('makes the steps of a section again that was undone as a whole', () => {
    const tape = tapeOf(
      ...[section(2), completes(3, 'gather/one'), record(4, 'effect_completed', { step: 'gather/send', data: { key: 'k' } })],
      record(5, 'step_completed', { step: 'gather', data: { undo: true } }),
      ...[record(6, 'step_undone', { step: 'gather', data: { of: 5 } }), retried(8)],
    )
    expect(tape.outcomes.map(({ key }) => key)).toEqual(['effect:gather/send#1'])
    expect([...tape.rollbacks.keys()].sort()).toEqual(['step:gather#1', 'step:gather/one#1'])
  })
})
