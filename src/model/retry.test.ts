import { describe, expect, it } from 'vitest'
import { HoldfastError } from './errors.ts'
import { defaultRetryPolicy, retryDelayMs, retryPolicy } from './retry.ts'

describe('the retry policy', () => {
  it('is by default three attempts, 1 s times 2 up to 60 s, with full jitter', () => {
    expect(defaultRetryPolicy).toMatchObject({ attempts: 3, minMs: 1_000, factor: 2, maxMs: 60_000, jitter: true })
    expect(retryPolicy()).toEqual(defaultRetryPolicy)
    const patient = retryPolicy({ attempts: 100, jitter: false })
    const delays = [1, 2, 3, 6, 7, 50].map((failures) => retryDelayMs(patient, failures, new Error(), 0.5))
    expect(delays).toEqual([1_000, 2_000, 4_000, 32_000, 60_000, 60_000])
  })

  it('takes a random part of the delay with jitter', () => {
    const delays = [0, 0.25, 0.999].map((random) => retryDelayMs(defaultRetryPolicy, 2, new Error(), random))
    expect(delays).toEqual([0, 500, 1_998])
  })

  it('gives no further attempt after the last', () => {
    expect(retryDelayMs(defaultRetryPolicy, 2, new Error(), 0)).not.toBeNull()
    expect(retryDelayMs(defaultRetryPolicy, 3, new Error(), 0)).toBeNull()
  })

  it('never retries what can not change', () => {
    for (const code of ['value_not_storable', 'value_too_large', 'invalid_input', 'nondeterminism', 'nested_call'] as const) {
      expect(retryDelayMs(defaultRetryPolicy, 1, new HoldfastError(code, 'x'), 0)).toBeNull()
    }
    expect(retryDelayMs(defaultRetryPolicy, 1, new HoldfastError('timeout', 'x'), 0)).not.toBeNull()
  })

  it('takes the nearest layer that says something', () => {
    expect(retryPolicy({ attempts: 5 }, { attempts: 2, minMs: 7 })).toMatchObject({ attempts: 5, minMs: 7, maxMs: 60_000 })
    expect(retryPolicy({ attempts: undefined as never }, { attempts: 2 })).toMatchObject({ attempts: 2 })
  })

  it('refuses numbers that make no sense', () => {
    for (const wrong of [{ attempts: 0 }, { attempts: 1.5 }, { minMs: -1 }, { maxMs: Number.NaN }, { factor: Number.NaN }]) {
      expect(() => retryPolicy(wrong)).toThrow(expect.objectContaining({ code: 'invalid_input' }))
    }
  })
})
