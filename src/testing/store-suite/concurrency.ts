import { expect } from 'vitest'
import type { Claim } from '../../store/store.ts'
import { listAllRuns } from '../store-contents.ts'
import { change, edit, event, leased, newMessage, newRun, ok, refusalOf, type StoreTest, stepCompleted } from './scene.ts'

export function testConcurrency(test: StoreTest): void {
  test('S7: a hundred parallel creates of one id are one run', async (scene) => {
    const create = (index: number) =>
      change({ threadId: 't', creates: [newRun({ id: 'r', threadId: 't', fingerprint: `${index}` })] })
    const answers = await Promise.all(Array.from({ length: 100 }, (_, index) => scene.commit(create(index))))
    const created = answers.map((answer) => ok(answer).created[0])
    expect(created.filter((one) => one?.isNew)).toHaveLength(1)
    expect(new Set(created.map((one) => one?.run.fingerprint)).size).toBe(1)
    expect((await scene.thread('t')).headSeq).toBe(1)
    expect(await listAllRuns(scene.store, { owner: '', limit: 10 })).toHaveLength(1)
  })

  test('a hundred parallel runs that refuse to wait: one gets the thread', async (scene) => {
    const create = (index: number) =>
      change({ threadId: 't', creates: [newRun({ id: `r-${index}`, threadId: 't', ifBusy: 'reject' })] })
    const answers = await Promise.all(Array.from({ length: 100 }, (_, index) => scene.commit(create(index))))
    expect(answers.filter(({ ok }) => ok)).toHaveLength(1)
    expect(await scene.store.readLog({ owner: '', threadId: 't' })).toHaveLength(1)
  })

  test('S5: sixteen parallel claimers over a thousand runs get each run once', async (scene) => {
    const ids = Array.from({ length: 1_000 }, (_, index) => `r-${index}`)
    await scene.commitAll(ids.map((id) => change({ threadId: id, creates: [newRun({ id })] })))
    const granted: string[] = []
    const leaseIds = new Set<string>()
    const claimer = async (workerId: string) => {
      for (;;) {
        const claims = await scene.claim({ workerId, limit: 7, leaseMs: 600_000 })
        if (claims.length === 0) return
        for (const { run, leaseId } of claims) {
          granted.push(run.id)
          leaseIds.add(leaseId)
        }
      }
    }
    await Promise.all(Array.from({ length: 16 }, (_, index) => claimer(`w-${index}`)))
    expect(granted).toHaveLength(1_000)
    expect([...granted].sort()).toEqual([...ids].sort())
    expect(leaseIds.size).toBe(1_000)
    const runs = await listAllRuns(scene.store, { owner: '', limit: 500 })
    expect(runs.every(({ epoch, claimsWithoutProgress }) => epoch === 1 && claimsWithoutProgress === 1)).toBe(true)
  })

  test('S5: sixteen claimers at one abandoned run: one takes it', async (scene) => {
    await scene.createAndClaim({ id: 'r' })
    scene.advance(1_000_000)
    const claims = await Promise.all(Array.from({ length: 16 }, (_, index) => scene.claim({ workerId: `w-${index}` })))
    expect(claims.flat()).toHaveLength(1)
    expect((await scene.run('r')).epoch).toBe(2)
  })

  test('S6: parallel claimers never hold two runs of a thread', async (scene) => {
    const creates = Array.from({ length: 40 }, (_, index) => newRun({ id: `r-${index}`, threadId: `t-${index % 4}` }))
    ok(await scene.commit(change({ threadId: 't-0', creates })))
    const held = new Map<string, number>()
    let finished = 0
    const worker = async () => {
      while (finished < 40) {
        for (const claim of await scene.claim({ limit: 2, leaseMs: 600_000 })) {
          const { threadId } = claim.run
          held.set(threadId, (held.get(threadId) ?? 0) + 1)
          expect(held.get(threadId)).toBe(1)
          await scene.write(claim, { events: [stepCompleted('s')] })
          held.set(threadId, 0)
          await scene.write(claim, { events: [event('run_completed')], run: { status: 'completed', setsEnd: true } })
          finished += 1
        }
        await new Promise((resolve) => setImmediate(resolve))
      }
    }
    await Promise.all(Array.from({ length: 6 }, worker))
    expect(finished).toBe(40)
    for (let index = 0; index < 4; index++) expect((await scene.thread(`t-${index}`)).headSeq).toBe(30)
  })

  test('fifty parallel edits at one head: one is written, and with retries all are', async (scene) => {
    ok(await scene.commit(edit('t', 0)))
    const edits = Array.from({ length: 50 }, (_, index) =>
      edit('t', 1, { events: [event('state_updated', { patch: `${index}` })] }),
    )
    const first = await Promise.all(edits.map((one) => scene.commit(one)))
    expect(first.filter(({ ok }) => ok)).toHaveLength(1)
    expect(first.map(refusalOf).filter((refusal) => refusal === 'conflict')).toHaveLength(49)

    const insist = async (index: number) => {
      for (;;) {
        const { headSeq } = await scene.thread('t')
        const answer = await scene.commit(
          edit('t', headSeq, { events: [event('state_updated', { patch: `"insist ${index}"` })] }),
        )
        if (answer.ok) return answer.lastSeq
      }
    }
    const seqs = await Promise.all(Array.from({ length: 50 }, (_, index) => insist(index)))
    expect([...seqs].sort((a, b) => a - b)).toEqual(Array.from({ length: 50 }, (_, index) => index + 3))
    const log = await scene.store.readLog({ owner: '', threadId: 't' })
    expect(log.map(({ seq }) => seq)).toEqual(Array.from({ length: 52 }, (_, index) => index + 1))
    expect(new Set(log.map(({ patch }) => patch)).size).toBe(52)
  })

  test('S3: parallel writers of many kinds leave a gapless log and lose nothing', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r', threadId: 't' }, { leaseMs: 600_000 })
    const writes = Array.from({ length: 150 }, (_, index) =>
      index % 3 === 0
        ? scene.commit(change({ threadId: 't', creates: [newRun({ id: `n-${index}`, threadId: 't' })] }))
        : scene.commit(leased(claim, { events: [stepCompleted(`${index}-a`), stepCompleted(`${index}-b`)] })),
    )
    const answers = (await Promise.all(writes)).map(ok)
    const log = await scene.store.readLog({ owner: '', threadId: 't' })
    expect(log.map(({ seq }) => seq)).toEqual(Array.from({ length: 1 + 50 + 200 }, (_, index) => index + 1))
    for (const [index, answer] of answers.entries()) {
      if (index % 3 === 0) continue
      const written = log.slice(answer.firstSeq - 1, answer.lastSeq).map(({ step }) => step)
      expect(written).toEqual([`${index}-a`, `${index}-b`])
    }
  })

  test('S7: a hundred parallel intents of one key: one opens it', async (scene) => {
    const ids = Array.from({ length: 100 }, (_, index) => `r-${index}`)
    await scene.commitAll(ids.map((id) => change({ threadId: id, creates: [newRun({ id })] })))
    const claims = await scene.claim({ leaseMs: 600_000 })
    const operation = { kind: 'intend', key: 'k', name: 'send' } as const
    const answers = await Promise.all(
      claims.map((claim) => scene.commit(leased(claim, { events: [event('effect_intended')], operation }))),
    )
    expect(answers.filter(({ ok }) => ok)).toHaveLength(1)
    expect(answers.filter((answer) => refusalOf(answer) === 'operation_taken')).toHaveLength(99)
    const winner = claims[answers.findIndex(({ ok }) => ok)]
    expect((await scene.operation('k')).runId).toBe(winner?.run.id)
  })

  test('no message is lost or doubled when many are delivered at once', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    await Promise.all(Array.from({ length: 100 }, (_, index) => scene.deliver({ runId: 'r', payload: `${index}` })))
    const messages = await scene.store.readInbox({ owner: '', runId: 'r' })
    expect(new Set(messages.map(({ payload }) => payload)).size).toBe(100)
    expect(new Set(messages.map(({ id }) => id)).size).toBe(100)
    const answer = await scene.write(claim, { events: [stepCompleted('a')], readMessages: messages.map(({ id }) => id) })
    expect(answer.hasMail).toBe(false)
  })

  test('messages become visible in the order of their ids: none appears behind one that was seen', async (scene) => {
    await scene.create({ id: 'r', due: { inMs: 99_000_000 } })
    const ids = Array.from({ length: 8 }, (_, index) => `sender-${index}`)
    await scene.commitAll(ids.map((id) => change({ threadId: id, creates: [newRun({ id })] })))
    const claims = await scene.claim({ leaseMs: 600_000 })
    const send = async (claim: Claim) => {
      for (let count = 0; count < 20; count++) {
        if (count % 2 === 0) await scene.deliver({ runId: 'r', payload: `"${claim.run.id} ${count}"` })
        else await scene.write(claim, { delivers: [newMessage({ runId: 'r', payload: `"${claim.run.id} ${count}"` })] })
      }
    }
    let isSending = true
    const seen: number[] = []
    const read = async () => {
      for (let isLast = false; !isLast; ) {
        isLast = !isSending
        const messages = await scene.store.readInbox({ owner: '', runId: 'r' })
        expect(messages.slice(0, seen.length).map(({ id }) => id)).toEqual(seen)
        seen.push(...messages.slice(seen.length).map(({ id }) => id))
        await new Promise((resolve) => setImmediate(resolve))
      }
    }
    const sending = Promise.all(claims.map(send)).finally(() => {
      isSending = false
    })
    await Promise.all([sending, read()])
    expect(seen).toHaveLength(160)
  })

  test('runs that deliver to each other at the same time all get through', async (scene) => {
    const ids = Array.from({ length: 12 }, (_, index) => `r-${index}`)
    await scene.commitAll(ids.map((id) => change({ threadId: id, creates: [newRun({ id })] })))
    const claims = await scene.claim({ leaseMs: 600_000 })
    const deliversFrom = (index: number) =>
      [1, 5, 11].map((step) => newMessage({ runId: ids[(index * 7 + step) % ids.length] as string, payload: `${index}` }))
    for (let round = 0; round < 5; round++) {
      const batches = claims.map((claim, index) => [
        leased(claim, { events: [stepCompleted('a')], delivers: deliversFrom(index) }),
        leased(claims[(index + 6) % claims.length] as Claim, { events: [stepCompleted('b')] }),
        leased(claim, { delivers: deliversFrom(index + round) }),
      ])
      const answers = await Promise.all(batches.map((batch) => scene.commitAll(batch)))
      expect(answers.flat().every(({ ok }) => ok)).toBe(true)
    }
    const inboxes = await Promise.all(ids.map((runId) => scene.store.readInbox({ owner: '', runId })))
    expect(inboxes.flat()).toHaveLength(12 * 5 * 2 * 3)
  })

  test('S2: of a holder and the one who takes over, racing, the log has one history', async (scene) => {
    for (let round = 0; round < 10; round++) {
      const claim = await scene.createAndClaim({ id: `r-${round}` })
      scene.advance(1_000_000)
      const [late, taken] = await Promise.all([
        scene.commit(leased(claim, { events: [event('run_completed')], run: { status: 'completed', setsEnd: true } })),
        scene.claim({ limit: 1 }),
      ])
      expect([late.ok, taken.length]).toEqual(late.ok ? [true, 0] : [false, 1])
      if (taken[0] !== undefined) await scene.leave(taken[0], 'completed')
      expect(await scene.store.readLog({ owner: '', threadId: `r-${round}` })).toHaveLength(2)
    }
  })

  test('deleting a thread while it is written leaves nothing behind', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r', threadId: 't' })
    const writes = Array.from({ length: 30 }, () => scene.commit(leased(claim, { events: [stepCompleted('s')] })))
    const deletion = scene.store.deleteThread({ owner: '', threadId: 't', at: await scene.store.now() })
    const lateWrites = Array.from({ length: 30 }, () => scene.commit(leased(claim, { events: [stepCompleted('s')] })))
    expect(await deletion).toBe(true)
    await Promise.all([...writes, ...lateWrites])
    expect(await scene.store.readLog({ owner: '', threadId: 't' })).toEqual([])
    expect((await scene.thread('t')).deletedAt).not.toBeNull()
    expect(refusalOf(await scene.commit(leased(claim, { events: [stepCompleted('s')] })))).toBe('lease_lost')
  })
}
