import type { Store } from 'holdfast'
import { createMemoryStore, openPostgresStore, openRedisStore, openSqliteStore } from './target.ts'

/** How long a worker of the machine waits for a function that may be at work. */
export const quietMs = 20

export const storeNames = ['memory', 'sqlite', 'postgres', 'redis'] as const
export type StoreName = (typeof storeNames)[number]

/** Where the store of one case lives. */
export interface Ground {
  /** A way into the store for one process. */
  openStore(): Promise<Store>
  close(): Promise<void>
}

export const hasSql: Record<StoreName, boolean> = { memory: false, sqlite: true, postgres: true, redis: false }

/** A store in this process that all clients of a case share; with a URL, one that other processes share as well. For SQLite it is a file. */
export async function openGround(name: StoreName, clockOffsetMs: () => number, url?: string): Promise<Ground> {
  if (name === 'postgres' || name === 'redis') {
    const opened: Store[] = []
    const openStore = async () => {
      const store = await (name === 'postgres' ? openPostgresStore : openRedisStore)(url as string, clockOffsetMs)
      opened.push(store)
      return store
    }
    return { openStore, close: async () => void (await Promise.all(opened.map((store) => store.close()))) }
  }
  const store = name === 'memory' ? createMemoryStore({ clockOffsetMs }) : await openSqliteStore(url ?? ':memory:', clockOffsetMs)
  return { openStore: async () => store, close: () => store.close() }
}

/** A place of its own on a server. Clocks of cases differ: to each other they would be clocks that were set back, and move leases. */
export function apart(url: string, name: string): string {
  const place = new URL(url)
  place.searchParams.set(place.protocol.startsWith('redis') ? 'namespace' : 'schema', name)
  return place.href
}
