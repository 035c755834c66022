import { openRedisStore } from '../../src/stores/redis/redis-store.ts'
import { creating } from './sqlite-scene.ts'

/** A process that opens a store at the moment it is told, writes one run and prints how it went. */
const [url, id] = process.argv.slice(2) as [string, string]

process.stdin.once('data', async () => {
  try {
    const store = await openRedisStore({ url, durability: 'full' })
    await store.migrate()
    const [answer] = await store.commit([creating(id)])
    await store.close()
    console.log(answer?.ok === true ? 'ok' : JSON.stringify(answer))
  } catch (error) {
    console.log(String(error))
  }
  process.stdin.destroy()
})
console.log('ready')
