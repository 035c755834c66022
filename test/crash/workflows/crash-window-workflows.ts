import { type AnyWorkflow, workflow } from 'holdfast'
import type { TestServices } from '../bed/test-services.ts'
import { type Diary, diary, effectClasses, type RecordedCalls } from './recorded-calls.ts'

/** How many operations a run has. */
export const operationCount = 5

/** Operations of one class, one after another. `windows-step` calls the provider from a plain step: at least once. */
export function crashWindowWorkflows(services: TestServices, { on, sending }: RecordedCalls): AnyWorkflow[] {
  const names = Array.from({ length: operationCount }, (_, index) => `op${index + 1}`)
  const ofEffects = effectClasses.map((effectClass) =>
    workflow<undefined, unknown, Diary>({ name: `windows-${effectClass}`, state: diary }, async (ctx) => {
      const receipts = []
      for (const name of names) receipts.push(await on(ctx).once(name, sending(name, effectClass)))
      return receipts
    }),
  )
  const ofSteps = workflow<undefined, unknown, Diary>({ name: 'windows-step', state: diary }, async (ctx) => {
    const receipts = []
    for (const name of names) receipts.push(await on(ctx).step(name, ({ key }) => services.send({ name, key })))
    return receipts
  })
  return [...ofEffects, ofSteps]
}
