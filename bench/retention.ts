// Retention: bytes of a store into which short runs come and from which old ones go, round after round, and what it costs
//
// Options: --only=sqlite, postgres or redis; --runs=N a round (default 20,000); --rounds=N (default 5). Each round is two days long by the store's clock;
// what is older than a day is deleted at its end. Does not measure runs and deletions at once, or a store that is larger than memory.

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Holdfast, open, workflow } from 'holdfast'
import pg from 'pg'
import { createClient } from 'redis'
import { startPostgres } from '../test/servers/postgres.ts'
import { startRedis } from '../test/servers/redis.ts'
import { bytesOnDisk } from './measuring/disk.ts'
import { printLoad, printMachine } from './measuring/machine.ts'

const only = optionOf('only')
const runCount = Number(optionOf('runs') ?? 20_000)
const roundCount = Number(optionOf('rounds') ?? 5)
const day = 24 * 3_600_000
const short = workflow('short', async (ctx, n: number) => {
  const part = await ctx.step('load', () => ({ n, text: 'x'.repeat(200) }))
  return ctx.step('sum', () => part.n + part.text.length)
})

const folder = mkdtempSync(join(tmpdir(), 'holdfast-retention-'))
printMachine(folder)
try {
  if (isAsked('sqlite')) {
    const file = join(folder, 'runs.db')
    await measure('SQLite', `sqlite:${file}`, async () => bytesOnDisk(file))
  }
  if (isAsked('postgres')) await onPostgres()
  if (isAsked('redis')) await onRedis()
} finally {
  rmSync(folder, { recursive: true, force: true })
}
printLoad('end')

async function onPostgres(): Promise<void> {
  const server = await startPostgres({ settings: {} })
  const client = new pg.Client(server.url)
  try {
    await client.connect()
    const size = `SELECT sum(pg_total_relation_size(c.oid)) AS bytes FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
      WHERE n.nspname = 'holdfast' AND c.relkind = 'r'`
    const dead = `SELECT count(*) AS tables FROM pg_stat_user_tables WHERE schemaname = 'holdfast' AND n_dead_tup > 1000 + 0.2 * n_live_tup`
    const vacuumed = async () => {
      const until = performance.now() + 180_000
      while (performance.now() < until && Number((await client.query(dead)).rows[0].tables) > 0) await sleep(1_000)
    }
    const used = async () => Number((await client.query(size)).rows[0].bytes)
    await measure('Postgres, with autovacuum as it is by default, which each round waits for', server.url, used, vacuumed)
  } finally {
    await client.end()
    await server.stop()
  }
}

async function onRedis(): Promise<void> {
  const server = await startRedis({ fsync: 'always' })
  const client = await createClient({ url: server.url }).connect()
  try {
    const used = async () => Number(/used_memory:(\d+)/.exec(await client.info('memory'))?.[1])
    await measure('Redis, memory in use', server.url, used)
  } finally {
    client.destroy()
    await server.stop()
  }
}

async function measure(name: string, url: string, bytes: () => Promise<number>, settled = async () => {}): Promise<void> {
  let offsetMs = 0
  const clock = () => offsetMs
  const hf = await open(url, { workflows: [short], retention: { runs: { maxAgeMs: day } }, clock, worker: { concurrency: 500 } })
  console.log(`\n${name}: ${runCount} runs of two steps a round`)
  const empty = await bytes()
  for (let round = 1; round <= roundCount; round++) {
    const begunAt = performance.now()
    await runAll(hf)
    const ranMs = performance.now() - begunAt
    const full = await bytes()
    offsetMs += 2 * day
    const report = await hf.gc()
    await settled()
    const left = await bytes()
    const again = performance.now()
    await hf.gc()
    const mb = (count: number) => ((count - empty) / 1e6).toFixed(1).padStart(7)
    console.log(
      `    round ${round}   ${mb(full)} MB before, ${mb(left)} MB after; ${report.runs} deleted in ${(report.durationMs / 1_000).toFixed(1)} s, ` +
        `${Math.round(report.runs / (report.durationMs / 1_000))} per s (run: ${Math.round(runCount / (ranMs / 1_000))} per s); a pass that finds nothing ${(performance.now() - again).toFixed(1)} ms`,
    )
  }
  await hf.close()
}

async function runAll(hf: Holdfast): Promise<void> {
  for (let from = 0; from < runCount; from += 1_000) {
    const runs = await hf.startMany(
      Array.from({ length: Math.min(1_000, runCount - from) }, (_, n) => ({ workflow: short, input: n })),
    )
    await Promise.all(runs.map((run) => run.result()))
  }
}

function isAsked(name: string): boolean {
  return only === undefined || only === name
}

function optionOf(name: string): string | undefined {
  return process.argv.find((arg) => arg.startsWith(`--${name}=`))?.slice(name.length + 3)
}
