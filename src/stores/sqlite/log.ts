import { type Place, sealChecksum, storedChecksum, wholeOf } from '../../model/checksum.ts'
import { HoldfastError } from '../../model/errors.ts'
import type { LogRecord, NewEvent } from '../../model/event.ts'
import type { Payload } from '../../model/payload.ts'
import { type Database, prepare, type Statement } from './connection.ts'
import { type BareLogRow, type LogRow, placeOf, type ThreadRow } from './rows.ts'

/** Where a thread's log ends. */
export interface Head {
  readonly head_seq: number
  readonly head_record: number | null
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
export function prepareAppend(db: Database) {
  const lastId = prepare(db, 'SELECT max(id) FROM holdfast_log').pluck()
  const setHead = prepare(
    db,
    'UPDATE holdfast_threads SET head_seq = ?, head_record = ?, written_seq = coalesce(?, written_seq) WHERE id = ?',
  )
  const setHeadAndPatch = prepare(
    db,
    `UPDATE holdfast_threads SET head_seq = ?, head_record = ?, written_seq = coalesce(?, written_seq), patch_seq = ?, patch_checksum = ?
     WHERE id = ?`,
  )
  const setPatch = prepare(db, 'UPDATE holdfast_threads SET patch_seq = ?, patch_checksum = ? WHERE id = ?')
  const insertSome = [1, 2, 3, 4].map((rows) => prepare(db, insertSql(rows)))
  const insertMany = prepare(db, insertSql(recordsAtOnce))
  let next: number | null = null
  /** Values of `logColumns`, row after row. */
  let gathered: unknown[] = []
  let gatheredChars = 0

  /** Returns the record's checksum. */
  function gather(place: Place, record: LogRecord, row: RowNumbers): number {
    const checksum = sealChecksum(storedChecksum(place, record), record.seq)
    pushRow(gathered, record, row, checksum)
    gatheredChars += (record.payload?.length ?? 0) + (record.patch?.length ?? 0)
    if (gathered.length === recordsAtOnce * logColumns.length || gatheredChars > gatheredLength) flush()
    return wholeOf(checksum)
  }

  function flush(): void {
    const values = gathered
    gathered = []
    gatheredChars = 0
    const width = logColumns.length
    if (values.length === recordsAtOnce * width) {
      insertMany.run(...values)
      return
    }
    const most = insertSome.length * width
    for (let start = 0; start < values.length; start += most) {
      const part = values.length <= most ? values : values.slice(start, start + most)
      ;(insertSome[part.length / width - 1] as Statement).run(...part)
    }
  }

  /** The id that the next record gets. */
  function nextId(): number {
    next ??= ((lastId.get() as number | null) ?? 0) + 1
    return next
  }

  function append(thread: Pick<ThreadRow, 'id' | 'owner' | 'thread_id'> & Head, appending: Appending): Head {
    if (appending.events.length === 0) return thread
    const { lastPatch, ...head } = insertRecords(thread, appending)
    const { head_seq, head_record } = head
    const writtenSeq = appending.isLeased ? head_seq : null
    if (lastPatch === null) setHead.run(head_seq, head_record, writtenSeq, thread.id)
    else setHeadAndPatch.run(head_seq, head_record, writtenSeq, lastPatch.seq, lastPatch.checksum, thread.id)
    return head
  }

  /** Appends to a new thread, whose row has its head already. */
  function begin(thread: Pick<ThreadRow, 'id' | 'owner' | 'thread_id'>, appending: Appending): void {
    const { lastPatch } = insertRecords({ ...thread, head_seq: 0, head_record: null }, appending)
    if (lastPatch !== null) setPatch.run(lastPatch.seq, lastPatch.checksum, thread.id)
  }

  function insertRecords(
    thread: Pick<ThreadRow, 'id' | 'owner' | 'thread_id'> & Head,
    appending: Appending,
  ): Head & { readonly lastPatch: LastPatch | null } {
    const { events, run, runId } = appending
    let newId = nextId()
    const place = placeOf(thread)
    const bytes = appending.isCheckpoint ? bytesOf(events) : 0
    let { head_seq: seq, head_record: id } = thread
    let lastPatch: LastPatch | null = null
    for (let i = 0; i < events.length; i++) {
      const { type, step, count, attempt, at, durationMs, payload, patch } = events[i] as NewEvent
      const isCheckpoint = appending.isCheckpoint && i === events.length - 1
      seq += 1
      const record: LogRecord = { seq, runId, type, step, count, attempt, at, durationMs, payload, patch, isCheckpoint }
      const row = { id: newId, thread: thread.id, prev: id, run, checkpointBytes: isCheckpoint ? bytes : null }
      const checksum = gather(place, record, row)
      if (patch !== null) lastPatch = { seq, checksum }
      id = newId++
    }
    next = newId
    return { head_seq: seq, head_record: id, lastPatch }
  }

  /** Writes the whole log of a thread as it was elsewhere. Returns the id of the last record. */
  function restore(
    thread: Pick<ThreadRow, 'id' | 'owner' | 'thread_id'>,
    records: readonly LogRecord[],
    { numberOf, bytesAt }: { numberOf(record: LogRecord): number | null; bytesAt(seq: number): number | null },
  ): number | null {
    const place = placeOf(thread)
    let prev: number | null = null
    let id = nextId()
    for (const record of records) {
      const checkpointBytes = record.isCheckpoint ? (bytesAt(record.seq) ?? 0) : null
      gather(place, record, { id, thread: thread.id, prev, run: numberOf(record), checkpointBytes })
      prev = id++
    }
    next = id
    return prev
  }

  return {
    append,
    begin,
    restore,
    nextId,
    startTransaction: () => {
      next = null
      // Left behind by one that was rolled back.
      gathered = []
      gatheredChars = 0
    },
    endTransaction: flush,
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

export type Append = ReturnType<typeof prepareAppend>['append']

/** Reads stretches of the log. Gaps and wrong links are `corrupt_record`. */
export function prepareStretches(db: Database) {
  const nextMark = prepare(
    db,
    'SELECT id, seq FROM holdfast_log INDEXED BY holdfast_log_marked WHERE thread = ? AND seq >= ? AND (seq & 31) = 0 ORDER BY seq LIMIT 1',
  )
  const idIs = prepare(db, 'SELECT 1 FROM holdfast_log WHERE id = ? AND thread = ? AND seq = ?').pluck()
  const countIn = prepare(db, 'SELECT count(*) FROM holdfast_log WHERE id BETWEEN ? AND ? AND thread = ?').pluck()
  const read = {
    full: prepareRead(db, { columns: `${sharedColumns}, l.payload, l.patch, l.checksum` }),
    patches: prepareRead(db, { columns: `${sharedColumns}, l.payload, l.patch, l.checksum`, where: 'l.patch IS NOT NULL' }),
    bare: prepareRead(db, { columns: `${sharedColumns}, l.checksum, l.patch IS NOT NULL AS has_patch` }),
  }

  /** A record from which a stretch can be reached: its last or one soon after it. */
  function startOf(thread: ThreadRow, lastSeq: number): { id: number | null; seq: number } {
    const head = { id: thread.head_record, seq: thread.head_seq }
    if (lastSeq === thread.head_seq) return head
    return (nextMark.get(thread.id, lastSeq) as { id: number; seq: number } | undefined) ?? head
  }

  /**
   * What a read brings of a stretch, oldest first. Ids rise with positions; so where two records are as far apart by id as they are by
   * position, all between them are the thread's own, and one range has them. Otherwise the chain is walked back.
   */
  function rowsOf<Row extends { readonly seq: number }>({ range, chain }: Read, thread: ThreadRow, stretch: Stretch): Row[] {
    const { firstSeq, lastSeq } = stretch
    const start = startOf(thread, lastSeq)
    const firstId = (start.id ?? 0) - (start.seq - firstSeq)
    const isDense = idIs.get(firstId, thread.id, firstSeq) !== undefined && idIs.get(start.id, thread.id, start.seq) !== undefined
    if (isDense) {
      const lastId = firstId + lastSeq - firstSeq
      if (countIn.get(firstId, lastId, thread.id) !== lastId - firstId + 1) throw gapError(thread, stretch)
      return range.all(firstId, lastId, thread.id) as Row[]
    }
    const rows = (chain.all(start.id, thread.id, start.seq, thread.id, firstSeq, lastSeq, firstSeq) as Row[]).reverse()
    if (rows[0]?.seq !== firstSeq) throw gapError(thread, stretch)
    return rows
  }

  function allOf<Row extends { readonly seq: number }>(reading: Read, thread: ThreadRow, stretch: Stretch): Row[] {
    const rows = rowsOf<Row>(reading, thread, stretch)
    const isWhole = rows.length === stretch.lastSeq - stretch.firstSeq + 1
    if (!isWhole || !rows.every(({ seq }, index) => seq === stretch.firstSeq + index)) throw gapError(thread, stretch)
    return rows
  }

  return {
    /** All records of a stretch, oldest first. `firstSeq` ≤ `lastSeq`, both inside the log of this life. */
    readFull: (thread: ThreadRow, stretch: Stretch) => allOf<LogRow>(read.full, thread, stretch),
    /** Those with a patch. */
    readPatches: (thread: ThreadRow, stretch: Stretch) =>
      rowsOf<LogRow>(read.patches, thread, stretch).filter(({ patch }) => patch !== null),
    readBare: (thread: ThreadRow, stretch: Stretch) => allOf<BareLogRow>(read.bare, thread, stretch),
  }
}

/** Two ways to the same rows. */
interface Read {
  readonly range: Statement
  readonly chain: Statement
}

function prepareRead(db: Database, { columns, where }: { columns: string; where?: string }): Read {
  return {
    range: prepare(
      db,
      `SELECT ${columns} FROM holdfast_log l WHERE l.id BETWEEN ? AND ? AND l.thread = ?${where === undefined ? '' : ` AND ${where}`} ORDER BY l.id`,
    ),
    // The first record always comes along: it shows that the walk has reached it.
    chain: prepare(db, `${chainSql(columns)} AND (${where ?? 'true'} OR l.seq = ?)`),
  }
}

export interface Stretch {
  readonly firstSeq: number
  readonly lastSeq: number
}

function bytesOfPayload(payload: Payload | null): number {
  return payload === null ? 0 : typeof payload === 'string' ? Buffer.byteLength(payload) : payload.byteLength
}

const logColumns = [
  ...['id', 'thread', 'seq', 'prev', 'run', 'type', 'step', 'count', 'attempt', 'at', 'duration_ms'],
  ...['payload', 'patch', 'checkpoint_bytes', 'checksum'],
]

const sharedColumns = 'l.id, l.thread, l.seq, l.run, l.type, l.step, l.count, l.attempt, l.at, l.duration_ms, l.checkpoint_bytes'

function insertSql(rows: number): string {
  const row = `(${logColumns.map(() => '?').join(', ')})`
  return `INSERT INTO holdfast_log (${logColumns.join(', ')}) VALUES ${Array(rows).fill(row).join(', ')}`
}

/** Walks back along the chain, newest first; a link that leads to another place ends the walk, and is noticed by its end. */
function chainSql(columns: string): string {
  return `
    WITH RECURSIVE back (id, seq, prev) AS (
      SELECT id, seq, prev FROM holdfast_log WHERE id = ? AND thread = ? AND seq = ?
      UNION ALL
      SELECT l.id, l.seq, l.prev FROM back JOIN holdfast_log l ON l.id = back.prev
      WHERE l.seq = back.seq - 1 AND l.thread = ? AND l.seq >= ?
    )
    SELECT ${columns} FROM back CROSS JOIN holdfast_log l ON l.id = back.id WHERE back.seq <= ?`
}

function bytesOf(events: readonly NewEvent[]): number {
  let bytes = 0
  for (const { payload, patch } of events) bytes += bytesOfPayload(payload) + bytesOfPayload(patch)
  return bytes
}

function gapError(thread: ThreadRow, { firstSeq, lastSeq }: Stretch): HoldfastError {
  return new HoldfastError(
    'corrupt_record',
    `The log of thread ${thread.thread_id} is damaged: a record between ${firstSeq} and ${lastSeq} is missing. Restore it from a backup, or delete the thread.`,
    { details: { threadId: thread.thread_id, firstSeq, lastSeq } },
  )
}
