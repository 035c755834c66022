import { type AnyWorkflow, workflow } from 'holdfast'
import { type Diary, diary, type RecordedCalls } from './recorded-calls.ts'

/** Saves artifacts: alone, several in one step with memory beside them, in steps at the same time under one name, in an attempt that fails; deletes one. */
export function savesArtifacts({ on }: RecordedCalls): AnyWorkflow {
  const enter = (entry: string) => (draft: Diary) => void draft.entries.push(entry)
  return workflow<undefined, unknown, Diary>({ name: 'savesArtifacts', state: diary }, async (ctx) => {
    const { step } = on(ctx)
    await ctx.artifacts.save({ name: 'first', type: 'analysis_result', content: 'first' })
    await step('several', async ({ artifacts, memory, update }) => {
      await artifacts.save({ name: 'large', type: 'generated_file', content: Buffer.alloc(600_000, 'holdfast ') })
      await artifacts.save({ name: 'small', type: 'message_content', content: 'first' })
      await memory.session.set('saved', 2)
      update(enter('several'))
    })
    const atOnce = ['one', 'two', 'three'].map((name) =>
      step(name, async ({ artifacts, memory, update }) => {
        await artifacts.save({ name: 'at once', type: 'data_export', content: name === 'two' ? 'two' : 'same' })
        await memory.of('alice').profile.merge({ [name]: true })
        update(enter(name))
      }),
    )
    await Promise.all(atOnce)
    await step(
      'flaky',
      async ({ attempt, artifacts }) => {
        await artifacts.save({ name: 'flaky', type: 'analysis_result', content: `attempt ${attempt}` })
        if (attempt === 1) throw new Error('not yet')
      },
      { retry: { attempts: 3, minMs: 1, maxMs: 2 } },
    )
    const read = await (await ctx.artifacts.open({ name: 'first' })).text()
    await ctx.artifacts.delete({ name: 'first' })
    const { items } = await ctx.artifacts.list()
    return [read, items.map(({ name, size }) => `${name} ${size}`).sort()]
  })
}
