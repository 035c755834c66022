import { createRandom, type Random } from '../random.ts'

/** How long bodies that have ended are gathered before one of them is let go, in ms: what that sets off can end among them. */
const gatherMs = 2

/** Lets bodies of steps and effects end one by one, in an order that a seed decides. */
export class EndOrder {
  readonly #random: Random
  readonly #held: (() => void)[] = []
  #isGathering = false

  constructor(seed: number) {
    this.#random = createRandom(seed)
  }

  /** What a body has come to, in its turn. */
  async hold<T>(made: Promise<T>): Promise<T> {
    await made.catch(() => {})
    await new Promise<void>((resolve) => {
      this.#held.push(resolve)
      this.#gather()
    })
    return made
  }

  #gather(): void {
    if (this.#isGathering) return
    this.#isGathering = true
    setTimeout(() => {
      this.#isGathering = false
      const [first] = this.#held.splice(this.#random.integer(0, this.#held.length - 1), 1)
      first?.()
      if (this.#held.length > 0) this.#gather()
    }, gatherMs)
  }
}
