import { refuseRetryInFunction } from '../engine/calls.ts'
import { isOutage } from '../engine/committer.ts'
import { isIn, rolledBackStretches, type Stretch } from '../engine/tape.ts'
import { checkMs } from '../model/duration.ts'
import { codeOf, HoldfastError } from '../model/errors.ts'
import { checkId } from '../model/ids.ts'
import { refuseUnknownOptions } from '../model/known-options.ts'
import type { Payload } from '../model/payload.ts'
import { isTerminal, type PauseReason, type Run, type RunStatus, type WaitReason } from '../model/run.ts'
import { helpForFailure, standingOf, whyAndHelp } from '../model/standing.ts'
import { addUsage, type Budget, noUsage, type UsageTotal } from '../model/usage.ts'
import type { RunKey, Thread } from '../store/store.ts'
import { checkpointSeq } from './checkpoint-seq.ts'
import { pauseRun, readRun, resumeRun, retryRun } from './control-run.ts'
import type { Core } from './core.ts'
import { type RunEvent, readEnd, readEvent, readEvents } from './read-events.ts'
import { readStream, type StreamItem, type StreamOptions } from './read-stream.ts'
import { SeenEvents } from './seen-events.ts'
import { sooner } from './sooner.ts'
import { cancelRun, rollbackRun } from './undo-run.ts'
import { whereRunStands } from './where-run-stands.ts'

/** What is known of a run. Times are ms since 1970, by the store's clock. */
export interface RunInfo {
  readonly id: string
  readonly threadId: string
  readonly owner: string
  readonly workflow: string
  readonly version: number
  readonly status: RunStatus
  /** Why it waits or is paused. */
  readonly reason?: PauseReason | WaitReason
  /** The step that runs, waits for its next attempt, or failed the run. */
  readonly currentStep?: string
  /** Steps and effects with a recorded result, in order. Those that were rolled back are not among them. */
  readonly completedSteps: readonly string[]
  /** Attempts of each step so far. */
  readonly stepAttempts: Readonly<Record<string, number>>
  /** How far it is: what it or its plan last reported. 0 before any report, 1 when it has completed. */
  readonly progress: RunProgress
  /** What it has used, its children included. */
  readonly usage: UsageTotal
  /** Why it failed, or stopped by itself. */
  readonly error?: Error
  readonly createdAt: number
  readonly startedAt?: number
  readonly finishedAt?: number
}

/** How far a run is. */
export interface RunProgress {
  /** From 0 to 1. */
  readonly fraction: number
  readonly note?: string
  /** The step or scope that reported it. */
  readonly step?: string
}

/** A run, from any process. */
export class RunHandle<Output = unknown> {
  readonly #core: Core
  readonly #key: RunKey
  readonly id: string
  readonly threadId: string

  constructor(core: Core, run: Run) {
    this.#core = core
    this.#key = { owner: run.owner, runId: run.id }
    this.id = run.id
    this.threadId = run.threadId
  }

