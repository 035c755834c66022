import { HoldfastError } from '../../model/errors.ts'
import type { Change, Committed } from '../../store/change.ts'
import type { Store } from '../../store/store.ts'
import { type Answers, hintsOf } from './answers.ts'
import { checkServer } from './check-server.ts'
import { prepareReadChunks } from './chunks.ts'
import { prepareClaim } from './claim.ts'
import { Clock } from './clock.ts'
import { commitSql, encodeBatch } from './commit.ts'
import { Connections, invalidUrl, type PgPoolLike, prepareStatement } from './connections.ts'
import { deleteThreadSql } from './delete-thread.ts'
import { serverCodeOf, tooIsolated } from './errors.ts'
import { type Delivered, deliverSql, deliverValues } from './inbox.ts'
import { Leases } from './leases.ts'
import { prepareImages, prepareRestore } from './moving.ts'
import { prepareListQueues, setQueueSql, setQueueValues } from './queues.ts'
import { position, prepareReads, tagSql } from './reads.ts'
import { checkSchemaName, inSchema, migrateSchema, tableNames } from './schema.ts'
import { readStepAnswer, stepSql, stepValues } from './step.ts'
import { prepareTransact } from './transact.ts'
import { Watch } from './watch.ts'
import { Writes, type Written } from './writes.ts'

export type { PgPoolLike } from './connections.ts'

export interface PostgresStoreOptions {
  /** `postgres://user:password@host:port/database[?schema=NAME]`. */
  readonly url?: string
  /** The user's own `pg.Pool` instead of a URL. It stays open; heartbeats and notifications get connections beside it. */
  readonly pool?: PgPoolLike
  /** Where the tables are. Default the URL's `schema`, else `holdfast`. */
  readonly schema?: string
  /** `full`: an acknowledged change survives the machine. `relaxed`: the last half second may not; effects' intents always do. */
  readonly durability: 'full' | 'relaxed'
  /** Milliseconds added to the server's clock, asked for at every use. Default 0. */
  readonly clockOffsetMs?: () => number
  /** Connections that are kept and that there are at most, those for heartbeats and notifications aside. Default 5 and 20. */
  readonly poolSize?: { readonly min?: number; readonly max?: number }
  /**
   * `answerMs`: how long to wait for an answer before a connection is given up, default 25,000. `unknownMs`: how long a write whose
   * answer was lost is looked into before it is `outcome_unknown`, default 60,000.
   */
  readonly patience?: { readonly answerMs?: number; readonly unknownMs?: number }
}

/** With the acts that only SQL stores have. */
export type PostgresStore = Store & Required<Pick<Store, 'transact' | 'commitWithin'>>

