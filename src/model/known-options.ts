import { HoldfastError } from './errors.ts'

/** The names of the options of a type: the compiler sees that none is missing. */
export type OptionNames<Options> = { readonly [Name in keyof Required<Options>]: true }

/** Refuses an option that nobody reads: a slip of the pen would otherwise go unnoticed. `what` says whose options they are. */
export function refuseUnknownOptions(what: string, given: unknown, known: Readonly<Record<string, true>>): void {
  if (given === undefined) return
  if (typeof given !== 'object' || given === null)
    throw new HoldfastError(
      'invalid_input',
      `${what} takes its options as an object, not ${given === null ? 'null' : typeof given}.`,
    )
  for (const name in given) {
    if (Object.hasOwn(known, name) || (given as Record<string, unknown>)[name] === undefined) continue
    const near = nearest(name, Object.keys(known))
    const advice = near === undefined ? `It has ${Object.keys(known).join(', ')}.` : `Did you mean "${near}"?`
    throw new HoldfastError('invalid_input', `${what} has no option "${name}". ${advice}`, {
      details: { option: name, ...(near !== undefined && { nearest: near }) },
    })
  }
}

function nearest(name: string, known: readonly string[]): string | undefined {
  const asked = name.toLowerCase()
  const ranked = known
    .map((option) => ({ option, distance: distanceBetween(asked, option.toLowerCase()) }))
    .toSorted((a, b) => a.distance - b.distance)
  const [best] = ranked
  return best !== undefined && best.distance <= Math.max(2, asked.length / 3) ? best.option : undefined
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
