/**
 * Reads a run's inbox, one reading after the other. A caller that asks while one is under way gets another after it: what came meanwhile may
 * not be in its answer.
 */
export class InboxReader {
  readonly #read: () => Promise<void>
  readonly #isOver: () => boolean
  #reading: Promise<void> | null = null
  #isAskedFor = false
  /** A reading that results wait for. */
  #beforeResults: Promise<void> | null = null

  constructor(options: { read: () => Promise<void>; isOver: () => boolean }) {
    this.#read = options.read
    this.#isOver = options.isOver
  }

  /** Resolves when everything that is there by now was read. */
  now(): Promise<void> {
    this.#isAskedFor = true
    this.#reading ??= this.#readAll().finally(() => {
      this.#reading = null
    })
    return this.#reading
  }

  /** The reading that is under way. */
  get underWay(): Promise<void> | null {
    return this.#reading
  }

  /** Whether a result has to wait for a reading. */
  get holdsResults(): boolean {
    return this.#beforeResults !== null
  }

  /**
   * Something was asked for before a result was written: it is known before the function continues, so that a pause holds
   * there, however far away the store is. Results behind it wait too.
   */
  async beforeResult(hasMail: boolean): Promise<void> {
    if (hasMail) {
      const check = this.now()
      this.#beforeResults = check
      void check.then(() => {
        if (this.#beforeResults === check) this.#beforeResults = null
      })
    }
    await this.#beforeResults
  }

  async #readAll(): Promise<void> {
    while (this.#isAskedFor && !this.#isOver()) {
      this.#isAskedFor = false
      await this.#read()
    }
  }
}
