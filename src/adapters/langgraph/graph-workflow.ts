import { Command } from '@langchain/langgraph'
import type { StandardSchemaV1 } from '@standard-schema/spec'
import {
  type Budget,
  type Context,
  HoldfastError,
  type Resolution,
  type RetryOptions,
  type Workflow,
  workflow,
} from '../../index.ts'
import { HoldfastSaver } from './holdfast-saver.ts'
import { pack } from './pack.ts'
import { unsureKeyOf } from './unsure-effect.ts'

/** A compiled graph. */
export interface Graph {
  // biome-ignore lint/suspicious/noExplicitAny: every graph has types of its own
  invoke(input: any, config?: any): Promise<unknown>
  // biome-ignore lint/suspicious/noExplicitAny: the same
  getState(config: any): Promise<GraphState>
  readonly checkpointer?: unknown
}

interface GraphState {
  readonly tasks: readonly {
    readonly name: string
    readonly error?: unknown
    readonly interrupts?: readonly { readonly id?: string; readonly value?: unknown }[]
  }[]
}

export interface GraphWorkflowOptions {
  readonly name: string
  /** Default 1. Give another one when the graph changes under runs in flight. */
  readonly version?: number
  readonly queue?: string
  readonly priority?: number
  /** How long a run may take, in ms. */
  readonly timeoutMs?: number
  readonly budget?: Budget
  /** How often the graph is continued after a node has failed. Default: as of any step. */
  readonly retry?: RetryOptions
  /** Whom its interrupts are addressed to in the inbox. */
  readonly to?: string
  /** How many super-steps an input may take. Default: LangGraph's. */
  readonly recursionLimit?: number
}

/** What such a run returns: the values are in the thread, `graph.getState({ configurable: { thread_id } })`. */
export interface GraphOutput {
  readonly threadId: string
}

/** What the inbox shows of an interrupt. */
export interface GraphQuestion {
  /** The node that is interrupted. */
  readonly node: string
  readonly value: unknown
}

interface Asked extends GraphQuestion {
  /** Absent where the graph was compiled to stop there. */
  readonly id?: string
  /** Of an effect whose outcome nobody knows. */
  readonly effectKey?: string
}

/**
 * A workflow that runs a compiled graph on the LangGraph thread with the id of its own thread: `hf.start(flow, input, { threadId })`. After a crash
 * another worker continues the graph where it was. Interrupts are questions in `hf.inbox()`, whose answers resume it. The graph needs a HoldfastSaver.
 */
export function graphWorkflow<Input = unknown>(graph: Graph, options: GraphWorkflowOptions): Workflow<Input, GraphOutput> {
  const { retry, to, recursionLimit, ...rest } = options
  const saver = graph.checkpointer
  if (!(saver instanceof HoldfastSaver)) {
    throw new HoldfastError(
      'invalid_input',
      `graphWorkflow needs a graph that was compiled with { checkpointer: new HoldfastSaver(hf) }.`,
    )
  }
  return workflow(rest, async (ctx: Context, input: Input): Promise<GraphOutput> => {
    const config = { configurable: { thread_id: ctx.threadId }, ...(recursionLimit !== undefined && { recursionLimit }) }
    for (let next: unknown = input; ; ) {
      const from = await ctx.step('look', () => saver.standing(ctx.threadId))
      const leg = { graph, saver, from, next, config: { ...config, durability: 'sync', signal: ctx.signal } }
      const asked = await ctx.step('run', () => runLeg(leg, ctx.threadId), { ...(retry !== undefined && { retry }) })
      if (asked.length === 0) return { threadId: ctx.threadId }
      next = await answersTo(ctx, saver, asked, to)
    }
  })
}

interface Leg {
  readonly graph: Graph
  readonly saver: HoldfastSaver
  /** Where the thread stood before. */
  readonly from: string
  /** The input, or the answers as a command. */
  readonly next: unknown
  readonly config: { readonly configurable: { readonly thread_id: string } }
}

/** Runs the graph until it ends or asks. Called again after a crash or a failure, it continues what it finds. */
async function runLeg({ graph, saver, from, next, config }: Leg, threadId: string): Promise<Asked[]> {
  if ((await saver.standing(threadId)) === from) {
    await graph.invoke(isResume(next) ? new Command(next) : next, config).catch((error: { code?: unknown }) => {
      // The answer was recorded before the process died.
      if (error.code !== 'conflict' || !isResume(next)) throw error
      return graph.invoke(null, config)
    })
  } else {
    const { tasks } = await graph.getState(config)
    const isInterrupted = tasks.some(({ error, interrupts = [] }) => error === undefined && interrupts.length > 0)
    if (tasks.length > 0 && (!isInterrupted || tasks.some(({ error }) => error !== undefined))) await graph.invoke(null, config)
  }
  const { tasks } = await graph.getState(config)
  const asked = tasks.flatMap(({ name, interrupts = [] }) =>
    interrupts.map(({ id, value }): Asked => {
      const effectKey = unsureKeyOf({ id, value })
      return { node: name, value: pack(value), ...(id !== undefined && { id }), ...(effectKey !== undefined && { effectKey }) }
    }),
  )
  return asked.length > 0 ? asked : tasks.map(({ name }) => ({ node: name, value: null }))
}

/** What a leg is given after its interrupts were answered. */
interface Resume {
  readonly resume: unknown
}

const resumes = new WeakSet<object>()

function isResume(next: unknown): next is Resume {
  return typeof next === 'object' && next !== null && resumes.has(next)
}

async function answersTo(
  ctx: Context,
  saver: HoldfastSaver,
  asked: readonly Asked[],
  to: string | undefined,
): Promise<Resume | null> {
  const answers = await Promise.all(
    asked.map(({ node, value, effectKey }) =>
      ctx.ask('interrupt', {
        ...{ question: { node, value } satisfies GraphQuestion, ...(to !== undefined && { to }) },
        ...(effectKey !== undefined && { schema: resolution }),
      }),
    ),
  )
  for (const [index, { effectKey }] of asked.entries()) {
    if (effectKey !== undefined) await ctx.step('decide', () => decide(saver, effectKey, answers[index] as Resolution))
  }
  const answered = asked.flatMap(({ id, effectKey }, index) =>
    id === undefined || effectKey !== undefined ? [] : [[id, answers[index]] as const],
  )
  const [first] = answered
  if (first === undefined) return null
  const resume: Resume = { resume: asked.length === 1 ? first[1] : Object.fromEntries(answered) }
  resumes.add(resume)
  return resume
}

/** Once: where this process dies before the step is recorded, it finds the effect decided. */
async function decide(saver: HoldfastSaver, effectKey: string, answer: Resolution): Promise<void> {
  await saver.resolve(effectKey, answer).catch((error: { readonly code?: unknown }) => {
    if (error.code !== 'already_answered' && error.code !== 'invalid_input') throw error
  })
}

const resolution: StandardSchemaV1<unknown, Resolution> = {
  '~standard': {
    version: 1,
    vendor: 'holdfast',
    validate: (value) => {
      const { happened, result } = (value ?? {}) as { readonly happened?: unknown; readonly result?: unknown }
      if (typeof happened === 'boolean') return { value: { happened, result } }
      return {
        issues: [{ message: 'The effect either happened or did not: answer { happened: true, result } or { happened: false }.' }],
      }
    },
  },
}
