import {
  endOfTime,
  fieldsText,
  type KeyedRecord,
  keyedRecordChecksum,
  type RecordChange,
  type RecordField,
  type RecordKey,
  readFields,
  recordPayloadChecksum,
  verifyKeyedRecord,
} from '../../model/record.ts'
import type { Change } from '../../store/change.ts'
import {
  inOrderOfKeys,
  type RecordPage,
  type RecordQuery,
  type RecordScan,
  readRecordCursor,
  recordPage,
} from '../../store/record-query.ts'
import type { RecordRanking, RecordSearch } from '../../store/record-search.ts'
import type { Store } from '../../store/store.ts'
import type { Clock } from './clock.ts'
import type { ExtraPayloads } from './extra-payloads.ts'
import { atLeastZero, countOrNull, dueOf, whole } from './integers.ts'
import { hexOf, type Row, textOf, toPayload } from './rows.ts'
import { durableSql, nowSql } from './sql.ts'
import type { StatementReader } from './statement-reader.ts'
import type { StoreParts } from './store-parts.ts'

/** As `sealRecord` does. */
function sealSql(checksum: string, row: { version: string; createdAt: string; updatedAt: string; expiresAt: string }): string {
  const added = `${row.version} * 65537 + ${row.createdAt} + ${row.updatedAt} * 3 + coalesce(${row.expiresAt}, 0)`
  return `((${checksum} + ${added}) & 4294967295)`
}

const isLive = '(x.expires_at IS NULL OR x.expires_at > p_now)'

/** Fields of a record `g`, as rows of record_fields. */
const fieldRows = `json_array_elements(CASE g.fields WHEN '' THEN '[]' ELSE g.fields END::json) e`
const isFieldOf = 'f.owner = g.owner AND f.collection = g.collection AND f.name = e->>0 AND f.value = e->>1 AND f.key = g.key'

/**
 * Judges and writes the records of a change, one after the other, as `recordsJson` has them. The caller has set a savepoint: what was
 * written before a refusal is undone with it. Answers null, or the refusal.
 */
