// biome-ignore-all lint/suspicious/noAssignInExpressions: recipes are written the way users write them
import { Omitted, state, workflow } from 'holdfast'
import { expect, it } from 'vitest'
import { becomes, codeOfRejection } from './runs.ts'
import { onEveryStore } from './stores.ts'

onEveryStore('an audit', ({ open }) => {
  it('lists who answered, decided, edited and controlled, and nothing that nobody decided', async () => {
    const hf = await open()
    const work = workflow('work', async (ctx) => {
      await ctx.step('load', () => 'data')
      await ctx.ask('ok', { question: 'Send it?' })
      await ctx.ask('late', { question: 'Really?', timeoutMs: 1, default: 'yes' })
      await ctx.once('pay', { key: 'pay:1', run: () => Promise.reject(new Error('cut off')) })
      ctx.update((draft: { n?: number }) => void (draft.n = 1))
      await ctx.waitFor('done')
    })
    const run = await hf.start(work, undefined, { id: 'a' })
    await becomes(run, 'waiting')
    await hf.answer('a', 'ok', { yes: true }, { by: 'ada' })
    await expect.poll(async () => (await hf.debug.effects({ status: 'unsure' })).items.length).toBe(1)
    await hf.resolve('pay:1', { happened: true, result: 'paid', by: 'bob' })
    await expect.poll(async () => (await hf.thread('a').state()) as unknown).toEqual({ n: 1 })
    await becomes(run, 'waiting')
    await run.pause({ by: 'cyd' })
    await hf.thread('a').update((draft: { n?: number; note?: string }) => void (draft.note = 'x'))
    await run.resume({ by: 'cyd' })
    await becomes(run, 'waiting')
    const load = (await hf.debug.timeline('a')).find(({ step }) => step === 'load')?.checkpoint as string
    await run.rollback(load, { by: 'dan' })
    await run.cancel({ by: 'eve' })
    const decisions = await hf.debug.audit('a')
    expect(decisions.filter(({ decision }) => !decision.startsWith('told_'))).toMatchObject([
      { decision: 'answered', by: 'ada', name: 'ok', question: 'Send it?', value: { yes: true }, runId: 'a' },
      { decision: 'resolved', by: 'bob', name: 'pay', key: 'pay:1', happened: true, value: 'paid' },
      { decision: 'paused', by: 'cyd' },
      { decision: 'edited', by: null, runId: null, paths: ['$.note'] },
      { decision: 'resumed', by: 'cyd' },
      { decision: 'rolled_back', by: 'dan', to: load },
      { decision: 'cancelled', by: 'eve' },
    ])
    expect(decisions.filter(({ decision }) => decision.startsWith('told_')).every(({ by }) => by === 'dan' || by === 'eve')).toBe(
      true,
    )
    const [first, second] = decisions
    expect(await hf.debug.audit('a', { limit: 1 })).toEqual([first])
    expect(await hf.debug.audit('a', { after: first?.checkpoint as string, limit: 1 })).toEqual([second])
    expect(await codeOfRejection(hf.as('other').debug.audit('a'))).toBe('run_not_found')
    expect(await codeOfRejection(hf.debug.audit('a', { limit: -1 }))).toBe('invalid_input')
  })
})

onEveryStore('a part of a state', ({ open }) => {
  it('is what a path leads to, so many levels and entries of it', async () => {
    const large = state({
      version: 1,
      initial: () => ({
        messages: Array.from({ length: 50 }, (_, id) => ({ id, parts: ['a', 'b'] })),
        tags: new Map([['x', new Set([1, 2])]]),
      }),
    })
    const hf = await open()
    await hf.run(
      workflow({ name: 'work', state: large }, async (ctx) => ctx.update((draft) => void draft.tags.set('y', new Set()))),
      undefined,
      { id: 'a' },
    )
    const thread = hf.thread('a')
    const at = (await thread.checkpoints()).at(-1)?.checkpoint as string
    expect(await thread.stateAt(at, { path: 'messages[7].id' })).toBe(7)
    expect(await thread.stateAt(at, { path: ['messages', 7] })).toEqual({ id: 7, parts: ['a', 'b'] })
    expect(await thread.stateAt(at, { path: 'messages[99]' })).toBeUndefined()
    expect(await thread.stateAt(at, { depth: 1 })).toEqual({ messages: new Omitted('list', 50), tags: new Omitted('map', 2) })
    expect(await thread.stateAt(at, { path: 'messages', limit: 1 })).toEqual([
      { id: 0, '…': new Omitted('entries', 1) },
      new Omitted('entries', 49),
    ])
    expect(await thread.stateAt(at, { path: 'tags', depth: 2, limit: 1 })).toEqual(
      new Map<string, unknown>([
        ['x', new Set<unknown>([1, new Omitted('entries', 1)])],
        ['…', new Omitted('entries', 1)],
      ]),
    )
    expect(String(new Omitted('entries', 49))).toBe('… 49 entries')
    expect(await thread.stateAt(at, {})).toEqual(await thread.stateAt(at))
    expect(await thread.stateAt(at, large)).toEqual(await thread.stateAt(at))
    expect(await codeOfRejection(thread.stateAt(at, { depth: 0 }))).toBe('invalid_input')
    expect(await codeOfRejection(thread.stateAt(at, { paths: 'x' } as never))).toBe('invalid_input')
  })
})
