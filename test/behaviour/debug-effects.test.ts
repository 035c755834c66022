import { type LedgerEntry, NotHappened, workflow } from 'holdfast'
import { expect, it } from 'vitest'
import { becomes, codeOfRejection } from './runs.ts'
import { onEveryStore } from './stores.ts'

onEveryStore('the ledger of effects', ({ open }) => {
  it('has key, intent, result, who met it again, what is unsure, who decided, and what was undone', async () => {
    const hf = await open()
    let flaws = 1
    const pay = workflow(
      { name: 'pay', undos: { refund: () => {} } },
      async (ctx, input: { key: string; isCutOff?: boolean }) => {
        const run = () => {
          if (input.isCutOff) throw new Error('cut off')
          if (flaws-- > 0) throw new NotHappened(new Error('busy'))
          return `paid ${input.key}`
        }
        const paid = await ctx.once('pay', { key: input.key, run, undo: 'refund', retry: { minMs: 1 } })
        await ctx.waitFor('done')
        return paid
      },
    )
    const first = await hf.start(pay, { key: 'k1' }, { id: 'first' })
    await becomes(first, 'waiting')
    const second = await hf.start(pay, { key: 'k1' }, { id: 'second' })
    await becomes(second, 'waiting')
    const doubtful = await hf.start(pay, { key: 'k2', isCutOff: true }, { id: 'doubtful' })
    await becomes(doubtful, 'waiting')

    const one = async (filter: Parameters<typeof hf.debug.effects>[0]) => (await hf.debug.effects(filter)).items[0] as LedgerEntry
    expect(await one({ key: 'k1' })).toMatchObject({
      ...{ key: 'k1', name: 'pay', status: 'completed', runId: 'first', threadId: 'first', result: 'paid k1', metBy: [] },
      events: [
        { event: 'effect_intended' },
        { event: 'effect_failed', error: { message: 'busy' } },
        { event: 'effect_intended' },
        { event: 'effect_completed' },
      ],
    })
    expect(await one({ runId: 'second' })).toMatchObject({
      ...{ key: 'k1', runId: 'first', threadId: 'first', metBy: [{ runId: 'second' }] },
      events: [{ event: 'effect_skipped', by: 'first' }],
    })
    expect((await hf.debug.effects({ status: 'unsure' })).items).toMatchObject([{ key: 'k2', doubt: 'cut off', closedAt: null }])
    await hf.resolve('k2', { happened: true, result: 'paid after all', by: 'ada' })
    expect(await one({ key: 'k2' })).toMatchObject({ status: 'completed', result: 'paid after all', resolvedBy: 'ada' })
    expect((await hf.debug.effects({ status: 'unsure' })).items).toEqual([])
    await first.cancel()
    const undone = await one({ threadId: 'first' })
    expect(undone).toMatchObject({
      status: 'undone',
      events: expect.arrayContaining([expect.objectContaining({ event: 'step_undone' })]),
    })
    expect('result' in undone).toBe(false)
    await hf.thread('first').delete()
    expect(await one({ key: 'k1' })).toMatchObject({ status: 'undone', events: [] })
  })

  it('comes in pages, of a thread or of all, and only of this owner', async () => {
    const hf = await open()
    const send = workflow('send', async (ctx, count: number) => {
      for (let i = 0; i < count; i++) await ctx.once(i % 2 === 0 ? 'even' : 'odd', { run: () => i, idempotent: true })
    })
    for (const id of ['a', 'b', 'c']) await hf.run(send, 4, { id })
    const all = async (filter: Parameters<typeof hf.debug.effects>[0]) => {
      const found: string[] = []
      let cursor: string | undefined
      do {
        const page = await hf.debug.effects({ ...filter, cursor })
        found.push(...page.items.map(({ threadId, result }) => `${threadId}${result}`))
        cursor = page.cursor
      } while (cursor !== undefined)
      return found
    }
    expect(await all({ threadId: 'b', limit: 3 })).toEqual(['b0', 'b1', 'b2', 'b3'])
    const everything = ['a', 'b', 'c'].flatMap((id) => [0, 1, 2, 3].map((i) => `${id}${i}`))
    expect(await all({})).toEqual(everything)
    expect(await all({ limit: 1 })).toEqual(everything)
    expect(await all({ name: 'odd', runId: 'c' })).toEqual(['c1', 'c3'])
    expect((await hf.as('other').debug.effects()).items).toEqual([])
    expect((await hf.as('other').debug.effects({ threadId: 'a' })).items).toEqual([])
    expect(await codeOfRejection(hf.as('other').debug.effects({ runId: 'a' }))).toBe('run_not_found')
    expect(await codeOfRejection(hf.debug.effects({ status: 'done' as never }))).toBe('invalid_input')
    expect(await codeOfRejection(hf.debug.effects({ threadId: 'a', cursor: 'x' }))).toBe('invalid_input')
    expect(await codeOfRejection(hf.debug.effects({ key: '' }))).toBe('invalid_id')
  })
})
