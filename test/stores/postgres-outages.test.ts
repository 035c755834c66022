import { open, workflow } from 'holdfast'
import pg from 'pg'
import { describe, expect, it, vi } from 'vitest'
import { openPostgresStore } from '../../src/stores/postgres/postgres-store.ts'
import { patience } from '../patience.ts'
import { type PostgresServer, type PostgresServerOptions, startPostgres } from '../servers/postgres.ts'
import { usePostgres } from './postgres-scene.ts'

/** Servers that are away, read-only, full or crowded for a while: runs wait and go on, and nothing is held against them. */

const scene = usePostgres()

describe('runs wait and go on', () => {
  it('while the server is restarted and killed', async () => {
    const { server } = await startServer()
    const load = await startLoad(server.url)
    for (const end of [() => server.shutDown(), () => server.kill()]) {
      await end()
      await server.start()
      await load.goesOn()
    }
    await load.end()
  })

  it('while the server is away for longer than a lease: nobody else was there to take the runs, so their holder keeps them', async () => {
    const { server } = await startServer()
    const load = await startLoad(server.url, { leaseMs: patience(500) })
    await server.kill()
    await sleep(patience(1_500))
    await server.start()
    await load.goesOn()
    await load.end()
  })

  it('while the primary is read-only', async () => {
    const { server, admin } = await startServer()
    const load = await startLoad(server.url)
    const turn = async (isReadOnly: boolean) => {
      await admin.query(`ALTER SYSTEM SET default_transaction_read_only = ${isReadOnly ? 'on' : 'off'}`)
      await admin.query('SELECT pg_reload_conf()')
    }
    for (let round = 0; round < 2; round++) {
      await turn(true)
      await load.stops()
      await turn(false)
      await load.goesOn()
    }
    await load.end()
  })

  it('while the disk is full', async () => {
    const { server, admin } = await startServer({ smallDiskBytes: 40 * 2 ** 20 })
    await admin.query('CREATE DATABASE small TABLESPACE small')
    const url = server.url.replace(/\/postgres$/, '/small')
    const load = await startLoad(url)
    const filler = new pg.Client({ connectionString: url })
    await filler.connect()
    for (let round = 0; round < 2; round++) {
      await filler.query('CREATE TABLE filler (t text)')
      const fill = (rows: number) => filler.query(`INSERT INTO filler SELECT repeat('x', 1000) FROM generate_series(1, ${rows})`)
      for (const rows of [1_000, 8]) {
        await expect(
          (async () => {
            for (;;) await fill(rows)
          })(),
        ).rejects.toMatchObject({ code: '53100' })
      }
      await load.stops()
      await filler.query('DROP TABLE filler')
      await load.goesOn()
    }
    await filler.end()
    await load.end()
  })

  it('while others take all connections of the server', async () => {
    const { server, admin } = await startServer({ settings: { max_connections: '16' } })
    const load = await startLoad(server.url)
    const strangers: pg.Client[] = []
    const crowd = async () => {
      const attempts = Array.from({ length: 16 }, async () => {
        const stranger = new pg.Client({ connectionString: server.url })
        stranger.on('error', () => {})
        await stranger.connect()
        strangers.push(stranger)
      })
      await Promise.allSettled(attempts)
    }
    const { rows } = await admin.query('SELECT 1 AS one')
    expect(rows).toEqual([{ one: 1 }])
    await crowd()
    // Whoever loses a connection now finds another in its place, sooner or later.
    await vi.waitUntil(async () => {
      await admin.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'holdfast%'")
      await crowd()
      return strangers.length > 8
    })
    await sleep(500)
    for (const stranger of strangers) await stranger.end()
    await load.goesOn()
    await load.end()
  })

  it('while transactions take all connections of the pool: heartbeats have one of their own', async () => {
    const store = await openPostgresStore({
      url: scene.url,
      schema: scene.schema,
      durability: 'full',
      poolSize: { min: 0, max: 2 },
    })
    scene.afterwards(() => store.close())
    const slow = workflow('slow', (ctx) =>
      ctx.transaction('sleep', async (tx) => {
        await tx.query('SELECT pg_sleep(0.4)')
        return 'done'
      }),
    )
    const hf = await open(store, { logger: false, workflows: [slow], worker: { leaseMs: patience(1_000) } })
    // Somebody who would take over what is not kept alive.
    const other = await open(`${scene.url}?schema=${scene.schema}`, {
      logger: false,
      workflows: [slow],
      worker: { pollMs: 50, concurrency: 1 },
    })
    scene.afterwards(() => hf.close())
    scene.afterwards(() => other.close())
    const runs = await Promise.all(Array.from({ length: 8 }, () => hf.start(slow)))
    expect(await Promise.all(runs.map((run) => run.result()))).toEqual(runs.map(() => 'done'))
    for (const run of runs) expect((await run.events()).map(({ type }) => type)).not.toContain('run_recovered')
  })
})

async function startServer(options: PostgresServerOptions = {}): Promise<{ server: PostgresServer; admin: pg.Pool }> {
  const server = await startPostgres(options)
  const admin = new pg.Pool({ connectionString: server.url, max: 1 })
  // The server goes away under it.
  admin.on('error', () => {})
  scene.afterwards(() => server.stop())
  scene.afterwards(() => admin.end())
  return { server, admin }
}

/** Runs that send something which nobody can check, take steps until they are told to end, and end with a transaction. */
async function startLoad(url: string, { leaseMs = 10_000 } = {}) {
  const sent: string[] = []
  let steps = 0
  let isOver = false
  const work = workflow('work', async (ctx) => {
    await ctx.once('send', { run: () => void sent.push(ctx.runId) })
    while (!isOver) {
      await ctx.step('work', () => sleep(20))
      steps++
    }
    await ctx.transaction('end', async (tx) => void (await tx.query('SELECT 1')))
    return 'done'
  })
  const hf = await open(url, { logger: false, workflows: [work], worker: { leaseMs, pollMs: 100 } })
  scene.afterwards(() => hf.close())
  const ids = Array.from({ length: 10 }, (_, n) => `r-${n}`)
  const runs = await Promise.all(ids.map((id) => hf.start(work, undefined, { id })))
  const goesOn = () => {
    const target = steps + 3 * runs.length
    return vi.waitFor(() => expect(steps).toBeGreaterThan(target), { timeout: 20_000, interval: 10 })
  }
  await goesOn()
  return {
    goesOn,

    /** Until nothing has been recorded for a while. */
    async stops(): Promise<void> {
      for (let before = -1; before !== steps; ) {
        before = steps
        await sleep(500)
      }
    },

    /** Lets all runs end: nothing was lost, done twice, failed, paused or taken over. */
    async end(): Promise<void> {
      isOver = true
      expect(await Promise.all(runs.map((run) => run.result()))).toEqual(runs.map(() => 'done'))
      expect(sent.toSorted()).toEqual(ids)
      const kinds = new Set<string>()
      let completed = 0
      for (const run of runs) {
        for (const { type } of await run.events()) {
          kinds.add(type)
          if (type === 'step_completed') completed++
        }
      }
      expect([...kinds].sort()).toEqual([
        ...['effect_completed', 'effect_intended', 'run_completed', 'run_queued', 'run_started'],
        ...['step_completed', 'step_started'],
      ])
      expect(completed).toBe(steps + runs.length)
    },
  }
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms))
}
