import { createClient } from 'redis'
import { openRedisStore } from '../src/stores/redis/redis-store.ts'
import { startRedis } from '../test/servers/redis.ts'
import { creating, claimRequest, event } from '../test/stores/sqlite-scene.ts'
const server = await startRedis({ fsync: 'everysec' })
const store = await openRedisStore({ url: server.url, durability: 'relaxed' })
await store.migrate()
const admin = await createClient({ url: server.url }).connect()
const leased = (c: any, f: any) => ({ owner: '', threadId: c.run.threadId, runId: c.run.id, guard: { kind: 'lease', epoch: 1, leaseId: c.leaseId }, isCheckpoint: true, ...f })
const two = () => [event('step_started', { step: 's', count: 1, attempt: 1 }), event('step_completed', { step: 's', count: 1, attempt: 1, durationMs: 0, payload: '{"result":1}' })]
async function timed<T>(name: string, n: number, f: () => Promise<T>): Promise<T> {
  await admin.configResetStat()
  const c0 = process.cpuUsage()
  const r = await f()
  const c = process.cpuUsage(c0)
  const m = /cmdstat_evalsha:calls=(\d+),usec=(\d+)/.exec(await admin.info('commandstats'))!
  results[name] ??= []
  results[name]!.push(`${(+m[2]! / n).toFixed(1)}/${((c.user + c.system) / n).toFixed(0)}`)
  return r
}
const results: Record<string, string[]> = {}
for (let round = 0; round < 8; round++) {
  const N = 250
  await timed('create', N, () => store.commit(Array.from({ length: N }, (_, i) => creating(`run-${round}-${i}`))))
  const claims = await timed('claim', N, () => store.claim(claimRequest({ limit: N, leaseMs: 10_000 })))
  await timed('first', N, () => store.commit(claims.map((c) => leased(c, { events: two(), run: { currentStep: null, leaseMs: 10_000, startsTape: true, hasProgress: true } }))))
  await timed('step', N, () => store.commit(claims.map((c) => leased(c, { events: two(), run: { currentStep: null, leaseMs: 10_000, hasProgress: true } }))))
  await timed('last', N, () => store.commit(claims.map((c) => leased(c, { events: [event('run_completed', { payload: '"done"' })], run: { status: 'completed', reason: null, setsEnd: true, currentStep: null, leaseMs: 10_000, hasProgress: true } }))))
  await timed('readRun', N, () => Promise.all(claims.map((c) => store.readRun({ owner: '', runId: c.run.id }))))
  await timed('readLog', N, () => Promise.all(claims.map((c) => store.readLog({ owner: '', threadId: c.run.threadId, afterSeq: 5 }))))
}
for (const [k, v] of Object.entries(results)) console.log(k.padEnd(8), 'server/node µs each:', v.join(' '))
await store.close(); admin.destroy(); await server.stop()
