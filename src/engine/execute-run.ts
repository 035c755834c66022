import { sourcesOf } from '../define/failure-source.ts'
import type { AnyWorkflow } from '../define/workflow.ts'
import { codeOf, HoldfastError } from '../model/errors.ts'
import { poisonLimit } from '../model/run.ts'
import { overtimeError } from '../model/run-end.ts'
import { toStorableError } from '../model/stored-error.ts'
import type { Claim } from '../store/store.ts'
import { explainInPlaceChange } from './calls/in-place-change.ts'
import { RunContext } from './calls/run-context.ts'
import { UnawaitedCalls } from './calls/unawaited-calls.ts'
import type { Engine } from './engine.ts'
import type { ExecutionEnd } from './execution/ending.ts'
import { Execution } from './execution/execution.ts'
import { type Loaded, loadRun, nothingWritten, readAgain } from './load-run.ts'
import { parseCallKey } from './replay/call-key.ts'
import { emptyTape, hasRunningScope, runningCalls } from './replay/tape.ts'
import { reportTakeover } from './reports/run-reports.ts'
import type { RebuiltTimeline } from './state/rebuild-timeline.ts'
import { emptyState } from './state/thread-state.ts'
import { type CheckedInput, checkInput } from './writing/checked-input.ts'
import { isOutage } from './writing/committer.ts'
import { LeaseHistory } from './writing/lease-history.ts'
import { tellOfFormer } from './writing/release-lease.ts'

/** When a run that could not be loaded is tried again. */
const loadAgainMs = 1_000

/**
 * Executes one claimed run until it ends, waits, or is taken away. `onExecution` hears of each tape as it begins. `former` is what this
 * process knows of the run from an earlier lease that it has lost without knowing it.
 */
export async function executeRun(
  engine: Engine,
  workflow: AnyWorkflow,
  claimed: Claim,
  onExecution: (execution: Execution) => void,
  former?: LeaseHistory,
): Promise<ExecutionEnd> {
  const history = new LeaseHistory(claimed.thread)
  if (former !== undefined) await tellOfFormer(claimed, engine, former)
  for (let held = claimed, isToRead = former !== undefined; ; isToRead = true) {
    if (isToRead) {
      const again = await readAgain(engine, held).catch((error: unknown) => error)
      if (again === null) return { kind: 'lost' }
      if (!isClaim(again)) return quarantine(engine, workflow, { claim: held, history, error: again }, onExecution)
      held = again
    }
    const end = await executeClaim(engine, workflow, { claim: held, history }, onExecution)
    if (end.kind !== 'reload') return end
  }
}

function isClaim(value: unknown): value is Claim {
  return typeof value === 'object' && value !== null && 'leaseId' in value
}

async function executeClaim(
  engine: Engine,
  workflow: AnyWorkflow,
  { claim: claimed, history }: Held,
  onExecution: (execution: Execution) => void,
): Promise<ExecutionEnd> {
  let claim = claimed
  const loaded = await loadRun(engine, workflow, claim).catch((error: unknown) => error)
  if (loaded instanceof Error || !isLoaded(loaded))
    return quarantine(engine, workflow, { claim, history, error: loaded }, onExecution)
  let { tape, base, written, rebuilt } = loaded
  const isChecked = loaded.origin.unchecked !== true
  const entry = isChecked
    ? { input: loaded.input, origin: loaded.origin, isNew: false }
    : await checkInput(engine.codec, workflow, loaded)
  const { origin } = entry
  let { input } = entry
  let headSeq = claim.thread.headSeq
  let isFirst = true
  for (;;) {
    const execution = new Execution(engine, {
      claim,
      history,
      workflow,
      tape,
      base,
      rebuilt,
      headSeq,
      earliestSeq: Math.max(base.seq, claim.run.inputSeq),
      startsTape: isFirst && claim.run.tapeSeq === null,
      hasNewInput: isFirst && entry.isNew,
      origin,
      written,
    })
    onExecution(execution)
    const begun = isFirst ? { rebuilt, misfit: loaded.misfit, silentMs: loaded.silentMs ?? 0, entry } : undefined
    const end = await executeTape(execution, claim, input, begun)
    if (end.kind !== 'lost')
      engine.cache.set(claim.thread, {
        state: end.kind === 'continued' ? end.base : execution.ending.headState(),
        ...history.patch,
      })
    if (end.kind !== 'continued') return end
    tape = { ...emptyTape, number: end.tapeNumber, usage: execution.budget.account.used, raised: execution.budget.account.limits }
    base = end.base
    headSeq = end.base.seq
    input = end.input
    written = nothingWritten
    rebuilt = undefined
    isFirst = false
    // The clock continues from where it is, not from the claim.
    claim = {
      ...claim,
      hasMail: end.hasMail,
      now: execution.clock.now(),
      run: { ...claim.run, startedAt: claim.run.startedAt ?? claimed.now },
    }
  }
}

