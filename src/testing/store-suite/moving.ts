import { expect } from 'vitest'
import { invariant } from '../../model/errors.ts'
import { readWholeThread } from '../../store/read-whole-thread.ts'
import type { Thread } from '../../store/store.ts'
import type { WholeThread } from '../../store/thread-image.ts'
import { abort, change, chunks, edit, event, leased, ok, refusalOf, type Scene, type StoreTest, stepCompleted } from './scene.ts'

/** A thread with a bit of everything: runs of several kinds, payloads of text and bytes, labels, snapshots, operations, mail. */
async function furnish(scene: Scene, threadId: string): Promise<void> {
  const id = (name: string) => `${threadId}/${name}`
  const done = await scene.createAndClaim({ id: id('done'), threadId })
  await scene.write(done, {
    events: [stepCompleted('a', new Uint8Array([0, 255, 10])), event('state_updated', { patch: '[1]' })],
    snapshot: '{"a":1}',
    stateVersion: 2,
    label: 'first',
    run: { startsTape: true, hasProgress: true },
  })
  await scene.write(done, {
    events: [event('effect_intended')],
    isCheckpoint: false,
    operation: { kind: 'intend', key: id('k1'), name: 'send' },
  })
  await scene.write(done, {
    events: [event('effect_completed')],
    operation: { kind: 'complete', key: id('k1'), result: '"sent"' },
  })
  await scene.write(done, {
    chunks: [chunks({ payload: new Uint8Array([0, 255, 10]) }), chunks({ stream: 'é', step: null, attempt: 0 })],
  })
  await scene.write(done, { chunks: [abort(), chunks({ attempt: 2 })] })
  await scene.write(done, { events: [event('run_completed', { payload: '1' })], run: { status: 'completed', setsEnd: true } })
  ok(await scene.commit(edit(threadId, 6, { snapshot: new Uint8Array([1, 2, 3]), label: 'edited' })))
  const waiting = await scene.createAndClaim({ id: id('waiting'), threadId, priority: 3, queue: 'slow' })
  await scene.write(waiting, { events: [event('effect_intended')], operation: { kind: 'intend', key: id('k2'), name: 'charge' } })
  await scene.write(waiting, { operation: { kind: 'doubt', key: id('k2') } })
  await scene.write(waiting, { operation: { kind: 'note', key: id('k2'), evidence: '"it went through"' } })
  await scene.write(waiting, { events: [event('question_asked')], operation: { kind: 'ask', key: id('q'), name: 'approve' } })
  await scene.leave(waiting, 'waiting', { reason: 'effect', due: 'never', waitKey: id('k2'), currentStep: 'charge' })
  await scene.create({ id: id('next'), threadId, workflow: 'other' })
  await scene.deliver({ runId: id('next'), kind: 'signal', name: 'go', payload: '"now"', dedupeId: 'é' })
  for (const dedupeId of ['\u{1f600}', 'a', '\u{ffff}']) await scene.deliver({ runId: id('next'), name: 'go', dedupeId })
  await scene.deliver({ runId: id('next'), kind: 'pause', payload: new Uint8Array([7]) })
}

async function wholeThread(scene: Scene, threadId: string, owner = ''): Promise<WholeThread> {
  const whole = await readWholeThread(scene.store, { owner, threadId })
  invariant(whole !== null, `thread ${threadId} is missing`)
  return whole
}

/** As another owner's: ids are unique per owner, so it can be restored into the same store. */
function ownedBy(owner: string, whole: WholeThread): WholeThread {
  return {
    ...whole,
    thread: { ...whole.thread, owner },
    runs: whole.runs.map(({ run, inbox, ...image }) => ({
      ...image,
      run: { ...run, owner },
      inbox: inbox.map((message) => ({ ...message, owner })),
    })),
    operations: whole.operations.map((operation) => ({ ...operation, owner })),
  }
}

/** Messages get new ids where they are restored. */
function withoutMessageIds(whole: WholeThread): unknown {
  return {
    ...whole,
    runs: whole.runs.map((image) => ({ ...image, inbox: image.inbox.map((message) => ({ ...message, id: 0 })) })),
  }
}

