import type { Change } from '../../store/change.ts'
import type { Hint, Store } from '../../store/store.ts'
import { prepareCandidates, prepareClaim, prepareDeadHolders } from './claim.ts'
import { prepareCommit } from './commit.ts'
import { Connection, type Database } from './connection.ts'
import { prepareDeleteThread } from './delete-thread.ts'
import { prepareDeliver, prepareReadInbox } from './inbox.ts'
import { prepareReads, prepareTag } from './reads.ts'
import { migrateSchema, readSchemaVersion, refuseLaterSchema, schemaVersion } from './schema.ts'
import { prepareTransact } from './transact.ts'
import { Watch } from './watch.ts'

export interface SqliteStoreOptions {
  /** Path of the database file; folders are created. Default, and `:memory:`: a database in memory. */
  readonly file?: string
  /** The user's own handle instead of a file. It is used for everything and stays open. */
  readonly database?: Database
  /** `full`: an acknowledged change survives the machine. `relaxed`: the process; effects' intents are still `full`. */
  readonly durability: 'full' | 'relaxed'
  /** Milliseconds added to the host's clock, asked for at every use. Default 0. */
  readonly clockOffsetMs?: () => number
}

/** Opens a store over one SQLite file, shared by any number of processes on this machine. */
export async function openSqliteStore(options: SqliteStoreOptions): Promise<Store> {
  const connection = await Connection.open(options)
  const offsetMs = options.clockOffsetMs ?? (() => 0)
  const now = () => Date.now() + offsetMs()
  const watch = new Watch(connection)

  // Statements can be prepared only once the tables are there.
  let prepared: ReturnType<typeof prepareActs> | null = null
  const acts = () => {
    connection.refuseClosed()
    prepared ??= prepareActs(connection, now)
    return prepared
  }

  /** One write transaction, then the news of it. */
  async function write<Answer>(act: (hints: Hint[]) => Answer, options?: { mustSync: boolean }): Promise<Answer> {
    const hints: Hint[] = []
    const { commit } = acts()
    const answer = await connection.write(() => {
      commit.startTransaction()
      return act(hints)
    }, options)
    watch.tell(hints)
    return answer
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
      if (changes.length === 0) return []
      const { commit } = acts()
      const mustSync = changes.some((change) => change.mustSync === true)
      return write((hints) => applyAll(commit.apply, changes, { now: now(), hints }), { mustSync })
    },

    async claim(request) {
      if (request.limit <= 0) return []
      const { claim, candidates, findDead } = acts()
      const { isWorthIt, deadHolderIds } = await connection.read(() => {
        const deadHolderIds = findDead()
        return { isWorthIt: candidates.find(request, { now: now(), limit: 1, deadHolderIds }).length > 0, deadHolderIds }
      })
      if (!isWorthIt) return []
      return write(() => claim.claim(request, { now: now(), limit: request.limit, deadHolderIds }))
    },

    async renew(request) {
      return request.leases.length === 0 ? [] : write(() => acts().claim.renew(request, now()))
    },

    deliver: async (message) => write((hints) => acts().deliver(message, now(), hints)),
    tag: async (request) => write(() => acts().tag(request)),
    deleteThread: async (request) => write((hints) => acts().deleteThread(request, hints)),

    readInbox: async (key) => connection.read(() => acts().readInbox(key)),
    readRun: async (key) => connection.read(() => acts().reads.readRun(key)),
    listRuns: async (query) => connection.read(() => acts().reads.listRuns(query)),
    readThread: async (key) => connection.read(() => acts().reads.readThread(key)),
    listThreads: async (query) => connection.read(() => acts().reads.listThreads(query)),
    readLog: async (query) => connection.read(() => acts().reads.readLog(query)),
    readSnapshot: async (query) => connection.read(() => acts().reads.readSnapshot(query)),
    listCheckpoints: async (query) => connection.read(() => acts().reads.listCheckpoints(query)),
    readOperation: async (key) => connection.read(() => acts().reads.readOperation(key)),

    async transact(guarded, body) {
      const hints: Hint[] = []
      const answer = await acts().transact(guarded, body, hints)
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

function prepareActs(connection: Connection, now: () => number) {
  const { writer, reader } = connection
  const commit = prepareCommit(writer)
  return {
    commit,
    claim: prepareClaim(writer, commit),
    candidates: prepareCandidates(reader),
    findDead: prepareDeadHolders(reader),
    deliver: prepareDeliver(writer, commit.line),
    readInbox: prepareReadInbox(reader),
    tag: prepareTag(writer),
    deleteThread: prepareDeleteThread(writer, commit.operations),
    reads: prepareReads(reader),
    transact: prepareTransact(connection, commit, now),
  }
}

function applyAll(
  apply: ReturnType<typeof prepareCommit>['apply'],
  changes: readonly Change[],
  { now, hints }: { readonly now: number; readonly hints: Hint[] },
) {
  return changes.map((change) => apply(change, now, hints))
}
