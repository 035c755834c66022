import type { Engine } from '../engine/engine.ts'
import type { Execution } from '../engine/execution/execution.ts'
import { pairKey } from '../model/ids.ts'
import type { Claim, Hint, Renewed, RenewRequest } from '../store/store.ts'

/** How often events that have been buffered for long are flushed. */
const flushEveryMs = 50
/** How soon inboxes are read after another process wrote something. */
const mailEveryMs = 100
/** With more executions than this, quiet ones notice unnamed messages only when they are renewed or persisted. */
const manyExecutions = 200
/** A failed renewal is retried after this long, then after twice that, and so on up to a tenth of the lease. */
const firstRetryMs = 25

/**
 * Keeps the runs of a worker alive: renews leases after a third of their time, ends executions whose lease is lost, reads their inboxes when
 * something was written elsewhere, and flushes what has been buffered for long.
 *
 * This is for liveness only. The store refuses writes under a lost lease, whatever happens here.
 */
export class LeaseKeeper {
  readonly #engine: Engine
  /** By run. */
  readonly #executions: ReadonlyMap<string, Execution>
  /** Claimed, and still being read from the store. */
  readonly #loading: ReadonlySet<Claim>
  #renewTimer: NodeJS.Timeout | undefined
  #retryTimer: NodeJS.Timeout | undefined
  #failures = 0
  #isStopped = false
  #flushTimer: NodeJS.Timeout | undefined
  #mailTimer: NodeJS.Timeout | undefined
  #renewing: Promise<void> | undefined
  /** When the last successful renewal was sent. */
  #lastRenewal: Instant = { at: 0, wallAt: 0 }
  /** Runs that got a message while they were not executed here: their claims may have been in flight. Recent ones, and those before. */
  #earlyMail = new Set<string>()
  #earlierMail = new Set<string>()
  /** When something was written without naming its run. */
  #unnamedAt = Number.NEGATIVE_INFINITY

  constructor(engine: Engine, executions: ReadonlyMap<string, Execution>, loading: ReadonlySet<Claim>) {
    this.#engine = engine
    this.#executions = executions
    this.#loading = loading
  }

