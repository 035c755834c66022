import { crc32 } from 'node:zlib'
import type { ChildOptions } from '../../define/context.ts'
import { tagSource } from '../../define/failure-source.ts'
import type { AnyWorkflow } from '../../define/workflow.ts'
import { codeOf, HoldfastError } from '../../model/errors.ts'
import { checkId } from '../../model/ids.ts'
import { isInternal } from '../../model/internal.ts'
import type { Payload } from '../../model/payload.ts'
import { restoreAdvice } from '../../model/restore-advice.ts'
import { isTerminal, type Run } from '../../model/run.ts'
import { toStorableError } from '../../model/stored-error.ts'
import { type Budget, lower, noUsage, usedSince } from '../../model/usage.ts'
import type { RunKey } from '../../store/store.ts'
import type { CallHost } from '../execution/call-host.ts'
import { never } from '../execution/never.ts'
import type { OverBudget } from '../limits/account.ts'
import { budgetKey, wakeUpKeyOf } from '../waiting/run-inbox.ts'
import { givenFingerprint, isSameStart, runFingerprint } from '../writing/new-run.ts'
import { askPatiently } from './ask-patiently.ts'
import type { Call } from './calls.ts'
import { type RunEnd, readEnd } from './child-end.ts'
import { refuseOtherVersion } from './other-version.ts'
import { resultOf } from './recorded-result.ts'
import { askAgain, type Callee, type ChildData, type ChildInput, ownBudget, ownChild, startChild } from './start-child.ts'
import { takeUndo } from './undo-option.ts'

/** A child says in its last commit that it has ended. One whose thread was deleted says nothing: it is looked at now and then. */
const lookAgainMs = 600_000
/** A run that was there before, and does not know of this one, is looked at more often. */
const lookAtOthersMs = 5_000
/** Starts a child in the commit that says so, then waits for its end, persisted as waiting, holding no worker. */
export async function callChild(
  host: CallHost,
  call: Call,
  workflowOrName: AnyWorkflow | string,
  input: unknown,
  options: ChildOptions,
): Promise<unknown> {
  if (options.undo !== undefined) {
    if (options.detached === true) throw detachedUndo(call)
    takeUndo(host, call, options.undo)
  }
  if (typeof workflowOrName !== 'string' && call.history === undefined)
    refuseOtherVersion(workflowOrName, options.version, 'started')
  const workflow = findCallee(host, workflowOrName, options.version)
  const schema = options.scheduledAt === undefined ? workflow.options.input : undefined
  const given = schema === undefined ? undefined : givenFingerprint(host.run.codec, workflow.name, input)
  const checked =
    schema === undefined ? input : await host.activity.validate(schema, input, `The input of workflow "${workflow.name}"`)
  const begun = call.history?.begun
  const started = begun?.data as ChildData | undefined
  if (started !== undefined && callsSomethingElse(host, started, workflow, { given, checked }))
    return pauseOnOtherCall(host, call, started, workflow)
  if (call.history?.outcome !== undefined) {
    const outcome = await host.admission.recorded(call)
    if (options.detached !== true) return resultOf(host, call, outcome)
    const { runId: id, threadId } = host.run.codec.decode(outcome.payload as Payload) as ChildData
    return { id, threadId }
  }
  // Before it waits for its turn: a run that is taken up to be cancelled never gets there.
  if (started !== undefined) ownChild(host, call, started, begun?.seq)
  if (!host.admission.isOpen) await host.admission.pass(call)
  const child = started ?? (await startChild(host, call, workflow, { given, checked }, options))
  if (options.detached === true) return { id: child.runId, threadId: child.threadId }
  return awaitChild(host, call, child, ownBudget(host, workflow, options))
}

function callsSomethingElse(
  { run: { codec } }: CallHost,
  started: ChildData,
  workflow: Callee,
  { given, checked }: ChildInput,
): boolean {
  if (started.fingerprint === undefined) return false
  const ofChecked = () => runFingerprint(codec, workflow.name, checked)
  return !isSameStart(started.fingerprint, given ?? ofChecked(), ofChecked)
}

