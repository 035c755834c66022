import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, statSync, truncateSync, writeSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import BetterSqlite3 from 'better-sqlite3'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { codeOf } from '../../src/model/errors.ts'
import { Connection } from '../../src/stores/sqlite/connection.ts'
import type { Driver } from '../../src/stores/sqlite/database.ts'
import { loadDriver } from '../../src/stores/sqlite/driver.ts'
import { loadBetterSqlite3 } from '../../src/stores/sqlite/driver-better-sqlite3.ts'
import { isBusy, toHoldfastError } from '../../src/stores/sqlite/errors.ts'
import { openSqliteStore } from '../../src/stores/sqlite/sqlite-store.ts'
import { testStore } from '../../src/testing/store-suite/index.ts'
import { commitOnBadDisk } from './sqlite-processes.ts'
import { createAndClaim, creating, stepping } from './sqlite-scene.ts'

const drivers = [await loadDriver(), await betterSqlite3()] as const

it("Node's own SQLite is taken where it is new enough", () => {
  expect(drivers.map(({ name }) => name)).toEqual(['node:sqlite', 'better-sqlite3'])
})

testStore('sqlite through better-sqlite3', {
  open: async ({ clockOffsetMs }) => {
    const folder = newFolder()
    const file = join(folder, 'test.db')
    const open = () => openSqliteStore({ file, durability: 'relaxed', clockOffsetMs, driver: drivers[1] })
    let store = await open()
    return {
      store,
      reopen: async () => {
        await store.close()
        store = await open()
        return store
      },
      close: async () => {
        await store.close()
        rmSync(folder, { recursive: true })
      },
    }
  },
})

testStore("sqlite on a user's handle of node:sqlite", {
  // What a handle carries: values of every type, transactions, many acts at once. sqlite.test.ts has more, on a handle of better-sqlite3.
  parts: ['leases', 'payloads', 'concurrency'],
  open: async ({ clockOffsetMs }) => {
    const folder = newFolder()
    const database = new DatabaseSync(join(folder, 'test.db'), {
      ...{ readBigInts: true, returnArrays: true, allowBareNamedParameters: false },
    })
    const open = () => openSqliteStore({ database, durability: 'relaxed', clockOffsetMs })
    let store = await open()
    return {
      store,
      reopen: async () => {
        await store.close()
        store = await open()
        return store
      },
      close: async () => {
        await store.close()
        database.close()
        rmSync(folder, { recursive: true })
      },
    }
  },
})

