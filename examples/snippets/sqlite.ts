import assert from 'node:assert/strict'
import { DatabaseSync } from 'node:sqlite'
import { open, workflow } from 'holdfast'

// #region handle
const db = new DatabaseSync('shop.db')
db.exec('CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, cents INTEGER NOT NULL)')
const hf = await open(db)
// #endregion

// #region transaction
const order = workflow('order', async (ctx, input: { id: string; cents: number }) => {
  return await ctx.transaction('insert_order', async (tx) => {
    await tx.query('INSERT INTO orders (id, cents) VALUES (?, ?)', [input.id, input.cents])
    const [row] = await tx.query<{ total: number }>('SELECT sum(cents) AS total FROM orders')
    return row?.total ?? 0
  })
})
// #endregion

assert.equal(await hf.run(order, { id: 'o1', cents: 250 }), 250)
await assert.rejects(hf.run(order, { id: 'o1', cents: 250 }), { code: 'run_failed' })
// #region close
await hf.close()
db.close() // what you opened, you close
// #endregion
