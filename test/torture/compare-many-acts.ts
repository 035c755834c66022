import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createMemoryStore } from '../../src/stores/memory/memory-store.ts'
import { openSqliteStore } from '../../src/stores/sqlite/sqlite-store.ts'
import { compareStores } from '../../src/testing/compare-stores.ts'
import { createTestClock } from '../../src/testing/test-clock.ts'

const batchSize = 5_000

/** Compares SQLite with memory, batch after batch, each on empty stores with a seed of its own. Throws at a difference. */
export async function compareManyActs(options: {
  operations: number
  seed: number
  onBatch: (done: number) => void
}): Promise<{ kinds: number }> {
  const kinds = new Set<string>()
  for (let done = 0, batch = 0; done < options.operations; batch++) {
    const operations = Math.min(batchSize, options.operations - done)
    for (const kind of await compareBatch(operations, options.seed + batch)) kinds.add(kind)
    done += operations
    options.onBatch(done)
  }
  return { kinds: kinds.size }
}

async function compareBatch(operations: number, seed: number): Promise<string[]> {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-compare-'))
  const clock = createTestClock()
  const { clockOffsetMs } = clock
  const reference = createMemoryStore({ clockOffsetMs })
  const candidate = await openSqliteStore({ file: join(folder, 'store.db'), durability: 'relaxed', clockOffsetMs })
  try {
    await candidate.migrate()
    const { kinds } = await compareStores(reference, candidate, { seed, operations, clock, checkEvery: 500 })
    return Object.keys(kinds)
  } finally {
    await candidate.close()
    rmSync(folder, { recursive: true, force: true })
  }
}
