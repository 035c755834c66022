import { AIMessage, HumanMessage } from '@langchain/core/messages'
import { DeltaChannel, MemorySaver, messagesDeltaReducer, Overwrite, START, StateGraph } from '@langchain/langgraph'
import type { BaseCheckpointSaver } from '@langchain/langgraph-checkpoint'
import { HoldfastSaver } from 'holdfast/langgraph'
import { expect, it } from 'vitest'
import { onEveryStore } from '../behaviour/stores.ts'
import { contentsOf, historyOf, thread } from './defects.ts'

interface Values {
  readonly list: readonly string[]
  readonly messages: readonly AIMessage[]
}

function append(list: readonly string[] | undefined, writes: readonly (string | readonly string[])[]): string[] {
  return [...(list ?? []), ...writes.flat()]
}

/** Channels that LangGraph rebuilds from the writes of ancestors, with parallel nodes and an overwrite. */
function graphOver(saver: BaseCheckpointSaver) {
  const channels = {
    list: new DeltaChannel(append as never, { snapshotFrequency: 4 }),
    messages: new DeltaChannel(messagesDeltaReducer as never, { snapshotFrequency: 7 }),
  }
  const reply = ({ list, messages }: Values) => ({
    messages: [new AIMessage({ content: `reply ${messages.length}`, id: `a${messages.length}` })],
    list: [`a${list.length}`],
  })
  return new StateGraph({ channels } as never)
    .addNode('a', reply as never)
    .addNode('b', (() => ({ list: ['b'] })) as never)
    .addNode('c', (({ list }: Values) => ({ list: list.length === 12 ? new Overwrite(['anew']) : ['c'] })) as never)
    .addEdge(START, 'a' as never)
    .addEdge('a' as never, 'b' as never)
    .addEdge('a' as never, 'c' as never)
    .compile({ checkpointer: saver }) as unknown as {
    invoke(input: object | null, config: object): Promise<Values>
    getState(config: object): Promise<{ readonly values: Values }>
    getStateHistory(config: object): AsyncIterable<{ readonly config: object; readonly values: Partial<Values> }>
    updateState(config: object, values: object, asNode: string): Promise<object>
  }
}

function told({ list, messages }: Partial<Values>): unknown {
  return [list, contentsOf((messages ?? []) as never)]
}

async function play(open: () => BaseCheckpointSaver, durability: string): Promise<unknown[]> {
  const graph = graphOver(open())
  const config = { ...thread(durability), durability }
  const seen: unknown[] = []
  for (let turn = 0; turn < 9; turn++) {
    const messages = [new HumanMessage({ content: `turn ${turn}`, id: `h${turn}` })]
    seen.push(told(await graph.invoke({ messages, list: [`in ${turn}`] }, config)))
    if (turn !== 5) continue
    const history = await historyOf(graph, config)
    const edited = await graph.updateState(history[Math.min(4, history.length - 1)]?.config ?? {}, { list: ['edit'] }, 'b')
    seen.push(told((await graph.getState(edited)).values))
  }
  return [...seen, (await historyOf(graphOver(open()), config)).map(({ values }) => told(values))]
}

onEveryStore('delta channels', ({ open }) => {
  it.each(['sync', 'async', 'exit'])(
    'are rebuilt as with MemorySaver in durability %s, along branches and after pruning',
    async (durability) => {
      const hf = await open({ worker: false })
      const memory = new MemorySaver()
      const found = await play(() => new HoldfastSaver(hf), durability)
      expect(found).toEqual(await play(() => memory, durability))
      await new HoldfastSaver(hf).prune([durability])
      const { values } = await graphOver(new HoldfastSaver(hf)).getState(thread(durability))
      expect(told(values)).toEqual((found.at(-1) as unknown[])[0])
    },
  )
})
