import { randomBytes } from 'node:crypto'
import { sharedPostgres } from '../servers/postgres.ts'
import { sharedRedis } from '../servers/redis.ts'

/** URLs of stores that several machines can share, and that nobody has opened yet. */
export const emptyStores: Readonly<Record<'postgres' | 'redis', (count: number) => Promise<string[]>>> = {
  postgres: async (count) => urlsOn((await sharedPostgres()).url, 'schema', count),
  redis: async (count) => urlsOn((await sharedRedis()).url, 'namespace', count),
}

function urlsOn(server: string, part: string, count: number): string[] {
  return Array.from({ length: count }, () => {
    const url = new URL(server)
    url.searchParams.set(part, `empty_${randomBytes(4).toString('hex')}`)
    return url.href
  })
}
