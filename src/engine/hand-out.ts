/**
 * Hands live results to the function one a turn of the event loop, in the order in which they became durable: what a
 * result sets off has run before the next one comes, as a replay will have it.
 */
export class HandOut {
  readonly #turnNow: () => number
  #lastTurn = -1
  #queue: (() => void)[] = []

  /** `turnNow` numbers the turns in which results become durable. */
  constructor(turnNow: () => number) {
    this.#turnNow = turnNow
  }

  get isEmpty(): boolean {
    return this.#queue.length === 0
  }

  /** Whether a result may be handed out right now; the caller then does so at once. */
  takeTurn(): boolean {
    if (this.#queue.length > 0 || this.#lastTurn === this.#turnNow()) return false
    this.#lastTurn = this.#turnNow()
    return true
  }

  /** Resolves when it is this result's turn. */
  next(): Promise<void> {
    return new Promise((resolve) => {
      this.#queue.push(resolve)
      if (this.#queue.length === 1) setImmediate(this.#go)
    })
  }

  readonly #go = (): void => {
    this.#queue.shift()?.()
    if (this.#queue.length > 0) setImmediate(this.#go)
  }
}
