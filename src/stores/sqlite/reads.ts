import { codeOf } from '../../model/errors.ts'
import type { LogRecord } from '../../model/event.ts'
import type { Operation } from '../../model/operation.ts'
import type { Run } from '../../model/run.ts'
import { isAskedFor, isBare, isWanted, shownRecord } from '../../store/log-query.ts'
import { stretchOf } from '../../store/log-stretch.ts'
import { pageOf, readCursor } from '../../store/page.ts'
import type {
  CheckpointQuery,
  CheckpointRow,
  LogQuery,
  LogStretch,
  RunKey,
  Snapshot,
  Thread,
  ThreadKey,
  ThreadQuery,
  UnsureQuery,
} from '../../store/store.ts'
import { readUnsureCursor, unsurePage } from '../../store/unsure-page.ts'
import { type Database, prepare } from './connection.ts'
import { prepareListRuns } from './list-runs.ts'
import { prepareStretches, type Stretch } from './log.ts'
import {
  type BareLogRow,
  isInLog,
  type NamedRunRow,
  type OperationRow,
  type SnapshotRow,
  type SomeLogRow,
  selectRun,
  type ThreadRow,
  toBareRecord,
  toOperation,
  toRecord,
  toRun,
  toSnapshot,
  toThread,
} from './rows.ts'

/** Everything that only reads. Each function sees one state of the tables: the caller has opened a read transaction. */
export function prepareReads(db: Database) {
  const findThread = prepare(db, 'SELECT * FROM holdfast_threads WHERE owner = ? AND thread_id = ?')
  const findRun = prepare(db, `${selectRun} WHERE r.owner = ? AND r.run_id = ?`)
  const threadsAfter = prepare(
    db,
    `SELECT * FROM holdfast_threads INDEXED BY holdfast_threads_by_owner
     WHERE owner = ? AND deleted_at IS NULL AND id > ? ORDER BY id LIMIT ?`,
  )
  const snapshotAt = prepare(
    db,
    'SELECT seq, state, state_version, checksum FROM holdfast_snapshots WHERE thread = ? AND seq <= ? ORDER BY seq DESC LIMIT 1',
  )
  const unsureAfter = prepare(
    db,
    `SELECT * FROM holdfast_operations INDEXED BY holdfast_operations_unsure
       WHERE owner = ? AND status = 'unsure' AND (intended_at, key) > (?, ?) ORDER BY intended_at, key LIMIT ?`,
  )
  const findOperation = prepare(db, 'SELECT * FROM holdfast_operations WHERE owner = ? AND key = ?')
  const log = prepareReadLog(db)
  const checkpoints = prepareCheckpoints(db, log)

  const threadOf = ({ owner, threadId }: ThreadKey) => findThread.get(owner, threadId) as ThreadRow | undefined

  return {
    readRun({ owner, runId }: RunKey): Run | null {
      const row = findRun.get(owner, runId) as NamedRunRow | undefined
      return row === undefined ? null : toRun(row)
    },
    listRuns: prepareListRuns(db),
    readThread(key: ThreadKey): Thread | null {
      const row = threadOf(key)
      return row === undefined ? null : toThread(row)
    },
    listThreads({ owner, limit, cursor }: ThreadQuery): { items: Thread[]; cursor?: string } {
      const rows = threadsAfter.all(owner, readCursor(cursor), Math.max(0, limit) + 1) as ThreadRow[]
      return pageOf(rows, limit, { numberOf: ({ id }) => id, toItem: toThread })
    },
    readLog(query: LogQuery): LogRecord[] {
      const thread = threadOf(query)
      return thread === undefined ? [] : log.read(thread, query)
    },
    readLogs(queries: readonly LogQuery[]): LogStretch[] {
      return queries.map((query) => stretchOf(() => this.readLog(query)))
    },
    readSnapshot(query: ThreadKey & { readonly atSeq: number }): Snapshot | null {
      const thread = threadOf(query)
      const row = thread === undefined ? undefined : (snapshotAt.get(thread.id, query.atSeq) as SnapshotRow | undefined)
      return thread === undefined || row === undefined ? null : toSnapshot(row, thread)
    },
    listCheckpoints(query: CheckpointQuery): CheckpointRow[] {
      const thread = threadOf(query)
      return thread === undefined ? [] : checkpoints(thread, query)
    },
    readOperation({ owner, key }: { readonly owner: string; readonly key: string }): Operation | null {
      const row = findOperation.get(owner, key) as OperationRow | undefined
      return row === undefined ? null : toOperation(row)
    },
    listUnsure({ owner, limit, cursor }: UnsureQuery): { items: readonly Operation[]; cursor?: string } {
      const { intendedAt, key } = readUnsureCursor(cursor)
      const rows = unsureAfter.all(owner, intendedAt, key, Math.max(0, limit) + 1) as OperationRow[]
      return unsurePage(rows.map(toOperation), limit)
    },
  }
}

