import { isTerminal } from '../../model/run.ts'
import type { Change, Committed, Due, NewRun, Refusal, RunChange } from '../../store/change.ts'
import { isOfRunAlone, isStart } from '../../store/kinds-of-change.ts'
import type { Hint } from '../../store/store.ts'
import { prepareChunks } from './chunks.ts'
import { type Database, prepare } from './connection.ts'
import { isPlainEnd, prepareEnd } from './end.ts'
import { prepareDeliver } from './inbox.ts'
import { prepareSaveLabel } from './labels.ts'
import { numberInLease } from './lease-id.ts'
import { prepareLine } from './line.ts'
import { type Append, type Head, prepareAppend } from './log.ts'
import { dueBy, prepareOperations } from './operations.ts'
import { prepareQueueSpace } from './queues.ts'
import {
  type Mutable,
  type NamedRunRow,
  type RunRow,
  runColumns,
  runOf,
  selectRun,
  snapshotChecksum,
  type ThreadRow,
  toRun,
} from './rows.ts'
import { prepareStarts, type StartingRow, startsAtOnce } from './starts.ts'
import { isPlainWait, prepareWait } from './wait.ts'

/**
 * Applies one change inside an open write transaction. Everything is judged before anything is written, so that a refused
 * change needs no rollback and does not hurt its neighbours in the batch.
 */
