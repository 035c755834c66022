import { codeOf, HoldfastError } from '../../model/errors.ts'
import type { NewEvent } from '../../model/event.ts'
import type { Payload } from '../../model/payload.ts'
import { isTerminal, type PauseReason, type RunStatus } from '../../model/run.ts'
import { toStorableError } from '../../model/stored-error.ts'
import type { UsageTotal } from '../../model/usage.ts'
import type { Change, Committed, RunChange } from '../../store/change.ts'
import type { Calls } from '../calls/calls.ts'
import { expectRejections } from '../calls/expected-rejections.ts'
import type { BudgetGuard } from '../limits/budget-guard.ts'
import type { Playback } from '../replay/playback.ts'
import type { Order } from '../replay/tape.ts'
import { reportEnd, reportForgotten, reportLoss } from '../reports/run-reports.ts'
import type { StateAt } from '../state/thread-state.ts'
import type { OpenDependents } from '../undo/open-dependents.ts'
import { takeUpLateRequest } from '../waiting/late-request.ts'
import type { QuietTime } from '../waiting/quiet-time.ts'
import type { RunInbox } from '../waiting/run-inbox.ts'
import { isOutage } from '../writing/committer.ts'
import type { ChangeOptions } from '../writing/run-writer.ts'
import type { Activity } from './activity.ts'
import type { HeldLease } from './held-lease.ts'
import type { HeldRun } from './held-run.ts'
import { never } from './never.ts'
import type { EndKind, Phase, Stop } from './phase.ts'
import type { RunJournal } from './run-journal.ts'
import type { RunOutput } from './run-output.ts'
import type { StateUpdates } from './state-updates.ts'
import type { Suspension } from './suspension.ts'

/** When a run that could not be stopped is tried again. */
export const stopAgainMs = 1_000

/** How the execution of a run ends: the commit that gives its lease up, or the loss of the lease. It ends once: the first end counts. */
export class Ending {
  readonly #run: EndingRun
  #endState: StateAt | undefined
  #settle!: (end: ExecutionEnd) => void
  /** How the execution ended. Never rejects. */
  readonly ended: Promise<ExecutionEnd>

  constructor(run: EndingRun) {
    this.#run = run
    this.ended = new Promise((resolve) => {
      this.#settle = resolve
    })
  }

  /** The function returned, or what an order says was undone: the last commit of the run. */
  async finish(status: RunStatus, event: NewEvent, headSeq?: number): Promise<void> {
    const { dependents, phase, activity } = this.#run
    await activity.endIntents()
    if (dependents.hasQuestions) await dependents.closeQuestions()
    if (phase.hasEnded) return
    const run = { status, reason: null, currentStep: null, setsEnd: true, hasProgress: true } as const
    return this.endWith(() => [event], run, { kind: status }, { headSeq })
  }

  /** For the event that ends the run: the run that started it adds it to its own. */
  get usageSoFar(): { readonly usage?: UsageTotal } {
    const { used } = this.#run.budget.account
    return used.tokens > 0 || used.cost > 0 || this.#run.run.origin.parent !== undefined ? { usage: used } : {}
  }

  /** The run is persisted as waiting. */
  suspend(run: RunChange): Promise<void> {
    return this.endWith(none, run, { kind: 'waiting' })
  }

