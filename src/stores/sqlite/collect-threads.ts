import type { CollectRequest, CollectVerdict, Hint } from '../../store/store.ts'
import { type Database, prepare } from './connection.ts'
import type { prepareDeleteThread } from './threads.ts'

/** Removes threads that nothing needs any more, inside an open write transaction. */
export function prepareCollectThreads(db: Database, deleteThread: ReturnType<typeof prepareDeleteThread>) {
  const find = prepare(db, 'SELECT id, head_seq, created_at FROM holdfast_threads WHERE owner = ? AND thread_id = ?')
  const hasUnfinished = prepare(
    db,
    'SELECT EXISTS (SELECT 1 FROM holdfast_runs WHERE thread = ? AND finished_at IS NULL)',
  ).pluck()
  const hasOperation = prepare(
    db,
    `SELECT EXISTS (SELECT 1 FROM holdfast_operations WHERE owner = ? AND thread_id = ? AND (closed_at IS NULL OR closed_at >= ?))`,
  ).pluck()
  const hasLabel = prepare(db, 'SELECT EXISTS (SELECT 1 FROM holdfast_labels WHERE thread = ?)').pluck()
  const deleteOperations = prepare(db, 'DELETE FROM holdfast_operations WHERE owner = ? AND thread_id = ?')
  const deleteRow = prepare(db, 'DELETE FROM holdfast_threads WHERE id = ?')

  function judge(
    thread: Found,
    { owner, threadId, headSeq }: CollectRequest['threads'][number],
    { closedBefore, keepsLabelled, isForced }: CollectRequest,
  ): CollectVerdict {
    if (isForced === true) return 'removed'
    if (thread.head_seq !== headSeq) return 'changed'
    if (hasUnfinished.get(thread.id) === 1) return 'unfinished'
    if (hasOperation.get(owner, threadId, closedBefore) === 1) return 'operations'
    if (thread.created_at >= closedBefore) return 'changed'
    return keepsLabelled && hasLabel.get(thread.id) === 1 ? 'labelled' : 'removed'
  }

  return function collect(request: CollectRequest, hints: Hint[]): CollectVerdict[] {
    return request.threads.map((key) => {
      const { owner, threadId } = key
      const thread = find.get(owner, threadId) as Found | undefined
      if (thread === undefined) return 'gone'
      const verdict = judge(thread, key, request)
      if (verdict !== 'removed' || request.isDryRun) return verdict
      deleteThread({ owner, threadId, at: 0 }, hints)
      deleteOperations.run(owner, threadId)
      deleteRow.run(thread.id)
      return verdict
    })
  }
}

interface Found {
  readonly id: number
  readonly head_seq: number
  readonly created_at: number
}
