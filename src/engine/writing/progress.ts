import { HoldfastError } from '../../model/errors.ts'
import type { NewEvent } from '../../model/event.ts'

/** Reports come at most this often, unless something is recorded. */
const leastMs = 500
/** And only when they say something new. */
const leastChange = 0.01

export interface Report {
  /** The step or scope that it was made in. */
  readonly step: string | null
  /** How far the run is, from 0 to 1. */
  readonly fraction: number
  readonly note?: string
}

/**
 * How far a run says that it is. Reports are written with other commits, never more often than is worth looking at; the last one before a
 * result goes with the result. They are for watching only: a replay does not see them.
 */
export class Progress {
  readonly #event: (report: Report) => NewEvent
  readonly #defer: (event: NewEvent) => void
  #last: Report | undefined
  #lastAt = Number.NEGATIVE_INFINITY
  #held: Report | undefined
  #shares: Map<string, { readonly weight: number; fraction: number }> | undefined

  constructor(options: { event: (report: Report) => NewEvent; defer: (event: NewEvent) => void }) {
    this.#event = options.event
    this.#defer = options.defer
  }

  /** From here on the run's progress is that of these steps of a plan, each with its weight. */
  weigh(weights: ReadonlyMap<string, number>): void {
    this.#shares = new Map([...weights].map(([name, weight]) => [name, { weight, fraction: 0 }]))
  }

  /** Says how far the run is; in a plan, how far the plan's step is in which it was said. */
  report(step: string | null, fraction: number, note?: string): void {
    checkReport(fraction, note)
    const share = step === null ? undefined : this.#shares?.get(stepOfPlan(step))
    if (share !== undefined) share.fraction = fraction
    this.#held = { step, fraction: share === undefined ? fraction : this.#whole(), ...(note !== undefined && { note }) }
    this.deferIfDue()
  }

  /** A step of the plan is done with, by its result or without one. Answers with what belongs into the commit that says so. */
  finish(name: string): readonly NewEvent[] {
    const share = this.#shares?.get(name)
    if (share === undefined) return []
    share.fraction = 1
    this.#held = undefined
    this.#show({ step: name, fraction: this.#whole() })
    return [this.#event(this.#last as Report)]
  }

  /** Defers the report that was held back to the next commit, if it is time for one. */
  deferIfDue(): void {
    const held = this.#held
    if (held === undefined || performance.now() - this.#lastAt < leastMs) return
    const last = this.#last
    if (last === undefined || held.note !== last.note || Math.abs(held.fraction - last.fraction) >= leastChange) this.deferHeld()
  }

  /** Defers the report that was held back to the next commit: something is about to be recorded. */
  deferHeld(): void {
    const held = this.#held
    if (held === undefined) return
    this.#held = undefined
    if (held.fraction === this.#last?.fraction && held.note === this.#last.note && held.step === this.#last.step) return
    this.#show(held)
    this.#defer(this.#event(held))
  }

  #show(report: Report): void {
    this.#last = report
    this.#lastAt = performance.now()
  }

  #whole(): number {
    let done = 0
    let all = 0
    for (const { weight, fraction } of this.#shares?.values() ?? []) {
      done += weight * fraction
      all += weight
    }
    // Sums of fractions are not round; what is shown is.
    return Math.round((done / all) * 1e6) / 1e6
  }
}

export function checkReport(fraction: unknown, note: unknown): void {
  if (typeof fraction !== 'number' || !(fraction >= 0 && fraction <= 1)) {
    throw new HoldfastError('invalid_input', `progress takes a number from 0 to 1, not ${String(fraction)}.`)
  }
  if (note !== undefined && typeof note !== 'string') {
    throw new HoldfastError('invalid_input', `The note of a progress report is text, not ${typeof note}.`)
  }
}

/** The plan's step that a path lies in: `gather` for `gather/fetch[2]` and for its fallback. */
function stepOfPlan(path: string): string {
  const [outermost = ''] = path.split('/')
  const bracket = outermost.indexOf('[')
  return bracket === -1 ? outermost : outermost.slice(0, bracket)
}
