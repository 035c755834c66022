/**
 * Hands live results to the function, one per turn of the event loop, in the order in which they became durable: what a
 * result sets off has run before the next one comes, as it will on a replay.
 */
export class ResultTurns {
  readonly #turns: Turns
  readonly #recorded: RecordedResults
  #lastTurn = -1
  #queue: (() => void)[] | undefined

  constructor(turns: Turns, recorded: RecordedResults) {
    this.#turns = turns
    this.#recorded = recorded
  }

  get isEmpty(): boolean {
    return this.#queue === undefined || this.#queue.length === 0
  }

  /** Whether a result may be handed out right now; the caller then does so at once. */
  takeTurn(): boolean {
    const { turn } = this.#turns
    if (!this.isEmpty || this.#lastTurn === turn) return false
    this.#lastTurn = turn
    return true
  }

  /** Resolves when it is this result's turn. */
  next(): Promise<void> {
    return new Promise((resolve) => {
      this.#queue ??= []
      if (this.#queue.push(resolve) === 1) this.#goSoon()
    })
  }

  #goSoon(): void {
    setImmediate(() => {
      // What the previous result set off may have asked for a recorded one: that comes first, as on a replay.
      if (this.#recorded.isHandingOut) void this.#recorded.idle().then(this.#go)
      else this.#go()
    })
  }

  readonly #go = (): void => {
    this.#queue?.shift()?.()
    if (!this.isEmpty) this.#goSoon()
  }
}

/** Recorded results that are still being handed out. */
interface RecordedResults {
  readonly isHandingOut: boolean
  /** Resolves in a turn in which none of them is handed out. */
  idle(): Promise<void>
}

/** Numbers the turns in which results become durable. */
interface Turns {
  readonly turn: number
}