export function prepareCommit(db: Database) {
  const line = prepareLine(db)
  const operations = prepareOperations(db, line)
  const log = prepareAppend(db)
  const step = prepareStep(db, log.append)
  const end = prepareEnd(db, { ...step, append: log.append, line, operations })
  const wait = prepareWait(db, { ...step, append: log.append, claimsAfter, dueAtOf })
  const runs = prepareRuns(db)
  const threads = prepareThreads(db)
  const unread = prepareUnread(db)
  const deliver = prepareDeliver(db, line)
  const chunks = prepareChunks(db)
  const queues = prepareQueueSpace(db)
  const insertStarts = prepareStarts(db)
  const saveLabel = prepareSaveLabel(db)

  /** `hints` collects what to tell subscribers after the flush. */
  function applyAll(changes: readonly Change[], now: number, hints: Hint[]): Committed[] {
    const answers: Committed[] = []
    while (answers.length < changes.length) {
      const starts = startsFrom(changes, answers.length)
      const started = starts === null ? null : start(starts, now, hints)
      if (started !== null) answers.push(...started)
      else {
        // Where some cannot be started together, each is started by itself.
        const count = answers.length + (starts?.length ?? 1)
        while (answers.length < count) answers.push(apply(changes[answers.length] as Change, now, hints))
      }
    }
    return answers
  }

  function apply(change: Change, now: number, hints: Hint[]): Committed {
    if (isPlainStep(change)) return step.apply(change, now, hints)
    if (isPlainEnd(change)) return end(change, now, hints)
    if (isPlainWait(change)) return wait(change, now, hints)
    const started = isStart(change) ? start(change.creates, now, hints)?.[0] : undefined
    if (started !== undefined) return started

    const thread = threads.find(change.owner, change.threadId)
    const run = change.runId === null ? undefined : runs.find(change.owner, change.runId)
    const refusal = judgeGuard(change, thread, run)
    if (refusal !== null) return { ok: false, refusal }
    const operationRefusal = operations.judge(change)
    if (operationRefusal !== null) return operationRefusal
    if (change.creates !== undefined && isBusy(change)) return { ok: false, refusal: 'conflict' }
    if (change.creates !== undefined && change.guard.kind === 'none' && isFull(change.creates))
      return { ok: false, refusal: 'queue_full' }
    return write(change, { thread, run, now, hints })
  }

  /** New runs on new threads, the usual start: nothing is there that could be in their way. Null, and nothing done, where something is. */
  function start(creates: readonly NewRun[], now: number, hints: Hint[]): Committed[] | null {
    // A full queue still answers to an id that it has.
    for (const { queue } of creates) if ((queues.spaceIn(queue) ?? creates.length) < creates.length) return null
    const firstRecord = log.nextId()
    const rows = creates.map((create, index) => startingRow(create, firstRecord + index, now))
    const numbers = insertStarts(rows)
    if (numbers === null) return null
    return creates.map(({ owner, id: runId, threadId, queued }, index) => {
      const place = { id: numbers.thread + index, owner, thread_id: threadId }
      log.begin(place, { run: numbers.run + index, runId, events: [queued], isCheckpoint: true, isLeased: false })
      hints.push({ owner, threadId, runId, isClaimable: true })
      const created = [{ run: runOf(rows[index] as StartingRow, threadId, null), isNew: true }]
      return { ok: true, firstSeq: 1, lastSeq: 1, now, created, hasMail: false }
    })
  }

  function judgeGuard(change: Change, thread: ThreadRow | undefined, found: RunRow | undefined): Refusal | null {
    const { guard } = change
    const run = thread !== undefined && found?.thread === thread.id ? found : undefined
    switch (guard.kind) {
      case 'lease':
        if (run === undefined || run.epoch !== guard.epoch || run.lease_id !== guard.leaseId) return 'lease_lost'
        if (thread === undefined || hasForgotten(thread, guard)) return 'lease_lost'
        return hasOtherHead(thread, guard) ? 'conflict' : null
      case 'run':
        if (run === undefined) return 'run_not_found'
        if (run.epoch !== guard.epoch || run.status !== guard.status || hasOtherHead(thread, guard)) return 'conflict'
        return guard.undisturbed === true && runs.hasLaterStart(run) ? 'conflict' : null
      case 'thread':
        if (thread === undefined) return guard.headSeq === 0 ? null : 'conflict'
        if (thread.deleted_at !== null) return 'thread_deleted'
        return thread.head_seq !== guard.headSeq || runs.hasHolder(thread.id) ? 'conflict' : null
      case 'none':
        // Without a guard a late writer must still not bring a deleted thread back, nor write for a run that is gone.
        if (change.events.length === 0 && change.run === undefined) return null
        if (thread !== undefined && thread.deleted_at !== null) return 'thread_deleted'
        return change.runId !== null && run === undefined ? 'run_not_found' : null
    }
  }

  /** Whether a run to be created refuses to get in line and would have to. */
  function isBusy(change: Change): boolean {
    if (change.creates?.some(({ ifBusy }) => ifBusy === 'reject') !== true) return false
    const created = new Set<string>()
    const taken = new Set<string>()
    for (const { owner, id, threadId, ifBusy } of change.creates ?? []) {
      const key = JSON.stringify([owner, id])
      if (created.has(key) || runs.find(owner, id) !== undefined) continue
      const threadKey = JSON.stringify([owner, threadId])
      if (ifBusy === 'reject' && (taken.has(threadKey) || isHeldAfter(change, owner, threadId))) return true
      created.add(key)
      taken.add(threadKey)
    }
    return false
  }

  /** Whether a queue has no room for the runs to be created. */
  function isFull(creates: readonly NewRun[]): boolean {
    return [...new Set(creates.map(({ queue }) => queue))].some((queue) => {
      const space = queues.spaceIn(queue)
      if (space === undefined) return false
      const added = creates.filter((create) => create.queue === queue && runs.find(create.owner, create.id) === undefined)
      return new Set(added.map(({ owner, id }) => JSON.stringify([owner, id]))).size > Math.max(0, space)
    })
  }

  function isHeldAfter(change: Change, owner: string, threadId: string): boolean {
    const thread = threads.find(owner, threadId)
    if (thread === undefined) return false
    const endsRun = change.owner === owner && change.run?.status !== undefined && isTerminal(change.run.status)
    return runs.holdsLine(thread.id, endsRun ? change.runId : null)
  }

  function write(change: Change, { thread: found, run, now, hints }: Found): Committed {
    const { owner, threadId, events } = change
    const opensThread = events.length > 0 || change.guard.kind === 'thread'
    const thread = opensThread ? threads.open(found, { owner, threadId }, now) : found
    const head = thread?.head_seq ?? 0
    const positions = { firstSeq: events.length > 0 ? head + 1 : head, lastSeq: head + events.length }
    const firstId = log.nextId()
    if (thread !== undefined) {
      const isLeased = change.guard.kind === 'lease'
      log.append(thread, { run: run?.id ?? null, runId: change.runId, events, isCheckpoint: change.isCheckpoint, isLeased })
      writeState(change, thread, { seq: positions.lastSeq, run: run?.id ?? null })
    }
    const hasWoken = operations.apply(change, now)
    const lastMessage = run === undefined ? 0 : unread.settle(run, change.readMessages)
    if (run !== undefined && change.run !== undefined)
      changeRun(run, { change, to: change.run, positions, firstId, hasMail: isMail(lastMessage, change), now })

    if (run !== undefined && change.chunks !== undefined) chunks.append(run, change.chunks)

    const isClaimable = hasWoken || (run !== undefined && change.run?.status !== undefined)
    hints.push({
      owner,
      threadId,
      ...(change.runId === null ? {} : { runId: change.runId }),
      ...(isClaimable ? { isClaimable } : {}),
      ...(change.chunks === undefined ? {} : { hasChunks: true }),
    })
    const created = (change.creates ?? []).map((create) => createRun(create, now, hints))
    const hasMail = isMail(deliverAll(change, { run, lastMessage, now, hints }), change)
    // A run created on this thread has moved its head; a change with events answers with their positions.
    const isHeadMoved = events.length === 0 && created.some(({ isNew }) => isNew)
    const lastSeq = isHeadMoved ? (threads.find(owner, threadId)?.head_seq ?? 0) : positions.lastSeq
    return { ok: true, firstSeq: events.length > 0 ? positions.firstSeq : lastSeq, lastSeq, now, created, hasMail }
  }

  /** Returns the latest message of the change's own run, which may be one of these. */
  function deliverAll(change: Change, { run, lastMessage, now, hints }: Delivery): number {
    if (change.delivers === undefined) return lastMessage
    for (const message of change.delivers) deliver(message, now, hints)
    return run === undefined ? 0 : unread.lastOf(run)
  }

  function writeState(change: Change, thread: ThreadRow, { seq, run }: { seq: number; run: number | null }): void {
    const { stateVersion = thread.state_version, snapshot, label } = change
    if (stateVersion !== thread.state_version) threads.setStateVersion(thread.id, stateVersion)
    if (snapshot !== undefined) threads.saveSnapshot(thread, { seq, state: snapshot, stateVersion })
    if (label !== undefined && change.isCheckpoint && change.events.length > 0) saveLabel(thread.id, { seq, label, run })
  }

  function changeRun(before: RunRow, { change, to, positions, firstId, hasMail, now }: RunWrite): void {
    const run: Mutable<RunRow> = { ...before }
    if (to.status !== undefined) {
      run.status = to.status
      run.finished_at = isTerminal(to.status) ? now : null
      if (to.status !== 'waiting') run.wait_key = null
    }
    if (run.status !== 'running') run.lease_id = run.lease_until = run.lease_holder = null
    else if (change.guard.kind === 'lease' && to.leaseMs !== undefined) run.lease_until = extendedLease(run, now, to.leaseMs)

    if (to.reason !== undefined) run.reason = to.reason
    if (to.currentStep !== undefined) run.current_step = to.currentStep
    run.claims_without_progress = claimsAfter(run.claims_without_progress, to)
    if (to.startsTape === true) {
      run.tape_seq = positions.firstSeq
      run.started_at ??= now
      if (to.hasNewInput === true) {
        run.input_seq = positions.firstSeq
        run.input_id = firstId
      }
    }
    if (to.setsEnd === true) run.end_seq = positions.lastSeq
    if (to.due !== undefined) run.due_at = dueAtOf(to.due, now)
    if (to.waitKey !== undefined) {
      run.wait_key = to.waitKey
      if (!operations.isOpen(run.owner, to.waitKey)) run.due_at = now
    }
    if (to.status === 'waiting' && hasMail) run.due_at = dueBy(run.due_at, now)
    const isOver = run.finished_at !== null || (to.startsTape === true && to.hasNewInput === true)
    if (isOver) operations.settleWhatIsOpen(run.owner, run.run_id, now)
    saveRun(before, run)
  }

  function saveRun(before: RunRow, run: Mutable<RunRow>): void {
    run.claim_at = run.finished_at === null ? line.claimAtOf(run) : null
    if (!hasMoved(before, run)) {
      runs.saveProgress(run)
      return
    }
    runs.saveAll(run)
    if (run.finished_at !== null && before.finished_at === null) line.letNextGo(run.thread)
    if (run.finished_at === null && before.finished_at !== null) line.holdOthersBack(run)
  }

  function createRun(create: NewRun, now: number, hints: Hint[]) {
    const { owner, threadId } = create
    const existing = runs.findNamed(owner, create.id)
    if (existing !== undefined) return { run: toRun(existing), isNew: false }

    const thread = threads.open(threads.find(owner, threadId), { owner, threadId }, now)
    const seq = thread.head_seq + 1
    const row = newRunRow(create, { thread, seq, logId: log.nextId(), now })
    const isFirst = line.firstOf(thread.id) === undefined
    const id = runs.insert({ ...row, claim_at: isFirst ? row.due_at : null, ready: isFirst ? readyOf(row, now) : 0 })
    log.append(thread, { run: id, runId: create.id, events: [create.queued], isCheckpoint: true, isLeased: false })
    hints.push({ owner, threadId, runId: create.id, isClaimable: true })
    return { run: runOf(row, threadId, null), isNew: true }
  }

  return {
    apply,
    applyAll,
    startTransaction: () => {
      log.startTransaction()
      queues.startTransaction()
    },
    endTransaction: log.endTransaction,
    log,
    runs,
    threads,
    deliver,
    chunks,
    rememberLease: step.remember,
    line,
    operations,
  }
}

