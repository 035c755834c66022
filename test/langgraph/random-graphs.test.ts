import { AIMessage, HumanMessage, RemoveMessage } from '@langchain/core/messages'
import { Annotation, Command, interrupt, MemorySaver, MessagesAnnotation, Send, START, StateGraph } from '@langchain/langgraph'
import type { BaseCheckpointSaver } from '@langchain/langgraph-checkpoint'
import { HoldfastSaver } from 'holdfast/langgraph'
import { expect, it } from 'vitest'
import { createRandom, type Random } from '../../src/testing/random.ts'
import { onEveryStore } from '../behaviour/stores.ts'
import { historyOf, thread } from './defects.ts'

const State = Annotation.Root({
  ...MessagesAnnotation.spec,
  list: Annotation<unknown[]>({ reducer: (a, b) => [...a, ...b], default: () => [] }),
  recent: Annotation<number[]>({ reducer: (a, b) => [...a, ...b].slice(-3), default: () => [] }),
  last: Annotation<unknown>,
  left: Annotation<number>,
})

const kinds = ['append', 'say', 'forget', 'replace', 'ask', 'fail', 'send', 'sub', 'twice'] as const

interface Node {
  readonly name: string
  readonly kind: (typeof kinds)[number]
  readonly next: readonly string[]
}

/** Nodes in a row, with a way back while there are rounds left, and some in parallel. */
/** Long enough that it is kept once, with the writes of its task. */
const long = 'l'.repeat(300)

function randomNodes(random: Random): Node[] {
  const count = random.integer(2, 5)
  return Array.from({ length: count }, (_, index) => ({
    name: `n${index}`,
    kind: random.pick(kinds),
    next:
      index === count - 1 ? [] : random.chance(0.3) && index + 2 < count ? [`n${index + 1}`, `n${index + 2}`] : [`n${index + 1}`],
  }))
}

/** The same graph over any saver. What its nodes do depends on their state alone, and on what fails the first time. */
function build(nodes: readonly Node[], saver: BaseCheckpointSaver) {
  const failed = new Set<string>()
  const graph = new StateGraph(State) as StateGraph<typeof State, typeof State.State, Partial<typeof State.State>, string>
  for (const { name, kind } of nodes) {
    if (kind === 'sub') {
      const inner = new StateGraph(State)
        .addNode('in', ({ list }) => ({ list: [`${name} in ${list.length}`] }))
        .addNode('out', ({ messages }) => ({
          messages: [new AIMessage({ content: `${name} out`, id: `${name} ${messages.length}` })],
        }))
        .addEdge(START, 'in')
        .addEdge('in', 'out')
      graph.addNode(name, inner.compile() as never)
    } else {
      graph.addNode(name, ((state: typeof State.State & { item?: number }) => act(kind, name, state, failed)) as never)
    }
  }
  graph.addConditionalEdges(START, ({ left }) =>
    left > 1 ? [new Send('n0', { item: 1, left, list: [], recent: [], messages: [] }), 'n0'] : 'n0',
  )
  for (const { name, next } of nodes) for (const to of next) graph.addEdge(name as never, to as never)
  return graph.compile({ checkpointer: saver })
}

function act(kind: Node['kind'], name: string, state: typeof State.State & { item?: number }, failed: Set<string>): object {
  const size = state.list.length
  switch (kind) {
    case 'append':
      return { list: [{ by: name, size, long }], recent: [size] }
    case 'say':
      return { messages: [new AIMessage({ content: `${name} ${size}`, id: `${name}-${state.messages.length}` })] }
    case 'forget':
      return { messages: state.messages.slice(0, 1).map(({ id }) => new RemoveMessage({ id: id as string })), recent: [size] }
    case 'replace':
      return { last: new Map([[name, new Date(size)]]) }
    case 'ask':
      return { list: [[name, interrupt(`${name}?`), long]] }
    case 'twice':
      return { list: [[name, interrupt(`${name}?`), interrupt(`${name}??`)]] }
    case 'fail': {
      if (failed.has(`${name} ${size}`)) return { list: [`${name} did it`] }
      failed.add(`${name} ${size}`)
      throw new Error(`${name} fails`)
    }
    default:
      return { list: [`${name} got ${state.item ?? 'all'} ${long}`] }
  }
}

