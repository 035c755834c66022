import { crc32 } from 'node:zlib'
import { verifyRun, verifyThread } from '../../model/check-rows.ts'
import { headChecksum, payloadChecksum, sealChecksum, verifyChecksum, verifyRecord, withContents } from '../../model/checksum.ts'
import { HoldfastError } from '../../model/errors.ts'
import type { EventType, LogRecord, NewEvent } from '../../model/event.ts'
import { type Operation, readKind } from '../../model/operation.ts'
import type { Payload } from '../../model/payload.ts'
import type { Run } from '../../model/run.ts'
import type { Message, NewMessage, Snapshot, Thread, ThreadKey } from '../../store/store.ts'
import type { Reply } from './connection.ts'
import { parseLane, splitPair } from './keys.ts'
import { Packer } from './pack.ts'

/**
 * Rows as Redis keeps them, and the nouns they stand for. A field that says nothing is empty or absent; a text that may
 * itself be empty has `=` in front. What has a checksum leaves here only after it was verified.
 */

/** A run's row, as scripts answer with it. Owner and id are in its key. `until` and `holder` count only while there is a lease. */
export const runFields = [
  ...['epoch', 'lease', 'thread', 'base', 'mail', 'claims', 'step', 'until', 'status', 'number', 'lane', 'due', 'reason'],
  ...['holder', 'input', 'tape', 'end', 'fingerprint', 'created', 'started', 'finished'],
]

/**
 * What a run's field says where it is absent, unless that is nothing: every field costs the server time, so a new run has few. It has more
 * than it answers with: `owner`, `wait`, the operation it waits for, `intends`, whether it ever opened one, and `ready`, the kind of lane it is in
 * while it is due.
 */
export const absentFields: Readonly<Record<string, string>> = { base: '0', mail: '0', claims: '0', input: '1' }

/**
 * A thread's row; absent are a base, version and head of 0 and a life of 1. `life` is its incarnation; `head` counts only once it is deleted, before that it is the length of the log. `foreign` is how many of
 * the last positions were not written under a lease; absent for none, or for the first alone (`foreignOf` of scripts/script.ts). So a step,
 * which is written under one, has nothing to write there. `patch` and
 * `checksum` are those of the last record with a patch, absent for none. Beside these
 * it has `floor`, below which no epoch of a new life begins, and `run`, its only run, empty where there are none or several.
 */
export const threadFields = [
  ...['number', 'base', 'life', 'version', 'created', 'deleted', 'head', 'foreign', 'patch', 'checksum'],
]

export const operationFields = ['status', 'name', 'run', 'thread', 'result', 'evidence', 'by', 'intended', 'closed', 'kind']

/** The row of a run or thread: all text, so scripts answer with one JSON array, which is cheaper than twenty strings. */
export type Row = Readonly<Record<number, string>> & Iterable<string>

/** Null where there is no such row. */
export function readRow(reply: Reply): Row | null {
  const row = JSON.parse(String(reply)) as (string | false)[]
  return row[0] === false ? null : (row as string[])
}

export interface StoredRun {
  readonly run: Run
  /** Pair of its thread. */
  readonly thread: string
  readonly number: number
  readonly hasMail: boolean
}

export function toRun(pair: string, row: Row): StoredRun {
  const [epoch, lease, thread, , mail, claims, step, until, status, number, lane, due, reason, ...rest] = row as unknown as RunRow
  const [holder, input, tape, end, fingerprint, created, started, finished] = rest
  const { owner, id } = splitPair(pair)
  const { workflow, version, queue, priority } = parseLane(lane)
  const run: Run = {
    ...{ owner, id, threadId: splitPair(thread).id, workflow, version, status: status as Run['status'] },
    ...{ reason: reason === '' ? null : (reason as Run['reason']), queue, priority, fingerprint, epoch: Number(epoch) },
    ...{
      leaseId: lease === '' ? null : lease,
      leaseUntil: lease === '' ? null : Number(until),
      leaseHolder: lease === '' ? null : holder,
    },
    ...{ dueAt: numberOrNull(due), claimsWithoutProgress: Number(claims), currentStep: unmarked(step) },
    ...{ inputSeq: Number(input), tapeSeq: numberOrNull(tape), endSeq: numberOrNull(end) },
    ...{ createdAt: Number(created), startedAt: numberOrNull(started), finishedAt: numberOrNull(finished) },
  }
  return { run: verifyRun(run), thread, number: Number(number), hasMail: mail !== '0' }
}

/** As `runFields` lists them. */
type RunRow = readonly [...Seven<string>, string, string, string, string, string, string, ...Seven<string>, string]

