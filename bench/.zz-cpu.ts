import { createClient } from 'redis'
import { Redis } from 'ioredis'
import { open, workflow } from 'holdfast'
import { openRedisStore } from '../src/stores/redis/redis-store.ts'
import { startRedis } from '../test/servers/redis.ts'
import { createAndClaim, event, stepping } from '../test/stores/sqlite-scene.ts'
const server = await startRedis({ fsync: 'everysec' })
const store = await openRedisStore({ url: server.url, durability: 'relaxed' })
await store.migrate()
const c = await createClient({ url: server.url, RESP: 2 }).connect()
const io = new Redis(server.port)
await io.ping()
const ioStore = await openRedisStore({ client: io, durability: 'relaxed', namespace: 'io' })
await ioStore.migrate()
const claim = await createAndClaim(store, 'r')
const ioClaim = await createAndClaim(ioStore, 'r')
const two = () => [event('step_started', { step: 's', count: 1, attempt: 1 }), event('step_completed', { step: 's', count: 1, attempt: 1, durationMs: 0, payload: '{"result":1}' })]
const step = (cl: any) => stepping(cl, { events: two(), run: { currentStep: null, leaseMs: 60_000, hasProgress: true } })
const body = 'x'.repeat(100)
const srv = async () => { const t = await c.info('cpu'); return (+/used_cpu_user:([\d.]+)/.exec(t)![1]! + +/used_cpu_sys:([\d.]+)/.exec(t)![1]!) * 1e6 }
const hf = await open(store, { worker: {} })
const n = 1000
const lone = workflow('lone', async (ctx, n: number) => { for (let i = 0; i < n; i++) await ctx.step('s', () => i) })
const sha = await c.scriptLoad('#!lua\nreturn 1')
const cases: Record<string, () => Promise<unknown>> = {
  ping: async () => { for (let i = 0; i < n; i++) await c.ping() },
  'empty evalsha': async () => { for (let i = 0; i < n; i++) await c.sendCommand(['EVALSHA', sha, '0']) },
  'multi of 3 (redis)': async () => { for (let i = 0; i < n; i++) await c.multi().rPush('{f}log', [body, body]).hSet('{f}thread', 'head', String(i)).hSet('{f}run', { step: 's', until: String(i) }).exec() },
  'multi of 3 (ioredis)': async () => { for (let i = 0; i < n; i++) await io.multi().rpush('{f}log', body, body).hset('{f}thread', 'head', String(i)).hset('{f}run', { step: 's', until: String(i) }).exec() },
  'store.commit (redis)': async () => { for (let i = 0; i < n; i++) await store.commit([step(claim)]) },
  'store.commit (ioredis)': async () => { for (let i = 0; i < n; i++) await ioStore.commit([step(ioClaim)]) },
  engine: () => hf.run(lone, n),
}
for (let round = 0; round < 4; round++)
  for (const [name, f] of Object.entries(cases)) {
    const v0 = await srv(), c0 = process.cpuUsage(), t0 = performance.now()
    await f()
    const t = performance.now() - t0, cpu = process.cpuUsage(c0), v1 = await srv()
    if (round > 1) console.log(name.padEnd(24), `wall ${(t * 1000 / n).toFixed(0)}; node cpu ${((cpu.user + cpu.system) / n).toFixed(0)} (sys ${(cpu.system / n).toFixed(0)}); server cpu ${((v1 - v0) / n).toFixed(0)} µs`)
  }
await hf.close(); await store.close(); await ioStore.close(); io.disconnect(); c.destroy(); await server.stop(); process.exit(0)
