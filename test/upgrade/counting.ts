import { appendFileSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type * as holdfast from 'holdfast'

export interface CountingOptions {
  /** Of the version that executes it. */
  readonly workflow: typeof holdfast.workflow
  readonly folder: string
  readonly who: string
  /** What the second step waits for. */
  readonly second: () => Promise<void>
}

/** A run of two steps, each of which changes the state and leaves a line in the journal. */
export function makeCounting({ workflow, folder, who, second }: CountingOptions): holdfast.AnyWorkflow {
  const note = (what: string) => appendFileSync(join(folder, 'journal'), `${who}: ${what}\n`)
  return workflow('counting', async (ctx) => {
    const { runId } = ctx
    await ctx.step('first', (step) => {
      note(`${runId} first`)
      step.update((draft: { steps?: string[] }) => {
        draft.steps = [...(draft.steps ?? []), `${runId} first`]
      })
    })
    return ctx.step('second', async (step) => {
      note(`${runId} second`)
      await second()
      step.update((draft: { steps?: string[] }) => {
        draft.steps = [...(draft.steps ?? []), `${runId} second by ${who}`]
      })
      return who
    })
  }) as holdfast.AnyWorkflow
}

export function readJournal(folder: string): string[] {
  return readFileSync(join(folder, 'journal'), 'utf8').trim().split('\n')
}
