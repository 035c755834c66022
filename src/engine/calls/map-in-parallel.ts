import { sourcesOf, tagSource } from '../../define/failure-source.ts'

/** Runs a step for each item, so many in parallel. After a failure none begins; what runs comes to its end, and then the first failure is thrown. */
export async function mapInParallel<Item, T>(
  check: () => void,
  items: readonly Item[],
  concurrency: number,
  run: (item: Item, index: number) => Promise<T>,
): Promise<T[]> {
  check()
  const list = [...items]
  const results = new Array<T>(list.length)
  const errors: Error[] = []
  let next = 0
  const lane = async (): Promise<void> => {
    while (next < list.length && errors.length === 0) {
      const index = next++
      try {
        results[index] = await run(list[index] as Item, index)
      } catch (error) {
        errors.push(error instanceof Error ? error : new Error(String(error)))
      }
    }
  }
  await Promise.all(Array.from({ length: Math.min(Math.max(1, concurrency), list.length) }, lane))
  const [first] = errors
  if (first === undefined) return results
  throw tagSource(first, errors.flatMap(sourcesOf))
}
