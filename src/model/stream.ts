import { payloadChecksum, sealChecksum, verifyChecksum } from './checksum.ts'
import { HoldfastError } from './errors.ts'
import type { Payload } from './payload.ts'

/**
 * A stream: the ordered output of a run while it runs, model tokens most of all. It is kept in records: what one writer wrote in a
 * moment. Every chunk has an offset, from 0 and gapless for each run and stream; a record holds consecutive ones.
 */

/** Who wrote chunks: an attempt of a step, or the function itself. */
export interface ChunkWriter {
  /** The tape in which it wrote, from 1. */
  readonly tape: number
  /** Path of the step; null for the function. */
  readonly step: string | null
  /** Which call of that path in its tape, from 1; 0 for the function. */
  readonly count: number
  /** The attempt of the step, from 1; 0 for the function. */
  readonly attempt: number
}

/** Chunks on their way into a stream. */
export interface NewChunks extends ChunkWriter {
  readonly stream: string
  /** How many they are: so many offsets they take. */
  readonly size: number
  /** They, encoded as a list. Null: a mark, of size 1, that all this writer wrote to the stream before is void. */
  readonly payload: Payload | null
}

/** Chunks as a stream keeps them. */
export interface ChunkRecord extends NewChunks {
  /** Of the first of them. */
  readonly offset: number
}

/**
 * What stands in the place of the chunks of a stream that were dropped: as long as they were, so that offsets continue after it. Its writer is
 * none: tapes are counted from 1.
 */
export function droppedChunks(stream: string, length: number): ChunkRecord {
  return { stream, offset: 0, size: length, tape: 0, step: null, count: 0, attempt: 0, payload: null }
}

/** Whether it stands for chunks that were dropped. */
export function isDropped({ tape }: ChunkWriter): boolean {
  return tape === 0
}

/** Where a record belongs: part of its checksum. */
export interface StreamPlace {
  readonly owner: string
  readonly runId: string
}

/** Before it has an offset, which is assigned inside the commit. */
export function newChunksChecksum({ owner, runId }: StreamPlace, chunks: NewChunks): number {
  const { stream, tape, step, count, attempt, size, payload } = chunks
  return payloadChecksum(['chunks', owner, runId, stream, tape, step, count, attempt, size], payload)
}

export function chunksChecksum(place: StreamPlace, record: ChunkRecord): number {
  return sealChecksum(newChunksChecksum(place, record), record.offset)
}

/** Refuses a damaged record, naming it. */
export function verifyChunks(place: StreamPlace, record: ChunkRecord, checksum: number): ChunkRecord {
  const what = `Offset ${record.offset} of stream ${JSON.stringify(record.stream)} of run "${place.runId}"`
  verifyChecksum(checksum, chunksChecksum(place, record), what)
  return record
}

/** Refuses records with a gap between them, or before the first. */
export function verifyGapless(place: StreamPlace, records: readonly ChunkRecord[], from: number): readonly ChunkRecord[] {
  let next = from
  for (const { offset, size, stream } of records) {
    if (offset > next || offset + size <= next) {
      throw new HoldfastError(
        'corrupt_record',
        `Stream ${JSON.stringify(stream)} of run "${place.runId}" has a gap at offset ${next}. Restore it from a backup, or delete the thread.`,
        { details: { runId: place.runId, stream, offset: next } },
      )
    }
    next = offset + size
  }
  return records
}
