import { HoldfastError } from '../../model/errors.ts'
import type { LogRecord } from '../../model/event.ts'
import type { Operation } from '../../model/operation.ts'
import type { Run } from '../../model/run.ts'
import type {
  CheckpointQuery,
  CheckpointRow,
  LogQuery,
  RunKey,
  RunQuery,
  ScanQuery,
  Snapshot,
  Thread,
  ThreadKey,
  ThreadQuery,
  UnsureQuery,
} from '../../store/store.ts'
import { compareUnsure, readUnsureCursor, unsurePage } from '../../store/unsure-page.ts'
import type { Connection, Reply } from './connection.ts'
import type { GatheredReads } from './gathered-reads.ts'
import { pairOf, splitPair } from './keys.ts'
import { Packer } from './pack.ts'
import { readRow, type StoredRecord, toOperation, toRecord, toRun, toSnapshot, toThread } from './rows.ts'
import {
  listRunsScript,
  listThreadsScript,
  listUnsureScript,
  readLabelScript,
  readLogScript,
  readOperationScript,
  readSnapshotScript,
  readThreadScript,
  tagScript,
} from './scripts/reads.ts'

/** About how much of a log one call of the server brings: it answers nobody else meanwhile. */
const pieceBytes = 4 * 1024 * 1024

export async function readRun(runRows: GatheredReads, { owner, runId }: RunKey): Promise<Run | null> {
  const pair = pairOf(owner, runId)
  const row = readRow(await runRows.read(pair))
  return row === null ? null : toRun(pair, row).run
}

export async function readThread(connection: Connection, { owner, threadId }: ThreadKey): Promise<Thread | null> {
  const pair = pairOf(owner, threadId)
  const [reply, logLength] = (await connection.repeat(readThreadScript, pair)) as readonly [Reply, number]
  const row = readRow(reply)
  return row === null ? null : toThread(pair, row, logLength).thread
}

export async function readOperation(
  connection: Connection,
  { owner, key }: { readonly owner: string; readonly key: string },
): Promise<Operation | null> {
  return toOperation({ owner, key }, await connection.repeat(readOperationScript, pairOf(owner, key)))
}

/** They are few, so those of other owners are passed over. */
const unsurePieceSize = 200

export async function listUnsure(
  connection: Connection,
  { owner, limit, cursor }: UnsureQuery,
): Promise<{ items: readonly Operation[]; cursor?: string }> {
  const last = readUnsureCursor(cursor)
  const found: Operation[] = []
  for (let skipped = 0; found.length <= limit; skipped += unsurePieceSize) {
    const asked = [String(last.intendedAt), String(skipped), String(unsurePieceSize)] as const
    const reply = (await connection.repeat(listUnsureScript, ...asked)) as readonly Reply[]
    for (let i = 0; i < reply.length; i += 2) {
      const place = splitPair(String(reply[i]))
      const operation = place.owner === owner ? toOperation({ owner, key: place.id }, reply[i + 1] as Reply) : null
      if (operation !== null && compareUnsure(operation, last) > 0) found.push(operation)
    }
    if (reply.length < 2 * unsurePieceSize) break
  }
  return unsurePage(found, limit)
}

export async function readSnapshot(
  connection: Connection,
  { owner, threadId, atSeq }: ThreadKey & { readonly atSeq: number },
): Promise<Snapshot | null> {
  const reply = (await connection.repeat(readSnapshotScript, pairOf(owner, threadId), String(atSeq))) as Buffer | null
  return reply === null ? null : toSnapshot(reply, { owner, threadId })
}

export async function readLog(connection: Connection, query: LogQuery): Promise<LogRecord[]> {
  const limit = Math.max(0, query.limit ?? Number.POSITIVE_INFINITY)
  const records: LogRecord[] = []
  if (limit === 0) return records
  const hasFilter = query.runId !== undefined || query.types !== undefined || query.patchesOnly === true
  for await (const { stored } of pieces(connection, { ...query, isBare: query.bare === true, size: hasFilter ? 1_024 : limit })) {
    for (const one of stored) {
      if (records.length < limit && isAskedFor(one, query)) records.push(showRecord(one.record, query))
    }
    if (records.length >= limit) break
  }
  return records
}