describe.each(drivers)('$name', (driver: Driver) => {
  let folder: string
  let file: string

  beforeEach(() => {
    folder = newFolder()
    file = join(folder, 'test.db')
  })
  afterEach(() => rmSync(folder, { recursive: true, force: true }))

  const told = (act: () => unknown, doing: 'open' | 'write' = 'write') => {
    try {
      act()
      return 'none'
    } catch (error) {
      return codeOf(toHoldfastError(error, { doing, file }))
    }
  }
  const setUp = async () => {
    const store = await openSqliteStore({ file, durability: 'full', driver })
    await store.migrate()
    return store
  }

  it('tells a lock of another connection by its code', async () => {
    await (await setUp()).close()
    const [one, other] = [driver.open(file), driver.open(file)]
    one.exec('BEGIN IMMEDIATE')
    let thrown: unknown
    try {
      other.prepare('BEGIN IMMEDIATE').run()
    } catch (error) {
      thrown = error
    }
    expect(isBusy(thrown)).toBe(true)
    expect(told(() => other.exec('BEGIN IMMEDIATE'))).toBe('store_unavailable')
    one.close()
    other.close()
  })

  it('tells a full database, one that takes no writes, one that is not there and one that is none', async () => {
    const store = await setUp()
    await store.close()
    const db = driver.open(file)
    db.pragma('max_page_count = 1')
    expect(told(() => db.exec(`CREATE TABLE t AS SELECT randomblob(100000) AS bytes`))).toBe('storage_full')
    db.pragma('query_only = ON')
    expect(told(() => db.exec('CREATE TABLE t (x)'))).toBe('store_unavailable')
    db.close()
    expect(told(() => driver.open(join(folder, 'none.db')), 'open')).toBe('store_unavailable')
    truncateSync(file, 0)
    const letter = openSync(file, 'w')
    writeSync(letter, 'a letter, not a database. '.repeat(200))
    closeSync(letter)
    const none = driver.open(file)
    expect(told(() => none.pragma('journal_mode'), 'open')).toBe('corrupt_record')
    none.close()
  })

  it('tells a damaged page', async () => {
    const store = await setUp()
    for (let i = 0; i < 50; i++) await store.commit([creating(`r${i}`)])
    await store.close()
    const { size } = statSync(file)
    const bytes = openSync(file, 'r+')
    for (let page = 8192; page < size; page += 8192) writeSync(bytes, Buffer.alloc(200, 0xff), 0, 200, page)
    closeSync(bytes)
    await expect(setUp()).rejects.toMatchObject({ code: 'corrupt_record', details: { engineCode: 'SQLITE_CORRUPT' } })
  })

  it('a disk that fails at the commit leaves the outcome unknown', async () => {
    expect(await commitOnBadDisk(driver.name, file)).toMatchObject({
      code: 'outcome_unknown',
      engineCode: expect.stringMatching(/^SQLITE_IOERR/),
    })
  })

  it("executes one statement of the user's at a time, with all its values", async () => {
    const db = driver.open(':memory:')
    db.exec('CREATE TABLE t (a, b)')
    expect(db.query('INSERT INTO t VALUES (?, ?)', ['x', new Uint8Array([1])])).toEqual([])
    expect(db.query('SELECT a FROM t; -- a remark', [])).toStrictEqual([{ a: 'x' }])
    expect(db.query('INSERT INTO t VALUES (:a, :b) RETURNING a, b', [{ a: 1, b: null }])).toStrictEqual([{ a: 1, b: null }])
    expect(() => db.query('INSERT INTO t VALUES (?, ?)', ['x'])).toThrow('Too few parameter values')
    expect(() => db.query('INSERT INTO t VALUES (?, ?)', ['x', 'y', 'z'])).toThrow()
    expect(() => db.query('DELETE FROM t; DELETE FROM t', [])).toThrow('more than one statement')
    expect(db.query('SELECT count(*) AS rows FROM t', [])).toEqual([{ rows: 2 }])
    db.close()
  })

  it('connections of our own may load extensions, by the library and not by SQL', async () => {
    const connection = await Connection.open({ file, durability: 'full', driver })
    expect(() => connection.loadExtension('/no/such/extension')).toThrow(/cannot open shared object file/)
    expect(() => connection.writer.query(`SELECT load_extension('/no/such/extension')`, [])).toThrow('not authorized')
    await connection.close()
  })

  it('keeps its locks when the file is opened a second time in this process, and closed', async () => {
    const store = await setUp()
    await store.commit([creating('r')])
    expect(locksOn(file)).toBeGreaterThan(0)
    const second = await openSqliteStore({ file, durability: 'full', driver })
    await second.migrate()
    expect(locksOn(file)).toBeGreaterThan(0)
    await second.close()
    expect(locksOn(file)).toBeGreaterThan(0)
    await store.close()
  })

  it('writes nothing more once its write-ahead log was removed', async () => {
    const store = await setUp()
    const claim = await createAndClaim(store, 'r')
    await store.commit([stepping(claim)])
    for (const suffix of ['-wal', '-shm']) rmSync(file + suffix)
    await vi.waitFor(async () => {
      expect(await store.commit([stepping(claim)]).then(() => 'none', codeOf)).toBe('store_unavailable')
    })
    await store.close()
  })
})

describe("a user's handle", () => {
  it.each([
    ['node:sqlite', () => new DatabaseSync(':memory:', { allowExtension: true })],
    ['better-sqlite3', () => new BetterSqlite3(':memory:')],
  ])('of %s loads no extension, and says what to do', async (_, open) => {
    const database = open()
    const connection = await Connection.open({ database, durability: 'full' })
    expect(() => connection.loadExtension('vec0')).toThrow('Load vec0 yourself before open()')
    database.close()
  })

  it('that was opened read-only is refused, of either library', async () => {
    const folder = newFolder()
    const file = join(folder, 'test.db')
    await (await openSqliteStore({ file, durability: 'full' })).close()
    for (const database of [new DatabaseSync(file, { readOnly: true }), new BetterSqlite3(file, { readonly: true })]) {
      await expect(openSqliteStore({ database, durability: 'full' })).rejects.toMatchObject({
        code: 'store_unavailable',
        message: expect.stringContaining('read-only'),
      })
      database.close()
    }
    rmSync(folder, { recursive: true })
  })

  it('of another library, or that is closed, is refused', async () => {
    const strange = { prepare: () => {}, exec: () => {}, query: () => {} }
    await expect(openSqliteStore({ database: strange, durability: 'full' })).rejects.toMatchObject({ code: 'invalid_url' })
    const closed = new DatabaseSync(':memory:')
    closed.close()
    await expect(openSqliteStore({ database: closed, durability: 'full' })).rejects.toMatchObject({ code: 'closed' })
  })
})

/** POSIX locks that this process holds on the file. */
function locksOn(file: string): number {
  const { ino } = statSync(file)
  const ofThis = (line: string) => line.includes(` ${process.pid} `) && line.includes(`:${ino} `)
  return readFileSync('/proc/locks', 'utf8').split('\n').filter(ofThis).length
}

async function betterSqlite3(): Promise<Driver> {
  const loaded = await loadBetterSqlite3()
  if ('reason' in loaded) throw loaded.reason
  return loaded.driver
}

function newFolder(): string {
  return mkdtempSync(join(tmpdir(), 'holdfast-sqlite-'))
}
