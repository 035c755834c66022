import { open, workflow } from 'holdfast'
import { openRedisStore } from '../src/stores/redis/redis-store.ts'
import { startRedis } from '../test/servers/redis.ts'
import { createClient } from 'redis'
const server = await startRedis({ fsync: 'everysec' })
const store = await openRedisStore({ url: server.url, durability: 'relaxed' })
const sizes: number[] = []
let inCommit = 0
const wrapped = { ...store, commit: async (c: any) => { sizes.push(c.length); const t = performance.now(); const r = await store.commit(c); inCommit += performance.now() - t; return r } }
const hf = await open(wrapped as any, { worker: { concurrency: 500 } })
const q = await open(await openRedisStore({ url: server.url, durability: 'relaxed' }), { worker: false })
const admin = await createClient({ url: server.url }).connect()
for (let round = 0; round < 6; round++) {
  const name = `load${round}`
  const wf = workflow(name, async (ctx) => { for (let i = 0; i < 10; i++) await ctx.step('s', () => i); return 'done' })
  const ids = Array.from({ length: 500 }, (_, i) => `${name}-${i}`)
  await Promise.all(ids.map((id) => q.start(name, undefined, { id })))
  const handles = await Promise.all(ids.map((id) => hf.runs.get(id)))
  sizes.length = 0; inCommit = 0
  await admin.configResetStat()
  const c0 = process.cpuUsage()
  const t = performance.now()
  hf.register(wf)
  await Promise.all(handles.map((h) => h.result()))
  const ms = performance.now() - t
  const c = process.cpuUsage(c0)
  const stat = (await admin.info('commandstats')).split('\r\n').filter((l) => /evalsha/.test(l))[0]
  console.log(`${(5000 / ms * 1000).toFixed(0)} steps/s; ${ms.toFixed(0)} ms; node cpu ${((c.user + c.system) / 1000).toFixed(0)} ms; in commit ${inCommit.toFixed(0)} ms; batches ${sizes.join(' ')}; ${stat}`)
}
await hf.close(); await q.close(); await store.close(); admin.destroy(); await server.stop(); process.exit(0)
