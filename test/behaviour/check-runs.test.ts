// biome-ignore-all lint/suspicious/noAssignInExpressions: recipes are written the way users write them
import { type AnyWorkflow, type Holdfast, plan, state, type ThreadBundle, workflow } from 'holdfast'
import { checkRuns, createVirtualClock, replayAll } from 'holdfast/testing'
import { describe, expect, it, onTestFinished, test } from 'vitest'
import { becomes } from './runs.ts'
import { onEveryStore } from './stores.ts'

let calls = 0
function body<T>(value: T): () => T {
  return () => {
    calls++
    return value
  }
}

/** What is in flight: three results on record, then a wait. */
const deployed = workflow('order', async (ctx, order: string) => {
  const price = await ctx.step('price', body(40))
  await ctx.once('reserve', { run: body('reserved'), idempotent: true })
  const [stock] = await Promise.all([ctx.step('stock', body(3)), ctx.step('tax', body(7))])
  await ctx.waitFor('paid')
  await ctx.step('ship', body('shipped'))
  return { order, price, stock }
})

async function setUp(workflows: readonly AnyWorkflow[]): Promise<{ hf: Holdfast; idle: () => Promise<void> }> {
  const clock = createVirtualClock()
  onTestFinished(() => clock.close())
  const hf = await clock.open({ workflows, logger: false })
  return { hf, idle: clock.idle }
}

async function inFlight(count = 2) {
  const { hf, idle } = await setUp([deployed])
  for (let i = 0; i < count; i++) await hf.start(deployed, `o${i}`, { id: `order-${i}` })
  await idle()
  calls = 0
  return hf
}