  start(): void {
    this.#noteRenewal(now())
    this.#renewTimer = setInterval(() => void this.renew(), this.#engine.leaseMs / 3)
    this.#flushTimer = setInterval(() => {
      for (const execution of this.#executions.values()) execution.journal.flushIfStale()
    }, flushEveryMs)
  }

  stop(): void {
    clearInterval(this.#renewTimer)
    clearInterval(this.#flushTimer)
    clearTimeout(this.#mailTimer)
    this.#isStopped = true
    clearTimeout(this.#retryTimer)
  }

  /** A notification, perhaps of a message to a run that is held here. */
  heed(hint: Hint): void {
    if (hint.runId === undefined) {
      this.#unnamedAt = performance.now()
      if (this.#executions.size === 0) return
      this.#mailTimer ??= setTimeout(() => {
        this.#mailTimer = undefined
        const isForAll = this.#executions.size <= manyExecutions
        for (const execution of this.#executions.values()) if (isForAll || !execution.quiet.isQuiet) void execution.inbox.check()
      }, mailEveryMs)
    } else if (hint.hasMail === true) {
      const key = pairKey(hint.owner ?? '', hint.runId)
      const execution = this.#executions.get(key)
      // The run's next tape may be about to begin.
      if (execution === undefined || execution.phase.hasEnded) this.#earlyMail.add(key)
      else void execution.inbox.check()
    }
  }

  /** An execution begins, of a run that was claimed at this time by performance.now(). */
  began(key: string, execution: Execution, claimedAt: number): void {
    if (this.#isEarly(key) || this.#unnamedAt >= claimedAt) void execution.inbox.check()
  }

  /** A message came before it. */
  #isEarly(key: string): boolean {
    return this.#earlyMail.delete(key) || this.#earlierMail.delete(key)
  }

  /** One renewal after another; a call during one waits for it. */
  renew(): Promise<void> {
    this.#renewing ??= this.#renewHeld().finally(() => {
      this.#renewing = undefined
    })
    return this.#renewing
  }

  /** Includes runs that are held only since the renewal in progress began. */
  async renewAgain(): Promise<void> {
    await this.#renewing
    await this.renew()
  }

  /**
   * Awaited before claiming. A process that was stopped, blocked or disconnected until its leases expired would otherwise claim its own runs,
   * and execute them a second time. False: they could not be renewed, so nothing may be claimed.
   */
  async renewIfLate(): Promise<boolean> {
    // Twice, because a renewal in progress may have been written before the process was stopped.
    for (let tries = 0; tries < 2 && this.#isLate(); tries++) await this.renew()
    return this.#failures === 0 || !this.#isLate()
  }

  async #renewHeld(): Promise<void> {
    const sentAt = now()
    this.#earlierMail = this.#earlyMail
    this.#earlyMail = new Set()
    const held = [...this.#executions.values()].filter((execution) => !execution.phase.hasEnded)
    const claims = [...held.map(({ run }) => run.claim), ...this.#loading]
    if (claims.length === 0) return this.#noteRenewal(sentAt)
    try {
      const leases = claims.map(({ run, leaseId, thread }, index) => ({
        ...{ owner: run.owner, runId: run.id, epoch: run.epoch, leaseId },
        writtenSeq: held[index]?.run.history.writtenSeq ?? thread.writtenSeq,
      }))
      const answers = await this.#renewAll(leases, held)
      this.#noteRenewal(sentAt)
      for (const [index, answer] of answers.entries()) {
        const execution = held[index]
        if (answer.isHeld) execution?.lease.keptAlive()
        if (!answer.isHeld) execution?.ending.lose()
        else if (answer.hasMail) void execution?.inbox.check()
      }
    } catch (error) {
      // An unknown outcome is not a lost lease: the next commit or renewal decides, and the store refuses late writes.
      this.#engine.log.warn('leases could not be renewed', { count: claims.length, error })
      this.#retrySoon()
    }
  }

  /** In one call, except for the few whose leases are longer than usual. */
  async #renewAll(leases: RenewRequest['leases'], held: readonly Execution[]): Promise<readonly Renewed[]> {
    const { store, leaseMs } = this.#engine
    const long = held.flatMap((execution, index) => (execution.lease.leaseMs > leaseMs ? [index] : []))
    if (long.length === 0) return store.renew({ leaseMs, leases })
    const isLong = new Set(long)
    const usual = leases.flatMap((_, index) => (isLong.has(index) ? [] : [index]))
    const answers = new Array<Renewed>(leases.length)
    const renew = async (indexes: readonly number[], ms: number) => {
      const renewed = await store.renew({ leaseMs: ms, leases: indexes.map((index) => leases[index] as (typeof leases)[number]) })
      for (const [at, index] of indexes.entries()) answers[index] = renewed[at] as Renewed
    }
    if (usual.length > 0) await renew(usual, leaseMs)
    for (const index of long) await renew([index], held[index]?.lease.leaseMs ?? leaseMs)
    return answers
  }

  /** Waiting for the next third of the lease could lose leases that the store, available again, would still have renewed. */
  #retrySoon(): void {
    if (this.#isStopped) return
    const delayMs = Math.min(this.#engine.leaseMs / 10, firstRetryMs * 2 ** this.#failures++)
    clearTimeout(this.#retryTimer)
    this.#retryTimer = setTimeout(() => void this.renew(), delayMs)
  }

  #noteRenewal(sentAt: Instant): void {
    this.#lastRenewal = sentAt
    this.#failures = 0
  }

  /** By either clock: the monotonic one stops while the machine sleeps, the other can be set back. */
  #isLate(): boolean {
    const { at, wallAt } = this.#lastRenewal
    return Math.max(performance.now() - at, Date.now() - wallAt) > this.#engine.leaseMs / 2
  }
}

interface Instant {
  readonly at: number
  readonly wallAt: number
}

function now(): Instant {
  return { at: performance.now(), wallAt: Date.now() }
}
