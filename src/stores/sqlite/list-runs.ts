import type { Run } from '../../model/run.ts'
import { compareAge, type RunPlace, readRunCursor, runCursor } from '../../store/run-cursor.ts'
import type { RunQuery } from '../../store/store.ts'
import { type Database, prepare, type Statement } from './connection.ts'
import { type NamedRunRow, selectRun, toRun } from './rows.ts'

/** The runs of one owner, workflow, queue and status: a stretch of the index, in order of creation. */
interface Bucket {
  readonly workflow: string
  readonly queue: string
  readonly status: Run['status']
}

/** Places between which a list looks, from the newest on. `before` is where the last page ended. */
interface Bounds {
  readonly before: RunPlace
  readonly after: number
}

/** Rows that are read of a bucket at first; then twice as many. */
const firstRows = 8

/**
 * Lists runs, newest first. Buckets that the filters name are merged, so that what is passed over costs nothing. Runs of a thread are
 * sorted, and those of a label have an index of their own.
 */
export function prepareListRuns(db: Database) {
  const findRun = prepare(db, `${selectRun} WHERE r.id = ?`)
  const buckets = prepareBuckets(db)
  const inBucket = prepare(
    db,
    `SELECT id AS number, created_at AS createdAt FROM holdfast_runs INDEXED BY holdfast_runs_listed
     WHERE owner = ? AND workflow = ? AND queue = ? AND status = ? AND (created_at, id) < (?, ?) AND created_at > ?
     ORDER BY created_at DESC, id DESC LIMIT ?`,
  )
  const statements = new Map<string, Statement>()

  /** A statement for each set of filters that is used; names and values from callers are only ever bound. */
  function statementFor(sql: string): Statement {
    const found = statements.get(sql) ?? prepare(db, sql)
    statements.set(sql, found)
    return found
  }

  /** Buckets side by side, each read a few rows at a time: next comes the newest of their first ones. */
  function* merged(owner: string, found: readonly Bucket[], { before, after }: Bounds): Generator<RunPlace> {
    const heads = found.map((bucket) => ({ bucket, rows: [] as RunPlace[], at: 0, size: firstRows, isRead: false }))
    const refill = (head: (typeof heads)[number]): void => {
      const last = head.rows.at(-1) ?? before
      const { workflow, queue, status } = head.bucket
      const rows = inBucket.all(owner, workflow, queue, status, last.createdAt, last.number, after, head.size) as RunPlace[]
      head.isRead = rows.length < head.size
      head.rows = rows
      head.at = 0
      head.size *= 2
    }
    for (const head of heads) refill(head)
    let open = heads.filter(({ rows }) => rows.length > 0)
    while (open.length > 0) {
      let first = open[0] as (typeof heads)[number]
      for (const head of open) if (compareAge(head.rows[head.at] as RunPlace, first.rows[first.at] as RunPlace) < 0) first = head
      yield first.rows[first.at] as RunPlace
      first.at += 1
      if (first.at === first.rows.length && !first.isRead) refill(first)
      if (first.at === first.rows.length) open = open.filter((head) => head !== first)
    }
  }

  function listBuckets(query: RunQuery, bounds: Bounds, limit: number): NamedRunRow[] {
    const rows: NamedRunRow[] = []
    for (const { number } of merged(query.owner, [...buckets(query)], bounds)) {
      const row = findRun.get(number) as NamedRunRow | undefined
      // A run without its thread, which only damage can bring about, is not found by its id either.
      if (row !== undefined) rows.push(row)
      if (rows.length === limit) break
    }
    return rows
  }

  /** Of the runs of a thread, or of a label, those that pass the other filters. */
  function listOf(from: 'thread' | 'label', query: RunQuery, bounds: Bounds, limit: number): NamedRunRow[] {
    const { owner, threadId, workflow, queue, statuses, label, withoutPrefix } = query
    const [created, number] = from === 'label' ? ['b.created_at', 'b.run'] : ['r.created_at', 'r.id']
    const filters: [string, ...unknown[]][] = [
      [`(${created}, ${number}) < (?, ?)`, bounds.before.createdAt, bounds.before.number],
      [`${created} > ?`, bounds.after],
    ]
    if (from === 'label') filters.push(['b.owner = ?', owner], ['b.label = ?', label])
    else {
      filters.push(['r.thread = (SELECT id FROM holdfast_threads WHERE owner = ? AND thread_id = ?)', owner, threadId])
      if (label !== undefined)
        filters.push(['r.id = (SELECT run FROM holdfast_labels l WHERE l.thread = r.thread AND l.label = ?)', label])
    }
    if (workflow !== undefined) filters.push(['r.workflow = ?', workflow])
    if (queue !== undefined) filters.push(['r.queue = ?', queue])
    if (withoutPrefix !== undefined) filters.push(['instr(r.workflow, ?) <> 1', withoutPrefix])
    if (statuses !== undefined) filters.push(['r.status IN (SELECT value FROM json_each(?))', JSON.stringify(statuses)])
    const runs = from === 'label' ? selectRun.replace('FROM ', 'FROM holdfast_labels b CROSS JOIN ').concat(' ') : selectRun
    const on = from === 'label' ? [['r.id = b.run'] as [string], ...filters] : filters
    const statement = statementFor(
      `${runs} WHERE ${on.map(([sql]) => sql).join(' AND ')} ORDER BY ${created} DESC, ${number} DESC LIMIT ?`,
    )
    return statement.all(...on.flatMap(([, ...values]) => values), limit) as NamedRunRow[]
  }

  return function listRuns(query: RunQuery): { items: Run[]; cursor?: string } {
    const limit = Math.max(0, query.limit)
    const bounds = boundsOf(query)
    if (limit === 0) return { items: [] }
    const from = query.threadId !== undefined ? 'thread' : query.label !== undefined ? 'label' : null
    // One more than is shown: it says whether there is a next page.
    const rows = from === null ? listBuckets(query, bounds, limit + 1) : listOf(from, query, bounds, limit + 1)
    const shown = rows.slice(0, limit)
    const last = shown.at(-1)
    const items = shown.map(toRun)
    if (last === undefined || rows.length === shown.length) return { items }
    return { items, cursor: runCursor({ createdAt: last.created_at, number: last.id }) }
  }
}

