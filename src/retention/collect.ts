import type { Codec } from '../model/codec.ts'
import { codeOf, type HoldfastError } from '../model/errors.ts'
import type { Store, Thread } from '../store/store.ts'
import { leastAgeMs, type RetentionOptions } from './policies.ts'
import { type Kept, Reviews, type ThreadKind, whyKept } from './review-thread.ts'
import { sweepExpired } from './sweep-expired.ts'

export interface GcOptions {
  /** Deletes nothing, and says what would be deleted. Default false. */
  readonly dryRun?: boolean
  /** Called after each page of threads, and once at the end. */
  readonly onProgress?: (report: GcReport) => void
  /** Ends it early: it rejects with the signal's reason. What was deleted by then is deleted; another call continues. */
  readonly signal?: AbortSignal
}

/** What was deleted, or would be. */
export interface GcReport {
  readonly dryRun: boolean
  /** Threads that were looked at. */
  readonly scanned: number
  /** Runs that had a thread to themselves. */
  readonly runs: number
  /** Threads of several runs, or of none. */
  readonly threads: number
  readonly notifications: number
  /** What was left of threads that `thread.delete()` deleted. */
  readonly tombstones: number
  /** Streams whose chunks were dropped. */
  readonly streams: number
  /** Values of sessions and facts that had expired. A dry run does not count them. */
  readonly expired: number
  /** Threads that are old enough, and why they stay. */
  readonly kept: Readonly<Record<Kept, number>>
  readonly durationMs: number
}

export interface CollectOptions extends GcOptions {
  readonly isStopping?: () => boolean
  /** Streams of threads in which nothing has happened since were looked at before. */
  readonly streamsSince?: number
}

const pageSize = 100
/** So many threads are removed in one write: others wait no longer than for a batch of steps. */
const partSize = 20
/** Threads that are read at once. */
const width = 8

type Counts = { -readonly [Name in keyof GcReport]: GcReport[Name] } & { kept: Record<Kept, number> }

/**
 * Deletes what the policies allow, of all owners. Every write judges again what it deletes, so that it may run beside anything else, several times
 * at once, and end at any moment.
 */
export async function collect(source: Source, policies: RetentionOptions, options: CollectOptions = {}): Promise<GcReport> {
  return new Collection(source, policies, options).run()
}

class Collection {
  readonly #store: Store
  readonly #reviews: Reviews
  readonly #policies: RetentionOptions
  readonly #options: CollectOptions
  readonly #counts: Counts
  #now = 0

