import type { Codec } from '../model/codec.ts'
import type { Logger } from '../model/logger.ts'
import { collect } from '../retention/collect.ts'
import type { RetentionOptions } from '../retention/policies.ts'
import { sweepExpired } from '../retention/sweep-expired.ts'
import type { Claim, Store } from '../store/store.ts'
import { dropEarlierChunks } from './drop-earlier-chunks.ts'

/** How often each worker does them. Nothing depends on when: what has expired is not read any more. */
const everyMs = 60_000
/** How often each worker looks for what retention allows to delete, unless it was told. */
const collectEveryMs = 3_600_000

/** What a worker does besides runs, from time to time. A failure is reported, and the chore is done again the next time. */
export class Chores {
  readonly #options: ChoreOptions
  #timer: NodeJS.Timeout | undefined
  #atWork: Promise<void> = Promise.resolve()
  readonly #drops = new Set<Promise<void>>()
  #isStopping = false
  #collectAt = 0
  #streamsSince = 0

  constructor(options: ChoreOptions) {
    this.#options = options
  }

  start(): void {
    // Not all processes at once.
    const delayMs = everyMs * (1 + Math.random() / 4)
    this.#timer = setTimeout(() => {
      this.#atWork = this.#doAll().finally(() => {
        if (!this.#isStopping) this.start()
      })
    }, delayMs)
    this.#timer.unref()
  }

  async stop(): Promise<void> {
    this.#isStopping = true
    clearTimeout(this.#timer)
    await Promise.all([this.#atWork, ...this.#drops])
  }

  /** Beside the run that begins: it does not wait for it. */
  dropEarlier(claim: Claim): void {
    if (this.#isStopping) return
    const drop = dropEarlierChunks(this.#options.store, claim)
      .catch((error: unknown) =>
        this.#options.log.debug('dropping the chunks of earlier runs failed', { runId: claim.run.id, error }),
      )
      .then(() => void this.#drops.delete(drop))
    this.#drops.add(drop)
  }

  async #doAll(): Promise<void> {
    const { store, log } = this.#options
    try {
      await sweepExpired(store, { isStopping: () => this.#isStopping })
    } catch (error) {
      log.error('deleting expired records failed', { error })
    }
    try {
      await this.#collect()
    } catch (error) {
      log.error('deleting what retention allows failed', { error })
    }
  }

  async #collect(): Promise<void> {
    const { store, codec, log, retention } = this.#options
    if (retention === undefined) return
    const begunAt = performance.now()
    if (begunAt < this.#collectAt) return
    this.#collectAt = begunAt + (retention.everyMs ?? collectEveryMs)
    const now = await store.now()
    const isStopping = () => this.#isStopping
    const report = await collect({ store, codec }, retention, { isStopping, streamsSince: this.#streamsSince })
    if (this.#isStopping) return
    // An event may be a moment older than its write.
    this.#streamsSince = now - (retention.streams?.maxAgeMs ?? 0) - everyMs
    log.debug('deleted what retention allows', { ...report })
  }
}

interface ChoreOptions {
  readonly store: Store
  readonly codec: Codec
  readonly log: Logger
  readonly retention?: RetentionOptions | undefined
}
