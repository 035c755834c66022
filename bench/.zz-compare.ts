import { createMemoryStore } from '../src/stores/memory/memory-store.ts'
import { openRedisStore } from '../src/stores/redis/redis-store.ts'
import { compareStores } from '../src/testing/compare-stores.ts'
import { createTestClock } from '../src/testing/test-clock.ts'
import { startRedis } from '../test/servers/redis.ts'
const server = await startRedis({ fsync: 'everysec' })
const [from, to, operations] = process.argv.slice(2).map(Number) as [number, number, number]
for (let seed = from; seed <= to; seed++) {
  for (let attempt = 1; ; attempt++) {
    const clock = createTestClock()
    const store = await openRedisStore({ url: server.url, namespace: `c${seed}-${attempt}`, durability: 'relaxed', clockOffsetMs: clock.clockOffsetMs })
    await store.migrate()
    try { const r = await compareStores(createMemoryStore(clock), store, { seed, operations, clock }); console.log(seed, 'same', Object.keys(r.kinds).length); break }
    catch (error) { console.log(seed, attempt, String(error).slice(0, 300)); if (attempt === 3) { console.log(String(error).slice(0, 6000)); process.exit(1) } }
    finally { await store.close() }
  }
}
await server.stop()
