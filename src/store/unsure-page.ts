import { HoldfastError } from '../model/errors.ts'
import type { Operation } from '../model/operation.ts'

/** Where an unsure operation stands among those of its owner: by when it was opened, then by key, bytewise. */
export type UnsurePlace = Pick<Operation, 'intendedAt' | 'key'>

export function compareUnsure(a: UnsurePlace, b: UnsurePlace): number {
  return a.intendedAt - b.intendedAt || Buffer.compare(Buffer.from(a.key), Buffer.from(b.key))
}

/** A page of up to `limit` operations, of which one more was read to know whether there is a next page. */
export function unsurePage(read: readonly Operation[], limit: number): { items: readonly Operation[]; cursor?: string } {
  const items = read.slice(0, Math.max(0, limit))
  const last = items.at(-1)
  return { items, ...(last !== undefined && read.length > items.length && { cursor: `${last.intendedAt}:${last.key}` }) }
}

/** Where the last page ended; before everything where there was none. */
export function readUnsureCursor(cursor: string | undefined): UnsurePlace {
  if (cursor === undefined) return { intendedAt: 0, key: '' }
  const [, intendedAt, key] = /^(\d{1,15}):(.+)$/s.exec(cursor) ?? []
  if (intendedAt !== undefined && key !== undefined) return { intendedAt: Number(intendedAt), key }
  throw new HoldfastError(
    'invalid_input',
    `${JSON.stringify(cursor)} is not a cursor of this store. Pass the one that came with the last page.`,
  )
}
