import type { StandardSchemaV1 } from '@standard-schema/spec'
import type { AnyWorkflow, Registry } from '../../define/workflow.ts'
import { longestLeaseMs } from '../../model/clock-set-back.ts'
import type { Codec } from '../../model/codec.ts'
import { codeOf, HoldfastError } from '../../model/errors.ts'
import type { EventType, NewEvent } from '../../model/event.ts'
import { isInternal } from '../../model/internal.ts'
import type { Logger } from '../../model/logger.ts'
import type { Operation } from '../../model/operation.ts'
import type { Payload } from '../../model/payload.ts'
import { restoreAdvice } from '../../model/restore-advice.ts'
import { isTerminal, type PauseReason, type RunStatus } from '../../model/run.ts'
import { validate } from '../../model/schema.ts'
import { reviveError, toStorableError } from '../../model/stored-error.ts'
import type { NewChunks } from '../../model/stream.ts'
import type { Budget, UsageTotal } from '../../model/usage.ts'
import type { Change, Committed, OperationChange, RunChange } from '../../store/change.ts'
import type { Claim, Message, SqlTransaction, Store, TransactRequest } from '../../store/store.ts'
import { type Call, Calls, type Frame, type ScopeAttempt } from '../calls/calls.ts'
import { endError, expectRejections } from '../calls/expected-rejections.ts'
import { UnawaitedCalls } from '../calls/unawaited-calls.ts'
import type { Engine } from '../execute-run.ts'
import { Account } from '../limits/account.ts'
import { readAccount } from '../limits/account-on-tape.ts'
import { BudgetGuard } from '../limits/budget-guard.ts'
import { Playback } from '../replay/playback.ts'
import { ResultTurns } from '../replay/result-turns.ts'
import { openOn } from '../replay/run-past.ts'
import { isInside, pathOf } from '../replay/scope-paths.ts'
import { readScopes } from '../replay/scopes-on-tape.ts'
import type { TapePlace } from '../replay/section-around.ts'
import { type CallKey, type CallKind, type Order, type Outcome, type Tape, updateKey, whereToRollBack } from '../replay/tape.ts'
import { hasUnaskedBetween, hasUnaskedRightAfter } from '../replay/unasked-between.ts'
import { reportOutlived } from '../reports/report-outlived.ts'
import { reportWork } from '../reports/report-work.ts'
import { reportEnd, reportForgotten, reportLoss } from '../reports/run-reports.ts'
import type { RebuiltLine } from '../state/rebuild-line.ts'
import { StateLine, type StateView } from '../state/state-line.ts'
import { loadStateFor, type StateAt } from '../state/thread-state.ts'
import { Dependants, type Steering } from '../undo/dependants.ts'
import { Undos } from '../undo/undos.ts'
import { type Finish, Unwinding } from '../undo/unwinding.ts'
import { InboxReader } from '../waiting/inbox-reader.ts'
import { takeUpLateRequest } from '../waiting/late-request.ts'
import type { OpenQuestions } from '../waiting/open-questions.ts'
import { outranks } from '../waiting/outranks.ts'
import { QuietTime } from '../waiting/quiet-time.ts'
import { budgetKey, type Letter, nudgeKey, RunInbox } from '../waiting/run-inbox.ts'
import { SignalWaiters } from '../waiting/signal-waiters.ts'
import { putBackFrom } from '../waiting/taken-signals.ts'
import { longWaitMs, type Wait, Waits } from '../waiting/waits.ts'
import { backOff } from '../writing/back-off.ts'
import { type Committer, isOutage } from '../writing/committer.ts'
import type { LeaseHistory } from '../writing/lease-history.ts'
import { Progress } from '../writing/progress.ts'
import { releaseLease } from '../writing/release-lease.ts'
import type { RunOrigin } from '../writing/run-origin.ts'
import { RunStreams } from '../writing/run-streams.ts'
import { type ChangeOptions, type EventFields, RunWriter } from '../writing/run-writer.ts'
import type { Sendings } from '../writing/sendings.ts'
import { WriteOrder } from '../writing/write-order.ts'
import { Failures } from './failures.ts'
import { RunningCalls } from './running-calls.ts'
import { UnderWay } from './under-way.ts'

/** When a run that could not be stopped is tried again. */
const stopAgainMs = 1_000
/** How long a cancelled function may take to come to its end. */
const cancelGraceMs = 5_000
/** How far the store's clock may be ahead before this execution follows it. */
const clockSlackMs = 1_000

/**
 * One claimed run being executed: its commits, its place on the tape, and how it stops.
 *
 * It owns the run's pending events, the state line and the playback. It does not own retries and effects (step-runner,
 * effect-runner) nor the lease's renewal (worker/lease-keeper).
 *
 *   E1  Every write carries (epoch, lease id) and what was last acknowledged under the lease. The first refusal ends the execution; nothing
 *       after it is written, apart from what gives the lease up.
 *   E2  Events reach the log in the order in which they were made.
 *   E3  Results are handed to the function one a turn of the event loop, in log order, as a replay will.
 *   E4  Stopping to wait never throws into user code: the calls just do not return. Cancelling and a lost lease do throw.
 *   E5  A run stops to wait only when nothing of it is at work, as far as can be seen, and its function was quiet for a while.
 *   E6  A function that was at work all the same is noticed at its next call, and the run is executed again.
 */
export class Execution {
  readonly claim: Claim
  /** What was acknowledged under the lease, here and in earlier executions. */
  readonly history: LeaseHistory
  readonly workflow: AnyWorkflow
  readonly codec: Codec
  readonly store: Store
  readonly tape: Tape
  readonly line: StateLine
  readonly log: Logger
  readonly playback: Playback
  readonly calls: Calls
  readonly mailbox = new RunInbox()
  /** What the run was started with besides its input. */
  readonly origin: RunOrigin
  readonly account: Account
  readonly budget: BudgetGuard
  /** Calls whose promises nothing waits for. */
  readonly unawaited = new UnawaitedCalls()
  /** Bodies whose results are awaited, recorded and undone although the run is cancelled meanwhile. */
  readonly work = new UnderWay()
  /** Commits that the store has not answered for. */
  readonly writes = new UnderWay()
  /** Of the work, bodies of steps with a named undo: it can run after the tape has ended, once the result is recorded. */
  #named: UnderWay | undefined
  /** What the process sends, for other executions as well. */
  readonly sendings: Sendings
  readonly steering: Steering
  readonly questions: OpenQuestions
  /** Ends the worker's sleep: something may be due. */
  readonly wakeWorker: () => void
  /** The workflows that this process can execute. */
  readonly registry: Registry
  // Made when they are first asked for, as are those below: most runs need few of them, and hundreds of runs are held at a time.
  #streams: RunStreams | undefined
  #progress: Progress | undefined
  #undos: Undos | undefined
  #inboxReader: InboxReader | undefined
  #waits: Waits | undefined
  #dependants: Dependants | undefined
  #signals: SignalWaiters | undefined
  readonly #written: ReadonlyMap<string, number>
  /** How long the function has to be quiet before the run is persisted as waiting. */
  readonly quiet: QuietTime
  #isSuspended = false
  #wasCaught = false
  readonly #handOut: ResultTurns
  #resultsOnTheirWay = 0
  readonly failures = new Failures()
  readonly #committer: Committer
  readonly #writer: RunWriter
  readonly #writes: WriteOrder
  #abort: AbortController | undefined
  readonly #running = new RunningCalls()
  #abandoned: Set<CallKey> | undefined
  /** Until then the run is not persisted under what can be undone and took too long. */
  #abandonedUntil = 0
  #throwers: Set<(error: Error) => void> | undefined
  #clockBase: { now: number; at: number }
  /** How often ctx.update was called, by scope. */
  #updateCounts: Map<string | null, number> | undefined
  #busy = 0
  /** Of these, steps that the function began and ends itself: they do not say that it is at work. */
  #openSteps: Set<CallKey> | undefined
  #stop: Stop | null = null
  /** What the run was told to do before its tape was played to the end. */
  #order: Order | null = null
  #isUnwinding = false
  /** An order that outranks the one that is being carried out. */
  #overruling: Order | null = null
  #undoGivenUp: { readonly promise: Promise<void>; readonly resolve: () => void } | undefined
  /** Why the function could not be replayed, where that kept undos from being found. */
  #unreplayed: Error | null = null
  #stopRequestedAt = 0
  /** How long a sign of life extends the lease. */
  leaseMs: number
  #aliveAt = performance.now()
  #hasEnded = false
  /** The workflow's function has come to its end. */
  isFunctionOver = false
  #endedAs: ExecutionEnd['kind'] | undefined
  /** The process wants to end: nothing is waited for any more. */
  #isForced = false
  #hasProgress = false
  readonly #earliest: number
  #lastSeq: number
  #endState: StateAt | undefined
  #settle!: (end: ExecutionEnd) => void
  /** How the execution ended. Never rejects. */
  readonly ended: Promise<ExecutionEnd>

