import { readRun } from '../control/control-run.ts'
import type { Core } from '../control/core.ts'
import type { AnyWorkflow, InputAndOptions, OutputOf, Workflow } from '../define/workflow.ts'
import { HoldfastError } from '../model/errors.ts'
import { checkId, checkOwner } from '../model/ids.ts'
import { internalPrefix } from '../model/internal.ts'
import { type OptionNames, refuseUnknownOptions } from '../model/known-options.ts'
import { isMoment, momentAdvice } from '../model/moment.ts'
import { type RunStatus, runStatuses } from '../model/run.ts'
import type { StateDefinition } from '../model/state.ts'
import { collect, type GcOptions, type GcReport } from '../retention/collect.ts'
import { type ForgetOptions, type ForgetReport, forgetOwner } from '../retention/forget-owner.ts'
import type { RetentionOptions } from '../retention/policies.ts'
import { type VerifyOptions, type VerifyReport, verifyStore } from '../verify/verify-store.ts'
import { type AnswerOptions, answerQuestion } from './answer-question.ts'
import { type ClientArtifacts, clientArtifacts } from './artifacts.ts'
import { checkMigration, type MigrationCheck } from './check-migration.ts'
import { Debug } from './debug.ts'
import { type InboxItem, readInbox } from './inbox.ts'
import { type ClientMemory, clientMemory } from './memory.ts'
import { Queues } from './queues.ts'
import { Records } from './records.ts'
import { type Resolution, resolveEffect } from './resolve-effect.ts'
import { RunHandle } from './run-handle.ts'
import { type RunInfo, runInfos } from './run-info.ts'
import { Schedules } from './schedules.ts'
import { type SignalOptions, signalRun } from './signal-run.ts'
import { type StartRequest, type StartRequests, startMany } from './start-many.ts'
import { type StartOptions, startRun } from './start-run.ts'
import { findStuckRuns, type StuckRun } from './stuck-runs.ts'
import { ThreadHandle } from './thread-handle.ts'

export interface RunFilter {
  readonly status?: RunStatus | readonly RunStatus[]
  readonly workflow?: string
  readonly threadId?: string
  readonly queue?: string
  /** Runs with a checkpoint of this label, from `ctx.checkpoint(label)` or `thread.tag`. */
  readonly label?: string
  /** Created after this time, in ms since 1970 by the store's clock. */
  readonly createdAfter?: number
  /** Created before this time. */
  readonly createdBefore?: number
  /** Items per page, 1 to 1,000. Default 100. */
  readonly limit?: number
  /** The cursor of the page before; undefined for the first page. */
  readonly cursor?: string | undefined
}

const runFilterNames: OptionNames<RunFilter> = {
  status: true,
  workflow: true,
  threadId: true,
  queue: true,
  label: true,
  createdAfter: true,
  createdBefore: true,
  limit: true,
  cursor: true,
}

type OwnedStartOptions = StartOptions & { readonly owner?: string }

/** The client: starts runs, reads them and controls them. It works for one owner; without `as`, for the owner with the empty name. */
export class Holdfast {
  readonly #core: Core
  readonly #owner: string
  readonly #close: () => Promise<void>
  readonly #retention: RetentionOptions | undefined

  constructor(core: Core, owner: string, close: () => Promise<void>, retention?: RetentionOptions) {
    this.#core = core
    this.#owner = owner
    this.#close = close
    this.#retention = retention
  }

