import { HoldfastError } from '../../model/errors.ts'
import type { Change, Committed } from '../../store/change.ts'
import type { Hint, SqlTransaction, TransactRequest } from '../../store/store.ts'
import { withTimeout } from '../../store/with-timeout.ts'
import type { Commits } from './commit.ts'
import type { Connection, Database } from './connection.ts'
import { toHoldfastError } from './errors.ts'

/** The user's SQL and the checkpoint in one transaction. It holds the file's only write lock, hence the time limit. */
export function prepareTransact(connection: Connection, commits: Commits, now: () => number) {
  return function transact(
    guarded: TransactRequest,
    body: (tx: SqlTransaction) => Promise<Change>,
    hints: Hint[],
  ): Promise<Committed> {
    return connection.hold(async (finish) => {
      const { runId, timeoutMs } = guarded
      commits.startTransaction()
      if (!commits.isHeld(guarded)) return { ok: false, refusal: 'lease_lost' }

      const tx = new UserTransaction(connection.writer)
      try {
        const change = await withTimeout(() => body(tx), { timeoutMs, runId })
        tx.refuseEnded()
        const answer = commits.apply(change, now(), hints)
        commits.endTransaction()
        if (answer.ok) finish()
        return answer
      } catch (error) {
        throw toHoldfastError(error, { doing: 'write', file: connection.file })
      } finally {
        tx.end()
      }
    })
  }
}

class UserTransaction implements SqlTransaction {
  readonly #db: Database
  #isOpen = true

  constructor(db: Database) {
    this.#db = db
  }

  async query<Row = Record<string, unknown>>(sql: string, params: readonly unknown[] = []): Promise<Row[]> {
    if (!this.#isOpen) {
      throw new HoldfastError('closed', 'This transaction has ended; nothing was done. Await every tx.query inside the body.')
    }
    this.refuseEnded()
    refuseForbidden(sql)
    return this.#db.query(sql, params) as Row[]
  }

  /** `ON CONFLICT ROLLBACK` and `RAISE(ROLLBACK)` end the transaction behind our back: what follows would not be atomic. */
  refuseEnded(): void {
    if (this.#db.inTransaction) return
    throw new HoldfastError(
      'invalid_input',
      'A statement rolled the whole transaction back; nothing was written. Use ON CONFLICT ABORT instead.',
    )
  }

  end(): void {
    this.#isOpen = false
  }
}

const transactionWords = new Set([
  'BEGIN',
  'COMMIT',
  'END',
  'ROLLBACK',
  'SAVEPOINT',
  'RELEASE',
  'PRAGMA',
  'ATTACH',
  'DETACH',
  'VACUUM',
])

function refuseForbidden(sql: string): void {
  const text = sql.replaceAll(/'(?:[^']|'')*'|--[^\n]*|\/\*[\s\S]*?(?:\*\/|$)/g, ' ')
  const word = /[a-z_]+/i.exec(text)?.[0].toUpperCase() ?? ''
  if (transactionWords.has(word)) {
    throw new HoldfastError(
      'invalid_input',
      `${word} is not allowed inside a transaction: it begins and ends with the step. Leave it out.`,
    )
  }
  if (/holdfast_/i.test(text)) {
    throw new HoldfastError(
      'invalid_input',
      'Tables whose names begin with holdfast_ belong to Holdfast. Use tables of your own.',
    )
  }
}
