import type { Engine } from '../engine/execute-run.ts'
import type { Execution } from '../engine/execution.ts'
import type { Hint } from '../store/store.ts'

/** How often events that ride for long are looked for. */
const flushEveryMs = 50
/** Another process wrote something: how soon the inboxes are looked at. */
const mailEveryMs = 100

/**
 * Keeps what a worker holds alive: renews leases at a third of their time, tells executions of lost ones at once, looks
 * into their inboxes when something was written elsewhere, and flushes what has been riding for long.
 *
 * It is only for liveness. That a lost lease writes nothing is the store's doing, whatever happens here.
 */
export class LeaseKeeper {
  readonly #engine: Engine
  readonly #executions: ReadonlySet<Execution>
  #renewTimer: NodeJS.Timeout | undefined
  #flushTimer: NodeJS.Timeout | undefined
  #mailTimer: NodeJS.Timeout | undefined
  #isRenewing = false

  constructor(engine: Engine, executions: ReadonlySet<Execution>) {
    this.#engine = engine
    this.#executions = executions
  }

  start(): void {
    this.#renewTimer = setInterval(() => void this.renew(), this.#engine.leaseMs / 3)
    this.#flushTimer = setInterval(() => {
      for (const execution of this.#executions) execution.flushIfOld()
    }, flushEveryMs)
  }

  stop(): void {
    clearInterval(this.#renewTimer)
    clearInterval(this.#flushTimer)
    clearTimeout(this.#mailTimer)
  }

  /** A notification: mail for a run that is held here, perhaps. */
  heed(hint: Hint): void {
    if (this.#executions.size === 0) return
    if (hint.runId === undefined) {
      this.#mailTimer ??= setTimeout(() => {
        this.#mailTimer = undefined
        for (const execution of this.#executions) void execution.checkMail()
      }, mailEveryMs)
    } else if (hint.hasMail === true) {
      for (const execution of this.#executions) {
        if (execution.runId === hint.runId && execution.owner === hint.owner) void execution.checkMail()
      }
    }
  }

  async renew(): Promise<void> {
    const held = [...this.#executions].filter((execution) => !execution.hasEnded)
    if (this.#isRenewing || held.length === 0) return
    this.#isRenewing = true
    try {
      const leases = held.map(({ owner, runId, claim }) => ({ owner, runId, epoch: claim.run.epoch, leaseId: claim.leaseId }))
      const answers = await this.#engine.store.renew({ leaseMs: this.#engine.leaseMs, leases })
      for (const [index, answer] of answers.entries()) {
        const execution = held[index]
        if (!answer.isHeld) execution?.lose()
        else if (answer.hasMail) void execution?.checkMail()
      }
    } catch (error) {
      // Not knowing is not losing: the next commit or renewal decides, and the store fences whatever comes too late.
      this.#engine.log.warn('leases could not be renewed', { count: held.length, error })
    } finally {
      this.#isRenewing = false
    }
  }
}
