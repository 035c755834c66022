import { expect } from 'vitest'
import type { RunStatus } from '../../model/run.ts'
import type { Change, Guard } from '../../store/change.ts'
import type { Claim } from '../../store/store.ts'
import { change, event, guarded, leased, newRun, refusalOf, type Scene, type StoreTest, stepCompleted } from './scene.ts'

/** All that a holder can write, one by one and together. */
function writePaths(messageId: number): Record<string, Partial<Change>> {
  return {
    events: { events: [stepCompleted('late')] },
    'a checkpoint with a label': { events: [stepCompleted('late')], isCheckpoint: true, label: 'late' },
    'a state version': { events: [event('state_migrated', { patch: '[]' })], stateVersion: 8 },
    'a snapshot': { events: [stepCompleted('late')], snapshot: '{"late":true}' },
    completion: { events: [event('run_completed')], run: { status: 'completed', setsEnd: true } },
    failure: { events: [event('run_failed')], run: { status: 'failed', setsEnd: true } },
    cancelling: { events: [event('run_cancelled')], run: { status: 'cancelled', setsEnd: true } },
    release: { run: { status: 'pending', due: { inMs: 0 }, uncountClaim: true } },
    'a timer': { events: [event('timer_set')], run: { status: 'waiting', reason: 'timer', due: { inMs: 5 } } },
    pausing: { events: [event('run_paused')], run: { status: 'paused', reason: 'asked', setsEnd: true } },
    'a current step': { run: { currentStep: 'late' } },
    progress: { run: { hasProgress: true } },
    'a new tape': { events: [event('run_started', { payload: '2' })], run: { startsTape: true, hasNewInput: true } },
    'a longer lease': { run: { leaseMs: 99_000_000 } },
    'a child run': { creates: [newRun({ id: 'child' })] },
    'an intent': { operation: { kind: 'intend', key: 'k-new', name: 'send' }, mustSync: true },
    'an effect that happened': { operation: { kind: 'complete', key: 'k-open', result: '1' } },
    'an effect that did not happen': { operation: { kind: 'fail', key: 'k-open' } },
    'a doubt': { operation: { kind: 'doubt', key: 'k-open' } },
    'reading mail': { readMessages: [messageId] },
    nothing: {},
    everything: {
      ...{ events: [stepCompleted('late'), event('run_completed')], snapshot: '{}', stateVersion: 4, label: 'end' },
      ...{ run: { status: 'completed', setsEnd: true, hasProgress: true }, creates: [newRun({ id: 'child-2' })] },
      ...{ operation: { kind: 'complete', key: 'k-open', result: '1' }, readMessages: [messageId] },
    },
  }
}

/** A claimed run with an open operation, mail and something in its log. */
async function busyRun(scene: Scene): Promise<{ claim: Claim; messageId: number }> {
  const claim = await scene.createAndClaim({ id: 'r' })
  await scene.write(claim, { events: [event('run_started')], run: { startsTape: true } })
  await scene.write(claim, { events: [event('effect_intended')], operation: { kind: 'intend', key: 'k-open', name: 'send' } })
  await scene.deliver({ runId: 'r', payload: '"mail"' })
  const [message] = await scene.store.readInbox({ owner: '', runId: 'r' })
  return { claim, messageId: message?.id ?? -1 }
}

async function expectFenced(scene: Scene, stale: Claim, messageId: number): Promise<void> {
  const paths = writePaths(messageId)
  await scene.commitAll(Object.values(paths).map((fields) => leased(stale, fields)))
  const before = await scene.contents()
  for (const [path, fields] of Object.entries(paths)) {
    const answer = await scene.commit(leased(stale, fields))
    expect([path, refusalOf(answer)]).toEqual([path, 'lease_lost'])
    expect([path, await scene.contents()]).toEqual([path, before])
  }
}

