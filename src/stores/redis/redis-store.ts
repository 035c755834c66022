import { randomBytes } from 'node:crypto'
import { ClockWatch } from '../../model/clock-set-back.ts'
import { HoldfastError } from '../../model/errors.ts'
import type { Hint, Store } from '../../store/store.ts'
import { listCheckpoints } from './checkpoints.ts'
import { dropChunks, listStreams, readChunks } from './chunks.ts'
import { claim, renew } from './claim.ts'
import { commit } from './commit.ts'
import { Connection, type Patience } from './connection.ts'
import { collectThreads, deleteThread } from './delete-thread.ts'
import { goneError, tooNewError } from './errors.ts'
import { addHints, expectedHintsOf } from './hints.ts'
import { deliver, readInbox } from './inbox.ts'
import { checkNamespace, namespaceKey, schemaVersion } from './keys.ts'
import { linksOver, linksTo, type RedisClientLike } from './link.ts'
import { listRuns } from './list-runs.ts'
import { listQueues, setQueue } from './queues.ts'
import { ReadBatcher } from './read-batcher.ts'
import { isForOne, readLog, readLogs, readRecord } from './read-log.ts'
import { listUnsure, readOperation, readRun, readSnapshot } from './reads.ts'
import { readRecords, scanRecords, searchRecords, sweepRecords } from './records.ts'
import { readRecordsScript } from './scripts/read-log.ts'
import { nowScript, readRunsScript } from './scripts/read-rows.ts'
import { hasOldRunsScript, listOldRunsScript, openNamespaceScript } from './scripts/schema.ts'
import { readThreadImage, restoreThread } from './thread-image.ts'
import { listThreads, readThread, scanThreads, tag } from './threads.ts'
import { Watch } from './watch.ts'

export { isRedisClient, type RedisClientLike } from './link.ts'

export interface RedisStoreOptions {
  /** `redis://` or `rediss://` (TLS), with `?namespace=NAME` if you like. */
  readonly url?: string
  /** The user's own client of `redis` or `ioredis` instead of a URL. It stays open. */
  readonly client?: RedisClientLike
  /** Keeps several stores on one server apart; each lives on one node of a cluster. Default `default`. */
  readonly namespace?: string
  /**
   * `full`: an acknowledged change survives the machine; refused unless the server flushes its append-only file at every write.
   * `relaxed`: what the server is set to; the store's `durability` says what that is.
   */
  readonly durability: 'full' | 'relaxed'
  /** Milliseconds added to the server's clock, asked for at every use. Default 0. */
  readonly clockOffsetMs?: () => number
  /** How long to wait for what, in ms. For tests. */
  readonly patience?: Partial<Patience>
}

const defaultPatience: Patience = { readyMs: 2_000, answerMs: 10_000, outcomeMs: 30_000 }

/** Opens a store over one namespace of a Redis server (7.0 or later, no modules) or Valkey, shared by any number of processes. */
export async function openRedisStore(options: RedisStoreOptions): Promise<Store> {
  const { url, namespace } = readAddress(options)
  const source = options.client === undefined ? await linksTo(url) : linksOver(options.client, namespaceKey(namespace))
  const patience = { ...defaultPatience, ...options.patience }
  const connection = await Connection.open(source, { namespace, durability: options.durability, patience })
  const offsetMs = () => Math.round(options.clockOffsetMs?.() ?? 0)
  const watch = new Watch(connection)
  const clockWatch = new ClockWatch()

  return {
    kind: 'redis',
    durability: connection.durability,
    // A single write cannot be flushed: either all are, or an intent may be lost.
    keepsIntents: connection.durability === 'full',
    // The server works on one batch while the next is being made here.
    canPipeline: true,

    async migrate() {
      const namespaceId = await connection.begin(openNamespaceScript, `${schemaVersion}:${randomBytes(12).toString('base64url')}`)
      refuseLaterSchema(namespaceId, namespace)
      connection.namespaceId = namespaceId
      while ((await connection.repeat(hasOldRunsScript)) === 1) await connection.repeat(listOldRunsScript)
    },

    now: async () => Number(await connection.repeat(nowScript, String(offsetMs()))),

    async commit(changes) {
      connection.refuseClosed()
      if (changes.length === 0) return []
      const publication = watch.publicationOf(changes.flatMap(expectedHintsOf))
      const answers = await commit(connection, changes, { offsetMs: offsetMs(), publication })
      const hints: Hint[] = []
      for (const [i, change] of changes.entries()) addHints(hints, change, answers[i])
      watch.tell(hints)
      return answers
    },

    async claim(request) {
      connection.refuseClosed()
      if (request.limit <= 0 || request.workflows.length === 0) return []
      const { claims, setAside } = await claim(connection, request, { offsetMs: offsetMs(), watch: clockWatch })
      // Left claimed they come again when their leases are over; the others are not lost with them.
      if (setAside.length > 0) await commit(connection, setAside, { offsetMs: offsetMs(), publication: '' }).catch(() => {})
      return claims
    },

    listQueues: (query) => listQueues(connection, query, offsetMs()),

    async renew(request) {
      connection.refuseClosed()
      return request.leases.length === 0 ? [] : renew(connection, request, offsetMs())
    },

    ...hintedWritesOf(connection, watch, offsetMs),
    tag: (request) => tag(connection, request),
    dropChunks: (request) => dropChunks(connection, request),
    sweepRecords: ({ limit }) => sweepRecords(connection, limit, offsetMs()),
    ...readsOf(connection, offsetMs),
    subscribe: (listener) => watch.subscribe(listener),

    async close() {
      watch.close()
      await connection.close()
    },
  }
}

