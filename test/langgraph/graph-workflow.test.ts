import { Annotation, interrupt, START, StateGraph } from '@langchain/langgraph'
import type { Holdfast, RunHandle } from 'holdfast'
import { graphWorkflow, HoldfastSaver } from 'holdfast/langgraph'
import { expect, it, vi } from 'vitest'
import { becomes, gate } from '../behaviour/runs.ts'
import { onEveryStore } from '../behaviour/stores.ts'
import { thread } from './defects.ts'

const State = Annotation.Root({ list: Annotation<string[]>({ reducer: (a, b) => [...a, ...b], default: () => [] }) })

onEveryStore('a graph as a workflow', ({ open, openMortal, advance }) => {
  /** a, then one that asks twice, then z; what runs is noted. */
  function flowOver(hf: Holdfast, ran: string[], hold: (name: string) => Promise<void> = async () => {}) {
    const node = (name: string) => async () => {
      ran.push(name)
      await hold(name)
      return { list: [name] }
    }
    const graph = new StateGraph(State)
      .addNode('a', node('a'))
      .addNode('ask', () => ({ list: [`${interrupt('first?')} ${interrupt('second?')}`] }))
      .addNode('z', node('z'))
      .addEdge(START, 'a')
      .addEdge('a', 'ask')
      .addEdge('ask', 'z')
      .compile({ checkpointer: new HoldfastSaver(hf) })
    return { graph, flow: graphWorkflow<{ list: string[] }>(graph, { name: 'flow', retry: { minMs: 1 } }) }
  }

  async function answer(hf: Holdfast, run: RunHandle<unknown>, value: string): Promise<unknown> {
    const item = await vi.waitUntil(async () =>
      (await hf.inbox()).find(({ kind, runId }) => kind === 'question' && runId === run.id),
    )
    if (item.kind !== 'question') throw new Error('no question')
    await hf.answer(run.id, item.name, value, { id: item.id })
    return item.question
  }

  it('asks in the inbox and goes on with the answers', async () => {
    const hf = await open()
    const ran: string[] = []
    const { graph, flow } = flowOver(hf, ran)
    const run = await hf.start(flow, { list: ['in'] }, { threadId: 't' })
    expect(await answer(hf, run, 'yes')).toEqual({ node: 'ask', value: 'first?' })
    expect(await answer(hf, run, 'no')).toEqual({ node: 'ask', value: 'second?' })
    expect(await run.result()).toEqual({ threadId: 't' })
    expect((await graph.getState(thread('t'))).values.list).toEqual(['in', 'a', 'yes no', 'z'])
    const again = await hf.start(flow, { list: ['more'] }, { threadId: 't' })
    await answer(hf, again, '1')
    await answer(hf, again, '2')
    await again.result()
    expect((await graph.getState(thread('t'))).values.list).toEqual(['in', 'a', 'yes no', 'z', 'more', 'a', '1 2', 'z'])
    expect(ran).toEqual(['a', 'z', 'a', 'z'])
  })

  it('is continued by another worker where its process died, and runs no node again that was done', async () => {
    const ran: string[] = []
    const reached = gate()
    const first = await openMortal()
    const { flow } = flowOver(first.hf, ran, async (name) => {
      if (name !== 'z') return
      reached.open()
      await new Promise(() => {})
    })
    const started = await first.hf.start(flow, { list: ['in'] }, { threadId: 't' })
    await answer(first.hf, started, 'yes')
    await answer(first.hf, started, 'no')
    await reached.promise
    await first.die()
    advance(11_000)
    const hf = await open()
    const second = flowOver(hf, ran)
    hf.register(second.flow)
    const run = await hf.runs.get(started.id)
    expect(await run.result()).toEqual({ threadId: 't' })
    expect((await second.graph.getState(thread('t'))).values.list).toEqual(['in', 'a', 'yes no', 'z'])
    expect(ran).toEqual(['a', 'z', 'z'])
  })

  it('is tried again from the node that failed, and is cancelled in the middle', async () => {
    const hf = await open()
    const ran: string[] = []
    let failures = 1
    const graph = new StateGraph(State)
      .addNode('good', () => {
        ran.push('good')
        return { list: ['good'] }
      })
      .addNode('bad', async (_, { signal }) => {
        ran.push('bad')
        if (failures-- > 0) throw new Error('broken')
        if (failures < -1) await new Promise((_, reject) => signal?.addEventListener('abort', () => reject(new Error('aborted'))))
        return { list: ['bad'] }
      })
      .addEdge(START, 'good')
      .addEdge('good', 'bad')
      .compile({ checkpointer: new HoldfastSaver(hf) })
    const flow = graphWorkflow<{ list: string[] }>(graph, { name: 'failing', retry: { minMs: 1 } })
    await hf.run(flow, { list: [] }, { threadId: 't' })
    expect((await graph.getState(thread('t'))).values.list).toEqual(['good', 'bad'])
    expect(ran).toEqual(['good', 'bad', 'bad'])
    const run = await hf.start(flow, { list: [] }, { threadId: 'u' })
    await vi.waitUntil(() => ran.length === 5)
    await run.cancel()
    await becomes(run, 'cancelled')
  })

  it('needs a HoldfastSaver', async () => {
    const graph = new StateGraph(State)
      .addNode('a', () => ({}))
      .addEdge(START, 'a')
      .compile()
    expect(() => graphWorkflow(graph, { name: 'x' })).toThrow(/HoldfastSaver/)
  })
})
