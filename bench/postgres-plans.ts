// Plans of the Postgres store's hot statements over a log of 10 million records
//
// Options: --records=N (default 10,000,000). Fills the tables on the server itself, which takes a few minutes and about 3 GB in a temporary folder.

import { readFileSync } from 'node:fs'
import pg from 'pg'
import type { Change } from '../src/store/change.ts'
import type { Claim, ClaimRequest, Store } from '../src/store/store.ts'
import { openPostgresStore } from '../src/stores/postgres/postgres-store.ts'
import { startPostgres } from '../test/servers/postgres.ts'
import { claimRequest, creating, event, stepping } from '../test/stores/sqlite-scene.ts'
import { printLoad, printMachine } from './measuring/machine.ts'

const recordCount = Number(process.argv.find((arg) => arg.startsWith('--records='))?.slice('--records='.length) ?? 10_000_000)
const recordsARun = 40
const runCount = Math.ceil(recordCount / recordsARun)
/** Of the runs that fill the tables, so many are held by others or wait for a time to come; the rest is finished. */
const [held, waiting] = [500, Math.ceil(runCount / 50)]

printMachine()
const server = await startPostgres({ settings: { shared_buffers: '256MB', max_wal_size: '4GB', maintenance_work_mem: '256MB' } })
const client = new pg.Client({ connectionString: server.url })
await client.connect()
try {
  const filling = await openPostgresStore({ url: server.url, durability: 'full' })
  await filling.migrate()
  await fill()
  await filling.commit(Array.from({ length: 1_000 }, (_, n) => creating(`due-${n}`, { workflow: `workflow-${n % 5}` })))
  await filling.close()
  // From here on every session writes the plans of its statements into the server's log, those inside of functions too.
  await client.query(`ALTER DATABASE postgres SET session_preload_libraries = 'auto_explain'`)
  for (const [name, value] of Object.entries(explainSettings())) {
    await client.query(`LOAD 'auto_explain'; ALTER DATABASE postgres SET auto_explain.${name} = ${value}`)
  }
  const store = await openPostgresStore({ url: server.url, durability: 'full', poolSize: { min: 1, max: 1 } })
  await explainActs(store)
  await store.close()
} finally {
  await client.end()
  await server.stop()
}
printLoad('end')

function explainSettings(): Record<string, string> {
  return { log_min_duration: '0', log_analyze: 'on', log_buffers: 'on', log_nested_statements: 'on', log_timing: 'off' }
}

/** Threads of one run each, in the states that a store of some age has: nearly all are finished. */
async function fill(): Promise<void> {
  const startedAt = performance.now()
  await client.query('SET synchronous_commit = off')
  await client.query(`
    INSERT INTO holdfast.threads (head_seq, base_seq, incarnation, state_version, epoch_floor, created_at, owner, thread_id)
      SELECT ${recordsARun}, 0, 1, 0, 0, 0, 'owner-' || n % 100, 'thread-' || n FROM generate_series(1, ${runCount}) n`)
  await client.query(`
    INSERT INTO holdfast.runs (thread, epoch, wake_at, claims_without_progress, input_seq, tape_seq, created_at, started_at, finished_at, version, priority,
        is_next, last_message, status, owner, run_id, workflow, queue, fingerprint, lease_id, lease_holder)
      SELECT n, 1, CASE WHEN n <= ${held + waiting} THEN 8e15 END, 0, 1, 2, 0, 0, CASE WHEN n > ${held + waiting} THEN 1 END, 1, 0,
          n <= ${held + waiting}, 0, CASE WHEN n <= ${held} THEN 'running' WHEN n <= ${held + waiting} THEN 'waiting' ELSE 'completed' END,
          'owner-' || n % 100, 'run-' || n, 'workflow-' || n % 5, 'default', 'f', CASE WHEN n <= ${held} THEN 'lease-' || n END,
          CASE WHEN n <= ${held} THEN 'worker' END
        FROM generate_series(1, ${runCount}) n`)
  // Runs side by side write in turns: the records of a thread lie among those of a thousand others.
  await client.query(`
    INSERT INTO holdfast.log (thread, seq, run, at, checksum, count, attempt, type, step, payload)
      SELECT g * 1000 + t, s, g * 1000 + t, 0, 0, 1, 1, CASE WHEN s % 2 = 0 THEN 'step_started' ELSE 'step_completed' END, 'step',
          CASE WHEN s % 2 = 1 THEN '{"result":"' || repeat('x', 60) || '"}' END
        FROM generate_series(0, ${Math.ceil(runCount / 1_000) - 1}) g, generate_series(1, ${recordsARun}) s, generate_series(1, 1000) t
        WHERE g * 1000 + t <= ${runCount}`)
  await client.query('VACUUM ANALYZE holdfast.threads, holdfast.runs, holdfast.log')
  const { rows } = await client.query(
    "SELECT count(*)::int AS records, pg_size_pretty(pg_total_relation_size('holdfast.log')) AS size FROM holdfast.log",
  )
  const seconds = ((performance.now() - startedAt) / 1_000).toFixed(0)
  console.log(`filled    ${rows[0].records} records (${rows[0].size} with their index) of ${runCount} runs in ${seconds} s`)
}

