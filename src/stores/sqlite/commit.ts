import { judgeGuard } from '../../model/guard.ts'
import type { Change, Committed } from '../../store/change.ts'
import { hintOfChange } from '../../store/hints.ts'
import type { Delivery, Hint, TransactRequest } from '../../store/store.ts'
import { prepareChangeRun } from './change-run.ts'
import { prepareChunks } from './chunks.ts'
import type { Database } from './connection.ts'
import { prepareDeliver, prepareUnread } from './inbox.ts'
import { prepareSaveLabel } from './labels.ts'
import { LogWriter } from './log-writer.ts'
import { NewRuns } from './new-runs.ts'
import { prepareOperations } from './operations.ts'
import { prepareQueueSpace } from './queues.ts'
import { prepareRecords } from './records.ts'
import { type FoundRun, Runs } from './runs.ts'
import { prepareThreadQueue } from './thread-queue.ts'
import { type FoundThread, prepareThreads } from './thread-rows.ts'

/**
 * Applies changes inside an open write transaction. A change is judged before any of it is written, so that a refused one needs no
 * rollback and does not hurt its neighbours in the batch.
 */
export class Commits {
  readonly #parts: Parts

  constructor(db: Database) {
    this.#parts = prepareParts(db)
  }

  /** Whatever else writes in the same transactions. */
  get parts(): Parts {
    return this.#parts
  }

  startTransaction(): void {
    this.#parts.log.startTransaction()
    this.#parts.space.startTransaction()
  }

  endTransaction(): void {
    this.#parts.log.endTransaction()
  }

  deliver(message: Delivery, now: number, hints: Hint[]) {
    return this.#parts.deliver(message, now, hints)
  }

  /** `hints` collects what to tell subscribers after the flush. */
  applyAll(changes: readonly Change[], now: number, hints: Hint[]): Committed[] {
    return changes.map((change) => this.apply(change, now, hints))
  }

  apply(change: Change, now: number, hints: Hint[]): Committed {
    const found = this.#find(change)
    const { operations, records, newRuns } = this.#parts
    const refusal = this.#judge(change, found)
    if (refusal !== null) return { ok: false, refusal }
    const operationRefusal = operations.refuse(change)
    if (operationRefusal !== null) return operationRefusal
    const recordRefusal = change.records === undefined ? null : records.refuse(change, now)
    if (recordRefusal !== null) return recordRefusal
    const createRefusal = newRuns.refuse(change)
    if (createRefusal !== null) return { ok: false, refusal: createRefusal }
    return this.#write(change, found, { now, hints })
  }

  /** Whether a change under this lease would be written now. */
  isHeld({ owner, threadId, runId, epoch, leaseId, writtenSeq }: TransactRequest): boolean {
    const guard = { kind: 'lease' as const, epoch, leaseId, ...(writtenSeq !== undefined && { writtenSeq }) }
    const change = { owner, threadId, runId, guard, events: [], isCheckpoint: false }
    return this.#judge(change, this.#find(change)) === null
  }

