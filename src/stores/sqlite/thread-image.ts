import type { LogRecord } from '../../model/event.ts'
import { pageOf, readCursor } from '../../store/page.ts'
import type { Hint, ScanQuery, Thread, ThreadKey } from '../../store/store.ts'
import type { RunImage, ThreadImage, WholeThread } from '../../store/thread-image.ts'
import { prepareReadChunks } from './chunks.ts'
import type { Commits } from './commit.ts'
import { type Database, prepare } from './connection.ts'
import { prepareInsertMessage, prepareNoteDelivered, prepareReadInbox } from './inbox.ts'
import { type NamedRunRow, type OperationRow, selectRun, type ThreadRow, toOperation, toRun, toThread } from './rows.ts'
import type { Runs } from './runs.ts'

/** Reads what moves to another store. The caller has opened a read transaction. */
export function prepareImages(db: Database) {
  const findThread = prepare(db, 'SELECT * FROM holdfast_threads WHERE owner = ? AND thread_id = ?')
  const threadsAfter = prepare(db, 'SELECT * FROM holdfast_threads WHERE id > ? ORDER BY id LIMIT ?')
  const runsOf = prepare(db, `${selectRun} WHERE r.thread = ? ORDER BY r.id`)
  const operationsOf = prepare(db, 'SELECT * FROM holdfast_operations WHERE owner = ? AND thread_id = ? ORDER BY key')
  const readInbox = prepareReadInbox(db)
  const deliveredTo = prepare(db, 'SELECT id FROM holdfast_delivered WHERE run = ? ORDER BY id').pluck()
  const { streamsOf } = prepareReadChunks(db)

  return {
    scanThreads({ limit, cursor }: ScanQuery): { items: Thread[]; cursor?: string } {
      const rows = threadsAfter.all(readCursor(cursor), Math.max(0, limit) + 1) as ThreadRow[]
      return pageOf(rows, limit, { numberOf: ({ id }) => id, toItem: toThread })
    },
    readThreadImage({ owner, threadId }: ThreadKey): ThreadImage | null {
      const thread = findThread.get(owner, threadId) as ThreadRow | undefined
      if (thread === undefined) return null
      const runs = runsOf.all(thread.id) as NamedRunRow[]
      return {
        thread: toThread(thread),
        epochFloor: thread.epoch_floor,
        runs: runs.map((row) => ({
          run: toRun(row),
          waitKey: row.wait_key,
          inbox: readInbox({ owner, runId: row.run_id }),
          deliveredIds: deliveredTo.all(row.id) as string[],
          streams: streamsOf(row.id),
        })),
        operations: (operationsOf.all(owner, threadId) as OperationRow[]).map(toOperation),
      }
    },
  }
}

/** Writes a thread as it was elsewhere, inside an open write transaction. Everything is judged before anything is written. */
export function prepareRestore(db: Database, { parts }: Commits) {
  const { log, runs, threads, operations, records, threadQueue, chunks, saveLabel } = parts
  const insertThread = prepareInsertThread(db)
  const restoreRun = prepareRestoreRun(db, runs)
  const setHead = prepare(db, 'UPDATE holdfast_threads SET head_record = ? WHERE id = ?')

  function isTaken({ thread, runs: images, operations: restored, records: kept }: WholeThread, now: number): boolean {
    const { owner } = thread
    if (threads.find(thread) !== undefined) return true
    if (kept.some((record) => records.has({ ...record, owner }, now))) return true
    return images.some(({ run }) => runs.has(owner, run.id)) || restored.some(({ key }) => operations.has(owner, key))
  }

  return function restore(whole: WholeThread, { now, hints }: { readonly now: number; readonly hints: Hint[] }) {
    if (isTaken(whole, now)) return { ok: false, refusal: 'conflict' } as const
    const { owner, threadId, baseSeq } = whole.thread
    const thread = insertThread(whole)
    // Records get consecutive ids, so a position says which.
    const idOf = (seq: number, next = log.nextId()) => next + seq - baseSeq - 1
    const numbers = new Map(whole.runs.map((image) => [image.run.id, restoreRun(image, thread, idOf(image.run.inputSeq))]))
    const bytes = new Map(whole.checkpoints.map((checkpoint) => [checkpoint.seq, checkpoint.bytes]))
    const numberOf = ({ runId }: LogRecord) => (runId === null ? null : (numbers.get(runId) ?? null))
    const place = { thread, owner, threadId }
    const headId = log.restore(place, whole.log, { numberOf, bytesAt: (seq) => bytes.get(seq) ?? null })
    setHead.run(headId, thread)
    for (const snapshot of whole.snapshots) threads.saveSnapshot(place, snapshot)
    for (const { seq, label } of whole.checkpoints) {
      const record = whole.log[seq - baseSeq - 1]
      if (label !== null) saveLabel(thread, { seq, label, run: record === undefined ? null : numberOf(record) })
    }
    for (const operation of whole.operations) operations.insert(operation)
    for (const record of whole.records) records.restore({ ...record, owner })
    for (const { runId, ...record } of whole.chunks) {
      const id = numbers.get(runId)
      if (id !== undefined) chunks.write({ id, owner, runId }, record)
    }
    threadQueue.releaseNext(thread)
    hints.push({ owner, threadId, isClaimable: true })
    return { ok: true } as const
  }
}

/** Returns the thread's number. */
function prepareInsertThread(db: Database) {
  const insert = prepare(
    db,
    `INSERT INTO holdfast_threads (owner, thread_id, head_seq, written_seq, patch_seq, patch_checksum, state_version, incarnation, base_seq,
       epoch_floor, created_at, deleted_at)
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
  )
  return ({ thread, epochFloor }: WholeThread): number => {
    const { owner, threadId, headSeq, writtenSeq, patchSeq, patchChecksum } = thread
    const { stateVersion, incarnation, baseSeq, createdAt, deletedAt } = thread
    const inserted = insert.run(
      ...[owner, threadId, headSeq, writtenSeq, patchSeq, patchChecksum, stateVersion, incarnation, baseSeq],
      ...[epochFloor, createdAt, deletedAt],
    )
    return Number(inserted.lastInsertRowid)
  }
}

/** A run with its messages. Returns its number. */
function prepareRestoreRun(db: Database, runs: Runs) {
  const insertMessage = prepareInsertMessage(db)
  const noteDelivered = prepareNoteDelivered(db)
  const setLastMessage = prepare(db, 'UPDATE holdfast_runs SET unread_message = ? WHERE id = ?')

  return ({ run, waitKey, inbox, deliveredIds }: RunImage, thread: number, inputId: number): number => {
    const number = runs.restore(run, { thread, inputId, waitKey })
    for (const id of deliveredIds) noteDelivered(number, id)
    for (const message of inbox) setLastMessage.run(insertMessage(number, message), number)
    return number
  }
}
