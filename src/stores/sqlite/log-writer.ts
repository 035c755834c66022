import { type Place, sealChecksum, storedChecksum, wholeOf } from '../../model/checksum.ts'
import type { LogRecord, NewEvent } from '../../model/event.ts'
import type { Payload } from '../../model/payload.ts'
import { type Database, prepare, type Statement } from './connection.ts'

/** A thread and where its log ends. */
export interface LogEnd extends Place {
  /** holdfast_threads.id */
  readonly thread: number
  readonly headSeq: number
  readonly headRecord: number | null
}

export interface Appending {
  readonly run: number | null
  readonly runId: string | null
  readonly events: readonly NewEvent[]
  /** The last of the events is a checkpoint. */
  readonly isCheckpoint: boolean
  /** Written under a lease. */
  readonly isLeased: boolean
}

/** The last record with a patch. */
interface LastPatch {
  readonly seq: number
  readonly checksum: number
}

/** Records of a transaction that are inserted by one statement; a record alone takes twice as long. */
const recordsAtOnce = 16
/** Long ones are not gathered: each is copied once more on its way. */
const gatheredLength = 256 * 1024

/**
 * Writes to the log. One per connection that writes; `startTransaction` before the first append of each transaction. Records are gathered:
 * `endTransaction` before the commit writes those that are left.
 */
export class LogWriter {
  readonly #sql: ReturnType<typeof prepareStatements>
  #nextId: number | null = null
  /** Values of `logColumns`, row after row. */
  #gathered: unknown[] = []
  #gatheredChars = 0

  constructor(db: Database) {
    this.#sql = prepareStatements(db)
  }

  startTransaction(): void {
    this.#nextId = null
    // Left behind by one that was rolled back.
    this.#gathered = []
    this.#gatheredChars = 0
  }

  endTransaction(): void {
    this.#flush()
  }

  /** The id that the next record gets. */
  nextId(): number {
    this.#nextId ??= ((this.#sql.lastId.get() as number | null) ?? 0) + 1
    return this.#nextId
  }

  append(end: LogEnd, appending: Appending): void {
    if (appending.events.length === 0) return
    const { headSeq, headRecord, lastPatch } = this.#insert(end, appending)
    const writtenSeq = appending.isLeased ? headSeq : null
    if (lastPatch === null) this.#sql.setHead.run(headSeq, headRecord, writtenSeq, end.thread)
    else this.#sql.setHeadAndPatch.run(headSeq, headRecord, writtenSeq, lastPatch.seq, lastPatch.checksum, end.thread)
  }

  /** Appends to a new thread, whose row has its head already. */
  begin(end: LogEnd, appending: Appending): void {
    const { lastPatch } = this.#insert(end, appending)
    if (lastPatch !== null) this.#sql.setPatch.run(lastPatch.seq, lastPatch.checksum, end.thread)
  }

  /** Writes the whole log of a thread as it was elsewhere. Returns the id of the last record. */
  restore(
    place: Place & { readonly thread: number },
    records: readonly LogRecord[],
    { numberOf, bytesAt }: { numberOf(record: LogRecord): number | null; bytesAt(seq: number): number | null },
  ): number | null {
    let prev: number | null = null
    let id = this.nextId()
    for (const record of records) {
      const checkpointBytes = record.isCheckpoint ? (bytesAt(record.seq) ?? 0) : null
      this.#gather(place, record, { id, thread: place.thread, prev, run: numberOf(record), checkpointBytes })
      prev = id++
    }
    this.#nextId = id
    return prev
  }