/** One record, as `run.result()` reads how its run ended. */
export async function readRecord(entries: GatheredReads, query: LogQuery & { readonly toSeq: number }): Promise<LogRecord[]> {
  const { owner, threadId, toSeq } = query
  const entry = (await entries.read(pairOf(owner, threadId), String(toSeq))) as Buffer
  if (entry.length === 0) return []
  const found = toRecord(entry, toSeq, { owner, threadId })
  return isAskedFor(found, query) ? [showRecord(found.record, query)] : []
}

/** Whether this asks for one whole record. */
export function isForOne(query: LogQuery): query is LogQuery & { readonly toSeq: number } {
  return query.toSeq !== undefined && query.toSeq === (query.afterSeq ?? 0) + 1 && query.bare !== true && query.limit !== 0
}

export async function listCheckpoints(connection: Connection, query: CheckpointQuery): Promise<CheckpointRow[]> {
  const limit = Math.max(0, query.limit ?? Number.POSITIVE_INFINITY)
  if (query.label !== undefined) return limit === 0 ? [] : readLabel(connection, query, query.label)
  const checkpoints: CheckpointRow[] = []
  if (limit === 0) return checkpoints
  for await (const { stored, labels } of pieces(connection, { ...query, isBare: true, withLabels: true, size: 1_024 })) {
    for (const one of stored) {
      if (one.checkpointBytes !== null && checkpoints.length < limit) {
        checkpoints.push(toCheckpoint(one, labels.get(one.record.seq) ?? null))
      }
    }
    if (checkpoints.length >= limit) break
  }
  return checkpoints
}

export async function tag(
  connection: Connection,
  { owner, threadId, seq, label }: ThreadKey & { readonly seq: number; readonly label: string },
): Promise<{ ok: boolean }> {
  return { ok: (await connection.once(tagScript, 0, [pairOf(owner, threadId), String(seq), label])) === 1 }
}

export async function listRuns(connection: Connection, query: RunQuery): Promise<{ items: Run[]; cursor?: string }> {
  const { owner, threadId, limit } = query
  const index = threadId === undefined ? `owner-runs:${owner}` : `runs:${pairOf(owner, threadId)}`
  let below = query.cursor === undefined ? '+inf' : readCursor(query.cursor)
  if (limit <= 0) return { items: [] }
  const found: { run: Run; number: number }[] = []
  for (;;) {
    // One more than is shown: it says whether there is a next page.
    const missing = String(limit + 1 - found.length)
    const [stoppedAt, ...rows] = (await connection.repeat(
      listRunsScript,
      index,
      below,
      missing,
      packFilter(query),
      threadId === undefined ? '' : pairOf(owner, threadId),
    )) as readonly Reply[]
    for (let i = 0; i < rows.length; i += 2) {
      const row = readRow(rows[i + 1] as Reply)
      if (row !== null) found.push(toRun(String(rows[i]), row))
    }
    if (stoppedAt === 0) break
    below = String(stoppedAt)
  }
  const shown = found.slice(0, limit)
  const items = shown.map(({ run }) => run)
  return found.length > limit ? { items, cursor: `n${shown.at(-1)?.number}` } : { items }
}

export function listThreads(connection: Connection, { owner, ...query }: ThreadQuery): Promise<ThreadPage> {
  return readThreads(connection, `owner-threads:${owner}`, query)
}

export function scanThreads(connection: Connection, query: ScanQuery): Promise<ThreadPage> {
  return readThreads(connection, 'threads', query)
}

interface ThreadPage {
  readonly items: Thread[]
  readonly cursor?: string
}

async function readThreads(connection: Connection, index: string, { limit, cursor }: ScanQuery): Promise<ThreadPage> {
  const above = cursor === undefined ? '0' : readCursor(cursor)
  if (limit <= 0) return { items: [] }
  const reply = (await connection.repeat(listThreadsScript, index, above, String(limit + 1))) as readonly Reply[]
  const found: { thread: Thread; number: number }[] = []
  for (let i = 0; i < reply.length; i += 3) {
    const row = readRow(reply[i + 1] as Reply)
    if (row !== null) found.push(toThread(String(reply[i]), row, reply[i + 2] as number))
  }
  const shown = found.slice(0, limit)
  const items = shown.map(({ thread }) => thread)
  return found.length > limit ? { items, cursor: `n${shown.at(-1)?.number}` } : { items }
}

