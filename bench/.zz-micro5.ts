import { createClient } from 'redis'
import { startRedis } from '../test/servers/redis.ts'
const server = await startRedis({ fsync: 'everysec' })
const c = await createClient({ url: server.url }).connect()
const loop = (body: string, pre = '') => `#!lua\nlocal call = redis.call\n${pre}\nfor i = 1, 5000 do ${body} end return 1`
const pre = `local a = string.rep('x', 100) local f = string.format`
const cases: Record<string, string> = {
  'nothing': loop(''),
  'big .. a': loop(`local x = (4000000000 + i) % 4294967296 .. ' ' .. a`, pre),
  'format d': loop(`local x = f('%d ', (4000000000 + i) % 4294967296) .. a`, pre),
  'format d s': loop(`local x = f('%d %s', (4000000000 + i) % 4294967296, a)`, pre),
  'small .. a': loop(`local x = i .. ' ' .. a`, pre),
  'struct pack': loop(`local x = struct.pack('>I4', (4000000000 + i) % 4294967296) .. a`, pre),
  'tonumber': loop(`local x = tonumber('1794779569853')`, pre),
  'HSET num': loop(`call('HSET', 'h', 'a', 1794779569853 + i)`, pre),
  'HSET str': loop(`call('HSET', 'h', 'a', '1794779569853')`, pre),
}
for (let round = 0; round < 2; round++)
for (const [name, t] of Object.entries(cases)) {
  const sha = await c.scriptLoad(t)
  await c.configResetStat()
  for (let i = 0; i < 10; i++) await c.sendCommand(['EVALSHA', sha, '0'])
  const m = /cmdstat_evalsha:calls=(\d+),usec=(\d+)/.exec(await c.info('commandstats'))!
  if (round === 1) console.log(name.padEnd(22), (+m[2]! / 50000).toFixed(2), 'µs')
}
c.destroy(); await server.stop()
