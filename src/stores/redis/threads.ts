import { pageOf, readCursor } from '../../store/page.ts'
import type { ScanQuery, Thread, ThreadKey, ThreadQuery } from '../../store/store.ts'
import type { Connection } from './connection.ts'
import { pairOf } from './keys.ts'
import type { Reply } from './link.ts'
import { readRow, toThread } from './rows.ts'
import { listThreadsScript } from './scripts/list-threads.ts'
import { readThreadScript } from './scripts/read-rows.ts'
import { tagScript } from './scripts/tag.ts'

export async function readThread(connection: Connection, { owner, threadId }: ThreadKey): Promise<Thread | null> {
  const pair = pairOf(owner, threadId)
  const [reply, logLength] = (await connection.repeat(readThreadScript, pair)) as readonly [Reply, number]
  const row = readRow(reply)
  return row === null ? null : toThread(pair, row, logLength).thread
}

export async function tag(
  connection: Connection,
  { owner, threadId, seq, label }: ThreadKey & { readonly seq: number; readonly label: string },
): Promise<{ ok: boolean }> {
  return { ok: (await connection.once(tagScript, 0, [pairOf(owner, threadId), String(seq), label, owner])) === 1 }
}

export function listThreads(connection: Connection, { owner, ...query }: ThreadQuery): Promise<ThreadPage> {
  return readThreads(connection, `owner-threads:${owner}`, query)
}

export function scanThreads(connection: Connection, query: ScanQuery): Promise<ThreadPage> {
  return readThreads(connection, 'threads', query)
}

interface ThreadPage {
  readonly items: Thread[]
  readonly cursor?: string
}

async function readThreads(connection: Connection, index: string, { limit, cursor }: ScanQuery): Promise<ThreadPage> {
  const above = String(readCursor(cursor))
  if (limit <= 0) return { items: [] }
  const reply = (await connection.repeat(listThreadsScript, index, above, String(limit + 1))) as readonly Reply[]
  const found: { thread: Thread; number: number }[] = []
  for (let i = 0; i < reply.length; i += 3) {
    const row = readRow(reply[i + 1] as Reply)
    if (row !== null) found.push(toThread(String(reply[i]), row, reply[i + 2] as number))
  }
  return pageOf(found, limit, { numberOf: ({ number }) => number, toItem: ({ thread }) => thread })
}
