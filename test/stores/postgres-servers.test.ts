import { randomBytes } from 'node:crypto'
import pg from 'pg'
import { describe, expect, it, vi } from 'vitest'
import { atRest } from '../../src/client/thread-bundle.ts'
import { readWholeThread } from '../../src/store/read-whole-thread.ts'
import type { WholeThread } from '../../src/store/thread-image.ts'
import { createMemoryStore } from '../../src/stores/memory/memory-store.ts'
import { openPostgresStore } from '../../src/stores/postgres/postgres-store.ts'
import { startPostgres } from '../servers/postgres.ts'
import { codeOf, usePostgres } from './postgres-scene.ts'
import { claimRequest, createAndClaim, creating, stepping } from './sqlite-scene.ts'

const scene = usePostgres()

describe('a server that goes away and comes back', () => {
  it('a killed server loses nothing that was acknowledged, and writes go on when it is back', async () => {
    const own = await startPostgres()
    scene.afterwards(() => own.stop())
    const store = await scene.open({ url: own.url })
    const claim = await createAndClaim(store, 'r')
    let acknowledged = 0
    for (const end of [() => own.kill(), () => own.shutDown(), () => own.kill()]) {
      for (let i = 0; i < 5; i++) {
        expect((await store.commit([stepping(claim)]))[0]?.ok).toBe(true)
        acknowledged += 1
      }
      const inFlight = store.commit([stepping(claim)])
      await end()
      const away = await codeOf(store.readRun({ owner: '', runId: 'r' }))
      expect(away).toBe('store_unavailable')
      await own.start()
      const code = await codeOf(inFlight)
      expect(['none', 'store_unavailable']).toContain(code)
      if (code === 'none') acknowledged += 1
      const log = await store.readLog({ owner: '', threadId: 'r' })
      expect(log).toHaveLength(1 + acknowledged)
    }
  })

  it('a primary that turns read-only is store_unavailable until it is one again', async () => {
    const own = await scene.ownDatabase()
    const store = await scene.open({ url: own })
    const claim = await createAndClaim(store, 'r')
    const name = new URL(own).pathname.slice(1)
    const turn = async (isReadOnly: boolean) => {
      await scene.admin.query(`ALTER DATABASE ${name} SET default_transaction_read_only = ${isReadOnly ? 'on' : 'off'}`)
      const ended = await scene.admin.query<{ pid: number }>(
        `SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '${name}'`,
      )
      // The sessions of before are gone, and with them any doubt about what they did.
      const left = 'SELECT FROM pg_stat_activity WHERE pid = ANY ($1)'
      const pids = ended.rows.map(({ pid }) => pid)
      await vi.waitUntil(async () => (await scene.admin.query(left, [pids])).rowCount === 0)
      expect((await store.readRun({ owner: '', runId: 'r' }))?.id).toBe('r')
    }
    await turn(true)
    expect(await codeOf(store.commit([stepping(claim)]))).toBe('store_unavailable')
    expect(await codeOf(openPostgresStore({ url: own, schema: scene.schema, durability: 'full' }))).toBe('store_unavailable')
    await turn(false)
    expect((await store.commit([stepping(claim)]))[0]?.ok).toBe(true)
  })

  it('sessions that an operator ends are replaced', async () => {
    const own = await scene.ownDatabase()
    const store = await scene.open({ url: own })
    const claim = await createAndClaim(store, 'r')
    for (let round = 0; round < 5; round++) {
      await scene.admin.query(
        `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '${new URL(own).pathname.slice(1)}'`,
      )
      expect((await store.commit([stepping(claim)]))[0]?.ok).toBe(true)
    }
    expect(await store.readLog({ owner: '', threadId: 'r' })).toHaveLength(6)
  })

  it('heartbeats have a connection of their own that load does not take', async () => {
    const store = await scene.open({ poolSize: { min: 0, max: 2 } })
    const claim = await createAndClaim(store, 'r')
    const blocker = await scene.admin.connect()
    await store.commit([creating('other')])
    await blocker.query('BEGIN')
    await blocker.query(`SELECT FROM "${scene.schema}".threads WHERE thread_id = 'other' FOR UPDATE`)
    const stuck = [1, 2, 3].map(() => store.deleteThread({ owner: '', threadId: 'other', at: 1 }))
    await new Promise((resolve) => setTimeout(resolve, 100))
    const lease = { owner: '', runId: 'r', epoch: claim.run.epoch, leaseId: claim.leaseId }
    expect(await store.renew({ leaseMs: 60_000, leases: [lease] })).toMatchObject([{ isHeld: true }])
    await blocker.query('COMMIT')
    blocker.release()
    expect((await Promise.all(stuck)).filter(Boolean)).toHaveLength(1)
  })
})