const writeRecordsFunction = `
CREATE OR REPLACE FUNCTION holdfast.fn_write_records(
  p_owner text, p_records jsonb, p_now bigint, extra_crc bigint[], extra_payload text[], extra_payload_bytes bytea[]
) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
  w record; o holdfast.records; g holdfast.records; v_is_live boolean; v_expires bigint;
BEGIN
  FOR w IN SELECT * FROM jsonb_to_recordset(p_records) AS x(kind text, collection text, key text, parent text, thread text, fields text, payload int,
      due_kind int, due bigint, if_version bigint, if_updated bigint, version bigint, created bigint, updated bigint) LOOP
    v_expires := CASE w.due_kind WHEN 1 THEN least(${endOfTime}, greatest(0, p_now + w.due)) WHEN 2 THEN greatest(0, w.due) END;
    -- Again where another process has put it there at this moment.
    FOR i IN 1..10 LOOP
      SELECT * INTO o FROM holdfast.records x WHERE x.owner = p_owner AND x.collection = w.collection AND x.key = w.key FOR UPDATE;
      v_is_live := o.version IS NOT NULL AND (o.expires_at IS NULL OR o.expires_at > p_now);
      IF w.if_version IS NOT NULL AND w.if_version <> (CASE WHEN v_is_live THEN o.version ELSE 0 END)
        OR w.if_updated IS NOT NULL AND w.if_updated IS DISTINCT FROM (CASE WHEN v_is_live THEN o.updated_at END) THEN
        RETURN jsonb_strip_nulls(jsonb_build_object('refusal', 'record_changed', 'record', CASE WHEN v_is_live THEN to_jsonb(o) END));
      END IF;
      EXIT WHEN w.kind = 'touch' AND (NOT v_is_live OR o.version <> coalesce(w.version, o.version)) OR w.kind = 'restore' AND v_is_live OR w.kind = 'delete' AND NOT v_is_live;
      g := o;
      IF w.kind = 'touch' THEN
        UPDATE holdfast.records x SET expires_at = v_expires,
            checksum = (x.checksum - coalesce(x.expires_at, 0) + coalesce(v_expires, 0)) & 4294967295
          WHERE x.owner = p_owner AND x.collection = w.collection AND x.key = w.key;
        EXIT;
      END IF;
      IF o.fields <> coalesce(w.fields, '') THEN
        DELETE FROM holdfast.record_fields f USING ${fieldRows} WHERE ${isFieldOf};
      END IF;
      IF w.kind = 'delete' THEN
        DELETE FROM holdfast.records x WHERE x.owner = p_owner AND x.collection = w.collection AND x.key = w.key;
        EXIT;
      END IF;
      g.owner := p_owner;
      g.collection := w.collection;
      g.key := w.key;
      g.parent := w.parent;
      g.thread_id := w.thread;
      g.fields := w.fields;
      g.version := coalesce(w.version, CASE WHEN v_is_live THEN o.version ELSE 0 END + 1);
      g.created_at := coalesce(w.created, CASE WHEN v_is_live THEN o.created_at END, p_now);
      g.updated_at := coalesce(w.updated, p_now);
      g.expires_at := v_expires;
      g.checksum := ${sealSql('extra_crc[w.payload]', { version: 'g.version', createdAt: 'g.created_at', updatedAt: 'g.updated_at', expiresAt: 'g.expires_at' })};
      g.payload := extra_payload[w.payload];
      g.payload_bytes := extra_payload_bytes[w.payload];
      IF o.version IS NULL THEN
        INSERT INTO holdfast.records SELECT g.* ON CONFLICT (owner, collection, key) DO NOTHING;
        IF NOT FOUND THEN
          IF i = 10 THEN RAISE EXCEPTION 'the same record is being put elsewhere' USING ERRCODE = '40001'; END IF;
          CONTINUE;
        END IF;
      ELSE
        UPDATE holdfast.records x SET parent = g.parent, thread_id = g.thread_id, fields = g.fields, version = g.version, created_at = g.created_at,
            updated_at = g.updated_at, expires_at = g.expires_at, checksum = g.checksum, payload = g.payload, payload_bytes = g.payload_bytes
          WHERE x.owner = p_owner AND x.collection = w.collection AND x.key = w.key;
      END IF;
      IF g.fields <> '' AND o.fields IS DISTINCT FROM g.fields THEN
        INSERT INTO holdfast.record_fields (owner, collection, name, value, key)
          SELECT g.owner, g.collection, e->>0, e->>1, g.key FROM ${fieldRows} ON CONFLICT DO NOTHING;
      END IF;
      EXIT;
    END LOOP;
  END LOOP;
  RETURN NULL;
END $$;
`

const sweepFunction = `
CREATE OR REPLACE FUNCTION holdfast.fn_sweep_records(p_writer bigint, p_batch bigint, p_sync boolean, p_offset bigint, p_limit bigint) RETURNS text
LANGUAGE plpgsql VOLATILE SET lock_timeout = '10s' AS $$
DECLARE
  v_now bigint := ${nowSql}; v_count bigint;
BEGIN
  ${durableSql}
  WITH g AS (
    DELETE FROM holdfast.records x USING (
        SELECT y.owner, y.collection, y.key FROM holdfast.records y WHERE y.expires_at <= v_now ORDER BY y.expires_at LIMIT p_limit FOR UPDATE SKIP LOCKED
      ) y WHERE x.owner = y.owner AND x.collection = y.collection AND x.key = y.key RETURNING x.*
  ), gone AS (DELETE FROM holdfast.record_fields f USING g, ${fieldRows} WHERE ${isFieldOf})
  SELECT count(*) INTO v_count FROM g;
  PERFORM holdfast.fn_record(p_writer, p_batch, v_count::text);
  RETURN v_count::text;
END $$;
`

export const recordFunctions: readonly string[] = [writeRecordsFunction, sweepFunction]

/** Deletes the records of a thread, in a function that deletes the rest of it. */
export const deleteRecordsSql = `
  WITH g AS (DELETE FROM holdfast.records x WHERE x.thread_id = p_thread AND x.owner || '' = p_owner RETURNING x.*)
    DELETE FROM holdfast.record_fields f USING g, ${fieldRows} WHERE ${isFieldOf};`

