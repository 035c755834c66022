import type { Registry } from '../define/workflow.ts'
import type { Engine } from '../engine/engine.ts'
import { executeRun } from '../engine/execute-run.ts'
import type { Execution } from '../engine/execution/execution.ts'
import type { LeaseHistory } from '../engine/writing/lease-history.ts'
import { checkMs } from '../model/duration.ts'
import { HoldfastError } from '../model/errors.ts'
import { pairKey } from '../model/ids.ts'
import { suspicionLimit } from '../model/run.ts'
import type { RetentionOptions } from '../retention/policies.ts'
import type { Claim, ClaimRequest } from '../store/store.ts'
import { Chores } from './chores.ts'
import { LastOwners } from './last-owners.ts'
import { LeaseKeeper } from './lease-keeper.ts'
import { QueuePlaces } from './queue-places.ts'

/**
 * Runs per claim, and of these per turn of the event loop: starting five hundred in one turn blocked it for 80 to 120 ms. In halves, runs
 * that do nothing still end in one batch of writes; in groups of fifty it took five.
 */
const maxClaims = 250
const startsATurn = 125

export interface WorkerOptions {
  /** How many runs execute in parallel. Default 100. */
  readonly concurrency?: number
  /** Only these queues; as an object, with how many of their runs this worker executes in parallel: `{ mails: 5, default: 50 }`. Default all. */
  readonly queues?: readonly string[] | Readonly<Record<string, number>>
  /** How long a claim lasts without a renewal, in ms: the time after which the runs of a dead worker are picked up. Default 10,000. */
  readonly leaseMs?: number
  /**
   * How long a function that waits may be idle before its run is persisted as waiting, in ms: what it awaits besides calls on ctx must not
   * take longer. Meanwhile the run does not count towards `concurrency`. Default 1,000.
   */
  readonly quietMs?: number
  /** Waits longer than this are persisted, and hold no worker, in ms. With 0 every wait follows a test's clock. Default 5,000. */
  readonly longWaitMs?: number
  /**
   * How long a function that is replayed may take to make the call that is next in its log, while it waits for something else, before its run
   * is paused as mismatch, in ms. Default 5,000; tests of wrong code set less.
   */
  readonly mismatchMs?: number
  /** How often to poll for due runs, in addition to notifications, in ms. Default 200. */
  readonly pollMs?: number
  /** How long `close` waits for running steps, in ms. Default 5,000. */
  readonly closeGraceMs?: number
}

/** The longest back-off after an error, as a part of the lease. After an outage in which leases may have expired it is twice that. */
const backOffShare = 1 / 10

/** The share of its places that deliveries of notifications may take: receivers that do not answer must not keep runs from executing. */
const deliveryShare = 1 / 5

/** How long a run that was claimed without progress is watched before the next such run may be claimed. */
const probationMs = 10_000

/**
 * Claims runs and executes them. Recovery is no separate path: a claim takes abandoned runs like due ones.
 *
 *   W1  An error in a round is reported and backs off; it never ends the loop and never spins.
 *   W2  Of runs that were claimed without progress only one executes in a worker, so that a run that crashes its workers harms no other.
 *   W3  Stopping: stop claiming, wait, abort, release.
 *   W4  After an outage that was longer than leases, workers wait before they claim, so that others can renew theirs first.
 *   W5  A run in its quiet time is held and takes no place. When it continues it takes a place again, even if that is one too many: nothing
 *       is claimed until there are fewer.
 */
export class Worker {
  readonly #engine: Engine
  readonly #registry: Registry
  readonly #workerId: string
  readonly #concurrency: number
  readonly #pollMs: number
  readonly #closeGraceMs: number
  readonly #places: QueuePlaces
  readonly #turns = new LastOwners()
  readonly #onRunEnded: (owner: string, runId: string) => void
  /** By run. */
  readonly #executions = new Map<string, Execution>()
  readonly #loading = new Set<Claim>()
  readonly #keeper: LeaseKeeper
  readonly #chores: Chores
  #placesTaken = 0
  #hasSuspect = false
  #isStopping = false
  #isGraceOver = false
  #wake: (() => void) | undefined
  #isWoken = false
  #isWakingSoon = false
  #errorCount = 0
  #failsSince = 0
  #claimsFrom = 0
  #loop: Promise<void> | undefined
  #unsubscribe: (() => void) | undefined

