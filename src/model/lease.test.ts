import { expect, test } from 'vitest'
import { extendedLease } from './lease.ts'

test.each([
  { leftMs: 900, leaseMs: 900, leaseUntil: 1_900, why: 'it has just been taken' },
  { leftMs: 600, leaseMs: 900, leaseUntil: 1_600, why: 'two thirds are left' },
  { leftMs: 599, leaseMs: 900, leaseUntil: 1_900, why: 'less than two thirds are left' },
  { leftMs: -5, leaseMs: 900, leaseUntil: 1_900, why: 'it ran out' },
  { leftMs: 901, leaseMs: 900, leaseUntil: 1_900, why: 'it is longer than asked for' },
])('a lease of $leaseMs ms with $leftMs ms left ends at $leaseUntil: $why', ({ leftMs, leaseMs, leaseUntil }) => {
  expect(extendedLease(1_000 + leftMs, 1_000, leaseMs)).toBe(leaseUntil)
})
