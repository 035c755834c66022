import { randomBytes } from 'node:crypto'
import pg from 'pg'
import { afterAll, afterEach, beforeAll, beforeEach } from 'vitest'
import type { Store } from '../../src/store/store.ts'
import { openPostgresStore, type PostgresStoreOptions } from '../../src/stores/postgres/postgres-store.ts'
import { patience } from '../patience.ts'
import { dropDatabase, sharedPostgres } from '../servers/postgres.ts'
import { type PostgresProxy, startProxy } from './postgres-proxy.ts'

/** What the tests of the Postgres store begin with: the shared server, a schema for each test, and the end of what it opened. */
export class PostgresScene {
  url = ''
  /** Of the server's own user, for what the tests do behind the store's back. */
  admin = new pg.Pool({ max: 2 })
  schema = ''
  #endings: (() => Promise<unknown>)[] = []

  /** Done after the test, the latest first. */
  afterwards(end: () => Promise<unknown>): void {
    this.#endings.push(end)
  }

  async open(options: Partial<PostgresStoreOptions> = {}): Promise<Store> {
    const { pool, ...rest } = { url: this.url, schema: this.schema, durability: 'full' as const, ...options }
    const store = await openPostgresStore(pool === undefined ? rest : { ...rest, pool })
    this.afterwards(() => store.close())
    await store.migrate()
    return store
  }

  async openOnProxy(options: Partial<PostgresStoreOptions> = {}): Promise<{ store: Store; proxy: PostgresProxy }> {
    const proxy = await this.proxy()
    const ofStore = { answerMs: patience(150), unknownMs: patience(20_000) }
    return { proxy, store: await this.open({ url: proxy.url, patience: ofStore, poolSize: { min: 0, max: 3 }, ...options }) }
  }

  async proxy(): Promise<PostgresProxy> {
    const proxy = await startProxy(this.url)
    this.afterwards(() => proxy.stop())
    return proxy
  }

  /** A database of the test's own on the shared server, for settings that would disturb others. */
  async ownDatabase(settings: Record<string, string> = {}): Promise<string> {
    const name = `own_${randomBytes(4).toString('hex')}`
    await this.admin.query(`CREATE DATABASE ${name}`)
    for (const [setting, value] of Object.entries(settings)) {
      await this.admin.query(`ALTER DATABASE ${name} SET ${setting} = '${value}'`)
    }
    this.#endings.unshift(() => dropDatabase(this.admin, name))
    const own = new URL(this.url)
    own.pathname = `/${name}`
    return own.href
  }

  async begin(): Promise<void> {
    this.url = (await sharedPostgres()).url
    this.admin = new pg.Pool({ connectionString: this.url, max: 2 })
  }

  async end(): Promise<void> {
    for (const end of this.#endings.reverse()) await end()
    this.#endings = []
    await this.admin.query(`DROP SCHEMA IF EXISTS "${this.schema}" CASCADE`)
  }
}

export function usePostgres(): PostgresScene {
  const scene = new PostgresScene()
  beforeAll(() => scene.begin())
  beforeEach(() => {
    scene.schema = `faults_${randomBytes(6).toString('hex')}`
  })
  afterEach(() => scene.end())
  afterAll(() => scene.admin.end())
  return scene
}

export async function codeOf(call: Promise<unknown>): Promise<string> {
  try {
    await call
    return 'none'
  } catch (error) {
    return String((error as { code?: unknown }).code)
  }
}