  constructor(engine: Engine, options: ExecutionOptions) {
    this.claim = options.claim
    this.history = options.history
    this.workflow = options.workflow
    this.codec = engine.codec
    this.store = engine.store
    this.tape = options.tape
    this.origin = options.origin
    this.log = engine.log
    this.leaseMs = engine.leaseMs
    this.sendings = engine.sendings
    this.#earliest = options.earliestSeq
    this.#committer = engine.committer
    this.#writes = new WriteOrder(engine.committer, options.history)
    const outcomes = readScopes(options.tape)
    this.#lastSeq = options.headSeq
    this.#clockBase = { now: options.claim.now, at: performance.now() }
    const { run, thread } = options.claim
    this.calls = new Calls({ owner: run.owner, runId: run.id, life: thread.incarnation, tape: options.tape })
    this.quiet = new QuietTime({
      times: engine.quietTimes,
      isLimited: options.claim.isQueueLimited,
      isInternal: isInternal(options.workflow.name),
      onOver: () => this.#stopIfIdleOrHandBack(),
      onBroken: () => this.#considerStopping(),
    })
    const limits = { ...(options.origin.budget ?? options.workflow.options.budget), ...options.tape.raised }
    const onTape = readAccount(options.tape)
    this.account = new Account({
      ...onTape,
      limits,
      quiet: this.quiet,
      used: { ...options.tape.usage, steps: options.tape.usage.steps + onTape.steps },
    })
    this.budget = new BudgetGuard(this, this.account)
    this.steering = engine.steering
    this.questions = engine.questions
    this.wakeWorker = engine.wakeWorker
    this.registry = engine.registry
    this.line = new StateLine({
      codec: engine.codec,
      base: options.base,
      patches: options.tape.patches,
      rebuilt: options.rebuilt,
      definition: options.workflow.options.state,
    })
    this.#written = options.written
    this.#writer = new RunWriter(this, { outbox: engine.outbox, startsTape: options.startsTape })
    if (options.hasNewInput === true) this.#writer.startNextTape()
    this.playback = new Playback({
      outcomes,
      onResult: (outcome) => {
        this.failures.handOut()
        if (outcome.isShowing === true) {
          this.#nextUpdate('[edits]')
          this.line.view.advance(outcome.patchCount)
        }
        if (!outcome.isFailure || outcome.isWithdrawn === true) return
        if (this.playback.isEnding) this.failures.unheard.add(outcome.key)
        else this.failures.hear(outcome.key)
      },
      onLive: () => this.#goLive(),
      onMismatch: (recorded, asked) => this.#pauseOnMismatch(recorded, asked),
      isAtWork: () => this.#busy > this.#openCount,
      begunAt: (key) => this.tape.calls.get(key)?.begunAt,
      startedAt: this.claim.run.startedAt ?? 0,
    })
    this.#handOut = new ResultTurns(engine.committer, this.playback)
    this.ended = new Promise((resolve) => {
      this.#settle = resolve
    })
  }

  get owner(): string {
    return this.claim.run.owner
  }

  get runId(): string {
    return this.claim.run.id
  }

