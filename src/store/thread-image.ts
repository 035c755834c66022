import type { LogRecord } from '../model/event.ts'
import type { Operation } from '../model/operation.ts'
import type { KeyedRecord } from '../model/record.ts'
import type { Run } from '../model/run.ts'
import type { ChunkRecord } from '../model/stream.ts'
import type { Message } from './message.ts'
import type { CheckpointRow, Snapshot, Thread } from './thread.ts'

/** What moves from one store to another: a thread with all that belongs to it. */

/** A thread's rows at one moment. Its log, checkpoints, snapshots, chunks and records are read as usual. */
export interface ThreadImage {
  readonly thread: Thread
  /** Epochs of the next life's runs continue from here. */
  readonly epochFloor: number
  /** Of this life, in order of creation. */
  readonly runs: readonly RunImage[]
  /** Of all its lives, in order of their keys. */
  readonly operations: readonly Operation[]
}

export interface RunImage {
  readonly run: Run
  /** The operation that it waits for. */
  readonly waitKey: string | null
  /** Unread messages, oldest first. They get new ids where they are restored. */
  readonly inbox: readonly Message[]
  /** `dedupeId`s of messages that were delivered to it, in bytewise order. */
  readonly deliveredIds: readonly string[]
  /** How far its streams have come, in order of their names. */
  readonly streams: readonly { readonly stream: string; readonly length: number }[]
}

export interface WholeThread extends ThreadImage {
  /** From the first position of this life to the last. */
  readonly log: readonly LogRecord[]
  readonly checkpoints: readonly Pick<CheckpointRow, 'seq' | 'label' | 'bytes'>[]
  /** Oldest first. */
  readonly snapshots: readonly Snapshot[]
  /** Of all runs, each stream from its first offset to its last. */
  readonly chunks: readonly RunChunks[]
  /** That belong to it and have not expired, in order of collection and key. */
  readonly records: readonly KeyedRecord[]
}

export interface RunChunks extends ChunkRecord {
  readonly runId: string
}
