import { expect, test } from 'vitest'
import { patience } from '../patience.ts'
import { raceForOrphans } from './recoverers.ts'
import { Stage } from './stage.ts'
import { durableStores } from './store-address.ts'

test.each(durableStores)(
  'eight processes that find three hundred orphaned runs on %s are granted each of them once',
  {
    timeout: patience(120_000),
  },
  async (kind) => {
    const stage = await Stage.build(kind)
    try {
      const { tookMs, broken } = await raceForOrphans(stage, { recovererCount: 8, orphanCount: 300 })
      console.log(`recoverers on ${kind}: 8 processes, 300 orphans, ${tookMs} ms`)
      expect(broken).toEqual([])
    } finally {
      await stage.close()
    }
  },
)
