import { createHash } from 'node:crypto'
import type { RunnableConfig } from '@langchain/core/runnables'
import { HoldfastError } from '../../index.ts'
import type { OnceOptions } from './effects.ts'
import { HoldfastSaver } from './holdfast-saver.ts'

/** What LangGraph hands to a node as its second argument, and to a tool. */
export interface NodeConfig {
  readonly configurable?: Readonly<Record<string, unknown>> | undefined
  readonly signal?: AbortSignal | undefined
}

/**
 * Carries out an effect of a node once: `await once(config, 'charge', { run: (key) => charge(order, key) })`. When the node runs again, after a
 * crash, a failure or an interrupt, it returns the recorded result. Where nobody knows whether it happened, the graph is interrupted for a
 * person, unless `check` or `idempotent` says what to do. Several of one name are told apart by the order in which the node calls them.
 */
export async function once<T>(config: NodeConfig, name: string, options: OnceOptions<T>): Promise<T> {
  return carryOut(config, name, options, {})
}

/** How calls of one name in one task are told apart: by an id, else by count. */
interface Call {
  readonly id?: string
  readonly input?: string
}

export async function carryOut<T>(config: NodeConfig, name: string, { key, ...options }: OnceOptions<T>, call: Call): Promise<T> {
  const task = taskOf(config, name)
  if (typeof options.run !== 'function')
    throw new HoldfastError('invalid_input', `once(config, ${JSON.stringify(name)}, …) needs a function run.`)
  const which = call.id === undefined ? ['count', countOf(task, name)] : ['id', call.id]
  const asked = {
    ...{ name, options, signal: config.signal, checkpointId: task.checkpointId },
    ...{ key: key ?? derivedKey([task.threadId, task.checkpointNs, task.taskId, name, ...which]), isOwn: key === undefined },
    ...(call.input !== undefined && { input: call.input }),
  }
  return task.saver.carryOut(asked, task.threadId, config as RunnableConfig)
}

interface Task {
  readonly saver: HoldfastSaver
  readonly threadId: string
  readonly checkpointId: string
  readonly checkpointNs: string
  readonly taskId: string
  readonly attempt: number
  /** One object for all attempts. */
  readonly identity: object
}

function taskOf(config: NodeConfig, name: string): Task {
  const { executionInfo } = (config ?? {}) as { readonly executionInfo?: Readonly<Record<string, unknown>> }
  const saver = config?.configurable?.['__pregel_checkpointer']
  const identity = config?.configurable?.['__pregel_scratchpad']
  const { threadId, checkpointId, checkpointNs, taskId, nodeAttempt } = executionInfo ?? {}
  if (!(saver instanceof HoldfastSaver) || typeof taskId !== 'string' || typeof identity !== 'object' || identity === null) {
    throw new HoldfastError(
      'invalid_input',
      `Effect ${JSON.stringify(name)} was not sent: it needs the config of a node, in a graph compiled with { checkpointer: new HoldfastSaver(hf) }, ` +
        'and LangGraph.js 1.4.18 or later. Pass on the second argument of the node.',
    )
  }
  return {
    ...{ saver, identity, taskId, threadId: String(threadId), checkpointId: String(checkpointId) },
    ...{ checkpointNs: String(checkpointNs), attempt: Number(nodeAttempt) },
  }
}

interface Counts {
  readonly attempt: number
  readonly byName: Map<string, number>
}

const countsOf = new WeakMap<object, Counts>()

/** The how-manieth of its name in this attempt, from 1. */
function countOf({ identity, attempt }: Task, name: string): number {
  const known = countsOf.get(identity)
  const counts = known?.attempt === attempt ? known : { attempt, byName: new Map<string, number>() }
  const count = (counts.byName.get(name) ?? 0) + 1
  counts.byName.set(name, count)
  countsOf.set(identity, counts)
  return count
}

function derivedKey(parts: readonly unknown[]): string {
  return `lg_${createHash('sha256').update(JSON.stringify(parts)).digest('base64url')}`
}
