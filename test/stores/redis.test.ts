import { Cluster, Redis } from 'ioredis'
import { createClient, createCluster } from 'redis'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { open, workflow } from '../../src/index.ts'
import { readWholeThread } from '../../src/store/read-whole-thread.ts'
import type { Hint, Store } from '../../src/store/store.ts'
import type { WholeThread } from '../../src/store/thread-image.ts'
import { createMemoryStore } from '../../src/stores/memory/memory-store.ts'
import { laneOf, parseLane } from '../../src/stores/redis/keys.ts'
import { openRedisStore, type RedisClientLike, type RedisStoreOptions } from '../../src/stores/redis/redis-store.ts'
import { commitScript } from '../../src/stores/redis/scripts/commit.ts'
import { compareStores, createTestClock } from '../../src/testing/index.ts'
import { testStore } from '../../src/testing/store-suite/index.ts'
import { patience } from '../patience.ts'
import { type RedisServer, startRedis } from '../servers/redis.ts'
import { claimRequest, createAndClaim, creating, event, stepping } from './sqlite-scene.ts'

let server: RedisServer
/** One node that has all slots: it refuses scripts that touch keys of another slot, as a larger cluster would. */
let cluster: RedisServer
let namespaceCount = 0

beforeAll(async () => {
  server = await startRedis({ fsync: 'always' })
  cluster = await startRedis({ fsync: 'everysec', settings: { 'cluster-enabled': 'yes', 'cluster-announce-ip': '127.0.0.1' } })
  const node = await createClient({ url: cluster.url }).connect()
  await node.sendCommand(['CLUSTER', 'ADDSLOTSRANGE', '0', '16383'])
  await vi.waitFor(async () => expect(String(await node.sendCommand(['CLUSTER', 'INFO']))).toContain('cluster_state:ok'), 10_000)
  node.destroy()
})

afterAll(async () => {
  await server.stop()
  await cluster.stop()
})

function newNamespace(): string {
  return `test-${++namespaceCount}`
}

async function openStore(options: Partial<RedisStoreOptions> = {}): Promise<Store> {
  const store = await openRedisStore({ url: server.url, namespace: newNamespace(), durability: 'full', ...options })
  await store.migrate()
  return store
}

/** How many commands the server has carried out inside of scripts since its statistics were reset. */
async function commandsInScripts(admin: { info(section: string): Promise<unknown> }): Promise<number> {
  const calls = [...String(await admin.info('commandstats')).matchAll(/cmdstat_(\S+?):calls=(\d+)/g)]
  const inScripts = calls.filter(([, name]) => !/eval|config|info|client|hello|ping/.test(String(name)))
  return inScripts.reduce((sum, [, , count]) => sum + Number(count), 0)
}

/** That claims find every lane that has something for them: L1 to L5 of scripts/script.ts. */
async function expectIndexOfLanes(namespace: string): Promise<void> {
  const admin = await createClient({ url: server.url }).connect()
  const prefix = `holdfast:{${namespace}}:`
  const groups = new Set(await admin.sMembers(`${prefix}groups`))
  const named = async (kind: string) =>
    (await admin.keys(`${prefix}${kind}:*`)).map((key) => key.slice(prefix.length + kind.length + 1))
  const placeOf = (name: string) => {
    const [, kind = '', lane = ''] = /^\d+:(.):(.*)$/.exec(name) ?? []
    const { workflow, version, queue, priority } = parseLane(lane)
    return { kind, group: laneOf({ workflow, version, priority, queue: '' }), queue }
  }
  for (const lane of await named('lane')) {
    const { kind, group } = placeOf(lane)
    const [first] = await admin.zRangeWithScores(`${prefix}lane:${lane}`, 0, 0)
    const noted = await admin.zScore(`${prefix}${kind === '-' ? 'sleeping' : 'apart'}:${group}`, lane)
    expect([lane, groups.has(group), noted !== null && noted <= (first?.score ?? 0)]).toEqual([lane, true, true])
  }
  for (const lane of await named('turns')) {
    const { kind, group, queue } = placeOf(lane)
    const isApart = await Promise.all([`limited:${group}`, `parked:${queue}`].map((key) => admin.sIsMember(prefix + key, lane)))
    for (const owner of await admin.zRange(`${prefix}turns:${lane}`, 0, -1)) {
      const place = `${Buffer.byteLength(owner)}:${owner}`
      const [first] = await admin.zRangeWithScores(`${prefix}ready:${place}${lane}`, 0, 0)
      const head = await admin.zScore(`${prefix}heads:${place}${kind}:${group}`, lane)
      const hasTurn = (await admin.zScore(`${prefix}owners:${kind}:${group}`, owner)) !== null
      const found = isApart.map(Number).reduce((sum, one) => sum + one, Number(head !== null))
      expect([lane, owner, found, head ?? first?.score, hasTurn || head === null]).toEqual([lane, owner, 1, first?.score, true])
      if (!isApart[1]) expect([lane, groups.has(group)]).toEqual([lane, true])
    }
  }
  admin.destroy()
}

