import { join } from 'node:path'
import BetterSqlite3 from 'better-sqlite3'
import { open } from 'holdfast'
import pg from 'pg'
import { createClient } from 'redis'
import type { Store } from '../../src/store/store.ts'
import { openPostgresStore } from '../../src/stores/postgres/postgres-store.ts'
import { openRedisStore } from '../../src/stores/redis/redis-store.ts'
import { openSqliteStore } from '../../src/stores/sqlite/sqlite-store.ts'
import { startPostgres } from '../../test/servers/postgres.ts'
import { startRedis } from '../../test/servers/redis.ts'
import type { RawQueue } from '../measuring/queue-speed.ts'

/** A store to measure, and its driver without it. */
export interface QueueStore {
  readonly description: string
  readonly target: string
  readonly raw: RawQueue
  /** Another one, empty. */
  openStore(): Promise<Store>
  close(): Promise<void>
}

export const queueStores: Record<string, (folder: string) => Promise<QueueStore>> = {
  sqlite: openSqlite,
  postgres: openPostgres,
  redis: openRedis,
}

async function openSqlite(folder: string): Promise<QueueStore> {
  const file = join(folder, 'queue.db')
  const rawFile = join(folder, 'raw.db')
  for (const name of [file, rawFile]) await (await open(`sqlite:${name}`, { worker: false })).close()
  const db = new BetterSqlite3(rawFile)
  db.pragma('synchronous = FULL')
  const insert = db.prepare(
    `INSERT INTO holdfast_runs (id, owner, run_id, thread, workflow, version, status, queue, priority, fingerprint, epoch, due_at, claim_at, ready,
       claims_without_progress, input_seq, input_id, created_at, unread_message)
     VALUES (?, '', ?, ?, 'noop', 1, 'pending', 'default', 0, 'f', 0, ?, ?, 2, 0, 1, 1, ?, 0)`,
  )
  const claim = db.prepare(
    `UPDATE holdfast_runs SET status = 'running', epoch = 1, lease_id = ?, lease_until = ?, claim_at = ?, ready = 0, lease_holder = 1 WHERE id = ?`,
  )
  const finish = db.prepare(
    `UPDATE holdfast_runs SET status = 'completed', lease_id = NULL, lease_until = NULL, claim_at = NULL, lease_holder = NULL, finished_at = ? WHERE id = ?`,
  )
  const inTransaction = (act: (id: number, now: number) => unknown) => {
    const all = db.transaction((ids: readonly number[]) => {
      for (const id of ids) act(id, Date.now())
    })
    return async (ids: readonly number[]) => all.immediate(ids)
  }
  let count = 0
  return {
    description: 'SQLite through node:sqlite, synchronous=FULL',
    target: `sqlite:${file}`,
    raw: {
      insert: inTransaction((id, now) => insert.run(id, idOf(id), id, now, now, now)),
      claim: inTransaction((id, now) => claim.run(`lease-${id}`, now + 10_000, now + 10_000, id)),
      finish: inTransaction((id, now) => finish.run(now, id)),
    },
    openStore: () => migrated(openSqliteStore({ file: join(folder, `claims-${++count}.db`), durability: 'full' })),
    close: async () => {
      db.close()
    },
  }
}

async function openPostgres(): Promise<QueueStore> {
  const server = await startPostgres()
  const client = new pg.Client({ connectionString: server.url })
  await client.connect()
  const { rows } = await client.query("SELECT current_setting('server_version') AS version")
  await (await open(server.url, { worker: false })).close()
  await client.query('CREATE TABLE raw_runs (LIKE holdfast.runs INCLUDING ALL) WITH (fillfactor = 45)')
  const insert = `INSERT INTO raw_runs (id, thread, epoch, wake_at, due_at, claims_without_progress, input_seq, created_at, version, priority, ready, is_next, last_message,
      status, owner, run_id, workflow, queue, fingerprint)
    OVERRIDING SYSTEM VALUE
    SELECT a, a, 0, $2, $2, 0, 1, $2, 1, 0, 2, true, 0, 'pending', '', b, 'noop', 'default', 'f' FROM unnest($1::bigint[], $3::text[]) AS x(a, b)`
  const claim = `UPDATE raw_runs r SET status = 'running', epoch = 1, lease_id = x.b, lease_holder = 'worker', wake_at = $2, ready = 0
    FROM unnest($1::bigint[], $3::text[]) AS x(a, b) WHERE r.id = x.a`
  const finish = `UPDATE raw_runs r SET status = 'completed', lease_id = NULL, lease_holder = NULL, wake_at = NULL, finished_at = $2, is_next = false
    FROM unnest($1::bigint[]) AS x(a) WHERE r.id = x.a`
  let count = 0
  return {
    description: `Postgres ${rows[0].version} through pg, over loopback, with its defaults`,
    target: server.url,
    raw: {
      insert: async (ids) =>
        void (await client.query({ name: 'insert', text: insert, values: [ids, Date.now(), ids.map(idOf)] })),
      claim: async (ids) => void (await client.query({ name: 'claim', text: claim, values: [ids, Date.now(), ids.map(idOf)] })),
      finish: async (ids) => void (await client.query({ name: 'finish', text: finish, values: [ids, Date.now()] })),
    },
    openStore: () => migrated(openPostgresStore({ url: server.url, schema: `claims_${++count}`, durability: 'full' })),
    close: async () => {
      await client.end()
      await server.stop()
    },
  }
}

async function openRedis(): Promise<QueueStore> {
  const server = await startRedis({ fsync: 'always' })
  const client = await createClient({ url: server.url }).connect()
  const [, version] = /redis_version:(\S+)/.exec(String(await client.info('server'))) ?? []
  /** One MULTI a batch: a hash a run, and a sorted set of those that wait. */
  const inMulti = (act: (multi: ReturnType<typeof client.multi>, id: number) => unknown) => async (ids: readonly number[]) => {
    const multi = client.multi()
    for (const id of ids) act(multi, id)
    await multi.exec()
  }
  let count = 0
  return {
    description: `Redis ${version} through redis, over loopback, appendfsync always`,
    target: server.url,
    raw: {
      insert: inMulti((multi, id) =>
        multi
          .hSet(`{raw}run:${id}`, {
            status: 'pending',
            epoch: '0',
            workflow: 'noop',
            queue: 'default',
            fingerprint: 'f',
            due: String(id),
            created: '1',
          })
          .zAdd('{raw}lane', { score: id, value: idOf(id) }),
      ),
      claim: inMulti((multi, id) =>
        multi
          .hSet(`{raw}run:${id}`, { status: 'running', epoch: '1', lease: `lease-${id}`, until: '1' })
          .zAdd('{raw}lane', { score: id + 1, value: idOf(id) }),
      ),
      finish: inMulti((multi, id) =>
        multi.hSet(`{raw}run:${id}`, { status: 'completed', lease: '', until: '', finished: '1' }).zRem('{raw}lane', idOf(id)),
      ),
    },
    openStore: () => migrated(openRedisStore({ url: server.url, namespace: `claims-${++count}`, durability: 'full' })),
    close: async () => {
      client.destroy()
      await server.stop()
    },
  }
}

/** As long as the ids that runs get. */
function idOf(id: number): string {
  return `00000000-0000-4000-8000-${String(id).padStart(12, '0')}`
}

async function migrated(opening: Promise<Store>): Promise<Store> {
  const store = await opening
  await store.migrate()
  return store
}
