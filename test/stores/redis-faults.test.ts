import { type ChildProcess, spawn } from 'node:child_process'
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Redis } from 'ioredis'
import { createClient } from 'redis'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { open as openHoldfast, workflow } from '../../src/index.ts'
import type { Change } from '../../src/store/change.ts'
import { readWholeThread } from '../../src/store/read-whole-thread.ts'
import type { Claim, Store } from '../../src/store/store.ts'
import type { WholeThread } from '../../src/store/thread-image.ts'
import { openRedisStore, type RedisStoreOptions } from '../../src/stores/redis/redis-store.ts'
import { wrapStore } from '../../src/testing/index.ts'
import { patience } from '../patience.ts'
import { type RedisServer, startRedis } from '../servers/redis.ts'
import { type Fault, type RedisProxy, startProxy } from './redis-proxy.ts'
import { claimRequest, createAndClaim, creating, event, stepping } from './sqlite-scene.ts'

/** Redis under faults: connections that break at any moment, a server that dies, is full, loses its data or is set too weakly. */

type Admin = Awaited<ReturnType<typeof connectAdmin>>

let server: RedisServer
let admin: Admin
let namespace = ''
let namespaceCount = 0
let endings: (() => Promise<unknown>)[] = []

beforeAll(async () => {
  server = await startRedis({ fsync: 'always' })
  admin = await connectAdmin(server.url)
})

afterAll(async () => {
  admin.destroy()
  await server.stop()
})

beforeEach(() => {
  namespace = `faults-${++namespaceCount}`
})

afterEach(async () => {
  for (const end of endings.reverse()) await end()
  endings = []
})

async function connectAdmin(url: string) {
  const client = createClient({ url })
  client.on('error', () => {})
  await client.connect()
  return client
}

async function open(options: Partial<RedisStoreOptions> = {}): Promise<Store> {
  const store = await openRedisStore({ url: server.url, namespace, durability: 'full', ...options })
  endings.push(() => store.close())
  await store.migrate()
  return store
}

async function openOnProxy(
  ofStore: RedisStoreOptions['patience'] = { answerMs: patience(200) },
): Promise<{ store: Store; proxy: RedisProxy }> {
  const proxy = await startProxy(server.port)
  endings.push(() => proxy.stop())
  // Opening is not what is tested: on a busy machine it may take longer than a test waits for an answer.
  const store = await vi.waitFor(() => open({ url: proxy.url, patience: ofStore }))
  return { proxy, store }
}

/** A server of the test's own, for what would disturb the others. */
async function openOnOwnServer(options: Parameters<typeof startRedis>[0], store: Partial<RedisStoreOptions> = {}) {
  const own = await startRedis(options)
  endings.push(() => own.stop())
  return { own, store: await open({ url: own.url, ...store }) }
}

async function codeOf(call: Promise<unknown>): Promise<string> {
  try {
    await call
    return 'none'
  } catch (error) {
    return String((error as { code?: unknown }).code)
  }
}

async function stepNames(store: Store, threadId: string): Promise<(string | null)[]> {
  return (await store.readLog({ owner: '', threadId, types: ['step_completed'] })).map(({ step }) => step)
}

function named(claim: Claim, step: string): Change {
  return stepping(claim, { events: [event('step_completed', { step, count: 1, attempt: 1, payload: '1' })] })
}

/** Until the server no longer rewrites its append-only file. */
async function untilRewritten({ url }: RedisServer): Promise<void> {
  const client = await connectAdmin(url)
  await vi.waitUntil(async () => (await client.info('persistence')).includes('aof_rewrite_in_progress:0'))
  client.destroy()
}

/** The append-only file of a server that is down, and the places inside of its last transaction where it can be torn. */
function keepTail({ folder }: RedisServer): { cuts: readonly number[]; restore(cut: number): void } {
  const files = join(folder, 'appendonlydir')
  const kept = join(folder, 'kept')
  cpSync(files, kept, { recursive: true })
  const last = readdirSync(files).findLast((name) => name.endsWith('.incr.aof')) as string
  const text = readFileSync(join(files, last), 'latin1')
  // In the middle of each command after the first.
  const starts = [...text.slice(text.lastIndexOf('MULTI')).matchAll(/\r\n\*/g)].map(
    ({ index }) => text.lastIndexOf('MULTI') + index,
  )
  return {
    cuts: starts.map((start) => start + 10),
    restore(cut) {
      rmSync(files, { recursive: true })
      cpSync(kept, files, { recursive: true })
      truncateSync(join(files, last), cut)
    },
  }
}

/** Breaks the connection in one way after the other, each time so many writes were acknowledged: by the clock, a slow machine would get nowhere. */
function breaker(proxy: RedisProxy, { every }: { every: number }) {
  const faults = ['cut', 'swallow', 'lose'] as const
  let count = 0
  return {
    acknowledged(): void {
      if (++count % every === 0) proxy.arm(faults[(count / every) % 3] as Fault)
    },
  }
}

const lifeOf = (name: string) => `holdfast:{${name}}:life`

