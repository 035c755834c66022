import type { HoldfastError } from '../model/errors.ts'
import type { EventType, LogRecord } from '../model/event.ts'
import type { Operation } from '../model/operation.ts'
import type { Payload } from '../model/payload.ts'
import type { Queue, QueueChange } from '../model/queue.ts'
import type { KeyedRecord } from '../model/record.ts'
import type { Run, RunStatus } from '../model/run.ts'
import type { ChunkRecord } from '../model/stream.ts'
import type { Change, Committed } from './change.ts'
import type { Delivery, Message, RunKey } from './message.ts'
import type { RecordPage, RecordQuery, RecordScan } from './record-query.ts'
import type { RecordRanking, RecordSearch } from './record-search.ts'
import type { CheckpointRow, Snapshot, Thread, ThreadKey } from './thread.ts'
import type { ThreadImage, WholeThread } from './thread-image.ts'

export type { Delivery, Message, NewMessage, RunKey } from './message.ts'
export type { RecordPage, RecordQuery, RecordScan } from './record-query.ts'
export type { RecordHit, RecordRanking, RecordSearch } from './record-search.ts'
export type { CheckpointRow, Snapshot, Thread, ThreadKey } from './thread.ts'

/**
 * What every store keeps. The rules live in `model`; a store makes a change atomic and does not decide it.
 *
 * Invariants, proven by the store suite under these numbers:
 *
 *   S1  A change is visible whole or not at all, to every reader, at once.
 *   S2  Under a lease guard only the latest (epoch, leaseId) writes, and only where the store still has what it acknowledged to that
 *       holder (`writtenSeq`); others change nothing and get `lease_lost`.
 *   S3  A thread's log is gapless from its first position, and only grows, until the thread is deleted.
 *   S4  When `commit` resolves the change is as durable as the store claims.
 *   S5  A run is claimed by one caller; every claim raises the epoch and counts before any work.
 *   S6  Of a thread's unfinished runs only the earliest can be claimed.
 *   S7  One (owner, id) is one run, one (owner, key) one operation, one (owner, collection, key) one record; another owner's is as good as
 *       absent. Of several writers that expect one version of a record one writes.
 *   S8  Payloads and ids come back byte for byte; damage is `corrupt_record`, never other data.
 *   S9  All times are the store's own, plus the offset it was opened with. A record that has expired by them is as good as deleted.
 */
export interface Store {
  /** `memory`, `sqlite`, … */
  readonly kind: string

  /**
   * Creates or upgrades the tables. Atomic; when many processes race, one does it and the others see it done.
   * Refuses with `schema_too_new` when the tables are of a later library. Called once, before anything else.
   */
  migrate(): Promise<void>

  /** The store's time in ms since 1970. */
  now(): Promise<number>

  /**
   * Writes a batch. Each change is atomic and judged for itself, in order: a refused one does not hurt its neighbours
   * and later ones see the earlier. Resolves after one flush that covers all of them. Rejects as a whole only
   * when nothing of the batch was written (`store_unavailable`, `storage_full`) or that is not known (`outcome_unknown`).
   * Cost: one transaction and one flush a batch; no read before a write on the path of a step.
   */
  commit(changes: readonly Change[]): Promise<readonly Committed[]>

  /**
   * Takes up to `limit` runs that are due or abandoned: pending or waiting with dueAt reached, or running with a lease
   * that ran out or (where this can be known) a holder that is dead. Atomic per run: status running, epoch + 1, a new
   * lease id, claimsWithoutProgress + 1. Racing callers never get the same run. Of a thread only its earliest
   * unfinished run; only workflows, versions and state versions in `workflows`; nothing of a queue that is paused. Higher priority
   * first, then abandoned ones, then owners in turn, each in order of dueAt: model/claim-order.ts says it exactly.
   *
   * The limits of queues are kept here, also between racing callers: at most `concurrency` runs of a queue are running (one that is
   * taken over was running before), and at most `rateLimit.count` were claimed for the first time in any `rateLimit.perMs`.
   * Cost: what it takes, and a look at each lane. Runs that sleep, and owners that have nothing due, cost nothing.
   */
  claim(request: ClaimRequest): Promise<readonly Claim[]>

