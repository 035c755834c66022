/** Counts what is under way, for callers that have to wait until nothing is. */
export class UnderWay {
  #count = 0
  #whenIdle: (() => void)[] | undefined

  get isIdle(): boolean {
    return this.#count === 0
  }

  begin(): void {
    this.#count++
  }

  end(): void {
    if (--this.#count > 0 || this.#whenIdle === undefined) return
    const tells = this.#whenIdle
    this.#whenIdle = undefined
    for (const tell of tells) tell()
  }

  /** Counts a promise until it is settled. Its outcome stays the caller's. */
  follow<T>(work: Promise<T>): Promise<T> {
    this.begin()
    const done = () => this.end()
    work.then(done, done)
    return work
  }

  /** Resolves when nothing is under way, or when the time is over. */
  async idle(limitMs?: number): Promise<void> {
    if (this.#count === 0) return
    let timer: NodeJS.Timeout | undefined
    await new Promise<void>((resolve) => {
      this.#whenIdle ??= []
      this.#whenIdle.push(resolve)
      if (limitMs !== undefined) timer = setTimeout(resolve, Math.max(0, limitMs))
    })
    clearTimeout(timer)
  }
}