export type Commit = ReturnType<typeof prepareCommit>

interface Found {
  readonly thread: ThreadRow | undefined
  readonly run: RunRow | undefined
  readonly now: number
  readonly hints: Hint[]
}

interface Delivery {
  readonly run: RunRow | undefined
  readonly lastMessage: number
  readonly now: number
  readonly hints: Hint[]
}

interface RunWrite {
  readonly change: Change
  readonly to: RunChange
  readonly positions: { readonly firstSeq: number; readonly lastSeq: number }
  /** Id of the first event's record. */
  readonly firstId: number
  /** Messages later than `mailSeen` wait, those that the change has dealt with aside. */
  readonly hasMail: boolean
  readonly now: number
}

/** A holder's step, the path that is taken a thousand times for every other: one look at the guard, one insert, one new head. */
function prepareStep(db: Database, append: Append) {
  const findNumber = prepare(
    db,
    `SELECT r.id FROM holdfast_runs r CROSS JOIN holdfast_threads t ON t.id = r.thread
     WHERE r.owner = ? AND r.run_id = ? AND r.lease_id = ? AND t.thread_id = ?`,
  ).pluck()
  const findHeld = prepare(
    db,
    `SELECT r.id AS run, r.lease_until, r.current_step, r.claims_without_progress, r.last_message, t.id, t.head_seq, t.head_id, t.written_seq
     FROM holdfast_runs r CROSS JOIN holdfast_threads t ON t.id = r.thread
     WHERE r.id = ? AND r.epoch = ? AND r.lease_id = ?`,
  )
  const saveStep = prepare(db, 'UPDATE holdfast_runs SET current_step = ?, claims_without_progress = ? WHERE id = ?')
  const saveFirstStep = prepare(
    db,
    `UPDATE holdfast_runs SET tape_seq = ?, started_at = coalesce(started_at, ?), current_step = ?, claims_without_progress = ?
     WHERE id = ?`,
  )
  // The one that touches an index; so a lease is extended only when a third of it has gone by.
  const extendLease = prepare(
    db,
    'UPDATE holdfast_runs SET lease_until = ?, claim_at = CASE WHEN claim_at IS NULL THEN NULL ELSE ? END WHERE id = ?',
  )

  /**
   * Runs by number, which their leases end in. Neither number nor lease is ever used again, so an old entry finds nothing; the guard
   * itself is never remembered.
   */
  const known = new Map<number, NamedLease>()

  function numberOf({ owner, runId, threadId }: Change, leaseId: string): number | undefined {
    const number = numberInLease(leaseId)
    const lease = known.get(number)
    if (lease?.leaseId === leaseId && lease.runId === runId && lease.threadId === threadId && lease.owner === owner) return number
    const run = findNumber.get(owner, runId, leaseId, threadId) as number | undefined
    if (run === undefined || runId === null) return undefined
    remember(run, { leaseId, owner, runId, threadId })
    return run
  }

  /** A claim knows whose the number is: the first step need not look for it. */
  function remember(run: number, lease: NamedLease): void {
    if (known.size >= 10_000) known.clear()
    known.set(run, lease)
  }

  function apply(change: Change, now: number, hints: Hint[]): Committed {
    const { owner, threadId, runId, guard, events, run: to } = change
    if (guard.kind !== 'lease') return { ok: false, refusal: 'lease_lost' }
    const held = findHeld.get(numberOf(change, guard.leaseId), guard.epoch, guard.leaseId) as HeldRow | undefined
    if (held === undefined || hasForgotten(held, guard)) return { ok: false, refusal: 'lease_lost' }

    const thread = {
      id: held.id,
      owner,
      thread_id: threadId,
      head_seq: held.head_seq,
      head_id: held.head_id,
    }
    const { isCheckpoint } = change
    const { head_seq: lastSeq } = append(thread, { run: held.run, runId, events, isCheckpoint, isLeased: true })
    const firstSeq = events.length > 0 ? held.head_seq + 1 : lastSeq
    if (to !== undefined) {
      const currentStep = to.currentStep === undefined ? held.current_step : to.currentStep
      const claims = claimsAfter(held.claims_without_progress, to)
      if (to.startsTape === true) saveFirstStep.run(firstSeq, now, currentStep, claims, held.run)
      else if (currentStep !== held.current_step || claims !== held.claims_without_progress)
        saveStep.run(currentStep, claims, held.run)
      if (to.leaseMs !== undefined) {
        const leaseUntil = extendedLease(held, now, to.leaseMs)
        if (leaseUntil !== held.lease_until) extendLease.run(leaseUntil, leaseUntil, held.run)
      }
    }
    hints.push(runId === null ? { owner, threadId } : { owner, threadId, runId })
    return { ok: true, firstSeq, lastSeq, now, created: [], hasMail: isMail(held.last_message, change) }
  }

  return { apply, remember, numberOf, forget: (run: number) => known.delete(run) }
}

