import type { Holdfast, RunInfo } from 'holdfast'
import { expectTypeOf, test } from 'vitest'

test('the cursor of a page is the cursor of the next, also under exactOptionalPropertyTypes', () => {
  void (async (hf: Holdfast) => {
    const page = await hf.runs.list({ status: 'failed' })
    expectTypeOf(page).toEqualTypeOf<{ items: RunInfo[]; cursor?: string }>()
    await hf.runs.list({ cursor: page.cursor })
    // @ts-expect-error a cursor is text
    await hf.runs.list({ cursor: 5 })
  })
})
