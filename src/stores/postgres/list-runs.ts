import { internalPrefix } from '../../model/internal.ts'
import { runStatuses } from '../../model/run.ts'
import { compareAge, type RunPlace, readRunCursor } from '../../store/run-cursor.ts'
import type { RunQuery } from '../../store/store.ts'
import { selectRunColumns } from './rows.ts'

const isInternal = (workflow: string) => `starts_with(${workflow}, '${internalPrefix}')`

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
 * A page of runs, newest first. One look into an index for each status, along the thread, or along the label. Columns that are compared
 * besides are written as no index has them.
 */
export function runsQuery(query: RunQuery, limit: number): { readonly sql: string; readonly values: unknown[] } | null {
  const { owner, threadId, workflow, queue, label, withoutPrefix } = query
  const statuses = [...new Set(query.statuses ?? runStatuses)]
  const { before, after } = boundsOf(query)
  // No name has a NUL in it, and the server takes none.
  if ([threadId, workflow, queue, label].some((name) => name?.includes('\0'))) return null
  const values: unknown[] = [owner, before.createdAt, before.number, after, limit, statuses]
  const bound = (value: string) => `$${values.push(value)}`
  const equals = (column: string, value: string | undefined) =>
    value === undefined ? '' : `AND ${column} || '' = ${bound(value)}`
  const isLeftOut =
    withoutPrefix === undefined || withoutPrefix.includes('\0') ? '' : `AND NOT starts_with(r.workflow, ${bound(withoutPrefix)})`
  const place = (created: string, id: string) => `(${created}, ${id}) < ($2::bigint, $3::bigint) AND ${created} > $4::bigint`
  const withStatus = `AND r.status || '' = ANY ($6::text[])`
  let runs: string
  if (threadId !== undefined) {
    const isLabelled =
      label === undefined
        ? ''
        : `AND r.id = (SELECT b.run FROM holdfast.labels b WHERE b.thread = r.thread AND b.label = ${bound(label)})`
    runs = `(SELECT * FROM holdfast.runs r WHERE r.thread = (SELECT t.id FROM holdfast.threads t WHERE t.owner = $1 AND t.thread_id = ${bound(threadId)})
        AND ${place('r.created_at', 'r.id')} ${withStatus} ${equals('r.workflow', workflow)} ${equals('r.queue', queue)} ${isLeftOut} ${isLabelled}
        ORDER BY r.created_at DESC, r.id DESC LIMIT $5) r`
  } else if (label !== undefined) {
    runs = `(SELECT r.* FROM holdfast.labels b CROSS JOIN LATERAL (SELECT * FROM holdfast.runs r WHERE r.id = b.run
        ${withStatus} ${equals('r.workflow', workflow)} ${equals('r.queue', queue)} ${isLeftOut} LIMIT 1) r
        WHERE b.label = ${bound(label)} AND b.owner = $1 AND b.run IS NOT NULL AND ${place('b.created_at', 'b.run')}
        ORDER BY b.created_at DESC, b.run DESC LIMIT $5) r`
  } else {
    const by = workflow !== undefined ? 'workflow' : queue !== undefined ? 'queue' : 'status'
    // Runs of Holdfast's own, which lists leave out, may be most of an owner's.
    const kinds = withoutPrefix === internalPrefix ? 'false' : 'false, true'
    const { from, hash } = {
      workflow: { from: 'unnest($6::text[]) s(status)', hash: () => hashOf(['$1', 's.status', bound(workflow ?? '')], 2) },
      queue: { from: 'unnest($6::text[]) s(status)', hash: () => hashOf(['$1', 's.status', bound(queue ?? '')], 3) },
      status: {
        from: `unnest($6::text[]) s(status) CROSS JOIN unnest(ARRAY[${kinds}]) k(internal)`,
        hash: () => hashOf(['$1', 's.status', 'k.internal::text'], 1),
      },
    }[by]
    const isInternalToo = by === 'status' ? `AND ${isInternal('r.workflow')} = k.internal` : ''
    runs = `${from} CROSS JOIN LATERAL (SELECT * FROM holdfast.runs r WHERE ${listHash[by]('r.')} = ${hash()} AND ${place('r.created_at', 'r.id')}
        AND r.owner || '' = $1 AND r.status || '' = s.status ${equals('r.workflow', workflow)} ${equals('r.queue', queue)} ${isLeftOut} ${isInternalToo}
        ORDER BY r.created_at DESC, r.id DESC LIMIT $5) r`
  }
  const sql = `SELECT ${selectRunColumns} FROM ${runs} JOIN holdfast.threads t ON t.id = r.thread ORDER BY r.created_at DESC, r.id DESC LIMIT $5`
  return { sql, values }
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
