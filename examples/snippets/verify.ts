import assert from 'node:assert/strict'
import { open, workflow } from 'holdfast'

const greet = workflow('greet', async (ctx, name: string) => await ctx.step('greet', () => `Hello ${name}`))
const hf = await open('sqlite:holdfast.db', { workflows: [greet] })
await hf.run(greet, 'Alice', { id: 'alice' })

// #region verify
const report = await hf.verify({ onProgress: ({ threads, records }) => console.log(threads, records) })
console.log(report.threads, report.runs, report.records, report.bytes, report.durationMs)
for (const { threadId, runId, checkpoint, what, message, help } of report.damaged)
  console.error(what, threadId, runId, checkpoint, message, help)
// #endregion
assert.equal(report.isSound, true)
await hf.close()
