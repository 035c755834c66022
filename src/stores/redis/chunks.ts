import { HoldfastError } from '../../model/errors.ts'
import type { RunStatus } from '../../model/run.ts'
import {
  type ChunkRecord,
  chunksChecksum,
  droppedChunks,
  type NewChunks,
  newChunksChecksum,
  verifyChunks,
  verifyGapless,
} from '../../model/stream.ts'
import type { ChunkQuery, KeptStream, RunKey, StreamLength, StreamQuery, ThreadKey } from '../../store/store.ts'
import type { RunChunks } from '../../store/thread-image.ts'
import type { Connection } from './connection.ts'
import { pairOf, parseLane, splitPair } from './keys.ts'
import type { Reply } from './link.ts'
import type { Packer } from './pack.ts'
import { lengthOf, readPayload } from './payload-bytes.ts'
import { dropChunksScript, listStreamsScript, readChunksScript } from './scripts/chunks.ts'

/**
 * A record is `<offset> <sealed checksum> <header>\n<payload>`, the header being a list in JSON: size, tape, step, count, attempt and the
 * length of the payload. The checksum is sealed with the offset, which the script assigns.
 */

/** In the form that `append_chunks` in scripts/parts/streams.ts reads: stream, size, checksum, whether it voids others, header and payload. */
export function packChunks(packer: Packer, chunks: readonly NewChunks[], key: RunKey): void {
  packer.array(chunks.length)
  for (const one of chunks) {
    packer.array(5).text(one.stream).number(one.size).number(newChunksChecksum(key, one))
    packer.boolean(one.payload === null).bytes(contentOf(one))
  }
}

/** A record as it is kept. */
export function chunksEntryOf(owner: string, record: RunChunks): Buffer {
  const { runId, offset } = record
  return Buffer.concat([Buffer.from(`${offset} ${chunksChecksum({ owner, runId }, record)} `), contentOf(record)])
}

export async function readChunks(connection: Connection, query: ChunkQuery): Promise<readonly ChunkRecord[]> {
  const { owner, runId, stream, from, limit, abortsOnly } = query
  const args = [pairOf(owner, runId), stream, String(from), String(Math.max(0, limit)), abortsOnly === true ? '1' : '']
  const entries = (await connection.repeat(readChunksScript, ...args)) as readonly Buffer[]
  const records = entries.map((entry) => toChunks(entry, query)).filter(({ offset, size }) => offset + size > from)
  return abortsOnly === true ? records : verifyGapless(query, records, from)
}

export async function listStreams(connection: Connection, query: StreamQuery): Promise<readonly KeptStream[]> {
  const { owner, threadId, runIds, endedBefore = Number.MAX_SAFE_INTEGER, limit } = query
  if (limit <= 0 || runIds?.length === 0) return []
  const runs = [...new Set(runIds)].map((runId) => pairOf(owner, runId))
  const args = [pairOf(owner, threadId), String(endedBefore), String(limit), ...runs]
  const found = (await connection.repeat(listStreamsScript, ...args)) as readonly KeptReply[]
  const inOrder = [...found].sort(([, a], [, b]) => Number(a) - Number(b))
  const streams = inOrder.flatMap(([run, , end, lane, status, lengths]) => {
    const { workflow } = parseLane(String(lane))
    const common = { runId: splitPair(String(run)).id, workflow, status: String(status) as RunStatus, finishedAt: Number(end) }
    return toStreams(lengths).map((stream) => ({ ...common, ...stream }))
  })
  return streams.slice(0, limit)
}

type KeptReply = readonly [run: Buffer, number: Buffer, end: Buffer, lane: Buffer, status: Buffer, lengths: Reply]

export async function dropChunks(
  connection: Connection,
  { owner, threadId, streams }: ThreadKey & { readonly streams: readonly StreamLength[] },
): Promise<number> {
  if (streams.length === 0) return 0
  const args = streams.flatMap(({ runId, stream, length }) => [
    ...[pairOf(owner, runId), stream, String(length)],
    chunksEntryOf(owner, { runId, ...droppedChunks(stream, length) }),
  ])
  return Number(await connection.once(dropChunksScript, 0, [pairOf(owner, threadId), ...args]))
}

/** From stream, length, stream, length, … in no order. */
export function toStreams(reply: Reply): { stream: string; length: number }[] {
  const fields = reply as readonly Buffer[]
  const streams: { stream: string; length: number }[] = []
  for (let i = 0; i < fields.length; i += 2) streams.push({ stream: String(fields[i]), length: Number(fields[i + 1]) })
  return streams.sort((a, b) => Buffer.compare(Buffer.from(a.stream), Buffer.from(b.stream)))
}

function contentOf({ size, tape, step, count, attempt, payload }: NewChunks): Buffer {
  const head = Buffer.from(`${JSON.stringify([size, tape, step, count, attempt, lengthOf(payload)])}\n`)
  if (payload === null) return head
  return Buffer.concat([head, typeof payload === 'string' ? Buffer.from(payload) : payload])
}

type Header = readonly [size: number, tape: number, step: string | null, count: number, attempt: number, length: number | null]

function toChunks(entry: Buffer, { owner, runId, stream }: ChunkQuery): ChunkRecord {
  const afterOffset = entry.indexOf(32)
  const afterSum = entry.indexOf(32, afterOffset + 1)
  const end = entry.indexOf(10, afterSum)
  const offset = Number(entry.toString('latin1', 0, afterOffset))
  const [size, tape, step, count, attempt, length] = parseHeader(entry.toString('utf8', afterSum + 1, end), { runId, stream })
  const record = { stream, offset, size, tape, step, count, attempt, payload: readPayload(entry, end + 1, length) }
  return verifyChunks({ owner, runId }, record, Number(entry.toString('latin1', afterOffset + 1, afterSum)))
}

function parseHeader(text: string, { runId, stream }: { readonly runId: string; readonly stream: string }): Header {
  try {
    const header = JSON.parse(text) as unknown
    if (Array.isArray(header) && header.length === 6) return header as unknown as Header
  } catch {
    // No longer JSON: damaged like the rest.
  }
  throw new HoldfastError(
    'corrupt_record',
    `Stream ${JSON.stringify(stream)} of run "${runId}" is damaged: a record cannot be read.`,
  )
}
