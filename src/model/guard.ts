import type { Run, RunStatus } from './run.ts'

export type Guard =
  /**
   * The latest holder of the run: equality of both, or `lease_lost`.
   * With `writtenSeq` it is also `lease_lost` when the thread's is smaller: the store has lost commits that the holder has seen.
   * With `headSeq` it is a `conflict` when the log no longer ends there: what others have written has to be read first.
   */
  | {
      readonly kind: 'lease'
      readonly epoch: number
      readonly leaseId: string
      /** The last position under a lease that the holder knows of: what its claim said, or what was last acknowledged to it. */
      readonly writtenSeq?: number
      readonly headSeq?: number
    }
  /**
   * Somebody who does not hold the run: it still has this epoch and this status, or `conflict`.
   * With `undisturbed` it is also a `conflict` when a later run of the thread has been started, with `headSeq` when the log no longer ends there.
   */
  | {
      readonly kind: 'run'
      readonly epoch: number
      readonly status: RunStatus
      readonly undisturbed?: boolean
      readonly headSeq?: number
    }
  /** An edit of the thread by hand: no run of it is held and the log still ends at headSeq, or `conflict`. */
  | { readonly kind: 'thread'; readonly headSeq: number }
  /** No condition on run or thread: creating runs, noting evidence. */
  | { readonly kind: 'none' }

/** Why a change was refused. Nothing of it was written. */
export type Refusal =
  | 'lease_lost'
  | 'conflict'
  | 'run_not_found'
  | 'thread_deleted'
  | 'operation_taken'
  | 'already_answered'
  /** A new run, under no guard, would be one too many pending in a queue with `maxQueued`. */
  | 'queue_full'
  /** A record has not the version that the change expects. */
  | 'record_changed'

export type GuardedRun = Pick<Run, 'epoch' | 'status' | 'leaseId'>

export interface GuardedThread {
  readonly headSeq: number
  /** Last position that was written under a lease. */
  readonly writtenSeq: number
  readonly deletedAt: number | null
}

export interface Guarded<R extends GuardedRun, T extends GuardedThread> {
  readonly thread: T | undefined
  /** Undefined where there is none on this thread. */
  readonly run: R | undefined
  /** The change is for a run, whether it exists or not. */
  readonly namesRun: boolean
  /** The change writes events or the run's row. */
  readonly writes: boolean
  /** Whether a later run of the thread was started. One that was claimed and wrote nothing yet counts too: it would run in parallel. */
  readonly hasLaterStart: (run: R) => boolean
  /** Whether a run of the thread is running. */
  readonly isHeld: (thread: T) => boolean
}

/** Null: the change may be written, as far as its guard is concerned. */
export function judgeGuard<R extends GuardedRun, T extends GuardedThread>(guard: Guard, found: Guarded<R, T>): Refusal | null {
  const { thread, run } = found
  switch (guard.kind) {
    case 'lease':
      if (thread === undefined || !holdsLease(run, guard)) return 'lease_lost'
      if (hasForgotten(thread, guard)) return 'lease_lost'
      return hasOtherHead(thread, guard) ? 'conflict' : null
    case 'run':
      if (thread === undefined || run === undefined) return 'run_not_found'
      if (run.epoch !== guard.epoch || run.status !== guard.status || hasOtherHead(thread, guard)) return 'conflict'
      return guard.undisturbed === true && found.hasLaterStart(run) ? 'conflict' : null
    case 'thread':
      if (thread === undefined) return guard.headSeq === 0 ? null : 'conflict'
      if (thread.deletedAt !== null) return 'thread_deleted'
      return hasOtherHead(thread, guard) || found.isHeld(thread) ? 'conflict' : null
    case 'none':
      // Without a guard a late writer must still not bring a deleted thread back, nor write for a run that is gone.
      if (!found.writes) return null
      if (thread !== undefined && thread.deletedAt !== null) return 'thread_deleted'
      return found.namesRun && run === undefined ? 'run_not_found' : null
  }
}

/** Equality, not an order: the store may have been restored from a backup that knows fewer claims. */
export function holdsLease(
  run: Pick<Run, 'epoch' | 'leaseId'> | undefined,
  lease: { readonly epoch: number; readonly leaseId: string },
): boolean {
  return run !== undefined && run.epoch === lease.epoch && run.leaseId === lease.leaseId
}

/** Whether a holder has seen commits that the store no longer has. */
export function hasForgotten(
  thread: { readonly writtenSeq: number } | undefined,
  { writtenSeq = 0 }: { readonly writtenSeq?: number },
): boolean {
  return (thread?.writtenSeq ?? 0) < writtenSeq
}

function hasOtherHead(thread: { readonly headSeq: number }, { headSeq }: { readonly headSeq?: number }): boolean {
  return headSeq !== undefined && thread.headSeq !== headSeq
}
