import { recordChecksum, sealChecksum } from '../../model/checksum.ts'
import type { LogRecord, NewEvent } from '../../model/event.ts'
import { isOpen } from '../../model/operation.ts'
import type { Payload } from '../../model/payload.ts'
import { isTerminal } from '../../model/run.ts'
import type { Change, Committed, Due, NewRun, Refusal, RunChange } from '../../store/change.ts'
import { appendChunks } from './chunks.ts'
import { deliver } from './inbox.ts'
import { changeOperation, dueBy, judgeOperation, settleWhatIsOpen } from './operations.ts'
import { countRuns } from './queues.ts'
import {
  copyPayload,
  findRun,
  findThread,
  keyOf,
  placeInLine,
  type RunRow,
  setWaitKey,
  type Tables,
  type ThreadRow,
  tellListeners,
} from './tables.ts'

/** Judges the whole change before it writes any of it; nothing here awaits, so no reader sees half. */
export function commit(tables: Tables, change: Change, now: number): Committed {
  const refusal = judgeGuard(tables, change)
  if (refusal !== null) return { ok: false, refusal }
  const operationRefusal = judgeOperation(tables, change)
  if (operationRefusal !== null) return operationRefusal
  if (isBusy(tables, change)) return { ok: false, refusal: 'conflict' }
  if (change.guard.kind === 'none' && isFull(tables, change)) return { ok: false, refusal: 'queue_full' }
  return write(tables, change, now)
}

function judgeGuard(tables: Tables, change: Change): Refusal | null {
  const { guard, owner, threadId } = change
  const thread = findThread(tables, owner, threadId)
  const found = change.runId === null ? undefined : findRun(tables, owner, change.runId)
  const row = found?.run.threadId === threadId ? found : undefined
  switch (guard.kind) {
    case 'lease':
      if (row === undefined || row.run.epoch !== guard.epoch || row.run.leaseId !== guard.leaseId) return 'lease_lost'
      if (hasForgotten(thread, guard)) return 'lease_lost'
      return hasOtherHead(thread, guard) ? 'conflict' : null
    case 'run':
      if (row === undefined || thread === undefined) return 'run_not_found'
      if (row.run.epoch !== guard.epoch || row.run.status !== guard.status || hasOtherHead(thread, guard)) return 'conflict'
      return guard.undisturbed === true && hasLaterStart(thread, row) ? 'conflict' : null
    case 'thread':
      if (thread === undefined) return guard.headSeq === 0 ? null : 'conflict'
      if (thread.thread.deletedAt !== null) return 'thread_deleted'
      return thread.thread.headSeq !== guard.headSeq || thread.line.some(({ run }) => run.status === 'running')
        ? 'conflict'
        : null
    case 'none':
      // Without a guard a late writer must still not bring a deleted thread back, nor write for a run that is gone.
      if (change.events.length === 0 && change.run === undefined) return null
      if (thread !== undefined && thread.thread.deletedAt !== null) return 'thread_deleted'
      return change.runId !== null && row === undefined ? 'run_not_found' : null
  }
}

/** Whether a holder has seen commits that are no longer there. */
export function hasForgotten(thread: ThreadRow | undefined, { writtenSeq = 0 }: { readonly writtenSeq?: number }): boolean {
  return (thread?.thread.writtenSeq ?? 0) < writtenSeq
}

function hasOtherHead(thread: ThreadRow | undefined, { headSeq }: { readonly headSeq?: number }): boolean {
  return headSeq !== undefined && thread?.thread.headSeq !== headSeq
}

/** A later run that was claimed and wrote nothing yet counts too: it would run beside the earlier one. */
function hasLaterStart(thread: ThreadRow, row: RunRow): boolean {
  return thread.runs.some(({ number, run }) => number > row.number && (run.startedAt !== null || run.status === 'running'))
}

/** Whether a run to be created refuses to get in line and would have to. */
function isBusy(tables: Tables, change: Change): boolean {
  const createdKeys = new Set<string>()
  const takenThreads = new Set<string>()
  for (const create of change.creates ?? []) {
    const key = keyOf(create.owner, create.id)
    if (tables.runs.has(key) || createdKeys.has(key)) continue
    const threadKey = keyOf(create.owner, create.threadId)
    const holders = tables.threads.get(threadKey)?.line ?? []
    const isTaken = takenThreads.has(threadKey) || holders.some((holder) => !isTerminal(statusAfter(change, holder)))
    if (isTaken && create.ifBusy === 'reject') return true
    createdKeys.add(key)
    takenThreads.add(threadKey)
  }
  return false
}

