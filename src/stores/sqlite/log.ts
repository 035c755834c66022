import { HoldfastError } from '../../model/errors.ts'
import type { LogQuery } from '../../store/store.ts'
import { type Database, prepare, type Statement } from './connection.ts'
import type { BareLogRow, LogRow, SomeLogRow, ThreadRow } from './rows.ts'

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
    bare: prepareRead(db, { columns: bareColumns }),
    checkpoints: prepareRead(db, { columns: bareColumns, where: 'l.checkpoint_bytes IS NOT NULL' }),
    some: prepareRead(db, { columns: `${bareColumns}, ${ifWanted('payload')}, ${ifWanted('patch')}` }),
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
  function rowsOf<Row extends { readonly seq: number }>(
    { range, chain, isFiltered }: Read,
    thread: ThreadRow,
    stretch: Stretch,
    selecting: readonly unknown[] = [],
  ): Row[] {
    const { firstSeq, lastSeq } = stretch
    const start = startOf(thread, lastSeq)
    const firstId = (start.id ?? 0) - (start.seq - firstSeq)
    const isDense = idIs.get(firstId, thread.id, firstSeq) !== undefined && idIs.get(start.id, thread.id, start.seq) !== undefined
    if (isDense) {
      const lastId = firstId + lastSeq - firstSeq
      // Where all records come, the caller sees which are missing.
      if (isFiltered && countIn.get(firstId, lastId, thread.id) !== lastId - firstId + 1) throw gapError(thread, stretch)
      return range.all(...selecting, firstId, lastId, thread.id) as Row[]
    }
    const walk = [start.id, thread.id, start.seq, thread.id, firstSeq]
    const rows = (chain.all(...walk, ...selecting, lastSeq, firstSeq) as Row[]).reverse()
    if (rows[0]?.seq !== firstSeq) throw gapError(thread, stretch)
    return rows
  }

  function allOf<Row extends { readonly seq: number }>(...reading: Parameters<typeof rowsOf>): Row[] {
    const [, thread, stretch] = reading
    const rows = rowsOf<Row>(...reading)
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
    readCheckpoints: (thread: ThreadRow, stretch: Stretch) => rowsOf<BareLogRow>(read.checkpoints, thread, stretch),
    /** All of them, with contents of those that `isWanted` names. */
    readSome: (thread: ThreadRow, stretch: Stretch, { payloadsOf = [], withPatches = false }: LogQuery) => {
      const wanted = [` ${payloadsOf.join(' ')} `, withPatches ? 1 : 0]
      return allOf<SomeLogRow>(read.some, thread, stretch, [...wanted, ...wanted])
    },
  }
}

/** Two ways to the same rows. */
interface Read {
  readonly range: Statement
  readonly chain: Statement
  readonly isFiltered: boolean
}

function prepareRead(db: Database, { columns, where }: { columns: string; where?: string }): Read {
  return {
    isFiltered: where !== undefined,
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

const sharedColumns = 'l.id, l.thread, l.seq, l.run, l.type, l.step, l.count, l.attempt, l.at, l.duration_ms, l.checkpoint_bytes'
const bareColumns = `${sharedColumns}, l.checksum, l.patch IS NOT NULL AS has_patch`

/** What a record contains, if its type is among those of the first parameter or the second asks for patches and it has one. */
function ifWanted(column: string): string {
  return `CASE WHEN instr(?, ' ' || l.type || ' ') > 0 OR (? AND l.patch IS NOT NULL) THEN l.${column} END AS ${column}`
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

function gapError(thread: ThreadRow, { firstSeq, lastSeq }: Stretch): HoldfastError {
  return new HoldfastError(
    'corrupt_record',
    `The log of thread ${thread.thread_id} is damaged: a record between ${firstSeq} and ${lastSeq} is missing. Restore it from a backup, or delete the thread.`,
    { details: { threadId: thread.thread_id, firstSeq, lastSeq } },
  )
}
