import { expect } from 'vitest'
import type { RunStatus } from '../../model/run.ts'
import { plainPayload } from '../store-contents.ts'
import { event, type Scene, type StoreTest, stepCompleted } from './scene.ts'

const hourMs = 3_600_000

/** An hour from now: runs that are due, held, asleep and delayed. */
async function leaveRuns(scene: Scene): Promise<void> {
  scene.advance(hourMs)
  const begin = async (id: string) => {
    const claim = await scene.createAndClaim({ id }, { workerId: 'w-1' })
    await scene.write(claim, { events: [event('run_started')], run: { startsTape: true } })
    return claim
  }
  await begin('abandoned')
  await scene.leave(await begin('asleep'), 'waiting', { reason: 'timer', due: { inMs: 5_000 } })
  const released = await begin('released')
  await scene.write(released, { run: { status: 'pending', due: { inMs: 0 } } })
  await scene.create({ id: 'delayed', due: { inMs: 5_000 } })
  await scene.create({ id: 'waits' })
  await scene.create({ id: 'waits too' })
}

export function testClaiming(test: StoreTest): void {
  test('S5: a claim makes the run running, raises the epoch, names the holder and counts', async (scene) => {
    await scene.create({ id: 'r' })
    const [claim] = await scene.claim({ workerId: 'w-7', leaseMs: 10_000 })
    expect(claim?.run).toMatchObject({ id: 'r', status: 'running', epoch: 1, claimsWithoutProgress: 1, leaseId: claim?.leaseId })
    expect(claim?.leaseId).not.toBe('')
    expect(claim?.run.leaseUntil).toBe((claim?.now ?? 0) + 10_000)
    expect(claim?.run.leaseHolder).toContain('w-7')
    expect(claim).toMatchObject({ takenFrom: null, hasMail: false, thread: { owner: '', threadId: 'r', headSeq: 1 } })
    expect(await scene.run('r')).toEqual(claim?.run)
    expect(await scene.thread('r')).toEqual(claim?.thread)
  })

  test('S5: a claimed run is not claimed again while its lease lasts', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' }, { leaseMs: 60_000 })
    scene.advance(30_000)
    expect(await scene.claim()).toEqual([])
    expect((await scene.run('r')).epoch).toBe(claim.run.epoch)
  })

  test('a claim writes nothing to the log', async (scene) => {
    await scene.createAndClaim({ id: 'r' })
    expect(await scene.store.readLog({ owner: '', threadId: 'r' })).toHaveLength(1)
  })

  test('S5: an abandoned run is taken over, with a new epoch and lease, and says from whom', async (scene) => {
    const first = await scene.createAndClaim({ id: 'r' }, { workerId: 'w-1' })
    const second = await scene.takeOver(first, { workerId: 'w-2' })
    expect(second.run).toMatchObject({ status: 'running', epoch: 2, claimsWithoutProgress: 2 })
    expect(second.leaseId).not.toBe(first.leaseId)
    expect(second.run.leaseHolder).toContain('w-2')
    expect(second.takenFrom).toMatchObject({ why: 'lease_expired', leaseUntil: first.run.leaseUntil })
    expect(second.takenFrom?.holder).toBe(first.run.leaseHolder)
  })

  test('S5: every claim counts before any work, so that deaths add up', async (scene) => {
    let claim = await scene.createAndClaim({ id: 'r' })
    for (let death = 1; death <= 5; death++) {
      expect((await scene.run('r')).claimsWithoutProgress).toBe(death)
      claim = await scene.takeOver(claim)
    }
    expect(claim.run).toMatchObject({ epoch: 6, claimsWithoutProgress: 6 })
  })

  test('a claim takes no more than its limit, and the rest stay claimable', async (scene) => {
    for (const id of ['a', 'b', 'c', 'd', 'e']) await scene.create({ id })
    expect(await scene.claim({ limit: 0 })).toEqual([])
    const first = await scene.claimedIds({ limit: 2 })
    const rest = await scene.claimedIds({ limit: 10 })
    expect(first).toHaveLength(2)
    expect([...first, ...rest].sort()).toEqual(['a', 'b', 'c', 'd', 'e'])
  })

  test('abandoned runs go before those that nobody has begun, however long these have waited; a higher priority before both', async (scene) => {
    for (const id of ['first', 'second']) await scene.create({ id })
    expect(await scene.claimedIds({ leaseMs: 10_000 })).toEqual(['first', 'second'])
    for (const id of ['waits', 'waits too', 'waits as well']) await scene.create({ id })
    await scene.create({ id: 'urgent', priority: 1 })
    scene.advance(10_001)
    for (const expected of [['urgent', 'first'], ['second', 'waits'], ['waits too'], ['waits as well']]) {
      expect(await scene.claimedIds({ limit: expected.length, leaseMs: 60_000 })).toEqual(expected)
    }
    scene.advance(60_001)
    await scene.create({ id: 'late' })
    const again = await scene.claimedIds({ leaseMs: 60_000 })
    expect(again.slice(0, 1)).toEqual(['urgent'])
    expect(again.at(-1)).toBe('late')
  })

  test('no more suspects than asked for: runs that were claimed in vain twice or more', async (scene) => {
    for (const id of ['a', 'b', 'c']) await scene.create({ id })
    for (let death = 1; death <= 2; death++) {
      expect(await scene.claimedIds({ suspectLimit: 1, leaseMs: 1_000 })).toHaveLength(3)
      scene.advance(2_000)
    }
    await scene.create({ id: 'fresh' })
    expect((await scene.claimedIds({ suspectLimit: 0 })).sort()).toEqual(['fresh'])
    expect(await scene.claimedIds({ suspectLimit: 1, limit: 2 })).toHaveLength(1)
    expect(await scene.claimedIds()).toHaveLength(2)
  })

  test('higher priority goes first, then what was due first, then what was created first', async (scene) => {
    const now = await scene.store.now()
    await scene.create({ id: 'old', due: { at: now - 9_000 } })
    await scene.create({ id: 'tie-1', due: { at: now - 5_000 } })
    await scene.create({ id: 'tie-2', due: { at: now - 5_000 } })
    await scene.create({ id: 'older', due: { at: now - 20_000 } })
    await scene.create({ id: 'low', due: { at: now - 90_000 }, priority: -1 })
    await scene.create({ id: 'urgent', due: { at: now - 1_000 }, priority: 5 })
    expect(await scene.claimedIds({ limit: 1 })).toEqual(['urgent'])
    expect(await scene.claimedIds({ limit: 3 })).toEqual(['older', 'old', 'tie-1'])
    expect(await scene.claimedIds()).toEqual(['tie-2', 'low'])
  })

  test('only the queues asked for; none named means all', async (scene) => {
    for (const queue of ['a', 'b', 'c']) await scene.create({ id: `in-${queue}`, queue })
    expect(await scene.claimedIds({ queues: [] })).toEqual([])
    expect(await scene.claimedIds({ queues: ['b'] })).toEqual(['in-b'])
    expect((await scene.claimedIds()).sort()).toEqual(['in-a', 'in-c'])
  })

  test('only workflows and versions that the worker has', async (scene) => {
    await scene.create({ id: 'v1', workflow: 'chat', version: 1 })
    await scene.create({ id: 'v2', workflow: 'chat', version: 2 })
    await scene.create({ id: 'other', workflow: 'mail', version: 2 })
    expect(await scene.claimedIds({ workflows: [] })).toEqual([])
    expect(await scene.claimedIds({ workflows: [{ name: 'chat', version: 3 }] })).toEqual([])
    expect(
      await scene.claimedIds({
        workflows: [
          { name: 'mail', version: 1 },
          { name: 'chat', version: 2 },
        ],
      }),
    ).toEqual(['v2'])
    expect(
      (
        await scene.claimedIds({
          workflows: [
            { name: 'mail', version: 2 },
            { name: 'chat', version: 1 },
          ],
        })
      ).sort(),
    ).toEqual(['other', 'v1'])
  })

  test('a worker that does not understand the state of a thread does not claim its runs', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    await scene.write(claim, { events: [event('state_migrated', { patch: '[]' })], stateVersion: 3, run: { status: 'pending' } })
    const workflow = { name: 'report', version: 1 }
    expect(await scene.claimedIds({ workflows: [{ ...workflow, stateVersion: 2 }] })).toEqual([])
    expect(await scene.claimedIds({ workflows: [{ ...workflow, stateVersion: 3 }] })).toEqual(['r'])
    const again = await scene.run('r')
    expect(again.epoch).toBe(2)
  })

  test('a worker that names no state version takes any', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    await scene.write(claim, { events: [event('state_migrated')], stateVersion: 9, run: { status: 'pending' } })
    expect(await scene.claimedIds()).toEqual(['r'])
  })

  test('a run that was released is claimed again at once', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    await scene.leave(claim, 'pending', { uncountClaim: true })
    const again = await scene.claimOne()
    expect(again).toMatchObject({ run: { epoch: 2, claimsWithoutProgress: 1 }, takenFrom: null })
  })

  test('a waiting run is claimed when its time has come, not before', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    await scene.leave(claim, 'waiting', { reason: 'timer', due: { inMs: 60_000 } })
    expect(await scene.claim()).toEqual([])
    scene.advance(61_000)
    expect(await scene.claimOne()).toMatchObject({ run: { status: 'running', epoch: 2 }, takenFrom: null })
  })

  test('a wait with a date ends at that date', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    const at = claim.now + 3_600_000
    await scene.leave(claim, 'waiting', { reason: 'timer', due: { at } })
    expect((await scene.run('r')).dueAt).toBe(at)
    scene.advance(3_590_000)
    expect(await scene.claim()).toEqual([])
    scene.advance(20_000)
    expect(await scene.claimedIds()).toEqual(['r'])
  })

  test('a run that is never due by itself is not claimed, however late it is', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    await scene.leave(claim, 'waiting', { reason: 'signal', due: 'never' })
    expect((await scene.run('r')).dueAt).toBeNull()
    scene.advance(10_000_000_000)
    expect(await scene.claim()).toEqual([])
  })

  for (const status of ['paused', 'completed', 'failed', 'cancelled'] satisfies RunStatus[]) {
    test(`a ${status} run is never claimed`, async (scene) => {
      await scene.leave(await scene.createAndClaim({ id: 'r' }), status, { due: { inMs: 0 } })
      scene.advance(1_000_000)
      expect(await scene.claim()).toEqual([])
    })
  }

  for (const isReopened of [false, true]) {
    const seen = isReopened ? 'before the store was opened' : 'under an open store'
    test(`a clock that was set back ${seen} holds up neither pending nor abandoned runs`, async (scene) => {
      if (isReopened && !scene.canReopen) return
      await leaveRuns(scene)
      scene.advance(-hourMs)
      if (isReopened) await scene.reopen()
      expect((await scene.claimedIds()).sort()).toEqual(['released', 'waits', 'waits too'])
      scene.advance(10_001)
      expect(await scene.claimedIds({ workerId: 'w-2', limit: 1 })).toEqual(['abandoned'])
      scene.advance(hourMs / 2)
      const others = await scene.claim({ workerId: 'w-3' })
      expect(others.map(({ run }) => run.id).filter((id) => id === 'asleep' || id === 'delayed')).toEqual([])
      scene.advance(hourMs)
      const late = await scene.claim({ workerId: 'w-4' })
      expect(late.map(({ run }) => run.id)).toEqual(expect.arrayContaining(['asleep', 'delayed']))
    })
  }

  test('a clock that was set back does not hold up a queue with a rate limit', async (scene) => {
    await scene.store.setQueue({ name: 'slow', rateLimit: { count: 1, perMs: 1_000 } })
    scene.advance(hourMs)
    await scene.create({ id: 'first', queue: 'slow' })
    expect(await scene.claimedIds()).toEqual(['first'])
    scene.advance(-hourMs)
    await scene.create({ id: 'second', queue: 'slow' })
    expect(await scene.claimedIds()).toEqual(['second'])
  })

  test('starts that a clock a moment behind sees in the future count for the rate limit', async (scene) => {
    await scene.store.setQueue({ name: 'slow', rateLimit: { count: 1, perMs: hourMs } })
    for (const id of ['first', 'second']) await scene.create({ id, queue: 'slow' })
    expect(await scene.claimedIds()).toEqual(['first'])
    scene.advance(-2_000)
    if (scene.canReopen) await scene.reopen()
    expect(await scene.claimedIds({ workerId: 'another' })).toEqual([])
  })

  test('S6: of a thread only the earliest unfinished run is claimed, in order of creation', async (scene) => {
    for (const id of ['first', 'second', 'third']) await scene.create({ id, threadId: 't' })
    for (const id of ['first', 'second', 'third']) {
      const claim = await scene.claimOne()
      expect(claim.run.id).toBe(id)
      expect(await scene.claim()).toEqual([])
      await scene.leave(claim, 'completed')
    }
    expect(await scene.claim()).toEqual([])
  })

  test('S6: neither priority nor an earlier due date lets a later run pass', async (scene) => {
    const now = await scene.store.now()
    await scene.create({ id: 'first', threadId: 't', due: { at: now } })
    await scene.create({ id: 'second', threadId: 't', due: { at: now - 60_000 }, priority: 100 })
    expect((await scene.claimOne()).run.id).toBe('first')
  })

  test('S6: a first run that this worker cannot take, or that is not due, still holds its place', async (scene) => {
    await scene.create({ id: 'foreign', threadId: 't1', workflow: 'unknown' })
    await scene.create({ id: 'later-1', threadId: 't1' })
    await scene.create({ id: 'elsewhere', threadId: 't2', queue: 'other' })
    await scene.create({ id: 'later-2', threadId: 't2' })
    await scene.create({ id: 'tomorrow', threadId: 't3', due: { inMs: 86_400_000 } })
    await scene.create({ id: 'later-3', threadId: 't3' })
    expect(await scene.claimedIds({ queues: ['default'] })).toEqual([])
  })

  for (const status of ['waiting', 'paused', 'pending'] as const) {
    test(`S6: a ${status} first run holds its place`, async (scene) => {
      await scene.create({ id: 'first', threadId: 't' })
      const claim = await scene.claimOne()
      await scene.create({ id: 'second', threadId: 't' })
      await scene.leave(claim, status, { due: status === 'pending' ? { inMs: 50_000 } : 'never' })
      expect(await scene.claim()).toEqual([])
    })
  }

  for (const status of ['completed', 'failed', 'cancelled'] as const) {
    test(`S6: once the first run is ${status} the next one is claimable`, async (scene) => {
      await scene.create({ id: 'first', threadId: 't' })
      await scene.create({ id: 'second', threadId: 't' })
      await scene.leave(await scene.claimOne(), status)
      expect((await scene.claimOne()).run.id).toBe('second')
    })
  }

  test('S6: a failed run that is retried gets its place before the ones that did not start', async (scene) => {
    await scene.create({ id: 'first', threadId: 't' })
    await scene.create({ id: 'second', threadId: 't' })
    await scene.leave(await scene.claimOne(), 'failed')
    const failed = await scene.run('first')
    const guard = { kind: 'run', epoch: failed.epoch, status: 'failed', undisturbed: true } as const
    const retry = { owner: '', threadId: 't', runId: 'first', guard, events: [event('run_retried')], isCheckpoint: true }
    await scene.commit({ ...retry, run: { status: 'pending', due: { inMs: 0 } } })
    expect((await scene.claimOne()).run.id).toBe('first')
  })

  test('S6: runs of different threads do not wait for each other', async (scene) => {
    for (const id of ['a', 'b', 'c']) await scene.create({ id, threadId: `t-${id}` })
    expect((await scene.claimedIds()).sort()).toEqual(['a', 'b', 'c'])
  })

  test('the input of a new tape is the input that the next claim brings', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    const events = [event('run_started', { payload: '"second input"' }), stepCompleted('s')]
    const answer = await scene.write(claim, { events, run: { status: 'pending', startsTape: true, hasNewInput: true } })
    const again = await scene.claimOne()
    expect(plainPayload(again.input)).toBe('text:"second input"')
    expect(again.run).toMatchObject({ inputSeq: answer.firstSeq, tapeSeq: answer.firstSeq })
  })

  test('a claim shows the thread as it is and whether mail waits', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    await scene.write(claim, { events: [stepCompleted('a'), stepCompleted('b')], stateVersion: 2 })
    await scene.deliver({ runId: 'r' })
    const again = await scene.takeOver(claim)
    expect(again.hasMail).toBe(true)
    expect(again.thread).toMatchObject({ headSeq: 3, stateVersion: 2 })
  })
}
