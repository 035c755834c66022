import type { ChunkRecord, NewChunks } from '../../model/stream.ts'
import { droppedChunks, isDropped, verifyGapless } from '../../model/stream.ts'
import type { ChunkQuery, KeptStream, StreamLength, StreamQuery, ThreadKey } from '../../store/store.ts'
import { copyPayload, findRun, findThread, type RunRow, type Tables } from './tables.ts'

export function appendChunks(row: RunRow, chunks: readonly NewChunks[]): void {
  for (const one of chunks) {
    const last = row.streams.get(one.stream)?.at(-1)
    restoreChunks(row, { ...one, offset: last === undefined ? 0 : last.offset + last.size })
  }
}

export function restoreChunks(row: RunRow | undefined, record: ChunkRecord): void {
  if (row === undefined) return
  const records = row.streams.get(record.stream) ?? []
  records.push({ ...record, payload: copyPayload(record.payload) })
  row.streams.set(record.stream, records)
}

export function readChunks(tables: Tables, query: ChunkQuery): readonly ChunkRecord[] {
  const { owner, runId, stream, from, limit, abortsOnly } = query
  const records = findRun(tables, owner, runId)?.streams.get(stream) ?? []
  const found =
    abortsOnly === true
      ? records.filter(({ offset, payload }) => offset >= from && payload === null)
      : records.slice(firstAfter(records, from))
  const copies = found.slice(0, Math.max(0, limit)).map((record) => ({ ...record, payload: copyPayload(record.payload) }))
  return abortsOnly === true ? copies : verifyGapless(query, copies, from)
}

/** How far the streams of a run have come, in order of their names. */
export function streamsOf({ streams }: RunRow): { stream: string; length: number }[] {
  const heads = [...streams].map(([stream, records]) => {
    const last = records.at(-1) as ChunkRecord
    return { stream, length: last.offset + last.size }
  })
  return heads.sort((a, b) => Buffer.compare(Buffer.from(a.stream), Buffer.from(b.stream)))
}

export function listStreams(tables: Tables, { owner, threadId, runIds, endedBefore, limit }: StreamQuery): readonly KeptStream[] {
  const rows = findThread(tables, owner, threadId)?.runs ?? []
  const kept = rows.flatMap((row) => {
    const { id: runId, workflow, status, finishedAt } = row.run
    if (finishedAt === null || finishedAt >= (endedBefore ?? Number.POSITIVE_INFINITY)) return []
    if (runIds !== undefined && !runIds.includes(runId)) return []
    const streams = streamsOf(row).filter(({ stream }) => row.streams.get(stream)?.some((record) => !isDropped(record)))
    return streams.map(({ stream, length }) => ({ runId, stream, length, workflow, status, finishedAt }))
  })
  return kept.slice(0, Math.max(0, limit))
}

export function dropChunks(
  tables: Tables,
  { owner, threadId, streams }: ThreadKey & { readonly streams: readonly StreamLength[] },
): number {
  const dropped = streams.filter(({ runId, stream, length }) => {
    const row = findThread(tables, owner, threadId)?.runs.find(({ run }) => run.id === runId)
    const kept = row?.streams.get(stream)
    const last = kept?.at(-1)
    if (row === undefined || row.run.finishedAt === null || kept === undefined || last === undefined) return false
    if (kept.every(isDropped) || last.offset + last.size !== length) return false
    row.streams.set(stream, [droppedChunks(stream, length)])
    return true
  })
  return dropped.length
}

/** Index of the first record that ends after this offset. */
function firstAfter(records: readonly ChunkRecord[], from: number): number {
  let [low, high] = [0, records.length]
  while (low < high) {
    const middle = (low + high) >> 1
    const { offset, size } = records[middle] as ChunkRecord
    if (offset + size > from) high = middle
    else low = middle + 1
  }
  return low
}
