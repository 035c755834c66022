import assert from 'node:assert/strict'
import { AIMessage, HumanMessage } from '@langchain/core/messages'
import { Command, interrupt, MessagesAnnotation, START, StateGraph } from '@langchain/langgraph'
import { SqliteSaver } from '@langchain/langgraph-checkpoint-sqlite'
import { open } from 'holdfast'
import { HoldfastSaver, HoldfastStore, importLangGraph } from 'holdfast/langgraph'

let failures = 1
function callModel(text: string): string {
  if (failures-- > 0) throw new Error('overloaded')
  return `You said: ${text}`
}

const builder = new StateGraph(MessagesAnnotation)
  // #region retry
  .addNode('reply', ({ messages }) => ({ messages: [new AIMessage(callModel(String(messages.at(-1)?.content)))] }), {
    retryPolicy: { maxAttempts: 5, initialInterval: 500, backoffFactor: 2, maxInterval: 30_000, jitter: true },
  })
  // #endregion
  .addNode('approve', () => ({ messages: [new HumanMessage(String(interrupt('Send it?')))] }))
  .addEdge(START, 'reply')
  .addEdge('reply', 'approve')

const config = { configurable: { thread_id: 'customer-7' } }
await builder
  .compile({ checkpointer: SqliteSaver.fromConnString('old.db') })
  .invoke({ messages: [new HumanMessage('hi')] }, config)

// #region import
const old = SqliteSaver.fromConnString('old.db') // or a PostgresSaver, or any other checkpointer
const hf = await open('sqlite:agents.db', { worker: false })
const report = await importLangGraph(hf, old, { onProgress: ({ threadId, checkpoints }) => console.log(threadId, checkpoints) })
for (const { threadId, error } of report.failed) console.error(threadId, error.message)

const graph = builder.compile({ checkpointer: new HoldfastSaver(hf) }) // the only other line that changes
await graph.invoke(new Command({ resume: 'yes' }), config)
// #endregion
assert.deepEqual(report.failed, [])
assert.equal((await graph.getState(config)).values.messages.length, 3)

// #region tiers
const session = new HoldfastStore(hf, { ttlMs: 3_600_000 }) // forgotten an hour after it was last read or put
const longTerm = new HoldfastStore(hf)
await session.put(['sessions', 'customer-7'], 'cart', { items: ['4711'] })
await longTerm.put(['users', 'ann'], 'diet', { text: 'vegetarian' })
// #endregion
assert.equal((await longTerm.search(['users', 'ann'])).length, 1)

// #region clean
const saver = new HoldfastSaver(hf)
const month = 30 * 24 * 3_600_000
for await (const { config, checkpoint } of saver.list({}, { filter: { source: 'input', step: -1 } })) {
  const { thread_id: threadId, checkpoint_ns: ns } = config.configurable as { thread_id: string; checkpoint_ns: string }
  if (ns !== '' || Date.now() - Date.parse(checkpoint.ts) < month) continue
  const latest = await saver.getTuple({ configurable: { thread_id: threadId } })
  if (Date.now() - Date.parse(latest?.checkpoint.ts ?? '') > month) await saver.deleteThread(threadId)
}
// #endregion
assert.ok(await saver.getTuple(config))
await hf.close()
old.db.close()
