import type { Change } from '../../store/change.ts'
import type { Store } from '../../store/store.ts'
import { hintsOf } from './answers.ts'
import { checkServer } from './check-server.ts'
import { prepareDropChunks, prepareListStreams, prepareReadChunks } from './chunks.ts'
import { Claimer } from './claim.ts'
import { Clock } from './clock.ts'
import { Commits } from './commits.ts'
import { Connections, invalidUrl, type PgPoolLike, prepareStatement } from './connections.ts'
import { prepareCollectThreads, prepareDeleteThread } from './delete-thread.ts'
import { prepareDeliver } from './inbox.ts'
import { Leases } from './leases.ts'
import { prepareListQueues, prepareSetQueue } from './queues.ts'
import { prepareReads } from './reads.ts'
import { prepareSweepRecords } from './records.ts'
import { prepareRenew } from './renew.ts'
import { checkSchemaName, inSchema, migrateSchema, tableNames } from './schema.ts'
import type { StoreParts } from './store-parts.ts'
import { prepareImages, prepareRestore } from './thread-image.ts'
import { prepareTag } from './threads.ts'
import { Transactions } from './transact.ts'
import { Watch } from './watch.ts'
import { Writes } from './writes.ts'

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
  /** Connections that are kept open and that there are at most, without those for heartbeats and notifications. Default 5 and 20. */
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

  const prepare = (sql: string) => prepareStatement(inSchema(sql, schema.quoted))
  const parts: StoreParts = {
    ...{ connections, prepare, isFull: options.durability === 'full' },
    writes: new Writes(connections, { prepare, unknownMs: options.patience?.unknownMs ?? 60_000 }),
    watch: new Watch(connections, schema.name),
    clock: new Clock(options.clockOffsetMs ?? (() => 0)),
    leases: new Leases(),
  }
  return {
    ...{ kind: 'postgres', durability: options.durability },
    // The server works on one batch while the next is being made here.
    canPipeline: true,
    ...lifeOf(parts, schema),
    ...writesOf(parts, schema),
    ...prepareReads(parts),
    ...prepareImages(parts),
    listQueues: prepareListQueues(parts),
    readChunks: prepareReadChunks(parts),
    listStreams: prepareListStreams(parts),
    subscribe: (listener) => parts.watch.subscribe(listener),
  }
}

function lifeOf({ connections, writes, watch }: StoreParts, schema: Schema): Pick<Store, 'migrate' | 'close'> {
  return {
    async migrate() {
      connections.refuseClosed()
      await migrateSchema(connections, schema)
      await writes.forgetDead()
    },

    async close() {
      if (connections.isClosed) return
      // Idle connections keep no process alive; waiting for their end does.
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

function writesOf(parts: StoreParts, schema: Schema) {
  const { watch } = parts
  const commits = new Commits(parts)
  const commit = (changes: readonly Change[]) => commits.commit(changes)
  const claimer = new Claimer(parts, commit)
  const transactions = new Transactions(parts, { commits, tables: { schemaName: schema.name, tableNames } })
  return {
    commit,
    claim: (request) => claimer.claim(request),
    renew: prepareRenew(parts),
    deliver: prepareDeliver(parts),
    tag: prepareTag(parts),
    deleteThread: prepareDeleteThread(parts),
    collectThreads: prepareCollectThreads(parts),
    dropChunks: prepareDropChunks(parts),
    setQueue: prepareSetQueue(parts),
    restoreThread: prepareRestore(parts),
    sweepRecords: prepareSweepRecords(parts),

    async transact(guarded, body) {
      const { change, answer } = await transactions.transact(guarded, body)
      if (change !== undefined) watch.tell(hintsOf([change], [answer], watch))
      return answer
    },

    commitWithin: (tx, changes) => commits.commitWithin(tx, changes),
  } satisfies Partial<PostgresStore>
}

type Schema = ReturnType<typeof checkSchemaName>

/** The URL without what is ours in it. */
function readUrl({ url, pool, schema }: PostgresStoreOptions): { url?: string; schemaName: string } {
  if (pool !== undefined) return { schemaName: schema ?? 'holdfast' }
  if (url === undefined || !/^postgres(ql)?:\/\//.test(url))
    throw invalidUrl('A Postgres store needs a URL that begins with postgres://, or a pg.Pool.')
  let parsed: URL
  try {
    parsed = new URL(url)
    // As the driver does, which does not say what is wrong.
    for (const part of [parsed.username, parsed.password, parsed.hostname, parsed.pathname]) decodeURIComponent(part)
  } catch {
    throw invalidUrl(
      'The URL of the Postgres store cannot be read. Write postgres://user:password@host:port/database, special characters (also %) as %xx.',
    )
  }
  const named = parsed.searchParams.get('schema')
  parsed.searchParams.delete('schema')
  return { url: parsed.href, schemaName: schema ?? named ?? 'holdfast' }
}
