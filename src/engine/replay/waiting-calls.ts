import type { CallKey } from './call-key.ts'
import type { Outcome } from './tape.ts'

interface Waiting<T> {
  readonly resolve: (value: T) => void
  readonly reject: (error: Error) => void
}

/** Calls that wait for a required result, or for the run to be live. */
export class WaitingCalls {
  /** Undefined until there is one: most runs have no tape. */
  #forResult: Map<CallKey, Waiting<Outcome>> | undefined
  #forLive: ({ readonly key: CallKey } & Waiting<void>)[] = []

  get keysForResult(): CallKey[] {
    return [...(this.#forResult?.keys() ?? [])]
  }

  get keysForLive(): CallKey[] {
    return this.#forLive.map(({ key }) => key)
  }

  waitForResult(key: CallKey): Promise<Outcome> {
    this.#forResult ??= new Map()
    const waiting = this.#forResult
    return new Promise((resolve, reject) => waiting.set(key, { resolve, reject }))
  }

  hasForResult(key: CallKey): boolean {
    return this.#forResult?.has(key) === true
  }

  takeForResult(key: CallKey): Waiting<Outcome> | undefined {
    const waiting = this.#forResult?.get(key)
    this.#forResult?.delete(key)
    return waiting
  }

  waitForLive(key: CallKey): Promise<void> {
    return new Promise((resolve, reject) => this.#forLive.push({ key, resolve, reject }))
  }

  withdrawForLive(key: CallKey): void {
    this.#forLive = this.#forLive.filter((one) => one.key !== key)
  }

  releaseForLive(): void {
    for (const { resolve } of this.#forLive.splice(0)) resolve()
  }

  reject(error: Error): void {
    for (const { reject } of [...(this.#forResult?.values() ?? []), ...this.#forLive]) reject(error)
  }

  clear(): void {
    this.#forResult = undefined
    this.#forLive = []
  }
}
