import { createHash } from 'node:crypto'
import {
  fieldsText,
  type KeyedRecord,
  type RecordKey,
  readFields,
  recordPayloadChecksum,
  verifyKeyedRecord,
} from '../../model/record.ts'
import { pairOf, splitPair } from './keys.ts'
import type { Reply } from './link.ts'
import type { Fields, Packer } from './pack.ts'
import { packPayload, unpackPayload } from './payload-bytes.ts'
import { marked } from './rows.ts'

/** A record's row. Owner, collection and key are in its key. `thread` is a pair, empty for none. */
export const recordFields = ['version', 'parent', 'thread', 'fields', 'created', 'updated', 'expires', 'sum', 'payload']

/** A collection with its owner. */
export function collectionOf({ owner, collection }: Pick<RecordKey, 'owner' | 'collection'>): string {
  return pairOf(owner, collection)
}

/** As scripts know it: `records` in scripts/parts/records.ts. */
export function recordOf(key: RecordKey): string {
  const collection = collectionOf(key)
  return `${Buffer.byteLength(collection)}:${collection}${key.key}`
}

/** The index of the records of one parent, or with one field. */
export function parentIndex(collection: string, parent: string): string {
  return oneLine(`p${Buffer.byteLength(collection)}:${collection}${parent}`)
}

export function fieldIndex(collection: string, name: string, value: string): string {
  return oneLine(`f${Buffer.byteLength(collection)}:${collection}${pairOf(name, value)}`)
}

/** A row has the names of its indexes one per line. One that has several lines is known by its hash, which begins like no other name. */
function oneLine(index: string): string {
  return index.includes('\n') ? `h${createHash('sha256').update(index).digest('hex')}` : index
}

/** What its writer knows of a record, in the form that `put_record` reads. */
export function contentFields(
  packer: Packer,
  record: Omit<KeyedRecord, 'version' | 'createdAt' | 'updatedAt' | 'expiresAt'>,
): Fields {
  const { owner, parent, threadId, fields, payload } = record
  const collection = collectionOf(record)
  const indexes = [
    ...(parent === null ? [] : [parentIndex(collection, parent)]),
    ...fields.map(({ name, value }) => fieldIndex(collection, name, value)),
  ]
  return [
    ['record', () => packer.text(recordOf(record))],
    ['indexes', () => packer.text([...new Set(indexes)].join('\n'))],
    ['thread', () => packer.text(threadId === null ? '' : pairOf(owner, threadId))],
    ['parent', () => packer.text(marked(parent))],
    ['fields', () => packer.text(fieldsText(fields))],
    ['sum', () => packer.number(recordPayloadChecksum(record))],
    ['payload', () => packPayload(packer, payload)],
  ]
}

/** A record with the version and the times that it has, in the same form. */
export function restoredFields(packer: Packer, record: KeyedRecord): Fields {
  const { version, createdAt, updatedAt, expiresAt } = record
  return [
    ...contentFields(packer, record),
    ['version', () => packer.number(version)],
    ['created', () => packer.number(createdAt)],
    ['updated', () => packer.number(updatedAt)],
    ...(expiresAt === null ? [] : ([['expires', () => packer.number(expiresAt)]] as Fields)),
  ]
}

export function toKeyedRecord({ owner, collection, key }: RecordKey, reply: Reply): KeyedRecord {
  const row = reply as readonly Buffer[]
  const [version, parent, thread, fields, created, updated, expires, sum] = row.map(String) as unknown as Eight<string>
  const record: KeyedRecord = {
    ...{ owner, collection, key, parent: parent === '' ? null : parent.slice(1) },
    ...{ threadId: thread === '' ? null : splitPair(thread).id, fields: readFields(fields), version: Number(version) },
    ...{ payload: unpackPayload(row[8] ?? nothing, 0), createdAt: Number(created), updatedAt: Number(updated) },
    expiresAt: expires === '' ? null : Number(expires),
  }
  return verifyKeyedRecord(record, Number(sum))
}

/** In place of a payload that is gone: the checksum does not match. */
const nothing = Buffer.alloc(0)

type Eight<Value> = readonly [Value, Value, Value, Value, Value, Value, Value, Value]