  /**
   * Changes settings of a queue, for every process. Atomic. A new rate limit knows nothing of what was started before. What is
   * running or queued already is left alone, also where it is more than the new limits allow.
   */
  setQueue(change: QueueChange): Promise<void>

  /**
   * Queues that have settings of their own or unfinished runs, of all owners, bytewise by name; with `name` only that one, if it is
   * there. Runs of a status are counted up to `countLimit` of model/queue.ts at least: a greater number may be shown as that one.
   */
  listQueues(query: { readonly name?: string }): Promise<readonly Queue[]>

  /** Extends leases that are still held. Returns, for each, whether it is held and whether unread messages wait. Equality of (epoch, leaseId), and `writtenSeq` as in a lease guard. */
  renew(request: RenewRequest): Promise<readonly Renewed[]>

  /**
   * Puts a message into a run's inbox, once, and makes the run due if it is waiting. The holder learns of it at its
   * next commit, renewal or notification. Refused with `run_not_found`; a finished run takes no message (`conflict`). With a
   * `dedupeId` that a message to this run had before, read since or not, nothing is put there, and it is answered as the first was.
   */
  deliver(
    message: Delivery,
  ): Promise<{ readonly ok: true } | { readonly ok: false; readonly refusal: 'run_not_found' | 'conflict' }>

  /** A run's unread messages, oldest first. */
  readInbox(key: RunKey): Promise<readonly Message[]>

  readRun(key: RunKey): Promise<Run | null>

  /**
   * Newest first: by `createdAt`, and those of one instant by the order in which they came. `cursor` continues where the last page ended.
   * Cost: a page, whichever filter is given, also together with statuses and times; a filter besides these two is looked for among
   * what the first of thread, label, workflow and queue finds. Of a thread all runs are looked at.
   */
  listRuns(query: RunQuery): Promise<{ readonly items: readonly Run[]; readonly cursor?: string }>

  readThread(key: ThreadKey): Promise<Thread | null>

  /** In order of creation; `cursor` continues where the last page ended. */
  listThreads(query: ThreadQuery): Promise<{ readonly items: readonly Thread[]; readonly cursor?: string }>

  /** A stretch of a thread's log in order, in one range read. Verifies checksums and gaps: `corrupt_record`. */
  readLog(query: LogQuery): Promise<readonly LogRecord[]>

  /**
   * Several stretches in one round trip, of one moment unless they are very long; answers in the order of the queries. Damage in one says
   * nothing about the others.
   */
  readLogs(queries: readonly LogQuery[]): Promise<readonly LogStretch[]>

  /** The latest snapshot at or before `atSeq`. Verifies its checksum. */
  readSnapshot(query: ThreadKey & { readonly atSeq: number }): Promise<Snapshot | null>

  /** Positions at which commits ended, oldest first, with their labels. */
  listCheckpoints(query: CheckpointQuery): Promise<readonly CheckpointRow[]>

  /** Labels a position. Refused with `conflict` when there is no checkpoint at it. A label names one position of a thread: the latest tag wins. */
  tag(request: ThreadKey & { readonly seq: number; readonly label: string }): Promise<{ readonly ok: boolean }>

  /**
   * Records of a stream in order, from the one on that holds offset `from`; empty where there is nothing yet. Verifies checksums and
   * gaps: `corrupt_record`. One range read.
   */
  readChunks(query: ChunkQuery): Promise<readonly ChunkRecord[]>

