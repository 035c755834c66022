/** Several measurements of one thing: the middle, and how far they lie apart. */
export interface Spread {
  readonly median: number
  readonly min: number
  readonly max: number
  readonly count: number
}

export function spreadOf(values: readonly number[]): Spread {
  const sorted = values.toSorted((a, b) => a - b)
  const middle = sorted.length / 2
  const median = (at(sorted, Math.floor(middle - 0.5)) + at(sorted, Math.floor(middle))) / 2
  return { median, min: at(sorted, 0), max: at(sorted, sorted.length - 1), count: sorted.length }
}

export function medianOf(values: readonly number[]): number {
  return spreadOf(values).median
}

/** `1.31 (1.22–1.47, 9 slices)` */
export function formatSpread({ median, min, max, count }: Spread, digits = 2, what = 'slices'): string {
  return `${median.toFixed(digits)} (${min.toFixed(digits)}–${max.toFixed(digits)}, ${count} ${what})`
}

function at(values: readonly number[], index: number): number {
  const value = values[index]
  if (value === undefined) throw new Error('nothing was measured')
  return value
}
