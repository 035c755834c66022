import { pairKey } from '../../model/ids.ts'
import {
  hasExpired,
  isOtherVersion,
  type KeyedRecord,
  placeOfRecord,
  type RecordChange,
  type RecordKey,
  recordAfter,
} from '../../model/record.ts'
import type { Change, Committed } from '../../store/change.ts'
import {
  compareKeys,
  compareRecords,
  inOrderOfKeys,
  type RecordPage,
  type RecordQuery,
  type RecordScan,
  readRecordCursor,
  recordPage,
} from '../../store/record-query.ts'
import type { ThreadKey } from '../../store/store.ts'
import { copyPayload, type Tables } from './tables.ts'

export function refuseRecords(tables: Tables, change: Change, now: number): Extract<Committed, { ok: false }> | null {
  for (const one of inOrderOfKeys(change.records ?? [])) {
    const found = readRecord(tables, keyOf(change, one), now)
    if (isOtherVersion(found, one))
      return { ok: false, refusal: 'record_changed', record: found === undefined ? null : copyRecord(found) }
  }
  return null
}

export function changeRecords(tables: Tables, change: Change, now: number): void {
  for (const one of change.records ?? []) {
    const key = keyOf(change, one)
    const after = recordAfter(readRecord(tables, key, now), one, { owner: change.owner, now })
    if (after === null) deleteRecord(tables, key)
    else if (after !== undefined) putRecord(tables, after)
  }
}

export function putRecord(tables: Tables, record: KeyedRecord): void {
  const name = pairKey(record.owner, record.collection)
  const collection = tables.records.get(name) ?? new Map<string, KeyedRecord>()
  tables.records.set(name, collection.set(record.key, copyRecord(record)))
}

/** Undefined also where it has expired. */
export function readRecord(tables: Tables, { owner, collection, key }: RecordKey, now: number): KeyedRecord | undefined {
  const record = tables.records.get(pairKey(owner, collection))?.get(key)
  return record === undefined || hasExpired(record, now) ? undefined : record
}

export function readRecords(tables: Tables, query: RecordQuery, now: number): KeyedRecord[] {
  const { owner, collection, isDescending, limit } = query
  const found = [...(tables.records.get(pairKey(owner, collection))?.values() ?? [])]
    .filter((record) => !hasExpired(record, now) && isAskedFor(record, query))
    .sort((a, b) => compareKeys(a.key, b.key))
  return (isDescending === true ? found.reverse() : found).slice(0, Math.max(0, limit)).map(copyRecord)
}

export function scanRecords(tables: Tables, { thread, limit, cursor }: RecordScan, now: number): RecordPage {
  const last = readRecordCursor(cursor)
  const rest = liveRecords(tables, now)
    .filter((record) => thread === undefined || isOf(thread, record))
    .filter((record) => last === undefined || compareRecords(record, last) > 0)
    .sort(compareRecords)
  return recordPage(rest, limit, copyRecord)
}

export function sweepRecords(tables: Tables, limit: number, now: number): number {
  const expired = allRecords(tables)
    .filter((record) => hasExpired(record, now))
    .sort((a, b) => (a.expiresAt ?? 0) - (b.expiresAt ?? 0))
    .slice(0, Math.max(0, limit))
  for (const record of expired) deleteRecord(tables, record)
  return expired.length
}

export function deleteRecordsOf(tables: Tables, thread: ThreadKey): void {
  for (const record of allRecords(tables)) if (isOf(thread, record)) deleteRecord(tables, record)
}

function isOf(thread: ThreadKey, { owner, threadId }: KeyedRecord): boolean {
  return owner === thread.owner && threadId === thread.threadId
}

function deleteRecord(tables: Tables, { owner, collection, key }: RecordKey): void {
  const name = pairKey(owner, collection)
  const records = tables.records.get(name)
  records?.delete(key)
  if (records?.size === 0) tables.records.delete(name)
}

function isAskedFor({ key, parent, fields }: KeyedRecord, { where, afterKey, beforeKey }: RecordQuery): boolean {
  if (afterKey !== undefined && compareKeys(key, afterKey) <= 0) return false
  if (beforeKey !== undefined && compareKeys(key, beforeKey) >= 0) return false
  if (where === undefined) return true
  if ('keys' in where) return where.keys.includes(key)
  if ('parent' in where) return parent === where.parent
  return fields.some(({ name, value }) => name === where.field.name && value === where.field.value)
}

function allRecords({ records }: Tables): KeyedRecord[] {
  return [...records.values()].flatMap((collection) => [...collection.values()])
}

function liveRecords(tables: Tables, now: number): KeyedRecord[] {
  return allRecords(tables).filter((record) => !hasExpired(record, now))
}

function keyOf({ owner }: Change, change: RecordChange): RecordKey {
  return { owner, ...placeOfRecord(change) }
}

function copyRecord(record: KeyedRecord): KeyedRecord {
  const { owner, collection, key, parent, threadId, version, createdAt, updatedAt, expiresAt } = record
  const fields = record.fields.map(({ name, value }) => ({ name, value }))
  return {
    owner,
    collection,
    key,
    parent,
    threadId,
    fields,
    version,
    payload: copyPayload(record.payload),
    createdAt,
    updatedAt,
    expiresAt,
  }
}
