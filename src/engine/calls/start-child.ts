import type { CallOptions, ChildOptions } from '../../define/context.ts'
import { tagSource } from '../../define/failure-source.ts'
import type { AnyWorkflow } from '../../define/workflow.ts'
import { HoldfastError } from '../../model/errors.ts'
import { checkId } from '../../model/ids.ts'
import type { Payload } from '../../model/payload.ts'
import { isTerminal, type Run } from '../../model/run.ts'
import { type Budget, checkBudget } from '../../model/usage.ts'
import type { NewRun } from '../../store/change.ts'
import type { CallHost } from '../execution/call-host.ts'
import type { RecordedUndo } from '../undo/undoable.ts'
import { isSameStart, newRun, recordedFingerprint } from '../writing/new-run.ts'
import { type RunOrigin, readOrigin } from '../writing/run-origin.ts'
import { askPatiently } from './ask-patiently.ts'
import type { Call } from './calls.ts'
import { reportMissing } from './report-missing.ts'
import { recordedUndo } from './undo-option.ts'

/** After an outage of the store. */
export const askAgain = { inMs: 1_000, reason: 'child' } as const

/** What child_started says. */
export interface ChildData {
  readonly runId: string
  readonly threadId: string
  readonly workflow: string
  /** Of workflow and input: a replay that calls something else is a mismatch. */
  readonly fingerprint?: string
  readonly isDetached?: boolean
  /** It was started elsewhere before, under the same id: it is waited for, and lives on when this run ends. */
  readonly isOther?: boolean
  /** How what it did is taken back, once it has completed. */
  readonly undo?: RecordedUndo
  /** What it was given of this run's budget. */
  readonly budget?: Budget
}

/** What is called. This process need not have the workflow itself. */
export interface Callee {
  readonly name: string
  readonly version: number
  readonly options: Partial<AnyWorkflow['options']>
  readonly isUnknown?: true
}

/** The input of a child: the fingerprint of what the function gave, where there is a schema, and what that made of it. */
export interface ChildInput {
  readonly given: string | undefined
  readonly checked: unknown
}

/** From here on it ends with the run. Until it is written, its place in the log is after everything. */
export function ownChild(host: CallHost, call: Call, child: ChildData, seq = Number.MAX_SAFE_INTEGER): void {
  if (child.isDetached === true || child.isOther === true) return
  const { runId, undo } = child
  host.dependents.child({ call: call.key, seq, runId, ...(undo !== undefined && { undo }) })
}

export async function startChild(
  host: CallHost,
  call: Call,
  workflow: Callee,
  { given, checked }: ChildInput,
  options: ChildOptions,
): Promise<ChildData> {
  const { owner, runId } = host.run
  const id = options.id === undefined ? host.calls.newName(call) : await freeId(host, call, checkId('run id', options.id))
  const threadId = options.threadId === undefined ? id : checkId('thread id', options.threadId)
  const isDetached = options.detached === true
  if (!isDetached) refuseOwnThread(host, id, threadId)
  const counted = host.budget.count(call)
  if (counted !== null) await counted
  const { scheduledAt } = options
  const limits = isDetached ? null : ownBudget(host, workflow, options)
  const budget = limits === null || !host.budget.account.isLimited ? limits : await host.budget.shareFor(call, limits)
  const origin = {
    ...(!isDetached && { parent: runId, ...(budget !== null && { budget }) }),
    ...(isDetached && options.id === undefined && { startedBy: runId }),
    ...(scheduledAt !== undefined && { scheduledAt }),
    ...((scheduledAt === undefined ? workflow.isUnknown === true : options.unchecked === true) && { unchecked: true }),
  }
  const run = newRun(host.run.codec, checked, origin, {
    ...{ owner, id, threadId, workflow: workflow.name, version: workflow.version, given },
    queue: checkId('queue name', options.queue ?? workflow.options.queue ?? 'default'),
    priority: options.priority ?? workflow.options.priority ?? 0,
    ...{ due: { inMs: 0 }, ifBusy: 'queue', at: host.clock.now() },
  })
  const known = await askPatiently(host, call, () => host.run.store.readRun({ owner, runId: id }), askAgain)
  const isOther = known !== null && !(await isOwnChild(host, call, known, run, options))
  if (!isDetached && (options.threadId !== undefined || known !== null)) await refuseDeadlock(host, call, known ?? run)
  const data: ChildData = {
    ...{ runId: id, threadId, workflow: workflow.name, fingerprint: run.fingerprint },
    ...(isDetached && { isDetached }),
    ...(isOther ? { isOther } : options.undo !== undefined && { undo: recordedUndo(options.undo) }),
    ...(budget !== null && host.budget.account.isLimited && { budget }),
  }
  if (workflow.isUnknown === true && known === null) reportMissing(host.run.engine, { ...run, needs: `Run "${id}" needs` })
  const event = host.journal.event('child_started', call, { data: { ...data } })
  if (!host.admission.isOpen) await host.admission.pass(call)
  if (isDetached) {
    await host.journal.commitResult([event], { creates: [run] })
    host.run.engine.wakeWorker()
    return data
  }
  ownChild(host, call, data)
  const answer = await host.journal.commit([event], { creates: [run], hasProgress: true })
  ownChild(host, call, data, answer.lastSeq)
  host.run.engine.wakeWorker()
  const [created] = answer.created
  // Another client was faster.
  if (known !== null || created?.isNew !== false || (await isOwnChild(host, call, created.run, run, options))) return data
  host.dependents.settled(call.key)
  return { ...data, isOther: true }
}

