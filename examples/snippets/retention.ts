import assert from 'node:assert/strict'
import { open, workflow } from 'holdfast'

const url = 'memory:'
const greet = workflow('greet', (_, name: string) => `Hello ${name}.`)
const report = greet
let offsetMs = 0
const clock = () => offsetMs

// #region open
const day = 24 * 3_600_000
const hf = await open(url, {
  workflows: [report],
  retention: {
    runs: { maxAgeMs: 30 * day, keepLast: 100 }, // runs with a thread to themselves
    threads: { maxAgeMs: 365 * day }, // threads of several runs, conversations for example
    notifications: { maxAgeMs: 7 * day },
    streams: { maxAgeMs: day }, // chunks of runs that have ended
  },
  // #endregion
  clock,
})

const finish = async (count: number) => {
  const runs = await hf.startMany(Array.from({ length: count }, () => ({ workflow: greet, input: 'Bob' })))
  await Promise.all(runs.map((run) => run.result()))
}
await finish(250)
const kept = await hf.start(greet, 'Ann', { id: 'gold' })
await kept.result()
offsetMs = 31 * day
await finish(50)

// #region tag
const { checkpoint } = await hf.thread('gold').info()
if (checkpoint !== null) await hf.thread('gold').tag(checkpoint, 'keep')
// #endregion

// #region gc
const planned = await hf.gc({ dryRun: true })
console.log(`${planned.runs} runs would be deleted; kept all the same:`, planned.kept)

const done = await hf.gc({ onProgress: ({ scanned, runs }) => console.log(`${scanned} threads seen, ${runs} deleted`) })
// #endregion

// Of the latest hundred, fifty are of today; the one that is labelled is the fifty-first.
assert.deepEqual([planned.runs, done.runs], [201, 201])
assert.equal(done.kept.last, 50)
let left = 0
for (let cursor: string | undefined, isLast = false; !isLast; isLast = cursor === undefined) {
  const page = await hf.runs.list({ limit: 1_000, cursor })
  left += page.items.length
  cursor = page.cursor
}
assert.equal(left, 100)

await hf.as('ann').run(greet, 'Ann')
// #region forget
const { threads, memories, isComplete } = await hf.forgetOwner('ann')
// #endregion
assert.deepEqual([threads, memories, isComplete], [1, 0, true])
await hf.close()
