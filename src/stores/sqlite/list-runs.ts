import { isTerminal, type Run, type RunStatus } from '../../model/run.ts'
import { compareAge, type RunPlace, readRunCursor, runCursor } from '../../store/run-cursor.ts'
import type { RunQuery } from '../../store/store.ts'
import { type Database, prepare, type Statement } from './connection.ts'
import { withQueuesInUse } from './queues.ts'
import { type NamedRunRow, selectRun, toRun } from './rows.ts'

/** Runs that a list may show, newest first: the next ones before a place. */
type Stretch = (before: RunPlace, limit: number) => RunPlace[]

/** Places between which a list looks, from the newest on. `before` is where the last page ended. */
interface Bounds {
  readonly before: RunPlace
  readonly after: number
}

/** Rows that are read of a stretch at first; then twice as many. */
const firstRows = 8

/** Up to this many open runs are sorted; more of them are soon found among all runs. */
export const fewOpenRuns = 5_000

/**
 * Lists runs, newest first. Indexes keep the runs of a workflow and queue in order of creation; stretches of them that the filters name
 * are merged. Statuses are looked for there, but those that are rare among many runs: failed and cancelled runs have an index of
 * their own, and open ones are sorted where they are few. So are the runs of a thread; those of a label have an index, too.
 */
export function prepareListRuns(db: Database) {
  const findRun = prepare(db, `${selectRun} WHERE r.id = ?`)
  const listed = prepareStretches(db, 'holdfast_runs_listed', 'owner = ?')
  const failed = prepareStretches(db, 'holdfast_runs_failed', "status IN ('failed', 'cancelled') AND owner = ? AND status = ?")
  const open = prepareOpen(db)
  const listOf = prepareListOf(db)

  function stretchesFor(query: RunQuery, after: number): Stretch[] {
    const { owner, statuses } = query
    if (statuses === undefined || statuses.includes('completed')) return [...listed([owner], query, after)]
    const { statuses: _, ...others } = query
    const ended = [...new Set(statuses.filter(isTerminal))]
    const unfinished = statuses.filter((status) => !isTerminal(status))
    const stretches = ended.flatMap((status) => [...failed([owner, status], others, after)])
    if (unfinished.length > 0) {
      const asked = { ...query, statuses: unfinished }
      if (open.areFew(unfinished)) stretches.push(open.stretch(asked, after))
      else stretches.push(...listed([owner], asked, after))
    }
    return stretches
  }

  function listAll(query: RunQuery, { before, after }: Bounds, limit: number): NamedRunRow[] {
    const rows: NamedRunRow[] = []
    for (const { number } of merged(stretchesFor(query, after), before)) {
      const row = findRun.get(number) as NamedRunRow | undefined
      // A run without its thread, which only damage can bring about, is not found by its id either.
      if (row !== undefined) rows.push(row)
      if (rows.length === limit) break
    }
    return rows
  }

  return function listRuns(query: RunQuery): { items: Run[]; cursor?: string } {
    const limit = Math.max(0, query.limit)
    const bounds = boundsOf(query)
    if (limit === 0) return { items: [] }
    const from = query.threadId !== undefined ? 'thread' : query.label !== undefined ? 'label' : null
    // One more than is shown: it says whether there is a next page.
    const rows = from === null ? listAll(query, bounds, limit + 1) : listOf(from, query, bounds, limit + 1)
    const shown = rows.slice(0, limit)
    const last = shown.at(-1)
    const items = shown.map(toRun)
    if (last === undefined || rows.length === shown.length) return { items }
    return { items, cursor: runCursor({ createdAt: last.created_at, number: last.id }) }
  }
}

