import { HoldfastError } from '../../model/errors.ts'
import type { SqlTransaction } from '../../store/store.ts'
import type { PgClientLike } from './connections.ts'

/** The user's own statements inside the transaction of a step. */
export class UserTransaction implements SqlTransaction {
  readonly #client: PgClientLike
  readonly #schemaName: string
  readonly #errors = new WeakSet<object>()
  #atWork = 0
  #isOpen = true

  constructor(client: PgClientLike, schemaName: string) {
    this.#client = client
    this.#schemaName = schemaName
  }

  async query<Row = Record<string, unknown>>(sql: string, params: readonly unknown[] = []): Promise<Row[]> {
    if (!this.#isOpen) {
      throw new HoldfastError('closed', 'This transaction has ended; nothing was done. Await every tx.query inside the body.')
    }
    refuseForbidden(sql, this.#schemaName)
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

function refuseForbidden(sql: string, schemaName: string): void {
  const text = sql.replaceAll(/'(?:[^']|'')*'|--[^\n]*|\/\*[\s\S]*?(?:\*\/|$)/g, ' ')
  const word = /[a-z_]+/i.exec(text)?.[0].toUpperCase() ?? ''
  if (transactionWords.has(word)) {
    throw new HoldfastError(
      'invalid_input',
      `${word} is not allowed inside a transaction: it begins and ends with the step. Leave it out.`,
    )
  }
  if (
    text
      .replaceAll('"', '')
      .toLowerCase()
      .replaceAll(/\s*\.\s*/g, '.')
      .includes(`${schemaName.toLowerCase()}.`)
  ) {
    throw new HoldfastError(
      'invalid_input',
      `The schema "${schemaName}" belongs to Holdfast. Use tables of your own, in another schema.`,
    )
  }
}