interface NamedLease {
  readonly leaseId: string
  readonly owner: string
  readonly runId: string
  readonly threadId: string
}

interface HeldRow extends Head {
  readonly run: number
  readonly lease_until: number
  readonly current_step: string | null
  readonly claims_without_progress: number
  readonly last_message: number
  readonly id: number
  readonly written_seq: number
}

/** The runs of the next changes, where these are as many plain starts as are written together. */
function startsFrom(changes: readonly Change[], index: number): NewRun[] | null {
  if (index + startsAtOnce > changes.length) return null
  const starts: NewRun[] = []
  for (let i = index; i < index + startsAtOnce; i++) {
    const change = changes[i] as Change
    if (!isStart(change)) return null
    starts.push(change.creates[0])
  }
  return starts
}

/** Whether a holder has seen commits that are no longer there. */
function hasForgotten(thread: { readonly written_seq: number }, { writtenSeq = 0 }: { readonly writtenSeq?: number }): boolean {
  return thread.written_seq < writtenSeq
}

function hasOtherHead(thread: ThreadRow | undefined, { headSeq }: { readonly headSeq?: number }): boolean {
  return headSeq !== undefined && thread?.head_seq !== headSeq
}

function isPlainStep(change: Change): boolean {
  const { guard, run } = change
  if (guard.kind !== 'lease' || !isOfRunAlone(change)) return false
  if (run === undefined) return true
  const isStill = run.status === undefined && run.reason === undefined && run.due === undefined && run.waitKey === undefined
  return isStill && run.hasNewInput === undefined && run.setsEnd === undefined
}

