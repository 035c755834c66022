import { expect } from 'vitest'
import { recordChecksum, sealChecksum } from '../../model/checksum.ts'
import { invariant } from '../../model/errors.ts'
import type { Change, Guard } from '../../store/change.ts'
import { readWholeThread } from '../../store/read-whole-thread.ts'
import type { Claim, Thread } from '../../store/store.ts'
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

/** Written by a holder who knows that much. */
function knowing(claim: Claim, writtenSeq: number, fields: Partial<Change> = {}): Change {
  const guard = leased(claim).guard as Extract<Guard, { kind: 'lease' }>
  return leased(claim, { guard: { ...guard, writtenSeq }, ...fields })
}

/** What a holder writes on the short path and on every other. */
const paths: Record<string, Partial<Change>> = {
  'a step': { events: [stepCompleted('late')], isCheckpoint: true, run: { hasProgress: true, currentStep: null } },
  'a step with a patch': { events: [event('step_completed', { step: 'late', payload: '1', patch: '[1]' })] },
  'a step that is no checkpoint': { events: [stepCompleted('late')], isCheckpoint: false },
  'a step and a longer lease': { events: [stepCompleted('late')], run: { hasProgress: true, leaseMs: 99_000_000 } },
  'a label': { events: [stepCompleted('late')], label: 'late' },
  'a snapshot': { events: [stepCompleted('late')], snapshot: '{"late":true}', stateVersion: 8 },
  'a new tape': { events: [event('run_started', { payload: '2' })], run: { startsTape: true, hasNewInput: true } },
  'an intent': { events: [event('effect_intended')], operation: { kind: 'intend', key: 'k-new', name: 'send' }, mustSync: true },
  'an effect that happened': { events: [event('effect_completed')], operation: { kind: 'complete', key: 'k', result: '1' } },
  'a child run': { events: [event('child_started')], creates: [newRun({ id: 'child' })] },
  chunks: { chunks: [{ stream: 'tokens', tape: 1, step: 'a', count: 1, attempt: 1, size: 1, payload: '["x"]' }] },
  'a current step alone': { run: { currentStep: 'late' } },
  'a wait': { events: [event('timer_set')], run: { status: 'waiting', reason: 'timer', due: { inMs: 5 } } },
  'a wait without events': { run: { status: 'waiting', reason: 'timer', due: { inMs: 5 } } },
  pausing: { events: [event('run_paused')], run: { status: 'paused', reason: 'asked', setsEnd: true } },
  completion: { events: [event('run_completed')], run: { status: 'completed', setsEnd: true } },
  'release of the run': { run: { status: 'pending', due: { inMs: 0 } } },
  nothing: {},
}

/** A claimed run with an open operation; its thread was last written under a lease at position 3. */
async function writtenRun(scene: Scene, id = 'r'): Promise<Claim> {
  const claim = await scene.createAndClaim({ id })
  await scene.write(claim, { events: [event('run_started')], run: { startsTape: true } })
  await scene.write(claim, { events: [event('effect_intended')], operation: { kind: 'intend', key: 'k', name: 'send' } })
  return claim
}

/** Position and checksum of the last record with a patch, as the log says. */
async function lastPatch(scene: Scene, threadId: string): Promise<Pick<Thread, 'patchSeq' | 'patchChecksum'>> {
  const last = (await scene.store.readLog({ owner: '', threadId })).findLast(({ patch }) => patch !== null)
  if (last === undefined) return { patchSeq: 0, patchChecksum: 0 }
  return { patchSeq: last.seq, patchChecksum: sealChecksum(recordChecksum({ owner: '', threadId }, last), last.seq) }
}

const patched = (patch: string) => event('state_updated', { patch })

