import type { DurableStore } from '../store-address.ts'
import type { Ground } from './ground.ts'
import { preparePostgres } from './postgres.ts'
import { prepareRedis } from './redis.ts'
import { prepareSqlite } from './sqlite.ts'

/** The stores that keep their promises when a process dies. */
export const grounds: Readonly<Record<DurableStore, () => Promise<Ground>>> = {
  sqlite: prepareSqlite,
  postgres: () => preparePostgres(),
  redis: () => prepareRedis(),
}
