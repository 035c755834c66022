import { HoldfastError, open, workflow } from 'holdfast'
import { beforeAll, expect, test } from 'vitest'
import type { Change } from '../../src/store/change.ts'
import { createMemoryStore } from '../../src/stores/memory/memory-store.ts'
import { wrapStore } from '../../src/testing/faulty-store.ts'
import { patience } from '../patience.ts'
import { onEveryDurableStore } from './bed/on-every-durable-store.ts'
import { CrashHarness } from './crash-harness.ts'

// The store fails and the process survives: nothing was written, or everything was and the answer got lost.

const seed = Number(process.env['HOLDFAST_SEED'] ?? Date.now() % 1_000_000)
/** Every fourth write, by turns from run to run; npm run torture takes all of them. */
const sample = { every: 4, seed }

onEveryDurableStore((on) => {
  let harness: CrashHarness
  beforeAll(async () => {
    harness = await CrashHarness.prepare(on.bed)
  })

  test('a run waits for a store that is not available, at every write', { timeout: patience(120_000) }, async () => {
    const { scenarioCount, violations } = await harness.failOnce('store_unavailable', sample)
    expect(violations, `seed ${seed}`).toEqual([])
    expect(scenarioCount).toBeGreaterThan(9)
  })

  test('a run whose write has an unknown outcome is read anew: nothing is lost, nothing recorded is made again', {
    timeout: patience(120_000),
  }, async () => {
    const { scenarioCount, violations } = await harness.failOnce('outcome_unknown', sample)
    expect(violations, `seed ${seed}`).toEqual([])
    expect(scenarioCount).toBeGreaterThan(18)
  })

  test('a run gets through a store of which every act fails one time in twenty', { timeout: patience(120_000) }, async () => {
    const { violations } = await harness.failByChance(6, { probability: 0.05, seed })
    expect(violations, `seed ${seed}`).toEqual([])
  })
})

test('outages and unknown outcomes do not count as deaths', async () => {
  let failures = 0
  const store = wrapStore(createMemoryStore(), {
    after: (act, _, args) => {
      if (act !== 'commit' || !writes(args, 'step_completed') || failures++ >= 12) return
      throw new HoldfastError('outcome_unknown', 'The answer got lost.')
    },
  })
  const hf = await open(store, { logger: false, worker: { pollMs: 10 } })
  const twelve = workflow('twelve', async (ctx) => {
    for (let n = 0; n < 12; n++) await ctx.step(`step${n}`, () => n)
    return 'done'
  })
  const run = await hf.start(twelve, undefined)
  expect(await run.result({ timeoutMs: patience(20_000) })).toBe('done')
  expect((await run.events()).filter(({ type }) => type === 'step_completed')).toHaveLength(12)
  await hf.close()
})

test('a claim whose answer got lost is taken up again when its lease is over', async () => {
  let isLost = false
  const store = wrapStore(createMemoryStore(), {
    after: (act, _, __, answer) => {
      if (act !== 'claim' || isLost || (answer as unknown[]).length === 0) return
      isLost = true
      throw new HoldfastError('outcome_unknown', 'The answer got lost.')
    },
  })
  const hf = await open(store, { logger: false, worker: { pollMs: 10, leaseMs: 300 } })
  const short = workflow('short', (ctx) => ctx.step('only', () => 'done'))
  const run = await hf.start(short, undefined)
  expect(await run.result({ timeoutMs: patience(10_000) })).toBe('done')
  expect((await run.events()).map(({ type }) => type)).toContain('run_recovered')
  await hf.close()
})

test('what a function does to its state after its run has ended is seen by nobody', async () => {
  const store = wrapStore(createMemoryStore(), {
    before: async (act, _, args) => {
      if (act === 'commit' && writes(args, 'run_failed')) await wait(60)
    },
  })
  const hf = await open(store, { logger: false, worker: { pollMs: 10 } })
  const late = workflow<undefined, void>({ name: 'late', timeoutMs: 50 }, async (ctx) => {
    await ctx.step('first', () => {})
    for (let n = 1; n < 40; n++) {
      ctx.update((draft: Record<string, unknown>) => {
        draft['n'] = n
      })
      await wait(5)
    }
    await ctx.step('never', () => wait(10_000))
  })
  const reader = workflow('reader', async (ctx) => ({ ...ctx.state }))
  const first = await hf.start(late, undefined, { threadId: 't' })
  await expect(first.result()).rejects.toMatchObject({ code: 'run_failed' })
  const written = await hf.thread('t').state()
  expect(await hf.thread('t').run(reader, undefined)).toEqual(written)
  await hf.close()
})

function writes(args: readonly unknown[], type: string): boolean {
  return (args[0] as readonly Change[]).some(({ events }) => events.some((event) => event.type === type))
}

function wait(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms))
}
