import { expect } from 'vitest'
import type { RunStatus } from '../../model/run.ts'
import type { Claim } from '../../store/store.ts'
import { change, guarded, leased, newRun, ok, refusalOf, type StoreTest, stepCompleted } from './scene.ts'

export function testQueues(test: StoreTest): void {
  test('a queue is there once it has settings or a run; with neither it is not', async (scene) => {
    expect(await scene.store.listQueues({})).toEqual([])
    await scene.create({ id: 'r', queue: 'used' })
    await scene.store.setQueue({ name: 'set', concurrency: 3, rateLimit: { count: 5, perMs: 60_000 }, maxQueued: 10 })
    const set = { concurrency: 3, rateLimit: { count: 5, perMs: 60_000 }, maxQueued: 10, isPaused: false }
    const unset = { concurrency: null, rateLimit: null, maxQueued: null, isPaused: false }
    const none = { pending: 0, delayed: 0, running: 0, waiting: 0, paused: 0 }
    const used = { name: 'used', ...unset, counts: { ...none, pending: 1 } }
    expect(await scene.store.listQueues({})).toEqual([{ name: 'set', ...set, counts: none }, used])
    expect(await scene.store.listQueues({ name: 'used' })).toEqual([used])
    expect(await scene.store.listQueues({ name: 'other' })).toEqual([])

    await scene.leave(await scene.claimOne(), 'completed')
    await scene.store.setQueue({ name: 'set', concurrency: null, rateLimit: null, maxQueued: null })
    expect(await scene.store.listQueues({})).toEqual([])
  })

  test('of the settings of a queue only those named change, also when many change them at once', async (scene) => {
    await Promise.all([
      scene.store.setQueue({ name: 'q', concurrency: 3 }),
      scene.store.setQueue({ name: 'q', isPaused: true }),
      scene.store.setQueue({ name: 'q', maxQueued: 7 }),
      scene.store.setQueue({ name: 'q', rateLimit: { count: 1, perMs: 5 } }),
      scene.store.setQueue({ name: "q'; --", maxQueued: 0 }),
    ])
    await scene.store.setQueue({ name: 'q', maxQueued: null })
    if (scene.canReopen) await scene.reopen()
    const [q, other] = await scene.store.listQueues({})
    expect(q).toMatchObject({ name: 'q', concurrency: 3, isPaused: true, maxQueued: null, rateLimit: { count: 1, perMs: 5 } })
    expect(other).toMatchObject({ name: "q'; --", concurrency: null, isPaused: false, maxQueued: 0 })
  })

  test('runs of all owners are counted by status, those that are due later apart', async (scene) => {
    for (const [index, status] of (['waiting', 'paused', 'completed', 'failed', 'cancelled'] satisfies RunStatus[]).entries()) {
      const claim = await scene.createAndClaim({ id: status, owner: `o-${index % 2}` })
      await scene.leave(claim, status, { due: 'never' })
    }
    await scene.createAndClaim({ id: 'running' })
    await scene.create({ id: 'due', owner: 'o-1' })
    await scene.create({ id: 'behind', threadId: 'running' })
    await scene.create({ id: 'delayed', due: { inMs: 60_000 } })
    const counts = async () => (await scene.store.listQueues({ name: 'default' }))[0]?.counts
    expect(await counts()).toEqual({ pending: 2, delayed: 1, running: 1, waiting: 1, paused: 1 })
    scene.advance(61_000)
    expect(await counts()).toEqual({ pending: 3, delayed: 0, running: 1, waiting: 1, paused: 1 })
    await scene.store.deleteThread({ owner: '', threadId: 'running', at: await scene.store.now() })
    await scene.store.deleteThread({ owner: '', threadId: 'delayed', at: await scene.store.now() })
    expect(await counts()).toEqual({ pending: 1, delayed: 0, running: 0, waiting: 1, paused: 1 })
  })

  test('nothing of a paused queue is claimed, not even what was abandoned; what runs goes on', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'running', queue: 'mails' }, { leaseMs: 10_000 })
    const lost = await scene.createAndClaim({ id: 'lost', queue: 'mails' }, { leaseMs: 10_000 })
    await scene.create({ id: 'queued', queue: 'mails', priority: 9 })
    await scene.create({ id: 'elsewhere' })
    await scene.store.setQueue({ name: 'mails', isPaused: true })
    expect(await scene.claimedIds()).toEqual(['elsewhere'])
    await scene.write(claim, { events: [stepCompleted('s')], run: { leaseMs: 600_000 } })
    scene.advance(11_000)
    expect(await scene.claimedIds({ workerId: 'other' })).toEqual(['elsewhere'])
    await scene.leave(claim, 'completed')
    await scene.store.setQueue({ name: 'mails', isPaused: false })
    expect(await scene.claimedIds()).toEqual(['queued', lost.run.id])
  })

  test('no more runs of a queue are running than its concurrency, and each that ends makes room', async (scene) => {
    await scene.store.setQueue({ name: 'mails', concurrency: 2 })
    for (const id of ['a', 'b', 'c', 'd', 'e']) await scene.create({ id, queue: 'mails', owner: id })
    await scene.create({ id: 'elsewhere' })
    const [first, ...more] = await scene.claim({ leaseMs: 600_000 })
    expect([first, ...more].map((claim) => claim?.run.id)).toEqual(['elsewhere', 'a', 'b'])
    expect(await scene.claim()).toEqual([])
    await scene.leave(more[0] as Claim, 'waiting', { due: 'never' })
    expect(await scene.claimedIds()).toEqual(['c'])
    await scene.leave(more[1] as Claim, 'completed')
    expect(await scene.claimedIds()).toEqual(['d'])
    await scene.store.setQueue({ name: 'mails', concurrency: 3 })
    expect(await scene.claimedIds()).toEqual(['e'])
  })

  test('a claim says whether the queue of its run has a limit, of runs at a time or of starts', async (scene) => {
    await scene.store.setQueue({ name: 'concurrency', concurrency: 2 })
    await scene.store.setQueue({ name: 'rate', rateLimit: { count: 9, perMs: 60_000 } })
    await scene.store.setQueue({ name: 'size', maxQueued: 9 })
    await scene.store.setQueue({ name: 'lifted', concurrency: 2, maxQueued: 9 })
    await scene.store.setQueue({ name: 'lifted', concurrency: null })
    for (const queue of ['concurrency', 'rate', 'size', 'lifted', 'none', 'a:1:b']) await scene.create({ id: queue, queue })
    const limited = (await scene.claim()).filter(({ isQueueLimited }) => isQueueLimited)
    expect(limited.map(({ run }) => run.id).sort()).toEqual(['concurrency', 'rate'])
  })

  test('an abandoned run is taken over although its queue is full: that does not raise the number', async (scene) => {
    await scene.store.setQueue({ name: 'mails', concurrency: 2 })
    for (const id of ['a', 'b', 'c']) await scene.create({ id, queue: 'mails' })
    expect(await scene.claimedIds({ leaseMs: 10_000 })).toEqual(['a', 'b'])
    scene.advance(11_000)
    expect(await scene.claimedIds({ limit: 1, leaseMs: 10_000 })).toEqual(['a'])
    expect(await scene.claimedIds({ leaseMs: 10_000 })).toEqual(['b'])
    expect(await scene.claim()).toEqual([])
    await scene.store.setQueue({ name: 'mails', concurrency: 1 })
    scene.advance(11_000)
    expect(await scene.claimedIds()).toEqual(['a', 'b'])
  })

  test('a queue that was found full or paused is claimed from as soon as it has room, whatever makes it', async (scene) => {
    const { store } = scene
    await store.setQueue({ name: 'mails', concurrency: 1 })
    const stepped = { events: [stepCompleted('last')], isCheckpoint: true }
    const ways: Record<string, (claim: Claim) => Promise<unknown>> = {
      'the end of a run': (claim) =>
        scene.write(claim, { ...stepped, run: { status: 'completed', reason: null, currentStep: null, setsEnd: true } }),
      'a run that fails': (claim) => scene.leave(claim, 'failed'),
      'a run that waits': (claim) => scene.leave(claim, 'waiting', { due: 'never' }),
      'a run that is paused': (claim) => scene.leave(claim, 'paused'),
      'a deletion': async ({ run }) => store.deleteThread({ owner: run.owner, threadId: run.threadId, at: await store.now() }),
      'a higher limit': () => store.setQueue({ name: 'mails', concurrency: 2 }),
      'no limit': () => store.setQueue({ name: 'mails', concurrency: null }),
      'an end of the pause': async () => {
        await store.setQueue({ name: 'mails', concurrency: null, isPaused: true })
        expect(await scene.claimedIds()).toEqual([])
        await store.setQueue({ name: 'mails', isPaused: false })
      },
    }
    for (const [way, makeRoom] of Object.entries(ways)) {
      for (const ownerCount of [1, 12]) {
        await store.setQueue({ name: 'mails', concurrency: 1 })
        const name = `${way}, ${ownerCount}`
        const ids = Array.from({ length: ownerCount + 1 }, (_, index) => `${name}, ${index}`)
        const owners = ids.map((_, index) => `o-${index % ownerCount}`)
        for (const [index, id] of ids.entries()) await scene.create({ id, queue: 'mails', owner: owners[index] as string })
        const first = await scene.claimOne()
        // It is found full, more than once.
        expect([name, await scene.claimedIds(), await scene.claimedIds({ limit: 1 })]).toEqual([name, [], []])
        await makeRoom(first)
        expect([name, await scene.claimedIds({ limit: 1 })]).toEqual([name, [expect.stringContaining(name)]])
        await store.setQueue({ name: 'mails', concurrency: null })
        await scene.claimedIds()
        for (const owner of new Set(owners)) {
          const { items } = await store.listRuns({ owner, limit: 100 })
          for (const { threadId } of items) await store.deleteThread({ owner, threadId, at: await store.now() })
        }
      }
    }
  })

  test('sixteen racing claimers keep to the concurrency of a queue', async (scene) => {
    await scene.store.setQueue({ name: 'mails', concurrency: 5 })
    const ids = Array.from({ length: 60 }, (_, index) => `r-${index}`)
    await scene.commitAll(ids.map((id) => change({ threadId: id, creates: [newRun({ id, queue: 'mails' })] })))
    let [running, most, finished] = [0, 0, 0]
    const claimer = async (workerId: string) => {
      while (finished < ids.length) {
        const claims = await scene.claim({ workerId, limit: 3, leaseMs: 600_000 })
        running += claims.length
        most = Math.max(most, running)
        for (const claim of claims) {
          // Before the run is over in the store, so that the count is never too high.
          running--
          finished++
          await scene.leave(claim, 'completed')
        }
        await new Promise((resolve) => setImmediate(resolve))
      }
    }
    await Promise.all(Array.from({ length: 16 }, (_, index) => claimer(`w-${index}`)))
    expect(most).toBeLessThanOrEqual(5)
    expect(finished).toBe(60)

    const more = Array.from({ length: 40 }, (_, index) => `m-${index}`)
    await scene.commitAll(more.map((id) => change({ threadId: id, creates: [newRun({ id, queue: 'mails' })] })))
    const claims = await Promise.all(Array.from({ length: 16 }, (_, n) => scene.claim({ workerId: `w-${n}`, limit: 4 })))
    expect(claims.flat().length).toBe(5)
    expect((await scene.store.listQueues({ name: 'mails' }))[0]?.counts).toMatchObject({ running: 5, pending: 35 })
  })

  test('no more runs are started in any stretch of time than the rate limit of their queue allows', async (scene) => {
    await scene.store.setQueue({ name: 'mails', rateLimit: { count: 3, perMs: 600_000 } })
    for (let n = 0; n < 9; n++) await scene.create({ id: `r-${n}`, queue: 'mails' })
    expect(await scene.claimedIds({ limit: 2, leaseMs: 6_000_000 })).toEqual(['r-0', 'r-1'])
    scene.advance(300_000)
    expect(await scene.claimedIds({ leaseMs: 6_000_000 })).toEqual(['r-2'])
    scene.advance(290_000)
    expect(await scene.claim()).toEqual([])
    scene.advance(15_000)
    expect(await scene.claimedIds({ leaseMs: 6_000_000 })).toEqual(['r-3', 'r-4'])
    scene.advance(295_000)
    expect(await scene.claimedIds({ leaseMs: 6_000_000 })).toEqual(['r-5'])
    await scene.store.setQueue({ name: 'mails', rateLimit: null })
    expect(await scene.claimedIds()).toEqual(['r-6', 'r-7', 'r-8'])
  })

  test('runs that were started before go on whatever the rate limit, also behind a thousand that wait for it', async (scene) => {
    const woken = await scene.createAndClaim({ id: 'woken', queue: 'mails' })
    await scene.leave(woken, 'waiting', { reason: 'timer', due: { inMs: 60_000 } })
    const lost = await scene.createAndClaim({ id: 'lost', queue: 'mails' })
    const ids = Array.from({ length: 1_000 }, (_, index) => `r-${index}`)
    await scene.commitAll(ids.map((id) => change({ threadId: id, creates: [newRun({ id, queue: 'mails' })] })))
    await scene.store.setQueue({ name: 'mails', rateLimit: { count: 1, perMs: 3_600_000 } })
    expect(await scene.claimedIds({ limit: 10, leaseMs: 600_000 })).toEqual(['r-0'])
    scene.advance(61_000)
    expect(await scene.claimedIds({ limit: 10 })).toEqual([lost.run.id, 'woken'])
  })

  test('sixteen racing claimers keep to the rate limit of a queue', async (scene) => {
    await scene.store.setQueue({ name: 'mails', rateLimit: { count: 7, perMs: 3_600_000 } })
    const ids = Array.from({ length: 60 }, (_, index) => `r-${index}`)
    await scene.commitAll(ids.map((id) => change({ threadId: id, creates: [newRun({ id, queue: 'mails' })] })))
    const claims = await Promise.all(Array.from({ length: 16 }, (_, n) => scene.claim({ workerId: `w-${n}`, limit: 2 })))
    expect(claims.flat().length).toBe(7)
  })

  test('a claim takes no more of a queue than it asks for', async (scene) => {
    for (let n = 0; n < 4; n++) {
      await scene.create({ id: `mail-${n}`, queue: 'mails' })
      await scene.create({ id: `other-${n}`, queue: 'other' })
    }
    const queueLimits = [
      { queue: 'mails', limit: 1 },
      { queue: 'other', limit: 0 },
    ]
    expect(await scene.claimedIds({ queueLimits })).toEqual(['mail-0'])
    const more = await scene.claimedIds({ queueLimits: [{ queue: 'other', limit: 2 }] })
    expect(more.sort()).toEqual(['mail-1', 'mail-2', 'mail-3', 'other-0', 'other-1'])
  })

  test('owners take turns: one with a thousand runs does not keep another waiting', async (scene) => {
    const many = Array.from({ length: 1_000 }, (_, index) => newRun({ id: `r-${index}`, owner: 'big' }))
    await scene.commitAll(many.map((run) => change({ owner: 'big', threadId: run.id, creates: [run] })))
    await scene.create({ id: 'alone', owner: 'small' })
    for (let n = 0; n < 3; n++) await scene.create({ id: `s-${n}`, owner: 'second' })
    expect(await scene.claimedIds({ limit: 8 })).toEqual(['r-0', 's-0', 'alone', 'r-1', 's-1', 'r-2', 's-2', 'r-3'])
    expect(await scene.claimedIds({ limit: 2 })).toEqual(['r-4', 'r-5'])
  })

  test('turns go on after the owner who had the last one, at each priority for itself; owners are ordered bytewise', async (scene) => {
    // In UTF-16, as JavaScript compares, the last two are the other way round.
    const owners = ['', 'a', 'b', 'é', '\uffee', '𝒳']
    for (const owner of [...owners].reverse()) {
      await scene.create({ id: 'urgent', owner, priority: 1 })
      for (let n = 0; n < 2; n++) await scene.create({ id: `${n}`, owner })
    }
    const ownersOf = async (limit: number, lastOwners?: { priority: number; owner: string }[]) =>
      (await scene.claim({ limit, ...(lastOwners === undefined ? {} : { lastOwners }) })).map(({ run }) => run.owner)
    const after = [
      { priority: 1, owner: 'b' },
      { priority: 0, owner: '𝒳' },
    ]
    expect(await ownersOf(8, after)).toEqual(['é', '\uffee', '𝒳', '', 'a', 'b', '', 'a'])
    expect(await ownersOf(3, [{ priority: 0, owner: 'a' }])).toEqual(['b', 'é', '\uffee'])
    // Between two names, and past the last turn of some.
    expect(await ownersOf(5, [{ priority: 0, owner: '𝒳' }])).toEqual(['', 'a', 'b', 'é', '\uffee'])
    expect(await ownersOf(5)).toEqual(['𝒳', '𝒳'])
  })

  test('among the runs of an owner those that were started before and those that were not take turns', async (scene) => {
    for (let n = 0; n < 3; n++) {
      const claim = await scene.createAndClaim({ id: `woken-${n}` })
      await scene.leave(claim, 'waiting', { reason: 'timer', due: { inMs: 1_000 } })
    }
    scene.advance(5_000)
    for (let n = 0; n < 2; n++) await scene.create({ id: `new-${n}` })
    expect(await scene.claimedIds()).toEqual(['woken-0', 'new-0', 'woken-1', 'new-1', 'woken-2'])
  })

  test('queues take turns as well', async (scene) => {
    for (let n = 0; n < 3; n++) await scene.create({ id: `a-${n}`, queue: 'a' })
    await scene.create({ id: 'b', queue: 'b' })
    expect(await scene.claimedIds()).toEqual(['a-0', 'b', 'a-1', 'a-2'])
  })

  test('runs that sleep until later take their turn when their time has come, in order of time', async (scene) => {
    for (const [id, inMs] of [
      ['third', 30_000],
      ['first', 10_000],
      ['second', 20_000],
    ] as const) {
      await scene.create({ id, due: { inMs } })
    }
    expect(await scene.claim()).toEqual([])
    scene.advance(25_000)
    await scene.create({ id: 'now' })
    expect(await scene.claimedIds({ limit: 1 })).toEqual(['first'])
    expect(await scene.claimedIds()).toEqual(['second', 'now'])
    scene.advance(6_000)
    expect(await scene.claimedIds()).toEqual(['third'])
  })

  test('a start beyond what a queue may hold is refused with queue_full; the same id again is answered', async (scene) => {
    await scene.store.setQueue({ name: 'mails', maxQueued: 2 })
    const start = (id: string, fields = {}) =>
      scene.commit(change({ threadId: id, creates: [newRun({ id, queue: 'mails', ...fields })] }))
    ok(await start('a'))
    ok(await start('b', { due: { inMs: 60_000 } }))
    expect(refusalOf(await start('c'))).toBe('queue_full')
    expect(await scene.store.readThread({ owner: '', threadId: 'c' })).toBeNull()
    expect(ok(await start('a')).created[0]).toMatchObject({ isNew: false, run: { id: 'a' } })
    ok(await scene.commit(change({ threadId: 'other', creates: [newRun({ id: 'other' })] })))
    const [claim] = await scene.claim({ queues: ['mails'] })
    ok(await start('d'))
    expect(refusalOf(await start('e'))).toBe('queue_full')
    // What was let in before goes back however full it is, and so do children.
    await scene.leave(claim as Claim, 'pending')
    const [again] = await scene.claim({ queues: ['mails'], limit: 1 })
    const child = newRun({ id: 'child', queue: 'mails' })
    ok(await scene.commit(leased(again as Claim, { creates: [child, newRun({ id: 'child-2', queue: 'mails' })] })))
    expect((await scene.store.listQueues({ name: 'mails' }))[0]?.counts).toMatchObject({ pending: 3, delayed: 1 })
    await scene.store.setQueue({ name: 'mails', maxQueued: null })
    ok(await start('e'))
  })

  test('each start of a batch is judged by what the earlier ones left', async (scene) => {
    await scene.store.setQueue({ name: 'mails', maxQueued: 3 })
    const start = (id: string) => change({ threadId: id, creates: [newRun({ id, queue: 'mails' })] })
    ok(await scene.commit(start('a')))
    const paused = await scene.run('a')
    const answers = await scene.commitAll([
      ...[start('b'), start('b'), start('c'), start('d'), start('a')],
      guarded(paused, {}, { run: { status: 'paused', reason: 'asked' } }),
      ...[start('e'), start('f'), change({ threadId: 'g', creates: [newRun({ id: 'g' })] })],
    ])
    expect(answers.map(refusalOf)).toEqual([
      ...['none', 'none', 'none', 'queue_full', 'none', 'none', 'none', 'queue_full', 'none'],
    ])
    const two = [newRun({ id: 'x', queue: 'two' }), newRun({ id: 'y', queue: 'two' }), newRun({ id: 'x', queue: 'two' })]
    await scene.store.setQueue({ name: 'two', maxQueued: 1 })
    expect(refusalOf(await scene.commit(change({ threadId: 'x', creates: two })))).toBe('queue_full')
    await scene.store.setQueue({ name: 'two', maxQueued: 2 })
    expect(ok(await scene.commit(change({ threadId: 'x', creates: two }))).created.map(({ isNew }) => isNew)).toEqual([
      ...[true, true, false],
    ])
  })

  test('an id that a change creates twice takes room only in the queue of the first', async (scene) => {
    await scene.store.setQueue({ name: 'full', maxQueued: 0 })
    const start = (...queues: string[]) =>
      scene.commit(change({ threadId: 'x', creates: queues.map((queue) => newRun({ id: 'x', queue })) }))
    expect(refusalOf(await start('full', 'default'))).toBe('queue_full')
    expect(ok(await start('default', 'full')).created).toMatchObject([
      { isNew: true, run: { queue: 'default' } },
      { isNew: false, run: { queue: 'default' } },
    ])
  })

  test('a hundred parallel starts into a queue with room for ten: ten get in', async (scene) => {
    await scene.store.setQueue({ name: 'mails', maxQueued: 10 })
    const answers = await Promise.all(
      Array.from({ length: 100 }, (_, n) =>
        scene.commit(change({ threadId: `r-${n}`, creates: [newRun({ id: `r-${n}`, queue: 'mails' })] })),
      ),
    )
    expect(answers.filter((answer) => answer.ok)).toHaveLength(10)
    expect(answers.filter((answer) => refusalOf(answer) === 'queue_full')).toHaveLength(90)
    expect(await scene.claim()).toHaveLength(10)
  })
}
