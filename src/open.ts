import { randomBytes } from 'node:crypto'
import { hostname } from 'node:os'
import { type ArtifactTarget, artifactTarget } from './artifacts/artifact-target.ts'
import { artifactParts } from './artifacts/artifacts-parts.ts'
import { Holdfast } from './client/holdfast.ts'
import { resumeRun, retryRun } from './control/control-run.ts'
import type { Core } from './control/core.ts'
import { RunWaiters } from './control/run-waiters.ts'
import { cancelRun } from './control/undo-run.ts'
import { type AnyWorkflow, Registry } from './define/workflow.ts'
import { HeadStateCache } from './engine/state/head-state-cache.ts'
import type { RunControl } from './engine/undo/open-dependents.ts'
import { OpenQuestions } from './engine/waiting/open-questions.ts'
import { defaultQuietMs, longestQuietMs, QuietTimes } from './engine/waiting/quiet-times.ts'
import { Committer } from './engine/writing/committer.ts'
import { Outbox } from './engine/writing/outbox.ts'
import { Sendings } from './engine/writing/sendings.ts'
import { type Embed, Embedder, type EmbedderOptions } from './memory/embedder.ts'
import { createCodec } from './model/codec.ts'
import { checkMs } from './model/duration.ts'
import { HoldfastError } from './model/errors.ts'
import { type OptionNames, refuseUnknownOptions } from './model/known-options.ts'
import { type Logger, readLogger } from './model/logger.ts'
import { requireNode } from './node-version.ts'
import { notifyWorkflow } from './notify/notify-workflow.ts'
import { type CheckedTarget, type NotifyOption, readTargets } from './notify/targets.ts'
import { checkRetention, type RetentionOptions } from './retention/policies.ts'
import { createStderrLogger } from './stderr-logger.ts'
import type { Change } from './store/change.ts'
import type { Store } from './store/store.ts'
import { withWholePayloads } from './store/whole-payloads.ts'
import { scheduleWorkflow } from './worker/schedule-workflow.ts'
import { Worker, type WorkerOptions } from './worker/worker.ts'

/** How long a run that is cancelled waits for a child before it is released: a little longer than a run may take to unwind. */
const childWaitMs = 6_000
/** A child that no worker claims may need the place of the run that waits for it. */
const childPendingMs = 500

export interface OpenOptions {
  /** Workflows that this process can execute. Those passed to `start` are added. */
  readonly workflows?: readonly AnyWorkflow[]
  /** False: this process starts and reads runs, and others execute them. */
  readonly worker?: false | WorkerOptions
  /**
   * `full` (default): what is acknowledged survives a crash of the machine. `relaxed`: it survives a crash of the process; if the machine
   * crashes, the last moments may be lost. Intents of effects are always written with `full`.
   */
  readonly durability?: 'full' | 'relaxed'
  /**
   * Where to log. Default: a line on stderr, at most 10 per second, when a run fails, pauses by itself, waits for a person because of an
   * unsure effect or is taken over, and when the store is unavailable. False: nowhere.
   */
  readonly logger?: Logger | false
  /**
   * Who is notified when a run ends or needs a person. A notification is committed together with the event it is about, by the process that
   * executes the run, so pass this in every process with a worker. Default none.
   */
  readonly notify?: NotifyOption
  /**
   * Makes vectors of texts: facts are then recalled by their meaning, too. Any function `(texts) => vectors` serves. It is called in the background after a
   * fact was remembered, and once for each recall; pass it in every process that remembers. Name the model: vectors of another one are not compared. A
   * call that takes longer than `timeoutMs`, default 30,000, has failed. Default none: facts are recalled by their words.
   */
  readonly embed?: Embed | { readonly embed: Embed; readonly model: string; readonly timeoutMs?: number }
  /**
   * What workers delete by themselves, and `hf.gc()` deletes: old runs, threads, notifications and chunks of streams. Pass it in every process with a worker.
   * Default none: nothing is deleted except what has expired.
   */
  readonly retention?: RetentionOptions
  /**
   * Where the content of artifacts is kept that are files or exports: `file:DIR`, or `store:` for inside the store, up to 64 MiB each. Default: a folder
   * beside the SQLite file (`holdfast.db.artifacts`), else the store. Pass the same in every process.
   */
  readonly artifacts?: string
  /** Postgres by URL: the minimum and maximum number of connections. Default 5 and 20. */
  readonly pool?: { readonly min?: number; readonly max?: number }
  /** Postgres with your own pool: the schema of the tables. In a URL it is `?schema=NAME`. Default `holdfast`. */
  readonly schema?: string
  /** Redis with your own client: the namespace of the keys. In a URL it is `?namespace=NAME`. Default `default`. */
  readonly namespace?: string
  /** For tests: ms added to the store's time, or a function that returns them. */
  readonly clock?: number | (() => number)
}

