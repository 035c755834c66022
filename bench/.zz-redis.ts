import { open, workflow } from 'holdfast'
import { createClient } from 'redis'
import { openRedisStore } from '../src/stores/redis/redis-store.ts'
import { startRedis } from '../test/servers/redis.ts'

const fsync = (process.argv[2] ?? 'always') as 'always' | 'everysec'
const server = await startRedis({ fsync })
const floorClient = await createClient({ url: server.url }).connect()
const body = JSON.stringify({ type: 'step_completed', step: 's', at: Date.now(), pad: 'x'.repeat(60) })
async function floor(n: number) {
  const t = performance.now()
  for (let i = 0; i < n; i++)
    await floorClient
      .multi()
      .rPush('{f}log', [body, body])
      .hSet('{f}thread', 'head', String(i))
      .hSet('{f}run', { step: 's', until: String(i) })
      .exec()
  return ((performance.now() - t) * 1000) / n
}
const store = await openRedisStore({ url: server.url, durability: fsync === 'always' ? 'full' : 'relaxed' })
const hf = await open(store, { worker: { concurrency: 500 } })
let us = 0
const lone = workflow('lone', async (ctx, n: number) => {
  await ctx.step('s', () => 0)
  const t = performance.now()
  for (let i = 0; i < n; i++) await ctx.step('s', () => i)
  us = ((performance.now() - t) * 1000) / n
})
const med = (a: number[]) => a.toSorted((x, y) => x - y)[a.length >> 1]!
await hf.run(lone, 300)
await floor(300)
const L: number[] = [],
  F: number[] = []
const N = 200
for (let i = 0; i < 9; i++) {
  F.push(await floor(N))
  await hf.run(lone, N)
  L.push(us)
}
console.log(
  fsync,
  'lone floor',
  med(F).toFixed(0),
  'engine',
  med(L).toFixed(0),
  'ratio',
  med(L.map((l, i) => l / F[i]!)).toFixed(2),
)
const q = await openRedisStore({ url: server.url, durability: fsync === 'always' ? 'full' : 'relaxed' })
const client = await open(q, { worker: false })
const R: number[] = [],
  T: number[] = [],
  G: number[] = []
for (let round = 0; round < 9; round++) {
  const name = `load${round}`
  let firstAt = 0,
    lastAt = 0
  const wf = workflow(name, async (ctx) => {
    firstAt ||= performance.now()
    for (let i = 0; i < 10; i++) await ctx.step('s', () => i)
    lastAt = performance.now()
    return 'done'
  })
  const ids = Array.from({ length: 500 }, (_, i) => `${name}-${i}`)
  const t0 = performance.now()
  await Promise.all(ids.map((id) => client.start(name, undefined, { id })))
  const startMs = performance.now() - t0
  const handles = await Promise.all(ids.map((id) => hf.runs.get(id)))
  const f = await floor(N)
  const t = performance.now()
  hf.register(wf)
  await Promise.all(handles.map((h) => h.result()))
  const ms = performance.now() - t
  const rate = (5000 / ms) * 1000
  if (round > 1) {
    R.push(rate)
    G.push(rate / (1e6 / f))
    T.push(((5000 / (lastAt - firstAt)) * 1000) / (1e6 / f))
  }
  if (round === 8) console.log('start', startMs.toFixed(0), 'ms; steps', ((5000 / (lastAt - firstAt)) * 1000).toFixed(0))
}
console.log(fsync, '500x10', med(R).toFixed(0), 'steps/s; ratio all', med(G).toFixed(2), 'steps only', med(T).toFixed(2))
await hf.close()
await client.close()
await store.close()
await q.close()
floorClient.destroy()
await server.stop()
