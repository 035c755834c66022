import { crc32 } from 'node:zlib'
import { HoldfastError } from './errors.ts'
import type { LogRecord } from './event.ts'
import type { Payload } from './payload.ts'

/** Where a record belongs: part of every checksum, so that a record moved elsewhere is noticed. */
export interface Place {
  readonly owner: string
  readonly threadId: string
  readonly incarnation: number
}

/**
 * The checksum of a log record over all it says except its position. The position is assigned inside the commit, so it
 * is added afterwards: `sealChecksum`. Any single damaged byte is found, and so is a record at the wrong position.
 */
export function recordChecksum(place: Place, record: Omit<LogRecord, 'seq'>): number {
  const head = JSON.stringify([
    place.owner,
    place.threadId,
    place.incarnation,
    record.runId,
    record.type,
    record.step,
    record.count,
    record.attempt,
    record.at,
    record.durationMs,
    record.isCheckpoint ? 1 : 0,
  ])
  return addPayload(addPayload(crc32(head), record.payload), record.patch)
}

/** Binds a checksum to a position of the log. */
export function sealChecksum(checksum: number, seq: number): number {
  return (checksum + seq) >>> 0
}

/** The checksum of a payload that stands by itself: a snapshot, an operation's result. */
export function payloadChecksum(where: readonly (string | number | null)[], payload: Payload | null): number {
  return addPayload(crc32(JSON.stringify(where)), payload)
}

/** Refuses damaged data, naming it. */
export function verifyChecksum(expected: number, found: number, what: string): void {
  if (expected === found) return
  throw new HoldfastError(
    'corrupt_record',
    `${what} is damaged: its checksum does not match. Restore it from a backup, or delete the thread; nothing of it was used.`,
    { details: { what } },
  )
}

function addPayload(crc: number, payload: Payload | null): number {
  if (payload === null) return crc32('n', crc)
  return typeof payload === 'string' ? crc32(payload, crc32(`s${payload.length}:`, crc)) : crc32(payload, crc32(`b${payload.length}:`, crc))
}