  /** Pauses at once, whatever runs. */
  async pauseNow(reason: PauseReason, error: Error): Promise<void> {
    if (this.#run.phase.hasEnded) return
    await this.stopFor({ kind: 'pause', reason, data: { error: toStorableError(error) } })
  }

  /** Hands the run back for a while: what it needs could not be read. `isCounted`: as a claim without progress. */
  async handBack(inMs: number, { isCounted }: { isCounted: boolean }): Promise<void> {
    if (this.#run.phase.hasEnded) return
    const run = { status: 'pending', reason: null, due: { inMs }, ...(!isCounted && { uncountClaim: true }) } as const
    await this.endWith(none, run, { kind: 'released' })
  }

  /** What a rollback has to read or to end was out of reach: the next holder is told to roll back, too. */
  async couldNotStop(error: unknown): Promise<void> {
    const { log, runId } = this.#run.run
    log.error('a run could not be stopped; it is released', { runId, error })
    await this.handBack(stopAgainMs, { isCounted: !isOutage(error) })
  }

  /** Grace is over: hand the run back although something still runs. Its writes will be refused. */
  async forceStop(): Promise<void> {
    const { lease, phase, activity, run } = this.#run
    lease.isForced = true
    if (phase.hasEnded) return
    activity.abort(() => new HoldfastError('closed', `Holdfast is closing; run "${run.runId}" is handed over.`))
    const { stop } = phase
    // What it was told to undo, the next holder is told too.
    await this.stopFor(stop?.kind === 'pause' ? stop : { kind: 'release' })
  }

  async stopFor(stop: Stop): Promise<void> {
    switch (stop.kind) {
      case 'pause': {
        const event = this.#run.journal.event('run_paused', null, { data: { reason: stop.reason, ...stop.data } })
        return this.endWith(
          () => [event],
          { status: 'paused', reason: stop.reason, due: 'never', setsEnd: true, uncountClaim: true },
          { kind: 'paused' },
        )
      }
      case 'cancel':
      case 'rollback':
      case 'fail':
        return this.#run.stopping.carryOut(stop.order)
      case 'release':
        return this.endWith(none, { status: 'pending', reason: null, due: { inMs: 0 }, uncountClaim: true }, { kind: 'released' })
      case 'reload':
        return this.endWith(none, {}, { kind: 'reload' })
    }
  }

  /** The commit that gives the lease up. What the function still does afterwards is its own business. */
  async endWith(eventsOf: () => readonly NewEvent[], run: RunChange, end: ExecutionEnd, more: MoreOfEnd = {}): Promise<void> {
    const { journal } = this.#run
    const ending = await journal.addEnd(() => this.#writeEnd(eventsOf, run, end, more))
    // Another end came first.
    if (ending === null) return
    const { events, change, state, answer } = ending
    if (answer?.ok) journal.lastSeq = answer.lastSeq
    this.#endState = { ...state, seq: journal.lastSeq }
    if (answer?.ok && (end.kind === 'failed' || end.kind === 'paused')) reportEnd(this.#run.run, events)
    if (answer?.ok && answer.hasMail && end.kind === 'paused') await takeUpLateRequest(this.#run, change)
    // The log, or a fact, was written to since it was read: the run is read anew, as after a crash, under the same lease.
    const refusal = answer?.ok === false ? answer.refusal : undefined
    const isBehind = refusal === 'record_changed' || (more.headSeq !== undefined && refusal === 'conflict')
    if (answer?.ok) this.#finish(end)
    else if (isBehind) this.#finish({ kind: 'reload' })
    else await this.#endUnwritten(answer)
  }

  async #writeEnd(eventsOf: () => readonly NewEvent[], run: RunChange, end: ExecutionEnd, more: MoreOfEnd) {
    const { phase, output, budget, playback, journal, calls, state } = this.#run
    if (phase.hasEnded) return null
    const events = eventsOf()
    output.deferProgress()
    const { account } = budget
    if (account.limits.wallMs !== undefined && playback.isLive)
      journal.defer(journal.event('usage_recorded', null, { data: { wallMs: account.sliceMs } }))
    output.end()
    const change = journal.lastChange(events, { run, ...this.#tellParent(run), ...more })
    phase.end(end.kind, { isSuspended: end.kind === 'waiting' })
    // Others see the end before its answer arrives here.
    calls.hasEnded = true
    // What the function does to its state from here on is never written.
    const whole = state.timeline.whole(journal.lastSeq)
    const answer = await this.#commit(change).catch((error: unknown) => this.#unwritten(error))
    return { events, change, state: whole, answer }
  }

  /** Ends this tape and starts the next one under the same lease. */
  async continueWith(input: unknown): Promise<void> {
    const { dependents, journal, phase, suspension, run, inbox, activity } = this.#run
    await activity.endIntents()
    // Nothing on the next tape could take their answers.
    if (dependents.hasQuestions) await dependents.closeQuestions()
    const written = await journal.addEnd(() => this.#writeNextTape(input))
    if (written === null) {
      // It was told to stop while a transaction came to its end.
      if (!phase.isDetached) await suspension.park({ dueAt: null, reason: 'timer' })
      return
    }
    const { event, base, answer } = written
    const tapeNumber = run.tape.number + 1
    if (!answer?.ok) return this.#endUnwritten(answer)
    const { input: recorded } = run.codec.decode(event.payload as Payload) as { input?: unknown }
    const hasMail = answer.hasMail || !inbox.messages.isEmpty
    this.#finish({ kind: 'continued', base: { ...base, seq: answer.lastSeq }, tapeNumber, input: recorded, hasMail })
  }

  async #writeNextTape(input: unknown) {
    const { admission, phase, journal, run, output, state } = this.#run
    admission.throwIfEnded()
    if (!phase.isOpen) return null
    const data = { input, ...this.#carriedOn() }
    const event = journal.event('run_started', null, { count: run.tape.number + 1, data })
    // What was deferred belongs to the old tape; the new one begins with a commit of its own, in the same batch.
    output.end()
    const isCheckpoint = journal.hasDeferred
    const before = isCheckpoint || output.hasPendingChunks ? journal.lastChange([], { isCheckpoint }) : null
    journal.startNextTape()
    const change = journal.lastChange([event], { hasProgress: true })
    // From here on nothing of the old tape may be written: it would land on the new one.
    phase.end(undefined)
    const base = state.timeline.whole(0)
    const commits = [...(before === null ? [] : [before]), change].map((one) => this.#commit(one))
    const answers = await Promise.all(commits).catch((error: unknown) => this.#unwritten(error))
    return { event, base, answer: answers?.at(-1) }
  }

  /** What the next tape is to know of this one. */
  #carriedOn(): Record<string, unknown> {
    const { account } = this.#run.budget
    account.bookSlice()
    const { used, limits, isLimited } = account
    return { ...this.#run.run.origin, ...(isLimited && { budget: limits }), usage: used }
  }

  #commit(change: Change): Promise<Committed> {
    const { engine, history } = this.#run.run
    return engine.committer.commit(change, true, history)
  }

  /** A run that another one waits for says that it has ended, or has used up what it was given, in the same commit. */
  #tellParent({ status, reason }: RunChange): Pick<Change, 'delivers'> {
    const { origin, owner, runId } = this.#run.run
    const { parent } = origin
    const isTold = status !== undefined && (isTerminal(status) || (status === 'paused' && reason === 'budget'))
    if (parent === undefined || !isTold) return {}
    return { delivers: [{ owner, runId: parent, kind: 'child', name: runId, payload: null }] }
  }

  async #unwritten(error: unknown): Promise<null> {
    const { log, runId } = this.#run.run
    log.error('the end of a run could not be written; the run will be picked up again', { runId, error })
    if (codeOf(error) !== 'closed') await this.#releaseAfter(error)
    return null
  }

  /** The commit that was to end the execution was refused, or could not be made: then the lease was given up already. */
  async #endUnwritten(answer: Committed | null | undefined): Promise<void> {
    this.#close('lost')
    if (answer === null || answer === undefined) this.#settle({ kind: 'lost' })
    else await this.#surrender()
  }

  /**
   * A write failed, and whether it is there is not known; or it was refused, and what is there is something else. What comes next must start
   * from what is: the lease is given up, and a new claim reads the run anew, under a new epoch. To the function it is as if the process had
   * died here.
   */
  async startOver(error: unknown): Promise<never> {
    const { phase, run } = this.#run
    if (codeOf(error) === 'closed') throw error
    if (!phase.hasEnded) {
      phase.end(undefined)
      run.log.warn('a write of a run failed; the run is read anew', { runId: run.runId, error })
      await this.#releaseAfter(error)
      this.#finish({ kind: 'lost' })
    }
    return never()
  }

  /** The lease is gone, or the store has lost what was written under it: nothing of this execution counts any more. */
  lose(): void {
    if (!this.#run.phase.lose()) return
    this.throwEverywhere()
    this.#close('lost')
    void this.#surrender()
  }

  /** Ends an execution that was told that it has lost its lease. Where the lease is still there, the store has lost commits: the run is given up, to be read anew. */
  async #surrender(): Promise<void> {
    const { lease, run, output } = this.#run
    if (await lease.release({ isCounted: false, chunks: () => output.abandon() })) {
      reportForgotten(run)
      run.engine.wakeWorker()
    } else {
      reportLoss(run)
      lease.reportOutlived()
    }
    this.#settle({ kind: 'lost' })
  }

  #releaseAfter(error: unknown): Promise<boolean> {
    return this.#run.lease.releaseAfter(error, () => this.#run.output.abandon())
  }

  #finish(end: ExecutionEnd): void {
    this.#close(end.kind)
    this.#settle(end)
  }

  /** Nothing is done here any more. */
  #close(endedAs: EndKind): void {
    const { phase, calls, playback, output, suspension, quiet, activity, admission } = this.#run
    phase.end(endedAs)
    calls.hasEnded = true
    playback.stop()
    output.end()
    suspension.freeze()
    quiet.end()
    // To be persisted as waiting never throws into user code, through the signal neither (E4).
    if (!phase.isSuspended) activity.abort(() => admission.endError())
  }

  /** The run was cancelled or its lease lost: everything that the function awaits throws. */
  throwEverywhere(): void {
    const { admission, activity, suspension, playback } = this.#run
    const error = admission.endError()
    expectRejections()
    activity.abort(() => error)
    suspension.throw(error)
    activity.throw(error)
    playback.throw(error)
  }

  /** The state at the end of a run that ended well: the next run of the thread starts from it. */
  headState(): StateAt {
    return this.#endState ?? this.#run.state.timeline.whole(this.#run.journal.lastSeq)
  }
}

const none = (): readonly NewEvent[] => []

type MoreOfEnd = Pick<ChangeOptions, 'delivers' | 'headSeq' | 'writes'>

/** How an execution ended. */
export type ExecutionEnd =
  | { readonly kind: Exclude<EndKind, 'continued'> }
  | {
      readonly kind: 'continued'
      readonly base: StateAt
      readonly tapeNumber: number
      readonly input: unknown
      /** Messages are there that the tape has left to the next one. */
      readonly hasMail: boolean
    }

interface EndingRun {
  readonly run: HeldRun
  readonly phase: Phase
  readonly lease: HeldLease
  readonly calls: Calls
  readonly activity: Activity
  readonly journal: RunJournal
  readonly state: StateUpdates
  readonly output: RunOutput
  readonly playback: Playback
  readonly quiet: QuietTime
  readonly budget: BudgetGuard
  readonly dependents: OpenDependents
  readonly suspension: Suspension
  readonly inbox: { readonly messages: RunInbox }
  readonly admission: { throwIfEnded(): void; endError(): Error }
  readonly stopping: { carryOut(order: Order): Promise<void> }
}
