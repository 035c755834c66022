import { HoldfastError } from '../model/errors.ts'
import type { EventType, NewEvent } from '../model/event.ts'
import { isTerminal, type Run, type RunStatus } from '../model/run.ts'
import type { RunChange } from '../store/change.ts'
import type { RunKey } from '../store/store.ts'
import type { Core } from './core.ts'
import { readEnd } from './read-events.ts'

/** How long `pause` waits for the run to come to its next safe point before it returns. */
const pauseWaitMs = 1_000
/** How long `cancel` waits for the run to unwind before it returns. */
const cancelWaitMs = 10_000

/** Asks a run to stop at its next safe point. Returns once it has, or after a second while a step still runs. */
export async function pauseRun(core: Core, key: RunKey, by?: string): Promise<void> {
  await control(core, key, pauseWaitMs, async (run) => {
    if (run.status === 'paused') return 'done'
    if (isTerminal(run.status)) throw hasEnded(run, 'paused')
    if (run.status === 'running') return { kind: 'pause', by }
    return {
      events: [await newEvent(core, 'run_paused', { reason: 'asked', ...(by !== undefined && { by }) })],
      run: { status: 'paused', reason: 'asked', due: 'never', setsEnd: true },
    }
  })
}

/** Cancels a run. Reaches the running step through its abort signal. */
export async function cancelRun(core: Core, key: RunKey, by?: string): Promise<void> {
  await control(core, key, cancelWaitMs, async (run) => {
    if (run.status === 'cancelled') return 'done'
    if (isTerminal(run.status)) throw hasEnded(run, 'cancelled')
    if (run.status === 'running') return { kind: 'cancel', by }
    return {
      events: [await newEvent(core, 'run_cancelled', by === undefined ? {} : { by })],
      run: { status: 'cancelled', reason: null, setsEnd: true },
    }
  })
}

/** Lets a paused run go on, with a fresh count of claims and, for a step that ran out of attempts, fresh attempts. */
export async function resumeRun(core: Core, key: RunKey, by?: string): Promise<void> {
  await control(core, key, 0, async (run) => {
    if (run.status === 'pending' || run.status === 'waiting') return 'done'
    // It may have been asked to pause and not have come to it yet.
    if (run.status === 'running') return { kind: 'resume', by }
    if (run.status !== 'paused') throw hasEnded(run, 'resumed')
    return {
      events: [await newEvent(core, 'run_resumed', by === undefined ? {} : { by })],
      run: { status: 'pending', reason: null, due: { inMs: 0 }, hasProgress: true },
    }
  })
}

/** Takes a failed run up again: the failures that failed it are reopened, everything else stays recorded. */
export async function retryRun(core: Core, key: RunKey): Promise<void> {
  await control(core, key, 0, async (run) => {
    if (run.status === 'pending' || run.status === 'running' || run.status === 'waiting') return 'done'
    if (run.status !== 'failed') {
      throw new HoldfastError(
        'conflict',
        `Run "${run.id}" is ${run.status}; only a failed run can be retried${run.status === 'paused' ? '. Resume it instead' : ''}.`,
      )
    }
    const end = await readEnd(core, run)
    const reopened = (end?.data?.['failed'] as string[] | undefined) ?? []
    return {
      events: [await newEvent(core, 'run_retried', { reopened })],
      run: { status: 'pending', reason: null, due: { inMs: 0 }, hasProgress: true },
      isUndisturbed: true,
    }
  })
}

type Action =
  | 'done'
  | { readonly kind: 'pause' | 'cancel' | 'resume'; readonly by: string | undefined }
  | { readonly events: readonly NewEvent[]; readonly run: RunChange; readonly isUndisturbed?: boolean }

/**
 * Reads the run, decides, and acts under the condition that it is still as it was read; looks again when it is not.
 * What a holder has to do goes into its inbox.
 */
async function control(core: Core, key: RunKey, waitMs: number, decide: (run: Run) => Promise<Action>): Promise<void> {
  for (let tries = 0; tries < 50; tries++) {
    const run = await readRun(core, key)
    const action = await decide(run)
    if (action === 'done') return
    if ('kind' in action) {
      const payload = action.by === undefined ? null : core.codec.encode({ by: action.by })
      const answer = await core.store.deliver({ ...key, kind: action.kind, name: null, payload })
      if (answer.ok) {
        await waitWhile(core, key, 'running', waitMs)
        const now = await core.store.readRun(key)
        // It stopped for another reason before it read the request: what was asked for is still to be done.
        const isStopped = now !== null && now.status !== 'running' && !isTerminal(now.status)
        if (isStopped && (action.kind === 'cancel' || (action.kind === 'resume' && now.status === 'paused'))) continue
        return
      }
    } else {
      const answer = await core.committer.commit({
        owner: key.owner,
        threadId: run.threadId,
        runId: run.id,
        guard: { kind: 'run', epoch: run.epoch, status: run.status, ...(action.isUndisturbed && { undisturbed: true }) },
        events: action.events,
        run: action.run,
        isCheckpoint: true,
      })
      if (answer.ok) {
        core.wakeWorker()
        core.waiters.runChanged(key.owner, key.runId)
        return
      }
      if (action.isUndisturbed && answer.refusal === 'conflict' && (await readRun(core, key)).status === run.status)
        throw disturbed(run)
    }
    await new Promise((resolve) => setTimeout(resolve, Math.min(50, tries * 2)))
  }
  throw new HoldfastError('conflict', `Run "${key.runId}" keeps changing; try again.`, { retryable: true })
}

export async function readRun(core: Core, key: RunKey): Promise<Run> {
  const run = await core.store.readRun(key)
  if (run === null) {
    throw new HoldfastError(
      'run_not_found',
      `There is no run "${key.runId}"${key.owner === '' ? '' : ` of owner "${key.owner}"`}.`,
      {
        details: { runId: key.runId },
      },
    )
  }
  return run
}

export async function newEvent(core: Core, type: EventType, data: Record<string, unknown>): Promise<NewEvent> {
  return {
    type,
    step: null,
    count: 0,
    attempt: 0,
    at: await core.now(),
    durationMs: null,
    payload: Object.keys(data).length === 0 ? null : core.codec.encode(data),
    patch: null,
  }
}

async function waitWhile(core: Core, key: RunKey, status: RunStatus, waitMs: number): Promise<void> {
  const deadline = performance.now() + waitMs
  while (performance.now() < deadline && !core.waiters.isClosed) {
    const run = await core.store.readRun(key)
    if (run === null || run.status !== status) return
    await core.waiters.next(key)
  }
}

function hasEnded(run: Run, verb: string): HoldfastError {
  return new HoldfastError('conflict', `Run "${run.id}" is ${run.status} and can't be ${verb}.`, {
    details: { runId: run.id, status: run.status },
  })
}

function disturbed(run: Run): HoldfastError {
  return new HoldfastError(
    'conflict',
    `Run "${run.id}" can't be retried: a later run has been started on thread "${run.threadId}". Start a new run instead.`,
    { details: { runId: run.id, threadId: run.threadId } },
  )
}
