import { isBare } from '../../store/log-query.ts'
import type { LogQuery } from '../../store/store.ts'
import { bareRecordColumns, selectRecordColumns } from './rows.ts'

/**
 * Statements over the log. Each row has the first and last position of the range that was asked for, how many records of it come up to
 * this one where records are passed over, the run's id, and the columns of a record.
 */

/** Single records of many threads. */
export const singlesSql = `
  SELECT a.n, t.first, t.last, NULL, r.run_id, ${selectRecordColumns}
  FROM unnest($1::text[], $2::text[], $3::bigint[]) WITH ORDINALITY AS a(owner, thread, seq, n)
    CROSS JOIN LATERAL (
      SELECT t.id, greatest(a.seq - 1, t.base_seq) + 1 AS first, CASE WHEN t.deleted_at IS NULL THEN least(a.seq, t.head_seq) ELSE 0 END AS last
      FROM holdfast.threads t WHERE t.owner = a.owner AND t.thread_id = a.thread LIMIT 1) t
    LEFT JOIN LATERAL (SELECT * FROM holdfast.log l WHERE l.thread = t.id AND l.seq BETWEEN t.first AND t.last LIMIT 1) l ON true
    LEFT JOIN LATERAL (SELECT r.run_id FROM holdfast.runs r WHERE r.id = l.run LIMIT 1) r ON true`

/** Records of a tape that is read together with others at most. */
export const longTape = 200

/** Tapes of many runs. */
export const tapesSql = `
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

export type TapeQuery = LogQuery & { readonly runId: string }

/** Asks for what a run has done, with the edits of others, up to the end. */
export function isTape(query: LogQuery): query is TapeQuery {
  const { runId, withEdits, toSeq, limit, types, patchesOnly } = query
  if (runId === undefined || withEdits !== true || toSeq !== undefined || limit !== undefined) return false
  return types === undefined && patchesOnly !== true && !isBare(query)
}

export type SingleQuery = LogQuery & { readonly toSeq: number }

/** Asks for one position, and for the whole of it. */
export function isSingle(query: LogQuery): query is SingleQuery {
  const { afterSeq, toSeq, runId, types, patchesOnly } = query
  if (afterSeq === undefined || toSeq !== afterSeq + 1 || !Number.isSafeInteger(toSeq)) return false
  return runId === undefined && types === undefined && patchesOnly !== true && !isBare(query)
}

/**
 * One range of the primary key. With filters each record also tells how many of the range come up to it, and the last of
 * the range comes in any case: so a gap is found among what is passed over as well.
 */
export function logSql(query: LogQuery): string {
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
export function logsSql(query: LogQuery): string {
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
export function filtersOf({ runId, withEdits, types, patchesOnly, bare, payloadsOf, withPatches, limit }: LogQuery): string {
  return JSON.stringify([runId === undefined, withEdits, types, patchesOnly, bare, payloadsOf, withPatches, limit ?? null])
}

/**
 * Whether the server passes over records of other runs. Without their contents all of them are read and verified: one whose run is damaged
 * would be passed over, too.
 */
export function isFilteredByRun(query: LogQuery): boolean {
  return query.runId !== undefined && !(isBare(query) && query.limit === undefined)
}

/** Records of thread `t` between `t.first` and `t.last`, and their columns. `next` is the number of the first parameter for types. */
function recordsSql(query: LogQuery, { owner, run, next }: { owner: string; run: string; next: number }) {
  const { withEdits, types, patchesOnly, payloadsOf, withPatches } = query
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
  const wanted = [
    ...(payloadsOf === undefined ? [] : [`l.type = ANY ($${types === undefined ? next : next + 1}::text[])`]),
    ...(withPatches === true ? [hasPatch] : []),
  ]
  return { records, columns: isBare(query) ? bareRecordColumns(wanted.join(' OR ') || 'false') : selectRecordColumns }
}
