import assert from 'node:assert/strict'
// #region agent
import { tool } from 'ai'
import { open, workflow } from 'holdfast'
import { durableCall, effect, runAgent } from 'holdfast/ai'
import { z } from 'zod'
import { bank, model, shop } from './shop.ts' // yours: any model of the AI SDK, and what your tools call

const order = z.object({ order: z.string() })
const refund = z.object({ order: z.string(), amount: z.number() })

const settings = {
  model,
  instructions: 'You help with refunds.',
  tools: {
    // A step: once it has answered, it is not called again.
    findOrder: tool({ inputSchema: order, execute: ({ order }) => shop.find(order) }),
    // An effect: one key is one refund, whatever crashes when.
    refund: effect(
      tool({
        inputSchema: refund,
        execute: ({ order, amount }, call) => bank.refund(durableCall(call).key, order, amount),
      }),
      { key: ({ order }) => `refund:${order}`, idempotent: true },
    ),
  },
  toolApproval: { refund: 'user-approval' as const }, // a person is asked first, and may take a week
}

const support = workflow({ name: 'support', budget: { tokens: 200_000 } }, async (ctx, question: string) => {
  const { text } = await runAgent(ctx, settings, { prompt: question, stream: 'ui' })
  return text
})

const hf = await open('sqlite:holdfast.db', { workflows: [support] })
const run = await hf.start(support, 'Please refund order 4711', { id: 'ticket-4711' })
// #endregion

for (let answered = false; !answered; await new Promise((resolve) => setTimeout(resolve, 10))) {
  for (const item of await hf.inbox()) {
    if (item.kind !== 'question') continue
    await hf.answer(item.runId, item.name, { approved: true }, { id: item.id })
    answered = true
  }
}
assert.equal(await run.result(), 'Your 120 euros for order 4711 are on their way.')
await hf.close()
