import { recordChecksum, sealChecksum } from '../../model/checksum.ts'
import { dueAtOf } from '../../model/due.ts'
import type { LogRecord, NewEvent } from '../../model/event.ts'
import { judgeGuard, type Refusal } from '../../model/guard.ts'
import { pairKey } from '../../model/ids.ts'
import { type NewRun, newRun, newRunsPerQueue } from '../../model/new-run.ts'
import { isOpen } from '../../model/operation.ts'
import type { Payload } from '../../model/payload.ts'
import { isTerminal, type Run } from '../../model/run.ts'
import { fieldsAfter, type RunChange, settlesWhatIsOpen } from '../../model/run-change.ts'
import type { Change, Committed } from '../../store/change.ts'
import { hintOfChange, hintOfNewRun } from '../../store/hints.ts'
import { appendChunks } from './chunks.ts'
import { deliver } from './inbox.ts'
import { changeOperation, refuseOperation, settleWhatIsOpen } from './operations.ts'
import { countRuns } from './queues.ts'
import { changeRecords, refuseRecords } from './records.ts'
import {
  copyPayload,
  findRun,
  findThread,
  placeUnfinished,
  type RunRow,
  setWaitKey,
  type Tables,
  type ThreadRow,
  tellListeners,
} from './tables.ts'

/** Judges the whole change before it writes any of it; nothing here awaits, so no reader sees half. */
export function commit(tables: Tables, change: Change, now: number): Committed {
  const refusal = judge(tables, change)
  if (refusal !== null) return { ok: false, refusal }
  const operationRefusal = refuseOperation(tables, change)
  if (operationRefusal !== null) return operationRefusal
  const recordRefusal = refuseRecords(tables, change, now)
  if (recordRefusal !== null) return recordRefusal
  if (isBusy(tables, change)) return { ok: false, refusal: 'conflict' }
  if (change.guard.kind === 'none' && isFull(tables, change)) return { ok: false, refusal: 'queue_full' }
  return write(tables, change, now)
}

function judge(tables: Tables, change: Change): Refusal | null {
  const { guard, owner, threadId, runId } = change
  const thread = findThread(tables, owner, threadId)
  const found = runId === null ? undefined : findRun(tables, owner, runId)
  const row = found?.run.threadId === threadId ? found : undefined
  return judgeGuard(guard, {
    ...{ thread: thread?.thread, run: row?.run },
    ...{ namesRun: runId !== null, writes: change.events.length > 0 || change.run !== undefined },
    hasLaterStart: () => thread !== undefined && row !== undefined && hasLaterStart(thread, row),
    isHeld: () => thread?.unfinished.some(({ run }) => run.status === 'running') === true,
  })
}

function hasLaterStart(thread: ThreadRow, row: RunRow): boolean {
  return thread.runs.some(({ number, run }) => number > row.number && (run.startedAt !== null || run.status === 'running'))
}

/** Whether a run to be created refuses to wait behind others and would have to. */
function isBusy(tables: Tables, change: Change): boolean {
  const createdKeys = new Set<string>()
  const takenThreads = new Set<string>()
  for (const create of change.creates ?? []) {
    const key = pairKey(create.owner, create.id)
    if (tables.runs.has(key) || createdKeys.has(key)) continue
    const threadKey = pairKey(create.owner, create.threadId)
    const holders = tables.threads.get(threadKey)?.unfinished ?? []
    const isTaken = takenThreads.has(threadKey) || holders.some((holder) => !isTerminal(statusAfter(change, holder)))
    if (isTaken && create.ifBusy === 'reject') return true
    createdKeys.add(key)
    takenThreads.add(threadKey)
  }
  return false
}

/** Whether a queue has no room for the runs to be created. */
function isFull(tables: Tables, change: Change): boolean {
  const added = newRunsPerQueue(change.creates ?? [], ({ owner, id }) => tables.runs.has(pairKey(owner, id)))
  return [...added].some(([queue, count]) => {
    const maxQueued = tables.queues.get(queue)?.settings.maxQueued ?? null
    return maxQueued !== null && countRuns(tables, queue, 'pending') + count > maxQueued
  })
}