/** Writes from outside of a run, each followed by a hint for subscribers. */
function hintedWritesOf(
  connection: Connection,
  watch: Watch,
  offsetMs: () => number,
): Pick<Store, 'setQueue' | 'deliver' | 'deleteThread' | 'collectThreads' | 'restoreThread'> {
  return {
    async setQueue(change) {
      const hints: Hint[] = [{ isClaimable: true }]
      await setQueue(connection, change, watch.publicationOf(hints))
      watch.tell(hints)
    },

    async deliver(message) {
      const { owner, runId } = message
      const publication = watch.publicationOf([{ owner, runId, hasMail: true, isClaimable: true }])
      const delivered = await deliver(connection, message, { offsetMs: offsetMs(), publication })
      if (!delivered.ok) return delivered
      const { threadId, isClaimable } = delivered
      watch.tell([{ owner, threadId, runId, hasMail: true, ...(isClaimable && { isClaimable }) }])
      return { ok: true }
    },

    async deleteThread(request) {
      const hint: Hint = { owner: request.owner, threadId: request.threadId }
      const isDeleted = await deleteThread(connection, request, watch.publicationOf([{ ...hint, isClaimable: true }]))
      if (isDeleted) watch.tell([hint])
      return isDeleted
    },

    async collectThreads(request) {
      const { threads, isDryRun } = request
      if (threads.length === 0) return []
      const verdicts = await collectThreads(connection, request)
      const removed = threads.filter((_, index) => verdicts[index] === 'removed' && !isDryRun)
      watch.tell(removed.map(({ owner, threadId }) => ({ owner, threadId })))
      return verdicts
    },

    async restoreThread(whole) {
      const { owner, threadId } = whole.thread
      const hints: Hint[] = [{ owner, threadId, isClaimable: true }]
      const answer = await restoreThread(connection, whole, { offsetMs: offsetMs(), publication: watch.publicationOf(hints) })
      if (answer.ok) watch.tell(hints)
      return answer
    },
  }
}

function readsOf(connection: Connection, offsetMs: () => number): Reads {
  const runRows = new ReadBatcher(connection, readRunsScript)
  const entries = new ReadBatcher(connection, readRecordsScript)
  return {
    readInbox: (key) => readInbox(connection, key),
    readRun: (key) => readRun(runRows, key),
    listRuns: (query) => listRuns(connection, query),
    readThread: (key) => readThread(connection, key),
    listThreads: (query) => listThreads(connection, query),
    scanThreads: (query) => scanThreads(connection, query),
    readThreadImage: (key) => readThreadImage(connection, key),
    readLogs: (queries) => readLogs(connection, queries),
    readLog: (query) => (isForOne(query) ? readRecord(entries, query) : readLog(connection, query)),
    readSnapshot: (query) => readSnapshot(connection, query),
    listCheckpoints: (query) => listCheckpoints(connection, query),
    readChunks: (query) => readChunks(connection, query),
    listStreams: (query) => listStreams(connection, query),
    readOperation: (key) => readOperation(connection, key),
    listUnsure: (query) => listUnsure(connection, query),
    readRecords: (query) => readRecords(connection, query, offsetMs()),
    searchRecords: (search) => searchRecords(connection, search),
    scanRecords: (query) => scanRecords(connection, query, offsetMs()),
  }
}

type Reads = Pick<
  Store,
  | 'readInbox'
  | 'readRun'
  | 'listRuns'
  | 'readThread'
  | 'listThreads'
  | 'scanThreads'
  | 'readThreadImage'
  | 'readLogs'
  | 'readLog'
  | 'readSnapshot'
  | 'listCheckpoints'
  | 'readChunks'
  | 'listStreams'
  | 'readOperation'
  | 'listUnsure'
  | 'readRecords'
  | 'searchRecords'
  | 'scanRecords'
>

function readAddress({ url, client, namespace }: RedisStoreOptions): { url: string; namespace: string } {
  if (url === undefined) {
    if (client === undefined) throw new HoldfastError('invalid_url', 'Pass a redis:// URL or a client of "redis" or "ioredis".')
    return { url: '', namespace: checkNamespace(namespace ?? 'default') }
  }
  const address = readUrl(url)
  for (const name of address.searchParams.keys()) {
    if (name !== 'namespace')
      throw new HoldfastError('invalid_url', `A redis:// URL has no parameter "${name}". It takes namespace=NAME.`)
  }
  const named = namespace ?? address.searchParams.get('namespace') ?? 'default'
  address.search = ''
  return { url: address.href, namespace: checkNamespace(named) }
}

function readUrl(url: string): URL {
  try {
    const address = new URL(url)
    // As the client does, which does not say what is wrong.
    for (const part of [address.username, address.password]) decodeURIComponent(part)
    if (/^rediss?:\/\//.test(url)) return address
  } catch {
    // Said below.
  }
  throw new HoldfastError(
    'invalid_url',
    'This is not the URL of a Redis server. Write redis://[USER:PASSWORD@]HOST[:PORT][?namespace=NAME], special characters (also %) as %xx.',
  )
}

function refuseLaterSchema(namespaceId: string, namespace: string): void {
  const found = Number.parseInt(namespaceId, 10)
  if (Number.isNaN(found)) throw goneError(namespace, namespaceId)
  if (found > schemaVersion) throw tooNewError(namespace, namespaceId)
}
