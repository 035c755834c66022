import { sourcesOf } from '../define/failure-source.ts'
import type { AnyWorkflow, Registry } from '../define/workflow.ts'
import type { Codec } from '../model/codec.ts'
import { codeOf, HoldfastError } from '../model/errors.ts'
import type { Logger } from '../model/logger.ts'
import { poisonLimit, type Run } from '../model/run.ts'
import { toStorableError } from '../model/stored-error.ts'
import type { Claim, Store } from '../store/store.ts'
import { explainInPlaceChange } from './calls/in-place-change.ts'
import { RunContext } from './calls/run-context.ts'
import { Execution, type ExecutionEnd } from './execution/execution.ts'
import { countDeath, emptyTape, hasRunningScope, parseCallKey, readTape, runningCalls, type Tape } from './replay/tape.ts'
import { heedOutlived } from './reports/outlived-holders.ts'
import { reportTakeover } from './reports/run-reports.ts'
import { type RebuiltLine, rebuildLine } from './state/rebuild-line.ts'
import { continueFrom, emptyState, type HeadStateCache, loadState, type StateAt } from './state/thread-state.ts'
import type { Steering } from './undo/dependants.ts'
import type { OpenQuestions } from './waiting/open-questions.ts'
import type { QuietTimes } from './waiting/quiet-times.ts'
import { type CheckedInput, checkInput } from './writing/checked-input.ts'
import { type Committer, isOutage } from './writing/committer.ts'
import { LeaseHistory } from './writing/lease-history.ts'
import type { Outbox } from './writing/outbox.ts'
import { type RunOrigin, readOrigin } from './writing/run-origin.ts'
import type { Sendings } from './writing/sendings.ts'

/** When a run that could not be loaded is tried again. */
const loadAgainMs = 1_000

/** What executing a run needs besides the run. */
export interface Engine {
  readonly store: Store
  readonly committer: Committer
  readonly codec: Codec
  readonly cache: HeadStateCache
  readonly log: Logger
  readonly leaseMs: number
  readonly steering: Steering
  readonly questions: OpenQuestions
  readonly registry: Registry
  /** Absent: nobody is to be told of anything. */
  readonly outbox?: Outbox
  readonly wakeWorker: () => void
  readonly quietTimes: QuietTimes
  readonly sendings: Sendings
}

/** Executes one claimed run until it ends, waits, or is taken away. `onExecution` hears of each tape as it begins. */
export async function executeRun(
  engine: Engine,
  workflow: AnyWorkflow,
  claimed: Claim,
  onExecution: (execution: Execution) => void,
): Promise<ExecutionEnd> {
  const history = new LeaseHistory(claimed.thread)
  for (let held = claimed; ; ) {
    const end = await executeClaim(engine, workflow, { claim: held, history }, onExecution)
    if (end.kind !== 'reload') return end
    const again = await readAgain(engine, held).catch((error: unknown) => error)
    if (again === null) return { kind: 'lost' }
    if (!isClaim(again)) return quarantine(engine, workflow, { claim: held, history, error: again }, onExecution)
    held = again
  }
}

/** The run as it stands now, under the lease that is held. Null if it is held no more. */
async function readAgain({ store }: Engine, claim: Claim): Promise<Claim | null> {
  const { owner, id: runId, threadId, epoch } = claim.run
  const [run, thread, now] = await Promise.all([
    store.readRun({ owner, runId }),
    store.readThread({ owner, threadId }),
    store.now(),
  ])
  if (run === null || thread === null || run.epoch !== epoch || run.leaseId !== claim.leaseId) return null
  // A tape that began since the claim has an input of its own.
  const { inputSeq } = run
  const [record] =
    inputSeq === claim.run.inputSeq ? [] : await store.readLog({ owner, threadId, afterSeq: inputSeq - 1, toSeq: inputSeq })
  return { ...claim, run, thread, input: record?.payload ?? claim.input, takenFrom: null, hasMail: true, now }
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
  const loaded = await load(engine, workflow, claim).catch((error: unknown) => error)
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
      engine.cache.set(claim.thread, { state: end.kind === 'continued' ? end.base : execution.headState(), ...history.patch })
    if (end.kind !== 'continued') return end
    tape = { ...emptyTape, number: end.tapeNumber, usage: execution.account.used, raised: execution.account.limits }
    base = end.base
    headSeq = end.base.seq
    input = end.input
    written = nothingWritten
    rebuilt = undefined
    isFirst = false
    // The clock goes on from where it is, not from the claim.
    claim = {
      ...claim,
      hasMail: end.hasMail,
      now: execution.now(),
      run: { ...claim.run, startedAt: claim.run.startedAt ?? claimed.now },
    }
  }
}

