import { latestCheckpoint, positionOf } from '../control/checkpoint-seq.ts'
import { readRun } from '../control/control-run.ts'
import type { Core } from '../control/core.ts'
import { definitionFor, editState, stateFor } from '../control/edit-state.ts'
import { type ForkOptions, forkThread, readFork } from '../control/fork-thread.ts'
import { rewindThread } from '../control/rewind-thread.ts'
import type { InputAndOptions, Workflow } from '../define/workflow.ts'
import { loadState } from '../engine/state/thread-state.ts'
import { HoldfastError } from '../model/errors.ts'
import { checkId, formatCheckpoint } from '../model/ids.ts'
import { refuseUnknownOptions } from '../model/known-options.ts'
import type { Recipe } from '../model/patch.ts'
import type { StateDefinition } from '../model/state.ts'
import { partOf, type StatePart } from '../model/state-part.ts'
import type { Budget } from '../model/usage.ts'
import type { Thread } from '../store/store.ts'
import { RunHandle } from './run-handle.ts'
import { type StartOptions, startRun } from './start-run.ts'

export interface Checkpoint {
  /** `threadId@seq`. */
  readonly checkpoint: string
  readonly seq: number
  readonly at: number
  readonly runId: string | null
  readonly step?: string
  readonly label?: string
  /** What the commit that ended here added. */
  readonly bytes: number
}

/** What is known of a thread. */
export interface ThreadInfo {
  readonly id: string
  readonly owner: string
  /** Its latest checkpoint; null where there is none. */
  readonly checkpoint: string | null
  /** Version of the state definition of its state; 0 where there is none. */
  readonly stateVersion: number
  readonly createdAt: number
  /** The checkpoint that it was forked from. */
  readonly forkedFrom?: string
}

/** A durable identity with a state and a history. */
export class ThreadHandle {
  readonly #core: Core
  readonly #owner: string
  readonly id: string

  constructor(core: Core, owner: string, id: string) {
    this.#core = core
    this.#owner = owner
    this.id = checkId('thread id', id)
  }

  /** Starts a run on this thread and waits for its output. */
  async run<Given, Output>(
    // biome-ignore lint/suspicious/noExplicitAny: what its function gets and its state do not matter here
    workflow: Workflow<any, Output, any, Given> | string,
    ...inputAndOptions: InputAndOptions<NoInfer<Given>, Omit<StartOptions, 'threadId'>>
  ): Promise<Output> {
    return (await this.start(workflow, ...inputAndOptions)).result()
  }

