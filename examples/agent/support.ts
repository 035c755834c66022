import { type LanguageModel, tool } from 'ai'
import { chatWorkflow, durableCall, effect, keepLast } from 'holdfast/ai'
import { z } from 'zod'
import { scriptedModel } from './scripted-model.ts'

/** The bank of this example: it carries out a refund once for each key. */
const refunds = new Map<string, { receipt: string }>()
const bank = {
  refund: async (key: string, order: string, amount: number) => {
    const receipt = refunds.get(key) ?? { receipt: `r-${order}-${amount}` }
    refunds.set(key, receipt)
    return receipt
  },
}

/** A model of the AI gateway, as `AI_MODEL=openai/gpt-6-astra` with its key, or the scripted one. */
const model: LanguageModel = process.env['AI_MODEL'] ?? scriptedModel({ msPerWord: Number(process.env['MS_PER_WORD'] ?? 80) })

// #region tools
const findOrder = tool({
  description: 'Finds an order by its number.',
  inputSchema: z.object({ order: z.string() }),
  execute: async ({ order }) => ({ order, item: 'kettle', price: 120 }), // a step: a recorded result is not asked for again
})

const refund = effect(
  tool({
    description: 'Pays the price of an order back.',
    inputSchema: z.object({ order: z.string(), amount: z.number().positive() }),
    execute: ({ order, amount }, options) => bank.refund(durableCall(options).key, order, amount),
  }),
  { key: ({ order }) => `refund:${order}`, idempotent: true }, // one key is one refund, in this chat and in every other
)
// #endregion

// #region chat
export const support = chatWorkflow({
  name: 'support',
  agent: {
    model,
    instructions: 'You help with refunds.',
    tools: { findOrder, refund },
    toolApproval: { refund: ({ amount }) => (amount > 100 ? 'user-approval' : undefined) },
  },
  to: 'finance', // who approves
  budget: { tokens: 200_000, cost: 2 }, // of one answer; past it the run pauses
  price: (_, { inputTokens, outputTokens }) => (inputTokens * 2 + outputTokens * 8) / 1_000_000,
  compact: keepLast(40),
})
// #endregion
