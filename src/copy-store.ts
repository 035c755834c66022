import { createHash } from 'node:crypto'
import { isAboutContent } from './artifacts/artifact-records.ts'
import { type ArtifactTarget, artifactTarget } from './artifacts/artifact-target.ts'
import { type ArtifactParts, artifactParts } from './artifacts/artifacts-parts.ts'
import { copyContents } from './artifacts/copy-contents.ts'
import { atRest, digestOf } from './client/thread-bundle.ts'
import { createCodec } from './model/codec.ts'
import { HoldfastError } from './model/errors.ts'
import { refuseUnknownOptions } from './model/known-options.ts'
import { readLogger } from './model/logger.ts'
import { type OpenTarget, openTarget } from './open.ts'
import type { Change, Committed } from './store/change.ts'
import { compareRecords, copyRecords } from './store/copy-records.ts'
import { readWholeThread } from './store/read-whole-thread.ts'
import type { Store, Thread } from './store/store.ts'
import type { WholeThread } from './store/thread-image.ts'

export interface CopyOptions {
  /** Called after every thread, while copying and again while verifying. */
  readonly onProgress?: (progress: CopyProgress) => void
  /** Where the content of artifacts is, on both sides: what `open` takes as `artifacts`. Default: as there. */
  readonly artifacts?: { readonly from?: string; readonly to?: string }
}

export interface CopyProgress {
  readonly phase: 'copying' | 'verifying'
  readonly threads: number
}

/** What both stores contain now. */
export interface CopyReport {
  readonly threads: number
  readonly runs: number
  readonly events: number
  readonly operations: number
  /** Values that are kept beside the threads: of sessions, profiles, facts, artifacts. */
  readonly memories: number
  /** Contents of artifacts. */
  readonly contents: number
  /** Over every thread with everything in it, and every such value, read back from both stores. */
  readonly sha256: string
}

/** How many threads are read ahead of the one that is written. */
const readAhead = 8

/**
 * Copies everything in one store to another: threads with their history and state, runs, operations, memory, artifacts and unread messages of all owners, and
 * the settings of queues. Then reads both again and compares checksums. Both arguments are what `open` takes. The source is not changed.
 *
 * Unfinished runs continue in the target, so no process may use the source any more: if a worker holds a run, this waits until its lease
 * has expired, and throws `conflict` if it is renewed, or if anything else changes meanwhile. After a failure, call it again: threads that
 * were copied already are compared and left as they are.
 */
export async function copyStore(from: OpenTarget, to: OpenTarget, options: CopyOptions = {}): Promise<CopyReport> {
  refuseUnknownOptions('copyStore', options, { onProgress: true, artifacts: true })
  refuseUnknownOptions('artifacts of copyStore', options.artifacts, { from: true, to: true })
  const places = [artifactTarget(options.artifacts?.from, from), artifactTarget(options.artifacts?.to, to)] as const
  const source = await openTarget(from, { durability: 'relaxed', clockOffsetMs: () => 0 })
  try {
    const target = await openTarget(to, { durability: 'full', clockOffsetMs: () => 0 })
    try {
      await copyQueues(source.store, target.store)
      const contents = await copyContents(partsOf(source.store, places[0]), partsOf(target.store, places[1]))
      await copyThreads(source.store, target.store, options)
      await copyRecords(source.store, target.store, isAboutContent)
      const compared = await compareThreads(source.store, target.store, options)
      return { ...compared, contents, ...(await compareRecords(source.store, target.store, compared.sha256, isAboutContent)) }
    } finally {
      await target.close()
    }
  } finally {
    await source.close()
  }
}

function partsOf(store: Store, target: ArtifactTarget): ArtifactParts {
  const log = readLogger(false)
  const commit = async (change: Change) => (await store.commit([change]))[0] as Committed
  return artifactParts({ store, codec: createCodec(), log, commit }, target)
}

/** Before the runs, so that nothing executes in the target that was held back in the source. */
async function copyQueues(source: Store, target: Store): Promise<void> {
  for (const { name, concurrency, rateLimit, maxQueued, isPaused } of await source.listQueues({}))
    await target.setQueue({ name, concurrency, rateLimit, maxQueued, isPaused })
}