  get streams(): RunStreams {
    if (this.#streams !== undefined) return this.#streams
    this.#streams = new RunStreams({
      ...{ runId: this.runId, codec: this.codec, tape: this.tape.number, written: this.#written },
      isRunning: (call) => this.#running.has(call.key),
      beforeWrite: (name) => {
        if (this.comesToNothing(name)) return
        this.throwIfEnded()
        this.calls.refuseInBody('stream', name)
      },
      onOpen: (call, attempt, stream) => this.ride(this.event('stream_opened', call, { attempt, data: { stream } })),
      flush: () => this.commit([], {}),
    })
    if (this.#hasEnded) this.#streams.end()
    return this.#streams
  }

  /** The streams, where there are any. */
  get streamsSoFar(): RunStreams | undefined {
    return this.#streams
  }

  /** What was written to streams since the last change. */
  takeChunks(): readonly NewChunks[] {
    return this.#streams?.take() ?? noChunks
  }

  /** The step that began first of those that run. */
  get currentStep(): string | null {
    return this.#running.first
  }

  get progress(): Progress {
    this.#progress ??= new Progress({
      event: ({ step, ...data }) => this.event('progress_reported', null, { scope: step, data }),
      ride: (event) => this.ride(event),
    })
    return this.#progress
  }

  /** How to take back what the run did. */
  get undos(): Undos {
    this.#undos ??= new Undos()
    return this.#undos
  }

  /** Calls that wait for signals. */
  get signals(): SignalWaiters {
    this.#signals ??= new SignalWaiters(this.mailbox)
    return this.#signals
  }

  /** What ends when the run does. */
  get dependants(): Dependants {
    this.#dependants ??= new Dependants({
      owner: this.owner,
      steering: this.steering,
      closeQuestion: async (key) => void (await this.tryOperation({ kind: 'fail', key })),
    })
    return this.#dependants
  }

  get signal(): AbortSignal {
    if (this.#abort === undefined) {
      this.#abort = new AbortController()
      const isOver = (this.#hasEnded && !this.#isSuspended) || this.isCancelled || this.#stop?.kind === 'fail'
      if (isOver) this.#abort.abort(this.#endError())
    }
    return this.#abort.signal
  }

  /** The run went on without this execution: it waits as a row, was paused or handed over. Its calls do not return (E4). */
  get isDetached(): boolean {
    return this.#hasEnded && this.#stop?.kind !== 'cancel' && this.#stop?.kind !== 'lost'
  }

  /** Every call on ctx throws; what is under way still ends. */
  get isCancelled(): boolean {
    return this.#stop?.kind === 'cancel'
  }

  /** The state as the function sees it that asks: the run's, or that of a section's attempt. */
  get view(): StateView {
    return this.#viewOf(this.calls.attempt)
  }

  #viewOf(attempt: ScopeAttempt | undefined): StateView {
    return attempt?.view ?? this.line.view
  }

  /** The run, or its tape, has come to its end here: what is called on its ctx comes too late, and is told so. */
  get isOver(): boolean {
    return this.#hasEnded && (this.#endedAs === 'continued' || isTerminal(this.#endedAs as RunStatus))
  }

  get hasEnded(): boolean {
    return this.#hasEnded
  }

  get isStopping(): boolean {
    return this.#stop !== null
  }

  /** Where the log ended after the last write that was answered for. */
  get lastSeq(): number {
    return this.#lastSeq
  }

  /** The store's time, kept going by this process's monotonic clock. */
  now(): number {
    return Math.round(this.#clockBase.now + performance.now() - this.#clockBase.at)
  }

  /** Store time at which the workflow's time limit is over. A retried run gets it anew. */
  get overAt(): number {
    const { timeoutMs } = this.workflow.options
    if (timeoutMs === undefined) return Number.POSITIVE_INFINITY
    return (this.tape.retriedAt ?? this.claim.run.startedAt ?? this.#clockBase.now) + timeoutMs
  }

  // ── calls ────────────────────────────────────────────────────────────────

  /** Registers a recording call; refused inside a body and in a run that was cancelled or fenced. */
  enter(kind: CallKind, name: string, isOurName = false, method?: string): Call {
    this.throwIfEnded()
    if (this.isOver) throw this.#lateCall(name)
    this.quiet.heard()
    if (this.#isSuspended) this.#reportWork()
    if (kind !== 'value') this.failures.callBegan()
    return this.calls.enter(kind, name, isOurName, method)
  }

  /** The recorded result of a call, in its turn; the call must have one. */
  async recorded(call: Call, { showsState = true } = {}): Promise<Outcome> {
    const outcome = await this.playback.take(call.key)
    this.throwIfEnded()
    this.quiet.heard()
    call.resultSeq = outcome.seq
    if (showsState) this.#viewOf(call.within).advance(outcome.patchCount)
    return outcome
  }

  /** The recorded result of what the function began and ends itself: it does not wait for it (ctx.begin). */
  recordedAtOnce(call: Call): Outcome {
    const outcome = this.playback.takeAtOnce(call.key)
    call.resultSeq = outcome.seq
    return outcome
  }

  /**
   * The recorded failure of what the function began and ended itself. In its turn, and when the function has come by all that it recorded
   * meanwhile, it is thrown; otherwise the function has to get on inside it, as it did then.
   */
  async recordedFailure(call: Call): Promise<{ readonly outcome: Outcome; readonly isThrown: boolean }> {
    const { outcome, isInTurn } = await this.playback.takeFailure(call.key)
    this.throwIfEnded()
    this.quiet.heard()
    call.resultSeq = outcome.seq
    const begunAt = call.history?.begunAt ?? outcome.seq
    return { outcome, isThrown: isInTurn && !hasUnaskedBetween(this.tape, this.calls, begunAt, outcome.seq) }
  }

  /**
   * The function gets what it began where it did then: a microtask after it called, or once the beginning was recorded. In a microtask branches
   * that began in the same turn have made the updates and values that they make at once: what the log has beyond those was made inside.
   */
  async begun({ key, history }: Call): Promise<void> {
    if (history?.begunFirstAt !== undefined) await this.playback.turnOfBeginning(key, history.begunFirstAt)
    if (this.isDetached) return never()
    this.throwIfEnded()
  }

  /** The same failure where the function has to continue inside the step at once. */
  recordedFailureAhead(call: Call): Outcome {
    const outcome = this.playback.takeFailureAhead(call.key)
    call.resultSeq = outcome.seq
    return outcome
  }

  /** What the function began encloses an update or a value that it made before it got any result, and has not come by yet. */
  recordsInside(call: Call): boolean {
    this.throwIfEnded()
    return hasUnaskedRightAfter(this.tape, this.calls, call)
  }

  /** The function ends what it began, and has its result already: it continues where it did then. */
  async turnOf(outcome: Outcome): Promise<void> {
    await this.playback.turnOf(outcome)
    if (this.isDetached) return never()
    this.throwIfEnded()
    this.quiet.heard()
  }

  /** Passes when new work may start: the tape is consumed and nobody asked the run to stop. */
  async pass(call: Call): Promise<void> {
    if (!this.playback.isLive) await this.playback.untilLive(call.key)
    this.throwIfEnded()
    if (this.isDetached) return never()
    if (this.#stop !== null) await this.park({ dueAt: null, reason: 'timer' })
  }

  /** The same for a step that the function begins once more; it may enclose what is on the tape, and so comes first. */
  async passInto(call: Call): Promise<void> {
    if (!this.playback.isLive) await this.playback.untilLiveOrInside(call.key)
    if (this.playback.isLive) return this.pass(call)
    this.throwIfEnded()
  }

  /** Whether `pass` would let a call through without waiting: saves the hot path a turn of the microtask queue. */
  get isOpen(): boolean {
    return this.playback.isLive && this.#stop === null && !this.#hasEnded
  }

  /** A cancelled or fenced run throws at every later call (E4). */
  throwIfEnded(): void {
    if (!this.#isTakenAway) return
    // A branch that nobody awaits any more may call at any time.
    expectRejections()
    throw this.#endError()
  }

  get #isTakenAway(): boolean {
    return this.#stop?.kind === 'cancel' || this.#stop?.kind === 'lost'
  }

  /**
   * A call that returns no promise comes after the end, of the run or of its function: in a timer that was left behind nobody hears an error,
   * and it would end the process. So it is told of in the log, and does nothing.
   */
  comesToNothing(name: string): boolean {
    if (this.#isTakenAway ? !this.isFunctionOver : !this.isOver) return false
    this.#lateCall(name)
    return true
  }

  /** After a death it matters which step was running: until something is recorded, starts are durable before bodies begin. */
  get mustRecordStarts(): boolean {
    return (this.claim.takenFrom !== null || this.claim.run.claimsWithoutProgress > 1) && !this.#hasProgress
  }

  // ── work ─────────────────────────────────────────────────────────────────

  /** Marks a body as running: it shows as the current step, and the run does not stop to wait under it. */
  begin(call: Call): void {
    this.#running.add(call.key, call.path)
    this.#beginWork()
  }

  /** The same for a step that the function itself ends. */
  beginOpen(call: Call): void {
    this.#openSteps ??= new Set()
    this.#openSteps.add(call.key)
    this.begin(call)
  }

  endOpen(call: Call): void {
    this.#openSteps?.delete(call.key)
    this.end(call)
  }

  /** The function that was to end them is over: nobody waits for them any more. */
  abandonOpenInside(scope: string): void {
    for (const key of this.#openSteps ?? []) {
      if (!isInside(pathOf(key), scope)) continue
      this.#openSteps?.delete(key)
      this.#abandoned ??= new Set()
      if (this.#abandoned.has(key)) continue
      this.#abandoned.add(key)
      this.#running.delete(key)
      this.#settleDown()
    }
  }

  /** Its body is over and its result on the way: it is no longer the current step, which few rows then have to be written for. */
  leave(call: Call): void {
    this.#running.delete(call.key)
  }

  end(call: Call): void {
    this.#running.delete(call.key)
    if (this.#abandoned?.delete(call.key) !== true) this.#settleDown()
  }

  /** Bodies in a scope that took too long are not waited for: they may never end. What they still bring is recorded all the same. */
  abandonInside(scope: string): void {
    this.#abandonedUntil = performance.now() + cancelGraceMs
    for (const [key, path] of this.#running.all()) {
      this.#abandoned ??= new Set()
      if (!isInside(path, scope) || this.#abandoned.has(key)) continue
      this.#abandoned.add(key)
      this.#settleDown()
    }
  }

  /** Counts as work while it lasts: the run does not stop to wait under it. */
  async working<T>(work: Promise<T>): Promise<T> {
    this.#beginWork()
    try {
      return await work
    } finally {
      this.#settleDown()
    }
  }

  /** Validates what the function is about to get. A schema may take its time: that counts as work. */
  async validate<T>(schema: StandardSchemaV1, value: unknown, what: string): Promise<T> {
    const checked = validate(schema, value, what)
    if (!(checked instanceof Promise)) return checked as T
    try {
      return (await this.working(checked)) as T
    } finally {
      this.quiet.heard()
    }
  }

  /** The promise's outcome, or the error of a run that was cancelled or fenced meanwhile. The body that it is of is over then. */
  orThrow<T>(promise: Promise<T>, body?: Frame): Promise<T> {
    this.#throwers ??= new Set()
    const throwers = this.#throwers
    return new Promise((resolve, reject) => {
      throwers.add(reject)
      promise.then(
        (value) => {
          if (body !== undefined) body.isOver = true
          throwers.delete(reject)
          resolve(value)
        },
        (error: unknown) => {
          if (body !== undefined) body.isOver = true
          throwers.delete(reject)
          reject(error)
        },
      )
    })
  }

  /**
   * Waits in memory or, when nothing else is at work, as a row. Never resolves in an execution that stopped. The attempt is that of the scope
   * whose call waits.
   */
  async park(wait: Wait, attempt: ScopeAttempt | null = this.calls.attempt ?? null): Promise<void> {
    this.throwIfEnded()
    // A schedule that ticks every second would hold a place for ever.
    this.#waits ??= new Waits(this, isInternal(this.workflow.name) ? 0 : longWaitMs)
    const over = this.#waits.add(wait)
    if (this.#stop !== null) this.#waits.freeze()
    this.#considerStopping()
    attempt?.rest(true)
    try {
      await over
    } finally {
      attempt?.rest(false)
    }
    // Whoever waited may not continue: its section has ended meanwhile.
    this.#considerStopping()
  }

  /** Something that waits wait for has changed, by the key of their mail. */
  tell(key: string): void {
    if (this.#stop === null) this.#waits?.wakeForMail([key])
  }

  /** A wait is over before its time. One of an execution that is being stopped stays as it is. */
  wake(wait: Wait): void {
    if (this.#stop === null && !this.#hasEnded) this.#waits?.wake(wait)
  }

  /** Ends a wait that has not come to its end. */
  withdraw(wait: Wait): void {
    this.#waits?.withdraw(wait)
  }

  // ── writing ──────────────────────────────────────────────────────────────

  event(type: EventType, call: Call | null, fields?: EventFields): NewEvent {
    return this.#writer.event(type, call, fields)
  }

  /** Lets an event ride with the next commit. */
  ride(event: NewEvent, isResult = false): void {
    this.#writer.ride(event, isResult)
  }

  /** Called every now and then by the worker: what has been riding for long is written. */
  flushIfOld(): void {
    if (this.#hasEnded) return
    this.#progress?.rideIfDue()
    if (!this.#writer.hasOldRiding) return
    this.commit([], {}).catch((error: unknown) => this.log.debug('flush failed', { runId: this.runId, error }))
  }

  /** Writes events, after everything that was riding, and resolves when they are durable. Throws when the lease is lost. */
  async commit(events: readonly NewEvent[], options: ChangeOptions): Promise<Extract<Committed, { ok: true }>> {
    if (options.operation !== undefined) this.#writeRidingFirst()
    const answer = await this.#write(this.#writer.change(events, options), options.undoable)
    return answer.ok ? answer : this.#refused(answer.refusal, options)
  }

  /**
   * Writes what was riding or was written to streams in a change of its own: the one after it may be refused because of its operation, which
   * somebody else has changed. Null where there is nothing.
   */
  #writeRiding(): Promise<Committed> | null {
    const hasMore = this.#writer.hasRiding || this.#streams?.hasPending === true
    return hasMore ? this.#write(this.#writer.change([], {})) : null
  }

  /** The same where the change after it is awaited, which comes to nothing with it. */
  #writeRidingFirst(): void {
    this.#writeRiding()?.catch(() => {})
  }

  /**
   * Like `commit` for a result that is handed to the function: resolves in its turn, with its patch shown, to its position. The call says whose
   * view that is; without one it is that of whoever asks.
   */
  async commitResult(events: readonly NewEvent[], options: ChangeOptions, call?: Call): Promise<number> {
    const { mark } = this.line
    const view = call === undefined ? this.view : this.#viewOf(call.within)
    this.#progress?.rideHeld()
    this.#resultsOnTheirWay++
    if (options.failureOf !== undefined) this.failures.unheard.add(options.failureOf)
    let seq: number
    try {
      // `commit` and `#turn` spelled out: two promises less for every step.
      if (options.operation !== undefined) this.#writeRidingFirst()
      const change = this.#writer.change(events, options, true)
      const answer = await this.#write(change, options.undoable)
      if (!answer.ok) return await this.#refused(answer.refusal, options)
      seq = answer.lastSeq
      if (answer.hasMail || this.#inboxReader?.holdsResults === true) await this.#mail.beforeResult(answer.hasMail)
      if (this.playback.isAwaited) await this.playback.idle()
      if (!this.#handOut.takeTurn()) await this.#handOut.next()
    } finally {
      this.#resultsOnTheirWay--
      this.#considerStopping()
    }
    if (this.isDetached) return never()
    this.throwIfEnded()
    if (options.failureOf === undefined) this.failures.handOut()
    else this.failures.hear(options.failureOf)
    if (options.showsState !== false) view.advance(mark)
    this.quiet.heard()
    return seq
  }

  /** A result that rides with the next commit: handed out in a turn of its own all the same (E3). */
  async rideResult(event: NewEvent): Promise<void> {
    const { mark } = this.line
    const { view } = this
    this.#writer.ride(event, true, true)
    if (this.playback.isAwaited) await this.playback.idle()
    await this.#handOut.next()
    if (this.isDetached) return never()
    this.throwIfEnded()
    this.failures.handOut()
    view.advance(mark)
    this.quiet.heard()
  }

  /** A result that only rides would be handed out before one that is on its way and stands before it in the log (E3). */
  get hasResultsOnTheirWay(): boolean {
    return this.#resultsOnTheirWay > 0
  }

  /**
   * Makes an effect's intent durable, after what was riding. It may be refused because the key is taken: answers with the operation in that
   * case.
   */
  async intend(event: NewEvent, operation: Extract<OperationChange, { kind: 'intend' }>): Promise<Operation | null> {
    const before = this.#writeRiding()
    const intent = this.#write(this.#writer.change([event], { isCheckpoint: false, operation, mustSync: true }))
    const [first, answer] = await Promise.all([before, intent])
    if (first !== null && !first.ok) return this.#refused(first.refusal)
    if (answer.ok) {
      const { key, name } = operation
      this.history.effects.intended(key, { name, event, at: answer.now })
      return null
    }
    if (answer.refusal === 'operation_taken' && answer.operation !== undefined) return answer.operation
    return this.#refused(answer.refusal)
  }

  /** Changes an operation that somebody else may have changed first; says whether it was done. What was riding goes before. */
  async tryOperation(operation: OperationChange): Promise<boolean> {
    const before = this.#writeRiding()
    const answers = await Promise.all([before, this.#write(this.#writer.change([], { operation }))])
    for (const answer of answers) if (answer !== null && !answer.ok && this.#hasEnded) return this.#refused(answer.refusal)
    return answers[1]?.ok === true
  }

  /** Runs `body` in one database transaction with the events it returns; what was riding is written before. */
  async transact(timeoutMs: number, body: (tx: SqlTransaction) => Promise<readonly NewEvent[]>): Promise<void> {
    const { store, claim } = this
    if (store.transact === undefined) {
      throw new HoldfastError('invalid_input', `ctx.transaction needs SQLite or Postgres; this store is ${store.kind}.`)
    }
    const { epoch, threadId } = claim.run
    const guarded = { owner: this.owner, runId: this.runId, threadId, epoch, leaseId: claim.leaseId, timeoutMs }
    this.#resultsOnTheirWay++
    try {
      const answer = await this.#writes.alone(
        () => (this.#writer.hasRiding ? this.commit([], {}) : null),
        async () => {
          if (this.isDetached) return never<Committed>()
          this.throwIfEnded()
          return this.#transactPatiently(guarded, async (tx) => {
            const events = await body(tx)
            // What began to ride meanwhile goes with the next commit.
            return this.#writer.changeAlone(events, { hasProgress: true })
          })
        },
      )
      if (!this.#heed(answer).ok) return await this.#refused((answer as Extract<Committed, { ok: false }>).refusal)
      this.#hasProgress = true
      await this.#turn()
    } finally {
      this.#resultsOnTheirWay--
      this.#considerStopping()
    }
  }

  /** An unavailable or full store is waited for, as by the committer; an unknown outcome is read anew. */
  async #transactPatiently(guarded: TransactRequest, body: (tx: SqlTransaction) => Promise<Change>): Promise<Committed> {
    for (let tries = 0; ; tries++) {
      if (this.history.isOver) return { ok: false, refusal: 'lease_lost' }
      this.history.sent.begin()
      try {
        let change: Change | undefined
        const { writtenSeq } = this.history
        const answer = await this.store.transact!({ ...guarded, writtenSeq }, async (tx) => {
          change = await body(tx)
          return this.history.stamp(change)
        })
        if (change !== undefined) this.history.note(change, answer)
        return answer
      } catch (error) {
        if (codeOf(error) === 'outcome_unknown') return this.startOver(error)
        if (!isOutage(error)) throw error
      } finally {
        this.history.sent.end()
      }
      await backOff(tries)
      if (this.isDetached) return never()
      this.throwIfEnded()
    }
  }

  /** A late answer, of a fenced holder or after the end of a run or tape: kept beside the operation, for the person who decides. */
  noteEvidence(key: string, evidence: unknown): void {
    const change: Change = {
      owner: this.owner,
      threadId: this.claim.run.threadId,
      runId: this.runId,
      guard: { kind: 'none' },
      events: [],
      isCheckpoint: false,
      operation: { kind: 'note', key, evidence: this.codec.encode(evidence) },
    }
    this.#committer.commit(change).catch((error: unknown) => this.log.warn('late answer could not be kept', { key, error }))
  }

  /** The n-th ctx.update: moves to where it stood, or runs the recipe and lets the patch ride. */
  update(recipe: (draft: never) => unknown): void {
    const { attempt } = this.calls
    const isAwaited = this.isCancelled && !this.#hasEnded && attempt?.isAwaited === true
    if (!isAwaited && this.comesToNothing('update')) {
      attempt?.miss()
      return
    }
    const { within } = isAwaited ? this.calls.enter('value', 'update', true) : this.enter('value', 'update', true)
    // What belongs to an attempt of a scope that is over changes nothing any more.
    if (within?.isOver && !isAwaited && !within.isRecordedAnyway) {
      within.miss()
      return
    }
    const scope = this.calls.place
    const count = this.#nextUpdate(scope)
    const key = updateKey(scope, count)
    const recorded = this.tape.updates.get(key)
    const view = this.#viewOf(within)
    if (recorded !== undefined) {
      view.advance(recorded.position)
      if (this.playback.isLive && within === undefined) this.#showEdits()
      if (recorded.error !== undefined) throw reviveError(recorded.error)
      return
    }
    // Nobody will write it: it must not reach the state that is handed to the next run either.
    if (this.#hasEnded) return
    this.#migrate()
    let patch: Payload | null = null
    try {
      patch = this.line.stage([recipe])
    } catch (error) {
      const event = this.event('state_updated', null, { scope, count, data: { error: toStorableError(error) } })
      this.ride(event)
      view.advance(this.line.mark)
      // As a replay will throw it: its class is not stored.
      throw reviveError((this.codec.decode(event.payload as Payload) as { error: Error }).error)
    }
    view.advance(this.line.mark)
    // One that changed nothing is recorded too: a replay must not run its recipe on a state that came later.
    this.ride(this.event('state_updated', null, { scope, count, patch }), patch !== null)
  }

  #nextUpdate(scope: string | null): number {
    this.#updateCounts ??= new Map()
    const count = (this.#updateCounts.get(scope) ?? 0) + 1
    this.#updateCounts.set(scope, count)
    return count
  }

  /** The tape is consumed: edits by hand at its end are shown, and an older state is brought to the definition's version. */
  #goLive(): void {
    this.quiet.heard()
    // What is taken back needs no state of this version: a definition that is wrong must not keep it from being undone.
    if (this.#order !== null) {
      this.#heedOrder(this.#order)
      return
    }
    try {
      this.#migrate()
      this.#showEdits()
      this.budget.watch()
    } catch (error) {
      // The stored state is as it was; the run goes on when the definition is repaired.
      void this.pauseNow('mismatch', error as Error)
    }
  }

  /** Edits by hand that come next. Where they were shown is recorded, so that a replay shows them there. */
  #showEdits(): void {
    if (!this.line.showEdits()) return
    const scope = '[edits]'
    this.ride(this.event('state_updated', null, { scope, count: this.#nextUpdate(scope), data: { shown: true } }))
  }

  #migrate(): void {
    const migrated = this.line.migrate()
    if (migrated === null) return
    const { patch, from, to } = migrated
    this.#writer.setStateVersion(to)
    this.ride(this.event('state_migrated', null, { data: { from, to }, patch }), true)
  }

  /** For the event that ends the run: whoever started it adds it to its own. */
  get usageSoFar(): { readonly usage?: UsageTotal } {
    const { used } = this.account
    return used.tokens > 0 || used.cost > 0 || this.origin.parent !== undefined ? { usage: used } : {}
  }

  // ── stopping ─────────────────────────────────────────────────────────────

  /** Stop at the next safe point: what runs may finish, nothing new starts. */
  requestPause(by?: string): void {
    this.#requestStop({ kind: 'pause', reason: 'asked', data: by === undefined ? {} : { by } })
  }

  /** Stops the run at once with a reason of its own. */
  pauseBecause(reason: PauseReason, error: Error, step?: string): void {
    this.#requestStop({ kind: 'pause', reason, data: { error: toStorableError(error), ...(step !== undefined && { step }) } })
  }

  /** Somebody resumed the run before it came to its pause: it is handed back instead, and goes on at once. */
  #takeBackPause(): void {
    const isAsked = this.#stop?.kind === 'pause' && (this.#stop.reason === 'asked' || this.#stop.reason === 'budget')
    if (isAsked) this.#stop = { kind: 'release' }
  }

  /** Pauses at once, whatever runs. */
  async pauseNow(reason: PauseReason, error: Error): Promise<void> {
    if (this.#hasEnded) return
    await this.#stopNow({ kind: 'pause', reason, data: { error: toStorableError(error) } })
  }

  /**
   * The function has come to its end. Where the run was told to do something else than to go on, that is done now, and true
   * returned: undoing what it did, for a cancel or a rollback, or stopping because its budget is used up.
   */
  async obey(): Promise<boolean> {
    if (this.#isUnwinding) return true
    if (this.#order !== null) {
      // A branch that lost may come by the call that gives one when what it awaits of its own is over, as it did then.
      if (!this.playback.isLive && this.undos.lacksGiven(this, afterSeqOf(this.#order)))
        await this.playback.finish({ isReported: false })
      await this.#carryOut(this.#order)
    } else if (this.#stop?.kind === 'pause' && this.#stop.reason === 'budget') await this.#stopNow(this.#stop)
    else return false
    return true
  }

  /** The run was told to do something else than to continue. */
  get hasOrder(): boolean {
    return this.#order !== null
  }

  get place(): TapePlace {
    return { owner: this.owner, threadId: this.claim.run.threadId, runId: this.runId, afterSeq: this.#earliest }
  }

  /** The position that the run was told to go back to. */
  get rollbackTo(): number | undefined {
    return this.#order?.kind === 'rollback' ? this.#order.to : undefined
  }

  /** Carries an order out without calling the function, where all that is due can be undone from the log. */
  async obeyFromLog(): Promise<boolean> {
    const order = this.#order
    if (order === null) return false
    const afterSeq = afterSeqOf(order)
    if (afterSeq !== Number.POSITIVE_INFINITY) {
      try {
        await this.undos.readDecisions(this)
      } catch (error) {
        await this.#couldNotStop(error)
        return true
      }
    }
    // A child may have completed meanwhile.
    const due = [...this.undos.due(this, afterSeq), ...openOn(this.tape).children.filter(({ seq }) => seq > afterSeq)]
    if (order.replays === false)
      this.#unreplayed = new HoldfastError('worker_died', 'its function brought its workers down and is not called')
    else if (due.some(({ undo }) => undo === true)) return false
    await this.#carryOut(order, { isFromLog: order.replays !== false })
    return true
  }

  /** Takes back what the run did, then ends it as the order says. An undo that fails, or can't be found, pauses it. */
  async #carryOut(order: Order, { isFromLog = false } = {}): Promise<void> {
    if (this.#isUnwinding || this.#hasEnded) return
    this.#isUnwinding = true
    this.#stop = stopFor(order)
    if (order.kind === 'fail') this.#abort?.abort(this.#endError())
    this.#waits?.freeze()
    this.#beginWork()
    try {
      const finish = await this.#endingOf(order)
      if (order.kind === 'fail' && order.undo === false) return await finish([])
      const graceMs = Math.max(0, this.#stopRequestedAt + cancelGraceMs - performance.now())
      const failure = await new Unwinding(this, order, { graceMs, isFromLog, why: this.#unreplayed }).run(finish)
      if (failure === null) return
      // What is to be done is in the inbox or in the log: whoever reads the run anew finds it there.
      if (failure === 'overruled' || failure === 'unreplayed') return await this.#stopNow({ kind: 'reload' })
      if (failure === 'refused') {
        // Whoever asked sees it in the log; the run continues.
        this.mailbox.forget('rollback')
        return await this.#stopNow({ kind: 'reload' })
      }
      if (failure === 'later') return await this.handBack(stopAgainMs, { isCounted: false })
      await this.#stopNow({ kind: 'pause', reason: 'undo', data: { error: toStorableError(failure), order } })
    } catch (error) {
      await this.#couldNotStop(error)
    } finally {
      this.#busy--
    }
  }

  /** How a run ends, or stops, once what an order says is undone. What has to be read for it is read here. */
  async #endingOf(order: Order): Promise<Finish> {
    switch (order.kind) {
      case 'cancel':
        return (_, headSeq) => {
          const data = { ...(order.by !== undefined && { by: order.by }), ...this.usageSoFar }
          const run = { status: 'cancelled', reason: null, currentStep: null, setsEnd: true } as const
          return this.#endWith(() => [this.event('run_cancelled', null, { data })], run, { kind: 'cancelled' }, { headSeq })
        }
      case 'fail':
        return (_, headSeq) => {
          const { error, failed } = order
          const isUndone = order.undo !== false
          const data = { error: toStorableError(error), failed, ...(isUndone && { isUndone }), ...this.usageSoFar }
          return this.finish('failed', this.event('run_failed', null, { data }), headSeq)
        }
      case 'rollback': {
        const { to, by } = order
        const before = await this.#stateAt(to)
        return (taken, headSeq) => {
          const eventsOf = () => {
            const data = { to, undone: this.undos.undone(this, to), ...(by !== undefined && { by }) }
            this.#migrate()
            const patch = this.line.replace(before)
            this.mailbox.forget('rollback')
            return [this.event('run_rolled_back', null, { data, patch })]
          }
          const run = { status: 'paused', reason: 'asked', due: 'never', setsEnd: true, currentStep: null } as const
          return this.#endWith(eventsOf, { ...run, uncountClaim: true }, { kind: 'paused' }, { delivers: taken, headSeq })
        }
      }
    }
  }

  async #stateAt(seq: number): Promise<unknown> {
    const { owner, threadId } = this.claim.run
    const thread = await this.store.readThread({ owner, threadId })
    if (thread === null) return this.line.whole(0).value
    // A thread's version never goes down: what was there before it was reached is brought to it.
    return loadStateFor(this.workflow.options.state, this.store, this.codec, thread, seq)
  }

  /** Shutdown: hand the run back. Not a death. */
  requestRelease(): void {
    this.#requestStop({ kind: 'release' })
  }

  /** A scope is to be tried again: at the next safe point the tape is read anew, as after a crash, under the same lease. */
  requestReload(): void {
    if (this.#stop === null) this.#requestStop({ kind: 'reload' })
  }

  /** To do something else than to go on. What was done has to be known before it can be undone: the tape is played to its end first. */
  order(asked: Order): void {
    // What came before its tape is not the run's to take back, or is forgotten; what a failure has begun to undo is not there to go back
    // to. Whoever asked is told so.
    const isFailing = (this.#isUnwinding ? this.#order : this.tape.order)?.kind === 'fail'
    if (asked.kind === 'rollback' && (asked.to < this.#earliest || isFailing)) {
      this.mailbox.forget('rollback')
      return
    }
    const order = asked.kind === 'rollback' ? { ...asked, to: whereToRollBack(this.tape.rolledBack, asked.to) } : asked
    const current = this.#overruling ?? this.#order
    if (this.#hasEnded || (current !== null && !outranks(order, current))) return
    if (this.#isUnwinding) this.#overrule(order)
    else {
      this.#order = order
      if (this.playback.isLive) this.#heedOrder(order)
    }
  }

  /** The undo under way comes to its end first, or to the end of its grace where nothing is to be undone any more. */
  #overrule(order: Order): void {
    this.#overruling = order
    if (order.kind === 'cancel' && order.undo === false) setTimeout(() => this.#undoGivenUp?.resolve(), cancelGraceMs).unref()
  }

  /** Something that ranks higher is to be done than what is being carried out. */
  get isOverruled(): boolean {
    return this.#overruling !== null
  }

  /** Resolves when an undo that is under way is no longer waited for. */
  get undoGivenUp(): Promise<void> {
    this.#undoGivenUp ??= Promise.withResolvers<void>()
    return this.#undoGivenUp.promise
  }

  /** The run has taken longer than its workflow allows: an order like the others, and none where it has one. */
  overtime(error: Error): void {
    if (this.#order === null) this.order(this.#failure(error, []))
  }

  /** The function threw. */
  async fail(error: unknown, failed: readonly CallKey[]): Promise<void> {
    this.order(this.#failure(toStorableError(error), failed))
    await this.obey()
  }

  #failure(error: Error, failed: readonly CallKey[]): Order {
    return { kind: 'fail', error, failed, ...(this.workflow.options.undoOnFailure !== true && { undo: false }) }
  }

  #heedOrder(order: Order): void {
    this.#stopRequestedAt = performance.now()
    if (order.kind === 'cancel') this.#cancel(order)
    else if (order.kind === 'rollback') this.#requestStop(stopFor(order))
    else void this.#carryOut(order)
  }

  /** Reaches running bodies through their signal; every later call on ctx throws. */
  #cancel(order: Order): void {
    this.#stop = stopFor(order)
    this.#throwEverywhere()
    // A function that does not come to an end is not waited for for ever.
    setTimeout(() => void this.#carryOut(this.#order ?? order), cancelGraceMs).unref()
  }

  /** The lease is gone, or the store has lost what was written under it: nothing of this execution counts any more. */
  lose(): void {
    if (this.#hasEnded) return
    this.#stop = { kind: 'lost' }
    this.#throwEverywhere()
    this.#close('lost')
    void this.#surrender()
  }

  /** Ends an execution that was told that it has lost its lease. Where the lease is still there, the store has lost commits: the run is given up, to be read anew. */
  async #surrender(): Promise<void> {
    if (await this.#releaseLease({ isCounted: false })) {
      reportForgotten(this)
      this.wakeWorker()
    } else {
      reportLoss(this)
      this.#reportOutlived()
    }
    this.#settle({ kind: 'lost' })
  }

  #reportOutlived(): void {
    const { owner, runId, store, log } = this
    // It was over when it was lost, whatever the clocks say.
    const silentMs = Math.max(this.leaseMs, performance.now() - this.#aliveAt)
    void reportOutlived({ owner, runId, store, log, epoch: this.claim.run.epoch }, silentMs)
  }

  /** The store has just heard of this holder: its lease was extended. */
  keptAlive(): void {
    this.#aliveAt = performance.now()
  }

  /** Earlier holders were silent for so long and lived on: the lease is made long enough for that. */
  async lengthenLease(silentMs: number): Promise<void> {
    const leaseMs = Math.min(longestLeaseMs, 2 * silentMs)
    if (leaseMs <= this.leaseMs) return
    this.leaseMs = leaseMs
    const { owner, runId, claim, store, log } = this
    await store
      .renew({
        leaseMs,
        leases: [{ owner, runId, epoch: claim.run.epoch, leaseId: claim.leaseId, writtenSeq: this.history.writtenSeq }],
      })
      .catch((error: unknown) => log.debug('a lease could not be made longer', { runId, error }))
  }

  /** Grace is over: hand the run back although something still runs. Its writes will be refused. */
  async forceStop(): Promise<void> {
    this.#isForced = true
    if (this.#hasEnded) return
    this.#abort?.abort(new HoldfastError('closed', `Holdfast is closing; run "${this.runId}" is handed over.`))
    // What it was told to undo, the next holder is told too.
    await this.#stopNow(this.#stop?.kind === 'pause' ? this.#stop : { kind: 'release' })
  }

  /** Hands the run back for a while: what it needs could not be read. `isCounted`: as a claim without progress. */
  async handBack(inMs: number, { isCounted }: { isCounted: boolean }): Promise<void> {
    if (this.#hasEnded) return
    const run = { status: 'pending', reason: null, due: { inMs }, ...(!isCounted && { uncountClaim: true }) } as const
    await this.#endWith(none, run, { kind: 'released' })
  }

  /** The function returned or threw: the last commit of the run. */
  async finish(status: RunStatus, event: NewEvent, headSeq?: number): Promise<void> {
    if (this.#dependants?.hasQuestions === true) await this.#dependants.closeQuestions()
    if (this.#hasEnded) return
    const run = { status, reason: null, currentStep: null, setsEnd: true, hasProgress: true } as const
    return this.#endWith(() => [event], run, { kind: status }, { headSeq })
  }

  /** Counts work that `continueAs` waits for. */
  followNamed(work: Promise<unknown>): void {
    this.#named ??= new UnderWay()
    this.#named.follow(work)
  }

  /** What is under way and can be undone on a later tape has a while to end: only what is recorded on this one is known there. */
  async endNamed(): Promise<void> {
    await this.#named?.idle(cancelGraceMs)
  }

  /** Ends this tape and starts the next one under the same lease. */
  async continueWith(input: unknown): Promise<void> {
    // Nobody on the next tape could take their answers.
    if (this.#dependants?.hasQuestions === true) await this.#dependants.closeQuestions()
    const written = await this.#writes.addEnd(async () => {
      this.throwIfEnded()
      if (!this.isOpen) return null
      const event = this.event('run_started', null, { count: this.tape.number + 1, data: { input, ...this.#carriedOn() } })
      // What was riding belongs to the old tape; the new one begins with a commit of its own, in the same batch.
      this.#streams?.end()
      const isCheckpoint = this.#writer.hasRiding
      const before = isCheckpoint || this.#streams?.hasPending === true ? this.#writer.change([], { isCheckpoint }) : null
      this.#writer.startNextTape()
      const change = this.#writer.change([event], { hasProgress: true })
      // From here on nothing of the old tape may be written: it would land on the new one.
      this.#hasEnded = true
      const base = this.line.whole(0)
      const commits = [...(before === null ? [] : [before]), change].map((one) => this.#committer.commit(one, true, this.history))
      const answers = await Promise.all(commits).catch((error: unknown) => this.#unwritten(error))
      return { event, base, answer: answers?.at(-1) }
    })
    if (written === null) {
      // It was told to stop while a transaction came to its end.
      if (!this.isDetached) await this.park({ dueAt: null, reason: 'timer' })
      return
    }
    const { event, base, answer } = written
    const tapeNumber = this.tape.number + 1
    if (!answer?.ok) return this.#endUnwritten(answer)
    const { input: recorded } = this.codec.decode(event.payload as Payload) as { input?: unknown }
    const hasMail = answer.hasMail || !this.mailbox.isEmpty
    this.#finish({ kind: 'continued', base: { ...base, seq: answer.lastSeq }, tapeNumber, input: recorded, hasMail })
  }

  /** What the next tape is to know of this one. */
  #carriedOn(): Record<string, unknown> {
    this.account.bookSlice()
    const { used, limits, isLimited } = this.account
    return { ...this.origin, ...(isLimited && { budget: limits }), usage: used }
  }

  get stop(): Stop | null {
    return this.#stop
  }

  // ── inside ───────────────────────────────────────────────────────────────

  /** Reads messages of others: requests, signals, word of children. Resolves when everything that is there by now was read. */
  checkMail(): Promise<void> {
    return this.#mail.now()
  }

  /** Null where no mail is being read: what a write has told of is known. */
  get mailUnderWay(): Promise<void> | null {
    return this.#inboxReader?.underWay ?? null
  }

  get #mail(): InboxReader {
    this.#inboxReader ??= new InboxReader({ read: () => this.#readInbox(), isOver: () => this.#hasEnded })
    return this.#inboxReader
  }

  async #readInbox(): Promise<void> {
    try {
      const messages = await this.store.readInbox({ owner: this.owner, runId: this.runId })
      const { requests, signals, nudges } = this.mailbox.takeIn(this.#mayHoldPutBack ? this.#dated(messages) : messages)
      this.quiet.raise(this.mailbox.quietMs)
      // Frozen where somebody asked the run to stop: a wait is a safe point, and stays as it is.
      if (this.#stop === null) {
        this.#waits?.wakeForMail(nudges)
        this.#signals?.wakeFor(signals)
      }
      let pause: { readonly by: string | undefined } | null = null
      for (const request of requests) {
        const { by, to, since, budget, undo } = (
          request.payload === null ? {} : this.codec.decode(request.payload)
        ) as RequestData
        if (request.kind === 'cancel') this.order({ kind: 'cancel', by, ...(undo === false && { undo }) })
        else if (request.kind === 'rollback' && to !== undefined) {
          if (this.#wasRolledBack(to, since)) this.mailbox.forgetRequest(request.id)
          else this.order({ kind: 'rollback', to, by })
        } else if (request.kind === 'pause') pause = { by }
        else if (request.kind === 'resume') {
          pause = null
          if (budget !== undefined) {
            this.account.raise(budget)
            // A child that ran out of what it was given may be given more.
            this.tell(budgetKey)
            this.ride(this.event('budget_raised', null, { data: { budget, ...(by !== undefined && { by }) } }))
          }
          this.#takeBackPause()
          this.mailbox.forgetPauses()
        }
      }
      if (pause !== null) this.requestPause(pause.by)
    } catch (error) {
      this.log.warn('inbox could not be read', { runId: this.runId, error })
    }
  }

  /** A rollback has put signals back, or may have before `continueAs`. */
  get #mayHoldPutBack(): boolean {
    return this.tape.rolledBack.length > 0 || this.tape.number > 1
  }

  #dated(messages: readonly Message[]): readonly Letter[] {
    return messages.map((message) => {
      const sentAt = putBackFrom(this.codec, message)
      return sentAt === undefined ? message : { ...message, sentAt }
    })
  }

  /** Two asked for the same, and it was done for both: somebody has resumed the run since. */
  #wasRolledBack(to: number, since = Number.POSITIVE_INFINITY): boolean {
    return this.tape.rolledBack.some((stretch) => stretch.from === to && stretch.to > since)
  }

  async #write(change: Change, undoable?: ChangeOptions['undoable']): Promise<Committed> {
    if (this.isDetached) return this.cameTooLate()
    if (this.#hasEnded) throw this.#endError()
    this.#beginWork()
    this.writes.begin()
    try {
      const answer = await this.#writes.add(change)
      if (answer.ok && change.run?.hasProgress === true) this.#hasProgress = true
      // From here on it belongs to what the run has done, whatever becomes of the function.
      if (undoable !== undefined && answer.ok)
        this.undos.add({ ...undoable, seq: answer.lastSeq, payload: change.events.at(-1)?.payload ?? null })
      return this.#heed(answer)
    } catch (error) {
      return await this.startOver(error)
    } finally {
      this.writes.end()
      if (change.chunks !== undefined) this.streams.written()
      this.#settleDown()
    }
  }

  /**
   * A write failed, and whether it is there is not known; or it was refused, and what is there is something else. What comes next must start
   * from what is: the lease is given up, and a new claim reads the run anew, under a new epoch. To the function it is as if the process had
   * died here.
   */
  async startOver(error: unknown): Promise<never> {
    if (codeOf(error) === 'closed') throw error
    if (!this.#hasEnded) {
      this.#hasEnded = true
      this.log.warn('a write of a run failed; the run is read anew', { runId: this.runId, error })
      await this.#releaseLeaseAfter(error)
      this.#finish({ kind: 'lost' })
    }
    return never()
  }

  /** An unknown outcome is the store's doing. A write that can't be made at all must count, or it would be tried for ever. */
  #releaseLeaseAfter(error: unknown): Promise<boolean> {
    return this.#releaseLease({ isCounted: codeOf(error) !== 'outcome_unknown' })
  }

  async #releaseLease({ isCounted }: { isCounted: boolean }): Promise<boolean> {
    // What is on its way could pass behind what gives the lease up (H2).
    this.history.end()
    // At once: what ends while the store is being asked must not get lost.
    this.sendings.keep(this)
    await this.history.sent.idle()
    const { claim, store, codec, log, history } = this
    const settle = () => this.sendings.settle(this, this.leaseMs)
    const letGo = () => this.sendings.letGo(this)
    const chunks = this.streams.abandon()
    return releaseLease(claim, { store, codec, log, history, isCounted, chunks, settle, letGo, isForced: () => this.#isForced })
  }

  /** Takes from an answer what concerns the execution as a whole. */
  #heed(answer: Committed): Committed {
    if (answer.ok) {
      this.#lastSeq = answer.lastSeq
      const at = performance.now()
      this.#aliveAt = at
      // A machine that slept has a monotonic clock that stood still: the store's goes ahead.
      if (answer.now > this.#clockBase.now + at - this.#clockBase.at + clockSlackMs) {
        this.#clockBase = { now: answer.now, at }
        this.#waits?.clockMoved()
      }
      if (answer.hasMail) void this.checkMail()
    } else if (answer.refusal === 'lease_lost' || answer.refusal === 'thread_deleted' || answer.refusal === 'run_not_found')
      this.lose()
    return answer
  }

  /**
   * A change was refused that nobody else had a right to stand in the way of: what the store has is not what this execution was told. The run is
   * read anew; its function does not hear of it.
   */
  async #refused(refusal: string, { canBeOverruled }: ChangeOptions = {}): Promise<never> {
    if (this.isDetached) return never()
    if (this.#hasEnded) throw this.#endError()
    const error = new HoldfastError('conflict', `A write of run "${this.runId}" was refused: ${refusal}.`, {
      details: { runId: this.runId, refusal },
    })
    if (canBeOverruled === true) throw error
    return this.startOver(error)
  }

  /** One result a turn of the event loop, in order (E3). */
  async #turn(): Promise<void> {
    if (this.playback.isAwaited) await this.playback.idle()
    if (!this.#handOut.takeTurn()) await this.#handOut.next()
    if (this.isDetached) return never()
    this.throwIfEnded()
    this.failures.handOut()
    this.quiet.heard()
  }

  #beginWork(): void {
    this.#busy++
    this.quiet.work()
  }

  #settleDown(): void {
    this.#busy--
    if (this.#atWork === 0) this.#considerStopping()
  }

  /** A step that the function ends itself can't be ended while its calls are held back: a stop does not wait for it. */
  get #atWork(): number {
    return this.#stop === null ? this.#busy : this.#busy - this.#openCount
  }

  get #openCount(): number {
    return this.#openSteps?.size ?? 0
  }

  #considerStopping(): void {
    if (this.#atWork > 0 || this.#waits === undefined || this.#waits.size === 0 || this.#hasEnded) return
    // What the last result set off runs first; only then is it known that nothing is at work.
    setImmediate(() => setImmediate(() => this.#stopIfIdleOrHandBack()))
  }

  #stopIfIdleOrHandBack(): void {
    this.#stopIfIdle().catch((error: unknown) => this.#couldNotStop(error))
  }

  async #stopIfIdle(): Promise<void> {
    const waits = this.#waits
    if (this.#atWork > 0 || waits === undefined || waits.size === 0 || this.#hasEnded || !this.playback.isLive) return
    // The function has not got it yet, and nothing else would wake the run to continue with it.
    if (this.#resultsOnTheirWay > 0) return
    // The last of them may be one that sets nothing off: nobody else would look again.
    if (!this.#handOut.isEmpty || this.playback.isAwaited) return this.#considerStopping()
    if (this.#abandonedMs > 0) {
      await this.work.idle(this.#abandonedMs)
      return this.#considerStopping()
    }
    if (this.#stop !== null) {
      // Unless the function is busy with something of its own.
      if (this.#openCount > 0 && !this.quiet.isOver) return this.quiet.begin()
      if (this.#stop.kind !== 'cancel' && this.#stop.kind !== 'lost') await this.#stopNow(this.#stop)
      return
    }
    if (waits.isAnyDueSoon) return
    if (!this.quiet.isOver) return this.quiet.begin()
    const wait = waits.asRow()
    if (wait === null) return
    this.mailbox.forgetNudges((key) => this.#awaitsNudge(key))
    const dueAt = Math.min(wait.dueAt, this.overAt)
    const run: Mutable<RunChange> = {
      status: 'waiting',
      reason: wait.reason,
      due: Number.isFinite(dueAt) ? { at: dueAt } : 'never',
      uncountClaim: true,
    }
    const [key] = wait.waitKeys
    if (key !== undefined) run.waitKey = key
    // A run waits for one operation as a row; for several it looks again now and then.
    if (wait.waitKeys.length > 1) run.due = { inMs: longWaitMs }
    this.#isSuspended = true
    await this.#endWith(none, run, { kind: 'waiting' })
  }

  /**
   * How long the run stays as it is for what took too long and can be undone, so that it is recorded. Another attempt of its scope does it
   * again, and does not wait for it.
   */
  get #abandonedMs(): number {
    if (this.work.isIdle || (this.#stop !== null && this.#stop.kind !== 'pause')) return 0
    return this.#abandonedUntil - performance.now()
  }

  /**
   * Word of a child that waits for more of the budget is kept for the next holder, and so is that of one that was started before and that the
   * function has not asked for again.
   */
  #awaitsNudge(key: string): boolean {
    if (this.#waits?.awaitsMail(key)) return true
    for (const { begun, outcome } of this.tape.calls.values())
      if (begun !== undefined && outcome === undefined && key === nudgeKey('child', String(begun.data['runId']))) return true
    return false
  }

  /**
   * The function calls, ends or records something although the run goes on without this execution. Where it was only thought to be idle it
   * was at work: the run is due at once, and its next holder waits longer (E6). The call does not return (E4).
   */
  cameTooLate(): Promise<never> {
    if (this.#isSuspended) this.#reportWork()
    return never()
  }

  #reportWork(): void {
    if (this.#wasCaught) return
    this.#wasCaught = true
    void reportWork(this, this.quiet.longerMs).then(() => this.wakeWorker())
  }

  /** What a rollback has to read or to end was out of reach: the next holder is told to roll back, too. */
  async #couldNotStop(error: unknown): Promise<void> {
    this.log.error('a run could not be stopped; it is handed back', { runId: this.runId, error })
    await this.handBack(stopAgainMs, { isCounted: !isOutage(error) })
  }

  #requestStop(stop: Stop): void {
    if (this.#hasEnded || this.#stop?.kind === 'cancel' || this.#stop?.kind === 'fail') return
    if (this.#stop !== null && this.#stop.kind !== 'reload' && stop.kind === 'release') return
    if (this.#stop?.kind === 'rollback' && stop.kind !== 'rollback') return
    this.#stop = stop
    // A wait is a safe point: it stays as it is.
    this.#waits?.freeze()
    this.#considerStopping()
  }

  async #stopNow(stop: Stop): Promise<void> {
    switch (stop.kind) {
      case 'pause': {
        const event = this.event('run_paused', null, { data: { reason: stop.reason, ...stop.data } })
        return this.#endWith(
          () => [event],
          { status: 'paused', reason: stop.reason, due: 'never', setsEnd: true, uncountClaim: true },
          { kind: 'paused' },
        )
      }
      case 'cancel':
      case 'rollback':
      case 'fail':
        return this.#carryOut(stop.order)
      case 'release':
        return this.#endWith(
          none,
          { status: 'pending', reason: null, due: { inMs: 0 }, uncountClaim: true },
          { kind: 'released' },
        )
      case 'reload':
        return this.#endWith(none, {}, { kind: 'reload' })
      case 'lost':
        return
    }
  }

  /** The commit that gives the lease up. Whatever the function still does afterwards is nobody's business. */
  async #endWith(
    eventsOf: () => readonly NewEvent[],
    run: RunChange,
    end: ExecutionEnd,
    more: Pick<ChangeOptions, 'delivers' | 'headSeq'> = {},
  ): Promise<void> {
    const ending = await this.#writes.addEnd(async () => {
      if (this.#hasEnded) return null
      const events = eventsOf()
      this.#progress?.rideHeld()
      if (this.account.limits.wallMs !== undefined && this.playback.isLive)
        this.ride(this.event('usage_recorded', null, { data: { wallMs: this.account.sliceMs } }))
      this.#streams?.end()
      const change = this.#writer.change(events, { run, ...this.#tellParent(run), ...more })
      this.#hasEnded = true
      this.#endedAs = end.kind
      // Others see the end before its answer arrives here.
      this.calls.hasEnded = true
      // What the function does to its state from here on is never written.
      const state = this.line.whole(this.#lastSeq)
      const answer = await this.#committer.commit(change, true, this.history).catch((error: unknown) => this.#unwritten(error))
      return { events, change, state, answer }
    })
    // Another end came first.
    if (ending === null) return
    const { events, change, state, answer } = ending
    if (answer?.ok) this.#lastSeq = answer.lastSeq
    this.#endState = { ...state, seq: this.#lastSeq }
    if (answer?.ok && (end.kind === 'failed' || end.kind === 'paused')) reportEnd(this, events)
    if (answer?.ok && answer.hasMail && end.kind === 'paused') await takeUpLateRequest(this, change)
    // Somebody has written to the log since it was read: the run is read anew, as after a crash, under the same lease.
    const isBehind = more.headSeq !== undefined && answer?.ok === false && answer.refusal === 'conflict'
    if (answer?.ok) this.#finish(end)
    else if (isBehind) this.#finish({ kind: 'reload' })
    else await this.#endUnwritten(answer)
  }

  /** The commit that was to end the execution was refused, or could not be made: then the lease was given up already. */
  async #endUnwritten(answer: Committed | null | undefined): Promise<void> {
    this.#close('lost')
    if (answer === null || answer === undefined) this.#settle({ kind: 'lost' })
    else await this.#surrender()
  }

  /** A run that somebody waits for says that it has ended, or has used up what it was given, in the same commit. */
  #tellParent({ status, reason }: RunChange): Pick<Change, 'delivers'> {
    const { parent } = this.origin
    const isTold = status !== undefined && (isTerminal(status) || (status === 'paused' && reason === 'budget'))
    if (parent === undefined || !isTold) return {}
    return { delivers: [{ owner: this.owner, runId: parent, kind: 'child', name: this.runId, payload: null }] }
  }

  async #unwritten(error: unknown): Promise<null> {
    this.log.error('the end of a run could not be written; it will be taken up again', { runId: this.runId, error })
    if (codeOf(error) !== 'closed') await this.#releaseLeaseAfter(error)
    return null
  }

  #finish(end: ExecutionEnd): void {
    this.#close(end.kind)
    this.#settle(end)
  }

  /** Nothing is done here any more. */
  #close(endedAs: ExecutionEnd['kind']): void {
    this.#hasEnded = true
    this.#endedAs = endedAs
    this.calls.hasEnded = true
    this.playback.stop()
    this.#streams?.end()
    this.#waits?.freeze()
    this.quiet.end()
    // To be persisted as waiting never throws into user code, through the signal neither (E4).
    if (!this.#isSuspended) this.#abort?.abort(this.#endError())
  }

  /** The state at the end of a run that ended well: the next run of the thread starts from it. */
  headState(): StateAt {
    return this.#endState ?? this.line.whole(this.#lastSeq)
  }

  #throwEverywhere(): void {
    const error = this.#endError()
    expectRejections()
    this.#abort?.abort(error)
    this.#waits?.throw(error)
    for (const reject of [...(this.#throwers ?? [])]) reject(error)
    this.playback.throw(error)
  }

  #pauseOnMismatch(recorded: CallKey[], asked: CallKey[]): void {
    const shown = (keys: CallKey[]) =>
      keys.length === 0 ? 'nothing' : keys.slice(0, 10).join(', ') + (keys.length > 10 ? ', …' : '')
    const error = new HoldfastError(
      'nondeterminism',
      `Run "${this.runId}" no longer matches its log: next in the log is ${shown(recorded)}; the function asked for ${shown(asked)}. ` +
        restoreAdvice(this.workflow),
      { details: { runId: this.runId, recorded: recorded.slice(0, 10), asked: asked.slice(0, 10) } },
    )
    this.mismatch(error)
  }

  /** The function does something else than its log says: the run pauses as it stands. */
  mismatch(error: HoldfastError): void {
    // One that is to be taken back needs no further replay: what can't be found without it stops there.
    if (this.#order !== null && this.#order.kind !== 'fail') {
      this.#unreplayed = error
      this.playback.stop()
      void this.#carryOut(this.#order)
    } else void this.pauseNow('mismatch', error)
  }

  #lateCall(name: string): HoldfastError {
    const how =
      this.#endedAs === 'continued'
        ? 'has continued with another input'
        : this.isOver
          ? `is ${this.#endedAs}`
          : 'this process no longer executes'
    const message = `"${name}" was called on the ctx of run "${this.runId}", which ${how}: nothing was done. Await everything before the function ends.`
    this.log.warn(message, { runId: this.runId, workflow: this.workflow.name, step: name, reason: 'closed' })
    // Of a branch that its function began and nobody awaits any more, as a rule: the run has its end, and the others here continue.
    expectRejections()
    return endError(new HoldfastError('closed', message, { details: { runId: this.runId, step: name } }))
  }

  #endError(): HoldfastError {
    return endError(this.#describeEnd())
  }

  #describeEnd(): HoldfastError {
    const details = { runId: this.runId }
    if (this.#stop?.kind === 'cancel')
      return new HoldfastError('run_cancelled', `Run "${this.runId}" was cancelled.`, { details })
    if (this.#stop?.kind === 'lost') {
      return new HoldfastError(
        'lease_lost',
        `The lease on run "${this.runId}" was lost to another worker or the thread was deleted; what this process did since was discarded.`,
        { details },
      )
    }
    return new HoldfastError(
      'closed',
      `Run "${this.runId}" is no longer executed by this process; the call on its ctx came too late.`,
      { details },
    )
  }
}

const none = (): readonly NewEvent[] => []

export interface ExecutionOptions {
  readonly claim: Claim
  readonly history: LeaseHistory
  readonly workflow: AnyWorkflow
  readonly tape: Tape
  /** The state where the tape begins. */
  readonly base: StateAt
  /** The state along the tape, where patches of it are to be made again. */
  readonly rebuilt?: RebuiltLine | undefined
  /** Where the thread's log ends. */
  readonly headSeq: number
  /** Where a rollback can go at the most: to where the tape began. */
  readonly earliestSeq: number
  /** The run's first commit starts a tape. */
  readonly startsTape: boolean
  /** It brings an input of its own, which is checked now. */
  readonly hasNewInput?: boolean
  readonly origin: RunOrigin
  /** How many chunks the function has written in this tape, by stream. */
  readonly written: ReadonlyMap<string, number>
}

export type Stop =
  | { readonly kind: 'pause'; readonly reason: PauseReason; readonly data: Readonly<Record<string, unknown>> }
  | { readonly kind: 'release' }
  | { readonly kind: 'reload' }
  | { readonly kind: Order['kind']; readonly order: Order }
  | { readonly kind: 'lost' }

export type ExecutionEnd =
  | { readonly kind: RunStatus | 'released' | 'lost' | 'reload' }
  | {
      readonly kind: 'continued'
      readonly base: StateAt
      readonly tapeNumber: number
      readonly input: unknown
      /** Messages are there that the tape has left to the next one. */
      readonly hasMail: boolean
    }

/** After this position what was done is undone. */
function afterSeqOf(order: Order): number {
  return order.kind === 'rollback' ? order.to : order.undo === false ? Number.POSITIVE_INFINITY : 0
}

function stopFor(order: Order): Stop {
  return { kind: order.kind, order }
}

/** What a request in the inbox may say. */
interface RequestData {
  readonly by?: string
  readonly to?: number
  /** Where the log ended when it was asked for. Absent: by a version before this one. */
  readonly since?: number
  readonly undo?: boolean
  readonly budget?: Budget
}

const noChunks: readonly NewChunks[] = []

/** How a call of a detached execution answers. */
export function never<T>(): Promise<T> {
  return new Promise(() => {})
}

type Mutable<T> = { -readonly [K in keyof T]: T[K] }
