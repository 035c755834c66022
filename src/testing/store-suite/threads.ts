import { expect } from 'vitest'
import { listAllRuns } from '../store-contents.ts'
import {
  change,
  edit,
  event,
  guarded,
  leased,
  newRun,
  ok,
  refusalOf,
  type Scene,
  type StoreTest,
  stepCompleted,
} from './scene.ts'

async function deleteThread(scene: Scene, threadId: string, owner = ''): Promise<boolean> {
  return scene.store.deleteThread({ owner, threadId, at: await scene.store.now() })
}

export function testThreads(test: StoreTest): void {
  test('an edit by hand of a thread that is not there makes it', async (scene) => {
    const answer = ok(await scene.commit(edit('t', 0, { snapshot: '{"a":1}', stateVersion: 3, label: 'start' })))
    expect([answer.firstSeq, answer.lastSeq, answer.hasMail]).toEqual([1, 1, false])
    expect(await scene.thread('t')).toMatchObject({
      headSeq: 1,
      stateVersion: 3,
      incarnation: 1,
      baseSeq: 0,
      createdAt: answer.now,
    })
    expect(await scene.store.readSnapshot({ owner: '', threadId: 't', atSeq: 1 })).toEqual({
      seq: 1,
      state: '{"a":1}',
      stateVersion: 3,
    })
    expect(await scene.store.listCheckpoints({ owner: '', threadId: 't' })).toMatchObject([
      { seq: 1, runId: null, label: 'start' },
    ])
  })

  test('an edit by hand is refused with conflict when the log does not end where the editor thinks', async (scene) => {
    expect(refusalOf(await scene.commit(edit('t', 1)))).toBe('conflict')
    expect(await scene.store.readThread({ owner: '', threadId: 't' })).toBeNull()
    ok(await scene.commit(edit('t', 0)))
    const before = await scene.contents()
    for (const headSeq of [0, 2, -1]) expect(refusalOf(await scene.commit(edit('t', headSeq)))).toBe('conflict')
    expect(await scene.contents()).toEqual(before)
    ok(await scene.commit(edit('t', 1)))
  })

  test('an edit by hand is refused with conflict while a run of the thread is held', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r', threadId: 't' })
    expect(refusalOf(await scene.commit(edit('t', 1)))).toBe('conflict')
    scene.advance(1_000_000)
    expect(refusalOf(await scene.commit(edit('t', 1)))).toBe('conflict')
    await scene.leave(claim, 'waiting', { due: 'never' })
    ok(await scene.commit(edit('t', 2)))
    const log = await scene.store.readLog({ owner: '', threadId: 't' })
    expect(log.map(({ runId }) => runId)).toEqual(['r', 'r', null])
  })

  test('an edit by hand goes through beside runs that are pending, paused or finished', async (scene) => {
    await scene.leave(await scene.createAndClaim({ id: 'a', threadId: 't' }), 'completed')
    await scene.leave(await scene.createAndClaim({ id: 'b', threadId: 't' }), 'paused')
    await scene.create({ id: 'c', threadId: 't' })
    ok(await scene.commit(edit('t', 5)))
  })

  test('an edit does not mind the held runs of other threads', async (scene) => {
    await scene.createAndClaim({ id: 'r', threadId: 't10' })
    ok(await scene.commit(edit('t1', 0)))
  })

  test('S6: a hundred turns of a thread go one at a time', async (scene) => {
    const creates = Array.from({ length: 100 }, (_, index) => newRun({ id: `r-${index}`, threadId: 't' }))
    ok(await scene.commit(change({ threadId: 't', creates })))
    for (let index = 0; index < 100; index++) {
      const claim = await scene.claimOne()
      expect(claim.run.id).toBe(`r-${index}`)
      await scene.write(claim, { events: [event('run_completed')], run: { status: 'completed', setsEnd: true } })
    }
    expect((await scene.thread('t')).headSeq).toBe(200)
  })

  test('deleting a thread leaves a tombstone and nothing else', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r', threadId: 't' })
    await scene.write(claim, { events: [stepCompleted('s')], snapshot: '{}', stateVersion: 2, label: 'mark' })
    await scene.create({ id: 'next', threadId: 't' })
    await scene.deliver({ runId: 'r' })
    const at = await scene.store.now()
    expect(await scene.store.deleteThread({ owner: '', threadId: 't', at })).toBe(true)
    expect(await scene.thread('t')).toMatchObject({ headSeq: 3, incarnation: 1, deletedAt: at })
    expect(await scene.store.readLog({ owner: '', threadId: 't' })).toEqual([])
    expect(await scene.store.listCheckpoints({ owner: '', threadId: 't' })).toEqual([])
    expect(await scene.store.readSnapshot({ owner: '', threadId: 't', atSeq: 1_000 })).toBeNull()
    expect(await scene.store.tag({ owner: '', threadId: 't', seq: 2, label: 'x' })).toMatchObject({ ok: false })
    expect(await scene.store.readRun({ owner: '', runId: 'r' })).toBeNull()
    expect(await scene.store.readRun({ owner: '', runId: 'next' })).toBeNull()
    expect(await listAllRuns(scene.store, { owner: '', limit: 10 })).toEqual([])
    expect(await scene.store.readInbox({ owner: '', runId: 'r' })).toEqual([])
    scene.advance(1_000_000)
    expect(await scene.claim()).toEqual([])
  })

  test('deleting what is not there, or not there any more, is false', async (scene) => {
    expect(await deleteThread(scene, 't')).toBe(false)
    expect(await scene.store.readThread({ owner: '', threadId: 't' })).toBeNull()
    await scene.create({ id: 'r', threadId: 't' })
    expect(await deleteThread(scene, 't')).toBe(true)
    const tombstone = await scene.thread('t')
    scene.advance(1_000)
    expect(await deleteThread(scene, 't')).toBe(false)
    expect(await scene.thread('t')).toEqual(tombstone)
  })

  test('deleting a thread touches no other', async (scene) => {
    for (const threadId of ['t', 't1', 'T', 't%', '%']) await scene.create({ id: `r-${threadId}`, threadId })
    expect(await deleteThread(scene, '%')).toBe(true)
    expect(await deleteThread(scene, 't')).toBe(true)
    for (const threadId of ['t1', 'T', 't%']) {
      expect((await scene.run(`r-${threadId}`)).status).toBe('pending')
      expect(await scene.store.readLog({ owner: '', threadId })).toHaveLength(1)
    }
  })

  test('S2: a late writer cannot bring a deleted thread back', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r', threadId: 't' })
    await scene.write(claim, { events: [event('run_started')], run: { startsTape: true } })
    await deleteThread(scene, 't')
    const late = { events: [stepCompleted('late')], snapshot: '{}', stateVersion: 2, creates: [newRun({ id: 'child' })] }
    const refusals = async () => [
      refusalOf(await scene.commit(leased(claim, late))),
      refusalOf(await scene.commit(leased(claim, { run: { status: 'completed' } }))),
      refusalOf(await scene.commit(guarded(claim.run, {}, late))),
      refusalOf(await scene.commit(edit('t', 2))),
      refusalOf(await scene.commit(edit('t', 0))),
    ]
    expect(await refusals()).toEqual(['lease_lost', 'lease_lost', 'run_not_found', 'thread_deleted', 'thread_deleted'])
    const before = await scene.contents()
    await refusals()
    expect(await scene.contents()).toEqual(before)
    const unguarded = await scene.commit(change({ threadId: 't', runId: 'r', events: [stepCompleted('late')] }))
    expect(['thread_deleted', 'run_not_found']).toContain(refusalOf(unguarded))
    expect(refusalOf(await scene.commit(change({ threadId: 't', events: [event('state_updated')] })))).toBe('thread_deleted')
    expect(await scene.contents()).toEqual(before)
    const lease = { owner: '', runId: 'r', epoch: claim.run.epoch, leaseId: claim.leaseId }
    expect(await scene.store.renew({ leaseMs: 10_000, leases: [lease] })).toMatchObject([{ isHeld: false }])
    expect(await scene.store.readRun({ owner: '', runId: 'child' })).toBeNull()
  })

  test('S3: a new life goes on at the next position, with a new incarnation and none of the old', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r', threadId: 't' })
    await scene.write(claim, {
      events: [stepCompleted('a'), stepCompleted('b')],
      snapshot: '{"old":1}',
      stateVersion: 5,
      label: 'old',
    })
    await deleteThread(scene, 't')
    const reborn = await scene.create({ id: 'r', threadId: 't', ifBusy: 'reject' })
    expect(reborn).toMatchObject({ status: 'pending', inputSeq: 4, claimsWithoutProgress: 0, tapeSeq: null, startedAt: null })
    expect(await scene.thread('t')).toMatchObject({ headSeq: 4, baseSeq: 3, incarnation: 2, deletedAt: null, stateVersion: 0 })
    const log = await scene.store.readLog({ owner: '', threadId: 't' })
    expect(log.map(({ seq, type }) => [seq, type])).toEqual([[4, 'run_queued']])
    expect(await scene.store.readSnapshot({ owner: '', threadId: 't', atSeq: 1_000 })).toBeNull()
    expect(await scene.store.listCheckpoints({ owner: '', threadId: 't' })).toMatchObject([{ seq: 4, label: null }])
    expect(await scene.store.listCheckpoints({ owner: '', threadId: 't', label: 'old' })).toEqual([])
  })

  test('S5: epochs of a new life continue, so that an old holder never matches', async (scene) => {
    let claim = await scene.createAndClaim({ id: 'r', threadId: 't' })
    claim = await scene.takeOver(claim)
    claim = await scene.takeOver(claim)
    expect(claim.run.epoch).toBe(3)
    await deleteThread(scene, 't')
    expect((await scene.create({ id: 'r', threadId: 't' })).epoch).toBe(3)
    const fresh = await scene.claimOne()
    expect(fresh.run.epoch).toBe(4)
    expect(fresh.leaseId).not.toBe(claim.leaseId)
    expect(refusalOf(await scene.commit(leased(claim, { events: [stepCompleted('late')] })))).toBe('lease_lost')
    const lease = { owner: '', runId: 'r', epoch: claim.run.epoch, leaseId: claim.leaseId }
    expect(await scene.store.renew({ leaseMs: 10_000, leases: [lease] })).toMatchObject([{ isHeld: false }])
    await scene.write(fresh, { events: [stepCompleted('good')] })
    const log = await scene.store.readLog({ owner: '', threadId: 't' })
    expect(log.map(({ step }) => step)).toEqual([null, 'good'])
  })

  test('S5: the floor of epochs is the highest of all deleted runs, over many lives', async (scene) => {
    let claim = await scene.createAndClaim({ id: 'a', threadId: 't' })
    claim = await scene.takeOver(claim)
    await scene.leave(claim, 'completed')
    await scene.create({ id: 'b', threadId: 't' })
    await deleteThread(scene, 't')
    expect((await scene.create({ id: 'c', threadId: 't' })).epoch).toBe(2)
    await deleteThread(scene, 't')
    expect((await scene.create({ id: 'd', threadId: 't' })).epoch).toBe(2)
    expect(await scene.thread('t')).toMatchObject({ incarnation: 3, baseSeq: 4, headSeq: 5 })
  })

  test('the thread of a new life can be edited and deleted like any', async (scene) => {
    await scene.create({ id: 'r', threadId: 't' })
    await deleteThread(scene, 't')
    await scene.create({ id: 's', threadId: 't' })
    ok(await scene.commit(edit('t', 2, { snapshot: '{"new":1}' })))
    expect(await scene.store.readSnapshot({ owner: '', threadId: 't', atSeq: 3 })).toMatchObject({ seq: 3, state: '{"new":1}' })
    expect(await deleteThread(scene, 't')).toBe(true)
    expect(await scene.store.readLog({ owner: '', threadId: 't' })).toEqual([])
  })

  test('S6: after a deletion the line of the new life starts with its own first run', async (scene) => {
    await scene.create({ id: 'a', threadId: 't', due: { inMs: 99_000_000 } })
    await scene.create({ id: 'b', threadId: 't' })
    expect(await scene.claim()).toEqual([])
    await deleteThread(scene, 't')
    await scene.create({ id: 'c', threadId: 't' })
    await scene.create({ id: 'd', threadId: 't' })
    expect(await scene.claimedIds()).toEqual(['c'])
  })
}