/** The id that the function gives. A child of it that was undone, or ended by a rollback, is not taken for the next one, which gets an id like it. */
async function freeId(host: CallHost, call: Call, given: string): Promise<string> {
  const { owner, runId, tape } = host.run
  for (let count = 0, id = given; ; id = `${given}~${++count}`) {
    if (tape.undoneChildren.has(id)) continue
    if (!tape.rollbacks.has(call.key)) return id
    const known = await askPatiently(host, call, () => host.run.store.readRun({ owner, runId: id }), askAgain)
    if (known?.status !== 'cancelled') return id
    if ((await askPatiently(host, call, () => originOf(host, known), askAgain)).parent !== runId) return id
  }
}

/** A child on the thread of the run that waits for it would wait for that run. */
function refuseOwnThread(host: CallHost, id: string, threadId: string): void {
  const { runId } = host.run
  if (threadId !== host.run.claim.run.threadId && id !== runId) return
  throw new HoldfastError(
    'invalid_input',
    `Run "${runId}" can't call a child on its own thread "${host.run.claim.run.threadId}": each would wait for the other. ` +
      'Leave threadId out, give the child another thread, or start it with detached: true.',
    { details: { runId, threadId } },
  )
}

/** Nor may it stand behind a run that waits for this one, be it through others. */
async function refuseDeadlock(host: CallHost, call: Call, child: Pick<Run, 'id' | 'threadId'> & Partial<Run>): Promise<void> {
  if (child.status !== undefined && isTerminal(child.status)) return
  const { owner, runId } = host.run
  if (child.threadId === host.run.claim.run.threadId) return failStart(host, call, waitsFor(host, child, runId))
  for (let id = host.run.origin.parent; id !== undefined; ) {
    const ancestorId = id
    const ancestor = await askPatiently(host, call, () => host.run.store.readRun({ owner, runId: ancestorId }), askAgain)
    if (ancestor === null || isTerminal(ancestor.status)) return
    if (ancestor.threadId === child.threadId) return failStart(host, call, waitsFor(host, child, ancestorId))
    id = (await askPatiently(host, call, () => originOf(host, ancestor), askAgain)).parent
  }
}

function waitsFor({ run: { runId } }: CallHost, child: Pick<Run, 'id' | 'threadId'>, waiting: string): HoldfastError {
  return new HoldfastError(
    'invalid_input',
    `Run "${runId}" can't call "${child.id}" on thread "${child.threadId}": run "${waiting}" of that thread waits for it, so each ` +
      'would wait for the other. Give the child another thread.',
    { details: { runId: child.id, threadId: child.threadId } },
  )
}

/**
 * A run that has the id already is what is called only if it is what would be started: the same workflow and input and, where the id is
 * a default one or the run has a parent, the same parent. One that the function names by its id and that no other run has called is
 * waited for; says false of it.
 */
async function isOwnChild(host: CallHost, call: Call, known: Run, run: NewRun, options: ChildOptions): Promise<boolean> {
  const { runId } = host.run
  const ofChecked = () => recordedFingerprint(host.run.codec, run.workflow, run.queued.payload as Payload)
  const isSame = isSameStart(known.fingerprint, run.fingerprint, ofChecked)
  const isNamed = options.id !== undefined
  if (isSame && isNamed && options.detached === true) return false
  const { parent, startedBy } = isSame ? await askPatiently(host, call, () => originOf(host, known), askAgain) : {}
  if (isSame && (options.detached === true ? startedBy : parent) === runId) return true
  if (isSame && isNamed && parent === undefined) return false
  const why = !isSame
    ? `exists with another input or workflow ("${known.workflow}")`
    : parent === undefined
      ? 'was not started by it'
      : `is a child of run "${parent}"`
  const error = new HoldfastError(
    'input_mismatch',
    `Run "${known.id}" ${why}, so run "${runId}" can't call it under this id. Use another id.`,
    { details: { runId: known.id } },
  )
  return failStart(host, call, error, known.id)
}

/** What a run was started with besides its input. */
async function originOf({ run: { store, codec } }: CallHost, { owner, threadId, inputSeq }: Run): Promise<RunOrigin> {
  const [record] = await store.readLog({ owner, threadId, afterSeq: inputSeq - 1, toSeq: inputSeq })
  return record?.payload == null ? {} : readOrigin(codec, record.payload).origin
}

/** The limits that a child has, however it is called. Null where it has none, and gets none. */
export function ownBudget({ budget: { account } }: CallHost, workflow: Callee, options: CallOptions): Budget | null {
  const own = options.budget === undefined ? workflow.options.budget : checkBudget(options.budget, `child "${workflow.name}"`)
  return own ?? (account.isLimited ? {} : null)
}

/** Nothing was started: the call fails, now and at every replay. */
async function failStart(host: CallHost, call: Call, error: HoldfastError, runId?: string): Promise<never> {
  host.dependents.settled(call.key)
  host.budget.account.endGrant(call.key)
  const event = host.journal.event('child_completed', call, { data: { ...(runId !== undefined && { runId }), error } })
  await host.journal.commitResult([event], { failureOf: call.key })
  throw tagSource(error, [call.key])
}