/** A claimed run, and what was acknowledged under its lease. */
interface Held {
  readonly claim: Claim
  readonly history: LeaseHistory
}

interface Loaded {
  readonly tape: Tape
  readonly base: StateAt
  readonly input: unknown
  readonly origin: RunOrigin
  readonly rebuilt?: RebuiltLine
  /** A change of the state that must be kept, and does not fit. */
  readonly misfit?: HoldfastError
  /** How long a holder of the run was silent and lived on, at most. */
  readonly silentMs?: number
  /** How many chunks the function has written in this tape, by stream. */
  readonly written: ReadonlyMap<string, number>
}

const nothingWritten: ReadonlyMap<string, number> = new Map()

function isLoaded(value: unknown): value is Loaded {
  return typeof value === 'object' && value !== null && 'tape' in value
}

/** The tape in one read; the state from the cache, or from the nearest snapshot. */
async function load(engine: Engine, workflow: AnyWorkflow, claim: Claim): Promise<Loaded> {
  const { store, codec, cache } = engine
  const { run, thread } = claim
  const { input, origin } = readOrigin(codec, claim.input)
  if (run.tapeSeq === null) {
    const isNew = run.inputSeq === thread.baseSeq + 1 && thread.headSeq === run.inputSeq
    const silentMs = claim.takenFrom === null ? 0 : await heedOutlived(store, claim, emptyTape)
    const begun = (base: StateAt) => ({ tape: emptyTape, base, input, origin, silentMs, written: nothingWritten })
    if (isNew) return begun({ ...emptyState, seq: thread.headSeq })
    const cached = cache.get(thread)
    const base = cached === undefined ? null : await continueFrom(store, codec, thread, cached)
    return begun(base ?? (await loadState(store, codec, thread, thread.headSeq)))
  }
  const records = await store.readLog({
    owner: run.owner,
    threadId: run.threadId,
    afterSeq: run.tapeSeq - 1,
    runId: run.id,
    withEdits: true,
  })
  const isNew = run.tapeSeq === thread.baseSeq + 2
  const base = isNew ? { ...emptyState, seq: run.tapeSeq - 1 } : await loadState(store, codec, thread, run.tapeSeq - 1)
  const tape = readTape(records, codec, run.id)
  const rebuilt = rebuild(engine, workflow, run, base, tape)
  // This takeover is a death too, for what was running.
  if (claim.takenFrom !== null) for (const key of runningCalls(tape)) countDeath(tape, key)
  const silentMs = await heedOutlived(store, claim, tape)
  return { tape, base, input, origin, silentMs, written: await countWritten(store, run, tape), ...rebuilt }
}

/** The state without what is to be done again; a change that does not fit without it is told once the run is executed. */
function rebuild(
  { codec }: Engine,
  workflow: AnyWorkflow,
  run: Run,
  base: StateAt,
  { patches }: Tape,
): { readonly rebuilt?: RebuiltLine; readonly misfit?: HoldfastError } {
  try {
    const rebuilt = rebuildLine({ runId: run.id, codec, base, patches, definition: workflow.options.state })
    return rebuilt === null ? {} : { rebuilt }
  } catch (error) {
    if (codeOf(error) !== 'nondeterminism') throw error
    return { misfit: error as HoldfastError }
  }
}

