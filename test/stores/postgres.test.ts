import { describe, expect, it } from 'vitest'
import { createMemoryStore } from '../../src/stores/memory/memory-store.ts'
import { compareStores, createTestClock } from '../../src/testing/index.ts'
import { patience } from '../patience.ts'
import { sharedPostgres } from '../servers/postgres.ts'
import { testPostgres, useSharedSchema } from './postgres-suite.ts'

const schema = useSharedSchema(async () => (await sharedPostgres()).url)

testPostgres('postgres', schema)

describe('compareStores', () => {
  it('finds no difference from the memory store', { timeout: patience(120_000) }, async () => {
    for (const seed of [1, 2, 3, 4, 5]) {
      const clock = createTestClock()
      const store = await schema.open(clock.clockOffsetMs)
      await store.migrate()
      const { operations } = await compareStores(createMemoryStore(clock), store, {
        seed,
        operations: 500,
        clock,
        checkEvery: 250,
      })
      expect(operations).toBe(500)
      await store.close()
      await schema.empty()
    }
  })
})
