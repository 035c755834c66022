import { randomBytes } from 'node:crypto'
import {
  accessSync,
  closeSync,
  constants,
  existsSync,
  fsyncSync,
  linkSync,
  mkdirSync,
  openSync,
  realpathSync,
  type Stats,
  statSync,
  unlinkSync,
} from 'node:fs'
import { dirname, resolve } from 'node:path'
import { HoldfastError } from '../../model/errors.ts'
import type { Database, Driver, Statement } from './database.ts'
import { adoptHandle, loadDriver, refuseOldEngine } from './driver.ts'
import { closedError, type Doing, fileGoneError, isBusy, toHoldfastError } from './errors.ts'

export type { Database, Statement } from './database.ts'

export interface ConnectionOptions {
  readonly file?: string
  /** The user's own handle, of node:sqlite or better-sqlite3: it stays open. */
  readonly database?: object
  readonly durability: 'full' | 'relaxed'
  /** What opens a file. Default `loadDriver()`. */
  readonly driver?: Driver
}

/**
 * The connections of one store: a writer and a reader on a file of our own, one for both on a user's handle or in memory.
 *
 *   1  Every connection has WAL and synchronous=FULL, or the store does not open; `relaxed` lowers only the writer, and
 *      not for a write that must be flushed.
 *   2  Writes of this process wait for each other; each is one `BEGIN IMMEDIATE … COMMIT` without an await inside, `hold` excepted.
 *   3  Another process's lock is waited for with timers, never inside the engine: the event loop goes on.
 *   4  Nothing is written once the path is seen to name another file, or none; the same holds for the write-ahead log.
 *   5  An existing database file is never opened but by SQLite: closing any descriptor of it would drop all locks of this process on it,
 *      and the next program that closes the file would delete the write-ahead log from under it.
 */
