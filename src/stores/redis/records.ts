import {
  endOfTime,
  expiresAtOf,
  type KeyedRecord,
  placeOfRecord,
  type RecordChange,
  type RecordField,
  type RecordKey,
} from '../../model/record.ts'
import type { Due } from '../../store/change.ts'
import {
  compareKeys,
  inOrderOfKeys,
  type RecordPage,
  type RecordQuery,
  type RecordScan,
  readRecordCursor,
  recordPage,
} from '../../store/record-query.ts'
import type { RecordHit, RecordRanking, RecordSearch } from '../../store/record-search.ts'
import type { Connection } from './connection.ts'
import { pairOf, splitPair } from './keys.ts'
import type { Reply } from './link.ts'
import { type Fields, type Packer, packFields } from './pack.ts'
import { collectionOf, contentFields, fieldIndex, parentIndex, recordOf, restoredFields, toKeyedRecord } from './record-row.ts'
import {
  readRecordsByKeyScript,
  readRecordsScript,
  scanRecordsScript,
  scanThreadRecordsScript,
  searchRecordsScript,
  sweepRecordsScript,
} from './scripts/records.ts'

/** In the form that `write_records` in scripts/commit/record-changes.ts reads. */
export function packRecords(packer: Packer, changes: readonly RecordChange[], owner: string): void {
  packer.array(changes.length)
  for (const change of inOrderOfKeys(changes)) packFields(packer, recordFieldsOf(packer, change, owner))
}

function recordFieldsOf(packer: Packer, change: RecordChange, owner: string): Fields {
  const kind: Fields[number] = ['kind', () => packer.text(change.kind)]
  switch (change.kind) {
    case 'put':
      return [
        kind,
        ...contentFields(packer, { ...change, owner }),
        ...expiresOf(packer, change.expires),
        ...expectedOf(packer, change),
      ]
    case 'delete':
      return [kind, ['record', () => packer.text(recordOf({ ...change, owner }))], ...expectedOf(packer, change)]
    case 'touch':
      return [
        kind,
        ['record', () => packer.text(recordOf({ ...change, owner }))],
        ...expiresOf(packer, change.expires),
        ...(change.ofVersion === undefined ? [] : [ofVersion(packer, change.ofVersion)]),
      ]
    case 'restore':
      return [kind, ...restoredFields(packer, { ...change.record, owner })]
  }
}

function expiresOf(packer: Packer, expires: Due): Fields {
  if (expires === 'never') return []
  if ('at' in expires) return [['expires', () => packer.number(expiresAtOf(expires, 0) ?? 0)]]
  return [['expires_ms', () => packer.number(Math.ceil(Math.min(endOfTime, expires.inMs)))]]
}

function expectedOf(
  packer: Packer,
  { ifVersion, ifUpdatedAt }: { readonly ifVersion?: number; readonly ifUpdatedAt?: number },
): Fields {
  return [
    ...(ifVersion === undefined ? [] : ([['if_version', () => packer.number(ifVersion)]] as Fields)),
    ...(ifUpdatedAt === undefined ? [] : ([['if_updated', () => packer.number(ifUpdatedAt)]] as Fields)),
  ]
}

function ofVersion(packer: Packer, version: number): Fields[number] {
  return ['of_version', () => packer.number(version)]
}

/** The record that refused a change: its number among the records of the change, and its row. */
export function refusingRecord(
  { owner, records = [] }: { readonly owner: string; readonly records?: readonly RecordChange[] },
  [number, row]: readonly (Reply | undefined)[],
): KeyedRecord | null {
  const change = inOrderOfKeys(records)[Number(number) - 1] as RecordChange
  return Array.isArray(row) ? toKeyedRecord({ owner, ...placeOfRecord(change) }, row) : null
}

export async function readRecords(connection: Connection, query: RecordQuery, offsetMs: number): Promise<readonly KeyedRecord[]> {
  const { where, afterKey, beforeKey, isDescending, limit } = query
  const collection = collectionOf(query)
  if (limit <= 0) return []
  if (where !== undefined && 'keys' in where) {
    const keys = keysAskedFor(where.keys, query)
    if (keys.length === 0) return []
    const reply = await connection.repeat(readRecordsByKeyScript, String(offsetMs), collection, ...keys)
    return toRecords(query, reply).slice(0, limit)
  }
  const index =
    where === undefined
      ? `records:${collection}`
      : `index:${'parent' in where ? parentIndex(collection, where.parent) : fieldIndex(collection, where.field.name, where.field.value)}`
  const bounds = [afterKey === undefined ? '-' : `(${afterKey}`, beforeKey === undefined ? '+' : `(${beforeKey}`] as const
  const direction = isDescending === true ? 'descending' : ''
  const args = [String(offsetMs), collection, index, ...bounds, direction, String(Math.min(limit, Number.MAX_SAFE_INTEGER))]
  return toRecords(query, await connection.repeat(readRecordsScript, ...args))
}

