import { crc32 } from 'node:zlib'
import type { CallOptions, ChildOptions } from '../../define/context.ts'
import { tagSource } from '../../define/failure-source.ts'
import type { AnyWorkflow } from '../../define/workflow.ts'
import { codeOf, HoldfastError } from '../../model/errors.ts'
import { checkId } from '../../model/ids.ts'
import { isInternal } from '../../model/internal.ts'
import type { Payload } from '../../model/payload.ts'
import { restoreAdvice } from '../../model/restore-advice.ts'
import { isTerminal, type Run } from '../../model/run.ts'
import { toStorableError } from '../../model/stored-error.ts'
import { type Budget, checkBudget, lower, noUsage, usedSince } from '../../model/usage.ts'
import type { NewRun } from '../../store/change.ts'
import type { RunKey } from '../../store/store.ts'
import { type Execution, never } from '../execution/execution.ts'
import type { OverBudget } from '../limits/account.ts'
import type { RecordedUndo } from '../undo/undos.ts'
import { budgetKey, nudgeKey } from '../waiting/run-inbox.ts'
import { isOutage } from '../writing/committer.ts'
import { givenFingerprint, isSameStart, newRun, recordedFingerprint, runFingerprint } from '../writing/new-run.ts'
import { type RunOrigin, readOrigin } from '../writing/run-origin.ts'
import type { Call } from './calls.ts'
import { type RunEnd, readEnd } from './child-end.ts'
import { refuseOtherVersion } from './other-version.ts'
import { reportMissing } from './report-missing.ts'
import { resultOf } from './step.ts'
import { recordedUndo, takeUndo } from './undo-option.ts'

/** A child says in its last commit that it has ended. One whose thread was deleted says nothing: it is looked at now and then. */
const lookAgainMs = 600_000
/** A run that was there before, and does not know of this one, is looked at more often. */
const lookAtOthersMs = 5_000
/** After an outage of the store. */
const askAgainMs = 1_000

/** What child_started says. */
interface ChildData {
  readonly runId: string
  readonly threadId: string
  readonly workflow: string
  /** Of workflow and input: a replay that calls something else is a mismatch. */
  readonly fingerprint?: string
  readonly isDetached?: boolean
  /** It was started by somebody else before, under the same id: it is waited for, and lives on when this run ends. */
  readonly isOther?: boolean
  /** How what it did is taken back, once it has completed. */
  readonly undo?: RecordedUndo
  /** What it was given of this run's budget. */
  readonly budget?: Budget
}

/** What is called. This process need not have the workflow itself. */
interface Callee {
  readonly name: string
  readonly version: number
  readonly options: Partial<AnyWorkflow['options']>
  readonly isUnknown?: true
}

/** The input of a child: the fingerprint of what the function gave, where there is a schema, and what that made of it. */
interface ChildInput {
  readonly given: string | undefined
  readonly checked: unknown
}

/** Starts a child in the commit that says so, then waits for its end as a row, holding no worker. */
export async function callChild(
  execution: Execution,
  call: Call,
  workflowOrName: AnyWorkflow | string,
  input: unknown,
  options: ChildOptions,
): Promise<unknown> {
  if (options.undo !== undefined) {
    if (options.detached === true) throw detachedUndo(call)
    takeUndo(execution, call, options.undo)
  }
  if (typeof workflowOrName !== 'string' && call.history === undefined)
    refuseOtherVersion(workflowOrName, options.version, 'started')
  const workflow = findCallee(execution, workflowOrName, options.version)
  const schema = options.scheduledAt === undefined ? workflow.options.input : undefined
  const given = schema === undefined ? undefined : givenFingerprint(execution.codec, workflow.name, input)
  const checked =
    schema === undefined ? input : await execution.validate(schema, input, `The input of workflow "${workflow.name}"`)
  const begun = call.history?.begun
  const started = begun?.data as ChildData | undefined
  if (started !== undefined && callsSomethingElse(execution, started, workflow, { given, checked }))
    return pauseOnOtherCall(execution, call, started, workflow)
  if (call.history?.outcome !== undefined) {
    const outcome = await execution.recorded(call)
    if (options.detached !== true) return resultOf(execution, call, outcome)
    const { runId: id, threadId } = execution.codec.decode(outcome.payload as Payload) as ChildData
    return { id, threadId }
  }
  // Before it waits for its turn: a run that is taken up to be cancelled never gets there.
  if (started !== undefined) own(execution, call, started, begun?.seq)
  if (!execution.isOpen) await execution.pass(call)
  const child = started ?? (await start(execution, call, workflow, { given, checked }, options))
  if (options.detached === true) return { id: child.runId, threadId: child.threadId }
  return awaitChild(execution, call, child, ownBudget(execution, workflow, options))
}

