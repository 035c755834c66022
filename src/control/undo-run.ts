import { unbookedUsage } from '../engine/calls/child-end.ts'
import { rolledBackStretches, whereToRollBack } from '../engine/replay/rolled-back.ts'
import { type OpenQuestion, type RunPast, readRunPast } from '../engine/replay/run-past.ts'
import { endedSectionAround } from '../engine/replay/section-around.ts'
import type { Order } from '../engine/replay/tape.ts'
import { readOrigin } from '../engine/writing/run-origin.ts'
import { codeOf, HoldfastError } from '../model/errors.ts'
import type { LogRecord, NewEvent } from '../model/event.ts'
import type { Payload } from '../model/payload.ts'
import { isTerminal, type Run } from '../model/run.ts'
import { standingOf } from '../model/standing.ts'
import { addUsage, isNothing, noUsage, type UsageTotal } from '../model/usage.ts'
import type { NewMessage, RunKey } from '../store/store.ts'
import { type Action, type Asked, control, hasEnded } from './control-run.ts'
import type { Core } from './core.ts'
import { newEvent } from './new-event.ts'
import { readEnd } from './read-events.ts'
import { refuseRewound } from './rewind-thread.ts'
import { whereRunStands } from './where-run-stands.ts'

/** How long `cancel` and `rollback` wait until they are carried out. */
const waitMs = 10_000

export interface CancelOptions {
  readonly by?: string
  /** False: nothing is undone. Default true. */
  readonly undo?: boolean
  readonly waitMs?: number
  /** How long it may take until a worker claims the run. Default `waitMs`. */
  readonly pendingWaitMs?: number
}

/**
 * Cancels a run. A running one gets a request, which aborts its signal. Any other that has something to undo is claimed once more to undo
 * it. With `undo: false`, or with nothing to undo, it ends immediately, with its children and questions. Resolves when the run is
 * cancelled.
 */
export async function cancelRun(core: Core, key: RunKey, options: CancelOptions = {}): Promise<void> {
  const { by, undo = true } = options
  const since = performance.now()
  const until = since + (options.waitMs ?? waitMs)
  const untilTaken = since + (options.pendingWaitMs ?? options.waitMs ?? waitMs)
  const order: Order = { kind: 'cancel', by, ...(!undo && { undo }) }
  await control(core, key, async (run, asked) => {
    if (run.status === 'cancelled') return 'done'
    if (isTerminal(run.status)) throw hasEnded(run, 'cancelled')
    const wait = await patience(core, run, asked, 'cancel', run.status === 'pending' ? untilTaken : until)
    if (wait !== null) return wait
    if (run.status === 'running') return { kind: 'cancel', by, undo }
    // If an effect is resolved after this read, nothing is written, and this reads again.
    const read = undo ? { headSeq: await headOf(core, run) } : {}
    const past = await pastOf(core, run)
    if (undo && past.undoables.length + past.children.length > 0) {
      if (isStopped(run, asked) && !(await isToldToEnd(core, run))) throw await stopped(core, run, 'cancelled')
      return orderOf(core, run, order)
    }
    const isOpen = past.children.length + past.questions.length > 0
    if (isOpen && !(await isToldToEnd(core, run))) {
      // It must not be claimed while what depends on it ends. If it is resumed during that, or after a crash in between, a worker ends it.
      const event = await newEvent(core, 'run_paused', { reason: 'undo', order })
      return { ...read, events: [event], run: { status: 'paused', reason: 'undo', due: 'never', setsEnd: true } }
    }
    await endChildren(core, key.owner, past, { by, waitMs: until - performance.now() })
    for (const question of past.questions) if (!(await closeQuestion(core, run, question))) return lookAgain
    const { events, usage } = await bookChildren(core, key.owner, past)
    return {
      ...read,
      events: [...events, await newEvent(core, 'run_cancelled', { ...(by !== undefined && { by }), ...usage })],
      run: { status: 'cancelled', reason: null, setsEnd: true },
      delivers: await wordToParent(core, run),
    }
  })
}

