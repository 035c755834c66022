import assert from 'node:assert/strict'
import { open, workflow } from 'holdfast'
import pg from 'pg'

const confirm = workflow('confirm', (ctx, orderId: string) => ctx.step('confirm', () => `Order ${orderId} is confirmed.`))

// #region pool
const pool = new pg.Pool({ connectionString: process.env['DATABASE_URL'] })
const hf = await open(pool, { workflows: [confirm] })
// #endregion
await pool.query('CREATE TABLE orders (id text PRIMARY KEY)')

// #region tx
const client = await pool.connect()
try {
  await client.query('BEGIN')
  await client.query('INSERT INTO orders (id) VALUES ($1)', ['o-1'])
  await hf.start(confirm, 'o-1', { id: 'confirm:o-1', tx: client })
  await client.query('COMMIT') // the order and the run that confirms it: both are there, or neither
} catch (error) {
  await client.query('ROLLBACK')
  throw error
} finally {
  client.release()
}
// #endregion
assert.equal(await (await hf.runs.get('confirm:o-1')).result(), 'Order o-1 is confirmed.')
// #region close
await hf.close()
await pool.end() // what you opened, you close
// #endregion
