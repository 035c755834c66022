import { HoldfastError } from '../index.ts'

/** Refuses what is no whole number of at least so many: with another one less would be tried than the caller thinks. */
export function refuseNoCount(what: string, value: unknown, least: number): void {
  if (value === undefined || (Number.isSafeInteger(value) && (value as number) >= least)) return
  throw new HoldfastError('invalid_input', `${what} is ${shown(value)}; it must be a whole number from ${least}.`)
}

/** Refuses what is none of these. */
export function refuseNoneOf(what: string, value: unknown, known: readonly unknown[]): void {
  if (value === undefined || known.includes(value)) return
  throw new HoldfastError('invalid_input', `${what} is ${shown(value)}; it is one of ${known.map(shown).join(', ')}.`)
}

/** Refuses what is no object with names in it. */
export function refuseNoRecord(what: string, value: unknown): void {
  if (value === undefined || (typeof value === 'object' && value !== null && !Array.isArray(value))) return
  throw new HoldfastError('invalid_input', `${what} is ${shown(value)}; it must be an object, by name.`)
}

/** Refuses what is no list, and items that are no workflows or no definitions of a state. */
export function refuseNoListOf(what: string, value: unknown, kind: 'workflow' | 'state'): void {
  const isOne = (item: unknown) =>
    typeof item === 'object' && item !== null && (kind === 'workflow' ? 'fn' in item : 'initial' in item && 'version' in item)
  if (Array.isArray(value) && value.every(isOne)) return
  const made = kind === 'workflow' ? 'workflow() or plan()' : 'state()'
  throw new HoldfastError('invalid_input', `${what} must be a list of what ${made} returned.`)
}

function shown(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value)
  return Array.isArray(value) ? 'a list' : String(value)
}