function pauseOnOtherCall(host: CallHost, call: Call, started: ChildData, workflow: Callee): Promise<never> {
  const { runId } = host.run
  const asked = workflow.name === started.workflow ? 'it with another input' : `"${workflow.name}"`
  host.stopping.mismatch(
    new HoldfastError(
      'nondeterminism',
      `Child "${call.path}" (call ${call.count}) of run "${runId}" was started as "${started.runId}" of workflow "${started.workflow}"; ` +
        `the function calls ${asked} now. ${restoreAdvice(host.run.workflow)}`,
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

function findCallee(host: CallHost, workflowOrName: AnyWorkflow | string, version: number | undefined): Callee {
  if (typeof workflowOrName !== 'string') {
    host.run.engine.registry.add(workflowOrName)
    return workflowOrName
  }
  const name = checkId('workflow name', workflowOrName)
  if (isInternal(name)) throw new HoldfastError('invalid_input', `Workflow "${name}" is Holdfast's own and can't be called.`)
  if (version !== undefined && !(Number.isSafeInteger(version) && version >= 1))
    throw new HoldfastError('invalid_input', `version is ${String(version)}; it must be a whole number of at least 1.`)
  const known = version === undefined ? host.run.engine.registry.latest(name) : host.run.engine.registry.get(name, version)
  return known ?? { name, version: version ?? 1, options: {}, isUnknown: true }
}

/**
 * A child that has used up what it was given is given more, where there is more by now. Says whether it was, or is no longer as it was read: it
 * has to be looked at again.
 */
async function giveMore(host: CallHost, call: Call, run: Run, own: Budget | null): Promise<boolean> {
  const { account } = host.budget
  const { owner } = host.run
  if (own === null || !account.isLimited) return false
  const end = await askPatiently(host, call, async () => readEnd(host.run, run), askAgain)
  if (end === null) return true
  const { what, limit, used, asked } = ((end.error as HoldfastError | undefined)?.details ?? {}) as Partial<OverBudget>
  if (what === undefined || what === 'repeats' || limit === undefined || used === undefined) return false
  const budget = lower(own, account.leftFor(call.key))
  const given = budget[what as keyof Budget]
  if (given === undefined || given <= limit || given < used + (asked ?? (what === 'steps' ? 1 : 0))) return false
  await askPatiently(
    host,
    call,
    () => host.run.engine.control.resume({ owner, runId: run.id }, { budget: { [what]: given } }),
    askAgain,
  )
  account.grant(call.key, budget)
  return true
}

async function awaitChild(host: CallHost, call: Call, child: ChildData, own: Budget | null): Promise<unknown> {
  const key = { owner: host.run.owner, runId: child.runId }
  // Its failure failed this run once, and this run was retried: so is the child. When it fails again, that is another failure.
  let isReopened = call.history?.wasReopened === true
  const isThatFailure = ({ endSeq }: Run) => call.history?.childEndSeq === undefined || call.history.childEndSeq === endSeq
  const wakeUpKey = wakeUpKeyOf('child', child.runId)
  let isShort = false
  for (let mustLook = isReopened || !willHear(host, call, child), heard = 0; ; ) {
    if (!mustLook && host.inbox.messages.wakeUpCount(wakeUpKey) === heard) {
      const dueAt = child.isOther === true ? host.clock.now() + lookAtOthersMs : nextLook(host)
      await pause(host, call, dueAt, isShort ? [wakeUpKey, budgetKey] : [wakeUpKey])
      mustLook = isShort || host.clock.now() >= dueAt
      continue
    }
    heard = host.inbox.messages.wakeUpCount(wakeUpKey)
    const wakeUps = host.inbox.messages.takeWakeUps(wakeUpKey)
    const run = await askPatiently(host, call, () => host.run.store.readRun(key), askAgain)
    if (run !== null && run.status === 'failed' && isReopened && isThatFailure(run)) {
      await askPatiently(host, call, () => retryChild(host, key), askAgain)
      isReopened = false
    } else if (run === null || isTerminal(run.status)) {
      const end = run === null ? {} : await askPatiently(host, call, () => readEnd(host.run, run), askAgain)
      if (end !== null) {
        host.dependents.settled(call.key)
        return record(host, call, child, { run, end, reads: wakeUps })
      }
      host.inbox.messages.keepWakeUps(wakeUpKey, wakeUps)
      mustLook = true
      continue
    } else if (run.status === 'paused' && run.reason === 'budget' && child.isOther !== true) {
      isShort = !(await giveMore(host, call, run, own))
      mustLook = !isShort
      // Kept for the holder of the run at the time when it has more to give.
      if (isShort) host.inbox.messages.keepWakeUps(wakeUpKey, wakeUps)
      else host.inbox.messages.settle(wakeUps)
      continue
    } else {
      mustLook = false
      isShort = false
    }
    host.inbox.messages.settle(wakeUps)
  }
}

/** One that can't be retried, or was retried by another client, is taken as it is. */
async function retryChild({ run }: CallHost, key: RunKey): Promise<void> {
  await run.engine.control.retry(key).catch((error: unknown) => {
    if (codeOf(error) !== 'conflict') throw error
  })
}

/**
 * Whether the end of the child is in the run's inbox, now or later, so that it need not be looked for. A child tells its parent in its last commit, and the
 * message is there until the record of its end takes it out. A run that was not woken by a message looks all the same, and so does one that
 * was retried or rolled back after the start of the child: it did not take messages in between, or a record that took one out is forgotten.
 */
function willHear({ run: { claim, tape } }: CallHost, call: Call, child: ChildData): boolean {
  if (child.isOther === true) return false
  if (call.history?.begun === undefined) return true
  if (call.history.begun.seq < tape.renewedSeq) return false
  const isTimeToLook = claim.run.dueAt !== null && (claim.run.dueAt - lookOffset(claim.run.id)) % lookAgainMs === 0
  return claim.hasMail && claim.takenFrom === null && !isTimeToLook
}

/** Store time at which the children of a run are looked at next. The same for all of them, and for every holder of the run. */
function nextLook(host: CallHost): number {
  const offset = lookOffset(host.run.runId)
  return offset + (Math.floor((host.clock.now() - offset) / lookAgainMs) + 1) * lookAgainMs
}

/** Runs do not look all at the same instant. */
function lookOffset(runId: string): number {
  return crc32(runId) % lookAgainMs
}

async function pause(host: CallHost, call: Call, dueAt: number, wakeUpKeys: readonly string[] = []): Promise<void> {
  await host.suspension.park({ dueAt, rowDueAt: dueAt, reason: 'child', wakeUpKeys })
  if (!host.admission.isOpen) await host.admission.pass(call)
}

/** Writes how the child ended: its output is the result of the call, its failure the failure. */
async function record(
  host: CallHost,
  call: Call,
  child: ChildData,
  { run, end, reads }: { run: Run | null; end: RunEnd; reads: readonly number[] },
): Promise<unknown> {
  const { output, error, usage: total } = end
  const usage = total && usedSince(total, host.run.tape.usageOfChildren.get(child.runId) ?? noUsage)
  const failure = run?.status === 'completed' ? null : failureOf(child, run, error)
  // What a run did that was started elsewhere is not ours to undo.
  const undo = failure === null && child.isOther !== true ? child.undo : undefined
  const data = {
    runId: child.runId,
    ...(usage !== undefined && { usage }),
    ...(undo !== undefined && { undo }),
    ...(failure !== null && run !== null && { endSeq: run.endSeq }),
    ...(failure !== null ? { error: toStorableError(failure) } : output !== undefined && { result: output }),
  }
  const event = host.journal.event('child_completed', call, { data })
  if (usage !== undefined) host.budget.account.add(usage)
  host.budget.account.endGrant(call.key)
  await host.journal.commitResult([event], {
    reads,
    ...(failure !== null && { failureOf: call.key }),
    ...(undo !== undefined && { undoable: { key: call.key, undo } }),
  })
  host.budget.check()
  host.suspension.wakeFor([budgetKey])
  if (failure !== null) throw tagSource(failure, [call.key])
  return event.payload === null ? undefined : (host.run.codec.decode(event.payload) as { result?: unknown }).result
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