export async function searchRecords(connection: Connection, search: RecordSearch): Promise<RecordRanking> {
  const { fields, having = [], limit } = search
  const collection = collectionOf(search)
  const indexOf = ({ name, value }: RecordField) => fieldIndex(collection, name, value)
  const args = [...fields.map(indexOf), ...having.map(indexOf)]
  const most = String(Math.min(Math.max(0, limit), Number.MAX_SAFE_INTEGER))
  const reply = await connection.repeat(searchRecordsScript, most, String(fields.length), ...args)
  const [weights, list] = reply as readonly [readonly Reply[], readonly Reply[]]
  const hits: RecordHit[] = []
  for (let i = 0; i < list.length; i += 2) hits.push({ key: String(list[i]), weight: Number(list[i + 1]) })
  return { weights: weights.map(Number), hits }
}

/** Each once, in order, within the bounds. */
function keysAskedFor(keys: readonly string[], { afterKey, beforeKey, isDescending }: RecordQuery): string[] {
  const inside = [...new Set(keys)]
    .filter((key) => afterKey === undefined || compareKeys(key, afterKey) > 0)
    .filter((key) => beforeKey === undefined || compareKeys(key, beforeKey) < 0)
    .sort(compareKeys)
  return isDescending === true ? inside.reverse() : inside
}

export async function scanRecords(
  connection: Connection,
  { thread, limit, cursor }: RecordScan,
  offsetMs: number,
): Promise<RecordPage> {
  if (limit <= 0) return { items: [] }
  const last = readRecordCursor(cursor)
  if (thread !== undefined) {
    const least = last === undefined ? '-' : `(${recordOf(last)}`
    const args = [String(offsetMs), pairOf(thread.owner, thread.threadId), least, String(limit + 1)]
    return recordPage(namedRows(await connection.repeat(scanThreadRecordsScript, ...args)), limit, ofNamedRow)
  }
  const after = last === undefined ? (['', ''] as const) : ([collectionOf(last), last.key] as const)
  const pages = (await connection.repeat(scanRecordsScript, String(offsetMs), ...after, String(limit + 1))) as readonly Reply[]
  const rows: NamedRow[] = []
  for (let i = 0; i < pages.length; i += 2) {
    const { owner, id } = splitPair(String(pages[i]))
    rows.push(...rowsOf({ owner, collection: id }, pages[i + 1] as Reply))
  }
  return recordPage(rows, limit, ofNamedRow)
}

export async function sweepRecords(connection: Connection, limit: number, offsetMs: number): Promise<number> {
  return limit <= 0 ? 0 : Number(await connection.once(sweepRecordsScript, offsetMs, [String(limit)]))
}

type Collection = Pick<RecordKey, 'owner' | 'collection'>

function toRecords(collection: Collection, reply: Reply): KeyedRecord[] {
  return rowsOf(collection, reply).map(ofNamedRow)
}

interface NamedRow extends RecordKey {
  readonly row: Reply
}

function ofNamedRow(named: NamedRow): KeyedRecord {
  return toKeyedRecord(named, named.row)
}

/** From key, row, key, row, … */
function rowsOf({ owner, collection }: Collection, reply: Reply): NamedRow[] {
  const list = reply as readonly Reply[]
  const rows: NamedRow[] = []
  for (let i = 0; i < list.length; i += 2) rows.push({ owner, collection, key: String(list[i]), row: list[i + 1] as Reply })
  return rows
}

/** From record, row, record, row, … A record is `<bytes of collection>:<collection><key>`. */
function namedRows(reply: Reply): NamedRow[] {
  const list = reply as readonly Reply[]
  const rows: NamedRow[] = []
  for (let i = 0; i < list.length; i += 2) {
    const name = list[i] as Buffer
    const start = name.indexOf(58) + 1
    const end = start + Number(name.toString('latin1', 0, start - 1))
    const { owner, id } = splitPair(name.toString('utf8', start, end))
    rows.push({ owner, collection: id, key: name.toString('utf8', end), row: list[i + 1] as Reply })
  }
  return rows
}
