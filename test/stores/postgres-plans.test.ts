import pg from 'pg'
import { expect, it, vi } from 'vitest'
import type { Store } from '../../src/store/store.ts'
import { usePostgres } from './postgres-scene.ts'
import { claimRequest, creating, event, stepping } from './sqlite-scene.ts'

const scene = usePostgres()

it('plans that were made while the tables were known to be empty do for full ones', async () => {
  // A database of its own: entries of rows that are gone are read again as long as any transaction in the same database may still
  // see them, and other tests keep transactions open.
  const url = await scene.ownDatabase()
  const admin = new pg.Pool({ connectionString: url, max: 1 })
  scene.afterwards(() => admin.end())
  // Indexes that have grown tall stay so: to the planner a short one looks better, whatever it is for.
  const before = await scene.open({ url })
  await liveThrough(before, 'before', 1_000)
  await before.close()
  for (const table of ['runs', 'threads', 'log']) {
    // Whoever analyzes a table keeps entries of rows that are gone readable as well.
    await admin.query(`ALTER TABLE "${scene.schema}".${table} SET (autovacuum_enabled = false)`)
    await admin.query(`DELETE FROM "${scene.schema}".${table}`)
    await admin.query(`VACUUM (ANALYZE) "${scene.schema}".${table}`)
  }
  const readBefore = await entriesRead(admin)

  const after = await scene.open({ url })
  const count = 2_000
  await liveThrough(after, 'after', count)
  await after.close()
  const readAfter = await entriesRead(admin)
  const readPerRun = Object.keys(readAfter).map((index) => [
    index,
    ((readAfter[index] as number) - (readBefore[index] as number)) / count,
  ])
  expect(Object.fromEntries(readPerRun)['runs_ready']).toBeGreaterThan(0)
  // Each run is looked up a few times and passed by in a few scans: 5 to 9 entries, and up to 17 where those of rows that are gone are
  // read again. A look-up by the wrong index reads all of them: 87 and more.
  expect(readPerRun.filter(([, count]) => (count as number) > 30)).toEqual([])
})

/** Runs of ten owners, from their start to their end. */
async function liveThrough(store: Store, name: string, count: number): Promise<void> {
  const batch = 250
  const runs = Array.from({ length: count }, (_, n) => ({ runId: `${name}-${n}`, owner: `owner-${n % 10}` }))
  for (let at = 0; at < count; at += batch) {
    await store.commit(runs.slice(at, at + batch).map(({ runId, owner }) => ({ ...creating(runId, { owner }), owner })))
  }
  const end = { events: [event('run_completed')], run: { status: 'completed', setsEnd: true } } as const
  for (let ended = 0; ended < count; ) {
    const claims = await store.claim(claimRequest({ limit: batch }))
    expect(claims.length).toBeGreaterThan(0)
    await store.commit(claims.map((claim) => stepping(claim)))
    await store.commit(claims.map((claim) => stepping(claim, end)))
    ended += claims.length
  }
  await Promise.all(runs.map((run) => store.readRun(run)))
}

/** Entries of each index that sessions have read. They tell when they end, which on a busy machine is a while after their store is closed. */
async function entriesRead(admin: pg.Pool): Promise<Record<string, number>> {
  await vi.waitUntil(async () => {
    const others = await admin.query(
      `SELECT FROM pg_stat_activity
        WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()`,
    )
    return others.rowCount === 0
  })
  const { rows } = await admin.query<{ name: string; count: string }>(
    'SELECT indexrelname AS name, idx_tup_read AS count FROM pg_stat_user_indexes WHERE schemaname = $1',
    [scene.schema],
  )
  return Object.fromEntries(rows.map(({ name, count }) => [name, Number(count)]))
}
