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
await finish(50) // 40 days ago
offsetMs = 0
await finish(1_050) // today: more than a page

// #region retention
const before = Date.now() - 30 * 24 * 3_600_000
for (let cursor: string | undefined, isLast = false; !isLast; isLast = cursor === undefined) {
  const page = await hf.runs.list({ status: ['completed', 'failed', 'cancelled'], limit: 1_000, ...(cursor && { cursor }) })
  for (const { threadId, finishedAt = Date.now() } of page.items) {
    if (finishedAt < before) await hf.thread(threadId).delete()
  }
  cursor = page.cursor
}
// #endregion

let left = 0
for (let cursor: string | undefined, isLast = false; !isLast; isLast = cursor === undefined) {
  const page = await hf.runs.list({ limit: 1_000, ...(cursor && { cursor }) })
  left += page.items.length
  cursor = page.cursor
}
assert.equal(left, 1_050)
await hf.close()
