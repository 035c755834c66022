import { isDeepStrictEqual } from 'node:util'
import { AIMessage, type BaseMessage, HumanMessage, ToolMessage } from '@langchain/core/messages'
import { Annotation, Command, interrupt, MessagesAnnotation, START, StateGraph } from '@langchain/langgraph'
import type { BaseCheckpointSaver, Checkpoint } from '@langchain/langgraph-checkpoint'
import { emptyCheckpoint, uuid6 } from '@langchain/langgraph-checkpoint'
import { expect } from 'vitest'

/** What goes wrong with savers of others, each as what must be right. Throws where it is not. */
export interface Defect {
  readonly sentence: string
  readonly isRight: (saver: BaseCheckpointSaver) => Promise<void>
  /** Official savers on which it is wrong. Those that are not named are right, or can't be installed here. */
  readonly wrongOn: readonly ('sqlite' | 'postgres')[]
}

const values: Readonly<Record<string, unknown>> = {
  bigint: 12345678901234567890n,
  date: new Date('2026-11-05T08:00:00.000Z'),
  nan: Number.NaN,
  minusZero: -0,
  bytes: new Uint8Array([0, 255, 128]),
  buffer: Buffer.from([1, 0, 2]),
  map: new Map<unknown, unknown>([
    ['a', new Date(0)],
    [{ b: 1 }, new Set([1n])],
  ]),
  set: new Set(['x', undefined]),
  undefined: { there: undefined },
  regexp: /a.b/giu,
  proto: JSON.parse('{"__proto__":{"polluted":true},"constructor":1}') as unknown,
}

/** Data of users that looks like what savers write. */
const lookalikes: Readonly<Record<string, unknown>> = {
  lc1: { lc: 1, type: 'constructor', id: ['langchain_core', 'messages', 'HumanMessage'], kwargs: { content: 'not a message' } },
  lc2: { lc: 2, type: 'undefined' },
  constructor: { lc: 2, type: 'constructor', id: ['Set'], args: [[1]] },
  secret: { lc: 1, type: 'secret', id: ['OPENAI_API_KEY'] },
  snapshot: { lc: 2, type: 'delta_snapshot', value: 1 },
  hf: { $hf: ['undefined'] },
  ours: { $lc: ['HumanMessage', { content: 'not a message' }] },
  strange: { $lc: 1, more: { $lc: [] } },
}

