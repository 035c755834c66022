import type { HoldfastError } from '../../model/errors.ts'
import type { EventType, LogRecord } from '../../model/event.ts'
import { isAskedFor, isBare, isWanted, shownRecord } from '../../store/log-query.ts'
import { stretchOf } from '../../store/log-stretch.ts'
import type { LogQuery, LogStretch } from '../../store/store.ts'
import type { Connection } from './connection.ts'
import { pairOf } from './keys.ts'
import type { Reply } from './link.ts'
import { toRecord } from './log-entry.ts'
import type { ReadBatcher } from './read-batcher.ts'
import { readLogsScript } from './scripts/read-log.ts'

/** About how much of a log one call reads: meanwhile the server serves no other client. */
export const pieceBytes = 4 * 1024 * 1024

export async function readLog(connection: Connection, query: LogQuery): Promise<LogRecord[]> {
  const [stretch] = await readLogs(connection, [query])
  if (stretch !== undefined && 'damage' in stretch) throw stretch.damage
  return (stretch?.records ?? []) as LogRecord[]
}

/** A query under way: what was read, and where it continues. */
interface Reading {
  readonly query: LogQuery
  readonly limit: number
  /** Records to ask for in one call. */
  readonly size: number
  readonly records: LogRecord[]
  afterSeq: number
  end: number
  /** Of the thread, once it was read. */
  incarnation?: number
  damage?: HoldfastError
  isOver: boolean
}

/**
 * Reads stretches of logs, long ones in pieces so that they do not block the server. The first piece of each fixes where its log ends,
 * so that no half of a later change is seen. If the thread is deleted meanwhile, the stretch ends there.
 */
export async function readLogs(connection: Connection, queries: readonly LogQuery[]): Promise<readonly LogStretch[]> {
  const readings = queries.map(beginReading)
  for (let open = readings; ; ) {
    open = open.filter(({ isOver }) => !isOver)
    if (open.length === 0) break
    const args = open.flatMap(({ query, afterSeq, end, size }) => [
      pairOf(query.owner, query.threadId),
      String(afterSeq),
      Number.isFinite(end) ? String(end) : '',
      String(size),
      wholeOf(query),
    ])
    const replies = (await connection.repeat(readLogsScript, String(pieceBytes), ...args)) as readonly Reply[]
    for (const [index, reply] of replies.entries()) continueReading(open[index] as Reading, reply)
  }
  return readings.map(({ records, damage }) => (damage === undefined ? { records } : { damage }))
}

function beginReading(query: LogQuery): Reading {
  const limit = Math.max(0, query.limit ?? Number.POSITIVE_INFINITY)
  const hasFilter = query.runId !== undefined || query.types !== undefined || query.patchesOnly === true
  return {
    ...{ query, limit, size: Number.isFinite(limit) ? (hasFilter ? 1_024 : limit) : 1e15, records: [] },
    ...{ afterSeq: query.afterSeq ?? 0, end: query.toSeq ?? Number.POSITIVE_INFINITY, isOver: limit === 0 },
  }
}

function continueReading(reading: Reading, reply: Reply): void {
  const { query, records, limit } = reading
  const [incarnation, head, first, entries] = reply as unknown as readonly [number, number, number, readonly Buffer[]]
  if (reading.incarnation !== undefined && incarnation !== reading.incarnation) {
    reading.isOver = true
    return
  }
  reading.incarnation = incarnation
  reading.end = Math.min(reading.end, head)
  const isWhole = isBare(query) ? (type: EventType, hasPatch: boolean) => isWanted({ type }, hasPatch, query) : undefined
  const found = stretchOf(() => {
    for (const [index, entry] of entries.entries()) {
      const one = toRecord(entry, first + index, query, isWhole)
      if (records.length < limit && isAskedFor(one.record, one.hasPatch, query)) records.push(shownRecord(one.record, query))
    }
    return records
  })
  if ('damage' in found) reading.damage = found.damage
  reading.afterSeq = first + entries.length - 1
  reading.isOver = 'damage' in found || records.length >= limit || entries.length === 0 || reading.afterSeq >= reading.end
}

/** Which records are sent whole, as the script takes it. */
function wholeOf(query: LogQuery): string {
  if (!isBare(query)) return ''
  const { payloadsOf = [], withPatches } = query
  return ['', ...payloadsOf, ...(withPatches === true ? ['+'] : []), ''].join('\n')
}

/** One record, as `run.result()` reads how its run ended. */
export async function readRecord(entries: ReadBatcher, query: LogQuery & { readonly toSeq: number }): Promise<LogRecord[]> {
  const { owner, threadId, toSeq } = query
  const entry = (await entries.read(pairOf(owner, threadId), String(toSeq))) as Buffer
  if (entry.length === 0) return []
  const found = toRecord(entry, toSeq, { owner, threadId })
  return isAskedFor(found.record, found.hasPatch, query) ? [shownRecord(found.record, query)] : []
}

/** Whether this asks for one whole record. */
export function isForOne(query: LogQuery): query is LogQuery & { readonly toSeq: number } {
  const { toSeq, afterSeq = 0, limit } = query
  return toSeq !== undefined && toSeq === afterSeq + 1 && !isBare(query) && limit !== 0
}
