import pg from 'pg'
import { describe, expect, it, vi } from 'vitest'
import { openPostgresStore } from '../../src/stores/postgres/postgres-store.ts'
import { patience } from '../patience.ts'
import { usePostgres } from './postgres-scene.ts'
import { createAndClaim, creating, stepping } from './sqlite-scene.ts'

const scene = usePostgres()

describe('on connections of its own', () => {
  it('there are twenty at most and one for heartbeats, with time limits on the server', async () => {
    const own = await scene.ownDatabase()
    const store = await scene.open({ url: own })
    const claim = await createAndClaim(store, 'r')
    await Promise.all(Array.from({ length: 200 }, () => store.readThread({ owner: '', threadId: 'r' })))
    const { rows } = await scene.admin.query(
      "SELECT application_name AS name, count(*)::int FROM pg_stat_activity WHERE datname = $1 AND backend_type = 'client backend' GROUP BY 1 ORDER BY 1",
      [new URL(own).pathname.slice(1)],
    )
    expect(rows).toEqual([
      { name: 'holdfast', count: 20 },
      { name: 'holdfast heartbeat', count: 1 },
    ])
    const { epoch } = claim.run
    const guarded = { owner: '', runId: 'r', threadId: 'r', epoch, leaseId: claim.leaseId, timeoutMs: 5_000 }
    let limits: unknown
    await store.transact?.(guarded, async (tx) => {
      // As the session began, whatever this transaction has set for itself.
      limits = await tx.query(
        "SELECT name, reset_val::int AS ms FROM pg_settings WHERE name LIKE '%\\_timeout' AND source = 'session'",
      )
      return stepping(claim)
    })
    expect(limits).toEqual([
      { name: 'idle_in_transaction_session_timeout', ms: 10_000 },
      { name: 'lock_timeout', ms: 10_000 },
      { name: 'statement_timeout', ms: 20_000 },
    ])
  })
})

