import { HoldfastError } from '../../model/errors.ts'
import type { SqlTransaction } from '../../store/store.ts'
import type { PgClientLike } from './connections.ts'

/** The user's own statements inside the transaction of a step. */
export class UserTransaction implements SqlTransaction {
  readonly #client: PgClientLike
  readonly #tables: OwnTables
  readonly #errors = new WeakSet<object>()
  #atWork = 0
  #isOpen = true
  #mayReachTables: boolean

  /** `isOnPath`: the store's tables can be named without their schema. */
  constructor(client: PgClientLike, { tables, isOnPath }: { readonly tables: OwnTables; readonly isOnPath: boolean }) {
    this.#client = client
    this.#tables = tables
    this.#mayReachTables = isOnPath
  }

  async query<Row = Record<string, unknown>>(sql: string, params: readonly unknown[] = []): Promise<Row[]> {
    if (!this.#isOpen) {
      throw new HoldfastError('closed', 'This transaction has ended; nothing was done. Await every tx.query inside the body.')
    }
    refuseForbidden(sql, this.#tables)
    if (/search_path/i.test(sql)) this.#mayReachTables = true
    this.#atWork++
    try {
      // The extended protocol takes one statement: none can follow that ends the transaction.
      const { rows } = await this.#client.query({ text: sql, values: [...params], queryMode: 'extended' })
      return rows as Row[]
    } catch (error) {
      this.#errors.add(error as object)
      throw error
    } finally {
      this.#atWork--
    }
  }

  /** The store's tables may have been reached by names without a schema: what was changed has to be looked up. */
  get mayReachTables(): boolean {
    return this.#mayReachTables
  }

  get isAtWork(): boolean {
    return this.#atWork > 0
  }

  /** This error came from a statement, not from code of the user. */
  hasThrown(error: unknown): boolean {
    return typeof error === 'object' && error !== null && this.#errors.has(error)
  }

  end(): void {
    this.#isOpen = false
  }
}

/** The store's own schema and what it has there. */
export interface OwnTables {
  readonly schemaName: string
  readonly tableNames: readonly string[]
}

export function ownTablesError(schemaName: string): HoldfastError {
  return new HoldfastError(
    'invalid_input',
    `The tables of Holdfast in schema "${schemaName}" are not for a transaction of your own; nothing was written. Use tables of your own.`,
  )
}

const transactionWords = new Set([
  'BEGIN',
  'START',
  'COMMIT',
  'END',
  'ROLLBACK',
  'ABORT',
  'SAVEPOINT',
  'RELEASE',
  'PREPARE',
  'LISTEN',
  'UNLISTEN',
])

function refuseForbidden(sql: string, { schemaName, tableNames }: OwnTables): void {
  const text = sql.replaceAll(/'(?:[^']|'')*'|--[^\n]*|\/\*[\s\S]*?(?:\*\/|$)/g, ' ')
  const word = /[a-z_]+/i.exec(text)?.[0].toUpperCase() ?? ''
  if (transactionWords.has(word)) {
    throw new HoldfastError(
      'invalid_input',
      `${word} is not allowed inside a transaction: it begins and ends with the step. Leave it out.`,
    )
  }
  // A table of the store by its whole name. The same word before a dot may also be an alias of the user's.
  const schema = schemaName.replaceAll('.', '\\.')
  const named = new RegExp(
    `(?<![\\p{L}\\p{N}_$.])"?${schema}"?\\s*\\.\\s*"?(?:(?:${tableNames.join('|')})(?![\\p{L}\\p{N}_$])|fn_[0-9a-f]{8}_)`,
    'iu',
  )
  if (named.test(text)) throw ownTablesError(schemaName)
}
