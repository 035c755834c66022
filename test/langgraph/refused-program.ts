// node --conditions=holdfast-source test/langgraph/refused-program.ts
//
// Runs on one thread, in a process in which nobody listens for unhandled rejections. Prints how each ended.

import { Annotation, Command, interrupt, START, StateGraph } from '@langchain/langgraph'
import { open } from 'holdfast'
import { HoldfastSaver } from 'holdfast/langgraph'

const State = Annotation.Root({ list: Annotation<string[]>({ reducer: (a, b) => [...a, ...b], default: () => [] }) })
const hf = await open('memory:', { worker: false, logger: false })
const pause = () => new Promise((resolve) => setTimeout(resolve, 200))
const asking = new StateGraph(State)
  .addNode('ask', async () => {
    const answer = interrupt('yes or no?') as string
    await pause()
    return { list: [answer] }
  })
  .addEdge(START, 'ask')
  .compile({ checkpointer: new HoldfastSaver(hf) })
const slow = new StateGraph(State)
  .addNode('wait', async () => {
    await pause()
    return { list: ['waited'] }
  })
  .addEdge(START, 'wait')
  .compile({ checkpointer: new HoldfastSaver(hf) })

const [asked, shared] = [{ configurable: { thread_id: 'asked' } }, { configurable: { thread_id: 'shared' } }]
await asking.invoke({ list: [] }, asked)
const answers = ['a', 'b', 'c'].map((resume) => asking.invoke(new Command({ resume }), asked))
const runs = ['a', 'b', 'c'].map((text) => slow.invoke({ list: [text] }, shared))
const ends = await Promise.allSettled([...answers, ...runs])
const codes = ends.map((end) => (end.status === 'fulfilled' ? 'done' : (end.reason as { code?: string }).code))
const lists = [(await asking.getState(asked)).values.list, (await slow.getState(shared)).values.list]
await hf.close()
// Node says in a later turn that a rejection was handled. A listener that stays would let this go on for ever.
while (process.listenerCount('unhandledRejection') + process.listenerCount('rejectionHandled') > 0) {
  await new Promise((resolve) => setImmediate(resolve))
}
console.log(JSON.stringify({ codes, lists }))