/** Every hot act of the store, a few times for caches and plans, then once for the record. */
async function explainActs(store: Store): Promise<void> {
  const workflows = Array.from({ length: 5 }, (_, n) => ({ name: `workflow-${n}`, version: 1 }))
  const request: ClaimRequest = claimRequest({ workflows, limit: 100, leaseMs: 600_000 })
  let claims: readonly Claim[] = []
  const leases = () => claims.map(({ run, leaseId }) => ({ owner: '', runId: run.id, epoch: run.epoch, leaseId }))
  const step = (claim: Claim): Change =>
    stepping(claim, {
      events: [
        event('step_started', { step: 'work', count: 1, attempt: 1 }),
        event('step_completed', { step: 'work', payload: '1' }),
      ],
      run: { currentStep: 'work', hasProgress: true, leaseMs: 600_000 },
    })
  const acts: Record<string, () => Promise<unknown>> = {
    'a claim of 100 runs of five workflows': async () => {
      claims = await store.claim(request)
    },
    'a lone step': () => store.commit([step(claims[0] as Claim)]),
    'a batch of 100 steps': () => store.commit(claims.map(step)),
    'a renewal of 100 leases': () => store.renew({ leaseMs: 600_000, leases: leases() }),
    'a run by its id': () => store.readRun({ owner: '', runId: claims[0]?.run.id ?? '' }),
    'the log of a run': () => store.readLog({ owner: '', threadId: claims[0]?.run.threadId ?? '' }),
  }
  for (const [name, act] of Object.entries(acts)) {
    for (let round = 0; round < 6; round++) await act()
    const { length } = readFileSync(server.logFile)
    await act()
    console.log(`\n${name}`)
    printPlans(readFileSync(server.logFile).subarray(length).toString())
  }
}

/** The plans without what does not matter here: costs, and the text of a statement beyond its beginning. */
function printPlans(log: string): void {
  for (const entry of log.split(/^(?=\d{4}-\d\d-\d\d )/m)) {
    const duration = /duration: (\S+ ms) {2}plan:/.exec(entry)?.[1]
    if (duration === undefined) continue
    const [text = '', ...plan] = entry.slice(entry.indexOf('Query Text:') + 'Query Text:'.length).split(/^(?=\t.*\(cost=)/m)
    console.log(`  ${duration}  ${text.replaceAll(/\s+/g, ' ').trim().slice(0, 100)}`)
    for (const line of plan.join('').split('\n'))
      if (line.trim() !== '')
        console.log(
          `    ${line
            .trimEnd()
            .replace(/^\t/, '')
            .replace(/ *\(cost=[^)]*\)/, '')}`,
        )
  }
}
