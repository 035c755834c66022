import { describe } from 'vitest'
import { testClaiming } from './claiming.ts'
import { testCollecting } from './collecting.ts'
import { testCommits } from './commits.ts'
import { testConcurrency } from './concurrency.ts'
import { testCreating } from './creating.ts'
import { testHistory } from './history.ts'
import { testInbox } from './inbox.ts'
import { testLeases } from './leases.ts'
import { testMoving } from './moving.ts'
import { testOperations } from './operations.ts'
import { testOwners } from './owners.ts'
import { testPayloads } from './payloads.ts'
import { testQueues } from './queues.ts'
import { testReading } from './reading.ts'
import { testRecords } from './records.ts'
import { testRules } from './rules.ts'
import { type StoreTest, type SuitePart, sceneTest, type TestStoreOptions } from './scene.ts'
import { testStreams } from './streams.ts'
import { testThreads } from './threads.ts'

export type { OpenedStore, TestStoreOptions } from './scene.ts'

/**
 * Registers the conformance suite for a store with vitest. A store that passes it keeps the contract of `Store`;
 * tests that prove one of its invariants name the number. Every test opens an empty store of its own.
 */
export function testStore(name: string, options: TestStoreOptions): void {
  const test = sceneTest(options)
  describe(`store: ${name}`, () => {
    for (const [part, tests] of Object.entries(parts))
      if (options.parts?.includes(part as SuitePart) ?? true) describe(part, () => tests(test))
  })
}

const parts: Record<SuitePart, (test: StoreTest) => void> = {
  rules: testRules,
  creating: testCreating,
  claiming: testClaiming,
  queues: testQueues,
  leases: testLeases,
  history: testHistory,
  commits: testCommits,
  operations: testOperations,
  inbox: testInbox,
  reading: testReading,
  records: testRecords,
  streams: testStreams,
  threads: testThreads,
  collecting: testCollecting,
  moving: testMoving,
  owners: testOwners,
  payloads: testPayloads,
  concurrency: testConcurrency,
}
