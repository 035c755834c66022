import { ClockWatch } from '../../model/clock-set-back.ts'
import { HoldfastError } from '../../model/errors.ts'
import { pairKey } from '../../model/ids.ts'
import type { Hint, Store } from '../../store/store.ts'
import { dropChunks, listStreams, readChunks } from './chunks.ts'
import { claim, heedSetBack, renew } from './claim.ts'
import { commit } from './commit.ts'
import { deliver, readInbox } from './inbox.ts'
import { copyOperation, listUnsure } from './operations.ts'
import { listQueues, setQueue } from './queues.ts'
import { listCheckpoints, listRuns, listThreads, readLog, readSnapshot, scanThreads } from './reads.ts'
import { readRecords, scanRecords, searchRecords, sweepRecords } from './records.ts'
import { createTables, findRun, findThread, type Tables } from './tables.ts'
import { readThreadImage, restoreThread } from './thread-image.ts'
import { collectThreads, deleteThread, tag } from './threads.ts'

export interface MemoryStoreOptions {
  /** Milliseconds added to the host's clock, asked for at every use. Default 0. */
  readonly clockOffsetMs?: () => number
}

/**
 * A store in the memory of this process, and the reference for the others: nothing outlives the process.
 * Each act is one synchronous function over the tables, which is all that makes it atomic.
 */
export function createMemoryStore(options: MemoryStoreOptions = {}): Store {
  return createStoreOver(createTables(), options)
}

/** A memory store over tables that other stores may share. */
export function createStoreOver(tables: Tables, options: MemoryStoreOptions = {}): Store {
  const offsetMs = options.clockOffsetMs ?? (() => 0)
  const watch = new ClockWatch()
  const now = () => {
    const now = Date.now() + offsetMs()
    watch.see({ now, at: performance.now() })
    return now
  }
  let isClosed = false

  async function act<Answer>(body: () => Answer): Promise<Answer> {
    if (isClosed) throw new HoldfastError('closed', 'The store is closed. Open a new one.')
    return body()
  }

  return {
    kind: 'memory',
    durability: 'none',
    migrate: () => act(() => undefined),
    now: () => act(now),
    commit: (changes) =>
      act(() => {
        const at = now()
        return changes.map((change) => commit(tables, change, at))
      }),
    claim: (request) =>
      act(() => {
        const at = now()
        if (watch.isSetBack) heedSetBack(tables, request, at)
        watch.heeded()
        return claim(tables, request, at)
      }),
    setQueue: (change) => act(() => setQueue(tables, change)),
    listQueues: (query) => act(() => listQueues(tables, query, now())),
    renew: (request) => act(() => renew(tables, request, now())),
    deliver: (message) => act(() => deliver(tables, message, now())),
    readInbox: (key) => act(() => readInbox(tables, key)),
    readRun: ({ owner, runId }) => act(() => copyRow(findRun(tables, owner, runId)?.run)),
    listRuns: (query) => act(() => listRuns(tables, query)),
    readThread: ({ owner, threadId }) => act(() => copyRow(findThread(tables, owner, threadId)?.thread)),
    listThreads: (query) => act(() => listThreads(tables, query)),
    readLog: (query) => act(() => readLog(tables, query)),
    readLogs: (queries) => act(() => queries.map((query) => ({ records: readLog(tables, query) }))),
    readSnapshot: (query) => act(() => readSnapshot(tables, query)),
    listCheckpoints: (query) => act(() => listCheckpoints(tables, query)),
    tag: (request) => act(() => tag(tables, request)),
    readChunks: (query) => act(() => readChunks(tables, query)),
    listStreams: (query) => act(() => listStreams(tables, query)),
    dropChunks: (request) => act(() => dropChunks(tables, request)),
    readOperation: ({ owner, key }) =>
      act(() => {
        const operation = tables.operations.get(pairKey(owner, key))
        return operation === undefined ? null : copyOperation(operation)
      }),
    listUnsure: (query) => act(() => listUnsure(tables, query)),
    readRecords: (query) => act(() => readRecords(tables, query, now())),
    searchRecords: (search) => act(() => searchRecords(tables, search)),
    scanRecords: (query) => act(() => scanRecords(tables, query, now())),
    sweepRecords: ({ limit }) => act(() => sweepRecords(tables, limit, now())),
    deleteThread: (request) => act(() => deleteThread(tables, request)),
    collectThreads: (request) => act(() => collectThreads(tables, request)),
    scanThreads: (query) => act(() => scanThreads(tables, query)),
    readThreadImage: (key) => act(() => readThreadImage(tables, key)),
    restoreThread: (whole) => act(() => restoreThread(tables, whole, now())),
    close: async () => {
      isClosed = true
      tables.listeners.clear()
    },
    subscribe: (listener: (hint: Hint) => void) => {
      // A wrapper of its own, so that one function subscribed twice is two subscriptions.
      const subscription = (hint: Hint) => listener(hint)
      tables.listeners.add(subscription)
      return () => tables.listeners.delete(subscription)
    },
  }
}

function copyRow<Row extends object>(row: Row | undefined): Row | null {
  return row === undefined ? null : { ...row }
}
