import assert from 'node:assert/strict'
import { open, type RunEvent, workflow } from 'holdfast'

const url = 'sqlite:watching.db'
const report = workflow('report', async (ctx, topic: string) => await ctx.step('summarize', () => `about ${topic}`))
const elsewhere = await open(url, { workflows: [report] })

// #region start
// A process that starts and reads runs, and leaves the work to others.
const hf = await open(url, { worker: false })
const run = await hf.start('report', 'refunds', { id: 'refunds-2026-11' })

for await (const event of run.watch()) {
  console.log(event.seq, event.type, event.step ?? '', event.durationMs ?? '')
}
console.log(await run.info())
// #endregion

// #region list
const unfinished = ['pending', 'running', 'waiting', 'paused'] as const
const { items, cursor } = await hf.runs.list({ status: unfinished, workflow: 'report', limit: 1_000 })
const left = items.filter(({ version }) => version === 1)
// #endregion

// #region filters
const dayMs = 24 * 60 * 60 * 1_000
const old = await hf.runs.list({ status: 'waiting', createdBefore: Date.now() - dayMs })
const approved = await hf.runs.list({ label: 'approved', status: 'completed' })
// #endregion
assert.equal(old.items.length + approved.items.length, 0)

const events: RunEvent[] = await run.events()
assert.deepEqual(
  events.map(({ type }) => type),
  ['run_queued', 'run_started', 'step_started', 'step_completed', 'run_completed'],
)
assert.equal(left.length, 0)
assert.equal(cursor, undefined)
await hf.close()
await elsewhere.close()
