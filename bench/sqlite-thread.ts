import { mkdtempSync, rmSync } from 'node:fs'
import { cpus, loadavg, tmpdir } from 'node:os'
import { join } from 'node:path'
import { monitorEventLoopDelay, performance } from 'node:perf_hooks'
import { isMainThread, type MessagePort, parentPort, Worker, workerData } from 'node:worker_threads'
import type { NewEvent } from '../src/model/event.ts'
import type { Change, Committed } from '../src/store/change.ts'
import type { Claim, Store } from '../src/store/store.ts'
import { openSqliteStore } from '../src/stores/sqlite/sqlite-store.ts'

/**
 * Where should better-sqlite3 run: in the thread that executes workflows, or in a worker thread behind a MessagePort?
 * Measures, in turns, lone step commits and batches of 500 changes of two events, and how long the event loop of the main
 * thread stands still meanwhile. Durability is full. What it does not measure: several processes on one file.
 *
 *   node bench/sqlite-thread.ts [FOLDER]     default: a temporary folder; name one on the disk you care about
 */

const rounds = 9
const loneCommits = 300
const batches = 20
const batchSize = 500
const runCount = 500

interface Measured {
  /** µs a change, seen from the caller. */
  readonly microseconds: number
  /** The event loop's delay, in ms: the 99th percentile and the longest. */
  readonly delayP99: number
  readonly delayMax: number
  /** Share of the time that the main thread was busy. */
  readonly busy: number
}

type Commit = (changes: readonly Change[]) => Promise<readonly Committed[]>

if (isMainThread) await measure()
else await serve(parentPort as MessagePort, (workerData as { file: string }).file)

async function measure(): Promise<void> {
  const folder = mkdtempSync(join(process.argv[2] ?? tmpdir(), 'holdfast-bench-'))
  const here = await openHere(join(folder, 'here.db'))
  const there = await openThere(join(folder, 'there.db'))
  const results = new Map<string, Measured[]>()
  const note = (name: string, measured: Measured) => results.set(name, [...(results.get(name) ?? []), measured])
  for (let round = 0; round <= rounds; round++) {
    for (const [place, side] of [['in this thread', here] as const, ['in a worker', there] as const]) {
      const lone = await observe(loneCommits, () => commitMany(side, { times: loneCommits, size: 1 }))
      const batch = await observe(batches * batchSize, () => commitMany(side, { times: batches, size: batchSize }))
      // The first round warms up.
      if (round === 0) continue
      note(`lone commits ${place}`, lone)
      note(`batches of ${batchSize} ${place}`, batch)
    }
  }
  print(results)
  await here.close()
  await there.close()
  rmSync(folder, { recursive: true })
}

/** Answers commits for another thread. */
async function serve(port: MessagePort, file: string): Promise<void> {
  const { store, claims } = await prepareStore(file)
  port.postMessage(claims)
  port.on('message', async (message: { changes: readonly Change[] } | 'close') => {
    if (message === 'close') {
      await store.close()
      port.close()
    } else port.postMessage(await store.commit(message.changes))
  })
}

interface SideStore {
  readonly commit: Commit
  readonly claims: readonly Claim[]
  close(): Promise<void>
}

async function openHere(file: string): Promise<SideStore> {
  const { store, claims } = await prepareStore(file)
  return { commit: (changes) => store.commit(changes), claims, close: () => store.close() }
}

async function openThere(file: string): Promise<SideStore> {
  const worker = new Worker(new URL(import.meta.url), { workerData: { file } })
  const next = <Answer>() => new Promise<Answer>((resolve) => worker.once('message', resolve))
  const claims = await next<readonly Claim[]>()
  return {
    commit: (changes) => {
      const answer = next<readonly Committed[]>()
      worker.postMessage({ changes })
      return answer
    },
    claims,
    close: async () => {
      const ended = new Promise((resolve) => worker.once('exit', resolve))
      worker.postMessage('close')
      await ended
    },
  }
}

