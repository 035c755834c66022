import { type AnyWorkflow, workflow } from 'holdfast'
import { type Diary, diary, type RecordedCalls } from './recorded-calls.ts'

/**
 * Writes session memory, a profile and facts: alone, several values in one step, in steps at the same time that merge one profile and learn one fact, in an
 * attempt that fails.
 */
export function remembers({ on }: RecordedCalls): AnyWorkflow {
  const enter = (entry: string) => (draft: Diary) => void draft.entries.push(entry)
  return workflow<undefined, unknown, Diary>({ name: 'remembers', state: diary }, async (ctx) => {
    const { step } = on(ctx)
    await ctx.memory.session.set('visits', 1)
    await step('several', async ({ memory, update }) => {
      await memory.session.set('tone', 'brief')
      await memory.session.set('form', { name: 'Al' })
      await memory.session.of('login').set('last', 'several')
      const { profile, remember } = memory.of('alice')
      await profile.merge({ name: 'Alice', likes: { tea: true, milk: true } })
      const { id } = await remember('Alice lives in Paris')
      await remember('Alice lives in Berlin', { supersedes: id })
      update(enter('several'))
    })
    const atOnce = ['one', 'two', 'three'].map((name) =>
      step(name, async ({ memory, update }) => {
        const { profile, remember } = memory.of('alice')
        await profile.merge({ [name]: true, likes: { [name]: 1 } }, { why: name })
        await remember('Alice was seen by several', { tags: [name] })
        await memory.session.set(name, name)
        update(enter(name))
      }),
    )
    await Promise.all(atOnce)
    await step(
      'flaky',
      async ({ attempt, memory }) => {
        await memory.session.set('flaky', attempt)
        await memory.of('alice').profile.merge({ [`attempt ${attempt}`]: true, likes: { milk: null } })
        await memory.of('alice').remember(`Alice knows attempt ${attempt}`)
        if (attempt === 1) throw new Error('not yet')
      },
      { retry: { attempts: 3, minMs: 1, maxMs: 2 } },
    )
    await ctx.memory.session.delete('form')
    const { remember, forget, recall } = ctx.memory.of('alice')
    const { id } = await remember('Alice is to be forgotten')
    await forget(id)
    const facts = await recall('alice', { limit: 20 })
    const keys = (await ctx.memory.session.list()).map(({ key }) => key)
    const known = facts.map(({ text, tags }) => [text, [...tags].sort()])
    return [await ctx.memory.session.get('tone'), keys, await ctx.memory.of('alice').profile.get(), known]
  })
}