/** Undoes what a run did after a checkpoint, in reverse order; the run is then paused there. Resolves when it is. */
export async function rollbackRun(core: Core, key: RunKey, to: number, by?: string): Promise<void> {
  const until = performance.now() + waitMs
  let since: number | undefined
  await control(core, key, async (run, asked) => {
    if (since === undefined) since = await headOf(core, run)
    else if (await wasRolledBack(core, run, { to, since })) return 'done'
    if (run.status === 'cancelled') throw hasEnded(run, 'rolled back')
    if (to < run.inputSeq || (run.tapeSeq !== null && to < run.tapeSeq - 1)) {
      throw new HoldfastError(
        'conflict',
        `Run "${run.id}" can't be rolled back to ${run.threadId}@${to}: it had not been started then, or has called ctx.continueAs since. The earliest possible checkpoint is ${run.threadId}@${run.tapeSeq ?? run.inputSeq}.`,
        { details: { runId: run.id } },
      )
    }
    // Other runs of the thread may have executed since it was queued, and it must not undo what they did.
    if (run.tapeSeq === null && run.status !== 'running') {
      const message = `Run "${run.id}" has not begun yet: there is nothing to roll back. Cancel it, or wait until it has begun.`
      throw new HoldfastError('conflict', message, { details: { runId: run.id, status: run.status } })
    }
    await refuseRolledBack(core, run, to)
    // It may have ended since the request: its holder does not roll back to there either.
    await refuseInsideUndoable(core, run, to)
    const wait = await patience(core, run, asked, 'rollback', until)
    if (wait !== null) return wait
    await refuseWhereUndone(core, run, to)
    if (run.status === 'running') return { kind: 'rollback', by, to, since }
    if (isStopped(run, asked)) throw await stopped(core, run, 'rolled back')
    const isOver = isTerminal(run.status)
    const unchanged = isOver ? { isUndisturbed: true, ...(await refuseRewound(core, run, 'rolled back')) } : {}
    return { ...(await orderOf(core, run, { kind: 'rollback', to, by })), ...unchanged }
  })
}

async function headOf(core: Core, { owner, threadId }: Run): Promise<number> {
  return (await core.store.readThread({ owner, threadId }))?.headSeq ?? 0
}

/** Whether it was carried out since the request; the run may have been resumed in between. */
async function wasRolledBack(
  core: Core,
  run: Run,
  { to, since }: { readonly to: number; readonly since: number },
): Promise<boolean> {
  const { owner, threadId, id: runId } = run
  const records = await core.store.readLog({ owner, threadId, runId, afterSeq: since, types: ['run_rolled_back'] })
  return records.some(({ payload }) => payload !== null && (core.codec.decode(payload) as { to: number }).to === to)
}

/** What was rolled back was undone, so the run can't be rolled back to there. */
async function refuseRolledBack(core: Core, run: Run, to: number): Promise<void> {
  const { owner, threadId, id: runId } = run
  const records = await core.store.readLog({ owner, threadId, runId, afterSeq: to, types: ['run_rolled_back'] })
  const stretches = rolledBackStretches(records, runId, ({ payload }) => core.codec.decode(payload as Payload) as never)
  const there = whereToRollBack(stretches, to)
  if (there === to) return
  throw new HoldfastError(
    'conflict',
    `What run "${run.id}" did up to ${threadId}@${to} was rolled back already. Roll it back to ${threadId}@${there} instead, or to a checkpoint after ${threadId}@${stretches.at(-1)?.to}.`,
    { details: { runId } },
  )
}

