import assert from 'node:assert/strict'
import { open, state, workflow } from 'holdfast'

let looks = 0
const look = async () => ++looks

// #region continue
const watchShop = workflow(
  { name: 'watch_shop', state: state({ version: 1, initial: () => ({ visits: 0 }) }) },
  async (ctx, input: { left: number }): Promise<number> => {
    await ctx.step('look', () => look())
    ctx.update((draft) => {
      draft.visits++
    })
    if (input.left === 0) return ctx.state.visits
    return await ctx.continueAs({ left: input.left - 1 }) // a fresh log to replay, on the same thread and state
  },
)
// #endregion

const hf = await open('memory:', { workflows: [watchShop] })
assert.equal(await hf.run(watchShop, { left: 3 }), 4)
await hf.close()
