// LangGraph.js with each checkpointer: steps that append 1 kB to a list: bytes kept, time per step, state, history, round trips
//
// npm run bench -- langgraph [--steps 400] [--rounds 3] [--only NAME,…]
//
// One run of a graph with so many super-steps. Time per step is from node to node, over the first 50 after a warm-up of 10 and over the last 50.
// The official savers are used as published, SQLite also with `synchronous=FULL`; ours is always FULL. State and history are read by a
// saver that has read nothing before.

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { Annotation, START, StateGraph } from '@langchain/langgraph'
import type { BaseCheckpointSaver } from '@langchain/langgraph-checkpoint'
import { PostgresSaver } from '@langchain/langgraph-checkpoint-postgres'
import { SqliteSaver } from '@langchain/langgraph-checkpoint-sqlite'
import { open } from 'holdfast'
import { HoldfastSaver } from 'holdfast/langgraph'
import { wrapStore } from 'holdfast/testing'
import pg from 'pg'
import type { Store } from '../src/store/store.ts'
import { openPostgresStore } from '../src/stores/postgres/postgres-store.ts'
import { openSqliteStore } from '../src/stores/sqlite/sqlite-store.ts'
import { startPostgres } from '../test/servers/postgres.ts'
import { bytesOnDisk } from './measuring/disk.ts'
import { printLoad, printMachine } from './measuring/machine.ts'
import { randomText } from './measuring/random-text.ts'
import { formatSpread, spreadOf } from './measuring/spread.ts'

const { values } = parseArgs({
  options: {
    steps: { type: 'string', default: '400' },
    rounds: { type: 'string', default: '3' },
    only: { type: 'string' },
  },
})
const [steps, rounds] = [Number(values.steps), Number(values.rounds)]
const warmUp = 10
const windowSize = 50

interface Opened {
  readonly saver: BaseCheckpointSaver | undefined
  /** Statements and commits so far. */
  readonly trips: () => number
  readonly bytes: () => Promise<number>
  /** Another saver over the same store, which has read nothing. */
  readonly fresh: () => Promise<BaseCheckpointSaver | undefined>
  readonly close: () => Promise<void>
}

interface Measured {
  readonly early: number
  readonly late: number
  readonly durable: number
  readonly megabytes: number
  readonly trips: number
  readonly state: number
  readonly history: number
  readonly count: number
}

let files = 0
const folder = mkdtempSync(join(tmpdir(), 'holdfast-bench-'))
const postgres = await startPostgres()
const ways: Readonly<Record<string, () => Promise<Opened>>> = {
  none: async () => ({
    saver: undefined,
    trips: () => 0,
    bytes: async () => 0,
    fresh: async () => undefined,
    close: async () => {},
  }),
  'Holdfast SQLite': () => ours((file) => openSqliteStore({ file, durability: 'full', clockOffsetMs: () => 0 })),
  'SqliteSaver FULL': () => officialSqlite('FULL'),
  'SqliteSaver as published': () => officialSqlite('NORMAL'),
  'Holdfast Postgres': oursOnPostgres,
  PostgresSaver: officialPostgres,
}
try {
  printMachine(folder)
  for (const [name, openWay] of Object.entries(ways)) {
    if (values.only !== undefined && !values.only.split(',').includes(name)) continue
    const measured: Measured[] = []
    for (let round = 0; round < rounds; round++) measured.push(await measure(await openWay()))
    print(name, measured)
  }
  printLoad('end')
} finally {
  await postgres.stop()
  rmSync(folder, { recursive: true, force: true })
}

async function measure(opened: Opened): Promise<Measured> {
  const times: number[] = []
  const graph = (saver: BaseCheckpointSaver | undefined) =>
    new StateGraph(
      Annotation.Root({
        list: Annotation<string[]>({ reducer: (a, b) => [...a, ...b], default: () => [] }),
        n: Annotation<number>,
      }),
    )
      .addNode('append', ({ n }) => {
        times.push(performance.now())
        return { list: [randomText(1_024)], n: n + 1 }
      })
      .addEdge(START, 'append')
      .addConditionalEdges('append', ({ n }) => (n < steps ? 'append' : '__end__'))
      .compile(saver === undefined ? {} : { checkpointer: saver })
  const config = { configurable: { thread_id: 't' }, recursionLimit: steps + 10 }
  const before = opened.trips()
  const [inAll] = await timed(() => graph(opened.saver).invoke({ list: [], n: 0 }, config))
  const trips = (opened.trips() - before) / steps
  const perStep = (from: number, to: number) => ((times[to] as number) - (times[from] as number)) / (to - from)
  const measured = {
    early: perStep(warmUp, warmUp + windowSize),
    late: perStep(times.length - 1 - windowSize, times.length - 1),
    durable: inAll / steps,
    trips,
  }
  if (opened.saver === undefined) return { ...measured, megabytes: 0, state: 0, history: 0, count: 0 }
  const read = graph(await opened.fresh())
  const [state] = await timed(() => read.getState(config))
  const [history, count] = await timed(async () => {
    let found = 0
    for await (const _ of read.getStateHistory(config)) found += 1
    return found
  })
  // A log that is kept for reuse is no part of what is kept: closed first.
  await opened.close()
  const megabytes = (await opened.bytes()) / 1e6
  return { ...measured, state, history, count, megabytes }
}

