import { randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { type Holdfast, HoldfastError, open, workflow } from 'holdfast'
import pg from 'pg'
import { describe, expect, it, vi } from 'vitest'
import { patience } from '../patience.ts'
import { sharedPostgres } from '../servers/postgres.ts'
import type { Fault } from './postgres-proxy.ts'
import { usePostgres } from './postgres-scene.ts'

/** Whole runs on Postgres: what the server is asked for, and what becomes of them when any message is lost. */

const scene = usePostgres()

it('a step is one statement, by the log of the server', async () => {
  const { logFile } = await sharedPostgres()
  const own = await scene.ownDatabase({ log_statement: 'all' })
  const client = new pg.Client({ connectionString: own })
  await client.connect()
  const mark = randomBytes(8).toString('hex')
  let arrive = () => {}
  const arrived = new Promise<void>((resolve) => {
    arrive = resolve
  })
  const walk = workflow('walk', async (ctx, steps: number) => {
    // The first commit of a run also starts its tape; nothing is on its way when it has been acknowledged.
    await ctx.step('walk', () => 'begin')
    await client.query(`SELECT '${mark} begin'`)
    for (let i = 0; i < steps; i++) await ctx.step('walk', () => i)
    await client.query(`SELECT '${mark} end'`)
    arrive()
  })
  // Heartbeats, looking for work and waiting for the result are not the step's, and come at their own times.
  const hf = await open(`${own}?schema=${scene.schema}`, { workflows: [walk], worker: { leaseMs: 600_000, pollMs: 600_000 } })
  const run = await hf.start(walk, 100)
  await arrived
  await run.result()
  await hf.close()
  await client.end()
  const log = await vi.waitFor(() => {
    const text = readFileSync(logFile, 'utf8')
    expect(text).toContain(`${mark} end`)
    return text
  })
  const between = log.slice(log.indexOf(`${mark} begin`), log.indexOf(`${mark} end`))
  const statements = between.split('\n').filter((line) => /LOG: {2}(statement|execute)/.test(line) && line.includes(scene.schema))
  // The start of a step that takes over 0.1 s, as one may on a busy machine, is written by itself.
  expect(statements.length).toBeGreaterThanOrEqual(100)
  expect(statements.length).toBeLessThan(110)
})

describe('a run whose connection breaks at any message ends, and nothing is done twice', () => {
  for (const kind of ['cut', 'swallow'] as const) {
    for (const side of ['client', 'server'] as const) {
      it(`${kind}, messages of the ${side}`, { timeout: patience(120_000) }, async () => {
        const { store, proxy } = await scene.openOnProxy()
        const done: Record<string, string[]> = { step: [], effect: [] }
        const pay = workflow('pay', async (ctx) => {
          await ctx.step('look', () => void done['step']?.push(ctx.runId))
          // Neither `check` nor `idempotent`: were its outcome hidden, a person would have to decide.
          await ctx.once('send', { run: () => void done['effect']?.push(ctx.runId) })
          await ctx.transaction('book', async (tx) => {
            await tx.query(`INSERT INTO ${paid} VALUES ($1)`, [ctx.runId])
          })
          return ctx.runId
        })
        const paid = `paid_${scene.schema}`
        await scene.admin.query(`CREATE TABLE ${paid} (run text)`)
        scene.afterwards(() => scene.admin.query(`DROP TABLE ${paid}`))
        const hf = await open(store, { workflows: [pay], worker: { pollMs: 200 } })
        scene.afterwards(() => hf.close())
        await hf.run(pay, undefined, { id: 'whole' })

        const ids = ['whole']
        // Until a run is over before the message is reached. A silent connection is noticed after a while only: every seventh will do.
        const stride = kind === 'cut' ? 1 : 7
        for (let at = 1; ; at += stride) {
          const id = `${kind}-${at}`
          proxy.break({ side, at, kind } satisfies Fault)
          expect(await start(hf, id).then((run) => run.result())).toBe(id)
          ids.push(id)
          if (!proxy.isBroken) break
        }
        expect(ids.length * stride).toBeGreaterThan(40)
        const { rows } = await scene.admin.query(`SELECT run FROM ${paid}`)
        const sorted = ids.toSorted()
        expect(done['effect']?.toSorted()).toEqual(sorted)
        expect(done['step']?.toSorted()).toEqual(sorted)
        expect(rows.map(({ run }) => run).sort()).toEqual(sorted)
        for (const id of ids) {
          const types = (await (await hf.runs.get(id)).events()).map(({ type }) => type)
          expect([id, types.filter((type) => /_(completed|failed|unsure)$/.test(type))]).toEqual([
            id,
            ['step_completed', 'effect_completed', 'step_completed', 'run_completed'],
          ])
        }
      })
    }
  }

  /** Who starts a run may learn that nothing was written, and asks again under the same id. */
  async function start(hf: Holdfast, id: string) {
    for (;;) {
      try {
        return await hf.start('pay', undefined, { id })
      } catch (error) {
        if (!(error instanceof HoldfastError) || error.code !== 'store_unavailable') throw error
      }
    }
  }
})
