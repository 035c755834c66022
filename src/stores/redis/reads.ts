import { HoldfastError } from '../../model/errors.ts'
import type { EventType, LogRecord } from '../../model/event.ts'
import { internalPrefix } from '../../model/internal.ts'
import type { Operation } from '../../model/operation.ts'
import type { Run } from '../../model/run.ts'
import { stretchOf } from '../../store/log-stretch.ts'
import { compareAge, type RunPlace, readRunCursor, runCursor } from '../../store/run-cursor.ts'
import type {
  CheckpointQuery,
  CheckpointRow,
  LogQuery,
  LogStretch,
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
import { readRow, type StoredRecord, type StoredRun, toOperation, toRecord, toRun, toSnapshot, toThread } from './rows.ts'
import {
  listRunsScript,
  listThreadRunsScript,
  listThreadsScript,
  listUnsureScript,
  readCheckpointsScript,
  readLabelScript,
  readLogsScript,
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
  const [stretch] = await readLogs(connection, [query])
  if (stretch !== undefined && 'damage' in stretch) throw stretch.damage
  return (stretch?.records ?? []) as LogRecord[]
}

/** One query on its way: what of it is read, and where it continues. */
interface Reading {
  readonly query: LogQuery
  readonly limit: number
  /** Records to ask for at a time. */
  readonly size: number
  readonly records: LogRecord[]
  afterSeq: number
  end: number
  /** Of the thread, once it was read. */
  life?: number
  damage?: HoldfastError
  isOver: boolean
}

/**
 * Stretches of logs, in pieces where they are long, so that they do not hold up the server; nearly always one. The first piece of each
 * fixes where its log ends, so that no half of a later change is seen; a thread that is deleted meanwhile ends it.
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
      wholeTypesOf(query)?.reduce((list, type) => `${list}${type}\n`, '\n') ?? '',
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
  const [life, head, first, entries] = reply as unknown as readonly [number, number, number, readonly Buffer[]]
  if (reading.life !== undefined && life !== reading.life) {
    reading.isOver = true
    return
  }
  reading.life = life
  reading.end = Math.min(reading.end, head)
  const found = stretchOf(() => {
    for (const [index, entry] of entries.entries()) {
      const one = toRecord(entry, first + index, query, wholeTypesOf(query))
      if (records.length < limit && isAskedFor(one, query)) records.push(showRecord(one.record, query))
    }
    return records
  })
  if ('damage' in found) reading.damage = found.damage
  reading.afterSeq = first + entries.length - 1
  reading.isOver = 'damage' in found || records.length >= limit || entries.length === 0 || reading.afterSeq >= reading.end
}

/** The types of records whose contents are asked for; undefined for all. */
function wholeTypesOf({ bare, payloadsOf }: LogQuery): readonly EventType[] | undefined {
  return payloadsOf ?? (bare === true ? [] : undefined)
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
  const { toSeq, afterSeq = 0, limit } = query
  return toSeq !== undefined && toSeq === afterSeq + 1 && wholeTypesOf(query) === undefined && limit !== 0
}

export async function listCheckpoints(connection: Connection, query: CheckpointQuery): Promise<CheckpointRow[]> {
  const limit = Math.max(0, query.limit ?? Number.POSITIVE_INFINITY)
  if (query.label !== undefined) return limit === 0 ? [] : readLabel(connection, query, query.label)
  const checkpoints: CheckpointRow[] = []
  if (limit === 0) return checkpoints
  for await (const { stored, labels } of labelledPieces(connection, query)) {
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
  return { ok: (await connection.once(tagScript, 0, [pairOf(owner, threadId), String(seq), label, owner])) === 1 }
}

export async function listRuns(connection: Connection, query: RunQuery): Promise<{ items: Run[]; cursor?: string }> {
  const before = boundOf(query)
  if (query.limit <= 0) return { items: [] }
  const found =
    query.threadId === undefined ? await readListed(connection, query, before) : await readOfThread(connection, query, before)
  const shown = found.slice(0, query.limit)
  const items = shown.map(({ run }) => run)
  const last = shown.at(-1)
  return last !== undefined && found.length > shown.length ? { items, cursor: runCursor(placeOf(last)) } : { items }
}

/** Where a list begins: after the last page, or with what was created before a time. */
function boundOf({ cursor, createdBefore }: RunQuery): RunPlace | undefined {
  const last = readRunCursor(cursor)
  if (createdBefore === undefined) return last
  const newest = { createdAt: createdBefore, number: 0 }
  return last === undefined || compareAge(newest, last) > 0 ? newest : last
}

function placeOf({ run, number }: StoredRun): RunPlace {
  return { createdAt: run.createdAt, number }
}

/** A page of runs and one more, if there is one: it says whether there is a next page. */
async function readListed(connection: Connection, query: RunQuery, before: RunPlace | undefined): Promise<StoredRun[]> {
  const { owner, workflow, queue, statuses, label, withoutPrefix, limit } = query
  const isPlain = workflow === undefined && queue === undefined && statuses === undefined && withoutPrefix === internalPrefix
  const index = label !== undefined ? 'label' : isPlain ? 'listed' : 'buckets'
  const found: StoredRun[] = []
  let [time, number] = before === undefined ? ['+inf', '0'] : [String(before.createdAt), String(before.number)]
  for (;;) {
    const missing = String(limit + 1 - found.length)
    const reply = await connection.repeat(listRunsScript, packFilter(query), time, number, missing, owner, index, label ?? '')
    const [stoppedAt, stoppedBelow, ...rows] = reply as readonly Reply[]
    found.push(...toRuns(rows))
    if (String(stoppedAt) === '') return found
    ;[time, number] = [String(stoppedAt), String(stoppedBelow)]
  }
}

/** All runs of a thread that are wanted, newest first. */
async function readOfThread(connection: Connection, query: RunQuery, before: RunPlace | undefined): Promise<StoredRun[]> {
  const { owner, threadId = '', label = '' } = query
  const found: StoredRun[] = []
  for (let after = '0'; after !== ''; ) {
    const reply = await connection.repeat(listThreadRunsScript, packFilter(query), pairOf(owner, threadId), after, label)
    const [stoppedAt, ...rows] = reply as readonly Reply[]
    found.push(...toRuns(rows))
    after = String(stoppedAt)
  }
  const rest = before === undefined ? found : found.filter((one) => compareAge(placeOf(one), before) > 0)
  return rest.toSorted((a, b) => compareAge(placeOf(a), placeOf(b)))
}

function toRuns(rows: readonly Reply[]): StoredRun[] {
  const runs: StoredRun[] = []
  for (let i = 0; i < rows.length; i += 2) {
    const row = readRow(rows[i + 1] as Reply)
    if (row !== null) runs.push(toRun(String(rows[i]), row))
  }
  return runs
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

interface Piece {
  readonly stored: readonly StoredRecord[]
  readonly labels: ReadonlyMap<number, string>
}

/** A log without contents, with its labels, in pieces as `readLogs` reads them. */
async function* labelledPieces(connection: Connection, query: CheckpointQuery): AsyncGenerator<Piece> {
  const { owner, threadId } = query
  let afterSeq = query.afterSeq ?? 0
  let end: number | undefined
  let life: number | undefined
  for (;;) {
    const args = [pairOf(owner, threadId), String(afterSeq), end === undefined ? '' : String(end), '1024', String(pieceBytes)]
    const reply = (await connection.repeat(readCheckpointsScript, ...args)) as readonly Reply[]
    const [foundLife, head, first, entries, labels] = reply as readonly [
      number,
      number,
      number,
      readonly Buffer[],
      readonly Buffer[],
    ]
    if (life !== undefined && foundLife !== life) return
    life = foundLife
    end = Math.min(end ?? head, head)
    yield {
      stored: entries.map((entry, i) => toRecord(entry, first + i, { owner, threadId }, [])),
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
  return [toCheckpoint(toRecord(entry, seq, { owner, threadId }, []), label)]
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

function showRecord(record: LogRecord, query: LogQuery): LogRecord {
  const { runId, patchesOnly } = query
  if (wholeTypesOf(query) !== undefined) return { ...record, patch: null }
  const isForeign = runId !== undefined && record.runId !== runId
  const isPatchAlone = (isForeign || patchesOnly === true) && record.type !== 'state_migrated'
  return isPatchAlone ? { ...record, payload: null } : record
}

function packFilter({ workflow, queue, statuses, withoutPrefix, createdAfter }: RunQuery): Buffer {
  const packer = new Packer(128).array(5)
  const text = (value: string | undefined) => (value === undefined ? packer.boolean(false) : packer.text(value))
  text(workflow)
  text(queue)
  if (statuses === undefined) packer.boolean(false)
  else {
    packer.array(statuses.length)
    for (const status of statuses) packer.text(status)
  }
  text(withoutPrefix)
  text(createdAfter === undefined ? undefined : String(createdAfter))
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
