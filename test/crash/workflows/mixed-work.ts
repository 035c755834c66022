import { type AnyWorkflow, workflow } from 'holdfast'
import type { TestServices } from '../bed/test-services.ts'
import { type Diary, diary, type EffectClass, type RecordedCalls, wait } from './recorded-calls.ts'

/** Its effects, by class. */
export const mixedWorkEffects: Readonly<Record<string, EffectClass>> = { fare: 'idempotent', hotel: 'check', letter: 'neither' }

/** What a run may be doing when its store is interrupted: steps, also in parallel, effects of each class, state, waiting. */
export function mixedWork(services: TestServices, { on, sending }: RecordedCalls): AnyWorkflow {
  return workflow<{ waitMs: number }, unknown, Diary>({ name: 'mixedWork', state: diary }, async (ctx, { waitMs }) => {
    const { step, once, ack } = on(ctx)
    const enter = (entry: string) => (draft: Diary) => {
      draft.count += 1
      draft.entries.push(entry)
    }
    await step('pack', (handle) => handle.update(enter('pack')))
    for (const [name, effectClass] of Object.entries(mixedWorkEffects)) {
      await once(name, sending(name, effectClass))
      ctx.update(enter(name))
    }
    await ctx.sleep(waitMs)
    ack('sleep')
    await Promise.all(['left', 'right'].map((name) => step(name, (handle) => wait(5).then(() => handle.update(enter(name))))))
    const { orders } = services
    if (orders !== null) {
      await ctx.transaction('order', (tx) => tx.query(orders.insert, [ctx.runId, 1]))
      ack('order')
    }
    return ctx.state.count
  })
}