/** Lists the runs of a thread or of a label. */
function prepareListOf(db: Database) {
  const statements = new Map<string, Statement>()

  /** A statement for each set of filters that is used; names and values from callers are only ever bound. */
  function statementFor(sql: string): Statement {
    const found = statements.get(sql) ?? prepare(db, sql)
    statements.set(sql, found)
    return found
  }

  /** Of the runs of a thread, or of a label, those that pass the other filters. */
  return function listOf(from: 'thread' | 'label', query: RunQuery, bounds: Bounds, limit: number): NamedRunRow[] {
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
}

function boundsOf({ cursor, createdBefore, createdAfter }: RunQuery): Bounds {
  const newest = { createdAt: createdBefore ?? Number.MAX_SAFE_INTEGER, number: 0 }
  const last = readRunCursor(cursor)
  return {
    before: last === undefined || compareAge(newest, last) > 0 ? newest : last,
    after: createdAfter ?? Number.MIN_SAFE_INTEGER,
  }
}

/** Stretches side by side, each read a few rows at a time: next comes the newest of their first ones. */
function* merged(stretches: readonly Stretch[], before: RunPlace): Generator<RunPlace> {
  const heads = stretches.map((read) => ({ read, rows: [] as RunPlace[], at: 0, size: firstRows, isRead: false }))
  const refill = (head: (typeof heads)[number]): void => {
    const rows = head.read(head.rows.at(-1) ?? before, head.size)
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

/**
 * Stretches of an index whose columns are those of `where`, then workflow, queue and time of creation. It is hopped through: to the
 * next queue, else to the next workflow.
 */
function prepareStretches(db: Database, index: string, where: string) {
  const from = `FROM holdfast_runs INDEXED BY ${index} WHERE ${where}`
  const nextQueue = prepare(db, `SELECT queue ${from} AND workflow = ? AND queue > ? ORDER BY queue LIMIT 1`).pluck()
  const nextWorkflow = prepare(db, `SELECT workflow ${from} AND workflow > ? ORDER BY workflow LIMIT 1`).pluck()
  const inBucket = (filter: string) =>
    prepare(
      db,
      `SELECT id AS number, created_at AS createdAt ${from} AND workflow = ? AND queue = ? AND (created_at, id) < (?, ?) AND created_at > ?
       ${filter} ORDER BY created_at DESC, id DESC LIMIT ?`,
    )
  const all = inBucket('')
  const ofStatuses = inBucket('AND status IN (SELECT value FROM json_each(?))')

  return function* stretches(values: readonly string[], query: Omit<RunQuery, 'owner'>, after: number): Generator<Stretch> {
    const { workflow, queue, statuses, withoutPrefix } = query
    const workflowAfter = (name: string) => nextWorkflow.get(...values, name) as string | undefined
    const queueAfter = (ofWorkflow: string, name: string) => nextQueue.get(...values, ofWorkflow, name) as string | undefined
    const stretch =
      (ofWorkflow: string, inQueue: string): Stretch =>
      (before, limit) => {
        const bucket = [...values, ofWorkflow, inQueue, before.createdAt, before.number, after]
        const rows =
          statuses === undefined ? all.all(...bucket, limit) : ofStatuses.all(...bucket, JSON.stringify(statuses), limit)
        return rows as RunPlace[]
      }
    let name = workflow ?? workflowAfter('')
    while (name !== undefined) {
      const isLeftOut = withoutPrefix !== undefined && name.startsWith(withoutPrefix)
      if (!isLeftOut && queue !== undefined) yield stretch(name, queue)
      else if (!isLeftOut)
        for (let next = queueAfter(name, ''); next !== undefined; next = queueAfter(name, next)) yield stretch(name, next)
      name = workflow === undefined ? workflowAfter(name) : undefined
    }
  }
}

/** Open runs, by way of the index that has them by queue and status. */
function prepareOpen(db: Database) {
  const from = `FROM queues_in_use CROSS JOIN json_each(:statuses) asked CROSS JOIN holdfast_runs r INDEXED BY holdfast_runs_in_queue
    WHERE r.queue = queues_in_use.name AND r.status = asked.value AND r.finished_at IS NULL`
  const countUpTo = prepare(db, `${withQueuesInUse} SELECT count(*) FROM (SELECT 1 ${from} LIMIT :limit)`).pluck()
  const find = prepare(
    db,
    `${withQueuesInUse} SELECT r.id AS number, r.created_at AS createdAt ${from} AND r.owner = :owner
       AND (:workflow IS NULL OR r.workflow = :workflow) AND (:queue IS NULL OR r.queue = :queue)
       AND (:prefix IS NULL OR instr(r.workflow, :prefix) <> 1)
       AND (r.created_at, r.id) < (:createdAt, :number) AND r.created_at > :after
     ORDER BY r.created_at DESC, r.id DESC LIMIT :limit`,
  )
  return {
    areFew: (statuses: readonly RunStatus[]): boolean =>
      (countUpTo.get({ statuses: JSON.stringify(statuses), limit: fewOpenRuns + 1 }) as number) <= fewOpenRuns,
    stretch({ owner, workflow, queue, statuses, withoutPrefix }: RunQuery, after: number): Stretch {
      const asked = JSON.stringify([...new Set(statuses)])
      const names = { owner, workflow: workflow ?? null, queue: queue ?? null, prefix: withoutPrefix ?? null }
      return ({ createdAt, number }, limit) =>
        find.all({ ...names, statuses: asked, after, createdAt, number, limit }) as RunPlace[]
    },
  }
}
