import { workflow } from 'holdfast'
import { wrapStore } from 'holdfast/testing'
import { expect, it } from 'vitest'
import type { Change } from '../../src/store/change.ts'
import type { Store } from '../../src/store/store.ts'
import { becomes, codeOfRejection, gate, noting } from './runs.ts'
import { onEveryStore } from './stores.ts'

/** A section that can be taken back as a whole, with a checkpoint inside. */
function half(journal: string[], { during = () => {}, waits = false }: { during?: () => unknown; waits?: boolean } = {}) {
  return workflow('half', async (ctx) => {
    await ctx.checkpoint('before')
    await ctx.section(
      'whole',
      async () => {
        await ctx.step('a', () => void journal.push('a'))
        await ctx.checkpoint('inside')
        await ctx.step('b', async () => {
          journal.push('b')
          await during()
        })
      },
      { undo: () => void journal.push('undo') },
    )
    if (waits) await ctx.waitFor('go')
    await ctx.step('c', () => void journal.push('c'))
    return 'out'
  })
}

onEveryStore('a rollback into a section with an undo', ({ open, openWrapped }) => {
  for (const waits of [false, true]) {
    it(`that ends at that moment is conflict, and the run continues: it ${waits ? 'waits' : 'ends'}`, async () => {
      const journal: string[] = []
      const work = half(journal, { waits })
      const delivered = gate()
      const client = await openWrapped(noting('deliver', delivered.open), { worker: false })
      const asked = gate<Promise<unknown>>()
      let isAsked = false
      const endsLate = (store: Store) =>
        wrapStore(store, {
          before: async (act, _, [changes]) => {
            const isEnd = ({ events }: Change) => events.some(({ type, step }) => type === 'step_completed' && step === 'whole')
            if (act !== 'commit' || isAsked || !(changes as readonly Change[]).some(isEnd)) return
            isAsked = true
            asked.open(client.runs.get('w').then((run) => codeOfRejection(run.rollback('inside'))))
            await delivered.promise
          },
        })
      await openWrapped(endsLate, { workflows: [work] })
      const run = await client.start(work, undefined, { id: 'w' })
      expect(await asked.promise).toBe('conflict')
      if (waits) await client.signal('w', 'go')
      expect(await run.result()).toBe('out')
      expect(journal).toEqual(['a', 'b', 'c'])
    })
  }

  it('whose last step is running goes back there: the section does not end, and its undo is not called', async () => {
    const journal: string[] = []
    const running = gate()
    const goesOn = gate()
    const work = half(journal, {
      waits: true,
      during: () => {
        running.open()
        return goesOn.promise
      },
    })
    let isDelivered = false
    const client = await openWrapped(
      noting('deliver', () => {
        isDelivered = true
      }),
      { worker: false },
    )
    const heard = gate()
    const noticing = (store: Store) =>
      wrapStore(store, { after: (act) => void (act === 'readInbox' && isDelivered && heard.open()) })
    await openWrapped(noticing, { workflows: [work] })
    const run = await client.start(work)
    await running.promise
    const rolledBack = run.rollback('inside')
    await heard.promise
    goesOn.open()
    await rolledBack
    expect(await run.info()).toMatchObject({ status: 'paused', reason: 'asked' })
    expect(journal).toEqual(['a', 'b'])
    await run.resume()
    await becomes(run, 'waiting')
    expect(journal).toEqual(['a', 'b', 'b'])
    await run.cancel()
    expect(journal).toEqual(['a', 'b', 'b', 'undo'])
  })

  it('is not taken for one into it where the section was rolled back and begun anew since', async () => {
    const journal: string[] = []
    const work = half(journal, { waits: true })
    const hf = await open({ workflows: [work] })
    const run = await hf.start(work)
    await becomes(run, 'waiting')
    await run.rollback('before')
    expect(journal).toEqual(['a', 'b', 'undo'])
    await run.resume()
    const resumed = (await run.events()).findLast(({ type }) => type === 'run_resumed')
    await becomes(run, 'waiting')
    await run.rollback(`${run.threadId}@${resumed?.seq}`)
    expect(await run.info()).toMatchObject({ status: 'paused', reason: 'asked' })
    expect(journal).toEqual(['a', 'b', 'undo', 'a', 'b', 'undo'])
    await expect(run.rollback('inside')).rejects.toMatchObject({ code: 'conflict' })
  })
})
