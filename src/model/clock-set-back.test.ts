import { describe, expect, test } from 'vitest'
import { ClockWatch, claimableAfterSetBack, longestLeaseMs, wasSetBack } from './clock-set-back.ts'

const hourMs = 3_600_000
const now = 1_700_000_000_000
const leaseMs = 10_000

describe('whether a clock was set back', () => {
  test('a store that has not been used looks', () => {
    expect(wasSetBack(null, { now, at: 5 })).toBe(true)
  })

  test.each([
    ['stands still while time goes by', { now, at: 20_000 }, true],
    ['is behind by an hour', { now: now - hourMs, at: 0 }, true],
    ['has gone on', { now: now + 20_000, at: 20_000 }, false],
    ['is a little behind', { now: now + 18_000, at: 20_000 }, false],
    ['was set forward', { now: now + hourMs, at: 0 }, false],
  ])('a clock that %s', (_, moment, expected) => {
    expect(wasSetBack({ now, at: 0 }, moment)).toBe(expected)
  })
})

describe('from when a run can be claimed after the clock was set back', () => {
  const pending = { status: 'pending', createdAt: now + hourMs, startedAt: null, dueAt: now + hourMs, leaseUntil: null } as const
  const running = { status: 'running', createdAt: now, startedAt: now, dueAt: now, leaseUntil: now + hourMs } as const

  test.each([
    ['was due at its creation, which is later than now', pending, now],
    ['was due before its creation', { ...pending, dueAt: now + 5 }, now],
    ['was created with a date', { ...pending, createdAt: now - 5, dueAt: now + hourMs }, null],
    ['was created later than now, with a date', { ...pending, dueAt: now + 2 * hourMs }, null],
    ['has begun and was released later than now', { ...pending, createdAt: now - 5, startedAt: now - 4 }, now],
    ['is due', { ...pending, dueAt: now, createdAt: now - 5 }, null],
    ['is never due', { ...pending, dueAt: null }, null],
    ['sleeps', { ...pending, status: 'waiting' as const, startedAt: now }, null],
    ['is paused', { ...pending, status: 'paused' as const, startedAt: now }, null],
    ['is held for longer than any lease lasts', running, now + leaseMs],
    ['is held for as long as a lease can last', { ...running, leaseUntil: now + longestLeaseMs }, null],
    ['was abandoned', { ...running, leaseUntil: now - 5 }, null],
  ])('one that %s', (_, run, expected) => {
    expect(claimableAfterSetBack(run, { now, leaseMs })).toBe(expected)
  })

  test('a worker with longer leases than usual does not cut those of its like short', () => {
    expect(claimableAfterSetBack(running, { now, leaseMs: hourMs })).toBeNull()
  })
})

test('a watch asks for a look at first, and after each time the clock went back', () => {
  const watch = new ClockWatch()
  expect([watch.isSetBack, watch.expected(0)]).toEqual([true, null])
  watch.see({ now, at: 0 })
  watch.heeded()
  watch.see({ now: now + 60_000, at: 60_000 })
  expect([watch.isSetBack, watch.expected(61_000)]).toEqual([false, now + 56_000])
  watch.see({ now: now - hourMs, at: 61_000 })
  expect(watch.isSetBack).toBe(true)
  watch.heeded()
  watch.see({ now: now - hourMs + 1_000, at: 62_000 })
  expect(watch.isSetBack).toBe(false)
})
