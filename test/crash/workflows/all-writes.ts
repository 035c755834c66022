import { type AnyWorkflow, workflow } from 'holdfast'
import type { TestServices } from '../bed/test-services.ts'
import { type Diary, diary, type EffectClass, type RecordedCalls, wait } from './recorded-calls.ts'

export interface AllWritesInput {
  readonly effect: EffectClass
  /** How long the step `inside` takes. */
  readonly insideMs?: number
}

/** Every kind of write of a run, one after another: its holder is stopped at each. */
export function allWrites(services: TestServices, { on, sending }: RecordedCalls): AnyWorkflow {
  return workflow<AllWritesInput, unknown, Diary>({ name: 'allWrites', state: diary }, async (ctx, { effect, insideMs = 0 }) => {
    const { step, once, body } = on(ctx)
    const enter = (entry: string) => (draft: Diary) => void draft.entries.push(`${entry} by process ${services.processNumber}`)
    try {
      ctx.update(enter('begun'))
      await step('before', (handle) => handle.update(enter('before')))
      await step('inside', () => (insideMs === 0 ? undefined : wait(insideMs)))
      const { receipt } = await once('send', sending('send', effect))
      ctx.update(enter('sent'))
      await ctx.sleep(1)
      const { orders } = services
      if (orders !== null) {
        await ctx.transaction('order', async (tx) => {
          body('order', 1)
          await tx.query(orders.insert, [ctx.runId, 1])
        })
      }
      await ctx.checkpoint('done')
      return { receipt, processNumber: services.processNumber }
    } catch (error) {
      services.journal.write({ kind: 'thrown', run: ctx.runId, code: String((error as { code?: unknown }).code) })
      throw error
    }
  })
}
