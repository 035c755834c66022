import type { Payload } from '../model/payload.ts'

export interface ThreadKey {
  readonly owner: string
  readonly threadId: string
}

export interface Thread extends ThreadKey {
  /** Last position of the log, 0 when it is empty. */
  readonly headSeq: number
  /**
   * Last position that was written under a lease, of whichever run; 0 before any. Others who write to the log leave it alone. A holder
   * that knows a greater one has seen commits that this store has lost.
   */
  readonly writtenSeq: number
  /** Position and checksum of the last record with a patch, 0 and 0 before any: together they name one state, also after a restore. */
  readonly patchSeq: number
  readonly patchChecksum: number
  /** Version of the state definition of its state, 0 before any. */
  readonly stateVersion: number
  /** Rises when a deleted thread gets a new life, from 1. */
  readonly incarnation: number
  /** The log of this life starts after this position. */
  readonly baseSeq: number
  readonly createdAt: number
  readonly deletedAt: number | null
}

export interface Snapshot {
  readonly seq: number
  readonly state: Payload
  readonly stateVersion: number
}

export interface CheckpointRow {
  readonly seq: number
  readonly at: number
  readonly runId: string | null
  readonly step: string | null
  readonly label: string | null
  /** Bytes of payloads and patches that the commit ending here added. */
  readonly bytes: number
}