export function toThread(pair: string, row: Row, logLength: number): { thread: Thread; number: number } {
  const [number, base, life, version, created, deleted, head, foreign, patch, checksum] = row as unknown as ThreadRow
  const { owner, id } = splitPair(pair)
  const baseSeq = Number(base)
  const isThere = deleted === false || deleted === ''
  const headSeq = isThere ? baseSeq + logLength : Number(head)
  const thread = {
    owner,
    threadId: id,
    headSeq,
    writtenSeq: headSeq - (foreign === false ? Number(headSeq === baseSeq + 1) : Number(foreign)),
    patchSeq: Number(patch),
    patchChecksum: Number(checksum),
    stateVersion: Number(version),
    incarnation: life === false ? 1 : Number(life),
    baseSeq,
    createdAt: Number(created),
    deletedAt: isThere ? null : Number(deleted),
  }
  return { thread: verifyThread(thread), number: Number(number) }
}

/** As `threadFields` lists them. */
type ThreadRow = readonly [...Seven<string | false>, string | false, string | false, string | false]

type Seven<Value> = readonly [Value, Value, Value, Value, Value, Value, Value]

// ── the log ────────────────────────────────────────────────────────────────

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

/** With `wholeTypes` entries of other types were cut off after their headers, and nothing of them is verified. */
export function toRecord(entry: Buffer, seq: number, thread: ThreadKey, wholeTypes?: readonly EventType[]): StoredRecord {
  const what = `Record ${thread.threadId}@${seq}`
  const start = entry.indexOf(32) + 2
  const end = entry.indexOf(10)
  const header = parseHeader(entry.toString('utf8', start, end), lettersOf[entry.toString('latin1', start - 1, start)] ?? 0, what)
  const [type, run, step, count, attempt, at, durationMs, payloadLength, patchLength, checkpointBytes, sum] = header
  const patchStart = end + 1 + bytesOf(payloadLength)
  const isBare = wholeTypes !== undefined && !wholeTypes.includes(type)
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
    // Not JSON any more: damaged like the rest.
  }
  verifyChecksum(0, 1, what)
  throw new HoldfastError('corrupt_record', `${what} is damaged.`)
}

export function lengthOf(payload: Payload | null): number | null {
  if (payload === null) return null
  return typeof payload === 'string' ? Buffer.byteLength(payload) : -payload.byteLength - 1
}

function bytesOf(length: number | null): number {
  return length === null ? 0 : length < 0 ? -length - 1 : length
}

export function readPayload(entry: Buffer, start: number, length: number | null): Payload | null {
  if (length === null) return null
  const end = start + bytesOf(length)
  return length < 0 ? copyBytes(entry, start, end) : entry.toString('utf8', start, end)
}

/** A copy: bytes belong to whoever reads them, and must not keep the whole answer of the server alive. */
function copyBytes(buffer: Buffer, start: number, end = buffer.length): Uint8Array {
  return new Uint8Array(buffer.subarray(start, end))
}

function addPayload(packer: Packer, payload: Payload): void {
  if (typeof payload === 'string') packer.addText(payload)
  else packer.addBytes(payload)
}

// ── payloads that stand by themselves ──────────────────────────────────────

/** A payload is `s` and its text or `b` and its bytes. */
export function packPayload(packer: Packer, payload: Payload): void {
  packer.beginString()
  packer.addText(typeof payload === 'string' ? 's' : 'b')
  addPayload(packer, payload)
  packer.endString()
}

function unpackPayload(buffer: Buffer, start: number): Payload {
  return buffer[start] === 0x62 ? copyBytes(buffer, start + 1) : buffer.toString('utf8', start + 1)
}

/** A snapshot is `<position> <sealed checksum> <state version> <payload>`; the seal holds position and version. */
export function snapshotChecksum({ owner, threadId }: ThreadKey, state: Payload): number {
  return payloadChecksum(['snapshot', owner, threadId], state)
}

export function toSnapshot(entry: Buffer, thread: ThreadKey): Snapshot {
  const afterSeq = entry.indexOf(32)
  const afterSum = entry.indexOf(32, afterSeq + 1)
  const afterVersion = entry.indexOf(32, afterSum + 1)
  const seq = Number(entry.toString('latin1', 0, afterSeq))
  const stateVersion = Number(entry.toString('latin1', afterSum + 1, afterVersion))
  const state = unpackPayload(entry, afterVersion + 1)
  const found = sealChecksum(snapshotChecksum(thread, state), seq + 65_537 * stateVersion)
  verifyChecksum(Number(entry.toString('latin1', afterSeq + 1, afterSum)), found, `The snapshot of ${thread.threadId}@${seq}`)
  return { seq, state, stateVersion }
}

/** A snapshot as it is kept. */
export function snapshotEntryOf({ seq, state, stateVersion }: Snapshot, thread: ThreadKey): Buffer {
  const packer = new Packer(512)
  const sealed = sealChecksum(snapshotChecksum(thread, state), seq + 65_537 * stateVersion)
  packer.addText(`${seq} ${sealed} ${stateVersion} ${typeof state === 'string' ? 's' : 'b'}`)
  addPayload(packer, state)
  return packer.end()
}

