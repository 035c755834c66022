import assert from 'node:assert/strict'
import { open, workflow } from 'holdfast'
import { z } from 'zod'

const payments = new Map<string, number>()
const bank = {
  pay: async (amount: number, key: string) => {
    payments.set(key, amount)
    return key
  },
}

// #region ask
const refund = workflow('refund', async (ctx, input: { order: string; amount: number }) => {
  const answer = await ctx.ask('approve', {
    question: { text: 'Refund this order?', ...input }, // what the person sees; the answer counts for exactly this
    to: 'finance',
    schema: z.object({ ok: z.boolean(), amount: z.number().max(input.amount) }),
    timeoutMs: 3 * 86_400_000, // three days: the run is stored as waiting, no process has to live that long
    default: { ok: false, amount: 0 },
  })
  if (!answer.ok) return 'declined'
  return await ctx.once('pay', { key: `refund:${input.order}`, idempotent: true, run: (key) => bank.pay(answer.amount, key) })
})
// #endregion

const hf = await open('memory:', { workflows: [refund] })
const run = await hf.start(refund, { order: '4711', amount: 120 }, { id: 'refund-4711' })
while ((await run.info()).reason !== 'person') await new Promise((resolve) => setTimeout(resolve, 10))

// #region answer
for (const item of await hf.inbox()) {
  console.log(item.kind, item.runId, item.actions.join(', ')) // question refund-4711 answer, cancel
  if (item.kind !== 'question') continue
  await hf.answer(item.runId, item.name, { ok: true, amount: 100 }, { id: item.id, by: 'dana' })
}
// #endregion
assert.equal(await run.result(), 'refund:4711')
assert.deepEqual([...payments.values()], [100])
await assert.rejects(hf.answer(run.id, 'approve', { ok: false, amount: 0 }), { code: 'already_answered' })
await hf.close()
