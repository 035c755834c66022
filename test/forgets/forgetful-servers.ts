import pg from 'pg'
import { createClient } from 'redis'
import { until } from '../crash/bed/worker-process.ts'
import { type PostgresServer, startPostgres } from '../servers/postgres.ts'
import { startRedis } from '../servers/redis.ts'
import { startRelay } from '../servers/relay.ts'
import { dumpPostgres, type PostgresDump } from './postgres-dump.ts'

/** A server that loses what was written to it after a certain moment. */
export interface ForgetfulServer {
  readonly kind: 'postgres' | 'redis'
  readonly durability: 'full' | 'relaxed'
  /** Where it is; after it has forgotten, perhaps another server. */
  url(): string
  /** It will be as it is now. What is written from here on may be forgotten. */
  keep(): Promise<unknown>
  /**
   * It goes away and comes back without the last writes. One that does not go away calls `hold` as soon as nobody else can write: from then on
   * nothing more reaches it.
   */
  forget(hold: () => void): Promise<void>
  stop(): Promise<void>
}

/** The ways in which a server forgets, by name. */
export const forgetfulServers = {
  'postgres, relaxed and killed': relaxedAndKilled,
  'postgres, standby promoted': standbyPromoted,
  'postgres, backup restored': backupRestored,
  'postgres, dump restored': dumpRestored,
  'redis, replica promoted': replicaPromoted,
  'redis, older append-only file': olderAppendOnlyFile,
} as const satisfies Record<string, () => Promise<ForgetfulServer>>

/** The log of changes stays in the server's memory for as long as it can: a kill takes it along. */
const forgetfulSettings = {
  wal_writer_delay: '10s',
  wal_writer_flush_after: '1GB',
  wal_buffers: '32MB',
  bgwriter_lru_maxpages: '0',
  autovacuum: 'off',
  synchronous_commit: 'off',
  checkpoint_timeout: '1h',
}

/** `durability: 'relaxed'`, and the server ends as in a crash of its machine: what it had not flushed is gone. */
async function relaxedAndKilled(): Promise<ForgetfulServer> {
  const server = await startPostgres({ settings: forgetfulSettings })
  return {
    ...{ kind: 'postgres', durability: 'relaxed', url: () => server.url },
    // Whoever waits for the flush of one commit waits for that of all before it.
    keep: () => query(server.url, 'SET synchronous_commit = on', 'CREATE TABLE IF NOT EXISTS kept ()', 'DROP TABLE kept'),
    async forget() {
      await server.kill()
      await server.start()
    },
    stop: () => server.stop(),
  }
}

/** An asynchronous standby loses its connection, lags behind, and is promoted when the primary dies. */
async function standbyPromoted(): Promise<ForgetfulServer> {
  const primary = await startPostgres()
  const link = await startRelay(primary.url)
  const address = new URL(link.url)
  const follows = `host=127.0.0.1 port=${address.port} user=holdfast password='${decodeURIComponent(address.password)}'`
  let standby: PostgresServer | undefined
  let current = primary
  return {
    ...{ kind: 'postgres', durability: 'full', url: () => current.url },
    async keep() {
      const following = await startPostgres({ backup: await primary.backUp(), follows })
      standby = following
      await until(
        async () => (await query(following.url, "SELECT FROM pg_stat_wal_receiver WHERE status = 'streaming'")) > 0,
        'it follows',
      )
      link.refuse(true)
      link.cut()
    },
    async forget() {
      await primary.kill()
      current = standby as PostgresServer
      await query(current.url, 'SELECT pg_promote(true, 60)')
    },
    async stop() {
      await link.stop()
      await standby?.stop()
      await primary.stop()
    },
  }
}

/** The server is set up anew from a copy of its files. */
async function backupRestored(): Promise<ForgetfulServer> {
  const first = await startPostgres()
  let current = first
  let backup = ''
  return {
    ...{ kind: 'postgres', durability: 'full', url: () => current.url },
    async keep() {
      backup = await first.backUp()
    },
    async forget() {
      await first.kill()
      current = await startPostgres({ backup })
    },
    async stop() {
      await current.stop()
      await first.stop()
    },
  }
}

/** All rows are put back as they were, beside sessions that stay open. */
async function dumpRestored(): Promise<ForgetfulServer> {
  const server = await startPostgres()
  let dump: PostgresDump | undefined
  return {
    ...{ kind: 'postgres', durability: 'full', url: () => server.url },
    async keep() {
      dump = await dumpPostgres(server.url)
    },
    forget: async (hold) => dump?.restore(hold),
    stop: () => server.stop(),
  }
}

/** An asynchronous replica loses its connection, lags behind, and is promoted when the primary dies. */
async function replicaPromoted(): Promise<ForgetfulServer> {
  const primary = await startRedis({ settings: { 'repl-diskless-sync-delay': '0' } })
  const replica = await startRedis()
  const link = await startRelay(primary.url)
  const linkPort = new URL(link.url).port
  let current = primary
  return {
    ...{ kind: 'redis', durability: 'full', url: () => current.url },
    async keep() {
      await command(replica.url, 'REPLICAOF', '127.0.0.1', linkPort)
      await until(async () => /master_link_status:up/.test(await command(replica.url, 'INFO', 'replication')), 'it follows')
      link.refuse(true)
      link.cut()
    },
    async forget() {
      await primary.kill()
      await command(replica.url, 'REPLICAOF', 'NO', 'ONE')
      current = replica
    },
    async stop() {
      await link.stop()
      await replica.stop()
      await primary.stop()
    },
  }
}

/** The server starts over the append-only files of an earlier moment. */
async function olderAppendOnlyFile(): Promise<ForgetfulServer> {
  const first = await startRedis()
  let current = first
  let backup = ''
  return {
    ...{ kind: 'redis', durability: 'full', url: () => current.url },
    async keep() {
      backup = await first.backUp()
    },
    async forget() {
      await first.kill()
      current = await startRedis({ backup })
    },
    async stop() {
      await current.stop()
      await first.stop()
    },
  }
}

/** Runs statements one after another on a connection of their own; says how many rows the last one gave. */
async function query(url: string, ...statements: string[]): Promise<number> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    let count = 0
    for (const statement of statements) count = (await client.query(statement)).rows.length
    return count
  } finally {
    await client.end()
  }
}

async function command(url: string, ...words: string[]): Promise<string> {
  const client = createClient({ url })
  await client.connect()
  try {
    return String(await client.sendCommand(words))
  } finally {
    client.destroy()
  }
}
