import { pairKey } from '../../model/ids.ts'
import type { CollectRequest, CollectVerdict, ThreadKey } from '../../store/store.ts'
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

export function collectThreads(tables: Tables, request: CollectRequest): readonly CollectVerdict[] {
  return request.threads.map((key) => {
    const verdict = judge(tables, key, request)
    if (verdict !== 'removed' || request.isDryRun) return verdict
    const { owner, threadId } = key
    deleteThread(tables, { owner, threadId, at: 0 })
    for (const [name, one] of tables.operations) if (isOf(one, key)) tables.operations.delete(name)
    tables.threads.delete(pairKey(owner, threadId))
    return verdict
  })
}

function judge(
  tables: Tables,
  { owner, threadId, headSeq }: CollectRequest['threads'][number],
  { closedBefore, keepsLabelled, isForced }: CollectRequest,
): CollectVerdict {
  const row = findThread(tables, owner, threadId)
  if (row === undefined) return 'gone'
  if (isForced === true) return 'removed'
  if (row.thread.headSeq !== headSeq) return 'changed'
  if (row.unfinished.length > 0) return 'unfinished'
  const operations = [...tables.operations.values()].filter((one) => isOf(one, { owner, threadId }))
  if (operations.some(({ closedAt }) => closedAt === null || closedAt >= closedBefore)) return 'operations'
  if (row.thread.createdAt >= closedBefore) return 'changed'
  return keepsLabelled && row.checkpoints.some(({ label }) => label !== null) ? 'labelled' : 'removed'
}

function isOf({ owner, threadId }: ThreadKey, thread: ThreadKey): boolean {
  return owner === thread.owner && threadId === thread.threadId
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
