import type { Hint, RunKey, Store } from '../store/store.ts'

/** How often a waiting caller polls, because a notification may be lost. */
const pollMs = 500
/** When another process wrote something, waiting callers read again, but not more often than this. */
const elsewhereMs = 25

/** Wakes callers that wait for a run to change: on changes in this process, notifications of the store, or by polling. */
export class RunWaiters {
  readonly #store: Store
  readonly #waiting = new Map<string, Set<() => void>>()
  readonly #watching = new Map<string, Set<() => void>>()
  readonly #beginning = new Map<string, Promise<unknown>>()
  #unsubscribe: (() => void) | undefined
  #elsewhere: NodeJS.Timeout | undefined
  #isClosed = false

  constructor(store: Store) {
    this.#store = store
  }

  /** Resolves when an execution of the run has ended, something changed elsewhere, or some time has passed. */
  async next(key: RunKey): Promise<void> {
    if (this.#isClosed) return
    await this.#wait(this.#waiting, key)
  }

  /** Resolves when something was written about the run, or some time has passed. */
  async nextEvent(key: RunKey): Promise<void> {
    if (this.#isClosed) return
    await this.#wait(this.#watching, key)
  }

  /** A watcher of the run starts, and reads where its log ends. */
  beginWatch(key: RunKey, head: Promise<unknown>): void {
    const id = text(key)
    const begun = Promise.allSettled([this.#beginning.get(id), head]).then(() => {
      if (this.#beginning.get(id) === begun) this.#beginning.delete(id)
    })
    this.#beginning.set(id, begun)
  }

  /** What this client does to a run waits for this, so that a watcher that started before sees it. */
  async watchesBegun(key: RunKey): Promise<void> {
    if (this.#beginning.size > 0) await this.#beginning.get(text(key))
  }

  /** This process has seen an execution of the run end. */
  runChanged(owner: string, runId: string): void {
    if (this.#waiting.size === 0 && this.#watching.size === 0) return
    const key = text({ owner, runId })
    wake(this.#waiting.get(key))
    wake(this.#watching.get(key))
  }

  close(): void {
    this.#isClosed = true
    clearTimeout(this.#elsewhere)
    this.#unsubscribe?.()
    for (const callbacks of [...this.#waiting.values(), ...this.#watching.values()]) wake(callbacks)
  }

  get isClosed(): boolean {
    return this.#isClosed
  }

  async #wait(map: Map<string, Set<() => void>>, key: RunKey): Promise<void> {
    this.#unsubscribe ??= this.#store.subscribe?.((hint) => this.#heed(hint))
    const id = text(key)
    const callbacks = map.get(id) ?? new Set()
    map.set(id, callbacks)
    await new Promise<void>((resolve) => {
      const timer = setTimeout(done, pollMs)
      callbacks.add(done)
      function done(): void {
        clearTimeout(timer)
        callbacks.delete(done)
        resolve()
      }
    })
    if (callbacks.size === 0 && map.get(id) === callbacks) map.delete(id)
  }

  #heed(hint: Hint): void {
    if (hint.runId !== undefined && hint.owner !== undefined) {
      const key = { owner: hint.owner, runId: hint.runId }
      if (this.#watching.size > 0) wake(this.#watching.get(text(key)))
      // Its status changed, perhaps through another client of the same store.
      if (hint.isClaimable === true && this.#waiting.size > 0) wake(this.#waiting.get(text(key)))
      return
    }
    if (this.#waiting.size === 0 && this.#watching.size === 0) return
    this.#elsewhere ??= setTimeout(() => {
      this.#elsewhere = undefined
      for (const callbacks of [...this.#waiting.values(), ...this.#watching.values()]) wake(callbacks)
    }, elsewhereMs)
  }
}

function wake(callbacks: Set<() => void> | undefined): void {
  if (callbacks !== undefined) for (const callback of [...callbacks]) callback()
}

function text(key: RunKey): string {
  return JSON.stringify([key.owner, key.runId])
}
