import { BaseSequencer, type TestSpecification } from 'vitest/node'

/**
 * Those that take long begin first, beside all the others, so that none is left alone at the end: files that nobody has timed yet are
 * otherwise taken by their size, and these are small.
 */
const slow = [
  '/test/crash/crash.test.ts',
  '/test/torture/compare-stores.test.ts',
  '/test/crash/ticks.test.ts',
  '/test/torture/outages.test.ts',
  '/test/stores/postgres.test.ts',
  '/test/mutants/mutants.test.ts',
  '/test/crash/recoverers.test.ts',
  '/test/crash/open-at-once.test.ts',
]

export class SlowFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rank = ({ moduleId }: TestSpecification) => {
      const index = slow.findIndex((file) => moduleId.replaceAll('\\', '/').endsWith(file))
      return index < 0 ? slow.length : index
    }
    return (await super.sort(files)).toSorted((a, b) => rank(a) - rank(b))
  }
}
