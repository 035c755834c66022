import { isInternal } from '../../model/internal.ts'
import { Calls } from '../calls/calls.ts'
import type { Engine } from '../engine.ts'
import { Account } from '../limits/account.ts'
import { readAccount } from '../limits/account-on-tape.ts'
import { BudgetGuard } from '../limits/budget-guard.ts'
import { Playback } from '../replay/playback.ts'
import { readScopes } from '../replay/scopes-on-tape.ts'
import type { Outcome } from '../replay/tape.ts'
import type { RebuiltTimeline } from '../state/rebuild-timeline.ts'
import { StateTimeline } from '../state/state-timeline.ts'
import type { StateAt } from '../state/thread-state.ts'
import { OpenDependents } from '../undo/open-dependents.ts'
import { Undos } from '../undo/undos.ts'
import { QuietTime } from '../waiting/quiet-time.ts'
import { Activity } from './activity.ts'
import { Admission } from './admission.ts'
import type { CallHost } from './call-host.ts'
import { Ending } from './ending.ts'
import { Failures } from './failures.ts'
import { HeldLease } from './held-lease.ts'
import { HeldRun, type HeldRunOptions } from './held-run.ts'
import { InboxCommands } from './inbox-commands.ts'
import { Phase } from './phase.ts'
import { RunClock } from './run-clock.ts'
import { RunJournal } from './run-journal.ts'
import { RunOutput } from './run-output.ts'
import { StateUpdates } from './state-updates.ts'
import { Stopping } from './stopping.ts'
import { Suspension } from './suspension.ts'

/**
 * One claimed run being executed: makes its parts and knows which of them work together. A part gets this object, and sees of it the parts
 * that it names itself; the calls see a CallHost.
 *
 * It does nothing itself but go from the tape to what is new. The lease is renewed by the worker (worker/lease-keeper).
 *
 *   E1  Every write carries (epoch, lease id) and what was last acknowledged under the lease. The first refusal ends the execution; nothing
 *       after it is written, apart from what gives the lease up. (RunJournal)
 *   E2  Events reach the log in the order in which they were made. (RunJournal)
 *   E3  Results are handed to the function one per turn of the event loop, in log order, as a replay will. (RunJournal)
 *   E4  Stopping to wait never throws into user code: the calls just do not return. Cancelling and a lost lease do throw. (Admission)
 *   E5  A run stops to wait only when nothing of it is at work, as far as can be seen, and its function was quiet for a while. (Suspension)
 *   E6  A function that was at work all the same is noticed at its next call, and the run is executed again. (Suspension)
 */
export class Execution implements CallHost {
  readonly run: HeldRun
  readonly phase = new Phase()
  readonly clock: RunClock
  readonly lease: HeldLease
  readonly calls: Calls
  readonly failures = new Failures()
  /** How long the function has to be quiet before the run is persisted as waiting. */
  readonly quiet: QuietTime
  readonly playback: Playback
  readonly activity = new Activity(this)
  readonly admission = new Admission(this)
  readonly journal: RunJournal
  readonly state: StateUpdates
  readonly output: RunOutput
  readonly budget: BudgetGuard
  readonly inbox = new InboxCommands(this)
  readonly dependents = new OpenDependents(this)
  readonly suspension = new Suspension(this)
  readonly stopping = new Stopping(this)
  readonly ending = new Ending(this)
  // Made when it is first asked for: most runs have none, and hundreds of runs are held in parallel.
  #undos: Undos | undefined

  constructor(engine: Engine, options: ExecutionOptions) {
    const { claim, tape, origin, workflow } = options
    const { run, thread } = claim
    this.run = new HeldRun(engine, options)
    this.clock = new RunClock(this.run)
    this.lease = new HeldLease(this.run)
    this.calls = new Calls({ owner: run.owner, runId: run.id, life: thread.incarnation, tape })
    this.quiet = new QuietTime({
      times: engine.quietTimes,
      isLimited: claim.isQueueLimited,
      isInternal: isInternal(workflow.name),
      onOver: () => this.suspension.stopIfIdle(),
      onBroken: () => this.suspension.considerStopping(),
    })
    const { patches, raised, usage } = tape
    const { codec } = engine
    const { base, rebuilt } = options
    this.state = new StateUpdates(this, new StateTimeline({ codec, base, patches, rebuilt, definition: workflow.options.state }))
    const onTape = readAccount(tape)
    const limits = { ...(origin.budget ?? workflow.options.budget), ...raised }
    const used = { ...usage, steps: usage.steps + onTape.steps }
    this.budget = new BudgetGuard(this, new Account({ ...onTape, limits, quiet: this.quiet, used }))
    this.output = new RunOutput(this, options.written)
    this.playback = new Playback({
      outcomes: readScopes(tape),
      onResult: (outcome) => this.#onResult(outcome),
      onLive: () => this.#goLive(),
      onMismatch: (recorded, asked) => this.stopping.mismatchAt(recorded, asked),
      isAtWork: () => this.activity.isAtWork,
      begunAt: (key) => tape.calls.get(key)?.begunAt,
      startedAt: run.startedAt ?? 0,
      mismatchMs: engine.mismatchMs,
    })
    const { headSeq, startsTape, hasNewInput = false } = options
    this.journal = new RunJournal(this, { headSeq, startsTape, hasNewInput })
  }

  /** How to take back what the run did. */
  get undos(): Undos {
    this.#undos ??= new Undos(this)
    return this.#undos
  }

  /** A recorded result is about to be handed to the function. */
  #onResult(outcome: Outcome): void {
    const { failures, state, playback } = this
    failures.handOut()
    if (outcome.isShowing === true) state.showEditsAgain(outcome.patchCount)
    if (!outcome.isFailure || outcome.isWithdrawn === true) return
    if (playback.isEnding) failures.unthrown.add(outcome.key)
    else failures.hear(outcome.key)
  }

  /** The tape is consumed: edits by hand at its end are shown, and an older state is brought to the definition's version. */
  #goLive(): void {
    const { phase, quiet, stopping, state, budget, ending } = this
    quiet.heard()
    const order = phase.wentLive()
    if (phase.hasEnded) return
    // What is taken back needs no state of this version: a definition that is wrong must not keep it from being undone.
    if (order !== null) {
      stopping.runOrder(order)
      return
    }
    try {
      state.migrate()
      state.showEdits()
      budget.watch()
    } catch (error) {
      // The stored state is as it was; the run continues when the definition is repaired.
      void ending.pauseNow('mismatch', error as Error)
    }
  }
}

export interface ExecutionOptions extends HeldRunOptions {
  /** The state where the tape begins. */
  readonly base: StateAt
  /** The state along the tape, where patches of it are to be made again. */
  readonly rebuilt?: RebuiltTimeline | undefined
  /** Where the thread's log ends. */
  readonly headSeq: number
  /** The run's first commit starts a tape. */
  readonly startsTape: boolean
  /** It brings an input of its own, which is checked now. */
  readonly hasNewInput?: boolean
  /** How many chunks the function has written in this tape, by stream. */
  readonly written: ReadonlyMap<string, number>
}