export function testHistory(test: StoreTest): void {
  test('a thread knows the last position that was written under a lease, and the claim says it', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    expect(claim.thread).toMatchObject({ headSeq: 1, writtenSeq: 0 })
    expect(await scene.thread('r')).toMatchObject({ headSeq: 1, writtenSeq: 0 })
    await scene.write(claim, { events: [event('run_started'), stepCompleted('a')], run: { startsTape: true } })
    expect((await scene.thread('r')).writtenSeq).toBe(3)
    await scene.write(claim, { run: { currentStep: 'b' } })
    expect((await scene.thread('r')).writtenSeq).toBe(3)
    await scene.write(claim, { events: [stepCompleted('b')], isCheckpoint: false })
    expect((await scene.thread('r')).writtenSeq).toBe(4)
    await scene.write(claim, { events: [stepCompleted('c')], run: { status: 'waiting', reason: 'timer', due: { inMs: 0 } } })
    expect((await scene.claimOne()).thread).toMatchObject({ headSeq: 5, writtenSeq: 5 })
  })

  test('every kind of change with events under a lease says where it ended', async (scene) => {
    for (const [index, [path, fields]] of Object.entries(paths).entries()) {
      const id = `r-${index}`
      await scene.create({ id, queue: id })
      const claim = await scene.claimOne({ queues: [id] })
      const operation = fields.operation === undefined ? {} : { operation: { ...fields.operation, key: id } }
      if (fields.operation?.kind === 'complete')
        await scene.write(claim, { operation: { kind: 'intend', key: id, name: 'send' } })
      const creates =
        fields.creates === undefined ? {} : { creates: [newRun({ id: `${id}-child`, threadId: id, queue: 'others' })] }
      const answer = await scene.write(claim, { ...fields, ...operation, ...creates })
      const { headSeq, writtenSeq } = await scene.thread(id)
      const expected = fields.events === undefined ? 0 : 2
      expect([path, writtenSeq, headSeq]).toEqual([path, expected, 1 + (expected === 0 ? 0 : 1) + (fields.creates?.length ?? 0)])
      if (fields.events !== undefined) expect([path, answer.lastSeq]).toEqual([path, writtenSeq])
    }
  })

  test('what others write to the log is not counted: a second start, a control call, an edit', async (scene) => {
    const claim = await writtenRun(scene)
    await scene.create({ id: 'second', threadId: 'r' })
    expect(await scene.thread('r')).toMatchObject({ headSeq: 4, writtenSeq: 3 })
    await scene.leave(claim, 'paused')
    expect(await scene.thread('r')).toMatchObject({ headSeq: 5, writtenSeq: 5 })
    const resume = { events: [event('run_resumed')], run: { status: 'paused' } } as const
    ok(await scene.commit(guarded(await scene.run('r'), {}, resume)))
    ok(await scene.commit(edit('r', 6)))
    ok(await scene.commit(change({ threadId: 'r', runId: 'r', events: [event('effect_resolved')] })))
    ok(await scene.commit(change({ threadId: 'r', creates: [newRun({ id: 'third', threadId: 'r' })] })))
    expect(await scene.thread('r')).toMatchObject({ headSeq: 9, writtenSeq: 5 })
  })

  test('S2: a holder that has seen more than is there writes nothing, on any path', async (scene) => {
    const claim = await writtenRun(scene)
    const before = await scene.contents()
    for (const [path, fields] of Object.entries(paths)) {
      for (const writtenSeq of [4, 5, 1_000_000]) {
        const answer = await scene.commit(knowing(claim, writtenSeq, fields))
        expect([path, writtenSeq, refusalOf(answer)]).toEqual([path, writtenSeq, 'lease_lost'])
      }
    }
    const answers = await scene.commitAll(Object.values(paths).map((fields) => knowing(claim, 4, fields)))
    expect(answers.map(refusalOf)).toEqual(answers.map(() => 'lease_lost'))
    const [after] = await scene.contents()
    expect(after?.threads.find(({ thread }) => thread.threadId === 'r')).toEqual(
      before[0]?.threads.find(({ thread }) => thread.threadId === 'r'),
    )
    expect(after?.runs).toEqual(before[0]?.runs)
    expect(await scene.store.readRun({ owner: '', runId: 'child' })).toBeNull()
    expect(await scene.store.readOperation({ owner: '', key: 'k-new' })).toBeNull()
    expect((await scene.operation('k')).status).toBe('intended')
  })

  test('S2: a holder that knows what is there, or less, writes', async (scene) => {
    const claim = await writtenRun(scene)
    for (const writtenSeq of [3, 0, 2]) expect(refusalOf(await scene.commit(knowing(claim, writtenSeq)))).toBe('none')
    const step = { events: [stepCompleted('a')], run: { hasProgress: true } }
    expect(await scene.commit(knowing(claim, 3, step))).toMatchObject({ ok: true, firstSeq: 4 })
    expect(await scene.commit(knowing(claim, 4, step))).toMatchObject({ ok: true, firstSeq: 5 })
    expect(await scene.commit(knowing(claim, 0, step))).toMatchObject({ ok: true, firstSeq: 6 })
    expect((await scene.thread('r')).writtenSeq).toBe(6)
  })

  test('S2: what others have written beyond it neither fences a holder nor hides what was lost', async (scene) => {
    const claim = await writtenRun(scene)
    for (const id of ['second', 'third', 'fourth']) await scene.create({ id, threadId: 'r' })
    expect(await scene.thread('r')).toMatchObject({ headSeq: 6, writtenSeq: 3 })
    // As if positions 4 to 6 had been the holder's own, before they were lost.
    expect(refusalOf(await scene.commit(knowing(claim, 6, { events: [stepCompleted('a')] })))).toBe('lease_lost')
    expect(await scene.commit(knowing(claim, 3, { events: [stepCompleted('a')] }))).toMatchObject({ ok: true, firstSeq: 7 })
    expect((await scene.thread('r')).writtenSeq).toBe(7)
  })

  test('S2: the changes of a batch carry what was known when it was sent, and all of them pass', async (scene) => {
    const claim = await writtenRun(scene)
    const step = (name: string) => ({ events: [stepCompleted(name)], isCheckpoint: true, run: { hasProgress: true } })
    const intent: Partial<Change> = {
      events: [event('effect_intended')],
      isCheckpoint: false,
      operation: { kind: 'intend', key: 'k2', name: 'send' },
    }
    const answers = await scene.commitAll([
      knowing(claim, 3, step('a')),
      knowing(claim, 3, intent),
      knowing(claim, 3, step('b')),
      knowing(claim, 3, { events: [event('run_completed')], run: { status: 'completed', setsEnd: true } }),
    ])
    expect(answers.map(refusalOf)).toEqual(['none', 'none', 'none', 'none'])
    expect(await scene.thread('r')).toMatchObject({ headSeq: 7, writtenSeq: 7 })
  })

  test('S2: in a batch of several runs only those are refused whose commits are missing', async (scene) => {
    const ids = Array.from({ length: 12 }, (_, index) => `r-${index}`)
    for (const id of ids) await scene.create({ id })
    const claims = await scene.claim()
    expect(claims).toHaveLength(ids.length)
    await scene.commitAll(claims.map((claim) => leased(claim, { events: [event('run_started')], run: { startsTape: true } })))
    const step = { events: [stepCompleted('a')], isCheckpoint: true, run: { hasProgress: true } }
    const answers = await scene.commitAll(claims.map((claim, index) => knowing(claim, index % 3 === 0 ? 3 : 2, step)))
    expect(answers.map(refusalOf)).toEqual(claims.map((_, index) => (index % 3 === 0 ? 'lease_lost' : 'none')))
    for (const [index, { run }] of claims.entries()) {
      const at = index % 3 === 0 ? 2 : 3
      expect(await scene.thread(run.id)).toMatchObject({ headSeq: at, writtenSeq: at })
    }
  })

  test('S2: lease and headSeq are judged as before; what is missing comes before a moved head', async (scene) => {
    const claim = await writtenRun(scene)
    const guard = leased(claim).guard as Extract<Guard, { kind: 'lease' }>
    const commit = async (fields: Partial<typeof guard>) =>
      refusalOf(await scene.commit(leased(claim, { guard: { ...guard, ...fields }, events: [stepCompleted('a')] })))
    expect(await commit({ writtenSeq: 4, headSeq: 3 })).toBe('lease_lost')
    expect(await commit({ writtenSeq: 4, headSeq: 9 })).toBe('lease_lost')
    expect(await commit({ writtenSeq: 3, headSeq: 9 })).toBe('conflict')
    expect(await commit({ writtenSeq: 3, epoch: guard.epoch + 1 })).toBe('lease_lost')
    expect(await commit({ writtenSeq: 3, headSeq: 3 })).toBe('none')
  })

  test('S2: renewing tells a holder that what it has seen is gone, and extends nothing for it', async (scene) => {
    const claim = await writtenRun(scene)
    const before = await scene.run('r')
    const lease = { owner: '', runId: 'r', epoch: claim.run.epoch, leaseId: claim.leaseId }
    const renew = async (writtenSeqs: readonly number[]) =>
      (await scene.store.renew({ leaseMs: 99_000, leases: writtenSeqs.map((writtenSeq) => ({ ...lease, writtenSeq })) })).map(
        ({ isHeld }) => isHeld,
      )
    expect(await renew([4])).toEqual([false])
    expect(await renew([1_000_000])).toEqual([false])
    expect(await scene.run('r')).toEqual(before)
    expect(await renew([3])).toEqual([true])
    expect((await scene.run('r')).leaseUntil).toBeGreaterThan(before.leaseUntil ?? 0)
    expect(await renew([0])).toEqual([true])
  })

  test('S2: renewing judges each lease by its own thread', async (scene) => {
    for (const id of ['a', 'b', 'c']) await scene.create({ id })
    const claims = await scene.claim()
    const held = claims.find(({ run }) => run.id === 'b') as Claim
    await scene.write(held, { events: [stepCompleted('s')] })
    const leases = claims.map(({ run, leaseId }) => ({ owner: '', runId: run.id, epoch: run.epoch, leaseId, writtenSeq: 2 }))
    const answers = await scene.store.renew({
      leaseMs: 10_000,
      leases: [...leases, ...leases.map((lease) => ({ ...lease, writtenSeq: 0 }))],
    })
    expect(answers.map(({ runId, isHeld }) => `${runId} ${isHeld}`)).toEqual([
      ...claims.map(({ run }) => `${run.id} ${run.id === 'b'}`),
      ...claims.map(({ run }) => `${run.id} true`),
    ])
  })

  test('S2: a transaction is refused like a commit, before its body runs', async (scene) => {
    const { store } = scene
    const claim = await writtenRun(scene)
    const lease = { owner: '', runId: 'r', threadId: 'r', epoch: claim.run.epoch, leaseId: claim.leaseId, timeoutMs: 60_000 }
    if (store.transact === undefined) return expect(store.kind).not.toBe('postgres')
    let calls = 0
    const body = async () => {
      calls += 1
      return knowing(claim, 3, { events: [stepCompleted('a')], run: { hasProgress: true } })
    }
    expect(await store.transact({ ...lease, writtenSeq: 4 }, body)).toMatchObject({ ok: false, refusal: 'lease_lost' })
    expect(calls).toBe(0)
    expect(await scene.thread('r')).toMatchObject({ headSeq: 3, writtenSeq: 3 })
    expect(await store.transact({ ...lease, writtenSeq: 3 }, body)).toMatchObject({ ok: true, firstSeq: 4 })
    expect(await scene.thread('r')).toMatchObject({ headSeq: 4, writtenSeq: 4 })
    expect(await store.transact(lease, async () => knowing(claim, 5, { events: [stepCompleted('b')] }))).toMatchObject({
      ...{ ok: false, refusal: 'lease_lost' },
    })
    expect(await scene.thread('r')).toMatchObject({ headSeq: 4, writtenSeq: 4 })
  })

  test('the next life of a deleted thread continues: what its runs write is later than all that anybody has seen', async (scene) => {
    const claim = await writtenRun(scene)
    await scene.store.deleteThread({ owner: '', threadId: 'r', at: await scene.store.now() })
    expect(refusalOf(await scene.commit(knowing(claim, 3, { events: [stepCompleted('late')] })))).toBe('lease_lost')
    const next = await scene.createAndClaim({ id: 'r' })
    expect(next.thread).toMatchObject({ headSeq: 4, writtenSeq: 3, incarnation: 2 })
    expect(await scene.commit(knowing(next, 3, { events: [stepCompleted('a')] }))).toMatchObject({ ok: true, lastSeq: 5 })
    expect((await scene.thread('r')).writtenSeq).toBe(5)
  })

  test('a thread knows position and checksum of the last record with a patch, whoever wrote it', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    expect(claim.thread).toMatchObject({ patchSeq: 0, patchChecksum: 0 })
    const expectLast = async (patchSeq: number) => {
      const expected = await lastPatch(scene, 'r')
      expect(expected.patchSeq).toBe(patchSeq)
      expect(await scene.thread('r')).toMatchObject(expected)
    }
    await scene.write(claim, { events: [event('run_started')], run: { startsTape: true } })
    await expectLast(0)
    // As a plain step, in the middle of a change, among others, beside all else.
    await scene.write(claim, {
      events: [event('step_completed', { step: 'a', payload: '1', patch: '[1]' })],
      run: { hasProgress: true },
    })
    await expectLast(3)
    await scene.write(claim, { events: [patched('[2]'), patched('[3]'), stepCompleted('b')], run: { hasProgress: true } })
    await expectLast(5)
    await scene.write(claim, { events: [stepCompleted('c')], run: { hasProgress: true } })
    await expectLast(5)
    await scene.write(claim, { events: [patched('[4]')], label: 'four', snapshot: '{}', stateVersion: 2 })
    await expectLast(8)
    await scene.commitAll([
      leased(claim, { events: [patched('[5]')] }),
      leased(claim, { events: [stepCompleted('d')], run: { hasProgress: true } }),
      leased(claim, { events: [event('step_completed', { step: 'e', patch: new Uint8Array([0, 255]) })], isCheckpoint: false }),
      leased(claim, { events: [stepCompleted('f')] }),
    ])
    await expectLast(11)
    await scene.leave(claim, 'paused')
    ok(await scene.commit(guarded(await scene.run('r'), {}, { events: [patched('[6]')], run: { status: 'paused' } })))
    await expectLast(14)
    ok(await scene.commit(edit('r', 14)))
    await expectLast(15)
    ok(await scene.commit(change({ threadId: 'r', runId: 'r', events: [event('effect_resolved')] })))
    await expectLast(15)
    const queued = event('run_queued', { payload: '1', patch: '[7]' })
    ok(await scene.commit(change({ threadId: 'r', creates: [newRun({ id: 'second', threadId: 'r', queued })] })))
    await expectLast(17)
    if (scene.canReopen) {
      await scene.reopen()
      await expectLast(17)
    }
  })

  test('a patch that a transaction wrote is the last one', async (scene) => {
    const { store } = scene
    const claim = await writtenRun(scene)
    if (store.transact === undefined) return expect(store.kind).not.toBe('postgres')
    const lease = { owner: '', runId: 'r', threadId: 'r', epoch: claim.run.epoch, leaseId: claim.leaseId, timeoutMs: 60_000 }
    const step = event('step_completed', { step: 'a', payload: '1', patch: '[1]' })
    expect(await store.transact(lease, async () => leased(claim, { events: [step] }))).toMatchObject({ ok: true })
    expect(await scene.thread('r')).toMatchObject({ ...(await lastPatch(scene, 'r')), patchSeq: 4, writtenSeq: 4 })
  })

  test('the same patch at the same position has another checksum when it was written at another time', async (scene) => {
    ok(await scene.commit(edit('a', 0)))
    const first = await scene.thread('a')
    await scene.store.deleteThread({ owner: '', threadId: 'a', at: 1 })
    ok(await scene.commit(edit('b', 0, { events: [event('state_updated', { patch: '[]', at: 1_700_000_000_001 })] })))
    const other = await scene.thread('b')
    expect([first.patchSeq, other.patchSeq]).toEqual([1, 1])
    expect(first.patchChecksum).not.toBe(other.patchChecksum)
  })

  test('a new life begins without a patch', async (scene) => {
    ok(await scene.commit(edit('t', 0)))
    await scene.store.deleteThread({ owner: '', threadId: 't', at: 1 })
    await scene.create({ id: 'r', threadId: 't' })
    expect(await scene.thread('t')).toMatchObject({ headSeq: 2, patchSeq: 0, patchChecksum: 0 })
    ok(await scene.commit(edit('t', 2)))
    expect(await scene.thread('t')).toMatchObject({ ...(await lastPatch(scene, 't')), patchSeq: 3 })
  })

  test('lists, scans and images say the same of a thread as reading it does', async (scene) => {
    const claim = await writtenRun(scene)
    await scene.write(claim, { events: [patched('[1]')] })
    const thread = await scene.thread('r')
    expect(thread).toMatchObject({ headSeq: 4, writtenSeq: 4, patchSeq: 4 })
    expect((await scene.store.listThreads({ owner: '', limit: 10 })).items).toEqual([thread])
    expect((await scene.store.scanThreads({ limit: 10 })).items).toEqual([thread])
    expect((await scene.store.readThreadImage({ owner: '', threadId: 'r' }))?.thread).toEqual(thread)
    await scene.leave(claim, 'pending', { due: { inMs: 0 } })
    expect((await scene.claimOne()).thread).toEqual(await scene.thread('r'))
  })

  test('a restored thread keeps what was written, and its next holder writes on', async (scene) => {
    const claim = await writtenRun(scene)
    await scene.write(claim, { events: [patched('[1]')] })
    await scene.leave(claim, 'pending', { due: { inMs: 0 } })
    const whole = await readWholeThread(scene.store, { owner: '', threadId: 'r' })
    invariant(whole !== null, 'thread r is missing')
    const moved = {
      ...whole,
      ...{ thread: { ...whole.thread, owner: 'ann' }, operations: [] },
      runs: whole.runs.map((image) => ({ ...image, run: { ...image.run, owner: 'ann' } })),
    }
    expect(await scene.store.restoreThread(moved)).toEqual({ ok: true })
    expect(await scene.thread('r', 'ann')).toEqual({ ...whole.thread, owner: 'ann' })
    const next = (await scene.claim()).find(({ run }) => run.owner === 'ann') as Claim
    const { writtenSeq } = next.thread
    const answer = await scene.commit(knowing(next, writtenSeq, { events: [stepCompleted('a')], run: { hasProgress: true } }))
    expect(answer).toMatchObject({ ok: true, firstSeq: 6 })
    expect(refusalOf(await scene.commit(knowing(next, 7, { events: [stepCompleted('b')] })))).toBe('lease_lost')
  })
}
