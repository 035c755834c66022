import { type CallKey, kindOf } from './call-key.ts'
import type { RequiredResults } from './required-results.ts'
import type { Outcome } from './tape.ts'

/**
 * How long the function may take to ask for the next recorded result while one of its calls waits that the log does not have at that
 * place, unless it is known to be at work. After that it differs from its log.
 */
const graceMs = 5_000
/**
 * The same if every waiting call was in progress when that result was recorded: the function may do something between its calls, as
 * it did then. It has this long, plus several times what it took then.
 */
const patienceMs = { least: 60_000, factor: 4, most: 600_000 }
/**
 * The log does not say when a wait for a signal began. If nothing else waits, the function has no longer than this many times what it took
 * then to make the next call: one that made it at once has most likely lost it.
 */
const beforeSignalFactor = 50
/**
 * How long to wait for a call that may be inside a begun step which failed: this long, plus several times what it took to make it then.
 * After that the function continues with that step.
 */
const enclosedMs = { least: 20, factor: 2, most: 1_000 }
/** How long a function that has ended may take to ask for what a branch that it does not wait for had recorded. */
const latenessMs = { least: 250, factor: 4, most: 4_000 }

/** How long a replay waits for the function to ask for the next result, by how long it took when that was recorded. */
export class Patience {
  readonly #required: RequiredResults
  readonly #begunAt: (key: CallKey) => number | undefined
  readonly #startedAt: number
  readonly #mismatchMs: number
  /** What the other times are multiplied by: less than 1 in tests of wrong code, which are less patient. */
  readonly #share: number

  constructor(
    required: RequiredResults,
    options: {
      /** Position at which a call began; undefined if it is not in the log. */
      readonly begunAt: (key: CallKey) => number | undefined
      /** Store time at which the function was first called. */
      readonly startedAt: number
      /** Instead of the default grace. */
      readonly mismatchMs?: number | undefined
    },
  ) {
    this.#required = required
    this.#begunAt = options.begunAt
    this.#startedAt = options.startedAt
    this.#mismatchMs = options.mismatchMs ?? graceMs
    this.#share = this.#mismatchMs / graceMs
  }

  /** While these calls wait. */
  beforeMismatch(waiting: readonly CallKey[]): number {
    const { head } = this.#required
    if (head === undefined) return this.#mismatchMs
    const isInProgress = (key: CallKey) => isSignal(key) || (this.#begunAt(key) ?? Number.POSITIVE_INFINITY) < head.seq
    if (!waiting.every(isInProgress)) return this.#mismatchMs
    const longMs = scaled(patienceMs, this.#afterPreviousMs(head), this.#share)
    return waiting.every(isSignal) ? Math.min(longMs, this.#mismatchMs + beforeSignalFactor * this.#askedAfterMs(head)) : longMs
  }

  /** While the call may be inside a begun step. */
  insideStep(head: Outcome): number {
    return scaled(enclosedMs, this.#askedAfterMs(head))
  }

  /** After the function has ended: a branch that lost a race may ask once what it awaits is over, as it did then. */
  afterEnd(head: Outcome): number {
    return scaled(latenessMs, this.#afterPreviousMs(head), this.#share)
  }

  /** How long after the previous result this one was recorded. */
  #afterPreviousMs(head: Outcome): number {
    return Math.max(0, head.at - (this.#required.previous?.at ?? head.at))
  }

  /** How long after a result, or after its start, the function made the call that has the next one. */
  #askedAfterMs(head: Outcome): number {
    const askedAt = head.at - (head.durationMs ?? 0)
    return Math.max(0, askedAt - (this.#required.previousAt(askedAt)?.at ?? this.#startedAt))
  }
}

function scaled({ least, factor, most }: { least: number; factor: number; most: number }, tookMs: number, share = 1): number {
  return Math.min(share * most, share * least + factor * tookMs)
}

function isSignal(key: CallKey): boolean {
  return kindOf(key) === 'signal'
}