async function scanAll(scene: Scene, limit: number): Promise<Thread[]> {
  const threads: Thread[] = []
  let cursor: string | undefined
  do {
    const page = await scene.store.scanThreads(cursor === undefined ? { limit } : { limit, cursor })
    expect(page.items.length).toBeLessThanOrEqual(limit)
    threads.push(...page.items)
    cursor = page.cursor
  } while (cursor !== undefined)
  return threads
}

export function testMoving(test: StoreTest): void {
  test('a scan shows the threads of all owners in order of creation, deleted ones too, page by page', async (scene) => {
    for (const [index, owner] of ['', 'ann', '', 'bob', 'ann'].entries()) await scene.create({ id: `t-${4 - index}`, owner })
    await scene.store.deleteThread({ owner: 'ann', threadId: 't-3', at: 5 })
    for (const limit of [1, 2, 5, 100]) {
      const threads = await scanAll(scene, limit)
      expect(threads.map(({ owner, threadId }) => `${owner} ${threadId}`)).toEqual([
        ' t-4',
        'ann t-3',
        ' t-2',
        'bob t-1',
        'ann t-0',
      ])
      expect(threads[1]).toEqual(await scene.thread('t-3', 'ann'))
      expect(threads[1]?.deletedAt).toBe(5)
    }
    expect(await scene.store.scanThreads({ limit: 0 })).toEqual({ items: [] })
  })

  test('the image of a thread holds its runs, what they wait for, their mail, and its operations', async (scene) => {
    await furnish(scene, 't')
    await furnish(scene, 'other')
    const image = await scene.store.readThreadImage({ owner: '', threadId: 't' })
    expect(image).toMatchObject({
      thread: await scene.thread('t'),
      epochFloor: 0,
      runs: [
        { run: await scene.run('t/done'), waitKey: null, inbox: [], deliveredIds: [] },
        { run: await scene.run('t/waiting'), waitKey: 't/k2', inbox: [], deliveredIds: [] },
        {
          ...{ run: await scene.run('t/next'), waitKey: null, deliveredIds: ['a', 'é', '\u{ffff}', '\u{1f600}'] },
          inbox: await scene.store.readInbox({ owner: '', runId: 't/next' }),
        },
      ],
      operations: [await scene.operation('t/k1'), await scene.operation('t/k2'), await scene.operation('t/q')],
    })
    expect(await scene.store.readThreadImage({ owner: 'ann', threadId: 't' })).toBeNull()
    expect(await scene.store.readThreadImage({ owner: '', threadId: 't2' })).toBeNull()
  })

  test('a restored thread is what it was: log, state, runs, operations, labels, mail', async (scene) => {
    await furnish(scene, 't')
    const before = ownedBy('ann', await wholeThread(scene, 't'))
    expect(await scene.store.restoreThread(before)).toEqual({ ok: true })
    if (scene.canReopen) await scene.reopen()
    expect(withoutMessageIds(await wholeThread(scene, 't', 'ann'))).toEqual(withoutMessageIds(before))
    expect(await scene.store.listCheckpoints({ owner: 'ann', threadId: 't' })).toEqual(
      await scene.store.listCheckpoints({ owner: '', threadId: 't' }),
    )
    const named = await scene.store.listCheckpoints({ owner: 'ann', threadId: 't', label: 'edited' })
    expect(named.map(({ seq }) => seq)).toEqual([7])
  })

  test('messages of a restored run keep their order, and those that come later follow', async (scene) => {
    await scene.create({ id: 'r' })
    const payloads = Array.from({ length: 12 }, (_, index) => `${index}`)
    for (const payload of payloads) await scene.deliver({ runId: 'r', payload })
    expect(await scene.store.restoreThread(ownedBy('ann', await wholeThread(scene, 'r')))).toEqual({ ok: true })
    const claim = (await scene.claim()).find(({ run }) => run.owner === 'ann')
    invariant(claim !== undefined, 'the restored run was not claimed')
    const mailSeen = (await scene.store.readInbox({ owner: 'ann', runId: 'r' })).at(-1)?.id ?? 0
    expect((await scene.write(claim, { events: [stepCompleted('a')], mailSeen })).hasMail).toBe(false)
    await scene.deliver({ owner: 'ann', runId: 'r', payload: '"later"' })
    expect((await scene.write(claim, { events: [stepCompleted('b')], mailSeen })).hasMail).toBe(true)
    const messages = await scene.store.readInbox({ owner: 'ann', runId: 'r' })
    expect(messages.map(({ payload }) => payload)).toEqual([...payloads, '"later"'])
    expect(messages.map(({ id }) => id).toSorted((a, b) => a - b)).toEqual(messages.map(({ id }) => id))
    expect(messages.filter(({ id }) => id > mailSeen)).toHaveLength(1)
  })

  test('a thread of many records comes back record for record', async (scene) => {
    const claim = await scene.createAndClaim({ id: 't' })
    const steps = Array.from({ length: 2_500 }, (_, index) => stepCompleted(`s${index}`, `"${'x'.repeat(index % 700)}"`))
    await scene.write(claim, { events: steps, run: { startsTape: true } })
    await scene.leave(claim, 'paused')
    const before = ownedBy('ann', await wholeThread(scene, 't'))
    expect(await scene.store.restoreThread(before)).toEqual({ ok: true })
    expect(await wholeThread(scene, 't', 'ann')).toEqual(before)
  })

  test('runs of a restored thread go on: in line, by their due times, each claim a higher epoch', async (scene) => {
    const first = await scene.createAndClaim({ id: 'a', threadId: 't' })
    await scene.write(first, { events: [stepCompleted('s')], run: { startsTape: true, hasProgress: true } })
    await scene.leave(first, 'waiting', { reason: 'timer', due: { inMs: 5_000 } })
    await scene.create({ id: 'b', threadId: 't' })
    expect(await scene.store.restoreThread(ownedBy('ann', await wholeThread(scene, 't')))).toEqual({ ok: true })
    expect(await scene.claim()).toEqual([])
    scene.advance(6_000)
    const claims = await scene.claim()
    const claim = claims.find(({ run }) => run.owner === 'ann')
    invariant(claim !== undefined, 'the restored run was not claimed')
    expect(claims.map(({ run }) => run.id)).toEqual(['a', 'a'])
    expect(claim.run).toMatchObject({ epoch: first.run.epoch + 1, tapeSeq: 2 })
    expect(claim.input).toBe('"input of a"')
    expect(refusalOf(await scene.commit(leased({ ...first, run: { ...first.run, owner: 'ann' } })))).toBe('lease_lost')
    await scene.write(claim, { events: [event('run_completed')], run: { status: 'completed' } })
    expect((await scene.claim()).map(({ run }) => `${run.owner} ${run.id}`)).toEqual(['ann b'])
  })

  test('a restored run wakes when the operation that it waits for is resolved, and its intents become unsure when it ends', async (scene) => {
    await furnish(scene, 't')
    const open = await scene.createAndClaim({ id: 'u' })
    await scene.write(open, { operation: { kind: 'intend', key: 'k3', name: 'send' } })
    await scene.leave(open, 'paused')
    for (const threadId of ['t', 'u']) {
      expect(await scene.store.restoreThread(ownedBy('ann', await wholeThread(scene, threadId)))).toEqual({ ok: true })
    }
    const resolved = { kind: 'resolve', key: 't/k2', hasHappened: true, result: '1', by: 'ann' } as const
    ok(await scene.commit(change({ owner: 'ann', threadId: 't', runId: 't/waiting', operation: resolved })))
    expect((await scene.claim()).map(({ run }) => `${run.owner} ${run.id}`)).toEqual(['ann t/waiting'])
    const paused = await scene.run('u', 'ann')
    const guard = { kind: 'run', epoch: paused.epoch, status: 'paused' } as const
    ok(await scene.commit(change({ owner: 'ann', threadId: 'u', runId: 'u', guard, run: { status: 'cancelled' } })))
    expect((await scene.operation('k3', 'ann')).status).toBe('unsure')
    expect((await scene.operation('k3')).status).toBe('intended')
  })

  test('a deleted thread moves as what it is: its next life goes on from its positions and epochs', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r', threadId: 't' })
    await scene.write(claim, { operation: { kind: 'intend', key: 'k', name: 'send' } })
    await scene.store.deleteThread({ owner: '', threadId: 't', at: 9 })
    const whole = await wholeThread(scene, 't')
    expect(whole).toMatchObject({ epochFloor: 1, runs: [], log: [], operations: [{ key: 'k', status: 'unsure' }] })
    expect(await scene.store.restoreThread(ownedBy('ann', whole))).toEqual({ ok: true })
    expect(await wholeThread(scene, 't', 'ann')).toEqual(ownedBy('ann', whole))
    expect(refusalOf(await scene.commit(change({ owner: 'ann', threadId: 't', events: [event('state_updated')] })))).toBe(
      'thread_deleted',
    )
    const next = await scene.createAndClaim({ id: 'r', threadId: 't', owner: 'ann' })
    expect(next.run).toMatchObject({ epoch: 2, inputSeq: 2 })
    expect(next.thread).toMatchObject({ incarnation: 2, baseSeq: 1 })
  })

  test('what is there already is not overwritten: thread, run id or operation key, conflict, and nothing is written', async (scene) => {
    await furnish(scene, 't')
    const whole = await wholeThread(scene, 't')
    const before = await scene.contents()
    expect(await scene.store.restoreThread(whole)).toEqual({ ok: false, refusal: 'conflict' })
    expect(await scene.contents()).toEqual(before)

    await scene.create({ id: 't/next', owner: 'ann', threadId: 'elsewhere', workflow: 'other' })
    expect(await scene.store.restoreThread(ownedBy('ann', whole))).toEqual({ ok: false, refusal: 'conflict' })
    expect(await scene.store.readThread({ owner: 'ann', threadId: 't' })).toBeNull()
    expect(await scene.store.readRun({ owner: 'ann', runId: 't/done' })).toBeNull()
    expect(await scene.store.readOperation({ owner: 'ann', key: 't/k1' })).toBeNull()

    const taker = await scene.createAndClaim({ id: 'taker', owner: 'bob', workflow: 'report' })
    await scene.write(taker, { operation: { kind: 'intend', key: 't/k2', name: 'charge' } })
    expect(await scene.store.restoreThread(ownedBy('bob', whole))).toEqual({ ok: false, refusal: 'conflict' })
    expect(await scene.store.readThread({ owner: 'bob', threadId: 't' })).toBeNull()
    expect(await scene.operation('t/k2', 'bob')).toMatchObject({ runId: 'taker', status: 'intended' })

    await scene.store.deleteThread({ owner: '', threadId: 't', at: 1 })
    expect(await scene.store.restoreThread(whole)).toEqual({ ok: false, refusal: 'conflict' })
  })

  test('of two that restore the same thread at once one does', async (scene) => {
    await furnish(scene, 't')
    const whole = ownedBy('ann', await wholeThread(scene, 't'))
    const answers = await Promise.all([1, 2, 3, 4].map(() => scene.store.restoreThread(whole)))
    expect(answers.filter(({ ok }) => ok)).toHaveLength(1)
    expect(withoutMessageIds(await wholeThread(scene, 't', 'ann'))).toEqual(withoutMessageIds(whole))
  })

  test('a restored thread can be deleted like any other', async (scene) => {
    await furnish(scene, 't')
    await scene.store.restoreThread(ownedBy('ann', await wholeThread(scene, 't')))
    expect(await scene.store.deleteThread({ owner: 'ann', threadId: 't', at: 3 })).toBe(true)
    expect(await wholeThread(scene, 't', 'ann')).toMatchObject({ runs: [], log: [], epochFloor: 1 })
    await scene.create({ id: 't/done', owner: 'ann', threadId: 't' })
    expect((await scene.store.readLog({ owner: 'ann', threadId: 't' })).map(({ type }) => type)).toEqual(['run_queued'])
  })
}
