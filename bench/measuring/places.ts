import { join } from 'node:path'
import { startPostgres } from '../../test/servers/postgres.ts'
import { startRedis } from '../../test/servers/redis.ts'

/** Somewhere to put stores: a folder, or a server of its own. */
export interface Places {
  readonly description: string
  /** The URL of another one, empty. */
  next(): string
  close(): Promise<void>
}

export const placesOf: Readonly<Record<string, (folder: string) => Promise<Places>>> = {
  sqlite: async (folder) => {
    let count = 0
    return {
      description: 'SQLite through node:sqlite, synchronous=FULL',
      next: () => `sqlite:${join(folder, `${++count}.db`)}`,
      close: async () => {},
    }
  },
  postgres: async () => {
    const server = await startPostgres()
    let count = 0
    return {
      description: 'Postgres through pg, over loopback, with its defaults',
      next: () => `${server.url}?schema=place_${++count}`,
      close: () => server.stop(),
    }
  },
  redis: async () => {
    const server = await startRedis({ fsync: 'always' })
    let count = 0
    return {
      description: 'Redis through redis, over loopback, appendfsync always',
      next: () => `${server.url}?namespace=place-${++count}`,
      close: () => server.stop(),
    }
  },
}
