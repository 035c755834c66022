import { type ChunkRecord, chunksChecksum, type NewChunks, verifyChunks, verifyGapless } from '../../model/stream.ts'
import type { ChunkQuery } from '../../store/store.ts'
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

  return {
    write,
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
