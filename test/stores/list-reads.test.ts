import { open, workflow } from 'holdfast'
import pg from 'pg'
import { createClient } from 'redis'
import { describe, expect, it } from 'vitest'
import { sharedPostgres } from '../servers/postgres.ts'
import { startRedis } from '../servers/redis.ts'

const work = workflow('work', async (ctx, n: number) => {
  for (let step = 0; step < 5; step++) await ctx.step(`s${step}`, () => 'x'.repeat(100))
  ctx.progress(0.5)
  if (n % 2 === 1) throw new Error('odd')
  return n
})

async function fill(url: string, count: number): Promise<void> {
  const hf = await open(url, { workflows: [work], logger: false })
  const runs = await hf.startMany(
    Array.from({ length: count }, (_, n) => ({ workflow: work, input: n, options: { id: `r-${n}` } })),
  )
  await Promise.allSettled(runs.map((run) => run.result()))
  await hf.close()
}

describe('a page of runs, as the server sees it', () => {
  it('is two statements on Postgres, whatever its size', async () => {
    const { url } = await sharedPostgres()
    const schema = 'list_reads'
    const admin = new pg.Client({ connectionString: url })
    await admin.connect()
    await admin.query(`DROP SCHEMA IF EXISTS ${schema} CASCADE`)
    const pool = new pg.Pool({ connectionString: url })
    try {
      await fill(`${url}?schema=${schema}`, 60)
      let count = 0
      pool.on('connect', (client) => {
        const query = client.query.bind(client) as (...args: unknown[]) => unknown
        client.query = ((...args: unknown[]) => {
          count += 1
          return query(...args)
        }) as typeof client.query
      })
      const hf = await open(pool, { schema, worker: false })
      await hf.runs.list({ limit: 1 })
      for (const limit of [1, 30, 100]) {
        count = 0
        const { items } = await hf.runs.list({ limit, status: ['completed', 'failed'] })
        expect(items).toHaveLength(Math.min(limit, 60))
        expect(count, `a page of ${limit}`).toBe(2)
      }
      await hf.close()
    } finally {
      await pool.end()
      await admin.query(`DROP SCHEMA IF EXISTS ${schema} CASCADE`)
      await admin.end()
    }
  })

  it('is two calls on Redis, whatever its size', async () => {
    const server = await startRedis()
    const admin = await createClient({ url: server.url }).connect()
    try {
      await fill(server.url, 60)
      const hf = await open(server.url, { worker: false })
      await hf.runs.list({ limit: 1 })
      for (const limit of [1, 30, 100]) {
        await admin.configResetStat()
        const { items } = await hf.runs.list({ limit, status: ['completed', 'failed'] })
        expect(items).toHaveLength(Math.min(limit, 60))
        const scripts = [...(await admin.info('commandstats')).matchAll(/cmdstat_eval(?:sha)?:calls=(\d+)/g)]
        expect(
          scripts.reduce((total, [, calls]) => total + Number(calls), 0),
          `a page of ${limit}`,
        ).toBe(2)
      }
      await hf.close()
    } finally {
      await admin.close()
      await server.stop()
    }
  })
})
