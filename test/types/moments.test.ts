import type { Checkpoint, Context, Holdfast, InboxItem, Notification, RunEvent, RunInfo, StuckRun } from 'holdfast'
import { workflow } from 'holdfast'
import { expectTypeOf, test } from 'vitest'

const nightly = workflow('nightly', async (ctx) => ctx.runId)

test('moments are ms since 1970', () => {
  expectTypeOf<RunInfo['createdAt']>().toEqualTypeOf<number>()
  expectTypeOf<RunInfo['dueAt']>().toEqualTypeOf<number | undefined>()
  expectTypeOf<RunEvent['at'] | Checkpoint['at'] | Notification['at']>().toEqualTypeOf<number>()
  expectTypeOf<InboxItem['since'] | StuckRun['since']>().toEqualTypeOf<number>()
  expectTypeOf<Context['scheduledAt']>().toEqualTypeOf<number | undefined>()
  void (async (hf: Holdfast) => {
    const { next, last } = await hf.schedules.get('s')
    expectTypeOf(next).toEqualTypeOf<number | undefined>()
    expectTypeOf(last?.tick).toEqualTypeOf<number | undefined>()
    expectTypeOf(await hf.schedules.next('s')).toEqualTypeOf<number[]>()
    await hf.schedules.backfill('s', { from: 0, to: Date.now() })
    await hf.start(nightly, undefined, { runAt: Date.parse('2030-01-01T00:00:00Z') })
    await hf.runs.list({ createdAfter: 0, createdBefore: Date.now() })
    // @ts-expect-error a Date has getTime
    await hf.schedules.backfill('s', { from: new Date() })
    // @ts-expect-error a Date has getTime
    await hf.start(nightly, undefined, { runAt: new Date() })
    // @ts-expect-error a Date has getTime
    await hf.runs.list({ createdAfter: new Date() })
  })
})

test('only sleep takes a Date, because a number is a duration there', () => {
  void (async (ctx: Context) => {
    await ctx.sleep(1_000)
    await ctx.sleep(new Date(ctx.now() + 1_000))
  })
})
