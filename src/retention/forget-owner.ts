import type { RecordKey } from '../model/record.ts'
import type { Store, Thread } from '../store/store.ts'
import { sweepExpired } from './sweep-expired.ts'

export interface ForgetOptions {
  /** Ends it early: it rejects with the signal's reason. What was erased by then is erased; another call continues. */
  readonly signal?: AbortSignal
}

/** What was erased of an owner. */
export interface ForgetReport {
  /** With their runs, logs, states, streams and operations; schedules are among them. */
  readonly threads: number
  /** Values that were kept beside the threads: of sessions, profiles, facts, adapters. */
  readonly memories: number
  /** Nothing was left in the end. False where somebody kept on writing for this owner: stop that, and call it again. */
  readonly isComplete: boolean
  readonly durationMs: number
}

const pageSize = 100
const partSize = 20
/** What is written meanwhile is erased by the next pass. */
const mostPasses = 5

/** Erases all that belongs to an owner, whatever state it is in. May end at any moment; the next call continues. */
export async function forgetOwner(store: Store, owner: string, { signal }: ForgetOptions): Promise<ForgetReport> {
  const startedAt = performance.now()
  const total = { threads: 0, memories: 0 }
  for (let pass = 1; ; pass++) {
    const threads = await forgetThreads(store, owner, signal)
    const memories = await forgetRecords(store, owner, signal)
    await sweepExpired(store, { isStopping: () => signal?.aborted === true })
    total.threads += threads
    total.memories += memories
    const isComplete = threads + memories === 0
    if (isComplete || pass === mostPasses) return { ...total, isComplete, durationMs: Math.round(performance.now() - startedAt) }
  }
}

async function forgetThreads(store: Store, owner: string, signal: AbortSignal | undefined): Promise<number> {
  let count = 0
  for (let cursor: string | undefined, isLast = false; !isLast; isLast = cursor === undefined) {
    signal?.throwIfAborted()
    const page = await store.scanThreads({ limit: pageSize, ...(cursor !== undefined && { cursor }) })
    const own = page.items.filter((thread) => thread.owner === owner)
    for (let from = 0; from < own.length; from += partSize) count += await erase(store, own.slice(from, from + partSize), signal)
    cursor = page.cursor
  }
  return count
}

async function erase(store: Store, threads: readonly Thread[], signal: AbortSignal | undefined): Promise<number> {
  signal?.throwIfAborted()
  const verdicts = await store.collectThreads({
    threads: threads.map(({ owner, threadId, headSeq }) => ({ owner, threadId, headSeq })),
    ...{ closedBefore: 0, keepsLabelled: false, isDryRun: false, isForced: true },
  })
  return verdicts.filter((verdict) => verdict === 'removed').length
}

async function forgetRecords(store: Store, owner: string, signal: AbortSignal | undefined): Promise<number> {
  let count = 0
  for (let cursor: string | undefined, isLast = false; !isLast; isLast = cursor === undefined) {
    signal?.throwIfAborted()
    const page = await store.scanRecords({ limit: pageSize, ...(cursor !== undefined && { cursor }) })
    const own = page.items.filter((record) => record.owner === owner)
    if (own.length > 0) await store.commit([deletion(owner, own)])
    count += own.length
    cursor = page.cursor
  }
  return count
}

function deletion(owner: string, keys: readonly RecordKey[]) {
  const records = keys.map(({ collection, key }) => ({ kind: 'delete', collection, key }) as const)
  return { owner, threadId: '', runId: null, guard: { kind: 'none' }, events: [], records, isCheckpoint: false } as const
}
