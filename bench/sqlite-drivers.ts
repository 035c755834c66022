// node:sqlite beside better-sqlite3, under the same store: lone commits, batches, claims and reads

import { mkdtempSync, rmSync } from 'node:fs'
import { cpus, loadavg, tmpdir } from 'node:os'
import { join } from 'node:path'
import type { NewEvent } from '../src/model/event.ts'
import type { Change } from '../src/store/change.ts'
import type { Claim, Store } from '../src/store/store.ts'
import type { Driver } from '../src/stores/sqlite/database.ts'
import { loadDriver } from '../src/stores/sqlite/driver.ts'
import { loadBetterSqlite3 } from '../src/stores/sqlite/driver-better-sqlite3.ts'
import { openSqliteStore } from '../src/stores/sqlite/sqlite-store.ts'

/**
 * The two libraries take turns, each on a file of its own in the same folder; durability is full. Prints the ratio of each round, as its
 * median and its spread. Processor time is what the libraries differ in; wall time is mostly the disk's. What it does not measure:
 * several processes on one file.
 *
 *   npm run bench -- sqlite-drivers [FOLDER] [ROUNDS]     default: a temporary folder, 15 rounds
 */

const [parent = tmpdir(), rounds = '15'] = process.argv.slice(2)
const batchSize = 500

interface Side {
  readonly name: string
  readonly version: string
  readonly store: Store
  readonly claims: readonly Claim[]
}

interface Taken {
  readonly wallMs: number
  readonly processorMs: number
}

const tasks: Readonly<Record<string, { readonly count: number; readonly run: (side: Side, round: number) => Promise<void> }>> = {
  'a lone commit': {
    count: 300,
    run: async ({ store, claims }) => {
      for (let i = 0; i < 300; i++) await store.commit([stepOf(claims[i % claims.length] as Claim)])
    },
  },
  'a change in a batch of 500': {
    count: 20 * batchSize,
    run: async ({ store, claims }) => {
      for (let i = 0; i < 20; i++) await store.commit(claims.map(stepOf))
    },
  },
  'a run started, claimed and ended': {
    count: batchSize,
    run: async ({ store }, round) => {
      await store.commit(Array.from({ length: batchSize }, (_, i) => creating(`run-${round}-${i}`)))
      const claims = await store.claim(claiming)
      await store.commit(claims.map(endOf))
    },
  },
  'a record read': {
    count: 20_000,
    run: async ({ store, claims }) => {
      let read = 0
      for (let i = 0; read < 20_000; i++) {
        const { owner, threadId } = (claims[i % claims.length] as Claim).run
        read += (await store.readLog({ owner, threadId })).length
      }
    },
  },
}

const payload = JSON.stringify('x'.repeat(200))
const claiming = { workflows: [{ name: 'bench', version: 1 }], workerId: 'bench', leaseMs: 600_000, limit: batchSize }

const folder = mkdtempSync(join(parent, 'holdfast-bench-'))
const better = await loadBetterSqlite3()
if ('reason' in better) throw better.reason
const sides = [await prepareSide(await loadDriver()), await prepareSide(better.driver)] as const
const results = new Map<string, { readonly name: string; readonly taken: Taken }[]>()

for (let round = 0; round <= Number(rounds); round++) {
  for (const [task, { run }] of Object.entries(tasks)) {
    for (const side of round % 2 === 0 ? sides : [...sides].reverse()) {
      const taken = await measure(() => run(side, round))
      // The first round warms up.
      if (round > 0) results.set(task, [...(results.get(task) ?? []), { name: side.name, taken }])
    }
  }
}
print()
for (const { store } of sides) await store.close()
rmSync(folder, { recursive: true })

async function prepareSide(driver: Driver): Promise<Side> {
  const db = driver.open(':memory:')
  const { version } = db
  db.close()
  const store = await openSqliteStore({ file: join(folder, `${driver.name.replace(':', '-')}.db`), durability: 'full', driver })
  await store.migrate()
  await store.commit(Array.from({ length: batchSize }, (_, i) => creating(`held-${i}`)))
  return { name: driver.name, version, store, claims: await store.claim(claiming) }
}

async function measure(act: () => Promise<void>): Promise<Taken> {
  const startedAt = performance.now()
  const before = process.cpuUsage()
  await act()
  const { user, system } = process.cpuUsage(before)
  return { wallMs: performance.now() - startedAt, processorMs: (user + system) / 1_000 }
}

function print(): void {
  console.log(
    `${cpus()[0]?.model.trim()}, ${cpus().length} cores, load ${loadavg()[0]?.toFixed(1)}, Node ${process.versions.node}, ${folder}`,
  )
  console.log(
    `${sides.map(({ name, version }) => `${name} with SQLite ${version}`).join(', ')}; ${rounds} rounds, median (lowest–highest)`,
  )
  for (const [task, taken] of results) {
    const count = tasks[task]?.count ?? 1
    console.log(`\n${task}`)
    for (const what of ['wallMs', 'processorMs'] as const) {
      const of = (name: string) => taken.filter((one) => one.name === name).map((one) => one.taken[what])
      const [own, other] = [of(sides[0].name), of(sides[1].name)]
      const ratios = own.map((ms, round) => ms / (other[round] ?? Number.NaN))
      const each = (ms: readonly number[]) =>
        spread(
          ms.map((one) => (one * 1_000) / count),
          1,
        )
      console.log(
        `  ${what === 'wallMs' ? 'wall     ' : 'processor'}  ${sides[0].name} ${each(own)} µs, ${sides[1].name} ${each(other)} µs, ratio ${spread(ratios, 2)}`,
      )
    }
  }
}

function spread(values: readonly number[], digits: number): string {
  const sorted = values.toSorted((a, b) => a - b)
  const [lowest, median, highest] = [0, sorted.length >> 1, sorted.length - 1].map((at) => (sorted[at] ?? 0).toFixed(digits))
  return `${median} (${lowest}–${highest})`
}

function creating(id: string): Change {
  return {
    ...{ owner: '', threadId: id, runId: null, guard: { kind: 'none' }, events: [], isCheckpoint: true },
    creates: [
      {
        ...{ owner: '', id, threadId: id, workflow: 'bench', version: 1, queue: 'default', priority: 0, fingerprint: 'f' },
        ...{ due: { inMs: 0 }, ifBusy: 'queue', queued: event('run_queued', '{}') },
      },
    ],
  }
}

function stepOf({ run, leaseId }: Claim): Change {
  return {
    ...{ owner: '', threadId: run.threadId, runId: run.id, guard: { kind: 'lease', epoch: run.epoch, leaseId } },
    ...{
      events: [event('step_started', null), event('step_completed', payload)],
      isCheckpoint: true,
      run: { hasProgress: true },
    },
  }
}

function endOf({ run, leaseId }: Claim): Change {
  return {
    ...{ owner: '', threadId: run.threadId, runId: run.id, guard: { kind: 'lease', epoch: run.epoch, leaseId } },
    ...{ events: [event('run_completed', payload)], isCheckpoint: true, run: { status: 'completed' } },
  }
}

function event(type: NewEvent['type'], payload: string | null): NewEvent {
  return { type, step: 'step', count: 1, attempt: 1, at: Date.now(), durationMs: 1, payload, patch: null }
}
