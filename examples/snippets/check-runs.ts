import assert from 'node:assert/strict'
import { workflow } from 'holdfast'
import { checkRuns, createVirtualClock, replayAll } from 'holdfast/testing'

const deployed = workflow('refund', async (ctx, order: string) => {
  await ctx.step('assess', () => `${order} is harmless`)
  await ctx.waitFor('approved')
  return 'refunded'
})
const renamed = workflow('refund', async (ctx, order: string) => {
  await ctx.step('check_risk', () => `${order} is harmless`)
  await ctx.waitFor('approved')
  return 'refunded'
})

const clock = createVirtualClock()
const hf = await clock.open({ workflows: [deployed] })
await hf.start(deployed, '4711', { id: 'refund-4711' })
await clock.idle()

const newWorkflows = [renamed]
// #region check
const check = await checkRuns(hf, { workflows: newWorkflows }) // hf: a client of the store in production, worker: false
for (const { runId, problem, recorded, asked } of check.problems) console.log(runId, problem, recorded, asked)
// refund-4711 diverges [ 'step:assess#1' ] [ 'step:check_risk#1' ]
if (!check.isGood) console.error(String(check)) // and do not deploy
// #endregion
assert.deepEqual(
  check.problems.map(({ recorded, asked }) => ({ recorded, asked })),
  [{ recorded: ['step:assess#1'], asked: ['step:check_risk#1'] }],
)

const saved = [JSON.stringify(await hf.debug.export('refund-4711'))]
const workflows = [deployed]
// #region bundles
const replayed = await replayAll(saved, { workflows }) // files that hf.debug.export(id) has written, as text
assert.ok(replayed.isGood, String(replayed))
// #endregion
await clock.close()
