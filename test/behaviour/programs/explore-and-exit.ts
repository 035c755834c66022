import { workflow } from 'holdfast'
import { explore } from 'holdfast/testing'
import { report } from './report.ts'

// Explores a workflow with a time limit and a wait. Nothing that is left behind may keep the process alive.
const wait = workflow('wait', async (ctx) => {
  await ctx.step('slow', () => new Promise((resolve) => setTimeout(resolve, 5)), { timeoutMs: 100_000 })
  await ctx.sleep(1_000)
})
const explored = await explore({ workflow: wait, faults: ['crash', 'lostAnswer', 'zombie', 'slowCommit'] })
report('explored', [explored.cases.length, explored.failures.length])
