import { HoldfastError } from '../../model/errors.ts'
import type { LogRecord } from '../../model/event.ts'
import type { Operation } from '../../model/operation.ts'
import type { Run } from '../../model/run.ts'
import { stretchOf } from '../../store/log-stretch.ts'
import { runCursor } from '../../store/run-cursor.ts'
import type {
  CheckpointQuery,
  CheckpointRow,
  LogQuery,
  LogStretch,
  Message,
  RunKey,
  RunQuery,
  Snapshot,
  Thread,
  ThreadKey,
  ThreadQuery,
  UnsureQuery,
} from '../../store/store.ts'
import { readUnsureCursor, unsurePage } from '../../store/unsure-page.ts'
import { bigintArray, textArray } from './columns.ts'
import type { Connections, Statement } from './connections.ts'
import { Gathering } from './gathering.ts'
import { moreLabelledQuery, runsQuery } from './list-runs.ts'
import {
  bareRecordColumns,
  type Row,
  runColumns,
  selectMessageColumns,
  selectRecordColumns,
  selectRunColumns,
  selectSnapshotColumns,
  selectThreadColumns,
  toBareRecord,
  toMessage,
  toOperation,
  toRecord,
  toRun,
  toSnapshot,
  toThread,
} from './rows.ts'

const createdAt = runColumns.indexOf('created_at')

