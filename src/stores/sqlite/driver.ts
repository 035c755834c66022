import { HoldfastError } from '../../model/errors.ts'
import type { Database, Driver } from './database.ts'
import { isBetterSqlite3, loadBetterSqlite3, needsVersion12, overBetterSqlite3 } from './driver-better-sqlite3.ts'
import { isNodeSqlite, loadNodeSqlite, overNodeSqlite } from './driver-node.ts'

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
