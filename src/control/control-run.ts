import { HoldfastError } from '../model/errors.ts'
import type { LogRecord, NewEvent } from '../model/event.ts'
import type { Payload } from '../model/payload.ts'
import { isTerminal, type Run } from '../model/run.ts'
import { type Budget, checkBudget } from '../model/usage.ts'
import type { OperationChange, RunChange } from '../store/change.ts'
import type { Message, NewMessage, RunKey } from '../store/store.ts'
import type { Core } from './core.ts'
import { newEvent } from './new-event.ts'
import { readEnd } from './read-events.ts'
import { refuseRewound } from './rewind-thread.ts'
import { waitAtMost } from './wait-at-most.ts'

/** How long `pause` waits for the run to reach its next safe point before it returns. */
const pauseWaitMs = 1_000

/** Requests that a run pauses at its next safe point. Returns once it has, or after a second if a step still runs. */
export async function pauseRun(core: Core, key: RunKey, by?: string): Promise<void> {
  const until = performance.now() + pauseWaitMs
  await control(core, key, async (run, asked) => {
    if (run.status === 'paused' || asked.isWritten) return 'done'
    if (isTerminal(run.status)) throw hasEnded(run, 'paused')
    if (run.status === 'running' && asked.isRequested) return performance.now() < until ? { waitUntil: until } : 'done'
    if (run.status === 'running') return { kind: 'pause', by }
    // Its holder has handled the request, and the run was resumed since: the latest request wins.
    if (asked.isRequested && !(await core.store.readInbox(key)).some(({ kind }) => kind === 'pause')) return 'done'
    return {
      events: [await newEvent(core, 'run_paused', { reason: 'asked', ...(by !== undefined && { by }) })],
      run: { status: 'paused', reason: 'asked', due: 'never', setsEnd: true },
    }
  })
}

/**
 * Continues a paused run, with a new count of claims and, for a step that ran out of attempts, new attempts. A budget replaces its limits
 * first.
 */
export async function resumeRun(core: Core, key: RunKey, options: { by?: string; budget?: Budget } = {}): Promise<void> {
  const { by, budget } = options
  if (budget !== undefined) checkBudget(budget, `run "${key.runId}"`)
  const data = by === undefined ? {} : { by }
  await control(core, key, async (run, asked) => {
    if (asked.isWritten || (asked.isRequested && run.status !== 'paused')) return 'done'
    // What comes before its tape is not read with it: a run that has not begun finds its budget in its inbox.
    const isBegun = run.tapeSeq !== null
    const raised = budget === undefined || !isBegun ? [] : [await newEvent(core, 'budget_raised', { budget, ...data })]
    const delivers = budget === undefined || isBegun ? {} : { delivers: [resumeMessage(core, key, { budget, ...data })] }
    if (run.status === 'pending' || run.status === 'waiting') {
      if (budget === undefined) return 'done'
      // A waiting run checks its children, because one of them may be waiting for budget.
      return { events: raised, run: run.status === 'waiting' ? { due: { inMs: 0 } } : {}, ...delivers }
    }
    // It may have been asked to pause and not have paused yet.
    if (run.status === 'running') return { kind: 'resume', by, ...(budget !== undefined && { budget }) }
    if (run.status !== 'paused') throw hasEnded(run, 'resumed')
    return {
      events: [...raised, await newEvent(core, 'run_resumed', data)],
      run: { status: 'pending', reason: null, due: { inMs: 0 }, hasProgress: true },
      ...delivers,
    }
  })
}

function resumeMessage(core: Core, key: RunKey, data: object): NewMessage {
  return { ...key, kind: 'resume', name: null, payload: core.codec.encode(data) }
}

/** Continues a failed run: the failures that failed it are reopened, everything else stays recorded. */
export async function retryRun(core: Core, key: RunKey, by?: string): Promise<void> {
  await control(core, key, async (run, asked) => {
    if (asked.isWritten || run.status === 'pending' || run.status === 'running' || run.status === 'waiting') return 'done'
    if (run.status !== 'failed') {
      throw new HoldfastError(
        'conflict',
        `Run "${run.id}" is ${run.status}; only a failed run can be retried${run.status === 'paused' ? '. Resume it instead' : ''}.`,
      )
    }
    await refuseWhereUndoneForGood(core, run)
    const { headSeq } = await refuseRewound(core, run, 'retried')
    const end = await readEnd(core, run)
    const reopened = (end?.data?.['failed'] as string[] | undefined) ?? []
    return {
      headSeq,
      events: [await newEvent(core, 'run_retried', { reopened, ...(by !== undefined && { by }) })],
      run: { status: 'pending', reason: null, due: { inMs: 0 }, hasProgress: true },
      isUndisturbed: true,
    }
  })
}

/** What was done before ctx.continueAs can't be repeated: a retry would continue as if it had not been undone. */
async function refuseWhereUndoneForGood({ store, codec }: Core, run: Run): Promise<void> {
  const { owner, threadId, id: runId, tapeSeq } = run
  if (tapeSeq === null) return
  const records = await store.readLog({ owner, threadId, runId, afterSeq: tapeSeq, types: ['step_undone'] })
  const isLost = ({ payload }: LogRecord) => {
    const { of, isOfEarlierTape } = codec.decode(payload as Payload) as { of: number; isOfEarlierTape?: boolean }
    return of < tapeSeq || isOfEarlierTape === true
  }
  const lost = records.filter(isLost)
  if (lost.length === 0) return
  const steps = lost.map(({ step }) => `"${step}"`).join(', ')
  throw new HoldfastError(
    'conflict',
    `Run "${runId}" can't be retried: what it did before ctx.continueAs was undone when it failed (${steps}) and can't be repeated. Start a new run.`,
    { details: { runId, status: run.status } },
  )
}

