import type { LogRecord } from '../../model/event.ts'
import type { Run } from '../../model/run.ts'
import { isAskedFor, shownRecord } from '../../store/log-query.ts'
import { pageOf, readCursor } from '../../store/page.ts'
import { compareAge, type RunPlace, readRunCursor, runCursor } from '../../store/run-cursor.ts'
import type {
  CheckpointQuery,
  CheckpointRow,
  LogQuery,
  RunQuery,
  ScanQuery,
  Snapshot,
  Thread,
  ThreadKey,
  ThreadQuery,
} from '../../store/store.ts'
import { copyPayload, findThread, type RunRow, type Tables, type ThreadRow } from './tables.ts'

export function listRuns(tables: Tables, query: RunQuery): { items: Run[]; cursor?: string } {
  const matching = [...tables.runs.values()]
    .filter(({ run }) => run.owner === query.owner)
    .filter(({ run }) => query.threadId === undefined || run.threadId === query.threadId)
    .filter(({ run }) => query.workflow === undefined || run.workflow === query.workflow)
    .filter(({ run }) => query.queue === undefined || run.queue === query.queue)
    .filter(({ run }) => query.withoutPrefix === undefined || !run.workflow.startsWith(query.withoutPrefix))
    .filter(({ run }) => query.statuses === undefined || query.statuses.includes(run.status))
    .filter(({ run }) => run.createdAt > (query.createdAfter ?? Number.NEGATIVE_INFINITY))
    .filter(({ run }) => run.createdAt < (query.createdBefore ?? Number.POSITIVE_INFINITY))
    .filter(({ run }) => query.label === undefined || hasLabel(tables, run, query.label))
  const last = readRunCursor(query.cursor)
  const rest = matching
    .filter((row) => last === undefined || compareAge(placeOf(row), last) > 0)
    .toSorted((a, b) => compareAge(placeOf(a), placeOf(b)))
  const shown = rest.slice(0, Math.max(0, query.limit))
  const end = shown.at(-1)
  const items = shown.map(({ run }) => ({ ...run }))
  return end !== undefined && shown.length < rest.length ? { items, cursor: runCursor(placeOf(end)) } : { items }
}

function placeOf({ run, number }: RunRow): RunPlace {
  return { createdAt: run.createdAt, number }
}

function hasLabel(tables: Tables, { owner, threadId, id }: Run, label: string): boolean {
  const thread = findThread(tables, owner, threadId)
  const seq = thread?.checkpoints.find((checkpoint) => checkpoint.label === label)?.seq
  return thread !== undefined && seq !== undefined && thread.log[seq - thread.thread.baseSeq - 1]?.runId === id
}

export function listThreads(tables: Tables, query: ThreadQuery): { items: Thread[]; cursor?: string } {
  const matching = [...tables.threads.values()].filter(({ thread }) => thread.owner === query.owner && thread.deletedAt === null)
  return pageOfThreads(matching, query)
}

export function scanThreads(tables: Tables, query: ScanQuery): { items: Thread[]; cursor?: string } {
  return pageOfThreads([...tables.threads.values()], query)
}

export function readLog(tables: Tables, query: LogQuery): LogRecord[] {
  const row = findThread(tables, query.owner, query.threadId)
  if (row === undefined) return []
  const start = Math.max(0, (query.afterSeq ?? 0) - row.thread.baseSeq)
  const end = Math.max(0, (query.toSeq ?? row.thread.headSeq) - row.thread.baseSeq)
  return row.log
    .slice(start, end)
    .filter((record) => isAskedFor(record, record.patch !== null, query))
    .slice(0, Math.max(0, query.limit ?? Number.POSITIVE_INFINITY))
    .map((record) => copyRecord(shownRecord(record, query)))
}

export function readSnapshot(tables: Tables, query: ThreadKey & { readonly atSeq: number }): Snapshot | null {
  const snapshot = findThread(tables, query.owner, query.threadId)?.snapshots.findLast(({ seq }) => seq <= query.atSeq)
  return snapshot === undefined ? null : { ...snapshot, state: copyPayload(snapshot.state) }
}

export function listCheckpoints(tables: Tables, query: CheckpointQuery): CheckpointRow[] {
  const row = findThread(tables, query.owner, query.threadId)
  if (row === undefined) return []
  return row.checkpoints
    .filter(({ seq, label }) => seq > (query.afterSeq ?? 0) && (query.label === undefined || label === query.label))
    .slice(0, Math.max(0, query.limit ?? Number.POSITIVE_INFINITY))
    .map(({ seq, label, bytes }) => {
      const record = row.log[seq - row.thread.baseSeq - 1] as LogRecord
      return { seq, at: record.at, runId: record.runId, step: record.step, label, bytes }
    })
}

function copyRecord(record: LogRecord): LogRecord {
  return { ...record, payload: copyPayload(record.payload), patch: copyPayload(record.patch) }
}

function pageOfThreads(rows: readonly ThreadRow[], { limit, cursor }: ScanQuery): { items: Thread[]; cursor?: string } {
  const last = readCursor(cursor)
  const rest = rows.filter(({ number }) => number > last)
  return pageOf(rest, limit, { numberOf: ({ number }) => number, toItem: ({ thread }) => ({ ...thread }) })
}
