import { expect } from 'vitest'
import { readWholeThread } from '../../store/read-whole-thread.ts'
import type { CollectRequest, CollectVerdict } from '../../store/store.ts'
import { abort, chunks, edit, event, guarded, leased, ok, refusalOf, type Scene, type StoreTest, stepCompleted } from './scene.ts'

async function collect(
  scene: Scene,
  threadIds: readonly string[],
  { owner = '', ...how }: Partial<CollectRequest> & { readonly owner?: string } = {},
): Promise<readonly CollectVerdict[]> {
  const threads = await Promise.all(
    threadIds.map(async (threadId) => {
      const headSeq = (await scene.store.readThread({ owner, threadId }))?.headSeq ?? 0
      return { owner, threadId, headSeq }
    }),
  )
  return scene.store.collectThreads({ threads, closedBefore: 1e15, keepsLabelled: true, isDryRun: false, ...how })
}

async function finish(scene: Scene, id: string, threadId = id): Promise<void> {
  const claim = await scene.createAndClaim({ id, threadId })
  await scene.write(claim, { events: [stepCompleted('a')], run: { hasProgress: true, startsTape: true }, isCheckpoint: true })
  await scene.leave(claim, 'completed')
}

export function testCollecting(test: StoreTest): void {
  test('a thread that nothing needs is removed with all that belongs to it, and nothing is left of it', async (scene) => {
    await scene.create({ id: 'other' })
    const other = await scene.claimOne()
    const claim = await scene.createAndClaim({ id: 'r' })
    await scene.write(claim, {
      ...{
        events: [stepCompleted('a')],
        run: { hasProgress: true, startsTape: true },
        snapshot: '{}',
        chunks: [chunks(), abort()],
      },
      operation: { kind: 'intend', key: 'k', name: 'send' },
    })
    await scene.write(claim, {
      ...{
        events: [event('effect_completed', { step: 'send', count: 1 })],
        operation: { kind: 'complete', key: 'k', result: '1' },
      },
      records: [
        { kind: 'put', collection: 'c', key: 'a', payload: '1', fields: [], parent: null, threadId: 'r', expires: 'never' },
      ],
    })
    await scene.deliver({ runId: 'r', dedupeId: 'once' })
    await scene.leave(claim, 'completed')
    const before = await scene.contents()
    expect(await collect(scene, ['r'], { isDryRun: true })).toEqual(['removed'])
    expect(await scene.contents()).toEqual(before)
    expect(await collect(scene, ['r'])).toEqual(['removed'])
    const [{ runs, listedThreadIds, threads, operations, records } = {}] = await scene.contents()
    expect(runs?.map(({ id }) => id)).toEqual(['other'])
    expect(listedThreadIds).toEqual(['other'])
    expect(threads?.map(({ thread }) => thread.threadId)).toEqual(['other'])
    expect([operations, records]).toEqual([[], []])
    expect(await scene.store.readThreadImage({ owner: '', threadId: 'r' })).toBeNull()
    expect(await readWholeThread(scene.store, { owner: '', threadId: 'r' })).toBeNull()
    const scanned = await scene.store.scanThreads({ limit: 100 })
    expect(scanned.items.map(({ threadId }) => threadId)).toEqual(['other'])
    expect(await scene.store.readChunks({ owner: '', runId: 'r', stream: 'tokens', from: 0, limit: 10 })).toEqual([])
    expect(await collect(scene, ['r'])).toEqual(['gone'])
    await scene.leave(other, 'completed')
  })

  test('what it was goes with it: a start of the same id is the first, and late writers are refused', async (scene) => {
    const stale = await scene.createAndClaim({ id: 'r' })
    const claim = await scene.takeOver(stale)
    await scene.leave(claim, 'completed')
    expect(await collect(scene, ['r'])).toEqual(['removed'])
    for (const late of [stale, claim]) {
      expect(refusalOf(await scene.commit(leased(late, { events: [stepCompleted('a')] })))).toBe('lease_lost')
      expect(
        await scene.store.renew({
          leaseMs: 1_000,
          leases: [{ owner: '', runId: 'r', epoch: late.run.epoch, leaseId: late.leaseId }],
        }),
      ).toMatchObject([{ isHeld: false }])
    }
    expect(await scene.deliver({ runId: 'r' })).toEqual({ ok: false, refusal: 'run_not_found' })
    const again = await scene.createAndClaim({ id: 'r' })
    expect(await scene.thread('r')).toMatchObject({ headSeq: 1, baseSeq: 0, incarnation: 1, deletedAt: null })
    expect(refusalOf(await scene.commit(leased(stale, { events: [stepCompleted('a')] })))).toBe('lease_lost')
    await scene.write(again, { events: [stepCompleted('a')] })
    await scene.leave(again, 'completed')
  })

  test('a thread that was written to since it was read stays', async (scene) => {
    await finish(scene, 'r')
    const { headSeq } = await scene.thread('r')
    const threads = [{ owner: '', threadId: 'r', headSeq }]
    await scene.commit(edit('r', headSeq))
    const how = { threads, closedBefore: 1e15, keepsLabelled: true }
    for (const isDryRun of [true, false]) expect(await scene.store.collectThreads({ ...how, isDryRun })).toEqual(['changed'])
    expect((await scene.thread('r')).headSeq).toBe(headSeq + 1)
    expect(
      await scene.store.collectThreads({ ...how, threads: [{ owner: 'ann', threadId: 'r', headSeq }], isDryRun: false }),
    ).toEqual(['gone'])
    expect(await scene.store.collectThreads({ ...how, threads: [], isDryRun: false })).toEqual([])
  })

  test('a thread that was created too late stays: it is not the one that was read', async (scene) => {
    await finish(scene, 'r')
    const { createdAt } = await scene.thread('r')
    expect(await collect(scene, ['r'], { closedBefore: createdAt })).toEqual(['changed'])
    expect(await collect(scene, ['r'], { closedBefore: createdAt + 1 })).toEqual(['removed'])
  })

  test('an unfinished run keeps its thread, in whatever status', async (scene) => {
    await finish(scene, 'a', 'r')
    await scene.create({ id: 'b', threadId: 'r' })
    expect(await collect(scene, ['r'])).toEqual(['unfinished'])
    const claim = await scene.claimOne()
    expect(await collect(scene, ['r'])).toEqual(['unfinished'])
    await scene.leave(claim, 'waiting', { due: 'never' })
    expect(await collect(scene, ['r'])).toEqual(['unfinished'])
    await scene.commit(guarded(await scene.run('b'), {}, { events: [event('run_paused')], run: { status: 'paused' } }))
    expect(await collect(scene, ['r'], { keepsLabelled: false })).toEqual(['unfinished'])
    await scene.commit(guarded(await scene.run('b'), {}, { events: [event('run_cancelled')], run: { status: 'cancelled' } }))
    expect(await collect(scene, ['r'])).toEqual(['removed'])
  })

  test('an operation that is open, unsure or was closed lately keeps its thread', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    await scene.write(claim, { operation: { kind: 'intend', key: 'k', name: 'send' } })
    await scene.leave(claim, 'failed')
    expect((await scene.operation('k')).status).toBe('unsure')
    expect(await collect(scene, ['r'])).toEqual(['operations'])
    const decided = { kind: 'resolve', key: 'k', hasHappened: true, result: null, by: 'ann' } as const
    ok(await scene.commit(guarded(await scene.run('r'), {}, { operation: decided })))
    const { closedAt } = await scene.operation('k')
    expect(await collect(scene, ['r'], { closedBefore: closedAt ?? 0 })).toEqual(['operations'])
    expect(await collect(scene, ['r'], { closedBefore: (closedAt ?? 0) + 1 })).toEqual(['removed'])
    expect(await scene.store.readOperation({ owner: '', key: 'k' })).toBeNull()
    expect(await scene.store.listUnsure({ owner: '', limit: 10 })).toEqual({ items: [] })
  })

  test('a label keeps its thread, where labels are to', async (scene) => {
    await finish(scene, 'r')
    const { headSeq } = await scene.thread('r')
    await scene.store.tag({ owner: '', threadId: 'r', seq: headSeq, label: 'gold' })
    expect(await collect(scene, ['r'])).toEqual(['labelled'])
    expect(await collect(scene, ['r'], { keepsLabelled: false })).toEqual(['removed'])
    expect(await scene.store.listRuns({ owner: '', label: 'gold', limit: 10 })).toEqual({ items: [] })
  })

  test('by force a thread goes whatever state it is in, and its holder is fenced', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    await scene.write(claim, { operation: { kind: 'intend', key: 'k', name: 'send' } })
    await scene.create({ id: 'next', threadId: 'r' })
    const asking = await scene.createAndClaim({ id: 'q' })
    await scene.write(asking, { operation: { kind: 'ask', key: 'who', name: 'ask' } })
    await scene.leave(asking, 'waiting', { due: 'never', waitKey: 'who' })
    const head = (await scene.thread('r')).headSeq
    const threads = ['r', 'q'].map((threadId) => ({ owner: '', threadId, headSeq: head + 7 }))
    const how = { threads, closedBefore: 0, keepsLabelled: true, isForced: true }
    expect(await scene.store.collectThreads({ ...how, isDryRun: true })).toEqual(['removed', 'removed'])
    expect((await scene.run('r')).status).toBe('running')
    expect(await scene.store.collectThreads({ ...how, isDryRun: false })).toEqual(['removed', 'removed'])
    expect(refusalOf(await scene.commit(leased(claim, { events: [stepCompleted('a')] })))).toBe('lease_lost')
    expect(await scene.claim()).toEqual([])
    expect(await scene.store.readOperation({ owner: '', key: 'k' })).toBeNull()
    expect(await scene.store.listUnsure({ owner: '', limit: 10 })).toEqual({ items: [] })
    expect((await scene.store.listRuns({ owner: '', limit: 10 })).items).toEqual([])
    expect((await scene.store.scanThreads({ limit: 10 })).items).toEqual([])
    expect(await scene.store.listQueues({})).toEqual([])
  })

  test('many are judged each for itself, and a tombstone goes like a thread', async (scene) => {
    for (const id of ['a', 'b', 'c', 'd']) await finish(scene, id)
    await scene.create({ id: 'e', threadId: 'b' })
    await scene.store.deleteThread({ owner: '', threadId: 'd', at: await scene.store.now() })
    expect(await collect(scene, ['a', 'nobody', 'b', 'c', 'd', 'a'])).toEqual([
      ...['removed', 'gone', 'unfinished', 'removed', 'removed', 'gone'],
    ])
    expect((await scene.store.scanThreads({ limit: 10 })).items.map(({ threadId }) => threadId)).toEqual(['b'])
    await scene.create({ id: 'd' })
    expect(await scene.thread('d')).toMatchObject({ baseSeq: 0, incarnation: 1 })
  })

  test('of those who start a run on a thread and those who remove it at once, each sees a whole thread or none', async (scene) => {
    for (let round = 0; round < 10; round++) {
      await finish(scene, `old${round}`, 't')
      const { headSeq, baseSeq } = await scene.thread('t')
      const collecting = collect(scene, ['t'])
      const [verdicts] = await Promise.all([collecting, scene.create({ id: `new${round}`, threadId: 't' })])
      const after = await scene.thread('t')
      expect(['removed', 'changed', 'unfinished']).toContain(verdicts[0])
      expect([after.baseSeq, after.headSeq]).toEqual(verdicts[0] === 'removed' ? [0, 1] : [baseSeq, headSeq + 1])
      await scene.leave(await scene.claimOne(), 'completed')
    }
  })
}
