import { HoldfastError } from '../model/errors.ts'
import { checkId } from '../model/ids.ts'
import { isInternal } from '../model/internal.ts'
import type { Payload } from '../model/payload.ts'
import { isTerminal, type Run } from '../model/run.ts'
import { reviveError, toStorableError } from '../model/stored-error.ts'
import { type Budget, checkBudget, lower, type UsageTotal } from '../model/usage.ts'
import { blame } from './blame.ts'
import type { Call } from './calls.ts'
import { isOutage } from './committer.ts'
import type { CallOptions } from './context.ts'
import type { Execution } from './execution.ts'
import { newRun } from './new-run.ts'
import { resultOf } from './step-runner.ts'
import type { AnyWorkflow } from './workflow.ts'

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
  readonly isDetached?: boolean
  /** It was started by somebody else before, under the same id. */
  readonly isOther?: boolean
}

export interface ChildOptions extends CallOptions {
  readonly detached?: boolean
  /** For a bare name: which version is meant. Default: the highest registered here, else 1. */
  readonly version?: number
  /** The tick of a schedule. Its input was checked when the schedule was set. */
  readonly scheduledAt?: number
}

/** What is called. This process need not have the workflow itself. */
interface Callee {
  readonly name: string
  readonly version: number
  readonly options: Partial<AnyWorkflow['options']>
}

/** Starts a child in the commit that says so, then waits for its end as a row, holding no worker. */
export async function callChild(
  execution: Execution,
  call: Call,
  workflowOrName: AnyWorkflow | string,
  input: unknown,
  options: ChildOptions,
): Promise<unknown> {
  const workflow = findCallee(execution, workflowOrName, options.version)
  const checked =
    workflow.options.input === undefined || options.scheduledAt !== undefined
      ? input
      : await execution.validate(workflow.options.input, input, `The input of workflow "${workflow.name}"`)
  if (call.history?.outcome !== undefined) {
    const outcome = await execution.recorded(call)
    if (options.detached !== true) return resultOf(execution, call, outcome)
    const { runId: id, threadId } = execution.codec.decode(outcome.payload as Payload) as ChildData
    return { id, threadId }
  }
  const begun = call.history?.begun
  // Before it waits for its turn: a run that is taken up to be cancelled never gets there.
  if (begun !== undefined) execution.dependants.child(call.key, (begun.data as unknown as ChildData).runId, begun.seq)
  if (!execution.isOpen) await execution.pass(call)
  const child =
    begun === undefined ? await start(execution, call, workflow, checked, options) : (begun.data as unknown as ChildData)
  if (options.detached === true) return { id: child.runId, threadId: child.threadId }
  if (begun === undefined) execution.dependants.child(call.key, child.runId, Number.MAX_SAFE_INTEGER)
  return awaitChild(execution, call, child)
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
  return known ?? { name, version: version ?? 1, options: {} }
}

async function start(
  execution: Execution,
  call: Call,
  workflow: Callee,
  input: unknown,
  options: ChildOptions,
): Promise<ChildData> {
  const { owner, runId } = execution
  const id = options.id === undefined ? execution.calls.defaultKey(call) : checkId('run id', options.id)
  const threadId = options.threadId === undefined ? id : checkId('thread id', options.threadId)
  const isDetached = options.detached === true
  if (execution.account.isLimited) await execution.budget.admit(call)
  else execution.account.countStep()
  const { scheduledAt } = options
  const origin = {
    ...(!isDetached && { parent: runId, ...budgetFor(execution, workflow, options) }),
    ...(scheduledAt !== undefined && { scheduledAt }),
  }
  const run = newRun(execution.codec, input, origin, {
    ...{ owner, id, threadId, workflow: workflow.name, version: workflow.version },
    queue: checkId('queue name', options.queue ?? workflow.options.queue ?? 'default'),
    priority: options.priority ?? workflow.options.priority ?? 0,
    ...{ due: { inMs: 0 }, ifBusy: 'queue', at: execution.now() },
  })
  const known =
    options.id === undefined ? null : await patiently(execution, call, () => execution.store.readRun({ owner, runId: id }))
  if (known !== null && known.fingerprint !== run.fingerprint) return failStart(execution, call, known)
  const data = {
    ...{ runId: id, threadId, workflow: workflow.name },
    ...(isDetached && { isDetached }),
    ...(known !== null && { isOther: true }),
  }
  const event = execution.event('child_started', call, { data })
  if (isDetached) await execution.commitResult([event], { creates: [run] })
  else await execution.commit([event], { creates: [run], hasProgress: true })
  execution.wakeWorker()
  return data
}

