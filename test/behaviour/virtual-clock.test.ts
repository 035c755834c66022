import { NotHappened, plan, state, workflow } from 'holdfast'
import { createVirtualClock, mockSteps } from 'holdfast/testing'
import { describe, expect, onTestFinished, test } from 'vitest'

const dayMs = 86_400_000

function setUp() {
  const clock = createVirtualClock()
  onTestFinished(() => clock.close())
  return clock
}

describe('a virtual clock', () => {
  test('runs what becomes due, in order, and resolves when all of it is done', async () => {
    const clock = setUp()
    const mails: string[] = []
    const remind = workflow('remind', async (ctx, days: number) => {
      for (let i = 1; i <= 3; i++) {
        await ctx.sleep(days * dayMs)
        await ctx.step('send', () => mails.push(`${days} ${i}`))
      }
    })
    const hf = await clock.open({ workflows: [remind] })
    const runs = [await hf.start(remind, 2), await hf.start(remind, 3)]
    await clock.idle()
    await clock.advance(dayMs)
    expect(mails).toEqual([])
    await clock.advance(5 * dayMs)
    expect(mails.slice(0, 3)).toEqual(['2 1', '3 1', '2 2'])
    // Both are due on the sixth day.
    expect(mails.slice(3).toSorted()).toEqual(['2 3', '3 2'])
    await clock.advance(3 * dayMs)
    expect(mails).toHaveLength(6)
    expect((await Promise.all(runs.map((run) => run.info()))).map(({ status }) => status)).toEqual(['completed', 'completed'])
  })

  test('short waits, retries, time-outs and schedules go by it too', async () => {
    const clock = setUp()
    const startedAt = performance.now()
    let ticks = 0
    const flaky = workflow('flaky', async (ctx) => {
      await ctx.sleep(4_000)
      const attempts = await ctx.step('try', ({ attempt }) => {
        if (attempt < 3) throw new Error('not yet')
        return attempt
      })
      const answer = await ctx.ask('sure', { question: 'Sure?', timeoutMs: 60_000, default: false })
      return { attempts, answer }
    })
    const tick = workflow('tick', (ctx) => ctx.step('count', () => ++ticks))
    const hf = await clock.open({ workflows: [flaky, tick] })
    await hf.schedules.set('hourly', { workflow: tick, everyMs: 3_600_000 })
    const run = await hf.start(flaky)
    await clock.advance(3 * 3_600_000)
    expect(await run.result()).toEqual({ attempts: 3, answer: false })
    expect(ticks).toBe(3)
    expect(performance.now() - startedAt).toBeLessThan(60_000)
  })
})

describe('mockSteps', () => {
  test('replaces bodies by a value, an error or a function, and nothing else', async () => {
    const clock = setUp()
    const called: string[] = []
    const call = (name: string) => {
      called.push(name)
      return name
    }
    const original = workflow('original', async (ctx, to: string) => {
      const data = await ctx.step('load', () => call('load'))
      const rows = await ctx.scope('gather', (inner) => inner.map('source', ['a', 'b'], (source) => call(source)))
      const summary = await ctx.section('summarize', (inner) => inner.step('model', () => call('model')), {
        fallback: () => 'none',
      })
      const row = await ctx.transaction('row', () => call('row'))
      const mail = await ctx.once('send', { run: async () => call('send'), check: () => ({ happened: false }) })
      const kept = await ctx.step('kept', () => call('kept'))
      return { to, data, rows, summary, row, mail, kept }
    })
    const mocked = mockSteps(original, {
      load: 'data',
      'gather/source': (source: string, index: number) => `${source}${index}`,
      'summarize/model': new Error('down'),
      row: 7,
      send: (key: string) => key,
    })
    expect(mocked.name).toBe('original')
    const hf = await clock.open({ workflows: [mocked] })
    const run = await hf.start(mocked, 'alice', { id: 'r' })
    await clock.advance(60_000)
    const output = await run.result()
    expect(output).toEqual({
      ...{ to: 'alice', data: 'data', rows: ['a0', 'b1'], summary: 'none', row: 7, mail: 'r/send#1', kept: 'kept' },
    })
    expect(called).toEqual(['kept'])
    const failures = (await run.events()).filter(({ type, step }) => type === 'step_failed' && step === 'summarize/model')
    expect(failures).toHaveLength(3)
  })

  test('one call of several, the steps of a plan, and children', async () => {
    const clock = setUp()
    const child = workflow('child', (ctx) => ctx.step('work', () => 'real'))
    const order = plan('order', { state: state({ version: 1, initial: () => ({ seen: [] as unknown[] }) }) })
      .step('first', ({ seen }) => ({ seen: [...seen, 'real'] }))
      .step('second', async ({ seen }, ctx) => ({
        seen: [
          ...seen,
          await ctx.step('twice', () => 'real'),
          await ctx.step('twice', () => 'real'),
          await ctx.call(child),
          await ctx.once('pay', { run: () => 'real' }),
        ],
      }))
    const mocked = mockSteps(order, {
      first: { seen: ['mocked'] },
      'second/twice#2': 'mocked',
      work: 'mocked',
      pay: 'paid',
    })
    const hf = await clock.open({ workflows: [mocked] })
    const run = await hf.start(mocked)
    await clock.idle()
    expect(await run.result()).toEqual({ seen: ['mocked', 'real', 'mocked', 'mocked', 'paid'] })
  })

  test('an effect that surely did not happen', async () => {
    const clock = setUp()
    const pay = workflow('pay', async (ctx) =>
      ctx.once('pay', { run: () => 'real', retry: { attempts: 1 } }).catch((error: Error) => error.message),
    )
    const mocked = mockSteps(pay, { pay: new NotHappened(new Error('declined')) })
    const hf = await clock.open({ workflows: [mocked] })
    expect(await hf.run(mocked)).toContain('declined')
  })
})
