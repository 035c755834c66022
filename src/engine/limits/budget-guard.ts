import { type Budget, lower, partOf, type Usage } from '../../model/usage.ts'
import type { Call } from '../calls/calls.ts'
import type { Activity } from '../execution/activity.ts'
import type { HeldRun } from '../execution/held-run.ts'
import type { Phase } from '../execution/phase.ts'
import type { RunJournal } from '../execution/run-journal.ts'
import { type Account, budgetExceeded, type OverBudget } from './account.ts'

/** How soon a time limit is looked at again that was nearly reached. */
const lookAgainMs = 20

/** Keeps a run within its budget: books what it uses, and pauses it at the next safe point once a limit is passed. */
export class BudgetGuard {
  readonly #run: LimitedRun
  readonly account: Account
  /** Children that are about to begin. */
  #sharing = 0

  constructor(run: LimitedRun, account: Account) {
    this.#run = run
    this.account = account
  }

  /** Books a use. It is kept whatever becomes of the attempt: the money is spent. */
  book(call: Call, usage: Usage, attempt = 0): void {
    if (this.#run.phase.hasEnded) return
    this.#run.journal.defer(this.#run.journal.event('usage_recorded', call, { attempt, data: { ...usage } }))
    this.account.add(usage)
    this.check()
  }

  /** Counts a call that is new. In a run that has a budget it is held back where that is used up. */
  count(call: Call): Promise<void> | null {
    if (this.account.isLimited) return this.#admit(call)
    this.account.countStep()
    return null
  }

  async #admit(call: Call): Promise<void> {
    const { limits, used, left } = this.account
    if (left.steps !== 0) this.account.countStep()
    else this.#pause({ what: 'steps', limit: limits.steps ?? 0, used: used.steps })
    this.check()
    if (!this.#run.admission.isOpen) await this.#run.admission.pass(call)
  }

  /** Waits until the budget has room for so much more; the run is paused until then. */
  async reserve(call: Call, amount: { tokens?: number; cost?: number }): Promise<void> {
    const { admission } = this.#run
    // What comes after it on the tape was begun with the room that there was.
    if (!admission.isConsumed) return
    if (!this.#run.admission.isOpen) await this.#run.admission.pass(call)
    if (this.account.isLimited && this.account.wouldExceed(amount)) {
      const what = amount.cost === undefined ? 'tokens' : 'cost'
      const { limits, used } = this.account
      this.#pause({ what, limit: limits[what] ?? 0, used: used[what], asked: amount[what] ?? 0 })
      await this.#run.admission.pass(call)
    }
    this.account.reserve(amount)
  }

  /** What a child is given of the budget. Those that begin at the same time share what is left. */
  async shareFor(call: Call, own: Budget): Promise<Budget> {
    this.#sharing++
    await this.#run.activity.working(new Promise<void>((resolve) => setImmediate(resolve)))
    const budget = lower(own, partOf(this.account.leftFor(call.key), this.#sharing--))
    this.account.grant(call.key, budget)
    return budget
  }

  /** The same step with the same input, again and again: noticed, and held back past the limit. What is on the tape was counted there. */
  noticeRepeat(call: Call, inputFingerprint: string): void {
    if (call.history?.inputFingerprint !== undefined) return
    const repeat = this.account.countRepeat(call.path, inputFingerprint)
    if (repeat === null) return
    const { count, isOver } = repeat
    const { log, runId } = this.#run.run
    log.warn(`Run "${runId}" has called "${call.path}" with the same input ${count} times. Is it going round in circles?`, {
      runId,
      step: call.path,
      count,
    })
    if (isOver) this.#pause({ what: 'repeats', limit: this.account.limits.repeats ?? 0, used: count })
  }

  /** Pauses the run if a limit is passed, now and when its time in execution is over. */
  watch(): void {
    if (!this.account.isLimited) return
    let timer: NodeJS.Timeout
    const look = (leastMs: number): void => {
      this.check()
      const { leftMs } = this.account
      // While it waits, its time stands still: it is looked at again.
      if (Number.isFinite(leftMs) && leftMs >= 0)
        timer = setTimeout(look, Math.min(Math.max(leastMs, leftMs + 1), 2_147_483_647), lookAgainMs)
    }
    look(0)
    if (Number.isFinite(this.account.leftMs)) void this.#run.ending.ended.then(() => clearTimeout(timer))
  }

  check(): void {
    const over = this.account.over()
    if (over !== null) this.#pause(over)
  }

  #pause(over: OverBudget): void {
    const { phase, journal, stopping, run } = this.#run
    if (phase.isStopping) return
    journal.defer(journal.event('budget_exceeded', null, { data: { ...over } }))
    stopping.pauseBecause('budget', budgetExceeded(run.runId, over))
  }
}

/** The parts of the run that is kept within its budget. */
interface LimitedRun {
  readonly run: HeldRun
  readonly phase: Phase
  readonly journal: RunJournal
  readonly activity: Activity
  readonly admission: { readonly isOpen: boolean; readonly isConsumed: boolean; pass(call: Call): Promise<void> }
  readonly stopping: { pauseBecause(reason: 'budget', error: Error): void }
  readonly ending: { readonly ended: Promise<unknown> }
}
