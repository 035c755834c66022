// What a workflow does when its store fails: hooks around the acts of a store stand for outages.

import assert from 'node:assert/strict'
import { HoldfastError, open, workflow } from 'holdfast'
import { wrapStore } from 'holdfast/testing'
import { createMyStore } from './my-store.ts'

const greet = workflow('greet', async (ctx, name: string) => await ctx.step('greet', () => `Hello ${name}`))
let failures = 0

// #region faults
const store = wrapStore(createMyStore(), {
  before: (act, nth) => {
    if (act !== 'commit' || nth < 2 || nth > 4) return
    failures++
    throw new HoldfastError('store_unavailable', 'The network is down.', { retryable: true })
  },
})
const hf = await open(store, { workflows: [greet] })
assert.equal(await hf.run(greet, 'Alice'), 'Hello Alice') // a run waits for its store
await hf.close()
await store.close() // what you opened, you close
// #endregion
assert.equal(failures, 3)
