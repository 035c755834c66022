import { readOrigin } from '../engine/origin.ts'
import type { Order } from '../engine/tape.ts'
import { HoldfastError } from '../model/errors.ts'
import type { EventType, NewEvent } from '../model/event.ts'
import { isTerminal, type Run } from '../model/run.ts'
import { type Budget, checkBudget } from '../model/usage.ts'
import type { RunChange } from '../store/change.ts'
import type { NewMessage, RunKey } from '../store/store.ts'
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

/**
 * Cancels a run. One that executes is reached through its abort signal. One that does not, and has something to undo, is taken
 * up once more to undo it; with `undo: false`, or where its function can't be replayed, it ends as it stands.
 */
export async function cancelRun(core: Core, key: RunKey, options: { by?: string; undo?: boolean } = {}): Promise<void> {
  const { by, undo = true } = options
  const isDone = await control(core, key, cancelWaitMs, async (run) => {
    if (run.status === 'cancelled') return 'done'
    if (isTerminal(run.status)) throw hasEnded(run, 'cancelled')
    if (run.status === 'running') return { kind: 'cancel', by }
    if (undo && !isBeyondReplay(run) && (await hasSomethingToUndo(core, run))) return orderOf(core, { kind: 'cancel', by })
    return {
      events: [await newEvent(core, 'run_cancelled', by === undefined ? {} : { by })],
      run: { status: 'cancelled', reason: null, setsEnd: true },
      delivers: await wordToParent(core, run),
    }
  })
  if (isDone === 'ordered') await waitWhile(core, key, ({ status }) => status === 'pending' || status === 'running', cancelWaitMs)
}

/** Takes back what a run did after a checkpoint, the last thing first; the run is then paused there. */
export async function rollbackRun(core: Core, key: RunKey, to: number, by?: string): Promise<void> {
  const isDone = await control(core, key, cancelWaitMs, async (run) => {
    if (run.status === 'cancelled') throw hasEnded(run, 'rolled back')
    if (to < run.inputSeq || (run.tapeSeq !== null && to < run.tapeSeq - 1)) {
      throw new HoldfastError(
        'conflict',
        `Run "${run.id}" did not exist yet at ${run.threadId}@${to}, or has begun a new tape since. It can go back to ${run.threadId}@${run.tapeSeq ?? run.inputSeq} at the most.`,
        { details: { runId: run.id } },
      )
    }
    if (run.status === 'running') return { kind: 'rollback', by, to }
    return { ...(await orderOf(core, { kind: 'rollback', to, by })), ...(isTerminal(run.status) && { isUndisturbed: true }) }
  })
  if (isDone === 'ordered') await waitWhile(core, key, ({ status }) => status === 'pending' || status === 'running', cancelWaitMs)
}

/** The run is taken up once more, to do this instead of going on. */
async function orderOf(core: Core, order: Order) {
  return {
    events: [await newEvent(core, 'run_resumed', { order })],
    run: { status: 'pending', reason: null, due: { inMs: 0 }, hasProgress: true },
  } as const
}

/** Its function brings workers down, or no longer does what its log says: what there is to undo can't be gathered. */
function isBeyondReplay({ status, reason }: Run): boolean {
  return status === 'paused' && (reason === 'poisoned' || reason === 'mismatch')
}

/** Steps and effects with an undo, children and questions say so when they begin. */
async function hasSomethingToUndo(core: Core, run: Run): Promise<boolean> {
  if (run.tapeSeq === null) return false
  const records = await core.store.readLog({
    ...{ owner: run.owner, threadId: run.threadId, runId: run.id, afterSeq: run.tapeSeq - 1 },
    types: ['step_started', 'effect_intended', 'child_started', 'question_asked'],
  })
  return records.some(
    ({ type, payload }) =>
      type === 'child_started' ||
      type === 'question_asked' ||
      (payload !== null && (core.codec.decode(payload) as { hasUndo?: boolean }).hasUndo === true),
  )
}

