import { ClockWatch } from '../../model/clock-set-back.ts'
import type { Hint, Store } from '../../store/store.ts'
import { prepareReadChunks } from './chunks.ts'
import { prepareCandidates, prepareClaim, prepareDeadHolders } from './claim.ts'
import { prepareCommit } from './commit.ts'
import { Connection } from './connection.ts'
import { prepareDeleteThread } from './delete-thread.ts'
import type { Driver } from './driver.ts'
import { prepareReadInbox } from './inbox.ts'
import { prepareImages, prepareRestore } from './moving.ts'
import { prepareListQueues, prepareSetQueue } from './queues.ts'
import { prepareReads, prepareTag } from './reads.ts'
import { migrateSchema, readSchemaVersion, refuseLaterSchema, schemaVersion } from './schema.ts'
import { prepareHeedSetBack, prepareIsHeldUp } from './set-back.ts'
import { prepareTransact } from './transact.ts'
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

  // Statements can be prepared only once the tables are there; preparing reads the file, so it may have to wait for a lock.
  let prepared: Acts | null = null
  let preparing: Promise<Acts> | null = null
  async function ready(): Promise<Acts> {
    connection.refuseClosed()
    if (prepared !== null) return prepared
    // Whoever comes meanwhile waits for the same: preparing takes milliseconds, and a crowd at the start is common.
    preparing ??= connection
      .read(() => prepareActs(connection, now))
      .finally(() => {
        preparing = null
      })
    prepared = await preparing
    return prepared
  }

  async function read<Answer>(act: (acts: Acts) => Answer): Promise<Answer> {
    const acts = prepared ?? (await ready())
    return connection.read(() => act(acts))
  }

  /** A read of one statement: it sees one state of the tables without a transaction around it. */
  async function readOne<Answer>(act: (acts: Acts) => Answer): Promise<Answer> {
    const acts = prepared ?? (await ready())
    return connection.read(() => act(acts), { isOneStatement: true })
  }

  /** One write transaction, then the news of it. */
  async function write<Answer>(act: (acts: Acts, hints: Hint[]) => Answer, options?: { mustSync: boolean }): Promise<Answer> {
    const acts = prepared ?? (await ready())
    const hints: Hint[] = []
    const answer = await connection.write(() => {
      acts.commit.startTransaction()
      const answer = act(acts, hints)
      acts.commit.endTransaction()
      return answer
    }, options)
    watch.tell(hints)
    return answer
  }

  async function heedSetBack(leaseMs: number): Promise<void> {
    const at = now()
    if (!clock.isSetBack) return
    if (await readOne(({ isHeldUp }) => isHeldUp(at, leaseMs))) await write(({ heedSetBack }) => heedSetBack(at, leaseMs))
    clock.heeded()
  }

  return {
    kind: 'sqlite',
    durability: connection.durability,

    async migrate() {
      const found = await connection.read(() => readSchemaVersion(connection.reader))
      refuseLaterSchema(found, connection.file)
      if (found < schemaVersion) await connection.write(() => migrateSchema(connection.writer, connection.file))
    },

    async now() {
      connection.refuseClosed()
      return now()
    },

    async commit(changes) {
      connection.refuseClosed()
      if (changes.length === 0) return []
      const mustSync = changes.some((change) => change.mustSync === true)
      return write(({ commit }, hints) => commit.applyAll(changes, now(), hints), { mustSync })
    },

    async claim(request) {
      connection.refuseClosed()
      if (request.limit <= 0) return []
      await heedSetBack(request.leaseMs)
      const { isWorthIt, deadHolderIds } = await read(({ candidates, findDead }) => {
        const deadHolderIds = findDead()
        const search = { now: now(), limit: 1, deadHolderIds }
        const isWorthIt =
          candidates.find(request, search).found.length > 0 || candidates.wokenLanes(request, search.now).length > 0
        return { isWorthIt, deadHolderIds }
      })
      if (!isWorthIt) return []
      return write(({ claim }) => claim.claim(request, { now: now(), limit: request.limit, deadHolderIds }))
    },

    setQueue: (change) => write(({ setQueue }, hints) => setQueue(change, hints)),
    listQueues: (query) => read(({ listQueues }) => listQueues(query, now())),

    async renew(request) {
      connection.refuseClosed()
      return request.leases.length === 0 ? [] : write(({ claim }) => claim.renew(request, now()))
    },

    deliver: (message) => write(({ deliver }, hints) => deliver(message, now(), hints)),
    tag: (request) => write(({ tag }) => tag(request)),
    deleteThread: (request) => write(({ deleteThread }, hints) => deleteThread(request, hints)),

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
    readOperation: (key) => readOne(({ reads }) => reads.readOperation(key)),
    listUnsure: (query) => readOne(({ reads }) => reads.listUnsure(query)),

    scanThreads: (query) => read(({ images }) => images.scanThreads(query)),
    readThreadImage: (key) => read(({ images }) => images.readThreadImage(key)),
    restoreThread: (whole) => write(({ restoreThread }, hints) => restoreThread(whole, hints)),

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

type Acts = ReturnType<typeof prepareActs>

function prepareActs(connection: Connection, now: () => number) {
  const { writer, reader } = connection
  const commit = prepareCommit(writer)
  return {
    commit,
    claim: prepareClaim(writer, commit),
    candidates: prepareCandidates(reader),
    findDead: prepareDeadHolders(reader),
    isHeldUp: prepareIsHeldUp(reader),
    heedSetBack: prepareHeedSetBack(writer),
    deliver: commit.deliver,
    setQueue: prepareSetQueue(writer),
    listQueues: prepareListQueues(reader),
    readInbox: prepareReadInbox(reader),
    tag: prepareTag(writer),
    deleteThread: prepareDeleteThread(writer, commit.operations),
    reads: prepareReads(reader),
    chunks: prepareReadChunks(reader),
    images: prepareImages(reader),
    restoreThread: prepareRestore(writer, commit),
    transact: prepareTransact(connection, commit, now),
  }
}
