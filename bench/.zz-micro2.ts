import { createClient } from 'redis'
import { startRedis } from '../test/servers/redis.ts'
import { commitScript } from '../src/stores/redis/scripts/commit.ts'
import { openRedisStore } from '../src/stores/redis/redis-store.ts'
import { creating, claimRequest, event } from '../test/stores/sqlite-scene.ts'
const server = await startRedis({ fsync: 'everysec' })
const c = await createClient({ url: server.url }).connect()
const store = await openRedisStore({ url: server.url, durability: 'relaxed' })
await store.migrate()
await store.commit([creating('run-0')])
const [claim] = await store.claim(claimRequest({ limit: 1, leaseMs: 10_000_000 }))
const { Packer } = await import('../src/stores/redis/pack.ts')
const life = await c.get('holdfast:{default}:life')
const text = commitScript.text
const cut = (marker: string, n = 0) => { const i = text.indexOf(marker); return text.slice(0, i) + ' do return 1 end ' + text.slice(i) }
const pk = new Packer()
pk.array(1).array(13).number(1).text('0:run-0').text('0:run-0').text('1').text(claim!.leaseId).text('').number(1).number(10_000_000).boolean(false).number(123456789).text('-' + 'x'.repeat(80)).number(123456789).text('-' + 'x'.repeat(100))
const packed = pk.end()
const cases: Record<string, string> = {
  'opening': cut('local time = call'),
  'clock': cut('local slot = P'),
  'once': cut("local changes = cmsgpack"),
  'unpack': cut("local function append"),
  'functions': cut("local answer = { string.format"),
  'all but keep': text.replace('return keep(answer)', 'return answer'),
  'all': text,
}
let n = 100
for (let round = 0; round < 3; round++)
for (const [name, t] of Object.entries(cases)) {
  const sha = await c.scriptLoad(t)
  await c.configResetStat()
  const t0 = performance.now()
  let r
  for (let i = 0; i < 1000; i++) r = await c.sendCommand(['EVALSHA', sha, '1', 'holdfast:{default}:life', life!, '0', 'me:0', String(++n).padStart(16, '0'), '', packed as never])
  const ms = performance.now() - t0
  const m = /cmdstat_evalsha:calls=(\d+),usec=(\d+)/.exec(await c.info('commandstats'))!
  if (round > 0) console.log(name.padEnd(20), 'script', (+m[2]! / 1000).toFixed(1), 'µs; wall', ms.toFixed(0), r)
}
await store.close(); c.destroy(); await server.stop()
