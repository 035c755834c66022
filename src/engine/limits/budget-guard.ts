import { type Budget, lower, partOf, type Usage } from '../../model/usage.ts'
import type { Call } from '../calls/calls.ts'
import type { Execution } from '../execution/execution.ts'
import { type Account, budgetExceeded, type OverBudget } from './account.ts'

/** How soon a time limit is looked at again that was nearly reached. */
const lookAgainMs = 20

/** Keeps a run within its budget: books what it uses, and pauses it at the next safe point once a limit is passed. */
export class BudgetGuard {
  readonly #execution: Execution
  readonly #account: Account
  /** Children that are about to begin. */
  #sharing = 0

  constructor(execution: Execution, account: Account) {
    this.#execution = execution
    this.#account = account
  }

  /** Books a use. It is kept whatever becomes of the attempt: the money is spent. */
  book(call: Call, usage: Usage, attempt = 0): void {
    if (this.#execution.hasEnded) return
    this.#execution.ride(this.#execution.event('usage_recorded', call, { attempt, data: { ...usage } }))
    this.#account.add(usage)
    this.check()
  }

  /** A call that is new, in a run that has a budget: counted, and held back where that is used up. */
  async admit(call: Call): Promise<void> {
    const { limits, used, left } = this.#account
    if (left.steps !== 0) this.#account.countStep()
    else this.#pause({ what: 'steps', limit: limits.steps ?? 0, used: used.steps })
    this.check()
    if (!this.#execution.isOpen) await this.#execution.pass(call)
  }

  /** Waits until the budget has room for so much more; the run is paused until then. */
  async reserve(call: Call, amount: { tokens?: number; cost?: number }): Promise<void> {
    const { playback } = this.#execution
    // What comes after it on the tape was begun with the room that there was.
    if (!playback.isLive && !playback.isConsumed) return
    if (!this.#execution.isOpen) await this.#execution.pass(call)
    if (this.#account.isLimited && this.#account.wouldExceed(amount)) {
      const what = amount.cost === undefined ? 'tokens' : 'cost'
      const { limits, used } = this.#account
      this.#pause({ what, limit: limits[what] ?? 0, used: used[what], asked: amount[what] ?? 0 })
      await this.#execution.pass(call)
    }
    this.#account.reserve(amount)
  }

  /** What a child is given of the budget. Those that begin at the same time share what is left. */
  async shareFor(call: Call, own: Budget): Promise<Budget> {
    this.#sharing++
    await this.#execution.working(new Promise<void>((resolve) => setImmediate(resolve)))
    const budget = lower(own, partOf(this.#account.leftFor(call.key), this.#sharing--))
    this.#account.grant(call.key, budget)
    return budget
  }

  /** The same step with the same input, again and again: noticed, and held back past the limit. What is on the tape was counted there. */
  noticeRepeat(call: Call, inputFingerprint: string): void {
    if (call.history?.inputFingerprint !== undefined) return
    const repeat = this.#account.countRepeat(call.path, inputFingerprint)
    if (repeat === null) return
    const { count, isOver } = repeat
    const { log, runId } = this.#execution
    log.warn(`Run "${runId}" has called "${call.path}" with the same input ${count} times. Is it going round in circles?`, {
      runId,
      step: call.path,
      count,
    })
    if (isOver) this.#pause({ what: 'repeats', limit: this.#account.limits.repeats ?? 0, used: count })
  }

  /** Pauses the run if a limit is passed, now and when its time in execution is over. */
  watch(): void {
    if (!this.#account.isLimited) return
    let timer: NodeJS.Timeout
    const look = (leastMs: number): void => {
      this.check()
      const { leftMs } = this.#account
      // While it waits, its time stands still: it is looked at again.
      if (Number.isFinite(leftMs) && leftMs >= 0)
        timer = setTimeout(look, Math.min(Math.max(leastMs, leftMs + 1), 2_147_483_647), lookAgainMs)
    }
    look(0)
    if (Number.isFinite(this.#account.leftMs)) void this.#execution.ended.then(() => clearTimeout(timer))
  }

  check(): void {
    const over = this.#account.over()
    if (over !== null) this.#pause(over)
  }

  #pause(over: OverBudget): void {
    const execution = this.#execution
    if (execution.isStopping || execution.hasEnded) return
    execution.ride(execution.event('budget_exceeded', null, { data: { ...over } }))
    execution.pauseBecause('budget', budgetExceeded(execution.runId, over))
  }
}
