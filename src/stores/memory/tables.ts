import type { LogRecord } from '../../model/event.ts'
import { pairKey } from '../../model/ids.ts'
import type { Operation } from '../../model/operation.ts'
import type { Payload } from '../../model/payload.ts'
import type { QueueSettings } from '../../model/queue.ts'
import type { KeyedRecord } from '../../model/record.ts'
import { isTerminal, type Run } from '../../model/run.ts'
import type { ChunkRecord } from '../../model/stream.ts'
import type { Hint, Message, Snapshot, Thread } from '../../store/store.ts'

/** Everything a memory store knows. Rows are changed in place and copied on the way out. */
export interface Tables {
  readonly threads: Map<string, ThreadRow>
  readonly runs: Map<string, RunRow>
  readonly operations: Map<string, Operation>
  /** Records by owner and collection, then by key; expired ones too, until they are swept. */
  readonly records: Map<string, Map<string, KeyedRecord>>
  /** Keys of the records of a collection that have a field, or a parent. */
  readonly recordIndex: Map<string, Set<string>>
  /** Threads with unfinished runs: where a claim looks. */
  readonly busyThreads: Set<ThreadRow>
  /** Runs that wait for an operation. */
  readonly waitingRuns: Set<RunRow>
  /** Queues with settings of their own, by name. */
  readonly queues: Map<string, QueueRow>
  readonly listeners: Set<(hint: Hint) => void>
  /** Numbers runs and threads in order of creation, and messages in order of arrival. */
  lastNumber: number
}

export interface QueueRow {
  settings: QueueSettings
  /** When runs were claimed for the first time, under a rate limit. */
  startedAt: number[]
}

export interface ThreadRow {
  readonly number: number
  readonly thread: Mutable<Thread>
  /** The log of this life: the record at `seq` is at index `seq - baseSeq - 1`. */
  log: LogRecord[]
  snapshots: Snapshot[]
  checkpoints: { readonly seq: number; readonly bytes: number; label: string | null }[]
  /** All runs of this life, in order of creation. */
  runs: RunRow[]
  /** Its unfinished runs, in order of creation: only the first can be claimed (S6). */
  unfinished: RunRow[]
  /** The highest epoch of a run that was deleted: epochs of the next life continue from here. */
  epochFloor: number
}

export interface RunRow {
  readonly number: number
  readonly run: Mutable<Run>
  /** The operation that the run waits for, while it is waiting. */
  waitKey: string | null
  inbox: Message[]
  /** Ids of messages that are delivered once. */
  readonly deliveredIds: Set<string>
  /** Its streams by name. */
  readonly streams: Map<string, ChunkRecord[]>
  /** Keys of operations that it opened. */
  readonly openedKeys: Set<string>
}

export type Mutable<Row> = { -readonly [Field in keyof Row]: Row[Field] }

export function createTables(): Tables {
  return {
    ...{ threads: new Map(), runs: new Map(), operations: new Map(), records: new Map(), recordIndex: new Map() },
    ...{ busyThreads: new Set(), waitingRuns: new Set(), queues: new Map(), listeners: new Set(), lastNumber: 0 },
  }
}

export function findThread(tables: Tables, owner: string, threadId: string): ThreadRow | undefined {
  return tables.threads.get(pairKey(owner, threadId))
}

export function findRun(tables: Tables, owner: string, runId: string): RunRow | undefined {
  return tables.runs.get(pairKey(owner, runId))
}

/** Bytes belong to the caller that made them, so they are copied on the way in and on the way out. */
export function copyPayload<Kind extends Payload | null>(payload: Kind): Kind {
  return (payload instanceof Uint8Array ? new Uint8Array(payload) : payload) as Kind
}

/** After a run came or changed its status. A finished run that continues gets its old place back. */
export function placeUnfinished(tables: Tables, thread: ThreadRow, row: RunRow): void {
  thread.unfinished = thread.unfinished.filter((other) => other !== row)
  if (!isTerminal(row.run.status)) thread.unfinished = [...thread.unfinished, row].sort((a, b) => a.number - b.number)
  if (thread.unfinished.length > 0) tables.busyThreads.add(thread)
  else tables.busyThreads.delete(thread)
}

export function setWaitKey(tables: Tables, row: RunRow, waitKey: string | null): void {
  row.waitKey = waitKey
  if (waitKey !== null) tables.waitingRuns.add(row)
  else tables.waitingRuns.delete(row)
}

export function tellListeners(tables: Tables, hint: Hint): void {
  for (const listener of [...tables.listeners]) {
    try {
      listener(hint)
    } catch {
      // A hint may be lost; a listener that throws must not make a written change look refused.
    }
  }
}
