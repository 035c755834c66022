import { type RunStatus, workflow } from 'holdfast'
import { type StoreAct, wrapStore } from 'holdfast/testing'
import { expect, it } from 'vitest'
import type { Change } from '../../src/store/change.ts'
import type { Store } from '../../src/store/store.ts'
import { patience } from '../patience.ts'
import { becomes, codeOfRejection, gate, noting } from './runs.ts'
import { onEveryStore } from './stores.ts'

/** For the client that executes: the first write that gives a run this status waits until a request has been put into an inbox. */
function requestBefore(status: RunStatus, request: () => Promise<unknown>) {
  const delivered = gate()
  let isAsked = false
  const outcome = gate<unknown>()
  const before = async (act: StoreAct, _nth: number, [changes]: readonly unknown[]) => {
    if (act !== 'commit' || isAsked || !(changes as readonly Change[]).some(({ run }) => run?.status === status)) return
    isAsked = true
    outcome.open(codeOfRejection(request()))
    await delivered.promise
  }
  return {
    holder: (store: Store) => wrapStore(store, { before }),
    client: (store: Store) => wrapStore(store, { after: (act) => act === 'deliver' && delivered.open() }),
    /** What became of the request. */
    outcome: outcome.promise,
  }
}

onEveryStore('a request that comes while its run is about to end', ({ openWrapped }) => {
  for (const call of ['cancel', 'pause'] as const) {
    it(`is refused and does nothing when the run is retried: ${call}`, async () => {
      let isBroken = true
      const work = workflow({ name: 'work', retry: { attempts: 1 } }, async (ctx) => {
        await ctx.step('a', () => isBroken && Promise.reject(new Error('broken')))
        return await ctx.step('b', () => 'done')
      })
      const late = requestBefore('failed', async () => (await client.runs.get('r'))[call]())
      const client = await openWrapped(late.client, { worker: false })
      const hf = await openWrapped(late.holder, { workflows: [work] })
      const run = await hf.start(work, undefined, { id: 'r' })
      expect(await late.outcome).toBe('conflict')
      isBroken = false
      await run.retry()
      expect(await run.result({ timeoutMs: patience(5_000) })).toBe('done')
    })

    it(`is refused and does nothing when the run is rolled back: ${call}`, async () => {
      const work = workflow('work', async (ctx) => {
        await ctx.checkpoint('start')
        return await ctx.step('a', () => 'done', { undo: () => {} })
      })
      const late = requestBefore('completed', async () => (await client.runs.get('r'))[call]())
      const client = await openWrapped(late.client, { worker: false })
      const hf = await openWrapped(late.holder, { workflows: [work] })
      const run = await hf.start(work, undefined, { id: 'r' })
      expect(await late.outcome).toBe('conflict')
      await run.rollback('start')
      expect(await run.info()).toMatchObject({ status: 'paused', reason: 'asked' })
      await run.resume()
      expect(await run.result({ timeoutMs: patience(5_000) })).toBe('done')
    })
  }
})

onEveryStore('a pause that comes while its run is about to pause', ({ openWrapped }) => {
  it('does nothing once the run is resumed', async () => {
    const begun = gate()
    const body = gate()
    const work = workflow('work', async (ctx) => {
      await ctx.step('a', () => {
        begun.open()
        return body.promise
      })
      await ctx.step('b', () => {})
      await ctx.waitFor('go')
    })
    const late = requestBefore('paused', async () => (await client.runs.get('r')).pause())
    const client = await openWrapped(late.client, { worker: false })
    const asked = gate()
    const hf = await openWrapped((store) => noting('deliver', asked.open)(late.holder(store)), { workflows: [work] })
    const run = await hf.start(work, undefined, { id: 'r' })
    await begun.promise
    const paused = run.pause()
    await asked.promise
    body.open()
    await paused
    expect(await late.outcome).toBe('nothing was thrown')
    await run.resume()
    await becomes(run, 'waiting')
  })
})