describe('redis, when the connection breaks', () => {
  for (const fault of ['swallow', 'cut', 'lose', 'hold'] satisfies Fault[]) {
    it(`writes each change once and reports no failure: ${fault}`, async () => {
      const { store, proxy } = await openOnProxy()
      const claim = await createAndClaim(store, 'r')
      const names = Array.from({ length: 12 }, (_, index) => `step ${index}`)
      for (const [index, name] of names.entries()) {
        if (index % 3 === 0) proxy.arm(fault)
        expect((await store.commit([named(claim, name)]))[0]).toMatchObject({ ok: true, firstSeq: index + 2 })
      }
      expect(proxy.faultCount).toBe(4)
      proxy.release()
      await new Promise((resolve) => setTimeout(resolve, 50))
      expect(await stepNames(store, 'r')).toEqual(names)
    })
  }

  it('claims, messages and deletions happen once, too', async () => {
    const { store, proxy } = await openOnProxy()
    await store.commit([creating('a'), creating('b')])
    proxy.arm('cut')
    const claims = await store.claim(claimRequest())
    expect(claims.map(({ run }) => [run.id, run.epoch, run.claimsWithoutProgress])).toEqual([
      ['a', 1, 1],
      ['b', 1, 1],
    ])
    expect(claims.map(({ input }) => input)).toEqual(['"input of a"', '"input of b"'])
    proxy.arm('swallow')
    expect(await store.deliver({ owner: '', runId: 'a', kind: 'signal', name: 'go', payload: '1' })).toEqual({ ok: true })
    expect(await store.readInbox({ owner: '', runId: 'a' })).toHaveLength(1)
    proxy.arm('cut')
    expect(await store.deleteThread({ owner: '', threadId: 'a', at: 1 })).toBe(true)
    proxy.arm('cut')
    expect((await store.commit([creating('c')]))[0]).toMatchObject({ ok: true, created: [{ isNew: true }] })
    proxy.arm('cut')
    expect(await store.tag({ owner: '', threadId: 'c', seq: 1, label: 'x' })).toEqual({ ok: true })
    proxy.arm('cut')
    expect(await store.readRun({ owner: '', runId: 'c' })).toMatchObject({ id: 'c' })
    expect(proxy.faultCount).toBe(6)
  })

  it.each([1, 2, 3])('a thread is restored once and whole, whichever of the calls fails: call %i', async (call) => {
    const { store, proxy } = await openOnProxy()
    const claim = await createAndClaim(store, 'r')
    await store.commit([stepping(claim, { snapshot: '{}', run: { status: 'paused' } })])
    const whole = (await readWholeThread(store, { owner: '', threadId: 'r' })) as WholeThread
    for (const [index, fault] of (['cut', 'swallow', 'hold', 'lose'] as const).entries()) {
      const owner = `owner ${index}`
      const runs = whole.runs.map((image) => ({ ...image, run: { ...image.run, owner } }))
      const moved = { ...whole, thread: { ...whole.thread, owner }, runs }
      proxy.arm(fault, call)
      expect(await store.restoreThread(moved)).toEqual({ ok: true })
      proxy.release()
      expect(await readWholeThread(store, { owner, threadId: 'r' })).toEqual(moved)
    }
    expect(proxy.faultCount).toBe(4)
  })

  it('many runs through the engine, with batches sent ahead: every step is there once', async () => {
    const { store, proxy } = await openOnProxy({ answerMs: patience(300) })
    const breaking = breaker(proxy, { every: 2 })
    let mostUnderWay = 0
    let underWay = 0
    const counted = wrapStore(store, {
      before(act) {
        if (act === 'commit') mostUnderWay = Math.max(mostUnderWay, ++underWay)
      },
      after(act) {
        if (act !== 'commit') return
        underWay--
        breaking.acknowledged()
      },
    })
    const agent = workflow('agent', async (ctx) => {
      for (let i = 0; i < 5; i++) await ctx.step(`s${i}`, () => i)
      return await ctx.map('m', [1, 2, 3], (item) => item)
    })
    const hf = await openHoldfast(counted, { workflows: [agent], worker: { concurrency: 200 } })
    endings.push(() => hf.close())
    const runs = await Promise.all(Array.from({ length: 200 }, (_, index) => hf.start(agent, undefined, { id: `r-${index}` })))
    for (const output of await Promise.all(runs.map((run) => run.result()))) expect(output).toEqual([1, 2, 3])
    expect(proxy.faultCount).toBeGreaterThan(2)
    expect(mostUnderWay).toBe(2)
    for (const { id } of runs) {
      expect((await stepNames(store, id)).toSorted()).toEqual(['m[0]', 'm[1]', 'm[2]', 's0', 's1', 's2', 's3', 's4'])
      expect((await store.readRun({ owner: '', runId: id }))?.epoch).toBe(1)
    }
  })

  it('a copy that arrives after its successor is not carried out', async () => {
    const { store, proxy } = await openOnProxy()
    const claim = await createAndClaim(store, 'r')
    proxy.arm('hold')
    await store.commit([named(claim, 'first')])
    await store.commit([named(claim, 'second')])
    proxy.release()
    await new Promise((resolve) => setTimeout(resolve, 50))
    expect(await stepNames(store, 'r')).toEqual(['first', 'second'])
  })

  it('a write whose answer was lost and forgotten by the server is outcome_unknown, and not done again', async () => {
    const [{ store, proxy }, direct] = [await openOnProxy(), await open()]
    const claim = await createAndClaim(store, 'r')
    const forget = async () => void (await admin.del(await admin.keys(`holdfast:{${namespace}}:answer:*`)))
    // As when the server's clock is set forward by more than it keeps answers for.
    proxy.arm('swallow')
    const sent = codeOf(store.commit([named(claim, 'once')]))
    await vi.waitUntil(async () => (await stepNames(direct, 'r')).length === 1)
    await forget()
    expect(await sent).toBe('outcome_unknown')
    expect(await stepNames(direct, 'r')).toEqual(['once'])
    // What was not sent before is written.
    expect((await store.commit([named(claim, 'next')]))[0]?.ok).toBe(true)
    // A copy that arrives when all is forgotten is not carried out.
    proxy.arm('hold')
    await store.commit([named(claim, 'held')])
    await forget()
    proxy.release()
    await new Promise((resolve) => setTimeout(resolve, 50))
    expect(await stepNames(direct, 'r')).toEqual(['once', 'next', 'held'])
  })

  it('a heartbeat that is not answered is given up in time for another one', async () => {
    const { store, proxy } = await openOnProxy({})
    const { run, leaseId } = await createAndClaim(store, 'r')
    const leaseMs = patience(4_000)
    const heartbeat = () => store.renew({ leaseMs, leases: [{ owner: '', runId: 'r', epoch: run.epoch, leaseId }] })
    proxy.arm('swallow')
    const startedAt = performance.now()
    expect(await codeOf(heartbeat())).toBe('store_unavailable')
    expect(await heartbeat()).toMatchObject([{ isHeld: true }])
    expect(performance.now() - startedAt).toBeLessThan(leaseMs)
  })

  it('many at once over connections that break all the time: nothing lost, nothing doubled', async () => {
    const { store, proxy } = await openOnProxy({ answerMs: patience(300) })
    await store.commit(Array.from({ length: 20 }, (_, index) => creating(`r-${index}`)))
    const claims = await store.claim(claimRequest())
    const names = Array.from({ length: 15 }, (_, index) => `step ${index}`)
    const breaking = breaker(proxy, { every: 15 })
    await Promise.all(
      claims.map(async (claim) => {
        for (const name of names) {
          expect((await store.commit([named(claim, name)]))[0]?.ok).toBe(true)
          breaking.acknowledged()
        }
      }),
    )
    expect(proxy.faultCount).toBeGreaterThan(2)
    for (const { run } of claims) expect(await stepNames(store, run.id)).toEqual(names)
  })

  it('a write that was sent and never answered is outcome_unknown; one that was not sent is store_unavailable', async () => {
    const { own, store: direct } = await openOnOwnServer({ fsync: 'always' })
    const proxy = await startProxy(own.port)
    endings.push(() => proxy.stop())
    const ofStore = { answerMs: patience(100), readyMs: patience(500), outcomeMs: patience(1_000) }
    const store = await open({ url: proxy.url, patience: ofStore })
    const claim = await createAndClaim(store, 'r')
    // Whatever it sends again, too.
    const always = setInterval(() => proxy.arm('swallow'), 1)
    endings.push(async () => clearInterval(always))
    proxy.arm('swallow')
    const sent = codeOf(store.commit([named(claim, 'sent')]))
    await vi.waitUntil(async () => (await stepNames(direct, 'r')).length === 1)
    await own.kill()
    clearInterval(always)
    proxy.disarm()
    expect(await sent).toBe('outcome_unknown')
    expect(await codeOf(store.commit([named(claim, 'not sent')]))).toBe('store_unavailable')
    expect(await codeOf(store.readRun({ owner: '', runId: 'r' }))).toBe('store_unavailable')
    await own.start()
    expect((await store.commit([named(claim, 'later')]))[0]?.ok).toBe(true)
    expect(await stepNames(direct, 'r')).toEqual(['sent', 'later'])
  })

  it('connections that break at every call, one after the other, do not keep a caller for ever', async () => {
    const { store, proxy } = await openOnProxy({ answerMs: 100, outcomeMs: 500, readyMs: 500 })
    const claim = await createAndClaim(store, 'r')
    const always = setInterval(() => proxy.arm('cut'), 1)
    endings.push(async () => clearInterval(always))
    proxy.arm('cut')
    expect(await codeOf(store.commit([named(claim, 'sent')]))).toBe('outcome_unknown')
    expect(await codeOf(store.readRun({ owner: '', runId: 'r' }))).toBe('store_unavailable')
    expect(proxy.faultCount).toBeGreaterThan(3)
  })

  it('a connection that is gone when nothing is under way is no failure', async () => {
    const store = await open()
    await store.commit([creating('a')])
    await admin.sendCommand(['CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes'])
    expect((await store.commit([creating('b')]))[0]?.ok).toBe(true)
    await admin.sendCommand(['CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes'])
    expect(await store.readRun({ owner: '', runId: 'b' })).toMatchObject({ id: 'b' })
  })

  it('close ends what waits for a server that is away', async () => {
    const { own, store } = await openOnOwnServer({ fsync: 'always' }, { patience: { readyMs: 60_000 } })
    await own.kill()
    const waiting = codeOf(store.commit([creating('a')]))
    await new Promise((resolve) => setTimeout(resolve, 50))
    await store.close()
    // Depends on whether the death of the connection was noticed before the write was sent.
    expect(['closed', 'outcome_unknown']).toContain(await waiting)
  })
})