/** If something before the checkpoint was undone since, the run must not continue as if it were still done. */
async function refuseWhereUndone(core: Core, run: Run, to: number): Promise<void> {
  const { owner, threadId, id: runId } = run
  const records = await core.store.readLog({ owner, threadId, runId, afterSeq: to, types: ['step_undone'] })
  const isMissing = ({ payload }: LogRecord) => {
    const { of, isOfEarlierTape } = core.codec.decode(payload as Payload) as { of: number; isOfEarlierTape?: boolean }
    return of <= to || isOfEarlierTape === true
  }
  const missing = records.filter(isMissing)
  if (missing.length === 0) return
  const steps = missing.map(({ step }) => `"${step}"`).join(', ')
  throw new HoldfastError(
    'conflict',
    `Run "${runId}" can't be rolled back to ${threadId}@${to}: what it did before that was undone since (${steps}). ` +
      `Choose a checkpoint before that${run.status === 'failed' ? ', or retry() the run, which repeats it' : ''}.`,
    { details: { runId, status: run.status } },
  )
}

/** A section is undone as a whole: what was done in it before the checkpoint would be undone, and not repeated. */
async function refuseInsideUndoable(core: Core, run: Run, to: number): Promise<void> {
  const { owner, threadId, id: runId, tapeSeq } = run
  const around = await endedSectionAround(core, { owner, threadId, runId, afterSeq: (tapeSeq ?? 1) - 1 }, to)
  if (around === undefined) return
  throw new HoldfastError(
    'conflict',
    `Run "${runId}" can't be rolled back to ${threadId}@${to}, which is inside "${around.step}", whose undo undoes all of it. ` +
      `Roll back to before it (${threadId}@${around.seq - 1}), or to a checkpoint after it.`,
    { details: { runId, status: run.status, step: around.step } },
  )
}

const lookAgain: Action = { waitUntil: 0 }

/** The worker that carried it out has stopped in the middle of it. */
function isStopped({ status, reason }: Run, { isRequested, isWritten }: Asked): boolean {
  if (status !== 'paused') return false
  return reason === 'undo' ? isRequested || isWritten : isWritten && reason !== 'asked'
}

/** Waits while the request is being carried out, but not forever. */
async function patience(core: Core, run: Run, asked: Asked, what: 'cancel' | 'rollback', until: number): Promise<Action | null> {
  const isAsked = asked.isRequested || asked.isWritten
  const isReached = asked.isWritten || asked.epoch === run.epoch
  const isUnderWay = run.status === 'running' ? isAsked && isReached : run.status === 'pending' && asked.isWritten
  if (!isAsked || (!isUnderWay && performance.now() < until) || isStopped(run, asked)) return null
  if (performance.now() < until) return { waitUntil: until }
  const { is, help } = await whereRunStands(core, run)
  // For a running one there is nothing more to say.
  const more = run.status === 'running' ? '' : help
  throw new HoldfastError(
    'timeout',
    `Run "${run.id}" has a request to be ${what === 'cancel' ? 'cancelled' : 'rolled back'} and is still ${is}. It will be carried out; check again later. ${more}`.trim(),
    { retryable: true, details: { runId: run.id, status: run.status } },
  )
}

/** The run is claimed once more, to do this instead of continuing. */
async function orderOf(core: Core, run: Run, order: Order) {
  // A function that crashed its workers is not called again for this, unless the run was resumed since.
  const isDeadly =
    run.status === 'paused' && (run.reason === 'poisoned' || (run.reason === 'undo' && (await isUnreplayed(core, run))))
  return {
    events: [await newEvent(core, 'run_resumed', { order: isDeadly ? { ...order, replays: false } : order })],
    run: { status: 'pending', reason: null, due: { inMs: 0 }, hasProgress: true },
  } as const
}

async function isUnreplayed(core: Core, run: Run): Promise<boolean> {
  const order = (await readEnd(core, run))?.data?.['order'] as Order | undefined
  return order?.replays === false
}

