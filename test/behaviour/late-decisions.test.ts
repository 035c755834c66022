import { type Holdfast, state, workflow } from 'holdfast'
import { wrapStore } from 'holdfast/testing'
import { expect, it } from 'vitest'
import type { EventType } from '../../src/model/event.ts'
import type { Change } from '../../src/store/change.ts'
import type { Store } from '../../src/store/store.ts'
import { becomes, failureOf, gate, logged } from './runs.ts'
import { onEveryStore } from './stores.ts'

/** Pays without an answer, and waits beside that for a reason to fail; with `asks` also for a person. */
function paying(journal: unknown[], undo: 'function' | 'name', { asks = false } = {}) {
  const refund = (receipt: unknown) => void journal.push(receipt)
  return workflow({ name: 'pay', undos: { refund }, undoOnFailure: true, retry: { attempts: 1 } }, async (ctx) => {
    await ctx.checkpoint('ready')
    const pay = ctx.once('pay', {
      ...{ key: 'pay', run: () => Promise.reject(new Error('no answer')) },
      undo: undo === 'name' ? 'refund' : refund,
    })
    const declined = ctx.waitFor('decline').then(() => Promise.reject(new Error('declined')))
    await Promise.all([pay, declined, ...(asks ? [ctx.ask('ok', { question: '?' })] : [])])
  })
}

/** A store through which a person's decision arrives just before the first write of an event. */
function decidingBefore(type: EventType, person: () => Holdfast): (store: Store) => Store {
  let isDecided = false
  return (store) =>
    wrapStore(store, {
      before: async (act, _, [changes]) => {
        if (act !== 'commit' || isDecided) return
        if (!(changes as readonly Change[]).some(({ events }) => events.some((event) => event.type === type))) return
        isDecided = true
        await person().resolve('pay', { happened: true, result: 'receipt' })
      },
    })
}

onEveryStore('what a person decides about an effect at the moment', ({ open, openWrapped }) => {
  for (const undo of ['function', 'name'] as const) {
    it(`at which the holder ends its cancelled run is undone: the undo is a ${undo}`, async () => {
      const journal: unknown[] = []
      const person = await open({ worker: false })
      const work = paying(journal, undo)
      await openWrapped(
        decidingBefore('run_cancelled', () => person),
        { workflows: [work], worker: { quietMs: 60_000 } },
      )
      const run = await person.start(work)
      await logged(run, 'effect_unsure')
      await run.cancel()
      expect((await run.info()).status).toBe('cancelled')
      expect(journal).toEqual(['receipt'])
      expect(await person.inbox()).toEqual([])
    })
  }

  it('at which a run that nobody holds is cancelled is undone', async () => {
    const journal: unknown[] = []
    const work = paying(journal, 'name')
    const person = await open({ workflows: [work] })
    const run = await person.start(work)
    await becomes(run, 'waiting')
    const client = await openWrapped(
      decidingBefore('run_cancelled', () => person),
      { worker: false },
    )
    await (await client.runs.get(run.id)).cancel()
    expect((await run.info()).status).toBe('cancelled')
    expect(journal).toEqual(['receipt'])
  })

  it.each(['run_paused', 'run_cancelled'] as const)(
    'at which a run that nobody holds is cancelled with its questions is undone: %s',
    async (type) => {
      const journal: unknown[] = []
      const work = paying(journal, 'name', { asks: true })
      const person = await open({ workflows: [work] })
      const run = await person.start(work)
      await becomes(run, 'waiting')
      const client = await openWrapped(
        decidingBefore(type, () => person),
        { worker: false },
      )
      await (await client.runs.get(run.id)).cancel()
      expect((await run.info()).status).toBe('cancelled')
      expect(journal).toEqual(['receipt'])
      expect(await person.inbox()).toEqual([])
    },
  )

  it('after whoever cancelled its run died in the middle of it is undone', async () => {
    const journal: unknown[] = []
    const work = paying(journal, 'function', { asks: true })
    const person = await open({ workflows: [work] })
    const run = await person.start(work)
    await becomes(run, 'waiting')
    let isDead = false
    const dying = (store: Store) =>
      wrapStore(store, {
        before: (act) => (act === 'commit' && isDead ? Promise.reject(new Error('dead')) : undefined),
        after: (act) => {
          isDead ||= act === 'commit'
        },
      })
    const client = await openWrapped(dying, { worker: false })
    await expect((await client.runs.get(run.id)).cancel()).rejects.toThrow()
    expect(await run.info()).toMatchObject({ status: 'paused', reason: 'undo' })
    await person.resolve('pay', { happened: true, result: 'receipt' })
    await run.resume()
    await becomes(run, 'cancelled')
    expect(journal).toEqual(['receipt'])
    expect(await person.inbox()).toEqual([])
  })

  it('at which its run fails with undoOnFailure is undone', async () => {
    const journal: unknown[] = []
    const person = await open({ worker: false })
    const work = paying(journal, 'function')
    await openWrapped(
      decidingBefore('run_failed', () => person),
      { workflows: [work] },
    )
    const run = await person.start(work)
    await logged(run, 'effect_unsure')
    await person.signal(run.id, 'decline')
    expect(await failureOf(run)).toMatchObject({ message: expect.stringContaining('declined') })
    expect(journal).toEqual(['receipt'])
  })

  it('at which a worker takes its run up to roll it back is undone, by a function that only a replay gives', async () => {
    const journal: unknown[] = []
    const person = await open({ worker: false })
    const work = paying(journal, 'function')
    let isAsked = false
    const decidingMeanwhile = (store: Store) =>
      wrapStore(store, {
        before: async (act) => {
          if (act !== 'readThread' || !isAsked) return
          isAsked = false
          await person.resolve('pay', { happened: true, result: 'receipt' })
        },
      })
    await openWrapped(decidingMeanwhile, { workflows: [work] })
    const run = await person.start(work)
    await becomes(run, 'waiting')
    isAsked = true
    await run.rollback('ready')
    expect(await run.info()).toMatchObject({ status: 'paused', reason: 'asked' })
    expect(journal).toEqual(['receipt'])
  })

  it('at which its run, rolled back, finds it open takes nothing with it that the run was about to write', async () => {
    const answer = gate()
    const last = gate()
    const notes = state({ version: 1, initial: () => ({ notes: [] as string[] }) })
    const work = workflow({ name: 'pay', state: notes }, async (ctx) => {
      void ctx.once('pay', { key: 'pay', run: () => answer.promise })
      await ctx.step('prepare', () => {})
      await ctx.checkpoint('prepared')
      ctx.update((draft) => void draft.notes.push('prepared'))
      await ctx.step('last', () => last.promise)
      return ctx.state.notes
    })
    const person = await open({ worker: false })
    const first = await open({ workflows: [work] })
    const run = await person.start(work)
    last.open()
    expect(await run.result()).toEqual(['prepared'])
    answer.open()
    await first.close()
    await openWrapped(
      decidingBefore('effect_unsure', () => person),
      { workflows: [work] },
    )
    await run.rollback('prepared')
    expect(await person.thread(run.threadId).state()).toEqual({ notes: [] })
    await run.resume()
    await logged(run, 'effect_resolved')
    expect(await run.result()).toEqual(['prepared'])
    expect(await person.thread(run.threadId).state()).toEqual({ notes: ['prepared'] })
  })
})
