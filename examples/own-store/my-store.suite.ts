import { compareStores, createMemoryStore, createTestClock } from 'holdfast/testing'
import { testStore } from 'holdfast/testing/store-suite'
import { expect, test } from 'vitest'
import { createMyStore } from './my-store.ts'

// #region suite
testStore('my store', {
  open: async ({ clockOffsetMs }) => {
    const store = createMyStore({ clockOffsetMs }) // empty, with a clock that the tests move
    return { store, close: () => store.close() } // and `reopen`, if anything outlives the store
  },
})
// #endregion

// #region compare
test('my store answers as the reference does', async () => {
  const clock = createTestClock()
  const [reference, mine] = [createMemoryStore(clock), createMyStore(clock)]
  const { operations } = await compareStores(reference, mine, { seed: 42, operations: 1_000, clock })
  expect(operations).toBe(1_000)
})
// #endregion
