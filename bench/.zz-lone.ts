import { openRedisStore } from '../src/stores/redis/redis-store.ts'
import { startRedis } from '../test/servers/redis.ts'
import { createAndClaim, event, stepping } from '../test/stores/sqlite-scene.ts'
const server = await startRedis({ fsync: 'everysec' })
const store = await openRedisStore({ url: server.url, durability: 'relaxed' })
await store.migrate()
const claim = await createAndClaim(store, 'r')
const two = () => [event('step_started', { step: 's', count: 1, attempt: 1 }), event('step_completed', { step: 's', count: 1, attempt: 1, durationMs: 0, payload: '{"result":1}' })]
const step = (cl: any) => stepping(cl, { events: two(), run: { currentStep: null, leaseMs: 60_000, hasProgress: true } })
for (let i = 0; i < 10000; i++) await store.commit([step(claim)])
await store.close(); await server.stop()
