import { retryRun } from '../control/control-run.ts'
import type { Core } from '../control/core.ts'
import type { AnyWorkflow } from '../define/workflow.ts'
import { refuseStartInFunction } from '../engine/calls/calls.ts'
import { refuseOtherVersion } from '../engine/calls/other-version.ts'
import { reportMissing } from '../engine/calls/report-missing.ts'
import { givenFingerprint, isSameStart, newRun, recordedFingerprint } from '../engine/writing/new-run.ts'
import { HoldfastError } from '../model/errors.ts'
import { checkId } from '../model/ids.ts'
import { isInternal } from '../model/internal.ts'
import { type OptionNames, refuseUnknownOptions } from '../model/known-options.ts'
import { isMoment, maxTime, momentAdvice } from '../model/moment.ts'
import { newRunId } from '../model/new-run-id.ts'
import type { Payload } from '../model/payload.ts'
import type { Run } from '../model/run.ts'
import { validate } from '../model/schema.ts'
import type { Change, Committed, NewRun, Refusal } from '../store/change.ts'
import type { CallersTransaction } from '../store/store.ts'

export interface StartOptions {
  /** The same id is the same run. Default: a new id. */
  readonly id?: string
  /** The thread whose state it uses. Default: a thread with the run's id. */
  readonly threadId?: string
  /** Default: the workflow's queue. */
  readonly queue?: string
  readonly priority?: number
  /** Not before this many ms from now. */
  readonly delayMs?: number
  /** Not before this moment, in ms since 1970. */
  readonly runAt?: number
  /** If the thread has an unfinished run: execute after it (default), or refuse with `conflict`. */
  readonly ifBusy?: 'queue' | 'reject'
  /** If the id belongs to a failed run: `retry` continues it where it failed. Default: leave it as it is. */
  readonly ifFailed?: 'retry'
  /** For a name: the workflow's version. Default: the highest registered in this process, else 1. */
  readonly version?: number
  /**
   * Postgres only: a client of `pg` with an open transaction of yours. The run is started when that commits, and never existed if it rolls
   * back.
   */
  readonly tx?: CallersTransaction
}

/** Queues a run, once per id. Returns the run, including one that existed before. */
export async function startRun(
  core: Core,
  owner: string,
  workflowOrName: AnyWorkflow | string,
  input: unknown,
  options: StartOptions = {},
): Promise<Run> {
  refuseStartInFunction()
  const asked = await prepareStart(core, owner, workflowOrName, input, options)
  return acceptStart(core, asked, await commitStart(core, options.tx, startChange(asked)), options)
}

/** Checks the arguments and encodes the input, before anything is written. `at` is the store's time, if it is known. */
export async function prepareStart(
  core: Core,
  owner: string,
  workflowOrName: AnyWorkflow | string,
  input: unknown,
  options: StartOptions,
  at?: number,
): Promise<NewRun> {
  refuseUnknownOptions('A start', options, startOptionNames)
  checkOptions(options)
  const workflow = findWorkflow(core, workflowOrName, options.version)
  const name = workflow?.name ?? checkId('workflow name', workflowOrName)
  const schema = workflow?.options.input
  // The input is encoded once, before anything is awaited, so that what is recorded is what is compared.
  const given = schema === undefined ? undefined : givenFingerprint(core.codec, name, input)
  const validated = schema === undefined ? input : validate(schema, input, `The input of workflow "${name}"`)
  const checked = validated instanceof Promise ? await validated : validated
  const id = options.id === undefined ? newRunId() : checkId('run id', options.id)
  const threadId = options.threadId === undefined ? id : checkId('thread id', options.threadId)
  const prepared = newRun(core.codec, checked, workflow === undefined ? { unchecked: true } : {}, {
    ...{ owner, id, threadId, workflow: name, given },
    version: options.version ?? workflow?.version ?? 1,
    queue: checkId('queue name', options.queue ?? workflow?.options.queue ?? 'default'),
    priority: options.priority ?? workflow?.options.priority ?? 0,
    due: options.runAt === undefined ? { inMs: Math.ceil(options.delayMs ?? 0) } : { at: Math.ceil(options.runAt) },
    ifBusy: options.ifBusy ?? 'queue',
    at: at ?? 0,
  })
  return at === undefined ? { ...prepared, queued: { ...prepared.queued, at: await core.now() } } : prepared
}

export function startChange(asked: NewRun): Change {
  const { owner, threadId } = asked
  return { owner, threadId, runId: null, guard: { kind: 'none' }, events: [], creates: [asked], isCheckpoint: true }
}

/** The run that the store returned, or an error that says why there is none. */
export async function acceptStart(core: Core, asked: NewRun, answer: Committed, options: StartOptions): Promise<Run> {
  const { owner, id } = asked
  if (!answer.ok) throw await refusedStart(core, answer.refusal, asked)
  const created = answer.created[0]
  if (created === undefined) throw new HoldfastError('conflict', `Run "${id}" was not created.`)
  if (created.isNew) {
    core.wakeWorker()
    if (core.hasWorker) reportMissing(core, { ...asked, needs: `Run "${id}" needs` })
  } else checkSame(core, created.run, asked, options.threadId !== undefined)
  if (!created.isNew && created.run.status === 'failed' && options.ifFailed === 'retry')
    await retryRun(core, { owner, runId: id })
  return created.run
}

