import type { CallKey, Outcome } from './tape.ts'

/**
 * How long a function that is not known to be at work may take to ask for the next recorded result, while a call of it waits that the
 * log does not have at that place: it goes another way.
 */
const graceMs = 5_000
/**
 * The same where every call that waits was under way when that result was recorded: the function may do something between its calls, as
 * it did then. It has this long, and several times what it took then.
 */
const patienceMs = { least: 60_000, factor: 4, most: 600_000 }
/**
 * The log does not say when a wait for a signal began. Where nothing else waits, the function has no longer than this many times what it took
 * then to make the next call: one that made it at once has most likely lost it.
 */
const beforeSignalFactor = 50
/**
 * How long a call is waited for that may be one inside a begun step which failed: this long, and several times what it took to make it then.
 * After that the function gets on with that step.
 */
const enclosedMs = { least: 20, factor: 2, most: 1_000 }
/** How long a function that has ended may take to ask for what a branch of it had recorded that it does not wait for. */
const latenessMs = { least: 250, factor: 4, most: 4_000 }

/**
 * Hands recorded results out in log order, one a turn of the event loop, so that Promise.all and Promise.race go the
 * way they went before. Once all are consumed the run is live and new work may start.
 *
 *   P1  No new step starts until every recorded result was consumed.
 *   P2  Between two results everything that the first one set off has run.
 *   P3  Results that nobody has to ask for (loose ones) are handed out by their position too, as soon as they are asked for and what
 *       must come before has come. What is new waits for those that were asked for before it.
 */
