import { workflow } from 'holdfast'
import { expect, it, vi } from 'vitest'
import { gate } from './runs.ts'
import { onEveryStore } from './stores.ts'

const day = 86_400_000
/** npm run bench -- timers does it with 10,000. */
const count = 500
const places = 10

onEveryStore('timers that are overdue after a downtime', ({ open, advance }) => {
  it('fire once each, and a run that is started later gets its turn among them', async () => {
    const order: string[] = []
    const [middle, started] = [gate(), gate()]
    let isStarted = false
    const newcomer = workflow('newcomer', (ctx) => {
      order.push(ctx.runId)
    })
    const sleeper = workflow('sleeper', async (ctx) => {
      await ctx.sleep(day)
      order.push(ctx.runId)
      if (order.length < count / 2 || isStarted) return
      // Nobody passes the middle before that one is there.
      middle.open()
      await ctx.step('hold', () => started.promise)
    })

    const before = await open({ workflows: [sleeper] })
    const ids = Array.from({ length: count }, (_, index) => `sleeper ${index}`)
    await before.startMany(ids.map((id) => ({ workflow: sleeper, options: { id } })))
    await vi.waitUntil(async () => (await before.queues.get('default')).counts.waiting === count)
    await before.close()
    advance(2 * day)

    const client = await open({ worker: false, workflows: [newcomer] })
    await client.start(newcomer, undefined, { id: 'at the beginning' })
    const hf = await open({ workflows: [sleeper, newcomer], worker: { concurrency: places } })
    // In the middle of it somebody starts one more.
    await middle.promise
    await hf.start(newcomer, undefined, { id: 'in the middle' })
    isStarted = true
    started.open()
    await vi.waitUntil(() => order.length === count + 2)
    await hf.queues.drain('default')

    // All of the others were due a day before it.
    expect(order.indexOf('at the beginning')).toBeLessThan(places)
    expect(order.indexOf('in the middle')).toBeLessThan(count * 0.75)
    expect(new Set(order).size).toBe(count + 2)
    const logs = await Promise.all(ids.map(async (id) => (await hf.runs.get(id)).events()))
    for (const events of logs) {
      const ends = events.map(({ type }) => type).filter((type) => type === 'timer_fired' || type === 'run_completed')
      expect(ends).toEqual(['timer_fired', 'run_completed'])
    }
  })
})