testStore('redis', {
  open: async ({ clockOffsetMs }) => {
    const namespace = newNamespace()
    const open = () => openRedisStore({ url: server.url, namespace, durability: 'full', clockOffsetMs })
    let store = await open()
    return {
      store,
      reopen: async () => {
        await store.close()
        store = await open()
        return store
      },
      close: () => store.close(),
    }
  },
})

let client: Redis | undefined
afterAll(() => client?.disconnect())

testStore("redis on a user's ioredis client and a cluster", {
  parts: ['creating', 'claiming', 'queues', 'leases', 'history', 'commits', 'streams', 'moving', 'concurrency'],
  open: async ({ clockOffsetMs }) => {
    client ??= new Redis(cluster.port, '127.0.0.1')
    await expect.poll(() => client?.status).toBe('ready')
    const namespace = newNamespace()
    const open = () => openRedisStore({ client: client as RedisClientLike, namespace, durability: 'relaxed', clockOffsetMs })
    let store = await open()
    return {
      store,
      reopen: async () => {
        await store.close()
        store = await open()
        return store
      },
      close: () => store.close(),
    }
  },
})

describe('redis', () => {
  it.each([1, 2])('does what the memory store does, with seed %i', { timeout: patience(120_000) }, async (seed) => {
    const compare = async () => {
      const clock = createTestClock()
      const namespace = newNamespace()
      const store = await openStore({ namespace, clockOffsetMs: clock.clockOffsetMs })
      try {
        await compareStores(createMemoryStore(clock), store, { seed, operations: 500, clock, checkEvery: 250 })
        await expectIndexOfLanes(namespace)
      } finally {
        await store.close()
      }
    }
    // A busy machine can make the server read its clock too late. What the same acts bring about again is a difference.
    await compare().catch(compare).catch(compare)
  })

  it('takes one script call for a step, and one for a batch', async () => {
    const store = await openStore()
    const admin = await createClient({ url: server.url }).connect()
    const calls = async () => {
      const counts = String(await admin.info('commandstats')).matchAll(/cmdstat_(?:evalsha|eval):calls=(\d+)/g)
      return [...counts].reduce((sum, [, count]) => sum + Number(count), 0)
    }
    const claim = await createAndClaim(store, 'r')
    await store.commit([stepping(claim)])
    const before = await calls()
    for (let count = 0; count < 50; count++) await store.commit([stepping(claim)])
    expect((await calls()) - before).toBe(50)
    await store.commit(Array.from({ length: 200 }, (_, index) => (index % 2 === 0 ? stepping(claim) : creating(`r-${index}`))))
    expect((await calls()) - before).toBe(51)
    admin.destroy()
    await store.close()
  })

  it('takes 14 commands inside its scripts for a run that is started, claimed and ended among others', async () => {
    const store = await openStore()
    const admin = await createClient({ url: server.url }).connect()
    const count = 200
    await admin.sendCommand(['CONFIG', 'RESETSTAT'])
    await store.commit(Array.from({ length: count }, (_, index) => creating(`r-${index}`)))
    const claims = await store.claim(claimRequest({ limit: count }))
    const run = { status: 'completed', reason: null, currentStep: null, setsEnd: true, hasProgress: true } as const
    await store.commit(claims.map((claim) => stepping(claim, { events: [event('run_completed')], run })))
    expect((await commandsInScripts(admin)) / count).toBeLessThan(14.5)
    expect(await store.listQueues({})).toEqual([])
    admin.destroy()
    await store.close()
  })

  it('takes one script call for a step through the whole engine, and two for an effect, by the log of the server', async () => {
    const namespace = newNamespace()
    const [admin, monitor] = await Promise.all([1, 2].map(() => createClient({ url: server.url }).connect()))
    const calls: string[] = []
    await monitor?.monitor((line) => {
      const [, command = '', sha] = /"(EVALSHA|EVAL|ECHO)" "((?:[^"\\\\]|\\\\.)*)"/i.exec(String(line)) ?? []
      if (/echo/i.test(command)) calls.push(String(sha))
      else if (command !== '' && String(line).includes(`{${namespace}}`))
        calls.push(sha === commitScript.sha ? 'commit' : 'other')
    })
    const agent = workflow('agent', async (ctx) => {
      await ctx.step('first', () => 0)
      await admin?.echo('steps')
      for (let i = 0; i < 100; i++) await ctx.step('s', () => i)
      await admin?.echo('effects')
      for (let i = 0; i < 10; i++) await ctx.once('e', { run: () => i })
      await admin?.echo('end')
    })
    const hf = await open(`${server.url}?namespace=${namespace}`, { workflows: [agent] })
    await hf.run(agent, undefined)
    await expect.poll(() => calls).toContain('end')
    const between = (from: string, to: string) => calls.slice(calls.indexOf(from) + 1, calls.indexOf(to))
    expect(between('steps', 'effects').filter((call) => call === 'commit')).toHaveLength(100)
    expect(between('effects', 'end').filter((call) => call === 'commit')).toHaveLength(20)
    // The worker looks for runs and renews leases by the clock, not by the step.
    expect(between('steps', 'end').filter((call) => call === 'other').length).toBeLessThan(50)
    await hf.close()
    monitor?.destroy()
    admin?.destroy()
  })

  it('an operation key that another thread opens again moves with that thread', async () => {
    const store = await openStore()
    const [one, two] = [await createAndClaim(store, 'one'), await createAndClaim(store, 'two')]
    const intend = { kind: 'intend', key: 'k', name: 'send' } as const
    await store.commit([stepping(one, { operation: intend }), stepping(one, { operation: { kind: 'fail', key: 'k' } })])
    await store.commit([stepping(two, { operation: intend })])
    const keysOf = async (threadId: string) =>
      (await store.readThreadImage({ owner: '', threadId }))?.operations.map(({ key }) => key)
    expect([await keysOf('one'), await keysOf('two')]).toEqual([[], ['k']])
    await store.close()
  })

  it('a restore that does not come to its end leaves nothing but keys that expire', async () => {
    const namespace = newNamespace()
    const store = await openStore({ namespace })
    const claim = await createAndClaim(store, 'r')
    await store.commit([stepping(claim, { snapshot: '{}', run: { status: 'paused' } })])
    const whole = await readWholeThread(store, { owner: '', threadId: 'r' })
    const admin = await createClient({ url: server.url }).connect()
    const keys = async () => (await admin.keys('*')).filter((key) => key.includes(`{${namespace}}`)).sort()
    // A damaged value in the last part: what was put down before it stays where it waits.
    const snapshots = [...(whole?.snapshots ?? []), { seq: 1, stateVersion: 0, state: null as never }]
    const before = await keys()
    const moved = { ...whole, thread: { ...whole?.thread, threadId: 'elsewhere' }, snapshots } as WholeThread
    await expect(store.restoreThread(moved)).rejects.toThrow()
    const left = (await keys()).filter((key) => !before.includes(key) && !key.includes(':answer:'))
    expect(left).toEqual([expect.stringContaining(':restoring:')])
    for (const key of left) expect(await admin.ttl(key)).toBeGreaterThan(0)
    expect(await store.readThread({ owner: '', threadId: 'elsewhere' })).toBeNull()
    admin.destroy()
    await store.close()
  })

  it('a damaged record is named, and verifying looks at all others', async () => {
    const url = `${server.url}?namespace=${newNamespace()}`
    const hf = await open(url, { worker: false, logger: false })
    const session = hf.memory.session.of('s')
    await Promise.all(Array.from({ length: 700 }, (_, at) => session.set(`k${at}`, at)))
    expect(await hf.verify()).toMatchObject({ isSound: true, memories: 700 })
    const admin = await createClient({ url: server.url }).connect()
    const rowOf = (key: string) => `holdfast:{${new URL(url).searchParams.get('namespace')}}:record:9:0:session1:s${key}`
    for (const key of ['k0', 'k1']) await admin.hSet(rowOf(key), 'payload', 's{"value":7}')
    await admin.hDel(rowOf('k350'), 'payload')
    const { damaged, memories } = await hf.verify()
    expect(damaged.map(({ message }) => /"1:s(k\d+)"/.exec(message)?.[1])).toEqual(['k0', 'k1', 'k350'])
    expect(memories).toBe(697)
    admin.destroy()
    await hf.close()
  })

  it('reads many runs in one call, and one that is damaged does not hurt those who ask for others', async () => {
    const namespace = newNamespace()
    const store = await openStore({ namespace })
    await store.commit(Array.from({ length: 300 }, (_, index) => creating(`r-${index}`)))
    const admin = await createClient({ url: server.url }).connect()
    await admin.sendCommand(['CONFIG', 'RESETSTAT'])
    const ids = Array.from({ length: 301 }, (_, index) => `r-${index}`)
    const readAll = () => Promise.allSettled(ids.map((runId) => store.readRun({ owner: '', runId })))
    const found = (await readAll()).map((answer) => answer.status === 'fulfilled' && (answer.value?.id ?? null))
    expect(found).toEqual([...ids.slice(0, 300), null])
    expect(String(await admin.info('commandstats'))).toMatch(/cmdstat_evalsha:calls=[23],/)
    await admin.set(`holdfast:{${namespace}}:run:0:r-7`, 'something else')
    const answers = await readAll()
    expect(answers.flatMap((answer, index) => (answer.status === 'rejected' ? [index, answer.reason.code] : []))).toEqual([
      7,
      'corrupt_record',
    ])
    admin.destroy()
    await store.close()
  })

  it('keeps namespaces of one server apart', async () => {
    const [one, two] = [await openStore(), await openStore()]
    await one.commit([creating('r')])
    expect(await two.readRun({ owner: '', runId: 'r' })).toBeNull()
    expect(await two.claim(claimRequest())).toEqual([])
    await one.close()
    await two.close()
  })

  it('gives every key of a namespace the same hash tag, and an end to all that is not data', async () => {
    const namespace = newNamespace()
    const store = await openStore({ namespace })
    await store.commit([stepping(await createAndClaim(store, 'r'), { snapshot: '{}', label: 'x' })])
    const admin = await createClient({ url: server.url }).connect()
    const keys = (await admin.keys('*')).filter((key) => key.includes(namespace))
    expect(keys.filter((key) => !key.startsWith(`holdfast:{${namespace}}:`))).toEqual([])
    for (const key of keys) expect([key, (await admin.ttl(key)) > 0]).toEqual([key, key.includes(':answer:')])
    admin.destroy()
    await store.close()
  })

  it('a claim does not look at runs that are not due, however many there are', async () => {
    const store = await openStore()
    const claimOften = async () => {
      const startedAt = performance.now()
      for (let count = 0; count < 200; count++) expect(await store.claim(claimRequest())).toEqual([])
      return performance.now() - startedAt
    }
    const whileEmptyMs = await claimOften()
    for (let batch = 0; batch < 10; batch++) {
      const later = (_: unknown, index: number) =>
        creating(`later-${batch}-${index}`, { due: { inMs: 3_600_000 + index }, priority: index % 3 })
      await store.commit(Array.from({ length: 500 }, later))
    }
    // A claim that looked at 5,000 runs would take many times as long; what else the machine does slows both.
    expect(await claimOften()).toBeLessThan(whileEmptyMs * 5 + patience(500))
    await store.commit([creating('now', { priority: -5 })])
    expect((await store.claim(claimRequest())).map(({ run }) => run.id)).toEqual(['now'])
    await store.close()
  })

  it('a claim wakes a bounded part of what is overdue; all of it comes, in order of time', async () => {
    const clock = createTestClock()
    const store = await openStore({ clockOffsetMs: clock.clockOffsetMs })
    const [count, dueAt] = [5_000, (await store.now()) + 3_600_000]
    for (let from = 0; from < count; from += 500) {
      const later = (_: unknown, index: number) => creating(`r-${from + index}`, { due: { at: dueAt + from + index } })
      await store.commit(Array.from({ length: 500 }, later))
    }
    clock.advance(2 * 3_600_000)
    const admin = await createClient({ url: server.url }).connect()
    const ids: string[] = []
    let most = 0
    for (let found = 1; found > 0; ) {
      await admin.sendCommand(['CONFIG', 'RESETSTAT'])
      const claims = await store.claim(claimRequest({ limit: 250, leaseMs: 600_000 }))
      most = Math.max(most, await commandsInScripts(admin))
      found = claims.length
      ids.push(...claims.map(({ run }) => run.id))
    }
    expect(ids).toEqual(Array.from({ length: count }, (_, index) => `r-${index}`))
    // Without a bound the first claim takes some 30,000.
    expect(most).toBeLessThan(5_000)
    admin.destroy()
    await store.close()
  })

  it.each([
    ['queues without settings', {}],
    ['queues with a limit', { concurrency: 10 }],
  ])('a claim takes as many commands among two thousand %s as in one', async (_, settings) => {
    const admin = await createClient({ url: server.url }).connect()
    const commandsPerClaim = async (queueCount: number, isAsleep: boolean) => {
      const store = await openStore()
      const queueAt = (index: number) => `q-${index % queueCount}`
      for (let index = 0; index < queueCount; index++) {
        if ('concurrency' in settings) await store.setQueue({ name: queueAt(index), ...settings })
      }
      const due = { inMs: isAsleep ? 3_600_000 : 0 }
      for (let from = 0; from < 2_000; from += 500) {
        const queued = (_: unknown, index: number) => creating(`r-${from + index}`, { queue: queueAt(from + index), due })
        await store.commit(Array.from({ length: 500 }, queued))
      }
      await store.claim(claimRequest({ limit: 1 }))
      if (isAsleep)
        await store.commit(Array.from({ length: 5 }, (_, index) => creating(`due-${index}`, { queue: queueAt(index) })))
      await admin.sendCommand(['CONFIG', 'RESETSTAT'])
      expect(await store.claim(claimRequest({ limit: 5 }))).toHaveLength(5)
      const commands = await commandsInScripts(admin)
      await store.close()
      return commands
    }
    expect(await commandsPerClaim(2_000, true)).toBeLessThan(3 * (await commandsPerClaim(1, true)))
    expect(await commandsPerClaim(2_000, false)).toBeLessThan(3 * (await commandsPerClaim(1, false)))
    admin.destroy()
  })

  it('reads a long log and long lists in pieces', async () => {
    const store = await openStore()
    const claim = await createAndClaim(store, 'r')
    const payload = `"${'x'.repeat(20_000)}"`
    for (let batch = 0; batch < 6; batch++) {
      await store.commit(
        Array.from({ length: 200 }, () => stepping(claim, { events: [event('step_completed', { step: 's', payload })] })),
      )
    }
    const log = await store.readLog({ owner: '', threadId: 'r' })
    expect(log.map(({ seq }) => seq)).toEqual(Array.from({ length: 1_201 }, (_, index) => index + 1))
    expect(await store.listCheckpoints({ owner: '', threadId: 'r' })).toHaveLength(1_201)
    expect(await store.readLog({ owner: '', threadId: 'r', types: ['run_queued'] })).toHaveLength(1)
    await store.commit(
      Array.from({ length: 3_000 }, (_, index) => creating(`many-${index}`, { queue: index === 5 ? 'rare' : 'default' })),
    )
    // Single records that are asked for at once are gathered, also when they are too many for one answer.
    const positions = log.map(({ seq }) => seq).slice(0, 600)
    const one = async (seq: number) => (await store.readLog({ owner: '', threadId: 'r', afterSeq: seq - 1, toSeq: seq }))[0]
    expect(await Promise.all(positions.map(one))).toEqual(log.slice(0, 600))
    expect(await one(log.length + 1)).toBeUndefined()
    const { items } = await store.listRuns({ owner: '', queue: 'rare', limit: 3 })
    expect(items.map(({ id }) => id)).toEqual(['many-5'])
    await store.close()
  })

  it('cuts a batch of enormous values, and answers for all of it', { timeout: patience(120_000) }, async () => {
    const store = await openStore({ url: cluster.url, durability: 'relaxed' })
    const claim = await createAndClaim(store, 'r')
    const payload = `"${'x'.repeat(18_000_000)}"`
    const large = (step: string) => stepping(claim, { events: [event('step_completed', { step, payload })] })
    const answers = await store.commit(['a', 'b', 'c', 'd', 'e'].map(large))
    expect(answers.map((answer) => answer.ok && answer.lastSeq)).toEqual([2, 3, 4, 5, 6])
    const log = await store.readLog({ owner: '', threadId: 'r', types: ['step_completed'] })
    expect(log.map(({ step, payload }) => [step, payload?.length])).toEqual(
      ['a', 'b', 'c', 'd', 'e'].map((step) => [step, 18_000_002]),
    )
    await store.deleteThread({ owner: '', threadId: 'r', at: 1 })
    await store.close()
  })

  it('tells other processes by name of what they may wait for, and soon of progress', async () => {
    const namespace = newNamespace()
    const [writer, listener] = [await openStore({ namespace }), await openStore({ namespace })]
    const heard: Hint[] = []
    const end = listener.subscribe?.((hint) => heard.push(hint))
    await expect
      .poll(async () => {
        await writer.commit([creating(`first-${heard.length}`)])
        return heard.length
      })
      .toBeGreaterThan(0)
    const claim = (await writer.claim(claimRequest()))[0] as Awaited<ReturnType<typeof createAndClaim>>
    const { id } = claim.run
    await writer.commit([creating('r')])
    await expect.poll(() => heard).toContainEqual({ owner: '', threadId: 'r', runId: 'r', isClaimable: true })
    await writer.deliver({ owner: '', runId: id, kind: 'signal', name: null, payload: null })
    await expect.poll(() => heard).toContainEqual({ owner: '', runId: id, hasMail: true, isClaimable: true })
    const message = { owner: '', runId: 'r', kind: 'signal', name: null, payload: null }
    await writer.commit([stepping(claim, { delivers: [message] })])
    await expect.poll(() => heard).toContainEqual({ owner: '', runId: 'r', hasMail: true, isClaimable: true })
    await writer.commit([stepping(claim)])
    await expect.poll(() => heard).toContainEqual({ owner: '', threadId: id, runId: id })
    end?.()
    const count = heard.length
    await writer.commit([creating('s')])
    await new Promise((resolve) => setTimeout(resolve, 50))
    expect(heard).toHaveLength(count)
    await writer.close()
    await listener.close()
  })

  it('tells this process once, and at once', async () => {
    const store = await openStore()
    const hints: Hint[] = []
    store.subscribe?.((hint) => hints.push(hint))
    await store.commit([creating('here')])
    expect(hints.filter(({ runId }) => runId === 'here')).toHaveLength(1)
    await new Promise((resolve) => setTimeout(resolve, 100))
    expect(hints.filter(({ runId }) => runId === 'here')).toHaveLength(1)
    await store.close()
  })
})