function boundsOf({ cursor, createdBefore, createdAfter }: RunQuery): Bounds {
  const newest = { createdAt: createdBefore ?? Number.MAX_SAFE_INTEGER, number: 0 }
  const last = readRunCursor(cursor)
  return {
    before: last === undefined || compareAge(newest, last) > 0 ? newest : last,
    after: createdAfter ?? Number.MIN_SAFE_INTEGER,
  }
}

/** The buckets in which the filters may find something, by hopping through the index: to the next status, else queue, else workflow. */
function prepareBuckets(db: Database) {
  const after = (where: string, order: string) =>
    prepare(
      db,
      `SELECT workflow, queue, status FROM holdfast_runs INDEXED BY holdfast_runs_listed WHERE owner = ? AND ${where} ORDER BY ${order} LIMIT 1`,
    )
  const nextStatus = after('workflow = ? AND queue = ? AND status > ?', 'status')
  const nextQueue = after('workflow = ? AND queue > ?', 'queue, status')
  const nextWorkflow = after('workflow > ?', 'workflow, queue, status')

  return function* bucketsOf({ owner, workflow, queue, statuses, withoutPrefix }: RunQuery): Generator<Bucket> {
    const statusAfter = (at: { workflow: string; queue: string; status: string }) =>
      nextStatus.get(owner, at.workflow, at.queue, at.status) as Bucket | undefined
    /** The first bucket of the workflow that the filters may want. */
    const firstIn = (name: string) =>
      (queue === undefined ? nextQueue.get(owner, name, '') : nextStatus.get(owner, name, queue, '')) as Bucket | undefined
    let name = workflow ?? (nextWorkflow.get(owner, '') as Bucket | undefined)?.workflow
    while (name !== undefined) {
      const isLeftOut = withoutPrefix !== undefined && name.startsWith(withoutPrefix)
      let bucket: Bucket | undefined = isLeftOut ? undefined : firstIn(name)
      while (bucket !== undefined) {
        if (statuses === undefined || statuses.includes(bucket.status)) yield bucket
        const at: Bucket = bucket
        bucket = statusAfter(at)
        if (bucket === undefined && queue === undefined)
          bucket = nextQueue.get(owner, at.workflow, at.queue) as Bucket | undefined
      }
      name = workflow === undefined ? (nextWorkflow.get(owner, name) as Bucket | undefined)?.workflow : undefined
    }
  }
}
