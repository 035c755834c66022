import { beforeAll, expect, test } from 'vitest'
import { patience } from '../patience.ts'
import { CrashHarness } from './harness.ts'
import { onEveryDurableStore } from './on-every-durable-store.ts'
import { killAtSystemCalls } from './syscalls.ts'

// Real processes, real SIGKILLs, real stores. What must hold is in rules.ts; npm run torture does the same for longer.

const seed = Number(process.env['HOLDFAST_SEED'] ?? Date.now() % 1_000_000)
const limitMs = patience(480_000)
/** Each run of the tests has its share of the boundaries, by turns; torture and the mutants have all of them. */
const every = process.env['HOLDFAST_BOUNDARIES'] === 'all' ? 1 : 8

onEveryDurableStore((on) => {
  let harness: CrashHarness
  beforeAll(async () => {
    harness = await CrashHarness.prepare(on.stage)
    console.log(`${on.kind}: ${harness.boundaries.length} boundaries, seed ${seed}`)
  }, limitMs)

  test('a run survives a kill before and after every write, in every body and at every call to the provider', {
    timeout: limitMs,
  }, async () => {
    await expectSurvival(harness)
  })

  test('a run that waits for signals, answers and children, and is rolled back, survives a kill before and after every write', {
    timeout: limitMs,
  }, async () => {
    await expectSurvival(await CrashHarness.prepare(on.stage, { cast: 'envoy' }))
  })

  test('what others are told and hear of a run survives a kill before and after every write: nothing is lost or doubled, nothing has two ids', {
    timeout: limitMs,
  }, async () => {
    await expectSurvival(await CrashHarness.prepare(on.stage, { cast: 'herald' }))
  })

  test('an effect whose answer got lost keeps its key when another process sends it again', { timeout: limitMs }, async () => {
    const { kills, broken } = await harness.killOnce([
      { at: 'write', type: 'effect_failed', step: 'pay', when: 'after' },
      { at: 'write', type: 'effect_failed', step: 'book', when: 'after' },
    ])
    expect(broken).toEqual([])
    expect(kills).toBe(2)
  })

  test('a run survives a second kill while it recovers from the first', { timeout: limitMs }, async () => {
    const { kills, broken } = await harness.killTwice(5, seed)
    expect(broken).toEqual([])
    expect(kills).toBeGreaterThan(3)
  })

  test('a run gets through although its processes are killed on and on', { timeout: limitMs }, async () => {
    const { kills, broken } = await harness.killOnAndOn(1, seed)
    expect(broken).toEqual([])
    expect(kills).toBeGreaterThan(4)
  })

  test('a transaction is there whole or not at all when the kill falls between two of its writes', {
    timeout: limitMs,
  }, async () => {
    const { kills, broken } = await killAtSystemCalls(on.stage, { count: 8, seed })
    expect(broken).toEqual([])
    expect(kills).toBeGreaterThan(4)
  })
})

async function expectSurvival(harness: CrashHarness): Promise<void> {
  const boundaries = harness.sample({ every, seed })
  const { kills, broken } = await harness.killOnce(boundaries)
  expect(broken, `seed ${seed}`).toEqual([])
  // A boundary may be missed when writes fall into other batches than in the undisturbed run.
  expect(kills).toBeGreaterThan(boundaries.length * 0.7)
}
