import assert from 'node:assert/strict'
import { open, workflow } from 'holdfast'

const gather = async () => ['a', 'b']
const check = async (items: string[]) => items.length > 0
const write = async (items: string[]) => items.join()

// #region versions
const report1 = workflow('report', async (ctx) => {
  const items = await ctx.step('gather', () => gather())
  return await ctx.step('write', () => write(items))
})

const report2 = workflow({ name: 'report', version: 2 }, async (ctx) => {
  const items = await ctx.step('gather', () => gather())
  await ctx.step('check', () => check(items)) // new
  return await ctx.step('write', () => write(items))
})

// Runs in flight finish on version 1; new ones take version 2.
const hf = await open('sqlite:holdfast.db', { workflows: [report1, report2] })
// #endregion

const run = await hf.start('report')
await run.result()
assert.equal((await run.info()).version, 2)
await hf.close()
