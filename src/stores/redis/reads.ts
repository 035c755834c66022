import type { Operation } from '../../model/operation.ts'
import type { Run } from '../../model/run.ts'
import type { RunKey, Snapshot, ThreadKey, UnsureQuery } from '../../store/store.ts'
import { compareUnsure, readUnsureCursor, unsurePage } from '../../store/unsure-page.ts'
import type { Connection } from './connection.ts'
import { pairOf, splitPair } from './keys.ts'
import type { Reply } from './link.ts'
import type { ReadBatcher } from './read-batcher.ts'
import { readRow, toOperation, toRun } from './rows.ts'
import { listUnsureScript, readOperationScript, readSnapshotScript } from './scripts/read-rows.ts'
import { toSnapshot } from './snapshot-entry.ts'

export async function readRun(runRows: ReadBatcher, { owner, runId }: RunKey): Promise<Run | null> {
  const pair = pairOf(owner, runId)
  const row = readRow(await runRows.read(pair))
  return row === null ? null : toRun(pair, row).run
}

export async function readOperation(
  connection: Connection,
  { owner, key }: { readonly owner: string; readonly key: string },
): Promise<Operation | null> {
  return toOperation({ owner, key }, await connection.repeat(readOperationScript, pairOf(owner, key)))
}

/** They are few, so those of other owners are passed over. */
const unsurePieceSize = 200

export async function listUnsure(
  connection: Connection,
  { owner, limit, cursor }: UnsureQuery,
): Promise<{ items: readonly Operation[]; cursor?: string }> {
  const last = readUnsureCursor(cursor)
  const found: Operation[] = []
  for (let skipped = 0; found.length <= limit; skipped += unsurePieceSize) {
    const asked = [String(last.intendedAt), String(skipped), String(unsurePieceSize)] as const
    const reply = (await connection.repeat(listUnsureScript, ...asked)) as readonly Reply[]
    for (let i = 0; i < reply.length; i += 2) {
      const place = splitPair(String(reply[i]))
      const operation = place.owner === owner ? toOperation({ owner, key: place.id }, reply[i + 1] as Reply) : null
      if (operation !== null && compareUnsure(operation, last) > 0) found.push(operation)
    }
    if (reply.length < 2 * unsurePieceSize) break
  }
  return unsurePage(found, limit)
}

export async function readSnapshot(
  connection: Connection,
  { owner, threadId, atSeq }: ThreadKey & { readonly atSeq: number },
): Promise<Snapshot | null> {
  const reply = (await connection.repeat(readSnapshotScript, pairOf(owner, threadId), String(atSeq))) as Buffer | null
  return reply === null ? null : toSnapshot(reply, { owner, threadId })
}
