import { type ChildProcess, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import pg from 'pg'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import type { Change } from '../../src/store/change.ts'
import type { Claim, Hint, Store } from '../../src/store/store.ts'
import { openPostgresStore, type PostgresStoreOptions } from '../../src/stores/postgres/postgres-store.ts'
import { sharedPostgres, startPostgres } from '../servers/postgres.ts'
import { type Fault, type PostgresProxy, startProxy } from './postgres-proxy.ts'
import { claimRequest, createAndClaim, creating, event, stepping } from './sqlite-scene.ts'

/** Postgres under faults: connections that break at any message, servers that die, stand by or are set too weakly, processes that stop. */

let url = ''
let admin: pg.Pool
let schema = ''
let endings: (() => Promise<unknown>)[] = []

beforeAll(async () => {
  url = (await sharedPostgres()).url
  admin = new pg.Pool({ connectionString: url, max: 2 })
})

afterAll(() => admin.end())

beforeEach(() => {
  schema = `faults_${randomBytes(6).toString('hex')}`
})

afterEach(async () => {
  for (const end of endings.reverse()) await end()
  endings = []
  await admin.query(`DROP SCHEMA IF EXISTS "${schema}" CASCADE`)
})

async function open(options: Partial<PostgresStoreOptions> = {}): Promise<Store> {
  const { pool, ...rest } = { url, schema, durability: 'full' as const, ...options }
  const store = await openPostgresStore(pool === undefined ? rest : { ...rest, pool })
  endings.push(() => store.close())
  await store.migrate()
  return store
}

async function openOnProxy(options: Partial<PostgresStoreOptions> = {}): Promise<{ store: Store; proxy: PostgresProxy }> {
  const proxy = await startProxy(url)
  endings.push(() => proxy.stop())
  const patience = { answerMs: 300, unknownMs: 20_000 }
  return { proxy, store: await open({ url: proxy.url, patience, poolSize: { min: 0, max: 3 }, ...options }) }
}

async function codeOf(call: Promise<unknown>): Promise<string> {
  try {
    await call
    return 'none'
  } catch (error) {
    return String((error as { code?: unknown }).code)
  }
}

/** A database of the test's own on the shared server, for settings that would disturb others. */
async function ownDatabase(settings: Record<string, string> = {}): Promise<string> {
  const name = `own_${randomBytes(4).toString('hex')}`
  await admin.query(`CREATE DATABASE ${name}`)
  for (const [setting, value] of Object.entries(settings)) await admin.query(`ALTER DATABASE ${name} SET ${setting} = '${value}'`)
  endings.unshift(() => admin.query(`DROP DATABASE ${name} WITH (FORCE)`))
  const own = new URL(url)
  own.pathname = `/${name}`
  return own.href
}

describe('a connection that breaks at any message', () => {
  const twoSteps = (claim: Claim): Change[] => [stepping(claim), stepping(claim, { label: 'here' })]
  const intent = (claim: Claim): Change[] => [
    stepping(claim, {
      events: [event('effect_intended')],
      operation: { kind: 'intend', key: 'k', name: 'send' },
      mustSync: true,
    }),
  ]
  const writes: Record<string, { changes: (claim: Claim) => Change[]; events: number }> = {
    'a lone step': { changes: (claim) => [stepping(claim)], events: 1 },
    'a batch': { changes: twoSteps, events: 2 },
    'an intent': { changes: intent, events: 1 },
    'the end of a run': {
      changes: (claim) => [stepping(claim, { run: { status: 'completed', setsEnd: true } })],
      events: 1,
    },
  }
  // Bind, Describe, Execute, Sync; the answer to each, the row, and the end of it: with one more, nothing breaks.
  const places: Omit<Fault, 'kind'>[] = [
    ...[1, 2, 3, 4].map((at) => ({ side: 'client', at }) as const),
    ...[1, 2, 3, 4, 5].map((at) => ({ side: 'server', at }) as const),
  ]
  for (const [name, { changes, events }] of Object.entries(writes)) {
    for (const kind of ['cut', 'swallow'] as const) {
      it(`${kind}: ${name} is written once and answered`, async () => {
        const { store, proxy } = await openOnProxy()
        let round = 0
        for (const place of places) {
          const id = `r-${++round}`
          const claim = await createAndClaim(store, id)
          // The statement is prepared on whatever connection comes next: the messages are those of later calls.
          await store.commit([stepping(claim)])
          proxy.break({ ...place, kind })
          const answers = await store.commit(changes(claim))
          expect([place, answers.map(({ ok }) => ok)]).toEqual([place, answers.map(() => true)])
          const log = await store.readLog({ owner: '', threadId: id })
          expect([place, log.length]).toEqual([place, 2 + events])
          expect([place, answers.at(-1)]).toMatchObject([place, { lastSeq: 2 + events }])
          if (name === 'an intent') {
            const done = stepping(claim, { operation: { kind: 'complete', key: 'k', result: '1' } })
            expect((await store.commit([done]))[0]?.ok).toBe(true)
            await admin.query(`DELETE FROM "${schema}".operations`)
          }
          if (name !== 'the end of a run') await store.commit([stepping(claim, { run: { status: 'completed' } })])
        }
        expect(proxy.isBroken).toBe(true)
      }, 60_000)
    }
  }

  it('cut: a run is claimed once, and the claim is not lost', async () => {
    const { store, proxy } = await openOnProxy()
    await store.commit([creating('warm')])
    await store.claim(claimRequest())
    for (const [round, place] of places.entries()) {
      await store.commit([creating(`r-${round}`)])
      await store.readRun({ owner: '', runId: `r-${round}` })
      proxy.break({ ...place, kind: 'cut' })
      const claims = await store.claim(claimRequest())
      expect([place, claims.map(({ run }) => [run.id, run.epoch, run.claimsWithoutProgress])]).toEqual([
        place,
        [[`r-${round}`, 1, 1]],
      ])
      expect(claims[0]?.input).toBe(`"input of r-${round}"`)
      expect((await store.commit([stepping(claims[0] as Claim)]))[0]?.ok).toBe(true)
    }
  })

  it('cut: a start makes one run, a message arrives once, a deletion says that it deleted', async () => {
    const { store, proxy } = await openOnProxy()
    for (const [round, place] of places.entries()) {
      const runId = `r-${round}`
      proxy.break({ ...place, kind: 'cut' })
      const [started] = await store.commit([creating(runId)])
      expect([place, started]).toMatchObject([place, { ok: true, created: [{ isNew: true }] }])
      proxy.break({ ...place, kind: 'cut' })
      expect([place, await store.deliver({ owner: '', runId, kind: 'signal', name: 'go', payload: '1' })]).toEqual([
        place,
        { ok: true },
      ])
      expect([place, await store.readInbox({ owner: '', runId })]).toMatchObject([place, [{ payload: '1' }]])
      expect(await store.readInbox({ owner: '', runId })).toHaveLength(1)
      proxy.break({ ...place, kind: 'cut' })
      expect([place, await store.deleteThread({ owner: '', threadId: runId, at: 1 })]).toEqual([place, true])
    }
  })

  it("cut: the user's rows and the checkpoint of a transaction are both there or both not", async () => {
    const { store, proxy } = await openOnProxy()
    await admin.query(`CREATE TABLE "${schema}_user" (n int)`)
    endings.push(() => admin.query(`DROP TABLE "${schema}_user"`))
    const claim = await createAndClaim(store, 'r')
    const { epoch } = claim.run
    const guarded = { owner: '', runId: 'r', threadId: 'r', epoch, leaseId: claim.leaseId, timeoutMs: 5_000 }
    let written = 0
    let failed = 0
    // The server's messages of a whole transaction, and a few more.
    for (let at = 1; at <= 32; at++) {
      await store.readRun({ owner: '', runId: 'r' })
      proxy.break({ side: 'server', at, kind: 'cut' })
      const code = await codeOf(
        store.transact?.(guarded, async (tx) => {
          await tx.query(`INSERT INTO "${schema}_user" VALUES ($1)`, [at])
          return stepping(claim)
        }) ?? Promise.resolve(),
      )
      proxy.break({ side: 'server', at: 1_000_000, kind: 'cut' })
      expect(['none', 'store_unavailable']).toContain(code)
      if (code === 'none') written += 1
      else failed += 1
      const { rows } = await admin.query(`SELECT count(*)::int AS count FROM "${schema}_user"`)
      expect([at, rows[0].count, (await store.readThread({ owner: '', threadId: 'r' }))?.headSeq]).toEqual([
        at,
        written,
        written + 1,
      ])
    }
    expect([written > 3, failed > 3]).toEqual([true, true])
  }, 60_000)

  it('reads are asked again on another connection', async () => {
    const { store, proxy } = await openOnProxy()
    await store.commit([creating('r')])
    for (const place of places) {
      await store.readRun({ owner: '', runId: 'r' })
      proxy.break({ ...place, kind: 'cut' })
      expect([place, (await store.readRun({ owner: '', runId: 'r' }))?.id]).toEqual([place, 'r'])
    }
  })

  it('a server that stays away leaves outcome_unknown, and nothing but that', async () => {
    const { store, proxy } = await openOnProxy({ patience: { answerMs: 300, unknownMs: 500 }, poolSize: { min: 0, max: 1 } })
    const claim = await createAndClaim(store, 'r')
    await store.commit([stepping(claim)])
    proxy.refuse(true)
    proxy.break({ side: 'server', at: 1, kind: 'cut' })
    expect(await codeOf(store.commit([stepping(claim)]))).toBe('outcome_unknown')
    // Nothing was sent, so nothing was written.
    expect(await codeOf(store.commit([stepping(claim)]))).toBe('store_unavailable')
    expect(await codeOf(store.readRun({ owner: '', runId: 'r' }))).toBe('store_unavailable')
    proxy.refuse(false)
    expect((await store.commit([stepping(claim)]))[0]?.ok).toBe(true)
  })

  it('a statement that outlives its connection is given up, so that it cannot be written after its repetition', async () => {
    const { store, proxy } = await openOnProxy({ patience: { answerMs: 300, unknownMs: 20_000 } })
    const claim = await createAndClaim(store, 'r')
    await store.commit([stepping(claim)])
    const blocker = await admin.connect()
    await blocker.query('BEGIN')
    await blocker.query(`SELECT FROM "${schema}".threads FOR UPDATE`)
    // Its answer is swallowed and it hangs on the lock; the repetition hangs behind it.
    proxy.break({ side: 'server', at: 1, kind: 'swallow' })
    const commit = store.commit([stepping(claim)])
    await new Promise((resolve) => setTimeout(resolve, 1_000))
    await blocker.query('COMMIT')
    blocker.release()
    expect((await commit)[0]).toMatchObject({ ok: true })
    await vi.waitFor(async () => {
      const { rows } = await admin.query(
        `SELECT count(*)::int AS count FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%"${schema}"%' AND pid <> pg_backend_pid()`,
      )
      expect(rows[0].count).toBe(0)
    })
    expect(await store.readLog({ owner: '', threadId: 'r' })).toHaveLength(3)
  })
})

describe('a server that goes away and comes back', () => {
  it('a killed server loses nothing that was acknowledged, and writes go on when it is back', { timeout: 60_000 }, async () => {
    const own = await startPostgres()
    endings.push(() => own.stop())
    const store = await open({ url: own.url })
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
    const own = await ownDatabase()
    const store = await open({ url: own })
    const claim = await createAndClaim(store, 'r')
    const name = new URL(own).pathname.slice(1)
    const turn = async (isReadOnly: boolean) => {
      await admin.query(`ALTER DATABASE ${name} SET default_transaction_read_only = ${isReadOnly ? 'on' : 'off'}`)
      await admin.query(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '${name}'`)
      // The sessions of before are gone, and with them any doubt about what they did.
      await new Promise((resolve) => setTimeout(resolve, 200))
      expect((await store.readRun({ owner: '', runId: 'r' }))?.id).toBe('r')
    }
    await turn(true)
    expect(await codeOf(store.commit([stepping(claim)]))).toBe('store_unavailable')
    expect(await codeOf(openPostgresStore({ url: own, schema, durability: 'full' }))).toBe('store_unavailable')
    await turn(false)
    expect((await store.commit([stepping(claim)]))[0]?.ok).toBe(true)
  })

  it('sessions that an operator ends are replaced', async () => {
    const own = await ownDatabase()
    const store = await open({ url: own })
    const claim = await createAndClaim(store, 'r')
    for (let round = 0; round < 5; round++) {
      await admin.query(
        `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '${new URL(own).pathname.slice(1)}'`,
      )
      expect((await store.commit([stepping(claim)]))[0]?.ok).toBe(true)
    }
    expect(await store.readLog({ owner: '', threadId: 'r' })).toHaveLength(6)
  })

  it('heartbeats have a connection of their own that load does not take', async () => {
    const store = await open({ poolSize: { min: 0, max: 2 } })
    const claim = await createAndClaim(store, 'r')
    const blocker = await admin.connect()
    await store.commit([creating('other')])
    await blocker.query('BEGIN')
    await blocker.query(`SELECT FROM "${schema}".threads WHERE thread_id = 'other' FOR UPDATE`)
    const stuck = [1, 2, 3].map(() => store.deleteThread({ owner: '', threadId: 'other', at: 1 }))
    await new Promise((resolve) => setTimeout(resolve, 100))
    const lease = { owner: '', runId: 'r', epoch: claim.run.epoch, leaseId: claim.leaseId }
    expect(await store.renew({ leaseMs: 60_000, leases: [lease] })).toMatchObject([{ isHeld: true }])
    await blocker.query('COMMIT')
    blocker.release()
    expect((await Promise.all(stuck)).filter(Boolean)).toHaveLength(1)
  })
})

describe('a server that promises less', () => {
  it('synchronous_commit = off is refused by name, unless durability is relaxed', async () => {
    const own = await ownDatabase({ synchronous_commit: 'off' })
    await expect(openPostgresStore({ url: own, schema, durability: 'full' })).rejects.toMatchObject({
      code: 'durability_too_weak',
      message: expect.stringContaining('synchronous_commit'),
    })
    const relaxed = await openPostgresStore({ url: own, schema, durability: 'relaxed' })
    expect(relaxed.durability).toBe('relaxed')
    await relaxed.close()
  })

  it('fsync = off and full_page_writes = off are refused by name', { timeout: 60_000 }, async () => {
    const weak = await startPostgres({ settings: { fsync: 'off' } })
    endings.push(() => weak.stop())
    for (const durability of ['full', 'relaxed'] as const) {
      await expect(openPostgresStore({ url: weak.url, schema, durability })).rejects.toMatchObject({
        code: 'durability_too_weak',
        message: expect.stringContaining('fsync'),
      })
    }
    await weak.shutDown()
    const torn = await startPostgres({ settings: { full_page_writes: 'off', wal_writer_delay: '10s' } })
    endings.push(() => torn.stop())
    await expect(openPostgresStore({ url: torn.url, schema, durability: 'full' })).rejects.toMatchObject({
      message: expect.stringContaining('full_page_writes'),
    })
  })

  it('tables of a later library are refused, and nothing is changed', async () => {
    const store = await open()
    await admin.query(`UPDATE "${schema}".version SET version = 99`)
    expect(await codeOf(store.migrate())).toBe('schema_too_new')
    expect((await admin.query(`SELECT version FROM "${schema}".version`)).rows).toEqual([{ version: 99 }])
  })

  it('a URL, a password or a schema that is wrong is said so', async () => {
    const wrong = (change: (url: URL) => void) => {
      const changed = new URL(url)
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
    expect(await codeOf(openPostgresStore({ url: 'mysql://x', durability: 'full' }))).toBe('invalid_url')
    for (const name of ['', 'a"b', "a'b", 'a$$b', 'pg_toast', '1a', 'x'.repeat(64), 'a;b', 'a\u0000b']) {
      expect([name, await codeOf(openPostgresStore({ url, schema: name, durability: 'full' }))]).toEqual([name, 'invalid_url'])
    }
  })
})

describe('one server, many processes', () => {
  const children: ChildProcess[] = []

  afterEach(() => {
    for (const child of children.splice(0)) child.kill('SIGKILL')
  })

  function startProcess(act: string, target: string): { child: ChildProcess; lines: string[]; ended: Promise<unknown> } {
    const child = spawn(process.execPath, [join(import.meta.dirname, 'postgres-process.ts'), act, target], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    children.push(child)
    const lines: string[] = []
    child.stdout?.on('data', (chunk) => lines.push(...String(chunk).split('\n').filter(Boolean)))
    return { child, lines, ended: once(child, 'exit') }
  }

  it('twenty open an empty database at once: all of them succeed', { timeout: 120_000 }, async () => {
    const target = new URL(await ownDatabase())
    target.searchParams.set('schema', 'Twenty at once')
    const all = Array.from({ length: 20 }, () => startProcess('boot', target.href))
    await Promise.all(all.map(({ ended }) => ended))
    expect(all.map(({ lines }) => lines)).toEqual(all.map(() => ['ok']))
    const store = await openPostgresStore({ url: target.href, durability: 'full' })
    expect((await store.listRuns({ owner: '', limit: 100 })).items).toHaveLength(20)
    await store.close()
  })

  it('one that is stopped inside a transaction holds nobody up beyond its idle time-out', { timeout: 60_000 }, async () => {
    const own = await ownDatabase()
    const store = await open({ url: own })
    const user = new pg.Client({ connectionString: own })
    await user.connect()
    await user.query('CREATE TABLE accounts (balance int); INSERT INTO accounts VALUES (0)')
    await store.commit([creating('r')])

    const target = new URL(own)
    target.searchParams.set('schema', schema)
    const { child, lines, ended } = startProcess('hang', target.href)
    await vi.waitFor(() => expect(lines).toContain('in the body'), 20_000)
    child.kill('SIGSTOP')
    const stoppedAt = performance.now()

    // Its run is taken over when its lease is over, whatever the transaction does.
    const claims = await vi.waitFor(async () => {
      const taken = await store.claim(claimRequest())
      expect(taken).toHaveLength(1)
      return taken
    }, 20_000)
    expect((await store.commit([stepping(claims[0] as Claim)]))[0]?.ok).toBe(true)
    // The user's row is free when the server has ended the session: the time limit of 1 s, and a second.
    await user.query('UPDATE accounts SET balance = balance + 10')
    expect(performance.now() - stoppedAt).toBeLessThan(8_000)

    child.kill('SIGCONT')
    await ended
    expect(lines.at(-1)).toMatch(/^(failed|refused)/)
    expect((await user.query('SELECT balance FROM accounts')).rows).toEqual([{ balance: 10 }])
    expect(await store.readLog({ owner: '', threadId: 'r' })).toHaveLength(2)
    await user.end()
  })

  it('one hears of what another started, ended and sent; steps are not announced', async () => {
    const [here, there] = [await open(), await open()]
    const heard: Hint[] = []
    const end = here.subscribe?.((hint) => heard.push(hint))
    // The first hint says that it listens now.
    await vi.waitFor(() => expect(heard).toHaveLength(1), 10_000)
    const claim = await createAndClaim(there, 'a run/1 "ü"')
    const named = { owner: '', threadId: claim.run.threadId, runId: claim.run.id }
    await vi.waitFor(() => expect(heard).toContainEqual({ ...named, isClaimable: true }), 10_000)
    await there.deliver({ owner: '', runId: claim.run.id, kind: 'signal', name: null, payload: null })
    await vi.waitFor(() => expect(heard).toContainEqual({ ...named, hasMail: true }), 10_000)
    heard.length = 0
    await there.commit([stepping(claim)])
    await there.commit([stepping(claim, { run: { status: 'completed' } })])
    await vi.waitFor(() => expect(heard).toEqual([{ ...named, isClaimable: true }]), 10_000)
    end?.()
  })
})

describe("on a user's pool", () => {
  it('works, leaves it open, and takes away the connections beside it', async () => {
    const own = await ownDatabase()
    const pool = new pg.Pool({ connectionString: own, max: 3 })
    // Its database is dropped while its connections end.
    pool.on('error', () => {})
    endings.push(() => pool.end())
    const store = await openPostgresStore({ pool, schema, durability: 'full' })
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
    const pool = new pg.Pool({ connectionString: url, max: 1 })
    endings.push(() => pool.end())
    const store = await open({ pool })
    const claim = await createAndClaim(store, 'r')
    await pool.query('DEALLOCATE ALL')
    expect((await store.commit([stepping(claim), stepping(claim)])).map(({ ok }) => ok)).toEqual([true, true])
    expect((await store.readRun({ owner: '', runId: 'r' }))?.id).toBe('r')
  })

  it('changes can be written inside a transaction of the user', async () => {
    const pool = new pg.Pool({ connectionString: url, max: 3 })
    endings.push(() => pool.end())
    const store = await openPostgresStore({ pool, schema, durability: 'full' })
    endings.push(() => store.close())
    await store.migrate()
    const client = await pool.connect()
    for (const end of ['ROLLBACK', 'COMMIT']) {
      await client.query('BEGIN')
      const { answers } = await store.commitWithin(client, [creating('r')])
      expect(answers).toMatchObject([{ ok: true, created: [{ isNew: true }] }])
      expect(await store.readRun({ owner: '', runId: 'r' })).toBeNull()
      await client.query(end)
      expect((await store.readRun({ owner: '', runId: 'r' }))?.id).toBe(end === 'COMMIT' ? 'r' : undefined)
    }
    client.release()
  })
})

describe('what the server sees', () => {
  it('one statement a step, alone and in a batch, and none that announces it', async () => {
    const { logFile } = await sharedPostgres()
    const own = await ownDatabase({ log_statement: 'all' })
    const store = await open({ url: own })
    const claims = []
    for (let i = 0; i < 50; i++) claims.push(await createAndClaim(store, `r-${i}`))
    const [claim] = claims as [Claim]
    const marker = `marker ${randomBytes(8).toString('hex')}`
    const client = new pg.Client({ connectionString: own })
    await client.connect()
    await client.query(`SELECT '${marker} begin'`)
    for (let i = 0; i < 100; i++) await store.commit([stepping(claim)])
    for (let i = 0; i < 10; i++) await store.commit(claims.map((one) => stepping(one)))
    await client.query(`SELECT '${marker} end'`)
    await client.end()
    const log = await vi.waitFor(() => {
      const text = readFileSync(logFile, 'utf8')
      expect(text).toContain(`${marker} end`)
      return text
    })
    const between = log.slice(log.indexOf(`${marker} begin`), log.indexOf(`${marker} end`))
    const statements = between.split('\n').filter((line) => /LOG: {2}(statement|execute)/.test(line) && line.includes(schema))
    expect(statements).toHaveLength(110)
    const all = between.split('\n').filter((line) => /LOG: {2}(statement|execute)/.test(line) && line.includes('pg_notify'))
    expect(all.filter((line) => line.includes(schema))).toEqual([])
  })

  it('damage is corrupt_record, never other data', async () => {
    const store = await open()
    const claim = await createAndClaim(store, 'r')
    await store.commit([stepping(claim, { snapshot: '{"a":1}', operation: { kind: 'intend', key: 'k', name: 'n' } })])
    await store.commit([stepping(claim, { operation: { kind: 'complete', key: 'k', result: '"paid"' } })])
    await store.deliver({ owner: '', runId: 'r', kind: 'signal', name: null, payload: '"mail"' })
    const reads: Record<string, () => Promise<unknown>> = {
      log: () => store.readLog({ owner: '', threadId: 'r' }),
      snapshots: () => store.readSnapshot({ owner: '', threadId: 'r', atSeq: 9 }),
      operations: () => store.readOperation({ owner: '', key: 'k' }),
      inbox: () => store.readInbox({ owner: '', runId: 'r' }),
    }
    const columns: Record<string, string> = { log: 'payload', snapshots: 'state', operations: 'result', inbox: 'payload' }
    for (const [table, read] of Object.entries(reads)) {
      expect([table, await codeOf(read())]).toEqual([table, 'none'])
      await admin.query(`UPDATE "${schema}".${table} SET ${columns[table]} = ${columns[table]} || ' '`)
      expect([table, await codeOf(read())]).toEqual([table, 'corrupt_record'])
      await admin.query(`UPDATE "${schema}".${table} SET ${columns[table]} = rtrim(${columns[table]})`)
    }
  })

  it('a record that is missing is corrupt_record, also among those that a query passes over', async () => {
    const store = await open()
    const claim = await createAndClaim(store, 'r')
    for (let i = 0; i < 6; i++) await store.commit([stepping(claim)])
    const at = { owner: '', threadId: 'r' }
    for (const seq of [1, 3, 7]) {
      await admin.query(
        `CREATE TABLE "${schema}".kept AS SELECT * FROM "${schema}".log WHERE seq = ${seq}; DELETE FROM "${schema}".log WHERE seq = ${seq}`,
      )
      for (const query of [{}, { types: ['run_queued' as const] }, { runId: 'nobody' }, { patchesOnly: true }, { bare: true }]) {
        expect([seq, query, await codeOf(store.readLog({ ...at, ...query }))]).toEqual([seq, query, 'corrupt_record'])
      }
      await admin.query(`INSERT INTO "${schema}".log SELECT * FROM "${schema}".kept; DROP TABLE "${schema}".kept`)
    }
    expect(await store.readLog(at)).toHaveLength(7)
    expect(await codeOf(store.readLog({ ...at, limit: 2 }))).toBe('none')
  })

  it('a run whose input is damaged is set aside, and keeps no other from being claimed', async () => {
    const store = await open()
    await store.commit([creating('broken'), creating('good')])
    await admin.query(
      `UPDATE "${schema}".log SET payload = 'x' WHERE thread = (SELECT id FROM "${schema}".threads WHERE thread_id = 'broken')`,
    )
    expect((await store.claim(claimRequest())).map(({ run }) => run.id)).toEqual(['good'])
    expect(await store.readRun({ owner: '', runId: 'broken' })).toMatchObject({
      status: 'paused',
      reason: 'poisoned',
      leaseId: null,
    })
    expect(await store.claim(claimRequest())).toEqual([])
  })
})