function prepareRuns(db: Database) {
  const find = prepare(db, 'SELECT * FROM holdfast_runs WHERE owner = ? AND run_id = ?')
  const findNamed = prepare(db, `${selectRun} WHERE r.owner = ? AND r.run_id = ?`)
  const laterStart = prepare(
    db,
    `SELECT 1 FROM holdfast_runs INDEXED BY holdfast_runs_by_thread WHERE thread = ? AND id > ? AND (started_at IS NOT NULL OR status = 'running') LIMIT 1`,
  )
  const holder = prepare(
    db,
    `SELECT 1 FROM holdfast_runs INDEXED BY holdfast_runs_in_line WHERE thread = ? AND finished_at IS NULL AND status = 'running' LIMIT 1`,
  )
  const inLine = prepare(
    db,
    'SELECT 1 FROM holdfast_runs INDEXED BY holdfast_runs_in_line WHERE thread = ? AND finished_at IS NULL AND run_id IS NOT ? LIMIT 1',
  )
  const newColumns = runColumns.filter((column) => column !== 'id')
  const insertSql = `INSERT INTO holdfast_runs (${newColumns.join(', ')}) VALUES (${newColumns.map(() => '?').join(', ')})`
  const insert = prepare(db, insertSql)
  const progressColumns = [
    'reason',
    'current_step',
    'claims_without_progress',
    'input_seq',
    'input_id',
    'tape_seq',
    'end_seq',
    'started_at',
  ] as const
  const allColumns = [...progressColumns, ...movingColumns] as const
  const saveProgress = prepare(db, updateSql(progressColumns))
  const saveAll = prepare(db, updateSql(allColumns))

  return {
    find: (owner: string, runId: string) => find.get(owner, runId) as RunRow | undefined,
    findNamed: (owner: string, runId: string) => findNamed.get(owner, runId) as NamedRunRow | undefined,
    /** A later run that was claimed and wrote nothing yet counts too: it would run beside the earlier one. */
    hasLaterStart: (run: RunRow) => laterStart.get(run.thread, run.id) !== undefined,
    hasHolder: (thread: number) => holder.get(thread) !== undefined,
    holdsLine: (thread: number, exceptRunId: string | null) => inLine.get(thread, exceptRunId) !== undefined,
    insert: (row: RunRow) => Number(insert.run(newColumns.map((column) => row[column])).lastInsertRowid),
    saveProgress: (row: RunRow) => saveProgress.run([...progressColumns.map((column) => row[column]), row.id]),
    saveAll: (row: RunRow) => saveAll.run([...allColumns.map((column) => row[column]), row.id]),
  }
}

