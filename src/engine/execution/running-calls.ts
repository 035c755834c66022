import type { CallKey } from '../replay/call-key.ts'

/** The calls whose bodies run, in the order in which they began. Most of the time that is one: it needs no Map. */
export class RunningCalls {
  #key: CallKey | undefined
  #path = ''
  /** Those that began after it. */
  #others: Map<CallKey, string> | undefined

  add(key: CallKey, path: string): void {
    if (this.#key === undefined || this.#key === key) {
      this.#key = key
      this.#path = path
    } else {
      this.#others ??= new Map()
      this.#others.set(key, path)
    }
  }

  delete(key: CallKey): void {
    if (this.#key !== key) {
      this.#others?.delete(key)
      return
    }
    this.#key = undefined
    if (this.#others === undefined || this.#others.size === 0) return
    for (const [next, path] of this.#others) {
      this.#key = next
      this.#path = path
      this.#others.delete(next)
      return
    }
  }

  has(key: CallKey): boolean {
    return this.#key === key || this.#others?.has(key) === true
  }

  /** The path of the one that began first. */
  get first(): string | null {
    return this.#key === undefined ? null : this.#path
  }

  all(): readonly (readonly [CallKey, string])[] {
    return this.#key === undefined ? [] : [[this.#key, this.#path], ...(this.#others ?? [])]
  }
}
