import { describe, expect, it, vi } from 'vitest'
import type { Change } from '../../src/store/change.ts'
import type { Claim } from '../../src/store/store.ts'
import { patience } from '../patience.ts'
import type { Fault } from './postgres-proxy.ts'
import { codeOf, usePostgres } from './postgres-scene.ts'
import { claimRequest, createAndClaim, creating, event, stepping } from './sqlite-scene.ts'

const scene = usePostgres()

it('a heartbeat whose answer does not come is given up before its lease is over, and the next one is heard', async () => {
  const { store, proxy } = await scene.openOnProxy({ patience: {}, poolSize: { min: 0, max: 1 } })
  const claim = await createAndClaim(store, 'r')
  const leases = [{ owner: '', runId: 'r', epoch: claim.run.epoch, leaseId: claim.leaseId }]
  const leaseMs = patience(3_000)
  await store.renew({ leaseMs, leases })
  proxy.break({ side: 'server', at: 1, kind: 'swallow' })
  const sentAt = performance.now()
  expect(await codeOf(store.renew({ leaseMs, leases }))).toBe('store_unavailable')
  expect(performance.now() - sentAt).toBeLessThan(leaseMs * 0.7)
  expect(await store.renew({ leaseMs, leases })).toMatchObject([{ isHeld: true }])
})

it('a lost answer that can no longer be looked up is outcome_unknown: the write is not made again', async () => {
  const { store, proxy } = await scene.openOnProxy({ patience: { answerMs: patience(2_000) }, poolSize: { min: 0, max: 1 } })
  const claim = await createAndClaim(store, 'r')
  await store.commit([stepping(claim)])
  proxy.break({ side: 'server', at: 1, kind: 'swallow' })
  const code = codeOf(store.commit([stepping(claim)]))
  await vi.waitUntil(async () => (await scene.admin.query(`SELECT FROM "${scene.schema}".log`)).rows.length === 3)
  // As if its process had been stopped for a day, and others had taken away what it left.
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 86_400_000 })
  scene.afterwards(async () => void vi.useRealTimers())
  await scene.admin.query(`DELETE FROM "${scene.schema}".writers`)
  expect(await code).toBe('outcome_unknown')
  expect(await store.readLog({ owner: '', threadId: 'r' })).toHaveLength(3)
})