/** Opens a store over one schema of a Postgres server, shared by any number of processes on any number of machines. */
export async function openPostgresStore(options: PostgresStoreOptions): Promise<PostgresStore> {
  const { url, schemaName } = readUrl(options)
  const schema = checkSchemaName(schemaName)
  const connections = await Connections.open({
    ...(options.pool === undefined ? { url: url ?? '' } : { pool: options.pool }),
    ...(options.poolSize === undefined ? {} : { poolSize: options.poolSize }),
    ...(options.patience?.answerMs === undefined ? {} : { answerMs: options.patience.answerMs }),
  })
  try {
    await checkServer(connections, options.durability)
  } catch (error) {
    await connections.close()
    throw error
  }

  const isFull = options.durability === 'full'
  const clock = new Clock(options.clockOffsetMs ?? (() => 0))
  const leases = new Leases()
  const prepare = (sql: string) => prepareStatement(inSchema(sql, schema.quoted))
  const writes = new Writes(connections, { prepare, unknownMs: options.patience?.unknownMs ?? 60_000 })
  const watch = new Watch(connections, schema.name)
  const reads = prepareReads(connections, prepare)
  const listQueues = prepareListQueues(connections, prepare, clock)
  const images = prepareImages(connections, prepare)
  const readChunks = prepareReadChunks(connections, prepare)
  const restore = prepareRestore({ connections, writes, prepare, isDurable: isFull })
  const statements = {
    commit: prepare(commitSql),
    step: prepare(stepSql),
    deliver: prepare(deliverSql),
    tag: prepare(tagSql),
    deleteThread: prepare(deleteThreadSql),
    setQueue: prepare(setQueueSql),
  }
  const encode = (changes: readonly Change[], offset = clock.offset()) =>
    encodeBatch(changes, { offset, leases, isDurable: isFull || changes.some((change) => change.mustSync === true) })
  const { claim, renew } = prepareClaim({ connections, writes, prepare, clock, leases, isDurable: isFull, commit })
  const transact = prepareTransact({
    connections,
    writes,
    commit: statements.commit,
    findHeld: prepare(findHeldSql),
    tables: { schemaName: schema.name, tableNames },
    encode,
  })

  async function commit(changes: readonly Change[]): Promise<readonly Committed[]> {
    connections.refuseClosed()
    if (changes.length === 0) return []
    const offset = clock.offset()
    const { answers, now } = (await commitStep(changes, offset)) ?? (await commitBatch(changes, offset))
    clock.learn(now, offset)
    watch.tell(hintsOf(changes, answers, watch))
    return answers
  }

  async function commitBatch(changes: readonly Change[], offset: number): Promise<Answers> {
    const batch = encode(changes, offset)
    return batch.readAnswer(textOf(await writes.write(statements.commit, batch.values)))
  }

  /** Null if it is not a lone step. */
  async function commitStep(changes: readonly Change[], offset: number): Promise<Answers | null> {
    const values = stepValues(changes, { offset, leases, isDurable: isFull || changes[0]?.mustSync === true })
    if (values === null) return null
    return readStepAnswer(textOf(await writes.write(statements.step, values)), changes[0] as Change, leases)
  }

  return {
    kind: 'postgres',
    durability: options.durability,
    // The server works on one batch while the next is being made here.
    canPipeline: true,

    async migrate() {
      connections.refuseClosed()
      await migrateSchema(connections, schema)
      await writes.forgetDead()
    },

    async now() {
      connections.refuseClosed()
      const estimate = clock.estimate()
      if (estimate !== null) return estimate
      const offset = clock.offset()
      const now = await reads.now(offset)
      clock.learn(now, offset)
      return now
    },

    commit,
    claim,
    renew,

    async setQueue(change) {
      await writes.write(statements.setQueue, [isFull, ...setQueueValues(change)])
      watch.tell([{ owner: '', threadId: '', isClaimable: true }])
    },
    listQueues,

    async deliver(message) {
      const written = await writes.write(
        statements.deliver,
        deliverValues(message, { offset: clock.offset(), isDurable: isFull }),
      )
      const delivered = JSON.parse(textOf(written)) as Delivered
      if (delivered.refusal !== undefined) return { ok: false, refusal: delivered.refusal }
      const { owner, runId } = message
      watch.tell([
        { owner, threadId: delivered.thread, runId, hasMail: true, ...(delivered.claimable ? { isClaimable: true } : {}) },
      ])
      return { ok: true }
    },

    async tag({ owner, threadId, seq, label }) {
      return { ok: textOf(await writes.write(statements.tag, [owner, threadId, position(seq), label])) === 'true' }
    },

    async deleteThread({ owner, threadId, at }) {
      const isDeleted = textOf(await writes.write(statements.deleteThread, [isFull, owner, threadId, Math.round(at)])) === 'true'
      if (isDeleted) watch.tell([{ owner, threadId }])
      return isDeleted
    },

    readInbox: reads.readInbox,
    readRun: reads.readRun,
    listRuns: reads.listRuns,
    readThread: reads.readThread,
    listThreads: reads.listThreads,
    readLog: reads.readLog,
    readLogs: reads.readLogs,
    readSnapshot: reads.readSnapshot,
    listCheckpoints: reads.listCheckpoints,
    readChunks,
    readOperation: reads.readOperation,
    listUnsure: reads.listUnsure,

    scanThreads: images.scanThreads,
    readThreadImage: images.readThreadImage,

    async restoreThread(whole) {
      if (!(await restore(whole))) return { ok: false, refusal: 'conflict' }
      const { owner, threadId } = whole.thread
      watch.tell([{ owner, threadId, isClaimable: true }])
      return { ok: true }
    },

    async transact(guarded, body) {
      const { change, answer } = await transact(guarded, body)
      if (change !== undefined) watch.tell(hintsOf([change], [answer], watch))
      return answer
    },

    async commitWithin(tx, changes) {
      if (changes.length === 0) return []
      const batch = encode(changes)
      const values = [null, null, ...batch.values]
      const { rows } = await tx.query({ text: statements.commit.text, values, rowMode: 'array' }).catch((error: unknown) => {
        throw serverCodeOf(error) === tooIsolated ? isolatedTransaction(error) : error
      })
      const { answers } = batch.readAnswer((rows as string[][])[0]?.[0] as string)
      // Notifications of a transaction go out when it commits; this process hears them like any other.
      const announcement = watch.announcementOf(hintsOf(changes, answers, watch))
      if (announcement !== null) await tx.query(announcement)
      return answers
    },

    subscribe: (listener) => watch.subscribe(listener),

    async close() {
      if (connections.isClosed) return
      // Idle connections keep no process alive; who waits for their end does.
      const alive = setInterval(() => {}, 1_000)
      try {
        await watch.close()
        await writes.close()
        await connections.close()
      } finally {
        clearInterval(alive)
      }
    },
  }
}

/** Without a lock: the commit at the end of the transaction judges. */
const findHeldSql = `
  SELECT ($7::text = ANY (current_schemas(true)::text[]))::text AS on_path FROM holdfast.runs r JOIN holdfast.threads t ON t.id = r.thread
  WHERE r.owner = $1 AND t.thread_id = $2 AND r.run_id = $3 AND r.epoch = $4 AND r.lease_id = $5 AND t.written_seq >= $6`

function isolatedTransaction(cause: unknown): HoldfastError {
  return new HoldfastError(
    'invalid_input',
    `A run can't be started in a transaction of this isolation level; nothing was written. Begin the transaction with BEGIN ISOLATION LEVEL READ COMMITTED, or start the run after it. (${(cause as Error).message})`,
    { cause },
  )
}

/** What a function returned or, after a lost connection, recorded. */
function textOf(written: Written): string {
  return ('rows' in written ? written.rows[0]?.[0] : written.recorded) ?? ''
}

/** The URL without what is ours in it. */
function readUrl({ url, pool, schema }: PostgresStoreOptions): { url?: string; schemaName: string } {
  if (pool !== undefined) return { schemaName: schema ?? 'holdfast' }
  if (url === undefined || !/^postgres(ql)?:\/\//.test(url))
    throw invalidUrl('A Postgres store needs a URL that begins with postgres://, or a pg.Pool.')
  let parsed: URL
  try {
    parsed = new URL(url)
  } catch {
    throw invalidUrl(
      'The URL of the Postgres store cannot be read. Write postgres://user:password@host:port/database, special characters as %xx.',
    )
  }
  const named = parsed.searchParams.get('schema')
  parsed.searchParams.delete('schema')
  return { url: parsed.href, schemaName: schema ?? named ?? 'holdfast' }
}