describe('checkRuns', () => {
  test('passes unchanged code, calls no body and writes nothing', async () => {
    const hf = await inFlight()
    const before = await (await hf.runs.get('order-0')).events()
    const check = await checkRuns(hf, { workflows: [deployed] })
    expect(check).toMatchObject({ checked: 2, notBegun: 0, problems: [], isGood: true })
    expect(String(check)).toBe('2 runs replayed, 0 would not continue as they are')
    expect(calls).toBe(0)
    expect(await (await hf.runs.get('order-0')).events()).toEqual(before)
  })

  test('passes code that differs only in what comes next', async () => {
    const hf = await inFlight(1)
    const next = workflow('order', async (ctx) => {
      await ctx.step('price', body(41))
      await ctx.once('reserve', { run: body('reserved'), idempotent: true })
      await Promise.all([ctx.step('stock', body(3)), ctx.step('tax', body(7))])
      await ctx.step('audit', body('new'))
    })
    expect((await checkRuns(hf, { workflows: [next] })).problems).toEqual([])
    expect(calls).toBe(0)
  })

  test.each([
    ['a renamed step', ['cost', 'reserve', 'stock', 'tax'], ['step:price#1', 'effect:reserve#1'], ['step:cost#1']],
    ['an inserted step', ['price', 'audit', 'reserve', 'stock', 'tax'], ['effect:reserve#1'], ['step:audit#1']],
    ['a removed step', ['price', 'reserve', 'tax'], ['step:stock#1'], ['step:tax#1', 'signal:paid#1']],
  ])('finds %s, with both sides', async (_, names, recorded, asked) => {
    const hf = await inFlight()
    const changed = workflow('order', async (ctx) => {
      for (const name of names) {
        if (name === 'reserve') await ctx.once(name, { run: body(name), idempotent: true })
        else await ctx.step(name, body(name))
      }
      await ctx.waitFor('paid')
    })
    const check = await checkRuns(hf, { workflows: [changed] })
    expect(check.isGood).toBe(false)
    expect(check.problems).toHaveLength(2)
    const [problem] = check.problems
    expect(problem).toMatchObject({ workflow: 'order', version: 1, problem: 'diverges' })
    expect(problem?.recorded?.slice(0, recorded.length)).toEqual(recorded)
    expect(asked).toContain(problem?.asked?.[0])
    expect(String(check)).toContain(`| ${problem?.runId} | order 1 | diverges |`)
    expect(calls).toBe(0)
  })

  test('finds a workflow, a version and a function that are gone wrong', async () => {
    const hf = await inFlight(1)
    const newer = workflow({ name: 'order', version: 2 }, async () => {})
    expect((await checkRuns(hf, { workflows: [newer] })).problems).toMatchObject([{ problem: 'missing' }])
    const throws = workflow('order', async (ctx) => {
      await ctx.step('price', body(40))
      throw new Error('no longer sold')
    })
    expect((await checkRuns(hf, { workflows: [throws] })).problems).toMatchObject([
      { problem: 'diverges', message: expect.stringContaining('effect:reserve#1') },
    ])
    const throwsLater = workflow('order', async (ctx) => {
      await ctx.step('price', body(40))
      await ctx.once('reserve', { run: body('reserved'), idempotent: true })
      await Promise.all([ctx.step('stock', body(3)), ctx.step('tax', body(7))])
      throw new Error('no longer sold')
    })
    expect((await checkRuns(hf, { workflows: [throwsLater] })).problems).toMatchObject([
      { problem: 'fails', message: 'no longer sold' },
    ])
  })

  test('finds a migration that fails, of runs in flight and of threads at rest', async () => {
    const first = state({ version: 1, initial: () => ({ items: ['a'] as string[] | null }) })
    const second = (isCareful: boolean) =>
      state({
        version: 2,
        initial: () => ({ items: [] as string[], count: 0 }),
        migrations: {
          1: (old: { items: string[] | null }) => ({
            items: old.items ?? [],
            count: isCareful ? (old.items ?? []).length : (old.items as string[]).length,
          }),
        },
      })
    const cart = (definition: typeof first) =>
      workflow({ name: 'cart', state: definition }, async (ctx, isEmpty: boolean) => {
        if (isEmpty)
          ctx.update((draft) => {
            draft.items = null
          })
        await ctx.step('price', body(1))
        await ctx.waitFor('paid')
      })
    const { hf, idle } = await setUp([cart(first)])
    await hf.start('cart', true, { id: 'empty' })
    await hf.start('cart', false, { id: 'full' })
    await idle()
    const good = second(true) as never
    const wrong = second(false) as never
    expect((await checkRuns(hf, { workflows: [cart(good)], states: [good] })).isGood).toBe(true)
    const check = await checkRuns(hf, { workflows: [cart(wrong)], states: [wrong] })
    expect(check.problems).toMatchObject([{ runId: 'empty', problem: 'fails', message: expect.stringContaining('migration') }])
    expect(check.migrations).toMatchObject([{ threadId: 'empty', fromVersion: 1 }])
  })

  test('plans, sections, timers, questions and children in flight, as they are', async () => {
    const child = workflow('child', (ctx) => ctx.waitFor('go'))
    const mixed = plan('mixed', { state: state({ version: 1, initial: () => ({ n: 0 }) }) })
      .step('first', async (_, ctx) => ({ n: await ctx.step('one', () => 1) }))
      .parallel([
        ['ask', async (_, ctx) => void (await ctx.ask('sure', { question: '?' }))],
        ['sleep', async (_, ctx) => ctx.sleep(86_400_000)],
        ['child', async (_, ctx) => void (await ctx.call(child))],
      ])
    const { hf, idle } = await setUp([mixed, child])
    await hf.start(mixed, undefined, { id: 'mixed' })
    await idle()
    const check = await checkRuns(hf, { workflows: [mixed, child] })
    expect(String(check)).toContain('2 runs replayed, 0 would not')
  })

  test('those of an owner, whose keys are made of it', async () => {
    const pay = workflow('pay', async (ctx) => {
      await ctx.once('pay', { run: body('paid'), idempotent: true })
      await ctx.waitFor('done')
    })
    const { hf, idle } = await setUp([pay])
    const alice = hf.as('alice')
    await alice.start(pay, undefined, { id: 'p' })
    await idle()
    expect(await checkRuns(alice, { workflows: [pay] })).toMatchObject({ checked: 1, problems: [] })
    expect(await replayAll([await alice.debug.export('p')], { workflows: [pay], owner: 'alice' })).toMatchObject({ problems: [] })
    expect(await checkRuns(hf, { workflows: [pay] })).toMatchObject({ checked: 0 })
  })

  test('a thousand runs in flight, or a sample of them', async () => {
    const hf = await inFlight(1_000)
    expect(await checkRuns(hf, { workflows: [deployed] })).toMatchObject({ checked: 1_000, problems: [] })
    expect((await checkRuns(hf, { workflows: [deployed], sample: 50 })).checked).toBe(50)
  })
})