  #insert(
    end: LogEnd,
    appending: Appending,
  ): { readonly headSeq: number; readonly headRecord: number | null; readonly lastPatch: LastPatch | null } {
    const { events, run, runId } = appending
    let newId = this.nextId()
    const bytes = appending.isCheckpoint ? bytesOf(events) : 0
    let { headSeq: seq, headRecord: id } = end
    let lastPatch: LastPatch | null = null
    for (let i = 0; i < events.length; i++) {
      const { type, step, count, attempt, at, durationMs, payload, patch } = events[i] as NewEvent
      const isCheckpoint = appending.isCheckpoint && i === events.length - 1
      seq += 1
      const record: LogRecord = { seq, runId, type, step, count, attempt, at, durationMs, payload, patch, isCheckpoint }
      const row = { id: newId, thread: end.thread, prev: id, run, checkpointBytes: isCheckpoint ? bytes : null }
      const checksum = this.#gather(end, record, row)
      if (patch !== null) lastPatch = { seq, checksum }
      id = newId++
    }
    this.#nextId = newId
    return { headSeq: seq, headRecord: id, lastPatch }
  }

  /** Returns the record's checksum. */
  #gather(place: Place, record: LogRecord, row: RowNumbers): number {
    const checksum = sealChecksum(storedChecksum(place, record), record.seq)
    pushRow(this.#gathered, record, row, checksum)
    this.#gatheredChars += (record.payload?.length ?? 0) + (record.patch?.length ?? 0)
    if (this.#gathered.length === recordsAtOnce * logColumns.length || this.#gatheredChars > gatheredLength) this.#flush()
    return wholeOf(checksum)
  }

  #flush(): void {
    const values = this.#gathered
    this.#gathered = []
    this.#gatheredChars = 0
    const width = logColumns.length
    if (values.length === recordsAtOnce * width) {
      this.#sql.insertMany.run(...values)
      return
    }
    const most = this.#sql.insertSome.length * width
    for (let start = 0; start < values.length; start += most) {
      const part = values.length <= most ? values : values.slice(start, start + most)
      ;(this.#sql.insertSome[part.length / width - 1] as Statement).run(...part)
    }
  }
}

function prepareStatements(db: Database) {
  return {
    lastId: prepare(db, 'SELECT max(id) FROM holdfast_log').pluck(),
    setHead: prepare(
      db,
      'UPDATE holdfast_threads SET head_seq = ?, head_record = ?, written_seq = coalesce(?, written_seq) WHERE id = ?',
    ),
    setHeadAndPatch: prepare(
      db,
      `UPDATE holdfast_threads SET head_seq = ?, head_record = ?, written_seq = coalesce(?, written_seq), patch_seq = ?, patch_checksum = ?
       WHERE id = ?`,
    ),
    setPatch: prepare(db, 'UPDATE holdfast_threads SET patch_seq = ?, patch_checksum = ? WHERE id = ?'),
    insertSome: [1, 2, 3, 4].map((rows) => prepare(db, insertSql(rows))),
    insertMany: prepare(db, insertSql(recordsAtOnce)),
  }
}

/** What a row has besides its record. */
interface RowNumbers {
  readonly id: number
  readonly thread: number
  readonly prev: number | null
  readonly run: number | null
  readonly checkpointBytes: number | null
}

/** Adds the values of `logColumns`. */
function pushRow(values: unknown[], record: LogRecord, row: RowNumbers, checksum: number): void {
  const { seq, count, attempt, type, step, at, durationMs, payload, patch } = record
  values.push(row.id, row.thread, seq, row.prev, row.run, type, step, count === 0 ? null : count, attempt === 0 ? null : attempt)
  values.push(at, durationMs, payload, patch, row.checkpointBytes, checksum)
}

const logColumns = [
  ...['id', 'thread', 'seq', 'prev', 'run', 'type', 'step', 'count', 'attempt', 'at', 'duration_ms'],
  ...['payload', 'patch', 'checkpoint_bytes', 'checksum'],
]

function insertSql(rows: number): string {
  const row = `(${logColumns.map(() => '?').join(', ')})`
  return `INSERT INTO holdfast_log (${logColumns.join(', ')}) VALUES ${Array(rows).fill(row).join(', ')}`
}

function bytesOf(events: readonly NewEvent[]): number {
  let bytes = 0
  for (const { payload, patch } of events) bytes += bytesOfPayload(payload) + bytesOfPayload(patch)
  return bytes
}

function bytesOfPayload(payload: Payload | null): number {
  return payload === null ? 0 : typeof payload === 'string' ? Buffer.byteLength(payload) : payload.byteLength
}
