import { describe, expect, it } from 'vitest'
import { createMemoryStore } from '../../src/stores/memory/memory-store.ts'
import { compareStores, createTestClock } from '../../src/testing/index.ts'
import { testStore } from '../../src/testing/store-suite/index.ts'

testStore('memory', {
  open: async ({ clockOffsetMs }) => {
    const store = createMemoryStore({ clockOffsetMs })
    return { store, close: () => store.close() }
  },
})

describe('compareStores', () => {
  const compare = (seed: number) => {
    const clock = createTestClock()
    const [reference, candidate] = [createMemoryStore(clock), createMemoryStore(clock)]
    return compareStores(reference, candidate, { seed, operations: 2_000, clock })
  }

  it('finds no difference between two memory stores, whatever the seed', async () => {
    for (const seed of [1, 2]) await compare(seed)
  })

  it('performs the same acts for the same seed', async () => {
    expect(await compare(77)).toEqual(await compare(77))
  })
})
