import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

/**
 * The Holdfast that the machine tries: this one, or that of another checkout whose folder is in `HOLDFAST_MODEL_ON`. Nothing else of the
 * machine imports it.
 */
const folder = process.env['HOLDFAST_MODEL_ON']

const load = async <Module>(own: () => Promise<Module>, path: string): Promise<Module> =>
  folder === undefined ? own() : ((await import(pathToFileURL(join(folder, path)).href)) as Module)

export const holdfast = await load(() => import('holdfast'), 'src/index.ts')
export const { wrapStore } = await load(() => import('../../src/testing/faulty-store.ts'), 'src/testing/faulty-store.ts')
export const { createMemoryStore } = await load(
  () => import('../../src/stores/memory/memory-store.ts'),
  'src/stores/memory/memory-store.ts',
)
export const openSqliteStore = async (file: string, clockOffsetMs: () => number) => {
  const path = 'src/stores/sqlite/sqlite-store.ts'
  const module = await load(() => import('../../src/stores/sqlite/sqlite-store.ts'), path)
  return module.openSqliteStore({ file, durability: 'relaxed', clockOffsetMs })
}
export const openPostgresStore = async (url: string, clockOffsetMs: () => number) => {
  const path = 'src/stores/postgres/postgres-store.ts'
  const module = await load(() => import('../../src/stores/postgres/postgres-store.ts'), path)
  return module.openPostgresStore({ url, durability: 'full', clockOffsetMs })
}
export const openRedisStore = async (url: string, clockOffsetMs: () => number) => {
  const path = 'src/stores/redis/redis-store.ts'
  const module = await load(() => import('../../src/stores/redis/redis-store.ts'), path)
  return module.openRedisStore({ url, durability: 'full', clockOffsetMs })
}
