import { HoldfastError } from '../model/errors.ts'

/** Where a run stands in a list: when it was created, and its number in the order in which runs came. */
export interface RunPlace {
  readonly createdAt: number
  readonly number: number
}

/** Newest first. */
export function compareAge(a: RunPlace, b: RunPlace): number {
  return b.createdAt - a.createdAt || b.number - a.number
}

/** Says where a page ended: runs that come or go meanwhile move nothing. */
export function runCursor({ createdAt, number }: RunPlace): string {
  return `n${createdAt}.${number}`
}

export function readRunCursor(cursor: string | undefined): RunPlace | undefined {
  if (cursor === undefined) return undefined
  const found = /^n(-?[0-9]{1,16})\.([0-9]{1,16})$/.exec(cursor)
  if (found !== null) return { createdAt: Number(found[1]), number: Number(found[2]) }
  throw new HoldfastError(
    'invalid_input',
    `${JSON.stringify(cursor)} is not a cursor of a list of runs. Pass the one that came with the last page.`,
  )
}
