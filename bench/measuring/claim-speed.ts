import type { Change } from '../../src/store/change.ts'
import type { Store } from '../../src/store/store.ts'
import { claimRequest, creating } from '../../test/stores/sqlite-scene.ts'
import { type Spread, spreadOf } from './spread.ts'

export const claimSize = 100
const [warmUps, claims] = [10, 40]

/** Ms a claim, over a store that is filled first. Turns go on from claim to claim, as in a worker. */
export async function measureClaims(
  store: Store,
  { owners, queued, sleeping }: { readonly owners: number; readonly queued: number; readonly sleeping: number },
): Promise<Spread> {
  await fill(store, queued, (n) => creatingFor(`o-${n % owners}`, `r-${n}`, 0))
  // Of the same owners, one after the other: all of them have something asleep.
  await fill(store, sleeping, (n) => creatingFor(`o-${n % owners}`, `s-${n}`, 86_400_000))
  const times: number[] = []
  let lastOwners = [{ priority: 0, owner: '' }]
  for (let n = 0; n < warmUps + claims; n++) {
    const beganAt = performance.now()
    const taken = await store.claim(claimRequest({ limit: claimSize, leaseMs: 3_600_000, lastOwners }))
    times.push(performance.now() - beganAt)
    if (taken.length !== claimSize) throw new Error(`a claim brought ${taken.length} runs`)
    lastOwners = [{ priority: 0, owner: taken.at(-1)?.run.owner ?? '' }]
  }
  return spreadOf(times.slice(warmUps))
}

function creatingFor(owner: string, id: string, inMs: number): Change {
  return { ...creating(id, { owner, due: { inMs } }), owner }
}

async function fill(store: Store, count: number, make: (n: number) => Change): Promise<void> {
  for (let from = 0; from < count; from += 500)
    await store.commit(Array.from({ length: Math.min(500, count - from) }, (_, index) => make(from + index)))
}