/** For fn_write_records. */
export function recordsJson({ owner, records = [] }: Change, extras: ExtraPayloads): object[] {
  return inOrderOfKeys(records).map((change) => recordJson(owner, change, extras))
}

function recordJson(owner: string, change: RecordChange, extras: ExtraPayloads): object {
  switch (change.kind) {
    case 'put': {
      const [due_kind, due] = dueOf(change.expires)
      return { kind: 'put', ...contentJson(owner, change, extras), due_kind, due, ...expectedJson(change) }
    }
    case 'delete':
      return { kind: 'delete', collection: change.collection, key: change.key, ...expectedJson(change) }
    case 'touch': {
      const [due_kind, due] = dueOf(change.expires)
      const { collection, key, ofVersion } = change
      return {
        kind: 'touch',
        collection,
        key,
        due_kind,
        due,
        ...(ofVersion !== undefined && { version: countOrNull(ofVersion) ?? -1 }),
      }
    }
    case 'restore': {
      const { version, createdAt, updatedAt, expiresAt } = change.record
      return {
        ...{ kind: 'restore', ...contentJson(owner, change.record, extras), version: whole(version, 'version') },
        ...{ created: createdAt, updated: updatedAt, ...(expiresAt !== null && { due_kind: 2, due: expiresAt }) },
      }
    }
  }
}

type Content = Pick<KeyedRecord, 'collection' | 'key' | 'parent' | 'threadId' | 'fields' | 'payload'>

function contentJson(owner: string, record: Content, extras: ExtraPayloads): object {
  const { collection, key, parent, threadId, fields, payload } = record
  const place = extras.add(payload, recordPayloadChecksum({ ...record, owner }))
  return { collection, key, parent, thread: threadId, fields: fieldsText(fields), payload: place }
}

function expectedJson({ ifVersion, ifUpdatedAt }: { readonly ifVersion?: number; readonly ifUpdatedAt?: number }): object {
  return {
    ...(ifVersion !== undefined && { if_version: countOrNull(ifVersion) ?? -1 }),
    ...(ifUpdatedAt !== undefined && { if_updated: countOrNull(ifUpdatedAt) ?? -1 }),
  }
}

const columns = [
  ...[
    'owner',
    'collection',
    'key',
    'parent',
    'thread_id',
    'fields',
    'version',
    'created_at',
    'updated_at',
    'expires_at',
    'checksum',
  ],
  ...['payload', 'payload_bytes'],
]
  .map((column) => `x.${column}`)
  .join(', ')

const isLiveNow = isLive.replace('p_now', `(${nowSql.replace('p_offset', '$1')})`)

/**
 * Each look-up has an index of its own. Of indexes that begin with the same columns one has them as expressions, and so has the statement
 * that means it (schema.ts).
 */
function recordsSql({ where, afterKey, beforeKey, isDescending }: RecordQuery): string {
  const byParent = where !== undefined && 'parent' in where
  const byField = where !== undefined && 'field' in where
  const column = (name: string) => (byParent ? `x.${name} || ''` : `${byField ? 'f' : 'x'}.${name}`)
  let last = 3
  const conditions = [`${column('owner')} = $2`, `${column('collection')} = $3`]
  if (byParent) conditions.push(`x.parent = $${++last}`)
  else if (byField) conditions.push(`f.name = $${++last}`, `f.value = $${++last}`)
  else if (where !== undefined) conditions.push(`x.key = ANY ($${++last}::text[])`)
  if (afterKey !== undefined) conditions.push(`${column('key')} > $${++last}`)
  if (beforeKey !== undefined) conditions.push(`${column('key')} < $${++last}`)
  return `SELECT ${columns} FROM ${
    byField
      ? `holdfast.record_fields f CROSS JOIN LATERAL (
      SELECT * FROM holdfast.records x WHERE x.owner = f.owner AND x.collection = f.collection AND x.key = f.key LIMIT 1) x`
      : 'holdfast.records x'
  }
    WHERE ${conditions.join(' AND ')} AND ${isLiveNow} ORDER BY ${column('key')} ${isDescending === true ? 'DESC' : 'ASC'} LIMIT $${++last}`
}

