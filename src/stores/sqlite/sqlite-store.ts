import { ClockWatch } from '../../model/clock-set-back.ts'
import type { ClaimRequest, Hint, Store } from '../../store/store.ts'
import { Connection } from './connection.ts'
import type { Driver } from './database.ts'
import { migrateSchema, readSchemaVersion, refuseLaterSchema, schemaVersion } from './schema.ts'
import { type Acts, openTransactions, type Transactions } from './transactions.ts'
import { Watch } from './watch.ts'

export interface SqliteStoreOptions {
  /** Path of the database file; folders are created. Default, and `:memory:`: a database in memory. */
  readonly file?: string
  /**
   * The user's own handle instead of a file, of node:sqlite or better-sqlite3. It is used for everything, stays open, and is set to a
   * write-ahead log and to the durability asked for.
   */
  readonly database?: object
  /** The library that opens the file. Default: Node's own where it is new enough, else better-sqlite3. */
  readonly driver?: Driver
  /** `full`: an acknowledged change survives the machine. `relaxed`: the process; effects' intents are still `full`. */
  readonly durability: 'full' | 'relaxed'
  /** Milliseconds added to the host's clock, asked for at every use. Default 0. */
  readonly clockOffsetMs?: () => number
}

/** Opens a store over one SQLite file, shared by any number of processes on this machine. */
export async function openSqliteStore(options: SqliteStoreOptions): Promise<Store> {
  const connection = await Connection.open(options)
  const offsetMs = options.clockOffsetMs ?? (() => 0)
  const clock = new ClockWatch()
  const now = () => {
    const now = Date.now() + offsetMs()
    clock.see({ now, at: performance.now() })
    return now
  }
  const watch = new Watch(connection)
  const transactions = openTransactions(connection, { now, tell: (hints) => watch.tell(hints) })
  const { ready, read, readOne, write } = transactions

  return {
    kind: 'sqlite',
    durability: connection.durability,

    migrate: () => migrate(connection),
    async now() {
      connection.refuseClosed()
      return now()
    },

    async commit(changes) {
      connection.refuseClosed()
      if (changes.length === 0) return []
      const mustSync = changes.some((change) => change.mustSync === true)
      return write(({ commits }, hints) => commits.applyAll(changes, now(), hints), { mustSync })
    },

    async claim(request) {
      connection.refuseClosed()
      if (request.limit <= 0) return []
      await heedSetBack(transactions, clock, { at: now(), leaseMs: request.leaseMs })
      const { isWorthIt, deadHolderIds } = await read((acts) => lookForClaims(acts, request, now()))
      if (!isWorthIt) return []
      return write(({ claims }) => claims.claim(request, { now: now(), limit: request.limit, deadHolderIds }))
    },

    listQueues: (query) => read(({ listQueues }) => listQueues(query, now())),
    setQueue: (change) => write(({ setQueue }, hints) => setQueue(change, hints)),

    async renew(request) {
      connection.refuseClosed()
      return request.leases.length === 0 ? [] : write(({ claims }) => claims.renew(request, now()))
    },

    deliver: (message) => write(({ commits }, hints) => commits.deliver(message, now(), hints)),
    tag: (request) => write(({ tag }) => tag(request)),
    deleteThread: (request) => write(({ deleteThread }, hints) => deleteThread(request, hints)),

    async collectThreads(request) {
      if (request.threads.length === 0) return []
      return write(({ collectThreads }, hints) => collectThreads(request, hints))
    },
    async dropChunks({ owner, threadId, streams }) {
      if (streams.length === 0) return 0
      return write(({ commits }) => streams.filter((one) => commits.parts.chunks.drop({ owner, threadId, ...one })).length)
    },
    restoreThread: (whole) => write(({ restoreThread }, hints) => restoreThread(whole, { now: now(), hints })),
    async sweepRecords({ limit }) {
      // The write lock is taken only where there is something to delete.
      if (!(await readOne(({ records }) => records.hasExpired(now())))) return 0
      return write(({ commits }) => commits.parts.records.sweep(limit, now()))
    },
    ...readsOf(transactions, now),

    async transact(guarded, body) {
      const { transact } = await ready()
      const hints: Hint[] = []
      const answer = await transact(guarded, body, hints)
      if (answer.ok) watch.tell(hints)
      return answer
    },

    subscribe: (listener) => watch.subscribe(listener),

    async close() {
      watch.close()
      await connection.close()
    },
  }
}

async function migrate(connection: Connection): Promise<void> {
  const found = await connection.read(() => readSchemaVersion(connection.reader))
  refuseLaterSchema(found, connection.file)
  if (found < schemaVersion) await connection.write(() => migrateSchema(connection.writer, connection.file))
}

async function heedSetBack(
  { readOne, write }: Transactions,
  clock: ClockWatch,
  { at, leaseMs }: { readonly at: number; readonly leaseMs: number },
): Promise<void> {
  if (!clock.isSetBack) return
  if (await readOne(({ isHeldUp }) => isHeldUp(at, leaseMs))) await write(({ heedSetBack }) => heedSetBack(at, leaseMs))
  clock.heeded()
}

/** Whether the write lock is worth taking for a claim. */
function lookForClaims({ candidates, findDead }: Acts, request: ClaimRequest, now: number) {
  const deadHolderIds = findDead()
  const { found } = candidates.find(request, { now, limit: 1, deadHolderIds })
  return { isWorthIt: found.length > 0 || candidates.wokenLanes(request, now).length > 0, deadHolderIds }
}

function readsOf({ read, readOne }: Transactions, now: () => number): Pick<Store, ReadAct> {
  return {
    readInbox: (key) => read(({ readInbox }) => readInbox(key)),
    readRun: (key) => readOne(({ reads }) => reads.readRun(key)),
    listRuns: (query) => read(({ reads }) => reads.listRuns(query)),
    readThread: (key) => readOne(({ reads }) => reads.readThread(key)),
    listThreads: (query) => read(({ reads }) => reads.listThreads(query)),
    readLog: (query) => read(({ reads }) => reads.readLog(query)),
    readLogs: (queries) => read(({ reads }) => reads.readLogs(queries)),
    readSnapshot: (query) => read(({ reads }) => reads.readSnapshot(query)),
    listCheckpoints: (query) => read(({ reads }) => reads.listCheckpoints(query)),
    readChunks: (query) => read(({ chunks }) => chunks.readChunks(query)),
    listStreams: (query) => readOne(({ chunks }) => chunks.listStreams(query)),
    readOperation: (key) => readOne(({ reads }) => reads.readOperation(key)),
    listUnsure: (query) => readOne(({ reads }) => reads.listUnsure(query)),

    readRecords: (query) => readOne(({ records }) => records.readRecords(query, now())),
    searchRecords: (search) => readOne(({ records }) => records.searchRecords(search)),
    scanRecords: (query) => readOne(({ records }) => records.scanRecords(query, now())),

    scanThreads: (query) => read(({ images }) => images.scanThreads(query)),
    readThreadImage: (key) => read(({ images }) => images.readThreadImage(key)),
  }
}

type ReadAct =
  | ('readInbox' | 'readRun' | 'listRuns' | 'readThread' | 'listThreads' | 'readLog' | 'readLogs' | 'readSnapshot')
  | ('listCheckpoints' | 'readChunks' | 'listStreams' | 'readOperation' | 'listUnsure' | 'scanThreads' | 'readThreadImage')
  | ('readRecords' | 'searchRecords' | 'scanRecords')
