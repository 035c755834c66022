import { createClient } from 'redis'
import { openRedisStore } from '../src/stores/redis/redis-store.ts'
import { startRedis } from '../test/servers/redis.ts'
import { claimRequest, creating, event } from '../test/stores/sqlite-scene.ts'

const fsync = (process.argv[2] ?? 'everysec') as 'always' | 'everysec'
const server = await startRedis({ fsync })
const store = await openRedisStore({ url: server.url, durability: 'relaxed' })
await store.migrate()
const admin = await createClient({ url: server.url }).connect()
const size = Number(process.argv[3] ?? 500)
await store.commit(Array.from({ length: size }, (_, i) => creating(`run-${i}`)))
const claims = await store.claim(claimRequest({ limit: size }))
const step = (c: any) =>
  ({
    owner: '',
    threadId: c.run.threadId,
    runId: c.run.id,
    guard: { kind: 'lease', epoch: 1, leaseId: c.leaseId },
    isCheckpoint: true,
    events: [
      event('step_started', { step: 's', count: 1, attempt: 1 }),
      event('step_completed', { step: 's', count: 1, attempt: 1, durationMs: 0, payload: '{"result":1}' }),
    ],
    run: { currentStep: null, leaseMs: 10_000, hasProgress: true },
  }) as any
async function stats() {
  const t = await admin.info('commandstats')
  const m = /cmdstat_evalsha:calls=(\d+),usec=(\d+)/.exec(t)!
  return { calls: +m[1]!, usec: +m[2]! }
}
const srvcpu = async () => {
  const t = await admin.info('cpu')
  return (+/used_cpu_user:([\d.]+)/.exec(t)![1]! + +/used_cpu_sys:([\d.]+)/.exec(t)![1]!) * 1e6
}
for (let i = 0; i < 20; i++) await store.commit(claims.map(step))
for (let round = 0; round < 3; round++) {
  const s0 = await stats(),
    c0 = process.cpuUsage(),
    v0 = await srvcpu(),
    t0 = performance.now()
  const n = Math.ceil(20000 / size)
  for (let i = 0; i < n; i++) await store.commit(claims.map(step))
  const t = performance.now() - t0,
    c = process.cpuUsage(c0),
    s1 = await stats(),
    v1 = await srvcpu()
  const steps = n * size
  console.log(
    `batch ${size}: wall ${((t * 1000) / steps).toFixed(1)} µs/step; node cpu ${((c.user + c.system) / steps).toFixed(1)}; script ${((s1.usec - s0.usec) / steps).toFixed(1)}; server cpu ${((v1 - v0) / steps).toFixed(1)}; ${((steps / t) * 1000).toFixed(0)} steps/s`,
  )
}
await store.close()
admin.destroy()
await server.stop()
