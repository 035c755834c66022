import { randomBytes } from 'node:crypto'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import pg from 'pg'
import { createClient } from 'redis'
import { afterAll } from 'vitest'
import type { Store } from '../../src/store/store.ts'
import { createStoreOver } from '../../src/stores/memory/memory-store.ts'
import { createTables } from '../../src/stores/memory/tables.ts'
import { openPostgresStore } from '../../src/stores/postgres/postgres-store.ts'
import { openRedisStore } from '../../src/stores/redis/redis-store.ts'
import { openSqliteStore } from '../../src/stores/sqlite/sqlite-store.ts'
import { sharedPostgres } from '../servers/postgres.ts'
import { sharedRedis } from '../servers/redis.ts'
import { imageOfFile, imageOfTables } from './images.ts'

/** Where the store of one test lives: as good as new, and left alone by other tests. */
export interface Place {
  /** What `open` takes. */
  readonly target: string | Store
  /** For other processes, if they can open it. */
  readonly url?: string
  /** A second way into the same store, for wrapping. */
  openStore(): Promise<Store>
  /** `open` gets what `openStore` opens instead of the URL, over connections that all tests of a file share: a new one is expensive. */
  readonly sharesConnections?: boolean
  /** The user's own SQL in the same database, from outside of Holdfast. */
  sql?(text: string): Promise<Record<string, unknown>[]>
  /** Takes away what an earlier test left set up, for tests of setting up. */
  clear?(): Promise<void>
  /** An image of all that the store has now. What is returned puts it back, under whoever is at work: the store has forgotten what came since. */
  takeImage?(): () => void
  /** After the test. */
  leave?(): Promise<void>
}

export interface StoreKind {
  readonly name: string
  /** It needs no server. */
  readonly isLocal?: boolean
  /** Other processes can open it. */
  readonly isShared: boolean
  /** It knows at once that a process of this machine has died. */
  readonly seesDeaths?: boolean
  /** It can run the user's SQL. This is how it writes the n-th parameter. */
  readonly parameter?: (n: number) => string
  create(folder: string, clockOffsetMs: () => number): Promise<Place>
}

export const allKinds: readonly StoreKind[] = [
  {
    name: 'memory',
    isLocal: true,
    isShared: false,
    create: async (_folder, clockOffsetMs) => {
      const tables = createTables()
      const store = createStoreOver(tables, { clockOffsetMs })
      return { target: store, openStore: async () => store, takeImage: () => imageOfTables(tables) }
    },
  },
  {
    name: 'sqlite',
    isLocal: true,
    isShared: true,
    seesDeaths: true,
    parameter: () => '?',
    create: async (folder, clockOffsetMs) => {
      const file = join(folder, 'holdfast.db')
      const url = `sqlite:${file}`
      const openStore = () => openSqliteStore({ file, durability: 'full', clockOffsetMs })
      return { target: url, url, openStore, sql: async (text) => sqlOn(file, text), takeImage: () => imageOfFile(file) }
    },
  },
  {
    name: 'postgres',
    isShared: true,
    parameter: (n) => `$${n}`,
    create: async (_folder, clockOffsetMs) => {
      const { url, admin, pool } = await databaseOfThisFile()
      await emptyTables(admin)
      return {
        target: url,
        url,
        sharesConnections: true,
        openStore: () => openPostgresStore({ pool, schema, durability: 'full', clockOffsetMs }),
        sql: async (text) => (await admin.query(text)).rows,
        clear: async () => void (await admin.query(`DROP SCHEMA IF EXISTS ${schema} CASCADE`)),
      }
    },
  },
  {
    name: 'redis',
    isShared: true,
    create: async (_folder, clockOffsetMs) => {
      const namespace = `behaviour-${process.pid}-${++namespaceCount}`
      const url = `${(await sharedRedis()).url}?namespace=${namespace}`
      const openStore = () => openRedisStore({ url, durability: 'full', clockOffsetMs })
      return { target: url, url, openStore, leave: () => removeNamespace(namespace) }
    },
  },
]

/** All of them, unless the variable STORES names some: `STORES=memory,sqlite`. */
export const storeKinds: readonly StoreKind[] = chooseKinds(process.env['STORES'])

function chooseKinds(list: string | undefined): readonly StoreKind[] {
  if (list === undefined) return allKinds
  const names = list.split(',')
  const unknown = names.filter((name) => allKinds.every((kind) => kind.name !== name))
  if (unknown.length > 0) {
    throw new Error(`STORES names ${unknown.join(', ')}; there are ${allKinds.map(({ name }) => name).join(', ')}.`)
  }
  return allKinds.filter(({ name }) => names.includes(name))
}

function sqlOn(file: string, text: string): Record<string, unknown>[] {
  const db = new DatabaseSync(file, { timeout: 5_000 })
  try {
    const statement = db.prepare(text)
    if (statement.columns().length > 0) return statement.all().map((row) => ({ ...row }))
    statement.run()
    return []
  } finally {
    db.close()
  }
}

interface OwnDatabase {
  readonly url: string
  readonly admin: pg.Client
  readonly pool: pg.Pool
}

/** Not named like the user, whose own tables would be made in it. */
const schema = 'tables'

let ownDatabase: Promise<OwnDatabase> | undefined

/** One database for all tests of a file, emptied before each: setting one up takes ten times as long as most tests. */
function databaseOfThisFile(): Promise<OwnDatabase> {
  ownDatabase ??= (async () => {
    const name = `behaviour_${randomBytes(4).toString('hex')}`
    const { url } = await sharedPostgres()
    const server = new pg.Client({ connectionString: url })
    await server.connect()
    await server.query(`CREATE DATABASE ${name}`)
    await server.end()
    const own = url.replace(/\/postgres$/, `/${name}`)
    const admin = new pg.Client({ connectionString: own })
    await admin.connect()
    const pool = new pg.Pool({ connectionString: own, max: 30 })
    // Tests end sessions of others.
    pool.on('error', () => {})
    return { url: `${own}?schema=${schema}`, admin, pool }
  })()
  return ownDatabase
}

/** Before a test and not after it: programs that a test started live a moment longer than what runs after it. */
async function emptyTables(admin: pg.Client): Promise<void> {
  const found = await admin.query<{ empty: string }>(`
    SELECT CASE WHEN schemaname = '${schema}' THEN 'DELETE FROM' ELSE 'DROP TABLE' END || format(' %I.%I', schemaname, tablename) AS empty
    FROM pg_tables WHERE schemaname = 'public' OR schemaname = '${schema}' AND tablename <> 'version'`)
  if (found.rows.length > 0) await admin.query(found.rows.map(({ empty }) => empty).join('; '))
}

let namespaceCount = 0
let cleaner: ReturnType<typeof connectCleaner> | undefined

async function connectCleaner() {
  return createClient({ url: (await sharedRedis()).url }).connect()
}

async function removeNamespace(namespace: string): Promise<void> {
  cleaner ??= connectCleaner()
  const client = await cleaner
  for await (const keys of client.scanIterator({ MATCH: `holdfast:{${namespace}}:*`, COUNT: 1_000 })) {
    if (keys.length > 0) await client.unlink(keys)
  }
}

afterAll(async () => {
  const own = await ownDatabase
  await own?.pool.end()
  await own?.admin.end()
  ;(await cleaner)?.destroy()
})
