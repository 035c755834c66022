import { expect, test } from 'vitest'
import { patience } from '../patience.ts'
import { CrashTestBed } from './bed/crash-test-bed.ts'
import { durableStores } from './bed/store-address.ts'
import { raceForOrphans } from './race-for-orphans.ts'

test.each(durableStores)(
  'eight processes that find three hundred orphaned runs on %s are granted each of them once',
  {
    timeout: patience(120_000),
  },
  async (kind) => {
    const bed = await CrashTestBed.create(kind)
    try {
      const { tookMs, violations } = await raceForOrphans(bed, { recovererCount: 8, orphanCount: 300 })
      console.log(`recoverers on ${kind}: 8 processes, 300 orphans, ${tookMs} ms`)
      expect(violations).toEqual([])
    } finally {
      await bed.close()
    }
  },
)
