import type { Thread, ThreadKey } from '../../store/store.ts'
import type { NamedState } from './thread-state.ts'

/** Head states of threads that this process used recently, bounded in bytes. */
export class HeadStateCache {
  readonly #maxBytes: number
  readonly #entries = new Map<string, { incarnation: number; named: NamedState; bytes: number }>()
  #bytes = 0

  constructor(maxBytes = 64 * 1024 * 1024) {
    this.#maxBytes = maxBytes
  }

  get(thread: Thread): NamedState | undefined {
    const key = cacheKey(thread)
    const entry = this.#entries.get(key)
    if (entry === undefined) return undefined
    if (entry.incarnation === thread.incarnation && entry.named.patchSeq <= thread.patchSeq) return entry.named
    this.#remove(key)
    return undefined
  }

  set(thread: ThreadKey & { incarnation: number }, named: NamedState): void {
    const key = cacheKey(thread)
    this.#remove(key)
    const bytes = 500 + named.state.loadCost
    if (bytes > this.#maxBytes) return
    this.#entries.set(key, { incarnation: thread.incarnation, named, bytes })
    this.#bytes += bytes
    for (const oldest of this.#entries.keys()) {
      if (this.#bytes <= this.#maxBytes) break
      this.#remove(oldest)
    }
  }

  #remove(key: string): void {
    const entry = this.#entries.get(key)
    if (entry === undefined) return
    this.#bytes -= entry.bytes
    this.#entries.delete(key)
  }
}

function cacheKey(key: ThreadKey): string {
  return `${key.owner.length}:${key.owner}${key.threadId}`
}
