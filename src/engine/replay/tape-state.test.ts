import { describe, expect, it } from 'vitest'
import { record, tapeOf } from '../../../test/tape-records.ts'

describe('an update on the tape', () => {
  it('has its position and its patch, if it changed anything', () => {
    const tape = tapeOf(
      record(2, 'state_updated', { count: 1, sets: 'x' }),
      record(3, 'state_updated', { step: 'gather', count: 2 }),
    )
    expect(tape.updates.get('#1')).toEqual({ position: 1, patch: tape.patches[0], seq: 2 })
    expect(tape.updates.get('gather#2')).toEqual({ position: 1, patch: undefined, seq: 3 })
  })

  it('has the error that its recipe threw', () => {
    const tape = tapeOf(record(2, 'state_updated', { count: 1, data: { error: new Error('no') } }))
    expect(tape.updates.get('#1')?.error?.message).toBe('no')
  })

  it('is something else if it shows edits or rebuilds the state', () => {
    const tape = tapeOf(
      record(2, 'state_updated', { count: 1, data: { shown: true } }),
      record(3, 'state_updated', { data: { rebuilt: {} }, sets: 'x' }),
    )
    expect(tape.updates.size).toBe(0)
    expect(tape.outcomes).toMatchObject([{ seq: 2, isShowing: true }])
    expect(tape.patches).toMatchObject([{ seq: 3, isRebuild: true, isPassedBy: true }])
  })
})

describe('a value on the tape', () => {
  it('is kept with its position', () => {
    const tape = tapeOf(record(2, 'value_recorded', { step: 'now', data: { value: 7 } }))
    expect([tape.values.get('value:now#1'), tape.valuesAt.get('value:now#1')]).toEqual([7, 2])
    expect(tape.outcomes).toEqual([])
  })

  it('of a checkpoint is an outcome', () => {
    expect(tapeOf(record(2, 'value_recorded', { step: 'checkpoint' })).outcomes).toMatchObject([{ key: 'value:checkpoint#1' }])
  })
})

describe('the patches of a tape', () => {
  it('are those of all records of the thread, and say which ones no call shows', () => {
    const tape = tapeOf(
      record(1, 'state_migrated', { data: { from: 0, to: 2 }, sets: 'a' }),
      record(2, 'step_completed', { step: 's', sets: 'b' }),
      record(3, 'state_updated', { runId: null, sets: 'c' }),
      record(4, 'step_completed', { runId: 'other', step: 's', sets: 'd' }),
    )
    expect(tape.patches).toMatchObject([
      { seq: 1, version: 2, isPassedBy: true },
      { seq: 2, version: null, isPassedBy: false, step: 's' },
      { seq: 3, isPassedBy: true, isEdit: true },
      { seq: 4, isPassedBy: true },
    ])
    expect(tape.patches[3]?.isEdit).toBeUndefined()
  })

  it('have one for each rollback, with how many of them were applied where it went', () => {
    const tape = tapeOf(
      record(1, 'step_completed', { step: 'a', sets: 'a' }),
      record(2, 'step_completed', { step: 'b', sets: 'b' }),
      record(3, 'run_rolled_back', { data: { to: 1 } }),
    )
    expect(tape.patches).toMatchObject([
      { seq: 1, isPassedBy: false },
      { seq: 2, isPassedBy: true },
      { seq: 3, isPassedBy: true, backTo: 1 },
    ])
  })
})
