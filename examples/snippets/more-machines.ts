import assert from 'node:assert/strict'
import { open, workflow } from 'holdfast'

const greet = workflow('greet', (ctx, name: string) => ctx.step('greet', () => `Hello ${name}.`))

// #region open
const hf = await open(process.env['DATABASE_URL'], { workflows: [greet] }) // postgres://user@host/database, or redis://host
// #endregion
assert.equal(await hf.run(greet, 'Alice'), 'Hello Alice.')
await hf.close()
