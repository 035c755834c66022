import { randomBytes } from 'node:crypto'
import pg from 'pg'
import { afterAll, beforeAll } from 'vitest'
import type { Store } from '../../src/store/store.ts'
import { openPostgresStore } from '../../src/stores/postgres/postgres-store.ts'
import { type TestStoreOptions, testStore } from '../../src/testing/store-suite/index.ts'

const tables = [
  'threads',
  'records',
  'record_fields',
  'runs',
  'log',
  'snapshots',
  'operations',
  'inbox',
  'labels',
  'writers',
  'queues',
  'queue_starts',
]

/** One schema and one pool for all tests of a file, emptied after each: setting both up anew takes ten times as long as most tests. */
export class SharedSchema {
  readonly name = `suite_${randomBytes(4).toString('hex')}`
  pool = new pg.Pool({ max: 1 })

  open(clockOffsetMs: () => number): Promise<Store> {
    return openPostgresStore({ pool: this.pool, schema: this.name, durability: 'full', clockOffsetMs })
  }

  async empty(): Promise<void> {
    await this.pool.query(tables.map((table) => `DELETE FROM "${this.name}".${table}`).join('; '))
  }
}

export function useSharedSchema(findUrl: () => Promise<string>): SharedSchema {
  const schema = new SharedSchema()
  beforeAll(async () => {
    schema.pool = new pg.Pool({ connectionString: await findUrl(), max: 20 })
  })
  afterAll(async () => {
    await schema.pool.query(`DROP SCHEMA IF EXISTS "${schema.name}" CASCADE`)
    await schema.pool.end()
  })
  return schema
}

/** The store suite on a shared schema. */
export function testPostgres(name: string, schema: SharedSchema, parts?: TestStoreOptions['parts']): void {
  testStore(name, {
    ...(parts !== undefined && { parts }),
    open: async ({ clockOffsetMs }) => {
      let store = await schema.open(clockOffsetMs)
      return {
        store,
        reopen: async () => {
          await store.close()
          store = await schema.open(clockOffsetMs)
          return store
        },
        close: async () => {
          await store.close()
          await schema.empty()
        },
      }
    },
  })
}