/** Everything that only reads. Each act is one statement, so it sees one state of the tables. */
export function prepareReads(connections: Connections, prepare: (sql: string) => Statement) {
  const prepared = new Map<string, Statement>()

  /** Texts are ours and few; names and values of callers are only ever bound. */
  function read(sql: string, values: readonly unknown[]): Promise<readonly Row[]> {
    let statement = prepared.get(sql)
    if (statement === undefined) {
      statement = prepare(sql)
      prepared.set(sql, statement)
    }
    return connections.read(statement, values)
  }

  const runs = new Gathering<RunKey, Run | null>(async (keys) => {
    const rows = await read(runsSql, [textArray(keys.map(({ owner }) => owner)), textArray(keys.map(({ runId }) => runId))])
    const found = new Map(rows.map((row) => [Number(row[0]), toRun(row, 1)]))
    return keys.map((_, at) => found.get(at + 1) ?? null)
  })

  /** Single records: how a run ended, most of all. A damaged one is an error for who asked for it, not for his neighbours. */
  const singles = new Gathering<SingleQuery, () => LogRecord[]>(async (queries) => {
    const rows = await read(singlesSql, [
      textArray(queries.map(({ owner }) => owner)),
      textArray(queries.map(({ threadId }) => threadId)),
      bigintArray(queries.map(({ toSeq }) => position(toSeq))),
    ])
    const found = new Map(rows.map(([n, ...row]) => [Number(n), row]))
    return queries.map((query, at) => () => readRecords([found.get(at + 1) ?? []].filter(hasColumns), query, 1))
  })

  /** Tapes of runs that were claimed together. A long one, which would hold its neighbours up, is null: it is read by itself. */
  const tapes = new Gathering<TapeQuery, (() => LogRecord[]) | null>(async (queries) => {
    const rows = await read(tapesSql, [
      textArray(queries.map(({ owner }) => owner)),
      textArray(queries.map(({ threadId }) => threadId)),
      textArray(queries.map(({ runId }) => runId)),
      bigintArray(queries.map(({ afterSeq }) => position(afterSeq ?? 0))),
    ])
    const found = Map.groupBy(rows, ([n]) => Number(n))
    return queries.map((query, at) => {
      const own = found.get(at + 1) ?? []
      if (own.length > longTape) return null
      return () =>
        readRecords(
          own.map((row) => row.slice(1)),
          query,
          Number.POSITIVE_INFINITY,
        )
    })
  }, 50)

  return {
    async now(offset: number): Promise<number> {
      const [row] = await read('SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint + $1::bigint', [offset])
      return Number(row?.[0])
    },

    readRun: (key: RunKey): Promise<Run | null> => runs.read(key),

    async listRuns(query: RunQuery): Promise<{ items: Run[]; cursor?: string }> {
      const limit = atLeastZero(query.limit)
      const asked = runsQuery({ ...query, limit })
      if (asked === null || limit === 0) return { items: [] }
      let rows = await read(asked.sql, asked.values)
      if (query.label !== undefined && query.threadId === undefined && rows.length <= limit) {
        const more = moreLabelledQuery(query)
        const rest = (await read(more.sql, more.values)).length === 0 ? null : runsQuery({ ...query, limit }, 'others')
        if (rest !== null) rows = await read(rest.sql, rest.values)
      }
      const shown = rows.slice(0, limit)
      const last = shown.at(-1)
      const items = shown.map((row) => toRun(row))
      if (last === undefined || rows.length === shown.length) return { items }
      return { items, cursor: runCursor({ createdAt: Number(last[createdAt]), number: Number(last[0]) }) }
    },

    async readThread({ owner, threadId }: ThreadKey): Promise<Thread | null> {
      const [row] = await read(`SELECT ${selectThreadColumns} FROM holdfast.threads t WHERE t.owner = $1 AND t.thread_id = $2`, [
        owner,
        threadId,
      ])
      return row === undefined ? null : toThread(row)
    },

    async listThreads({ owner, limit: asked, cursor }: ThreadQuery): Promise<{ items: Thread[]; cursor?: string }> {
      const limit = atLeastZero(asked)
      const rows = await read(
        `SELECT t.id, ${selectThreadColumns} FROM holdfast.threads t WHERE t.owner = $1 AND t.deleted_at IS NULL AND t.id > $2 ORDER BY t.id LIMIT $3`,
        [owner, readCursor(cursor) ?? 0, limit + 1],
      )
      return page(rows, limit, { numberAt: 0, toItem: (row) => toThread(row, 1) })
    },

    async readLog(query: LogQuery): Promise<LogRecord[]> {
      const limit = query.limit === undefined ? null : atLeastZero(query.limit)
      if (limit === 0) return []
      if (isSingle(query)) return (await singles.read(query))()
      const tape = isTape(query) ? await tapes.read(query) : null
      if (tape !== null) return tape()
      const { owner, threadId, runId, types } = query
      const rows = await read(logSql(query), [
        ...[owner, threadId, position(query.afterSeq ?? 0), query.toSeq === undefined ? null : position(query.toSeq)],
        ...(limit === null ? [null] : [limit + 1]),
        ...(isFilteredByRun(query) ? [runId] : []),
        ...(types === undefined ? [] : [types]),
        ...(query.payloadsOf === undefined ? [] : [query.payloadsOf]),
      ])
      return readRecords(rows, query, limit ?? Number.POSITIVE_INFINITY)
    },

    async readLogs(queries: readonly LogQuery[]): Promise<readonly LogStretch[]> {
      // One statement for each set of filters: those of a list are all of one.
      const bySql = Map.groupBy(queries.keys(), (at) => filtersOf(queries[at] as LogQuery))
      const answers: LogStretch[] = queries.map(() => ({ records: [] }))
      await Promise.all(
        [...bySql.values()].map(async (places) => {
          const alike = places.map((at) => queries[at] as LogQuery)
          const first = alike[0] as LogQuery
          const limit = first.limit === undefined ? null : atLeastZero(first.limit)
          if (limit === 0) return
          const rows = await read(logsSql(first), [
            textArray(alike.map(({ owner }) => owner)),
            textArray(alike.map(({ threadId }) => threadId)),
            bigintArray(alike.map(({ afterSeq }) => position(afterSeq ?? 0))),
            bigintArray(alike.map(({ toSeq }) => (toSeq === undefined ? null : position(toSeq)))),
            limit === null ? null : limit + 1,
            textArray(alike.map(({ runId }) => runId ?? null)),
            ...(first.types === undefined ? [] : [first.types]),
            ...(first.payloadsOf === undefined ? [] : [first.payloadsOf]),
          ])
          const found = Map.groupBy(rows, ([n]) => Number(n))
          for (const [index, query] of alike.entries()) {
            const own = (found.get(index + 1) ?? []).map((row) => row.slice(1))
            answers[places[index] as number] = stretchOf(() => readRecords(own, query, limit ?? Number.POSITIVE_INFINITY))
          }
        }),
      )
      return answers
    },

    async readSnapshot({ owner, threadId, atSeq }: ThreadKey & { readonly atSeq: number }): Promise<Snapshot | null> {
      const [row] = await read(
        `SELECT ${selectSnapshotColumns} FROM holdfast.threads t
           CROSS JOIN LATERAL (SELECT * FROM holdfast.snapshots s WHERE s.thread = t.id AND s.seq <= $3 ORDER BY s.seq DESC LIMIT 1) s
         WHERE t.owner = $1 AND t.thread_id = $2`,
        [owner, threadId, position(atSeq)],
      )
      return row === undefined ? null : toSnapshot(row, { owner, threadId })
    },

    async listCheckpoints({ owner, threadId, afterSeq, limit, label }: CheckpointQuery): Promise<CheckpointRow[]> {
      const rows = await read(
        `SELECT r.run_id, b.label, ${bareRecordColumns('false')}
         FROM holdfast.threads t
           JOIN holdfast.log l ON l.thread = t.id AND l.seq > $3 AND l.checkpoint_bytes IS NOT NULL
           ${label === undefined ? 'LEFT' : ''} JOIN holdfast.labels b ON b.thread = t.id AND b.seq = l.seq
           LEFT JOIN holdfast.runs r ON r.id = l.run
         WHERE t.owner = $1 AND t.thread_id = $2 ${label === undefined ? '' : 'AND b.label = $5'}
         ORDER BY l.seq LIMIT $4`,
        [
          owner,
          threadId,
          position(afterSeq ?? 0),
          limit === undefined ? null : atLeastZero(limit),
          ...(label === undefined ? [] : [label]),
        ],
      )
      return rows.map((row) => {
        const [runId = null, found = null] = row
        const { seq, at, step } = toBareRecord(row, { owner, threadId }, runId, 2).record
        return { seq, at, runId, step, label: found, bytes: Number(row[5]) }
      })
    },

    async readInbox({ owner, runId }: RunKey): Promise<Message[]> {
      const rows = await read(
        `SELECT ${selectMessageColumns} FROM holdfast.runs r JOIN holdfast.inbox m ON m.run = r.id WHERE r.owner = $1 AND r.run_id = $2 ORDER BY m.id`,
        [owner, runId],
      )
      return rows.map((row) => toMessage(row, { owner, runId }))
    },

    async readOperation({ owner, key }: { readonly owner: string; readonly key: string }): Promise<Operation | null> {
      const [row] = await read('SELECT to_jsonb(o) FROM holdfast.operations o WHERE o.owner = $1 AND o.key = $2', [owner, key])
      return row?.[0] == null ? null : toOperation(JSON.parse(row[0]) as Parameters<typeof toOperation>[0])
    },

    async listUnsure({ owner, limit, cursor }: UnsureQuery): Promise<{ items: readonly Operation[]; cursor?: string }> {
      const { intendedAt, key } = readUnsureCursor(cursor)
      const rows = await read(
        `SELECT to_jsonb(o) FROM holdfast.operations o WHERE o.owner = $1 AND o.status = 'unsure' AND (o.intended_at, o.key) > ($2, $3)
           ORDER BY o.intended_at, o.key LIMIT $4`,
        [owner, intendedAt, key, atLeastZero(limit) + 1],
      )
      const operations = rows.map(([json]) => toOperation(JSON.parse(json as string) as Parameters<typeof toOperation>[0]))
      return unsurePage(operations, atLeastZero(limit))
    },
  }
}

