import { randomBytes } from 'node:crypto'
import { AIMessage, HumanMessage } from '@langchain/core/messages'
import { Annotation, Command, interrupt, MessagesAnnotation, START, StateGraph } from '@langchain/langgraph'
import { type BaseCheckpointSaver, MemorySaver } from '@langchain/langgraph-checkpoint'
import { PostgresSaver } from '@langchain/langgraph-checkpoint-postgres'
import { SqliteSaver } from '@langchain/langgraph-checkpoint-sqlite'
import { HoldfastSaver, importLangGraph } from 'holdfast/langgraph'
import pg from 'pg'
import { afterAll, expect, it } from 'vitest'
import { codeOfRejection } from '../behaviour/runs.ts'
import { onLocalStores } from '../behaviour/stores.ts'
import { sharedPostgres } from '../servers/postgres.ts'
import { checkpointOf, historyOf, thread } from './defects.ts'

const pools: pg.Pool[] = []
afterAll(async () => {
  for (const pool of pools) await pool.end()
})

const sources: Readonly<Record<string, () => Promise<BaseCheckpointSaver>>> = {
  MemorySaver: async () => new MemorySaver(),
  SqliteSaver: async () => SqliteSaver.fromConnString(':memory:'),
  PostgresSaver: async () => {
    const { url } = await sharedPostgres()
    const pool = new pg.Pool({ connectionString: url })
    pools.push(pool)
    const saver = new PostgresSaver(pool, undefined, { schema: `import_${randomBytes(4).toString('hex')}` })
    await saver.setup()
    return saver
  },
}

const State = Annotation.Root({
  ...MessagesAnnotation.spec,
  list: Annotation<string[]>({ reducer: (a, b) => [...a, ...b], default: () => [] }),
})

/** Talks, and asks in a sub-graph. */
function graphOver(checkpointer: BaseCheckpointSaver) {
  const inner = new StateGraph(State)
    .addNode('ask', () => ({ list: [String(interrupt('go on?'))] }))
    .addEdge(START, 'ask')
    .compile()
  return new StateGraph(State)
    .addNode('reply', ({ messages }) => ({ messages: [new AIMessage(`reply ${messages.length}`)], list: ['long '.repeat(100)] }))
    .addNode('inner', inner)
    .addEdge(START, 'reply')
    .addEdge('reply', 'inner')
    .compile({ checkpointer })
}

onLocalStores('threads of another checkpointer', ({ open }) => {
  for (const [name, create] of Object.entries(sources)) {
    it(`${name}: are imported with their history, also when it was broken off, and continue here`, async () => {
      const [from, hf] = [await create(), await open({ worker: false })]
      const old = graphOver(from)
      const ids = ['a', "über/%*:'"]
      for (const id of ids) {
        await old.invoke({ messages: [new HumanMessage('hello')] }, thread(id))
        await old.invoke(new Command({ resume: 'yes' }), thread(id))
        await old.invoke({ messages: [new HumanMessage('again')] }, thread(id))
      }
      const before = await Promise.all(ids.map((id) => historyOf(old, thread(id))))
      const broken = new Error('broken off')
      let left = 10
      const breaking = new Proxy(from, {
        get: (target, key) => {
          const value: unknown = Reflect.get(target, key, target)
          if (key !== 'getTuple') return typeof value === 'function' ? value.bind(target) : value
          return (...args: Parameters<typeof from.getTuple>) => (left-- > 0 ? target.getTuple(...args) : Promise.reject(broken))
        },
      })
      const first = await importLangGraph(hf, breaking)
      expect(first.failed[0]?.error).toBe(broken)
      const progress: string[] = []
      const report = await importLangGraph(hf, from, {
        onProgress: ({ threadId, ns }) => progress.push(`${threadId} ${ns === ''}`),
      })
      expect(report.failed).toEqual([])
      expect(progress.length).toBe(report.namespaces)
      expect(report.checkpoints).toBeGreaterThan(2 * 10)
      const here = graphOver(new HoldfastSaver(hf))
      expect(await Promise.all(ids.map((id) => historyOf(here, thread(id))))).toEqual(before)
      for (const id of ids) {
        await here.invoke(new Command({ resume: 'no' }), thread(id))
        const { values } = await here.getState(thread(id))
        await old.invoke(new Command({ resume: 'no' }), thread(id))
        expect(values.list).toEqual((await old.getState(thread(id))).values.list)
      }
    })
  }

  it('are imported as far as they can be: what is in the way is named, and what went on here stays', async () => {
    class StrangeSaver extends MemorySaver {
      override async getTuple(...args: Parameters<MemorySaver['getTuple']>) {
        const tuple = await super.getTuple(...args)
        if (tuple?.config.configurable?.['thread_id'] === 'strange') tuple.checkpoint.channel_values['strange'] = new WeakMap()
        return tuple
      }
    }
    const [from, hf] = [new StrangeSaver(), await open({ worker: false })]
    const saver = new HoldfastSaver(hf)
    for (const id of ['good', 'taken']) await graphOver(from).invoke({ messages: [] }, thread(id))
    await from.put(thread('strange'), checkpointOf({ strange: 1 }), { source: 'loop', step: 0, parents: {} })
    await saver.put(thread('taken'), checkpointOf({ other: 1 }), { source: 'loop', step: 0, parents: {} }, { other: 1 })
    const { failed } = await importLangGraph(hf, from)
    expect(failed.map(({ threadId, error }) => [threadId, (error as { code?: string }).code])).toEqual([
      ['taken', 'conflict'],
      ['strange', 'value_not_storable'],
    ])
    expect((await saver.getTuple(thread('taken')))?.checkpoint.channel_values).toEqual({ other: 1 })
    const continued = graphOver(saver)
    await continued.invoke(new Command({ resume: 'here' }), thread('good'))
    const after = await historyOf(continued, thread('good'))
    expect((await importLangGraph(hf, from)).failed.length).toBe(2)
    expect(await historyOf(continued, thread('good'))).toEqual(after)
    expect(await codeOfRejection(importLangGraph(hf, 'old.db' as never))).toBe('invalid_input')
  })
})
