import { HoldfastError } from '../../model/errors.ts'
import type { Change, Committed } from '../../store/change.ts'
import type { SqlTransaction, TransactRequest } from '../../store/store.ts'
import type { Batch } from './commit.ts'
import type { Connections, PgClientLike, Statement } from './connections.ts'
import { isConnectionLost, isReadOnly, leaseTaken, serverCodeOf, toHoldfastError, toOutage } from './errors.ts'
import { Places } from './places.ts'
import { type OwnTables, ownTablesError, UserTransaction } from './user-transaction.ts'
import type { Writer, Writes } from './writes.ts'

export interface TransactOptions {
  readonly connections: Connections
  readonly writes: Writes
  readonly commit: Statement
  readonly findHeld: Statement
  readonly tables: OwnTables
  readonly encode: (changes: readonly Change[]) => Batch
}

/**
 * The user's SQL and the checkpoint in one transaction, on a connection of its own. The lease is looked at first, to spare the body,
 * and judged at the end, with the checkpoint: our rows are not locked while the body runs, so that neither a slow body nor a
 * process stopped in it stands in the way of heartbeats, claims and other runs. The user's rows may be; hence the time limit,
 * here and on the server, which ends a session that is idle for longer. Who waits for such a row for half of the limit is rolled back
 * and may try again: it is not to blame.
 */
export function prepareTransact(options: TransactOptions) {
  const { connections, writes, commit, findHeld, tables, encode } = options
  // Of a pool with room for more than one, one connection is never in the hands of user code: commits and claims go on.
  const places = new Places(Math.max(1, connections.max - 1))

  return async function transact(guarded: TransactRequest, body: (tx: SqlTransaction) => Promise<Change>): Promise<Done> {
    return writes.withWriter(async (writer) => {
      const attempt: Attempt = { guarded, body, writer }
      let ended: Ended
      try {
        ended = await places.withPlace(() => connections.withClient((client) => carryOut(client, attempt)))
      } catch (error) {
        throw attempt.failure === undefined ? toHoldfastError(error, 'write') : attempt.failure.error
      }
      if (attempt.failure !== undefined) throw attempt.failure.error
      // Not before the client is back in its pool, which may have room for one only.
      if (ended.lost !== undefined && (await writes.settle(writer, ended.lost)) === null) {
        throw toHoldfastError(ended.lost, 'write')
      }
      return ended
    })
  }

  async function carryOut(client: PgClientLike, attempt: Attempt): Promise<Ended> {
    const { owner, runId, threadId, epoch, leaseId, writtenSeq = 0, timeoutMs } = attempt.guarded
    const limitMs = Math.ceil(timeoutMs) + 1_000
    await client.query(
      `BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout = ${limitMs}; SET LOCAL statement_timeout = ${limitMs}; SET LOCAL lock_timeout = ${Math.ceil(timeoutMs / 2)}`,
    )
    const values = [owner, threadId, runId, epoch, leaseId, writtenSeq, tables.schemaName]
    const [held] = (await client.query({ text: findHeld.text, values })).rows as { readonly on_path: string }[]
    if (held === undefined) return rollBack(client, leaseLost)

    const tx = new UserTransaction(client, { tables, isOnPath: held.on_path === 'true' })
    let change: Change
    try {
      change = await withTimeout(() => attempt.body(tx), { timeoutMs, runId })
    } catch (error) {
      attempt.failure = { error: tx.hasThrown(error) ? toOutage(error) : error }
      // A statement that is still at work is not waited for: it ends with its connection.
      if (tx.isAtWork) throw error
      await client.query('ROLLBACK')
      if (tx.hasThrown(error) && (await isMadeReadOnly(client, error))) attempt.failure = { error: readOnlyError(runId, error) }
      return leaseLost
    } finally {
      tx.end()
    }
    if (tx.mayReachTables && (await hasChangedTables(client))) {
      attempt.failure = { error: ownTablesError(tables.schemaName) }
      return rollBack(client, leaseLost)
    }
    let done: Done
    try {
      done = await apply(client, { change, writer: attempt.writer })
    } catch (error) {
      if (serverCodeOf(error) === leaseTaken) return rollBack(client, { ...leaseLost, change })
      if (!isReadOnly(error)) throw error
      await client.query('ROLLBACK')
      if (!(await isMadeReadOnly(client, error))) throw error
      attempt.failure = { error: readOnlyError(runId, error) }
      return leaseLost
    }
    if (!done.answer.ok) return rollBack(client, done)
    try {
      await client.query('COMMIT')
      return done
    } catch (error) {
      if (!isConnectionLost(error)) throw error
      return { ...done, lost: error }
    }
  }

  /** Whether the body has changed or locked rows of the store: only reading takes no more than the weakest lock of a table. */
  async function hasChangedTables(client: PgClientLike): Promise<boolean> {
    const text = `SELECT FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_class c ON c.oid = l.relation JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
      WHERE l.pid = pg_catalog.pg_backend_pid() AND l.mode <> 'AccessShareLock' AND n.nspname = $1 AND c.relname = ANY ($2) LIMIT 1`
    return (await client.query({ text, values: [tables.schemaName, tables.tableNames] })).rows.length > 0
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
}

/** After a rollback: the server refused a write because the body had made its transaction read-only, and would take others. */
async function isMadeReadOnly(client: PgClientLike, error: unknown): Promise<boolean> {
  if (!isReadOnly(error)) return false
  const { rows } = await client.query("SELECT pg_catalog.current_setting('transaction_read_only') AS value")
  return (rows[0] as { readonly value: string }).value === 'off'
}

function readOnlyError(runId: string, cause: unknown): HoldfastError {
  const message = `The transaction of run ${runId} was made read-only by its body, so its checkpoint can't be written; it was rolled back. Leave out what makes it read-only.`
  return new HoldfastError('invalid_input', message, { cause, details: { runId } })
}

interface Attempt {
  readonly guarded: TransactRequest
  readonly body: (tx: SqlTransaction) => Promise<Change>
  readonly writer: Writer
  /** What the body threw. */
  failure?: { readonly error: unknown }
}

/** The change that the body returned, unless there was no lease to begin with, and what became of it. */
export interface Done {
  readonly change?: Change
  readonly answer: Committed
}

/** `lost`: how the connection was, over the COMMIT. */
interface Ended extends Done {
  readonly lost?: unknown
}

const leaseLost: Done = { answer: { ok: false, refusal: 'lease_lost' } }

async function rollBack(client: PgClientLike, done: Done): Promise<Done> {
  await client.query('ROLLBACK')
  return done
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
