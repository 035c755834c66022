import { BaseSequencer, type TestSpecification } from 'vitest/node'

/** The two that take minutes begin first, beside all the others, so that neither is left alone at the end. */
const slow = ['/test/crash/crash.test.ts', '/test/torture/compare-stores.test.ts']

export class SlowFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const isSlow = ({ moduleId }: TestSpecification) => slow.some((file) => moduleId.replaceAll('\\', '/').endsWith(file))
    return (await super.sort(files)).toSorted((a, b) => Number(isSlow(b)) - Number(isSlow(a)))
  }
}