  constructor({ store, codec }: Source, policies: RetentionOptions, options: CollectOptions) {
    this.#store = store
    this.#reviews = new Reviews(store, codec)
    this.#policies = policies
    this.#options = options
    this.#counts = {
      ...{ dryRun: options.dryRun === true, scanned: 0, runs: 0, threads: 0, notifications: 0, tombstones: 0, streams: 0 },
      ...{ expired: 0, durationMs: 0 },
      kept: { unfinished: 0, operations: 0, tagged: 0, needed: 0, last: 0, changed: 0, damaged: 0 },
    }
  }

  async run(): Promise<GcReport> {
    const startedAt = performance.now()
    this.#now = await this.#store.now()
    if (!this.#counts.dryRun) this.#counts.expired = await sweepExpired(this.#store, { isStopping: () => this.#isStopping })
    for await (const page of this.#pages()) {
      this.#counts.scanned += page.length
      await this.#collectPage(page)
      this.#counts.durationMs = Math.round(performance.now() - startedAt)
      this.#options.onProgress?.(this.#report())
      // They come in order of creation: what follows is younger.
      if (page.every(({ createdAt }) => createdAt > this.#now - this.#leastAge)) break
    }
    this.#counts.durationMs = Math.round(performance.now() - startedAt)
    const report = this.#report()
    this.#options.onProgress?.(report)
    return report
  }

  get #isStopping(): boolean {
    this.#options.signal?.throwIfAborted()
    return this.#options.isStopping?.() === true
  }

  get #leastAge(): number {
    const { runs, threads, notifications, streams } = this.#policies
    return Math.min(...[runs, threads, notifications, streams].map((policy) => policy?.maxAgeMs ?? Number.POSITIVE_INFINITY))
  }

  #report(): GcReport {
    return { ...this.#counts, kept: { ...this.#counts.kept } }
  }

  /** In order of creation. Threads whose rows are damaged are passed over. */
  async *#pages(): AsyncGenerator<readonly Thread[], void, void> {
    if (this.#leastAge === Number.POSITIVE_INFINITY) return
    let cursor: string | undefined
    for (let limit = pageSize; !this.#isStopping; ) {
      const page = await this.#store
        .scanThreads({ limit, ...(cursor !== undefined && { cursor }) })
        .catch((error: HoldfastError) => damaged(error))
      if ('items' in page) {
        yield page.items
        cursor = page.cursor
        if (cursor === undefined) return
        limit = pageSize
      } else if (limit > 1) limit = 1
      else {
        this.#counts.kept.damaged++
        if (page.next === undefined || page.next === cursor) return
        cursor = page.next
      }
    }
  }

  async #collectPage(page: readonly Thread[]): Promise<void> {
    const old = page.filter(({ createdAt }) => createdAt <= this.#now - this.#leastAge)
    const live = old.filter(({ deletedAt }) => deletedAt === null)
    const ends = await this.#store.readLogs(
      live.map(({ owner, threadId, headSeq }) => ({ owner, threadId, afterSeq: headSeq - 1, toSeq: headSeq, bare: true })),
    )
    const due: Due[] = old.flatMap((thread) => {
      const isLeft = thread.deletedAt !== null && thread.deletedAt <= this.#now - this.#tombstoneAge
      return isLeft ? [{ thread, kind: 'tombstones' as const }] : []
    })
    const queue = live.map((thread, index) => ({ thread, lastAt: lastOf(ends[index]) }))
    const lane = async () => {
      for (let next = queue.shift(); next !== undefined && !this.#isStopping; next = queue.shift()) {
        const found = await this.#review(next.thread, next.lastAt)
        if (found !== undefined) due.push(found)
      }
    }
    await Promise.all(Array.from({ length: width }, lane))
    for (let from = 0; from < due.length && !this.#isStopping; from += partSize)
      await this.#remove(due.slice(from, from + partSize))
  }

  /** What is left of a deleted thread keeps late writers away. */
  get #tombstoneAge(): number {
    const { runs, threads } = this.#policies
    return Math.min(...[runs, threads].map((policy) => policy?.maxAgeMs ?? Number.POSITIVE_INFINITY))
  }

  async #review(thread: Thread, lastAt: number | undefined): Promise<Due | undefined> {
    if (lastAt === undefined) {
      this.#counts.kept.damaged++
      return undefined
    }
    try {
      const review = await this.#reviews.review(thread, { ageMs: this.#now - lastAt, policies: this.#policies })
      if (review === undefined || 'why' in review) {
        if (review !== undefined) this.#counts.kept[review.why]++
        await this.#dropChunks(thread, lastAt)
        return undefined
      }
      return { thread, kind: review.kind }
    } catch (error) {
      if (codeOf(error) !== 'corrupt_record') throw error
      this.#counts.kept.damaged++
      return undefined
    }
  }

  async #dropChunks({ owner, threadId }: Thread, lastAt: number): Promise<void> {
    const { streams: policy } = this.#policies
    if (policy === undefined || lastAt < (this.#options.streamsSince ?? 0)) return
    // Of a run that ended at this instant, too.
    const endedBefore = this.#now - policy.maxAgeMs + 1
    for (let isLast = false; !isLast && !this.#isStopping; ) {
      const limit = this.#counts.dryRun ? 1_000_000 : pageSize
      const streams = await this.#store.listStreams({ owner, threadId, endedBefore, limit })
      const count = this.#counts.dryRun ? streams.length : await this.#store.dropChunks({ owner, threadId, streams })
      this.#counts.streams += count
      isLast = streams.length < limit || count === 0
    }
  }

  async #remove(due: readonly Due[]): Promise<void> {
    const verdicts = await this.#store.collectThreads({
      threads: due.map(({ thread: { owner, threadId, headSeq } }) => ({ owner, threadId, headSeq })),
      closedBefore: this.#now - leastAgeMs,
      keepsLabelled: this.#policies.keepTagged !== false,
      isDryRun: this.#counts.dryRun,
    })
    for (const [index, { thread, kind }] of due.entries()) {
      const verdict = verdicts[index]
      if (verdict === 'removed') this.#counts[kind]++
      else if (verdict !== undefined && verdict !== 'gone') {
        this.#counts.kept[whyKept(verdict)]++
        if (thread.deletedAt === null) await this.#dropChunks(thread, this.#now)
      }
    }
  }
}

interface Source {
  readonly store: Store
  readonly codec: Codec
}

interface Due {
  readonly thread: Thread
  readonly kind: ThreadKind | 'tombstones'
}

function lastOf(stretch: Awaited<ReturnType<Store['readLogs']>>[number] | undefined): number | undefined {
  return stretch !== undefined && 'records' in stretch ? stretch.records.at(-1)?.at : undefined
}

function damaged(error: HoldfastError): { readonly next: string | undefined } {
  if (codeOf(error) !== 'corrupt_record') throw error
  const next = error.details['cursor']
  return { next: typeof next === 'string' ? next : undefined }
}