export const defects: readonly Defect[] = [
  {
    sentence: 'an edit of an old checkpoint is a branch: it has the edit, and the original is as it was',
    wrongOn: ['postgres'],
    isRight: async (saver) => {
      const graph = counting().compile({ checkpointer: saver })
      const config = thread('forked')
      await graph.invoke({ list: ['in'] }, config)
      const history = await historyOf(graph, config)
      const old = history.find(({ values: { list } }) => list.length === 2)
      const before = history.map(({ values: { list } }) => list)
      const edited = await graph.updateState((old as (typeof history)[number]).config, { list: ['edit'] }, 'a')
      await graph.invoke(null, edited)
      expect((await graph.getState(config)).values.list).toEqual(['in', 'a', 'edit', 'b'])
      for (const [index, { config: at }] of history.entries())
        expect((await graph.getState(at)).values.list).toEqual(before[index])
    },
  },
  {
    sentence: 'of two runs on one thread none loses the messages of the other without a word',
    wrongOn: ['sqlite', 'postgres'],
    isRight: async (saver) => {
      const meet = meeting(2)
      const graph = new StateGraph(MessagesAnnotation)
        .addNode('reply', async ({ messages }) => {
          await meet()
          return { messages: [new AIMessage(`re: ${messages.at(-1)?.content}`)] }
        })
        .addEdge(START, 'reply')
        .compile({ checkpointer: saver })
      const config = thread('shared')
      const texts = ['one', 'two']
      const outcomes = await Promise.allSettled(texts.map((text) => graph.invoke({ messages: [new HumanMessage(text)] }, config)))
      const kept = contentsOf((await graph.getState(config)).values.messages)
      for (const [index, outcome] of outcomes.entries()) {
        if (outcome.status === 'fulfilled') expect(kept).toContain(`re: ${texts[index]}`)
        else expect(outcome.reason).toMatchObject({ code: 'conflict' })
      }
    },
  },
  {
    sentence: 'a second answer to an interrupt is refused and writes nothing',
    wrongOn: ['sqlite', 'postgres'],
    isRight: async (saver) => {
      const graph = asking().compile({ checkpointer: saver })
      const config = thread('asked twice')
      await graph.invoke({ list: [] }, config)
      const outcomes = await Promise.allSettled(['yes', 'no'].map((resume) => graph.invoke(new Command({ resume }), config)))
      expect(outcomes.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected'])
      expect(outcomes.find((one) => one.status === 'rejected')).toMatchObject({ reason: { code: 'conflict' } })
      const answers = (await historyOf(graph, config)).flatMap(({ values: { list } }) => list ?? [])
      expect(new Set(answers).size).toBe(1)
    },
  },
  {
    sentence: 'what a run writes after its thread was deleted does not bring the thread back',
    wrongOn: ['sqlite', 'postgres'],
    isRight: async (saver) => {
      const [begun, go] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
      const graph = new StateGraph(MessagesAnnotation)
        .addNode('slow', async () => {
          begun.resolve()
          await go.promise
          return { messages: [new AIMessage('late')] }
        })
        .addEdge(START, 'slow')
        .compile({ checkpointer: saver })
      const config = thread('deleted')
      const run = graph.invoke({ messages: [new HumanMessage('hi')] }, config).catch((error: { code?: string }) => error.code)
      await begun.promise
      await saver.deleteThread('deleted')
      go.resolve()
      expect(await run).toBe('thread_deleted')
      expect(await saver.getTuple(config)).toBeUndefined()
      expect(await listed(saver, {})).toEqual([])
      await expect(graph.invoke({ messages: [new HumanMessage('anew')] }, config)).resolves.toBeDefined()
      expect(contentsOf((await graph.getState(config)).values.messages)).toEqual(['anew', 'late'])
    },
  },
  ...Object.entries(values).map(
    ([name, value]): Defect => ({
      sentence: `a value comes back exactly: ${name}`,
      wrongOn: ['sqlite', 'postgres'],
      isRight: (saver) => comesBack(saver, value),
    }),
  ),
  {
    sentence: 'an error comes back with its name, its stack and its cause',
    wrongOn: ['sqlite', 'postgres'],
    isRight: async (saver) => {
      const error = new TypeError('wrong', { cause: new Error('because') })
      const read = (await roundTrip(saver, error)) as Error
      expect([read.name, read.message, read.stack, (read.cause as Error).message]).toEqual([
        'TypeError',
        'wrong',
        error.stack,
        'because',
      ])
    },
  },
  ...Object.entries(lookalikes).map(
    ([name, value]): Defect => ({
      sentence: `data of the user that looks like what a saver writes stays data: ${name}`,
      wrongOn: ['lc1', 'lc2', 'constructor', 'snapshot'].includes(name) ? ['sqlite', 'postgres'] : [],
      isRight: (saver) => comesBack(saver, value),
    }),
  ),
  {
    sentence: 'binary writes that wait for their checkpoint are the same bytes',
    wrongOn: ['sqlite', 'postgres'],
    isRight: async (saver) => {
      const bytes = new Uint8Array(256).map((_, index) => index)
      const config = await saver.put(thread('binary'), emptyCheckpoint(), { source: 'loop', step: 0, parents: {} }, {})
      await saver.putWrites(config, [['file', bytes]], 'task')
      expect((await saver.getTuple(config))?.pendingWrites).toEqual([['task', 'file', bytes]])
    },
  },
  {
    sentence: 'NUL and lone surrogates are text like any other, in metadata, channels, ids and namespaces',
    wrongOn: ['postgres'],
    isRight: async (saver) => {
      const text = 'a\0b\ud800'
      const config = { configurable: { thread_id: text, checkpoint_ns: text } }
      const checkpoint = checkpointOf({ text })
      await saver.put(config, checkpoint, { source: 'loop', step: 0, parents: {}, text } as never, checkpoint.channel_versions)
      const tuple = await saver.getTuple(config)
      expect([tuple?.checkpoint.channel_values['text'], (tuple?.metadata as { text?: string })?.text]).toEqual([text, text])
      expect(await saver.getTuple({ configurable: { thread_id: 'a', checkpoint_ns: text } })).toBeUndefined()
    },
  },
  {
    sentence: 'a limit of 0 is none, and no limit is all',
    wrongOn: ['sqlite'],
    isRight: async (saver) => {
      let config: object = thread('listed')
      for (let step = 0; step < 12; step++)
        config = await saver.put(config, checkpointOf({ step }), { source: 'loop', step, parents: {} }, {})
      expect(await listed(saver, thread('listed'), { limit: 0 })).toEqual([])
      expect((await listed(saver, thread('listed'))).length).toBe(12)
      expect((await listed(saver, thread('listed'), { limit: 5 })).length).toBe(5)
    },
  },
  {
    sentence: 'the keys of a filter are data, whatever they look like',
    wrongOn: ['sqlite'],
    isRight: async (saver) => {
      const key = `x') = 1 OR ('1'='1`
      const put = (metadata: object) =>
        saver.put(thread('filtered'), checkpointOf({}), { source: 'loop', step: 0, parents: {}, ...metadata } as never, {})
      await put({ secret: true })
      await put({ [key]: 'found' })
      expect((await listed(saver, thread('filtered'), { filter: { [key]: 'found' } })).length).toBe(1)
      for (const evil of [`') OR 1=1 --`, `"`, `$.x`, '@x:{*}', `a' UNION SELECT 1 --`]) {
        expect(await listed(saver, thread('filtered'), { filter: { [evil]: 1 } }).catch(() => ['it threw'])).toEqual([])
      }
    },
  },
  {
    sentence: 'a thread and its namespaces are their names exactly: no prefix, no pattern, no separator',
    wrongOn: [],
    isRight: async (saver) => {
      const names = [
        'acme',
        'acme:bob',
        '*',
        '%',
        '_',
        'a/b',
        'a',
        "'; DROP TABLE x; --",
        'acme:',
        '{acme}',
        '',
        ' ',
        'x'.repeat(5_000),
      ].filter((name) => name !== '')
      for (const name of names)
        await saver.put(thread(name), checkpointOf({ name }), { source: 'loop', step: 0, parents: {} }, { name: 1 })
      for (const name of names) {
        expect((await listed(saver, thread(name))).map(({ checkpoint }) => checkpoint.channel_values['name'])).toEqual([name])
      }
      for (const name of ['acme', '*', 'a']) await saver.deleteThread(name)
      const left = await Promise.all(
        names.map(async (name) => ((await saver.getTuple(thread(name))) === undefined ? [] : [name])),
      )
      expect(left.flat()).toEqual(names.filter((name) => !['acme', '*', 'a'].includes(name)))
    },
  },
]

/** A graph that appends the names of its nodes. */
export function counting() {
  return new StateGraph(Annotation.Root({ list: Annotation<string[]>({ reducer: (a, b) => [...a, ...b], default: () => [] }) }))
    .addNode('a', () => ({ list: ['a'] }))
    .addNode('b', () => ({ list: ['b'] }))
    .addEdge(START, 'a')
    .addEdge('a', 'b')
}

function asking() {
  return new StateGraph(Annotation.Root({ list: Annotation<string[]>({ reducer: (a, b) => [...a, ...b], default: () => [] }) }))
    .addNode('ask', () => ({ list: [interrupt('yes or no?') as string] }))
    .addEdge(START, 'ask')
}

export function thread(thread_id: string): { configurable: { thread_id: string; checkpoint_ns: string } } {
  return { configurable: { thread_id, checkpoint_ns: '' } }
}

export async function historyOf<T>(graph: { getStateHistory(config: object): AsyncIterable<T> }, config: object): Promise<T[]> {
  return collect(graph.getStateHistory(config))
}

async function collect<T>(source: AsyncIterable<T>): Promise<T[]> {
  const items: T[] = []
  for await (const item of source) items.push(item)
  return items
}

export function contentsOf(messages: readonly BaseMessage[]): unknown[] {
  return messages.map(({ content }) => content)
}

export function checkpointOf(channel_values: Record<string, unknown>): Checkpoint {
  const channel_versions = Object.fromEntries(Object.keys(channel_values).map((key) => [key, 1]))
  return { ...emptyCheckpoint(), id: uuid6(0), channel_values, channel_versions }
}

async function listed(saver: BaseCheckpointSaver, config: object, options?: object) {
  return collect(saver.list(config, options))
}

/** In a channel and in a write that waits, and nested in a message. */
async function roundTrip(saver: BaseCheckpointSaver, value: unknown): Promise<unknown> {
  const checkpoint = checkpointOf({ value: { of: [value] } })
  const config = await saver.put(
    thread(uuid6(0)),
    checkpoint,
    { source: 'loop', step: 0, parents: {} },
    checkpoint.channel_versions,
  )
  await saver.putWrites(config, [['value', value]], 'task')
  const tuple = await saver.getTuple(config)
  const read = (tuple?.checkpoint.channel_values['value'] as { of: unknown[] } | undefined)?.of[0]
  const pending = tuple?.pendingWrites?.[0]?.[2]
  if (!(value instanceof Error)) expect(isDeepStrictEqual(pending, read)).toBe(true)
  return read
}

async function comesBack(saver: BaseCheckpointSaver, value: unknown): Promise<void> {
  const read = await roundTrip(saver, value)
  expect(isDeepStrictEqual(read, value)).toBe(true)
  const message = new ToolMessage({ content: 'x', tool_call_id: '1', artifact: value })
  const readMessage = (await roundTrip(saver, message)) as ToolMessage
  expect(readMessage).toBeInstanceOf(ToolMessage)
  expect(isDeepStrictEqual(readMessage.artifact, value)).toBe(true)
}

/** Resolves for all callers once so many have come. */
function meeting(count: number): () => Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>()
  let come = 0
  return () => {
    come += 1
    if (come >= count) resolve()
    return promise
  }
}
