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
  return withContents(headChecksum(place, record), record)
}

/** The checksum of all that a record says besides its payload and patch. */
export function headChecksum(place: Place, record: Omit<LogRecord, 'seq' | 'payload' | 'patch'>): number {
  const { type, count, attempt, at, durationMs } = record
  const ids = sized(place.owner) + sized(place.threadId) + sized(record.runId) + sized(record.step)
  return crc32(`${ids}${type},${count},${attempt},${at},${durationMs},${record.isCheckpoint ? 1 : 0},`)
}

/**
 * Both checksums in one number: that of the record in the lower 32 bits, and above them 21 bits of that of its head. So a record is verified
 * without reading what may be large; a damaged head then passes in one case of two million.
 */
export function storedChecksum(place: Place, record: Omit<LogRecord, 'seq'>): number {
  const head = headChecksum(place, record)
  return shortened(head) * wholeRange + withContents(head, record)
}

const wholeRange = 2 ** 32

/** From 1 to 2,097,143, a prime: with 32 bits more it is exact as a number of JavaScript. */
function shortened(head: number): number {
  return (head % 2_097_143) + 1
}

/** That of the record alone. */
export function wholeOf(stored: number): number {
  return stored % wholeRange
}

/** Binds a checksum to a position of the log. */
export function sealChecksum(checksum: number, seq: number): number {
  const whole = wholeOf(checksum)
  return checksum - whole + ((whole + seq) >>> 0)
}

/**
 * Refuses a damaged record. One that was read without its contents is verified by its head; those of earlier builds, which have no
 * checksum of it, can't be.
 */
export function verifyRecord(stored: number, place: Place, record: LogRecord, isBare = false): void {
  const what = `Record ${place.threadId}@${record.seq}`
  if (!isBare) verifyChecksum(wholeOf(stored), sealChecksum(recordChecksum(place, record), record.seq), what)
  else if (stored >= wholeRange) verifyChecksum(Math.floor(stored / wholeRange), shortened(headChecksum(place, record)), what)
}

/** The checksum of a record, from that of its head. */
export function withContents(head: number, { payload, patch }: Pick<LogRecord, 'payload' | 'patch'>): number {
  if (isShortText(payload) && isShortText(patch)) return crc32(sized(payload) + sized(patch), head)
  return addPayload(addPayload(head, payload), patch)
}

/** The checksum of a payload that stands by itself: a snapshot, an operation's result. */
export function payloadChecksum(where: readonly (string | number | null)[], payload: Payload | null): number {
  return addPayload(crc32(JSON.stringify(where)), payload)
}

/** Refuses damaged data, naming it. */
export function verifyChecksum(
  expected: number,
  found: number,
  what: string,
  where: Readonly<Record<string, string>> = {},
): void {
  if (expected === found) return
  throw new HoldfastError(
    'corrupt_record',
    `${what} is damaged: its checksum does not match. Restore it from a backup, or delete the thread; nothing of it was used.`,
    { details: { what, ...where } },
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