export class Connection {
  readonly file: string
  readonly writer: Database
  readonly reader: Database
  readonly durability: 'full' | 'relaxed' | 'none'
  readonly #isOwn: boolean
  readonly #identity: FileIdentity | null
  readonly #walFile: string
  #walIdentity: FileIdentity | null = null
  readonly #userBusyTimeoutMs: number
  readonly #sql: {
    readonly begin: Statement
    readonly commit: Statement
    readonly rollback: Statement
    readonly dataVersion: Statement
  }
  readonly #readSql: { readonly begin: Statement; readonly commit: Statement }
  #lastWrite: Promise<void> = Promise.resolve()
  #waiting = 0
  /** While a `hold` is open: the promise of its end. */
  #held: Promise<void> | null = null
  #isClosed = false
  #checkedAt = 0

  private constructor(parts: Parts) {
    this.file = parts.file
    this.writer = parts.writer
    this.reader = parts.reader
    this.durability = parts.durability
    this.#isOwn = parts.isOwn
    this.#identity = parts.identity
    this.#walFile = parts.identity === null ? '' : walFileOf(parts.file)
    this.#userBusyTimeoutMs = parts.userBusyTimeoutMs
    this.#sql = {
      begin: this.writer.prepare('BEGIN IMMEDIATE'),
      commit: this.writer.prepare('COMMIT'),
      rollback: this.writer.prepare('ROLLBACK'),
      dataVersion: this.writer.prepare('PRAGMA data_version').pluck(),
    }
    this.#readSql = { begin: this.reader.prepare('BEGIN'), commit: this.reader.prepare('COMMIT') }
  }

  static async open(options: ConnectionOptions): Promise<Connection> {
    return new Connection(
      options.database === undefined ? await openFile(options) : await adopt(adoptHandle(options.database), options.durability),
    )
  }

  /** Runs `act` as one durable write transaction. When it throws, nothing of it is kept. */
  async write<Answer>(act: () => Answer, { mustSync = false } = {}): Promise<Answer> {
    const leave = await this.#enter()
    try {
      await this.#begin(mustSync)
      try {
        const answer = this.#attempt('write', act)
        this.#attempt('commit', () => this.#sql.commit.run())
        return answer
      } finally {
        this.#end(mustSync)
      }
    } finally {
      leave()
    }
  }

  /** A write transaction that stays open while `act` awaits. Other writes of this process wait meanwhile. */
  async hold<Answer>(act: (commit: () => void) => Promise<Answer>): Promise<Answer> {
    const leave = await this.#enter()
    let release = () => {}
    try {
      await this.#begin(true)
      this.#held = new Promise((done) => {
        release = done
      })
      try {
        return await act(() => this.#attempt('commit', () => this.#sql.commit.run()))
      } finally {
        this.#held = null
        this.#end(true)
      }
    } finally {
      release()
      leave()
    }
  }

  /**
   * Runs `act` over one consistent state of the tables, never over an open `hold`. An act of one statement sees that by
   * itself; without BEGIN and COMMIT it takes a third of the time.
   */
  async read<Answer>(act: () => Answer, { isOneStatement = false } = {}): Promise<Answer> {
    for (let attempt = 0, startedAt = Date.now(); ; attempt++) {
      this.refuseClosed()
      while (this.reader === this.writer && this.#held !== null) await this.#held
      this.#refuseLostFile(250)
      try {
        return isOneStatement ? act() : this.#readOnce(act)
      } catch (error) {
        if (!isBusy(error) || Date.now() - startedAt > patienceMs) throw this.#translate('read', error)
      }
      await backOff(attempt)
    }
  }

  /** Changes when another connection has written, this one's own writes aside; null while that cannot be asked. */
  dataVersion(): number | null {
    if (this.#isClosed || this.#held !== null || !this.writer.isOpen) return null
    try {
      return this.#sql.dataVersion.get() as number
    } catch {
      return null
    }
  }

  refuseClosed(): void {
    if (this.#isClosed || !this.writer.isOpen) throw closedError()
  }

  /** For statements on this connection's own database; the tables of a user's handle are the user's. */
  loadExtension(file: string): void {
    if (!this.#isOwn) {
      throw new HoldfastError(
        'invalid_input',
        `No extension is loaded into a SQLite handle of yours. Load ${file} yourself before open(), or open the file by its URL.`,
        { details: { file } },
      )
    }
    for (const db of new Set([this.writer, this.reader])) db.loadExtension(file)
  }

  async close(): Promise<void> {
    if (this.#isClosed) return
    this.#isClosed = true
    while (this.#waiting > 0) await this.#lastWrite
    if (!this.#isOwn) return
    if (this.reader !== this.writer) this.reader.close()
    this.writer.close()
  }

  async #enter(): Promise<() => void> {
    this.refuseClosed()
    const before = this.#lastWrite
    let leave = () => {}
    this.#lastWrite = new Promise((done) => {
      leave = done
    })
    if (this.#waiting++ > 0) await before
    return () => {
      this.#waiting--
      leave()
    }
  }

  async #begin(mustSync: boolean): Promise<void> {
    for (let attempt = 0, startedAt = Date.now(); ; attempt++) {
      if (!this.writer.isOpen) throw closedError()
      this.#refuseLostFile(10)
      // On a user's handle a transaction of the user may be open between two turns of the event loop.
      if (!this.writer.inTransaction) {
        try {
          this.#prepareToWrite(mustSync)
          this.#sql.begin.run()
          return
        } catch (error) {
          this.#end(mustSync)
          if (!isBusy(error)) throw this.#translate('write', error)
        }
      }
      if (Date.now() - startedAt > patienceMs) throw lockedError(this.file)
      await backOff(attempt)
    }
  }

  #prepareToWrite(mustSync: boolean): void {
    if (!this.#isOwn && this.#userBusyTimeoutMs > 0) this.writer.pragma('busy_timeout = 0')
    if (mustSync && this.durability === 'relaxed') this.writer.pragma('synchronous = FULL')
  }

  #end(mustSync: boolean): void {
    if (this.writer.isOpen && this.writer.inTransaction) this.#rollBack()
    if (mustSync && this.durability === 'relaxed') this.writer.pragma('synchronous = NORMAL')
    if (!this.#isOwn && this.#userBusyTimeoutMs > 0) this.writer.pragma(`busy_timeout = ${this.#userBusyTimeoutMs}`)
  }

  #rollBack(): void {
    try {
      this.#sql.rollback.run()
    } catch {
      // The engine rolls back by itself after the failures that make this one fail; the first error is the one to tell.
    }
  }

  #readOnce<Answer>(act: () => Answer): Answer {
    if (this.reader.inTransaction) return act()
    this.#readSql.begin.run()
    try {
      return act()
    } finally {
      if (this.reader.inTransaction) this.#readSql.commit.run()
    }
  }

  #attempt<Answer>(doing: Doing, act: () => Answer): Answer {
    try {
      return act()
    } catch (error) {
      throw this.#translate(doing, error)
    }
  }

  #translate(doing: Doing, error: unknown): unknown {
    return toHoldfastError(error, { doing, file: this.file })
  }

  /** Looks at the path again when the last look is older than this: a look costs as much as a small read. */
  #refuseLostFile(maxAgeMs: number): void {
    if (this.#identity === null || performance.now() - this.#checkedAt < maxAgeMs) return
    const wal = identityOf(this.#walFile)
    const isSame = isSameFile(identityOf(this.file), this.#identity)
    // The log is there from the first write on; as long as a connection is open nobody may remove it.
    if (!isSame || (this.#walIdentity !== null && !isSameFile(wal, this.#walIdentity))) throw fileGoneError(this.file)
    this.#walIdentity = wal
    this.#checkedAt = performance.now()
  }
}

export function prepare(db: Database, sql: string): Statement {
  return db.prepare(sql)
}

/** How long a lock of another process is waited for. */
const patienceMs = 10_000

interface Parts {
  readonly file: string
  readonly writer: Database
  readonly reader: Database
  readonly durability: 'full' | 'relaxed' | 'none'
  readonly isOwn: boolean
  readonly identity: FileIdentity | null
  readonly userBusyTimeoutMs: number
}

interface FileIdentity {
  readonly inode: bigint
  readonly device: bigint
}

async function openFile({ file = ':memory:', durability, driver: given }: ConnectionOptions): Promise<Parts> {
  const driver = given ?? (await loadDriver())
  if (file === ':memory:' || file === '') {
    const db = driver.open(':memory:')
    return { file: ':memory:', writer: db, reader: db, durability: 'none', isOwn: true, identity: null, userBusyTimeoutMs: 0 }
  }
  const path = resolve(file)
  const opened: Database[] = []
  try {
    createFile(path)
    accessSync(path, constants.W_OK)
    const writer = driver.open(path)
    opened.push(writer)
    // Counts only for a file that is still empty. Messages of one or two kilobytes leave a quarter of a page of 4 KiB unused,
    // and less than a tenth of this one; a lone commit takes 3 % longer.
    writer.pragma('page_size = 8192')
    await configure(writer, path, durability)
    const reader = driver.open(path)
    opened.push(reader)
    await configure(reader, path, 'full')
    for (const db of opened) db.pragma(cacheSize)
    reader.pragma('query_only = ON')
    return { file: path, writer, reader, durability, isOwn: true, identity: identityOf(path), userBusyTimeoutMs: 0 }
  } catch (error) {
    for (const db of opened.reverse()) db.close()
    throw toHoldfastError(error, { doing: 'open', file: path })
  }
}

/** In KiB, for each connection: the default of better-sqlite3; that of node:sqlite is 2,000. */
const cacheSize = 'cache_size = -16000'

async function adopt(db: Database, durability: 'full' | 'relaxed'): Promise<Parts> {
  if (db.isOpen === false) throw new HoldfastError('closed', 'The SQLite handle that was passed is closed. Pass an open one.')
  refuseOldEngine(db.version)
  const file = db.file === null ? ':memory:' : resolve(db.file)
  if (!db.isWritable()) {
    throw new HoldfastError('store_unavailable', `The SQLite handle on ${file} was opened read-only. Pass one that can write.`, {
      details: { file },
    })
  }
  const shared = {
    file,
    writer: db,
    reader: db,
    isOwn: false,
    userBusyTimeoutMs: Number(db.pragma('busy_timeout')),
  }
  if (db.file === null) {
    refuseEncoding(db, file)
    return { ...shared, durability: 'none', identity: null }
  }
  try {
    await configure(db, file, durability)
  } catch (error) {
    throw toHoldfastError(error, { doing: 'open', file })
  }
  return { ...shared, durability, identity: identityOf(file) }
}

/** The engine's defaults are weaker than we claim, so every connection sets them, also on a file that has them already. */
async function configure(db: Database, file: string, durability: 'full' | 'relaxed'): Promise<void> {
  await whileLocked(() => {
    refuseEncoding(db, file)
    const mode = db.pragma('journal_mode = WAL')
    if (mode !== 'wal')
      throw new HoldfastError('durability_too_weak', noWalMessage(file, String(mode)), { details: { file, mode } })
  })
  const level = durability === 'full' ? 2 : 1
  db.pragma(`synchronous = ${level}`)
  const found = Number(db.pragma('synchronous'))
  if (found !== level) {
    throw new HoldfastError(
      'durability_too_weak',
      `SQLite did not accept synchronous = ${level} for ${file}; it says ${found}.`,
      {
        details: { file, found },
      },
    )
  }
}

/** Does again what another process kept out: one that opens the file at the same time locks it whole for a moment, also for readers. */
async function whileLocked(act: () => void): Promise<void> {
  for (let attempt = 0, startedAt = Date.now(); ; attempt++) {
    try {
      return act()
    } catch (error) {
      if (!isBusy(error) || Date.now() - startedAt > patienceMs) throw error
    }
    await backOff(attempt)
  }
}

/** With another one SQLite changes some characters, and has another order of keys. */
function refuseEncoding(db: Database, file: string): void {
  const encoding = db.pragma('encoding')
  if (encoding === 'UTF-8') return
  throw new HoldfastError(
    'store_unavailable',
    `${file} has the encoding ${String(encoding)}; texts come back unchanged only with UTF-8. Name another file, or create it anew: the encoding of a database that has tables can't be changed.`,
    { details: { file, encoding } },
  )
}

function noWalMessage(file: string, mode: string): string {
  return `${file} cannot use a write-ahead log (SQLite says ${mode}). Keep the file on a local disk: network file systems have no shared memory.`
}

/**
 * Creates the file readable by its user alone; SQLite gives the same mode to the files beside it. It gets its name only once its descriptor
 * is closed: another thread of this process may open it at once (5).
 */
function createFile(path: string): void {
  createFolder(dirname(path))
  if (existsSync(path)) return
  const unnamed = `${path}-${randomBytes(6).toString('hex')}`
  createEmpty(unnamed)
  try {
    linkSync(unnamed, path)
  } catch (error) {
    // A file system without links.
    if (!existsSync(path)) createEmpty(path)
    else if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
  } finally {
    unlinkSync(unnamed)
  }
}

function createEmpty(path: string): void {
  closeSync(openSync(path, 'wx', 0o600))
}

/** Like `mkdir -p`, and each new folder survives a power loss. */
function createFolder(path: string): void {
  if (existsSync(path)) return
  createFolder(dirname(path))
  mkdirSync(path, { recursive: true, mode: 0o700 })
  if (process.platform === 'win32') return
  const parent = openSync(dirname(path), 'r')
  try {
    fsyncSync(parent)
  } finally {
    closeSync(parent)
  }
}

function identityOf(file: string): FileIdentity | null {
  const stats = statSync(file, { bigint: true, throwIfNoEntry: false }) as
    | (Omit<Stats, 'ino' | 'dev'> & { ino: bigint; dev: bigint })
    | undefined
  return stats === undefined ? null : { inode: stats.ino, device: stats.dev }
}

/** Where a path is a symbolic link, SQLite puts the log beside the file that is meant. */
function walFileOf(file: string): string {
  return `${realpathSync(file)}-wal`
}

function isSameFile(found: FileIdentity | null, known: FileIdentity): boolean {
  return found !== null && found.inode === known.inode && found.device === known.device
}

function lockedError(file: string): HoldfastError {
  return new HoldfastError(
    'store_unavailable',
    `Another process kept ${file} locked for ${patienceMs / 1000} s; nothing was written. Try again, and look for a process stopped inside a write transaction.`,
    { retryable: true, details: { file } },
  )
}

function backOff(attempt: number): Promise<void> {
  const ms = Math.min(25, 2 ** attempt) * (0.5 + Math.random() / 2)
  return new Promise((done) => setTimeout(done, ms))
}