/** What is left of the parent's budget, or less. */
function budgetFor({ account }: Execution, workflow: Callee, options: CallOptions): { readonly budget?: Budget } {
  const own = options.budget === undefined ? workflow.options.budget : checkBudget(options.budget, `child "${workflow.name}"`)
  if (own === undefined && !account.isLimited) return {}
  return { budget: lower(own ?? {}, account.left) }
}

async function awaitChild(execution: Execution, call: Call, child: ChildData): Promise<unknown> {
  const key = { owner: execution.owner, runId: child.runId }
  // It failed this run once, and this run was retried: so is the child.
  let isReopened = call.history?.wasReopened === true
  for (;;) {
    const { nudgeCount } = execution.mailbox
    const run = await patiently(execution, call, () => execution.store.readRun(key))
    if (run !== null && run.status === 'failed' && isReopened) {
      await patiently(execution, call, () => execution.steering.retry(key))
      isReopened = false
    } else if (run === null || isTerminal(run.status)) {
      execution.dependants.settled(call.key)
      return record(execution, call, child, run)
    } else if (execution.mailbox.nudgeCount === nudgeCount)
      await pause(execution, call, child.isOther === true ? lookAtOthersMs : lookAgainMs)
  }
}

async function pause(execution: Execution, call: Call, ms: number): Promise<void> {
  const dueAt = execution.now() + ms
  await execution.park({ dueAt, rowDueAt: dueAt, reason: 'child', wakesOnMail: true })
  if (!execution.isOpen) await execution.pass(call)
}

/** A store out of reach is waited for: it is no failure of the call. */
async function patiently<Answer>(execution: Execution, call: Call, ask: () => Promise<Answer>): Promise<Answer> {
  for (;;) {
    const asking = ask().then(
      (answer) => ({ answer }),
      (error: unknown) => {
        if (!isOutage(error)) throw error
        return null
      },
    )
    const answered = await execution.working(asking)
    if (answered !== null) return answered.answer
    await pause(execution, call, askAgainMs)
  }
}

/** Writes how the child ended: its output is the result of the call, its failure the failure. */
async function record(execution: Execution, call: Call, child: ChildData, run: Run | null): Promise<unknown> {
  const { output, error, usage } = run === null ? {} : await patiently(execution, call, () => readEnd(execution, run))
  const failure = run?.status === 'completed' ? null : failureOf(child, run, error)
  const data = {
    runId: child.runId,
    ...(usage !== undefined && { usage }),
    ...(failure !== null ? { error: toStorableError(failure) } : output !== undefined && { result: output }),
  }
  const event = execution.event('child_completed', call, { data })
  if (usage !== undefined) execution.account.add(usage)
  await execution.commitResult([event], failure === null ? {} : { failureOf: call.key })
  execution.budget.check()
  if (failure !== null) throw blame(failure, [call.key])
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

interface RunEnd {
  readonly output?: unknown
  readonly error?: Error
  readonly usage?: UsageTotal
}

async function readEnd({ store, codec }: Execution, run: Run): Promise<RunEnd> {
  if (run.endSeq === null) return {}
  const { owner, threadId, endSeq } = run
  const [record] = await store.readLog({ owner, threadId, afterSeq: endSeq - 1, toSeq: endSeq })
  const end = (record?.payload == null ? {} : codec.decode(record.payload)) as RunEnd
  return end.error === undefined ? end : { ...end, error: reviveError(end.error) }
}

async function failStart(execution: Execution, call: Call, known: Run): Promise<never> {
  const error = new HoldfastError(
    'input_mismatch',
    `Run "${known.id}" exists with another input or workflow ("${known.workflow}"), so run "${execution.runId}" can't call it under this id. Use another id.`,
    { details: { runId: known.id } },
  )
  const event = execution.event('child_completed', call, { data: { runId: known.id, error } })
  await execution.commitResult([event], { failureOf: call.key })
  throw blame(error, [call.key])
}
