import { createClient } from 'redis'
import { startRedis } from '../test/servers/redis.ts'

const server = await startRedis({ fsync: 'everysec' })
const c = await createClient({ url: server.url }).connect()
const pre = `#!lua\nlocal call = redis.call\n`
const cases: Record<string, string> = {
  empty: `#!lua\nreturn 1`,
  get: pre + `call('GET', KEYS[1]) return 1`,
  'get+time': pre + `call('GET', KEYS[1]) call('TIME') return 1`,
  'get+time+getrange': pre + `call('GET', KEYS[1]) call('TIME') call('GETRANGE', KEYS[1]..'a', 0, 15) return 1`,
  '+unpack':
    pre + `call('GET', KEYS[1]) call('TIME') call('GETRANGE', KEYS[1]..'a', 0, 15) local x = cmsgpack.unpack(ARGV[1]) return 1`,
  '+hmget':
    pre +
    `call('GET', KEYS[1]) call('TIME') call('GETRANGE', KEYS[1]..'a', 0, 15) call('HMGET', KEYS[1]..'h','a','b','c','d','e','f','g','h') return 1`,
  '+llen+rpush':
    pre +
    `call('GET', KEYS[1]) call('TIME') call('GETRANGE', KEYS[1]..'a', 0, 15) call('HMGET', KEYS[1]..'h','a','b','c','d','e','f','g','h') call('LLEN', KEYS[1]..'l') call('RPUSH', KEYS[1]..'l', ARGV[1], ARGV[1]) return 1`,
  '+set':
    pre +
    `call('GET', KEYS[1]) call('TIME') call('GETRANGE', KEYS[1]..'a', 0, 15) call('HMGET', KEYS[1]..'h','a','b','c','d','e','f','g','h') call('LLEN', KEYS[1]..'l') call('RPUSH', KEYS[1]..'l', ARGV[1], ARGV[1]) call('SET', KEYS[1]..'a', 'xyz', 'PX', 600000) return 1`,
}
await c.hSet('{x}h', { a: '1', b: '2', c: '3', d: '4', e: '5', f: '6', g: '7', h: '8', i: '9' })
const arg = Buffer.concat([Buffer.from([0xda, 0, 200]), Buffer.alloc(200, 97)])
for (let round = 0; round < 2; round++)
  for (const [name, text] of Object.entries(cases)) {
    const sha = await c.scriptLoad(text)
    await c.configResetStat()
    const t = performance.now()
    for (let i = 0; i < 1000; i++) await c.sendCommand(['EVALSHA', sha, '1', '{x}', arg as never])
    const ms = performance.now() - t
    const m = /cmdstat_evalsha:calls=(\d+),usec=(\d+)/.exec(await c.info('commandstats'))!
    if (round === 1) console.log(name.padEnd(20), 'script', (+m[2]! / 1000).toFixed(1), 'µs; wall', ms.toFixed(0))
  }
await c.configResetStat()
for (let i = 0; i < 1000; i++)
  await c
    .multi()
    .rPush('{f}log', ['a'.repeat(100), 'b'.repeat(100)])
    .hSet('{f}thread', 'head', String(i))
    .hSet('{f}run', { step: 's', until: String(i) })
    .exec()
console.log(
  (await c.info('commandstats'))
    .split('\n')
    .filter((l) => /rpush|hset|multi|exec/.test(l))
    .join('\n'),
)
c.destroy()
await server.stop()