describe('redis, when the server dies', () => {
  it('kill -9 under load loses nothing that was acknowledged, doubles nothing, and no caller sees a failure', async () => {
    const { own, store } = await openOnOwnServer({ fsync: 'always' })
    await store.commit(Array.from({ length: 10 }, (_, index) => creating(`r-${index}`)))
    const claims = await store.claim(claimRequest())
    let isDone = false
    const acknowledged = new Map<string, string[]>(claims.map(({ run }) => [run.id, []]))
    const writers = claims.map(async (claim) => {
      for (let count = 0; !isDone; count++) {
        const [answer] = await store.commit([named(claim, `step ${count}`)])
        expect(answer?.ok).toBe(true)
        acknowledged.get(claim.run.id)?.push(`step ${count}`)
      }
    })
    for (let death = 0; death < 4; death++) {
      await vi.waitUntil(() => [...acknowledged.values()].every((names) => names.length > 4 * (death + 1)))
      await own.kill()
      await own.start()
    }
    isDone = true
    await Promise.all(writers)
    for (const [id, names] of acknowledged) {
      expect(names.length).toBeGreaterThan(16)
      expect(await stepNames(store, id)).toEqual(names)
    }
  })

  it('a script that reached the append-only file in part is gone whole, also after the next restart', async () => {
    const { own, store } = await openOnOwnServer({ fsync: 'always' })
    const claim = await createAndClaim(store, 'r')
    await store.commit([named(claim, 'whole')])
    await untilRewritten(own)
    await store.commit([named(claim, 'torn')])
    await own.kill()
    const tail = keepTail(own)
    for (const cut of tail.cuts) {
      tail.restore(cut)
      await own.start()
      expect(await stepNames(store, 'r')).toEqual(['whole'])
      // It ends the transaction in the file that the torn one began.
      await store.commit([creating(`after ${cut}`)])
      await untilRewritten(own)
      await own.kill()
      await own.start()
      expect(await stepNames(store, 'r')).toEqual(['whole'])
      expect(await store.readRun({ owner: '', runId: `after ${cut}` })).toMatchObject({ status: 'pending' })
      await own.kill()
    }
    expect(tail.cuts.length).toBeGreaterThanOrEqual(3)
    await own.start()
  })

  it('a server that dies again while it rewrites such a file starts at the second attempt, with all that was acknowledged', async () => {
    const { own, store } = await openOnOwnServer({ fsync: 'always' })
    const claim = await createAndClaim(store, 'r')
    await store.commit([named(claim, 'whole')])
    await untilRewritten(own)
    await store.commit([named(claim, 'torn')])
    await own.kill()
    const tail = keepTail(own)
    tail.restore(tail.cuts[2] as number)
    await own.start({ 'rdb-key-save-delay': '1000000' })
    await store.commit([creating('after')])
    await own.kill()
    await own.start() // In two attempts.
    expect(await stepNames(store, 'r')).toEqual(['whole'])
    expect(await store.readRun({ owner: '', runId: 'after' })).toMatchObject({ status: 'pending' })
  })

  for (const library of ['redis', 'ioredis'] as const) {
    it(`a client of "${library}" that connects again by itself is looked at anew`, async () => {
      const own = await startRedis()
      endings.push(() => own.stop())
      const client = library === 'redis' ? await connectAdmin(own.url) : new Redis(own.url)
      client.on('error', () => {})
      endings.push(async () => client.disconnect())
      const store = await open({ client })
      await store.commit([creating('a')])
      await own.kill()
      await own.start()
      await vi.waitUntil(() => ('isReady' in client ? client.isReady : client.status === 'ready'))
      await store.commit([creating('b')])
      const owner = await connectAdmin(own.url)
      expect(await owner.info('persistence')).toContain('aof_rewrites:1')
      owner.destroy()
    })
  }

  it('scripts that the server has forgotten are sent again, under load', async () => {
    const store = await open()
    const claim = await createAndClaim(store, 'r')
    for (let count = 0; count < 30; count++) {
      if (count % 5 === 0) await admin.scriptFlush()
      const writes = await Promise.all([store.commit([named(claim, `${count}`)]), store.readRun({ owner: '', runId: 'r' })])
      expect(writes[0][0]?.ok).toBe(true)
    }
    expect(await stepNames(store, 'r')).toEqual(Array.from({ length: 30 }, (_, index) => `${index}`))
  })
})

