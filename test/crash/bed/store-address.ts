import type { Store } from '../../../src/store/store.ts'

export const durableStores = ['sqlite', 'postgres', 'redis'] as const
export type DurableStore = (typeof durableStores)[number]

/** How a process under test reaches the store of its scenario. */
export interface StoreAddress {
  readonly kind: DurableStore
  /** Contains the name under which the server lists the process's sessions. */
  readonly url: string
  /** A table of the user next to it, where the store can execute SQL. */
  readonly orders: { readonly insert: string; readonly count: string } | null
}

export interface StoreOpening {
  readonly url: string
  readonly clockOffsetMs: () => number
}

/** Loaded separately, so that a process loads no driver that it does not need. */
const openers: Readonly<Record<DurableStore, () => Promise<(opening: StoreOpening) => Promise<Store>>>> = {
  sqlite: async () => {
    const { openSqliteStore } = await import('../../../src/stores/sqlite/sqlite-store.ts')
    return ({ url, clockOffsetMs }) => openSqliteStore({ file: url.slice('sqlite:'.length), durability: 'full', clockOffsetMs })
  },
  postgres: async () => {
    const { openPostgresStore } = await import('../../../src/stores/postgres/postgres-store.ts')
    await import('pg')
    return (opening) => openPostgresStore({ ...opening, durability: 'full' })
  },
  redis: async () => {
    const { openRedisStore } = await import('../../../src/stores/redis/redis-store.ts')
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
