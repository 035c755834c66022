import { randomBytes } from 'node:crypto'
import pg from 'pg'
import type { Store } from '../../../src/store/store.ts'
import { openPostgresStore } from '../../../src/stores/postgres/postgres-store.ts'
import { dropDatabase, sharedPostgres } from '../../servers/postgres.ts'
import { emptyDump, readStore } from '../store-dump.ts'
import { type Ground, untilNone } from './ground.ts'

/** A schema that is set up, with the store through which it is read and the user's table beside it. */
interface Plot {
  readonly schema: string
  readonly orders: string
  readonly store: Store
}

/** One database, and in it one schema a scene. A schema is emptied and used again: setting one up takes longer than a life. */
export async function preparePostgres({ serverUrl }: { serverUrl?: string } = {}): Promise<Ground> {
  const server = serverUrl ?? (await sharedPostgres()).url
  const database = `crash_${randomBytes(4).toString('hex')}`
  await connected(server, (client) => client.query(`CREATE DATABASE ${database}`))
  const home = new URL(server)
  home.pathname = database
  const pool = new pg.Pool({ connectionString: home.href, max: 10 })
  pool.on('error', () => {}) // The server may be restarted.
  const free: Plot[] = []
  let plotCount = 0

  async function clear(): Promise<Plot> {
    const schema = `plot${++plotCount}`
    const orders = `orders${plotCount}`
    await pool.query(`CREATE TABLE ${orders} (run text NOT NULL, round integer NOT NULL, n serial)`)
    return { schema, orders, store: await openPostgresStore({ pool, schema, durability: 'full' }) }
  }

  async function empty({ schema, orders }: Plot): Promise<void> {
    const { rows } = await pool.query<{ table: string }>(
      `SELECT format('%I.%I', schemaname, tablename) AS table FROM pg_tables WHERE schemaname = $1 AND tablename <> 'version'`,
      [schema],
    )
    await pool.query([orders, ...rows.map(({ table }) => table)].map((table) => `DELETE FROM ${table}`).join('; '))
  }

  return {
    kind: 'postgres',

    async lend({ name, isBare }) {
      const plot = (isBare ? undefined : free.pop()) ?? (await clear())
      const { schema, orders, store } = plot
      if (!isBare) await store.migrate()
      const sessionOf = (life: number | '') => `${database}/${name}.${life}`
      const untilGone = (session: string, condition: string) =>
        untilNone(async () => {
          const sessions = await pool.query(`SELECT FROM pg_stat_activity WHERE ${condition}`, [session])
          return sessions.rowCount ?? 0
        }, session)
      const read = async () => {
        const isThere = await pool.query('SELECT FROM pg_tables WHERE schemaname = $1', [schema])
        if (isThere.rowCount === 0) return emptyDump
        const found = await pool.query<{ run: string; round: number }>(`SELECT run, round FROM ${orders} ORDER BY n`)
        return { ...(await readStore(store)), orders: found.rows }
      }
      return {
        async addressFor(life) {
          const url = new URL(home)
          url.searchParams.set('schema', schema)
          url.searchParams.set('application_name', sessionOf(life))
          const insert = `INSERT INTO ${orders} (run, round) VALUES ($1, $2)`
          const count = `SELECT count(*)::integer AS orders FROM ${orders} WHERE run = $1`
          return { kind: 'postgres', url: url.href, orders: { insert, count } }
        },
        untilLeft: (life) => untilGone(sessionOf(life), 'application_name = $1'),
        dump: read,
        watch: read,
        async open() {
          const another = await openPostgresStore({ pool, schema, durability: 'full' })
          await another.migrate()
          return another
        },
        async giveBack() {
          if (isBare) return store.close()
          // What a killed process had sent must not be carried out in the next scene.
          await untilGone(sessionOf(''), 'starts_with(application_name, $1)')
          await empty(plot)
          free.push(plot)
        },
      }
    },

    async close() {
      for (const { store } of free) await store.close()
      await pool.end()
      await connected(server, (client) => dropDatabase(client, database))
    },
  }
}

async function connected(url: string, act: (client: pg.Client) => Promise<unknown>): Promise<void> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    await act(client)
  } finally {
    await client.end()
  }
}
