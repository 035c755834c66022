import { open } from 'holdfast'
import pg from 'pg'
import { startPostgres } from '../../test/servers/postgres.ts'
import { measureLoad, measureLoneStep, type RawWrites, runCount, stepsARun } from '../measuring/engine-speed.ts'
import type { Scorecard } from '../measuring/scorecard.ts'
import { formatSpread } from '../measuring/spread.ts'

/** Postgres with its defaults (fsync and synchronous_commit on), on a server of its own. */
export async function measurePostgres({ sliceCount, scorecard }: { sliceCount: number; scorecard: Scorecard }): Promise<void> {
  const server = await startPostgres()
  const client = new pg.Client({ connectionString: server.url })
  await client.connect()
  try {
    const { rows } = await client.query("SELECT current_setting('server_version') AS version")
    await (await open(server.url, { worker: false })).close()
    await client.query(rawTables)
    const shared = { target: server.url, sliceCount } as const
    const lone = await measureLoneStep({ ...shared, raw: rawSteps(client) })
    const load = await measureLoad({ ...shared, raw: rawRows(client) })
    console.log(`
Postgres ${rows[0].version} through pg, over loopback; raw: prepared statements on tables of the same shape, each a commit, on one connection
  a lone run's step, against writing its two log rows and the head of its thread, ${sliceCount} slices
    raw     ${formatSpread(lone.rawUs, 0)} µs
    engine  ${formatSpread(lone.engineUs, 0)} µs
    ratio   ${formatSpread(lone.ratio)} engine / raw
  ${runCount} runs × ${stepsARun} steps at once, worker concurrency ${runCount}, claims and completions included, against one row a commit
    raw     ${formatSpread(load.rawRate, 0)} rows/s
    engine  ${formatSpread(load.engineRate, 0)} steps/s
    ratio   ${formatSpread(load.ratio)} × raw in all; ${formatSpread(load.stepRatio)} × from the first step to the last`)
    scorecard.atMost('Postgres: a lone step against a raw write of the same rows', lone.ratio.median, 1.3)
    scorecard.atLeast(`Postgres: ${runCount} × ${stepsARun} steps against commits of one row`, load.ratio.median, 8)
  } finally {
    await client.end()
    await server.stop()
  }
}

/** The shapes of the log and of the threads with their indexes, and nothing around them. */
const rawTables = `
  CREATE TABLE raw_log (LIKE holdfast.log INCLUDING ALL);
  CREATE TABLE raw_threads (LIKE holdfast.threads INCLUDING ALL) WITH (fillfactor = 45);
  INSERT INTO raw_threads (head_seq, base_seq, incarnation, state_version, epoch_floor, created_at, owner, thread_id) VALUES (0, 0, 1, 0, 0, 0, '', 'raw')`

const columns = 'thread seq run at duration_ms checksum checkpoint_bytes count attempt type step payload'.split(' ')

/** What a step writes, in one prepared statement: its two log rows and the head of its thread. No guard, codec, checksum or function. */
function rawSteps(client: pg.Client): RawWrites {
  const text = `WITH log AS (${insertText(2)}) UPDATE raw_threads SET head_seq = $${2 * columns.length + 1} WHERE thread_id = 'raw'`
  let seq = 0
  return {
    async write(count) {
      for (let i = 0; i < count; i++) {
        const values = [...rowOf(1, ++seq, 'step_started', null), ...rowOf(1, ++seq, 'step_completed', '{"result":1}'), seq]
        await client.query({ name: 'raw-step', text, values })
      }
    },
  }
}

/** One row of the log a commit. */
function rawRows(client: pg.Client): RawWrites {
  let seq = 0
  return {
    async write(count) {
      for (let i = 0; i < count; i++) {
        const values = rowOf(2, ++seq, 'step_completed', '{"result":1}')
        await client.query({ name: 'raw-row', text: insertText(1), values })
      }
    },
  }
}

function insertText(rowCount: number): string {
  const row = (at: number) => `(${columns.map((_, index) => `$${at * columns.length + index + 1}`).join(', ')})`
  return `INSERT INTO raw_log (${columns.join(', ')}) VALUES ${Array.from({ length: rowCount }, (_, at) => row(at)).join(', ')}`
}

function rowOf(thread: number, seq: number, type: string, payload: string | null): unknown[] {
  return [thread, seq, 1, Date.now(), 1, 123456, null, 1, 1, type, 's', payload]
}