/** An operation's result or evidence is `<checksum> <payload>`, or empty. */
export function packOperationPayload(packer: Packer, payload: Payload | null, where: OperationPlace): void {
  packer.beginString()
  if (payload !== null) {
    packer.addText(`${operationChecksum(payload, where)} ${typeof payload === 'string' ? 's' : 'b'}`)
    addPayload(packer, payload)
  }
  packer.endString()
}

interface OperationPlace {
  readonly owner: string
  readonly key: string
  readonly part: 'result' | 'evidence'
}

function operationChecksum(payload: Payload, { owner, key, part }: OperationPlace): number {
  return payloadChecksum(['operation', owner, key, part], payload)
}

/** Null where there is no such operation. */
export function toOperation({ owner, key }: { readonly owner: string; readonly key: string }, reply: Reply): Operation | null {
  const values = reply as readonly (Buffer | null)[]
  if (values[0] === null) return null
  const [status, name, run, thread, result, evidence, by, intended, closed, kind] = values as unknown as readonly [
    ...Seven<Buffer>,
    Buffer,
    Buffer,
    Buffer | null,
  ]
  const payload = (field: Buffer, part: 'result' | 'evidence'): Payload | null => {
    if (field.length === 0) return null
    const end = field.indexOf(32)
    const found = unpackPayload(field, end + 1)
    const expected = Number(field.toString('latin1', 0, end))
    verifyChecksum(expected, operationChecksum(found, { owner, key, part }), `The ${part} of operation ${JSON.stringify(key)}`)
    return found
  }
  return {
    owner,
    key,
    ...readKind(kind === null ? null : String(kind), String(name)),
    runId: run.length === 0 ? '' : splitPair(String(run)).id,
    threadId: splitPair(String(thread)).id,
    status: String(status) as Operation['status'],
    result: payload(result, 'result'),
    evidence: payload(evidence, 'evidence'),
    resolvedBy: unmarked(String(by)),
    intendedAt: Number(intended),
    closedAt: numberOrNull(String(closed)),
  }
}

// ── messages ───────────────────────────────────────────────────────────────

/** A message is `<sealed checksum> <time of arrival> <header>\n<payload>`; the seal holds the time. */
export function packMessage({ kind, name, payload }: NewMessage): Buffer {
  const head = Buffer.from(`${JSON.stringify([kind, name, lengthOf(payload)])}\n`)
  if (payload === null) return head
  return Buffer.concat([head, typeof payload === 'string' ? Buffer.from(payload) : payload])
}

/** A message as it is kept, for one that has arrived already. */
export function messageEntryOf(message: Message): Buffer {
  const sealed = sealMessage(message, message.at)
  return Buffer.concat([Buffer.from(`${sealed} ${message.at} `), packMessage(message)])
}

function sealMessage(message: NewMessage, at: number): number {
  return (messageChecksum(message) + at) % 2 ** 32
}

export function messageChecksum({ owner, runId, kind, name, payload }: NewMessage): number {
  return payloadChecksum(['message', owner, runId, kind, name], payload)
}

export function toMessage(id: number, entry: Buffer, key: { readonly owner: string; readonly runId: string }): Message {
  const what = `Message ${id} to run ${key.runId}`
  const afterSum = entry.indexOf(32)
  const afterAt = entry.indexOf(32, afterSum + 1)
  const end = entry.indexOf(10, afterAt)
  const at = Number(entry.toString('latin1', afterSum + 1, afterAt))
  const [kind, name, length] = parseMessageHeader(entry.toString('utf8', afterAt + 1, end), what)
  const message = { ...key, id, kind, name, payload: readPayload(entry, end + 1, length), at }
  verifyChecksum(Number(entry.toString('latin1', 0, afterSum)), sealMessage(message, at), what)
  return message
}

function parseMessageHeader(text: string, what: string): readonly [kind: string, name: string | null, length: number | null] {
  try {
    const header = JSON.parse(text) as unknown
    if (Array.isArray(header) && header.length === 3) return header as unknown as [string, string | null, number | null]
  } catch {
    // Not JSON any more: damaged like the rest.
  }
  verifyChecksum(0, 1, what)
  throw new HoldfastError('corrupt_record', `${what} is damaged.`)
}

// ── fields ─────────────────────────────────────────────────────────────────

/** A text that may be empty, marked so that it is not taken for nothing. */
export function marked(value: string | null): string {
  return value === null ? '' : `=${value}`
}

function unmarked(field: string): string | null {
  return field === '' ? null : field.slice(1)
}

function numberOrNull(field: string): number | null {
  return field === '' ? null : Number(field)
}
