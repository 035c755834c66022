import { readFileSync, writeFileSync } from 'node:fs'
import { DatabaseSync } from 'node:sqlite'
import { gunzipSync, gzipSync } from 'node:zlib'
import pg from 'pg'
import { createClient, RESP_TYPES } from 'redis'

/** The schema and the namespace that the stores were written in. */
export const oldName = 'old'

/** Where the store that 09549e1 wrote is kept, compressed. */
function fileOf(store: 'sqlite' | 'postgres' | 'redis'): URL {
  return new URL(`./written/${store}.gz`, import.meta.url)
}

export function dumpSqlite(file: string): void {
  const db = new DatabaseSync(file, { timeout: 5_000 })
  db.exec('PRAGMA wal_checkpoint(TRUNCATE)')
  db.exec('VACUUM')
  db.close()
  writeFileSync(fileOf('sqlite'), gzipSync(readFileSync(file), { level: 9 }))
}

export function loadSqlite(file: string): void {
  writeFileSync(file, gunzipSync(readFileSync(fileOf('sqlite'))))
}

/** `setUp` is the SQL that made the tables: what they contain is added to it. */
export async function dumpPostgres(url: string, setUp: string): Promise<void> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  const lines = [`CREATE SCHEMA ${oldName};`, setUp, `DELETE FROM ${oldName}.version;`]
  const tables = await client.query<{ name: string }>(
    `SELECT tablename AS name FROM pg_tables WHERE schemaname = '${oldName}' ORDER BY 1`,
  )
  for (const { name } of tables.rows) {
    const { rows: columns } = await client.query<{ name: string; sequence: string | null }>(
      `SELECT attname AS name, pg_get_serial_sequence('${oldName}.${name}', attname) AS sequence FROM pg_attribute
       WHERE attrelid = '${oldName}.${name}'::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum`,
    )
    const values = columns.map((column) => `quote_nullable("${column.name}"::text)`).join(` || ',' || `)
    const { rows } = await client.query<{ row: string }>(`SELECT ${values} AS row FROM ${oldName}.${name} ORDER BY 1`)
    const names = columns.map((column) => `"${column.name}"`).join()
    const insert = `INSERT INTO ${oldName}.${name} (${names}) OVERRIDING SYSTEM VALUE VALUES`
    if (rows.length > 0) lines.push(`${insert}\n${rows.map(({ row }) => `(${row})`).join(',\n')};`)
    for (const { sequence } of columns) {
      if (sequence === null) continue
      const { rows: last } = await client.query(`SELECT last_value, is_called FROM ${sequence}`)
      lines.push(`SELECT setval('${sequence}', ${last[0].last_value}, ${last[0].is_called});`)
    }
  }
  await client.end()
  writeFileSync(fileOf('postgres'), gzipSync(lines.join('\n'), { level: 9 }))
}

export async function loadPostgres(client: pg.Client): Promise<void> {
  await client.query(`DROP SCHEMA IF EXISTS ${oldName} CASCADE`)
  await client.query(gunzipSync(readFileSync(fileOf('postgres'))).toString())
}

type Keys = readonly (readonly [key: string, dump: string])[]

const prefixOf = (namespace: string) => `holdfast:{${namespace}}:`

/** Keys that expire, answers to the last writes, are left behind. */
export async function dumpRedis(url: string): Promise<void> {
  const client = await createClient({ url }).connect()
  const bytes = client.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer })
  const keys: [string, string][] = []
  for await (const page of client.scanIterator({ MATCH: `${prefixOf(oldName)}*`, COUNT: 1_000 })) {
    for (const key of page) {
      const dump = (await client.ttl(key)) < 0 ? await bytes.dump(key) : null
      if (dump !== null) keys.push([key.slice(prefixOf(oldName).length), (dump as unknown as Buffer).toString('base64')])
    }
  }
  client.destroy()
  writeFileSync(fileOf('redis'), gzipSync(JSON.stringify(keys.sort()), { level: 9 }))
}

export async function loadRedis(url: string, namespace: string): Promise<void> {
  const keys = JSON.parse(gunzipSync(readFileSync(fileOf('redis'))).toString()) as Keys
  const client = await createClient({ url }).connect()
  await Promise.all(
    keys.map(([key, dump]) => client.restore(`${prefixOf(namespace)}${key}`, 0, Buffer.from(dump, 'base64') as never)),
  )
  client.destroy()
}
