import { HoldfastError } from '../../model/errors.ts'
import type { LogRecord } from '../../model/event.ts'
import { isAskedFor, isBare, shownRecord } from '../../store/log-query.ts'
import { stretchOf } from '../../store/log-stretch.ts'
import { ReadBatcher } from '../../store/read-batcher.ts'
import type { LogQuery, LogStretch } from '../../store/store.ts'
import { bigintArray, textArray } from './columns.ts'
import { atLeastZero, position } from './integers.ts'
import {
  filtersOf,
  isFilteredByRun,
  isSingle,
  isTape,
  logSql,
  logsSql,
  longTape,
  type SingleQuery,
  singlesSql,
  type TapeQuery,
  tapesSql,
} from './log-sql.ts'
import { type Row, toBareRecord, toRecord } from './rows.ts'
import type { StatementReader } from './statement-reader.ts'

/** Reads the log: log-sql.ts. */
export class LogReader {
  readonly #reader: StatementReader
  readonly #singles = new ReadBatcher<SingleQuery, () => LogRecord[]>((queries) => this.#readSingles(queries))
  readonly #tapes = new ReadBatcher<TapeQuery, (() => LogRecord[]) | null>((queries) => this.#readTapes(queries), 50)

  constructor(reader: StatementReader) {
    this.#reader = reader
  }

  async readLog(query: LogQuery): Promise<LogRecord[]> {
    const limit = query.limit === undefined ? null : atLeastZero(query.limit)
    if (limit === 0) return []
    if (isSingle(query)) return (await this.#singles.read(query))()
    const tape = isTape(query) ? await this.#tapes.read(query) : null
    if (tape !== null) return tape()
    const { owner, threadId, runId, types } = query
    const rows = await this.#reader.read(logSql(query), [
      ...[owner, threadId, position(query.afterSeq ?? 0), query.toSeq === undefined ? null : position(query.toSeq)],
      ...(limit === null ? [null] : [limit + 1]),
      ...(isFilteredByRun(query) ? [runId] : []),
      ...(types === undefined ? [] : [types]),
      ...(query.payloadsOf === undefined ? [] : [query.payloadsOf]),
    ])
    return readRecords(rows, query, limit ?? Number.POSITIVE_INFINITY)
  }

  /** One statement for each set of filters: those of a list are all of one. */
  async readLogs(queries: readonly LogQuery[]): Promise<readonly LogStretch[]> {
    const alike = Map.groupBy(queries.keys(), (at) => filtersOf(queries[at] as LogQuery))
    const answers: LogStretch[] = queries.map(() => ({ records: [] }))
    await Promise.all(
      [...alike.values()].map(async (places) => {
        const stretches = await this.#readAlike(places.map((at) => queries[at] as LogQuery))
        for (const [index, at] of places.entries()) answers[at] = stretches[index] as LogStretch
      }),
    )
    return answers
  }

  async #readAlike(queries: readonly LogQuery[]): Promise<readonly LogStretch[]> {
    const first = queries[0] as LogQuery
    const limit = first.limit === undefined ? null : atLeastZero(first.limit)
    if (limit === 0) return queries.map(() => ({ records: [] }))
    const rows = await this.#reader.read(logsSql(first), [
      textArray(queries.map(({ owner }) => owner)),
      textArray(queries.map(({ threadId }) => threadId)),
      bigintArray(queries.map(({ afterSeq }) => position(afterSeq ?? 0))),
      bigintArray(queries.map(({ toSeq }) => (toSeq === undefined ? null : position(toSeq)))),
      limit === null ? null : limit + 1,
      textArray(queries.map(({ runId }) => runId ?? null)),
      ...(first.types === undefined ? [] : [first.types]),
      ...(first.payloadsOf === undefined ? [] : [first.payloadsOf]),
    ])
    const found = Map.groupBy(rows, ([n]) => Number(n))
    return queries.map((query, at) => {
      const own = (found.get(at + 1) ?? []).map((row) => row.slice(1))
      return stretchOf(() => readRecords(own, query, limit ?? Number.POSITIVE_INFINITY))
    })
  }

  /** Single records: how a run ended, most of all. A damaged one is an error for its caller only. */
  async #readSingles(queries: readonly SingleQuery[]): Promise<(() => LogRecord[])[]> {
    const rows = await this.#reader.read(singlesSql, [
      textArray(queries.map(({ owner }) => owner)),
      textArray(queries.map(({ threadId }) => threadId)),
      bigintArray(queries.map(({ toSeq }) => position(toSeq))),
    ])
    const found = new Map(rows.map(([n, ...row]) => [Number(n), row]))
    return queries.map((query, at) => {
      const row = found.get(at + 1)
      return () => readRecords(row === undefined ? [] : [row], query, 1)
    })
  }

  /** Tapes of runs that were claimed together. A long one, which would hold the others up, is null: it is read by itself. */
  async #readTapes(queries: readonly TapeQuery[]): Promise<((() => LogRecord[]) | null)[]> {
    const rows = await this.#reader.read(tapesSql, [
      textArray(queries.map(({ owner }) => owner)),
      textArray(queries.map(({ threadId }) => threadId)),
      textArray(queries.map(({ runId }) => runId)),
      bigintArray(queries.map(({ afterSeq }) => position(afterSeq ?? 0))),
    ])
    const found = Map.groupBy(rows, ([n]) => Number(n))
    return queries.map((query, at) => {
      const own = (found.get(at + 1) ?? []).map((row) => row.slice(1))
      return own.length > longTape ? null : () => readRecords(own, query, Number.POSITIVE_INFINITY)
    })
  }
}

const recordAt = 4

/** Rows of the statements above as records, verified: the range has no gap, and no record is damaged. */
function readRecords(rows: readonly Row[], query: LogQuery, limit: number): LogRecord[] {
  const records: LogRecord[] = []
  const [first, last] = [Number(rows[0]?.[0]), Number(rows[0]?.[1])]
  if (rows.length === 0 || first > last) return records
  const { owner, threadId } = query
  const hasFilter = isFilteredByRun(query) || query.types !== undefined || query.patchesOnly === true
  let seen = first - 1
  for (const row of rows) {
    const seq = Number(row[recordAt])
    const count = hasFilter ? Number(row[2]) : seen - first + 2
    if (row[recordAt] === null || seq !== first + count - 1) throw gapError(threadId, first, last)
    seen = seq
    const runId = row[3] ?? null
    const bare = isBare(query) ? toBareRecord(row, { owner, threadId }, runId, recordAt) : null
    const record = bare?.record ?? toRecord(row, { owner, threadId }, runId, recordAt)
    const hasPatch = bare?.hasPatch ?? record.patch !== null
    if (records.length < limit && isAskedFor(record, hasPatch, query)) records.push(shownRecord(record, query))
  }
  if (seen !== last && rows.length <= limit) throw gapError(threadId, first, last)
  return records
}

function gapError(threadId: string, firstSeq: number, lastSeq: number): HoldfastError {
  return new HoldfastError(
    'corrupt_record',
    `The log of thread ${threadId} is damaged: a record between ${firstSeq} and ${lastSeq} is missing. Restore it from a backup, or delete the thread.`,
    { details: { threadId, firstSeq, lastSeq } },
  )
}
