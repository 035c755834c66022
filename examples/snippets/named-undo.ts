import assert from 'node:assert/strict'
import { open, workflow } from 'holdfast'

const said: string[] = []
const payments = {
  charge: async (order: string, _key: string) => ({ id: `charge of ${order}` }),
  refund: async (charge: string, _key: string) => void said.push(`refund ${charge}`),
}
const stock = { take: async (order: string) => order, putBack: async (order: string) => void said.push(`put back ${order}`) }
const pack = workflow('pack', (ctx, order: string) => ctx.step('take', () => stock.take(order)))

// #region named
const sale = workflow(
  {
    name: 'sale',
    undos: {
      refund: (charge: { id: string }, { key }) => payments.refund(charge.id, key), // `key` is the undo's own, for providers that take one
      putBack: (order: string) => stock.putBack(order),
    },
  },
  async (ctx, order: string) => {
    await ctx.section('pay', () =>
      ctx.once('charge', { idempotent: true, run: (key) => payments.charge(order, key), undo: 'refund' }),
    )
    await ctx.call(pack, order, { undo: 'putBack' }) // with the output of the child
    await ctx.waitFor('collected')
  },
)
// #endregion

const hf = await open('memory:', { workflows: [sale, pack] })
const run = await hf.start(sale, '4711')
while ((await run.info()).reason !== 'signal') await new Promise((resolve) => setTimeout(resolve, 10))
await run.cancel()
assert.deepEqual(said, ['put back 4711', 'refund charge of 4711'])
await hf.close()
