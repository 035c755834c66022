import { describe, expect, it } from 'vitest'
import { record } from '../../../test/tape-records.ts'
import { isIn, rolledBackStretches, whereToRollBack } from './rolled-back.ts'

describe('what was rolled back', () => {
  it('lies between where each rollback of the run went and its record', () => {
    const records = [record(5, 'run_rolled_back'), record(8, 'run_rolled_back', { runId: 'other' }), record(9, 'run_failed')]
    expect(rolledBackStretches(records, 'r', <T>() => ({ to: 2 }) as T)).toEqual([{ from: 2, to: 5 }])
  })

  it('contains neither of its ends', () => {
    expect([2, 3, 4, 5].map((seq) => isIn([{ from: 2, to: 5 }], seq))).toEqual([false, true, true, false])
  })

  it.each([
    ['a position that is still there', 1, 1],
    ['a position that was rolled back', 4, 2],
    ['one that was rolled back with the rollback before it', 8, 2],
    ['one after all of them', 12, 12],
  ])('is not there to go back to: %s', (_, to, found) => {
    const stretches = [
      { from: 2, to: 6 },
      { from: 4, to: 10 },
    ]
    expect(whereToRollBack(stretches, to)).toBe(found)
  })
})