describe('redis, when memory is full', () => {
  it('is storage_full, all or nothing; what is there stays readable, and deleting makes room', async () => {
    const { store } = await openOnOwnServer({ settings: { maxmemory: '16mb' } })
    const claim = await createAndClaim(store, 'r')
    const large = (step: string) =>
      stepping(claim, { events: [event('step_completed', { step, payload: `"${'x'.repeat(300_000)}"` })] })
    const names: string[] = []
    let code = 'none'
    for (let count = 0; code === 'none' && count < 200; count++) {
      const pair = [`${count} a`, `${count} b`]
      code = await codeOf(store.commit(pair.map(large)))
      if (code === 'none') names.push(...pair)
    }
    expect(code).toBe('storage_full')
    expect(names.length).toBeGreaterThan(10)
    expect(await stepNames(store, 'r')).toEqual(names)
    const lease = { owner: '', runId: 'r', epoch: claim.run.epoch, leaseId: claim.leaseId }
    expect(await store.renew({ leaseMs: 60_000, leases: [lease] })).toMatchObject([{ isHeld: true }])
    expect(await store.deleteThread({ owner: '', threadId: 'r', at: 1 })).toBe(true)
    await expect.poll(() => codeOf(store.commit([creating('after')]))).toBe('none')
  })
})

