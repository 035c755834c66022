import { BaseSequencer, type TestSpecification } from 'vitest/node'

/** What takes minutes begins first, so that nothing long is left when the others are done. */
const slow = ['test/crash/crash.test.ts', 'test/torture/compare-stores.test.ts', 'test/crash/', 'test/mutants/', 'test/torture/']

export class SlowFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rank = ({ moduleId }: TestSpecification) => {
      const found = slow.findIndex((part) => moduleId.replaceAll('\\', '/').includes(`/${part}`))
      return found === -1 ? slow.length : found
    }
    return (await super.sort(files)).toSorted((a, b) => rank(a) - rank(b))
  }
}
