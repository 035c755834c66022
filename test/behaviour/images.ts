import { DatabaseSync, type SQLInputValue } from 'node:sqlite'
import type { Tables } from '../../src/stores/memory/tables.ts'

/** An image of a memory store's tables; what is returned puts it back. */
export function imageOfTables(tables: Tables): () => void {
  const { listeners: _, ...content } = tables
  const image = structuredClone(content)
  return () => {
    const copy = structuredClone(image)
    refill(tables.threads, copy.threads)
    refill(tables.runs, copy.runs)
    refill(tables.operations, copy.operations)
    refill(tables.records, copy.records)
    refill(tables.queues, copy.queues)
    tables.busyThreads.clear()
    for (const thread of copy.busyThreads) tables.busyThreads.add(thread)
    tables.waitingRuns.clear()
    for (const run of copy.waitingRuns) tables.waitingRuns.add(run)
    tables.lastNumber = copy.lastNumber
  }
}

function refill<Key, Value>(map: Map<Key, Value>, from: ReadonlyMap<Key, Value>): void {
  map.clear()
  for (const [key, value] of from) map.set(key, value)
}

/** An image of all tables of a SQLite file, the user's own among them; what is returned puts it back, in one transaction beside open connections. */
export function imageOfFile(file: string): () => void {
  const image = inside(file, (db) => {
    const tables = db
      .prepare(`SELECT name FROM sqlite_schema WHERE type = 'table' AND (name NOT LIKE 'sqlite_%' OR name = 'sqlite_sequence')`)
      .all() as { name: string }[]
    return tables.map(({ name }) => {
      const columns = storedColumns(db, name)
      const select = db.prepare(`SELECT ${quoted(columns)} FROM "${name}"`)
      select.setReturnArrays(true)
      return { name, columns, rows: select.all() as unknown as SQLInputValue[][] }
    })
  })
  return () =>
    inside(file, (db) => {
      for (const { name, columns, rows } of image) {
        db.exec(`DELETE FROM "${name}"`)
        const insert = db.prepare(`INSERT INTO "${name}" (${quoted(columns)}) VALUES (${columns.map(() => '?').join(', ')})`)
        for (const row of rows) insert.run(...row)
      }
    })
}

function inside<T>(file: string, act: (db: DatabaseSync) => T): T {
  const db = new DatabaseSync(file, { timeout: 5_000 })
  try {
    db.exec('BEGIN IMMEDIATE')
    const answer = act(db)
    db.exec('COMMIT')
    return answer
  } finally {
    db.close()
  }
}

/** Those that are not computed. */
function storedColumns(db: DatabaseSync, table: string): string[] {
  const columns = db.prepare(`PRAGMA table_xinfo("${table}")`).all() as { name: string; hidden: number }[]
  return columns.filter(({ hidden }) => hidden === 0).map(({ name }) => name)
}

function quoted(columns: readonly string[]): string {
  return columns.map((column) => `"${column}"`).join(', ')
}