describe('redis, when its disk is full', () => {
  it('is storage_full; what was written stays readable', async () => {
    const { store } = await openOnOwnServer({ fsync: 'everysec', diskBytes: 3_000_000 }, { durability: 'relaxed' })
    const claim = await createAndClaim(store, 'r')
    let code = 'none'
    const names: string[] = []
    for (let count = 0; code === 'none' && count < 100; count++) {
      const payload = `"${'x'.repeat(100_000)}"`
      code = await codeOf(store.commit([stepping(claim, { events: [event('step_completed', { step: `${count}`, payload })] })]))
      if (code === 'none') names.push(`${count}`)
    }
    expect(code).toBe('storage_full')
    expect(await stepNames(store, 'r')).toEqual(names)
    expect(await codeOf(store.commit([creating('b')]))).toBe('storage_full')
    expect(await store.readRun({ owner: '', runId: 'b' })).toBeNull()
  })
})

describe('redis, when its data is gone', () => {
  const calls: Record<string, (store: Store) => Promise<unknown>> = {
    commit: (store) => store.commit([creating('b')]),
    claim: (store) => store.claim(claimRequest()),
    renew: (store) => store.renew({ leaseMs: 1, leases: [{ owner: '', runId: 'a', epoch: 1, leaseId: 'x' }] }),
    deliver: (store) => store.deliver({ owner: '', runId: 'a', kind: 'x', name: null, payload: null }),
    now: (store) => store.now(),
    readRun: (store) => store.readRun({ owner: '', runId: 'a' }),
    readThread: (store) => store.readThread({ owner: '', threadId: 'a' }),
    readLog: (store) => store.readLog({ owner: '', threadId: 'a' }),
    readInbox: (store) => store.readInbox({ owner: '', runId: 'a' }),
    readSnapshot: (store) => store.readSnapshot({ owner: '', threadId: 'a', atSeq: 1 }),
    readOperation: (store) => store.readOperation({ owner: '', key: 'k' }),
    listRuns: (store) => store.listRuns({ owner: '', limit: 1 }),
    listThreads: (store) => store.listThreads({ owner: '', limit: 1 }),
    listCheckpoints: (store) => store.listCheckpoints({ owner: '', threadId: 'a' }),
    tag: (store) => store.tag({ owner: '', threadId: 'a', seq: 1, label: 'x' }),
    deleteThread: (store) => store.deleteThread({ owner: '', threadId: 'a', at: 1 }),
    migrate: (store) => store.migrate(),
  }

  it('says so at every call, and never shows an empty store', async () => {
    const { own, store } = await openOnOwnServer({ fsync: 'always' })
    await store.commit([creating('a')])
    const other = await connectAdmin(own.url)
    await other.flushAll()
    other.destroy()
    for (const [name, call] of Object.entries(calls).filter(([name]) => name !== 'migrate')) {
      expect([name, await codeOf(call(store))]).toEqual([name, 'store_unavailable'])
    }
    await expect(store.readRun({ owner: '', runId: 'a' })).rejects.toThrow(/data of the namespace .* is gone/)
    // Another process creates the namespace again: for processes that had the old one open it is still gone.
    const fresh = await open({ url: own.url })
    expect(await fresh.readRun({ owner: '', runId: 'a' })).toBeNull()
    for (const [name, call] of Object.entries(calls))
      expect([name, await codeOf(call(store))]).toEqual([name, 'store_unavailable'])
    await expect(store.readRun({ owner: '', runId: 'a' })).rejects.toThrow(/was replaced/)
  })

  it('does not take over data that has lost its marker', async () => {
    const store = await open()
    await store.commit([creating('a')])
    const namespaceId = await admin.get(lifeOf(namespace))
    await admin.del(lifeOf(namespace))
    expect(await codeOf(store.commit([creating('b')]))).toBe('store_unavailable')
    const late = await openRedisStore({ url: server.url, namespace, durability: 'full' })
    endings.push(() => late.close())
    expect(await codeOf(late.migrate())).toBe('store_unavailable')
    await admin.set(lifeOf(namespace), namespaceId ?? '')
    await late.migrate()
    expect(await late.readRun({ owner: '', runId: 'a' })).toMatchObject({ id: 'a' })
    expect((await store.commit([creating('b')]))[0]?.ok).toBe(true)
  })

  it('refuses data of a later version', async () => {
    await admin.set(lifeOf(namespace), '99:x')
    await expect(open()).rejects.toMatchObject({ code: 'schema_too_new', details: { found: 99 } })
  })
})

