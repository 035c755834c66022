import { expect, test } from 'vitest'
import { playScene, type SceneName, sceneNames } from '../forgets/scene.ts'
import { patience } from '../patience.ts'

// The short form of `npm run torture -- --only forgets`. The scenes wait for servers and leases most of the time, so they are played at once.

test.concurrent.each(sceneNames)(
  'runs end right, and effects happen as declared, on a store that forgets: %s',
  { timeout: patience(480_000) },
  async (name: SceneName) => {
    const seed = Number(process.env['HOLDFAST_SEED'] ?? Date.now() % 1_000_000)
    // Said first: what throws tells no seed.
    console.log(`${name}, seed ${seed}`)
    const { broken, figures } = await playScene(name, { seed, isShort: true })
    console.log(`${name}: ${JSON.stringify(figures)}`)
    expect(broken).toEqual([])
    expect(figures.lostResults).toBeGreaterThan(0)
  },
)
