import type { HeldRun } from './held-run.ts'

/** How far the store's clock may be ahead before this execution follows it. */
const slackMs = 1_000

/** The store's time as of the claim, kept going by this process's monotonic clock. */
export class RunClock {
  readonly #run: HeldRun
  #base: { readonly now: number; readonly at: number }

  constructor(run: HeldRun) {
    this.#run = run
    this.#base = { now: run.claim.now, at: performance.now() }
  }

  now(): number {
    return Math.round(this.#base.now + performance.now() - this.#base.at)
  }

  /** Store time at which the workflow's time limit is over. A retried run gets it anew. */
  get overAt(): number {
    const { workflow, tape, claim } = this.#run
    const { timeoutMs } = workflow.options
    if (timeoutMs === undefined) return Number.POSITIVE_INFINITY
    return (tape.retriedAt ?? claim.run.startedAt ?? this.#base.now) + timeoutMs
  }

  /** The store has said what time it is. Says whether this clock was put ahead: that of a machine which slept stood still. */
  follow(now: number): boolean {
    const at = performance.now()
    if (now <= this.#base.now + at - this.#base.at + slackMs) return false
    this.#base = { now, at }
    return true
  }
}
