import { newEvent } from '../control/control-run.ts'
import type { Core } from '../control/core.ts'
import type { InputAndOptions, Workflow } from '../define/workflow.ts'
import { loadState, type StateAt } from '../engine/state/thread-state.ts'
import { HoldfastError } from '../model/errors.ts'
import { checkId, formatCheckpoint } from '../model/ids.ts'
import { refuseUnknownOptions } from '../model/known-options.ts'
import { applyPatch, diffUpdate, type Patch, replaceState } from '../model/patch.ts'
import { migrateState, type StateDefinition } from '../model/state.ts'
import { partOf, type StatePart } from '../model/state-part.ts'
import type { Thread } from '../store/store.ts'
import { positionOf } from './checkpoint-seq.ts'
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
    return this.#show(await loadState(this.#core.store, this.#core.codec, thread, thread.headSeq), definition)
  }

  /** The state at a checkpoint: `threadId@seq`, or a label. Changes nothing. */
  async stateAt<State = unknown>(checkpoint: string, definition?: StateDefinition<State>): Promise<State>
  /** A part of it: what a path leads to, so many levels of it, so many entries of each; what is left out is `Omitted`. */
  async stateAt<Part = unknown>(checkpoint: string, part: StatePart): Promise<Part>
  async stateAt(checkpoint: string, shape?: StateDefinition<unknown> | StatePart): Promise<unknown> {
    const definition = shape !== undefined && 'initial' in shape ? shape : undefined
    if (definition === undefined) refuseUnknownOptions('thread.stateAt', shape, { path: true, depth: true, limit: true })
    const thread = await this.#read()
    const seq = await this.#position(thread, checkpoint)
    const state = this.#show(await loadState(this.#core.store, this.#core.codec, thread, seq), definition)
    return shape === undefined || 'initial' in shape ? state : partOf(state, shape)
  }

  /** The positions in the log at which commits ended, oldest first. */
  async checkpoints(options: { after?: number; limit?: number } = {}): Promise<Checkpoint[]> {
    refuseUnknownOptions('thread.checkpoints', options, { after: true, limit: true })
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
   * conflict is retried on the newest state. While a run of the thread executes, it is a `conflict`: pause the run first.
   */
  async update<State = Record<string, unknown>>(
    recipe: (draft: State) => unknown,
    options: { ifAt?: string } = {},
  ): Promise<void> {
    refuseUnknownOptions('thread.update', options, { ifAt: true })
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
      const definition = await this.#definition(head)
      const current = this.#show(head, definition) ?? {}
      const patch = diffUpdate(current, recipe as (draft: unknown) => unknown)
      if (patch === null) return
      const isMigrated = definition !== undefined && head !== undefined && head.version < definition.version
      const whole = isMigrated ? replaceState(applyPatch(current, codec.decode(codec.encode(patch)) as Patch)) : patch
      const event = await newEvent(
        this.#core,
        isMigrated ? 'state_migrated' : 'state_updated',
        isMigrated ? { from: head?.version, to: definition.version } : {},
      )
      const answer = await committer.commit({
        ...this.#key,
        runId: null,
        guard: { kind: 'thread', headSeq },
        events: [{ ...event, patch: codec.encode(whole) }],
        isCheckpoint: true,
        ...(isMigrated && { stateVersion: definition.version }),
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

  #show<State>(at: StateAt | undefined, definition: StateDefinition<State> | undefined): State {
    if (definition === undefined) return at?.value as State
    if (at === undefined || at.version < definition.version)
      return migrateState(definition, at?.value, at?.version ?? 0).value as State
    return at.value as State
  }

  /** For a versioned state: the definition of the workflow that ran last on this thread, if this process has it. */
  async #definition(at: StateAt | undefined): Promise<StateDefinition<unknown> | undefined> {
    if (at === undefined || at.version === 0) return undefined
    const { items } = await this.#core.store.listRuns({ ...this.#key, limit: 1 })
    return items[0] === undefined ? undefined : this.#core.registry.latest(items[0].workflow)?.options.state
  }

  #deleted(): HoldfastError {
    return new HoldfastError('thread_deleted', `Thread "${this.id}" was deleted. A new run on it starts with an empty state.`, {
      details: { threadId: this.id },
    })
  }
}
