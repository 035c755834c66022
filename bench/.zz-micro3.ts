import { createClient } from 'redis'
import { startRedis } from '../test/servers/redis.ts'
const server = await startRedis({ fsync: 'everysec' })
const c = await createClient({ url: server.url }).connect()
const loop = (body: string, pre = '') => `#!lua\nlocal call = redis.call\n${pre}\nfor i = 1, 500 do ${body} end return 1`
const cases: Record<string, string> = {
  'SET PX': loop(`call('SET', 'k' .. i, a, 'PX', 600000)`, `local a = string.rep('x', 40)`),
  'SET KEEPTTL': loop(`call('SET', 'k' .. i, a, 'KEEPTTL')`, `local a = string.rep('x', 40)`),
  'SET': loop(`call('SET', 'kk' .. i, a)`, `local a = string.rep('x', 40)`),
  'nothing': loop(''),
  'LLEN': loop(`call('LLEN', 'l' .. i)`),
  'HMGET 8': loop(`call('HMGET', 'h' .. i, 'epoch', 'lease', 'thread', 'base', 'mail', 'claims', 'step', 'until')`),
  'HMGET 4': loop(`call('HMGET', 'h' .. i, 'epoch', 'lease', 'thread', 'base')`),
  'HGET 1': loop(`call('HGET', 'h' .. i, 'epoch')`),
  'GET': loop(`call('GET', 's' .. i)`),
  'RPUSH 2x100': loop(`call('RPUSH', 'l' .. i, a, a)`, `local a = string.rep('x', 100)`),
  'RPUSH 1x200': loop(`call('RPUSH', 'l' .. i, a)`, `local a = string.rep('x', 200)`),
  'RPUSH 2x100 distinct': loop(`call('RPUSH', 'l' .. i, i .. ' ' .. a, i .. '-' .. a)`, `local a = string.rep('x', 100)`),
  'APPEND 200': loop(`call('APPEND', 'ap' .. i, a)`, `local a = string.rep('x', 200)`),
  'concat only': loop(`local x, y = i .. ' ' .. a, i .. '-' .. a`, `local a = string.rep('x', 100)`),
  'HSET 1': loop(`call('HSET', 'h' .. i, 'step', i)`),
}
for (let i = 1; i <= 500; i++) {
  await c.hSet(`h${i}`, { epoch: '1', lease: 'abcdefghijkl.123', thread: '0:run-123', base: '0', mail: '0', claims: '0', step: '', until: '1794779569853', status: 'running', number: '123', lane: '0:1:6:reportdefault', due: '1794779569853', wait: '', reason: '', holder: 'hostname:1234:abcdef', input: '1', tape: '2', end: '', fingerprint: 'f'.repeat(64), created: '1794779569853', started: '1794779569853', finished: '' })
  await c.set(`s${i}`, 'x'.repeat(60))
}
console.log(await c.objectEncoding('h1'))
for (let round = 0; round < 2; round++)
for (const [name, t] of Object.entries(cases)) {
  const sha = await c.scriptLoad(t)
  await c.configResetStat()
  for (let i = 0; i < 20; i++) await c.sendCommand(['EVALSHA', sha, '0'])
  const m = /cmdstat_evalsha:calls=(\d+),usec=(\d+)/.exec(await c.info('commandstats'))!
  if (round === 1) console.log(name.padEnd(22), (+m[2]! / 10000).toFixed(2), 'µs')
}
c.destroy(); await server.stop()
