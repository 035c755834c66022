import { createRequire } from 'node:module'
import type { Database as BetterSqlite3 } from 'better-sqlite3'
import type { Database, Driver } from './database.ts'

/** better-sqlite3, which is installed only by those who need it. Else the reason why it can't be loaded. */
export async function loadBetterSqlite3(): Promise<{ readonly driver: Driver } | { readonly reason: unknown }> {
  try {
    refuseCrash()
    const { default: Native } = await import('better-sqlite3')
    // The binary is loaded by the first database.
    new Native(':memory:').close()
    return {
      driver: {
        name: 'better-sqlite3',
        open: (file) => overBetterSqlite3(new Native(file, { timeout: 0, fileMustExist: file !== ':memory:' })),
      },
    }
  } catch (reason) {
    return { reason }
  }
}

/** Node before 22.14 has no version 10 of the native API: better-sqlite3 13, which is built for it, would end the process there. */
export const needsVersion12 = Number(process.versions['napi']) < 10

function refuseCrash(): void {
  if (!needsVersion12) return
  const { version } = createRequire(import.meta.url)('better-sqlite3/package.json') as { version: string }
  if (Number(version.split('.')[0]) >= 13) throw new Error(`better-sqlite3 ${version} needs Node 22.14 or newer.`)
}

export function isBetterSqlite3(handle: object): handle is BetterSqlite3 {
  return 'pragma' in handle && 'inTransaction' in handle && 'prepare' in handle
}

export function overBetterSqlite3(db: BetterSqlite3): Database {
  return {
    get version() {
      return db.prepare('SELECT sqlite_version()').pluck().get() as string
    },
    get file() {
      return db.memory ? null : db.name
    },
    get isOpen() {
      return db.open
    },
    get inTransaction() {
      return db.inTransaction
    },
    isWritable: () => !db.readonly,
    prepare(sql) {
      const statement = db.prepare(sql)
      return statement.reader ? statement.safeIntegers(false) : statement
    },
    exec: (sql) => void db.exec(sql),
    defend: (isOn) => void db.unsafeMode(!isOn),
    pragma: (text) => db.pragma(text, { simple: true }),
    query(sql, params) {
      const statement = db.prepare(sql)
      if (statement.reader) return statement.all(...params) as object[]
      statement.run(...params)
      return []
    },
    loadExtension: (file) => void db.loadExtension(file),
    close: () => void db.close(),
  }
}