export class Playback {
  readonly #outcomes: readonly Outcome[]
  readonly #onResult: (outcome: Outcome) => void
  readonly #onLive: () => void
  readonly #onMismatch: (recorded: CallKey[], asked: CallKey[]) => void
  readonly #isAtWork: () => boolean
  readonly #begunAt: (key: CallKey) => number | undefined
  readonly #startedAt: number
  /** Undefined until somebody waits, as are the loose ones until there are any: most runs have no tape. */
  #waiters: Map<CallKey, Waiting<Outcome>> | undefined
  #blocked: ({ key: CallKey } & Waiting<void>)[] = []
  /** Results that nobody has to ask for: they are handed out whenever somebody does. */
  #loose: Map<CallKey, Outcome> | undefined
  /** Of these, the ones that somebody has asked for. */
  readonly #looseAsked: { readonly outcome: Outcome; readonly resolve: (outcome: Outcome) => void }[] = []
  /** Begun steps that wait for their failure, or to begin once more: the function may have to get on inside them before their turn comes. */
  #enclosing: Map<CallKey, () => void> | undefined
  /** Results that were taken before their turn. */
  #taken: Set<CallKey> | undefined
  readonly #untold: (() => void)[] = []
  /** The function has ended, and somebody waits for a call that it left behind. */
  #onAsked: (() => void) | undefined
  #idle: (() => void)[] = []
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
    /** Something of the run is known to be at work: the function may yet ask for more. */
    isAtWork: () => boolean
    /** Where in the log a call began; undefined where the log does not know it. */
    begunAt: (key: CallKey) => number | undefined
    /** Store time at which the function was first called. */
    startedAt: number
  }) {
    const hasLoose = options.outcomes.some(({ isLoose }) => isLoose === true)
    this.#outcomes = hasLoose ? options.outcomes.filter(({ isLoose }) => isLoose !== true) : options.outcomes
    const loose = hasLoose ? options.outcomes.filter(({ isLoose, isShowing }) => isLoose === true && isShowing !== true) : []
    if (loose.length > 0) this.#loose = new Map(loose.map((outcome) => [outcome.key, outcome]))
    this.#onResult = options.onResult
    this.#onLive = options.onLive
    this.#onMismatch = options.onMismatch
    this.#isAtWork = options.isAtWork
    this.#begunAt = options.begunAt
    this.#startedAt = options.startedAt
    this.isLive = false
  }

  /** Everything recorded was handed out; the run is live in a moment. */
  get isConsumed(): boolean {
    return this.#head === undefined
  }

  /** Begins. With nothing recorded the run is live at once. */
  start(): void {
    this.#passShowings()
    if (this.#head === undefined) this.#goLive()
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
      this.#onAsked?.()
      this.#schedule()
    })
  }

  /** The recorded result of a call whose caller does not wait for its end: at once, whatever comes before it in the log. */
  takeAtOnce(key: CallKey): Outcome {
    const loose = this.#loose?.get(key)
    const outcome = loose ?? (this.#outcomes.find((one) => one.key === key) as Outcome)
    if (loose !== undefined) this.#loose?.delete(key)
    else {
      this.#taken ??= new Set()
      this.#taken.add(key)
      this.#schedule()
    }
    this.#onResult(outcome)
    return outcome
  }

  /**
   * The recorded failure of a step that the function ends itself, in its turn; or before it, where nobody asks for what comes first: the step
   * may enclose that.
   */
  takeFailure(key: CallKey): Promise<{ readonly outcome: Outcome; readonly isInTurn: boolean }> {
    return new Promise((resolve, reject) => {
      this.#enclosing ??= new Map()
      this.#enclosing.set(key, () => resolve({ outcome: this.#giveBack(key), isInTurn: false }))
      const inTurn = (outcome: Outcome) => {
        this.#enclosing?.delete(key)
        resolve({ outcome, isInTurn: true })
      }
      this.take(key).then(inTurn, reject)
    })
  }

  /** The same for a step that the function continues inside at once. The failure keeps its turn, for as long as a call inside is waited for. */
  takeFailureAhead(key: CallKey): Outcome {
    const loose = this.#loose?.get(key)
    if (loose !== undefined) return loose
    this.#enclosing ??= new Map()
    this.#enclosing.set(key, () => this.#giveBack(key))
    return this.#outcomes.find((one) => one.key === key) as Outcome
  }

  /** When the turn of a beginning comes that stands there in the log, or before it, where nobody asks for what it may enclose. Nobody has to ask for it. */
  turnOfBeginning(key: CallKey, seq: number): Promise<unknown> {
    return new Promise((resolve) => {
      const inTurn = (outcome: Outcome) => {
        this.#enclosing?.delete(key)
        resolve(outcome)
      }
      const asked = { outcome: { key, seq, at: 0, payload: null, isFailure: false, patchCount: 0 }, resolve: inTurn }
      this.#looseAsked.push(asked)
      this.#enclosing ??= new Map()
      this.#enclosing.set(key, () => {
        this.#looseAsked.splice(this.#looseAsked.indexOf(asked), 1)
        resolve(asked.outcome)
      })
      this.#schedule()
    })
  }

  /** Nobody waits for it any more, and nobody has to. */
  #giveBack(key: CallKey): Outcome {
    const loose = this.#looseAsked.findIndex(({ outcome }) => outcome.key === key)
    if (loose >= 0) return this.#looseAsked.splice(loose, 1)[0]!.outcome
    this.#waiters?.delete(key)
    this.#taken ??= new Set()
    this.#taken.add(key)
    return this.#outcomes.find((one) => one.key === key) as Outcome
  }

  /** When the turn of a result comes that was taken before it; at once, where that is over. */
  turnOf(outcome: Outcome): Promise<unknown> {
    if (outcome.isLoose !== true && this.#outcomes.indexOf(outcome) < this.#next) return this.#turnAfterLoose(outcome)
    this.#taken?.delete(outcome.key)
    this.#enclosing?.delete(outcome.key)
    if (outcome.isLoose === true) this.#loose?.set(outcome.key, outcome)
    return this.take(outcome.key)
  }

  /** What was taken is passed over before its turn where only loose results come before it: those that were asked for still come first (P3). */
  #turnAfterLoose(outcome: Outcome): Promise<unknown> {
    if (!this.#looseAsked.some((one) => one.outcome.seq < outcome.seq)) return Promise.resolve()
    return new Promise((resolve) => this.#looseAsked.push({ outcome, resolve }))
  }

  /** Results that were asked for are still to be handed out, one a turn. What is new comes after them. */
  get isHandingOut(): boolean {
    return this.#looseAsked.length > 0 && !this.#isStopped
  }

  /** Somebody gets a result within the next turns: one that was asked for, or a new one that comes after those. */
  get isAwaited(): boolean {
    return (this.#looseAsked.length > 0 || this.#idle.length > 0) && !this.#isStopped
  }

  /** Resolves in a turn in which no recorded result is handed out. */
  idle(): Promise<void> {
    return new Promise((resolve) => this.#idle.push(resolve))
  }

  /** For a call with no recorded result: resolves when the run is live. */
  untilLive(key: CallKey): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#blocked.push({ key, resolve, reject })
      this.#watchForMismatch()
    })
  }

  /** For a step that the function begins once more: resolves when the run is live, or where it may enclose what nobody asks for. */
  untilLiveOrInside(key: CallKey): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#enclosing ??= new Map()
      this.#enclosing.set(key, () => {
        this.#blocked = this.#blocked.filter((one) => one.key !== key)
        resolve()
      })
      const live = () => {
        this.#enclosing?.delete(key)
        resolve()
      }
      this.untilLive(key).then(live, reject)
    })
  }

  /** Resolves when the run is live, and watches for no mismatch meanwhile. */
  get live(): Promise<void> {
    if (this.isLive) return Promise.resolve()
    return new Promise((resolve) => this.#untold.push(resolve))
  }

  /**
   * The function has ended: nothing may be left over. What it asked for and did not wait for (the losers of a race) is
   * handed out first. Says whether it matched its log; what it left over is a mismatch, unless that is of no interest.
   */
  async finish({ isReported = true } = {}): Promise<boolean> {
    clearTimeout(this.#grace)
    if (this.isConsumed) return true
    this.#passShowings()
    if (this.isConsumed) return true
    this.isEnding = true
    const endedAt = performance.now()
    const aheadMs = this.#graceMs()
    for (let head = this.#head; head !== undefined; head = this.#head) {
      const leftMs = endedAt + (this.#isAheadOf(head) ? aheadMs : this.#lateMs(head)) - performance.now()
      const enclosing = this.#innermostAround(head)
      if (this.#waiters?.has(head.key)) await new Promise((resolve) => setImmediate(resolve))
      else if (enclosing !== undefined && !this.#isStopped) {
        this.#letGo(enclosing)
        await new Promise((resolve) => setImmediate(resolve))
      } else if (leftMs > 0 && !this.#isStopped) await this.#asked(leftMs)
      else break
    }
    clearTimeout(this.#grace)
    if (this.isConsumed) return true
    if (isReported) this.#mismatch()
    return false
  }

  /** A branch that lost may ask for it when what it awaits of its own is over, as it did then. */
  #lateMs(head: Outcome): number {
    const { least, factor, most } = latenessMs
    return Math.min(most, least + factor * Math.max(0, head.at - (this.#outcomes[this.#next - 1]?.at ?? head.at)))
  }

  /** The function was given what stands after this in the log: it may have ended sooner than it did then. */
  #isAheadOf({ seq }: Outcome): boolean {
    return !this.#isStopped && this.#outcomes.some((one) => one.seq > seq && this.#taken?.has(one.key) === true)
  }

  /** Until somebody asks for a recorded result, or the time is over. */
  async #asked(ms: number): Promise<void> {
    let timer: NodeJS.Timeout | undefined
    await new Promise<void>((resolve) => {
      this.#onAsked = resolve
      timer = setTimeout(resolve, ms)
    })
    clearTimeout(timer)
    this.#onAsked = undefined
  }

  /** The run was cancelled or fenced: every call that waits for its turn throws. */
  throw(error: Error): void {
    for (const { reject } of [...(this.#waiters?.values() ?? []), ...this.#blocked]) reject(error)
    this.stop()
  }

  stop(): void {
    clearTimeout(this.#grace)
    this.#isStopped = true
    this.#onAsked?.()
    this.#next = this.#outcomes.length
    this.#waiters = undefined
    this.#blocked = []
    for (const tell of this.#idle.splice(0)) tell()
  }

  #schedule(): void {
    if (this.#isScheduled) return
    this.#isScheduled = true
    setImmediate(this.#handOut)
  }

  /** The next result that has to be asked for. */
  get #head(): Outcome | undefined {
    while (this.#taken?.has(this.#outcomes[this.#next]?.key ?? '')) this.#next++
    return this.#outcomes[this.#next]
  }

  readonly #handOut = (): void => {
    this.#isScheduled = false
    if (this.#isStopped) return
    const head = this.#head
    const loose = this.#takeLoose(head)
    if (loose !== undefined) {
      this.#onResult(loose.outcome)
      loose.resolve(loose.outcome)
      this.#schedule()
      return
    }
    if (this.#idle.length > 0) for (const tell of this.#idle.splice(0)) tell()
    if (head === undefined) {
      setImmediate(this.#goLive)
      return
    }
    if (head.isShowing === true) {
      this.#passShowings()
      this.#schedule()
      return
    }
    const waiter = this.#waiters?.get(head.key)
    if (waiter === undefined) {
      this.#watchForMismatch()
      return
    }
    this.#waiters?.delete(head.key)
    this.#next++
    clearTimeout(this.#grace)
    this.#grace = undefined
    this.#onResult(head)
    waiter.resolve(head)
    if (this.#head !== undefined || this.#looseAsked.length > 0) this.#schedule()
    else setImmediate(this.#goLive)
  }

  /** What nobody asks for comes by itself. */
  #passShowings(): void {
    for (let head = this.#head; head?.isShowing === true; head = this.#head) {
      this.#next++
      this.#onResult(head)
    }
  }

  /** The first of the loose ones that were asked for, unless something must come before it. */
  #takeLoose(head: Outcome | undefined) {
    let first = 0
    for (let i = 1; i < this.#looseAsked.length; i++) {
      if (this.#looseAsked[i]!.outcome.seq < this.#looseAsked[first]!.outcome.seq) first = i
    }
    const loose = this.#looseAsked[first]
    if (loose === undefined || (head !== undefined && head.seq < loose.outcome.seq)) return undefined
    this.#looseAsked.splice(first, 1)
    return loose
  }

  readonly #goLive = (): void => {
    if (this.#head !== undefined || this.isLive || this.#isStopped || this.isEnding) return
    if (this.#looseAsked.length > 0) {
      this.#schedule()
      return
    }
    this.isLive = true
    this.#onLive()
    for (const tell of this.#untold.splice(0)) tell()
    for (const { resolve } of this.#blocked.splice(0)) resolve()
  }

  /** Somebody waits, for new work or a later result: unless a call for the next result comes in time, they differ. */
  #watchForMismatch(): void {
    if (this.isLive || (this.#blocked.length === 0 && (this.#waiters?.size ?? 0) === 0 && this.#looseAsked.length === 0)) return
    clearTimeout(this.#grace)
    const enclosing = this.#innermostAround(this.#head)
    const isAsked = () => {
      const head = this.#head
      return head === undefined || this.#waiters?.has(head.key) === true || this.#isStopped
    }
    this.#grace = setTimeout(
      () => {
        if (isAsked()) return
        if (enclosing !== undefined) this.#letGo(enclosing)
        else if (this.#isAtWork()) this.#watchForMismatch()
        else this.#mismatch()
      },
      enclosing === undefined ? this.#graceMs() : this.#enclosedMs(),
    )
  }

  /** Of the failed steps that are waited for, the last that had begun when this was recorded. */
  #innermostAround(head: Outcome | undefined): CallKey | undefined {
    if (head === undefined || this.#enclosing === undefined) return undefined
    const begunAt = (key: CallKey) => this.#begunAt(key) ?? Number.POSITIVE_INFINITY
    const around = [...this.#enclosing.keys()].filter((key) => begunAt(key) < head.seq)
    return around.sort((a, b) => begunAt(b) - begunAt(a))[0]
  }

  #letGo(key: CallKey): void {
    const tell = this.#enclosing?.get(key)
    this.#enclosing?.delete(key)
    tell?.()
    this.#schedule()
  }

  #enclosedMs(): number {
    const { least, factor, most } = enclosedMs
    return Math.min(most, least + factor * this.#askedAfterMs(this.#head as Outcome))
  }

  #graceMs(): number {
    const head = this.#head
    if (head === undefined) return graceMs
    const waiting = this.#waitingKeys()
    const isUnderWay = (key: CallKey) => isSignal(key) || (this.#begunAt(key) ?? Number.POSITIVE_INFINITY) < head.seq
    if (!waiting.every(isUnderWay)) return graceMs
    const { least, factor, most } = patienceMs
    const tookMs = Math.max(0, head.at - (this.#outcomes[this.#next - 1]?.at ?? head.at))
    const longMs = Math.min(most, least + factor * tookMs)
    return waiting.every(isSignal) ? Math.min(longMs, graceMs + beforeSignalFactor * this.#askedAfterMs(head)) : longMs
  }

  /** How long after a result, or its start, the function made the call that has the next one. */
  #askedAfterMs(head: Outcome): number {
    const askedAt = head.at - (head.durationMs ?? 0)
    let before = this.#next - 1
    while (before >= 0 && (this.#outcomes[before] as Outcome).at > askedAt) before--
    return Math.max(0, askedAt - (this.#outcomes[before]?.at ?? this.#startedAt))
  }

  #waitingKeys(): CallKey[] {
    const loose = this.#looseAsked.map(({ outcome }) => outcome.key)
    return [...(this.#waiters?.keys() ?? []), ...loose, ...this.#blocked.map(({ key }) => key)]
  }

  #mismatch(): void {
    const isOpen = ({ key, isShowing }: Outcome) => this.#taken?.has(key) !== true && isShowing !== true
    const recorded = this.#outcomes.slice(this.#next).filter(isOpen)
    this.#onMismatch(
      recorded.map(({ key }) => key),
      this.#waitingKeys(),
    )
  }
}

function isSignal(key: CallKey): boolean {
  return key.startsWith('signal:')
}

interface Waiting<T> {
  readonly resolve: (value: T) => void
  readonly reject: (error: Error) => void
}
