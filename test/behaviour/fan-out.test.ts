import { workflow } from 'holdfast'
import { type StoreAct, wrapStore } from 'holdfast/testing'
import { expect, it, vi } from 'vitest'
import type { Change } from '../../src/store/change.ts'
import type { Store } from '../../src/store/store.ts'
import { becomes, eventTypes } from './runs.ts'
import { onEveryStore } from './stores.ts'

const child = workflow({ name: 'child', queue: 'items' }, (ctx, n: number) => ctx.step('s', () => n))
const parent = workflow('parent', async (ctx, count: number) => {
  const results = await Promise.all(Array.from({ length: count }, (_, n) => ctx.call(child, n)))
  return results.length
})

/** For `openWrapped`: counts how often rows of runs are read, and notes when a run that waits for children will look at all of them. */
function countReads(): { readonly wrap: (store: Store) => Store; readonly seen: { rows: number; looksAt: number } } {
  const seen = { rows: 0, looksAt: 0 }
  const before = (act: StoreAct, _nth: number, [changes]: readonly unknown[]) => {
    if (act === 'readRun') seen.rows++
    if (act !== 'commit') return
    for (const { run } of changes as readonly Change[])
      if (run?.reason === 'child' && typeof run.due === 'object' && 'at' in run.due) seen.looksAt = run.due.at
  }
  return { wrap: (store) => wrapStore(store, { before }), seen }
}

onEveryStore('a parent of many children', ({ open, openWrapped, openMortal, advance }) => {
  it('reads the row of each when it is started and when it has ended: twice as many children are twice as many reads', async () => {
    const { wrap, seen } = countReads()
    await openWrapped(wrap, { workflows: [parent, child] })
    // What looks whether it is over is not counted.
    const client = await open({ worker: false })
    await client.queues.set('items', { concurrency: 5 })
    const readsFor = async (count: number) => {
      const before = seen.rows
      const run = await client.start(parent, count)
      await vi.waitUntil(async () => (await eventTypes(run)).includes('run_completed'), { timeout: 20_000, interval: 100 })
      return seen.rows - before
    }
    const [few, many] = [await readsFor(60), await readsFor(120)]
    // One when it is started, one when it has ended, and a few of the parent's own.
    expect(few).toBeLessThan(60 * 3)
    expect(many).toBeLessThan(120 * 3)
  })

  it('that is persisted as waiting between their ends looks only at those that have ended', async () => {
    const waiting = workflow('waiting', (ctx) => ctx.waitFor('go'))
    const patient = workflow('patient', (ctx) =>
      Promise.all([1, 2, 3, 4, 5, 6].map((n) => ctx.call(waiting, undefined, { id: `c${n}` }))),
    )
    const { wrap, seen } = countReads()
    const client = await open({ worker: false })
    const hf = await openWrapped(wrap, { workflows: [patient, waiting] })
    const run = await client.start('patient', undefined)
    await becomes(run, 'waiting')
    // A child that somebody still holds would lose its lease when the clock moves.
    for (let n = 1; n <= 6; n++) await becomes(await client.runs.get(`c${n}`), 'waiting')
    // It looks at all of them every ten minutes, whose end may be near: from there on there is time.
    const started = seen.rows
    advance(seen.looksAt - Date.now() + 1_000)
    await vi.waitUntil(() => seen.rows === started + 6)
    await becomes(run, 'waiting')
    const before = seen.rows
    for (let n = 1; n <= 6; n++) {
      await client.signal(`c${n}`, 'go', n)
      await vi.waitUntil(async () => (await eventTypes(run, 'child')).filter((type) => type === 'child_completed').length === n)
      if (n < 6) await becomes(run, 'waiting')
    }
    expect(await run.result()).toEqual([1, 2, 3, 4, 5, 6])
    expect(seen.rows - before).toBeLessThanOrEqual(6)
    await hf.close()
  })

  it('learns of their ends after a crash, also of one whose message it had read', async () => {
    const run3 = workflow('run3', async (ctx) => {
      const results = await Promise.all([1, 2, 3].map((n) => ctx.call(child, n)))
      return results
    })
    for (const beforeWrite of [3, 4, 5, 6]) {
      const mortal = await openMortal({ workflows: [run3] }, { beforeWrite })
      const children = await open({ workflows: [child] })
      const run = await mortal.hf.start(run3)
      await Promise.race([mortal.dead, run.result()])
      advance(11_000)
      const heir = await open({ workflows: [run3, child] })
      expect(await (await heir.runs.get(run.id)).result()).toEqual([1, 2, 3])
      await mortal.die()
      await children.close()
      await heir.close()
    }
  })

  it('notices now and then that one is gone without a word', async () => {
    const waiting = workflow('waiting', (ctx) => ctx.waitFor('go'))
    const both = workflow('both', (ctx) =>
      Promise.allSettled(['gone', 'there'].map((id) => ctx.call(waiting, undefined, { id }))).then((ends) =>
        ends.map((end) => (end.status === 'fulfilled' ? end.value : end.reason.code)),
      ),
    )
    const hf = await open({ workflows: [both, waiting] })
    const run = await hf.start(both)
    await becomes(run, 'waiting')
    await becomes(await hf.runs.get('gone'), 'waiting')
    await hf.thread('gone').delete()
    advance(601_000)
    await vi.waitUntil(async () => (await eventTypes(run)).includes('child_completed'), { timeout: 15_000, interval: 20 })
    await hf.signal('there', 'go', 1)
    expect(await run.result()).toEqual(['thread_deleted', 1])
  })
})
