import type { CallKey } from './call-key.ts'
import type { Outcome } from './tape.ts'

/** The results that the function has to ask for, in log order, and how far they were handed out. */
export class RequiredResults {
  readonly #outcomes: readonly Outcome[]
  #next = 0
  /** Those that were taken before their turn. */
  #taken: Set<CallKey> | undefined

  constructor(outcomes: readonly Outcome[]) {
    this.#outcomes = outcomes
  }

  /** The next one to be handed out. */
  get head(): Outcome | undefined {
    while (this.#taken?.has(this.#outcomes[this.#next]?.key ?? '')) this.#next++
    return this.#outcomes[this.#next]
  }

  /** The one before the next. */
  get previous(): Outcome | undefined {
    return this.#outcomes[this.#next - 1]
  }

  /** The last one before the next that had been recorded by a time. */
  previousAt(at: number): Outcome | undefined {
    let before = this.#next - 1
    while (before >= 0 && (this.#outcomes[before] as Outcome).at > at) before--
    return this.#outcomes[before]
  }

  /** What was not handed out. */
  get left(): readonly Outcome[] {
    return this.#outcomes.slice(this.#next).filter(({ key, isShowing }) => this.#taken?.has(key) !== true && isShowing !== true)
  }

  /** The next one was handed out. */
  pass(): void {
    this.#next++
  }

  passAll(): void {
    this.#next = this.#outcomes.length
  }

  hasPassed(outcome: Outcome): boolean {
    return this.#outcomes.indexOf(outcome) < this.#next
  }

  get(key: CallKey): Outcome {
    return this.#outcomes.find((one) => one.key === key) as Outcome
  }

  /** Takes one before its turn, which is then passed over. */
  takeAhead(key: CallKey): Outcome {
    this.#taken ??= new Set()
    this.#taken.add(key)
    return this.get(key)
  }

  /** One that was taken is waited for after all. */
  putBack(key: CallKey): void {
    this.#taken?.delete(key)
  }

  /** One that stands after a position was taken before its turn. */
  hasTakenAfter(position: number): boolean {
    return this.#outcomes.some(({ key, seq }) => seq > position && this.#taken?.has(key) === true)
  }
}
