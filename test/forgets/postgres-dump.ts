import pg from 'pg'

/** All tables of a database, as they were at one moment. */
export interface PostgresDump {
  /** Puts them back, in one transaction beside open sessions. `onceAlone` is called when nobody else can write any more. */
  restore(onceAlone: () => void): Promise<void>
}

interface Table {
  readonly name: string
  /** Those that are not computed. */
  readonly columns: string
}

/** Kept in a schema of its own, on the same server. Rows keep their numbers, and numbers that were given out since are given out again. */
export async function dumpPostgres(url: string): Promise<PostgresDump> {
  return connected(url, async (client) => {
    await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ')
    const tables = await listTables(client)
    await client.query('CREATE SCHEMA dump')
    for (const [n, { name, columns }] of tables.entries())
      await client.query(`CREATE TABLE dump.t${n} AS SELECT ${columns} FROM ${name}`)
    const { rows } = await client.query<{ name: string; last: string | null }>(
      `SELECT format('%I.%I', schemaname, sequencename) AS name, last_value::text AS last FROM pg_sequences`,
    )
    await client.query('COMMIT')
    const sequences = rows.map(({ name, last }) => `SELECT setval('${name}', ${last ?? 1}, ${last !== null})`)
    return { restore: (onceAlone) => restore(url, { tables, sequences, onceAlone }) }
  })
}

async function restore(
  url: string,
  { tables, sequences, onceAlone }: { tables: readonly Table[]; sequences: readonly string[]; onceAlone: () => void },
): Promise<void> {
  const names = tables.map(({ name }) => name).join(', ')
  await connected(url, async (client) => {
    await lockAll(client, names)
    onceAlone()
    await client.query(`TRUNCATE ${names}`)
    for (const [n, { name, columns }] of tables.entries())
      await client.query(`INSERT INTO ${name} (${columns}) OVERRIDING SYSTEM VALUE SELECT ${columns} FROM dump.t${n}`)
    for (const sequence of sequences) await client.query(sequence)
    await client.query('COMMIT')
  })
}

/** Others may hold one table and wait for the next, so it may take several attempts. */
async function lockAll(client: pg.Client, names: string): Promise<void> {
  for (;;) {
    try {
      await client.query('BEGIN')
      await client.query("SET LOCAL lock_timeout = '200ms'")
      await client.query(`LOCK TABLE ${names} IN ACCESS EXCLUSIVE MODE`)
      return
    } catch (error) {
      const { code } = error as { code?: string }
      if (code !== '55P03' && code !== '40P01') throw error
      await client.query('ROLLBACK')
    }
  }
}

async function listTables(client: pg.Client): Promise<Table[]> {
  const { rows } = await client.query<Table>(`
    SELECT format('%I.%I', table_schema, table_name) AS name, string_agg(quote_ident(column_name), ', ') AS columns
    FROM information_schema.columns JOIN information_schema.tables USING (table_schema, table_name)
    WHERE table_schema IN ('public', 'holdfast') AND table_type = 'BASE TABLE' AND is_generated = 'NEVER'
    GROUP BY 1`)
  return rows
}

async function connected<Made>(url: string, act: (client: pg.Client) => Promise<Made>): Promise<Made> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    return await act(client)
  } finally {
    await client.end()
  }
}