/** Whether a queue has no room for the runs to be created. */
function isFull(tables: Tables, change: Change): boolean {
  const created = new Map<string, Set<string>>()
  for (const { owner, id, queue } of change.creates ?? []) {
    const key = keyOf(owner, id)
    if (!tables.runs.has(key)) created.set(queue, (created.get(queue) ?? new Set()).add(key))
  }
  return [...created].some(([queue, keys]) => {
    const maxQueued = tables.queues.get(queue)?.settings.maxQueued ?? null
    return maxQueued !== null && countRuns(tables, queue, 'pending') + keys.size > maxQueued
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
  let isClaimable = changeOperation(tables, change, now)
  const row = runId === null ? undefined : findRun(tables, owner, runId)
  if (row !== undefined) {
    const read = new Set(change.readMessages)
    if (read.size > 0) row.inbox = row.inbox.filter(({ id }) => !read.has(id))
    appendChunks(row, change.chunks ?? [])
    if (change.run !== undefined) changeRun(tables, row, { change, run: change.run, positions, now })
    if (change.run?.status !== undefined && thread !== undefined) placeInLine(tables, thread, row)
    if (change.run?.status !== undefined) isClaimable = true
  }
  const created = (change.creates ?? []).map((create) => createRun(tables, create, now))
  for (const message of change.delivers ?? []) deliver(tables, message, now)

  tellListeners(tables, {
    ...{ owner, threadId },
    ...(runId === null ? {} : { runId }),
    ...(isClaimable ? { isClaimable } : {}),
    ...(change.chunks === undefined ? {} : { hasChunks: true }),
  })
  for (const { run, isNew } of created) {
    if (isNew) tellListeners(tables, { owner: run.owner, threadId: run.threadId, runId: run.id, isClaimable: true })
  }
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
      line: [],
      epochFloor: 0,
    }
    tables.threads.set(keyOf(key.owner, key.threadId), row)
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
  if (to.status !== undefined) {
    run.status = to.status
    run.finishedAt = isTerminal(to.status) ? now : null
    if (to.status !== 'waiting') setWaitKey(tables, row, null)
  }
  if (run.status !== 'running') run.leaseId = run.leaseUntil = run.leaseHolder = null
  else if (change.guard.kind === 'lease' && to.leaseMs !== undefined) run.leaseUntil = now + to.leaseMs

  if (to.reason !== undefined) run.reason = to.reason
  if (to.currentStep !== undefined) run.currentStep = to.currentStep
  if (to.uncountClaim === true) run.claimsWithoutProgress = Math.max(0, run.claimsWithoutProgress - 1)
  if (to.hasProgress === true) run.claimsWithoutProgress = 0
  if (to.startsTape === true) {
    run.tapeSeq = positions.firstSeq
    run.startedAt ??= now
    if (to.hasNewInput === true) run.inputSeq = positions.firstSeq
  }
  if (to.setsEnd === true) run.endSeq = positions.lastSeq
  if (to.due !== undefined) run.dueAt = dueAtOf(to.due, now)
  if (to.waitKey !== undefined) {
    setWaitKey(tables, row, to.waitKey)
    const operation = tables.operations.get(keyOf(run.owner, to.waitKey))
    if (operation === undefined || !isOpen(operation.status)) run.dueAt = now
  }
  if (to.status === 'waiting' && hasMail(row, change)) run.dueAt = dueBy(run.dueAt, now)
  if (run.finishedAt !== null || (to.startsTape === true && to.hasNewInput === true)) settleWhatIsOpen(tables, row, now)
}

function createRun(tables: Tables, create: NewRun, now: number) {
  const { owner, id, threadId, workflow, version, queue, priority, fingerprint } = create
  const existing = findRun(tables, owner, id)
  if (existing !== undefined) return { run: { ...existing.run }, isNew: false }
  const thread = openThread(tables, { owner, threadId }, now)
  const seq = thread.thread.headSeq + 1
  push(thread, recordOf(create.queued, { seq, runId: id, isCheckpoint: true }))
  addCheckpoint(thread, { seq, bytes: bytesOf(create.queued.payload) + bytesOf(create.queued.patch), label: null })

  const run = {
    ...{ owner, id, threadId, workflow, version, status: 'pending' as const, reason: null, queue, priority, fingerprint },
    ...{ epoch: thread.epochFloor, leaseId: null, leaseUntil: null, leaseHolder: null, dueAt: dueAtOf(create.due, now) },
    ...{ claimsWithoutProgress: 0, currentStep: null, inputSeq: seq, tapeSeq: null, endSeq: null },
    ...{ createdAt: now, startedAt: null, finishedAt: null },
  }
  const row: RunRow = {
    number: ++tables.lastNumber,
    run,
    waitKey: null,
    inbox: [],
    deliveredIds: new Set(),
    streams: new Map(),
    openedKeys: new Set(),
  }
  tables.runs.set(keyOf(owner, id), row)
  thread.runs.push(row)
  placeInLine(tables, thread, row)
  return { run: { ...run }, isNew: true }
}

function dueAtOf(due: Due, now: number): number | null {
  if (due === 'never') return null
  return 'at' in due ? due.at : now + due.inMs
}

function bytesOf(payload: Payload | null): number {
  return payload === null ? 0 : Buffer.byteLength(payload)
}