it('thousands of runs that a clock which was set back holds up are claimed, in several claims', async () => {
  let offsetMs = 3_600_000
  const store = await scene.open({ clockOffsetMs: () => offsetMs })
  await store.claim(claimRequest())
  const ids = Array.from({ length: 2_500 }, (_, at) => `r-${at}`)
  await store.commit(ids.map((id, at) => creating(id, { queue: `q-${at % 2}` })))
  offsetMs = 0
  const claimed: string[] = []
  for (let tries = 0; tries < 5 && claimed.length < ids.length; tries++) {
    const claims = await store.claim(claimRequest({ limit: 5_000 }))
    claimed.push(...claims.map(({ run }) => run.id))
  }
  expect(claimed.sort()).toEqual(ids.sort())
})

describe('a server that promises less', () => {
  it('synchronous_commit = off is refused by name, unless durability is relaxed', async () => {
    const own = await scene.ownDatabase({ synchronous_commit: 'off' })
    await expect(openPostgresStore({ url: own, schema: scene.schema, durability: 'full' })).rejects.toMatchObject({
      code: 'durability_too_weak',
      message: expect.stringContaining('synchronous_commit'),
    })
    const relaxed = await openPostgresStore({ url: own, schema: scene.schema, durability: 'relaxed' })
    expect(relaxed.durability).toBe('relaxed')
    await relaxed.close()
  })

  it('fsync = off and full_page_writes = off are refused by name', async () => {
    const weak = await startPostgres({ settings: { fsync: 'off' } })
    scene.afterwards(() => weak.stop())
    for (const durability of ['full', 'relaxed'] as const) {
      await expect(openPostgresStore({ url: weak.url, schema: scene.schema, durability })).rejects.toMatchObject({
        code: 'durability_too_weak',
        message: expect.stringContaining('fsync'),
      })
    }
    await weak.shutDown()
    const torn = await startPostgres({ settings: { full_page_writes: 'off', wal_writer_delay: '10s' } })
    scene.afterwards(() => torn.stop())
    await expect(openPostgresStore({ url: torn.url, schema: scene.schema, durability: 'full' })).rejects.toMatchObject({
      message: expect.stringContaining('full_page_writes'),
    })
  })

  it('tables of a later library are refused, and nothing is changed', async () => {
    const store = await scene.open()
    await scene.admin.query(`UPDATE "${scene.schema}".version SET version = 99`)
    expect(await codeOf(store.migrate())).toBe('schema_too_new')
    expect((await scene.admin.query(`SELECT version FROM "${scene.schema}".version`)).rows).toEqual([{ version: 99 }])
  })

  it('a user who may create nothing works on tables that another has set up, with the rights that the docs name', async () => {
    const own = await scene.ownDatabase()
    const name = `app_${randomBytes(4).toString('hex')}`
    await scene.admin.query(`CREATE ROLE ${name} LOGIN PASSWORD 'secret'`)
    const owner = new pg.Client({ connectionString: own })
    await owner.connect()
    scene.afterwards(async () => {
      await owner.query(`DROP OWNED BY ${name}`)
      await owner.end()
      await scene.admin.query(`DROP ROLE ${name}`)
    })
    const url = new URL(own)
    url.username = name
    url.password = 'secret'
    const migrated = async () => {
      const store = await openPostgresStore({ url: url.href, schema: 'agents', durability: 'full' })
      scene.afterwards(() => store.close())
      await store.migrate()
      return store
    }
    const lacking = { code: 'store_unavailable', message: expect.stringContaining('lacks a right') }
    await expect(migrated()).rejects.toMatchObject(lacking)
    await scene.open({ url: own, schema: 'agents' })
    await expect(migrated()).rejects.toMatchObject(lacking)
    await owner.query(`GRANT USAGE ON SCHEMA agents TO ${name}`)
    await owner.query(`GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA agents TO ${name}`)
    await owner.query(`GRANT USAGE ON ALL SEQUENCES IN SCHEMA agents TO ${name}`)
    const store = await migrated()
    const claim = await createAndClaim(store, 'r')
    const put = { kind: 'put', collection: 'session', key: 'k', parent: 'r', threadId: 'r', fields: [], payload: '1' } as const
    const step = { ...stepping(claim), records: [{ ...put, expires: { inMs: 60_000 } }] }
    expect(await store.commit([step])).toMatchObject([{ ok: true }])
    expect(await store.deliver({ owner: '', runId: 'r', kind: 'signal', name: 'go', payload: null })).toEqual({ ok: true })
    expect(await store.deleteThread({ owner: '', threadId: 'r', at: 1 })).toBe(true)
    const other = createMemoryStore()
    await createAndClaim(other, 's')
    const whole = (await readWholeThread(other, { owner: '', threadId: 's' })) as WholeThread
    expect(await store.restoreThread(atRest(whole))).toEqual({ ok: true })
    expect(await store.sweepRecords({ limit: 10 })).toBe(0)
    await store.setQueue({ name: 'q', concurrency: 1 })
  })

  it('tables of another program in the schema are left as they are, and said so', async () => {
    await scene.admin.query(`CREATE SCHEMA "${scene.schema}" CREATE TABLE version (version text)`)
    await scene.admin.query(`INSERT INTO "${scene.schema}".version VALUES ('')`)
    const store = await openPostgresStore({ url: scene.url, schema: scene.schema, durability: 'full' })
    scene.afterwards(() => store.close())
    await expect(store.migrate()).rejects.toMatchObject({
      code: 'store_unavailable',
      message: expect.stringContaining('"version"'),
    })
    expect((await scene.admin.query(`SELECT version FROM "${scene.schema}".version`)).rows).toEqual([{ version: '' }])
  })

  it('a URL, a password or a schema that is wrong is said so', async () => {
    const wrong = (change: (url: URL) => void) => {
      const changed = new URL(scene.url)
      change(changed)
      return openPostgresStore({ url: changed.href, durability: 'full' })
    }
    const away = wrong((changed) => {
      changed.port = '1'
    })
    await expect(away).rejects.toMatchObject({ code: 'store_unavailable', retryable: true })
    const stranger = wrong((changed) => {
      changed.password = 'wrong'
    })
    await expect(stranger).rejects.toMatchObject({ code: 'store_unavailable', message: expect.stringContaining('login') })
    expect(await codeOf(openPostgresStore({ url: 'postgres://[', durability: 'full' }))).toBe('invalid_url')
    expect(await codeOf(openPostgresStore({ url: 'postgres://me:100%@x/y', durability: 'full' }))).toBe('invalid_url')
    expect(await codeOf(openPostgresStore({ url: 'mysql://x', durability: 'full' }))).toBe('invalid_url')
    const strange = wrong((changed) => changed.searchParams.set('options', '-c nothing.of=1 -c nonsense=1'))
    await expect(strange).rejects.toMatchObject({ code: 'store_unavailable', message: expect.stringContaining('nonsense') })
    for (const name of ['', 'a"b', "a'b", 'a$$b', 'pg_toast', '1a', 'x'.repeat(64), 'a;b', 'a\u0000b']) {
      expect([name, await codeOf(openPostgresStore({ url: scene.url, schema: name, durability: 'full' }))]).toEqual([
        name,
        'invalid_url',
      ])
    }
  })
})
