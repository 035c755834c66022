import type { LogRecord } from '../../model/event.ts'
import type { ThreadImage, WholeThread } from '../../store/moving.ts'
import type { Hint, ScanQuery, Thread, ThreadKey } from '../../store/store.ts'
import { prepareReadChunks } from './chunks.ts'
import type { Commit } from './commit.ts'
import { type Database, prepare } from './connection.ts'
import { prepareInsertMessage, prepareNoteDelivered, prepareReadInbox } from './inbox.ts'
import { prepareSaveLabel } from './labels.ts'
import { page, readCursor } from './reads.ts'
import { type NamedRunRow, type OperationRow, selectRun, type ThreadRow, toOperation, toRun, toThread } from './rows.ts'

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
      return page(threadsAfter.all(readCursor(cursor) ?? 0, Math.max(0, limit) + 1) as ThreadRow[], limit, toThread)
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
export function prepareRestore(db: Database, { log, runs, threads, operations, line, chunks }: Commit) {
  const insertThread = prepare(
    db,
    `INSERT INTO holdfast_threads (owner, thread_id, head_seq, written_seq, patch_seq, patch_checksum, state_version, incarnation, base_seq,
       epoch_floor, created_at, deleted_at)
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING *`,
  )
  const saveLabel = prepareSaveLabel(db)
  const insertMessage = prepareInsertMessage(db)
  const noteDelivered = prepareNoteDelivered(db)
  const setLastMessage = prepare(db, 'UPDATE holdfast_runs SET last_message = ? WHERE id = ?')
  const setHead = prepare(db, 'UPDATE holdfast_threads SET head_id = ? WHERE id = ?')

  function isTaken({ thread, runs: images, operations: restored }: WholeThread): boolean {
    const { owner, threadId } = thread
    if (threads.find(owner, threadId) !== undefined) return true
    if (images.some(({ run }) => runs.find(owner, run.id) !== undefined)) return true
    return restored.some(({ key }) => operations.has(owner, key))
  }

  return function restore(whole: WholeThread, hints: Hint[]) {
    if (isTaken(whole)) return { ok: false, refusal: 'conflict' } as const
    const { owner, threadId, headSeq, writtenSeq, patchSeq, patchChecksum } = whole.thread
    const { stateVersion, incarnation, baseSeq, createdAt, deletedAt } = whole.thread
    const thread = insertThread.get(
      ...[owner, threadId, headSeq, writtenSeq, patchSeq, patchChecksum, stateVersion, incarnation, baseSeq],
      ...[whole.epochFloor, createdAt, deletedAt],
    ) as ThreadRow
    // Records get consecutive ids, so a position says which.
    const idOf = (seq: number, next = log.nextId()) => next + seq - baseSeq - 1
    const numbers = new Map<string, number>()
    for (const { run, waitKey, inbox: messages, deliveredIds } of whole.runs) {
      const number = runs.insert({
        ...{ id: 0, owner, run_id: run.id, thread: thread.id, workflow: run.workflow, version: run.version, status: run.status },
        ...{ reason: run.reason, queue: run.queue, priority: run.priority, fingerprint: run.fingerprint, epoch: run.epoch },
        ...{ lease_id: null, lease_until: null, lease_holder: null, due_at: run.dueAt, claim_at: null, wait_key: waitKey },
        ...{ ready: 0 },
        ...{ claims_without_progress: run.claimsWithoutProgress, current_step: run.currentStep, input_seq: run.inputSeq },
        ...{ input_id: idOf(run.inputSeq), tape_seq: run.tapeSeq, end_seq: run.endSeq, created_at: run.createdAt },
        ...{ started_at: run.startedAt, finished_at: run.finishedAt, last_message: 0 },
      })
      numbers.set(run.id, number)
      for (const id of deliveredIds) noteDelivered(number, id)
      for (const message of messages) setLastMessage.run(insertMessage(number, message), number)
    }
    const bytes = new Map(whole.checkpoints.map((checkpoint) => [checkpoint.seq, checkpoint.bytes]))
    const numberOf = ({ runId }: LogRecord) => (runId === null ? null : (numbers.get(runId) ?? null))
    const headId = log.restore(thread, whole.log, { numberOf, bytesAt: (seq) => bytes.get(seq) ?? null })
    setHead.run(headId, thread.id)
    for (const snapshot of whole.snapshots) threads.saveSnapshot(thread, snapshot)
    for (const { seq, label } of whole.checkpoints) {
      const record = whole.log[seq - baseSeq - 1]
      if (label !== null) saveLabel(thread.id, { seq, label, run: record === undefined ? null : numberOf(record) })
    }
    for (const operation of whole.operations) operations.insert(operation)
    for (const { runId, ...record } of whole.chunks) {
      const id = numbers.get(runId)
      if (id !== undefined) chunks.write({ id, owner, run_id: runId }, record)
    }
    line.letNextGo(thread.id)
    hints.push({ owner, threadId, isClaimable: true })
    return { ok: true } as const
  }
}
