import assert from 'node:assert/strict'
import { open, workflow } from 'holdfast'

const dayMs = 24 * 3_600_000
let offsetMs = -40 * dayMs
const greet = workflow('greet', (_, name: string) => `Hello ${name}.`)
const hf = await open('memory:', { workflows: [greet], clock: () => offsetMs })
const finish = async (count: number) => {
  const runs = await hf.startMany(Array.from({ length: count }, () => ({ workflow: greet, input: 'Bob' })))
  await Promise.all(runs.map((run) => run.result()))
}
await finish(1_050) // 40 days ago: more than a page
offsetMs = 0
await finish(50) // today

// #region retention
const ended = ['completed', 'failed', 'cancelled'] as const
const before = Date.now() - 30 * 24 * 3_600_000
for (let cursor: string | undefined, isLast = false; !isLast; isLast = cursor === undefined) {
  const page = await hf.runs.list({ status: ended, createdBefore: before, limit: 1_000, cursor })
  for (const { threadId, finishedAt = Date.now() } of page.items) {
    if (finishedAt < before) await hf.thread(threadId).delete()
  }
  cursor = page.cursor
}
// #endregion

let left = 0
for (let cursor: string | undefined, isLast = false; !isLast; isLast = cursor === undefined) {
  const page = await hf.runs.list({ limit: 1_000, cursor })
  left += page.items.length
  cursor = page.cursor
}
assert.equal(left, 50)
await hf.close()