  /**
   * Streams of a thread's runs that have ended whose chunks are still there, in the order in which the runs were created, then bytewise by name.
   * One read; it looks at the runs that are named, else at all of the thread.
   */
  listStreams(query: StreamQuery): Promise<readonly KeptStream[]>

  /**
   * Drops the chunks of streams, each where its run has ended and it still has the length that was listed. What is left is one record of that
   * length (`droppedChunks` in model/stream.ts): readers find it where the chunks were, and offsets continue after it. Atomic for each stream: a
   * reader finds all of its chunks or that record. Returns how many were dropped.
   */
  dropChunks(request: ThreadKey & { readonly streams: readonly StreamLength[] }): Promise<number>

  readOperation(key: { readonly owner: string; readonly key: string }): Promise<Operation | null>

  /** Operations that are unsure, questions that are open among them, in the order in which they were opened; `cursor` continues where the last page ended. */
  listUnsure(query: UnsureQuery): Promise<{ readonly items: readonly Operation[]; readonly cursor?: string }>

  /**
   * Records that have not expired, of one moment. Verifies checksums: `corrupt_record`. One range read of an index: others of the
   * collection, and those of other parents or fields, cost nothing. Records are written by `commit`.
   */
  readRecords(query: RecordQuery): Promise<readonly KeyedRecord[]>

  /**
   * The records that have the most of some fields, of one moment. Cost: an entry of an index for each record that has one of them; others of the
   * collection cost nothing. Names keys: what they hold is read with `readRecords`.
   */
  searchRecords(search: RecordSearch): Promise<RecordRanking>

  /**
   * Records of all owners, or of one thread, that have not expired, in an order of the store's; `cursor` continues where the last page ended.
   * A damaged one is `corrupt_record`, with the `cursor` that continues after it in the error's details.
   */
  scanRecords(query: RecordScan): Promise<RecordPage>

  /** Deletes up to `limit` records that have expired, the earliest first. Atomic. Returns how many there were; nobody could read them any more. */
  sweepRecords(request: { readonly limit: number }): Promise<number>

  /**
   * Deletes runs, their streams, log, snapshots and records of a thread and leaves a tombstone. Atomic; a holder is fenced from then on
   * (`lease_lost`). Operations stay; what its runs left open is settled as at the end of a run. A later start is a new life: positions
   * and epochs continue. False if it was not there.
   */
  deleteThread(key: ThreadKey & { readonly at: number }): Promise<boolean>

  /**
   * Removes threads that nothing needs any more, as `deleteThread` does, with their operations, and leaves no tombstone: a later start begins at
   * position 1. A deleted one goes the same way. Each is judged and removed atomically and for itself; answers in the order of the threads. With
   * `isDryRun` they are only judged.
   */
  collectThreads(request: CollectRequest): Promise<readonly CollectVerdict[]>

  /**
   * Threads of all owners, deleted ones too, in order of creation; `cursor` continues where the last page ended. A thread whose row is
   * damaged is `corrupt_record`, with the `cursor` that continues after it in the error's details.
   */
  scanThreads(query: ScanQuery): Promise<{ readonly items: readonly Thread[]; readonly cursor?: string }>

  /** What belongs to a thread at one moment, its log, checkpoints, snapshots and chunks aside. Null if there never was one. */
  readThreadImage(key: ThreadKey): Promise<ThreadImage | null>

  /**
   * Writes a thread as it was in another store, all of it or nothing: positions, epochs and times stay as they are, none of its
   * runs is running, those that are due can be claimed. Refused with `conflict` where the thread is or was, or where one of its
   * run ids or operation keys is taken.
   */
  restoreThread(whole: WholeThread): Promise<{ readonly ok: true } | { readonly ok: false; readonly refusal: 'conflict' }>

  /** Ends what this store opened. What the user opened stays open. Later calls are refused with `closed`. */
  close(): Promise<void>

  /** How durable an acknowledged change is; checked against the engine when the store was opened. */
  readonly durability: 'full' | 'relaxed' | 'none'

