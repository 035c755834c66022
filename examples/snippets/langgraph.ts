import assert from 'node:assert/strict'
import { AIMessage, HumanMessage } from '@langchain/core/messages'
import { Command, interrupt, MessagesAnnotation, START, StateGraph } from '@langchain/langgraph'
import { open } from 'holdfast'
import { graphWorkflow, HoldfastSaver, HoldfastStore } from 'holdfast/langgraph'

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

// #region care
const saver = new HoldfastSaver(hf)
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
