import { afterAll, beforeAll, describe } from 'vitest'
import { patience } from '../patience.ts'
import { Stage } from './stage.ts'
import { type DurableStore, durableStores } from './store-address.ts'

/** The stage of one kind of store, which is there while tests run. */
export interface StageInTests {
  readonly kind: DurableStore
  readonly stage: Stage
}

/** Describes once what must survive, and tests it on every store that outlives a process. */
export function onEveryDurableStore(tests: (on: StageInTests) => void): void {
  onDurableStores(durableStores, tests)
}

/** The same on some of them: what depends on the engine rather than on the store. npm run torture has them all. */
export function onDurableStores(kinds: readonly DurableStore[], tests: (on: StageInTests) => void): void {
  describe.each(kinds)('on %s', (kind) => {
    let stage: Stage
    beforeAll(async () => {
      stage = await Stage.build(kind)
    }, patience(120_000))
    afterAll(async () => {
      if (stage.killCount > 0) console.log(`${kind}: ${stage.killCount} real SIGKILLs`)
      await stage.close()
    }, patience(120_000))
    tests({
      kind,
      get stage() {
        return stage
      },
    })
  })
}