function valuesOf({ owner, collection, where, afterKey, beforeKey, limit }: RecordQuery): unknown[] {
  const asked =
    where === undefined
      ? []
      : 'parent' in where
        ? [where.parent]
        : 'field' in where
          ? [where.field.name, where.field.value]
          : [where.keys]
  const bounds = [afterKey, beforeKey].filter((key) => key !== undefined)
  return [owner, collection, ...asked, ...bounds, atLeastZero(limit)]
}

const scanSql = `
  SELECT ${columns} FROM holdfast.records x WHERE (x.owner, x.collection, x.key) > ($2, $3, $4) AND ${isLiveNow}
  ORDER BY x.owner, x.collection, x.key LIMIT $5`

const scanThreadSql = `
  SELECT ${columns} FROM holdfast.records x WHERE x.thread_id = $6 AND x.owner || '' = $2 AND (x.collection || '', x.key || '') > ($3, $4) AND ${isLiveNow}
  ORDER BY x.collection || '', x.key || '' LIMIT $5`

/**
 * One statement, of one moment. Parameters: owner, collection, fields and what they must have as JSON pairs, limit. The weight is `fieldWeights`. OFFSET 0
 * keeps the planner from reading more than the entries of each field.
 */
const searchSql = `
  WITH asked AS (SELECT e->>0 AS name, e->>1 AS value, place FROM json_array_elements($3::json) WITH ORDINALITY AS a(e, place)),
  found AS MATERIALIZED (
    SELECT a.place, f.key FROM asked a CROSS JOIN LATERAL (
      SELECT f.key FROM holdfast.record_fields f
      WHERE f.owner = $1 AND f.collection = $2 AND f.name = a.name AND f.value = a.value OFFSET 0) f),
  counted AS (SELECT a.place, (SELECT count(*) FROM found f WHERE f.place = a.place) AS count FROM asked a),
  weighed AS (
    SELECT place, round(1000 * ln(1 + ((sum(count) OVER ())::float8 + 1) / (count + 0.5)::float8))::bigint AS weight FROM counted),
  ranked AS (
    SELECT g.key, g.weight FROM (SELECT f.key, sum(w.weight) AS weight FROM found f JOIN weighed w USING (place) GROUP BY f.key) g
    WHERE $4 = '[]' OR NOT EXISTS (SELECT 1 FROM json_array_elements($4::json) h WHERE NOT EXISTS (
      SELECT 1 FROM holdfast.record_fields x
      WHERE x.owner = $1 AND x.collection = $2 AND x.name = h->>0 AND x.value = h->>1 AND x.key = g.key))
    ORDER BY g.weight DESC, g.key DESC LIMIT $5)
  SELECT coalesce((SELECT json_agg(weight ORDER BY place) FROM weighed), '[]'::json)::text,
    coalesce((SELECT json_agg(json_build_array(key, weight) ORDER BY weight DESC, key DESC) FROM ranked), '[]'::json)::text`

function pairsOf(fields: readonly RecordField[]): string {
  return JSON.stringify(fields.map(({ name, value }) => [name, value]))
}

export function prepareRecordReads(reader: StatementReader, clock: Clock) {
  return {
    async readRecords(query: RecordQuery): Promise<readonly KeyedRecord[]> {
      const rows = await reader.read(recordsSql(query), [clock.offset(), ...valuesOf(query)])
      return rows.map(toKeyedRecord)
    },
    async searchRecords({ owner, collection, fields, having = [], limit }: RecordSearch): Promise<RecordRanking> {
      const [row] = await reader.read(searchSql, [owner, collection, pairsOf(fields), pairsOf(having), atLeastZero(limit)])
      const [weights, hits] = (row as Row).map((json) => JSON.parse(String(json))) as [number[], [string, number][]]
      return { weights, hits: hits.map(([key, weight]) => ({ key, weight })) }
    },
    async scanRecords({ thread, limit: asked, cursor }: RecordScan): Promise<RecordPage> {
      const limit = atLeastZero(asked)
      const { owner, collection, key } = readRecordCursor(cursor) ?? { owner: '', collection: '', key: '' }
      const values = [clock.offset(), thread?.owner ?? owner, collection, key, limit + 1]
      const rows = await (thread === undefined
        ? reader.read(scanSql, values)
        : reader.read(scanThreadSql, [...values, thread.threadId]))
      return recordPage(rows.map(toNamedRow), limit, ({ row }) => toKeyedRecord(row))
    },
  }
}

