import { HoldfastError } from '../../model/errors.ts'
import { isBetterSqlite3, loadBetterSqlite3, needsVersion12, overBetterSqlite3 } from './driver-better-sqlite3.ts'
import { isNodeSqlite, loadNodeSqlite, overNodeSqlite } from './driver-node.ts'

/** A library that brings SQLite: Node's own `node:sqlite`, or better-sqlite3. All in which they differ is in the two files beside this one. */
export interface Driver {
  readonly name: 'node:sqlite' | 'better-sqlite3'
  /** Opens a file that exists, or `:memory:`. It does not wait for locks, and may load extensions. */
  open(file: string): Database
}

export interface Database {
  /** Of the engine. Can be asked on any Node, the rest only where the engine is new enough. */
  readonly version: string
  /** Null for a database in memory. */
  readonly file: string | null
  readonly isOpen: boolean
  readonly inTransaction: boolean
  /** False where every write would be refused. */
  isWritable(): boolean
  /** Rows come as objects, integers as numbers, blobs as bytes, whatever the user's handle is set to. */
  prepare(sql: string): Statement
  exec(sql: string): void
  /** Whether the engine refuses statements that change its own tables, as it does from the start. */
  defend(isOn: boolean): void
  /** The first column of the pragma's first row. */
  pragma(text: string): unknown
  /**
   * Executes one statement of the user's and returns its rows, as plain objects. Several statements in one text and missing values are
   * refused.
   */
  query(sql: string, params: readonly unknown[]): object[]
  loadExtension(file: string): void
  close(): void
}

/** Takes values, one array of them, or one object by names: strings, numbers, bigints, bytes and null. */
export interface Statement {
  run(...params: readonly unknown[]): { readonly changes: number; readonly lastInsertRowid: number | bigint }
  get(...params: readonly unknown[]): unknown
  all(...params: readonly unknown[]): unknown[]
  /** From now on a row is the value of its first column. */
  pluck(): Statement
  /** From now on a row is an array of its values. */
  raw(): Statement
}

/** Node's own SQLite where it is new enough, else better-sqlite3 where it is installed. */
export async function loadDriver(): Promise<Driver> {
  const builtIn = loadNodeSqlite()
  const builtInVersion = builtIn === null ? null : versionOf(builtIn)
  if (builtIn !== null && !isTooOld(builtInVersion)) return builtIn
  const installed = await loadBetterSqlite3()
  if ('driver' in installed) {
    refuseOldEngine(versionOf(installed.driver))
    return installed.driver
  }
  const found = builtInVersion === null ? 'has no node:sqlite' : `has SQLite ${builtInVersion}`
  const wanted = needsVersion12 ? 'better-sqlite3@12' : 'better-sqlite3'
  throw new HoldfastError(
    'missing_dependency',
    `A sqlite: store needs SQLite ${oldestVersion} or newer; ${runtime()} ${found}. Run npm install ${wanted}, or use Node ${enough}, which needs no package.`,
    { cause: installed.reason, details: { dependency: 'better-sqlite3', found: builtInVersion, needed: oldestVersion } },
  )
}

/** A handle that the user opened, of either library. */
export function adoptHandle(handle: object): Database {
  if (isBetterSqlite3(handle)) return overBetterSqlite3(handle)
  if (isNodeSqlite(handle)) return overNodeSqlite(handle)
  throw new HoldfastError(
    'invalid_url',
    'open() got a SQLite handle of a library that it does not know. Pass a DatabaseSync of node:sqlite or a database of better-sqlite3.',
  )
}

/** Refuses an engine with the race at the reset of the WAL that can damage a database. */
export function refuseOldEngine(version: string): void {
  if (!isTooOld(version)) return
  throw new HoldfastError(
    'durability_too_weak',
    `SQLite ${version} can damage a database that several connections write; ${oldestVersion} is the first that does not. Use Node ${enough} with its own SQLite, or install better-sqlite3 13 or newer.`,
    { details: { version } },
  )
}

const oldestVersion = '3.51.3'
/** The first releases whose own SQLite is new enough. */
const enough = '22.23 or 24.15 and newer'

function versionOf(driver: Driver): string {
  const db = driver.open(':memory:')
  try {
    return db.version
  } finally {
    db.close()
  }
}

function isTooOld(version: string | null): boolean {
  return version === null || numberOf(version) < numberOf(oldestVersion)
}

function numberOf(version: string): number {
  const [major = 0, minor = 0, patch = 0] = version.split('.').map(Number)
  return major * 1_000_000 + minor * 1_000 + patch
}

function runtime(): string {
  const { bun, deno, node } = process.versions
  return bun !== undefined ? `Bun ${bun}` : deno !== undefined ? `Deno ${deno}` : `Node ${node}`
}
