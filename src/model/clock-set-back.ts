import type { Run } from './run.ts'

/**
 * A store's clock may be set back: by an operator, or by a failover to a server whose clock is behind. Times that were written before
 * then lie in the future, and whoever waits for them would wait for as long as the clock was set back.
 *
 * A store looks for such runs when it is first used for claiming and whenever it sees that its clock went back, and moves them to
 * what `claimableAfterSetBack` says. A date that somebody asked for (a delayed start, a sleep) stays as it is.
 */

/** No lease lasts longer from now, unless the worker's own `leaseMs` does. */
export const longestLeaseMs = 600_000

/** The store's time, and this process's monotonic clock when it was learnt. */
export interface Moment {
  readonly now: number
  readonly at: number
}

/** Clocks that differ by less are not set back: an answer takes its time, and clocks drift. */
export const setBackToleranceMs = 5_000

/** Whether a store has to look for runs that a clock holds up: at first, and when its time is behind what has gone by. */
export function wasSetBack(last: Moment | null, { now, at }: Moment): boolean {
  return last === null || now < last.now + (at - last.at) - setBackToleranceMs
}

/** What a store knows of its clock from one act to the next. */
export class ClockWatch {
  #last: Moment | null = null
  #isSetBack = true

  /** The store's time was seen; also after the fact, when a server's answer has come. */
  see(moment: Moment): void {
    if (wasSetBack(this.#last, moment)) this.#isSetBack = true
    this.#last = moment
  }

  /** Runs that the clock may hold up have not been looked for since it was set back, or since the store was opened. */
  get isSetBack(): boolean {
    return this.#isSetBack
  }

  /** They have been looked for, all of them. */
  heeded(): void {
    this.#isSetBack = false
  }

  /** What the store's time should be at least; null before it was seen. */
  expected(at: number): number | null {
    return this.#last === null ? null : Math.floor(this.#last.now + (at - this.#last.at) - setBackToleranceMs)
  }
}

/** A lease that ends later than this was given before the clock was set back. `leaseMs` is that of the worker that claims. */
export function latestLeaseEnd({ now, leaseMs }: { readonly now: number; readonly leaseMs: number }): number {
  return now + Math.max(longestLeaseMs, leaseMs)
}

/**
 * From when a run can be claimed, where what is on record comes of a clock that has been set back since; null where it is right.
 * A lease that is too long becomes one of usual length, so that a holder that is alive extends it in time. A pending run is due at
 * once if it has begun (nobody asks for a date then), or if it was due when it was created and that is later than now.
 */
export function claimableAfterSetBack(
  { status, createdAt, startedAt, dueAt, leaseUntil }: Pick<Run, 'status' | 'createdAt' | 'startedAt' | 'dueAt' | 'leaseUntil'>,
  { now, leaseMs }: { readonly now: number; readonly leaseMs: number },
): number | null {
  if (status === 'running') return leaseUntil !== null && leaseUntil > latestLeaseEnd({ now, leaseMs }) ? now + leaseMs : null
  if (status !== 'pending' || dueAt === null || dueAt <= now) return null
  const wasDueAtCreation = dueAt <= createdAt
  return startedAt !== null || wasDueAtCreation ? now : null
}
