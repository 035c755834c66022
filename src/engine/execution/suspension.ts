import { isInternal } from '../../model/internal.ts'
import type { RunChange } from '../../store/change.ts'
import type { Calls, ScopeAttempt } from '../calls/calls.ts'
import type { Playback } from '../replay/playback.ts'
import { reportWork } from '../reports/report-work.ts'
import type { QuietTime } from '../waiting/quiet-time.ts'
import { type RunInbox, wakeUpKeyOf } from '../waiting/run-inbox.ts'
import { longWaitMs, type Wait, Waits } from '../waiting/waits.ts'
import type { Activity } from './activity.ts'
import type { HeldRun } from './held-run.ts'
import type { Phase, Stop } from './phase.ts'
import type { RunClock } from './run-clock.ts'
import type { RunJournal } from './run-journal.ts'

/** The waits of a run, and when the run stops to wait: keeps E5 (only when nothing of it is at work) and E6 (what if it was, all the same). */
export class Suspension {
  readonly #run: SuspendedRun
  // Made with the first wait: most runs have none.
  #waits: Waits | undefined
  #wasNoticed = false

  constructor(run: SuspendedRun) {
    this.#run = run
  }

  /**
   * Waits in memory or, when nothing else is at work, with the run persisted as waiting. Never resolves in an execution that stopped. The
   * attempt is that of the scope whose call waits.
   */
  async park(wait: Wait, attempt: ScopeAttempt | null = this.#run.calls.attempt ?? null): Promise<void> {
    const { admission, clock, run, phase } = this.#run
    admission.throwIfEnded()
    // A schedule that ticks every second would never give its place up.
    this.#waits ??= new Waits(clock, isInternal(run.workflow.name) ? 0 : (run.engine.longWaitMs ?? longWaitMs))
    const over = this.#waits.add(wait)
    if (phase.isStopping) this.#waits.freeze()
    this.considerStopping()
    attempt?.rest(true)
    try {
      await over
    } finally {
      attempt?.rest(false)
    }
    // The caller may not continue: its section has ended meanwhile.
    this.considerStopping()
  }

  /** What calls wait for may have changed, by their keys. In an execution that is being stopped they stay as they are. */
  wakeFor(keys: Iterable<string>): void {
    if (!this.#run.phase.isStopping) this.#waits?.wakeFor(keys)
  }

  /** A wait is over before its time. In an execution that is being stopped it stays as it is. */
  wake(wait: Wait): void {
    if (!this.#run.phase.isStopping) this.#waits?.wake(wait)
  }

  /** Ends a wait that has not come to its end. */
  withdraw(wait: Wait): void {
    this.#waits?.withdraw(wait)
  }

  clockMoved(): void {
    this.#waits?.clockMoved()
  }

  /** The execution stops: a wait is a safe point, and stays as it is. */
  freeze(): void {
    this.#waits?.freeze()
  }

  throw(error: Error): void {
    this.#waits?.throw(error)
  }

  /** Nothing may be at work any more. */
  considerStopping(): void {
    if (this.#waits === undefined || this.#waits.size === 0 || this.#run.activity.atWork > 0 || this.#run.phase.hasEnded) return
    // What the last result set off runs first; only then is it known that nothing is at work.
    setImmediate(() => setImmediate(() => this.stopIfIdle()))
  }

  stopIfIdle(): void {
    this.#stopIfIdle().catch((error: unknown) => this.#run.ending.couldNotStop(error))
  }

  async #stopIfIdle(): Promise<void> {
    const { activity, phase, playback, journal, quiet, ending } = this.#run
    const waits = this.#waits
    if (activity.atWork > 0 || waits === undefined || waits.size === 0 || phase.hasEnded || !playback.isLive) return
    // The function has not got it yet, and nothing else would wake the run to continue with it.
    if (journal.hasResultsOnTheirWay) return
    // The last of them may be one that sets nothing off: then nothing else would look again.
    if (journal.hasResultsWaiting) return this.considerStopping()
    if (activity.abandonedMs > 0) {
      await activity.work.idle(activity.abandonedMs)
      return this.considerStopping()
    }
    const { stop } = phase
    if (stop !== null) {
      // Unless the function is busy with something of its own.
      if (activity.openCount > 0 && !quiet.isOver) return quiet.begin()
      if (stop.kind !== 'cancel') await ending.stopFor(stop)
      return
    }
    if (waits.isAnyDueSoon) return
    if (!quiet.isOver) return quiet.begin()
    await this.#suspend(waits)
  }

  async #suspend(waits: Waits): Promise<void> {
    const { inbox, clock, ending } = this.#run
    const wait = waits.asRow()
    if (wait === null) return
    inbox.messages.forgetWakeUps((key) => this.#awaitsWakeUp(key))
    const dueAt = Math.min(wait.dueAt, clock.overAt)
    const [key] = wait.waitKeys
    // A waiting run names one operation; for several it looks again now and then.
    const due: RunChange['due'] =
      wait.waitKeys.length > 1 ? { inMs: longWaitMs } : Number.isFinite(dueAt) ? { at: dueAt } : 'never'
    await ending.suspend({
      ...{ status: 'waiting', reason: wait.reason, due, uncountClaim: true },
      ...(key !== undefined && { waitKey: key }),
    })
  }

  /**
   * The message of a child that waits for more of the budget is kept for the next holder, and so is that of one that was started before and that the
   * function has not asked for again.
   */
  #awaitsWakeUp(key: string): boolean {
    if (this.#waits?.awaitsWakeUp(key)) return true
    for (const { begun, outcome } of this.#run.run.tape.calls.values())
      if (begun !== undefined && outcome === undefined && key === wakeUpKeyOf('child', String(begun.data['runId']))) return true
    return false
  }

  /** The function of a run that was persisted as waiting is at work (E6). */
  noticeWork(): void {
    if (this.#wasNoticed) return
    this.#wasNoticed = true
    const { run, quiet } = this.#run
    void reportWork(run, quiet.longerMs).then(() => run.engine.wakeWorker())
  }
}

interface SuspendedRun {
  readonly run: HeldRun
  readonly phase: Phase
  readonly clock: RunClock
  readonly calls: Calls
  readonly activity: Activity
  readonly journal: RunJournal
  readonly playback: Playback
  readonly quiet: QuietTime
  readonly inbox: { readonly messages: RunInbox }
  readonly admission: { throwIfEnded(): void }
  readonly ending: {
    suspend(run: RunChange): Promise<void>
    stopFor(stop: Stop): Promise<void>
    couldNotStop(error: unknown): Promise<void>
  }
}
