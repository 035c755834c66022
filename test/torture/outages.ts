import { cpSync, existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { open } from 'holdfast'
import type { Store } from '../../src/store/store.ts'
import { createRandom, type Random } from '../../src/testing/random.ts'
import { CrashTestBed, type Environment } from '../crash/bed/crash-test-bed.ts'
import { readJournal } from '../crash/bed/journal.ts'
import { withRetries } from '../crash/bed/run-process.ts'
import { WorkerProcess } from '../crash/bed/worker-process.ts'
import { preparePostgres } from '../crash/fixtures/postgres.ts'
import { prepareRedis } from '../crash/fixtures/redis.ts'
import type { StoreFixtures } from '../crash/fixtures/store-fixtures.ts'
import { patience } from '../patience.ts'
import { startPostgres } from '../servers/postgres.ts'
import { startRedis } from '../servers/redis.ts'
import { violationsUnderLoad } from './load-rules.ts'

export type Outage = 'postgres' | 'redis'

export interface OutageResult {
  readonly restarts: number
  readonly runs: number
  readonly steps: number
  readonly effects: number
  readonly violations: readonly string[]
}

/** A server of this test, which is stopped and started again. */
interface RestartableServer {
  readonly url: string
  /** Ends it; how depends on `nth`. */
  end(nth: number): Promise<void>
  start(): Promise<void>
  stop(): Promise<void>
  /** Copies its files to a folder that is kept, and returns its path. */
  keepFiles?(): string
}

const servers: Readonly<Record<Outage, () => Promise<RestartableServer>>> = {
  async postgres() {
    const server = await startPostgres()
    // Alternately like `pg_ctl stop -m fast` and `-m immediate`.
    const end = (nth: number) => (nth % 2 === 0 ? server.shutDown() : server.quit())
    return { url: server.url, end, start: () => server.start(), stop: () => server.stop() }
  },
  async redis() {
    const server = await startRedis({ fsync: 'always' })
    const afterEnd = (nth: number) => join(server.folder, `after-end-${nth}`)
    return {
      url: server.url,
      async end(nth) {
        await server.kill()
        // The next start truncates a torn file.
        cpSync(join(server.folder, 'appendonlydir'), afterEnd(nth), { recursive: true })
        rmSync(afterEnd(nth - 3), { recursive: true, force: true })
      },
      start: () => server.start(),
      stop: () => server.stop(),
      keepFiles() {
        // `npm test` removes its own temporary folder at the end.
        const kept = mkdtempSync(join(existsSync('/tmp') ? '/tmp' : tmpdir(), 'holdfast-outages-'))
        cpSync(server.folder, kept, { recursive: true })
        return kept
      },
    }
  },
}

const prepare: Readonly<Record<Outage, (options: { serverUrl: string }) => Promise<StoreFixtures>>> = {
  postgres: preparePostgres,
  redis: prepareRedis,
}

const workerCount = 3
const laneCount = 12

/**
 * Restarts a server every few seconds while workers in several processes execute runs on it, then waits for all runs and looks for what
 * was lost, doubled or got stuck.
 */
export async function sufferOutages(
  kind: Outage,
  options: {
    seconds: number
    seed: number
    everySeconds?: readonly [min: number, max: number]
    /** Continues beyond `seconds` until there were so many. */
    leastRestarts?: number
    onRestart?: (nth: number) => void
  },
): Promise<OutageResult> {
  const { seconds, seed, everySeconds = [5, 10], leastRestarts = 0, onRestart = () => {} } = options
  const random = createRandom(seed)
  const server = await servers[kind]()
  const bed = await CrashTestBed.create(await prepare[kind]({ serverUrl: server.url }))
  const environment = await bed.setUp()
  const workers: WorkerProcess[] = []
  const store = await environment.store.open()
  try {
    for (let number = 1; number <= workerCount; number++) {
      const processRun = {
        number,
        runs: [],
        isWorker: true,
        resolvesUnsure: number === 1,
        leaseMs: patience(3_000),
        clockOffsetMs: 0,
      }
      workers.push(await WorkerProcess.start(bed, environment, processRun, { limitMs: patience((seconds + 300) * 1_000) }))
    }
    const deadline = performance.now() + seconds * 1_000
    let restarts = 0
    const isOver = () => performance.now() > deadline && restarts >= leastRestarts
    const load = startLoad(store, { random, isOver })
    for (;;) {
      await waitMs(1_000 * random.integer(...everySeconds))
      if (isOver()) break
      await server.end(restarts)
      await waitMs(random.integer(0, 2_000))
      await server.start()
      onRestart(++restarts)
    }
    const started = await load
    const stuck = started.filter(({ count }) => count === null).map(({ id }) => `${id} got stuck`)
    const ends = await Promise.all(workers.map((worker) => worker.close()))
    const ended = ends.flatMap(({ code, errors }) => (code === 0 ? [] : [`a worker ended with ${code}: ${errors}`]))
    const judged = await judge(environment, started, [...stuck, ...ended])
    if (judged.violations.length > 0) sayWhatIsKept()
    return { restarts, runs: started.length, ...judged }
  } catch (error) {
    sayWhatIsKept()
    throw error
  } finally {
    for (const worker of workers) await worker.kill()
    await store.close()
    await bed.tearDown(environment)
    await bed.close()
    await server.stop()
  }

  function sayWhatIsKept(): void {
    if (server.keepFiles !== undefined)
      console.log(`outages of ${kind}, seed ${seed}: files of the server in ${server.keepFiles()}`)
  }
}

/** A run that was started, and what it returned; null if it did not end. */
export interface LoadedRun {
  readonly id: string
  readonly count: unknown
}

/** As an application would: starts runs, waits for them, and retries when the store is unavailable. */
async function startLoad(
  store: Store,
  { random, isOver }: { random: Random; isOver: () => boolean },
): Promise<readonly LoadedRun[]> {
  const hf = await open(store, { worker: false })
  const runs: LoadedRun[] = []
  const lane = async (number: number) => {
    for (let n = 0; !isOver(); n++) {
      const id = `run-${number}-${n}`
      const input = { waitMs: random.integer(10, 400) }
      const handle = await withRetries(() => hf.start('mixedWork', input, { id }))
      const ended = withRetries(() => handle.result()).catch((error: unknown) => String(error))
      const count = await Promise.race([ended, waitMs(patience(60_000)).then(() => null)])
      runs.push({ id, count })
    }
  }
  await Promise.all(Array.from({ length: laneCount }, (_, number) => lane(number)))
  await hf.close()
  return runs
}

async function judge(
  environment: Environment,
  runs: readonly LoadedRun[],
  violations: readonly string[],
): Promise<Pick<OutageResult, 'steps' | 'effects' | 'violations'>> {
  const dump = await environment.store.dump()
  const journal = readJournal(environment.journal)
  const log = dump.threads.flatMap((thread) => thread.log)
  return {
    steps: log.filter(({ type }) => type === 'step_completed').length,
    effects: log.filter(({ type }) => type === 'effect_completed').length,
    violations: [...violations, ...violationsUnderLoad({ runs, dump, journal, account: environment.account })],
  }
}

function waitMs(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms))
}