  /** Starts a run. With the id and input of an existing run, returns that run. */
  async start<Given, Output>(
    // biome-ignore lint/suspicious/noExplicitAny: what its function gets and its state do not matter here
    workflow: Workflow<any, Output, any, Given> | string,
    ...inputAndOptions: InputAndOptions<NoInfer<Given>, OwnedStartOptions>
  ): Promise<RunHandle<Output>> {
    const [input, options = {}] = inputAndOptions as [unknown?, OwnedStartOptions?]
    const owner = options.owner === undefined ? this.#owner : checkOwner(options.owner)
    const run = await startRun(this.#core, owner, workflow, input, options)
    return new RunHandle<Output>(this.#core, run)
  }

  /**
   * Starts many runs in few writes, each independently of the others. Returns their handles in order. If some could not be started, the
   * error says which; the others were started.
   */
  async startMany<const Workflows extends readonly (AnyWorkflow | string)[]>(
    requests: StartRequests<Workflows>,
  ): Promise<{ -readonly [Index in keyof Workflows]: RunHandle<OutputOf<Workflows[Index]>> }> {
    const runs = await startMany(this.#core, this.#owner, requests as readonly StartRequest[])
    return runs.map((run) => new RunHandle(this.#core, run)) as never
  }

  /** Starts a run and waits for its output. */
  async run<Given, Output>(
    // biome-ignore lint/suspicious/noExplicitAny: as in start
    workflow: Workflow<any, Output, any, Given> | string,
    ...inputAndOptions: InputAndOptions<NoInfer<Given>, OwnedStartOptions>
  ): Promise<Output> {
    return (await this.start(workflow, ...inputAndOptions)).result()
  }

  /** Exports and imports threads. */
  get debug(): Debug {
    return new Debug(this.#core, this.#owner)
  }

  /** Schedules: runs that are started by a cron pattern or at an interval. */
  get schedules(): Schedules {
    return new Schedules(this.#core, this.#owner)
  }

  /** Queues: their limits, pauses and counts, over all owners. */
  get queues(): Queues {
    return new Queues(this.#core)
  }

  readonly runs = {
    /** A handle of the run. Throws `run_not_found`. */
    get: async <Output = unknown>(id: string): Promise<RunHandle<Output>> =>
      new RunHandle<Output>(this.#core, await readRun(this.#core, { owner: this.#owner, runId: checkId('run id', id) })),

    /** Runs of this owner, newest first, page by page. Internal runs (`holdfast.…`) are listed only if `workflow` names theirs. */
    list: async (filter: RunFilter = {}): Promise<{ items: RunInfo[]; cursor?: string }> => {
      refuseUnknownOptions('hf.runs.list', filter, runFilterNames)
      const { status, limit = 100, createdAfter, createdBefore, cursor, ...rest } = filter
      for (const name of ['workflow', 'threadId', 'queue', 'label', 'cursor'] as const) checkText(name, filter[name])
      if (!Number.isInteger(limit) || limit < 1 || limit > 1_000) {
        throw new HoldfastError('invalid_input', `limit is ${shown(limit)}; it must be a whole number from 1 to 1,000.`)
      }
      const statuses = status === undefined || Array.isArray(status) ? (status as RunStatus[] | undefined) : [status as RunStatus]
      const [unknown] = (statuses ?? []).filter((one) => !runStatuses.includes(one)).map(shown)
      if (unknown !== undefined) {
        throw new HoldfastError(
          'invalid_input',
          `There is no status ${unknown}. It is one of ${runStatuses.join(', ')}, or a list of them.`,
        )
      }
      checkMoment('createdAfter', createdAfter)
      checkMoment('createdBefore', createdBefore)
      const page = await this.#core.store.listRuns({
        ...rest,
        ...(cursor !== undefined && { cursor }),
        owner: this.#owner,
        ...(createdAfter !== undefined && { createdAfter: Math.floor(createdAfter) }),
        ...(createdBefore !== undefined && { createdBefore: Math.ceil(createdBefore) }),
        limit,
        ...(rest.workflow === undefined && { withoutPrefix: internalPrefix }),
        ...(statuses !== undefined && { statuses }),
      })
      const items = await runInfos(this.#core, page.items)
      return { items, ...(page.cursor !== undefined && { cursor: page.cursor }) }
    },

    /** Runs that should make progress and have recorded nothing for `afterMs` (default 15 min), the longest first. */
    stuck: async (options: { afterMs?: number } = {}): Promise<StuckRun[]> => {
      refuseUnknownOptions('hf.runs.stuck', options, { afterMs: true })
      return findStuckRuns(this.#core, this.#owner, options.afterMs)
    },
  }

  /**
   * What outlives runs, from outside of them: session memory (`hf.memory.session.of(sessionId)`; a thread's own has the id of the thread) and
   * what is kept about a subject.
   */
  get memory(): ClientMemory {
    return clientMemory(this.#core, this.#owner)
  }

  /** Artifacts, from outside of runs: of every thread of this owner, and those that belong to none. */
  get artifacts(): ClientArtifacts {
    return clientArtifacts(this.#core, this.#owner)
  }

  /** Records for an adapter, in collections whose names begin with `kind`. What they contain is up to the adapter. */
  records(kind: string): Records {
    return new Records(this.#core, this.#owner, kind)
  }

  /** A thread: its state, history and runs. */
  thread(id: string): ThreadHandle {
    return new ThreadHandle(this.#core, this.#owner, id)
  }

  /** Decides whether an unsure effect happened, by its key. A second decision is `already_answered`. */
  async resolve(effectKey: string, resolution: Resolution): Promise<void> {
    await resolveEffect(this.#core, this.#owner, effectKey, resolution)
  }

  /**
   * Sends a signal to a run, for `ctx.waitFor(name)`. It is kept until the run waits for it; after the run has ended it is refused with
   * `conflict`. With an `id` it is delivered once, no matter how often it is sent.
   */
  async signal(runId: string, name: string, value?: unknown, options: SignalOptions = {}): Promise<void> {
    await signalRun(this.#core, { owner: this.#owner, runId: checkId('run id', runId) }, name, value, options)
  }

  /** Answers a question of `ctx.ask(name)`. The first answer counts; a second one is `already_answered`. */
  async answer(runId: string, name: string, value: unknown, options: AnswerOptions = {}): Promise<void> {
    await answerQuestion(this.#core, { owner: this.#owner, runId: checkId('run id', runId) }, name, value, options)
  }

  /** Everything that waits for a person, oldest first: questions, unsure effects and paused runs, each with the calls that deal with it. */
  async inbox(): Promise<InboxItem[]> {
    return readInbox(this.#core, this.#owner)
  }

  /** Registers a workflow, so that this process can execute its runs. */
  register(workflow: AnyWorkflow): void {
    this.#core.registry.add(workflow)
    this.#core.wakeWorker()
  }

  /** Tries a state definition's migrations on every thread of this owner, in memory, and returns where they fail. */
  async checkMigration(definition: StateDefinition<never> | StateDefinition<unknown>): Promise<MigrationCheck> {
    return checkMigration(this.#core, this.#owner, definition as StateDefinition<unknown>)
  }

  /**
   * Reads the whole store, of all owners, and says what is damaged and what is still safe to use: checksums, gaps, references, leases,
   * operations, snapshots. Changes and executes nothing; workers may be busy meanwhile.
   */
  async verify(options: VerifyOptions = {}): Promise<VerifyReport> {
    refuseUnknownOptions('hf.verify', options, { onProgress: true, signal: true })
    return verifyStore(this.#core, options)
  }

  /**
   * Deletes what the `retention` of `open` allows, of all owners, as workers do by themselves from time to time. May run beside anything else, and end at any
   * moment. With `dryRun` it only says what would be deleted.
   */
  async gc(options: GcOptions = {}): Promise<GcReport> {
    refuseUnknownOptions('hf.gc', options, { dryRun: true, onProgress: true, signal: true })
    return collect(this.#core, this.#retention ?? {}, options)
  }

  /**
   * Erases all that belongs to an owner: threads with their runs, logs, states and operations, schedules, memory. Unfinished runs end without undos, and their
   * workers are fenced. What is not complete, since it ended early or somebody kept on writing, another call continues.
   */
  async forgetOwner(owner: string, options: ForgetOptions = {}): Promise<ForgetReport> {
    refuseUnknownOptions('hf.forgetOwner', options, { signal: true })
    if (checkOwner(owner) === '')
      throw new HoldfastError(
        'invalid_input',
        'forgetOwner needs the name of an owner. What has none belongs to everybody: delete its threads.',
      )
    return forgetOwner(this.#core.store, owner, options)
  }

  /** A client for another owner, with separate runs, threads, operations and schedules. */
  as(owner: string): Holdfast {
    return new Holdfast(this.#core, checkOwner(owner), this.#close, this.#retention)
  }

  /** Lets running steps finish, releases unfinished runs and closes what `open` opened. Nothing acknowledged is lost. */
  async close(): Promise<void> {
    await this.#close()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }
}

function checkText(name: string, value: unknown): void {
  if (value === undefined || typeof value === 'string') return
  throw new HoldfastError(
    'invalid_input',
    `${name} of runs.list is ${value === null ? 'null' : `of type ${typeof value}`}; it must be a string${name === 'workflow' ? ': the name of the workflow' : ''}.`,
  )
}

/** A string with its quotes, so that `'3'` is not shown as the number 3. */
function shown(value: unknown): string {
  return typeof value === 'string' ? JSON.stringify(value) : String(value)
}

function checkMoment(name: string, value: unknown): void {
  if (value === undefined || isMoment(value)) return
  throw new HoldfastError('invalid_input', `${name} of runs.list is ${shown(value)}; it must be ${momentAdvice(value)}.`)
}
