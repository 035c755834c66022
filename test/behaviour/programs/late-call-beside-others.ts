import { setTimeout as pass } from 'node:timers/promises'
import { open, workflow } from 'holdfast'
import { report } from './report.ts'

/** A run fails while a branch of its function is under way, which nobody awaits any more: its next call comes too late. */
const branches = workflow({ name: 'branches', retry: { attempts: 1 } }, async (ctx) => {
  const branch = async () => {
    await pass(50)
    await ctx.step('late', () => 1)
  }
  const beside = branch()
  await ctx.step('fails', () => Promise.reject(new Error('on purpose')))
  await beside
})
const other = workflow('other', (ctx) => ctx.step('a', () => pass(300, 'done')))

const hf = await open('memory:', { logger: false })
const [failed, otherRun] = [await hf.start(branches), await hf.start(other)]
await failed.result().catch(() => {})
report('ended', [(await failed.info()).status, await otherRun.result()])
await hf.close()
process.exit(0)
