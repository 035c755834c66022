import { AIMessage, HumanMessage } from '@langchain/core/messages'
import { Annotation, MessagesAnnotation, START, StateGraph } from '@langchain/langgraph'
import { HoldfastSaver } from 'holdfast/langgraph'
import { expect, it } from 'vitest'
import { codeOfRejection } from '../behaviour/runs.ts'
import { onEveryStore } from '../behaviour/stores.ts'
import { checkpointOf, contentsOf, historyOf, thread } from './defects.ts'

onEveryStore('threads of LangGraph', ({ open }) => {
  async function talked(turns: number) {
    const hf = await open({ worker: false })
    const saver = new HoldfastSaver(hf)
    const graph = new StateGraph(MessagesAnnotation)
      .addNode('reply', ({ messages }) => ({ messages: [new AIMessage(`reply ${messages.length}`)] }))
      .addEdge(START, 'reply')
      .compile({ checkpointer: saver })
    for (let turn = 0; turn < turns; turn++) await graph.invoke({ messages: [new HumanMessage(`turn ${turn}`)] }, thread('t'))
    return { hf, saver, graph }
  }

  it('are copied as they are, and go on apart', async () => {
    const { saver, graph } = await talked(3)
    await saver.copyThread('t', 'copy')
    const said = (id: string) => graph.getState(thread(id)).then(({ values }) => contentsOf(values.messages))
    expect(await said('copy')).toEqual(await said('t'))
    expect((await historyOf(graph, thread('copy'))).length).toBe((await historyOf(graph, thread('t'))).length)
    await graph.invoke({ messages: [new HumanMessage('only here')] }, thread('copy'))
    expect((await said('t')).length).toBe(6)
    expect(await codeOfRejection(saver.copyThread('t', 'copy'))).toBe('conflict')
    await saver.deleteThread('t')
    expect((await said('copy')).length).toBe(8)
  })

  it('are pruned to their latest checkpoint, from which they go on', async () => {
    const { hf, saver, graph } = await talked(4)
    await saver.prune(['t', 'nothing'])
    expect((await historyOf(graph, thread('t'))).length).toBe(1)
    await graph.invoke({ messages: [new HumanMessage('more')] }, thread('t'))
    const again = new HoldfastSaver(hf)
    const tuple = await again.getTuple(thread('t'))
    expect(contentsOf(tuple?.checkpoint.channel_values['messages'] as never).length).toBe(10)
    await saver.prune(['t'], { strategy: 'delete' })
    expect(await again.getTuple(thread('t'))).toBeUndefined()
    expect(await codeOfRejection(saver.prune(['t'], { strategy: 'old' as never }))).toBe('invalid_input')
  })

  it('lose the checkpoints of runs that are named, and the latest that is left is the latest', async () => {
    const saver = new HoldfastSaver(await open({ worker: false }))
    let config: object = thread('t')
    for (const [step, run_id] of ['a', 'a', 'b', 'b'].entries()) {
      const checkpoint = checkpointOf({ step })
      config = await saver.put(
        config,
        checkpoint,
        { source: 'loop', step, parents: {}, run_id } as never,
        checkpoint.channel_versions,
      )
      await saver.putWrites(config, [['x', step]], 'task')
    }
    await saver.deleteForRuns(['b', 'other'])
    expect((await saver.getTuple(thread('t')))?.metadata?.step).toBe(1)
    await saver.deleteForRuns(['a'])
    expect(await saver.getTuple(thread('t'))).toBeUndefined()
  })

  it('keep long items once, and keep them when the writes that have them are pruned or deleted, and in a copy', async () => {
    const hf = await open({ worker: false })
    let run_id = ''
    class NamingRuns extends HoldfastSaver {
      override put(...[config, checkpoint, metadata, versions]: Parameters<HoldfastSaver['put']>) {
        return super.put(config, checkpoint, { ...metadata, run_id } as typeof metadata, versions)
      }
    }
    const saver = new NamingRuns(hf)
    const long = (name: string) => `${name} ${'long '.repeat(100)}`
    const reducer = (a: unknown[], b: unknown) => (Array.isArray(b) ? [...a, ...b] : [...a, b])
    const State = Annotation.Root({ list: Annotation<unknown[], unknown>({ reducer, default: () => [] }) })
    const graph = new StateGraph(State)
      .addNode('one', ({ list }) => ({ list: { one: long(`${list.length}`) } }))
      .addNode('same', () => ({ list: [long('same'), long('same')] }))
      .addNode('nested', () => ({ list: [[long('nested')], []] }))
      .addEdge(START, 'one')
      .addEdge(START, 'same')
      .addEdge('one', 'nested')
      .compile({ checkpointer: saver })
    for (run_id of ['a', 'b', 'a']) await graph.invoke({ list: [long(run_id)] }, thread('t'))
    const records = async (collection: string) =>
      (await hf.records('langgraph').read({ collection, limit: 1_000 })).map(({ payload }) => String(payload))
    const kept = [...(await records('channels')), ...(await records('writes'))].join('').split('long '.repeat(100)).length - 1
    expect(kept).toBeLessThan(2 * 3 * 5)
    const listOf = async (id: string) => (await new HoldfastSaver(hf).getTuple(thread(id)))?.checkpoint.channel_values['list']
    const list = (await listOf('t')) as unknown[]
    expect(list).toHaveLength(3 * 6)
    await saver.deleteForRuns(['a'])
    expect(await listOf('t')).toEqual(list.slice(0, 12))
    await saver.copyThread('t', 'copy')
    await saver.prune(['copy'])
    await saver.deleteThread('t')
    expect(await listOf('copy')).toEqual(list.slice(0, 12))
    await saver.prune(['copy'])
    expect(await listOf('copy')).toEqual(list.slice(0, 12))
    await saver.deleteThread('copy')
    for (const collection of ['channels', 'writes', 'checkpoints']) expect(await records(collection)).toEqual([])
  })

  it('have an owner: another owner sees nothing of them', async () => {
    const { hf, saver } = await talked(1)
    expect(await new HoldfastSaver(hf.as('bob')).getTuple(thread('t'))).toBeUndefined()
    await new HoldfastSaver(hf.as('bob')).deleteThread('t')
    expect(await saver.getTuple(thread('t'))).toBeDefined()
    expect(JSON.stringify({ saver })).toBe('{"saver":"[HoldfastSaver]"}')
  })

  it('are refused with a code where an id is missing or is no text', async () => {
    const saver = new HoldfastSaver(await open({ worker: false }))
    const checkpoint = checkpointOf({})
    const put = (configurable?: object) =>
      saver.put({ configurable } as never, checkpoint, { source: 'loop', step: 0, parents: {} }, {})
    expect(await codeOfRejection(put())).toBe('invalid_input')
    expect(await codeOfRejection(put({ thread_id: 1 }))).toBe('invalid_input')
    expect(await codeOfRejection(saver.putWrites(thread('t'), [['a', 1]], 'task'))).toBe('invalid_input')
    const unstorable = { ...checkpointOf({ fn: () => 1 }) }
    expect(await codeOfRejection(saver.put(thread('t'), unstorable, { source: 'loop', step: 0, parents: {} }, { fn: 1 }))).toBe(
      'value_not_storable',
    )
    expect(await saver.getTuple(thread('t'))).toBeUndefined()
  })
})
