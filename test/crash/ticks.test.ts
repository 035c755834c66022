import { expect, test } from 'vitest'
import { patience } from '../patience.ts'
import { onEveryDurableStore } from './bed/on-every-durable-store.ts'
import { faultsOfTicks, killAtTicks } from './kill-at-ticks.ts'

const seed = Number(process.env['HOLDFAST_SEED'] ?? Date.now() % 1_000_000)
/** Every second one, which ones differs from run to run; torture takes all. */
const faults = faultsOfTicks.filter((_, index) => index % 2 === seed % 2)

onEveryDurableStore((on) => {
  test('a schedule loses and doubles no tick when its process is killed before or after everything that it writes', {
    timeout: patience(120_000),
  }, async () => {
    const { killCount, ticks, violations } = await killAtTicks(on.bed, faults)
    expect(violations).toEqual([])
    expect(killCount).toBe(faults.length)
    console.log(`${on.kind}: ${ticks} ticks, ${killCount} killCount`)
  })
})
