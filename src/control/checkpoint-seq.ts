import { HoldfastError } from '../model/errors.ts'
import { formatCheckpoint, parseCheckpoint } from '../model/ids.ts'
import { backwards } from '../store/log-ranges.ts'
import type { Thread, ThreadKey } from '../store/store.ts'
import type { Core } from './core.ts'

/** The position that `threadId@seq` or a label names in a thread. */
export async function positionOf(core: Core, thread: Thread, checkpoint: string): Promise<number> {
  const { owner, threadId: id } = thread
  if (typeof checkpoint !== 'string') parseCheckpoint(checkpoint)
  if (thread.headSeq === 0) throw noThread(id)
  // A checkpoint of this thread wins over a label that looks like it.
  const isOwn = checkpoint.startsWith(`${id}@`) && /^[1-9]\d*$/.test(checkpoint.slice(id.length + 1))
  const [labelled] = isOwn ? [] : await core.store.listCheckpoints({ owner, threadId: id, label: checkpoint, limit: 1 })
  if (labelled !== undefined) return labelled.seq
  if (!/@\d+$/.test(checkpoint))
    throw new HoldfastError(
      'invalid_id',
      `Thread "${id}" has no checkpoint with the label "${checkpoint}". Give a label of ctx.checkpoint(label) or tag(), or a checkpoint (threadId@seq) that checkpoints() lists.`,
    )
  const { threadId, seq } = parseCheckpoint(checkpoint)
  if (threadId !== id || seq > thread.headSeq || seq <= thread.baseSeq) {
    throw new HoldfastError(
      'invalid_id',
      `Thread "${id}" has no checkpoint "${checkpoint}": its checkpoints are from ${formatCheckpoint(id, thread.baseSeq + 1)} to ${formatCheckpoint(id, thread.headSeq)}.`,
    )
  }
  return seq
}

/** The position of a checkpoint, at which a commit must have ended. */
export async function checkpointSeq(core: Core, key: ThreadKey, checkpoint: string): Promise<number> {
  const thread = await core.store.readThread(key)
  if (thread === null) throw noThread(key.threadId)
  if (thread.deletedAt !== null) throw deletedThread(key.threadId)
  try {
    const seq = await positionOf(core, thread, checkpoint)
    const [at] = await core.store.listCheckpoints({ ...key, afterSeq: seq - 1, limit: 1 })
    if (at?.seq === seq) return seq
    throw new HoldfastError('conflict', `${formatCheckpoint(key.threadId, seq)} is not a checkpoint: no commit ended there.`)
  } catch (error) {
    // It may have been deleted between the reads.
    const now = await core.store.readThread(key)
    throw now?.incarnation === thread.incarnation && now.deletedAt === null ? error : deletedThread(key.threadId)
  }
}

/** The position of the latest checkpoint; null where there is none. What was written since belongs to a commit that is to come. */
export async function latestCheckpoint({ store }: Core, { owner, threadId, baseSeq, headSeq }: Thread): Promise<number | null> {
  for (const range of backwards(baseSeq, headSeq, 20)) {
    const records = await store.readLog({ owner, threadId, ...range, bare: true })
    const last = records.findLast(({ isCheckpoint }) => isCheckpoint)
    if (last !== undefined) return last.seq
  }
  return null
}

function deletedThread(threadId: string): HoldfastError {
  return new HoldfastError('thread_deleted', `Thread "${threadId}" no longer exists, nor do its checkpoints.`)
}

/** Of a thread that never was. */
export function noThread(threadId: string): HoldfastError {
  return new HoldfastError('invalid_id', `There is no thread "${threadId}", and so none of its checkpoints.`, {
    details: { threadId },
  })
}
