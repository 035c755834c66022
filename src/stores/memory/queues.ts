import type { QueueRoom } from '../../model/claim-order.ts'
import { changeSettings, defaultSettings, isDefault, noCounts, type Queue, type QueueChange } from '../../model/queue.ts'
import { isTerminal } from '../../model/run.ts'
import type { ClaimRequest } from '../../store/store.ts'
import { type Tables, tellListeners } from './tables.ts'

export function setQueue(tables: Tables, change: QueueChange): void {
  const row = tables.queues.get(change.name)
  const settings = changeSettings(row?.settings ?? defaultSettings, change)
  if (isDefault(settings)) tables.queues.delete(change.name)
  else tables.queues.set(change.name, { settings, startedAt: change.rateLimit === undefined ? (row?.startedAt ?? []) : [] })
  tellListeners(tables, { isClaimable: true })
}

export function listQueues(tables: Tables, { name }: { readonly name?: string }, now: number): Queue[] {
  const counts = new Map<string, Record<keyof Queue['counts'], number>>()
  for (const queue of tables.queues.keys()) counts.set(queue, { ...noCounts })
  for (const { run } of tables.runs.values()) {
    if (isTerminal(run.status)) continue
    const count = counts.get(run.queue) ?? { ...noCounts }
    counts.set(run.queue, count)
    const isDelayed = run.status === 'pending' && !(run.dueAt !== null && run.dueAt <= now)
    count[isDelayed ? 'delayed' : (run.status as keyof Queue['counts'])]++
  }
  return [...counts]
    .filter(([queue]) => name === undefined || queue === name)
    .sort(([a], [b]) => Buffer.compare(Buffer.from(a), Buffer.from(b)))
    .map(([queue, counts]) => ({ name: queue, ...(tables.queues.get(queue)?.settings ?? defaultSettings), counts }))
}

/** How many runs a claim may take of a queue; undefined where nothing limits it. */
export function roomOf(tables: Tables, { queueLimits }: ClaimRequest, now: number): (queue: string) => QueueRoom | undefined {
  return (queue) => {
    const limit = queueLimits?.find((one) => one.queue === queue)?.limit ?? Number.POSITIVE_INFINITY
    const row = tables.queues.get(queue)
    if (row === undefined) return { takes: limit, places: Number.POSITIVE_INFINITY, starts: Number.POSITIVE_INFINITY }
    const { concurrency, rateLimit, isPaused } = row.settings
    const running = concurrency === null ? 0 : countRuns(tables, queue, 'running')
    return {
      takes: isPaused ? 0 : limit,
      places: concurrency === null ? Number.POSITIVE_INFINITY : concurrency - running,
      starts:
        rateLimit === null
          ? Number.POSITIVE_INFINITY
          : rateLimit.count - row.startedAt.filter((at) => at > now - rateLimit.perMs).length,
    }
  }
}

/** A run was claimed for the first time. */
export function noteStart(tables: Tables, queue: string, now: number): void {
  const row = tables.queues.get(queue)
  const rateLimit = row?.settings.rateLimit ?? null
  if (row === undefined || rateLimit === null) return
  row.startedAt = [...row.startedAt.filter((at) => at > now - rateLimit.perMs), now]
}

export function countRuns(tables: Tables, queue: string, status: 'pending' | 'running'): number {
  let count = 0
  for (const { unfinished } of tables.busyThreads)
    for (const { run } of unfinished) if (run.queue === queue && run.status === status) count++
  return count
}
