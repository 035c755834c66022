import assert from 'node:assert/strict'
import { open, workflow } from 'holdfast'
import { createClient } from 'redis'

const url = (process.env['REDIS_URL'] ?? 'redis://localhost').replace(/\?.*/, '')
const greet = workflow('greet', (ctx, name: string) => ctx.step('greet', () => `Hello ${name}.`))

{
  // #region open
  const hf = await open(`${url}?namespace=agents`, { workflows: [greet] })
  // #endregion
  assert.equal(await hf.run(greet, 'Alice'), 'Hello Alice.')
  await hf.close()
}

// #region client
const client = await createClient({ url }).connect()
const hf = await open(client, { workflows: [greet] })
// #endregion
assert.equal(await hf.run(greet, 'Bob'), 'Hello Bob.')
// #region close
await hf.close()
await client.close() // what you opened, you close
// #endregion
