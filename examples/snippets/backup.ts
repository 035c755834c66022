import assert from 'node:assert/strict'
import { open, workflow } from 'holdfast'

const greet = workflow('greet', async (ctx, name: string) => await ctx.step('greet', () => `Hello ${name}`))
const hf = await open('sqlite:holdfast.db', { workflows: [greet] })
await hf.run(greet, 'Alice', { id: 'alice' })

// #region backup
import { backup, DatabaseSync } from 'node:sqlite'

const db = new DatabaseSync('holdfast.db', { readOnly: true })
await backup(db, 'backup.db') // consistent, while runs continue
db.close()
// #endregion

await hf.close()
const restored = await open('sqlite:backup.db', { worker: false })
assert.equal(await (await restored.runs.get('alice')).result(), 'Hello Alice')
await restored.close()
