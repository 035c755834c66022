import { HoldfastError } from '../../model/errors.ts'
import { pageOf, readCursor } from '../../store/page.ts'
import type { ScanQuery, Thread, ThreadKey, ThreadQuery } from '../../store/store.ts'
import type { Connection } from './connection.ts'
import { pairOf, splitPair } from './keys.ts'
import type { Reply } from './link.ts'
import { type Row, readRow, toThread } from './rows.ts'
import { listThreadsScript } from './scripts/list-threads.ts'
import { readThreadScript } from './scripts/read-rows.ts'
import { tagScript } from './scripts/tag.ts'

export async function readThread(connection: Connection, { owner, threadId }: ThreadKey): Promise<Thread | null> {
  const pair = pairOf(owner, threadId)
  const [reply, logLength] = (await connection.repeat(readThreadScript, pair)) as readonly [Reply, number]
  const row = readRow(reply)
  return row === null ? null : toThread(pair, row, logLength)
}

export async function tag(
  connection: Connection,
  { owner, threadId, seq, label }: ThreadKey & { readonly seq: number; readonly label: string },
): Promise<{ ok: boolean }> {
  return { ok: (await connection.once(tagScript, 0, [pairOf(owner, threadId), String(seq), label, owner])) === 1 }
}

export async function listThreads(connection: Connection, { owner, limit, cursor }: ThreadQuery): Promise<ThreadPage> {
  const listed = await readListed(connection, `owner-threads:${owner}`, { limit, ...(cursor !== undefined && { cursor }) })
  return threadPage(
    listed.filter(({ row }) => row !== null),
    limit,
  )
}

export async function scanThreads(connection: Connection, query: ScanQuery): Promise<ThreadPage> {
  return threadPage(await readListed(connection, 'threads', query), query.limit)
}

interface ThreadPage {
  readonly items: Thread[]
  readonly cursor?: string
}

/** What an index lists. */
interface Listed {
  readonly pair: string
  readonly number: number
  readonly row: Row | null
  readonly logLength: number
}

async function readListed(connection: Connection, index: string, { limit, cursor }: ScanQuery): Promise<Listed[]> {
  const above = String(readCursor(cursor))
  if (limit <= 0) return []
  const reply = (await connection.repeat(listThreadsScript, index, above, String(limit + 1))) as readonly Reply[]
  const listed: Listed[] = []
  for (let i = 0; i < reply.length; i += 4) {
    const [pair, number, row, logLength] = reply.slice(i, i + 4) as unknown as readonly [Reply, Reply, Reply, number]
    listed.push({ pair: String(pair), number: Number(number), row: readRow(row), logLength })
  }
  return listed
}

function threadPage(listed: readonly Listed[], limit: number): ThreadPage {
  return pageOf(listed, limit, { numberOf: ({ number }) => number, toItem: listedThread })
}

function listedThread({ pair, row, logLength }: Listed): Thread {
  if (row !== null) return toThread(pair, row, logLength)
  const { owner, id: threadId } = splitPair(pair)
  const text = `The row of thread ${JSON.stringify(threadId)} is missing. Restore it from a backup.`
  throw new HoldfastError('corrupt_record', text, { details: { owner, threadId } })
}