async function timed<T>(act: () => Promise<T>): Promise<[number, T]> {
  const from = performance.now()
  const result = await act()
  return [performance.now() - from, result]
}

function print(name: string, measured: readonly Measured[]): void {
  const of = (field: keyof Measured, digits: number) => formatSpread(spreadOf(measured.map((one) => one[field])), digits)
  console.log(`
${name}, ${steps} steps, ${rounds} rounds
  ms per step, early / late   ${of('early', 2)} / ${of('late', 2)}
  ms per step until all of it was durable  ${of('durable', 2)}
  MB kept                     ${of('megabytes', 2)}
  round trips per step        ${of('trips', 2)}
  ms of getState, cold        ${of('state', 1)}
  ms of the history           ${of('history', 0)} for ${measured[0]?.count} checkpoints`)
}

/** Acts of the store are round trips: a batch of commits is one. */
function counted(store: Store): { readonly store: Store; readonly trips: () => number } {
  let trips = 0
  const before = (act: string) => {
    if (act === 'commit' || act.startsWith('read')) trips += 1
  }
  return { store: wrapStore(store, { before }), trips: () => trips }
}

async function ours(openStore: (file: string) => Promise<Store> | Store): Promise<Opened> {
  const file = join(folder, `${++files}.db`)
  const first = await openStore(file)
  const { store, trips } = counted(first)
  const hf = await open(store, { worker: false, logger: false })
  return {
    ...{ saver: new HoldfastSaver(hf) as never, trips, bytes: async () => bytesOnDisk(file) },
    fresh: async () => new HoldfastSaver(hf) as never,
    close: async () => {
      await hf.close()
      await first.close()
    },
  }
}

async function oursOnPostgres(): Promise<Opened> {
  const schema = `holdfast_${++files}`
  const opened = await ours(() =>
    openPostgresStore({ url: `${postgres.url}?schema=${schema}`, durability: 'full', clockOffsetMs: () => 0 }),
  )
  return { ...opened, bytes: () => bytesOfSchema(schema) }
}

async function officialSqlite(synchronous: string): Promise<Opened> {
  const file = join(folder, `${++files}.db`)
  const saver = SqliteSaver.fromConnString(file)
  const { db } = saver as unknown as { db: { pragma(text: string): unknown; close(): void } }
  // `setup` sets the journal mode, and nothing sets `synchronous`.
  db.pragma(`synchronous=${synchronous}`)
  return {
    ...{ saver: saver as never, trips: () => 0, bytes: async () => bytesOnDisk(file) },
    fresh: async () => SqliteSaver.fromConnString(file) as never,
    close: async () => db.close(),
  }
}

async function officialPostgres(): Promise<Opened> {
  const schema = `official_${++files}`
  const pool = new pg.Pool({ connectionString: postgres.url })
  let trips = 0
  pool.on('connect', (client) => {
    const query = client.query.bind(client) as (...args: unknown[]) => unknown
    client.query = ((...args: unknown[]) => {
      trips += 1
      return query(...args)
    }) as never
  })
  const saver = new PostgresSaver(pool, undefined, { schema })
  await saver.setup()
  return {
    ...{ saver: saver as never, trips: () => trips, bytes: () => bytesOfSchema(schema) },
    fresh: async () => new PostgresSaver(pool, undefined, { schema }) as never,
    close: () => pool.end(),
  }
}

async function bytesOfSchema(schema: string): Promise<number> {
  const client = new pg.Client({ connectionString: postgres.url })
  await client.connect()
  const { rows } = await client.query<{ bytes: string }>(
    'SELECT sum(pg_total_relation_size(c.oid)) AS bytes FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = $2',
    [schema, 'r'],
  )
  await client.end()
  return Number(rows[0]?.bytes ?? 0)
}
