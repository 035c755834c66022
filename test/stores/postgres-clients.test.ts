import { open, workflow } from 'holdfast'
import pg from 'pg'
import { expect, it, vi } from 'vitest'
import { sharedPostgres } from '../servers/postgres.ts'
import { usePostgres } from './postgres-scene.ts'
import { testPostgres, useSharedSchema } from './postgres-suite.ts'
import { createAndClaim, stepping } from './sqlite-scene.ts'

/** The oldest version of `pg` that Holdfast takes. The newest is what all other tests use. */

// Here the package `pg` is version 8.11.0, as it is for a user who has installed that.
vi.mock('pg', () => vi.importActual('pg-8.11'))

/** What a driver carries: functions with bytes in both directions, many at once, answers of every shape. */
const parts = ['history', 'payloads', 'moving', 'concurrency'] as const
const scene = usePostgres()
const schema = useSharedSchema(async () => (await sharedPostgres()).url)

testPostgres('postgres over a pool of pg 8.11.0', schema, parts)

it('the package pg is the version that is tested here', async () => {
  const oldest = await vi.importActual<{ default: typeof pg }>('pg-8.11')
  expect(pg.Client).toBe(oldest.default.Client)
  const { version } = await vi.importActual<{ version: string }>('pg-8.11/package.json')
  expect(version).toBe('8.11.0')
})

it('postgres by its URL, with pg 8.11.0, executes runs and transactions, and tells others', async () => {
  const url = `${await scene.ownDatabase()}?schema=${scene.schema}`
  const add = workflow('add', async (ctx, n: number) => {
    const bytes = await ctx.step('bytes', () => new Uint8Array([0, 255, n]))
    const rows = await ctx.transaction('rows', (tx) => tx.query<{ sum: number }>('SELECT $1::integer + 1 AS sum', [bytes[2]]))
    await ctx.sleep(10)
    return rows[0]?.sum
  })
  const worker = await open(url, { workflows: [add] })
  scene.afterwards(() => worker.close())
  const client = await open(url, { worker: false })
  scene.afterwards(() => client.close())
  const runs = await Promise.all(Array.from({ length: 20 }, (_, n) => client.start(add, n)))
  expect(await Promise.all(runs.map((run) => run.result()))).toEqual(Array.from({ length: 20 }, (_, n) => n + 1))
})

it('postgres with pg 8.11.0 finds out about a write whose answer was cut off, and connects again', async () => {
  const { store, proxy } = await scene.openOnProxy()
  const claim = await createAndClaim(store, 'r')
  const heard: unknown[] = []
  const end = store.subscribe?.((hint) => heard.push(hint))
  await vi.waitUntil(() => heard.length > 0)
  for (const at of [1, 2, 3]) {
    proxy.break({ side: 'server', at, kind: 'cut' })
    expect(await store.commit([stepping(claim)])).toMatchObject([{ ok: true }])
    expect(proxy.isBroken).toBe(true)
  }
  const log = await store.readLog({ owner: '', threadId: claim.run.threadId, types: ['step_completed'] })
  expect(log).toHaveLength(3)
  end?.()
})