/** A claimed run, and what was acknowledged under its lease. */
interface Held {
  readonly claim: Claim
  readonly history: LeaseHistory
}

function isLoaded(value: unknown): value is Loaded {
  return typeof value === 'object' && value !== null && 'tape' in value
}

async function executeTape(
  execution: Execution,
  claim: Claim,
  input: unknown,
  /** Absent where it follows another tape under the same claim. */
  begun?: Beginning,
): Promise<ExecutionEnd> {
  const { run, state, phase, journal, stopping, ending, playback } = execution
  if (begun !== undefined) deferStart(execution, claim, begun)
  // The state with which the tape began was recorded; `initial` is not asked a second time.
  if (typeof run.tape.patches[0]?.version === 'number') state.timeline.view.advance(1)
  if (claim.run.claimsWithoutProgress > poisonLimit) {
    const error = new HoldfastError(
      'worker_died',
      `Run "${run.runId}" was claimed ${poisonLimit} times without recording anything: it seems to crash its worker. ` +
        'Find out why, then run.resume() continues it with a new count; run.cancel() ends it.',
      { details: { runId: run.runId } },
    )
    await ending.pauseNow('poisoned', error)
    return ending.ended
  }
  if (begun !== undefined && begun.silentMs > 0) await execution.lease.lengthen(begun.silentMs)
  if (run.tape.order !== undefined) stopping.order(run.tape.order)
  if (claim.hasMail) await execution.inbox.check()
  if (phase.order !== null && (await orOver(execution, stopping.runOrderFromLog()))) return ending.ended
  if (run.tape.order === undefined && begun?.misfit !== undefined) {
    await ending.pauseNow('mismatch', begun.misfit)
    return ending.ended
  }
  if (phase.order === null && (await stoppedByMigration(execution))) return ending.ended
  // A scope that was running is entered again without a record of its own; this death must count before it can bring another.
  if (journal.mustRecordStarts && hasRunningScope(run.tape))
    await orOver(
      execution,
      journal.commit([], {}).catch(() => {}),
    )
  // With nothing recorded it is live at once; under an order the function first says how what it began is undone.
  if (phase.order !== null) setImmediate(() => playback.start())
  else playback.start()
  if (!phase.hasEnded) {
    callFunction(execution, input, begun?.entry.error).catch((error: unknown) => {
      run.log.error('the end of a run could not be recorded; the run is released', { runId: run.runId, error })
      return ending.forceStop()
    })
  }
  return ending.ended
}

/** A tape is replayed only where its state can be brought to the definition's version: the function would get the error before the run is live. */
async function stoppedByMigration({ run, state, ending }: Execution): Promise<boolean> {
  if (run.tape.outcomes.length === 0) return false
  try {
    state.timeline.checkMigration()
    return false
  } catch (error) {
    await ending.pauseNow('mismatch', error as Error)
    return true
  }
}

/** What it comes to, or true where the execution has ended: a write whose outcome is not known ends it, and does not return. */
function orOver<T>(execution: Execution, writing: Promise<T>): Promise<T | true> {
  return Promise.race([writing, execution.ending.ended.then(() => true as const)])
}

/** With what the first tape under a claim begins. */
interface Beginning {
  readonly rebuilt: RebuiltTimeline | undefined
  readonly misfit: HoldfastError | undefined
  readonly silentMs: number
  readonly entry: CheckedInput
}

function deferStart(execution: Execution, claim: Claim, { rebuilt, entry }: Beginning): void {
  const { journal, output, run } = execution
  const { input, origin } = entry
  const inputData = { ...(input !== undefined && { input }), ...origin }
  if (entry.isNew) journal.defer(journal.event('run_started', null, { count: run.tape.number, data: inputData }))
  else if (claim.run.tapeSeq === null) journal.defer(journal.event('run_started', null, { count: 1 }))
  // Readers of the streams drop what an attempt wrote that will be made again.
  const { number: tape, calls, streams } = run.tape
  for (const [key, { opened = [], outcome }] of calls) {
    if (outcome !== undefined) continue
    const { path: step, count } = parseCallKey(key)
    for (const { attempt, stream } of opened) output.streams.abortWriter({ tape, step, count, attempt }, [stream])
  }
  for (const [stream, { isStale }] of streams) if (isStale) output.streams.reopen(stream)
  // Before any other change of the state: those are made on the state without what was dropped.
  if (rebuilt !== undefined && rebuilt.patch !== null) {
    const { patch, dropped } = rebuilt
    journal.defer(journal.event('state_updated', null, { data: { rebuilt: dropped }, patch }), true)
  }
  if (claim.takenFrom === null) return
  const { holder, why, leaseUntil } = claim.takenFrom
  const running = runningCalls(run.tape)
  const data = { holder, why, leaseUntil, epoch: claim.run.epoch, running }
  reportTakeover(run, running)
  journal.defer(journal.event('run_recovered', null, { data }))
}

