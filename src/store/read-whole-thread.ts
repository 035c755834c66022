import { HoldfastError } from '../model/errors.ts'
import type { KeyedRecord } from '../model/record.ts'
import { compareRecords } from './record-query.ts'
import type { Snapshot, Store, ThreadKey } from './store.ts'
import type { RunChunks, ThreadImage, WholeThread } from './thread-image.ts'

/** A thread with all that belongs to it, as it was at one moment. Null if there never was one. */
export async function readWholeThread(store: Store, key: ThreadKey): Promise<WholeThread | null> {
  const { owner, threadId } = key
  const image = await store.readThreadImage({ owner, threadId })
  if (image === null) return null
  const { headSeq, baseSeq, deletedAt } = image.thread
  if (deletedAt !== null) return { ...image, log: [], checkpoints: [], snapshots: [], chunks: [], records: [] }
  const log = await store.readLog({ owner, threadId, toSeq: headSeq })
  const checkpoints = (await store.listCheckpoints({ owner, threadId })).filter(({ seq }) => seq <= headSeq)
  const snapshots: Snapshot[] = []
  for (let atSeq = headSeq; atSeq > baseSeq; ) {
    const snapshot = await store.readSnapshot({ owner, threadId, atSeq })
    if (snapshot === null) break
    snapshots.unshift(snapshot)
    atSeq = snapshot.seq - 1
  }
  const chunks = await readAllChunks(store, image)
  const length = image.runs.flatMap(({ streams }) => streams).reduce((sum, stream) => sum + stream.length, 0)
  if (log.length !== headSeq - baseSeq || chunks.reduce((sum, { size }) => sum + size, 0) !== length) {
    throw new HoldfastError('conflict', `Thread "${threadId}" was deleted while it was being read. Read it again.`, {
      retryable: true,
      details: { threadId },
    })
  }
  const records = await readRecordsOf(store, { owner, threadId })
  const labelled = checkpoints.map(({ seq, label, bytes }) => ({ seq, label, bytes }))
  return { ...image, log, checkpoints: labelled, snapshots, chunks, records }
}

async function readRecordsOf(store: Store, thread: ThreadKey): Promise<KeyedRecord[]> {
  const records: KeyedRecord[] = []
  for (let cursor: string | undefined; ; ) {
    const page = await store.scanRecords({ thread, limit: 500, ...(cursor !== undefined && { cursor }) })
    records.push(...page.items)
    cursor = page.cursor
    if (cursor === undefined) return records.sort(compareRecords)
  }
}

/** Of all runs, up to where their streams were in the image. */
async function readAllChunks(store: Store, { thread: { owner }, runs }: ThreadImage): Promise<RunChunks[]> {
  const chunks: RunChunks[] = []
  for (const { run, streams } of runs) {
    for (const { stream, length } of streams) {
      for (let from = 0; from < length; ) {
        const records = await store.readChunks({ owner, runId: run.id, stream, from, limit: 100 })
        const last = records.at(-1)
        if (last === undefined) break
        for (const record of records) if (record.offset < length) chunks.push({ ...record, runId: run.id })
        from = last.offset + last.size
      }
    }
  }
  return chunks
}