function statusAfter(change: Change, { run }: RunRow) {
  return run.owner === change.owner && run.id === change.runId ? (change.run?.status ?? run.status) : run.status
}

function write(tables: Tables, change: Change, now: number): Committed {
  const { owner, threadId, runId } = change
  const opensThread = change.events.length > 0 || change.guard.kind === 'thread'
  const thread = opensThread ? openThread(tables, { owner, threadId }, now) : findThread(tables, owner, threadId)
  const head = thread?.thread.headSeq ?? 0
  const positions = { firstSeq: change.events.length > 0 ? head + 1 : head, lastSeq: head + change.events.length }

  if (thread !== undefined) {
    append(thread, change, positions.lastSeq)
    if (change.guard.kind === 'lease' && change.events.length > 0) thread.thread.writtenSeq = positions.lastSeq
    if (change.stateVersion !== undefined) thread.thread.stateVersion = change.stateVersion
    if (change.snapshot !== undefined) saveSnapshot(thread, positions.lastSeq, change.snapshot)
  }
  const hasWoken = changeOperation(tables, change, now)
  changeRecords(tables, change, now)
  const row = runId === null ? undefined : findRun(tables, owner, runId)
  if (row !== undefined) {
    const read = new Set(change.readMessages)
    if (read.size > 0) row.inbox = row.inbox.filter(({ id }) => !read.has(id))
    appendChunks(row, change.chunks ?? [])
    if (change.run !== undefined) changeRun(tables, row, { change, run: change.run, positions, now })
    if (change.run?.status !== undefined && thread !== undefined) placeUnfinished(tables, thread, row)
  }
  const created = (change.creates ?? []).map((create) => createRun(tables, create, now))
  for (const message of change.delivers ?? []) deliver(tables, message, now)

  tellListeners(tables, hintOfChange(change, hasWoken))
  for (const { run, isNew } of created) if (isNew) tellListeners(tables, hintOfNewRun(run))
  return {
    ok: true,
    ...(change.events.length > 0 ? positions : headOf(tables, change)),
    now,
    created,
    hasMail: row !== undefined && hasMail(row, change),
  }
}

function hasMail({ inbox }: RunRow, { mailSeen = 0 }: Change): boolean {
  return inbox.some(({ id }) => id > mailSeen)
}

function headOf(tables: Tables, { owner, threadId }: Change): { firstSeq: number; lastSeq: number } {
  const head = findThread(tables, owner, threadId)?.thread.headSeq ?? 0
  return { firstSeq: head, lastSeq: head }
}

/** The thread as it is; a new one where there is none; a new life where it was deleted. */
function openThread(tables: Tables, key: { owner: string; threadId: string }, now: number): ThreadRow {
  const existing = findThread(tables, key.owner, key.threadId)
  if (existing === undefined) {
    const thread = {
      ...{ ...key, headSeq: 0, writtenSeq: 0, patchSeq: 0, patchChecksum: 0, stateVersion: 0, incarnation: 1, baseSeq: 0 },
      ...{ createdAt: now, deletedAt: null },
    }
    const row = {
      number: ++tables.lastNumber,
      thread,
      log: [],
      snapshots: [],
      checkpoints: [],
      runs: [],
      unfinished: [],
      epochFloor: 0,
    }
    tables.threads.set(pairKey(key.owner, key.threadId), row)
    return row
  }
  const { thread } = existing
  if (thread.deletedAt !== null) {
    thread.incarnation += 1
    thread.baseSeq = thread.headSeq
    thread.deletedAt = null
  }
  return existing
}