describe('redis, when bytes were damaged', () => {
  const logKey = () => `holdfast:{${namespace}}:log:0:r`

  async function damage(key: string, index: number, from: string, to: string): Promise<void> {
    const entry = await admin.lIndex(key, index)
    expect(entry).toContain(from)
    await admin.lSet(key, index, (entry as string).replace(from, to))
  }

  it.each([
    ['a payload', '"done":true', '"done":null'],
    ['a step', '"work"', '"walk"'],
    ['a header', '["step', '{"step'],
    ['a checksum', ' D[', '1 D['],
  ])('%s that changed is corrupt_record', async (_, from, to) => {
    const store = await open()
    await store.commit([stepping(await createAndClaim(store, 'r'))])
    await damage(logKey(), 1, from, to)
    expect(await codeOf(store.readLog({ owner: '', threadId: 'r' }))).toBe('corrupt_record')
    expect(await store.readLog({ owner: '', threadId: 'r', toSeq: 1 })).toHaveLength(1)
  })

  it('a record at another position, or in another log, is corrupt_record', async () => {
    const store = await open()
    const claim = await createAndClaim(store, 'r')
    await store.commit([named(claim, 'a'), named(claim, 'b')])
    await admin.lMove(logKey(), logKey(), 'LEFT', 'RIGHT')
    expect(await codeOf(store.readLog({ owner: '', threadId: 'r' }))).toBe('corrupt_record')
    await admin.lMove(logKey(), logKey(), 'RIGHT', 'LEFT')
    expect(await store.readLog({ owner: '', threadId: 'r' })).toHaveLength(3)
    await store.commit([creating('s')])
    await admin.copy(logKey(), logKey().replace(/r$/, 's'), { REPLACE: true })
    expect(await codeOf(store.readLog({ owner: '', threadId: 's' }))).toBe('corrupt_record')
  })

  it('snapshots, results, evidence and messages are checked as well', async () => {
    const store = await open()
    const claim = await createAndClaim(store, 'r')
    await store.commit([
      stepping(claim, { snapshot: '{"a":1}', operation: { kind: 'intend', key: 'k', name: 'send' } }),
      stepping(claim, { operation: { kind: 'note', key: 'k', evidence: '"late"' } }),
    ])
    await store.deliver({ owner: '', runId: 'r', kind: 'signal', name: 'go', payload: '"hello"' })
    const prefix = `holdfast:{${namespace}}:`
    const [snapshot] = await admin.zRange(`${prefix}snapshots:0:r`, 0, -1)
    await admin.zRem(`${prefix}snapshots:0:r`, snapshot as string)
    await admin.zAdd(`${prefix}snapshots:0:r`, { score: 2, value: (snapshot as string).replace('"a":1', '"a":2') })
    expect(await codeOf(store.readSnapshot({ owner: '', threadId: 'r', atSeq: 9 }))).toBe('corrupt_record')
    const evidence = await admin.hGet(`${prefix}operation:0:k`, 'evidence')
    await admin.hSet(`${prefix}operation:0:k`, 'evidence', (evidence as string).replace('late', 'lame'))
    expect(await codeOf(store.readOperation({ owner: '', key: 'k' }))).toBe('corrupt_record')
    const [[id, message] = ['', '']] = Object.entries(await admin.hGetAll(`${prefix}inbox:0:r`))
    await admin.hSet(`${prefix}inbox:0:r`, id, message.replace('hello', 'hallo'))
    expect(await codeOf(store.readInbox({ owner: '', runId: 'r' }))).toBe('corrupt_record')
  })

  it.each([
    ['a chunk', '["a"]', '["b"]'],
    ['the step of a chunk', '"work"', '"walk"'],
    ['the header of a record', '[1,', '{1,'],
    ['the offset of a record', '0 ', '1 '],
  ])('%s that changed is corrupt_record', async (_, from, to) => {
    const store = await open()
    const claim = await createAndClaim(store, 'r')
    const chunks = { stream: 's', tape: 1, step: 'work', count: 1, attempt: 1, size: 1, payload: '["a"]' }
    await store.commit([stepping(claim, { chunks: [chunks] })])
    const key = `holdfast:{${namespace}}:chunks:3:0:rs`
    const [entry = ''] = await admin.zRange(key, 0, -1)
    expect(entry).toContain(from)
    await admin.zRem(key, entry)
    await admin.zAdd(key, { score: 0, value: entry.replace(from, to) })
    const read = store.readChunks({ owner: '', runId: 'r', stream: 's', from: 0, limit: 1 })
    expect(await codeOf(read)).toBe('corrupt_record')
  })

  it('a run whose input is damaged is set aside, and does not keep others from being claimed', async () => {
    const store = await open()
    await store.commit([creating('r'), creating('s')])
    await damage(logKey(), 0, 'input of r', 'input of x')
    expect((await store.claim(claimRequest())).map(({ run }) => run.id)).toEqual(['s'])
    expect(await store.readRun({ owner: '', runId: 'r' })).toMatchObject({ status: 'paused', reason: 'poisoned', leaseId: null })
    expect(await store.claim(claimRequest())).toEqual([])
  })

  it('a damaged key breaks its batch and its claim; what came before it is there whole', async () => {
    const store = await open()
    await admin.set(logKey(), 'mine')
    expect(await codeOf(store.commit([creating('a'), creating('b'), creating('r'), creating('c')]))).toBe('corrupt_record')
    expect((await store.claim(claimRequest())).map(({ run }) => run.id)).toEqual(['a', 'b'])
    await store.commit([creating('c'), creating('s'), creating('d')])
    await admin.set(logKey().replace(/r$/, 's'), 'mine')
    expect(await codeOf(store.claim(claimRequest()))).toBe('corrupt_record')
    const [queue] = await store.listQueues({ name: 'default' })
    expect(queue?.counts).toMatchObject({ pending: 1, running: 4 })
    expect((await store.claim(claimRequest())).map(({ run }) => run.id)).toEqual(['d'])
  })

  it('a key that something else has overwritten is corrupt_record', async () => {
    const store = await open()
    await store.commit([creating('r')])
    await admin.set(logKey(), 'mine')
    expect(await codeOf(store.readLog({ owner: '', threadId: 'r' }))).toBe('corrupt_record')
  })
})

