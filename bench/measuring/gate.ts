/** Lets a loop go on one round at a time, when it is told to. */
export class Gate {
  #arrive: () => void = () => {}
  #arrival = this.#nextArrival()
  #letGo: () => void = () => {}
  #isOpen = false

  /** Called by the loop before each round. */
  async pass(): Promise<void> {
    if (this.#isOpen) return
    const go = new Promise<void>((resolve) => {
      this.#letGo = resolve
    })
    this.#arrive()
    await go
  }

  /** Resolves when the loop stands at the gate for the first time. */
  reached(): Promise<void> {
    return this.#arrival
  }

  /** Lets one round happen; resolves when the loop is at the gate again, or has ended. */
  go(): Promise<void> {
    this.#arrival = this.#nextArrival()
    this.#letGo()
    return this.#arrival
  }

  /** The loop has ended. */
  open(): void {
    this.#isOpen = true
    this.#arrive()
  }

  #nextArrival(): Promise<void> {
    return new Promise((resolve) => {
      this.#arrive = resolve
    })
  }
}
