import { HoldfastError } from '../../model/errors.ts'
import type { LogRecord } from '../../model/event.ts'
import type { Run } from '../../model/run.ts'
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
import { copyPayload, findThread, type RunRow, type Tables } from './tables.ts'

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
  const { rows, cursor } = page(matching, query, (number, last) => number > last)
  return { items: rows.map(({ thread }) => ({ ...thread })), ...cursor }
}

export function scanThreads(tables: Tables, query: ScanQuery): { items: Thread[]; cursor?: string } {
  const { rows, cursor } = page([...tables.threads.values()], query, (number, last) => number > last)
  return { items: rows.map(({ thread }) => ({ ...thread })), ...cursor }
}

export function readLog(tables: Tables, query: LogQuery): LogRecord[] {
  const row = findThread(tables, query.owner, query.threadId)
  if (row === undefined) return []
  const start = Math.max(0, (query.afterSeq ?? 0) - row.thread.baseSeq)
  const end = Math.max(0, (query.toSeq ?? row.thread.headSeq) - row.thread.baseSeq)
  return row.log
    .slice(start, end)
    .filter((record) => isAskedFor(record, query))
    .slice(0, Math.max(0, query.limit ?? Number.POSITIVE_INFINITY))
    .map((record) => showRecord(record, query))
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

function isAskedFor(record: LogRecord, { runId, withEdits, types, patchesOnly }: LogQuery): boolean {
  if (runId !== undefined && record.runId !== runId && !(withEdits === true && record.patch !== null)) return false
  if (types !== undefined && !types.includes(record.type)) return false
  return patchesOnly !== true || record.patch !== null
}

function showRecord(record: LogRecord, { runId, patchesOnly, bare, payloadsOf }: LogQuery): LogRecord {
  const isWholeRecord = (runId === undefined || record.runId === runId) && patchesOnly !== true
  const isBare = bare === true || payloadsOf !== undefined
  const hasPayload = isBare ? payloadsOf?.includes(record.type) === true : isWholeRecord || record.type === 'state_migrated'
  return {
    ...record,
    payload: hasPayload ? copyPayload(record.payload) : null,
    patch: isBare ? null : copyPayload(record.patch),
  }
}

interface Page<Row> {
  readonly rows: readonly Row[]
  readonly cursor: { cursor?: string }
}

/** The cursor is the number of the last row shown: rows that come or go meanwhile move nothing. */
function page<Row extends { readonly number: number }>(
  rows: readonly Row[],
  query: { readonly limit: number; readonly cursor?: string },
  isAfter: (number: number, last: number) => boolean,
): Page<Row> {
  const { cursor } = query
  if (cursor !== undefined && !/^n[0-9]{1,15}$/.test(cursor)) {
    throw new HoldfastError(
      'invalid_input',
      `${JSON.stringify(cursor)} is not a cursor of this store. Pass the one that came with the last page.`,
    )
  }
  const last = cursor === undefined ? undefined : Number(cursor.slice(1))
  const rest = last === undefined ? rows : rows.filter(({ number }) => isAfter(number, last))
  const shown = rest.slice(0, Math.max(0, query.limit))
  const end = shown.at(-1)
  return { rows: shown, cursor: end !== undefined && shown.length < rest.length ? { cursor: `n${end.number}` } : {} }
}
