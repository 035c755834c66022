import assert from 'node:assert/strict'
import { workflow } from 'holdfast'
import { createVirtualClock, mockSteps } from 'holdfast/testing'

const mails: string[] = []
const dayMs = 24 * 60 * 60 * 1_000
const remind = workflow('remind', async (ctx, to: string) => {
  const text = await ctx.step('write', () => `Dear ${to}, …`)
  await ctx.sleep(dayMs)
  await ctx.step('send', () => mails.push(`${to}: ${text}`))
})

// #region mocks
const mocked = mockSteps(remind, {
  write: 'Hello.', // a value: the step's result
  send: (step: { key: string }) => mails.push(step.key), // called with what the body would get; an Error would be thrown
})
// #endregion

// #region clock
const clock = createVirtualClock()
const hf = await clock.open({ workflows: [mocked] })
const run = await hf.start(mocked, 'alice', { id: 'reminder' })
await clock.idle()
assert.deepEqual(mails, [])

await clock.advance(dayMs) // runs what becomes due, and resolves when the workers are idle again
assert.deepEqual(mails, ['reminder/send#1'])
assert.equal((await run.info()).status, 'completed')
await clock.close()
// #endregion
