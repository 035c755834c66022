import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { Store } from 'holdfast'
import type { Tables } from '../../src/stores/memory/tables.ts'

/** Where the runs of a scenario live. */
export interface StoreAt {
  readonly kind: 'postgres' | 'redis'
  readonly url: string
  readonly durability: 'full' | 'relaxed'
}

/** The Holdfast that is tried. */
export interface Target {
  readonly holdfast: typeof import('holdfast')
  readonly wrapStore: typeof import('../../src/testing/faulty-store.ts').wrapStore
  /** A memory store, and the tables that it is over; null where a checkout from before has no way to it. */
  createOpenMemoryStore(): { readonly store: Store; readonly tables: Tables } | null
  openStore(at: StoreAt): Promise<Store>
}

/** That of this checkout, or of another one in the given folder. */
export async function loadTarget(folder: string | undefined): Promise<Target> {
  const load = async <Module>(own: () => Promise<Module>, path: string): Promise<Module> =>
    folder === undefined ? own() : ((await import(pathToFileURL(join(folder, path)).href)) as Module)
  const { wrapStore } = await load(() => import('../../src/testing/faulty-store.ts'), 'src/testing/faulty-store.ts')
  const memoryPath = 'src/stores/memory/memory-store.ts'
  const { createStoreOver } = await load(() => import('../../src/stores/memory/memory-store.ts'), memoryPath)
  const { createTables } = await load(() => import('../../src/stores/memory/tables.ts'), 'src/stores/memory/tables.ts')
  return {
    holdfast: await load(() => import('holdfast'), 'src/index.ts'),
    wrapStore,
    createOpenMemoryStore() {
      if (createStoreOver === undefined) return null
      const tables = createTables()
      return { store: createStoreOver(tables), tables }
    },
    async openStore({ kind, url, durability }) {
      const clockOffsetMs = () => 0
      if (kind === 'postgres') {
        const path = 'src/stores/postgres/postgres-store.ts'
        const { openPostgresStore } = await load(() => import('../../src/stores/postgres/postgres-store.ts'), path)
        return openPostgresStore({ url, durability, clockOffsetMs })
      }
      const path = 'src/stores/redis/redis-store.ts'
      const { openRedisStore } = await load(() => import('../../src/stores/redis/redis-store.ts'), path)
      return openRedisStore({ url, durability, clockOffsetMs })
    },
  }
}
