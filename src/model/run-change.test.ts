import { describe, expect, test } from 'vitest'
import { fieldsAfter, type RunBefore, type RunChangeContext, settlesWhatIsOpen } from './run-change.ts'

// Which value each field gets is in the cases of the store suite, which every store passes. Here: what is left out.

const before: RunBefore = {
  ...{ leaseUntil: 10_000, dueAt: 1_000, waitKey: null, claimsWithoutProgress: 0, currentStep: 'a' },
  ...{ startedAt: 1_000, finishedAt: null },
}
const context: RunChangeContext = {
  ...{ isLeased: true, firstSeq: 4, lastSeq: 5, hasMail: false, isOpen: () => true, now: 5_000 },
}

describe('what a change does to a row', () => {
  test('a field that has its value already is left out', () => {
    const to = { currentStep: 'a', hasProgress: true, due: { at: 1_000 }, leaseMs: 6_000 }
    expect(fieldsAfter(before, to, context)).toEqual({})
  })

  test('the status of an unfinished run that waits for nothing changes neither finishedAt nor the wait', () => {
    expect(Object.keys(fieldsAfter(before, { status: 'pending' }, context)).sort()).toEqual([
      ...['leaseHolder', 'leaseId', 'leaseUntil', 'status'],
    ])
  })

  test('a lease is extended only by its holder', () => {
    expect(fieldsAfter(before, { leaseMs: 60_000 }, context)).toEqual({ leaseUntil: 65_000 })
    expect(fieldsAfter(before, { leaseMs: 60_000 }, { ...context, isLeased: false })).toEqual({})
  })
})

test('what a run left open is settled when it is over, or the tape that opened it', () => {
  expect(settlesWhatIsOpen(5_000, {})).toBe(true)
  expect(settlesWhatIsOpen(null, { startsTape: true, hasNewInput: true })).toBe(true)
  expect(settlesWhatIsOpen(null, { startsTape: true })).toBe(false)
  expect(settlesWhatIsOpen(null, { status: 'paused' })).toBe(false)
})