/** From here on it ends with the run. Until it is written, its place in the log is after everything. */
function own(execution: Execution, call: Call, child: ChildData, seq = Number.MAX_SAFE_INTEGER): void {
  if (child.isDetached === true || child.isOther === true) return
  const { runId, undo } = child
  execution.dependants.child({ call: call.key, seq, runId, ...(undo !== undefined && { undo }) })
}

function callsSomethingElse({ codec }: Execution, started: ChildData, workflow: Callee, { given, checked }: ChildInput): boolean {
  if (started.fingerprint === undefined) return false
  const ofChecked = () => runFingerprint(codec, workflow.name, checked)
  return !isSameStart(started.fingerprint, given ?? ofChecked(), ofChecked)
}

function pauseOnOtherCall(execution: Execution, call: Call, started: ChildData, workflow: Callee): Promise<never> {
  const { runId } = execution
  const asked = workflow.name === started.workflow ? 'it with another input' : `"${workflow.name}"`
  execution.mismatch(
    new HoldfastError(
      'nondeterminism',
      `Child "${call.path}" (call ${call.count}) of run "${runId}" was started as "${started.runId}" of workflow "${started.workflow}"; ` +
        `the function calls ${asked} now. ${restoreAdvice(execution.workflow)}`,
      { details: { runId, step: call.path, recorded: [started.workflow], asked: [workflow.name] } },
    ),
  )
  return never()
}

function detachedUndo(call: Call): HoldfastError {
  return new HoldfastError(
    'invalid_input',
    `"${call.path}" is called with detached: true and an undo. A detached run lives on its own: leave one of them out.`,
  )
}

function findCallee(execution: Execution, workflowOrName: AnyWorkflow | string, version: number | undefined): Callee {
  if (typeof workflowOrName !== 'string') {
    execution.registry.add(workflowOrName)
    return workflowOrName
  }
  const name = checkId('workflow name', workflowOrName)
  if (isInternal(name)) throw new HoldfastError('invalid_input', `Workflow "${name}" is Holdfast's own and can't be called.`)
  if (version !== undefined && !(Number.isSafeInteger(version) && version >= 1))
    throw new HoldfastError('invalid_input', `version is ${String(version)}; it must be a whole number of at least 1.`)
  const known = version === undefined ? execution.registry.latest(name) : execution.registry.get(name, version)
  return known ?? { name, version: version ?? 1, options: {}, isUnknown: true }
}

async function start(
  execution: Execution,
  call: Call,
  workflow: Callee,
  { given, checked }: ChildInput,
  options: ChildOptions,
): Promise<ChildData> {
  const { owner, runId } = execution
  const id =
    options.id === undefined ? execution.calls.newName(call) : await freeId(execution, call, checkId('run id', options.id))
  const threadId = options.threadId === undefined ? id : checkId('thread id', options.threadId)
  const isDetached = options.detached === true
  if (!isDetached) refuseOwnThread(execution, id, threadId)
  if (execution.account.isLimited) await execution.budget.admit(call)
  else execution.account.countStep()
  const { scheduledAt } = options
  const limits = isDetached ? null : ownBudget(execution, workflow, options)
  const budget = limits === null || !execution.account.isLimited ? limits : await execution.budget.shareFor(call, limits)
  const origin = {
    ...(!isDetached && { parent: runId, ...(budget !== null && { budget }) }),
    ...(isDetached && options.id === undefined && { startedBy: runId }),
    ...(scheduledAt !== undefined && { scheduledAt }),
    ...((scheduledAt === undefined ? workflow.isUnknown === true : options.unchecked === true) && { unchecked: true }),
  }
  const run = newRun(execution.codec, checked, origin, {
    ...{ owner, id, threadId, workflow: workflow.name, version: workflow.version, given },
    queue: checkId('queue name', options.queue ?? workflow.options.queue ?? 'default'),
    priority: options.priority ?? workflow.options.priority ?? 0,
    ...{ due: { inMs: 0 }, ifBusy: 'queue', at: execution.now() },
  })
  const known = await patiently(execution, call, () => execution.store.readRun({ owner, runId: id }))
  const isOther = known !== null && !(await isOwnChild(execution, call, known, run, options))
  if (!isDetached && (options.threadId !== undefined || known !== null)) await refuseDeadlock(execution, call, known ?? run)
  const data: ChildData = {
    ...{ runId: id, threadId, workflow: workflow.name, fingerprint: run.fingerprint },
    ...(isDetached && { isDetached }),
    ...(isOther ? { isOther } : options.undo !== undefined && { undo: recordedUndo(options.undo) }),
    ...(budget !== null && execution.account.isLimited && { budget }),
  }
  if (workflow.isUnknown === true && known === null) reportMissing(execution, { ...run, needs: `Run "${id}" needs` })
  const event = execution.event('child_started', call, { data: { ...data } })
  if (!execution.isOpen) await execution.pass(call)
  if (isDetached) {
    await execution.commitResult([event], { creates: [run] })
    execution.wakeWorker()
    return data
  }
  own(execution, call, data)
  const answer = await execution.commit([event], { creates: [run], hasProgress: true })
  own(execution, call, data, answer.lastSeq)
  execution.wakeWorker()
  const [created] = answer.created
  // Somebody was faster.
  if (known !== null || created?.isNew !== false || (await isOwnChild(execution, call, created.run, run, options))) return data
  execution.dependants.settled(call.key)
  return { ...data, isOther: true }
}

