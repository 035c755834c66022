/** A library that brings SQLite: Node's own `node:sqlite`, or better-sqlite3. All in which they differ is in `driver-node.ts` and `driver-better-sqlite3.ts`. */
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