/** Calls the user's function and writes how it ended. */
async function callFunction(execution: Execution, input: unknown, wrongInput: Error | undefined): Promise<void> {
  const { run, phase, admission, stopping, ending, playback } = execution
  const { workflow } = run
  watchTimeout(execution)
  try {
    if (wrongInput !== undefined) throw wrongInput
    const unawaited = new UnawaitedCalls()
    let output: unknown
    try {
      output = await execution.calls.inFunction(() => workflow.fn(new RunContext(execution, unawaited), input))
    } finally {
      admission.isFunctionOver = true
    }
    if (phase.hasEnded) return void admission.cameTooLate()
    if (unawaited.hasAny) await unawaited.report(run)
    if ((await stopping.runPendingOrder()) || !(await playback.finish())) return
    if (workflow.options.output !== undefined) {
      output = await execution.activity.validate(workflow.options.output, output, `The output of workflow "${workflow.name}"`)
    }
    const data = { ...(output !== undefined && { output }), ...ending.usageSoFar }
    const event = execution.journal.event('run_completed', null, Object.keys(data).length === 0 ? {} : { data })
    await ending.finish('completed', event)
  } catch (error) {
    if (phase.hasEnded) return void admission.cameTooLate()
    if ((await stopping.runPendingOrder()) || !(await playback.finish())) return
    await fail(execution, error)
  }
}

async function fail(execution: Execution, error: unknown): Promise<void> {
  // An error of the function's own, which names no cause: what it has not caught is the likely one.
  const known = sourcesOf(error)
  const own = known.length === 0 ? execution.failures.behind() : []
  const failed = [...new Set([...known, ...own, ...execution.failures.unthrown])]
  await execution.stopping.fail(explainInPlaceChange(execution, null, error), failed)
}

/** Fails the run when it has taken longer than its workflow allows. Longer than setTimeout can count: looked at again. */
function watchTimeout(execution: Execution): void {
  const { timeoutMs } = execution.run.workflow.options
  if (timeoutMs === undefined) return
  let timer: NodeJS.Timeout
  const look = (): void => {
    const leftMs = execution.clock.overAt - execution.clock.now()
    if (leftMs > 0) timer = setTimeout(look, Math.min(leftMs, 3_600_000))
    else execution.stopping.overtime(overtimeError(execution.run.runId, timeoutMs))
  }
  timer = setTimeout(look, 0)
  // Not when the function returns: that of a run which was persisted as waiting never does.
  void execution.ending.ended.then(() => clearTimeout(timer))
}

/** What can't be read is not executed: the run is paused with what is wrong, or handed back where another try may help. */
async function quarantine(
  engine: Engine,
  workflow: AnyWorkflow,
  { claim, history, error }: Held & { readonly error: unknown },
  onExecution: (execution: Execution) => void,
): Promise<ExecutionEnd> {
  const execution = new Execution(engine, {
    claim,
    history,
    workflow,
    tape: emptyTape,
    base: emptyState,
    headSeq: claim.thread.headSeq,
    earliestSeq: 0,
    startsTape: false,
    origin: {},
    written: nothingWritten,
  })
  onExecution(execution)
  engine.log.error('a run could not be loaded', { runId: claim.run.id, error })
  // Out of reach: it is tried again in a while. What is known to go wrong in the same way for ever is not tried again, and
  // what is not known is counted, so that it is not tried for ever.
  const code = codeOf(error)
  if (isOutage(error) || code === 'outcome_unknown' || code === 'timeout')
    await execution.ending.handBack(loadAgainMs, { isCounted: false })
  else if (code === undefined && claim.run.claimsWithoutProgress < poisonLimit)
    await execution.ending.handBack(loadAgainMs, { isCounted: true })
  else await execution.ending.pauseNow('poisoned', toStorableError(error))
  await execution.ending.ended
  return { kind: 'lost' }
}