describe("redis on a user's own client", () => {
  const clients: Record<string, () => Promise<{ client: RedisClientLike; ping: () => Promise<unknown>; end: () => unknown }>> = {
    'of redis': async () => {
      const client = await createClient({ url: server.url }).connect()
      return { client, ping: () => client.ping(), end: () => client.destroy() }
    },
    'of ioredis': async () => {
      const client = new Redis(server.port, '127.0.0.1')
      await client.ping()
      return { client, ping: () => client.ping(), end: () => client.disconnect() }
    },
    'of redis, for a cluster': async () => {
      const client = await createCluster({ rootNodes: [{ url: cluster.url }] }).connect()
      return { client, ping: () => client.set('a', '1'), end: () => client.destroy() }
    },
    'of ioredis, for a cluster': async () => {
      const client = new Cluster([{ port: cluster.port, host: '127.0.0.1' }])
      await client.set('a', '1')
      return { client, ping: () => client.set('a', '1'), end: () => client.disconnect() }
    },
  }
  for (const [kind, connect] of Object.entries(clients)) {
    it(`works over a client ${kind}, and leaves it open`, async () => {
      const { client, ping, end } = await connect()
      const store = await openRedisStore({ client, namespace: newNamespace(), durability: 'relaxed' })
      await store.migrate()
      const heard: Hint[] = []
      store.subscribe?.((hint) => heard.push(hint))
      const claim = await createAndClaim(store, 'r')
      expect(claim.input).toBe('"input of r"')
      await store.commit([stepping(claim, { events: [event('step_completed', { payload: new Uint8Array([0, 255]) })] })])
      const log = await store.readLog({ owner: '', threadId: 'r' })
      expect(log[1]?.payload).toEqual(new Uint8Array([0, 255]))
      expect(heard.length).toBeGreaterThan(0)
      await store.close()
      await ping()
      await end()
    })
  }

  it('refuses something else', async () => {
    const opening = openRedisStore({ client: { isReady: true } as never, durability: 'full' })
    await expect(opening).rejects.toMatchObject({ code: 'invalid_url' })
  })

  it('is store_unavailable while the client is not connected', async () => {
    const client = createClient({ url: server.url })
    await expect(openRedisStore({ client, durability: 'full' })).rejects.toMatchObject({ code: 'store_unavailable' })
  })
})
