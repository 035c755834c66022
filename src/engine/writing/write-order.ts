import type { Change, Committed } from '../../store/change.ts'
import type { Committer } from './committer.ts'
import type { LeaseHistory } from './lease-history.ts'

/**
 * The order of one execution's writes. Commits are handed in as they come, and the committer keeps their order. A transaction
 * reaches the store by another way: it waits for the commits under way, and holds later ones back until it has ended. What ends the
 * execution waits for it as well: it must not overtake what is held.
 */
export class WriteOrder {
  readonly #committer: Committer
  readonly #history: LeaseHistory
  #last: Promise<unknown> | undefined
  #isTaken = false
  /** Commits that wait for the transaction under way; undefined where there is none. */
  #held: (() => void)[] | undefined
  /** Commits whose answers are passed on: those that were held, and those that were handed in before these were answered. */
  #passedOn = 0
  #turns: (() => void)[] | undefined
  /** What comes before the next transaction. */
  #ends: (() => void)[] | undefined

  constructor(committer: Committer, history: LeaseHistory) {
    this.#committer = committer
    this.#history = history
  }

  /** Hands a commit in, now or when the transaction under way has ended. */
  add(change: Change): Promise<Committed> {
    const held = this.#held
    if (held !== undefined) return new Promise((resolve, reject) => held.push(() => this.#passOn(change, resolve, reject)))
    if (this.#passedOn > 0) return new Promise((resolve, reject) => this.#passOn(change, resolve, reject))
    return this.#handIn(change)
  }

  #handIn(change: Change): Promise<Committed> {
    const written = this.#committer.commit(change, true, this.#history)
    this.#last = written
    return written
  }

  /** An answer that is passed on comes a little later. One that was not would overtake it, in a batch that both are part of. */
  #passOn(change: Change, resolve: (answer: Committed) => void, reject: (error: unknown) => void): void {
    this.#passedOn++
    const answer =
      <T>(settle: (value: T) => void) =>
      (value: T) => {
        this.#passedOn--
        settle(value)
      }
    this.#handIn(change).then(answer(resolve), answer(reject))
  }

  /** Hands in what ends the execution, made at that moment: now, or when the transaction under way has ended and what it held is handed in. */
  addEnd<T>(handIn: () => Promise<T>): Promise<T> {
    if (!this.#isTaken) return handIn()
    return new Promise((resolve) => {
      this.#ends ??= []
      this.#ends.push(() => resolve(handIn()))
    })
  }

  /** Runs a transaction in its turn: `before` hands in what must be durable before it, and nothing else is under way. */
  async alone<T>(before: () => Promise<unknown> | null, transaction: () => Promise<T>): Promise<T> {
    this.#turns ??= []
    const turns = this.#turns
    if (this.#isTaken) await new Promise<void>((resolve) => turns.push(resolve))
    this.#isTaken = true
    try {
      const handedIn = before()
      this.#held = []
      await handedIn
      // The last one is answered for after all that were handed in before it. Its failure is told to its caller.
      await this.#last?.catch(() => {})
      return await transaction()
    } finally {
      this.#release()
    }
  }

  #release(): void {
    const held = this.#held ?? []
    this.#held = undefined
    for (const go of held) go()
    const ends = this.#ends ?? []
    this.#ends = undefined
    for (const end of ends) end()
    const next = this.#turns?.shift()
    if (next === undefined) this.#isTaken = false
    else next()
  }
}