  /** False where `mustSync` cannot be kept: effects that nothing else backs are then refused. */
  readonly keepsIntents?: boolean

  /**
   * Optional speed: calls back soon after something changed, in this process or another. May be late, doubled or lost;
   * polling stays correct without it. An empty hint means: something changed. Returns the function that ends it.
   */
  subscribe?(listener: (hint: Hint) => void): () => void

  /**
   * Optional speed: it answers over a network, and gains from a second `commit` while the first is under way. Whoever hands one
   * in sees to it that the two concern different threads: should the first fail, the second may be written all the same.
   */
  readonly canPipeline?: boolean

  /**
   * Optional, SQL stores only: checks the lease, runs `body` inside a transaction on the committer's connection, then
   * writes the change that `body` returned in the same transaction. Refused like `commit`; a throw rolls everything back.
   */
  transact?(guarded: TransactRequest, body: (tx: SqlTransaction) => Promise<Change>): Promise<Committed>

  /**
   * Optional, Postgres only: writes changes on a connection of the caller's, inside a transaction that the caller began and will
   * end. They are there, and subscribers hear of them, once it commits.
   */
  commitWithin?(tx: CallersTransaction, changes: readonly Change[]): Promise<readonly Committed[]>
}

export interface ClaimRequest {
  /** Names the worker in lease_holder. The store adds what tells whether that process still lives. */
  readonly workerId: string
  readonly leaseMs: number
  readonly limit: number
  /** What this worker can execute. `stateVersion` is the highest state version it understands; absent: any. */
  readonly workflows: readonly { readonly name: string; readonly version: number; readonly stateVersion?: number }[]
  /** Only these queues; absent: all. */
  readonly queues?: readonly string[]
  /** Of these queues at most so many. */
  readonly queueLimits?: readonly { readonly queue: string; readonly limit: number }[]
  /** For a priority, the owner who had the last turn: the next one begins. Absent: the first owner does. */
  readonly lastOwners?: readonly { readonly priority: number; readonly owner: string }[]
  /** Takes at most this many suspects: runs with claimsWithoutProgress of `suspicionLimit` or more. Absent: any number. */
  readonly suspectLimit?: number
}

export interface Claim {
  readonly run: Run
  readonly leaseId: string
  readonly input: Payload
  readonly thread: Thread
  /** The holder it was taken from, if it was running. */
  readonly takenFrom: {
    readonly holder: string
    readonly why: 'lease_expired' | 'holder_died'
    readonly leaseUntil: number
  } | null
  readonly hasMail: boolean
  /** Its queue has a limit, of runs in parallel or of starts: a run that waits there should leave its place to others at once. */
  readonly isQueueLimited: boolean
  /** The store's time of the claim. */
  readonly now: number
}

export interface RenewRequest {
  readonly leaseMs: number
  readonly leases: readonly (RunKey & { readonly epoch: number; readonly leaseId: string; readonly writtenSeq?: number })[]
}

export interface Renewed extends RunKey {
  readonly isHeld: boolean
  readonly hasMail: boolean
}

export interface LogQuery extends ThreadKey {
  /** Records with a position greater than this. Default 0. */
  readonly afterSeq?: number
  /** Records with a position up to and including this. */
  readonly toSeq?: number
  readonly limit?: number
  /**
   * Only records of this run; with `withEdits` also those of others that carry a patch. Others come without payload unless
   * they are state_migrated.
   */
  readonly runId?: string
  readonly withEdits?: boolean
  readonly types?: readonly EventType[]
  /** Only records with a patch, without their payloads unless they are state_migrated. */
  readonly patchesOnly?: boolean
  /** Without payloads and patches: for counting and naming. */
  readonly bare?: boolean
  /** As `bare`, but with the payloads of records of these types, whichever run they belong to. */
  readonly payloadsOf?: readonly EventType[]
  /** With `bare` or `payloadsOf`: also with patches. */
  readonly withPatches?: boolean
}