describe('redis, when it is set too weakly', () => {
  const settings: [name: string, weak: string, good: string, durability: string][] = [
    ['appendfsync', 'everysec', 'always', 'relaxed'],
    ['appendfsync', 'no', 'always', 'relaxed'],
    ['appendonly', 'no', 'yes', 'none'],
    ['no-appendfsync-on-rewrite', 'yes', 'no', 'relaxed'],
    ['maxmemory-policy', 'allkeys-lru', 'noeviction', 'refused'],
    ['maxmemory-policy', 'volatile-ttl', 'noeviction', 'refused'],
  ]
  for (const [name, weak, good, durability] of settings) {
    it(`${name} ${weak} is durability_too_weak, and the error says what it needs`, async () => {
      const own = await startRedis({ settings: { [name]: weak } })
      endings.push(() => own.stop())
      const opening = openRedisStore({ url: own.url, durability: 'full' })
      await expect(opening).rejects.toMatchObject({
        code: 'durability_too_weak',
        details: { setting: name, is: weak, needs: good },
      })
      await expect(opening).rejects.toThrow(`${name} ${good}`)
      const relaxed = openRedisStore({ url: own.url, durability: 'relaxed' })
      if (durability === 'refused') return expect(await codeOf(relaxed)).toBe('durability_too_weak')
      const store = await relaxed
      expect(store.durability).toBe(durability)
      await store.close()
    })
  }

  it('says what the server gives', async () => {
    expect((await open()).durability).toBe('full')
    expect((await open({ durability: 'relaxed' })).durability).toBe('full')
  })

  it('a server that does not show its configuration is too weak for full', async () => {
    const own = await startRedis()
    endings.push(() => own.stop())
    const owner = await connectAdmin(own.url)
    await owner.sendCommand([
      'ACL',
      'SETUSER',
      'app',
      'on',
      '>secret',
      '~holdfast:{default}:*',
      '&holdfast:{default}:*',
      '+@all',
      '-config',
    ])
    const url = own.url.replace('//', '//app:secret@')
    await expect(openRedisStore({ url, durability: 'full' })).rejects.toMatchObject({ code: 'durability_too_weak' })
    await expect(openRedisStore({ url, durability: 'full' })).rejects.toThrow(/CONFIG GET/)
    const store = await openRedisStore({ url, durability: 'relaxed' })
    expect(store.durability).toBe('relaxed')
    await store.migrate()
    await store.commit([stepping(await createAndClaim(store, 'r'))])
    await store.close()
    await owner.configSet('appendonly', 'no')
    const weaker = await openRedisStore({ url, durability: 'relaxed' })
    expect(weaker.durability).toBe('none')
    await weaker.close()
    owner.destroy()
  })

  it('a user who may not have the append-only file rewritten gets less than full, unless the server refuses torn files', async () => {
    const own = await startRedis()
    endings.push(() => own.stop())
    const owner = await connectAdmin(own.url)
    const rights = ['~holdfast:{default}:*', '&holdfast:{default}:*', '+@all', '-bgrewriteaof']
    await owner.sendCommand(['ACL', 'SETUSER', 'app', 'on', '>secret', ...rights])
    const url = own.url.replace('//', '//app:secret@')
    const opening = openRedisStore({ url, durability: 'full' })
    await expect(opening).rejects.toMatchObject({
      code: 'durability_too_weak',
      details: { setting: 'aof-load-truncated', is: 'yes', needs: 'no' },
    })
    await expect(opening).rejects.toThrow('BGREWRITEAOF')
    const relaxed = await openRedisStore({ url, durability: 'relaxed' })
    expect(relaxed.durability).toBe('relaxed')
    await relaxed.close()
    await owner.configSet('aof-load-truncated', 'no')
    const full = await openRedisStore({ url, durability: 'full' })
    expect(full.durability).toBe('full')
    await full.close()
    expect(await owner.info('persistence')).toContain('aof_rewrites:0')
    owner.destroy()
  })

  it('a server that became weaker is noticed when the connection is made anew', async () => {
    const { own, store } = await openOnOwnServer({ fsync: 'always' })
    const owner = await connectAdmin(own.url)
    await owner.configSet('appendfsync', 'everysec')
    await owner.sendCommand(['CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes'])
    expect(await codeOf(store.readRun({ owner: '', runId: 'a' }))).toBe('durability_too_weak')
    expect(await codeOf(store.commit([creating('a')]))).toBe('durability_too_weak')
    await owner.configSet('appendfsync', 'always')
    expect(await codeOf(store.commit([creating('a')]))).toBe('none')
    owner.destroy()
  })
})

