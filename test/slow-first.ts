import { BaseSequencer, type TestSpecification } from 'vitest/node'

/**
 * Those that take long begin first, beside all the others, so that none is left alone at the end: files that nobody has timed yet are
 * otherwise taken by their size, and these are small.
 */
const slow = [
  '/test/crash/crash.test.ts',
  '/test/model/',
  '/test/crash/zombie.test.ts',
  '/test/torture/compare-stores.test.ts',
  '/test/crash/store-faults.test.ts',
  '/test/behaviour/worker.test.ts',
  '/test/stores/postgres.test.ts',
  '/test/mutants/mutants.test.ts',
  '/test/torture/outages.test.ts',
  '/test/package/install.test.ts',
  '/test/torture/forgets.test.ts',
  '/test/crash/poison.test.ts',
  '/test/behaviour/notifications.test.ts',
  '/test/behaviour/outages.test.ts',
  '/test/stores/postgres-outages.test.ts',
  '/test/behaviour/waits.test.ts',
  '/test/behaviour/replay.test.ts',
  '/test/behaviour/dependants.test.ts',
  '/test/behaviour/named-undo.test.ts',
  '/test/stores/postgres-runs.test.ts',
  '/test/behaviour/logger.test.ts',
  '/test/behaviour/quiet-time.test.ts',
  '/test/crash/windows.test.ts',
  '/test/crash/ticks.test.ts',
  '/test/crash/recoverers.test.ts',
  '/test/crash/open-at-once.test.ts',
  '/test/examples.test.ts',
  '/test/package/pack.test.ts',
]

export class SlowFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rank = ({ moduleId }: TestSpecification) => {
      const index = slow.findIndex((file) => moduleId.replaceAll('\\', '/').includes(file))
      return index < 0 ? slow.length : index
    }
    return (await super.sort(files)).toSorted((a, b) => rank(a) - rank(b))
  }
}
