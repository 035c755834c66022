import type { NewEvent } from '../model/event.ts'
import type { Operation } from '../model/operation.ts'
import type { Payload } from '../model/payload.ts'
import type { PauseReason, Run, RunStatus, WaitReason } from '../model/run.ts'
import type { NewChunks } from '../model/stream.ts'
import type { NewMessage } from './store.ts'

/**
 * One atomic write. Everything in it becomes visible together or not at all.
 * The writer decides the change; the store checks the guard, assigns positions and makes it atomic.
 */
export interface Change {
  readonly owner: string
  readonly threadId: string
  /** The run that the events belong to and that `run` changes; null for an edit of the thread by hand. */
  readonly runId: string | null
  readonly guard: Guard
  /** Appended in this order, at consecutive positions. */
  readonly events: readonly NewEvent[]
  readonly run?: RunChange
  /**
   * Runs to create; each brings its own thread and its own run_queued event. Without a guard they are refused with `queue_full` where
   * a queue has no room for them; a run's own children always have.
   */
  readonly creates?: readonly NewRun[]
  /** At most one operation a change. */
  readonly operation?: OperationChange
  /** The whole state after the last event of this change. */
  readonly snapshot?: Payload
  /** Version of the state definition that the thread's state has from here on. */
  readonly stateVersion?: number
  /** The last event of this change is a checkpoint: the state there can be rebuilt and named. */
  readonly isCheckpoint: boolean
  /** Label of the checkpoint at which this change ends. */
  readonly label?: string
  /** Inbox messages that this change has dealt with. */
  readonly readMessages?: readonly number[]
  /**
   * The latest message of the run's inbox that the writer knows of and leaves there: only later ones count as mail, in the answer
   * and for a run that goes to wait. Default 0: all count.
   */
  readonly mailSeen?: number
  /** Messages to other runs, put there as `deliver` does. One to a run that is gone or has ended is dropped. */
  readonly delivers?: readonly NewMessage[]
  /** Appended to streams of the run in this order, at the next offsets of each. */
  readonly chunks?: readonly NewChunks[]
  /** Flushed fully before it is acknowledged, whatever the durability mode: an effect's intent. */
  readonly mustSync?: boolean
}

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

/** What changes in the run's row. Absent fields stay as they are. */
export interface RunChange {
  /**
   * A status other than `running` gives the lease up. A terminal one sets finishedAt, lets the next run of the thread go
   * on, and settles what the run left open: effects that are intended become unsure, since nobody else could close them; questions
   * that are open are closed as failed, since nobody waits for the answer. `pending` on a
   * finished run clears finishedAt. `waiting` with mail (see `mailSeen`) is due at once, so that none is overlooked.
   */
  readonly status?: RunStatus
  readonly reason?: PauseReason | WaitReason | null
  /** When a pending or waiting run is due: a duration from the store's now, a date, or never by itself. */
  readonly due?: Due
  /** The run waits for this operation to close. If it is closed already the run is due at once. */
  readonly waitKey?: string
  readonly currentStep?: string | null
  /** A result was recorded: claimsWithoutProgress becomes 0. */
  readonly hasProgress?: boolean
  /** The claim did not end in a death (shutdown, outage): claimsWithoutProgress goes down by one, not below 0. */
  readonly uncountClaim?: boolean
  /** The current tape starts at the first event of this change. Sets startedAt if it is not set. */
  readonly startsTape?: boolean
  /** With startsTape: that first event's payload is the new input. What the old tape left open is settled as at the end of a run. */
  readonly hasNewInput?: boolean
  /** The last event of this change says how the run ended or why it stopped: endSeq points there. */
  readonly setsEnd?: boolean
  /** Under a lease that is kept: it lasts at least two thirds of this and at most all of it, from the store's now on. */
  readonly leaseMs?: number
}

export type Due = { readonly inMs: number } | { readonly at: number } | 'never'

/** A run on its way in. Its run_queued event carries the input as payload. */
export interface NewRun {
  readonly owner: string
  readonly id: string
  readonly threadId: string
  readonly workflow: string
  readonly version: number
  readonly queue: string
  readonly priority: number
  readonly fingerprint: string
  readonly due: { readonly inMs: number } | { readonly at: number }
  /** What to do when an unfinished run holds the thread: get in line, or refuse with `conflict`. */
  readonly ifBusy: 'queue' | 'reject'
  readonly queued: NewEvent
}

/** A change of one operation, keyed by (owner, key). */
export type OperationChange =
  /**
   * Opens the operation for this run, before the effect. Refused with `operation_taken` when the key is there,
   * unless it was closed as failed or undone.
   */
  | { readonly kind: 'intend'; readonly key: string; readonly name: string }
  /** Opens a question for this run: unsure, so that it can be answered (`resolve`) from here on. Refused like an intent. */
  | { readonly kind: 'ask'; readonly key: string; readonly name: string }
  /** It happened. Only the run that opened it; wakes whoever waits for the key, like `fail` and `resolve`. */
  | { readonly kind: 'complete'; readonly key: string; readonly result: Payload | null }
  /** It surely did not happen: the key is free again. Only the run that opened it. */
  | { readonly kind: 'fail'; readonly key: string }
  /** Its outcome is hidden: a person decides. Only the run that opened it. */
  | { readonly kind: 'doubt'; readonly key: string }
  /** A person decided. Refused with `already_answered` unless the operation is unsure. */
  | {
      readonly kind: 'resolve'
      readonly key: string
      readonly hasHappened: boolean
      readonly result: Payload | null
      readonly by: string | null
    }
  /** What it did was taken back: the key is free again. Only the run that opened it, and only once it is completed. */
  | { readonly kind: 'undo'; readonly key: string }
  /** A late answer, of a fenced holder or after the end of a run, kept as evidence for the person who decides; ignored once the operation completed. */
  | { readonly kind: 'note'; readonly key: string; readonly evidence: Payload }

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

export type Committed =
  | {
      readonly ok: true
      /** Positions given to `events`; head of the thread when there were none. */
      readonly firstSeq: number
      readonly lastSeq: number
      /** The store's time of this write. */
      readonly now: number
      /** For each of `creates`, in order: the run, and whether this change created it. */
      readonly created: readonly { readonly run: Run; readonly isNew: boolean }[]
      /** Messages later than `mailSeen` wait in the inbox of the run. */
      readonly hasMail: boolean
    }
  | {
      readonly ok: false
      readonly refusal: Refusal
      /** For operation_taken and already_answered: the operation as it is. */
      readonly operation?: Operation
    }
