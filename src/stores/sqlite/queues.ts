import type { QueueRoom } from '../../model/claim-order.ts'
import {
  changeSettings,
  countLimit,
  defaultSettings,
  isDefault,
  type Queue,
  type QueueChange,
  type QueueCounts,
  type QueueSettings,
} from '../../model/queue.ts'
import type { ClaimRequest, Hint } from '../../store/store.ts'
import { type Database, prepare } from './connection.ts'

interface QueueRow {
  readonly queue: string
  readonly concurrency: number | null
  readonly rate_count: number | null
  readonly rate_per_ms: number | null
  readonly max_queued: number | null
  readonly is_paused: number
}

/** Begins a statement: queues with unfinished runs, found by one seek each. */
export const withQueuesInUse = `
  WITH RECURSIVE queues_in_use (name) AS (
    SELECT min(queue) FROM holdfast_runs INDEXED BY holdfast_runs_in_queue WHERE finished_at IS NULL
    UNION ALL
    SELECT (SELECT min(queue) FROM holdfast_runs INDEXED BY holdfast_runs_in_queue WHERE finished_at IS NULL AND queue > name) FROM queues_in_use
    WHERE name IS NOT NULL
  )`

/** Changes settings, inside an open write transaction. */
export function prepareSetQueue(db: Database) {
  const find = prepare(db, 'SELECT * FROM holdfast_queues WHERE queue = ?')
  const save = prepare(
    db,
    `INSERT OR REPLACE INTO holdfast_queues (queue, concurrency, rate_count, rate_per_ms, max_queued, is_paused)
     VALUES (?, ?, ?, ?, ?, ?)`,
  )
  const remove = prepare(db, 'DELETE FROM holdfast_queues WHERE queue = ?')
  const forgetStarts = prepare(db, 'DELETE FROM holdfast_queue_starts WHERE queue = ?')

  return function setQueue(change: QueueChange, hints: Hint[]): void {
    const { name } = change
    const row = find.get(name) as QueueRow | undefined
    const settings = changeSettings(row === undefined ? defaultSettings : toSettings(row), change)
    const { concurrency, rateLimit, maxQueued, isPaused } = settings
    if (isDefault(settings)) remove.run(name)
    else save.run(name, concurrency, rateLimit?.count ?? null, rateLimit?.perMs ?? null, maxQueued, isPaused ? 1 : 0)
    if (change.rateLimit !== undefined) forgetStarts.run(name)
    hints.push({ isClaimable: true })
  }
}

export function prepareListQueues(db: Database) {
  const all = prepare(db, 'SELECT * FROM holdfast_queues')
  const nextQueue = prepare(
    db,
    `SELECT queue FROM holdfast_runs INDEXED BY holdfast_runs_in_queue
     WHERE finished_at IS NULL AND queue > ? ORDER BY queue LIMIT 1`,
  ).pluck()
  const counted = (what: string) =>
    `(SELECT count(*) FROM (SELECT 1 FROM holdfast_runs INDEXED BY holdfast_runs_in_queue
      WHERE finished_at IS NULL AND queue = given.queue AND ${what} LIMIT ${countLimit}))`
  const countsOf = prepare(
    db,
    `SELECT ${counted("status = 'pending' AND due_at <= given.now")} AS pending,
       min(${countLimit}, ${counted("status = 'pending' AND due_at > given.now")} + ${counted("status = 'pending' AND due_at IS NULL")}) AS delayed,
       ${(['running', 'waiting', 'paused'] as const).map((status) => `${counted(`status = '${status}'`)} AS ${status}`).join(', ')}
     FROM (SELECT ? AS queue, ? AS now) given`,
  )

  return function listQueues({ name }: { readonly name?: string }, now: number): Queue[] {
    const rows = new Map((all.all() as QueueRow[]).map((row) => [row.queue, row]))
    const names = new Set(name === undefined ? rows.keys() : [name])
    if (name === undefined)
      for (let queue = nextQueue.get(''); queue !== undefined; queue = nextQueue.get(queue)) names.add(queue as string)
    return [...names].sort(bytewise).flatMap((queue) => {
      const row = rows.get(queue)
      const counts = countsOf.get(queue, now) as QueueCounts
      if (row === undefined && Object.values(counts).every((count) => count === 0)) return []
      return [{ name: queue, ...(row === undefined ? defaultSettings : toSettings(row)), counts }]
    })
  }
}

