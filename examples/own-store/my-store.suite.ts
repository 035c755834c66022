import { compareStores, createTestClock, testStore } from 'holdfast/testing'
import { expect, test } from 'vitest'
import { createMyStore, createMyStore as createReference } from './my-store.ts'

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
  const [reference, mine] = [createReference(clock), createMyStore(clock)]
  const { operations } = await compareStores(reference, mine, { seed: 42, operations: 1_000, clock })
  expect(operations).toBe(1_000)
})
// #endregion
