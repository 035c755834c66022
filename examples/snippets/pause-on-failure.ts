import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import { open, workflow } from 'holdfast'

let isBroken = true
async function bookFlight(): Promise<string> {
  if (isBroken) throw new Error('login refused')
  return 'booked'
}

// #region pause
const travel = workflow('travel', async (ctx) => {
  return await ctx.step('book_flight', () => bookFlight(), { onFailure: 'pause', retry: { attempts: 2, minMs: 10 } })
})
// #endregion

const hf = await open('memory:', { workflows: [travel] })
const run = await hf.start(travel)
while ((await run.info()).status !== 'paused') await sleep(10)
const { reason, error } = await run.info()
assert.equal(reason, 'retries')
assert.equal(error?.message, 'login refused')
isBroken = false
// #region resume
await run.resume({ by: 'dana' }) // fresh attempts for the step that had none left
// #endregion
assert.equal(await run.result(), 'booked')
await hf.close()
