import { AIMessage, HumanMessage, RemoveMessage } from '@langchain/core/messages'
import { Annotation, Command, interrupt, MemorySaver, MessagesAnnotation, Send, START, StateGraph } from '@langchain/langgraph'
import type { BaseCheckpointSaver } from '@langchain/langgraph-checkpoint'
import { HoldfastSaver } from 'holdfast/langgraph'
import { expect, it } from 'vitest'
import { codeOfRejection } from '../behaviour/runs.ts'
import { onEveryStore } from '../behaviour/stores.ts'
import { checkpointOf, contentsOf, counting, historyOf, thread } from './defects.ts'

/** Messages with ids of their own: two savers can be compared. */
let ids = 0
const human = (content: string) => new HumanMessage({ content, id: `h${content}` })
const ai = (content: string) => new AIMessage({ content, id: `a${content}` })

/** An agent with a sub-agent that asks a person. */
function agent(saver: BaseCheckpointSaver) {
  const reviewer = new StateGraph(MessagesAnnotation)
    .addNode('draft', ({ messages }) => ({ messages: [ai(`draft of ${messages.length}`)] }))
    .addNode('review', ({ messages }) => {
      const verdict = interrupt({ question: 'good?', about: messages.at(-1)?.content })
      return { messages: [human(`verdict: ${verdict}`)] }
    })
    .addEdge(START, 'draft')
    .addEdge('draft', 'review')
    .compile()
  return new StateGraph(MessagesAnnotation)
    .addNode('plan', ({ messages }) => ({ messages: [ai(`plan of ${messages.length}`)] }))
    .addNode('reviewer', reviewer)
    .addNode('send', ({ messages }) => ({ messages: [ai(`sent after ${messages.length}`)] }))
    .addEdge(START, 'plan')
    .addEdge('plan', 'reviewer')
    .addEdge('reviewer', 'send')
    .compile({ checkpointer: saver })
}

/** What a history says, without what differs from run to run. */
async function told(graph: ReturnType<typeof agent>, config: object): Promise<unknown[]> {
  return (await historyOf(graph, config)).map(({ values, next, metadata, tasks }) => ({
    contents: contentsOf(values.messages ?? []),
    next,
    source: metadata?.source,
    step: metadata?.step,
    tasks: tasks.map(({ name, interrupts, result }) => [
      name,
      interrupts.map(({ value }) => value),
      result === undefined ? null : Object.keys(result as object),
    ]),
  }))
}

