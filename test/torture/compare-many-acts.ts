import { randomBytes } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Store } from '../../src/store/store.ts'
import { createMemoryStore } from '../../src/stores/memory/memory-store.ts'
import { openPostgresStore } from '../../src/stores/postgres/postgres-store.ts'
import { openRedisStore } from '../../src/stores/redis/redis-store.ts'
import { openSqliteStore } from '../../src/stores/sqlite/sqlite-store.ts'
import { compareStores } from '../../src/testing/compare-stores.ts'
import { createTestClock, type TestClock } from '../../src/testing/test-clock.ts'
import { sharedPostgres } from '../servers/postgres.ts'
import { sharedRedis } from '../servers/redis.ts'

const batchSize = 1_000

/**
 * Compares all four stores, batch after batch, each on empty stores with a seed of its own. Throws at a difference that the same acts
 * bring about every time; one that they did not is told to `onPassing`, for people to judge.
 */
export async function compareManyActs(options: {
  operations: number
  seed: number
  onBatch?: (done: number) => void
  onPassing: (difference: string) => void
}): Promise<{ kinds: number }> {
  const kinds = new Set<string>()
  for (let done = 0, batch = 0; done < options.operations; batch++) {
    const operations = Math.min(batchSize, options.operations - done)
    for (const kind of await compareBatch(operations, options.seed + batch, options.onPassing)) kinds.add(kind)
    done += operations
    options.onBatch?.(done)
  }
  return { kinds: kinds.size }
}

/** On a busy machine a store may read its clock so late that other runs are due by then. */
async function compareBatch(operations: number, seed: number, onPassing: (difference: string) => void): Promise<string[]> {
  const differences: string[] = []
  for (;;) {
    try {
      const kinds = await compareOnce(operations, seed)
      for (const difference of differences) onPassing(difference)
      return kinds
    } catch (error) {
      differences.push((error as Error).message)
      if (differences.length === 5) throw error
    }
  }
}

async function compareOnce(operations: number, seed: number): Promise<string[]> {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-compare-'))
  const clock = createTestClock()
  const stores: Store[] = []
  try {
    for (const open of openers) stores.push(await open({ folder, clockOffsetMs: clock.clockOffsetMs }))
    for (const store of stores) await store.migrate()
    const [reference, ...candidates] = stores
    const { kinds } = await compareStores(reference as Store, candidates, { seed, operations, clock, checkEvery: operations + 1 })
    return Object.keys(kinds)
  } finally {
    for (const store of stores) await store.close()
    rmSync(folder, { recursive: true, force: true })
  }
}

interface Opening extends Pick<TestClock, 'clockOffsetMs'> {
  readonly folder: string
}

/** What is flushed, and when, is no matter here. */
const durability = 'relaxed'

const openers: readonly ((opening: Opening) => Promise<Store>)[] = [
  async ({ clockOffsetMs }) => createMemoryStore({ clockOffsetMs }),
  ({ folder, clockOffsetMs }) => openSqliteStore({ file: join(folder, 'store.db'), durability, clockOffsetMs }),
  async ({ clockOffsetMs }) =>
    openPostgresStore({ url: (await sharedPostgres()).url, schema: newName('compare_'), durability, clockOffsetMs }),
  async ({ clockOffsetMs }) =>
    openRedisStore({ url: (await sharedRedis()).url, namespace: newName('compare-'), durability, clockOffsetMs }),
]

function newName(prefix: string): string {
  return `${prefix}${randomBytes(4).toString('hex')}`
}