  constructor(options: {
    engine: Engine
    registry: Registry
    workerId: string
    worker: WorkerOptions
    retention?: RetentionOptions | undefined
    onRunEnded: (owner: string, runId: string) => void
  }) {
    this.#engine = options.engine
    this.#registry = options.registry
    this.#workerId = options.workerId
    checkWorkerOptions(options.worker)
    this.#concurrency = options.worker.concurrency ?? 100
    this.#pollMs = options.worker.pollMs ?? 200
    this.#closeGraceMs = options.worker.closeGraceMs ?? 5_000
    const deliveries = options.engine.outbox === undefined ? 0 : Math.ceil(this.#concurrency * deliveryShare)
    this.#places = new QueuePlaces(options.worker.queues, deliveries)
    this.#onRunEnded = options.onRunEnded
    this.#keeper = new LeaseKeeper(options.engine, this.#executions, this.#loading)
    const { store, codec, log } = options.engine
    this.#chores = new Chores({ store, codec, log, retention: options.retention })
  }

  start(): void {
    this.#unsubscribe = this.#engine.store.subscribe?.((hint) => {
      if (hint.isClaimable === true) this.wake()
      this.#keeper.heed(hint)
    })
    this.#keeper.start()
    this.#chores.start()
    this.#loop = this.#run()
  }

  /** Ends the current sleep, because something may be due. */
  wake(): void {
    this.#isWoken = true
    this.#wake?.()
  }

  /** After this turn of the event loop: several runs may become quiet in it, and one claim can fill all their places. */
  #wakeSoon(): void {
    if (this.#isWakingSoon) return
    this.#isWakingSoon = true
    setImmediate(() => {
      this.#isWakingSoon = false
      this.wake()
    })
  }

  /** Stops claiming, lets running steps finish within the grace period, then releases every run. */
  async stop(): Promise<void> {
    this.#isStopping = true
    this.#unsubscribe?.()
    this.wake()
    // Immediately, because a claim in progress may take a while. Its runs see this when they begin.
    for (const execution of this.#executions.values()) execution.stopping.requestRelease()
    await this.#loop
    await this.#chores.stop()
    await this.#untilIdle(this.#closeGraceMs)
    this.#isGraceOver = true
    for (const execution of this.#executions.values()) void execution.ending.forceStop()
    // If the store is unavailable they stay claimed until their leases expire.
    await this.#untilIdle(Math.max(1_000, this.#closeGraceMs))
    this.#keeper.stop()
  }

  async #run(): Promise<void> {
    while (!this.#isStopping) {
      const delayMs = await this.tick()
      await this.#sleep(delayMs)
    }
  }

  /** One round: claims runs for the free places, starts them, and returns when to look again. */
  async tick(): Promise<number> {
    const limit = Math.min(this.#concurrency - this.#placesTaken, maxClaims)
    const workflows = this.#claimable()
    if (limit <= 0 || workflows.length === 0) return this.#pollMs
    try {
      if (this.#errorCount > 0) await this.#noteReturn()
      const waitMs = this.#claimsFrom - performance.now()
      if (waitMs > 0) return waitMs
      if (!(await this.#keeper.renewIfLate())) return this.#backOff()
      const claimedAt = performance.now()
      const found = await this.#engine.store.claim({
        workerId: this.#workerId,
        leaseMs: this.#engine.leaseMs,
        limit,
        workflows,
        suspectLimit: this.#hasSuspect ? 0 : 1,
        lastOwners: this.#turns.list(),
        ...this.#places.request(),
      })
      this.#errorCount = 0
      this.#turns.note(found)
      const claims = found.map((claim) => this.#places.note(claim))
      for (const claim of claims) this.#admit(claim)
      // The claim took so long that these leases could expire before the next renewal.
      if (performance.now() - claimedAt > this.#engine.leaseMs / 3) void this.#keeper.renewAgain()
      for (const [index, claim] of claims.entries()) {
        // Let the event loop continue in between.
        if (index > 0 && index % startsATurn === 0) await nextTurn()
        void this.#execute(claim, claimedAt)
      }
      return claims.length > 0 && claims.length === limit ? 0 : this.#pollMs
    } catch (error) {
      this.#engine.log.error('claiming failed', { error, errorCount: this.#errorCount + 1 })
      return this.#backOff()
    }
  }

  #backOff(): number {
    if (this.#errorCount === 0) this.#failsSince = performance.now()
    this.#errorCount++
    return Math.min(this.#engine.leaseMs * backOffShare, this.#pollMs * 2 ** this.#errorCount)
  }

  /** The store is available again, after so long that leases of living workers may have expired: give them time to renew (W4). */
  async #noteReturn(): Promise<void> {
    const { store, leaseMs } = this.#engine
    await store.now()
    this.#errorCount = 0
    const now = performance.now()
    if (now - this.#failsSince > leaseMs / 2) this.#claimsFrom = now + 2 * leaseMs * backOffShare
  }

  /** From now on the run is held here, and its lease is renewed. */
  #admit(claim: Claim): void {
    if (claim.run.claimsWithoutProgress > suspicionLimit) this.#hasSuspect = true
    this.#placesTaken++
    this.#places.take(claim.run.queue)
    this.#loading.add(claim)
  }

  async #execute(claim: Claim, claimedAt: number): Promise<void> {
    const key = pairKey(claim.run.owner, claim.run.id)
    let current: Execution | undefined
    let probation: NodeJS.Timeout | undefined
    let hasPlace = true
    const onPlace = (isNeeded: boolean) => {
      hasPlace = isNeeded
      this.#placesTaken += isNeeded ? 1 : -1
      if (!isNeeded) this.#wakeSoon()
    }
    try {
      const workflow = this.#registry.get(claim.run.workflow, claim.run.version)
      if (workflow === undefined) return
      if (workflow.options.streams === 'recent') this.#chores.dropEarlier(claim)
      const former = await this.#loseFormer(key)
      const begin = (execution: Execution) => {
        this.#loading.delete(claim)
        current = execution
        // It begins with a place, whether or not the execution before had given up its own.
        if (!hasPlace) onPlace(true)
        execution.quiet.onPlace = onPlace
        this.#executions.set(key, execution)
        this.#keeper.began(key, execution, claimedAt)
        if (claim.run.claimsWithoutProgress > suspicionLimit) probation ??= this.#watch(execution)
        if (this.#isGraceOver) void execution.ending.forceStop()
        else if (this.#isStopping) execution.stopping.requestRelease()
      }
      await executeRun(this.#engine, workflow, claim, begin, former)
    } catch (error) {
      this.#engine.log.error('a run stopped unexpectedly; it will be picked up when its lease expires', {
        runId: claim.run.id,
        error,
      })
    } finally {
      if (current !== undefined && this.#executions.get(key) === current) this.#executions.delete(key)
      this.#loading.delete(claim)
      if (claim.run.claimsWithoutProgress > suspicionLimit) this.#clear(probation)
      if (hasPlace) this.#placesTaken--
      this.#places.free(claim.run.queue)
      this.#onRunEnded(claim.run.owner, claim.run.id)
      this.wake()
    }
  }

  /** A run that is still executed here under an earlier lease, which the store no longer knows: that execution ends. Returns what it had begun. */
  async #loseFormer(key: string): Promise<LeaseHistory | undefined> {
    const former = this.#executions.get(key)
    if (former === undefined) return undefined
    former.ending.lose()
    await former.ending.ended
    return former.run.history
  }

  /** A suspect is watched until it has recorded something, or has run for a while. */
  #watch(suspect: Execution): NodeJS.Timeout {
    const since = performance.now()
    const timer = setInterval(() => {
      if (!suspect.journal.mustRecordStarts || performance.now() - since > probationMs) this.#clear(timer)
    }, 20)
    return timer
  }

  /** The next suspect may be claimed. */
  #clear(probation: NodeJS.Timeout | undefined): void {
    clearInterval(probation)
    this.#hasSuspect = false
    this.wake()
  }

  #claimable(): ClaimRequest['workflows'] {
    return this.#registry.all().map(({ name, version, options }) => ({
      name,
      version,
      ...(options.state !== undefined && { stateVersion: options.state.version }),
    }))
  }

  async #sleep(delayMs: number): Promise<void> {
    if (!this.#isWoken && !this.#isStopping) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, delayMs)
        this.#wake = () => {
          clearTimeout(timer)
          resolve()
        }
      })
    }
    this.#wake = undefined
    this.#isWoken = false
  }

  /** Until no run is held, not even one that is still being read, or the time is over. */
  async #untilIdle(limitMs: number): Promise<void> {
    const deadline = performance.now() + limitMs
    while (this.#executions.size + this.#loading.size > 0 && performance.now() < deadline) {
      const ends = [...this.#executions.values()].map((execution) => execution.ending.ended)
      const lookAgainMs = Math.min(ends.length === 0 ? 5 : 100, Math.max(1, deadline - performance.now()))
      await Promise.race([
        ...(ends.length === 0 ? [] : [Promise.allSettled(ends)]),
        new Promise((resolve) => setTimeout(resolve, lookAgainMs)),
      ])
      // A finished execution is released in a later microtask.
      await new Promise((resolve) => setImmediate(resolve))
    }
  }
}

function checkWorkerOptions(options: WorkerOptions): void {
  const { concurrency = 1, leaseMs, longWaitMs, mismatchMs, pollMs, closeGraceMs } = options
  if (!(typeof concurrency === 'number' && concurrency >= 1))
    throw new HoldfastError('invalid_input', `worker.concurrency is ${String(concurrency)}; it must be a number of at least 1.`)
  checkMs('worker.leaseMs', leaseMs, 1)
  checkMs('worker.longWaitMs', longWaitMs)
  checkMs('worker.mismatchMs', mismatchMs, 1)
  checkMs('worker.pollMs', pollMs)
  checkMs('worker.closeGraceMs', closeGraceMs)
}

function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}
