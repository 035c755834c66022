import { existsSync } from 'node:fs'
import { type AnyWorkflow, workflow } from 'holdfast'
import { type Diary, diary, type RecordedCalls, wait } from './recorded-calls.ts'

/** Step after step, until a file exists. */
export function untilFileExists({ on }: RecordedCalls): AnyWorkflow {
  return workflow<{ until: string }, unknown, Diary>({ name: 'untilFileExists', state: diary }, async (ctx, { until }) => {
    const { step } = on(ctx)
    for (let looks = 1; ; looks++) {
      const exists = await step('look', async () => {
        await wait(20)
        return existsSync(until)
      })
      if (exists) return looks
    }
  })
}

/** Short steps, a long one of a given length, and a short wait. */
export function shortSteps({ on }: RecordedCalls): AnyWorkflow {
  return workflow<{ longMs: number; isLongFirst?: boolean }, unknown, Diary>(
    { name: 'shortSteps', state: diary },
    async (ctx, { longMs, isLongFirst = false }) => {
      const { step } = on(ctx)
      for (let n = isLongFirst ? 6 : 1; n <= 5; n++) await step(`short${n}`, () => wait(10))
      await step('long', (handle) => {
        handle.update((draft) => void draft.entries.push('long'))
        return wait(longMs)
      })
      await ctx.sleep(20)
      for (let n = 6; n <= 8; n++) await step(`short${n}`, () => wait(10))
      return 'done'
    },
  )
}

export function oneStep({ on }: RecordedCalls): AnyWorkflow {
  return workflow<undefined, unknown, Diary>({ name: 'oneStep', state: diary }, (ctx) => on(ctx).step('only', () => 'done'))
}
