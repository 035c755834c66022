import { createClient } from 'redis'
import { openRedisStore } from '../src/stores/redis/redis-store.ts'
import { commitScript } from '../src/stores/redis/scripts/commit.ts'
import { Packer } from '../src/stores/redis/pack.ts'
import { startRedis } from '../test/servers/redis.ts'
import { creating, claimRequest } from '../test/stores/sqlite-scene.ts'
const server = await startRedis({ fsync: 'everysec' })
const store = await openRedisStore({ url: server.url, durability: 'relaxed' })
await store.migrate()
const c = await createClient({ url: server.url }).connect()
const life = await c.get('holdfast:{default}:life')
const N = 250
await store.commit(Array.from({ length: N }, (_, i) => creating(`run-${i}`)))
const claims = await store.claim(claimRequest({ limit: N, leaseMs: 10_000_000 }))
const pk = new Packer(); pk.array(N)
for (const x of claims) pk.array(13).number(1).text('0:' + x.run.id).text('0:' + x.run.id).text('1').text(x.leaseId).text('').number(0).number(10_000_000).boolean(false).number(123456789).text('-' + 'x'.repeat(80)).number(123456789).text('-' + 'x'.repeat(100))
const packed = pk.end()
const text = commitScript.text
const at = (marker: string) => { const i = text.indexOf(marker); return text.slice(0, i) + ' do return 1 end ' + text.slice(i) }
const cases: Record<string, string> = {
  'to unpack': at('local function append'),
  'no append': text.replace("local first = append(c[3], tonumber(r[4]), c, 10)", 'local first = 1'),
  'no rpush': text.replaceAll("call('RPUSH', log,", "tostring("),
  'no keep': text.replace('return keep(answer)', 'return 1'),
  all: text,
}
let n = 0
for (let round = 0; round < 3; round++)
for (const [name, t] of Object.entries(cases)) {
  const sha = await c.scriptLoad(t)
  await c.configResetStat()
  for (let i = 0; i < 20; i++) await c.sendCommand(['EVALSHA', sha, '1', 'holdfast:{default}:life', life!, '0', 'me:0', String(++n).padStart(16, '0'), '', packed as never])
  const m = /cmdstat_evalsha:calls=(\d+),usec=(\d+)/.exec(await c.info('commandstats'))!
  if (round > 0) console.log(name.padEnd(12), (+m[2]! / 20 / N).toFixed(2), 'µs a step')
}
await store.close(); c.destroy(); await server.stop()