/** Asked for only where the function itself writes to streams. */
async function countWritten(store: Store, { owner, id: runId }: Run, { streams, number }: Tape): Promise<Map<string, number>> {
  const written = new Map<string, number>()
  for (const [stream, { isStale }] of streams) {
    let count = 0
    if (isStale) continue
    for (let from = 0; ; ) {
      const records = await store.readChunks({ owner, runId, stream, from, limit: 100 })
      for (const { tape, step, size, payload } of records) {
        if (tape === number && step === null) count = payload === null ? 0 : count + size
      }
      const last = records.at(-1)
      if (last === undefined) break
      from = last.offset + last.size
    }
    written.set(stream, count)
  }
  return written
}

async function executeTape(
  execution: Execution,
  claim: Claim,
  input: unknown,
  /** Absent where it follows another tape under the same claim. */
  begun?: Beginning,
): Promise<ExecutionEnd> {
  if (begun !== undefined) rideBeginning(execution, claim, begun)
  // The state with which the tape began was recorded; `initial` is not asked a second time.
  if (typeof execution.tape.patches[0]?.version === 'number') execution.line.view.advance(1)
  if (claim.run.claimsWithoutProgress > poisonLimit) {
    const error = new HoldfastError(
      'worker_died',
      `Run "${execution.runId}" was claimed ${poisonLimit} times without recording anything: it seems to bring its worker down. ` +
        'Find out why, then run.resume() gives it a new count; run.cancel() ends it.',
      { details: { runId: execution.runId } },
    )
    await execution.pauseNow('poisoned', error)
    return execution.ended
  }
  if (begun !== undefined && begun.silentMs > 0) await execution.lengthenLease(begun.silentMs)
  if (execution.tape.order !== undefined) execution.order(execution.tape.order)
  if (claim.hasMail) await execution.checkMail()
  if (execution.hasOrder && (await orOver(execution, execution.obeyFromLog()))) return execution.ended
  if (execution.tape.order === undefined && begun?.misfit !== undefined) {
    await execution.pauseNow('mismatch', begun.misfit)
    return execution.ended
  }
  // A scope that was running is entered again without a record of its own; this death must count before it can bring another.
  if (execution.mustRecordStarts && hasRunningScope(execution.tape))
    await orOver(
      execution,
      execution.commit([], {}).catch(() => {}),
    )
  // With nothing recorded it is live at once; under an order the function first says how what it began is undone.
  if (execution.hasOrder) setImmediate(() => execution.playback.start())
  else execution.playback.start()
  if (!execution.hasEnded) {
    callFunction(execution, input, begun?.entry.error).catch((error: unknown) => {
      execution.log.error('the end of a run could not be recorded; it is handed back', { runId: execution.runId, error })
      return execution.forceStop()
    })
  }
  return execution.ended
}

/** What it comes to, or true where the execution has ended: a write whose outcome is not known ends it, and does not return. */
function orOver<T>(execution: Execution, writing: Promise<T>): Promise<T | true> {
  return Promise.race([writing, execution.ended.then(() => true as const)])
}

/** With what the first tape under a claim begins. */
interface Beginning {
  readonly rebuilt: RebuiltLine | undefined
  readonly misfit: HoldfastError | undefined
  readonly silentMs: number
  readonly entry: CheckedInput
}

