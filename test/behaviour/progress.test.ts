import { plan, type RunEvent, type RunHandle, workflow } from 'holdfast'
import { wrapStore } from 'holdfast/testing'
import { expect, it, vi } from 'vitest'
import type { Change } from '../../src/store/change.ts'
import { becomes, failureOf, gate, logged, noting } from './runs.ts'
import { onLocalStores } from './stores.ts'

function reportsOf(events: readonly RunEvent[]): unknown[] {
  return events.flatMap(({ type, data }) => (type === 'progress_reported' ? [data?.['fraction']] : []))
}

async function watched(run: RunHandle): Promise<RunEvent[]> {
  const seen: RunEvent[] = []
  for await (const event of run.watch()) seen.push(event)
  return seen
}

onLocalStores('progress', ({ open, openWrapped }) => {
  it('is shown by info() while the run works, with its note, and is 1 when it has completed', async () => {
    const [half, go] = [gate(), gate()]
    const work = workflow('work', async (ctx) => {
      ctx.progress(0.25)
      await ctx.step('long', async (step) => {
        step.progress(0.5, 'half of the pages')
        half.open()
        await go.promise
      })
    })
    const hf = await open()
    const run = await hf.start(work, undefined, { delayMs: 0 })
    await half.promise
    await logged(run, 'progress_reported')
    expect((await run.info()).status).toBe('running')
    await vi.waitUntil(async () => (await run.info()).progress.fraction === 0.5, { timeout: 15_000, interval: 5 })
    expect((await run.info()).progress).toEqual({ fraction: 0.5, note: 'half of the pages', step: 'long' })
    go.open()
    await run.result()
    expect((await run.info()).progress).toEqual({ fraction: 1 })
  })

  it('is 0 before any report, and the last report of a run that failed', async () => {
    const hf = await open({ worker: false })
    const idle = await hf.start('idle')
    expect((await idle.info()).progress).toEqual({ fraction: 0 })
    const working = await open()
    const work = workflow('work', (ctx) => {
      ctx.progress(0.3, 'on the way')
      throw new Error('lost')
    })
    const run = await working.start(work)
    await failureOf(run)
    expect((await run.info()).progress).toEqual({ fraction: 0.3, note: 'on the way' })
  })

  it('of ten thousand reports writes a few, the last one before a result always, and none in a commit of its own before it is time', async () => {
    const changes: Change[] = []
    const hf = await openWrapped((store) =>
      wrapStore(store, {
        before: (name, _, args) => void (name === 'commit' && changes.push(...(args[0] as readonly Change[]))),
      }),
    )
    const work = workflow('work', (ctx) =>
      ctx.step('count', (step) => {
        for (let i = 1; i <= 10_000; i++) step.progress(i / 10_000)
      }),
    )
    const run = await hf.start(work)
    await run.result()
    const reports = reportsOf(await run.events())
    expect(reports.length).toBeLessThanOrEqual(3)
    expect(reports.at(-1)).toBe(1)
    const own = changes.filter(({ events }) => events.length > 0 && events.every(({ type }) => type === 'progress_reported'))
    expect(own).toEqual([])
  })

  it('comes while a step still runs, although nothing else is written', async () => {
    const [begun, go] = [gate(), gate()]
    const work = workflow('work', (ctx) =>
      ctx.step('long', async (step) => {
        await begun.promise
        step.progress(0.1)
        // Held back: it comes too soon after the first.
        step.progress(0.2)
        await go.promise
      }),
    )
    const watcher = await openWrapped(noting('readThread', begun.open), { worker: false })
    const hf = await open()
    const { id } = await hf.start(work)
    const seen: unknown[] = []
    for await (const event of (await watcher.runs.get(id)).watch()) {
      if (event.type === 'progress_reported') seen.push(event.data?.['fraction'])
      if (event.data?.['fraction'] === 0.2) go.open()
    }
    expect(seen).toEqual([0.1, 0.2])
  })

  it('is not replayed', async () => {
    const work = workflow('work', async (ctx) => {
      ctx.progress(0.5)
      await ctx.step('a', () => 1)
      await ctx.sleep(6_000)
      ctx.progress(0.9)
      await ctx.step('b', () => 1)
    })
    const first = await open({ workflows: [work] })
    const waiting = await first.start(work, undefined, { id: 'r' })
    await becomes(waiting, 'waiting')
    await first.close()
    const second = await open({ workflows: [work], clock: () => 7_000 })
    const run = await second.runs.get('r')
    await run.result()
    expect(reportsOf(await run.events())).toEqual([0.5, 0.9])
  })

  it('outside of 0 to 1, or with a note that is no text, is refused', async () => {
    const hf = await open()
    for (const [index, given] of [[-0.1], [1.1], [Number.NaN], ['half'], [0.5, 7]].entries()) {
      const work = workflow(`work-${index}`, (ctx) => ctx.progress(...(given as [number])))
      expect(await failureOf(await hf.start(work))).toMatchObject({ code: 'invalid_input' })
    }
  })

  it('of a plan is the weight of its finished steps, and a part of the running one', async () => {
    const report = plan('report', { retry: { attempts: 1 } })
      .step('gather', (_, ctx) => ctx.progress(0.5, 'half of the sources'), { weight: 40 })
      .step(
        'analyze',
        () => {
          throw new Error('no')
        },
        { weight: 30, onFailure: 'skip' },
      )
      .parallel([
        ['charts', () => {}, { weight: 20 }],
        ['compile', () => {}, { weight: 10 }],
      ])
    const hf = await open()
    const run = await hf.start(report)
    await run.result()
    const reports = reportsOf(await run.events())
    expect(reports.slice(0, 3)).toEqual([0.2, 0.4, 0.7])
    expect(reports).toHaveLength(5)
    expect(reports.at(-1)).toBe(1)
  })

  it('and every change of status come through watch(), in another process as well, and are enough for a bar', async () => {
    const go = gate()
    const report = plan('report')
      .step('gather', () => {}, { weight: 4 })
      .step('analyze', () => go.promise, { weight: 3 })
      .step('compile', () => {})
    let watches = 0
    const elsewhere = await openWrapped(
      noting('readThread', () => watches++),
      { worker: false },
    )
    const run = await elsewhere.start('report')
    watches = 0
    const seen = watched(run)
    const bars: string[] = []
    const drawing = (async () => {
      for await (const { type, data } of run.watch()) {
        const fraction = type === 'run_completed' ? 1 : data?.['fraction']
        if (typeof fraction === 'number') bars.push(`${'#'.repeat(fraction * 8)}${'.'.repeat(8 - fraction * 8)}`)
        if (fraction === 0.5) {
          await run.pause()
          go.open()
        }
        if (type === 'run_paused') await run.resume()
      }
    })()
    await vi.waitUntil(() => watches === 2)
    await open({ workflows: [report] })
    await run.result()
    await drawing
    const types = (await seen).map(({ type }) => type)
    expect(types.filter((type) => type.startsWith('run_') && type !== 'run_recovered')).toEqual([
      ...['run_started', 'run_paused', 'run_resumed', 'run_completed'],
    ])
    expect(bars).toEqual(['####....', '#######.', '########', '########'])
  })
})
