import assert from 'node:assert/strict'
import { readFile, writeFile } from 'node:fs/promises'
import { copyStore, open, workflow } from 'holdfast'

const greet = workflow('greet', (ctx, name: string) => ctx.step('greet', () => `Hello ${name}.`))

const production = await open('sqlite:production.db', { workflows: [greet] })
await production.run(greet, 'Alice', { id: 'greet-alice' })

// #region export
const bundle = await production.debug.export('greet-alice') // a thread id, or the id of one of its runs
await writeFile('greet-alice.json', JSON.stringify(bundle))
// #endregion
await production.close()

// #region import
const here = await open('memory:')
const thread = await here.debug.import(await readFile('greet-alice.json'), { paused: true })
console.log(await thread.checkpoints())
// #endregion
assert.equal(await (await here.runs.get('greet-alice')).result(), 'Hello Alice.')
await here.close()

// #region copy
const report = await copyStore('sqlite:production.db', process.env['DATABASE_URL'] ?? '', {
  onProgress: ({ phase, threads }) => console.log(`${phase}: ${threads} threads`),
})
console.log(report) // { threads: 1, runs: 1, events: 4, operations: 0, sha256: '…' }
// #endregion
assert.deepEqual({ threads: report.threads, runs: report.runs }, { threads: 1, runs: 1 })

const moved = await open(process.env['DATABASE_URL'], { workflows: [greet] })
assert.equal(await moved.run(greet, 'Alice', { id: 'greet-alice' }), 'Hello Alice.')
await moved.close()
