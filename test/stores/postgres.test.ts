import { randomBytes } from 'node:crypto'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createMemoryStore } from '../../src/stores/memory/memory-store.ts'
import { openPostgresStore } from '../../src/stores/postgres/postgres-store.ts'
import { compareStores, createTestClock, testStore } from '../../src/testing/index.ts'
import { sharedPostgres } from '../servers/postgres.ts'

const tables = ['threads', 'runs', 'log', 'snapshots', 'operations', 'inbox', 'labels', 'writers']
/** One schema and one pool for all tests here, emptied after each: setting both up anew takes ten times as long as most tests. */
const schema = `suite_${randomBytes(4).toString('hex')}`
let pool: pg.Pool

beforeAll(async () => {
  pool = new pg.Pool({ connectionString: (await sharedPostgres()).url, max: 20 })
})

afterAll(async () => {
  await pool.query(`DROP SCHEMA IF EXISTS "${schema}" CASCADE`)
  await pool.end()
})

const empty = () => pool.query(tables.map((table) => `DELETE FROM "${schema}".${table}`).join('; '))

testStore('postgres', {
  open: async ({ clockOffsetMs }) => {
    const open = () => openPostgresStore({ pool, schema, durability: 'full', clockOffsetMs })
    let store = await open()
    return {
      store,
      reopen: async () => {
        await store.close()
        store = await open()
        return store
      },
      close: async () => {
        await store.close()
        await empty()
      },
    }
  },
})

describe('compareStores', () => {
  it('finds no difference from the memory store', { timeout: 120_000 }, async () => {
    for (const seed of [1, 2, 3, 4, 5]) {
      const clock = createTestClock()
      const store = await openPostgresStore({ pool, schema, durability: 'full', clockOffsetMs: clock.clockOffsetMs })
      await store.migrate()
      const { operations } = await compareStores(createMemoryStore(clock), store, { seed, operations: 1_000, clock })
      expect(operations).toBe(1_000)
      await store.close()
      await empty()
    }
  })
})
