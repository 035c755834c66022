import { longestLeaseMs } from '../../model/clock-set-back.ts'
import { codeOf } from '../../model/errors.ts'
import type { NewChunks } from '../../model/stream.ts'
import { reportOutlived } from '../reports/report-outlived.ts'
import { releaseLease } from '../writing/release-lease.ts'
import type { HeldRun } from './held-run.ts'

/** The lease under which a run is executed: how long it is, when it was last extended, and how it is released without a commit of the run's. */
export class HeldLease {
  readonly #run: HeldRun
  /** How long a sign of life extends it. */
  leaseMs: number
  #aliveAt = performance.now()
  /** The process wants to end: a release waits for nothing any more. */
  isForced = false

  constructor(run: HeldRun) {
    this.#run = run
    this.leaseMs = run.engine.leaseMs
  }

  /** The store has just heard of this holder: the lease was extended. */
  keptAlive(): void {
    this.#aliveAt = performance.now()
  }

  /** Earlier holders were silent for so long and lived on: the lease is made long enough for that. */
  async lengthen(silentMs: number): Promise<void> {
    const leaseMs = Math.min(longestLeaseMs, 2 * silentMs)
    if (leaseMs <= this.leaseMs) return
    this.leaseMs = leaseMs
    const { owner, runId, claim, store, log, history } = this.#run
    const lease = { owner, runId, epoch: claim.run.epoch, leaseId: claim.leaseId, writtenSeq: history.writtenSeq }
    await store
      .renew({ leaseMs, leases: [lease] })
      .catch((error: unknown) => log.debug('a lease could not be made longer', { runId, error }))
  }

  /** An unknown outcome is the store's doing. A write that can't be made at all must count, or it would be tried for ever. */
  releaseAfter(error: unknown, chunks: () => readonly NewChunks[]): Promise<boolean> {
    return this.release({ isCounted: codeOf(error) !== 'outcome_unknown', chunks })
  }

  /** Gives the lease up. False: it was lost to another holder. `chunks` says that attempts which wrote to streams are void. */
  async release(options: { readonly isCounted: boolean; readonly chunks: () => readonly NewChunks[] }): Promise<boolean> {
    const { claim, store, codec, log, history, engine } = this.#run
    const { sendings } = engine
    // What is on its way could pass behind what gives the lease up (H2).
    history.end()
    // At once: what ends while the store is being asked must not get lost.
    sendings.keep(this.#run)
    await history.sent.idle()
    return releaseLease(claim, {
      ...{ store, codec, log, history, isCounted: options.isCounted, chunks: options.chunks() },
      settle: () => sendings.settle(this.#run, this.leaseMs),
      letGo: () => sendings.letGo(this.#run),
      isForced: () => this.isForced,
    })
  }

  /** It was lost although this holder lived: the next one need not take that for a death of what was running. */
  reportOutlived(): void {
    const { owner, runId, store, log, claim } = this.#run
    // It was over when it was lost, whatever the clocks say.
    const silentMs = Math.max(this.leaseMs, performance.now() - this.#aliveAt)
    void reportOutlived({ owner, runId, store, log, epoch: claim.run.epoch }, silentMs)
  }
}