  #find(change: Change): Found {
    const { owner, threadId, runId, guard } = change
    const { runs, threads } = this.#parts
    if (guard.kind === 'lease' && runId !== null) {
      const held = runs.findLeased({ owner, runId }, guard.leaseId)
      return held?.threadId === threadId ? held : { thread: undefined, run: undefined }
    }
    return {
      thread: concernsThread(change) ? threads.find(change) : undefined,
      run: runId === null ? undefined : runs.find({ owner, runId }),
    }
  }

  #judge({ guard, runId, events, run }: Change, found: Found) {
    const { hasLaterStart, isHeld } = this.#parts.runs
    return judgeGuard(guard, {
      thread: found.thread,
      run: found.thread !== undefined && found.run?.thread === found.thread.thread ? found.run : undefined,
      namesRun: runId !== null,
      writes: events.length > 0 || run !== undefined,
      hasLaterStart,
      isHeld,
    })
  }

  #write(change: Change, found: Found, { now, hints }: Writing): Committed {
    const { owner, runId, events, chunks, creates } = change
    const { threads, log, operations, newRuns, changeRun } = this.#parts
    const { run } = found
    const opensThread = events.length > 0 || change.guard.kind === 'thread'
    const thread = opensThread ? threads.open(found.thread, change, now) : found.thread
    const head = thread?.headSeq ?? 0
    const positions = { firstSeq: events.length > 0 ? head + 1 : head, lastSeq: head + events.length }
    const firstId = log.nextId()
    if (thread !== undefined) this.#append(change, thread, run?.run ?? null)
    const hasWoken = operations.apply(change, now)
    if (change.records !== undefined) this.#parts.records.apply(change, now)
    let lastMessage = 0
    if (run !== undefined && runId !== null) {
      lastMessage = this.#removeRead(run, change)
      if (change.run !== undefined) {
        const { firstSeq, lastSeq } = positions
        const isLeased = change.guard.kind === 'lease'
        const isOpen = (operationKey: string) => operations.isOpen(owner, operationKey)
        const context = { isLeased, firstSeq, lastSeq, firstId, hasMail: isMail(lastMessage, change), isOpen, now }
        changeRun({ owner, runId }, run, change.run, context)
      }
      if (chunks !== undefined) this.#parts.chunks.append({ id: run.run, owner, runId }, chunks)
    }
    hints.push(hintOfChange(change, hasWoken))
    const created = creates === undefined ? [] : creates.map((create) => newRuns.create(create, now, hints))
    if (change.delivers !== undefined) {
      for (const message of change.delivers) this.deliver(message, now, hints)
      if (run !== undefined) lastMessage = this.#parts.unread.lastOf(run.run)
    }
    const seqs = events.length > 0 || creates === undefined ? positions : this.#headOf(change, created)
    return { ok: true, firstSeq: seqs.firstSeq, lastSeq: seqs.lastSeq, now, created, hasMail: isMail(lastMessage, change) }
  }

  #append(change: Change, found: FoundThread, run: number | null): void {
    const { owner, threadId, runId, guard, events, isCheckpoint, snapshot, label } = change
    const { thread, headSeq, headRecord } = found
    const { log, threads, saveLabel } = this.#parts
    log.append(
      { thread, owner, threadId, headSeq, headRecord },
      { run, runId, events, isCheckpoint, isLeased: guard.kind === 'lease' },
    )
    const seq = headSeq + events.length
    const stateVersion = change.stateVersion ?? found.stateVersion
    if (stateVersion !== found.stateVersion) threads.setStateVersion(thread, stateVersion)
    if (snapshot !== undefined) threads.saveSnapshot({ owner, threadId, thread }, { seq, state: snapshot, stateVersion })
    if (label !== undefined && isCheckpoint && events.length > 0) saveLabel(thread, { seq, label, run })
  }

  /** Returns the run's latest message that is left, 0 for none. */
  #removeRead(run: FoundRun, { readMessages }: Change): number {
    if (readMessages === undefined || readMessages.length === 0) return run.unreadMessage
    return this.#parts.unread.remove(run, readMessages)
  }

  /** The head of the change's thread, which new runs may have moved. */
  #headOf({ owner, threadId }: Change, created: Extract<Committed, { ok: true }>['created']) {
    const latest = created.findLast(({ run, isNew }) => isNew && run.owner === owner && run.threadId === threadId)
    const head = latest?.run.inputSeq ?? this.#parts.threads.find({ owner, threadId })?.headSeq ?? 0
    return { firstSeq: head, lastSeq: head }
  }
}

type Parts = ReturnType<typeof prepareParts>

function prepareParts(db: Database) {
  const runs = new Runs(db)
  const threads = prepareThreads(db)
  const threadQueue = prepareThreadQueue(db)
  const operations = prepareOperations(db, threadQueue)
  const log = new LogWriter(db)
  const space = prepareQueueSpace(db)
  return {
    ...{ runs, threads, threadQueue, operations, log, space },
    records: prepareRecords(db),
    newRuns: new NewRuns({ runs, threads, threadQueue, space, log }),
    changeRun: prepareChangeRun({ runs, operations, threadQueue }),
    unread: prepareUnread(db),
    deliver: prepareDeliver(db, threadQueue),
    chunks: prepareChunks(db),
    saveLabel: prepareSaveLabel(db),
  }
}

interface Found {
  readonly thread: FoundThread | undefined
  /** On this thread or another. */
  readonly run: FoundRun | undefined
}

interface Writing {
  readonly now: number
  readonly hints: Hint[]
}

/** Whether the change looks at its thread or writes to it. Runs that it creates bring their own. */
function concernsThread({ guard, events, run, snapshot, stateVersion, creates }: Change): boolean {
  if (guard.kind !== 'none' || events.length > 0 || run !== undefined) return true
  return snapshot !== undefined || stateVersion !== undefined || creates === undefined
}

/** Whether a run's latest message is one that the writer of a change does not know. */
function isMail(lastMessage: number, { mailSeen = 0 }: Change): boolean {
  return lastMessage > mailSeen
}