/** It was paused so that no worker claims it while what depends on it ends, not because an undo failed. */
async function isToldToEnd(core: Core, run: Run): Promise<boolean> {
  if (run.status !== 'paused' || run.reason !== 'undo') return false
  const end = await readEnd(core, run)
  return (end?.data?.['order'] as Order | undefined)?.kind === 'cancel' && end?.error === undefined
}

const nothing: RunPast = { undoables: [], children: [], questions: [], usage: noUsage, usageOfChildren: new Map() }

async function pastOf(core: Core, run: Run): Promise<RunPast> {
  return run.tapeSeq === null ? nothing : readRunPast(core, run, 'all tapes')
}

/** The request was not carried out: an undo failed or can't be found, or the run can't be continued. */
async function stopped(core: Core, run: Run, verb: string): Promise<HoldfastError> {
  const end = await readEnd(core, run)
  const { is, help } = standingOf(run)
  // The error of an undo says itself what helps.
  const why = end?.error === undefined ? help : end.error.message
  return new HoldfastError('conflict', `Run "${run.id}" could not be ${verb} and is ${is}: ${why}`, {
    ...(end?.error !== undefined && { cause: end.error }),
    details: { runId: run.id, status: run.status, reason: run.reason },
  })
}

/** They end immediately, like the run itself. */
async function endChildren(
  core: Core,
  owner: string,
  { children }: RunPast,
  options: { readonly by: string | undefined; readonly waitMs: number },
): Promise<void> {
  const { by, waitMs: limitMs } = options
  const cancel = async ({ runId }: { readonly runId: string }) => {
    try {
      await cancelRun(core, { owner, runId }, { undo: false, waitMs: limitMs, ...(by !== undefined && { by }) })
    } catch (error) {
      const hasItsEnd = isTerminal((error as HoldfastError).details?.['status'] as Run['status'])
      if (codeOf(error) !== 'run_not_found' && !(codeOf(error) === 'conflict' && hasItsEnd)) throw error
    }
  }
  await Promise.all(children.map(cancel))
}

/** The usage of children that have ended, and the run's usage including that, which the run that started it adds to its own. */
async function bookChildren(
  core: Core,
  owner: string,
  past: RunPast,
): Promise<{ readonly events: readonly NewEvent[]; readonly usage: { readonly usage?: UsageTotal } }> {
  const events: NewEvent[] = []
  let { usage } = past
  for (const child of past.children) {
    const booked = addUsage(past.usageOfChildren.get(child.runId) ?? noUsage, child.booked ?? {})
    const used = await unbookedUsage(core, owner, child, booked)
    if (used === null) continue
    events.push(await newEvent(core, 'usage_recorded', { ...used, child: child.runId }))
    usage = addUsage(usage, used)
  }
  return { events, usage: isNothing(usage) ? {} : { usage } }
}

/** False: the run has changed since it was read. A question that was answered in between is closed as well. */
async function closeQuestion(core: Core, run: Run, { key }: OpenQuestion): Promise<boolean> {
  const { owner, threadId, id: runId, epoch, status } = run
  const operation = await core.store.readOperation({ owner, key })
  if (operation === null || operation.runId !== runId || (operation.status !== 'unsure' && operation.status !== 'intended'))
    return true
  const answer = await core.committer.commit({
    ...{ owner, threadId, runId, events: [], isCheckpoint: false },
    guard: { kind: 'run', epoch, status },
    operation: { kind: 'fail', key },
  })
  return answer.ok
}

/** A run that ends without being executed notifies the run that waits for it nevertheless. */
async function wordToParent(core: Core, run: Run): Promise<readonly NewMessage[]> {
  const { owner, threadId, inputSeq } = run
  const [record] = await core.store.readLog({ owner, threadId, afterSeq: inputSeq - 1, toSeq: inputSeq })
  const parent = record?.payload == null ? undefined : readOrigin(core.codec, record.payload).origin.parent
  return parent === undefined ? [] : [{ owner, runId: parent, kind: 'child', name: run.id, payload: null }]
}