describe('a connection that breaks at any message', () => {
  const twoSteps = (claim: Claim): Change[] => [stepping(claim), stepping(claim, { label: 'here' })]
  const intent = (claim: Claim): Change[] => [
    stepping(claim, {
      events: [event('effect_intended')],
      operation: { kind: 'intend', key: 'k', name: 'send' },
      mustSync: true,
    }),
  ]
  const writes: Record<string, { changes: (claim: Claim) => Change[]; events: number }> = {
    'a lone step': { changes: (claim) => [stepping(claim)], events: 1 },
    'a batch': { changes: twoSteps, events: 2 },
    'an intent': { changes: intent, events: 1 },
    'the end of a run': {
      changes: (claim) => [stepping(claim, { run: { status: 'completed', setsEnd: true } })],
      events: 1,
    },
  }
  // Bind, Describe, Execute, Sync; the answer to each, the row, and the end of it: with one more, nothing breaks.
  const places: Omit<Fault, 'kind'>[] = [
    ...[1, 2, 3, 4].map((at) => ({ side: 'client', at }) as const),
    ...[1, 2, 3, 4, 5].map((at) => ({ side: 'server', at }) as const),
  ]
  for (const [name, { changes, events }] of Object.entries(writes)) {
    // A silent connection costs the time until it is given up; the two functions that write steps are enough.
    const kinds = name === 'a lone step' || name === 'an intent' ? (['cut', 'swallow'] as const) : (['cut'] as const)
    for (const kind of kinds) {
      it(`${kind}: ${name} is written once and answered`, async () => {
        const { store, proxy } = await scene.openOnProxy()
        let round = 0
        for (const place of places) {
          const id = `r-${++round}`
          const claim = await createAndClaim(store, id)
          // The statement is prepared on whatever connection comes next: the messages are those of later calls.
          await store.commit([stepping(claim)])
          proxy.break({ ...place, kind })
          const answers = await store.commit(changes(claim))
          expect([place, answers.map(({ ok }) => ok)]).toEqual([place, answers.map(() => true)])
          const log = await store.readLog({ owner: '', threadId: id })
          expect([place, log.length]).toEqual([place, 2 + events])
          expect([place, answers.at(-1)]).toMatchObject([place, { lastSeq: 2 + events }])
          if (name === 'an intent') {
            const done = stepping(claim, { operation: { kind: 'complete', key: 'k', result: '1' } })
            expect((await store.commit([done]))[0]?.ok).toBe(true)
            await scene.admin.query(`DELETE FROM "${scene.schema}".operations`)
          }
          if (name !== 'the end of a run') await store.commit([stepping(claim, { run: { status: 'completed' } })])
        }
        expect(proxy.isBroken).toBe(true)
      })
    }
  }

  it('cut: a run is claimed once, and the claim is not lost', async () => {
    const { store, proxy } = await scene.openOnProxy()
    await store.commit([creating('warm')])
    await store.claim(claimRequest())
    for (const [round, place] of places.entries()) {
      await store.commit([creating(`r-${round}`)])
      await store.readRun({ owner: '', runId: `r-${round}` })
      proxy.break({ ...place, kind: 'cut' })
      const claims = await store.claim(claimRequest())
      expect([place, claims.map(({ run }) => [run.id, run.epoch, run.claimsWithoutProgress])]).toEqual([
        place,
        [[`r-${round}`, 1, 1]],
      ])
      expect(claims[0]?.input).toBe(`"input of r-${round}"`)
      expect((await store.commit([stepping(claims[0] as Claim)]))[0]?.ok).toBe(true)
    }
  })

  /** Only in the statement that looks up what a claim has taken whose answer was lost. */
  const lookUp = 'unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[])'

  it('cut: what was claimed is looked up until it is answered, however often the connection breaks meanwhile', async () => {
    const { store, proxy } = await scene.openOnProxy()
    await store.commit([creating('a'), creating('b')])
    const before = await store.now()
    proxy.break({ side: 'server', at: 1, kind: 'cut', after: '_claim(' })
    proxy.cutAtStatement(lookUp, 5)
    const claims = await store.claim(claimRequest())
    expect([proxy.isBroken, proxy.cutsLeft]).toEqual([true, 0])
    expect(claims.map(({ run }) => [run.id, run.epoch, run.claimsWithoutProgress])).toEqual([
      ['a', 1, 1],
      ['b', 1, 1],
    ])
    for (const claim of claims) {
      expect(claim.now).toBeGreaterThanOrEqual(before)
      expect((await store.commit([stepping(claim)]))[0]?.ok).toBe(true)
    }
  })

  it('cut: what was claimed is given up when its leases are over, and can be claimed again', async () => {
    const { store, proxy } = await scene.openOnProxy()
    await store.commit([creating('a')])
    proxy.break({ side: 'server', at: 1, kind: 'cut', after: '_claim(' })
    proxy.cutAtStatement(lookUp, 1_000_000)
    expect(await codeOf(store.claim(claimRequest({ leaseMs: 300 })))).toBe('store_unavailable')
    proxy.cutAtStatement(lookUp, 0)
    const [claim] = await vi.waitFor(async () => {
      const found = await store.claim(claimRequest())
      expect(found).toHaveLength(1)
      return found
    })
    expect(claim).toMatchObject({ run: { id: 'a', epoch: 2 }, takenFrom: { why: 'lease_expired' } })
  })

  it('cut: a start makes one run, a message arrives once, a deletion says that it deleted', async () => {
    const { store, proxy } = await scene.openOnProxy()
    for (const [round, place] of places.entries()) {
      const runId = `r-${round}`
      proxy.break({ ...place, kind: 'cut' })
      const [started] = await store.commit([creating(runId)])
      expect([place, started]).toMatchObject([place, { ok: true, created: [{ isNew: true }] }])
      proxy.break({ ...place, kind: 'cut' })
      expect([place, await store.deliver({ owner: '', runId, kind: 'signal', name: 'go', payload: '1' })]).toEqual([
        place,
        { ok: true },
      ])
      expect([place, await store.readInbox({ owner: '', runId })]).toMatchObject([place, [{ payload: '1' }]])
      expect(await store.readInbox({ owner: '', runId })).toHaveLength(1)
      proxy.break({ ...place, kind: 'cut' })
      expect([place, await store.deleteThread({ owner: '', threadId: runId, at: 1 })]).toEqual([place, true])
    }
  })

  it("cut: the user's rows and the checkpoint of a transaction are both there or both not", async () => {
    const { store, proxy } = await scene.openOnProxy()
    await scene.admin.query(`CREATE TABLE "${scene.schema}_user" (n int)`)
    scene.afterwards(() => scene.admin.query(`DROP TABLE "${scene.schema}_user"`))
    const claim = await createAndClaim(store, 'r')
    const { epoch } = claim.run
    const guarded = { owner: '', runId: 'r', threadId: 'r', epoch, leaseId: claim.leaseId, timeoutMs: 5_000 }
    let written = 0
    let failed = 0
    // The server's messages of a whole transaction, and a few more.
    for (let at = 1; at <= 32; at++) {
      await store.readRun({ owner: '', runId: 'r' })
      proxy.break({ side: 'server', at, kind: 'cut' })
      const code = await codeOf(
        store.transact?.(guarded, async (tx) => {
          await tx.query(`INSERT INTO "${scene.schema}_user" VALUES ($1)`, [at])
          return stepping(claim)
        }) ?? Promise.resolve(),
      )
      proxy.break({ side: 'server', at: 1_000_000, kind: 'cut' })
      expect(['none', 'store_unavailable']).toContain(code)
      if (code === 'none') written += 1
      else failed += 1
      const { rows } = await scene.admin.query(`SELECT count(*)::int AS count FROM "${scene.schema}_user"`)
      expect([at, rows[0].count, (await store.readThread({ owner: '', threadId: 'r' }))?.headSeq]).toEqual([
        at,
        written,
        written + 1,
      ])
    }
    expect([written > 3, failed > 3]).toEqual([true, true])
  })

  it('reads are asked again on another connection', async () => {
    const { store, proxy } = await scene.openOnProxy()
    await store.commit([creating('r')])
    for (const place of places) {
      await store.readRun({ owner: '', runId: 'r' })
      proxy.break({ ...place, kind: 'cut' })
      expect([place, (await store.readRun({ owner: '', runId: 'r' }))?.id]).toEqual([place, 'r'])
    }
  })

  it('a server that stays away leaves outcome_unknown, and nothing but that', async () => {
    const { store, proxy } = await scene.openOnProxy({
      patience: { answerMs: patience(300), unknownMs: patience(500) },
      poolSize: { min: 0, max: 1 },
    })
    const claim = await createAndClaim(store, 'r')
    await store.commit([stepping(claim)])
    proxy.refuse(true)
    proxy.break({ side: 'server', at: 1, kind: 'cut' })
    expect(await codeOf(store.commit([stepping(claim)]))).toBe('outcome_unknown')
    // Nothing was sent, so nothing was written.
    expect(await codeOf(store.commit([stepping(claim)]))).toBe('store_unavailable')
    expect(await codeOf(store.readRun({ owner: '', runId: 'r' }))).toBe('store_unavailable')
    proxy.refuse(false)
    expect((await store.commit([stepping(claim)]))[0]?.ok).toBe(true)
  })

  it('a statement that outlives its connection is given up, so that it cannot be written after its repetition', async () => {
    const { store, proxy } = await scene.openOnProxy({ patience: { answerMs: 300, unknownMs: patience(20_000) } })
    const claim = await createAndClaim(store, 'r')
    await store.commit([stepping(claim)])
    const blocker = await scene.admin.connect()
    await blocker.query('BEGIN')
    await blocker.query(`SELECT FROM "${scene.schema}".threads FOR UPDATE`)
    // Its answer is swallowed and it hangs on the lock; the repetition hangs behind it.
    proxy.break({ side: 'server', at: 1, kind: 'swallow' })
    const commit = store.commit([stepping(claim)])
    await new Promise((resolve) => setTimeout(resolve, 1_000))
    await blocker.query('COMMIT')
    blocker.release()
    expect((await commit)[0]).toMatchObject({ ok: true })
    await vi.waitFor(async () => {
      const { rows } = await scene.admin.query(
        `SELECT count(*)::int AS count FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%"${scene.schema}"%' AND pid <> pg_backend_pid()`,
      )
      expect(rows[0].count).toBe(0)
    })
    expect(await store.readLog({ owner: '', threadId: 'r' })).toHaveLength(3)
  })
})
