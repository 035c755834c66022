import type { Contents } from '../artifacts/contents.ts'
import type { Codec } from '../model/codec.ts'
import type { Store, Thread } from '../store/store.ts'
import { type Damage, damageTo } from './damage.ts'
import { attempt, type Source } from './findings.ts'
import { verifyOwner } from './verify-owner.ts'
import { verifyRecords } from './verify-records.ts'
import { type ThreadFindings, verifyThread } from './verify-thread.ts'

export interface VerifyOptions {
  /** Called at most five times a second, and once at the end. */
  readonly onProgress?: (progress: VerifyProgress) => void
  /** Ends it early: it rejects with the signal's reason. */
  readonly signal?: AbortSignal
}

export interface VerifyProgress {
  readonly threads: number
  readonly records: number
  readonly damaged: number
}

/** What was read, and what is damaged. */
export interface VerifyReport {
  /** Nothing is damaged. */
  readonly isSound: boolean
  readonly threads: number
  readonly runs: number
  readonly records: number
  readonly snapshots: number
  readonly operations: number
  /** Values that are kept beside the threads: of sessions, profiles, facts. */
  readonly memories: number
  readonly artifacts: number
  /** Of data, patches, snapshots, memories and artifacts. */
  readonly bytes: number
  readonly durationMs: number
  readonly damaged: readonly Damage[]
}

/** Threads that are read at once. */
const width = 8
/** A thread that is deleted and begins anew while it is read is read again, this often at most. */
const mostTries = 4
const progressMs = 200

/** Reads a whole store, of all owners, thread by thread. Changes and executes nothing; workers may be busy meanwhile. */
export async function verifyStore(
  {
    store,
    codec,
    artifacts,
  }: { readonly store: Store; readonly codec: Codec; readonly artifacts: { readonly contents: Contents } },
  { onProgress, signal }: VerifyOptions,
): Promise<VerifyReport> {
  const startedAt = performance.now()
  const source: Source = { store, codec, signal }
  const total = { threads: 0, runs: 0, records: 0, snapshots: 0, operations: 0, memories: 0, artifacts: 0, bytes: 0 }
  const damaged: Damage[] = []
  const owners = new Set<string>()
  let toldAt = 0
  const tell = () => {
    toldAt = performance.now()
    onProgress?.({ threads: total.threads, records: total.records, damaged: damaged.length })
  }
  const verifyNext = async (thread: Thread) => {
    owners.add(thread.owner)
    const found = await verifyUntilCalm(source, thread)
    if (found === null) return
    total.threads++
    for (const name of ['runs', 'records', 'snapshots', 'operations', 'bytes'] as const) total[name] += found[name]
    for (const one of found.damaged) damaged.push(one)
    if (performance.now() - toldAt > progressMs) tell()
  }
  await inParallel(allThreads(source, damaged), verifyNext, signal)
  for (const owner of owners) for (const one of await verifyOwner(source, owner, damaged)) damaged.push(one)
  const memory = await verifyRecords(source, artifacts.contents)
  total.memories = memory.records
  total.artifacts = memory.artifacts
  total.bytes += memory.bytes
  for (const one of memory.damaged) damaged.push(one)
  tell()
  return { isSound: damaged.length === 0, ...total, durationMs: Math.round(performance.now() - startedAt), damaged }
}

/** Several at once. The first error ends all of them, and is thrown once none is under way. */
async function inParallel<Item>(
  items: AsyncIterator<Item>,
  act: (item: Item) => Promise<void>,
  signal?: AbortSignal,
): Promise<void> {
  let hasFailed = false
  const lane = async () => {
    try {
      while (!hasFailed) {
        signal?.throwIfAborted()
        const next = await items.next()
        if (next.done === true) return
        await act(next.value)
      }
    } catch (error) {
      hasFailed = true
      throw error
    }
  }
  const lanes = await Promise.allSettled(Array.from({ length: width }, lane))
  for (const one of lanes) if (one.status === 'rejected') throw one.reason
}

/** In order of creation. One whose row is damaged is noted and passed over. */
async function* allThreads({ store }: Source, damaged: Damage[]): AsyncGenerator<Thread, void, void> {
  let cursor: string | undefined
  for (let limit = 100; ; ) {
    const query = { limit, ...(cursor !== undefined && { cursor }) }
    const page = await attempt(store, () => store.scanThreads(query))
    if (!('damage' in page)) {
      yield* page.value.items
      cursor = page.value.cursor
      if (cursor === undefined) return
      limit = 100
    } else if (limit > 1) limit = 1
    else {
      const { owner, threadId, cursor: next } = page.damage.details ?? {}
      const isLast = typeof next !== 'string' || next === cursor
      const rest = isLast ? ' Threads that were created after it were not read.' : ''
      damaged.push(
        damageTo({ owner: String(owner ?? ''), threadId: String(threadId ?? '') }, 'thread', `${page.damage.message}${rest}`),
      )
      if (isLast) return
      cursor = next
    }
  }
}

/** Damage counts only in the life of the thread that was read: one that was deleted meanwhile looks damaged. */
async function verifyUntilCalm(source: Source, key: Thread): Promise<ThreadFindings | null> {
  for (let tries = 1; ; tries++) {
    const found = await verifyThread(source, key)
    if (found === null || found.damaged.length === 0 || found.thread === null) return found
    const { owner, threadId } = key
    const again = await attempt(source.store, () => source.store.readThread({ owner, threadId }))
    const after = 'damage' in again ? found.thread : again.value
    const isCalm = after?.incarnation === found.thread.incarnation && after.deletedAt === found.thread.deletedAt
    if (isCalm) return found
    if (tries === mostTries) return { ...found, damaged: [] }
  }
}