describe('checkRuns over a thousand runs in flight', () => {
  const cart = (version: 1 | 2) =>
    version === 1
      ? state({ version: 1, initial: () => ({ items: null as string[] | null }) })
      : state({
          version: 2,
          initial: () => ({ items: [] as string[], count: 0 }),
          migrations: { 1: (old: { items: string[] }) => ({ ...old, count: old.items.length }) },
        })
  const workflowsOf = (names: Record<string, readonly string[]>, version: 1 | 2) =>
    Object.entries(names).map(([name, steps]) =>
      workflow({ name, state: cart(name === 'migrated' ? version : 1) as never }, async (ctx) => {
        for (const step of steps) await ctx.step(step, body(step))
        await ctx.waitFor('paid')
      }),
    )
  const steps = ['price', 'stock', 'tax']
  const old = { same: steps, renamed: steps, inserted: steps, removed: steps, migrated: steps }
  const changed = {
    ...old,
    renamed: ['price', 'storage', 'tax'],
    inserted: ['price', 'audit', 'stock', 'tax'],
    removed: ['price', 'tax'],
  }

  test('finds a renamed, an inserted and a removed step and a failing migration, and nothing else', async () => {
    const { hf, idle } = await setUp(workflowsOf(old, 1))
    const counts: Record<string, number> = { same: 920, renamed: 20, inserted: 20, removed: 20, migrated: 20 }
    for (const [name, count] of Object.entries(counts))
      for (let i = 0; i < count; i++) await hf.thread(`${name}-${i}`).start(name, undefined, { id: `${name}-${i}` })
    await idle()
    // A thread that a migration was not written for: its list was never set.
    await Promise.all(
      [0, 1].map((i) => hf.thread(`migrated-${i}`).update<{ items: string[] | null }>((draft) => void (draft.items = ['a']))),
    )
    calls = 0
    const check = await checkRuns(hf, { workflows: workflowsOf(changed, 2) })
    expect(check.checked).toBe(1_000)
    const found = Map.groupBy(check.problems, ({ workflow: name, problem }) => `${name} ${problem}`)
    expect(Object.fromEntries([...found].map(([kind, problems]) => [kind, problems.length]))).toEqual({
      ...{ 'renamed diverges': 20, 'inserted diverges': 20, 'removed diverges': 20, 'migrated fails': 18 },
    })
    expect(calls).toBe(0)
  })
})

onEveryStore('checkRuns', ({ open }) => {
  it('reads runs in flight from the store, and leaves them as they are', async () => {
    const hf = await open({ workflows: [deployed] })
    for (let i = 0; i < 5; i++) await hf.start(deployed, `o${i}`, { id: `order-${i}` })
    for (let i = 0; i < 5; i++) await becomes(await hf.runs.get(`order-${i}`), 'waiting')
    const before = await Promise.all([0, 1, 2, 3, 4].map((i) => hf.debug.export(`order-${i}`)))
    expect(await checkRuns(hf, { workflows: [deployed] })).toMatchObject({ checked: 5, isGood: true })
    const renamed = workflow('order', async (ctx) => {
      await ctx.step('cost', body(40))
    })
    const { problems } = await checkRuns(hf, { workflows: [renamed] })
    expect(problems.map(({ problem, recorded, asked }) => [problem, recorded?.[0], asked?.[0]])).toEqual(
      Array(5).fill(['diverges', 'step:price#1', 'step:cost#1']),
    )
    expect(await replayAll(before, { workflows: [deployed] })).toMatchObject({ checked: 5, isGood: true })
    const after = await Promise.all([0, 1, 2, 3, 4].map((i) => hf.debug.export(`order-${i}`)))
    expect(after.map(({ sha256 }) => sha256)).toEqual(before.map(({ sha256 }) => sha256))
  })
})

