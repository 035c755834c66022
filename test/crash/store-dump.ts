import { copyFileSync, existsSync, mkdtempSync, rmSync } from 'node:fs'
import { dirname, join } from 'node:path'
import BetterSqlite3 from 'better-sqlite3'
import { createCodec } from '../../src/model/codec.ts'
import type { LogRecord } from '../../src/model/event.ts'
import type { Operation } from '../../src/model/operation.ts'
import type { Run } from '../../src/model/run.ts'
import type { Snapshot, Store, Thread } from '../../src/store/store.ts'
import { openSqliteStore } from '../../src/stores/sqlite/sqlite-store.ts'
import { listAllRuns, listAllThreads } from '../../src/testing/store-contents.ts'

/** A record of the log, with its data decoded and the tape it belongs to. */
export interface DumpedRecord extends LogRecord {
  readonly data: Readonly<Record<string, unknown>>
  /** Which continuation of its run wrote it, from 1; 0 before the first. */
  readonly tape: number
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
  /** The user's own table, where there is one. */
  readonly orders: readonly { readonly run: string; readonly round: number }[]
}

const codec = createCodec()

/**
 * Reads a store that nobody has open, from a copy: opening the file itself would recover and clean it up, which is the next
 * process's business.
 */
export async function dumpStore(file: string): Promise<StoreDump> {
  const folder = mkdtempSync(join(dirname(file), 'dump-'))
  const copy = join(folder, 'store.db')
  try {
    for (const suffix of ['', '-wal']) if (existsSync(file + suffix)) copyFileSync(file + suffix, copy + suffix)
    if (!existsSync(copy)) return { runs: [], threads: [], operations: [], orders: [] }
    return await readFile(copy)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

/** Reads a store while processes work on it. What it says of different threads may be of different moments. */
export function watchStore(file: string): Promise<StoreDump> {
  return readFile(file)
}

async function readFile(file: string): Promise<StoreDump> {
  const orders = readOrders(file)
  const store = await openSqliteStore({ file, durability: 'full' })
  try {
    await store.migrate()
    return { ...(await readAll(store)), orders }
  } finally {
    await store.close()
  }
}

async function readAll(store: Store): Promise<Omit<StoreDump, 'orders'>> {
  const owner = ''
  const runs = await listAllRuns(store, { owner, limit: 500 })
  const threads = []
  const keys = new Set<string>()
  for (const thread of await listAllThreads(store, { owner, limit: 500 })) {
    const { threadId, headSeq } = thread
    const log = annotate(await store.readLog({ owner, threadId }))
    const snapshot = await store.readSnapshot({ owner, threadId, atSeq: headSeq })
    threads.push({ thread, log, snapshot })
    for (const { type, data } of log) if (type === 'effect_intended') keys.add(data['key'] as string)
  }
  const operations: Operation[] = []
  for (const key of keys) {
    const operation = await store.readOperation({ owner, key })
    if (operation !== null) operations.push(operation)
  }
  return { runs, threads, operations }
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

function readOrders(file: string): { run: string; round: number }[] {
  const db = new BetterSqlite3(file)
  try {
    const hasTable = db.prepare(`SELECT 1 FROM sqlite_schema WHERE name = 'orders'`).get() !== undefined
    return hasTable ? (db.prepare('SELECT run, round FROM orders ORDER BY rowid').all() as { run: string; round: number }[]) : []
  } finally {
    db.close()
  }
}
