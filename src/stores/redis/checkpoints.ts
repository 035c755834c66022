import type { CheckpointQuery, CheckpointRow } from '../../store/store.ts'
import type { Connection } from './connection.ts'
import { pairOf } from './keys.ts'
import type { Reply } from './link.ts'
import { type StoredRecord, toRecord } from './log-entry.ts'
import { pieceBytes } from './read-log.ts'
import { readCheckpointsScript, readLabelScript } from './scripts/read-log.ts'

export async function listCheckpoints(connection: Connection, query: CheckpointQuery): Promise<CheckpointRow[]> {
  const limit = Math.max(0, query.limit ?? Number.POSITIVE_INFINITY)
  if (query.label !== undefined) return limit === 0 ? [] : readLabel(connection, query, query.label)
  const checkpoints: CheckpointRow[] = []
  if (limit === 0) return checkpoints
  const { owner, threadId } = query
  for await (const { first, entries, labels } of labelledPieces(connection, query)) {
    for (const [i, entry] of entries.entries()) {
      const one = toRecord(entry, first + i, { owner, threadId }, () => false)
      if (one.checkpointBytes !== null) checkpoints.push(toCheckpoint(one, labels.get(one.record.seq) ?? null))
      // What comes after it may be damaged.
      if (checkpoints.length >= limit) return checkpoints
    }
  }
  return checkpoints
}

interface Piece {
  /** The position of its first entry. */
  readonly first: number
  readonly entries: readonly Buffer[]
  readonly labels: ReadonlyMap<number, string>
}

/** A log without contents, with its labels, in pieces as `readLogs` reads them. */
async function* labelledPieces(connection: Connection, query: CheckpointQuery): AsyncGenerator<Piece> {
  const { owner, threadId } = query
  let afterSeq = query.afterSeq ?? 0
  let end: number | undefined
  let incarnation: number | undefined
  for (;;) {
    const args = [pairOf(owner, threadId), String(afterSeq), end === undefined ? '' : String(end), '1024', String(pieceBytes)]
    const reply = (await connection.repeat(readCheckpointsScript, ...args)) as readonly Reply[]
    const [foundIncarnation, head, first, entries, labels] = reply as readonly [
      number,
      number,
      number,
      readonly Buffer[],
      readonly Buffer[],
    ]
    if (incarnation !== undefined && foundIncarnation !== incarnation) return
    incarnation = foundIncarnation
    end = Math.min(end ?? head, head)
    yield { first, entries, labels: readLabels(labels) }
    afterSeq = first + entries.length - 1
    if (entries.length === 0 || afterSeq >= end) return
  }
}

function readLabels(reply: readonly Buffer[]): Map<number, string> {
  const labels = new Map<number, string>()
  for (let i = 0; i < reply.length; i += 2) {
    const name = String(reply[i])
    if (name.startsWith('S')) labels.set(Number(name.slice(1)), String(reply[i + 1]))
  }
  return labels
}

async function readLabel(connection: Connection, query: CheckpointQuery, label: string): Promise<CheckpointRow[]> {
  const { owner, threadId, afterSeq = 0 } = query
  const [seq, entry] = (await connection.repeat(readLabelScript, pairOf(owner, threadId), label)) as readonly [number?, Buffer?]
  if (seq === undefined || entry === undefined || seq <= afterSeq) return []
  return [
    toCheckpoint(
      toRecord(entry, seq, { owner, threadId }, () => false),
      label,
    ),
  ]
}

function toCheckpoint({ record, checkpointBytes }: StoredRecord, label: string | null): CheckpointRow {
  const { seq, at, runId, step } = record
  return { seq, at, runId, step, label, bytes: checkpointBytes ?? 0 }
}
