import type { Connections, Statement } from './connections.ts'
import type { Row } from './rows.ts'

/** Sends statements that only read; each text is prepared once. Texts are ours and few: names and values of callers are only ever bound. */
export class StatementReader {
  readonly #connections: Connections
  readonly #prepare: (sql: string) => Statement
  readonly #prepared = new Map<string, Statement>()

  constructor(connections: Connections, prepare: (sql: string) => Statement) {
    this.#connections = connections
    this.#prepare = prepare
  }

  read(sql: string, values: readonly unknown[]): Promise<readonly Row[]> {
    let statement = this.#prepared.get(sql)
    if (statement === undefined) {
      statement = this.#prepare(sql)
      this.#prepared.set(sql, statement)
    }
    return this.#connections.read(statement, values)
  }
}