describe('replayAll', () => {
  test('runs that have ended must end in the same way', async () => {
    const add = (summand: number) =>
      workflow('add', async (ctx, isFailing: boolean) => {
        const n = await ctx.step('n', body(1))
        if (isFailing) await ctx.step('fail', () => Promise.reject(new Error('refused')), { retry: { attempts: 1 } })
        return n + summand
      })
    const { hf, idle } = await setUp([add(1)])
    await hf.start('add', false, { id: 'good' })
    await hf.start('add', true, { id: 'bad' })
    await idle()
    const bundles: ThreadBundle[] = [await hf.debug.export('good'), await hf.debug.export('bad')]
    calls = 0
    const same = await replayAll(bundles, { workflows: [add(1)] })
    expect(same).toMatchObject({ checked: 2, problems: [] })
    const other = await replayAll(
      bundles.map((bundle) => JSON.stringify(bundle)),
      { workflows: [add(2)] },
    )
    expect(other.problems).toMatchObject([{ runId: 'good', problem: 'diverges', message: 'Its output is another one.' }])
    const longer = workflow('add', async (ctx) => {
      await ctx.step('n', body(1))
      await ctx.step('more', body(2))
    })
    expect((await replayAll([bundles[0] as ThreadBundle], { workflows: [longer] })).problems).toMatchObject([
      { problem: 'diverges', recorded: ['run_completed'], asked: ['step more #1'] },
    ])
    expect(calls).toBe(0)
    await expect(replayAll(['{}'], { workflows: [] })).rejects.toMatchObject({ code: 'invalid_input' })
  })

  test('a run that failed and was undone is not played: its end is more than its function', async () => {
    const booking = workflow({ name: 'booking', undoOnFailure: true }, async (ctx) => {
      await ctx.step('book', body(1), { undo: body(undefined) })
      await ctx.step('pay', () => Promise.reject(new Error('refused')), { retry: { attempts: 1 } })
    })
    const { hf, idle } = await setUp([booking])
    await hf.start(booking, undefined, { id: 'undone' })
    await idle()
    calls = 0
    expect(await replayAll([await hf.debug.export('undone')], { workflows: [booking] })).toMatchObject({
      checked: 0,
      problems: [],
    })
    expect(calls).toBe(0)
  })

  test('of a run that its time limit has ended only what it did counts', async () => {
    const limited = (step: string) =>
      workflow({ name: 'limited', timeoutMs: 60_000 }, async (ctx) => {
        await ctx.step(step, body(1))
        await ctx.waitFor('never')
        return 'done'
      })
    const clock = createVirtualClock()
    onTestFinished(() => clock.close())
    const hf = await clock.open({ workflows: [limited('look_up')], logger: false })
    const run = await hf.start('limited', undefined, { id: 'late' })
    await clock.idle()
    await clock.advance(61_000)
    expect(await run.info()).toMatchObject({ status: 'failed', error: { code: 'timeout' } })
    const bundles = [await hf.debug.export('late')]
    expect(await replayAll(bundles, { workflows: [limited('look_up')] })).toMatchObject({ checked: 1, problems: [] })
    const renamed = await replayAll(bundles, { workflows: [limited('find')] })
    expect(renamed.problems).toMatchObject([{ problem: 'diverges', recorded: ['step:look_up#1'], asked: ['step:find#1'] }])
  })
})
