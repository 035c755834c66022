import { pairKey } from '../../model/ids.ts'
import type { ThreadKey } from '../../store/store.ts'
import { clearLabel } from './commit.ts'
import { settleWhatIsOpen } from './operations.ts'
import { deleteRecordsOf } from './records.ts'
import { findThread, type Tables, tellListeners } from './tables.ts'

export function deleteThread(tables: Tables, { owner, threadId, at }: ThreadKey & { readonly at: number }): boolean {
  const row = findThread(tables, owner, threadId)
  if (row === undefined || row.thread.deletedAt !== null) return false
  for (const deleted of row.runs) {
    row.epochFloor = Math.max(row.epochFloor, deleted.run.epoch)
    tables.runs.delete(pairKey(owner, deleted.run.id))
    tables.waitingRuns.delete(deleted)
    settleWhatIsOpen(tables, deleted, at)
  }
  deleteRecordsOf(tables, { owner, threadId })
  tables.busyThreads.delete(row)
  row.runs = []
  row.unfinished = []
  row.log = []
  row.snapshots = []
  row.checkpoints = []
  row.thread.stateVersion = 0
  row.thread.patchSeq = 0
  row.thread.patchChecksum = 0
  row.thread.deletedAt = at
  tellListeners(tables, { owner, threadId })
  return true
}

export function tag(
  tables: Tables,
  { owner, threadId, seq, label }: ThreadKey & { readonly seq: number; readonly label: string },
) {
  const row = findThread(tables, owner, threadId)
  const checkpoint = row?.checkpoints.find((one) => one.seq === seq)
  if (row === undefined || checkpoint === undefined) return { ok: false }
  clearLabel(row, label)
  checkpoint.label = label
  return { ok: true }
}
