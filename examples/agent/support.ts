import { type LanguageModel, tool } from 'ai'
import type { Context } from 'holdfast'
import { type ChatState, chatWorkflow, durableCall, effect, keepLast } from 'holdfast/ai'
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

// #region memory
const remember = tool({
  description: 'Keeps what the customer says about themselves.',
  inputSchema: z.object({ name: z.string() }),
  execute: async (said, options) => {
    const { step } = durableCall(options)
    await step?.memory.of('customer').profile.merge(said, { why: 'said in a chat' }) // in the commit of this call
    return 'kept'
  },
})

const instructionsFor = async (ctx: Context<ChatState>) => {
  const customer = await ctx.memory.of('customer').profile.get() // the same in every chat of this owner, for good
  const tone = (await ctx.memory.session.get('tone')) ?? 'plain' // of this chat, for an hour after it was used last
  return `You help with refunds. Known of the customer: ${JSON.stringify(customer)}. Tone: ${tone}.`
}
// #endregion

// #region chat
export const support = chatWorkflow({
  name: 'support',
  agent: async (ctx) => ({
    model,
    instructions: await instructionsFor(ctx),
    tools: { findOrder, refund, remember },
    toolApproval: { refund: ({ amount }) => (amount > 100 ? 'user-approval' : undefined) },
  }),
  to: 'finance', // who approves
  budget: { tokens: 200_000, cost: 2 }, // of one answer; past it the run pauses
  price: (_, { inputTokens, outputTokens }) => (inputTokens * 2 + outputTokens * 8) / 1_000_000,
  compact: keepLast(40),
})
// #endregion
