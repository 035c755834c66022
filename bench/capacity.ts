// What a million steps costs on each store: rows, bytes on disk or in memory, bytes and flushes of the write-ahead log
//
// Options: --steps=N (default 40,000), --only=sqlite, postgres or redis. Figures are measured on N steps and scaled to a million.

import { mkdtempSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { open, workflow } from 'holdfast'
import pg from 'pg'
import { createClient } from 'redis'
import { startPostgres } from '../test/servers/postgres.ts'
import { startRedis } from '../test/servers/redis.ts'
import { printLoad, printMachine } from './measuring/machine.ts'
import { randomText } from './measuring/random-text.ts'

const steps = Number(optionOf('steps') ?? 40_000)
const only = optionOf('only')
const stepsARun = 20
const runsAtOnce = 200
const resultBytes = 300

/** A turn of an agent: twenty steps with results of 300 bytes, a state that grows by what was said, one effect. */
const turn = workflow('turn', async (ctx, input: { text: string }) => {
  for (let n = 1; n < stepsARun; n++) {
    await ctx.step(`step_${n}`, ({ update }) => {
      if (n % 5 === 0) update(say)
      return input.text
    })
  }
  await ctx.once('send', { run: () => 'sent', idempotent: true })
})

function say(draft: { said?: string[] }): void {
  draft.said = [...(draft.said ?? []), 'a sentence of about sixty characters, as people say them.']
}

interface Cost {
  readonly store: string
  readonly rows?: number
  readonly bytes: number
  readonly walBytes?: number
  readonly flushes?: number
}

const folder = mkdtempSync(join(tmpdir(), 'holdfast-capacity-'))
printMachine(folder)
console.log(
  `load      ${steps} steps, ${stepsARun} a run (one of them an effect), ${runsAtOnce} runs at once, results of ${resultBytes} random bytes\n`,
)
const costs: Cost[] = []
try {
  for (const measure of [measureSqlite, measurePostgres, measureRedis]) {
    const cost = await measure()
    if (cost !== null) costs.push(cost)
  }
} finally {
  rmSync(folder, { recursive: true, force: true })
}
console.log('a million steps        rows        bytes kept      WAL or AOF written      flushes')
for (const { store, rows, bytes, walBytes, flushes } of costs) {
  const cells = [
    millions(rows),
    gigabytes(bytes),
    gigabytes(walBytes),
    flushes === undefined ? '–' : Math.round(perMillion(flushes)).toLocaleString('en'),
  ]
  console.log(
    `  ${store.padEnd(14)} ${cells[0]?.padStart(10)} ${cells[1]?.padStart(16)} ${cells[2]?.padStart(20)} ${cells[3]?.padStart(14)}`,
  )
}
printLoad('end')

async function load(url: string): Promise<void> {
  const hf = await open(url, { workflows: [turn], worker: { concurrency: runsAtOnce } })
  const runs = Math.ceil(steps / stepsARun)
  for (let first = 0; first < runs; first += runsAtOnce) {
    const batch = Array.from({ length: Math.min(runsAtOnce, runs - first) }, () =>
      hf.start(turn, { text: randomText(resultBytes) }),
    )
    for (const run of await Promise.all(batch)) await run.result()
  }
  await hf.close()
}

async function measureSqlite(): Promise<Cost | null> {
  if (only !== undefined && only !== 'sqlite') return null
  const file = join(folder, 'capacity.db')
  await load(`sqlite:${file}`)
  return { store: 'sqlite', bytes: statSync(file).size }
}

async function measurePostgres(): Promise<Cost | null> {
  if (only !== undefined && only !== 'postgres') return null
  const server = await startPostgres({ settings: { max_wal_size: '8GB', checkpoint_timeout: '1h' } })
  const client = new pg.Client({ connectionString: server.url })
  await client.connect()
  try {
    const wal = async () => {
      const [row] = (await client.query('SELECT wal_bytes::float8 AS bytes FROM pg_stat_wal')).rows as { bytes: number }[]
      const [io] = (await client.query(`SELECT coalesce(sum(fsyncs), 0)::float8 AS flushes FROM pg_stat_io WHERE object = 'wal'`))
        .rows as { flushes: number }[]
      return { bytes: row?.bytes ?? 0, flushes: io?.flushes ?? 0 }
    }
    // Tables and their first pages are not what a step costs.
    const warmUp = await open(server.url, { workflows: [turn] })
    await warmUp.run(turn, { text: randomText(resultBytes) })
    await warmUp.close()
    const before = await wal()
    await load(server.url)
    await new Promise((resolve) => setTimeout(resolve, 1_500))
    const after = await wal()
    const [size] = (
      await client.query(`
        SELECT sum(pg_total_relation_size(c.oid))::float8 AS bytes FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = 'holdfast' AND c.relkind = 'r'`)
    ).rows as { bytes: number }[]
    const [{ rows } = { rows: 0 }] = (
      await client.query(`
        SELECT ((SELECT count(*) FROM holdfast.log) + (SELECT count(*) FROM holdfast.runs) + (SELECT count(*) FROM holdfast.threads)
          + (SELECT count(*) FROM holdfast.operations))::int AS rows`)
    ).rows as { rows: number }[]
    return {
      store: 'postgres',
      rows,
      bytes: size?.bytes ?? 0,
      walBytes: after.bytes - before.bytes,
      flushes: after.flushes - before.flushes,
    }
  } finally {
    await client.end()
    await server.stop()
  }
}

async function measureRedis(): Promise<Cost | null> {
  if (only !== undefined && only !== 'redis') return null
  const server = await startRedis({ settings: { 'auto-aof-rewrite-percentage': '0' } })
  const client = await createClient({ url: server.url }).connect()
  try {
    const read = async (section: string, name: string) =>
      Number(new RegExp(`^${name}:(\\d+)`, 'm').exec(await client.info(section))?.[1] ?? 0)
    const before = { memory: await read('memory', 'used_memory'), aof: await read('persistence', 'aof_current_size') }
    await load(server.url)
    return {
      store: 'redis',
      bytes: (await read('memory', 'used_memory')) - before.memory,
      walBytes: (await read('persistence', 'aof_current_size')) - before.aof,
    }
  } finally {
    client.destroy()
    await server.stop()
  }
}

function perMillion(amount: number): number {
  return (amount / steps) * 1_000_000
}

function millions(rows: number | undefined): string {
  return rows === undefined ? '–' : `${(perMillion(rows) / 1_000_000).toFixed(2)} M`
}

function gigabytes(bytes: number | undefined): string {
  return bytes === undefined ? '–' : `${(perMillion(bytes) / 1e9).toFixed(2)} GB`
}

function optionOf(name: string): string | undefined {
  return process.argv.find((argument) => argument.startsWith(`--${name}=`))?.slice(name.length + 3)
}