/** The id that the function gives. A child of it that was undone, or ended by a rollback, is not taken for the next one, which gets an id like it. */
async function freeId(execution: Execution, call: Call, given: string): Promise<string> {
  const { owner, runId, tape } = execution
  for (let count = 0, id = given; ; id = `${given}~${++count}`) {
    if (tape.undoneChildren.has(id)) continue
    if (!tape.rollbacks.has(call.key)) return id
    const known = await patiently(execution, call, () => execution.store.readRun({ owner, runId: id }))
    if (known?.status !== 'cancelled') return id
    if ((await patiently(execution, call, () => originOf(execution, known))).parent !== runId) return id
  }
}

/** A child on the thread of the run that waits for it would wait for that run. */
function refuseOwnThread(execution: Execution, id: string, threadId: string): void {
  const { runId } = execution
  if (threadId !== execution.claim.run.threadId && id !== runId) return
  throw new HoldfastError(
    'invalid_input',
    `Run "${runId}" can't call a child on its own thread "${execution.claim.run.threadId}": each would wait for the other. ` +
      'Leave threadId out, give the child a thread of its own, or start it with detached: true.',
    { details: { runId, threadId } },
  )
}

/** Nor may it stand behind a run that waits for this one, be it through others. */
async function refuseDeadlock(
  execution: Execution,
  call: Call,
  child: Pick<Run, 'id' | 'threadId'> & Partial<Run>,
): Promise<void> {
  if (child.status !== undefined && isTerminal(child.status)) return
  const { owner, runId } = execution
  if (child.threadId === execution.claim.run.threadId) return failStart(execution, call, waitsFor(execution, child, runId))
  for (let id = execution.origin.parent; id !== undefined; ) {
    const ancestorId = id
    const ancestor = await patiently(execution, call, () => execution.store.readRun({ owner, runId: ancestorId }))
    if (ancestor === null || isTerminal(ancestor.status)) return
    if (ancestor.threadId === child.threadId) return failStart(execution, call, waitsFor(execution, child, ancestorId))
    id = (await patiently(execution, call, () => originOf(execution, ancestor))).parent
  }
}

function waitsFor({ runId }: Execution, child: Pick<Run, 'id' | 'threadId'>, waiting: string): HoldfastError {
  return new HoldfastError(
    'invalid_input',
    `Run "${runId}" can't call "${child.id}" on thread "${child.threadId}": run "${waiting}" of that thread waits for it, so each ` +
      'would wait for the other. Give the child a thread of its own.',
    { details: { runId: child.id, threadId: child.threadId } },
  )
}

/**
 * A run that has the id already is what is called only if it is what would be started: the same workflow and input and, where the id is
 * a default one or the run has a parent, the same parent. One that the function names by its id and that nobody else has called is
 * waited for; says false of it.
 */
async function isOwnChild(execution: Execution, call: Call, known: Run, run: NewRun, options: ChildOptions): Promise<boolean> {
  const { runId } = execution
  const ofChecked = () => recordedFingerprint(execution.codec, run.workflow, run.queued.payload as Payload)
  const isSame = isSameStart(known.fingerprint, run.fingerprint, ofChecked)
  const isNamed = options.id !== undefined
  if (isSame && isNamed && options.detached === true) return false
  const { parent, startedBy } = isSame ? await patiently(execution, call, () => originOf(execution, known)) : {}
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
  return failStart(execution, call, error, known.id)
}

