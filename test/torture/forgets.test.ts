import { expect, test } from 'vitest'
import { runScenario, type ScenarioName, scenarioNames } from '../forgets/scenario.ts'
import { patience } from '../patience.ts'

// The short form of `npm run torture -- --only forgets`. The scenarios mostly wait for servers and leases, so they run in parallel.

test.concurrent.each(scenarioNames)(
  'runs end right, and effects happen as declared, on a store that forgets: %s',
  { timeout: patience(480_000) },
  async (name: ScenarioName) => {
    const seed = Number(process.env['HOLDFAST_SEED'] ?? Date.now() % 1_000_000)
    // Printed first, because an error does not contain the seed.
    console.log(`${name}, seed ${seed}`)
    const { violations, figures } = await runScenario(name, { seed, isShort: true })
    console.log(`${name}: ${JSON.stringify(figures)}`)
    expect(violations).toEqual([])
    expect(figures.lostResults).toBeGreaterThan(0)
  },
)
