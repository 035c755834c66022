import type { LogRecord } from '../model/event.ts'
import type { Operation } from '../model/operation.ts'
import type { Payload } from '../model/payload.ts'
import type { KeyedRecord } from '../model/record.ts'
import type { Run } from '../model/run.ts'
import type { ChunkRecord } from '../model/stream.ts'
import { compareRecords } from '../store/record-query.ts'
import type { CheckpointRow, Message, Snapshot, Store, Thread } from '../store/store.ts'

/** Names under which a store may hold something: what cannot be listed is looked up by these. */
export interface KnownNames {
  readonly owners: ReadonlySet<string>
  readonly threadIds: ReadonlySet<string>
  readonly runIds: ReadonlySet<string>
  readonly operationKeys: ReadonlySet<string>
}

/** All that can be read of one owner. */
export interface OwnerContents {
  readonly owner: string
  readonly runs: readonly Run[]
  readonly listedThreadIds: readonly string[]
  readonly threads: readonly ThreadContents[]
  readonly inboxes: readonly { readonly runId: string; readonly messages: readonly Message[] }[]
  readonly operations: readonly Operation[]
  readonly records: readonly KeyedRecord[]
}

export interface ThreadContents {
  readonly thread: Thread
  readonly log: readonly LogRecord[]
  readonly checkpoints: readonly CheckpointRow[]
  readonly snapshots: readonly Snapshot[]
  readonly streams: readonly { readonly runId: string; readonly records: readonly ChunkRecord[] }[]
}

/** Reads everything that the store shows under the given names. */
export async function readContents(store: Store, names: KnownNames): Promise<OwnerContents[]> {
  const contents: OwnerContents[] = []
  for (const owner of names.owners) contents.push(await readOwner(store, owner, names))
  return contents
}

/** Every run of an owner, newest first, page by page. */
export async function listAllRuns(store: Store, query: Omit<Parameters<Store['listRuns']>[0], 'cursor'>): Promise<Run[]> {
  return listAll((cursor) => store.listRuns({ ...query, ...cursor }))
}

export async function listAllThreads(store: Store, query: { readonly owner: string; readonly limit: number }): Promise<Thread[]> {
  return listAll((cursor) => store.listThreads({ ...query, ...cursor }))
}

/** A payload in a form that compares by content, whatever kind of bytes a driver returns. */
export function plainPayload(payload: Payload | null): string | null {
  if (payload === null) return null
  return typeof payload === 'string' ? `text:${payload}` : `bytes:${Buffer.from(payload).toString('hex')}`
}

async function readOwner(store: Store, owner: string, names: KnownNames): Promise<OwnerContents> {
  const threads = await readAll(names.threadIds, async (threadId) => {
    const thread = await store.readThread({ owner, threadId })
    return thread === null ? null : readThreadContents(store, thread)
  })
  const inboxes = await readAll(names.runIds, async (runId) => {
    const messages = await store.readInbox({ owner, runId })
    return messages.length === 0 ? null : { runId, messages }
  })
  const operations = await readAll(names.operationKeys, (key) => store.readOperation({ owner, key }))
  const runs = await listAllRuns(store, { owner, limit: 50 })
  const listed = await listAllThreads(store, { owner, limit: 50 })
  const listedThreadIds = listed.filter(({ deletedAt }) => deletedAt === null).map(({ threadId }) => threadId)
  const records = await listAll((cursor) => store.scanRecords({ limit: 50, ...cursor }))
  const own = records.filter((record) => record.owner === owner).sort(compareRecords)
  return { owner, runs, listedThreadIds, threads, inboxes, operations, records: own }
}

/** A stream from its beginning, page by page. */
export async function readAllChunks(
  store: Store,
  query: { readonly owner: string; readonly runId: string; readonly stream: string },
): Promise<ChunkRecord[]> {
  const records: ChunkRecord[] = []
  for (let from = 0; ; ) {
    const page = await store.readChunks({ ...query, from, limit: 20 })
    const last = page.at(-1)
    if (last === undefined) return records
    records.push(...page)
    from = last.offset + last.size
  }
}

/** What there is under the given names, in their order. */
async function readAll<Item>(names: ReadonlySet<string>, read: (name: string) => Promise<Item | null>): Promise<Item[]> {
  const found = await Promise.all([...names].map(read))
  return found.filter((item) => item !== null)
}

async function readThreadContents(store: Store, thread: Thread): Promise<ThreadContents> {
  const { owner, threadId } = thread
  const snapshots: Snapshot[] = []
  let atSeq = thread.headSeq
  while (atSeq >= 0) {
    const snapshot = await store.readSnapshot({ owner, threadId, atSeq })
    if (snapshot === null) break
    snapshots.push(snapshot)
    atSeq = snapshot.seq - 1
  }
  const log = await store.readLog({ owner, threadId })
  const checkpoints = await store.listCheckpoints({ owner, threadId })
  const streams: { runId: string; records: ChunkRecord[] }[] = []
  for (const { run, streams: found } of (await store.readThreadImage({ owner, threadId }))?.runs ?? []) {
    const runId = run.id
    for (const { stream } of found) streams.push({ runId, records: await readAllChunks(store, { owner, runId, stream }) })
  }
  return { thread, log, checkpoints, snapshots, streams }
}

async function listAll<Item>(
  readPage: (cursor: { cursor?: string }) => Promise<{ readonly items: readonly Item[]; readonly cursor?: string }>,
): Promise<Item[]> {
  const items: Item[] = []
  let cursor: string | undefined
  do {
    const page = await readPage(cursor === undefined ? {} : { cursor })
    items.push(...page.items)
    cursor = page.cursor
  } while (cursor !== undefined)
  return items
}