/** What a run was started with besides its input. */
async function originOf({ store, codec }: Execution, { owner, threadId, inputSeq }: Run): Promise<RunOrigin> {
  const [record] = await store.readLog({ owner, threadId, afterSeq: inputSeq - 1, toSeq: inputSeq })
  return record?.payload == null ? {} : readOrigin(codec, record.payload).origin
}

/** The limits that a child has whoever calls it. Null where it has none, and gets none. */
function ownBudget({ account }: Execution, workflow: Callee, options: CallOptions): Budget | null {
  const own = options.budget === undefined ? workflow.options.budget : checkBudget(options.budget, `child "${workflow.name}"`)
  return own ?? (account.isLimited ? {} : null)
}

/**
 * A child that has used up what it was given is given more, where there is more by now. Says whether it was, or is no longer as it was read: it
 * has to be looked at again.
 */
async function giveMore(execution: Execution, call: Call, run: Run, own: Budget | null): Promise<boolean> {
  const { account, owner } = execution
  if (own === null || !account.isLimited) return false
  const end = await patiently(execution, call, async () => readEnd(execution, run))
  if (end === null) return true
  const { what, limit, used, asked } = ((end.error as HoldfastError | undefined)?.details ?? {}) as Partial<OverBudget>
  if (what === undefined || what === 'repeats' || limit === undefined || used === undefined) return false
  const budget = lower(own, account.leftFor(call.key))
  const given = budget[what as keyof Budget]
  if (given === undefined || given <= limit || given < used + (asked ?? (what === 'steps' ? 1 : 0))) return false
  await patiently(execution, call, () => execution.steering.resume({ owner, runId: run.id }, { budget: { [what]: given } }))
  account.grant(call.key, budget)
  return true
}

async function awaitChild(execution: Execution, call: Call, child: ChildData, own: Budget | null): Promise<unknown> {
  const key = { owner: execution.owner, runId: child.runId }
  // Its failure failed this run once, and this run was retried: so is the child. When it fails again, that is another failure.
  let isReopened = call.history?.wasReopened === true
  const isThatFailure = ({ endSeq }: Run) => call.history?.childEndSeq === undefined || call.history.childEndSeq === endSeq
  const mail = nudgeKey('child', child.runId)
  let isShort = false
  for (let mustLook = isReopened || !willHear(execution, call, child), heard = 0; ; ) {
    if (!mustLook && execution.mailbox.nudgeCount(mail) === heard) {
      const dueAt = child.isOther === true ? execution.now() + lookAtOthersMs : nextLook(execution)
      await pause(execution, call, dueAt, isShort ? [mail, budgetKey] : [mail])
      mustLook = isShort || execution.now() >= dueAt
      continue
    }
    heard = execution.mailbox.nudgeCount(mail)
    const nudges = execution.mailbox.takeNudges(mail)
    const run = await patiently(execution, call, () => execution.store.readRun(key))
    if (run !== null && run.status === 'failed' && isReopened && isThatFailure(run)) {
      await patiently(execution, call, () => retryChild(execution, key))
      isReopened = false
    } else if (run === null || isTerminal(run.status)) {
      const end = run === null ? {} : await patiently(execution, call, () => readEnd(execution, run))
      if (end !== null) {
        execution.dependants.settled(call.key)
        return record(execution, call, child, { run, end, reads: nudges })
      }
      execution.mailbox.keepNudges(mail, nudges)
      mustLook = true
      continue
    } else if (run.status === 'paused' && run.reason === 'budget' && child.isOther !== true) {
      isShort = !(await giveMore(execution, call, run, own))
      mustLook = !isShort
      // Kept for who holds the run when it has more to give.
      if (isShort) execution.mailbox.keepNudges(mail, nudges)
      else execution.mailbox.settle(nudges)
      continue
    } else {
      mustLook = false
      isShort = false
    }
    execution.mailbox.settle(nudges)
  }
}

/** One that can't be retried, or was by somebody else, is taken as it is. */
async function retryChild({ steering }: Execution, key: RunKey): Promise<void> {
  await steering.retry(key).catch((error: unknown) => {
    if (codeOf(error) !== 'conflict') throw error
  })
}

/**
 * Whether the end of the child is in the run's mail, now or later, so that nobody has to look. A child tells its parent in its last commit, and the
 * message is there until the record of its end takes it out. A run that was not woken by a message looks all the same, and so does one that
 * was retried or rolled back after the start of the child: it did not take messages in between, or a record that took one out is forgotten.
 */