/** LIMIT keeps these look-ups from becoming joins, which on small tables are planned as full scans. */
const runsSql = `
  SELECT a.n, ${selectRunColumns} FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS a(owner, run, n)
    CROSS JOIN LATERAL (SELECT * FROM holdfast.runs r WHERE r.owner = a.owner AND r.run_id = a.run LIMIT 1) r
    CROSS JOIN LATERAL (SELECT * FROM holdfast.threads t WHERE t.id = r.thread LIMIT 1) t`

const singlesSql = `
  SELECT a.n, t.first, t.last, NULL, r.run_id, ${selectRecordColumns}
  FROM unnest($1::text[], $2::text[], $3::bigint[]) WITH ORDINALITY AS a(owner, thread, seq, n)
    CROSS JOIN LATERAL (
      SELECT t.id, greatest(a.seq - 1, t.base_seq) + 1 AS first, CASE WHEN t.deleted_at IS NULL THEN least(a.seq, t.head_seq) ELSE 0 END AS last
      FROM holdfast.threads t WHERE t.owner = a.owner AND t.thread_id = a.thread LIMIT 1) t
    LEFT JOIN LATERAL (SELECT * FROM holdfast.log l WHERE l.thread = t.id AND l.seq BETWEEN t.first AND t.last LIMIT 1) l ON true
    LEFT JOIN LATERAL (SELECT r.run_id FROM holdfast.runs r WHERE r.id = l.run LIMIT 1) r ON true`

