import assert from 'node:assert/strict'
import { open, workflow } from 'holdfast'

const greet = workflow('greet', async (ctx, name: string) => await ctx.step('greet', () => `Hello ${name}`))
const hf = await open('memory:', { workflows: [greet] })

// #region owners
const acme = hf.as('acme')
await acme.run(greet, 'Alice', { id: 'welcome' })
await acme.runs.get('welcome') // found
await hf
  .as('other')
  .runs.get('welcome')
  .catch((error) => console.log(error.code)) // run_not_found
// #endregion

assert.equal((await hf.runs.list()).items.length, 0)
assert.equal((await acme.runs.list()).items.length, 1)
await hf.close()
