// Lists of runs by every filter, and counts of a queue, on full stores against empty ones
//
// Options: --only=postgres, --only=sqlite or --only=redis; --runs=N on Postgres (default 425,000); --repeats=N (default 15); --strict (a missed
// target is exit code 1). The tables of Postgres are filled on the server itself, which takes a minute or two.

import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Holdfast, open, type RunFilter } from 'holdfast'
import pg from 'pg'
import type { Change } from '../src/store/change.ts'
import type { Store } from '../src/store/store.ts'
import { openPostgresStore } from '../src/stores/postgres/postgres-store.ts'
import { openRedisStore } from '../src/stores/redis/redis-store.ts'
import { openSqliteStore } from '../src/stores/sqlite/sqlite-store.ts'
import { startPostgres } from '../test/servers/postgres.ts'
import { startRedis } from '../test/servers/redis.ts'
import { printLoad, printMachine } from './measuring/machine.ts'
import { Scorecard } from './measuring/scorecard.ts'
import { formatSpread, spreadOf } from './measuring/spread.ts'

const only = optionOf('only')
const repeats = Math.max(3, Number(optionOf('repeats') ?? 15))
const runCount = Number(optionOf('runs') ?? 425_000)
const localRunCount = 50_000
/** A time at which runs were created one ms after the other. */
const began = 1_700_000_000_000

/** What is asked for: everything, what is common, and what only a few of the oldest runs have. */
function filtersFor(count: number): Record<string, RunFilter> {
  return {
    'no filter': {},
    'status: completed': { status: 'completed' },
    'status: pending': { status: 'pending' },
    'status: cancelled (none)': { status: 'cancelled' },
    'workflow, common': { workflow: 'chat' },
    'workflow, of 20': { workflow: 'rare' },
    'workflow and status, common': { workflow: 'chat', status: 'completed' },
    'workflow and status, none': { workflow: 'chat', status: 'cancelled' },
    'queue, common': { queue: 'default' },
    'queue, of 20': { queue: 'rare' },
    'queue and status, none': { queue: 'default', status: 'cancelled' },
    'thread of 1,000 runs': { threadId: 'long' },
    'thread and status': { threadId: 'long', status: ['completed', 'pending'] },
    'time, the oldest': { createdBefore: began + 200 },
    'time and status': { createdBefore: began + 5_000, status: 'completed' },
    'time, a stretch': { createdAfter: began + count / 2, createdBefore: began + count / 2 + 50 },
    'label, of 20': { label: 'rare' },
    'label, common': { label: 'often' },
    'label and status': { label: 'often', status: 'completed' },
  }
}

/** When the runs with names of their own were there, on SQLite and Redis. */
const fillTimes = { rare: 0 }
const scorecard = new Scorecard()
printMachine()
if (only === undefined || only === 'postgres') await measurePostgres()
if (only === undefined || only === 'sqlite') await measureSqlite()
if (only === undefined || only === 'redis') await measureRedis()
printLoad('end')
console.log('\nnot measured: other runs at work meanwhile, a cold cache, long logs (a page reads the logs of its runs)')
scorecard.print()

/** Each filter in turns on the full and on the empty store, so that the machine's moods hurt both. */
async function compare(
  name: 'Postgres' | 'SQLite' | 'Redis',
  full: Holdfast,
  empty: Holdfast,
  filters: Record<string, RunFilter>,
): Promise<void> {
  const acts: Record<string, (hf: Holdfast) => Promise<unknown>> = Object.fromEntries(
    Object.entries(filters).map(([what, filter]) => [what, (hf: Holdfast) => hf.runs.list(filter)]),
  )
  acts['queues.count'] = (hf) => hf.queues.count('default')
  let worst = 0
  let slowest = 0
  for (const [what, act] of Object.entries(acts)) {
    const times = { full: [] as number[], empty: [] as number[] }
    for (let round = -3; round < repeats; round++) {
      const emptyMs = await timeOf(() => act(empty))
      const fullMs = await timeOf(() => act(full))
      if (round < 0) continue
      times.empty.push(emptyMs)
      times.full.push(fullMs)
    }
    const emptyMs = spreadOf(times.empty)
    const fullMs = spreadOf(times.full)
    const ratio = fullMs.median / emptyMs.median
    const answer = (await act(full)) as { items?: unknown[] }
    const found = answer.items === undefined ? '' : `${answer.items.length} runs`
    console.log(
      `  ${what.padEnd(28)} ${formatSpread(fullMs, 2, 'times').padEnd(34)} ms, empty ${formatSpread(emptyMs, 2, 'times').padEnd(34)} ms, ratio ${ratio.toFixed(1)}  ${found}`,
    )
    if (what === 'queues.count') scorecard.atMost(`${name}: queues.count, ms`, fullMs.median, 100)
    else {
      worst = Math.max(worst, ratio)
      slowest = Math.max(slowest, fullMs.median)
    }
  }
  // Over a network the way there and back is most of it; without, an empty list costs next to nothing.
  if (name === 'Postgres') scorecard.atMost(`${name}: the slowest list against an empty store`, worst, 20)
  scorecard.atMost(`${name}: the slowest list, ms`, slowest, 50)
}

