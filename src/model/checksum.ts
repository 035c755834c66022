import { crc32 } from 'node:zlib'
import { HoldfastError } from './errors.ts'
import type { LogRecord } from './event.ts'
import type { Payload } from './payload.ts'

/**
 * Where a record belongs: part of every checksum, so that a record moved elsewhere is noticed. The life of a thread is not
 * part of it: positions go on from life to life, and a writer would have to read before it writes.
 */
export interface Place {
  readonly owner: string
  readonly threadId: string
}

/**
 * The checksum of a log record over all it says except its position. The position is assigned inside the commit, so it
 * is added afterwards: `sealChecksum`. Any single damaged byte is found, and so is a record at the wrong position.
 */
export function recordChecksum(place: Place, record: Omit<LogRecord, 'seq'>): number {
  const { type, count, attempt, at, durationMs, payload, patch } = record
  const ids = sized(place.owner) + sized(place.threadId) + sized(record.runId) + sized(record.step)
  const head = `${ids}${type},${count},${attempt},${at},${durationMs},${record.isCheckpoint ? 1 : 0},`
  if (isShortText(payload) && isShortText(patch)) return crc32(head + sized(payload) + sized(patch))
  return addPayload(addPayload(crc32(head), payload), patch)
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
  return typeof payload === 'string'
    ? crc32(payload, crc32(`s${payload.length}:`, crc))
    : crc32(payload, crc32(`b${payload.length}:`, crc))
}

/** With its length in front no text can pass for another followed by more; null is not a text. */
function sized(text: string | null): string {
  return text === null ? 'n' : `s${text.length}:${text}`
}

/** Short texts are joined and summed in one call, which gives the same sum as one after the other. */
function isShortText(payload: Payload | null): payload is string | null {
  return payload === null || (typeof payload === 'string' && payload.length <= 4_096)
}