function rideBeginning(execution: Execution, claim: Claim, { rebuilt, entry }: Beginning): void {
  const { input, origin } = entry
  const inputData = { ...(input !== undefined && { input }), ...origin }
  if (entry.isNew) execution.ride(execution.event('run_started', null, { count: execution.tape.number, data: inputData }))
  else if (claim.run.tapeSeq === null) execution.ride(execution.event('run_started', null, { count: 1 }))
  // Whoever reads along drops what an attempt wrote that will be made again.
  const { number: tape, calls, streams } = execution.tape
  for (const [key, { opened = [], outcome }] of calls) {
    if (outcome !== undefined) continue
    const { path: step, count } = parseCallKey(key)
    for (const { attempt, stream } of opened) execution.streams.abortWriter({ tape, step, count, attempt }, [stream])
  }
  for (const [stream, { isStale }] of streams) if (isStale) execution.streams.reopen(stream)
  // Before any other change of the state: those are made on the state without what was dropped.
  if (rebuilt !== undefined && rebuilt.patch !== null) {
    const { patch, dropped } = rebuilt
    execution.ride(execution.event('state_updated', null, { data: { rebuilt: dropped }, patch }), true)
  }
  if (claim.takenFrom === null) return
  const { holder, why, leaseUntil } = claim.takenFrom
  const running = runningCalls(execution.tape)
  const data = { holder, why, leaseUntil, epoch: claim.run.epoch, running }
  reportTakeover(execution, running)
  execution.ride(execution.event('run_recovered', null, { data }))
}

/** Calls the user's function and writes how it ended. */
async function callFunction(execution: Execution, input: unknown, wrongInput: Error | undefined): Promise<void> {
  const { workflow } = execution
  watchTimeout(execution)
  try {
    if (wrongInput !== undefined) throw wrongInput
    let output: unknown
    try {
      output = await execution.calls.inFunction(() => workflow.fn(new RunContext(execution), input))
    } finally {
      execution.isFunctionOver = true
    }
    if (execution.hasEnded) return void execution.cameTooLate()
    if (execution.unawaited.hasAny) await execution.unawaited.report(execution)
    if ((await execution.obey()) || !(await execution.playback.finish())) return
    if (workflow.options.output !== undefined) {
      output = await execution.validate(workflow.options.output, output, `The output of workflow "${workflow.name}"`)
    }
    const data = { ...(output !== undefined && { output }), ...execution.usageSoFar }
    const event = execution.event('run_completed', null, Object.keys(data).length === 0 ? {} : { data })
    await execution.finish('completed', event)
  } catch (error) {
    if (execution.hasEnded) return void execution.cameTooLate()
    if ((await execution.obey()) || !(await execution.playback.finish())) return
    await fail(execution, error)
  }
}

async function fail(execution: Execution, error: unknown): Promise<void> {
  // An error of the function's own, which names no cause: what it has not caught is the likely one.
  const known = sourcesOf(error)
  const own = known.length === 0 ? execution.failures.behind() : []
  const failed = [...new Set([...known, ...own, ...execution.failures.unheard])]
  await execution.fail(explainInPlaceChange(execution, null, error), failed)
}

/** Fails the run when it has taken longer than its workflow allows. Longer than setTimeout can count: looked at again. */
function watchTimeout(execution: Execution): void {
  const { timeoutMs } = execution.workflow.options
  if (timeoutMs === undefined) return
  let timer: NodeJS.Timeout
  const look = (): void => {
    const leftMs = execution.overAt - execution.now()
    if (leftMs > 0) timer = setTimeout(look, Math.min(leftMs, 3_600_000))
    else
      execution.overtime(
        new HoldfastError('timeout', `Run "${execution.runId}" took longer than the ${timeoutMs} ms its workflow allows.`),
      )
  }
  timer = setTimeout(look, 0)
  // Not when the function returns: that of a run which waits as a row never does.
  void execution.ended.then(() => clearTimeout(timer))
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
  // Out of reach: somebody tries again in a while. What is known to go wrong in the same way for ever is not tried again, and
  // what nobody knows is counted, so that it is not tried for ever.
  const code = codeOf(error)
  if (isOutage(error) || code === 'outcome_unknown' || code === 'timeout')
    await execution.handBack(loadAgainMs, { isCounted: false })
  else if (code === undefined && claim.run.claimsWithoutProgress < poisonLimit)
    await execution.handBack(loadAgainMs, { isCounted: true })
  else await execution.pauseNow('poisoned', toStorableError(error))
  await execution.ended
  return { kind: 'lost' }
}