function prepareReadLog(db: Database) {
  const stretches = prepareStretches(db)
  const findRunId = prepare(db, 'SELECT run_id FROM holdfast_runs WHERE id = ?').pluck()
  const findRunIds = prepare(db, 'SELECT id, run_id FROM holdfast_runs WHERE thread = ?').raw()

  /** Names runs by their numbers: the first few one by one, then, in a long read of a long chat, all of the thread at once. */
  function namer(thread: ThreadRow): (run: number | null) => string | null {
    const names = new Map<number, string | null>()
    return (run) => {
      if (run === null) return null
      let name = names.get(run)
      if (name !== undefined) return name
      if (names.size === 16) for (const [id, runId] of findRunIds.all(thread.id) as [number, string][]) names.set(id, runId)
      name = names.get(run) ?? (findRunId.get(run) as string | undefined) ?? null
      names.set(run, name)
      return name
    }
  }

  /** Records that pass the query's filters, in pieces, so that a small limit does not read a long log. */
  function read(thread: ThreadRow, query: LogQuery): LogRecord[] {
    const limit = Math.max(0, query.limit ?? Number.POSITIVE_INFINITY)
    const nameOf = namer(thread)
    const records: LogRecord[] = []
    for (const stretch of pieces(thread, { ...query, size: pieceSize(query, limit) })) {
      if (records.length >= limit) break
      for (const record of readPiece(thread, stretch, { query, nameOf })) {
        if (records.length < limit) records.push(record)
      }
    }
    return records
  }

  function readPiece(thread: ThreadRow, stretch: { firstSeq: number; lastSeq: number }, { query, nameOf }: Piece): LogRecord[] {
    if (isBare(query)) {
      return query.payloadsOf === undefined && query.withPatches !== true
        ? readBarePiece(thread, stretches.readBare(thread, stretch), { query, nameOf })
        : readSomePiece(thread, stretches.readSome(thread, stretch, query), { query, nameOf })
    }
    const rows = query.patchesOnly === true ? stretches.readPatches(thread, stretch) : stretches.readFull(thread, stretch)
    return rows
      .map((row) => toRecord(row, thread, nameOf(row.run)))
      .filter((record) => isAskedFor(record, record.patch !== null, query))
      .map((record) => shownRecord(record, query))
  }

  /** Also what is not asked for is verified: a damaged record may only look like one of another run. */
  function readBarePiece(thread: ThreadRow, rows: readonly BareLogRow[], { query, nameOf }: Piece): LogRecord[] {
    const records: LogRecord[] = []
    for (const row of rows) {
      const record = toBareRecord(row, thread, nameOf(row.run))
      if (isAskedFor(record, row.has_patch === 1, query)) records.push(record)
    }
    return records
  }

  function readSomePiece(thread: ThreadRow, rows: readonly SomeLogRow[], { query, nameOf }: Piece): LogRecord[] {
    const records: LogRecord[] = []
    for (const row of rows) {
      const runId = nameOf(row.run)
      const hasPatch = row.has_patch === 1
      const isAsked = isAskedFor({ runId, type: row.type }, hasPatch, query)
      const isWhole = isAsked && isWanted(row, hasPatch, query)
      const record = isWhole ? toRecord(row, thread, runId) : toBareRecord(row, thread, runId)
      if (isAsked) records.push(isWhole ? shownRecord(record, query) : record)
    }
    return records
  }

  return { read, readCheckpoints: stretches.readCheckpoints, namer }
}

