import type { NewEvent } from '../model/event.ts'
import type { Guard, Refusal } from '../model/guard.ts'
import type { NewRun } from '../model/new-run.ts'
import type { Operation, OperationChange } from '../model/operation.ts'
import type { Payload } from '../model/payload.ts'
import type { KeyedRecord, RecordChange } from '../model/record.ts'
import type { Run } from '../model/run.ts'
import type { RunChange } from '../model/run-change.ts'
import type { NewChunks } from '../model/stream.ts'
import type { NewMessage } from './message.ts'

export type { Due } from '../model/due.ts'
export type { Guard, Refusal } from '../model/guard.ts'
export type { NewRun } from '../model/new-run.ts'
export type { OperationChange } from '../model/operation.ts'
export type { RecordChange } from '../model/record.ts'
export type { RunChange } from '../model/run-change.ts'

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
  /** Records of the owner, each named once. Judged after the operation; they do not touch the thread. */
  readonly records?: readonly RecordChange[]
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
      /** For record_changed: the first record that has another version, as it is; null where there is none. */
      readonly record?: KeyedRecord | null
    }
