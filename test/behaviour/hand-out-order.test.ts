import { workflow } from 'holdfast'
import { wrapStore } from 'holdfast/testing'
import { expect, it } from 'vitest'
import type { EventType } from '../../src/model/event.ts'
import type { Change } from '../../src/store/change.ts'
import type { Store } from '../../src/store/store.ts'
import { failureOf, gate } from './runs.ts'
import { onEveryStore } from './stores.ts'

onEveryStore('results of a retried run', ({ open, openWrapped }) => {
  it('are handed out in log order where the second is written just after the last one that is kept', async () => {
    const [isRefused, isFirstSent, mayAnswer] = [gate(), gate(), gate()]
    let isRetried = false
    const order: string[] = []
    const items = Array.from({ length: 500 }, (_, index) => index)
    const work = workflow({ name: 'race', retry: { attempts: 1 } }, async (ctx) => {
      const refuse = () => Promise.reject(new Error('refused'))
      const first = ctx.step('first', () => (isRetried ? undefined : refuse()))
      const second = ctx.step('second', () => isFirstSent.promise)
      const both = Promise.all([first.then(() => order.push('first')), second.then(() => order.push('second'))])
      both.catch(() => {})
      await ctx.map('kept', items, () => isRefused.promise, { concurrency: items.length })
      if (isRetried) mayAnswer.open()
      await both
    })
    const holding = (store: Store): Store => {
      const writes = (changes: unknown, type: EventType, step: string) =>
        (changes as readonly Change[]).some(({ events }) => events.some((event) => event.type === type && event.step === step))
      return wrapStore(store, {
        before: async (act, _, [changes]) => {
          if (act === 'commit' && writes(changes, 'step_completed', 'first')) isFirstSent.open()
        },
        after: async (act, _, [changes]) => {
          if (act !== 'commit') return
          if (writes(changes, 'step_failed', 'first')) isRefused.open()
          if (writes(changes, 'step_completed', 'second')) await mayAnswer.promise
        },
      })
    }
    const client = await open({ worker: false })
    await openWrapped(holding, { workflows: [work] })
    const run = await client.start(work)
    expect(await failureOf(run)).toMatchObject({ message: expect.stringContaining('refused') })
    isRetried = true
    await run.retry()
    await run.result()
    expect(order).toEqual(['first', 'second'])
  })
})
