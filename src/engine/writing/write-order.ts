import { joinChanges } from '../../model/record.ts'
import type { Change, Committed } from '../../store/change.ts'
import type { Committer } from './committer.ts'
import type { LeaseHistory } from './lease-history.ts'
import type { RecordWrites } from './record-writes.ts'

/**
 * The order of one execution's writes. Commits are handed in as they come, and the committer keeps their order. A transaction
 * reaches the store by another way: it waits for the commits under way, and holds later ones back until it has ended. So does a commit
 * that may be refused and made again: the patches of later ones stand on its own. What ends the execution waits as well: it must not
 * overtake what is held.
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

  /** Takes the next turn for `hold`. Null: it has come. */
  take(): Promise<void> | null {
    this.#turns ??= []
    const turns = this.#turns
    if (this.#isTaken) return new Promise((resolve) => turns.push(resolve))
    this.#isTaken = true
    return null
  }

  /** With the turn: from now on what is handed in waits until it is given back, by the function that is returned or by `addContested`. */
  hold(): () => void {
    this.#held = []
    let isOver = false
    return () => {
      if (!isOver) this.#release()
      isOver = true
    }
  }

  /**
   * With the turn: hands a commit in that another client may have been faster than. It is handed in again, with its records as they are then made,
   * until it is written or refused for another reason.
   */
  async addContested(change: Change, writes: RecordWrites): Promise<Committed> {
    // Those that are made again may have other keys: of the first ones none is left.
    const own = new Set(writes.records)
    const others = (change.records ?? []).filter((one) => !own.has(one))
    for (let next = change; ; ) {
      const answer = await this.#handIn(next)
      if (answer.ok || answer.refusal !== 'record_changed') return answer
      next = { ...change, records: joinChanges(others, await writes.recordsAfter(answer.record ?? null)) }
    }
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
    const turn = this.take()
    if (turn !== null) await turn
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
