import { HoldfastError } from '../../model/errors.ts'
import type { Change, Committed } from '../../store/change.ts'
import type { Hint, SqlTransaction, TransactRequest } from '../../store/store.ts'
import type { Commit } from './commit.ts'
import { type Connection, type Database, prepare } from './connection.ts'
import { toHoldfastError } from './errors.ts'

/** The user's SQL and the checkpoint in one transaction. It holds the file's only write lock, hence the time limit. */
export function prepareTransact(connection: Connection, commit: Commit, now: () => number) {
  const findHeld = prepare(
    connection.writer,
    `SELECT 1 FROM holdfast_runs r JOIN holdfast_threads t ON t.id = r.thread
     WHERE r.owner = ? AND r.run_id = ? AND r.epoch = ? AND r.lease_id = ? AND t.thread_id = ? AND t.written_seq >= ?`,
  )

  return function transact(
    guarded: TransactRequest,
    body: (tx: SqlTransaction) => Promise<Change>,
    hints: Hint[],
  ): Promise<Committed> {
    return connection.hold(async (finish) => {
      const { owner, runId, threadId, epoch, leaseId, writtenSeq = 0, timeoutMs } = guarded
      commit.startTransaction()
      if (findHeld.get(owner, runId, epoch, leaseId, threadId, writtenSeq) === undefined)
        return { ok: false, refusal: 'lease_lost' }

      const tx = new UserTransaction(connection.writer)
      try {
        const change = await withTimeout(() => body(tx), { timeoutMs, runId })
        tx.refuseEnded()
        const answer = commit.apply(change, now(), hints)
        commit.endTransaction()
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
    const statement = this.#db.prepare(sql)
    if (statement.reader) return statement.all(...params) as Row[]
    statement.run(...params)
    return []
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

async function withTimeout<Answer>(
  body: () => Promise<Answer>,
  { timeoutMs, runId }: { timeoutMs: number; runId: string },
): Promise<Answer> {
  let timer: NodeJS.Timeout | undefined
  const timeout = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      const message = `The transaction of run ${runId} took longer than ${timeoutMs} ms and was rolled back. Keep slow work outside of it.`
      reject(new HoldfastError('timeout', message, { details: { runId, timeoutMs } }))
    }, timeoutMs)
  })
  try {
    return await Promise.race([body(), timeout])
  } finally {
    clearTimeout(timer)
  }
}
