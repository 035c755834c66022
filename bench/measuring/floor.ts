import { DatabaseSync, type SQLInputValue, type StatementSync } from 'node:sqlite'
import { openSqliteStore } from '../../src/stores/sqlite/sqlite-store.ts'

/**
 * What the disk and the driver take for a step without an engine: one prepared transaction that writes the rows of a step
 * into tables of the same shape, with the same indexes, and nothing else: no guard, no codec, no checksum, no function.
 *
 * It uses Node's driver, as the engine does: another one in the same process drops the engine's locks on its file.
 */
export class Floor {
  readonly #db: DatabaseSync
  readonly #insert: StatementSync
  readonly #setHead: StatementSync
  readonly #begin: StatementSync
  readonly #commit: StatementSync
  readonly #columns: readonly string[]
  readonly #rows: readonly Record<string, unknown>[]
  readonly #heads: { readonly thread: number; seq: number; id: number | null }[]
  #nextId = 1
  #nextThread = 0

  /** `like` is a database in which the engine has just recorded a step: its last rows are the ones to be written. */
  static async open(file: string, { like, threads }: { like: string; threads: number }): Promise<Floor> {
    const store = await openSqliteStore({ file, durability: 'full' })
    await store.migrate()
    await store.close()
    const model = new DatabaseSync(like, { readOnly: true })
    const rows = model
      .prepare(
        `SELECT * FROM holdfast_log WHERE id IN (
           SELECT id FROM holdfast_log WHERE type = 'step_completed' ORDER BY id DESC LIMIT 1
         ) OR id IN (SELECT prev FROM holdfast_log WHERE type = 'step_completed' ORDER BY id DESC LIMIT 1) ORDER BY id`,
      )
      .all() as Record<string, unknown>[]
    model.close()
    const types = rows.map((row) => row['type']).join(', ')
    if (types !== 'step_started, step_completed') throw new Error(`the rows to copy are ${types}, not those of a step`)
    return new Floor(file, rows, threads)
  }

  private constructor(file: string, rows: Record<string, unknown>[], threads: number) {
    this.#db = new DatabaseSync(file)
    if (this.#db.prepare('PRAGMA journal_mode').get()?.['journal_mode'] !== 'wal') throw new Error('the floor is not in WAL mode')
    this.#db.exec('PRAGMA synchronous = FULL')
    this.#rows = rows
    this.#columns = Object.keys(rows[0] ?? {})
    const row = `(${this.#columns.map(() => '?').join(', ')})`
    this.#insert = this.#db.prepare(
      `INSERT INTO holdfast_log (${this.#columns.join(', ')}) VALUES ${rows.map(() => row).join(', ')}`,
    )
    this.#setHead = this.#db.prepare('UPDATE holdfast_threads SET head_seq = ?, head_record = ? WHERE id = ?')
    this.#begin = this.#db.prepare('BEGIN IMMEDIATE')
    this.#commit = this.#db.prepare('COMMIT')
    const addThread = this.#db.prepare(
      `INSERT INTO holdfast_threads (owner, thread_id, head_seq, state_version, incarnation, base_seq, epoch_floor, created_at)
       VALUES ('', ?, 0, 0, 1, 0, 0, 0)`,
    )
    this.#heads = Array.from({ length: threads }, (_, index) => ({
      thread: Number(addThread.run(`floor-${index}`).lastInsertRowid),
      seq: 0,
      id: null,
    }))
  }

  /** Writes `count` steps, `perTransaction` at a time, the threads taking turns. Says how long the longest transaction took. */
  write(count: number, perTransaction = 1): { longestMs: number } {
    let longestMs = 0
    for (let written = 0; written < count; written += perTransaction) {
      const startedAt = performance.now()
      this.#begin.run()
      for (let i = 0; i < perTransaction; i++) this.#writeStep()
      this.#commit.run()
      longestMs = Math.max(longestMs, performance.now() - startedAt)
    }
    return { longestMs }
  }

  close(): void {
    this.#db.close()
  }

  #writeStep(): void {
    const head = this.#heads[this.#nextThread]
    if (head === undefined) throw new Error('the floor has no threads')
    this.#nextThread = (this.#nextThread + 1) % this.#heads.length
    const values: SQLInputValue[] = []
    for (const row of this.#rows) {
      head.seq++
      for (const column of this.#columns) values.push(this.#valueOf(row, column, head))
      head.id = this.#nextId++
    }
    this.#insert.run(...values)
    this.#setHead.run(head.seq, head.id, head.thread)
  }

  #valueOf(
    row: Record<string, unknown>,
    column: string,
    head: { thread: number; seq: number; id: number | null },
  ): SQLInputValue {
    switch (column) {
      case 'id':
        return this.#nextId
      case 'thread':
        return head.thread
      case 'seq':
        return head.seq
      case 'prev':
        return head.id
      default:
        return row[column] as SQLInputValue
    }
  }
}

/** Pages that a WAL holds, without a checkpoint. */
export function walPages(file: string): number {
  const db = new DatabaseSync(file)
  try {
    return Number(db.prepare('PRAGMA wal_checkpoint(NOOP)').get()?.['log'] ?? 0)
  } finally {
    db.close()
  }
}

/** Copies the WAL into the database and lets the next write begin at its start again: the file stays as long as it is. */
export function recycleWal(file: string): void {
  const db = new DatabaseSync(file, { timeout: 5_000 })
  try {
    db.exec('PRAGMA wal_checkpoint(RESTART)')
  } finally {
    db.close()
  }
}