/** What was asked of a log, or the `corrupt_record` that was met. */
export type LogStretch = { readonly records: readonly LogRecord[] } | { readonly damage: HoldfastError }

export interface CheckpointQuery extends ThreadKey {
  readonly afterSeq?: number
  readonly limit?: number
  readonly label?: string
}

export interface ChunkQuery extends RunKey {
  readonly stream: string
  readonly from: number
  /** At most so many records. */
  readonly limit: number
  /** Only marks that say that something is void. */
  readonly abortsOnly?: boolean
}

export interface StreamQuery extends ThreadKey {
  /** Only of these runs. */
  readonly runIds?: readonly string[]
  /** Only of runs that ended earlier than this. */
  readonly endedBefore?: number
  readonly limit: number
}

export interface CollectRequest {
  /** As they were read. */
  readonly threads: readonly (ThreadKey & { readonly headSeq: number })[]
  /**
   * A thread with an operation that is open, or was closed at this time or later, stays. So does one that was created then (`changed`): it has the
   * name of another that was removed since it was read.
   */
  readonly closedBefore: number
  /** A thread with a labelled checkpoint stays. */
  readonly keepsLabelled: boolean
  readonly isDryRun: boolean
  /** Whatever state they are in, and wherever they end: holders of their runs are fenced. */
  readonly isForced?: boolean
}

/**
 * What became of a thread: it was removed, or stays because it was written to since it was read, has an unfinished run, an operation that keeps it,
 * or a label. `gone`: it is not there.
 */
export type CollectVerdict = 'removed' | 'gone' | 'changed' | 'unfinished' | 'operations' | 'labelled'

export interface StreamLength {
  readonly runId: string
  readonly stream: string
  readonly length: number
}

export interface KeptStream extends StreamLength {
  readonly workflow: string
  /** Of the run. */
  readonly status: RunStatus
  readonly finishedAt: number
}

export interface RunQuery {
  readonly owner: string
  readonly threadId?: string
  readonly workflow?: string
  readonly queue?: string
  readonly statuses?: readonly RunStatus[]
  /** Created later than this, in ms. */
  readonly createdAfter?: number
  /** Created earlier than this, in ms. */
  readonly createdBefore?: number
  /** Those to whose records this label of a checkpoint points. */
  readonly label?: string
  /** Leaves out the runs of workflows whose names begin with this, bytewise. */
  readonly withoutPrefix?: string
  readonly limit: number
  readonly cursor?: string
}

export interface ThreadQuery {
  readonly owner: string
  readonly limit: number
  readonly cursor?: string
}

export interface UnsureQuery {
  readonly owner: string
  readonly limit: number
  readonly cursor?: string
}

export interface ScanQuery {
  readonly limit: number
  readonly cursor?: string
}

export interface Hint {
  readonly owner?: string
  readonly threadId?: string
  readonly runId?: string
  /** A run may have become claimable. */
  readonly isClaimable?: boolean
  /** A message was put into the run's inbox. */
  readonly hasMail?: boolean
  /** Something was written to a stream of the run. */
  readonly hasChunks?: boolean
}

export interface TransactRequest extends RunKey {
  readonly threadId: string
  readonly epoch: number
  readonly leaseId: string
  /** As in a lease guard. */
  readonly writtenSeq?: number
  readonly timeoutMs: number
}

/** A connection of the user's own with a transaction open on it: a client of `pg`. */
export interface CallersTransaction {
  query(query: {
    readonly text: string
    readonly values?: unknown[]
    readonly rowMode?: 'array'
  }): Promise<{ readonly rows: readonly unknown[] }>
}

/** The user's own SQL inside the checkpoint's transaction. */
export interface SqlTransaction {
  query<Row = Record<string, unknown>>(sql: string, params?: readonly unknown[]): Promise<Row[]>
}