/** Columns that indexes look at, or that move together with one that they do. */
const movingColumns = [
  'status',
  'lease_id',
  'lease_until',
  'lease_holder',
  'due_at',
  'claim_at',
  'wait_key',
  'finished_at',
] as const

function hasMoved(before: RunRow, after: RunRow): boolean {
  return movingColumns.some((column) => before[column] !== after[column])
}

function updateSql(columns: readonly string[]): string {
  return `UPDATE holdfast_runs SET ${columns.map((column) => `${column} = ?`).join(', ')} WHERE id = ?`
}

function prepareThreads(db: Database) {
  const find = prepare(db, 'SELECT * FROM holdfast_threads WHERE owner = ? AND thread_id = ?')
  const insert = prepare(
    db,
    `INSERT INTO holdfast_threads (owner, thread_id, head_seq, state_version, incarnation, base_seq, epoch_floor, created_at)
     VALUES (?, ?, 0, 0, 1, 0, 0, ?) RETURNING *`,
  )
  const revive = prepare(
    db,
    'UPDATE holdfast_threads SET incarnation = incarnation + 1, base_seq = head_seq, deleted_at = NULL WHERE id = ? RETURNING *',
  )
  const setStateVersion = prepare(db, 'UPDATE holdfast_threads SET state_version = ? WHERE id = ?')
  const saveSnapshot = prepare(
    db,
    'INSERT OR REPLACE INTO holdfast_snapshots (thread, seq, state, state_version, checksum) VALUES (?, ?, ?, ?, ?)',
  )

  return {
    find: (owner: string, threadId: string) => find.get(owner, threadId) as ThreadRow | undefined,
    /** The thread as it is; a new one where there is none; a new life where it was deleted. */
    open(found: ThreadRow | undefined, { owner, threadId }: { owner: string; threadId: string }, now: number): ThreadRow {
      if (found === undefined) return insert.get(owner, threadId, now) as ThreadRow
      return found.deleted_at === null ? found : (revive.get(found.id) as ThreadRow)
    },
    setStateVersion: (id: number, stateVersion: number) => setStateVersion.run(stateVersion, id),
    saveSnapshot(thread: ThreadRow, snapshot: { seq: number; state: string | Uint8Array; stateVersion: number }): void {
      const { seq, state, stateVersion } = snapshot
      saveSnapshot.run(thread.id, seq, state, stateVersion, snapshotChecksum(thread, snapshot))
    },
  }
}

