import { expect, test } from 'vitest'
import { patience } from '../patience.ts'
import { sufferOutages } from './outages.ts'

// The short form of `npm run torture -- --only outages`.

test.each(['postgres', 'redis'] as const)(
  'runs wait for a %s server that is restarted repeatedly, and continue',
  {
    timeout: patience(180_000),
  },
  async (kind) => {
    const seed = Number(process.env['HOLDFAST_SEED'] ?? Date.now() % 1_000_000)
    // Printed first, because an error does not contain the seed.
    console.log(`outages of ${kind}, seed ${seed}`)
    const { violations, ...figures } = await sufferOutages(kind, { seconds: 12, seed, everySeconds: [2, 4], leastRestarts: 3 })
    console.log(`outages of ${kind}: ${JSON.stringify(figures)}`)
    expect(violations).toEqual([])
    expect(figures.restarts).toBeGreaterThanOrEqual(3)
    expect(figures.runs).toBeGreaterThan(10)
  },
)