type Built = ReturnType<typeof build>

/** What happened and what is there, without what differs by chance. */
async function play(graph: Built, seed: number): Promise<unknown[]> {
  const random = createRandom(seed)
  const seen: unknown[] = []
  let turns = 0
  for (let step = 0; step < 6; step++) {
    const history = await historyOf(graph, thread('t'))
    const at = history.length > 0 && random.chance(0.35) ? history[random.integer(0, history.length - 1)] : undefined
    const config = { ...(at?.config ?? thread('t')), durability: random.pick(['sync', 'async', 'exit'] as const) }
    const choice = random.integer(0, 3)
    const number = ++turns
    const outcome = await (async (): Promise<unknown> => {
      if (choice === 0 && history.length > 0)
        return (await graph.updateState(at?.config ?? thread('t'), { list: ['edit'] }, 'n0')) && 'edited'
      if (choice === 1 && history.length > 0) return graph.invoke(null, config)
      if (choice === 2 && (history[0]?.tasks ?? []).some(({ interrupts }) => interrupts.length > 0)) {
        return graph.invoke(new Command({ resume: `answer ${number}` }), config)
      }
      const messages = [new HumanMessage({ content: `turn ${number}`, id: `h${number}` })]
      return graph.invoke({ messages, left: random.integer(1, 2), list: [number] }, config)
    })().catch((error: Error) => error.message.slice(0, 40))
    seen.push(plain(outcome), await told(graph))
  }
  return seen
}

async function told(graph: Built): Promise<unknown[]> {
  const history = await historyOf(graph, thread('t'))
  return history.map(({ values, next, metadata, tasks, parentConfig }) => ({
    ...{ values: plain(values), next, source: metadata?.source, step: metadata?.step },
    tasks: tasks.map(({ name, interrupts, error }) => [
      name,
      interrupts.map(({ value }) => value),
      (error as Error | undefined)?.message,
    ]),
    parent: history.findIndex(
      ({ config }) => config.configurable?.['checkpoint_id'] === parentConfig?.configurable?.['checkpoint_id'],
    ),
  }))
}

/** A run in `exit` that came no further makes the checkpoint its own parent on MemorySaver. */
function forgetOwnParents(expected: readonly unknown[], found: readonly unknown[]): void {
  for (const [index, history] of expected.entries()) {
    if (!Array.isArray(history)) continue
    for (const [at, one] of history.entries()) {
      const other = (found[index] as { parent?: unknown }[] | undefined)?.[at]
      if (one?.parent === at && other !== undefined) other.parent = at
    }
  }
}

/** MemorySaver keeps no Map and no Date; both sides are compared without. */
function plain(value: unknown): unknown {
  return JSON.parse(
    JSON.stringify(value ?? null, (key, item) =>
      key === 'last' ? null : key === '__interrupt__' ? (item as { value: unknown }[]).map((one) => one.value) : item,
    ),
  )
}

onEveryStore('random graphs', ({ open }) => {
  it('do on ours what they do on MemorySaver', async () => {
    const hf = await open({ worker: false })
    const first = Number(process.env['HOLDFAST_SEED'] ?? 1)
    for (let seed = first; seed < first + Number(process.env['HOLDFAST_GRAPHS'] ?? 25); seed++) {
      const nodes = randomNodes(createRandom(seed))
      const expected = await play(build(nodes, new MemorySaver() as never), seed)
      const found = await play(build(nodes, new HoldfastSaver(hf.as(`seed ${seed}`)) as never), seed)
      forgetOwnParents(expected, found)
      expect(found, `seed ${seed}: ${JSON.stringify(nodes)}`).toEqual(expected)
    }
  })
})
