import { internalPrefix } from '../../model/internal.ts'
import { runStatuses } from '../../model/run.ts'
import { compareAge, type RunPlace, readRunCursor } from '../../store/run-cursor.ts'
import type { RunQuery } from '../../store/store.ts'
import { selectRunColumns } from './rows.ts'

/** Its two halves keep the prefix from being taken for the name of the schema. */
const isInternal = (workflow: string) => `starts_with(${workflow}, '${internalPrefix.slice(0, -1)}' || '.')`

/**
 * What the indexes of lists begin with, over columns of `r`, an alias with its dot or nothing. Never to be changed: a migration has them. Two
 * that share a hash do no harm, since the columns are compared as well.
 */
export const listHash = {
  status: (r: string) => hashOf([`${r}owner`, `${r}status`, `${isInternal(`${r}workflow`)}::text`], 1),
  workflow: (r: string) => hashOf([`${r}owner`, `${r}status`, `${r}workflow`], 2),
  queue: (r: string) => hashOf([`${r}owner`, `${r}status`, `${r}queue`], 3),
} as const

function hashOf(values: readonly string[], seed: number): string {
  return `hashtextextended(${values.join(" || '/' || ")}, ${seed})`
}

/**
 * A page of runs, newest first. One index lookup for each status, along the thread, or along the label.
 *
 * The planner must see that the order of the index can be used: so the limit is a literal, one of a few, and all other comparisons are
 * one condition that no index has, instead of several that would let it expect hardly a row.
 */
export function runsQuery(
  query: RunQuery,
  way: 'label' | 'others' = 'label',
): { readonly sql: string; readonly values: unknown[] } | null {
  const { owner, threadId, workflow, queue, label, withoutPrefix } = query
  const statuses = [...new Set(query.statuses ?? runStatuses)]
  const { before, after } = boundsOf(query)
  // No name has a NUL in it, and the server takes none.
  if ([threadId, workflow, queue, label].some((name) => name?.includes('\0'))) return null
  const values: unknown[] = [owner, before.createdAt, before.number, after, statuses]
  const bound = (value: string) => `$${values.push(value)}`
  const limit = `LIMIT ${rowsFor(query)}`
  const place = (created: string, id: string) => `(${created}, ${id}) < ($2::bigint, $3::bigint) AND ${created} > $4::bigint`
  const newestFirst = (created: string, id: string) => `ORDER BY ${created} DESC, ${id} DESC ${limit}`
  const others = [
    ...(workflow === undefined ? [] : [`r.workflow = ${bound(workflow)}`]),
    ...(queue === undefined ? [] : [`r.queue = ${bound(queue)}`]),
    ...(withoutPrefix === undefined || withoutPrefix.includes('\0')
      ? []
      : [`NOT starts_with(r.workflow, ${bound(withoutPrefix)})`]),
  ]
  const holds = (...conditions: readonly string[]) => `coalesce(${[...conditions, ...others].join(' AND ')}, false)`
  const isLabelled = () =>
    label === undefined
      ? []
      : [`r.id = (SELECT b.run FROM holdfast.labels b WHERE b.thread = r.thread AND b.label = ${bound(label)})`]
  const hasStatus = 'r.status = ANY ($5::text[])'
  let runs: string
  if (threadId !== undefined) {
    runs = `(SELECT * FROM holdfast.runs r WHERE r.thread = (SELECT t.id FROM holdfast.threads t WHERE t.owner = $1 AND t.thread_id = ${bound(threadId)})
        AND ${place('r.created_at', 'r.id')} AND ${holds(hasStatus, ...isLabelled())} ${newestFirst('r.created_at', 'r.id')}) r`
  } else if (label !== undefined && way === 'label') {
    // Without other filters each run of the label is one of the page.
    const most = query.statuses === undefined && others.length === 0 ? limit : `LIMIT ${labelledAtFirst(query)}`
    runs = `(SELECT r.* FROM (SELECT b.run, b.created_at FROM holdfast.labels b
          WHERE b.label = ${bound(label)} AND b.owner = $1 AND b.run IS NOT NULL AND ${place('b.created_at', 'b.run')}
          ORDER BY b.created_at DESC, b.run DESC ${most}) b
        CROSS JOIN LATERAL (SELECT * FROM holdfast.runs r WHERE r.id = b.run AND ${holds(hasStatus)} LIMIT 1) r) r`
  } else {
    const by = workflow !== undefined ? 'workflow' : queue !== undefined ? 'queue' : 'status'
    // Runs of Holdfast's own, which lists leave out, may be most of an owner's.
    const kinds = withoutPrefix === internalPrefix ? 'false' : 'false, true'
    const from = {
      workflow: 'unnest($5::text[]) s(status)',
      queue: 'unnest($5::text[]) s(status)',
      status: `unnest($5::text[]) s(status) CROSS JOIN unnest(ARRAY[${kinds}]) k(internal)`,
    }[by]
    const hash = {
      workflow: () => hashOf(['$1', 's.status', bound(workflow ?? '')], 2),
      queue: () => hashOf(['$1', 's.status', bound(queue ?? '')], 3),
      status: () => hashOf(['$1', 's.status', 'k.internal::text'], 1),
    }[by]()
    const ofKind = by === 'status' ? [`${isInternal('r.workflow')} = k.internal`] : []
    runs = `${from} CROSS JOIN LATERAL (SELECT * FROM holdfast.runs r WHERE ${listHash[by]('r.')} = ${hash} AND ${place('r.created_at', 'r.id')}
        AND ${holds('r.owner = $1', 'r.status = s.status', ...ofKind, ...isLabelled())} ${newestFirst('r.created_at', 'r.id')}) r`
  }
  const sql = `SELECT ${selectRunColumns} FROM ${runs} JOIN holdfast.threads t ON t.id = r.thread ${newestFirst('r.created_at', 'r.id')}`
  return { sql, values }
}