describe('redis, when it cannot be opened', () => {
  it('names what is wrong, and never the password', async () => {
    const refused = openRedisStore({ url: 'redis://me:hunter2@127.0.0.1:1', durability: 'full' })
    await expect(refused).rejects.toMatchObject({ code: 'store_unavailable', retryable: true })
    await expect(refused).rejects.not.toThrow(/hunter2/)
    const own = await startRedis({ settings: { requirepass: 'right' } })
    endings.push(() => own.stop())
    for (const url of [own.url, own.url.replace('//', '//default:hunter2@')]) {
      const denied = openRedisStore({ url, durability: 'full' })
      await expect(denied).rejects.toMatchObject({ code: 'store_unavailable' })
      await expect(denied).rejects.not.toThrow(/hunter2/)
    }
    await (await openRedisStore({ url: own.url.replace('//', '//default:right@'), durability: 'full' })).close()
  })

  it('a server that lets nobody in is not available, and nothing is unknown', async () => {
    const own = await startRedis({ settings: { databases: '1' } })
    endings.push(() => own.stop())
    for (const url of [`${own.url}/7`, own.url.replace('//', '//:hunter2@')]) {
      const refused = openRedisStore({ url, durability: 'full' })
      await expect(refused).rejects.toMatchObject({ code: 'store_unavailable' })
      await expect(refused).rejects.not.toThrow(/hunter2/)
    }
    const store = await open({ url: own.url, patience: { readyMs: 100 } })
    const client = await connectAdmin(own.url)
    endings.push(async () => client.destroy())
    await client.configSet('maxclients', '1')
    expect(await codeOf(openRedisStore({ url: own.url, durability: 'full' }))).toBe('store_unavailable')
    await client.clientKill({ filter: 'SKIPME', skipMe: true })
    expect(await codeOf(store.commit([creating('a')]))).toBe('store_unavailable')
    await client.configSet('maxclients', '100')
    expect(await codeOf(vi.waitFor(() => store.commit([creating('a')])))).toBe('none')
  })

  it.each([
    'redis://me:100%@localhost',
    'http://localhost',
    'redis:localhost',
    'redis://localhost?schema=x',
    'redis://localhost?namespace=a{b}',
    'nonsense',
  ])('%s is invalid_url', async (url) => expect(await codeOf(openRedisStore({ url, durability: 'full' }))).toBe('invalid_url'))

  it('without the package "redis" it says what to install', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-bare-'))
    endings.push(async () => rmSync(folder, { recursive: true }))
    cpSync(join(import.meta.dirname, '../../src'), join(folder, 'src'), { recursive: true })
    writeFileSync(join(folder, 'package.json'), '{"type":"module"}')
    const program = `import { openRedisStore } from './src/stores/redis/redis-store.ts'
      await openRedisStore({ url: 'redis://localhost', durability: 'full' }).catch((error) => console.log(error.code, error.message))`
    writeFileSync(join(folder, 'program.ts'), program)
    expect(await nextLine(spawn(process.execPath, [join(folder, 'program.ts')]))).toMatch(
      /^missing_dependency .*npm install redis$/,
    )
  })

  it('a replica is refused', async () => {
    const own = await startRedis({ settings: { replicaof: `127.0.0.1 ${server.port}` } })
    endings.push(() => own.stop())
    await expect(openRedisStore({ url: own.url, durability: 'full' })).rejects.toThrow(/replica/)
  })

  it('the namespace can stand in the URL', async () => {
    const store = await openRedisStore({ url: `${server.url}?namespace=${namespace}`, durability: 'full' })
    await store.migrate()
    await store.close()
    expect(await admin.exists(lifeOf(namespace))).toBe(1)
  })
})

function nextLine(child: ChildProcess): Promise<string> {
  return new Promise((resolve, reject) => {
    child.stdout?.once('data', (data) => resolve(String(data).trim()))
    child.stderr?.once('data', (data) => reject(new Error(String(data))))
  })
}
