import { open, workflow } from 'holdfast'
import pg from 'pg'
import { describe, expect, it } from 'vitest'
import { openPostgresStore } from '../../src/stores/postgres/postgres-store.ts'
import { codeOf, usePostgres } from './postgres-scene.ts'
import { claimRequest, createAndClaim, creating, stepping } from './sqlite-scene.ts'

const scene = usePostgres()

describe.each(['repeatable read', 'serializable'])('a database whose default isolation is %s', (isolation) => {
  const settings = { default_transaction_isolation: isolation }

  it('is opened for the first time by ten clients at once', async () => {
    const url = await scene.ownDatabase(settings)
    const stores = await Promise.all(
      Array.from({ length: 10 }, () => openPostgresStore({ url, durability: 'full', poolSize: { min: 0, max: 2 } })),
    )
    for (const store of stores) scene.afterwards(() => store.close())
    await Promise.all(stores.map((store) => store.migrate()))
  })

  it('claims, commits and renewals of many processes do not get in each other’s way', async () => {
    const url = await scene.ownDatabase(settings)
    const stores = await Promise.all(Array.from({ length: 4 }, () => scene.open({ url, poolSize: { min: 0, max: 3 } })))
    const ids = Array.from({ length: 60 }, (_, at) => `r-${at}`)
    await Promise.all(ids.map((id, at) => stores[at % 4]!.commit([creating(id)])))
    const claims = await Promise.all(stores.map((store) => store.claim(claimRequest({ limit: 15 }))))
    expect(claims.flat()).toHaveLength(60)
    for (let round = 0; round < 5; round++) {
      const answers = await Promise.all(
        stores.map(async (store, at) => {
          const own = claims[at] ?? []
          const leases = own.map(({ run, leaseId }) => ({ owner: '', runId: run.id, epoch: run.epoch, leaseId }))
          const [renewed, committed] = await Promise.all([
            store.renew({ leaseMs: 60_000, leases }),
            Promise.all(own.map((claim) => store.commit([stepping(claim)]))),
          ])
          return [...renewed.map(({ isHeld }) => isHeld), ...committed.flat().map(({ ok }) => ok)]
        }),
      )
      expect(answers.flat().filter((isGood) => !isGood)).toEqual([])
    }
  })

  it('a transaction of a step runs as read committed', async () => {
    const url = await scene.ownDatabase(settings)
    const store = await scene.open({ url })
    const claim = await createAndClaim(store, 'r')
    let seen: unknown
    const guarded = { owner: '', runId: 'r', threadId: 'r', epoch: claim.run.epoch, leaseId: claim.leaseId, timeoutMs: 5_000 }
    const answer = await store.transact?.(guarded, async (tx) => {
      seen = await tx.query('SHOW transaction_isolation')
      return stepping(claim)
    })
    expect([seen, answer?.ok]).toEqual([[{ transaction_isolation: 'read committed' }], true])
  })

  it('the options of the URL are kept', async () => {
    const url = new URL(await scene.ownDatabase(settings))
    url.searchParams.set('options', '-c work_mem=5MB')
    const store = await scene.open({ url: url.href })
    const claim = await createAndClaim(store, 'r')
    let seen: unknown
    const guarded = { owner: '', runId: 'r', threadId: 'r', epoch: claim.run.epoch, leaseId: claim.leaseId, timeoutMs: 5_000 }
    await store.transact?.(guarded, async (tx) => {
      seen = await tx.query('SHOW work_mem')
      return stepping(claim)
    })
    expect(seen).toEqual([{ work_mem: '5MB' }])
  })

  it("a user's pool with it is refused, and one that sets read committed is not", async () => {
    const connectionString = await scene.ownDatabase(settings)
    const pools = [undefined, '-c default_transaction_isolation=read\\ committed'].map(
      (options) => new pg.Pool({ connectionString, max: 2, ...(options === undefined ? {} : { options }) }),
    ) as [pg.Pool, pg.Pool]
    for (const pool of pools) {
      pool.on('error', () => {})
      scene.afterwards(() => pool.end())
    }
    await expect(openPostgresStore({ pool: pools[0], durability: 'full' })).rejects.toMatchObject({
      code: 'store_unavailable',
      message: expect.stringContaining('ALTER ROLE'),
    })
    const store = await openPostgresStore({ pool: pools[1], durability: 'full' })
    scene.afterwards(() => store.close())
    await store.migrate()
    expect((await store.commit([creating('r')]))[0]?.ok).toBe(true)
  })
})

it("a user's transaction of a stronger isolation is refused with what to do, and nothing is started", async () => {
  const pool = new pg.Pool({ connectionString: scene.url, max: 3 })
  scene.afterwards(() => pool.end())
  const hf = await open(`${scene.url}?schema=${scene.schema}`, { workflows: [workflow('idle', () => 1)], worker: false })
  scene.afterwards(() => hf.close())
  const client = await pool.connect()
  await client.query('BEGIN ISOLATION LEVEL SERIALIZABLE')
  await expect(hf.start('idle', undefined, { id: 'r', tx: client })).rejects.toMatchObject({
    code: 'invalid_input',
    message: expect.stringContaining('READ COMMITTED'),
  })
  await client.query('ROLLBACK')
  await client.query('BEGIN')
  await hf.start('idle', undefined, { id: 'r', tx: client })
  await client.query('COMMIT')
  client.release()
  expect(await codeOf(hf.runs.get('r'))).toBe('none')
})