async function copyThreads(source: Store, target: Store, { onProgress }: CopyOptions): Promise<void> {
  let threads = 0
  for await (const batch of batches(source)) {
    const wholes = await Promise.all(batch.map((thread) => readUnheld(source, thread)))
    // One after another, to keep their order of creation.
    for (const whole of wholes) {
      const answer = await target.restoreThread(atRest(whole))
      if (!answer.ok) await requireSame(whole, target)
      threads += 1
      onProgress?.({ phase: 'copying', threads })
    }
  }
}

/** A thread whose runs no worker holds. Waits for a lease to expire, once. */
async function readUnheld(store: Store, key: Thread): Promise<WholeThread> {
  let waitedFor: { id: string; leaseUntil: number } | undefined
  for (;;) {
    const whole = await readThread(store, key)
    const held = whole.runs.find(({ run }) => run.status === 'running')?.run
    const leaseUntil = held?.leaseUntil ?? 0
    const now = await store.now()
    if (held === undefined || leaseUntil <= now) return whole
    if (waitedFor?.id === held.id && leaseUntil > waitedFor.leaseUntil) {
      throw new HoldfastError(
        'conflict',
        `Run "${held.id}" of thread "${key.threadId}" is being executed by ${held.leaseHolder}. Close every process that uses the source, then copy again.`,
        { details: { runId: held.id, threadId: key.threadId } },
      )
    }
    waitedFor = { id: held.id, leaseUntil }
    await new Promise((resolve) => setTimeout(resolve, leaseUntil - now + 10))
  }
}

async function requireSame(whole: WholeThread, target: Store): Promise<void> {
  const { owner, threadId } = whole.thread
  const there = await readWholeThread(target, { owner, threadId })
  // Its records are compared with all others: meanwhile some of them may expire.
  if (there !== null && digestOf({ ...there, records: [] }) === digestOf({ ...whole, records: [] })) return
  throw new HoldfastError(
    'conflict',
    `Thread "${threadId}" was not copied: the target has ${there === null ? 'one of its run ids, operation keys or session values' : 'another one of that id'}. ` +
      'Copy into an empty store.',
    { details: { owner, threadId } },
  )
}

async function compareThreads(
  source: Store,
  target: Store,
  { onProgress }: CopyOptions,
): Promise<Omit<CopyReport, 'memories' | 'contents'>> {
  const report = { threads: 0, runs: 0, events: 0, operations: 0 }
  const hash = createHash('sha256')
  for await (const batch of batches(source)) {
    const pairs = await Promise.all(
      batch.map(async (key) => ({ key, here: await readThread(source, key), there: await readWholeThread(target, key) })),
    )
    for (const { key, here, there } of pairs) {
      const digest = digestOf({ ...here, records: [] })
      if (there === null || digestOf({ ...there, records: [] }) !== digest) throw different(key)
      hash.update(JSON.stringify([key.owner, digest]))
      report.threads += 1
      report.runs += here.runs.length
      report.events += here.log.length
      report.operations += here.operations.length
      onProgress?.({ phase: 'verifying', threads: report.threads })
    }
  }
  return { ...report, sha256: hash.digest('hex') }
}

function different({ owner, threadId }: Thread): HoldfastError {
  return new HoldfastError(
    'conflict',
    `Thread "${threadId}" is not the same in both stores: it was changed while it was copied. ` +
      'Close every process that uses either store, and copy into an empty one.',
    { details: { owner, threadId } },
  )
}

async function readThread(store: Store, { owner, threadId }: Thread): Promise<WholeThread> {
  const whole = await readWholeThread(store, { owner, threadId })
  if (whole === null) throw new HoldfastError('conflict', `Thread "${threadId}" was deleted while it was copied.`)
  return whole
}

/** All threads of a store, page by page, in order of creation. */
async function* batches(store: Store): AsyncGenerator<readonly Thread[]> {
  let cursor: string | undefined
  do {
    const page = await store.scanThreads({ limit: readAhead, ...(cursor !== undefined && { cursor }) })
    if (page.items.length > 0) yield page.items
    cursor = page.cursor
  } while (cursor !== undefined)
}
