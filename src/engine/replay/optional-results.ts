import type { CallKey } from './call-key.ts'
import type { Outcome } from './tape.ts'

/** Results that no call has to ask for. They are handed out when one does, by their position (P3). */
export class OptionalResults {
  /** Undefined if there are none: most runs have no tape. */
  #unasked: Map<CallKey, Outcome> | undefined
  readonly #asked: AskedResult[] = []

  constructor(outcomes: readonly Outcome[]) {
    if (outcomes.length > 0) this.#unasked = new Map(outcomes.map((outcome) => [outcome.key, outcome]))
  }

  /** One that no call has asked for yet. */
  get(key: CallKey): Outcome | undefined {
    return this.#unasked?.get(key)
  }

  take(key: CallKey): Outcome | undefined {
    const outcome = this.#unasked?.get(key)
    this.#unasked?.delete(key)
    return outcome
  }

  putBack(outcome: Outcome): void {
    this.#unasked?.set(outcome.key, outcome)
  }

  get hasAsked(): boolean {
    return this.#asked.length > 0
  }

  get askedKeys(): CallKey[] {
    return this.#asked.map(({ outcome }) => outcome.key)
  }

  findAsked(key: CallKey): Outcome | undefined {
    return this.#asked.find(({ outcome }) => outcome.key === key)?.outcome
  }

  /** Resolves when it is handed out. */
  ask(outcome: Outcome): Promise<Outcome> {
    return new Promise((resolve) => this.add({ outcome, resolve }))
  }

  /** The same, with what to call then. */
  add(asked: AskedResult): void {
    this.#asked.push(asked)
  }

  /** The call that asked for it no longer waits. */
  withdraw(outcome: Outcome): Outcome {
    const index = this.#asked.findIndex((asked) => asked.outcome === outcome)
    this.#asked.splice(index, 1)
    return outcome
  }

  /** Resolves in the turn that a result has among those that were asked for; at once, if none of them comes before it. */
  turnOf(outcome: Outcome): Promise<unknown> {
    return this.#asked.some((asked) => asked.outcome.seq < outcome.seq) ? this.ask(outcome) : Promise.resolve()
  }

  /** Takes the first by position of those that were asked for, unless `head` must come before it. */
  takeFirst(head: Outcome | undefined): AskedResult | undefined {
    let first = 0
    for (const [index, { outcome }] of this.#asked.entries())
      if (outcome.seq < (this.#asked[first] as AskedResult).outcome.seq) first = index
    const asked = this.#asked[first]
    if (asked === undefined || (head !== undefined && head.seq < asked.outcome.seq)) return undefined
    this.#asked.splice(first, 1)
    return asked
  }
}

/** A result that was asked for, and the call that waits for it. */
interface AskedResult {
  readonly outcome: Outcome
  readonly resolve: (outcome: Outcome) => void
}
