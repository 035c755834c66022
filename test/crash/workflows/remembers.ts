import { type AnyWorkflow, workflow } from 'holdfast'
import { type Diary, diary, type RecordedCalls } from './recorded-calls.ts'

/** Writes session memory and a profile: alone, several values in one step, in steps at the same time that merge one profile, in an attempt that fails. */
export function remembers({ on }: RecordedCalls): AnyWorkflow {
  const enter = (entry: string) => (draft: Diary) => void draft.entries.push(entry)
  return workflow<undefined, unknown, Diary>({ name: 'remembers', state: diary }, async (ctx) => {
    const { step } = on(ctx)
    await ctx.memory.session.set('visits', 1)
    await step('several', async ({ memory, update }) => {
      await memory.session.set('tone', 'brief')
      await memory.session.set('form', { name: 'Al' })
      await memory.session.of('login').set('last', 'several')
      await memory.of('alice').profile.merge({ name: 'Alice', likes: { tea: true, milk: true } })
      update(enter('several'))
    })
    const atOnce = ['one', 'two', 'three'].map((name) =>
      step(name, async ({ memory, update }) => {
        await memory.of('alice').profile.merge({ [name]: true, likes: { [name]: 1 } }, { why: name })
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
        if (attempt === 1) throw new Error('not yet')
      },
      { retry: { attempts: 3, minMs: 1, maxMs: 2 } },
    )
    await ctx.memory.session.delete('form')
    const keys = (await ctx.memory.session.list()).map(({ key }) => key)
    return [await ctx.memory.session.get('tone'), keys, await ctx.memory.of('alice').profile.get()]
  })
}