/** A `DatabaseSync` of `node:sqlite`, or a better-sqlite3 database, that the caller opened and will close. */
export interface SqliteHandle {
  prepare(sql: string): unknown
  exec(sql: string): unknown
  loadExtension(path: string): unknown
}

/** A `pg.Pool` that the caller opened and will close. */
export interface PostgresPool {
  connect(): Promise<unknown>
  query(...args: never[]): unknown
  end(): Promise<void>
  readonly totalCount: number
}

/** A client of `redis` or `ioredis`, for one server or a cluster, that the caller opened and will close. */
export interface RedisClient {
  duplicate(...args: never[]): unknown
}

/**
 * What can be opened: `memory:`, `sqlite:FILE`, `postgres://…[?schema=NAME]`, `redis://…[?namespace=NAME]`, a handle of
 * `node:sqlite` or better-sqlite3, a `pg.Pool`, a Redis client, or a store of your own.
 */
export type OpenTarget = string | SqliteHandle | PostgresPool | RedisClient | Store

/**
 * Opens a store and, unless `worker` is false, starts a worker in this process. `open()` and `open(options)` use `$HOLDFAST_URL`, else
 * `sqlite:.holdfast/holdfast.db`. A URL that is undefined, which is usually an environment variable that is not set, is `invalid_url`.
 * Handles, pools and clients that you pass stay open when Holdfast is closed.
 */
export function open(options?: OpenOptions): Promise<Holdfast>
export function open(target: OpenTarget | undefined, options?: OpenOptions): Promise<Holdfast>
export async function open(...given: readonly unknown[]): Promise<Holdfast> {
  const isAlone = given.length === 0 || isOptions(given[0])
  const options = ((isAlone ? given[0] : given[1]) ?? {}) as OpenOptions
  const target = isAlone ? defaultTarget() : ((given[0] as OpenTarget | null | undefined) ?? urlOfEnvironment())
  if (target === undefined || target === '') throw noTarget(isAlone ? '' : given[0])
  refuseUnknownOptions('open', options, openOptionNames)
  if (options.worker !== false) refuseUnknownOptions('worker of open', options.worker, workerOptionNames)
  const { clock = 0, durability = 'full', pool, schema, namespace } = options
  checkWorkflows(options.workflows)
  refuseUnknownOptions('pool of open', pool, { min: true, max: true })
  const targets = readTargets(options.notify)
  checkEmbed(options.embed)
  checkRetention(options.retention)
  const artifacts = artifactTarget(options.artifacts, target)
  const { store, close } = await openTarget(target, {
    durability,
    clockOffsetMs: typeof clock === 'function' ? clock : () => clock,
    ...(pool !== undefined && { poolSize: pool }),
    ...(schema !== undefined && { schema }),
    ...(namespace !== undefined && { namespace }),
  })
  try {
    return assemble(withWholePayloads(store), options, { targets, artifacts }, close)
  } catch (error) {
    await close()
    throw error
  }
}

function checkWorkflows(given: unknown): void {
  if (given === undefined) return
  if (!Array.isArray(given))
    throw new HoldfastError('invalid_input', 'workflows of open must be an array: open(url, { workflows: [a, b] }).')
  for (const [index, one] of given.entries()) {
    if (typeof one?.fn === 'function' && typeof one.name === 'string') continue
    throw new HoldfastError(
      'invalid_input',
      `workflows[${index}] of open is ${one === null ? 'null' : typeof one === 'object' ? 'no workflow' : typeof one}; give what workflow() or plan() returned.`,
    )
  }
}

function urlOfEnvironment(): string | undefined {
  return process.env['HOLDFAST_URL']
}

function defaultTarget(): string {
  return urlOfEnvironment() ?? 'sqlite:.holdfast/holdfast.db'
}

/** Options as the only argument: plain data, without the methods of a store, handle, pool or client. */
function isOptions(given: unknown): boolean {
  if (typeof given !== 'object' || given === null || isStore(given)) return false
  const prototype: unknown = Object.getPrototypeOf(given)
  const canStore = ['prepare', 'query', 'connect', 'duplicate'].some((name) => name in given)
  return (prototype === Object.prototype || prototype === null) && !canStore
}

function noTarget(given: unknown): HoldfastError {
  return new HoldfastError(
    'invalid_url',
    `open() got ${given === '' ? 'an empty string' : String(given)} as its URL: is an environment variable ${given === '' ? 'empty' : 'not set'}? Call open() or open(options) for $HOLDFAST_URL, else ` +
      'sqlite:.holdfast/holdfast.db.',
  )
}