/** What limits claims, as it is now. */
export function prepareRooms(db: Database) {
  const all = prepare(db, 'SELECT * FROM holdfast_queues')
  const countRunning = prepareCount(db, 'running')
  const countStarts = prepare(db, 'SELECT coalesce(sum(count), 0) FROM holdfast_queue_starts WHERE queue = ? AND at > ?').pluck()

  return function readRooms({ queueLimits }: ClaimRequest, now: number) {
    const rows = new Map((all.all() as QueueRow[]).map((row) => [row.queue, row]))
    const limits = new Map((queueLimits ?? []).map(({ queue, limit }) => [queue, limit]))
    const isPaused = (queue: string) => rows.get(queue)?.is_paused === 1
    const hasRate = (queue: string) => (rows.get(queue)?.rate_count ?? null) !== null
    const roomOf = (queue: string): QueueRoom | undefined => {
      const row = rows.get(queue)
      const takes = isPaused(queue) ? 0 : (limits.get(queue) ?? Number.POSITIVE_INFINITY)
      if (row === undefined) return { takes, places: Number.POSITIVE_INFINITY, starts: Number.POSITIVE_INFINITY }
      const { concurrency, rate_count: count, rate_per_ms: perMs } = row
      return {
        takes,
        places: concurrency === null ? Number.POSITIVE_INFINITY : concurrency - countRunning(queue),
        starts: count === null || perMs === null ? Number.POSITIVE_INFINITY : count - Number(countStarts.get(queue, now - perMs)),
      }
    }
    const isLimited = (queue: string) => hasRate(queue) || (rows.get(queue)?.concurrency ?? null) !== null
    return { isPaused, hasRate, isLimited, roomOf, perMsOf: (queue: string) => rows.get(queue)?.rate_per_ms ?? 0 }
  }
}

export type Rooms = ReturnType<ReturnType<typeof prepareRooms>>

/** Keeps count of first claims, for rate limits. */
export function prepareNoteStarts(db: Database) {
  const forget = prepare(db, 'DELETE FROM holdfast_queue_starts WHERE queue = ? AND at <= ?')
  const note = prepare(
    db,
    'INSERT INTO holdfast_queue_starts (queue, at, count) VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET count = count + excluded.count',
  )
  return function noteStarts(queues: readonly string[], rooms: Rooms, now: number): void {
    const counts = new Map<string, number>()
    for (const queue of queues) if (rooms.hasRate(queue)) counts.set(queue, (counts.get(queue) ?? 0) + 1)
    for (const [queue, count] of counts) {
      forget.run(queue, now - rooms.perMsOf(queue))
      note.run(queue, now, count)
    }
  }
}

/** For starts: how many more runs a queue takes. `startTransaction` before the first question of each transaction. */
export function prepareQueueSpace(db: Database) {
  const find = prepare(db, 'SELECT max_queued FROM holdfast_queues WHERE queue = ? AND max_queued IS NOT NULL').pluck()
  const countPending = prepareCount(db, 'pending')
  /** Queues that take any number, as far as this transaction has asked. */
  const endless = new Set<string>()
  return {
    /** Undefined where it takes any number. */
    spaceIn(queue: string): number | undefined {
      if (endless.has(queue)) return undefined
      const maxQueued = find.get(queue) as number | undefined
      if (maxQueued !== undefined) return maxQueued - countPending(queue)
      endless.add(queue)
      return undefined
    },
    startTransaction: () => endless.clear(),
  }
}

export type QueueSpace = ReturnType<typeof prepareQueueSpace>

function prepareCount(db: Database, status: 'pending' | 'running') {
  const count = prepare(
    db,
    `SELECT count(*) FROM holdfast_runs INDEXED BY holdfast_runs_in_queue WHERE finished_at IS NULL AND queue = ? AND status = '${status}'`,
  ).pluck()
  return (queue: string) => Number(count.get(queue))
}

function toSettings({ concurrency, rate_count, rate_per_ms, max_queued, is_paused }: QueueRow): QueueSettings {
  const rateLimit = rate_count === null || rate_per_ms === null ? null : { count: rate_count, perMs: rate_per_ms }
  return { concurrency, rateLimit, maxQueued: max_queued, isPaused: is_paused === 1 }
}

/** As SQLite compares text. */
export function bytewise(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b))
}
