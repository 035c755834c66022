import { afterAll, beforeAll, describe, it } from 'vitest'
import { createMemoryStore } from '../../src/stores/memory/memory-store.ts'
import { openRedisStore } from '../../src/stores/redis/redis-store.ts'
import { compareStores, createTestClock, testStore } from '../../src/testing/index.ts'
import { type RedisServer, startRedis } from '../servers/redis.ts'

let server: RedisServer
let namespaceCount = 0

beforeAll(async () => {
  server = await startRedis({ fsync: 'always' })
})

afterAll(() => server.stop())

testStore('redis', {
  open: async ({ clockOffsetMs }) => {
    const namespace = `test-${++namespaceCount}`
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

describe('redis', () => {
  it('does what the memory store does, whatever the seed', { timeout: 120_000 }, async () => {
    for (const seed of [1, 2, 3]) {
      const clock = createTestClock()
      const reference = createMemoryStore(clock)
      const namespace = `compare-${++namespaceCount}`
      const candidate = await openRedisStore({ url: server.url, namespace, durability: 'full', clockOffsetMs: clock.clockOffsetMs })
      await candidate.migrate()
      await compareStores(reference, candidate, { seed, operations: 2_000, clock })
      await candidate.close()
    }
  })
})
