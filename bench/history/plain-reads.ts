import { DatabaseSync } from 'node:sqlite'
import pg from 'pg'
import { createClient, RESP_TYPES } from 'redis'

const headColumns = 'seq, run, type, step, count, attempt, at, duration_ms, checkpoint_bytes, checksum'

/** The rows of one thread, read by the database's own client: nothing is verified, decoded or made into anything. Answers say how many bytes came. */
export interface PlainReads {
  log(afterSeq: number, toSeq: number): Promise<number>
  patches(afterSeq: number, toSeq: number): Promise<number>
  /** Without contents. */
  heads(afterSeq: number, toSeq: number): Promise<number>
  snapshot(atSeq: number): Promise<number>
  /** What the log of a thread takes in the store, between two positions. */
  logBytes(threadId: string, afterSeq: number, toSeq: number): Promise<number>
  /** What everything takes in the store. */
  allBytes(): Promise<number>
  close(): Promise<void>
}

export const plainReadsOf: Readonly<Record<string, (url: string, threadId: string) => Promise<PlainReads>>> = {
  sqlite: async (url, threadId) => readSqlite(url.slice('sqlite:'.length), threadId),
  postgres: readPostgres,
  redis: readRedis,
}

function readSqlite(file: string, threadId: string): PlainReads {
  const db = new DatabaseSync(file)
  const threadNumber = (id: string) => db.prepare('SELECT id FROM holdfast_threads WHERE thread_id = ?').get(id)?.['id'] as number
  const thread = threadNumber(threadId)
  // A thread that was copied into the file as a whole has its records one after another.
  const idOf = (number: number) =>
    (db.prepare('SELECT id - seq AS first FROM holdfast_log WHERE thread = ? LIMIT 1').get(number)?.['first'] ?? 0) as number
  const first = idOf(thread)
  const log = db.prepare('SELECT * FROM holdfast_log WHERE id BETWEEN ? AND ? AND thread = ? ORDER BY id')
  const patches = db.prepare(
    'SELECT id, seq, patch FROM holdfast_log WHERE id BETWEEN ? AND ? AND thread = ? AND patch IS NOT NULL ORDER BY id',
  )
  const heads = db.prepare(`SELECT ${headColumns} FROM holdfast_log WHERE id BETWEEN ? AND ? AND thread = ? ORDER BY id`)
  const snapshot = db.prepare('SELECT * FROM holdfast_snapshots WHERE thread = ? AND seq <= ? ORDER BY seq DESC LIMIT 1')
  return {
    log: async (afterSeq, toSeq) => bytesOf(log.all(first + afterSeq + 1, first + toSeq, thread)),
    patches: async (afterSeq, toSeq) => bytesOf(patches.all(first + afterSeq + 1, first + toSeq, thread)),
    heads: async (afterSeq, toSeq) => bytesOf(heads.all(first + afterSeq + 1, first + toSeq, thread)),
    snapshot: async (atSeq) => bytesOf(snapshot.all(thread, atSeq)),
    logBytes: async (id, afterSeq, toSeq) => {
      const number = threadNumber(id)
      const from = idOf(number)
      const rows = log.all(from + afterSeq + 1, from + toSeq, number)
      return rows.reduce((sum, row) => sum + recordBytes(Object.values(row)), 0)
    },
    allBytes: async () => {
      db.exec('PRAGMA wal_checkpoint(TRUNCATE)')
      const number = (name: string) => Number(Object.values(db.prepare(`PRAGMA ${name}`).get() ?? {})[0])
      return (number('page_count') - number('freelist_count')) * number('page_size')
    },
    close: async () => db.close(),
  }
}

/** As SQLite's file format stores a record: its header, and each value in as few bytes as it needs. */
function recordBytes(values: readonly unknown[]): number {
  return values.reduce<number>((sum, value) => sum + 1 + sizeOf(value), 3)
}