async function timeOf(act: () => Promise<unknown>): Promise<number> {
  const startedAt = performance.now()
  await act()
  return performance.now() - startedAt
}

// ── Postgres ───────────────────────────────────────────────────────────────

async function measurePostgres(): Promise<void> {
  const server = await startPostgres({
    settings: { shared_buffers: '256MB', max_wal_size: '4GB', maintenance_work_mem: '256MB' },
  })
  const client = new pg.Client({ connectionString: server.url })
  await client.connect()
  try {
    for (const schema of ['holdfast', 'empty']) {
      const store = await openPostgresStore({ url: `${server.url}?schema=${schema}`, durability: 'full' })
      await store.migrate()
      await store.close()
    }
    await measureWal(client, server.url)
    await fillPostgres(client)
    const full = await open(server.url, { worker: false })
    const empty = await open(`${server.url}?schema=empty`, { worker: false })
    const filters = filtersFor(runCount)
    await compare('Postgres', full, empty, filters)
    await full.close()
    await empty.close()
    await printPlans(client, server, filters)
  } finally {
    await client.end()
    await server.stop()
  }
}

/** 100,000 of them finished, the others pending; the first 20 have names of their own; a million records. */
async function fillPostgres(client: pg.Client): Promise<void> {
  const startedAt = performance.now()
  const long = 1_000
  const finished = Math.round(runCount * (100 / 425))
  await client.query('SET synchronous_commit = off')
  await client.query(`TRUNCATE holdfast.threads, holdfast.runs, holdfast.log, holdfast.labels RESTART IDENTITY`)
  await client.query(`
    INSERT INTO holdfast.threads (head_seq, base_seq, incarnation, state_version, epoch_floor, created_at, owner, thread_id)
      SELECT CASE WHEN n > ${finished} THEN 2 ELSE 3 END, 0, 1, 0, 0, ${began} + n, '', 'thread-' || n FROM generate_series(1, ${runCount}) n`)
  await client.query(`
    INSERT INTO holdfast.threads (head_seq, base_seq, incarnation, state_version, epoch_floor, created_at, owner, thread_id)
      VALUES (${3 * long}, 0, 1, 0, 0, ${began}, '', 'long')`)
  const runColumns = `thread, epoch, wake_at, due_at, claims_without_progress, input_seq, tape_seq, end_seq, created_at, started_at, finished_at, version,
    priority, is_next, last_message, status, owner, run_id, workflow, queue, fingerprint`
  await client.query(`
    INSERT INTO holdfast.runs (${runColumns})
      SELECT n, 0, CASE WHEN n > ${finished} THEN ${began} END, ${began}, 0, 1, 2, CASE WHEN n <= ${finished} THEN 3 END, ${began} + n, ${began},
          CASE WHEN n <= ${finished} THEN ${began} END, 1, 0, n > ${finished}, 0, CASE WHEN n > ${finished} THEN 'pending' ELSE 'completed' END, '',
          'thread-' || n, CASE WHEN n <= 20 THEN 'rare' WHEN n % 3 = 0 THEN 'report' ELSE 'chat' END, CASE WHEN n BETWEEN 10 AND 29 THEN 'rare' ELSE 'default' END, 'f'
        FROM generate_series(1, ${runCount}) n`)
  await client.query(`
    INSERT INTO holdfast.runs (${runColumns})
      SELECT ${runCount + 1}, 0, NULL, ${began}, 0, 3 * n - 2, 3 * n - 1, 3 * n, ${began} + n, ${began}, ${began}, 1, 0, false, 0, 'completed', '', 'long-' || n, 'chat', 'default', 'f'
        FROM generate_series(1, ${long}) n`)
  const sized = (text: string) => `'s' || length(${text}) || ':' || ${text}`
  // As recordChecksum in model/checksum.ts.
  const checksum = (thread: string, run: string, { type, seq, payload }: Record<'type' | 'seq' | 'payload', string>) =>
    `(crc32(convert_to('s0:' || ${sized(thread)} || ${sized(run)} || 'n' || ${type} || ',0,0,' || ${began} || ',null,1,' || ${sized(payload)} || 'n', 'UTF8')) + ${seq}) & 4294967295`
  const types = `(VALUES (1, 'run_queued', '{"input":1}'), (2, 'run_started', '{}'), (3, 'run_completed', '{"output":1}')) e(seq, type, payload)`
  await client.query(`
    INSERT INTO holdfast.log (thread, seq, run, at, checksum, checkpoint_bytes, count, attempt, type, payload)
      SELECT n, e.seq, n, ${began}, ${checksum("('thread-' || n)", "('thread-' || n)", { type: 'e.type', seq: 'e.seq', payload: 'e.payload' })}, 0, 0, 0, e.type, e.payload
        FROM generate_series(1, ${runCount}) n, ${types} WHERE e.seq < 3 OR n <= ${finished}`)
  await client.query(`
    INSERT INTO holdfast.log (thread, seq, run, at, checksum, checkpoint_bytes, count, attempt, type, payload)
      SELECT ${runCount + 1}, 3 * n - 3 + e.seq, ${runCount} + n, ${began},
          ${checksum("('long')", "('long-' || n)", { type: 'e.type', seq: '3 * n - 3 + e.seq', payload: 'e.payload' })}, 0, 0, 0, e.type, e.payload
        FROM generate_series(1, ${long}) n, ${types}`)
  await client.query(`
    INSERT INTO holdfast.labels (thread, seq, label, run, created_at, owner)
      SELECT n, 1, CASE WHEN n <= 20 THEN 'rare' ELSE 'often' END, n, ${began} + n, '' FROM generate_series(1, ${runCount}) n WHERE n <= 20 OR n % 4 = 0`)
  await client.query('VACUUM ANALYZE holdfast.threads, holdfast.runs, holdfast.log, holdfast.labels')
  const { rows } = await client.query(
    'SELECT (SELECT count(*) FROM holdfast.runs)::int AS runs, (SELECT count(*) FROM holdfast.log)::int AS records',
  )
  const { rows: indexes } = await client.query(
    `SELECT indexrelname AS name, pg_size_pretty(pg_relation_size(indexrelid)) AS size FROM pg_stat_user_indexes
      WHERE schemaname = 'holdfast' AND relname IN ('runs', 'labels') ORDER BY 1`,
  )
  const seconds = ((performance.now() - startedAt) / 1_000).toFixed(0)
  console.log(`\nPostgres: ${rows[0].runs} runs, ${rows[0].records} records, filled in ${seconds} s; pages of 100`)
  console.log(`  indexes: ${indexes.map(({ name, size }) => `${name} ${size}`).join(', ')}`)
}

