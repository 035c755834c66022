import { codeOf, HoldfastError } from '../model/errors.ts'

/** Pages of rows that are numbered in order of creation. The cursor is the number of the last row shown: rows that come or go meanwhile move nothing. */

/** One row more than the limit was read, where there is one: it says whether there is a next page. */
export function pageOf<Row, Item>(
  rows: readonly Row[],
  limit: number,
  { numberOf, toItem }: { readonly numberOf: (row: Row) => number; readonly toItem: (row: Row) => Item },
): { items: Item[]; cursor?: string } {
  const shown = rows.slice(0, Math.max(0, limit))
  const last = shown.at(-1)
  const items = shown.map((row) => passable(() => toItem(row), `n${numberOf(row)}`))
  return last !== undefined && rows.length > shown.length ? { items, cursor: `n${numberOf(last)}` } : { items }
}

/** A damaged row keeps nobody from the rows after it: its `corrupt_record` says where to continue, in `details.cursor`. */
export function passable<Item>(toItem: () => Item, cursor: string): Item {
  try {
    return toItem()
  } catch (error) {
    if (codeOf(error) !== 'corrupt_record') throw error
    const { message, details } = error as HoldfastError
    throw new HoldfastError('corrupt_record', message, { cause: error, details: { ...details, cursor } })
  }
}

/** The number after which the page begins, 0 for the first page. */
export function readCursor(cursor: string | undefined): number {
  if (cursor === undefined) return 0
  if (/^n[0-9]{1,15}$/.test(cursor)) return Number(cursor.slice(1))
  throw new HoldfastError(
    'invalid_input',
    `${JSON.stringify(cursor)} is not a cursor of this store. Pass the one that came with the last page.`,
  )
}
