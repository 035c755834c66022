import { HoldfastError } from '../model/errors.ts'
import { type KeyedRecord, placeOfRecord, type RecordChange, type RecordField, type RecordKey } from '../model/record.ts'
import { passable } from './page.ts'
import type { ThreadKey } from './thread.ts'

/** Records of one collection, in bytewise order of their keys. */
export interface RecordQuery {
  readonly owner: string
  readonly collection: string
  /** Only those of this parent, or with this field, or under these keys. Absent: all of the collection. */
  readonly where?: { readonly parent: string } | { readonly field: RecordField } | { readonly keys: readonly string[] }
  /** Only keys greater than this one. */
  readonly afterKey?: string
  /** Only keys smaller than this one. */
  readonly beforeKey?: string
  /** From the greatest key down. Default false. */
  readonly isDescending?: boolean
  readonly limit: number
}

export interface RecordScan {
  /** Only those that belong to this thread. */
  readonly thread?: ThreadKey
  readonly limit: number
  readonly cursor?: string
}

export interface RecordPage {
  readonly items: readonly KeyedRecord[]
  readonly cursor?: string
}

/** Bytewise in UTF-8, as every store orders keys: the order of code points. */
export function compareKeys(a: string, b: string): number {
  const length = Math.min(a.length, b.length)
  for (let index = 0; index < length; index++) {
    const difference = inOrder(a.charCodeAt(index)) - inOrder(b.charCodeAt(index))
    if (difference !== 0) return difference
  }
  return a.length - b.length
}

/** Halves of a pair of UTF-16 stand for code points beyond all others. */
function inOrder(unit: number): number {
  return unit >= 0xd800 && unit <= 0xdfff ? unit + 0x10000 : unit
}

/**
 * The records of a change in the order in which every store judges them: the first that is refused is the answer. Two changes that write the same
 * records so lock them in the same order.
 */
export function inOrderOfKeys(changes: readonly RecordChange[]): readonly RecordChange[] {
  if (changes.length < 2) return changes
  return changes.toSorted((a, b) => {
    const [first, second] = [placeOfRecord(a), placeOfRecord(b)]
    return compareKeys(first.collection, second.collection) || compareKeys(first.key, second.key)
  })
}

export function compareRecords(a: RecordKey, b: RecordKey): number {
  return compareKeys(a.owner, b.owner) || compareKeys(a.collection, b.collection) || compareKeys(a.key, b.key)
}

/** A page of up to `limit` records, of which one more was read to know whether there is a next page: that one is not looked at. */
export function recordPage<Row extends RecordKey>(
  rows: readonly Row[],
  limit: number,
  toRecord: (row: Row) => KeyedRecord,
): RecordPage {
  const shown = rows.slice(0, Math.max(0, limit))
  const last = shown.at(-1)
  const items = shown.map((row) => passable(() => toRecord(row), cursorAfter(row)))
  return last !== undefined && rows.length > shown.length ? { items, cursor: cursorAfter(last) } : { items }
}

function cursorAfter({ owner, collection, key }: RecordKey): string {
  return JSON.stringify([owner, collection, key])
}

/** The last record of the page before; undefined for the first page. */
export function readRecordCursor(cursor: string | undefined): RecordKey | undefined {
  if (cursor === undefined) return undefined
  const [owner, collection, key] = parseList(cursor)
  if (typeof owner === 'string' && typeof collection === 'string' && typeof key === 'string') return { owner, collection, key }
  throw new HoldfastError(
    'invalid_input',
    `${JSON.stringify(cursor)} is not a cursor of this store. Pass the one that came with the last page.`,
  )
}

function parseList(text: string): readonly unknown[] {
  try {
    const list = JSON.parse(text) as unknown
    return Array.isArray(list) ? list : []
  } catch {
    return []
  }
}
