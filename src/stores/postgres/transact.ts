import { HoldfastError } from '../../model/errors.ts'
import type { Change, Committed } from '../../store/change.ts'
import type { SqlTransaction, TransactRequest } from '../../store/store.ts'
import type { Batch } from './commit.ts'
import type { Connections, PgClientLike, Statement } from './connections.ts'
import { isConnectionLost, toHoldfastError } from './errors.ts'
import type { Writer, Writes } from './writes.ts'

export interface TransactOptions {
  readonly connections: Connections
  readonly writes: Writes
  readonly commit: Statement
  readonly findHeld: Statement
  readonly schemaName: string
  readonly encode: (changes: readonly Change[]) => Batch
}

/**
 * The user's SQL and the checkpoint in one transaction, on a connection of its own. The lease is looked at first, to spare the body,
 * and judged at the end, with the checkpoint: our rows are not locked while the body runs, so that neither a slow body nor a
 * process stopped in it stands in the way of heartbeats, claims and other runs. The user's rows may be; hence the time limit,
 * here and on the server, which ends a session that is idle for longer.
 */
export function prepareTransact(options: TransactOptions) {
  const { connections, writes, commit, findHeld, schemaName, encode } = options

  return async function transact(guarded: TransactRequest, body: (tx: SqlTransaction) => Promise<Change>): Promise<Done> {
    const { owner, runId, threadId, epoch, leaseId, timeoutMs } = guarded
    return writes.withWriter((writer) =>
      connections.withClient(async (client) => {
        const limitMs = Math.ceil(timeoutMs) + 1_000
        await client.query(
          `BEGIN; SET LOCAL idle_in_transaction_session_timeout = ${limitMs}; SET LOCAL statement_timeout = ${limitMs}; SET LOCAL lock_timeout = ${limitMs}`,
        )
        const { rows } = await client.query({ text: findHeld.text, values: [owner, threadId, runId, epoch, leaseId] })
        if (rows.length === 0) return rollBack(client, { answer: { ok: false, refusal: 'lease_lost' } })

        const tx = new UserTransaction(client, schemaName)
        try {
          const change = await withTimeout(() => body(tx), { timeoutMs, runId })
          const done = await apply(client, { change, writer })
          if (!done.answer.ok) return rollBack(client, done)
          await end(client, writer)
          return done
        } finally {
          tx.end()
        }
      }),
    )
  }

  async function apply(client: PgClientLike, { change, writer }: { change: Change; writer: Writer }): Promise<Done> {
    const batch = encode([change])
    const { rows } = await client.query({
      text: commit.text,
      values: [writer.id, writer.batch, ...batch.values],
      rowMode: 'array',
    })
    const [answer] = batch.readAnswer((rows as string[][])[0]?.[0] as string).answers
    return { change, answer: answer as Committed }
  }

  /** Commits. When the connection is lost over it, another one finds out what became of it. */
  async function end(client: PgClientLike, writer: Writer): Promise<void> {
    try {
      await client.query('COMMIT')
    } catch (error) {
      if (!isConnectionLost(error)) throw error
      if ((await writes.settle(writer, error)) === null) throw toHoldfastError(error, 'write')
    }
  }
}

/** The change that the body returned, unless there was no lease to begin with, and what became of it. */
export interface Done {
  readonly change?: Change
  readonly answer: Committed
}

async function rollBack(client: PgClientLike, done: Done): Promise<Done> {
  await client.query('ROLLBACK')
  return done
}

class UserTransaction implements SqlTransaction {
  readonly #client: PgClientLike
  readonly #schemaName: string
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
    // The extended protocol takes one statement: none can follow that ends the transaction.
    const { rows } = await this.#client.query({ text: sql, values: [...params], queryMode: 'extended' })
    return rows as Row[]
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
