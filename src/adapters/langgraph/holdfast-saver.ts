import type { RunnableConfig } from '@langchain/core/runnables'
import {
  BaseCheckpointSaver,
  type ChannelVersions,
  type Checkpoint,
  type CheckpointListOptions,
  type CheckpointMetadata,
  type CheckpointTuple,
  type DeltaChannelHistory,
  type PendingWrite,
} from '@langchain/langgraph-checkpoint'
import { type History, type Holdfast, HoldfastError, type Records, type Resolution } from '../../index.ts'
import { ChannelValues } from './channel-values.ts'
import { CheckpointReader } from './checkpoint-reader.ts'
import { CheckpointWriter } from './checkpoint-writer.ts'
import { type AskedEffect, Effects } from './effects.ts'
import { type Head, Heads } from './heads.ts'
import { checkpointIdOf, type Place, placeOf, requirePlace } from './keys.ts'
import { announceRejection } from './late-rejections.ts'
import { mergeNewestFirst } from './merge-newest-first.ts'
import { PendingWrites } from './pending-writes.ts'
import { mustExtend, RunsUnderWay, runOfNode } from './runs-under-way.ts'
import { type LangGraphBundle, readBundle, ThreadBundles } from './thread-bundle.ts'
import { ThreadCare } from './thread-care.ts'
import { ThreadHistory } from './thread-history.ts'

export interface HoldfastSaverOptions {
  /** How long the sender of an effect may be silent until it is taken for dead, in ms. Default 10,000. */
  readonly effectLeaseMs?: number
}

export interface HistoryOptions {
  /** Default: the graph itself, and none of its sub-graphs. */
  readonly ns?: string
  /** Of another branch: where it ends. */
  readonly checkpointId?: string
}

/**
 * A checkpointer of LangGraph.js that keeps threads in a store of Holdfast: `graph.compile({ checkpointer: new HoldfastSaver(hf) })`. Works for
 * the owner of the client. Two runs on one thread never lose each other's work: the one that comes second is refused with `conflict`.
 */
export class HoldfastSaver extends BaseCheckpointSaver<number> {
  readonly #heads: Heads
  readonly #reader: CheckpointReader
  readonly #writer: CheckpointWriter
  readonly #writes: PendingWrites
  readonly #runs = new RunsUnderWay()
  readonly #care: ThreadCare
  readonly #effects: Effects
  readonly #bundles: ThreadBundles

  constructor(hf: Holdfast, { effectLeaseMs = 10_000 }: HoldfastSaverOptions = {}) {
    super()
    if (!(effectLeaseMs >= 100 && effectLeaseMs <= 3_600_000)) {
      throw new HoldfastError(
        'invalid_input',
        `effectLeaseMs is ${String(effectLeaseMs)}; it must be a number of ms from 100 to 3,600,000.`,
      )
    }
    const records: Records = hf.records('langgraph')
    const values = new ChannelValues(records)
    this.#heads = new Heads(records)
    this.#effects = new Effects(records, this.#heads, effectLeaseMs)
    this.#writes = new PendingWrites(records, this.#heads, this.#effects)
    this.#reader = new CheckpointReader(records, values, this.#writes)
    this.#writer = new CheckpointWriter({ records, heads: this.#heads, values, writes: this.#writes, reader: this.#reader })
    this.#bundles = new ThreadBundles(records, this.#heads)
    this.#care = new ThreadCare(records, this.#heads, this.#effects)
  }

  /** The checkpoint that the config names, else the latest one of its thread and namespace. */
  override async getTuple(config: RunnableConfig): Promise<CheckpointTuple | undefined> {
    const place = placeOf(config)
    if (place === undefined) return undefined
    const named = checkpointIdOf(config)
    const head = await this.#heads.read(place)
    this.#runs.began(config, head, named !== undefined)
    const id = named ?? head.id
    const tuple = id === undefined ? undefined : await this.#reader.tuple(head, id)
    if (tuple !== undefined) this.#writes.puts.found(place, tuple.checkpoint.id)
    return tuple
  }

