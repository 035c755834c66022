import assert from 'node:assert/strict'
import { open, workflow } from 'holdfast'
import pg from 'pg'

const url = process.env['DATABASE_URL']
const admin = new pg.Client({ connectionString: url })
await admin.connect()
await admin.query('CREATE TABLE orders (id text PRIMARY KEY, cents integer NOT NULL)')
await admin.end()

// #region transaction
const order = workflow('order', async (ctx, input: { id: string; cents: number }) => {
  return await ctx.transaction('insert_order', async (tx) => {
    await tx.query('INSERT INTO orders (id, cents) VALUES ($1, $2)', [input.id, input.cents])
    const [row] = await tx.query<{ total: number }>('SELECT sum(cents)::int AS total FROM orders')
    return row?.total ?? 0
  })
})
// #endregion

// #region open
const hf = await open(`${url}?schema=agents`, { workflows: [order], pool: { min: 1, max: 4 } })
// #endregion
assert.equal(await hf.run(order, { id: 'o1', cents: 250 }), 250)
await assert.rejects(hf.run(order, { id: 'o1', cents: 250 }), { code: 'run_failed' })
await hf.close()
