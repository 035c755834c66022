import type { ChunkRecord, NewChunks } from '../../model/stream.ts'
import { verifyGapless } from '../../model/stream.ts'
import type { ChunkQuery } from '../../store/store.ts'
import { copyPayload, findRun, type RunRow, type Tables } from './tables.ts'

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
  const found = records.slice(firstAfter(records, from)).filter(({ payload }) => abortsOnly !== true || payload === null)
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