/** Records of a tape that is read together with others at most. */
const longTape = 200

const tapesSql = `
  SELECT a.n, t.first, t.last, l.n, r.run_id, ${selectRecordColumns}
  FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[]) WITH ORDINALITY AS a(owner, thread, run, after, n)
    CROSS JOIN LATERAL (
      SELECT t.id, greatest(a.after, t.base_seq) + 1 AS first, CASE WHEN t.deleted_at IS NULL THEN t.head_seq ELSE 0 END AS last,
        (SELECT r.id FROM holdfast.runs r WHERE r.owner = a.owner AND r.run_id = a.run) AS run
      FROM holdfast.threads t WHERE t.owner = a.owner AND t.thread_id = a.thread LIMIT 1) t
    LEFT JOIN LATERAL (
      SELECT * FROM (SELECT *, row_number() OVER (ORDER BY l.seq) AS n FROM holdfast.log l WHERE l.thread = t.id AND l.seq BETWEEN t.first AND t.last) l
      WHERE l.run = t.run OR l.patch IS NOT NULL OR l.patch_bytes IS NOT NULL OR l.seq = t.last ORDER BY l.seq LIMIT ${longTape + 1}) l ON true
    LEFT JOIN LATERAL (SELECT r.run_id FROM holdfast.runs r WHERE r.id = l.run LIMIT 1) r ON true
  ORDER BY a.n, l.seq`

type TapeQuery = LogQuery & { readonly runId: string }

/** Asks for what a run has done, with the edits of others, up to the end. */
function isTape(query: LogQuery): query is TapeQuery {
  const { runId, withEdits, toSeq, limit, types, patchesOnly } = query
  if (runId === undefined || withEdits !== true || toSeq !== undefined || limit !== undefined) return false
  return types === undefined && patchesOnly !== true && !isBare(query)
}

type SingleQuery = LogQuery & { readonly toSeq: number }

/** Asks for one position, and for the whole of it. */
function isSingle(query: LogQuery): query is SingleQuery {
  const { afterSeq, toSeq, runId, types, patchesOnly } = query
  if (afterSeq === undefined || toSeq !== afterSeq + 1 || !Number.isSafeInteger(toSeq)) return false
  return runId === undefined && types === undefined && patchesOnly !== true && !isBare(query)
}

/** Asks for contents of some records at most. */
function isBare({ bare, payloadsOf }: LogQuery): boolean {
  return bare === true || payloadsOf !== undefined
}

function hasColumns(row: Row): boolean {
  return row.length > 0
}

/**
 * One range of the primary key. With filters each record also tells how many of the range come up to it, and the last of
 * the range comes in any case: so a gap is found among what is passed over as well.
 */
