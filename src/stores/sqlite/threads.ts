import type { Hint, ThreadKey } from '../../store/store.ts'
import type { Commits } from './commit.ts'
import { type Database, prepare } from './connection.ts'
import { prepareSaveLabel } from './labels.ts'
import { prepareStretches } from './log.ts'
import { isInLog, type ThreadRow } from './rows.ts'

/** Deletes a thread inside an open write transaction: what is left is its row, from which a new life would continue. */
export function prepareDeleteThread(db: Database, { operations, records }: Commits['parts']) {
  const find = prepare(db, 'SELECT * FROM holdfast_threads WHERE owner = ? AND thread_id = ? AND deleted_at IS NULL')
  const highestEpoch = prepare(db, 'SELECT max(epoch) FROM holdfast_runs WHERE thread = ?').pluck()
  // The chain leads through all records of this life; those of earlier lives went with them.
  const deleteLog = prepare(
    db,
    `WITH RECURSIVE back (id, prev) AS (
       SELECT id, prev FROM holdfast_log WHERE id = ?
       UNION ALL
       SELECT l.id, l.prev FROM back JOIN holdfast_log l ON l.id = back.prev WHERE l.thread = ?
     )
     DELETE FROM holdfast_log WHERE id IN (SELECT id FROM back)`,
  )
  const runIds = prepare(db, 'SELECT run_id FROM holdfast_runs WHERE thread = ?').pluck()
  const deleteInbox = prepare(db, 'DELETE FROM holdfast_inbox WHERE run IN (SELECT id FROM holdfast_runs WHERE thread = ?)')
  const deleteDelivered = prepare(
    db,
    'DELETE FROM holdfast_delivered WHERE run IN (SELECT id FROM holdfast_runs WHERE thread = ?)',
  )
  const deleteChunks = prepare(db, 'DELETE FROM holdfast_chunks WHERE run IN (SELECT id FROM holdfast_runs WHERE thread = ?)')
  const deleteRest = ['holdfast_runs', 'holdfast_snapshots', 'holdfast_labels'].map((table) =>
    prepare(db, `DELETE FROM ${table} WHERE thread = ?`),
  )
  const leaveTombstone = prepare(
    db,
    `UPDATE holdfast_threads SET head_record = NULL, state_version = 0, patch_seq = 0, patch_checksum = 0,
       epoch_floor = max(epoch_floor, ?), deleted_at = ? WHERE id = ?`,
  )

  return function deleteThread({ owner, threadId, at }: ThreadKey & { readonly at: number }, hints: Hint[]): boolean {
    const thread = find.get(owner, threadId) as ThreadRow | undefined
    if (thread === undefined) return false
    leaveTombstone.run((highestEpoch.get(thread.id) as number | null) ?? 0, at, thread.id)
    deleteLog.run(thread.head_record, thread.id)
    deleteInbox.run(thread.id)
    deleteDelivered.run(thread.id)
    deleteChunks.run(thread.id)
    for (const runId of runIds.all(thread.id) as string[]) operations.settleWhatIsOpen(owner, runId, at)
    for (const statement of deleteRest) statement.run(thread.id)
    records.deleteOf({ owner, threadId })
    hints.push({ owner, threadId })
    return true
  }
}

/** Labels a checkpoint, inside an open write transaction. */
export function prepareTag(db: Database) {
  const findThread = prepare(db, 'SELECT * FROM holdfast_threads WHERE owner = ? AND thread_id = ? AND deleted_at IS NULL')
  const saveLabel = prepareSaveLabel(db)
  const { readBare } = prepareStretches(db)

  return function tag({ owner, threadId, seq, label }: ThreadKey & { readonly seq: number; readonly label: string }): {
    ok: boolean
  } {
    const thread = findThread.get(owner, threadId) as ThreadRow | undefined
    if (thread === undefined || !isInLog(thread, seq)) return { ok: false }
    const record = readBare(thread, { firstSeq: seq, lastSeq: seq })[0]
    if (record === undefined || record.checkpoint_bytes === null) return { ok: false }
    saveLabel(thread.id, { seq, label, run: record.run })
    return { ok: true }
  }
}
