import { describe, it } from 'vitest'
import { createMemoryStore } from '../../src/stores/memory/memory-store.ts'
import { compareStores, createTestClock } from '../../src/testing/index.ts'
import { patience } from '../patience.ts'
import { sharedPostgres } from '../servers/postgres.ts'
import { testPostgres, useSharedSchema } from './postgres-suite.ts'

const schema = useSharedSchema(async () => (await sharedPostgres()).url)

testPostgres('postgres', schema)

describe('compareStores', () => {
  it.each([1, 2])('finds no difference from the memory store, with seed %i', { timeout: patience(120_000) }, async (seed) => {
    const compare = async () => {
      const clock = createTestClock()
      const store = await schema.open(clock.clockOffsetMs)
      try {
        await store.migrate()
        await compareStores(createMemoryStore(clock), store, { seed, operations: 500, clock, checkEvery: 250 })
      } finally {
        await store.close()
        await schema.empty()
      }
    }
    // A busy machine can make the server read its clock too late. What the same acts bring about again is a difference.
    await compare().catch(compare).catch(compare)
  })
})