describe("on a user's pool", () => {
  it('works, leaves it open, and takes away the connections beside it', async () => {
    const own = await scene.ownDatabase()
    const pool = new pg.Pool({ connectionString: own, max: 3 })
    // Its database is dropped while its connections end.
    pool.on('error', () => {})
    scene.afterwards(() => pool.end())
    const store = await openPostgresStore({ pool, schema: scene.schema, durability: 'full' })
    await store.migrate()
    const claim = await createAndClaim(store, 'r')
    const lease = { owner: '', runId: 'r', epoch: claim.run.epoch, leaseId: claim.leaseId }
    expect(await store.renew({ leaseMs: 60_000, leases: [lease] })).toMatchObject([{ isHeld: true }])
    store.subscribe?.(() => {})
    await store.commit([stepping(claim)])
    await store.close()
    expect((await pool.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }])
    await vi.waitFor(async () => {
      const { rows } = await pool.query(
        "SELECT count(*)::int AS count FROM pg_stat_activity WHERE application_name LIKE 'holdfast%' AND datname = current_database()",
      )
      expect(rows[0].count).toBe(0)
    })
  })

  it('statements that a session has forgotten are sent without a name', async () => {
    const pool = new pg.Pool({ connectionString: scene.url, max: 1 })
    scene.afterwards(() => pool.end())
    const store = await scene.open({ pool })
    const claim = await createAndClaim(store, 'r')
    await pool.query('DEALLOCATE ALL')
    expect((await store.commit([stepping(claim), stepping(claim)])).map(({ ok }) => ok)).toEqual([true, true])
    expect((await store.readRun({ owner: '', runId: 'r' }))?.id).toBe('r')
  })

  it('changes can be written inside a transaction of the user', async () => {
    const pool = new pg.Pool({ connectionString: scene.url, max: 3 })
    scene.afterwards(() => pool.end())
    const store = await openPostgresStore({ pool, schema: scene.schema, durability: 'full' })
    scene.afterwards(() => store.close())
    await store.migrate()
    const client = await pool.connect()
    for (const end of ['ROLLBACK', 'COMMIT']) {
      await client.query('BEGIN')
      const answers = await store.commitWithin(client, [creating('r')])
      expect(answers).toMatchObject([{ ok: true, created: [{ isNew: true }] }])
      expect(await store.readRun({ owner: '', runId: 'r' })).toBeNull()
      await client.query(end)
      expect((await store.readRun({ owner: '', runId: 'r' }))?.id).toBe(end === 'COMMIT' ? 'r' : undefined)
    }
    client.release()
  })

  it('one connection is enough, also for a transaction whose COMMIT is cut: heartbeats and the question what became of it wait for nobody', async () => {
    const proxy = await scene.proxy()
    const pool = new pg.Pool({ connectionString: proxy.url, max: 1 })
    pool.on('error', () => {})
    scene.afterwards(() => pool.end())
    const store = await scene.open({ pool })
    const claim = await createAndClaim(store, 'r')
    const { epoch } = claim.run
    const lease = { owner: '', runId: 'r', epoch, leaseId: claim.leaseId }
    const transact = (body: () => Promise<unknown>) =>
      store.transact?.({ ...lease, threadId: 'r', timeoutMs: 5_000 }, async (tx) => {
        await tx.query('SELECT 1')
        await body()
        return stepping(claim)
      })
    const renewed: unknown[] = []
    const answer = await transact(async () => renewed.push(...(await store.renew({ leaseMs: 60_000, leases: [lease] }))))
    expect(renewed).toMatchObject([{ isHeld: true }])
    expect(answer).toMatchObject({ ok: true, lastSeq: 2 })
    // The answer to the COMMIT: after those of the checkpoint's statement, which are six.
    expect(await transact(async () => proxy.break({ side: 'server', at: 7, kind: 'cut' }))).toMatchObject({
      ok: true,
      lastSeq: 3,
    })
    expect(proxy.isBroken).toBe(true)
    expect(await store.readLog({ owner: '', threadId: 'r' })).toHaveLength(3)
  })

  it('what the body of a transaction throws is its own, however much it sounds like an outage', async () => {
    const pool = new pg.Pool({ connectionString: scene.url, max: 1 })
    scene.afterwards(() => pool.end())
    const store = await scene.open({ pool })
    const claim = await createAndClaim(store, 'r')
    const guarded = {
      owner: '',
      runId: 'r',
      threadId: 'r',
      epoch: claim.run.epoch,
      leaseId: claim.leaseId,
      timeoutMs: patience(1_000),
    }
    const transact = (body: (query: (sql: string) => Promise<unknown>) => Promise<unknown>) =>
      store.transact?.(guarded, async (tx) => {
        await body((sql) => tx.query(sql))
        return stepping(claim)
      })
    const thrown = new Error('the connection to the bank was closed')
    await expect(transact(async () => Promise.reject(thrown))).rejects.toBe(thrown)
    await expect(transact((query) => query('SELECT * FROM nowhere'))).rejects.toMatchObject({ code: '42P01' })
    const blocker = await scene.admin.connect()
    await blocker.query(
      `BEGIN; CREATE TABLE "${scene.schema}_locked" AS SELECT 1; COMMIT; BEGIN; LOCK TABLE "${scene.schema}_locked"`,
    )
    scene.afterwards(() => scene.admin.query(`DROP TABLE "${scene.schema}_locked"`))
    await expect(transact((query) => query(`SELECT FROM "${scene.schema}_locked"`))).rejects.toMatchObject({
      code: 'store_unavailable',
    })
    await expect(transact((query) => query(`LOCK TABLE "${scene.schema}_locked" NOWAIT`))).rejects.toMatchObject({
      code: '55P03',
    })
    await blocker.query('ROLLBACK')
    blocker.release()
    await expect(transact((query) => query('SELECT pg_sleep(60)'))).rejects.toMatchObject({ code: 'timeout' })
    await expect(transact((query) => query('SELECT pg_terminate_backend(pg_backend_pid())'))).rejects.toMatchObject({
      code: 'store_unavailable',
    })
    expect(await transact((query) => query('SELECT 1'))).toMatchObject({ ok: true, lastSeq: 2 })
  })
})