  /** Checkpoints, newest first: of a thread and namespace, or of all that the config does not restrict. `limit: 0` is none. */
  override async *list(config: RunnableConfig, options: CheckpointListOptions = {}): AsyncGenerator<CheckpointTuple> {
    const { limit, before, filter } = options ?? {}
    if (limit !== undefined && limit <= 0) return
    const query = {
      ...{ limit, filter: filter ?? {} },
      ...{ before: before === undefined ? undefined : checkpointIdOf(before), only: checkpointIdOf(config) },
    }
    const heads = await this.#headsOf(config)
    yield* mergeNewestFirst(
      heads.map((head) => this.#reader.list(head, query)),
      limit,
    )
  }

  async #headsOf(config: RunnableConfig): Promise<readonly Head[]> {
    const place = placeOf(config)
    const ns: unknown = config.configurable?.['checkpoint_ns']
    if (place === undefined || typeof ns !== 'string') {
      const heads = await this.#heads.all(place?.threadId)
      return typeof ns === 'string' ? heads.filter((head) => head.ns === ns) : heads
    }
    const head = await this.#heads.read(place)
    return head.id === undefined ? [] : [head]
  }

  /** Writes a checkpoint together with the writes of its parent that are not written yet. Durable when it resolves. */
  override async put(
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    newVersions: ChannelVersions,
  ): Promise<RunnableConfig> {
    const place = requirePlace(config, 'put')
    const run = this.#runs.of(config)
    const written = this.#writer.put({ place, parentId: checkpointIdOf(config), checkpoint, metadata, newVersions, run })
    if (run !== undefined) written.catch((error: unknown) => (run.refused ??= error))
    await (run === undefined ? written : announced(written))
    return { configurable: { thread_id: place.threadId, checkpoint_ns: place.ns, checkpoint_id: checkpoint.id } }
  }

  /** Writes what a task of a checkpoint wrote. Durable when it resolves. */
  override async putWrites(config: RunnableConfig, writes: PendingWrite[], taskId: string): Promise<void> {
    const place = requirePlace(config, 'putWrites')
    const checkpointId = checkpointIdOf(config)
    if (checkpointId === undefined) {
      throw new HoldfastError(
        'invalid_input',
        'putWrites needs a checkpoint_id in config.configurable: writes belong to a checkpoint.',
      )
    }
    const run = this.#runs.of(config)
    const isAnswer = place.ns === '' && writes.some(([channel]) => channel === '__resume__') && answers.test(taskId)
    const isFirst = isAnswer && run !== undefined && mustExtend(run, place, checkpointId) !== undefined
    if (isFirst) run.answering = this.#answer(place, checkpointId, taskId, writes, run.life)
    const written = isFirst
      ? run.answering
      : this.#writes.put(place, checkpointId, taskId, writes, { run, map: config.configurable?.['checkpoint_map'] })
    await (run === undefined ? written : announced(written))
  }

