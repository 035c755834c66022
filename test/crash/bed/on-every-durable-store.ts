import { afterAll, beforeAll, describe } from 'vitest'
import { patience } from '../../patience.ts'
import { CrashTestBed } from './crash-test-bed.ts'
import { type DurableStore, durableStores } from './store-address.ts'

/** A kind of store and its test bed, which exists while its tests run. */
export interface TestedStore {
  readonly kind: DurableStore
  readonly bed: CrashTestBed
}

/** Runs the same tests on every store that outlives a process. */
export function onEveryDurableStore(tests: (on: TestedStore) => void): void {
  onDurableStores(durableStores, tests)
}

/** The same on some of them, for what depends on the engine rather than on the store. npm run torture uses all of them. */
export function onDurableStores(kinds: readonly DurableStore[], tests: (on: TestedStore) => void): void {
  describe.each(kinds)('on %s', (kind) => {
    let bed: CrashTestBed
    beforeAll(async () => {
      bed = await CrashTestBed.create(kind)
    }, patience(120_000))
    afterAll(async () => {
      if (bed.killCount > 0) console.log(`${kind}: ${bed.killCount} real SIGKILLs`)
      await bed.close()
    }, patience(120_000))
    tests({
      kind,
      get bed() {
        return bed
      },
    })
  })
}
