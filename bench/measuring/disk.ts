import { existsSync, statSync } from 'node:fs'
import BetterSqlite3 from 'better-sqlite3'

/** Bytes of a database with the files beside it. */
export function bytesOnDisk(file: string): number {
  return [file, `${file}-wal`, `${file}-shm`].reduce((sum, path) => sum + (existsSync(path) ? statSync(path).size : 0), 0)
}

export interface Account {
  readonly what: string
  readonly bytes: number
}

/** Where the bytes of a closed database are: every page of the file is in exactly one of the entries. */
export function accountFor(file: string): Account[] {
  const db = new BetterSqlite3(file, { readonly: true })
  try {
    const contents = db
      .prepare(
        `SELECT 'log: ' || type || ', payload' AS what, sum(length(CAST(payload AS BLOB))) AS bytes FROM holdfast_log WHERE payload IS NOT NULL GROUP BY type
         UNION ALL
         SELECT 'log: ' || type || ', patch', sum(length(CAST(patch AS BLOB))) FROM holdfast_log WHERE patch IS NOT NULL GROUP BY type`,
      )
      .all() as Account[]
    const trees = db
      .prepare(
        `SELECT s.name, coalesce(o.type, 'table') AS type, sum(s.payload) AS payload, sum(s.pgsize) AS bytes
         FROM dbstat s LEFT JOIN sqlite_schema o ON o.name = s.name GROUP BY s.name`,
      )
      .all() as { name: string; type: string; payload: number; bytes: number }[]
    const freeBytes = Number(db.pragma('freelist_count', { simple: true })) * Number(db.pragma('page_size', { simple: true }))
    const accounts: Account[] = [...contents]
    const log = trees.find(({ name }) => name === 'holdfast_log')
    if (log !== undefined) {
      const rowCount = Number(db.prepare('SELECT count(*) FROM holdfast_log').pluck().get())
      accounts.push(
        {
          what: `log: the other columns of ${rowCount} records`,
          bytes: log.payload - contents.reduce((sum, { bytes }) => sum + bytes, 0),
        },
        { what: 'log: pages beside their records (cells, tree, unused)', bytes: log.bytes - log.payload },
      )
    }
    for (const { name, type, bytes } of trees) if (name !== 'holdfast_log') accounts.push({ what: `${type} ${name}`, bytes })
    accounts.push({ what: 'free pages', bytes: freeBytes })
    return accounts.sort((a, b) => b.bytes - a.bytes)
  } finally {
    db.close()
  }
}
