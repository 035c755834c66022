import { describe } from 'vitest'
import { testClaiming } from './claiming.ts'
import { testCommits } from './commits.ts'
import { testConcurrency } from './concurrency.ts'
import { testCreating } from './creating.ts'
import { testInbox } from './inbox.ts'
import { testLeases } from './leases.ts'
import { testMoving } from './moving.ts'
import { testOperations } from './operations.ts'
import { testOwners } from './owners.ts'
import { testPayloads } from './payloads.ts'
import { testQueues } from './queues.ts'
import { testReading } from './reading.ts'
import { sceneTest, type TestStoreOptions } from './scene.ts'
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
    describe('creating', () => testCreating(test))
    describe('claiming', () => testClaiming(test))
    describe('queues', () => testQueues(test))
    describe('leases', () => testLeases(test))
    describe('commits', () => testCommits(test))
    describe('operations', () => testOperations(test))
    describe('inbox', () => testInbox(test))
    describe('reading', () => testReading(test))
    describe('streams', () => testStreams(test))
    describe('threads', () => testThreads(test))
    describe('moving', () => testMoving(test))
    describe('owners', () => testOwners(test))
    describe('payloads', () => testPayloads(test))
    describe('concurrency', () => testConcurrency(test))
  })
}