export function testLeases(test: StoreTest): void {
  test('S2: a stale lease changes nothing, on any write path', async (scene) => {
    const { claim, messageId } = await busyRun(scene)
    const holder = await scene.takeOver(claim)
    const before = await scene.contents()
    await expectFenced(scene, claim, messageId)
    const [after] = await scene.contents()
    expect(after?.runs).toEqual(before[0]?.runs)
    expect(after?.inboxes).toEqual(before[0]?.inboxes)
    await scene.write(holder, { events: [stepCompleted('mine')] })
  })

  test('S2: the guard is equality of epoch and lease id, not an order', async (scene) => {
    const { claim, messageId } = await busyRun(scene)
    const { run, leaseId } = await scene.takeOver(claim)
    const forged: [number, string][] = [
      [run.epoch - 1, leaseId],
      [run.epoch + 1, leaseId],
      [run.epoch + 1_000_000, leaseId],
      [run.epoch, claim.leaseId],
      [run.epoch + 1, claim.leaseId],
      [run.epoch, ''],
      [run.epoch, 'null'],
      [run.epoch, `${leaseId} `],
      [run.epoch, leaseId.toUpperCase() === leaseId ? leaseId.toLowerCase() : leaseId.toUpperCase()],
      [0, leaseId],
      [-1, leaseId],
    ]
    const before = await scene.contents()
    const lies = forged.filter(([epoch, id]) => epoch !== run.epoch || id !== leaseId)
    for (const [epoch, id] of lies) {
      const fields = writePaths(messageId)['everything']
      const answer = await scene.commit(leased({ ...claim, run: { ...run, epoch }, leaseId: id }, fields))
      expect([epoch, id, refusalOf(answer)]).toEqual([epoch, id, 'lease_lost'])
    }
    const [after] = await scene.contents()
    expect(after?.runs).toEqual(before[0]?.runs)
    expect(after?.threads).toEqual(before[0]?.threads)
    expect(after?.operations).toEqual(before[0]?.operations)
  })

  const left: RunStatus[] = ['pending', 'waiting', 'paused', 'completed', 'failed', 'cancelled']
  for (const status of left) {
    test(`S2: a lease that was given up by going ${status} writes no more`, async (scene) => {
      const { claim, messageId } = await busyRun(scene)
      await scene.leave(claim, status, { due: { inMs: 60_000 } })
      expect(await scene.run('r')).toMatchObject({ status, leaseId: null, leaseUntil: null, leaseHolder: null, epoch: 1 })
      await expectFenced(scene, claim, messageId)
    })
  }

  test('S2: a run that nobody ever claimed has no lease that could write', async (scene) => {
    const run = await scene.create({ id: 'r' })
    for (const leaseId of ['', 'null', 'undefined']) {
      const fields = { events: [stepCompleted('s')], guard: { kind: 'lease', epoch: run.epoch, leaseId } as const }
      expect(refusalOf(await scene.commit(change({ threadId: 'r', runId: 'r', ...fields })))).toBe('lease_lost')
    }
    expect((await scene.thread('r')).headSeq).toBe(1)
  })

  test('S2: a lease on a run that does not exist is lost', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    const answer = await scene.commit(leased(claim, { runId: 'other', threadId: 'other', events: [stepCompleted('s')] }))
    expect(refusalOf(answer)).toBe('lease_lost')
    expect(await scene.store.readThread({ owner: '', threadId: 'other' })).toBeNull()
  })

  test('S2: the lease of one run does not write another', async (scene) => {
    await scene.create({ id: 'a' })
    await scene.create({ id: 'b' })
    const claims = await scene.claim()
    const [a, b] = ['a', 'b'].map((id) => claims.find(({ run }) => run.id === id) as Claim) as [Claim, Claim]
    expect(a.leaseId).not.toBe(b.leaseId)
    const crossed = await scene.commit(
      leased(a, { runId: 'b', threadId: 'b', events: [stepCompleted('s')], run: { status: 'completed' } }),
    )
    expect(refusalOf(crossed)).toBe('lease_lost')
    expect(await scene.run('b')).toEqual(b.run)
  })

  test('S2: the lease of a run does not write the log of another thread', async (scene) => {
    await scene.create({ id: 'other' })
    const claims = await scene.claim()
    await scene.create({ id: 'r' })
    const claim = await scene.claimOne()
    expect(claims).toHaveLength(1)
    expect(refusalOf(await scene.commit(leased(claim, { threadId: 'other', events: [stepCompleted('s')] })))).toBe('lease_lost')
    expect((await scene.thread('other')).headSeq).toBe(1)
  })

  test('S2: of two changes in one batch the stale one is refused and the good one is written', async (scene) => {
    const { claim } = await busyRun(scene)
    const holder = await scene.takeOver(claim)
    const answers = await scene.commitAll([
      leased(claim, { events: [stepCompleted('late')] }),
      leased(holder, { events: [stepCompleted('good')] }),
      leased(claim, { events: [stepCompleted('late')] }),
    ])
    expect(answers.map(refusalOf)).toEqual(['lease_lost', 'none', 'lease_lost'])
    const log = await scene.store.readLog({ owner: '', threadId: 'r' })
    expect(log.map(({ step }) => step)).not.toContain('late')
  })

  test('a lease that ran out still writes as long as nobody took the run', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    scene.advance(1_000_000)
    const answer = await scene.write(claim, { events: [stepCompleted('slow')], run: { leaseMs: 10_000 } })
    expect(answer.lastSeq).toBe(2)
    expect(await scene.claim()).toEqual([])
  })

  test('a commit with leaseMs makes the lease last that long from now on', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' }, { leaseMs: 10_000 })
    scene.advance(8_000)
    const answer = await scene.write(claim, { events: [stepCompleted('s')], run: { leaseMs: 30_000 } })
    expect((await scene.run('r')).leaseUntil).toBe(answer.now + 30_000)
    scene.advance(25_000)
    expect(await scene.claim()).toEqual([])
    scene.advance(6_000)
    expect(await scene.claimedIds()).toEqual(['r'])
  })

  test('a commit without leaseMs leaves the lease as it is', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' }, { leaseMs: 10_000 })
    scene.advance(8_000)
    await scene.write(claim, { events: [stepCompleted('s')], run: { currentStep: 's' } })
    expect((await scene.run('r')).leaseUntil).toBe(claim.run.leaseUntil)
  })

  test('renewing extends a lease that is held', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' }, { leaseMs: 100_000 })
    scene.advance(80_000)
    const lease = { owner: '', runId: 'r', epoch: claim.run.epoch, leaseId: claim.leaseId }
    expect(await scene.store.renew({ leaseMs: 100_000, leases: [lease] })).toEqual([
      { owner: '', runId: 'r', isHeld: true, hasMail: false },
    ])
    scene.advance(80_000)
    expect(await scene.claim()).toEqual([])
    expect((await scene.run('r')).epoch).toBe(1)
    scene.advance(21_000)
    expect(await scene.claimedIds()).toEqual(['r'])
  })

  test('S2: renewing tells a fenced holder, and extends nothing for it', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    const holder = await scene.takeOver(claim)
    const { epoch } = holder.run
    const pairs: [number, string][] = [
      [claim.run.epoch, claim.leaseId],
      [epoch, claim.leaseId],
      [claim.run.epoch, holder.leaseId],
      [epoch + 1, holder.leaseId],
      [epoch, ''],
    ]
    const leases = pairs.map(([epoch, leaseId]) => ({ owner: '', runId: 'r', epoch, leaseId }))
    const answers = await scene.store.renew({ leaseMs: 99_000_000, leases })
    expect(answers.map(({ isHeld }) => isHeld)).toEqual([false, false, false, false, false])
    expect(await scene.run('r')).toEqual(holder.run)
  })

  test('renewing answers for each lease in order, known or not', async (scene) => {
    await scene.create({ id: 'a' })
    await scene.create({ id: 'b' })
    const claims = await scene.claim()
    await scene.deliver({ runId: 'b' })
    const leaseOf = (id: string) => {
      const claim = claims.find(({ run }) => run.id === id) as Claim
      return { owner: '', runId: id, epoch: claim.run.epoch, leaseId: claim.leaseId }
    }
    const leases = [leaseOf('b'), { ...leaseOf('a'), runId: 'unknown' }, leaseOf('a'), { ...leaseOf('a'), owner: 'ann' }]
    expect(await scene.store.renew({ leaseMs: 10_000, leases })).toMatchObject([
      { owner: '', runId: 'b', isHeld: true, hasMail: true },
      { owner: '', runId: 'unknown', isHeld: false },
      { owner: '', runId: 'a', isHeld: true, hasMail: false },
      { owner: 'ann', runId: 'a', isHeld: false },
    ])
    expect(await scene.store.renew({ leaseMs: 10_000, leases: [] })).toEqual([])
  })

  test('renewing does not bring back a lease that was given up', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    await scene.leave(claim, 'paused')
    const lease = { owner: '', runId: 'r', epoch: claim.run.epoch, leaseId: claim.leaseId }
    expect(await scene.store.renew({ leaseMs: 10_000, leases: [lease] })).toMatchObject([{ isHeld: false }])
    expect(await scene.run('r')).toMatchObject({ status: 'paused', leaseUntil: null })
  })

  test('somebody without the lease writes only while epoch and status are what they saw', async (scene) => {
    const run = await scene.create({ id: 'r' })
    const pause = { events: [event('run_paused')], run: { status: 'paused', reason: 'asked', setsEnd: true } } as const
    const before = await scene.contents()
    expect(refusalOf(await scene.commit(guarded(run, { epoch: run.epoch + 1 }, pause)))).toBe('conflict')
    expect(refusalOf(await scene.commit(guarded(run, { epoch: run.epoch - 1 }, pause)))).toBe('conflict')
    expect(refusalOf(await scene.commit(guarded(run, { status: 'waiting' }, pause)))).toBe('conflict')
    expect(await scene.contents()).toEqual(before)
    expect(refusalOf(await scene.commit(guarded(run, {}, pause)))).toBe('none')
    expect(await scene.run('r')).toMatchObject({ status: 'paused', reason: 'asked', endSeq: 2 })
    expect(refusalOf(await scene.commit(guarded(run, {}, pause)))).toBe('conflict')
  })

  test('a write for a run that does not exist is refused with run_not_found', async (scene) => {
    const run = await scene.create({ id: 'r' })
    const fields = { runId: 'missing', events: [event('run_paused')], run: { status: 'paused' } } as const
    expect(refusalOf(await scene.commit(guarded(run, {}, fields)))).toBe('run_not_found')
    expect((await scene.thread('r')).headSeq).toBe(1)
  })

  test('S5: whoever saw a run pending loses to the claim that came between', async (scene) => {
    const run = await scene.create({ id: 'r' })
    const claim = await scene.claimOne()
    const cancel = { events: [event('run_cancelled')], run: { status: 'cancelled', setsEnd: true } } as const
    expect(refusalOf(await scene.commit(guarded(run, {}, cancel)))).toBe('conflict')
    await scene.leave(claim, 'pending')
    expect(refusalOf(await scene.commit(guarded(run, {}, cancel)))).toBe('conflict')
    expect((await scene.run('r')).status).toBe('pending')
  })

  test('S2: a running run that somebody else ends fences its holder', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    const cancel = { events: [event('run_cancelled')], run: { status: 'cancelled', setsEnd: true } } as const
    expect(refusalOf(await scene.commit(guarded(claim.run, {}, cancel)))).toBe('none')
    expect(refusalOf(await scene.commit(leased(claim, { events: [stepCompleted('late')] })))).toBe('lease_lost')
    expect(await scene.run('r')).toMatchObject({ status: 'cancelled', leaseId: null })
  })

  test('undisturbed is refused with conflict once a later run of the thread has started', async (scene) => {
    await scene.create({ id: 'first', threadId: 't' })
    await scene.create({ id: 'second', threadId: 't' })
    await scene.leave(await scene.claimOne(), 'failed')
    const failed = await scene.run('first')
    const retry = { events: [event('run_retried')], run: { status: 'pending', due: { inMs: 0 } } } as const
    const second = await scene.claimOne()
    await scene.write(second, { events: [event('run_started')], run: { startsTape: true } })
    expect(refusalOf(await scene.commit(guarded(failed, { undisturbed: true }, retry)))).toBe('conflict')
    await scene.leave(second, 'completed')
    expect(refusalOf(await scene.commit(guarded(failed, { undisturbed: true }, retry)))).toBe('conflict')
    expect(refusalOf(await scene.commit(guarded(failed, {}, retry)))).toBe('none')
  })

  test('undisturbed does not mind earlier runs, waiting ones, or those of other threads', async (scene) => {
    await scene.leave(await scene.createAndClaim({ id: 'zero', threadId: 't' }), 'completed')
    const claim = await scene.createAndClaim({ id: 'first', threadId: 't' })
    await scene.write(claim, { events: [event('run_failed')], run: { status: 'failed', startsTape: true, setsEnd: true } })
    const other = await scene.createAndClaim({ id: 'other', threadId: 'u' })
    await scene.write(other, { events: [event('run_started')], run: { startsTape: true } })
    await scene.create({ id: 'second', threadId: 't' })
    const failed = await scene.run('first')
    const retry = { events: [event('run_retried')], run: { status: 'pending', due: { inMs: 0 } } } as const
    expect(refusalOf(await scene.commit(guarded(failed, { undisturbed: true }, retry)))).toBe('none')
  })

  test('a guard with headSeq is refused with conflict once anybody has written to the log, and nothing of the change is there', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    await scene.write(claim, { events: [event('run_started')], run: { startsTape: true } })
    const { lastSeq: headSeq } = await scene.write(claim, { events: [stepCompleted('one')] })
    const end = { events: [event('run_cancelled')], run: { status: 'cancelled', reason: null, setsEnd: true } } as const
    const step = { events: [stepCompleted('two')] }
    const holders = leased(claim).guard as Extract<Guard, { kind: 'lease' }>
    const heldAt = (seq: number, fields: Partial<Change>) => leased(claim, { guard: { ...holders, headSeq: seq }, ...fields })

    await scene.create({ id: 'second', threadId: 'r' })
    const before = await scene.contents()
    for (const fields of [end, step, { ...step, label: 'two' }, {}]) {
      expect(refusalOf(await scene.commit(heldAt(headSeq, fields)))).toBe('conflict')
      expect(refusalOf(await scene.commit(heldAt(headSeq + 2, fields)))).toBe('conflict')
    }
    expect(await scene.contents()).toEqual(before)
    const forged = leased(claim, { guard: { ...holders, epoch: holders.epoch + 1, headSeq }, ...end })
    expect(refusalOf(await scene.commit(forged))).toBe('lease_lost')

    expect(await scene.commit(heldAt(headSeq + 1, step))).toMatchObject({ ok: true, firstSeq: headSeq + 2 })
    expect(
      await scene.commitAll([heldAt(headSeq + 2, step), heldAt(headSeq + 2, step), heldAt(headSeq + 3, step)]),
    ).toMatchObject([{ ok: true }, { ok: false, refusal: 'conflict' }, { ok: true }])
    await scene.write(claim, { events: [event('run_paused')], run: { status: 'paused', reason: 'asked', setsEnd: true } })
    const paused = await scene.run('r')
    const ending = (seq: number) => guarded(paused, { headSeq: seq }, end)
    expect(refusalOf(await scene.commit(ending(headSeq + 4)))).toBe('conflict')
    expect(refusalOf(await scene.commit(ending(headSeq + 5)))).toBe('none')
    expect((await scene.run('r')).status).toBe('cancelled')
  })

  test('S2: fencing outlives the store', async (scene) => {
    if (!scene.canReopen) return expect(scene.store.durability).toBe('none')
    const { claim, messageId } = await busyRun(scene)
    const holder = await scene.takeOver(claim)
    await scene.reopen()
    await expectFenced(scene, claim, messageId)
    await scene.write(holder, { events: [stepCompleted('good')] })
  })
}
