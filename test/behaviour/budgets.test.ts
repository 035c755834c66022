import { plan, workflow } from 'holdfast'
import { type StoreAct, wrapStore } from 'holdfast/testing'
import { expect, it } from 'vitest'
import { patience } from '../patience.ts'
import { becomes, codeOfRejection, eventTypes, logged } from './runs.ts'
import { onLocalStores } from './stores.ts'

onLocalStores('a budget', ({ open, openMortal, openWrapped, advance }) => {
  const think = (budget: object, tokens = [400, 400, 400]) =>
    workflow({ name: 'think', budget }, async (ctx) => {
      let sum = 0
      for (const [index, inputTokens] of tokens.entries()) {
        sum += await ctx.step(`think-${index}`, (step) => {
          step.usage({ model: 'm', inputTokens, outputTokens: 0, cost: inputTokens / 1_000 })
          return inputTokens
        })
      }
      return sum
    })

  it('of 1,000 tokens pauses the run that passes it, and raising it lets the run finish', async () => {
    const hf = await open()
    const run = await hf.start(think({ tokens: 1_000 }, [600, 600, 600]))
    await becomes(run, 'paused')
    const info = await run.info()
    expect(info).toMatchObject({ reason: 'budget', usage: { tokens: 1_200, cost: 1.2, steps: 2 } })
    expect(info.error).toMatchObject({ code: 'budget_exceeded' })
    expect(info.completedSteps).toEqual(['think-0', 'think-1'])
    await run.resume({ budget: { tokens: 5_000 }, by: 'ann' })
    expect(await run.result()).toBe(1_800)
    const types = await eventTypes(run)
    expect(types.filter((type) => type.startsWith('budget'))).toEqual(['budget_exceeded', 'budget_raised'])
    expect((await run.info()).usage).toMatchObject({ tokens: 1_800, steps: 3 })
  })

  it('that is passed by the last step pauses the run all the same', async () => {
    const hf = await open()
    const run = await hf.start(think({ cost: 1 }))
    await becomes(run, 'paused')
    await run.resume({ budget: { cost: 2 } })
    expect(await run.result()).toBe(1_200)
  })

  it('that is not raised pauses the run again', async () => {
    const hf = await open()
    const run = await hf.start(think({ tokens: 500 }))
    await becomes(run, 'paused')
    await run.resume()
    await expect.poll(async () => (await eventTypes(run)).filter((type) => type === 'run_paused').length).toBe(2)
    expect((await run.info()).completedSteps).toEqual(['think-0', 'think-1'])
  })

  it('that is raised before the run has begun counts when it begins, and after a crash', async () => {
    const client = await open({ worker: false })
    const work = think({ tokens: 500 })
    const pending = await client.start(work)
    await pending.resume({ budget: { tokens: 5_000 }, by: 'ann' })
    const paused = await client.start(work)
    await paused.pause()
    await paused.resume({ budget: { tokens: 5_000 } })
    const mortal = await openMortal({ workflows: [work] }, { after: 'step_completed' })
    await mortal.dead
    advance(11_000)
    await open({ workflows: [work] })
    expect(await Promise.all([pending.result(), paused.result()])).toEqual([1_200, 1_200])
    expect((await pending.events()).find(({ type }) => type === 'budget_raised')?.data).toEqual({
      budget: { tokens: 5_000 },
      by: 'ann',
    })
  })

  it('of steps holds the next one back', async () => {
    const hf = await open()
    const run = await hf.start(think({ steps: 2 }))
    await becomes(run, 'paused')
    expect((await run.info()).completedSteps).toEqual(['think-0', 'think-1'])
    await run.resume({ budget: { steps: 3 } })
    expect(await run.result()).toBe(1_200)
  })

  it('of time counts execution and not waiting', async () => {
    const slow = workflow({ name: 'slow', budget: { wallMs: patience(800) } }, async (ctx) => {
      await ctx.sleep(60_000)
      await ctx.step('a', () => new Promise((resolve) => setTimeout(resolve, patience(1_000))))
      return ctx.step('b', () => 'done')
    })
    const hf = await open()
    const run = await hf.start(slow)
    await becomes(run, 'waiting')
    advance(61_000)
    await becomes(run, 'paused')
    expect(await run.info()).toMatchObject({ reason: 'budget', completedSteps: ['a'] })
    await run.resume({ budget: { wallMs: 60_000 } })
    expect(await run.result()).toBe('done')
  })

  it('of time does not count the quiet time of a run that waits, and counts what its function did by itself meanwhile', async () => {
    const wallMs = patience(800)
    const pass = () => new Promise<void>((resolve) => setTimeout(resolve, 2 * wallMs))
    const wait = workflow({ name: 'wait', budget: { wallMs } }, async (ctx, isBusy: boolean) => {
      const own = isBusy ? pass().then(() => ctx.step('own', () => 1)) : undefined
      await ctx.step('a', () => 1)
      await ctx.waitFor('go')
      await own
      return ctx.step('b', () => 'done')
    })
    const hf = await open({ worker: { quietMs: 60_000 } })
    const [idle, busy] = [await hf.start(wait, false), await hf.start(wait, true)]
    await logged(idle, 'step_completed')
    await pass()
    await hf.signal(idle.id, 'go')
    expect(await idle.result()).toBe('done')
    expect((await idle.info()).usage.wallMs).toBeLessThan(wallMs)
    await becomes(busy, 'paused')
    expect(await busy.info()).toMatchObject({ reason: 'budget' })
  })

  it('survives the worker: what was spent before a crash counts after it, also by an attempt that failed', async () => {
    const work = workflow({ name: 'work', budget: { tokens: 1_000 } }, async (ctx) => {
      await ctx.step(
        'a',
        (step) => {
          step.usage({ inputTokens: 300 })
          if (step.attempt < 3) throw new Error('again')
        },
        { retry: { minMs: 1 } },
      )
      ctx.usage({ outputTokens: 50 })
      await ctx.step('b', (step) => step.usage({ inputTokens: 100 }))
      return ctx.step('c', () => 'never')
    })
    const mortal = await openMortal({ workflows: [work] }, { after: 'step_completed' })
    const { id } = await mortal.hf.start(work)
    await mortal.dead
    advance(11_000)
    const hf = await open({ workflows: [work] })
    const run = await hf.runs.get(id)
    await becomes(run, 'paused')
    expect((await run.info()).usage).toMatchObject({ inputTokens: 1_000, outputTokens: 50, tokens: 1_050 })
    await run.resume({ budget: { tokens: 2_000 } })
    expect(await run.result()).toBe('never')
    expect((await run.info()).usage.tokens).toBe(1_050)
  })

  it('reserve lets a call through only when there is room for it', async () => {
    const sent: number[] = []
    const work = workflow({ name: 'work', budget: { cost: 1 } }, async (ctx) => {
      for (let i = 1; i <= 3; i++) {
        await ctx.reserve(0.4)
        await ctx.step(`call-${i}`, (step) => {
          sent.push(i)
          step.usage({ cost: 0.4 })
        })
      }
      return sent.length
    })
    const hf = await open()
    const run = await hf.start(work)
    await becomes(run, 'paused')
    expect(sent).toEqual([1, 2])
    expect((await run.info()).usage.cost).toBe(0.8)
    await run.resume({ budget: { cost: 2 } })
    expect(await run.result()).toBe(3)
  })

  it('of a parent covers its children: their usage counts, and they get no more than what is left', async () => {
    const child = workflow({ name: 'child', budget: { tokens: 10_000 } }, async (ctx, tokens: number) => {
      await ctx.step('spend', (step) => step.usage({ inputTokens: tokens }))
      return ctx.step('more', () => tokens)
    })
    const parent = workflow({ name: 'parent', budget: { tokens: 1_000 } }, async (ctx) => {
      await ctx.call(child, 600)
      return ctx.call(child, 600)
    })
    const hf = await open({ workflows: [child] })
    const run = await hf.start(parent, undefined, { id: 'p' })
    await expect.poll(async () => (await hf.runs.list({ workflow: 'child' })).items[0]?.id === 'p/child#2').toBe(true)
    const handle = await hf.runs.get('p/child#2')
    await becomes(handle, 'paused')
    expect((await handle.info()).error).toMatchObject({ code: 'budget_exceeded' })
    expect((await run.info()).usage.tokens).toBe(600)
    await handle.resume({ budget: { tokens: 10_000 } })
    await becomes(run, 'paused')
    expect((await run.info()).usage.tokens).toBe(1_200)
    await run.resume({ budget: { tokens: 2_000 } })
    expect(await run.result()).toBe(600)
  })

  it('notices a step that is called with the same input again and again', async () => {
    const circle = workflow({ name: 'circle', budget: { repeats: 5 } }, async (ctx) => {
      for (let i = 0; i < 100; i++) await ctx.step('search', () => i, { input: { query: 'same' } })
    })
    const hf = await open()
    const run = await hf.start(circle)
    await becomes(run, 'paused')
    expect((await run.info()).completedSteps).toHaveLength(5)
    expect((await run.info()).error?.message).toContain('repeats')
  })

  it('goes on over continueAs', async () => {
    const months = workflow({ name: 'months', budget: { tokens: 250 } }, async (ctx, n: number) => {
      await ctx.step('spend', (step) => step.usage({ inputTokens: 100 }))
      if (n < 5) await ctx.continueAs(n + 1)
      return n
    })
    const hf = await open()
    const run = await hf.start(months, 1)
    await becomes(run, 'paused')
    expect((await run.info()).usage.tokens).toBe(300)
    await run.resume({ budget: { tokens: 10_000 } })
    expect(await run.result()).toBe(5)
  })

  it('of time counts over continueAs, too', async () => {
    let tapes = 0
    const work = workflow({ name: 'work', budget: { wallMs: 400 } }, async (ctx, left: number): Promise<string> => {
      await ctx.step('s', () => {
        tapes++
        return new Promise<void>((resolve) => setTimeout(resolve, 150))
      })
      return left === 0 ? 'done' : ctx.continueAs(left - 1)
    })
    const hf = await open()
    const run = await hf.start(work, 9)
    await becomes(run, 'paused')
    expect((await run.info()).reason).toBe('budget')
    expect((await run.info()).usage.wallMs).toBeGreaterThan(400)
    expect(tapes).toBeLessThan(9)
  })

  it('of repeats is not forgotten when the run waits', async () => {
    let thinks = 0
    const circle = workflow({ name: 'circle', budget: { repeats: 3 } }, async (ctx) => {
      for (let i = 0; i < 10; i++) {
        await ctx.step('think', () => void thinks++, { input: 'same' })
        await ctx.waitFor('next')
      }
      return 'done'
    })
    const hf = await open()
    const run = await hf.start(circle, undefined, { id: 'r' })
    for (let i = 1; i <= 3; i++) {
      await becomes(run, 'waiting')
      expect(thinks).toBe(i)
      await hf.signal('r', 'next')
      await expect.poll(async () => (await eventTypes(run)).filter((type) => type === 'signal_received').length).toBe(i)
    }
    await becomes(run, 'paused')
    expect((await run.info()).reason).toBe('budget')
    expect(thinks).toBe(3)
    await run.resume({ budget: { repeats: 4 } })
    await becomes(run, 'waiting')
    expect(thinks).toBe(4)
  })

  it('counts what a child used once, also when it is retried with its parent', async () => {
    let isDown = true
    const child = workflow('child', async (ctx) => {
      await ctx.step('a', (step) => step.usage({ cost: 10, inputTokens: 3 }))
      await ctx.step(
        'b',
        (step) => {
          step.usage({ cost: 1 })
          if (isDown) throw new Error('down')
        },
        { retry: { attempts: 1 } },
      )
    })
    const parent = workflow({ name: 'parent', budget: { cost: 13 } }, async (ctx) => {
      await ctx.call(child, undefined)
      return ctx.step('after', () => 'done')
    })
    const hf = await open({ workflows: [child] })
    const run = await hf.start(parent, undefined, { id: 'p' })
    await logged(run, 'run_failed')
    expect((await run.info()).usage).toMatchObject({ cost: 11, tokens: 3 })
    isDown = false
    await run.retry()
    expect(await run.result()).toBe('done')
    expect((await run.info()).usage).toMatchObject({ cost: 12, tokens: 3 })
  })

  it('counts ctx.usage of every attempt of a plan step, and none of them twice', async () => {
    let calls = 0
    const work = plan('work', { budget: { cost: 25 } }).step(
      'ask',
      async (_, ctx) => {
        calls++
        ctx.usage({ cost: 10 })
        if (calls < 4) throw new Error('bad answer')
        await ctx.waitFor('go')
      },
      { retry: { attempts: 5, minMs: 1 } },
    )
    const hf = await open()
    const run = await hf.start(work, {}, { id: 'r' })
    await becomes(run, 'paused')
    expect([calls, (await run.info()).usage.cost]).toEqual([3, 30])
    await run.resume({ budget: { cost: 100 } })
    await becomes(run, 'waiting')
    await hf.signal('r', 'go')
    await run.result()
    // The replay after the wait called the function once more, and booked nothing.
    expect([calls, (await run.info()).usage.cost]).toEqual([5, 40])
  })

  /** Uses the costs one after the other. */
  const spender = workflow('spender', async (ctx, costs: readonly number[]) => {
    for (const cost of costs) await ctx.step('spend', (step) => step.usage({ cost }))
    return costs.length
  })

  it('of a parent that is raised lets a child continue that had used up its part', async () => {
    const parent = workflow({ name: 'parent', budget: { cost: 10 } }, async (ctx) => ctx.call(spender, [15, 1]))
    const hf = await open({ workflows: [spender] })
    const run = await hf.start(parent, undefined, { id: 'p' })
    await logged(run, 'child_started')
    const child = await hf.runs.get('p/spender#1')
    await becomes(child, 'paused')
    await run.resume({ budget: { cost: 100 } })
    expect(await run.result()).toBe(2)
    expect((await run.info()).usage.cost).toBe(16)
  })

  it('that is raised at the moment at which the run becomes a row reaches the child', async () => {
    const parent = workflow({ name: 'parent', budget: { cost: 10 } }, async (ctx) => ctx.call(spender, [15, 1]))
    const hf = await open({ workflows: [spender], worker: { quietMs: 300 } })
    const run = await hf.start(parent, undefined, { id: 'p' })
    const before = async (act: StoreAct) => {
      if (act === 'deliver') await becomes(run, 'waiting')
    }
    const late = await openWrapped((store) => wrapStore(store, { before }), { worker: false })
    await logged(run, 'child_started')
    await becomes(await hf.runs.get('p/spender#1'), 'paused')
    await (await late.runs.get('p')).resume({ budget: { cost: 100 } })
    expect(await run.result()).toBe(2)
  })

  it('of a child that is raised lets the child continue; what it used counts for the parent', async () => {
    const parent = workflow({ name: 'parent', budget: { cost: 10 } }, async (ctx) => {
      const done = await ctx.call(spender, [15, 1])
      return ctx.step('after', () => done)
    })
    const hf = await open({ workflows: [spender] })
    const run = await hf.start(parent, undefined, { id: 'p' })
    await logged(run, 'child_started')
    const child = await hf.runs.get('p/spender#1')
    await becomes(child, 'paused')
    await child.resume({ budget: { cost: 100 } })
    expect(await child.result()).toBe(2)
    await becomes(run, 'paused')
    expect(await run.info()).toMatchObject({ reason: 'budget', usage: { cost: 16 } })
    await run.resume({ budget: { cost: 100 } })
    expect(await run.result()).toBe(2)
  })

  it('is shared by children that begin together, and what one leaves over goes to another', async () => {
    const parent = workflow({ name: 'parent', budget: { cost: 12 } }, async (ctx) =>
      Promise.all([ctx.call(spender, [1]), ctx.call(spender, [1]), ctx.call(spender, [5, 1, 1])]),
    )
    const hf = await open({ workflows: [spender] })
    const run = await hf.start(parent, undefined, { id: 'p' })
    expect(await run.result()).toEqual([1, 1, 3])
    const limits = await Promise.all(
      [1, 2, 3].map(async (n) => {
        const [queued] = await (await hf.runs.get(`p/spender#${n}`)).events()
        return (queued?.data?.['budget'] as { cost?: number } | undefined)?.cost
      }),
    )
    expect(limits).toEqual([4, 4, 4])
    const third = await hf.runs.get('p/spender#3')
    expect((await eventTypes(third)).filter((type) => type === 'budget_raised')).toHaveLength(1)
    expect((await run.info()).usage.cost).toBe(9)
  })

  it('with a limit that is no number, or a usage that is none, is refused', async () => {
    expect(() => workflow({ name: 'w', budget: { tokens: -1 } }, () => 1)).toThrowError(/tokens/)
    expect(() => workflow({ name: 'w', budget: { dollars: 1 } as never }, () => 1)).toThrowError(/dollars/)
    const bad = workflow('bad', (ctx) => ctx.step('s', (step) => step.usage({ cost: Number.NaN }), { retry: { attempts: 1 } }))
    const hf = await open()
    const run = await hf.start(bad)
    await logged(run, 'run_failed')
    expect((await run.info()).error).toMatchObject({ code: 'invalid_input' })
    expect(await codeOfRejection(run.resume({ budget: { cost: -1 } }))).toBe('invalid_input')
  })
})