  async #answer(
    place: Place,
    checkpointId: string,
    taskId: string,
    writes: readonly PendingWrite[],
    life: number,
  ): Promise<void> {
    const head = await this.#heads.guess(place)
    await this.#writes.answer({ ...head, life }, checkpointId, taskId, writes)
  }

  /** Deletes a thread with all its namespaces. Runs of it that are still under way can't bring it back: they fail with `thread_deleted`. */
  override async deleteThread(threadId: string): Promise<void> {
    await this.#care.deleteThread(threadId)
    this.#writes.puts.forget()
  }

  /**
   * Decides about an effect whose outcome nobody knows, by the key that its interrupt shows: it happened, with this result, or it did not and may be
   * sent. Then `graph.invoke(null, config)` continues. A second decision is `already_answered`.
   */
  async resolve(key: string, resolution: Resolution): Promise<void> {
    await this.#effects.resolve(key, resolution)
  }

  /** What `once` and `durableTool` call: the result of an effect of a task. It is sent only once its run can't be refused any more for what it did before. */
  async carryOut<T>(asked: AskedEffect<T>, threadId: string, config: RunnableConfig): Promise<T> {
    const run = runOfNode(config)
    const head = await this.#heads.guess({ threadId, ns: '' })
    await run?.answering
    const areThere = await this.#writes.areThere(threadId, config.configurable?.['checkpoint_map'])
    if (run?.refused !== undefined) throw run.refused
    if (run !== undefined && run.life !== (await this.#heads.guess(head)).life) throw this.#heads.deleted(head)
    if (!areThere) throw notWritten(asked.name)
    return this.#effects.carryOut(asked, { ...head, life: run?.life ?? head.life }, (error) => {
      if (run !== undefined) run.refused ??= error
    })
  }

  /** A text that is another one whenever a thread went on: a checkpoint was written, a task was interrupted or failed. */
  async standing(threadId: string): Promise<string> {
    const head = await this.#heads.read({ threadId, ns: '' })
    return JSON.stringify([head.life, head.id, head.id === undefined ? '' : await this.#writes.stops(head.prefix, head.id)])
  }

  /**
   * A thread as the debugger reads it: `hf.debug.timeline(await saver.history(id))`, `replay`, `diff` and `blame` with `{ in: history }`. It is the way to the
   * latest checkpoint, or to `checkpointId`, as it is now. Values of delta channels are not in it.
   */
  async history(threadId: string, { ns = '', checkpointId }: HistoryOptions = {}): Promise<History> {
    const head = await this.#heads.read(requirePlace({ configurable: { thread_id: threadId, checkpoint_ns: ns } }, 'history'))
    if (head.id !== undefined) return ThreadHistory.open(head, this.#reader, checkpointId)
    const where = `${JSON.stringify(threadId)}${ns === '' ? '' : `, namespace ${JSON.stringify(ns)}`}`
    throw new HoldfastError('run_not_found', `There is no LangGraph thread ${where}.`, { details: { threadId, ns } })
  }

  /** Copies a thread with all its checkpoints and writes. Refused with `conflict` where the target has checkpoints. */
  async copyThread(sourceThreadId: string, targetThreadId: string): Promise<void> {
    await this.#care.copyThread(sourceThreadId, targetThreadId)
  }

  /** A thread with all its namespaces and effects as plain JSON, which `importThread` takes, of this store or another. Changes nothing. */
  async exportThread(threadId: string): Promise<LangGraphBundle> {
    return this.#bundles.export(requirePlace({ configurable: { thread_id: threadId } }, 'exportThread').threadId)
  }

  /** Imports what `exportThread` returned, or its JSON. Refused with `conflict` where the thread has checkpoints. */
  async importThread(bundle: LangGraphBundle | string, { threadId }: { readonly threadId?: string } = {}): Promise<void> {
    const whole = readBundle(bundle)
    await this.#bundles.import(
      whole,
      requirePlace({ configurable: { thread_id: threadId ?? whole.threadId } }, 'importThread').threadId,
    )
  }

  /** `keep_latest` (default) keeps the latest checkpoint of each namespace of these threads; `delete` deletes the threads. */
  async prune(
    threadIds: readonly string[],
    { strategy = 'keep_latest' }: { strategy?: 'keep_latest' | 'delete' } = {},
  ): Promise<void> {
    if (strategy !== 'keep_latest' && strategy !== 'delete') {
      throw new HoldfastError('invalid_input', `strategy of prune is ${String(strategy)}; it is keep_latest or delete.`)
    }
    for (const threadId of threadIds)
      await (strategy === 'delete' ? this.#care.deleteThread(threadId) : this.#care.keepLatest(threadId))
  }

  /** Deletes the checkpoints with these `run_id`s in their metadata, and their writes. */
  async deleteForRuns(runIds: readonly string[]): Promise<void> {
    await this.#care.deleteForRuns(runIds)
  }

  /** Versions rise by about one, with a fraction that makes each different: two branches never have the same. */
  override getNextVersion(current: number | undefined): number {
    return Math.floor(Number(current ?? 0)) + 1 + Math.floor(Math.random() * 1e6) / 1e6
  }

  /** What LangGraph rebuilds a `DeltaChannel` from: along the parents of the checkpoint, never through another branch. */
  override async getDeltaChannelHistory(options: {
    config: RunnableConfig
    channels: string[]
  }): Promise<Record<string, DeltaChannelHistory>> {
    const { config, channels } = options
    const place = placeOf(config)
    if (channels.length === 0) return {}
    const head = place && (await this.#heads.read(place))
    const id = checkpointIdOf(config) ?? head?.id
    if (head === undefined || id === undefined) return Object.fromEntries(channels.map((channel) => [channel, { writes: [] }]))
    return this.#reader.deltas(head, id, channels)
  }
}

function notWritten(effect: string): HoldfastError {
  return new HoldfastError(
    'invalid_input',
    `Effect ${JSON.stringify(effect)} was not sent: the checkpoint that its node began from is not in the store. Run the graph with the durability ` +
      "'sync' or 'async', not 'exit'.",
  )
}

/** LangGraph looks at what its run wrote when the run ends. */
async function announced(written: Promise<void> | undefined): Promise<void> {
  try {
    await written
  } catch (error) {
    announceRejection(error)
    throw error
  }
}

/** Under which ids LangGraph writes answers: that of no task, or of an interrupt. */
const answers = /^(00000000-0000-0000-0000-000000000000|[0-9a-f]{32})$/