/** What the indexes of lists cost: bytes of write-ahead log of a run from its start to its end, with and without them. */
async function measureWal(client: pg.Client, url: string): Promise<void> {
  const { rows } = await client.query<{ name: string; sql: string }>(
    "SELECT indexrelid::regclass::text AS name, pg_get_indexdef(indexrelid) AS sql FROM pg_index WHERE indrelid = 'holdfast.runs'::regclass AND indexrelid::regclass::text ~ 'runs_(listed|of_workflow|of_queue)'",
  )
  const own = rows
  const bytes: Record<'with' | 'without', number[]> = { with: [], without: [] }
  for (let round = 0; round < 4; round++) {
    for (const which of ['with', 'without'] as const) {
      for (const { name, sql } of own)
        await client.query(which === 'with' ? sql.replace('INDEX', 'INDEX IF NOT EXISTS') : `DROP INDEX IF EXISTS ${name}`)
      // Each page is written whole once after a checkpoint: it should not come in between.
      await client.query('CHECKPOINT')
      const measured = await liveThrough(client, url, `${which}-${round}`)
      if (round > 0) bytes[which].push(measured)
    }
  }
  for (const { sql } of own) await client.query(sql.replace('INDEX', 'INDEX IF NOT EXISTS'))
  const [having, lacking] = [spreadOf(bytes.with), spreadOf(bytes.without)]
  console.log(
    `\nPostgres: write-ahead log of a run that is started, claimed and ended, in batches of 250: ${formatSpread(having, 0, 'rounds')} bytes; ` +
      `without the ${own.length} indexes of lists ${formatSpread(lacking, 0, 'rounds')}: ${(having.median / lacking.median).toFixed(2)} ×`,
  )
}

