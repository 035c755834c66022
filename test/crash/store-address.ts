import type { Store } from '../../src/store/store.ts'

export const durableStores = ['sqlite', 'postgres', 'redis'] as const
export type DurableStore = (typeof durableStores)[number]

/** How a process under test reaches the store of its scene. */
export interface StoreAddress {
  readonly kind: DurableStore
  /** What it is called in the list of the server's sessions is in it, too. */
  readonly url: string
  /** The user's own table beside it, where the store can run SQL. */
  readonly orders: { readonly insert: string; readonly count: string } | null
}

export interface StoreOpening {
  readonly url: string
  readonly clockOffsetMs: () => number
}

/** One by one, so that a process loads no driver that it does not need. */
const openers: Readonly<Record<DurableStore, () => Promise<(opening: StoreOpening) => Promise<Store>>>> = {
  sqlite: async () => {
    const { openSqliteStore } = await import('../../src/stores/sqlite/sqlite-store.ts')
    return ({ url, clockOffsetMs }) => openSqliteStore({ file: url.slice('sqlite:'.length), durability: 'full', clockOffsetMs })
  },
  postgres: async () => {
    const { openPostgresStore } = await import('../../src/stores/postgres/postgres-store.ts')
    await import('pg')
    return (opening) => openPostgresStore({ ...opening, durability: 'full' })
  },
  redis: async () => {
    const { openRedisStore } = await import('../../src/stores/redis/redis-store.ts')
    await import('redis')
    return (opening) => openRedisStore({ ...opening, durability: 'full' })
  },
}

/** Loads what a store needs, ahead of time. */
export async function loadStore(kind: DurableStore): Promise<void> {
  await openers[kind]()
}

export async function openStoreAt({ kind, url }: StoreAddress, clockOffsetMs: () => number): Promise<Store> {
  const open = await openers[kind]()
  return open({ url, clockOffsetMs })
}
