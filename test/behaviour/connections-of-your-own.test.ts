import { randomBytes } from 'node:crypto'
import Database from 'better-sqlite3'
import { type OpenTarget, open, workflow } from 'holdfast'
import { Redis } from 'ioredis'
import pg from 'pg'
import { createClient } from 'redis'
import { afterEach, describe, expect, it } from 'vitest'
import { patience } from '../patience.ts'
import { sharedPostgres } from '../servers/postgres.ts'
import { sharedRedis, startRedis } from '../servers/redis.ts'
import { codeOfRejection } from './runs.ts'

const echo = workflow('echo', (ctx, input: string) => ctx.step('echo', () => input))

const endings: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const end of endings.splice(0).reverse()) await end()
})

/** A pool over a database of the test's own. */
async function ownPool(options: pg.PoolConfig = {}): Promise<pg.Pool> {
  const { url } = await sharedPostgres()
  const name = `own_${randomBytes(4).toString('hex')}`
  const server = new pg.Client({ connectionString: url })
  await server.connect()
  await server.query(`CREATE DATABASE ${name}`)
  await server.end()
  const pool = new pg.Pool({ connectionString: url.replace(/\/postgres$/, `/${name}`), ...options })
  endings.push(() => pool.end())
  return pool
}

describe('open', () => {
  it('takes a pg.Pool that the user opened, and leaves it open', async () => {
    const pool = await ownPool()
    const hf = await open(pool, { workflows: [echo] })
    expect(await hf.run(echo, 'over my pool')).toBe('over my pool')
    await hf.close()
    expect((await pool.query('SELECT count(*)::int AS runs FROM holdfast.runs')).rows).toEqual([{ runs: 1 }])
  })

  it('keeps its tables and keys where it is told to, over connections of your own', async () => {
    const pool = await ownPool()
    const client = await createClient({ url: (await sharedRedis()).url }).connect()
    endings.push(() => client.close())
    const name = `mine_${randomBytes(4).toString('hex')}`
    for (const [target, options] of [
      [pool, { schema: name }],
      [client, { namespace: name }],
    ] as const) {
      const hf = await open(target, { workflows: [echo], ...options })
      expect(await hf.run(echo, 'here', { id: 'r' })).toBe('here')
      await hf.close()
    }
    expect((await pool.query(`SELECT run_id FROM ${name}.runs`)).rows).toEqual([{ run_id: 'r' }])
    expect(await client.exists(`holdfast:{${name}}:run:0:r`)).toBe(1)
  })

  it('takes a pg.Pool with one connection', async () => {
    const hf = await open(await ownPool({ max: 1 }), { workflows: [echo] })
    expect(await Promise.all(['a', 'b', 'c'].map((word) => hf.run(echo, word)))).toEqual(['a', 'b', 'c'])
    await hf.close()
  })

  it('takes a client of redis that the user opened, and leaves it open', async () => {
    const client = await createClient({ url: (await sharedRedis()).url }).connect()
    endings.push(() => client.close())
    const hf = await open(client, { workflows: [echo] })
    expect(await hf.run(echo, 'over my client', { id: randomBytes(6).toString('hex') })).toBe('over my client')
    await hf.close()
    expect(await client.ping()).toBe('PONG')
  })

  it('takes a client of ioredis that the user opened, and leaves it open', async () => {
    const client = new Redis((await sharedRedis()).url)
    endings.push(() => client.quit())
    const hf = await open(client, { workflows: [echo] })
    expect(await hf.run(echo, 'over my client', { id: randomBytes(6).toString('hex') })).toBe('over my client')
    await hf.close()
    expect(await client.ping()).toBe('PONG')
  })

  it('refuses what is none of these, and says what it takes', async () => {
    const single = new pg.Client()
    for (const given of [[], 7, single, new Map()]) {
      const refused = open(given as unknown as OpenTarget)
      await expect(refused).rejects.toMatchObject({ code: 'invalid_url', message: expect.stringContaining('a pg.Pool') })
    }
  })
})

describe('start with { tx }', () => {
  it('starts the run with the transaction of the user: when it commits, and not when it rolls back', async () => {
    const pool = await ownPool()
    await pool.query('CREATE TABLE orders (id text PRIMARY KEY)')
    const hf = await open(pool, { workflows: [echo] })
    endings.push(() => hf.close())
    const client = await pool.connect()
    for (const end of ['ROLLBACK', 'COMMIT']) {
      await client.query('BEGIN')
      await client.query(`INSERT INTO orders VALUES ('o-1')`)
      const run = await hf.start(echo, 'thank you', { id: 'o-1', tx: client })
      expect(run.id).toBe('o-1')
      expect(await codeOfRejection(hf.runs.get('o-1'))).toBe('run_not_found')
      await client.query(end)
      if (end === 'COMMIT') expect(await run.result({ timeoutMs: patience(10_000) })).toBe('thank you')
      else expect(await codeOfRejection(hf.runs.get('o-1'))).toBe('run_not_found')
    }
    client.release()
    expect((await pool.query('SELECT * FROM orders')).rows).toEqual([{ id: 'o-1' }])
  })

  it('is one run per id, also there: another input is input_mismatch', async () => {
    const pool = await ownPool()
    const hf = await open(pool, { workflows: [echo] })
    endings.push(() => hf.close())
    await hf.run(echo, 'one', { id: 'r' })
    const client = await pool.connect()
    await client.query('BEGIN')
    expect(await (await hf.start(echo, 'one', { id: 'r', tx: client })).result()).toBe('one')
    expect(await codeOfRejection(hf.start(echo, 'two', { id: 'r', tx: client }))).toBe('input_mismatch')
    await client.query('COMMIT')
    client.release()
  })

  it('is refused by other stores, and when tx is something else', async () => {
    for (const target of ['memory:', new Database(':memory:')]) {
      const hf = await open(target, { workflows: [echo] })
      const tx = { query: async () => ({ rows: [] }) }
      expect(await codeOfRejection(hf.start(echo, 'x', { tx }))).toBe('invalid_input')
      await hf.close()
    }
    const pool = await ownPool()
    const hf = await open(pool, { workflows: [echo] })
    expect(await codeOfRejection(hf.start(echo, 'x', { tx: {} as never }))).toBe('invalid_input')
    // A pool would write on whichever connection is free, outside of the transaction.
    expect(await codeOfRejection(hf.start(echo, 'x', { tx: pool as never }))).toBe('invalid_input')
    expect((await hf.runs.list()).items).toEqual([])
    await hf.close()
  })
})

describe('a Redis that does not flush every write', () => {
  it('refuses effects with neither check nor idempotent, and carries out the others', async () => {
    const server = await startRedis({ fsync: 'everysec' })
    endings.push(() => server.stop())
    const pay = workflow('pay', (ctx, more: { idempotent?: boolean }) => ctx.once('pay', { run: () => 'paid', ...more }))
    expect(await codeOfRejection(open(server.url))).toBe('durability_too_weak')
    const hf = await open(server.url, { workflows: [pay], durability: 'relaxed' })
    const refused = await hf.start(pay, {})
    await expect(refused.result()).rejects.toMatchObject({ cause: { code: 'durability_too_weak' } })
    expect(await hf.run(pay, { idempotent: true })).toBe('paid')
    await hf.close()
  })
})
