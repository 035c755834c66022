import {
  fieldsText,
  isOtherVersion,
  type KeyedRecord,
  keyedRecordChecksum,
  placeOfRecord,
  type RecordField,
  type RecordKey,
  readFields,
  recordAfter,
  resealRecord,
  verifyKeyedRecord,
} from '../../model/record.ts'
import type { Change, Committed } from '../../store/change.ts'
import {
  inOrderOfKeys,
  type RecordPage,
  type RecordQuery,
  type RecordScan,
  readRecordCursor,
  recordPage,
} from '../../store/record-query.ts'
import { fieldWeights, type RecordHit, type RecordRanking, type RecordSearch } from '../../store/record-search.ts'
import type { ThreadKey } from '../../store/store.ts'
import { type Database, prepare, type Statement } from './connection.ts'
import { toPayload } from './rows.ts'

const columns = ['owner', 'collection', 'key', 'parent', 'thread_id', 'fields', 'version', 'payload']
  .concat(['created_at', 'updated_at', 'expires_at', 'checksum'])
  .map((column) => `r.${column}`)
  .join(', ')

/** Writes records inside an open write transaction. */
export function prepareRecords(db: Database) {
  const find = prepare(db, `SELECT ${columns} FROM holdfast_records r WHERE owner = ? AND collection = ? AND key = ?`)
  const save = prepare(
    db,
    `INSERT OR REPLACE INTO holdfast_records (owner, collection, key, parent, thread_id, fields, version, payload,
       created_at, updated_at, expires_at, checksum) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
  )
  const move = prepare(
    db,
    'UPDATE holdfast_records SET expires_at = ?, checksum = ? WHERE owner = ? AND collection = ? AND key = ?',
  )
  const remove = prepare(db, 'DELETE FROM holdfast_records WHERE owner = ? AND collection = ? AND key = ?')
  const saveField = prepare(
    db,
    'INSERT OR IGNORE INTO holdfast_record_fields (owner, collection, name, value, key) VALUES (?, ?, ?, ?, ?)',
  )
  const removeField = prepare(
    db,
    'DELETE FROM holdfast_record_fields WHERE owner = ? AND collection = ? AND name = ? AND value = ? AND key = ?',
  )
  const findExpired = prepare(
    db,
    `SELECT owner, collection, key, fields FROM holdfast_records INDEXED BY holdfast_records_expiring
     WHERE expires_at <= ? ORDER BY expires_at LIMIT ?`,
  )
  const findOfThread = prepare(
    db,
    `SELECT owner, collection, key, fields FROM holdfast_records INDEXED BY holdfast_records_of_thread
     WHERE thread_id = ? AND owner = ?`,
  )

  const readRow = ({ owner, collection, key }: RecordKey) => find.get(owner, collection, key) as RecordRow | undefined
  /** Undefined also where it has expired. */
  function readLive(key: RecordKey, now: number): RecordRow | undefined {
    const row = readRow(key)
    return row === undefined || isExpired(row, now) ? undefined : row
  }

  function refuse({ owner, records = [] }: Change, now: number): Extract<Committed, { ok: false }> | null {
    for (const change of inOrderOfKeys(records)) {
      if (!('ifVersion' in change || 'ifUpdatedAt' in change)) continue
      const found = readLive({ owner, ...placeOfRecord(change) }, now)
      if (!isOtherVersion(found && { version: found.version, updatedAt: found.updated_at }, change)) continue
      return { ok: false, refusal: 'record_changed', record: found === undefined ? null : toKeyedRecord(found) }
    }
    return null
  }

  function apply({ owner, records = [] }: Change, now: number): void {
    for (const change of records) {
      const key = { owner, ...placeOfRecord(change) }
      const row = readRow(key)
      // Not verified: what is damaged can be overwritten and deleted.
      const found = row === undefined || isExpired(row, now) ? undefined : toUnverified(row)
      const after = recordAfter(found, change, { owner, now })
      if (after === null) drop(row as RecordRow)
      else if (after !== undefined && change.kind === 'touch') moveExpiry(after, row as RecordRow)
      else if (after !== undefined) put(after, row)
    }
  }

  /** `row` is what is in its place, expired or not. */
  function put(record: KeyedRecord, row = readRow(record)): void {
    const { owner, collection, key, parent, threadId, fields, version, payload, createdAt, updatedAt, expiresAt } = record
    const text = fieldsText(fields)
    if (row !== undefined && row.fields !== text) dropFields(row)
    save.run(
      ...[owner, collection, key, parent, threadId, text, version, payload],
      ...[createdAt, updatedAt, expiresAt, keyedRecordChecksum(record)],
    )
    if (row?.fields !== text) for (const { name, value } of fields) saveField.run(owner, collection, name, value, key)
  }

  function moveExpiry({ owner, collection, key, expiresAt }: KeyedRecord, row: RecordRow): void {
    const before = toUnverified(row)
    const checksum = resealRecord(row.checksum, before, { ...before, expiresAt })
    move.run(expiresAt, checksum, owner, collection, key)
  }

  function drop(row: NamedRow): void {
    dropFields(row)
    remove.run(row.owner, row.collection, row.key)
  }

  function dropFields({ owner, collection, key, fields }: NamedRow): void {
    for (const { name, value } of readFields(fields)) removeField.run(owner, collection, name, value, key)
  }

  return {
    refuse,
    apply,
    restore: (record: KeyedRecord) => put(record),
    has: (key: RecordKey, now: number) => readLive(key, now) !== undefined,
    deleteOf({ owner, threadId }: ThreadKey): void {
      for (const row of findOfThread.all(threadId, owner) as NamedRow[]) drop(row)
    },
    sweep(limit: number, now: number): number {
      const expired = findExpired.all(now, Math.max(0, limit)) as NamedRow[]
      for (const row of expired) drop(row)
      return expired.length
    },
  }
}

export function prepareReadRecords(db: Database) {
  const statements = new Map<string, Statement>()
  const anyExpired = prepare(
    db,
    'SELECT EXISTS (SELECT 1 FROM holdfast_records INDEXED BY holdfast_records_expiring WHERE expires_at <= ?)',
  ).pluck()
  const scan = prepare(
    db,
    `SELECT ${columns} FROM holdfast_records r WHERE (owner, collection, key) > (?, ?, ?) AND ${isLive}
     ORDER BY owner, collection, key LIMIT ?`,
  )
  const ofThread = prepare(
    db,
    `SELECT ${columns} FROM holdfast_records r INDEXED BY holdfast_records_of_thread
     WHERE r.thread_id = ? AND r.owner = ? AND (r.collection, r.key) > (?, ?) AND ${isLive} ORDER BY r.collection, r.key LIMIT ?`,
  )

  const countFields = prepare(
    db,
    `SELECT (SELECT count(*) FROM holdfast_record_fields f WHERE f.owner = ? AND f.collection = ? AND f.name = a.value->>0 AND f.value = a.value->>1)
     FROM json_each(?) a ORDER BY a.key`,
  ).pluck()
  const rank = prepare(db, rankSql(false))
  const rankHaving = prepare(db, rankSql(true))

  function statementFor(query: RecordQuery): Statement {
    const sql = recordsSql(query)
    const statement = statements.get(sql) ?? prepare(db, sql)
    statements.set(sql, statement)
    return statement
  }

  return {
    readRecords(query: RecordQuery, now: number): KeyedRecord[] {
      const { owner, collection, where, afterKey, beforeKey, limit } = query
      const values = [
        ...(where === undefined ? [] : 'parent' in where ? [where.parent] : 'field' in where ? fieldOf(where) : [keysOf(where)]),
        ...(afterKey === undefined ? [] : [afterKey]),
        ...(beforeKey === undefined ? [] : [beforeKey]),
      ]
      const rows = statementFor(query).all(owner, collection, ...values, now, Math.max(0, limit))
      return (rows as RecordRow[]).map(toKeyedRecord)
    },
    searchRecords({ owner, collection, fields, having = [], limit }: RecordSearch): RecordRanking {
      const counts = countFields.all(owner, collection, listOf(fields)) as number[]
      const weights = fieldWeights(counts)
      const asked = JSON.stringify(fields.map(({ name, value }, index) => [name, value, weights[index]]))
      const most = Math.max(0, limit)
      const hits =
        having.length === 0
          ? rank.all(asked, owner, collection, most)
          : rankHaving.all(asked, owner, collection, listOf(having), owner, collection, most)
      return { weights, hits: (hits as RecordHit[]).map(({ key, weight }) => ({ key, weight })) }
    },
    hasExpired: (now: number) => anyExpired.get(now) === 1,
    scanRecords({ thread, limit, cursor }: RecordScan, now: number): RecordPage {
      const { owner, collection, key } = readRecordCursor(cursor) ?? { owner: '', collection: '', key: '' }
      const rest = [collection, key, now, Math.max(0, limit) + 1]
      const rows = thread === undefined ? scan.all(owner, ...rest) : ofThread.all(thread.threadId, thread.owner, ...rest)
      return recordPage(rows as RecordRow[], limit, toKeyedRecord)
    },
  }
}

const isLive = '(r.expires_at IS NULL OR r.expires_at > ?)'

/** In the order of the values: owner, collection, what is asked for, bounds, now, limit. */
function recordsSql({ where, afterKey, beforeKey, isDescending }: RecordQuery): string {
  const bounds = (alias: string) =>
    `${afterKey === undefined ? '' : ` AND ${alias}.key > ?`}${beforeKey === undefined ? '' : ` AND ${alias}.key < ?`}`
  const order = (alias: string) => `ORDER BY ${alias}.key ${isDescending === true ? 'DESC' : 'ASC'} LIMIT ?`
  if (where !== undefined && 'field' in where) {
    return `SELECT ${columns} FROM holdfast_record_fields f CROSS JOIN holdfast_records r
      ON r.owner = f.owner AND r.collection = f.collection AND r.key = f.key
      WHERE f.owner = ? AND f.collection = ? AND f.name = ? AND f.value = ?${bounds('f')} AND ${isLive} ${order('f')}`
  }
  const index = where !== undefined && 'parent' in where ? ' INDEXED BY holdfast_records_by_parent' : ''
  const condition =
    where === undefined ? '' : 'parent' in where ? ' AND r.parent = ?' : ' AND r.key IN (SELECT value FROM json_each(?))'
  return `SELECT ${columns} FROM holdfast_records r${index}
    WHERE r.owner = ? AND r.collection = ?${condition}${bounds('r')} AND ${isLive} ${order('r')}`
}

/** Each record once that has any of the fields: pairs with their weights, then owner and collection. */
function rankSql(isHaving: boolean): string {
  const hasAll = `WHERE NOT EXISTS (SELECT 1 FROM json_each(?) h WHERE NOT EXISTS (SELECT 1 FROM holdfast_record_fields x
    WHERE x.owner = ? AND x.collection = ? AND x.name = h.value->>0 AND x.value = h.value->>1 AND x.key = g.key))`
  return `SELECT g.key, g.weight FROM (
      SELECT f.key, sum(a.value->>2) AS weight FROM json_each(?) a CROSS JOIN holdfast_record_fields f
      ON f.owner = ? AND f.collection = ? AND f.name = a.value->>0 AND f.value = a.value->>1 GROUP BY f.key) g
    ${isHaving ? hasAll : ''} ORDER BY g.weight DESC, g.key DESC LIMIT ?`
}

function listOf(fields: readonly RecordField[]): string {
  return JSON.stringify(fields.map(({ name, value }) => [name, value]))
}

type Where = NonNullable<RecordQuery['where']>

function fieldOf({ field }: Extract<Where, { field: unknown }>): string[] {
  return [field.name, field.value]
}

function keysOf({ keys }: Extract<Where, { keys: unknown }>): string {
  return JSON.stringify(keys)
}

interface NamedRow {
  readonly owner: string
  readonly collection: string
  readonly key: string
  readonly fields: string
}

interface RecordRow extends NamedRow {
  readonly parent: string | null
  readonly thread_id: string | null
  readonly version: number
  readonly payload: string | Uint8Array
  readonly created_at: number
  readonly updated_at: number
  readonly expires_at: number | null
  readonly checksum: number
}

function isExpired({ expires_at: expiresAt }: RecordRow, now: number): boolean {
  return expiresAt !== null && expiresAt <= now
}

function toKeyedRecord(row: RecordRow): KeyedRecord {
  return verifyKeyedRecord(toUnverified(row), row.checksum)
}

function toUnverified(row: RecordRow): KeyedRecord {
  return {
    ...{ owner: row.owner, collection: row.collection, key: row.key, parent: row.parent, threadId: row.thread_id },
    ...{ fields: readFields(row.fields), version: row.version, payload: toPayload(row.payload) },
    ...{ createdAt: row.created_at, updatedAt: row.updated_at, expiresAt: row.expires_at },
  }
}