onEveryStore('a graph', ({ open }) => {
  const newSaver = async () => new HoldfastSaver(await open({ worker: false }))

  it('with messages, a sub-graph and an interrupt is interrupted, resumed and remembered as with MemorySaver', async () => {
    const savers = [new MemorySaver(), await newSaver()]
    const histories = []
    for (const saver of savers) {
      const config = thread('t')
      const first = await agent(saver).invoke({ messages: [human('hi')] }, config)
      expect(contentsOf(first.messages)).toEqual(['hi', 'plan of 1'])
      const state = await agent(saver).getState(config, { subgraphs: true })
      expect(state.tasks[0]?.interrupts[0]?.value).toEqual({ question: 'good?', about: 'draft of 2' })
      const second = await agent(saver).invoke(new Command({ resume: 'yes' }), config)
      expect(contentsOf(second.messages)).toEqual(['hi', 'plan of 1', 'draft of 2', 'verdict: yes', 'sent after 4'])
      await agent(saver).invoke({ messages: [human('again')] }, config)
      await agent(saver).invoke(new Command({ resume: 'no' }), config)
      histories.push(await told(agent(saver), config))
    }
    expect(histories[1]).toEqual(histories[0])
  })

  it('goes on in another process where it was interrupted', async () => {
    const config = thread('t')
    await agent((await newSaver()) as never).invoke({ messages: [human('hi')] }, config)
    const result = await agent((await newSaver()) as never).invoke(new Command({ resume: 'yes' }), config)
    expect(contentsOf(result.messages)).toEqual(['hi', 'plan of 1', 'draft of 2', 'verdict: yes', 'sent after 4'])
  })

  it('is replayed from any checkpoint, also through its sub-graph, and the thread keeps both branches', async () => {
    const graph = agent((await newSaver()) as never)
    const config = thread('t')
    await graph.invoke({ messages: [human('hi')] }, config)
    await graph.invoke(new Command({ resume: 'yes' }), config)
    const before = await told(graph, config)
    const old = (await historyOf(graph, config)).find(({ next }) => next[0] === 'reviewer')
    await graph.invoke(null, old?.config)
    expect((await graph.getState(config)).next).toEqual(['reviewer'])
    const result = await graph.invoke(new Command({ resume: 'maybe' }), config)
    expect(contentsOf(result.messages)).toEqual(['hi', 'plan of 1', 'draft of 2', 'verdict: maybe', 'sent after 4'])
    const after = await told(graph, config)
    expect(after.slice(-before.length)).toEqual(before)
  })

  it('that is edited in the past keeps the edit and the original, and so does a copy of a checkpoint', async () => {
    const graph = counting().compile({ checkpointer: (await newSaver()) as never })
    const config = thread('t')
    await graph.invoke({ list: ['in'] }, config)
    const history = await historyOf(graph, config)
    const old = history.find(({ values }) => values.list?.length === 2)
    const edited = await graph.updateState(old?.config ?? {}, { list: ['edit'] }, 'a')
    expect((await graph.invoke(null, edited)).list).toEqual(['in', 'a', 'edit', 'b'])
    const copied = await graph.updateState(old?.config ?? {}, null, '__copy__')
    expect((await graph.getState(copied)).values.list).toEqual(['in', 'a'])
    expect((await graph.invoke(null, copied)).list).toEqual(['in', 'a', 'b'])
    for (const { config: at, values } of history) expect((await graph.getState(at)).values).toEqual(values)
    expect((await graph.getState(config)).values.list).toEqual(['in', 'a', 'b'])
  })

  it('of which one of the parallel nodes fails runs that one again and no other', async () => {
    const ran: string[] = []
    let isBroken = true
    const graph = new StateGraph(
      Annotation.Root({ list: Annotation<string[]>({ reducer: (a, b) => [...a, ...b], default: () => [] }) }),
    )
      .addNode('good', () => {
        ran.push('good')
        return { list: ['good'] }
      })
      .addNode('bad', async () => {
        ran.push('bad')
        await new Promise((resolve) => setTimeout(resolve, 20))
        if (isBroken) throw new Error('broken')
        return { list: ['bad'] }
      })
      .addEdge(START, 'good')
      .addEdge(START, 'bad')
      .compile({ checkpointer: (await newSaver()) as never })
    await expect(graph.invoke({ list: [] }, thread('t'))).rejects.toThrow('broken')
    isBroken = false
    expect((await graph.invoke(null, thread('t'))).list.sort()).toEqual(['bad', 'good'])
    expect(ran.sort()).toEqual(['bad', 'bad', 'good'])
  })

  it('sends work to nodes, removes messages and keeps a list short, in every durability', async () => {
    for (const durability of ['sync', 'async', 'exit'] as const) {
      const saver = await newSaver()
      const graph = new StateGraph(
        Annotation.Root({
          ...MessagesAnnotation.spec,
          last: Annotation<number[]>({ reducer: (a, b) => [...a, ...b].slice(-3), default: () => [] }),
        }),
      )
        .addNode('work', ({ n }: { n: number }) => ({ last: [n] }))
        .addNode('trim', ({ messages }) => ({
          messages: messages.slice(0, -2).map(({ id }) => new RemoveMessage({ id: id as string })),
        }))
        .addConditionalEdges(START, () => [new Send('work', { n: 1 }), new Send('work', { n: 2 })])
        .addEdge('work', 'trim')
        .compile({ checkpointer: saver })
      const config = { ...thread('t'), durability }
      for (let turn = 0; turn < 4; turn++)
        await graph.invoke({ messages: [human(`${durability} ${turn}`)], last: [turn * 10] }, config)
      const { values } = await graph.getState(thread('t'))
      expect(contentsOf(values.messages)).toEqual([`${durability} 2`, `${durability} 3`])
      expect(values.last).toEqual([30, 1, 2])
      expect((await historyOf(graph, thread('t'))).length).toBeGreaterThan(durability === 'exit' ? 3 : 11)
    }
  })

  it('is read by another process at any of its checkpoints', async () => {
    const saver = await newSaver()
    const graph = new StateGraph(MessagesAnnotation)
      .addNode('reply', ({ messages }) => ({ messages: [ai(`reply ${messages.length}`)] }))
      .addEdge(START, 'reply')
      .compile({ checkpointer: saver })
    for (let turn = 0; turn < 30; turn++) await graph.invoke({ messages: [human(`turn ${turn} ${++ids}`)] }, thread('t'))
    const history = await historyOf(graph, thread('t'))
    const fresh = await newSaver()
    for (const { config, values } of history.filter((_, index) => index % 7 === 0)) {
      const tuple = await fresh.getTuple(config)
      expect(contentsOf((tuple?.checkpoint.channel_values['messages'] ?? []) as never)).toEqual(contentsOf(values.messages ?? []))
    }
    expect(history[0]?.values.messages.length).toBe(60)
  })

  it('that two processes continue from one checkpoint has both branches, and one that both continue at its end has one', async () => {
    const [one, two] = [await newSaver(), await newSaver()]
    const list = Array.from({ length: 20 }, (_, index) => `a longer item ${index}`)
    const put = (saver: HoldfastSaver, parent: object, value: unknown) => {
      const checkpoint = checkpointOf({ list: value })
      const versions = { list: saver.getNextVersion(undefined) }
      return saver.put(parent, { ...checkpoint, channel_versions: versions }, { source: 'loop', step: 0, parents: {} }, versions)
    }
    const root = await put(one, thread('t'), list)
    for (const saver of [one, two]) await saver.getTuple(root)
    const branches = await Promise.all([
      put(one, root, [...list, 'one']),
      put(two, root, [...list, 'two']),
      put(one, root, list.slice(5)),
    ])
    const read = await newSaver()
    const lists = await Promise.all(branches.map(async (at) => (await read.getTuple(at))?.checkpoint.channel_values['list']))
    expect(lists).toEqual([[...list, 'one'], [...list, 'two'], list.slice(5)])

    const [first, second] = [
      { ...thread('t'), metadata: { run: 1 } },
      { ...thread('t'), metadata: { run: 2 } },
    ]
    const heads = [await one.getTuple(first), await two.getTuple(second)]
    const under = (index: number, config: object) => ({ ...config, configurable: heads[index]?.config.configurable })
    await put(one, under(0, first), ['x'])
    expect(await codeOfRejection(put(two, under(1, second), ['y']))).toBe('conflict')
    expect((await read.getTuple(thread('t')))?.checkpoint.channel_values['list']).toEqual(['x'])
  })

  it('keeps what a node changed in place, removed in the middle and made longer than a chain', async () => {
    const [saver, read] = [await newSaver(), await newSaver()]
    let config: object = thread('t')
    let list: { n: number; deep: { tags: string[] } }[] = []
    for (let step = 0; step < 40; step++) {
      list = [...list, { n: step, deep: { tags: [`tag ${step}`] } }]
      if (step % 5 === 4) list[step % list.length]?.deep.tags.push('changed in place')
      if (step % 7 === 6) list = list.filter((_, index) => index !== 3)
      if (step % 13 === 12) list = list.slice(-4)
      const expected = structuredClone(list)
      const checkpoint = checkpointOf({ list })
      const versions = { list: step + 1 }
      config = await saver.put(
        config,
        { ...checkpoint, channel_versions: versions },
        { source: 'loop', step, parents: {} },
        versions,
      )
      expect((await read.getTuple(config))?.checkpoint.channel_values['list']).toEqual(expected)
      expect((await saver.getTuple(config))?.checkpoint.channel_values['list']).toEqual(expected)
    }
  })
})
