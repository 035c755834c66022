import type { CallKey, Outcome } from './tape.ts'

/** How long a function may do other things, with calls waiting and the next recorded result not asked for. */
const graceMs = 5_000

/**
 * Hands recorded results out in log order, one a turn of the event loop, so that Promise.all and Promise.race go the
 * way they went before. Once all are consumed the run is live and new work may start.
 *
 *   P1  No new step starts until every recorded result was consumed.
 *   P2  Between two results everything that the first one set off has run.
 */
export class Playback {
  readonly #outcomes: readonly Outcome[]
  readonly #onResult: (outcome: Outcome) => void
  readonly #onLive: () => void
  readonly #onMismatch: (recorded: CallKey[], asked: CallKey[]) => void
  /** Undefined until somebody waits, as are the loose ones until there are any: most runs have no tape. */
  #waiters: Map<CallKey, Waiting<Outcome>> | undefined
  #blocked: ({ key: CallKey } & Waiting<void>)[] = []
  /** Results that nobody has to ask for: they are handed out whenever somebody does. */
  #loose: Map<CallKey, Outcome> | undefined
  /** Of these, the ones that somebody has asked for. */
  readonly #looseAsked: { readonly outcome: Outcome; readonly resolve: (outcome: Outcome) => void }[] = []
  readonly #untold: (() => void)[] = []
  #next = 0
  isEnding = false
  #isScheduled = false
  #isStopped = false
  #grace: NodeJS.Timeout | undefined
  isLive: boolean

  constructor(options: {
    outcomes: readonly Outcome[]
    /** Called just before a result is handed out. */
    onResult: (outcome: Outcome) => void
    /** Called once, when everything recorded is consumed. */
    onLive: () => void
    onMismatch: (recorded: CallKey[], asked: CallKey[]) => void
  }) {
    const loose = options.outcomes.filter(({ isLoose }) => isLoose === true)
    this.#outcomes = loose.length === 0 ? options.outcomes : options.outcomes.filter(({ isLoose }) => isLoose !== true)
    if (loose.length > 0) this.#loose = new Map(loose.map((outcome) => [outcome.key, outcome]))
    this.#onResult = options.onResult
    this.#onLive = options.onLive
    this.#onMismatch = options.onMismatch
    this.isLive = false
  }

  /** Everything recorded was handed out; the run is live in a moment. */
  get isConsumed(): boolean {
    return this.#next >= this.#outcomes.length
  }

  /** Begins. With nothing recorded the run is live at once. */
  start(): void {
    if (this.#outcomes.length === 0) this.#goLive()
  }

  /** The recorded result of a call, in its turn. */
  take(key: CallKey): Promise<Outcome> {
    return new Promise((resolve, reject) => {
      const loose = this.#loose?.get(key)
      if (loose !== undefined) {
        this.#loose?.delete(key)
        this.#looseAsked.push({ outcome: loose, resolve })
      } else {
        this.#waiters ??= new Map()
        this.#waiters.set(key, { resolve, reject })
      }
      this.#schedule()
    })
  }

  /** For a call with no recorded result: resolves when the run is live. */
  untilLive(key: CallKey): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#blocked.push({ key, resolve, reject })
      this.#watchForMismatch()
    })
  }

  /** Resolves when the run is live, and watches for no mismatch meanwhile. */
  get live(): Promise<void> {
    if (this.isLive) return Promise.resolve()
    return new Promise((resolve) => this.#untold.push(resolve))
  }

  /**
   * The function has ended: nothing may be left over. What it asked for and did not wait for (the losers of a race) is
   * handed out first. Says whether it matched its log.
   */
  async finish(): Promise<boolean> {
    clearTimeout(this.#grace)
    if (this.#next >= this.#outcomes.length) return true
    this.isEnding = true
    while (this.#waiters?.has(this.#outcomes[this.#next]?.key ?? '')) await new Promise((resolve) => setImmediate(resolve))
    clearTimeout(this.#grace)
    if (this.#next >= this.#outcomes.length) return true
    this.#mismatch()
    return false
  }

  /** The run was cancelled or fenced: every call that waits for its turn throws. */
  throw(error: Error): void {
    for (const { reject } of [...(this.#waiters?.values() ?? []), ...this.#blocked]) reject(error)
    this.stop()
  }

  stop(): void {
    clearTimeout(this.#grace)
    this.#isStopped = true
    this.#next = this.#outcomes.length
    this.#waiters = undefined
    this.#blocked = []
  }

  #schedule(): void {
    if (this.#isScheduled) return
    this.#isScheduled = true
    setImmediate(this.#handOut)
  }

  readonly #handOut = (): void => {
    this.#isScheduled = false
    if (this.#isStopped) return
    // First, as when the run was live: they were there at once then, and what was new took its time.
    const loose = this.#looseAsked.shift()
    if (loose !== undefined) {
      this.#onResult(loose.outcome)
      loose.resolve(loose.outcome)
      this.#schedule()
      return
    }
    const outcome = this.#outcomes[this.#next]
    if (outcome === undefined) return
    const waiter = this.#waiters?.get(outcome.key)
    if (waiter === undefined) {
      this.#watchForMismatch()
      return
    }
    this.#waiters?.delete(outcome.key)
    this.#next++
    clearTimeout(this.#grace)
    this.#grace = undefined
    this.#onResult(outcome)
    waiter.resolve(outcome)
    if (this.#next < this.#outcomes.length) this.#schedule()
    else setImmediate(this.#goLive)
  }

  readonly #goLive = (): void => {
    if (this.#next < this.#outcomes.length || this.isLive || this.#isStopped || this.isEnding) return
    this.isLive = true
    this.#onLive()
    for (const tell of this.#untold.splice(0)) tell()
    for (const { resolve } of this.#blocked.splice(0)) resolve()
  }

  /** Somebody waits, for new work or a later result: unless a call for the next result comes soon, they differ. */
  #watchForMismatch(): void {
    if (this.isLive || (this.#blocked.length === 0 && (this.#waiters?.size ?? 0) === 0)) return
    clearTimeout(this.#grace)
    this.#grace = setTimeout(() => {
      const outcome = this.#outcomes[this.#next]
      if (outcome !== undefined && this.#waiters?.has(outcome.key) !== true) this.#mismatch()
    }, graceMs)
  }

  #mismatch(): void {
    this.#onMismatch(
      this.#outcomes.slice(this.#next).map((outcome) => outcome.key),
      [...(this.#waiters?.keys() ?? []), ...this.#blocked.map((blocked) => blocked.key)],
    )
  }
}

interface Waiting<T> {
  readonly resolve: (value: T) => void
  readonly reject: (error: Error) => void
}
