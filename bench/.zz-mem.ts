import { createClient } from 'redis'
import { openRedisStore } from '../src/stores/redis/redis-store.ts'
import { startRedis } from '../test/servers/redis.ts'
import { creating, claimRequest, event } from '../test/stores/sqlite-scene.ts'
import { statSync, readdirSync } from 'node:fs'
const server = await startRedis({ fsync: 'everysec' })
const store = await openRedisStore({ url: server.url, durability: 'relaxed' })
await store.migrate()
const c = await createClient({ url: server.url }).connect()
const mem = async () => +/used_memory:(\d+)/.exec(await c.info('memory'))![1]!
const aof = async () => +/aof_current_size:(\d+)/.exec(await c.info('persistence'))![1]!
const leased = (cl: any, f: any) => ({ owner: '', threadId: cl.run.threadId, runId: cl.run.id, guard: { kind: 'lease', epoch: 1, leaseId: cl.leaseId }, isCheckpoint: true, ...f })
const two = () => [event('step_started', { step: 's', count: 1, attempt: 1 }), event('step_completed', { step: 's', count: 1, attempt: 1, durationMs: 0, payload: '{"result":1}' })]
const m0 = await mem(), a0 = await aof()
const N = 5000
for (let b = 0; b < N / 250; b++) {
  await store.commit(Array.from({ length: 250 }, (_, i) => creating(`run-${b}-${i}`, { fingerprint: 'f'.repeat(43) })))
  const claims = await store.claim(claimRequest({ limit: 250, leaseMs: 10_000 }))
  if (b === 0) console.log('before steps', ((await mem()) - m0) / 250)
  for (let s = 0; s < 10; s++) await store.commit(claims.map((cl) => leased(cl, { events: two(), run: { currentStep: null, leaseMs: 10_000, startsTape: s === 0, hasProgress: true } })))
  await store.commit(claims.map((cl) => leased(cl, { events: [event('run_completed', { payload: '"done"' })], run: { status: 'completed', reason: null, setsEnd: true, currentStep: null, leaseMs: 10_000, hasProgress: true } })))
}
console.log('memory a run of 10 steps', ((await mem()) - m0) / N, 'bytes; AOF', ((await aof()) - a0) / N)
for (const k of ['run:0:run-0-1', 'thread:0:run-0-1', 'log:0:run-0-1', 'runs:0:run-0-1']) console.log(k, await c.memoryUsage('holdfast:{default}:' + k), await c.objectEncoding('holdfast:{default}:' + k))
await store.close(); c.destroy(); await server.stop()
