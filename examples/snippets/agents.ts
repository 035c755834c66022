import assert from 'node:assert/strict'
import { generateText, isStepCount, type ToolExecutionOptions, tool } from 'ai'
import { open, workflow } from 'holdfast'
import { durableCall, durableModel, durableTools, effect, runAgent, uiStream, withContext } from 'holdfast/ai'
import { z } from 'zod'
import { scriptedModel } from '../agent/scripted-model.ts'

const model = scriptedModel({ msPerWord: 0 })
const price = (_: string, { inputTokens, outputTokens }: { inputTokens: number; outputTokens: number }) =>
  (inputTokens * 2 + outputTokens * 8) / 1_000_000
const sent: string[] = []
const bank = {
  refund: async (key: string, order: string, amount: number) => {
    sent.push(key)
    return { receipt: `r-${order}-${amount}` }
  },
}

// #region agent
const support = workflow({ name: 'support', budget: { tokens: 200_000, cost: 2 } }, async (ctx, question: string) => {
  const settings = {
    model,
    instructions: 'You help with refunds.',
    tools: {
      findOrder: tool({
        inputSchema: z.object({ order: z.string() }),
        execute: async ({ order }) => ({ order, item: 'kettle', price: 120 }), // a step
      }),
      refund: effect(
        tool({
          inputSchema: z.object({ order: z.string(), amount: z.number() }),
          execute: ({ order, amount }, options) => bank.refund(durableCall(options).key, order, amount),
        }),
        { key: ({ order }) => `refund:${order}`, idempotent: true }, // an effect
      ),
    },
    toolApproval: { refund: ({ amount }: { amount: number }) => (amount > 100 ? ('user-approval' as const) : undefined) },
  }
  const { text } = await runAgent(ctx, settings, { prompt: question, stream: 'ui', to: 'finance', price })
  return text
})
// #endregion

const hf = await open('sqlite:agents.db', { workflows: [support] })
const run = await hf.start(support, 'Please refund order 4711', { id: 'r1' })

// #region approve
for (const item of await waitForInbox()) {
  if (item.kind !== 'question') continue
  console.log(item.to, item.question) // finance { tool: 'refund', input: { order: '4711', amount: 120 }, approvalId: '…' }
  await hf.answer(item.runId, item.name, { approved: true }, { id: item.id, by: 'alice' })
}
// #endregion

async function waitForInbox() {
  for (;;) {
    const items = await hf.inbox()
    if (items.length > 0) return items
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
}

assert.equal(await run.result(), 'Your 120 euros for order 4711 are on their way.')
assert.deepEqual(sent, ['refund:4711'])

// #region response
const response = uiStream(run, { from: 0 }) // a Response, for any web framework
// #endregion
assert.match(await response.text(), /"type":"tool-output-available"/)

const findOrder = tool({ inputSchema: z.object({ order: z.string() }), execute: async ({ order }) => order })
const tools = { findOrder }
// #region loop
const own = workflow('own-loop', async (ctx, prompt: string) => {
  const { text } = await generateText({
    model: durableModel(ctx, model, { retry: { attempts: 5 }, timeoutMs: 60_000, price, stream: 'ui' }),
    tools: durableTools(ctx, tools),
    stopWhen: isStepCount(10),
    prompt,
  })
  return text
})
// #endregion
assert.match(await hf.run(own, 'Hello'), /^Of course/)

// #region context
const research = withContext(
  tool({
    description: 'Researches a topic.',
    inputSchema: z.object({ topic: z.string() }),
    execute: async ({ topic }, options) => {
      const { ctx } = durableCall(options)
      return (await runAgent(ctx, { model, instructions: 'Research it.' }, { prompt: topic })).text // a sub-agent
    },
  }),
)
// #endregion
const researching = workflow('researching', async (ctx) => {
  const given = { toolCallId: '1', messages: [], context: undefined } satisfies ToolExecutionOptions<undefined>
  return durableTools(ctx, { research }).research.execute?.({ topic: 'kettles' }, given as never)
})
assert.match(String(await hf.run(researching)), /^Of course/)
await hf.close()