const openOptionNames: OptionNames<OpenOptions> = {
  workflows: true,
  worker: true,
  durability: true,
  logger: true,
  notify: true,
  pool: true,
  schema: true,
  namespace: true,
  embed: true,
  retention: true,
  artifacts: true,
  clock: true,
}

const workerOptionNames: OptionNames<WorkerOptions> = {
  concurrency: true,
  queues: true,
  leaseMs: true,
  quietMs: true,
  longWaitMs: true,
  mismatchMs: true,
  pollMs: true,
  closeGraceMs: true,
}

interface StoreOptions {
  readonly durability: 'full' | 'relaxed'
  readonly clockOffsetMs: () => number
  readonly poolSize?: { readonly min?: number; readonly max?: number }
  readonly schema?: string
  readonly namespace?: string
}

/** A store that is ready to use, and the function that closes it unless the caller opened it. */
export async function openTarget(
  target: OpenTarget,
  options: StoreOptions,
): Promise<{ readonly store: Store; readonly close: () => Promise<void> }> {
  requireNode()
  if (isStore(target)) {
    await target.migrate()
    return { store: target, close: async () => {} }
  }
  const store = await (typeof target === 'string' ? openUrl(target, options) : openOver(target, options))
  try {
    await store.migrate()
    return { store, close: () => store.close() }
  } catch (error) {
    await store.close()
    throw error
  }
}

function isStore(given: unknown): given is Store {
  return typeof given === 'object' && given !== null && 'commit' in given && 'claim' in given
}

/** The only place where a URL selects a store. */
async function openUrl(url: string, options: StoreOptions): Promise<Store> {
  if (url === 'memory:') {
    const { createMemoryStore } = await import('./stores/memory/memory-store.ts')
    return createMemoryStore(options)
  }
  if (url.startsWith('sqlite:')) {
    const file = url.slice('sqlite:'.length).replace(/^\/\/(?=\/)/, '')
    if (file === '' || file.includes('\0') || file.includes('?')) {
      throw new HoldfastError('invalid_url', `"${url}" names no file. Write sqlite:FILE, for example sqlite:holdfast.db.`)
    }
    const { openSqliteStore } = await import('./stores/sqlite/sqlite-store.ts')
    return openSqliteStore({ ...options, file })
  }
  if (/^postgres(ql)?:\/\//.test(url)) {
    const { openPostgresStore } = await import('./stores/postgres/postgres-store.ts')
    return openPostgresStore({ ...options, url })
  }
  if (/^rediss?:\/\//.test(url)) {
    const { openRedisStore } = await import('./stores/redis/redis-store.ts')
    return openRedisStore({ ...options, url })
  }
  throw new HoldfastError(
    'invalid_url',
    `"${shown(url)}" is not a store that Holdfast knows. ${isFileName(url) ? `Did you mean sqlite:${url}?` : 'Use memory:, sqlite:FILE, postgres://… or redis://….'}`,
  )
}

function isFileName(url: string): boolean {
  return /^(?:[a-z]:)?[^:]+\.(?:db|sqlite3?)$/i.test(url)
}

/** A handle, pool or client of the user is recognized by its methods. */
async function openOver(given: object, options: StoreOptions): Promise<Store> {
  const can = (name: string) => typeof (given as Record<string, unknown> | null)?.[name] === 'function'
  if (can('prepare') && can('exec')) {
    const { openSqliteStore } = await import('./stores/sqlite/sqlite-store.ts')
    return openSqliteStore({ ...options, database: given })
  }
  if (can('connect') && can('query') && can('end') && 'totalCount' in given) {
    const { openPostgresStore } = await import('./stores/postgres/postgres-store.ts')
    return openPostgresStore({ ...options, pool: given as never })
  }
  if (can('duplicate')) {
    const { isRedisClient, openRedisStore } = await import('./stores/redis/redis-store.ts')
    if (isRedisClient(given)) return openRedisStore({ ...options, client: given })
  }
  throw new HoldfastError(
    'invalid_url',
    'open() takes a URL, a handle of node:sqlite or better-sqlite3, a pg.Pool (not a single client), a client of redis or ioredis, or a store; it got something else.',
  )
}

