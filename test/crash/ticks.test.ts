import { expect, test } from 'vitest'
import { patience } from '../patience.ts'
import { onEveryDurableStore } from './bed/on-every-durable-store.ts'
import { faultsOfTicks, killAtTicks } from './kill-at-ticks.ts'

onEveryDurableStore((on) => {
  test('a schedule loses and doubles no tick when its process is killed before and after everything that it writes', {
    timeout: patience(120_000),
  }, async () => {
    const { killCount, ticks, violations } = await killAtTicks(on.bed)
    expect(violations).toEqual([])
    expect(killCount).toBe(faultsOfTicks.length)
    console.log(`${on.kind}: ${ticks} ticks, ${killCount} killCount`)
  })
})
