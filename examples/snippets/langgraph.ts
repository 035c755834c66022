import assert from 'node:assert/strict'
import { AIMessage, HumanMessage } from '@langchain/core/messages'
import { tool } from '@langchain/core/tools'
import { Command, interrupt, MessagesAnnotation, START, StateGraph } from '@langchain/langgraph'
import { ToolNode } from '@langchain/langgraph/prebuilt'
import { open } from 'holdfast'
import { durableTool, graphWorkflow, HoldfastSaver, HoldfastStore, once, operationKey } from 'holdfast/langgraph'
import { z } from 'zod'

const builder = new StateGraph(MessagesAnnotation)
  .addNode('reply', ({ messages }) => ({ messages: [new AIMessage(`You said: ${messages.at(-1)?.content}`)] }))
  .addNode('approve', () => ({ messages: [new HumanMessage(String(interrupt('Send it?')))] }))
  .addEdge(START, 'reply')
  .addEdge('reply', 'approve')

// #region saver
const hf = await open('sqlite:agents.db', { worker: false })
const graph = builder.compile({ checkpointer: new HoldfastSaver(hf), store: new HoldfastStore(hf) })

const config = { configurable: { thread_id: 'customer-7' } }
await graph.invoke({ messages: [new HumanMessage('hello')] }, config)
await graph.invoke(new Command({ resume: 'yes' }), config)
// #endregion
assert.equal((await graph.getState(config)).values.messages.length, 3)

await graph.invoke({ messages: [new HumanMessage('again')] }, config)
// #region conflict
try {
  await graph.invoke(new Command({ resume: 'yes' }), config)
} catch (error) {
  if ((error as { code?: string }).code !== 'conflict') throw error
  // Another run wrote to this thread, or answered this interrupt, first. Look at the thread as it is now.
  console.log((await graph.getState(config)).next)
}
// #endregion

const saver = new HoldfastSaver(hf)
// #region history
const history = await saver.history('customer-7')
const timeline = await hf.debug.timeline(history)
for (const { checkpoint, step, messageCount } of timeline) console.log(checkpoint, step, messageCount)

const [from, to] = [timeline[1]?.checkpoint ?? '', timeline.at(-1)?.checkpoint ?? '']
const { messagesAdded } = await hf.debug.diff(from, to, { in: history })
const { last } = await hf.debug.blame(to, 'messages[1].content', { in: history })
console.log(messagesAdded, 'messages; written by', last?.step)
// #endregion
assert.equal(last?.step, 'reply')

// #region care
await saver.copyThread('customer-7', 'customer-7-what-if')
await saver.prune(['customer-7']) // keeps the latest checkpoint
await saver.deleteThread('customer-7-what-if')
// #endregion
assert.equal(await saver.getTuple({ configurable: { thread_id: 'customer-7-what-if' } }), undefined)

// #region store
const memories = new HoldfastStore(hf, { ttlMs: 30 * 24 * 3_600_000 })
await memories.put(['users', 'ann'], 'diet', { text: 'vegetarian', since: new Date() })
const found = await memories.search(['users', 'ann'], { filter: { text: 'vegetarian' } })
// #endregion
assert.equal(found.length, 1)
await hf.close()

// #region workflow
const durable = await open('sqlite:agents.db')
const agent = builder.compile({ checkpointer: new HoldfastSaver(durable) })
const flow = graphWorkflow<{ messages: { role: string; content: string }[] }>(agent, { name: 'agent', to: 'support' })
durable.register(flow)

const run = await durable.start(flow, { messages: [{ role: 'user', content: 'hello' }] }, { threadId: 'customer-8' })
// #endregion
for (let isAnswered = false; !isAnswered; ) {
  const [item] = await durable.inbox()
  if (item?.kind === 'question') {
    await durable.answer(item.runId, item.name, 'yes', { id: item.id })
    isAnswered = true
  } else await new Promise((resolve) => setTimeout(resolve, 10))
}
await run.result()
assert.equal((await agent.getState({ configurable: { thread_id: 'customer-8' } })).values.messages.length, 3)
await durable.close()

await effectsInNodes()

/** Charges, refunds, and is interrupted and resumed in between. */
async function effectsInNodes(): Promise<void> {
  const acts: string[] = []
  const shop = {
    charge: (order: string, key: string) => `charge ${acts.push(`${order} ${key}`)}`,
    refund: (order: string, key: string) => `refund ${acts.push(`${order} ${key}`)}`,
    find: (_key: string) => ({ happened: false }),
  }
  const builder = new StateGraph(MessagesAnnotation) as unknown as StateGraph<
    typeof MessagesAnnotation.spec,
    typeof MessagesAnnotation.State,
    Partial<typeof MessagesAnnotation.State>,
    string
  >
  // #region effects
  builder.addNode('charge', async ({ messages }, config) => {
    const order = String(messages.at(-1)?.content)
    const receipt = await once(config, 'charge', { run: (key) => shop.charge(order, key), check: (key) => shop.find(key) })
    return { messages: [new AIMessage(`Charged: ${receipt}`)] }
  })

  const refund = durableTool(
    tool(({ order }, toolConfig) => shop.refund(order, operationKey(toolConfig)), {
      ...{ name: 'refund', description: 'Pays back an order.', schema: z.object({ order: z.string() }) },
    }),
    { idempotent: true },
  )
  builder.addNode('tools', new ToolNode([refund]))
  // #endregion
  const calls = [{ name: 'refund', args: { order: '4711' }, id: 'call 1' }]
  builder
    .addNode('model', () => ({ messages: [new AIMessage({ content: '', tool_calls: calls })] }))
    .addNode('ask', () => ({ messages: [new HumanMessage(String(interrupt('Good?')))] }))
    .addEdge(START, 'charge')
    .addEdge('charge', 'model')
    .addEdge('model', 'tools')
    .addEdge('tools', 'ask')
  const hf = await open('memory:', { worker: false })
  const graph = builder.compile({ checkpointer: new HoldfastSaver(hf) })
  const config = { configurable: { thread_id: 'customer-9' } }
  await graph.invoke({ messages: [new HumanMessage('4711')] }, config)
  await graph.invoke(new Command({ resume: 'yes' }), config)
  assert.equal(acts.length, 2)
  await hf.close()
}
