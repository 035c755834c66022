import { type AnyWorkflow, workflow } from 'holdfast'

/** A run without input dies, in the function or in a step. */
export function makePoison(place: string, die: () => void): AnyWorkflow {
  return workflow('poison', async (ctx, input: string | null) => {
    if (input === null && place === 'function') die()
    return ctx.step(
      'work',
      () => {
        if (input === null && place === 'step') die()
        return 'worked'
      },
      { fallback: (error) => `fell back: ${(error as { code?: string }).code}` },
    )
  })
}
