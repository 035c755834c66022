import ioredis from 'ioredis-5'
import { createClient as createNewest } from 'redis'
import { createClient } from 'redis-5'
import { afterAll, beforeAll, expect, it, vi } from 'vitest'
import { openRedisStore, type RedisClientLike, type RedisStoreOptions } from '../../src/stores/redis/redis-store.ts'
import { testStore } from '../../src/testing/store-suite/index.ts'
import { type RedisServer, startRedis } from '../servers/redis.ts'
import { createAndClaim, stepping } from './sqlite-scene.ts'

/**
 * The oldest versions of the client libraries that Holdfast takes. The newest ones are what redis.test.ts installs by their own names. The
 * server is the redis-server of Debian, 7.0 in Debian 12, which has no package of Valkey.
 */

// Here the package `redis` is version 5.0.0, as it is for a user who has installed that.
vi.mock('redis', () => import('redis-5'))

/** What a client carries: scripts with bytes in both directions, many at once, answers of every shape, and what a broken one would mix up. */
const parts = ['leases', 'history', 'payloads', 'moving', 'concurrency'] as const
let server: RedisServer
let namespaceCount = 0
const ends: (() => unknown)[] = []

beforeAll(async () => {
  server = await startRedis({ fsync: 'everysec' })
})

afterAll(async () => {
  for (const end of ends) await end()
  await server.stop()
})

const ways: Readonly<Record<string, () => Promise<Pick<RedisStoreOptions, 'url' | 'client'>>>> = {
  'by its URL, with redis 5.0.0': async () => ({ url: server.url }),
  'over a client of redis 5.0.0': once(async () => {
    const client = createClient({ url: server.url })
    await client.connect()
    ends.push(() => client.destroy())
    return { client: client as RedisClientLike }
  }),
  'over a client of ioredis 5.0.0': once(async () => {
    const client = new ioredis.default(server.port, '127.0.0.1')
    await client.ping()
    ends.push(() => client.disconnect())
    return { client: client as RedisClientLike }
  }),
}

for (const [way, connect] of Object.entries(ways)) {
  testStore(`redis ${way}`, {
    // By its URL it is the same client as in the next way, opened by Holdfast.
    parts: way.startsWith('by its URL') ? ['payloads', 'concurrency'] : parts,
    open: async ({ clockOffsetMs }) => {
      const namespace = `clients-${++namespaceCount}`
      const open = async () => openRedisStore({ ...(await connect()), namespace, durability: 'relaxed', clockOffsetMs })
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

  it(`redis ${way} tells others of what was written`, async () => {
    const namespace = `clients-${++namespaceCount}`
    const [one, two] = [
      await openRedisStore({ ...(await connect()), namespace, durability: 'relaxed' }),
      await openRedisStore({ ...(await connect()), namespace, durability: 'relaxed' }),
    ]
    await one.migrate()
    await two.migrate()
    const claim = await createAndClaim(one, 'r')
    let isHeard = false
    two.subscribe?.(({ runId }) => {
      isHeard ||= runId === 'r'
    })
    // Who listens is not there at once.
    await vi.waitUntil(async () => {
      await one.commit([stepping(claim, { run: { status: 'paused', reason: 'asked', setsEnd: true } })])
      return isHeard
    })
    await one.close()
    await two.close()
  })
}

it('the package redis is the version that is tested here', () => {
  expect(createNewest).toBe(createClient)
})

function once<Made>(make: () => Promise<Made>): () => Promise<Made> {
  let made: Promise<Made> | undefined
  return () => {
    made ??= make()
    return made
  }
}
