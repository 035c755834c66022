import { expect, test } from 'vitest'
import { patience } from '../patience.ts'
import { onEveryDurableStore } from './on-every-durable-store.ts'
import { faultsOfTicks, killAtTicks } from './ticks.ts'

onEveryDurableStore((on) => {
  test('a schedule loses and doubles no tick when its process is killed before and after everything that it writes', {
    timeout: patience(120_000),
  }, async () => {
    const { kills, ticks, broken } = await killAtTicks(on.stage)
    expect(broken).toEqual([])
    expect(kills).toBe(faultsOfTicks.length)
    console.log(`${on.kind}: ${ticks} ticks, ${kills} kills`)
  })
})
