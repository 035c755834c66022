import type { Logger } from '../model/logger.ts'
import type { Claim, Store } from '../store/store.ts'
import { dropEarlierChunks } from './drop-earlier-chunks.ts'
import { sweepExpired } from './sweep-expired.ts'

/** How often each worker does them. Nothing depends on when: what has expired is not read any more. */
const everyMs = 60_000

/** What a worker does besides runs, from time to time. A failure is reported, and the chore is done again the next time. */
export class Chores {
  readonly #store: Store
  readonly #log: Logger
  #timer: NodeJS.Timeout | undefined
  #atWork: Promise<void> = Promise.resolve()
  readonly #drops = new Set<Promise<void>>()
  #isStopping = false

  constructor(store: Store, log: Logger) {
    this.#store = store
    this.#log = log
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
    const drop = dropEarlierChunks(this.#store, claim)
      .catch((error: unknown) => this.#log.debug('dropping the chunks of earlier runs failed', { runId: claim.run.id, error }))
      .then(() => void this.#drops.delete(drop))
    this.#drops.add(drop)
  }

  async #doAll(): Promise<void> {
    try {
      await sweepExpired(this.#store, { isStopping: () => this.#isStopping })
    } catch (error) {
      this.#log.error('deleting expired records failed', { error })
    }
  }
}