/** What to do with a run in its present status: send a request to its holder, change it, or wait and read it again. */
export type Action =
  | 'done'
  | { readonly waitUntil: number }
  | {
      readonly kind: 'pause' | 'cancel' | 'resume' | 'rollback'
      readonly by: string | undefined
      readonly to?: number
      /** The end of the log at the time of the request, to tell whether it was carried out since. */
      readonly since?: number
      readonly undo?: boolean
      readonly budget?: Budget
    }
  | {
      readonly events: readonly NewEvent[]
      readonly run?: RunChange
      readonly isUndisturbed?: boolean
      /** Applied only if the log still ends here. */
      readonly headSeq?: number
      readonly operation?: OperationChange
      readonly delivers?: readonly NewMessage[]
    }

/** What was done so far. */
export interface Asked {
  /** Its holder has a request in the inbox. */
  isRequested: boolean
  /** A change was written. */
  isWritten: boolean
  /** Of the holder that got the request last. If the run has ended since and was continued, the request is gone. */
  epoch: number
}

/**
 * Reads the run, decides, and acts on the condition that the run is unchanged; then reads again, until there is nothing left to do. Requests
 * to the run's holder go into its inbox.
 */
export async function control(
  core: Core,
  key: RunKey,
  decide: (run: Run, asked: Readonly<Asked>) => Promise<Action>,
): Promise<void> {
  const asked: Asked = { isRequested: false, isWritten: false, epoch: 0 }
  await core.waiters.watchesBegun(key)
  for (let refusals = 0; refusals < 50; ) {
    const run = await readRun(core, key)
    const action = await decide(run, asked)
    if (action === 'done') return
    if ('waitUntil' in action) {
      if (core.waiters.isClosed) throw new HoldfastError('closed', `Holdfast was closed while waiting for run "${key.runId}".`)
      await waitAtMost(core.waiters.next(key), Math.max(0, action.waitUntil - performance.now()), undefined)
    } else if ('kind' in action) {
      const { kind, by, to, since, undo, budget } = action
      const data = {
        ...(by !== undefined && { by }),
        ...(to !== undefined && { to, since }),
        ...(undo === false && { undo }),
        ...(budget !== undefined && { budget }),
      }
      const payload = Object.keys(data).length === 0 ? null : core.codec.encode(data)
      const answer = await core.store.deliver({ ...key, kind, name: null, payload })
      if (answer.ok) Object.assign(asked, { isRequested: true, epoch: run.epoch })
      else refusals++
    } else if (await write(core, key, run, action)) asked.isWritten = true
    else {
      refusals++
      await new Promise((resolve) => setTimeout(resolve, Math.min(50, refusals * 2)))
    }
  }
  throw new HoldfastError('conflict', `Run "${key.runId}" keeps changing; try again.`, { retryable: true })
}

/** Writes a change of a run that no worker holds. False: the run has changed since it was read. */
async function write(core: Core, key: RunKey, run: Run, action: Extract<Action, { events: unknown }>): Promise<boolean> {
  const { events, isUndisturbed, headSeq, operation, delivers = [] } = action
  const readMessages = action.run?.status === 'pending' ? await leftRequests(core, run) : []
  const answer = await core.committer.commit({
    owner: key.owner,
    threadId: run.threadId,
    runId: run.id,
    guard: {
      ...{ kind: 'run', epoch: run.epoch, status: run.status },
      ...(isUndisturbed && { undisturbed: true }),
      ...(headSeq !== undefined && { headSeq }),
    },
    events,
    ...(action.run !== undefined && { run: action.run }),
    isCheckpoint: events.length > 0,
    ...(operation !== undefined && { operation }),
    ...(delivers.length > 0 && { delivers }),
    ...(readMessages.length > 0 && { readMessages }),
  })
  if (answer.ok) {
    core.wakeWorker()
    core.waiters.runChanged(key.owner, key.runId)
  } else if (isUndisturbed && answer.refusal === 'conflict' && (await isDisturbed(core, run, headSeq))) throw disturbed(run)
  return answer.ok
}

/** Whether a later run of the thread was begun: neither the run nor the log has changed since they were read. */
async function isDisturbed(core: Core, run: Run, headSeq: number | undefined): Promise<boolean> {
  const { owner, threadId, id: runId, status } = run
  const thread = headSeq === undefined ? null : await core.store.readThread({ owner, threadId })
  return thread?.headSeq === headSeq && (await readRun(core, { owner, runId })).status === status
}

/**
 * Requests that arrived while the run was ending or pausing, and that its holder has not read: their callers know that it has ended or
 * paused. A caller that continues the run removes them, so that they do not stop it a second time.
 */
async function leftRequests(core: Core, { owner, id: runId, status }: Run): Promise<readonly number[]> {
  const isOver = isTerminal(status)
  if (!isOver && status !== 'paused') return []
  const isLeft = ({ kind }: Message) => kind === 'pause' || (isOver && (kind === 'cancel' || kind === 'rollback'))
  return (await core.store.readInbox({ owner, runId })).filter(isLeft).map(({ id }) => id)
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

export function hasEnded(run: Run, verb: string): HoldfastError {
  const help = run.status === 'failed' && verb === 'resumed' ? ' Use run.retry(), which continues it where it failed.' : ''
  return new HoldfastError('conflict', `Run "${run.id}" is ${run.status} and can't be ${verb}.${help}`, {
    details: { runId: run.id, status: run.status },
  })
}

function disturbed(run: Run): HoldfastError {
  return new HoldfastError(
    'conflict',
    `Run "${run.id}" can't be continued: a later run has been started on thread "${run.threadId}". Start a new run instead.`,
    { details: { runId: run.id, threadId: run.threadId } },
  )
}
