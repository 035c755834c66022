import { HoldfastError } from '../../model/errors.ts'
import type { Due } from '../../store/change.ts'

/** Kind and ms as the functions take them. */
export function dueOf(due: Due): [number, number | null] {
  if (due === 'never') return [3, null]
  return 'at' in due ? [2, wholeMs(due.at)] : [1, wholeMs(due.inMs)]
}

/** The end of time of a Date, so that no number is too large for the server. */
const endOfTime = 8_640_000_000_000_000

/** Rounded up: nothing is due before its time. */
export function wholeMs(ms: number): number {
  if (Number.isNaN(ms)) throw new HoldfastError('invalid_input', 'A time is not a number; nothing was written.')
  return Math.ceil(Math.min(endOfTime, Math.max(-endOfTime, ms)))
}

/** What is not a whole number equals none. */
export function countOrNull(value: number): number | null {
  return Number.isSafeInteger(value) ? value : null
}

/** Counts of calls and attempts are kept in 32 bits. */
export function count32(value: number): number {
  if ((value | 0) === value) return value
  throw new HoldfastError('invalid_input', `${value} calls or attempts are more than the store can count; nothing was written.`)
}

export function whole(value: number, what: string): number {
  if (Number.isSafeInteger(value)) return value
  throw new HoldfastError('invalid_input', `The ${what} ${value} is not a whole number; nothing was written.`)
}

/** A position as the server takes it, whatever number was given. */
export function position(seq: number): number {
  const whole = Number.isNaN(seq) ? 0 : Math.trunc(seq)
  return Math.min(Number.MAX_SAFE_INTEGER - 1, Math.max(-1, whole))
}

/** A limit as the server takes it. */
export function atLeastZero(limit: number): number {
  return Math.min(2_000_000_000, Math.max(0, Math.ceil(limit)))
}