function logSql(query: LogQuery): string {
  const { records, columns } = recordsSql(query, { owner: '$1', run: '$6', next: isFilteredByRun(query) ? 7 : 6 })
  return `
    SELECT t.first, t.last, l.n, r.run_id, ${columns}
    FROM (SELECT t.id, greatest($3, t.base_seq) + 1 AS first, CASE WHEN t.deleted_at IS NULL THEN least($4, t.head_seq) ELSE 0 END AS last
          FROM holdfast.threads t WHERE t.owner = $1 AND t.thread_id = $2) t
      LEFT JOIN LATERAL (${records} ORDER BY l.seq LIMIT $5) l ON true
      LEFT JOIN holdfast.runs r ON r.id = l.run
    ORDER BY l.seq`
}

/** The same for many threads, given as arrays. */
function logsSql(query: LogQuery): string {
  const { records, columns } = recordsSql(query, { owner: 'a.owner', run: 'a.run', next: 7 })
  return `
    SELECT a.n, t.first, t.last, l.n, r.run_id, ${columns}
    FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $6::text[]) WITH ORDINALITY AS a(owner, thread, after, up_to, run, n)
      CROSS JOIN LATERAL (
        SELECT t.id, greatest(a.after, t.base_seq) + 1 AS first, CASE WHEN t.deleted_at IS NULL THEN least(a.up_to, t.head_seq) ELSE 0 END AS last
        FROM holdfast.threads t WHERE t.owner = a.owner AND t.thread_id = a.thread LIMIT 1) t
      LEFT JOIN LATERAL (${records} ORDER BY l.seq LIMIT $5) l ON true
      LEFT JOIN LATERAL (SELECT r.run_id FROM holdfast.runs r WHERE r.id = l.run LIMIT 1) r ON true
    ORDER BY a.n, l.seq`
}

/** What tells statements of `logsSql` apart, and the values that all queries of one statement share. */
function filtersOf({ runId, withEdits, types, patchesOnly, bare, payloadsOf, limit }: LogQuery): string {
  return JSON.stringify([runId === undefined, withEdits, types, patchesOnly, bare, payloadsOf, limit ?? null])
}

/**
 * Whether the server passes over records of other runs. Without their contents all of them are read and verified: one whose run is damaged
 * would be passed over, too.
 */
function isFilteredByRun(query: LogQuery): boolean {
  return query.runId !== undefined && !(isBare(query) && query.limit === undefined)
}

/** Records of thread `t` between `t.first` and `t.last`, and their columns. `next` is the number of the first parameter for types. */
function recordsSql(query: LogQuery, { owner, run, next }: { owner: string; run: string; next: number }) {
  const { withEdits, types, patchesOnly, payloadsOf } = query
  const hasPatch = '(l.patch IS NOT NULL OR l.patch_bytes IS NOT NULL)'
  const ofRun = `l.run = (SELECT r.id FROM holdfast.runs r WHERE r.owner = ${owner} AND r.run_id = ${run})`
  const filters = [
    ...(!isFilteredByRun(query) ? [] : [withEdits === true ? `(${ofRun} OR ${hasPatch})` : ofRun]),
    ...(types === undefined ? [] : [`l.type = ANY ($${next}::text[])`]),
    ...(patchesOnly === true ? [hasPatch] : []),
  ]
  const range = 'FROM holdfast.log l WHERE l.thread = t.id AND l.seq BETWEEN t.first AND t.last'
  const records =
    filters.length === 0
      ? `SELECT *, NULL AS n ${range}`
      : `SELECT * FROM (SELECT *, row_number() OVER (ORDER BY l.seq) AS n ${range}) l WHERE (${filters.join(' AND ')}) OR l.seq = t.last`
  const wanted = payloadsOf === undefined ? 'false' : `l.type = ANY ($${types === undefined ? next : next + 1}::text[])`
  return { records, columns: isBare(query) ? bareRecordColumns(wanted) : selectRecordColumns }
}

