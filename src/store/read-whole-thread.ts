import { HoldfastError } from '../model/errors.ts'
import type { WholeThread } from './moving.ts'
import type { Snapshot, Store, ThreadKey } from './store.ts'

/** A thread with all that belongs to it, as it was at one moment. Null if there never was one. */
export async function readWholeThread(store: Store, key: ThreadKey): Promise<WholeThread | null> {
  const { owner, threadId } = key
  const image = await store.readThreadImage({ owner, threadId })
  if (image === null) return null
  const { headSeq, baseSeq, deletedAt } = image.thread
  if (deletedAt !== null) return { ...image, log: [], checkpoints: [], snapshots: [] }
  const log = await store.readLog({ owner, threadId, toSeq: headSeq })
  const checkpoints = (await store.listCheckpoints({ owner, threadId })).filter(({ seq }) => seq <= headSeq)
  const snapshots: Snapshot[] = []
  for (let atSeq = headSeq; atSeq > baseSeq; ) {
    const snapshot = await store.readSnapshot({ owner, threadId, atSeq })
    if (snapshot === null) break
    snapshots.unshift(snapshot)
    atSeq = snapshot.seq - 1
  }
  if (log.length !== headSeq - baseSeq) {
    throw new HoldfastError('conflict', `Thread "${threadId}" was deleted while it was being read. Read it again.`, {
      retryable: true,
      details: { threadId },
    })
  }
  return { ...image, log, checkpoints: checkpoints.map(({ seq, label, bytes }) => ({ seq, label, bytes })), snapshots }
}