  /** Starts a run on this thread. The runs of a thread execute one after another, in the order in which they were started. */
  async start<Given, Output>(
    // biome-ignore lint/suspicious/noExplicitAny: as in run
    workflow: Workflow<any, Output, any, Given> | string,
    ...inputAndOptions: InputAndOptions<NoInfer<Given>, Omit<StartOptions, 'threadId'>>
  ): Promise<RunHandle<Output>> {
    const [input, options] = inputAndOptions as [unknown?, StartOptions?]
    const run = await startRun(this.#core, this.#owner, workflow, input, { ...options, threadId: this.id })
    return new RunHandle<Output>(this.#core, run)
  }

  /** The current state; undefined if nothing was ever written. With a definition, migrated to its version (in memory only). */
  async state<State = unknown>(definition?: StateDefinition<State>): Promise<State> {
    const thread = await this.#read()
    return stateFor(await loadState(this.#core.store, this.#core.codec, thread, thread.headSeq), definition)
  }

  /** The state at a checkpoint: `threadId@seq`, or a label. Changes nothing. */
  async stateAt<State = unknown>(checkpoint: string, definition?: StateDefinition<State>): Promise<State>
  /** A part of it: what a path leads to, so many levels of it, so many entries of each; what is left out is `Omitted`. */
  async stateAt<Part = unknown>(checkpoint: string, part: StatePart): Promise<Part>
  async stateAt(checkpoint: string, shape?: StateDefinition<unknown> | StatePart): Promise<unknown> {
    const definition = isDefinition(shape) ? shape : undefined
    if (definition === undefined) refuseUnknownOptions('thread.stateAt', shape, { path: true, depth: true, limit: true })
    const thread = await this.#read()
    const seq = await this.#position(thread, checkpoint)
    const state = stateFor(await loadState(this.#core.store, this.#core.codec, thread, seq), definition)
    return shape === undefined || isDefinition(shape) ? state : partOf(state, shape)
  }

  /** The positions in the log at which commits ended, oldest first. */
  async checkpoints(options: { after?: number; limit?: number } = {}): Promise<Checkpoint[]> {
    refuseUnknownOptions('thread.checkpoints', options, { after: true, limit: true })
    refuseNoCount('after', options.after, 0)
    refuseNoCount('limit', options.limit, 1)
    await this.#read()
    const rows = await this.#core.store.listCheckpoints({
      ...this.#key,
      ...(options.after !== undefined && { afterSeq: options.after }),
      ...(options.limit !== undefined && { limit: options.limit }),
    })
    return rows.map(({ seq, at, runId, step, label, bytes }) => ({
      checkpoint: formatCheckpoint(this.id, seq),
      seq,
      at,
      runId,
      ...(step !== null && { step }),
      ...(label !== null && { label }),
      bytes,
    }))
  }

  /**
   * Edits the state, with an event in the log. With `ifAt` only if that checkpoint is still the latest, otherwise `conflict`; without it, a
   * conflict is retried on the newest state. While a run of the thread executes, it is a `conflict`: pause the run first. `by` says who did it.
   */
  async update<State = Record<string, unknown>>(
    recipe: (draft: State) => unknown,
    options: { readonly ifAt?: string; readonly by?: string } = {},
  ): Promise<void> {
    refuseUnknownOptions('thread.update', options, { ifAt: true, by: true })
    const { store, codec, committer } = this.#core
    for (let tries = 0; tries < 200; tries++) {
      const thread = await store.readThread(this.#key)
      if (thread?.deletedAt != null) throw this.#deleted()
      const headSeq = thread?.headSeq ?? 0
      if (options.ifAt !== undefined && (thread === null || (await this.#position(thread, options.ifAt)) !== headSeq)) {
        throw new HoldfastError(
          'conflict',
          `Thread "${this.id}" is no longer at ${options.ifAt}: it is at ${formatCheckpoint(this.id, headSeq)}.`,
        )
      }
      const head = thread === null ? undefined : await loadState(store, codec, thread, headSeq)
      const definition = await definitionFor(this.#core, this.#key, head)
      const edit = await editState(this.#core, head, definition, { recipe: recipe as Recipe, by: checkBy(options.by) })
      if (edit === null) return
      const { event, ...version } = edit
      const answer = await committer.commit({
        ...{ ...this.#key, runId: null, guard: { kind: 'thread', headSeq }, events: [event], isCheckpoint: true, ...version },
      })
      if (answer.ok) return
      if (answer.refusal === 'thread_deleted') throw this.#deleted()
      const now = await store.readThread(this.#key)
      if (options.ifAt !== undefined || now?.headSeq === headSeq) {
        throw new HoldfastError(
          'conflict',
          `The state of thread "${this.id}" can't be edited while a run executes on it. Pause the run, or wait for it.`,
          {
            retryable: true,
          },
        )
      }
    }
    throw new HoldfastError('conflict', `Thread "${this.id}" keeps changing; try again.`, { retryable: true })
  }

  /**
   * Takes the state back to a checkpoint: the next run starts from there. Executes and undoes nothing, and keeps the log: what came after is
   * still there to be read, forked or rewound to. While a run of the thread is unfinished it is a `conflict`; runs that ended before it can
   * no longer be retried or rolled back.
   */
  async rewind(checkpoint: string, options: { readonly by?: string } = {}): Promise<void> {
    refuseUnknownOptions('thread.rewind', options, { by: true })
    await rewindThread(this.#core, this.#key, checkpoint, checkBy(options.by))
  }

  /**
   * A new thread that begins as this one was at a checkpoint. Inside a run it has a copy of that run up to there, under a new id and paused:
   * `resume()` continues it. Nothing is executed, and this thread is only read. With `replace` a recorded call has another result, and
   * everything after it runs anew; `edit` changes the state of the fork before it continues.
   */
  async fork(checkpoint: string, options: ForkOptions = {}): Promise<ForkedThread> {
    refuseUnknownOptions('thread.fork', options, { threadId: true, edit: true, replace: true, by: true })
    checkBy(options.by)
    const { threadId, runId, forkedFrom } = await forkThread(this.#core, this.#key, checkpoint, options)
    return new ForkedThread(this.#core, this.#owner, { threadId, runId, forkedFrom })
  }

  /** Where the thread is, since when it exists, and which checkpoint it was forked from. */
  async info(): Promise<ThreadInfo> {
    const thread = await this.#read()
    const { owner, threadId: id, stateVersion, createdAt } = thread
    const [fork, seq] = await Promise.all([readFork(this.#core, thread), latestCheckpoint(this.#core, thread)])
    return {
      ...{ id, owner, checkpoint: seq === null ? null : formatCheckpoint(id, seq), stateVersion, createdAt },
      ...(fork !== null && { forkedFrom: fork.from }),
    }
  }

  /** Labels a checkpoint: `stateAt` accepts the label, and retention keeps the checkpoint. */
  async tag(checkpoint: string, label: string): Promise<void> {
    const thread = await this.#read()
    const seq = await this.#position(thread, checkpoint)
    const { ok } = await this.#core.store.tag({ ...this.#key, seq, label: checkId('label', label) })
    if (!ok) throw new HoldfastError('conflict', `${formatCheckpoint(this.id, seq)} is not a checkpoint: no commit ended there.`)
  }

  /**
   * Deletes the thread with its runs, log and snapshots. A worker that executes one of its runs loses it, and late writes are refused.
   * Operations are kept, so that no effect happens twice. A new run on the thread starts with an empty state and log.
   */
  async delete(): Promise<void> {
    await this.#core.store.deleteThread({ ...this.#key, at: await this.#core.now() })
  }

  get #key() {
    return { owner: this.#owner, threadId: this.id }
  }

  async #read(): Promise<Thread> {
    const thread = await this.#core.store.readThread(this.#key)
    if (thread?.deletedAt != null) throw this.#deleted()
    return (
      thread ?? {
        ...{ ...this.#key, headSeq: 0, writtenSeq: 0, patchSeq: 0, patchChecksum: 0, stateVersion: 0 },
        ...{ incarnation: 1, baseSeq: 0, createdAt: 0, deletedAt: null },
      }
    )
  }

  #position(thread: Thread, checkpoint: string): Promise<number> {
    return positionOf(this.#core, thread, checkpoint)
  }

  #deleted(): HoldfastError {
    return new HoldfastError('thread_deleted', `Thread "${this.id}" was deleted. A new run on it starts with an empty state.`, {
      details: { threadId: this.id },
    })
  }
}

/** A thread that was forked, with the copy of the run that it was forked in. */
export class ForkedThread extends ThreadHandle {
  readonly #core: Core
  readonly #owner: string
  /** The checkpoint that it was forked from. */
  readonly forkedFrom: string
  /** The copied run, which is paused; null where the checkpoint was not inside a run. */
  readonly runId: string | null

  constructor(
    core: Core,
    owner: string,
    fork: { readonly threadId: string; readonly runId: string | null; readonly forkedFrom: string },
  ) {
    super(core, owner, fork.threadId)
    this.#core = core
    this.#owner = owner
    this.forkedFrom = fork.forkedFrom
    this.runId = fork.runId
  }

  /** Continues the copied run, and returns it. `conflict` where there is none. */
  async resume<Output = unknown>(options: { readonly by?: string; readonly budget?: Budget } = {}): Promise<RunHandle<Output>> {
    const { runId } = this
    if (runId === null)
      throw new HoldfastError(
        'conflict',
        `Thread "${this.id}" has no run to resume: no run was executing at ${this.forkedFrom}. Start one with run() or start().`,
        { details: { threadId: this.id } },
      )
    const run = new RunHandle<Output>(this.#core, await readRun(this.#core, { owner: this.#owner, runId }))
    await run.resume(options)
    return run
  }
}

function isDefinition(shape: StateDefinition<unknown> | StatePart | undefined): shape is StateDefinition<unknown> {
  return typeof shape === 'object' && shape !== null && 'initial' in shape
}

function refuseNoCount(name: string, value: unknown, least: number): void {
  if (value === undefined || (Number.isSafeInteger(value) && (value as number) >= least)) return
  const given = typeof value === 'string' ? JSON.stringify(value) : String(value)
  throw new HoldfastError('invalid_input', `${name} of thread.checkpoints is ${given}; it must be a whole number from ${least}.`)
}

function checkBy(by: unknown): string | undefined {
  if (by === undefined || typeof by === 'string') return by
  throw new HoldfastError('invalid_input', `by is of type ${by === null ? 'null' : typeof by}; it must be a string: who does it.`)
}