function willHear({ claim, tape }: Execution, call: Call, child: ChildData): boolean {
  if (child.isOther === true) return false
  if (call.history?.begun === undefined) return true
  if (call.history.begun.seq < tape.renewedSeq) return false
  const isTimeToLook = claim.run.dueAt !== null && (claim.run.dueAt - lookOffset(claim.run.id)) % lookAgainMs === 0
  return claim.hasMail && claim.takenFrom === null && !isTimeToLook
}

/** Store time at which the children of a run are looked at next. The same for all of them, and for whoever holds the run. */
function nextLook(execution: Execution): number {
  const offset = lookOffset(execution.runId)
  return offset + (Math.floor((execution.now() - offset) / lookAgainMs) + 1) * lookAgainMs
}

/** Runs do not look all at the same instant. */
function lookOffset(runId: string): number {
  return crc32(runId) % lookAgainMs
}

async function pause(execution: Execution, call: Call, dueAt: number, mail: readonly string[] = []): Promise<void> {
  await execution.park({ dueAt, rowDueAt: dueAt, reason: 'child', mail })
  if (!execution.isOpen) await execution.pass(call)
}

/** A store out of reach is waited for: it is no failure of the call. */
async function patiently<Answer>(execution: Execution, call: Call, ask: () => Promise<Answer>): Promise<Answer> {
  for (;;) {
    const asking = ask().then(
      (answer) => ({ answer }),
      (error: unknown) => {
        // One that may have been done is looked at and, where it was not, done again.
        if (!isOutage(error) && codeOf(error) !== 'outcome_unknown') throw error
        return null
      },
    )
    const answered = await execution.working(asking)
    if (answered !== null) return answered.answer
    await pause(execution, call, execution.now() + askAgainMs)
  }
}

/** Writes how the child ended: its output is the result of the call, its failure the failure. */
async function record(
  execution: Execution,
  call: Call,
  child: ChildData,
  { run, end, reads }: { run: Run | null; end: RunEnd; reads: readonly number[] },
): Promise<unknown> {
  const { output, error, usage: total } = end
  const usage = total && usedSince(total, execution.tape.usageOfChildren.get(child.runId) ?? noUsage)
  const failure = run?.status === 'completed' ? null : failureOf(child, run, error)
  // What a run did that somebody else had started is not ours to undo.
  const undo = failure === null && child.isOther !== true ? child.undo : undefined
  const data = {
    runId: child.runId,
    ...(usage !== undefined && { usage }),
    ...(undo !== undefined && { undo }),
    ...(failure !== null && run !== null && { endSeq: run.endSeq }),
    ...(failure !== null ? { error: toStorableError(failure) } : output !== undefined && { result: output }),
  }
  const event = execution.event('child_completed', call, { data })
  if (usage !== undefined) execution.account.add(usage)
  execution.account.endGrant(call.key)
  await execution.commitResult([event], {
    reads,
    ...(failure !== null && { failureOf: call.key }),
    ...(undo !== undefined && { undoable: { key: call.key, undo } }),
  })
  execution.budget.check()
  execution.tell(budgetKey)
  if (failure !== null) throw tagSource(failure, [call.key])
  return event.payload === null ? undefined : (execution.codec.decode(event.payload) as { result?: unknown }).result
}

function failureOf(child: ChildData, run: Run | null, error: Error | undefined): HoldfastError {
  const details = { runId: child.runId }
  if (run === null)
    return new HoldfastError('thread_deleted', `Child run "${child.runId}" is gone: its thread was deleted.`, { details })
  if (run.status === 'cancelled')
    return new HoldfastError('run_cancelled', `Child run "${child.runId}" was cancelled.`, { details })
  const message = `Child run "${child.runId}" of workflow "${child.workflow}" failed: ${error?.message ?? 'unknown error'}`
  return new HoldfastError('run_failed', message, { details, ...(error !== undefined && { cause: error }) })
}

/** Nothing was started: the call fails, now and at every replay. */
async function failStart(execution: Execution, call: Call, error: HoldfastError, runId?: string): Promise<never> {
  execution.dependants.settled(call.key)
  execution.account.endGrant(call.key)
  const event = execution.event('child_completed', call, { data: { ...(runId !== undefined && { runId }), error } })
  await execution.commitResult([event], { failureOf: call.key })
  throw tagSource(error, [call.key])
}