const recordAt = 4

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
    if (records.length < limit && isAskedFor(record, hasPatch, query)) records.push(showRecord(record, query))
  }
  if (seen !== last && rows.length <= limit) throw gapError(threadId, first, last)
  return records
}

function isAskedFor(record: LogRecord, hasPatch: boolean, { runId, withEdits, types, patchesOnly }: LogQuery): boolean {
  if (runId !== undefined && record.runId !== runId && !(withEdits === true && hasPatch)) return false
  if (types !== undefined && !types.includes(record.type)) return false
  return patchesOnly !== true || hasPatch
}

function showRecord(record: LogRecord, query: LogQuery): LogRecord {
  const { runId, patchesOnly } = query
  if (isBare(query)) return record
  const isForeign = runId !== undefined && record.runId !== runId
  const isPatchAlone = (isForeign || patchesOnly === true) && record.type !== 'state_migrated'
  return isPatchAlone ? { ...record, payload: null } : record
}

function gapError(threadId: string, firstSeq: number, lastSeq: number): HoldfastError {
  return new HoldfastError(
    'corrupt_record',
    `The log of thread ${threadId} is damaged: a record between ${firstSeq} and ${lastSeq} is missing. Restore it from a backup, or delete the thread.`,
    { details: { threadId, firstSeq, lastSeq } },
  )
}

/** Labels a checkpoint, under the lock of its thread: a deletion comes before or after. */
export const tagFunction = `
CREATE OR REPLACE FUNCTION holdfast.fn_tag(p_writer bigint, p_batch bigint, p_owner text, p_thread text, p_seq bigint, p_label text) RETURNS text
LANGUAGE plpgsql VOLATILE SET lock_timeout = '10s' AS $$
DECLARE
  v_thread bigint;
BEGIN
  SELECT t.id INTO v_thread FROM holdfast.threads t WHERE t.owner = p_owner AND t.thread_id = p_thread FOR NO KEY UPDATE;
  IF NOT EXISTS (SELECT FROM holdfast.log l WHERE l.thread = v_thread AND l.seq = p_seq AND l.checkpoint_bytes IS NOT NULL) THEN RETURN 'false'; END IF;
  DELETE FROM holdfast.labels b WHERE b.thread = v_thread AND (b.label = p_label OR b.seq = p_seq);
  INSERT INTO holdfast.labels (thread, label, seq, run, created_at, owner)
    SELECT v_thread, p_label, p_seq, r.id, r.created_at, r.owner FROM holdfast.log l LEFT JOIN holdfast.runs r ON r.id = l.run
    WHERE l.thread = v_thread AND l.seq = p_seq;
  PERFORM holdfast.fn_record(p_writer, p_batch, 'true');
  RETURN 'true';
END $$;
`
export const tagSql = 'SELECT holdfast.fn_tag($1, $2, $3, $4, $5, $6)'

/** One row more than the limit was read: it says whether there is a next page. */
export function page<Item>(
  rows: readonly Row[],
  limit: number,
  { numberAt, toItem }: { numberAt: number; toItem: (row: Row) => Item },
) {
  const shown = rows.slice(0, limit)
  const last = shown.at(-1)
  return {
    items: shown.map(toItem),
    ...(last !== undefined && rows.length > shown.length ? { cursor: `n${last[numberAt]}` } : {}),
  }
}

export function readCursor(cursor: string | undefined): number | undefined {
  if (cursor === undefined) return undefined
  if (/^n[0-9]{1,15}$/.test(cursor)) return Number(cursor.slice(1))
  throw new HoldfastError(
    'invalid_input',
    `${JSON.stringify(cursor)} is not a cursor of this store. Pass the one that came with the last page.`,
  )
}

/** A position as the server takes it, whatever number was given. */
export function position(seq: number): number {
  const whole = Number.isNaN(seq) ? 0 : Math.trunc(seq)
  return Math.min(Number.MAX_SAFE_INTEGER - 1, Math.max(-1, whole))
}

export function atLeastZero(limit: number): number {
  return Math.min(2_000_000_000, Math.max(0, Math.ceil(limit)))
}