async function commitStart(core: Core, tx: CallersTransaction | undefined, change: Change): Promise<Committed> {
  if (tx === undefined) {
    await core.committer.room()
    return core.committer.commit(change)
  }
  if (core.store.commitWithin === undefined) {
    throw new HoldfastError(
      'invalid_input',
      `start with { tx } needs a Postgres store; this one is ${core.store.kind}. Leave tx out and give the run an id, so that starting it again is harmless.`,
    )
  }
  const [answer] = await core.store.commitWithin(tx, [change])
  if (answer === undefined) throw new HoldfastError('conflict', 'The store returned nothing for a start inside a transaction.')
  return answer
}

const startOptionNames: OptionNames<StartOptions & { owner: string }> = {
  id: true,
  threadId: true,
  owner: true,
  queue: true,
  priority: true,
  delayMs: true,
  runAt: true,
  ifBusy: true,
  ifFailed: true,
  version: true,
  tx: true,
}

/** Refuses values that a store could not keep, or would keep as something else. */
function checkOptions({ delayMs, runAt, priority, version, ifBusy, ifFailed, tx }: StartOptions): void {
  const refuse = (what: string, must: string): never => {
    throw new HoldfastError('invalid_input', `${what}; it must be ${must}. Nothing was started.`)
  }
  if (delayMs !== undefined && !(typeof delayMs === 'number' && delayMs >= 0 && delayMs <= maxTime)) {
    refuse(`delayMs is ${String(delayMs)}`, 'a number of milliseconds from 0')
  }
  if (runAt !== undefined && !isMoment(runAt)) refuse(`runAt is ${String(runAt)}`, momentAdvice(runAt))
  if (priority !== undefined && !Number.isSafeInteger(priority)) refuse(`priority is ${String(priority)}`, 'a whole number')
  if (version !== undefined && !(Number.isSafeInteger(version) && version >= 1)) {
    refuse(`version is ${String(version)}`, 'a whole number of at least 1')
  }
  if (ifBusy !== undefined && ifBusy !== 'queue' && ifBusy !== 'reject')
    refuse(`ifBusy is ${String(ifBusy)}`, "'queue' or 'reject'")
  if (tx !== undefined && typeof tx?.query !== 'function') refuse('tx has no query function', 'a client of pg')
  if (tx !== undefined && 'totalCount' in tx)
    refuse('tx is a pool, whose queries go to any of its connections', 'the client of pg that your transaction is open on')
  if (tx !== undefined && ifFailed !== undefined)
    refuse('tx is combined with ifFailed', 'used without it: a retry is not part of your transaction')
  if (ifFailed !== undefined && ifFailed !== 'retry') refuse(`ifFailed is ${String(ifFailed)}`, "'retry'")
}

function findWorkflow(core: Core, workflowOrName: AnyWorkflow | string, version: number | undefined): AnyWorkflow | undefined {
  if (typeof workflowOrName !== 'string') {
    refuseOtherVersion(workflowOrName, version, 'started')
    core.registry.add(workflowOrName)
    return workflowOrName
  }
  if (isInternal(workflowOrName))
    throw new HoldfastError('invalid_input', `Workflow "${workflowOrName}" is Holdfast's own and can't be started.`)
  const latest = core.registry.latest(workflowOrName)
  // Another version may have another schema, queue and priority.
  const known = version === undefined ? latest : core.registry.get(workflowOrName, version)
  if (latest !== undefined || !core.hasWorker) return known
  throw new HoldfastError(
    'workflow_not_registered',
    `No workflow "${workflowOrName}" is registered here, so this process could never execute the run. Pass the workflow itself, list it in ` +
      'open(url, { workflows: [...] }), or open with worker: false to queue it for another process.',
    { details: { workflow: workflowOrName } },
  )
}

function checkSame(core: Core, existing: Run, asked: NewRun, hasThread: boolean): void {
  const { fingerprint, workflow, queued } = asked
  const checked = () => recordedFingerprint(core.codec, workflow, queued.payload as Payload)
  const isSame = isSameStart(existing.fingerprint, fingerprint, checked)
  if (isSame && (!hasThread || existing.threadId === asked.threadId)) return
  throw new HoldfastError(
    'input_mismatch',
    `Run "${existing.id}" exists with another ${existing.workflow === asked.workflow ? 'input or thread' : `workflow ("${existing.workflow}")`}. ` +
      'One id is one run: use another id, or start it with the same input. Nothing was started.',
    { details: { runId: existing.id } },
  )
}

/** Why a run was not started. */
export async function refusedStart(core: Core, refusal: Refusal, { id, threadId, queue }: NewRun): Promise<HoldfastError> {
  if (refusal === 'conflict') {
    return new HoldfastError(
      'conflict',
      `Thread "${threadId}" has an unfinished run, and ifBusy is 'reject': run "${id}" was not started.`,
      {
        retryable: true,
        details: { threadId },
      },
    )
  }
  if (refusal === 'queue_full') {
    const maxQueued = (await core.store.listQueues({ name: queue }))[0]?.maxQueued ?? null
    return new HoldfastError(
      'queue_full',
      `Queue "${queue}" has as many pending runs as it may${maxQueued === null ? '' : ` (maxQueued is ${maxQueued})`}: run "${id}" was not started. ` +
        'Start it again later, under the same id, or raise maxQueued with hf.queues.set.',
      { retryable: true, details: { queue, maxQueued, runId: id } },
    )
  }
  return new HoldfastError('conflict', `Run "${id}" was not started: ${refusal}.`)
}
