import type { Hint } from '../../store/store.ts'
import type { Connection } from './connection.ts'

/** How often other processes' writes are looked for, while somebody listens. */
const pollMs = 20

/**
 * Tells subscribers what changed: this process's writes at once and by name, those of others soon and without one.
 * The writer's data version counts only what other connections wrote, so own writes are not told twice.
 */
export class Watch {
  readonly #connection: Connection
  readonly #listeners = new Set<(hint: Hint) => void>()
  #timer: NodeJS.Timeout | null = null
  #seenVersion: number | null = null

  constructor(connection: Connection) {
    this.#connection = connection
  }

  subscribe(listener: (hint: Hint) => void): () => void {
    // A wrapper of its own, so that one function subscribed twice is two subscriptions.
    const subscription = (hint: Hint) => listener(hint)
    this.#listeners.add(subscription)
    if (this.#timer === null) {
      this.#seenVersion = this.#connection.dataVersion()
      this.#timer = setInterval(() => this.#look(), pollMs).unref()
    }
    return () => {
      this.#listeners.delete(subscription)
      if (this.#listeners.size === 0) this.close()
    }
  }

  tell(hints: readonly Hint[]): void {
    if (this.#listeners.size === 0) return
    for (const hint of hints) {
      for (const listener of [...this.#listeners]) {
        try {
          listener(hint)
        } catch {
          // A hint may be lost; a listener that throws must not make a written change look refused.
        }
      }
    }
  }

  close(): void {
    if (this.#timer !== null) clearInterval(this.#timer)
    this.#timer = null
    this.#listeners.clear()
  }

  #look(): void {
    const version = this.#connection.dataVersion()
    if (version === null || version === this.#seenVersion) return
    const isFirstLook = this.#seenVersion === null
    this.#seenVersion = version
    if (!isFirstLook) this.tell([{ isClaimable: true }])
  }
}
