import { expect } from 'vitest'
import type { RunStatus } from '../../model/run.ts'
import { plainPayload } from '../store-contents.ts'
import { change, event, newRun, ok, refusalOf, type StoreTest, stepCompleted } from './scene.ts'

export function testCreating(test: StoreTest): void {
  test('a new run is pending, unclaimed, and on a thread of its own', async (scene) => {
    const before = await scene.store.now()
    const run = await scene.create({
      id: 'r1',
      threadId: 't1',
      workflow: 'chat',
      version: 3,
      queue: 'slow',
      priority: 7,
      fingerprint: 'abc',
    })
    expect(run).toMatchObject({
      ...{ owner: '', id: 'r1', threadId: 't1', workflow: 'chat', version: 3, queue: 'slow', priority: 7, fingerprint: 'abc' },
      ...{
        status: 'pending',
        reason: null,
        epoch: 0,
        leaseId: null,
        leaseUntil: null,
        leaseHolder: null,
        claimsWithoutProgress: 0,
      },
      ...{ currentStep: null, inputSeq: 1, tapeSeq: null, endSeq: null, startedAt: null, finishedAt: null },
    })
    expect(run.createdAt).toBeGreaterThanOrEqual(before)
    expect(run.dueAt).toBeGreaterThanOrEqual(before)
    expect(await scene.run('r1')).toEqual(run)
    expect(await scene.thread('t1')).toMatchObject({ headSeq: 1, stateVersion: 0, incarnation: 1, baseSeq: 0, deletedAt: null })
  })

  test('the run_queued event holds the input and is a checkpoint of the new thread', async (scene) => {
    const queued = event('run_queued', { payload: '{"topic":"refunds"}', at: 123_456, durationMs: 7 })
    await scene.create({ id: 'r1', threadId: 't1', queued })
    const log = await scene.store.readLog({ owner: '', threadId: 't1' })
    expect(log).toEqual([{ ...queued, seq: 1, runId: 'r1', isCheckpoint: true }])
    const checkpoints = await scene.store.listCheckpoints({ owner: '', threadId: 't1' })
    expect(checkpoints).toEqual([{ seq: 1, at: 123_456, runId: 'r1', step: null, label: null, bytes: 19 }])
  })

  test('a run on a thread with history is queued at the next position', async (scene) => {
    await scene.create({ id: 'r1', threadId: 't' })
    const second = await scene.create({ id: 'r2', threadId: 't' })
    expect(second.inputSeq).toBe(2)
    const log = await scene.store.readLog({ owner: '', threadId: 't' })
    expect(log.map(({ seq, runId, type }) => [seq, runId, type])).toEqual([
      [1, 'r1', 'run_queued'],
      [2, 'r2', 'run_queued'],
    ])
  })

  test('S7: creating one id twice is one run, and the second time writes nothing', async (scene) => {
    const first = await scene.create({ id: 'r', threadId: 't', fingerprint: 'one' })
    const before = await scene.contents()
    const again = newRun({ id: 'r', threadId: 't', fingerprint: 'two', workflow: 'other', priority: 9 })
    const answer = ok(await scene.commit(change({ threadId: 't', creates: [again] })))
    expect(answer.created).toEqual([{ run: first, isNew: false }])
    expect(await scene.contents()).toEqual(before)
  })

  test('S7: the same id meant for another thread is still the first run, and that thread is not made', async (scene) => {
    await scene.create({ id: 'r', threadId: 't1' })
    const answer = ok(await scene.commit(change({ threadId: 't2', creates: [newRun({ id: 'r', threadId: 't2' })] })))
    expect(answer.created[0]).toMatchObject({ isNew: false, run: { threadId: 't1' } })
    expect(await scene.store.readThread({ owner: '', threadId: 't2' })).toBeNull()
  })

  test('S7: one id twice in one change is one run', async (scene) => {
    const creates = [newRun({ id: 'r', threadId: 't' }), newRun({ id: 'r', threadId: 't' })]
    const answer = ok(await scene.commit(change({ threadId: 't', creates })))
    expect(answer.created.map(({ isNew }) => isNew)).toEqual([true, false])
    expect((await scene.thread('t')).headSeq).toBe(1)
  })

  test('S7: a finished run keeps its id', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    await scene.leave(claim, 'completed')
    const answer = ok(await scene.commit(change({ threadId: 'r', creates: [newRun({ id: 'r', ifBusy: 'reject' })] })))
    expect(answer.created[0]).toMatchObject({ isNew: false, run: { status: 'completed', epoch: 1 } })
  })

  test('created runs are answered in order, new and old', async (scene) => {
    await scene.create({ id: 'b' })
    const creates = ['a', 'b', 'c'].map((id) => newRun({ id }))
    const answer = ok(await scene.commit(change({ threadId: 'a', creates })))
    expect(answer.created.map(({ run, isNew }) => [run.id, isNew])).toEqual([
      ['a', true],
      ['b', false],
      ['c', true],
    ])
  })

  test('S7: of many starts in one batch each is judged for itself', async (scene) => {
    await scene.create({ id: 'taken', threadId: 'elsewhere' })
    await scene.create({ id: 'first', threadId: 'used' })
    await scene.store.setQueue({ name: 'small', maxQueued: 3 })
    const ids = Array.from({ length: 60 }, (_, index) => `r${index}`)
    const creates = ids.map((id, index) => {
      // Each of these stands among starts that nothing is in the way of.
      if (index === 14) return newRun({ id: 'taken' })
      if (index === 23) return newRun({ id, threadId: 'used' })
      if (index === 35) return newRun({ id: 'r31' })
      return newRun({ id, owner: index % 2 === 0 ? '' : 'o', ...(index >= 45 && index < 50 && { queue: 'small' }) })
    })
    const answers = await scene.store.commit(creates.map((one) => change({ ...one, creates: [one] })))
    const isNew = answers.map((answer) => (answer.ok ? answer.created[0]?.isNew : answer.refusal))
    const expected = ids.map((_, index) => (index === 48 || index === 49 ? 'queue_full' : index !== 14))
    expect(isNew).toEqual(expected)

    for (const [index, { owner, id, threadId, queued }] of creates.entries()) {
      if (index === 14 || index === 48 || index === 49) continue
      const seq = index === 23 ? 2 : 1
      const answer = ok(answers[index] as (typeof answers)[number])
      expect(await scene.store.readRun({ owner, runId: id })).toEqual(answer.created[0]?.run)
      expect(answer.created[0]?.run).toMatchObject({ owner, id, threadId, inputSeq: seq })
      const log = await scene.store.readLog({ owner, threadId })
      expect(log.at(-1)).toEqual({ ...queued, seq, runId: id, isCheckpoint: true })
      expect(log).toHaveLength(seq)
    }
    expect(await scene.store.readThread({ owner: '', threadId: 'taken' })).toBeNull()
    const claims = await scene.claim({ limit: 100 })
    expect(claims.filter(({ input }) => plainPayload(input) === null)).toEqual([])
    // All but the one that stands in line on a used thread.
    expect(claims).toHaveLength(2 + 60 - 1 - 2 - 1)
  })

  test('a run is due after its delay, or at its date', async (scene) => {
    const now = await scene.store.now()
    const delayed = await scene.create({ id: 'delayed', due: { inMs: 60_000 } })
    const dated = await scene.create({ id: 'dated', due: { at: now + 120_000 } })
    expect(dated.dueAt).toBe(now + 120_000)
    expect(Math.abs((delayed.dueAt ?? 0) - now - 60_000)).toBeLessThan(5_000)
    expect(await scene.claimedIds()).toEqual([])
    scene.advance(90_000)
    expect(await scene.claimedIds()).toEqual(['delayed'])
    scene.advance(60_000)
    expect(await scene.claimedIds()).toContain('dated')
  })

  const holding: RunStatus[] = ['pending', 'running', 'waiting', 'paused']
  for (const status of holding) {
    test(`ifBusy reject is refused with conflict while a ${status} run holds the thread, and nothing is written`, async (scene) => {
      await scene.create({ id: 'holder', threadId: 't' })
      if (status !== 'pending') {
        const claim = await scene.claimOne()
        if (status !== 'running') await scene.leave(claim, status, { due: 'never' })
      }
      const before = await scene.contents()
      const creates = [newRun({ id: 'neighbour', threadId: 'u' }), newRun({ id: 'late', threadId: 't', ifBusy: 'reject' })]
      expect(refusalOf(await scene.commit(change({ threadId: 't', creates })))).toBe('conflict')
      expect(await scene.contents()).toEqual(before)
      expect(await scene.store.readRun({ owner: '', runId: 'neighbour' })).toBeNull()
      expect(await scene.store.readThread({ owner: '', threadId: 'u' })).toBeNull()
    })
  }

  for (const status of ['completed', 'failed', 'cancelled'] as const) {
    test(`ifBusy reject goes through when the thread's runs are ${status}`, async (scene) => {
      await scene.leave(await scene.createAndClaim({ id: 'first', threadId: 't' }), status)
      expect((await scene.create({ id: 'second', threadId: 't', ifBusy: 'reject' })).status).toBe('pending')
    })
  }

  test('ifBusy reject for the very run that holds the thread answers with that run', async (scene) => {
    await scene.create({ id: 'r', threadId: 't' })
    const answer = ok(
      await scene.commit(change({ threadId: 't', creates: [newRun({ id: 'r', threadId: 't', ifBusy: 'reject' })] })),
    )
    expect(answer.created[0]).toMatchObject({ isNew: false, run: { id: 'r' } })
  })

  test('ifBusy reject also sees a run that the same change created before it', async (scene) => {
    const creates = [newRun({ id: 'a', threadId: 't' }), newRun({ id: 'b', threadId: 't', ifBusy: 'reject' })]
    expect(refusalOf(await scene.commit(change({ threadId: 't', creates })))).toBe('conflict')
    expect(await scene.store.readRun({ owner: '', runId: 'a' })).toBeNull()
  })

  test('ifBusy looks at the thread only, not at other threads', async (scene) => {
    await scene.create({ id: 'elsewhere', threadId: 't10' })
    expect((await scene.create({ id: 'r', threadId: 't1', ifBusy: 'reject' })).status).toBe('pending')
  })

  test('S1: a holder creates children in the same change as its own events', async (scene) => {
    const parent = await scene.createAndClaim({ id: 'parent' })
    const creates = [newRun({ id: 'child-1' }), newRun({ id: 'child-2', owner: 'ann' })]
    const answer = await scene.write(parent, { events: [stepCompleted('s'), event('child_started')], creates })
    expect([answer.firstSeq, answer.lastSeq]).toEqual([2, 3])
    expect(answer.created.map(({ run }) => [run.owner, run.id, run.inputSeq])).toEqual([
      ['', 'child-1', 1],
      ['ann', 'child-2', 1],
    ])
    expect((await scene.thread('parent')).headSeq).toBe(3)
    expect((await scene.run('child-2', 'ann')).status).toBe('pending')
  })

  test('S9: a run created later has a later time, by the clock of the store', async (scene) => {
    const first = await scene.create({ id: 'a' })
    scene.advance(86_400_000)
    const second = await scene.create({ id: 'b' })
    expect(second.createdAt - first.createdAt).toBeGreaterThanOrEqual(86_400_000)
    expect(second.createdAt - first.createdAt).toBeLessThan(86_460_000)
  })

  test('the input comes back with the claim', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r', queued: event('run_queued', { payload: '{"a":"ü"}' }) })
    expect(plainPayload(claim.input)).toBe('text:{"a":"ü"}')
  })
}
