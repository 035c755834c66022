import { HoldfastError } from './errors.ts'

/**
 * Refuses with `invalid_input` what is no number of milliseconds from `least` on; undefined is none. `what` names the option. `Infinity` is a limit
 * that is never reached.
 */
export function checkMs(what: string, value: unknown, least = 0): void {
  if (value === undefined || (typeof value === 'number' && value >= least)) return
  const shown = typeof value === 'number' ? String(value) : `${JSON.stringify(value) ?? String(value)} (${typeof value})`
  const from = least === 0 ? 'from 0' : `of at least ${least}`
  throw new HoldfastError('invalid_input', `${what} is ${shown}; it must be a number of milliseconds ${from}.`)
}
