import assert from 'node:assert/strict'
import { setTimeout as delay } from 'node:timers/promises'
import { open, workflow } from 'holdfast'

const mails: string[] = []
const remind = workflow('remind', async (ctx, to: string) => {
  await ctx.sleep(24 * 60 * 60 * 1_000)
  await ctx.step('send', () => mails.push(to))
})

// #region clock
let clockMs = 0
const hf = await open('memory:', { workflows: [remind], clock: () => clockMs, worker: { pollMs: 10 } })
const run = await hf.start(remind, 'alice')
while ((await run.info()).status !== 'waiting') await delay(5)
assert.deepEqual(mails, [])

clockMs += 24 * 60 * 60 * 1_000 // a day later
await run.result()
assert.deepEqual(mails, ['alice'])
await hf.close()
// #endregion
