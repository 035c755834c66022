import { crc32 } from 'node:zlib'
import { headChecksum, sealChecksum, verifyChecksum, verifyRecord, withContents } from '../../model/checksum.ts'
import { HoldfastError } from '../../model/errors.ts'
import type { EventType, LogRecord, NewEvent } from '../../model/event.ts'
import type { ThreadKey } from '../../store/store.ts'
import { Packer } from './pack.ts'
import { addPayload, bytesOf, lengthOf, readPayload } from './payload-bytes.ts'

/**
 * An entry of the log is `<sealed checksum> <letter><header>\n<payload><patch>`. The letter is `D` at a checkpoint, else `~`; in entries of version 1,
 * whose headers have no checksum, `C` and `-`. No damaged bit makes one of another. The header is a JSON array, so it has no line break.
 * `true` as run means the run with the thread's own id. A length says the kind, too: n bytes of text are n, n other bytes are -n - 1.
 */
type Header = readonly [
  type: EventType,
  run: string | true | null,
  step: string | null,
  count: number,
  attempt: number,
  at: number,
  durationMs: number | null,
  payload: number | null,
  patch: number | null,
  checkpointBytes: number | null,
  /** Over the head, sizes included; entries of version 1 have none. */
  headSum?: number,
]

export interface EventPlace extends ThreadKey {
  readonly runId: string | null
  readonly isCheckpoint: boolean
}

/** Packs events as pairs of checksum and entry. The last one is the checkpoint, if the change leaves one. */
export function packEvents(packer: Packer, events: readonly NewEvent[], change: EventPlace): void {
  let bytes = 0
  for (let i = 0; i < events.length; i++) {
    const event = events[i] as NewEvent
    bytes += bytesOf(lengthOf(event.payload)) + bytesOf(lengthOf(event.patch))
    const isCheckpoint = change.isCheckpoint && i === events.length - 1
    const { type, step, count, attempt, at, durationMs, payload, patch } = event
    const { runId } = change
    const record = { runId, type, step, count, attempt, at, durationMs, payload, patch, isCheckpoint }
    const head = headChecksum(change, record)
    packer.number(withContents(head, record))
    packer.beginString()
    addEntry(packer, record, { threadId: change.threadId, checkpointBytes: bytes, head })
    packer.endString()
  }
}

/** An entry as it stands in the log, for a record that has its position already. */
export function entryOf(record: LogRecord, thread: ThreadKey, checkpointBytes: number): Buffer {
  const packer = new Packer(512)
  const head = headChecksum(thread, record)
  packer.addText(`${sealChecksum(withContents(head, record), record.seq)} `)
  addEntry(packer, record, { threadId: thread.threadId, checkpointBytes, head })
  return packer.end()
}

interface EntryPlace {
  readonly threadId: string
  readonly checkpointBytes: number
  /** The checksum of the record's head. */
  readonly head: number
}

function addEntry(packer: Packer, record: Omit<LogRecord, 'seq'>, { threadId, checkpointBytes, head }: EntryPlace): void {
  const { type, step, count, attempt, at, durationMs, payload, patch, isCheckpoint } = record
  const run = record.runId === threadId ? true : JSON.stringify(record.runId)
  // A `Header` in JSON, put together by hand: it is made for every event.
  const place = `"${type}",${run},${step === null ? null : JSON.stringify(step)},${count},${attempt},${at},${durationMs}`
  const sizes = `${lengthOf(payload)},${lengthOf(patch)},${isCheckpoint ? checkpointBytes : null}`
  packer.addText(`${isCheckpoint ? 'D' : '~'}[${place},${sizes},${crc32(sizes, head)}]\n`)
  if (payload !== null) addPayload(packer, payload)
  if (patch !== null) addPayload(packer, patch)
}

export interface StoredRecord {
  readonly record: LogRecord
  readonly hasPatch: boolean
  readonly checkpointBytes: number | null
}

/** With `isWhole` other entries were cut off after their headers, and only those are verified. */
export function toRecord(
  entry: Buffer,
  seq: number,
  thread: ThreadKey,
  isWhole?: (type: EventType, hasPatch: boolean) => boolean,
): StoredRecord {
  const what = `Record ${thread.threadId}@${seq}`
  const start = entry.indexOf(32) + 2
  const end = entry.indexOf(10)
  const header = parseHeader(entry.toString('utf8', start, end), lettersOf[entry.toString('latin1', start - 1, start)] ?? 0, what)
  const [type, run, step, count, attempt, at, durationMs, payloadLength, patchLength, checkpointBytes, sum] = header
  const patchStart = end + 1 + bytesOf(payloadLength)
  const isBare = isWhole !== undefined && !isWhole(type, patchLength !== null)
  const record: LogRecord = {
    seq,
    runId: run === true ? thread.threadId : run,
    type,
    step,
    count,
    attempt,
    at,
    durationMs,
    payload: isBare ? null : readPayload(entry, end + 1, payloadLength),
    patch: isBare ? null : readPayload(entry, patchStart, patchLength),
    isCheckpoint: checkpointBytes !== null,
  }
  if (!isBare) verifyRecord(Number(entry.toString('latin1', 0, start - 2)), thread, record)
  else if (sum !== undefined) {
    const sizes = `${payloadLength},${patchLength},${checkpointBytes}`
    verifyChecksum(sum, crc32(sizes, headChecksum(thread, record)), what)
  }
  return { record, hasPatch: patchLength !== null, checkpointBytes }
}

/** How many values the header has, by the letter in front of it. */
const lettersOf: Readonly<Record<string, number>> = { D: 11, '~': 11, C: 10, '-': 10 }

function parseHeader(text: string, size: number, what: string): Header {
  try {
    const header = JSON.parse(text) as unknown
    if (Array.isArray(header) && header.length === size) return header as unknown as Header
  } catch {
    // No longer JSON: damaged like the rest.
  }
  verifyChecksum(0, 1, what)
  throw new HoldfastError('corrupt_record', `${what} is damaged.`)
}
