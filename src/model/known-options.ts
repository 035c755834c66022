import { HoldfastError } from './errors.ts'

/** The names of the options of a type: the compiler sees that none is missing. Internal ones are named to nobody. */
export type OptionNames<Options> = { readonly [Name in keyof Required<Options>]: true | 'internal' }
export type KnownOptions = Readonly<Record<string, true | 'internal'>>

/** Refuses an option that nobody reads: a slip of the pen would otherwise go unnoticed. `what` says whose options they are. */
export function refuseUnknownOptions(what: string, given: unknown, known: KnownOptions): void {
  if (given === undefined) return
  if (typeof given !== 'object' || given === null)
    throw new HoldfastError(
      'invalid_input',
      `${what} takes its options as an object, not ${given === null ? 'null' : typeof given}.`,
    )
  for (const name in given) {
    if (Object.hasOwn(known, name) || (given as Record<string, unknown>)[name] === undefined) continue
    throw unknownName(
      `${what} has no option "${name}".`,
      name,
      Object.keys(known).filter((one) => known[one] === true),
    )
  }
}

/** The error for a name that is none of these: it says which was meant, or which there are. */
export function unknownName(message: string, name: string, known: readonly string[]): HoldfastError {
  const near = nearest(name, known)
  const advice = near === undefined ? `It has ${known.join(', ')}.` : `Did you mean "${near}"?`
  return new HoldfastError('invalid_input', `${message} ${advice}`, {
    details: { option: name, ...(near !== undefined && { nearest: near }) },
  })
}

function nearest(name: string, known: readonly string[]): string | undefined {
  const [best] = ranked(name, known)
  return best !== undefined && best.distance <= Math.max(2, Math.ceil(name.length / 3)) ? best.option : undefined
}

/** The names that are most like this one, the nearest first. */
export function nearestNames(name: string, known: readonly string[], limit: number): string[] {
  return ranked(name, known)
    .slice(0, limit)
    .map(({ option }) => option)
}

function ranked(name: string, known: readonly string[]): { readonly option: string; readonly distance: number }[] {
  const asked = name.toLowerCase()
  return known
    .map((option) => ({ option, distance: distanceBetween(asked, option.toLowerCase()) }))
    .toSorted((a, b) => a.distance - b.distance)
}

/** Letters to insert, delete or replace, from one word to the other. */
function distanceBetween(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, index) => index)
  for (let i = 1; i <= from.length; i++) {
    const next = [i]
    for (let j = 1; j <= to.length; j++) {
      const replaced = (row[j - 1] as number) + (from[i - 1] === to[j - 1] ? 0 : 1)
      next.push(Math.min(replaced, (row[j] as number) + 1, (next[j - 1] as number) + 1))
    }
    row = next
  }
  return row[to.length] as number
}
