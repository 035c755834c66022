import { open, workflow } from 'holdfast'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { openPostgresStore } from '../../src/stores/postgres/postgres-store.ts'
import { type Pgbouncer, startPgbouncer } from '../servers/pgbouncer.ts'
import { sharedPostgres } from '../servers/postgres.ts'
import { testPostgres, useSharedSchema } from './postgres-suite.ts'
import { createAndClaim, stepping } from './sqlite-scene.ts'

/**
 * Postgres behind pgbouncer in transaction mode: every statement may meet another session, so nothing that belongs to a session
 * can be relied on. This version of it knows nothing of prepared statements.
 */

let bouncer: Pgbouncer

beforeAll(async () => {
  bouncer = await startPgbouncer((await sharedPostgres()).url)
})
afterAll(() => bouncer.stop())
const schema = useSharedSchema(async () => bouncer.url)
const url = () => `${bouncer.url}?schema=${schema.name}`

testPostgres('postgres behind pgbouncer', schema, ['creating', 'claiming', 'queues', 'leases', 'commits', 'inbox', 'concurrency'])

describe('behind pgbouncer', () => {
  it('what one process starts another executes, found by polling where notifications do not arrive', async () => {
    const add = workflow('add', async (ctx, input: { a: number; b: number }) => {
      const sum = await ctx.step('sum', () => input.a + input.b)
      await ctx.sleep(10)
      return await ctx.step('double', () => sum * 2)
    })
    const worker = await open(url(), { workflows: [add], worker: { pollMs: 50 } })
    const client = await open(url(), { worker: false })
    const runs = await Promise.all(Array.from({ length: 20 }, (_, n) => client.start('add', { a: n, b: 1 })))
    expect(await Promise.all(runs.map((run) => run.result()))).toEqual(runs.map((_, n) => (n + 1) * 2))
    await client.close()
    await worker.close()
  })

  it("a transaction writes the user's rows and the checkpoint, or neither", async () => {
    const store = await openPostgresStore({ url: url(), durability: 'full' })
    await store.migrate()
    await schema.pool.query(`CREATE TABLE "${schema.name}_user" (n int)`)
    const claim = await createAndClaim(store, 'transacting')
    const { owner, id: runId, threadId, epoch } = claim.run
    const guarded = { owner, runId, threadId, epoch, leaseId: claim.leaseId, timeoutMs: 5_000 }
    const transact = (n: number) =>
      store.transact?.(guarded, async (tx) => {
        await tx.query(`INSERT INTO "${schema.name}_user" VALUES ($1)`, [n])
        if (n === 2) throw new Error('two is too many')
        return stepping(claim)
      })
    expect(await transact(1)).toMatchObject({ ok: true, lastSeq: 2 })
    await expect(transact(2)).rejects.toThrow('two is too many')
    expect(await transact(3)).toMatchObject({ ok: true, lastSeq: 3 })
    expect((await schema.pool.query(`SELECT n FROM "${schema.name}_user" ORDER BY n`)).rows).toEqual([{ n: 1 }, { n: 3 }])
    await schema.pool.query(`DROP TABLE "${schema.name}_user"`)
    await store.close()
  })
})
