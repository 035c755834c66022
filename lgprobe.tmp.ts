import { Annotation, Command, interrupt, START, StateGraph } from '@langchain/langgraph'
import { open } from 'holdfast'
import { HoldfastSaver } from 'holdfast/langgraph'
const S = Annotation.Root({ list: Annotation<string[]>({ reducer: (a, b) => [...a, ...b], default: () => [] }) })
process.on('exit', (c) => console.log('exit', c))
for (const ms of [0, 5, 50, 400]) {
const hf = await open('memory:', { worker: false, logger: false })
const wait = () => new Promise((r) => setTimeout(r, ms))
const g = new StateGraph(S).addNode('ask', async () => { const v = interrupt('q') as string; await wait(); return { list: [v] } }).addNode('two', async () => { await wait(); return { list: ['x'] } }).addEdge(START, 'ask').addEdge('ask', 'two').compile({ checkpointer: new HoldfastSaver(hf) as never })
const c = { configurable: { thread_id: 't' } }
await g.invoke({ list: [] }, c)
console.log((await Promise.allSettled([g.invoke(new Command({ resume: 'a' }), c), g.invoke(new Command({ resume: 'b' }), c)])).map((x) => x.status + ' ' + (x as any).reason?.code))
const g2 = new StateGraph(S).addNode('ask', async () => { await wait(); return { list: ['v'] } }).addNode('two', async () => { await wait(); return { list: ['x'] } }).addEdge(START, 'ask').addEdge('ask', 'two').compile({ checkpointer: new HoldfastSaver(hf) as never })
console.log((await Promise.allSettled([1,2,3].map((i) => g2.invoke({ list: ['' + i] }, { configurable: { thread_id: 'u' } })))).map((x) => x.status + ' ' + (x as any).reason?.code))
const s = await g2.getState({ configurable: { thread_id: 'u' } }); console.log(s.values.list)
await hf.close()
}