async function liveThrough(client: pg.Client, url: string, name: string): Promise<number> {
  const count = 3_000
  const store = await openPostgresStore({ url, durability: 'relaxed' })
  const before = await walAt(client)
  await fillStore(store, { count, finished: count, name })
  const bytes = (await walAt(client)) - before
  await store.close()
  return bytes / count
}

async function walAt(client: pg.Client): Promise<number> {
  const { rows } = await client.query("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8 AS bytes")
  return rows[0].bytes
}

/** The plans of each list, as the server's log has them. */
async function printPlans(
  client: pg.Client,
  server: { readonly url: string; readonly logFile: string },
  filters: Record<string, RunFilter>,
): Promise<void> {
  await client.query(`ALTER DATABASE postgres SET session_preload_libraries = 'auto_explain'`)
  const settings = {
    log_min_duration: '0',
    log_analyze: 'on',
    log_buffers: 'off',
    log_timing: 'off',
    log_nested_statements: 'on',
  }
  for (const [name, value] of Object.entries(settings))
    await client.query(`LOAD 'auto_explain'; ALTER DATABASE postgres SET auto_explain.${name} = ${value}`)
  const hf = await open(server.url, { worker: false, pool: { min: 1, max: 1 } })
  const acts: Record<string, () => Promise<unknown>> = Object.fromEntries(
    Object.entries(filters).map(([what, filter]) => [what, () => hf.runs.list(filter)]),
  )
  acts['queues.count'] = () => hf.queues.count('default')
  for (const [what, act] of Object.entries(acts)) {
    for (let round = 0; round < 6; round++) await act()
    const { length } = readFileSync(server.logFile)
    await act()
    console.log(`\n  plan: ${what}`)
    for (const entry of readFileSync(server.logFile)
      .subarray(length)
      .toString()
      .split(/^(?=\d{4}-\d\d-\d\d )/m)) {
      const duration = /duration: (\S+ ms) {2}plan:/.exec(entry)?.[1]
      if (duration === undefined || (what !== 'no filter' && entry.includes('JOIN LATERAL (SELECT r.run_id FROM'))) continue
      console.log(`    ${duration}`)
      const [, ...plan] = entry.split(/^(?=\t.*\(cost=)/m)
      for (const line of plan.join('').split('\n'))
        if (line.trim() !== '')
          console.log(
            `    ${line
              .trimEnd()
              .replace(/^\t/, '')
              .replace(/ *\(cost=[^)]*\)/, '')
              .slice(0, 160)}`,
          )
    }
  }
  await hf.close()
}

// ── SQLite and Redis ───────────────────────────────────────────────────────

async function measureSqlite(): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-lists-'))
  try {
    const store = await openSqliteStore({ file: join(folder, 'full.db'), durability: 'relaxed' })
    await store.migrate()
    await fillLocal('SQLite', store)
    await store.close()
    const full = await open(`sqlite:${join(folder, 'full.db')}`, { worker: false })
    const empty = await open(`sqlite:${join(folder, 'empty.db')}`, { worker: false })
    await compare('SQLite', full, empty, localFilters())
    await full.close()
    await empty.close()
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

async function measureRedis(): Promise<void> {
  const server = await startRedis({ fsync: 'everysec' })
  try {
    const store = await openRedisStore({ url: `${server.url}?namespace=full`, durability: 'relaxed' })
    await store.migrate()
    await fillLocal('Redis', store)
    await store.close()
    const full = await open(`${server.url}?namespace=full`, { worker: false, durability: 'relaxed' })
    const empty = await open(`${server.url}?namespace=empty`, { worker: false, durability: 'relaxed' })
    await compare('Redis', full, empty, localFilters())
    await full.close()
    await empty.close()
  } finally {
    await server.stop()
  }
}

/** Their runs are created by the store's clock. */
function localFilters(): Record<string, RunFilter> {
  const filters = Object.entries(filtersFor(localRunCount)).filter(([what]) => !what.startsWith('time'))
  return {
    ...Object.fromEntries(filters),
    'time, the oldest': { createdBefore: fillTimes.rare },
    'time and status': { createdBefore: fillTimes.rare, status: 'pending' },
  }
}

async function fillLocal(name: string, store: Store): Promise<void> {
  const startedAt = performance.now()
  await fillStore(store, { count: 20, finished: 0, name: 'first', workflow: 'rare', queue: 'rare', label: 'rare' })
  fillTimes.rare = (await store.now()) + 1
  await new Promise((resolve) => setTimeout(resolve, 5))
  await fillStore(store, { count: 1_000, finished: 0, name: 'long', threadId: 'long' })
  await fillStore(store, { count: localRunCount / 4, finished: localRunCount / 4, name: 'done', label: 'often' })
  await fillStore(store, { count: (localRunCount * 3) / 4, finished: 0, name: 'pending' })
  console.log(
    `\n${name}: ${localRunCount + 1_020} runs, filled in ${((performance.now() - startedAt) / 1_000).toFixed(0)} s; pages of 100`,
  )
}

interface Filling {
  readonly count: number
  /** So many of them are claimed and completed. */
  readonly finished: number
  readonly name: string
  readonly workflow?: string
  readonly queue?: string
  readonly threadId?: string
  readonly label?: string
}

async function fillStore(store: Store, filling: Filling): Promise<void> {
  const { count, finished, name, workflow = 'chat', queue = 'default', threadId, label } = filling
  const batch = 250
  const event = { step: null, count: 0, attempt: 0, at: began, durationMs: null, patch: null }
  for (let from = 0; from < count; from += batch) {
    const ids = Array.from({ length: Math.min(batch, count - from) }, (_, index) => `${name}-${from + index}`)
    await store.commit(
      ids.map((id): Change => {
        const thread = threadId ?? id
        return {
          ...{ owner: '', threadId: thread, runId: null, guard: { kind: 'none' }, events: [], isCheckpoint: true },
          creates: [
            {
              ...{
                owner: '',
                id,
                threadId: thread,
                workflow,
                version: 1,
                queue,
                priority: 0,
                fingerprint: 'f',
                due: { inMs: 0 },
              },
              ...{ ifBusy: 'queue', queued: { ...event, type: 'run_queued', payload: '{"input":1}' } },
            },
          ],
        }
      }),
    )
    if (label !== undefined && finished === 0) for (const id of ids) await store.tag({ owner: '', threadId: id, seq: 1, label })
    if (finished <= from) continue
    const claims = await store.claim({
      workerId: 'w',
      leaseMs: 60_000,
      limit: batch,
      workflows: [{ name: workflow, version: 1 }],
    })
    await store.commit(
      claims.map(
        ({ run, leaseId }): Change => ({
          ...{ owner: '', threadId: run.threadId, runId: run.id, guard: { kind: 'lease', epoch: run.epoch, leaseId } },
          events: [
            { ...event, type: 'run_started', payload: '{}' },
            { ...event, type: 'run_completed', payload: '{"output":1}' },
          ],
          ...{ isCheckpoint: true, run: { status: 'completed', setsEnd: true, startsTape: true } },
          ...(label !== undefined && { label }),
        }),
      ),
    )
  }
}

function optionOf(name: string): string | undefined {
  return process.argv.find((arg) => arg.startsWith(`--${name}=`))?.slice(name.length + 3)
}