async function prepareStore(file: string): Promise<{ store: Store; claims: readonly Claim[] }> {
  const store = await openSqliteStore({ file, durability: 'full' })
  await store.migrate()
  await store.commit(Array.from({ length: runCount }, (_, i) => creating(`run-${i}`)))
  const claims = await store.claim({
    workerId: 'bench',
    leaseMs: 3_600_000,
    limit: runCount,
    workflows: [{ name: 'bench', version: 1 }],
  })
  return { store, claims }
}

async function commitMany({ commit, claims }: SideStore, { times, size }: { times: number; size: number }): Promise<void> {
  for (let time = 0; time < times; time++) {
    const changes = Array.from({ length: size }, (_, i) => stepping(claims[(time + i) % claims.length] as Claim))
    const answers = await commit(changes)
    if (!answers.every(({ ok }) => ok)) throw new Error('a change was refused')
    // As the committer does: what the acknowledgements set off runs before the next batch.
    await new Promise((resolve) => setImmediate(resolve))
  }
}

async function observe(changes: number, act: () => Promise<void>): Promise<Measured> {
  const delay = monitorEventLoopDelay({ resolution: 1 })
  const before = performance.eventLoopUtilization()
  delay.enable()
  const startedAt = performance.now()
  await act()
  const tookMs = performance.now() - startedAt
  // A block that is still going on is counted only when the loop turns again.
  await new Promise((resolve) => setTimeout(resolve, 5))
  delay.disable()
  const busy = performance.eventLoopUtilization(before).utilization
  return { microseconds: (tookMs * 1_000) / changes, delayP99: delay.percentile(99) / 1e6, delayMax: delay.max / 1e6, busy }
}

function print(results: ReadonlyMap<string, readonly Measured[]>): void {
  console.log(
    `${cpus()[0]?.model ?? 'unknown CPU'}, ${cpus().length} cores, Node ${process.versions.node}, load ${loadavg()[0]?.toFixed(1)}`,
  )
  console.log(`medians of ${rounds} rounds (lowest–highest)`)
  for (const [name, all] of [...results].sort(([a], [b]) => b.localeCompare(a))) {
    const columns = (['microseconds', 'delayP99', 'delayMax', 'busy'] as const).map((field) =>
      spread(all.map((one) => one[field])),
    )
    const [microseconds, delayP99, delayMax, busy] = columns
    console.log(
      `${name.padEnd(30)} ${microseconds} µs a change · loop delay p99 ${delayP99} ms, max ${delayMax} ms · busy ${busy}`,
    )
  }
}

function spread(values: readonly number[]): string {
  const sorted = [...values].sort((a, b) => a - b)
  const show = (value: number | undefined) => (value ?? 0).toPrecision(3)
  return `${show(sorted[sorted.length >> 1])} (${show(sorted[0])}–${show(sorted.at(-1))})`
}

function event(type: NewEvent['type'], payload: string | null): NewEvent {
  return {
    type,
    step: 'load_data',
    count: 1,
    attempt: 1,
    at: Date.now(),
    durationMs: payload === null ? null : 3,
    payload,
    patch: null,
  }
}

function creating(id: string): Change {
  const queued = { ...event('run_queued', '{"topic":"refunds"}'), step: null, count: 0, attempt: 0 }
  const run = { owner: '', id, threadId: id, workflow: 'bench', version: 1, queue: 'default', priority: 0, fingerprint: 'f' }
  return {
    ...{ owner: '', threadId: id, runId: null, guard: { kind: 'none' }, events: [], isCheckpoint: true },
    creates: [{ ...run, due: { inMs: 0 }, ifBusy: 'queue', queued }],
  }
}

function stepping({ run, leaseId }: Claim): Change {
  return {
    ...{
      owner: '',
      threadId: run.threadId,
      runId: run.id,
      guard: { kind: 'lease', epoch: run.epoch, leaseId },
      isCheckpoint: true,
    },
    events: [event('step_started', null), event('step_completed', `{"ok":true,"text":"${'x'.repeat(60)}"}`)],
    run: { hasProgress: true, currentStep: null, leaseMs: 3_600_000 },
  }
}
