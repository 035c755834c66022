import { checkpointSeq } from '../control/checkpoint-seq.ts'
import { pauseRun, readRun, resumeRun, retryRun } from '../control/control-run.ts'
import type { Core } from '../control/core.ts'
import { stateFor } from '../control/edit-state.ts'
import { type RunEvent, readEnd, readEvents } from '../control/read-events.ts'
import { cancelRun, rollbackRun } from '../control/undo-run.ts'
import { waitAtMost } from '../control/wait-at-most.ts'
import { whereRunStands } from '../control/where-run-stands.ts'
import { refuseRetryInFunction } from '../engine/calls/calls.ts'
import { loadState } from '../engine/state/thread-state.ts'
import { isOutage } from '../engine/writing/committer.ts'
import { checkMs } from '../model/duration.ts'
import { HoldfastError, invariant } from '../model/errors.ts'
import { checkId } from '../model/ids.ts'
import { refuseUnknownOptions } from '../model/known-options.ts'
import { isTerminal, type Run } from '../model/run.ts'
import { helpForFailure, standingOf, whyAndHelp } from '../model/standing.ts'
import type { Budget } from '../model/usage.ts'
import type { RunKey } from '../store/store.ts'
import { readStream, type StreamItem, type StreamOptions } from './read-stream.ts'
import { type RunDetails, runDetails } from './run-info.ts'
import { SeenEvents } from './seen-events.ts'