function append(thread: ThreadRow, change: Change, lastSeq: number): void {
  let bytes = 0
  for (const event of change.events) {
    const seq = thread.thread.headSeq + 1
    push(thread, recordOf(event, { seq, runId: change.runId, isCheckpoint: change.isCheckpoint && seq === lastSeq }))
    bytes += bytesOf(event.payload) + bytesOf(event.patch)
  }
  if (change.isCheckpoint && change.events.length > 0) addCheckpoint(thread, { seq: lastSeq, bytes, label: change.label ?? null })
}

function push({ thread, log }: ThreadRow, record: LogRecord): void {
  log.push(record)
  thread.headSeq = record.seq
  if (record.patch === null) return
  thread.patchSeq = record.seq
  thread.patchChecksum = sealChecksum(recordChecksum(thread, record), record.seq)
}

function recordOf(event: NewEvent, place: Pick<LogRecord, 'seq' | 'runId' | 'isCheckpoint'>): LogRecord {
  const { type, step, count, attempt, at, durationMs } = event
  return {
    ...place,
    type,
    step,
    count,
    attempt,
    at,
    durationMs,
    payload: copyPayload(event.payload),
    patch: copyPayload(event.patch),
  }
}

function addCheckpoint(thread: ThreadRow, checkpoint: { seq: number; bytes: number; label: string | null }): void {
  if (checkpoint.label !== null) clearLabel(thread, checkpoint.label)
  thread.checkpoints.push(checkpoint)
}

/** A label names one position of a thread: the latest wins. */
export function clearLabel(thread: ThreadRow, label: string): void {
  for (const checkpoint of thread.checkpoints) if (checkpoint.label === label) checkpoint.label = null
}

function saveSnapshot(thread: ThreadRow, seq: number, state: Payload): void {
  if (thread.snapshots.at(-1)?.seq === seq) thread.snapshots.pop()
  thread.snapshots.push({ seq, state: copyPayload(state), stateVersion: thread.thread.stateVersion })
}

interface RunWrite {
  readonly change: Change
  readonly run: RunChange
  readonly positions: { readonly firstSeq: number; readonly lastSeq: number }
  readonly now: number
}

function changeRun(tables: Tables, row: RunRow, { change, run: to, positions, now }: RunWrite): void {
  const { run } = row
  const { waitKey, ...fields } = fieldsAfter({ ...run, waitKey: row.waitKey }, to, {
    ...{ ...positions, isLeased: change.guard.kind === 'lease', hasMail: hasMail(row, change), now },
    isOpen: (key) => {
      const operation = tables.operations.get(pairKey(run.owner, key))
      return operation !== undefined && isOpen(operation.status)
    },
  })
  Object.assign(run, fields)
  if (waitKey !== undefined) setWaitKey(tables, row, waitKey)
  if (settlesWhatIsOpen(run.finishedAt, to)) settleWhatIsOpen(tables, row, now)
}

function createRun(tables: Tables, create: NewRun, now: number) {
  const { owner, id, threadId } = create
  const existing = findRun(tables, owner, id)
  if (existing !== undefined) return { run: { ...existing.run }, isNew: false }
  const thread = openThread(tables, { owner, threadId }, now)
  const seq = thread.thread.headSeq + 1
  push(thread, recordOf(create.queued, { seq, runId: id, isCheckpoint: true }))
  addCheckpoint(thread, { seq, bytes: bytesOf(create.queued.payload) + bytesOf(create.queued.patch), label: null })

  const run: Run = newRun(create, { epoch: thread.epochFloor, inputSeq: seq, dueAt: dueAtOf(create.due, now), now })
  const row: RunRow = {
    number: ++tables.lastNumber,
    run,
    waitKey: null,
    inbox: [],
    deliveredIds: new Set(),
    streams: new Map(),
    openedKeys: new Set(),
  }
  tables.runs.set(pairKey(owner, id), row)
  thread.runs.push(row)
  placeUnfinished(tables, thread, row)
  return { run: { ...run }, isNew: true }
}

function bytesOf(payload: Payload | null): number {
  return payload === null ? 0 : Buffer.byteLength(payload)
}
