import { type AnyWorkflow, workflow } from 'holdfast'
import type { TestServices } from '../bed/test-services.ts'
import { type Diary, diary, type RecordedCalls, wait } from './recorded-calls.ts'

/** Waits for others in every way there is, and is rolled back once. What the others do is in act-as-others.ts. */
export function waitsForOthers(services: TestServices, { on }: RecordedCalls): AnyWorkflow[] {
  const child = workflow<number, number, Diary>({ name: 'child', state: diary }, (ctx, n) => on(ctx).step('stamp', () => n * 2))
  const enter = (entry: string) => (draft: Diary) => {
    draft.count += 1
    draft.entries.push(entry)
  }
  const waiter = workflow<undefined, unknown, Diary>({ name: 'waitsForOthers', state: diary }, async (ctx) => {
    await on(ctx).step('pack', (handle) => handle.update(enter('pack')))
    const stamps = await Promise.all([ctx.call(child, 1), ctx.call(child, 2)])
    const permit = await ctx.waitFor<string>('permit')
    const name = await ctx.ask('name', { question: 'Who is crossing?' })
    await ctx.checkpoint('gate')
    // Executed twice, because it is undone once. Not in the journal: the rules expect each body once.
    await ctx.step('cross', (handle) => handle.update(enter('cross')), {
      undo: async () => {
        await wait(1)
        services.journal.write({ kind: 'undone', run: ctx.runId, path: 'cross' })
      },
    })
    const turn = await ctx.waitFor<string>('turn', { timeoutMs: 86_400_000 })
    await ctx.sleep(5)
    return { stamps, permit, name, turn, entries: ctx.state.entries }
  })
  return [child, waiter]
}