/** A run, whichever process started or executes it. */
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

  /** The status of the run, its steps, progress, usage, input and output. */
  async info(): Promise<RunDetails<Output>> {
    for (;;) {
      const details = await runDetails<Output>(this.#core, await this.#read())
      if (details !== null) return details
    }
  }

  /**
   * Waits until the run has ended and returns its output. Throws `run_failed` with the error as cause, `run_cancelled`, `thread_deleted`, or
   * `timeout` after `timeoutMs` (the run continues). Does not wait for a run that only a change of code can continue: if it is paused as
   * `mismatch`, `nondeterminism` is thrown, as `poisoned`, `worker_died`. Keeps waiting during outages of the store.
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
        // An unavailable store says nothing about the run: keep waiting.
        if (!isOutage(error) || leftMs <= 0) throw error
      }
      await waitAtMost(this.#core.waiters.next(this.#key), leftMs, options.signal)
    }
  }

  /** The run's events after a position, oldest first. */
  async events(options: { after?: number; limit?: number } = {}): Promise<RunEvent[]> {
    refuseUnknownOptions('run.events', options, { after: true, limit: true })
    if (options.after !== undefined) checkPosition('after of events()', options.after)
    return readEvents(this.#core, await this.#read(), options)
  }

  /**
   * The run's events from now on, until it has ended or the signal aborts. With `after`, first those since that position: a reader that was
   * disconnected continues with the `seq` of the last event it saw. Works from any process.
   */
  watch(options: { after?: number; signal?: AbortSignal } = {}): AsyncGenerator<RunEvent, void, void> {
    refuseUnknownOptions('run.watch', options, { after: true, signal: true })
    const { after, signal } = options
    if (after !== undefined) return this.#watchFrom(Promise.resolve(checkPosition('after of watch()', after)), signal)
    // "Now" is when it is called, not when it is first read.
    const thread = this.#core.store.readThread({ owner: this.#key.owner, threadId: this.threadId })
    this.#core.waiters.beginWatch(this.#key, thread)
    const position = thread.then((found) => found?.headSeq ?? 0)
    // Whoever reads the events hears of it. One who gives up before that must not leave a failure that nobody handles.
    position.catch(() => {})
    return this.#watchFrom(position, signal)
  }

  async *#watchFrom(position: Promise<number>, signal: AbortSignal | undefined): AsyncGenerator<RunEvent, void, void> {
    const begun = await position.catch((error: unknown) => {
      if (!this.#core.waiters.isClosed) throw error
    })
    const seen = new SeenEvents(begun ?? 0)
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
        await waitAtMost(next, Number.POSITIVE_INFINITY, signal)
        continue
      }
      for (const event of events) {
        if (signal?.aborted) return
        seen.note(event)
        yield event
      }
      if (events.length > 0) continue
      if (isTerminal(run.status) || this.#core.waiters.isClosed) return
      await waitAtMost(next, Number.POSITIVE_INFINITY, signal)
    }
  }

  /**
   * What the run writes to a stream: existing chunks from offset `from` on, then new ones, until the run has ended. Works from any process;
   * a reader that was disconnected continues with `from: last.offset + 1`.
   */
  stream<Chunk = unknown>(name: string, options: StreamOptions = {}): AsyncGenerator<StreamItem<Chunk>, void, void> {
    refuseUnknownOptions('run.stream', options, { from: true, signal: true })
    return readStream<Chunk>(this.#core, { ...this.#key, stream: checkId('stream name', name) }, () => this.#read(), options)
  }

  /** The state of its thread, as the run left it; while the run has not ended, as it is now. */
  async state<State = unknown>(): Promise<State> {
    const { store, codec } = this.#core
    const { endSeq, owner, threadId } = await this.#read()
    const thread = await store.readThread({ owner, threadId })
    invariant(thread !== null, `run ${this.id} has no thread`)
    return stateFor(await loadState(store, codec, thread, endSeq ?? thread.headSeq), undefined)
  }

  /** Stops the run at its next safe point. Survives restarts; `resume` continues it. */
  async pause(options: { by?: string } = {}): Promise<void> {
    refuseUnknownOptions('run.pause', options, { by: true })
    await pauseRun(this.#core, this.#key, options.by)
  }

  /** Continues a paused run. A `budget` replaces its limits first. */
  async resume(options: { by?: string; budget?: Budget } = {}): Promise<void> {
    refuseUnknownOptions('run.resume', options, { by: true, budget: true })
    if (options.budget !== undefined) await this.#refuseTooLow(options.budget)
    await resumeRun(this.#core, this.#key, options)
  }

  /**
   * Cancels the run: the abort signal of a running step aborts, children are cancelled, and undos run in reverse order. With `undo: false`
   * nothing is undone. Resolves when the run is cancelled. `conflict`: it has ended, or an undo failed and the run is paused as `undo`.
   * `timeout`: it takes longer than 10 s, and is carried out nevertheless.
   */
  async cancel(options: { by?: string; undo?: boolean } = {}): Promise<void> {
    refuseUnknownOptions('run.cancel', options, { by: true, undo: true })
    await cancelRun(this.#core, this.#key, options)
  }

  /**
   * Rolls the run back to a checkpoint: undoes what it did since, in reverse order, restores the state, and leaves the run paused there.
   * `resume` continues from the checkpoint. What was rolled back stays in the log. Resolves when it is done; rejects as `cancel` does.
   */
  async rollback(checkpoint: string, options: { by?: string } = {}): Promise<void> {
    refuseUnknownOptions('run.rollback', options, { by: true })
    const seq = await checkpointSeq(this.#core, { owner: this.#key.owner, threadId: this.threadId }, checkpoint)
    await rollbackRun(this.#core, this.#key, seq, options.by)
  }

  /** Continues a failed run where it failed. Steps with a recorded result are not executed again. */
  async retry(options: { by?: string } = {}): Promise<void> {
    refuseUnknownOptions('run.retry', options, { by: true })
    refuseRetryInFunction()
    await retryRun(this.#core, this.#key, options.by)
  }

  async #read(): Promise<Run> {
    const run = await this.#core.store.readRun(this.#key)
    if (run !== null && run.threadId === this.threadId) return run
    const thread = await this.#core.store.readThread({ owner: this.#key.owner, threadId: this.threadId })
    if (thread?.deletedAt != null) {
      throw new HoldfastError('thread_deleted', `Thread "${this.threadId}" was deleted, with run "${this.id}".`, {
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

  /** A budget that is already used up would pause the run again immediately. */
  async #refuseTooLow(budget: Budget): Promise<void> {
    const run = await this.#read()
    if (run.status !== 'paused' || run.reason !== 'budget') return
    const error = (await readEnd(this.#core, run))?.error as HoldfastError | undefined
    const { what, used } = (error?.details ?? {}) as { what?: keyof Budget; used?: number }
    const limit = what === undefined ? undefined : budget?.[what]
    if (limit === undefined || used === undefined || limit >= used) return
    throw new HoldfastError(
      'invalid_input',
      `Run "${run.id}" has used ${used} ${what}; with a budget of ${limit} it would pause again immediately. Give it more than ${used}.`,
      { details: { runId: run.id, what, limit, used } },
    )
  }

  async #output(run: Run): Promise<Output> {
    const end = await readEnd(this.#core, run).catch(async (error: unknown) => {
      // It may have been deleted meanwhile.
      if (isOutage(error)) await this.#read()
      throw error
    })
    if (run.status === 'completed') return end?.data?.['output'] as Output
    const details = { runId: run.id }
    if (run.status === 'cancelled') throw new HoldfastError('run_cancelled', `Run "${run.id}" was cancelled.`, { details })
    const why = whyAndHelp(end?.error, null, helpForFailure(end?.error))
    const message = `Run "${run.id}" of workflow "${run.workflow}" failed: ${why}`
    throw new HoldfastError('run_failed', message, { cause: end?.error, details })
  }
}

async function stillRunning(core: Core, run: Run, timeoutMs: number | undefined): Promise<HoldfastError> {
  const { is, help } = await whereRunStands(core, run)
  const { id: runId, status, reason } = run
  // A running one may still have the reason for which it waited before.
  const details = { runId, status, ...(reason !== null && status !== 'running' && { reason }) }
  return new HoldfastError('timeout', `Run "${runId}" was still ${is} after ${timeoutMs} ms. ${help}`, {
    retryable: true,
    details,
  })
}

/** A position in the log, or 0 for the beginning. */
function checkPosition(what: string, value: unknown): number {
  if (Number.isSafeInteger(value) && (value as number) >= 0) return value as number
  throw new HoldfastError(
    'invalid_input',
    `${what} is ${typeof value === 'string' ? JSON.stringify(value) : String(value)}; it must be the seq of an event, or 0 for all that there is.`,
  )
}
