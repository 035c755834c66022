import { randomBytes } from 'node:crypto'
import { createClient } from 'redis'
import { openRedisStore } from '../../../src/stores/redis/redis-store.ts'
import { sharedRedis } from '../../servers/redis.ts'
import { readStore } from '../store-dump.ts'
import { type Ground, untilNone } from './ground.ts'

/**
 * One namespace a scene, on a server that flushes at every write. Each process has a user of its own, to be found by; users do
 * not outlive the server, so on one of the test's own, which may be restarted, there are none.
 */
export async function prepareRedis({ serverUrl }: { serverUrl?: string } = {}): Promise<Ground> {
  const hasUsers = serverUrl === undefined
  const server = serverUrl ?? (await sharedRedis()).url
  const client = createClient({ url: server })
  client.on('error', () => {}) // The server may be restarted.
  await client.connect()
  const ground = `crash-${randomBytes(4).toString('hex')}`

  return {
    kind: 'redis',

    async lend({ name, isBare }) {
      const namespace = `${ground}-${name}`
      const users = new Set<string>()
      const userOf = (life: number) => `${namespace}.${life}`
      const open = () => openRedisStore({ client, namespace, durability: 'full' })
      const store = await open()
      let isSetUp = !isBare
      if (isSetUp) await store.migrate()
      const read = async () => {
        // Reading sets it up; a scene that begins without does not mind when a process has been there.
        if (!isSetUp) await store.migrate()
        isSetUp = true
        return { ...(await readStore(store)), orders: [] }
      }
      return {
        async addressFor(life) {
          const url = new URL(server)
          url.searchParams.set('namespace', namespace)
          if (hasUsers) {
            url.username = userOf(life)
            url.password = 'none'
            await client.sendCommand(['ACL', 'SETUSER', userOf(life), 'on', 'nopass', '~*', '&*', '+@all'])
            users.add(userOf(life))
          }
          return { kind: 'redis', url: url.href, orders: null }
        },
        untilLeft: (life) =>
          untilNone(async () => {
            const clients = String(await client.sendCommand(['CLIENT', 'LIST']))
            return clients.split('\n').filter((line) => line.includes(` user=${userOf(life)} `)).length
          }, userOf(life)),
        dump: read,
        watch: read,
        async open() {
          const another = await open()
          await another.migrate()
          return another
        },
        async giveBack() {
          await store.close()
          if (users.size > 0) await client.sendCommand(['ACL', 'DELUSER', ...users])
          for await (const keys of client.scanIterator({ MATCH: `holdfast:{${namespace}}:*`, COUNT: 10_000 })) {
            if (keys.length > 0) await client.unlink(keys)
          }
        },
      }
    },

    close: async () => client.destroy(),
  }
}