  /** Where the run stands. */
  async info(): Promise<RunInfo> {
    const run = await this.#read()
    return runInfo(this.#core, run)
  }

  /**
   * Waits for the end of the run and returns its output. Throws `run_failed` with the error as cause, `run_cancelled`,
   * `thread_deleted`, or `timeout` when `timeoutMs` has passed (the run continues). A run that only a change of code continues is not
   * waited for: paused as mismatch it is `nondeterminism`, as poisoned `worker_died`. Waits through outages of the store.
   */
  async result(options: { timeoutMs?: number; signal?: AbortSignal } = {}): Promise<Output> {
    refuseUnknownOptions('run.result', options, { timeoutMs: true, signal: true })
    checkMs('timeoutMs of result()', options.timeoutMs)
    const deadline = options.timeoutMs === undefined ? Number.POSITIVE_INFINITY : performance.now() + options.timeoutMs
    for (;;) {
      options.signal?.throwIfAborted()
      if (this.#core.waiters.isClosed)
        throw new HoldfastError('closed', `Holdfast was closed while waiting for run "${this.id}"; the run continues.`)
      const leftMs = deadline - performance.now()
      try {
        const run = await this.#read()
        if (isTerminal(run.status)) return await this.#output(run)
        if (run.status === 'paused') await this.#refuseStopped(run)
        if (leftMs <= 0) throw await stillRunning(this.#core, run, options.timeoutMs)
      } catch (error) {
        // A store out of reach says nothing about the run: it is waited for like the run itself.
        if (!isOutage(error) || leftMs <= 0) throw error
      }
      await sooner(this.#core.waiters.next(this.#key), leftMs, options.signal)
    }
  }

  /** The run's events after a position, oldest first. */
  async events(options: { after?: number; limit?: number } = {}): Promise<RunEvent[]> {
    refuseUnknownOptions('run.events', options, { after: true, limit: true })
    return readEvents(this.#core, await this.#read(), options)
  }

  /** What happens from now on, until the run has ended or the signal is aborted. Works from any process. */
  watch(options: { signal?: AbortSignal } = {}): AsyncGenerator<RunEvent, void, void> {
    refuseUnknownOptions('run.watch', options, { signal: true })
    // "Now" is when it is called, not when it is first read.
    const thread = this.#core.store.readThread({ owner: this.#key.owner, threadId: this.threadId })
    this.#core.waiters.beginWatch(this.#key, thread)
    return this.#watchFrom(thread, options.signal)
  }

  async *#watchFrom(thread: Promise<Thread | null>, signal: AbortSignal | undefined): AsyncGenerator<RunEvent, void, void> {
    const begun = await thread.catch((error: unknown) => {
      if (!this.#core.waiters.isClosed) throw error
    })
    const seen = new SeenEvents(begun?.headSeq ?? 0)
    while (signal?.aborted !== true) {
      const next = this.#core.waiters.nextEvent(this.#key)
      let run: Run
      let events: RunEvent[]
      try {
        run = await this.#read()
        events = await seen.next((range) => readEvents(this.#core, run, range))
      } catch (error) {
        if (this.#core.waiters.isClosed) return
        if (!isOutage(error)) throw error
        await sooner(next, Number.POSITIVE_INFINITY, signal)
        continue
      }
      for (const event of events) {
        if (signal?.aborted) return
        seen.note(event)
        yield event
      }
      if (events.length > 0) continue
      if (isTerminal(run.status) || this.#core.waiters.isClosed) return
      await sooner(next, Number.POSITIVE_INFINITY, signal)
    }
  }

  /**
   * What the run writes to a stream: first what is there, from offset `from` on, then what comes, until the run has ended. Works from any
   * process; a reader that lost its connection continues with `from: last.offset + 1`.
   */
  stream<Chunk = unknown>(name: string, options: StreamOptions = {}): AsyncGenerator<StreamItem<Chunk>, void, void> {
    refuseUnknownOptions('run.stream', options, { from: true, signal: true })
    return readStream<Chunk>(this.#core, { ...this.#key, stream: checkId('stream name', name) }, () => this.#read(), options)
  }

  /** Stops the run at its next safe point. Survives restarts; `resume` continues it. */
  async pause(options: { by?: string } = {}): Promise<void> {
    refuseUnknownOptions('run.pause', options, { by: true })
    await pauseRun(this.#core, this.#key, options.by)
  }

  /** Continues a paused run; with a `budget`, its limits are set to that first. */
  async resume(options: { by?: string; budget?: Budget } = {}): Promise<void> {
    refuseUnknownOptions('run.resume', options, { by: true, budget: true })
    if (options.budget !== undefined) await this.#refuseTooLow(options.budget)
    await resumeRun(this.#core, this.#key, options)
  }

  /**
   * Cancels the run: a running step is reached through its abort signal, children are cancelled, undos run, the last first. With
   * `undo: false` nothing is undone. Resolves when the run is cancelled. `conflict`: it has ended, or an undo failed and it is paused as
   * `undo`. `timeout`: that takes longer than 10 s; it is carried out all the same.
   */
  async cancel(options: { by?: string; undo?: boolean } = {}): Promise<void> {
    refuseUnknownOptions('run.cancel', options, { by: true, undo: true })
    await cancelRun(this.#core, this.#key, options)
  }

  /**
   * Takes the run back to a checkpoint: undoes what it did after it, the last thing first, brings the state back, and leaves it
   * paused there. What is forgotten stays in the log. `resume` continues from the checkpoint. Resolves when it is there; rejects as
   * `cancel` does.
   */
  async rollback(checkpoint: string, options: { by?: string } = {}): Promise<void> {
    refuseUnknownOptions('run.rollback', options, { by: true })
    const seq = await checkpointSeq(this.#core, { owner: this.#key.owner, threadId: this.threadId }, checkpoint)
    await rollbackRun(this.#core, this.#key, seq, options.by)
  }

  /** Takes a failed run up where it failed: recorded steps are not executed again. */
  async retry(): Promise<void> {
    refuseRetryInFunction()
    await retryRun(this.#core, this.#key)
  }

  async #read(): Promise<Run> {
    const run = await this.#core.store.readRun(this.#key)
    if (run !== null && run.threadId === this.threadId) return run
    const thread = await this.#core.store.readThread({ owner: this.#key.owner, threadId: this.threadId })
    if (thread?.deletedAt != null) {
      throw new HoldfastError('thread_deleted', `Thread "${this.threadId}" was deleted, and run "${this.id}" with it.`, {
        details: { runId: this.id },
      })
    }
    return readRun(this.#core, this.#key)
  }

  async #refuseStopped(run: Run): Promise<void> {
    if (run.reason !== 'mismatch' && run.reason !== 'poisoned') return
    const error = (await readEnd(this.#core, run))?.error
    const { is, help } = standingOf(run)
    const why = whyAndHelp(error, run.reason, help)
    throw new HoldfastError(
      run.reason === 'mismatch' ? 'nondeterminism' : 'worker_died',
      `Run "${run.id}" of workflow "${run.workflow}" is ${is}: ${why}`,
      { cause: error, details: { runId: run.id, status: run.status, reason: run.reason } },
    )
  }

  /** A budget that is used up already would pause the run again at once. */
  async #refuseTooLow(budget: Budget): Promise<void> {
    const run = await this.#read()
    if (run.status !== 'paused' || run.reason !== 'budget') return
    const error = (await readEnd(this.#core, run))?.error as HoldfastError | undefined
    const { what, used } = (error?.details ?? {}) as { what?: keyof Budget; used?: number }
    const limit = what === undefined ? undefined : budget?.[what]
    if (limit === undefined || used === undefined || limit >= used) return
    throw new HoldfastError(
      'invalid_input',
      `Run "${run.id}" has used ${used} ${what}; with a budget of ${limit} it would pause again at once. Give it more than ${used}.`,
      { details: { runId: run.id, what, limit, used } },
    )
  }

  async #output(run: Run): Promise<Output> {
    const end = await readEnd(this.#core, run)
    if (run.status === 'completed') return end?.data?.['output'] as Output
    const details = { runId: run.id }
    if (run.status === 'cancelled') throw new HoldfastError('run_cancelled', `Run "${run.id}" was cancelled.`, { details })
    const why = whyAndHelp(end?.error, null, helpForFailure(end?.error))
    const message = `Run "${run.id}" of workflow "${run.workflow}" failed: ${why}`
    throw new HoldfastError('run_failed', message, { cause: end?.error, details })
  }
}

export async function runInfo(core: Core, run: Run): Promise<RunInfo> {
  const records = await core.store.readLog({
    owner: run.owner,
    threadId: run.threadId,
    runId: run.id,
    afterSeq: run.inputSeq - 1,
    types: [
      'run_started',
      'step_started',
      'step_completed',
      'step_failed',
      'step_skipped',
      'effect_intended',
      'effect_completed',
      'effect_skipped',
      'effect_unsure',
      'effect_failed',
      'progress_reported',
      'run_rolled_back',
    ],
    bare: true,
  })
  const takenBack = records.some(({ type }) => type === 'run_rolled_back') ? await readTakenBack(core, run) : []
  const completed: string[] = []
  const attempts: Record<string, number> = Object.create(null)
  const open = new Map<string, string>()
  let reportedAt: number | undefined
  const begun = new Set<string>()
  let startedAt = run.startedAt
  for (const { type, seq, step, count, attempt, at } of records) {
    // The row learns of it with the first result that is written.
    if (type === 'run_started' && startedAt !== null) startedAt = Math.min(startedAt, at)
    if (type === 'progress_reported' && !isIn(takenBack, seq)) reportedAt = seq
    if (step === null || type === 'progress_reported') continue
    const key = `${step}#${count}`
    begun.add(key)
    if (isIn(takenBack, seq)) continue
    if (attempt > 0) attempts[step] = Math.max(attempts[step] ?? 0, attempt)
    if (type === 'step_completed' || type === 'effect_completed' || type === 'effect_skipped') completed.push(step)
    if (type === 'step_completed' || type === 'step_skipped' || type === 'effect_completed' || type === 'effect_skipped')
      open.delete(key)
    else open.set(key, step)
  }
  const isOver = run.status === 'completed' || run.status === 'cancelled'
  const current = isOver ? undefined : [...open.values()].at(-1)
  const end = run.status === 'failed' || run.status === 'paused' ? await readEnd(core, run) : null
  return {
    id: run.id,
    threadId: run.threadId,
    owner: run.owner,
    workflow: run.workflow,
    version: run.version,
    status: run.status,
    ...(run.reason !== null && (run.status === 'waiting' || run.status === 'paused') && { reason: run.reason }),
    ...(current !== undefined && { currentStep: current }),
    completedSteps: completed,
    stepAttempts: { ...attempts },
    progress: await progressOf(core, run, reportedAt),
    usage: await readUsage(core, run, begun.size),
    ...(end?.error !== undefined && { error: end.error }),
    createdAt: run.createdAt,
    ...(startedAt !== null && { startedAt }),
    ...(run.finishedAt !== null && { finishedAt: run.finishedAt }),
  }
}

/** The stretches of the run's log that rollbacks have taken back. */
async function readTakenBack(core: Core, { owner, threadId, id: runId, inputSeq }: Run): Promise<readonly Stretch[]> {
  const records = await core.store.readLog({ owner, threadId, runId, afterSeq: inputSeq - 1, types: ['run_rolled_back'] })
  return rolledBackStretches(records, runId, ({ payload }) => core.codec.decode(payload as Payload) as never)
}

async function progressOf(core: Core, run: Run, reportedAt: number | undefined): Promise<RunProgress> {
  if (run.status === 'completed') return { fraction: 1 }
  const report = reportedAt === undefined ? null : await readEvent(core, run, reportedAt)
  const { fraction = 0, note } = (report?.data ?? {}) as { fraction?: number; note?: string }
  return { fraction, ...(note !== undefined && { note }), ...(report?.step !== undefined && { step: report.step }) }
}

/** What the run has booked in its log. */
async function readUsage(core: Core, run: Run, steps: number): Promise<UsageTotal> {
  const { owner, threadId, id: runId, inputSeq } = run
  const query = {
    owner,
    threadId,
    runId,
    afterSeq: inputSeq - 1,
    types: ['usage_recorded', 'child_completed', 'run_started'] as const,
  }
  const records = await core.store.readLog(query).catch((error: unknown) => {
    // What is known of a run whose log is damaged should still be told.
    if (codeOf(error) !== 'corrupt_record') throw error
    return []
  })
  return records.reduce(
    (total, { type, payload }) => {
      const data = (payload === null ? {} : core.codec.decode(payload)) as Partial<UsageTotal> & { usage?: Partial<UsageTotal> }
      return addUsage(total, type === 'usage_recorded' ? data : (data.usage ?? {}))
    },
    { ...noUsage, steps },
  )
}

async function stillRunning(core: Core, run: Run, timeoutMs: number | undefined): Promise<HoldfastError> {
  const { is, help } = await whereRunStands(core, run)
  const { id: runId, status, reason } = run
  // One that runs may still carry what it waited for before.
  const details = { runId, status, ...(reason !== null && status !== 'running' && { reason }) }
  return new HoldfastError('timeout', `Run "${runId}" was still ${is} after ${timeoutMs} ms. ${help}`, {
    retryable: true,
    details,
  })
}
