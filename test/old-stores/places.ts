import { randomBytes } from 'node:crypto'
import { join } from 'node:path'
import pg from 'pg'
import { sharedPostgres } from '../servers/postgres.ts'
import { sharedRedis } from '../servers/redis.ts'
import { loadPostgres, loadRedis, loadSqlite, oldName } from './dumps.ts'

/** Puts a copy of the store that 09549e1 wrote where it can be opened, and returns its URL. */
export const places: Readonly<Record<'sqlite' | 'postgres' | 'redis', (folder: string) => Promise<string>>> = {
  sqlite: async (folder) => {
    const file = join(folder, 'holdfast.db')
    loadSqlite(file)
    return `sqlite:${file}`
  },

  postgres: async () => {
    const { url } = await sharedPostgres()
    const name = `old_${randomBytes(4).toString('hex')}`
    await withClient(url, (client) => client.query(`CREATE DATABASE ${name}`))
    const own = url.replace(/\/postgres$/, `/${name}`)
    await withClient(own, loadPostgres)
    return `${own}?schema=${oldName}`
  },

  redis: async () => {
    const { url } = await sharedRedis()
    const namespace = `old-${randomBytes(4).toString('hex')}`
    await loadRedis(url, namespace)
    return `${url}?namespace=${namespace}`
  },
}

async function withClient(url: string, act: (client: pg.Client) => Promise<unknown>): Promise<void> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  await act(client)
  await client.end()
}