interface PieceQuery extends ThreadKey {
  readonly afterSeq?: number
  readonly toSeq?: number
  readonly isBare: boolean
  readonly withLabels?: boolean
  /** Records to ask for at a time. */
  readonly size: number
}

interface Piece {
  readonly stored: readonly StoredRecord[]
  readonly labels: ReadonlyMap<number, string>
}

/**
 * A stretch of a log in pieces, so that a long one does not hold up the server; nearly always one. The first piece fixes where the
 * log ends, so that no half of a later change is seen; a thread that is deleted meanwhile ends it.
 */
async function* pieces(connection: Connection, query: PieceQuery): AsyncGenerator<Piece> {
  const { owner, threadId, toSeq, isBare, withLabels = false, size } = query
  let afterSeq = query.afterSeq ?? 0
  let end = toSeq ?? Number.POSITIVE_INFINITY
  let life: number | undefined
  for (;;) {
    const to = Number.isFinite(end) ? String(end) : ''
    const limit = Number.isFinite(size) ? String(size) : '1e15'
    const args = [
      pairOf(owner, threadId),
      String(afterSeq),
      to,
      limit,
      String(pieceBytes),
      isBare ? '1' : '',
      withLabels ? '1' : '',
    ]
    const reply = (await connection.repeat(readLogScript, ...args)) as readonly Reply[]
    const [foundLife, head, first, entries, labels] = reply as readonly [
      number,
      number,
      number,
      readonly Buffer[],
      readonly Buffer[],
    ]
    if (life !== undefined && foundLife !== life) return
    life = foundLife
    end = Math.min(end, head)
    yield {
      stored: entries.map((entry, i) => toRecord(entry, first + i, { owner, threadId }, isBare)),
      labels: readLabels(labels),
    }
    afterSeq = first + entries.length - 1
    if (entries.length === 0 || afterSeq >= end) return
  }
}

function readLabels(reply: readonly Buffer[]): Map<number, string> {
  const labels = new Map<number, string>()
  for (let i = 0; i < reply.length; i += 2) {
    const name = String(reply[i])
    if (name.startsWith('S')) labels.set(Number(name.slice(1)), String(reply[i + 1]))
  }
  return labels
}

async function readLabel(connection: Connection, query: CheckpointQuery, label: string): Promise<CheckpointRow[]> {
  const { owner, threadId, afterSeq = 0 } = query
  const [seq, entry] = (await connection.repeat(readLabelScript, pairOf(owner, threadId), label)) as readonly [number?, Buffer?]
  if (seq === undefined || entry === undefined || seq <= afterSeq) return []
  return [toCheckpoint(toRecord(entry, seq, { owner, threadId }, true), label)]
}

function toCheckpoint({ record, checkpointBytes }: StoredRecord, label: string | null): CheckpointRow {
  const { seq, at, runId, step } = record
  return { seq, at, runId, step, label, bytes: checkpointBytes ?? 0 }
}

function isAskedFor({ record, hasPatch }: StoredRecord, { runId, withEdits, types, patchesOnly }: LogQuery): boolean {
  if (runId !== undefined && record.runId !== runId && !(withEdits === true && hasPatch)) return false
  if (types !== undefined && !types.includes(record.type)) return false
  return patchesOnly !== true || hasPatch
}

function showRecord(record: LogRecord, { runId, patchesOnly }: LogQuery): LogRecord {
  const isForeign = runId !== undefined && record.runId !== runId
  const isPatchAlone = (isForeign || patchesOnly === true) && record.type !== 'state_migrated'
  return isPatchAlone ? { ...record, payload: null } : record
}

function packFilter({ workflow, queue, statuses, withoutPrefix }: RunQuery): Buffer {
  const packer = new Packer(128).array(4)
  const text = (value: string | undefined) => (value === undefined ? packer.boolean(false) : packer.text(value))
  text(workflow)
  text(queue)
  if (statuses === undefined) packer.boolean(false)
  else {
    packer.array(statuses.length)
    for (const status of statuses) packer.text(status)
  }
  text(withoutPrefix)
  return packer.end()
}

/** The number of the last row shown: rows that come or go meanwhile move nothing. */
function readCursor(cursor: string): string {
  if (/^n[0-9]{1,15}$/.test(cursor)) return cursor.slice(1)
  throw new HoldfastError(
    'invalid_input',
    `${JSON.stringify(cursor)} is not a cursor of this store. Pass the one that came with the last page.`,
  )
}
