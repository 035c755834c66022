import { createCodec } from '../../../src/model/codec.ts'
import type { LogRecord } from '../../../src/model/event.ts'
import type { Operation } from '../../../src/model/operation.ts'
import type { Run } from '../../../src/model/run.ts'
import type { ChunkRecord } from '../../../src/model/stream.ts'
import { compareRecords } from '../../../src/store/record-query.ts'
import type { Snapshot, Store, Thread } from '../../../src/store/store.ts'
import { listAllRuns, listAllThreads, readAllChunks } from '../../../src/testing/store-contents.ts'
import { transcript } from '../workflows/notifies-others.ts'

/** A record of the log, with its data decoded and the tape it belongs to. */
export interface DumpedRecord extends LogRecord {
  readonly data: Readonly<Record<string, unknown>>
  /** Which continuation of its run wrote it, from 1; 0 before the first. */
  readonly tape: number
}

/** Chunks of a stream, decoded; null: a mark that what this writer wrote before is void. */
export interface DumpedChunks extends ChunkRecord {
  readonly chunks: readonly unknown[] | null
}

export interface DumpedValue {
  readonly collection: string
  readonly key: string
  readonly parent: string | null
  readonly version: number
  readonly value: unknown
}

/** Everything in a store at one moment. All checksums were verified while reading it. */
export interface StoreDump {
  readonly runs: readonly Run[]
  readonly threads: readonly {
    readonly thread: Thread
    readonly log: readonly DumpedRecord[]
    readonly snapshot: Snapshot | null
  }[]
  readonly operations: readonly Operation[]
  /** The streams of runs of `notifiesOthers`. */
  readonly streams: readonly { readonly runId: string; readonly records: readonly DumpedChunks[] }[]
  /** Values beside the threads, in order of their keys. */
  readonly memory: readonly DumpedValue[]
  /** The user's own table, where there is one. */
  readonly orders: readonly { readonly run: string; readonly round: number }[]
}

const codec = createCodec()

export const emptyDump: StoreDump = { runs: [], threads: [], operations: [], streams: [], memory: [], orders: [] }

/** Everything that a store shows of the owner of the crash tests. */
export async function readStore(store: Store): Promise<Omit<StoreDump, 'orders'>> {
  const owner = ''
  const runs = await listAllRuns(store, { owner, limit: 500 })
  const listed = await listAllThreads(store, { owner, limit: 500 })
  const threads = await inGroups(listed, async (thread) => {
    const { threadId, headSeq } = thread
    const log = annotate(await store.readLog({ owner, threadId }))
    return { thread, log, snapshot: await store.readSnapshot({ owner, threadId, atSeq: headSeq }) }
  })
  const intents = threads.flatMap(({ log }) => log.filter(({ type }) => type === 'effect_intended'))
  const keys = new Set(intents.map(({ data }) => data['key'] as string))
  const found = await inGroups([...keys], (key) => store.readOperation({ owner, key }))
  const operations = found.filter((operation) => operation !== null)
  const notifiers = runs.filter(({ workflow }) => workflow === 'notifiesOthers')
  const streams = await inGroups(notifiers, async ({ id: runId }) => ({ runId, records: await readChunks(store, owner, runId) }))
  return { runs, threads, operations, streams, memory: await readMemory(store) }
}

async function readMemory(store: Store): Promise<DumpedValue[]> {
  const { items } = await store.scanRecords({ limit: 10_000 })
  return [...items]
    .sort(compareRecords)
    .map(({ collection, key, parent, version, payload }) => ({ collection, key, parent, version, value: codec.decode(payload) }))
}

/** So many at once are answered in time, also by a server that is busy. */
const groupSize = 500

async function inGroups<Item, Result>(items: readonly Item[], read: (item: Item) => Promise<Result>): Promise<Result[]> {
  const results: Result[] = []
  for (let from = 0; from < items.length; from += groupSize)
    results.push(...(await Promise.all(items.slice(from, from + groupSize).map(read))))
  return results
}

async function readChunks(store: Store, owner: string, runId: string): Promise<DumpedChunks[]> {
  const records = await readAllChunks(store, { owner, runId, stream: transcript.name })
  return records.map((record) => ({
    ...record,
    chunks: record.payload === null ? null : (codec.decode(record.payload) as unknown[]),
  }))
}

function annotate(log: readonly LogRecord[]): DumpedRecord[] {
  const tapes = new Map<string, number>()
  return log.map((record) => {
    const runId = record.runId ?? ''
    if (record.type === 'run_started') tapes.set(runId, record.count)
    const data = record.payload === null ? {} : (codec.decode(record.payload) as Record<string, unknown>)
    if (record.patch !== null) codec.decode(record.patch)
    return { ...record, data, tape: tapes.get(runId) ?? 0 }
  })
}
