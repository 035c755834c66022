import { expect, test } from 'vitest'
import { emptyStores } from '../torture/empty-stores.ts'
import { openAtOnce } from '../torture/open-at-once.ts'

test.each(['postgres', 'redis'] as const)('ten processes that open an empty %s store at once all succeed', async (kind) => {
  expect(await openAtOnce(await emptyStores[kind](1), { processCount: 10 })).toEqual([])
})
