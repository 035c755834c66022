import type { Store } from '../store/store.ts'

/** How many records one write deletes: others wait no longer than for a batch of steps. */
const partSize = 200

/** Deletes the records that have expired, in parts. Returns how many there were. */
export async function sweepExpired(store: Store, { isStopping }: { readonly isStopping: () => boolean }): Promise<number> {
  let count = 0
  for (let last = partSize; last === partSize && !isStopping(); count += last)
    last = await store.sweepRecords({ limit: partSize })
  return count
}
