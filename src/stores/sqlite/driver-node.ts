import { pathToFileURL } from 'node:url'
import type { Database, Driver, Statement } from './database.ts'

/**
 * Node's own SQLite. Unlike better-sqlite3 it takes a missing value for NULL, ignores what follows the first statement of a text, makes
 * rows without a prototype, creates files that are not there, and does not say whether a database can be written.
 */

/** Null where this runtime has none. */
export function loadNodeSqlite(): Driver | null {
  const module = withoutWarning(() => process.getBuiltinModule?.('node:sqlite') as NodeSqlite | undefined)
  if (module === undefined) return null
  return {
    name: 'node:sqlite',
    open: (file) => overNodeSqlite(new module.DatabaseSync(mustExist(file), { timeout: 0, allowExtension: true })),
  }
}

export function isNodeSqlite(handle: object): handle is DatabaseSync {
  return 'createSession' in handle && 'loadExtension' in handle && 'prepare' in handle
}

export function overNodeSqlite(db: DatabaseSync): Database {
  const prepare = (sql: string): Statement => new NodeStatement(db.prepare(sql))
  return {
    get version() {
      return Object.values(db.prepare('SELECT sqlite_version()').get() as object)[0] as string
    },
    get file() {
      return db.location() || null
    },
    get isOpen() {
      return db.isOpen
    },
    get inTransaction() {
      return db.isTransaction
    },
    isWritable: () => db.isTransaction || canCreate(db),
    prepare,
    exec: (sql) => void db.exec(sql),
    defend: (isOn) => db.enableDefensive?.(isOn),
    pragma: (text) => prepare(`PRAGMA ${text}`).pluck().get(),
    query: (sql, params) => query(db, sql, params),
    loadExtension: (file) => db.loadExtension(file),
    close: () => db.close(),
  }
}

/** Where writes are refused even BEGIN IMMEDIATE is taken, as the beginning of a read. */
function canCreate(db: DatabaseSync): boolean {
  try {
    db.exec('BEGIN IMMEDIATE')
    db.exec('CREATE TABLE holdfast_written (x)')
  } catch (error) {
    return ((error as SqliteFailure).errcode ?? 0) % 256 !== readonlyCode
  } finally {
    if (db.isTransaction) db.exec('ROLLBACK')
  }
  return true
}

/** Makes objects of arrays: that takes half as long as to let the library make them. */
class NodeStatement implements Statement {
  readonly #native: StatementSync
  #names: readonly string[] = []
  /** Has all the names, without values. A copy of it that is filled in takes less memory than an object that grows name by name. */
  #blank: object = {}
  #form: 'object' | 'array' | 'first value' = 'object'

  constructor(native: StatementSync) {
    this.#native = native
    native.setReadBigInts(false)
    native.setReturnArrays(true)
    native.setAllowBareNamedParameters(true)
  }

  run(...params: unknown[]): { readonly changes: number; readonly lastInsertRowid: number | bigint } {
    return this.#native.run(...valuesOf(params))
  }

  get(...params: unknown[]): unknown {
    const row = this.#native.get(...valuesOf(params)) as unknown[] | undefined
    return row === undefined ? undefined : this.#toForm(row)
  }

  all(...params: unknown[]): unknown[] {
    const rows = this.#native.all(...valuesOf(params)) as unknown[][]
    return this.#form === 'array' ? rows : rows.map((row) => this.#toForm(row))
  }

  pluck(): Statement {
    this.#form = 'first value'
    return this
  }

  raw(): Statement {
    this.#form = 'array'
    return this
  }

  #toForm(row: readonly unknown[]): unknown {
    if (this.#form === 'first value') return row[0]
    if (this.#form === 'array') return row
    // Another process may have added columns to the tables since.
    if (this.#names.length !== row.length) {
      this.#names = this.#native.columns().map(({ name }) => name)
      this.#blank = JSON.parse(JSON.stringify(Object.fromEntries(this.#names.map((name) => [name, null]))))
    }
    const names = this.#names
    const object: Record<string, unknown> = { ...this.#blank }
    for (let i = 0; i < names.length; i++) object[names[i] as string] = row[i]
    return object
  }
}

function valuesOf(params: readonly unknown[]): readonly unknown[] {
  return params.length === 1 && Array.isArray(params[0]) ? params[0] : params
}

function query(db: DatabaseSync, sql: string, params: readonly unknown[]): object[] {
  const statement = db.prepare(sql)
  statement.setReturnArrays(false)
  if (hasMore(sql.slice(statement.sourceSQL.length)))
    throw new RangeError('The supplied SQL string contains more than one statement')
  refuseMissing(db, sql, params)
  if (statement.columns().length > 0) return statement.all(...params).map((row) => ({ ...(row as object) }))
  statement.run(...params)
  return []
}

function hasMore(rest: string): boolean {
  return rest.replaceAll(/--[^\n]*|\/\*[\s\S]*?(?:\*\/|$)|[\s;]/g, '') !== ''
}

/** Nothing tells how many values a statement takes; but one that takes another besides those that were given can be explained with it. */
function refuseMissing(db: DatabaseSync, sql: string, params: readonly unknown[]): void {
  const [first] = params
  const isByName = typeof first === 'object' && first !== null && !ArrayBuffer.isView(first)
  if (isByName || /^\s*EXPLAIN\b/i.test(sql)) return
  try {
    db.prepare(`EXPLAIN ${sql}`).get(...params, null)
  } catch (error) {
    if ((error as SqliteFailure).errcode === rangeCode) return
    throw error
  }
  throw new RangeError('Too few parameter values were provided')
}

const readonlyCode = 8
const rangeCode = 25

function mustExist(file: string): string {
  if (file === ':memory:') return file
  const url = pathToFileURL(file)
  url.searchParams.set('mode', 'rw')
  return url.href
}

/**
 * Up to Node 24.14 loading the module says on stderr that it is experimental. It says so before it returns, so that no warning of
 * anybody else can come in between.
 */
function withoutWarning<Answer>(load: () => Answer): Answer {
  const emitWarning = process.emitWarning
  process.emitWarning = ((warning: string | Error, ...rest: unknown[]) => {
    if (rest[0] !== 'ExperimentalWarning') Reflect.apply(emitWarning, process, [warning, ...rest])
  }) as typeof process.emitWarning
  try {
    return load()
  } finally {
    process.emitWarning = emitWarning
  }
}

/** As much of `node:sqlite` as is used here. */
interface NodeSqlite {
  readonly DatabaseSync: new (file: string, options: { timeout: number; allowExtension: boolean }) => DatabaseSync
}

export interface DatabaseSync {
  readonly isOpen: boolean
  readonly isTransaction: boolean
  location(): string | null
  prepare(sql: string): StatementSync
  exec(sql: string): void
  /** Newer than the module. */
  enableDefensive?(isOn: boolean): void
  loadExtension(file: string): void
  close(): void
}

interface StatementSync {
  readonly sourceSQL: string
  run(...params: readonly unknown[]): { changes: number; lastInsertRowid: number | bigint }
  get(...params: readonly unknown[]): unknown
  all(...params: readonly unknown[]): unknown[]
  columns(): readonly { readonly name: string }[]
  setReadBigInts(enabled: boolean): void
  setReturnArrays(enabled: boolean): void
  setAllowBareNamedParameters(enabled: boolean): void
}

interface SqliteFailure {
  readonly errcode?: number
}
