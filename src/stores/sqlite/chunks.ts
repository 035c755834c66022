import {
  type ChunkRecord,
  chunksChecksum,
  droppedChunks,
  type NewChunks,
  verifyChunks,
  verifyGapless,
} from '../../model/stream.ts'
import type { ChunkQuery, KeptStream, StreamLength, StreamQuery, ThreadKey } from '../../store/store.ts'
import { type Database, prepare } from './connection.ts'
import { toPayload } from './rows.ts'

/** Writes chunks inside an open write transaction. */
export function prepareChunks(db: Database) {
  const next = prepare(
    db,
    'SELECT first + size FROM holdfast_chunks WHERE run = ? AND stream = ? ORDER BY first DESC LIMIT 1',
  ).pluck()
  const insert = prepare(
    db,
    `INSERT INTO holdfast_chunks (run, stream, first, size, tape, step, count, attempt, payload, checksum)
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
  )

  function write(run: RunNumber, record: ChunkRecord): void {
    const { stream, offset, size, tape, step, count, attempt, payload } = record
    const checksum = chunksChecksum({ owner: run.owner, runId: run.runId }, record)
    insert.run(run.id, stream, offset, size, tape, step, count, attempt, payload, checksum)
  }

  const findEnded = prepare(
    db,
    `SELECT r.id, r.owner, r.run_id AS runId FROM holdfast_runs r JOIN holdfast_threads t ON t.id = r.thread
     WHERE r.owner = ? AND r.run_id = ? AND t.thread_id = ? AND r.finished_at IS NOT NULL`,
  )
  const isKept = prepare(db, 'SELECT EXISTS (SELECT 1 FROM holdfast_chunks WHERE run = ? AND stream = ? AND tape > 0)').pluck()
  const remove = prepare(db, 'DELETE FROM holdfast_chunks WHERE run = ? AND stream = ?')

  return {
    write,
    /** False where the run has not ended, or the stream is not as it was listed. */
    drop({ owner, threadId, runId, stream, length }: StreamLength & ThreadKey): boolean {
      const run = findEnded.get(owner, runId, threadId) as RunNumber | undefined
      if (run === undefined || isKept.get(run.id, stream) !== 1 || next.get(run.id, stream) !== length) return false
      remove.run(run.id, stream)
      write(run, droppedChunks(stream, length))
      return true
    },
    append(run: RunNumber, chunks: readonly NewChunks[]): void {
      for (const one of chunks) write(run, { ...one, offset: (next.get(run.id, one.stream) as number | undefined) ?? 0 })
    },
  }
}

export interface RunNumber {
  readonly id: number
  readonly owner: string
  readonly runId: string
}

export function prepareReadChunks(db: Database) {
  const columns = 'c.stream, c.first, c.size, c.tape, c.step, c.count, c.attempt, c.payload, c.checksum'
  const findRun = prepare(db, 'SELECT id FROM holdfast_runs WHERE owner = ? AND run_id = ?').pluck()
  // The record that holds an offset is the last that begins at or before it.
  const findFirst = prepare(db, 'SELECT max(first) FROM holdfast_chunks WHERE run = ? AND stream = ? AND first <= ?').pluck()
  const from = `SELECT ${columns} FROM holdfast_chunks c WHERE c.run = ? AND c.stream = ? AND c.first >= ?`
  const all = prepare(db, `${from} ORDER BY c.first LIMIT ?`)
  const aborts = prepare(db, `${from} AND c.payload IS NULL ORDER BY c.first LIMIT ?`)
  const lengths = prepare(
    db,
    'SELECT stream, max(first + size) AS length FROM holdfast_chunks WHERE run = ? GROUP BY stream ORDER BY stream',
  )

  const kept = prepare(
    db,
    `SELECT r.run_id AS runId, c.stream, max(c.first + c.size) AS length, r.workflow, r.status, r.finished_at AS finishedAt
     FROM holdfast_threads t CROSS JOIN holdfast_runs r ON r.thread = t.id CROSS JOIN holdfast_chunks c ON c.run = r.id
     WHERE t.owner = ? AND t.thread_id = ? AND (? IS NULL OR r.run_id IN (SELECT value FROM json_each(?))) AND r.finished_at < ?
     GROUP BY r.id, c.stream HAVING max(c.tape) > 0 ORDER BY r.id, c.stream LIMIT ?`,
  )

  return {
    readChunks(query: ChunkQuery): readonly ChunkRecord[] {
      const { owner, runId, stream, limit, abortsOnly } = query
      const run = findRun.get(owner, runId) as number | undefined
      if (run === undefined) return []
      if (abortsOnly === true) return read(aborts.all(run, stream, query.from, Math.max(0, limit)), query)
      const first = (findFirst.get(run, stream, query.from) as number | null) ?? 0
      const records = read(all.all(run, stream, first, Math.max(0, limit)), query)
      return verifyGapless(
        query,
        records.filter(({ offset, size }) => offset + size > query.from),
        query.from,
      )
    },
    listStreams({ owner, threadId, runIds, endedBefore, limit }: StreamQuery): KeptStream[] {
      const ids = runIds === undefined ? null : JSON.stringify(runIds)
      return kept.all(owner, threadId, ids, ids, endedBefore ?? Number.MAX_SAFE_INTEGER, Math.max(0, limit)) as KeptStream[]
    },
    streamsOf: (run: number) => lengths.all(run) as { stream: string; length: number }[],
  }
}

interface ChunkRow {
  readonly stream: string
  readonly first: number
  readonly size: number
  readonly tape: number
  readonly step: string | null
  readonly count: number
  readonly attempt: number
  readonly payload: string | Uint8Array | null
  readonly checksum: number
}

function read(rows: unknown[], query: ChunkQuery): ChunkRecord[] {
  return (rows as ChunkRow[]).map((row) => toChunks(row, query))
}

function toChunks(row: ChunkRow, { owner, runId }: ChunkQuery): ChunkRecord {
  const { stream, first: offset, size, tape, step, count, attempt } = row
  const record = { stream, offset, size, tape, step, count, attempt, payload: toPayload(row.payload) }
  return verifyChunks({ owner, runId }, record, row.checksum)
}