/** A run that ends without being executed tells the one that waits for it all the same. */
async function wordToParent(core: Core, run: Run): Promise<readonly NewMessage[]> {
  const { owner, threadId, inputSeq } = run
  const [record] = await core.store.readLog({ owner, threadId, afterSeq: inputSeq - 1, toSeq: inputSeq })
  const parent = record?.payload == null ? undefined : readOrigin(core.codec, record.payload).origin.parent
  return parent === undefined ? [] : [{ owner, runId: parent, kind: 'child', name: run.id, payload: null }]
}

/**
 * Lets a paused run go on, with a fresh count of claims and, for a step that ran out of attempts, fresh attempts. With a budget
 * its limits are set to that first.
 */
export async function resumeRun(core: Core, key: RunKey, options: { by?: string; budget?: Budget } = {}): Promise<void> {
  const { by, budget } = options
  if (budget !== undefined) checkBudget(budget, `run "${key.runId}"`)
  const data = by === undefined ? {} : { by }
  await control(core, key, 0, async (run) => {
    if (run.status === 'pending' || run.status === 'waiting') {
      if (budget === undefined) return 'done'
      return { events: [await newEvent(core, 'budget_raised', { budget, ...data })], run: {} }
    }
    // It may have been asked to pause and not have come to it yet.
    if (run.status === 'running') return { kind: 'resume', by, ...(budget !== undefined && { budget }) }
    if (run.status !== 'paused') throw hasEnded(run, 'resumed')
    return {
      events: [
        ...(budget === undefined ? [] : [await newEvent(core, 'budget_raised', { budget, ...data })]),
        await newEvent(core, 'run_resumed', data),
      ],
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
  | {
      readonly kind: 'pause' | 'cancel' | 'resume' | 'rollback'
      readonly by: string | undefined
      readonly to?: number
      readonly budget?: Budget
    }
  | {
      readonly events: readonly NewEvent[]
      readonly run: RunChange
      readonly isUndisturbed?: boolean
      readonly delivers?: readonly NewMessage[]
    }

/**
 * Reads the run, decides, and acts under the condition that it is still as it was read; looks again when it is not.
 * What a holder has to do goes into its inbox.
 */
async function control(
  core: Core,
  key: RunKey,
  waitMs: number,
  decide: (run: Run) => Promise<Action>,
): Promise<'done' | 'ordered'> {
  for (let tries = 0; tries < 50; tries++) {
    const run = await readRun(core, key)
    const action = await decide(run)
    if (action === 'done') return 'done'
    if ('kind' in action) {
      const { by, to, budget } = action
      const data = { ...(by !== undefined && { by }), ...(to !== undefined && { to }), ...(budget !== undefined && { budget }) }
      const payload = Object.keys(data).length === 0 ? null : core.codec.encode(data)
      const answer = await core.store.deliver({ ...key, kind: action.kind, name: null, payload })
      if (answer.ok) {
        await waitWhile(core, key, ({ status }) => status === 'running', waitMs)
        const now = await core.store.readRun(key)
        // It stopped for another reason before it read the request: what was asked for is still to be done.
        const isStopped = now !== null && now.status !== 'running' && !isTerminal(now.status)
        // Where an undo failed it did what was asked for, as far as it could.
        const isUndoing = now?.status === 'paused' && now.reason === 'undo'
        if (isStopped && action.kind === 'cancel' && !isUndoing) continue
        if (isStopped && action.kind === 'resume' && now.status === 'paused') continue
        return 'done'
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
        ...(action.delivers !== undefined && action.delivers.length > 0 && { delivers: action.delivers }),
      })
      if (answer.ok) {
        core.wakeWorker()
        core.waiters.runChanged(key.owner, key.runId)
        return 'ordered'
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

async function waitWhile(core: Core, key: RunKey, isMeant: (run: Run) => boolean, waitMs: number): Promise<void> {
  const deadline = performance.now() + waitMs
  while (performance.now() < deadline && !core.waiters.isClosed) {
    const run = await core.store.readRun(key)
    if (run === null || !isMeant(run)) return
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