/** Rows that are read, one more than are shown, so that few different statements are prepared. */
const pageSizes = [2, 11, 21, 51, 101, 201, 501, 1_001]

function rowsFor({ limit }: RunQuery): number {
  return pageSizes.find((size) => size > limit) ?? Math.ceil(limit) + 1
}

/** So many runs of a label are read before the runs that pass the other filters are: one of the two may be far fewer. */
function labelledAtFirst(query: RunQuery): number {
  return Math.max(300, rowsFor(query))
}

/** Whether a label has more runs than are looked at first. */
export function moreLabelledQuery(query: RunQuery): { readonly sql: string; readonly values: unknown[] } {
  const { before, after } = boundsOf(query)
  const sql = `SELECT 1 FROM holdfast.labels b WHERE b.label = $1 AND b.owner = $2 AND b.run IS NOT NULL
    AND (b.created_at, b.run) < ($3::bigint, $4::bigint) AND b.created_at > $5::bigint ORDER BY b.created_at DESC, b.run DESC OFFSET ${labelledAtFirst(query)} LIMIT 1`
  return { sql, values: [query.label, query.owner, before.createdAt, before.number, after] }
}

interface Bounds {
  readonly before: RunPlace
  readonly after: number
}

function boundsOf({ cursor, createdBefore, createdAfter }: RunQuery): Bounds {
  const newest = { createdAt: whole(createdBefore ?? Number.MAX_SAFE_INTEGER), number: 0 }
  const last = readRunCursor(cursor)
  return {
    before: last === undefined || compareAge(newest, last) > 0 ? newest : last,
    after: whole(createdAfter ?? Number.MIN_SAFE_INTEGER),
  }
}

function whole(time: number): number {
  return Math.min(Number.MAX_SAFE_INTEGER, Math.max(Number.MIN_SAFE_INTEGER, Math.trunc(time)))
}