interface Piece {
  readonly query: LogQuery
  readonly nameOf: (run: number | null) => string | null
}

function prepareCheckpoints(db: Database, log: ReturnType<typeof prepareReadLog>) {
  const labelsFrom = prepare(db, 'SELECT seq, label FROM holdfast_labels WHERE thread = ? AND seq > ?')
  const seqOfLabel = prepare(db, 'SELECT seq FROM holdfast_labels WHERE thread = ? AND label = ?').pluck()

  return function listCheckpoints(thread: ThreadRow, query: CheckpointQuery): CheckpointRow[] {
    const { afterSeq = 0, limit = Number.POSITIVE_INFINITY } = query
    const nameOf = log.namer(thread)
    const labels = new Map(
      (labelsFrom.all(thread.id, afterSeq) as { seq: number; label: string }[]).map(({ seq, label }) => [seq, label]),
    )
    const found: CheckpointRow[] = []
    if (limit <= 0) return found
    for (const stretch of query.label === undefined ? pieces(thread, { afterSeq, size: 1_024 }) : stretchOfLabel(thread, query)) {
      for (const row of readableRows(thread, stretch)) {
        if (row.checkpoint_bytes === null) continue
        const { seq, at, runId, step } = toBareRecord(row, thread, nameOf(row.run))
        found.push({ seq, at, runId, step, label: labels.get(seq) ?? null, bytes: row.checkpoint_bytes })
        if (found.length >= limit) return found
      }
    }
    return found
  }

  /** A stretch, in parts where it has a gap: what comes before that may be all that is asked for. */
  function* readableRows(thread: ThreadRow, { firstSeq, lastSeq }: Stretch): Generator<BareLogRow> {
    try {
      yield* log.readCheckpoints(thread, { firstSeq, lastSeq })
    } catch (error) {
      if (codeOf(error) !== 'corrupt_record' || firstSeq === lastSeq) throw error
      const middle = Math.floor((firstSeq + lastSeq) / 2)
      yield* readableRows(thread, { firstSeq, lastSeq: middle })
      yield* readableRows(thread, { firstSeq: middle + 1, lastSeq })
    }
  }

  function stretchOfLabel(thread: ThreadRow, { label, afterSeq = 0 }: CheckpointQuery) {
    const seq = seqOfLabel.get(thread.id, label) as number | undefined
    return seq === undefined || seq <= afterSeq || !isInLog(thread, seq) ? [] : [{ firstSeq: seq, lastSeq: seq }]
  }
}

/** Cuts what is asked of a log into pieces, oldest first. */
function* pieces(
  thread: ThreadRow,
  { afterSeq = 0, toSeq = thread.head_seq, size }: { afterSeq?: number; toSeq?: number; size: number },
) {
  if (thread.deleted_at !== null) return
  const end = Math.min(toSeq, thread.head_seq)
  for (let firstSeq = Math.max(afterSeq, thread.base_seq) + 1; firstSeq <= end; firstSeq += size) {
    yield { firstSeq, lastSeq: Math.min(end, firstSeq + size - 1) }
  }
}

function pieceSize({ runId, types, patchesOnly }: LogQuery, limit: number): number {
  const hasFilter = runId !== undefined || types !== undefined || patchesOnly === true
  return hasFilter ? 1_024 : Math.min(limit === 0 ? 1 : limit, 1_024)
}