async function readPostgres(url: string, threadId: string): Promise<PlainReads> {
  const schema = new URL(url).searchParams.get('schema') ?? 'holdfast'
  const client = new pg.Client({ connectionString: url.replace(/\?.*/, '') })
  await client.connect()
  const threadNumber = async (id: string): Promise<number> =>
    (await client.query(`SELECT id FROM ${schema}.threads WHERE thread_id = $1`, [id])).rows[0].id
  const thread = await threadNumber(threadId)
  const read = async (text: string, values: unknown[]) => (await client.query({ name: text.slice(0, 60), text, values })).rows
  return {
    log: async (...range) =>
      bytesOf(
        await read(`SELECT * FROM ${schema}.log WHERE thread = $1 AND seq > $2 AND seq <= $3 ORDER BY seq`, [thread, ...range]),
      ),
    patches: async (...range) => {
      const text = `SELECT seq, patch, patch_bytes FROM ${schema}.log
        WHERE thread = $1 AND seq > $2 AND seq <= $3 AND (patch IS NOT NULL OR patch_bytes IS NOT NULL) ORDER BY seq`
      return bytesOf(await read(text, [thread, ...range]))
    },
    heads: async (...range) => {
      const text = `SELECT ${headColumns} FROM ${schema}.log WHERE thread = $1 AND seq > $2 AND seq <= $3 ORDER BY seq`
      return bytesOf(await read(text, [thread, ...range]))
    },
    snapshot: async (atSeq) =>
      bytesOf(
        await read(`SELECT * FROM ${schema}.snapshots WHERE thread = $1 AND seq <= $2 ORDER BY seq DESC LIMIT 1`, [
          thread,
          atSeq,
        ]),
      ),
    logBytes: async (id, ...range) => {
      const text = `SELECT sum(pg_column_size(l.*)) AS bytes FROM ${schema}.log l WHERE thread = $1 AND seq > $2 AND seq <= $3`
      return Number((await read(text, [await threadNumber(id), ...range]))[0].bytes)
    },
    allBytes: async () => {
      const text = `SELECT sum(pg_total_relation_size(c.oid)) AS bytes FROM pg_class c WHERE relnamespace = '${schema}'::regnamespace AND relkind = 'r'`
      return Number((await read(text, []))[0].bytes)
    },
    close: () => client.end(),
  }
}

async function readRedis(url: string, threadId: string): Promise<PlainReads> {
  const client = createClient({ url: url.replace(/\?.*/, '') })
  await client.connect()
  const bytes = client.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer })
  const key = (kind: string, id: string) =>
    `holdfast:{${new URL(url).searchParams.get('namespace') ?? 'holdfast'}}:${kind}:0:${id}`
  const entries = async (id: string, afterSeq: number, toSeq: number) =>
    totalOf((await bytes.sendCommand(['LRANGE', key('log', id), String(afterSeq), String(toSeq - 1)])) as unknown as Buffer[])
  return {
    log: (...range) => entries(threadId, ...range),
    // The contents of a record are one entry.
    patches: (...range) => entries(threadId, ...range),
    heads: (...range) => entries(threadId, ...range),
    snapshot: async (atSeq) => {
      const command = ['ZRANGE', key('snapshots', threadId), String(atSeq), '-inf', 'BYSCORE', 'REV', 'LIMIT', '0', '1']
      return totalOf((await bytes.sendCommand(command)) as unknown as Buffer[])
    },
    logBytes: entries,
    allBytes: async () => {
      let sum = 0
      for await (const keys of client.scanIterator({ COUNT: 1_000 })) {
        for (const one of keys) sum += (await client.memoryUsage(one, { SAMPLES: 0 })) ?? 0
      }
      return sum
    },
    close: async () => client.destroy(),
  }
}

function totalOf(found: readonly Buffer[]): number {
  return found.reduce((bytes, one) => bytes + one.length, 0)
}

function bytesOf(rows: readonly object[]): number {
  let bytes = 0
  for (const row of rows) for (const value of Object.values(row)) bytes += sizeOf(value)
  return bytes
}

function sizeOf(value: unknown): number {
  if (typeof value === 'string') return Buffer.byteLength(value)
  if (value instanceof Uint8Array) return value.byteLength
  if (value === null) return 0
  const number = Math.abs(Number(value))
  return number < 128 ? 1 : number < 2 ** 15 ? 2 : number < 2 ** 23 ? 3 : number < 2 ** 31 ? 4 : number < 2 ** 47 ? 6 : 8
}