export function prepareSweepRecords({ writes, prepare, clock, isFull }: StoreParts): Store['sweepRecords'] {
  const statement = prepare('SELECT holdfast.fn_sweep_records($1, $2, $3, $4, $5)')
  return async ({ limit }) => Number(await writes.call(statement, [isFull, clock.offset(), atLeastZero(limit)]))
}

function toNamedRow(row: Row): RecordKey & { readonly row: Row } {
  const [owner, collection, key] = row
  return { owner: owner as string, collection: collection as string, key: key as string, row }
}

function toKeyedRecord(row: Row): KeyedRecord {
  const [owner, collection, key, parent, threadId, fields, version, createdAt, updatedAt, expiresAt, checksum] = row
  const record: KeyedRecord = {
    ...{ owner: owner as string, collection: collection as string, key: key as string, parent: parent ?? null },
    ...{ threadId: threadId ?? null, fields: readFields(fields as string), version: Number(version) },
    ...{ payload: toPayload(row, 11) ?? '', createdAt: Number(createdAt), updatedAt: Number(updatedAt) },
    expiresAt: expiresAt === null || expiresAt === undefined ? null : Number(expiresAt),
  }
  return verifyKeyedRecord(record, Number(checksum))
}

/** As JSON has it, in a refusal. */
export type RecordJson = Readonly<Record<string, string | number | null>>

export function recordOfJson(json: RecordJson): KeyedRecord {
  const names = [
    'owner',
    'collection',
    'key',
    'parent',
    'thread_id',
    'fields',
    'version',
    'created_at',
    'updated_at',
    'expires_at',
  ]
  const row = [...names, 'checksum', 'payload', 'payload_bytes'].map((name) => {
    const value = json[name]
    return value === null || value === undefined ? null : String(value)
  })
  return toKeyedRecord(row)
}

const restored = [
  ...['collection text', 'key text', 'parent text', 'thread_id text', 'fields text', 'version bigint', 'created_at bigint'],
  ...['updated_at bigint', 'expires_at bigint', 'checksum bigint', 'payload text', 'payload_bytes bytea'],
]
const names = restored.map((column) => column.split(' ')[0]).join(', ')

const given = `given AS (SELECT * FROM json_to_recordset($2::json) AS x (${restored.join(', ')}))`

/** What has expired in the places of records that are to be inserted makes room. $3 is the clock's offset. */
export const makeRoomSql = `
  WITH ${given}, g AS (
    DELETE FROM holdfast.records x USING given y
    WHERE x.owner = $1 AND x.collection = y.collection AND x.key = y.key AND x.expires_at <= ${nowSql.replace('p_offset', '$3')} RETURNING x.*
  ) DELETE FROM holdfast.record_fields f USING g, ${fieldRows} WHERE ${isFieldOf}`

/** Of the owner $1, as `recordRows` has them. */
export const insertRecordsSql = `
  WITH ${given}, kept AS (
    INSERT INTO holdfast.record_fields (owner, collection, name, value, key)
    SELECT $1, g.collection, e->>0, e->>1, g.key FROM given g, ${fieldRows} ON CONFLICT DO NOTHING
  )
  INSERT INTO holdfast.records (owner, ${names}) SELECT $1, ${names} FROM given`

export function* recordRows(owner: string, records: readonly KeyedRecord[]): Generator<string> {
  for (const record of records) {
    const { collection, key, parent, threadId, fields, version, payload, createdAt, updatedAt, expiresAt } = record
    yield JSON.stringify({
      ...{ collection, key, parent, thread_id: threadId, fields: fieldsText(fields), version, created_at: createdAt },
      ...{ updated_at: updatedAt, expires_at: expiresAt, checksum: keyedRecordChecksum({ ...record, owner }) },
      ...{ payload: textOf(payload), payload_bytes: hexOf(payload) },
    })
  }
}