function assemble(
  store: Store,
  options: OpenOptions,
  { targets, artifacts: target }: { readonly targets: readonly CheckedTarget[]; readonly artifacts: ArtifactTarget },
  closeStore: () => Promise<void>,
): Holdfast {
  const stderr = options.logger === undefined ? createStderrLogger() : undefined
  const log = stderr ?? readLogger(options.logger)
  const registry = new Registry()
  for (const workflow of options.workflows ?? []) registry.add(workflow)
  for (const target of targets) registry.add(notifyWorkflow(target, log))
  const committer = new Committer(store, { log })
  const codec = createCodec()
  const waiters = new RunWaiters(store)
  const writing = { store, codec, log, commit: (change: Change) => committer.commit(change) }
  const embedder = createEmbedder(options.embed, writing)
  const artifacts = artifactParts(writing, target)
  const workerOptions = options.worker === undefined ? {} : options.worker
  const leaseMs = workerOptions === false ? 0 : (workerOptions.leaseMs ?? 10_000)
  const questions = new OpenQuestions()
  let worker: Worker | undefined
  const wakeWorker = () => worker?.wake()
  const core: Core = {
    ...{ store, committer, codec, registry, waiters, log, questions, wakeWorker, embedder, artifacts },
    hasWorker: workerOptions !== false,
    now: () => store.now(),
  }
  if (workerOptions !== false) {
    registry.add(scheduleWorkflow)
    const control: RunControl = {
      cancel: (key, { undo }) => cancelRun(core, key, { undo, waitMs: childWaitMs, pendingWaitMs: childPendingMs }),
      retry: (key) => retryRun(core, key),
      resume: (key, { budget }) => resumeRun(core, key, { budget }),
    }
    worker = new Worker({
      engine: {
        ...{ store, committer, codec, log, leaseMs, registry, questions, control, wakeWorker, embedder, artifacts },
        ...{ longWaitMs: workerOptions.longWaitMs, mismatchMs: workerOptions.mismatchMs },
        cache: new HeadStateCache(),
        quietTimes: quietTimesOf(workerOptions),
        sendings: new Sendings(),
        ...(targets.length > 0 && { outbox: new Outbox(codec, targets) }),
      },
      registry,
      workerId: `${hostname()}:${process.pid}:${randomBytes(4).toString('hex')}`,
      worker: workerOptions,
      retention: options.retention,
      onRunEnded: (owner, runId) => waiters.runChanged(owner, runId),
    })
  }
  let closing: Promise<void> | undefined
  const close = (): Promise<void> => {
    if (closing !== undefined) return closing
    // Idle connections do not keep the process alive, and `close` waits for them to end.
    const alive = setInterval(() => {}, 1_000)
    closing = closeAll({ worker, embedder, committer, waiters, closeStore }).finally(() => {
      clearInterval(alive)
      stderr?.flush()
    })
    return closing
  }
  worker?.start()
  return new Holdfast(core, '', close, options.retention)
}

/** How many runs may be in their quiet time for each that may execute in parallel; at least 500 in total. */
const quietRunsAPlace = 5

function quietTimesOf({ quietMs = defaultQuietMs, concurrency = 100 }: WorkerOptions): QuietTimes {
  if (!(typeof quietMs === 'number' && quietMs >= 0 && quietMs <= longestQuietMs)) {
    throw new HoldfastError(
      'invalid_input',
      `worker.quietMs is ${String(quietMs)}; it must be a number of milliseconds from 0 to ${longestQuietMs}.`,
    )
  }
  return new QuietTimes({ quietMs, most: Math.max(500, concurrency * quietRunsAPlace) })
}

function checkEmbed(given: OpenOptions['embed']): void {
  if (given === undefined || typeof given === 'function') return
  if (typeof given === 'object' && given !== null) {
    refuseUnknownOptions('embed of open', given, { embed: true, model: true, timeoutMs: true })
    checkMs('timeoutMs of embed', given.timeoutMs, 1)
    if (typeof given.embed === 'function' && typeof given.model === 'string') return
  }
  throw new HoldfastError(
    'invalid_input',
    'embed of open must be a function (texts) => vectors, or { embed, model } with such a function and a name.',
  )
}

function createEmbedder(given: OpenOptions['embed'], parts: Omit<EmbedderOptions, 'embed' | 'model'>): Embedder | undefined {
  if (given === undefined) return undefined
  return new Embedder({ ...parts, ...(typeof given === 'function' ? { embed: given, model: '' } : given) })
}

interface Closing {
  readonly worker: Worker | undefined
  readonly embedder: Embedder | undefined
  readonly committer: Committer
  readonly waiters: RunWaiters
  readonly closeStore: () => Promise<void>
}

async function closeAll({ worker, embedder, committer, waiters, closeStore }: Closing): Promise<void> {
  await worker?.stop()
  await embedder?.close()
  waiters.close()
  await committer.close()
  await closeStore()
}

/** A URL as it may be shown: without a password. */
function shown(url: string): string {
  // Anything that may be a password, even if the rest of the URL is malformed.
  return url.replace(/:.*@/s, (found) => `${/^:\/*/.exec(found)?.[0]}…@`).replaceAll(/\b(password=)[^&]*/gi, '$1…')
}
