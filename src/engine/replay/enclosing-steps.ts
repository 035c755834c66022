import type { CallKey } from './call-key.ts'

/**
 * Begun steps that wait for their recorded failure, or to begin once more. The function may have to continue inside them before their turn
 * comes: a call inside may be the one that asks for the next result.
 */
export class EnclosingSteps {
  readonly #begunAt: (key: CallKey) => number | undefined
  /** What lets the function continue inside, by step. Undefined until there is one. */
  #letGo: Map<CallKey, () => void> | undefined

  constructor(begunAt: (key: CallKey) => number | undefined) {
    this.#begunAt = begunAt
  }

  add(key: CallKey, letGo: () => void): void {
    this.#letGo ??= new Map()
    this.#letGo.set(key, letGo)
  }

  delete(key: CallKey): void {
    this.#letGo?.delete(key)
  }

  /**
   * Resolves with what `inTurn` makes of the awaited value, or with what `ahead` returns if the step is let go before that. It adds
   * only one microtask to the awaited value: with more the function could continue after another that it was ahead of the first time.
   */
  untilLetGo<T, R>(key: CallKey, awaited: Promise<T>, inTurn: (value: T) => R, ahead: () => R): Promise<R> {
    return new Promise((resolve, reject) => {
      this.add(key, () => resolve(ahead()))
      const onTurn = (value: T) => {
        this.delete(key)
        resolve(inTurn(value))
      }
      awaited.then(onTurn, reject)
    })
  }

  /** Of the steps that had begun by a position, the last. */
  innermostAt(position: number): CallKey | undefined {
    let innermost: { readonly key: CallKey; readonly begunAt: number } | undefined
    for (const key of this.#letGo?.keys() ?? []) {
      const begunAt = this.#begunAt(key) ?? Number.POSITIVE_INFINITY
      if (begunAt < position && begunAt > (innermost?.begunAt ?? 0)) innermost = { key, begunAt }
    }
    return innermost?.key
  }

  letGo(key: CallKey): void {
    const letGo = this.#letGo?.get(key)
    this.#letGo?.delete(key)
    letGo?.()
  }
}