/** Takes messages that were dealt with out of the inbox, and says which is the latest that is left, 0 for none. */
function prepareUnread(db: Database) {
  const remove = prepare(db, 'DELETE FROM holdfast_inbox WHERE id = ? AND run = ?')
  const last = prepare(db, 'SELECT coalesce(max(id), 0) FROM holdfast_inbox WHERE run = ?').pluck()
  const setLastMessage = prepare(db, 'UPDATE holdfast_runs SET last_message = ? WHERE id = ?')
  const lastOf = (run: RunRow) => last.get(run.id) as number

  return {
    lastOf,
    settle(run: RunRow, read: readonly number[] = []): number {
      if (read.length === 0) return run.last_message
      for (const id of read) remove.run(id, run.id)
      const lastMessage = lastOf(run)
      if (lastMessage !== run.last_message) setLastMessage.run(lastMessage, run.id)
      return lastMessage
    },
  }
}

/** Whether a run's latest message is one that the writer of a change does not know. */
function isMail(lastMessage: number, { mailSeen = 0 }: Change): boolean {
  return lastMessage > mailSeen
}

function startingRow(create: NewRun, logId: number, now: number): StartingRow {
  const row: Mutable<RunRow> = newRunRow(create, { thread: { id: 0, epoch_floor: 0 }, seq: 1, logId, now })
  row.ready = readyOf(row, now)
  return Object.assign(row, { threadId: create.threadId })
}

/** A new run takes turns as soon as it is due. */
function readyOf({ due_at }: RunRow, now: number): number {
  return due_at !== null && due_at <= now ? 2 : 0
}

function newRunRow(
  create: NewRun,
  { thread, seq, logId, now }: { thread: Pick<ThreadRow, 'id' | 'epoch_floor'>; seq: number; logId: number; now: number },
): RunRow {
  const { owner, id, workflow, version, queue, priority, fingerprint } = create
  return {
    id: 0,
    owner,
    run_id: id,
    thread: thread.id,
    workflow,
    version,
    status: 'pending',
    reason: null,
    queue,
    priority,
    fingerprint,
    epoch: thread.epoch_floor,
    lease_id: null,
    lease_until: null,
    lease_holder: null,
    due_at: dueAtOf(create.due, now),
    claim_at: null,
    ready: 0,
    wait_key: null,
    claims_without_progress: 0,
    current_step: null,
    input_seq: seq,
    input_id: logId,
    tape_seq: null,
    end_seq: null,
    created_at: now,
    started_at: null,
    finished_at: null,
    last_message: 0,
  }
}

/**
 * When a lease that is kept ends after this commit. One with two thirds left stays as it is: moving it would write an index
 * at every step. A longer one than was asked for is shortened.
 */
function extendedLease({ lease_until }: { readonly lease_until: number | null }, now: number, leaseMs: number): number {
  const left = (lease_until ?? 0) - now
  return lease_until !== null && left >= (leaseMs * 2) / 3 && left <= leaseMs ? lease_until : now + leaseMs
}

function claimsAfter(claims: number, { hasProgress, uncountClaim }: RunChange): number {
  if (hasProgress === true) return 0
  return uncountClaim === true ? Math.max(0, claims - 1) : claims
}

function dueAtOf(due: Due, now: number): number | null {
  if (due === 'never') return null
  return 'at' in due ? due.at : now + due.inMs
}
