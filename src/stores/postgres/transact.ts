import { HoldfastError } from '../../model/errors.ts'
import type { Change, Committed } from '../../store/change.ts'
import type { SqlTransaction, TransactRequest } from '../../store/store.ts'
import { withTimeout } from '../../store/with-timeout.ts'
import type { Commits } from './commits.ts'
import type { PgClientLike, Statement } from './connections.ts'
import { isConnectionLost, isReadOnly, leaseTaken, serverCodeOf, toHoldfastError, toOutage } from './errors.ts'
import { Semaphore } from './semaphore.ts'
import type { StoreParts } from './store-parts.ts'
import { type OwnTables, ownTablesError, UserTransaction } from './user-transaction.ts'
import type { Writer } from './writes.ts'

/** Without a lock: the commit at the end of the transaction judges. */
const findHeldSql = `
  SELECT ($7::text = ANY (current_schemas(true)::text[]))::text AS on_path FROM holdfast.runs r JOIN holdfast.threads t ON t.id = r.thread
  WHERE r.owner = $1 AND t.thread_id = $2 AND r.run_id = $3 AND r.epoch = $4 AND r.lease_id = $5 AND t.written_seq >= $6`

/**
 * The user's SQL and the checkpoint in one transaction, on its own connection. The lease is looked at first, to spare the body,
 * and judged at the end, with the checkpoint: our rows are not locked while the body runs, so that neither a slow body nor a
 * process stopped in it holds up heartbeats, claims and other runs. The user's rows may be; hence the time limit,
 * here and on the server, which ends a session that is idle for longer. A transaction that waits for such a row for half of the limit is
 * rolled back and may be tried again: it is not to blame.
 */
export class Transactions {
  readonly #parts: StoreParts
  readonly #commits: Commits
  readonly #tables: OwnTables
  readonly #findHeld: Statement
  readonly #semaphore: Semaphore

  constructor(parts: StoreParts, { commits, tables }: { readonly commits: Commits; readonly tables: OwnTables }) {
    this.#parts = parts
    this.#commits = commits
    this.#tables = tables
    this.#findHeld = parts.prepare(findHeldSql)
    // In a pool with room for more than one, one connection is never used by user code: commits and claims continue.
    this.#semaphore = new Semaphore(Math.max(1, parts.connections.max - 1))
  }

  async transact(guarded: TransactRequest, body: (tx: SqlTransaction) => Promise<Change>): Promise<Done> {
    const { connections, writes } = this.#parts
    return writes.withWriter(async (writer) => {
      const attempt: Attempt = { guarded, body, writer }
      let ended: Ended
      try {
        ended = await this.#semaphore.run(() => connections.withClient((client) => this.#carryOut(client, attempt)))
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

  async #carryOut(client: PgClientLike, attempt: Attempt): Promise<Ended> {
    const tx = await this.#begin(client, attempt.guarded)
    if (tx === null) return rollBack(client, leaseLost)
    const change = await this.#runBody(client, { tx, attempt })
    if (change === null) return leaseLost
    if (tx.mayReachTables && (await this.#hasChangedTables(client))) {
      attempt.failure = { error: ownTablesError(this.#tables.schemaName) }
      return rollBack(client, leaseLost)
    }
    const done = await this.#apply(client, { change, attempt })
    if (done === null) return leaseLost
    if (!done.answer.ok) return rollBack(client, done)
    try {
      await client.query('COMMIT')
      return done
    } catch (error) {
      if (!isConnectionLost(error)) throw error
      return { ...done, lost: error }
    }
  }

  /** Null where the lease is lost. */
  async #begin(client: PgClientLike, guarded: TransactRequest): Promise<UserTransaction | null> {
    const { owner, runId, threadId, epoch, leaseId, writtenSeq = 0, timeoutMs } = guarded
    const limitMs = Math.ceil(timeoutMs) + 1_000
    await client.query(
      `BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout = ${limitMs}; SET LOCAL statement_timeout = ${limitMs}; SET LOCAL lock_timeout = ${Math.ceil(timeoutMs / 2)}`,
    )
    const values = [owner, threadId, runId, epoch, leaseId, writtenSeq, this.#tables.schemaName]
    const [held] = (await client.query({ text: this.#findHeld.text, values })).rows as { readonly on_path: string }[]
    return held === undefined ? null : new UserTransaction(client, { tables: this.#tables, isOnPath: held.on_path === 'true' })
  }

  /** The change that the body returns; null where it threw, and everything is rolled back. */
  async #runBody(client: PgClientLike, { tx, attempt }: { tx: UserTransaction; attempt: Attempt }): Promise<Change | null> {
    const { timeoutMs, runId } = attempt.guarded
    try {
      return await withTimeout(() => attempt.body(tx), { timeoutMs, runId })
    } catch (error) {
      attempt.failure = { error: tx.hasThrown(error) ? toOutage(error) : error }
      // A statement that is still at work is not waited for: it ends with its connection.
      if (tx.isAtWork) throw error
      await client.query('ROLLBACK')
      if (tx.hasThrown(error) && (await isMadeReadOnly(client, error))) attempt.failure = { error: readOnlyError(runId, error) }
      return null
    } finally {
      tx.end()
    }
  }

  /** Whether the body has changed or locked rows of the store: only reading takes no more than the weakest lock of a table. */
  async #hasChangedTables(client: PgClientLike): Promise<boolean> {
    const { schemaName, tableNames } = this.#tables
    const text = `SELECT FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_class c ON c.oid = l.relation JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
      WHERE l.pid = pg_catalog.pg_backend_pid() AND l.mode <> 'AccessShareLock' AND n.nspname = $1 AND c.relname = ANY ($2) LIMIT 1`
    return (await client.query({ text, values: [schemaName, tableNames] })).rows.length > 0
  }

  /** Writes the change; null where it can't be, and everything is rolled back. */
  async #apply(client: PgClientLike, { change, attempt }: { change: Change; attempt: Attempt }): Promise<Done | null> {
    const { writer, guarded } = attempt
    const batch = this.#commits.encode([change])
    const values = [writer.id, writer.batch, ...batch.values]
    try {
      const { rows } = await client.query({ text: this.#commits.statement.text, values, rowMode: 'array' })
      const [answer] = batch.readAnswer((rows as string[][])[0]?.[0] as string).answers
      return { change, answer: answer as Committed }
    } catch (error) {
      if (serverCodeOf(error) === leaseTaken) return { ...leaseLost, change }
      if (!isReadOnly(error)) throw error
      await client.query('ROLLBACK')
      if (!(await isMadeReadOnly(client, error))) throw error
      attempt.failure = { error: readOnlyError(guarded.runId, error) }
      return null
    }
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
