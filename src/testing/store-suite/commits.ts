import { expect } from 'vitest'
import type { Change, NewRun } from '../../store/change.ts'
import type { Claim, Hint } from '../../store/store.ts'
import {
  change,
  codeThrownBy,
  edit,
  event,
  guarded,
  leased,
  newMessage,
  newRun,
  ok,
  refusalOf,
  type Scene,
  type StoreTest,
  stepCompleted,
} from './scene.ts'

/** A change that writes something of everything, so that any half of it would show. */
function wholeChange(id: string): Partial<Change> {
  return {
    ...{
      events: [stepCompleted('half'), event('run_completed', { patch: '[1]' })],
      isCheckpoint: true,
      label: 'half',
      stateVersion: 6,
    },
    ...{ snapshot: '{"half":1}', run: { status: 'completed', setsEnd: true, hasProgress: true, currentStep: 'half' } },
    ...{ creates: [newRun({ id: `${id}-child` })], operation: { kind: 'intend', key: `${id}-key`, name: 'send' } },
    delivers: [newMessage({ runId: `${id}-child`, name: 'half' }), newMessage({ runId: 'r', name: 'half' })],
  }
}

export function testCommits(test: StoreTest): void {
  test('S1: a change is written whole', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    await scene.deliver({ runId: 'r' })
    const [message] = await scene.store.readInbox({ owner: '', runId: 'r' })
    const answer = await scene.write(claim, { ...wholeChange('r'), readMessages: [message?.id ?? -1] })
    expect(answer).toMatchObject({ firstSeq: 2, lastSeq: 3, hasMail: false, created: [{ isNew: true, run: { id: 'r-child' } }] })
    expect(await scene.run('r')).toMatchObject({
      status: 'completed',
      endSeq: 3,
      finishedAt: answer.now,
      claimsWithoutProgress: 0,
    })
    expect(await scene.thread('r')).toMatchObject({ headSeq: 3, stateVersion: 6 })
    expect(await scene.store.readSnapshot({ owner: '', threadId: 'r', atSeq: 3 })).toEqual({
      seq: 3,
      state: '{"half":1}',
      stateVersion: 6,
    })
    expect(await scene.operation('r-key')).toMatchObject({
      status: 'unsure',
      runId: 'r',
      threadId: 'r',
      intendedAt: answer.now,
    })
    expect((await scene.run('r-child')).status).toBe('pending')
    expect(await scene.store.readInbox({ owner: '', runId: 'r-child' })).toMatchObject([{ name: 'half', at: answer.now }])
    expect(await scene.store.readInbox({ owner: '', runId: 'r' })).toEqual([])
    expect(await scene.store.listCheckpoints({ owner: '', threadId: 'r', label: 'half' })).toMatchObject([{ seq: 3 }])
  })

  test('ends, starts and others of one batch see what the earlier ones left', async (scene) => {
    for (const id of ['a', 'b', 'c']) await scene.create({ id })
    await scene.create({ id: 'c2', threadId: 'c' })
    const [a, b, c] = (await scene.claim()) as [Claim, Claim, Claim]
    const ending = (claim: Claim, status: 'completed' | 'failed' = 'completed') =>
      leased(claim, {
        events: [event('run_started'), event(`run_${status}`)],
        run: { status, reason: null, currentStep: null, setsEnd: true, hasProgress: true, startsTape: true },
      })
    const start = (id: string, fields: Partial<NewRun> = {}) =>
      change({ threadId: fields.threadId ?? id, creates: [newRun({ id, ...fields })] })
    const answers = await scene.commitAll([
      ...[ending(a), ending(a), start('d'), start('d2', { threadId: 'd' }), ending(c), start('later', { due: { inMs: 60_000 } })],
      ...[
        start('a2', { threadId: 'a', ifBusy: 'reject' }),
        start('a3', { threadId: 'a', ifBusy: 'reject' }),
        ending(b, 'failed'),
      ],
      guarded({ ...a.run, status: 'completed' }, {}, { run: { status: 'pending', reason: null, due: { inMs: 0 } } }),
    ])
    expect(answers.map(refusalOf)).toEqual([
      ...['none', 'lease_lost', 'none', 'none', 'none', 'none', 'none', 'conflict', 'none', 'none'],
    ])
    expect(answers[0]).toMatchObject({ firstSeq: 2, lastSeq: 3 })
    expect(await scene.run('b')).toMatchObject({
      ...{ status: 'failed', leaseId: null, leaseUntil: null, leaseHolder: null, claimsWithoutProgress: 0 },
      ...{ tapeSeq: 2, endSeq: 3, startedAt: expect.any(Number), finishedAt: expect.any(Number) },
    })
    const [queue] = await scene.store.listQueues({ name: 'default' })
    expect(queue?.counts).toEqual({ pending: 5, delayed: 1, running: 0, waiting: 0, paused: 0 })
    const idsOf = async (threadId: string) =>
      (await scene.store.listRuns({ owner: '', threadId, limit: 9 })).items.map(({ id }) => id)
    expect([await idsOf('a'), await idsOf('b'), await idsOf('c'), await idsOf('d')]).toEqual([
      ...[['a2', 'a'], ['b'], ['c2', 'c'], ['d2', 'd']],
    ])
    // The run that goes on has its place back, before the one that came after it.
    expect((await scene.claimedIds()).sort()).toEqual(['a', 'c2', 'd'])
    scene.advance(60_000)
    expect(await scene.claimedIds()).toContain('later')
  })

  const refusals: Record<string, (scene: Scene, claim: Claim) => Promise<Change>> = {
    lease_lost: async (scene, claim) => {
      await scene.takeOver(claim)
      return leased(claim, wholeChange('x'))
    },
    conflict: async (_scene, claim) => guarded({ ...claim.run, status: 'pending' }, {}, wholeChange('x')),
    'conflict of a busy thread': async (scene, claim) => {
      await scene.create({ id: 'busy', due: { inMs: 99_000_000_000 } })
      const creates = [
        newRun({ id: 'unwritten-1' }),
        newRun({ id: 'unwritten-2', threadId: 'busy', ifBusy: 'reject' }),
        newRun({ id: 'unwritten-3' }),
      ]
      return leased(claim, { ...wholeChange('x'), creates })
    },
    'conflict of an operation that is not open': async (_scene, claim) =>
      leased(claim, { ...wholeChange('x'), operation: { kind: 'complete', key: 'never-opened', result: '1' } }),
    operation_taken: async (scene, claim) => {
      await scene.write(claim, { operation: { kind: 'intend', key: 'taken', name: 'send' } })
      return leased(claim, { ...wholeChange('x'), operation: { kind: 'intend', key: 'taken', name: 'send' } })
    },
    already_answered: async (scene, claim) => {
      await scene.write(claim, { operation: { kind: 'intend', key: 'open', name: 'send' } })
      const operation = { kind: 'resolve', key: 'open', hasHappened: true, result: '1', by: 'ann' } as const
      return leased(claim, { ...wholeChange('x'), operation })
    },
    run_not_found: async (_scene, claim) => guarded({ ...claim.run, id: 'missing' }, {}, wholeChange('x')),
    'conflict of the head': async (scene, claim) => {
      await scene.leave(claim, 'completed')
      return edit('r', 1, { creates: [newRun({ id: 'unwritten-child' })], snapshot: '{}', stateVersion: 9, label: 'half' })
    },
  }
  for (const [refusal, prepare] of Object.entries(refusals)) {
    test(`S1: nothing of a change is written when it is refused with ${refusal}`, async (scene) => {
      const claim = await scene.createAndClaim({ id: 'r' })
      await scene.write(claim, { events: [stepCompleted('before')], snapshot: '{"before":1}', stateVersion: 2, label: 'good' })
      const refused = await prepare(scene, claim)
      expect(refusalOf(await scene.commit(refused))).toBe(refusal.split(' ')[0])
      const before = await scene.contents()
      expect(refusalOf(await scene.commit(refused))).toBe(refusal.split(' ')[0])
      expect(await scene.contents()).toEqual(before)
      const traces = JSON.stringify(before)
      expect(traces).not.toContain('half')
      expect(traces).not.toContain('unwritten-')
    })
  }

  test('S1: a refused change does not hurt its neighbours in the batch', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    const answers = await scene.commitAll([
      leased(claim, { events: [stepCompleted('a')] }),
      leased({ ...claim, leaseId: 'wrong' }, { events: [stepCompleted('stale')] }),
      change({ threadId: 'n', creates: [newRun({ id: 'n' })] }),
      change({ threadId: 'r', creates: [newRun({ id: 'm', threadId: 'r', ifBusy: 'reject' })] }),
      leased(claim, { events: [stepCompleted('b')], operation: { kind: 'fail', key: 'unknown' } }),
      leased(claim, { events: [stepCompleted('c')] }),
    ])
    expect(answers.map(refusalOf)).toEqual(['none', 'lease_lost', 'none', 'conflict', 'conflict', 'none'])
    const log = await scene.store.readLog({ owner: '', threadId: 'r' })
    expect(log.map(({ seq, step }) => [seq, step])).toEqual([
      [1, null],
      [2, 'a'],
      [3, 'c'],
    ])
    expect(ok(answers[5] as never)).toMatchObject({ firstSeq: 3, lastSeq: 3 })
  })

  test('later changes of a batch see the earlier ones', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    const answers = await scene.commitAll([
      leased(claim, { events: [event('run_completed')], run: { status: 'completed', setsEnd: true } }),
      leased(claim, { events: [stepCompleted('after the end')] }),
      edit('r', 2),
      edit('r', 2),
      edit('r', 3),
      change({ threadId: 'r', creates: [newRun({ id: 'next', threadId: 'r', ifBusy: 'reject' })] }),
      change({ threadId: 'r', creates: [newRun({ id: 'next', threadId: 'r' })] }),
    ])
    expect(answers.map(refusalOf)).toEqual(['none', 'lease_lost', 'none', 'conflict', 'none', 'none', 'none'])
    expect(answers[6]).toMatchObject({ created: [{ isNew: false }] })
    expect((await scene.thread('r')).headSeq).toBe(5)
  })

  test('an empty batch has an empty answer', async (scene) => {
    expect(await scene.store.commit([])).toEqual([])
  })

  test('a large batch is answered in order', async (scene) => {
    const ids = Array.from({ length: 500 }, (_, index) => `r-${index}`)
    const answers = await scene.commitAll(ids.map((id) => change({ threadId: id, creates: [newRun({ id })] })))
    expect(answers.map((answer) => ok(answer).created[0]?.run.id)).toEqual(ids)
  })

  test('S3: positions are gapless whoever writes: the holder, an editor, a new run', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r', threadId: 't' })
    await scene.write(claim, { events: [stepCompleted('a'), stepCompleted('b'), stepCompleted('c')] })
    await scene.create({ id: 'next', threadId: 't' })
    await scene.write(claim, { events: [event('run_completed')], run: { status: 'completed' } })
    ok(
      await scene.commit(
        edit('t', 6, { events: [event('state_updated', { patch: '1' }), event('state_updated', { patch: '2' })] }),
      ),
    )
    const log = await scene.store.readLog({ owner: '', threadId: 't' })
    expect(log.map(({ seq }) => seq)).toEqual([1, 2, 3, 4, 5, 6, 7, 8])
    expect(log.map(({ runId }) => runId)).toEqual(['r', 'r', 'r', 'r', 'next', 'r', null, null])
    expect((await scene.thread('t')).headSeq).toBe(8)
  })

  test('S3: refused changes leave no gap', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    for (let round = 0; round < 5; round++) {
      await scene.commit(leased({ ...claim, leaseId: 'wrong' }, { events: [stepCompleted('stale')] }))
      await scene.write(claim, { events: [stepCompleted('good')] })
    }
    const log = await scene.store.readLog({ owner: '', threadId: 'r' })
    expect(log.map(({ seq }) => seq)).toEqual([1, 2, 3, 4, 5, 6])
  })

  test('a change without events is answered with the head of the thread', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    await scene.write(claim, { events: [stepCompleted('a')] })
    const answer = await scene.write(claim, { run: { currentStep: 'b' } })
    expect([answer.firstSeq, answer.lastSeq]).toEqual([2, 2])
    expect((await scene.run('r')).currentStep).toBe('b')
  })

  test('S1: a reader sees all events of a change or none', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    let isWriting = true
    const writer = (async () => {
      for (let round = 0; round < 60; round++) {
        const events = Array.from({ length: 5 }, (_, index) => stepCompleted(`${round}-${index}`))
        await scene.write(claim, { events, run: { currentStep: `${round}` } })
      }
      isWriting = false
    })()
    const lengths: number[] = []
    while (isWriting) {
      const log = await scene.store.readLog({ owner: '', threadId: 'r' })
      lengths.push((log.length - 1) % 5)
      await new Promise((resolve) => setImmediate(resolve))
    }
    await writer
    expect(new Set(lengths)).toEqual(new Set([0]))
  })

  test('what a change does not name stays as it is', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    const first = { startsTape: true, currentStep: 'a', reason: 'asked' } as const
    await scene.write(claim, { events: [event('run_started')], run: first, stateVersion: 2 })
    const before = await scene.run('r')
    expect(before).toMatchObject({ tapeSeq: 2, currentStep: 'a', reason: 'asked', claimsWithoutProgress: 1, inputSeq: 1 })
    await scene.write(claim, { events: [stepCompleted('s')], run: {} })
    await scene.write(claim, { events: [stepCompleted('s')] })
    expect(await scene.run('r')).toEqual(before)
    expect(await scene.thread('r')).toMatchObject({ stateVersion: 2, headSeq: 4 })
    await scene.write(claim, { run: { currentStep: null, reason: null } })
    expect(await scene.run('r')).toEqual({ ...before, currentStep: null, reason: null })
  })

  test('progress makes the count of claims 0, and a claim that was no death is uncounted, not below 0', async (scene) => {
    let claim = await scene.createAndClaim({ id: 'r' })
    claim = await scene.takeOver(claim)
    claim = await scene.takeOver(claim)
    await scene.write(claim, { run: { uncountClaim: true } })
    expect((await scene.run('r')).claimsWithoutProgress).toBe(2)
    await scene.write(claim, { events: [stepCompleted('s')], run: { hasProgress: true } })
    expect((await scene.run('r')).claimsWithoutProgress).toBe(0)
    await scene.write(claim, { run: { uncountClaim: true } })
    expect((await scene.run('r')).claimsWithoutProgress).toBe(0)
  })

  test('a tape starts at the first event of its change, and startedAt is set once', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    const first = await scene.write(claim, { events: [event('run_started'), stepCompleted('a')], run: { startsTape: true } })
    expect(await scene.run('r')).toMatchObject({ tapeSeq: 2, inputSeq: 1, startedAt: first.now })
    scene.advance(5_000)
    const events = [event('run_started', { payload: '"new"' }), stepCompleted('b')]
    await scene.write(claim, { events, run: { startsTape: true, hasNewInput: true } })
    expect(await scene.run('r')).toMatchObject({ tapeSeq: 4, inputSeq: 4, startedAt: first.now })
    await scene.write(claim, { events: [event('run_retried')], run: { startsTape: true } })
    expect(await scene.run('r')).toMatchObject({ tapeSeq: 6, inputSeq: 4 })
  })

  test('the end points at the last event of its change', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    const events = [stepCompleted('a'), event('run_failed', { payload: '"error"' })]
    const answer = await scene.write(claim, { events, run: { status: 'failed', setsEnd: true } })
    expect(await scene.run('r')).toMatchObject({ status: 'failed', endSeq: answer.lastSeq, finishedAt: answer.now })
    expect(answer.lastSeq).toBe(3)
  })

  test('a failed run that is retried is not finished any more', async (scene) => {
    await scene.leave(await scene.createAndClaim({ id: 'r' }), 'failed')
    const failed = await scene.run('r')
    expect(failed.finishedAt).not.toBeNull()
    ok(await scene.commit(guarded(failed, {}, { events: [event('run_retried')], run: { status: 'pending', due: { inMs: 0 } } })))
    expect(await scene.run('r')).toMatchObject({ status: 'pending', finishedAt: null, epoch: 1 })
    const claim = await scene.claimOne()
    expect(claim.run).toMatchObject({ epoch: 2, endSeq: null })
  })

  test('a paused run is not finished', async (scene) => {
    await scene.leave(await scene.createAndClaim({ id: 'r' }), 'paused', { reason: 'budget', setsEnd: true })
    expect(await scene.run('r')).toMatchObject({ status: 'paused', reason: 'budget', finishedAt: null, endSeq: 2 })
  })

  test('S9: time is the clock of the store plus the offset', async (scene) => {
    const before = await scene.store.now()
    scene.advance(3_600_000)
    const after = await scene.store.now()
    expect(after - before).toBeGreaterThanOrEqual(3_600_000)
    expect(after - before).toBeLessThan(3_660_000)
    const claim = await scene.createAndClaim({ id: 'r' })
    expect(claim.now).toBeGreaterThanOrEqual(after)
    const answer = await scene.write(claim, { events: [event('run_completed')], run: { status: 'completed' } })
    expect(answer.now).toBeGreaterThanOrEqual(claim.now)
    expect((await scene.run('r')).finishedAt).toBe(answer.now)
  })

  test('an event keeps the time its writer gave it', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    await scene.write(claim, { events: [event('step_completed', { step: 's', at: 42, durationMs: 17, count: 3, attempt: 2 })] })
    const log = await scene.store.readLog({ owner: '', threadId: 'r', afterSeq: 1 })
    expect(log).toMatchObject([{ at: 42, durationMs: 17, count: 3, attempt: 2, step: 's', seq: 2 }])
  })

  test('a write without a condition for a run that does not exist is refused with run_not_found', async (scene) => {
    await scene.create({ id: 'r', threadId: 't' })
    const fields = { runId: 'missing', events: [event('effect_resolved')] }
    expect(refusalOf(await scene.commit(change({ threadId: 't', ...fields })))).toBe('run_not_found')
    expect((await scene.thread('t')).headSeq).toBe(1)
  })

  test('S4: what was committed is there when the store is opened again', async (scene) => {
    if (!scene.canReopen) return expect(scene.store.durability).toBe('none')
    const claim = await scene.createAndClaim({ id: 'r' })
    await scene.deliver({ runId: 'r', payload: '1' })
    await scene.write(claim, { ...wholeChange('r'), run: { currentStep: 'half', startsTape: true } })
    await scene.create({ id: 'gone' })
    await scene.store.deleteThread({ owner: '', threadId: 'gone', at: await scene.store.now() })
    const before = await scene.contents()
    await scene.reopen()
    expect(await scene.contents()).toEqual(before)
    await scene.write(claim, { events: [stepCompleted('goes on')] })
  })

  test('migrating again changes nothing', async (scene) => {
    await scene.create({ id: 'r' })
    const before = await scene.contents()
    await scene.store.migrate()
    expect(await scene.contents()).toEqual(before)
  })

  test('a closed store refuses every call with closed', async (scene) => {
    const { store } = scene
    await store.close()
    const run = { owner: '', runId: 'r' }
    const thread = { owner: '', threadId: 't' }
    const calls: Record<string, () => Promise<unknown>> = {
      now: () => store.now(),
      commit: () => store.commit([change({ threadId: 't', creates: [newRun({ id: 'r' })] })]),
      claim: () => scene.claim(),
      renew: () => store.renew({ leaseMs: 1, leases: [{ ...run, epoch: 1, leaseId: 'x' }] }),
      deliver: () => scene.deliver({ runId: 'r' }),
      readInbox: () => store.readInbox(run),
      readRun: () => store.readRun(run),
      listRuns: () => store.listRuns({ owner: '', limit: 1 }),
      readThread: () => store.readThread(thread),
      listThreads: () => store.listThreads({ owner: '', limit: 1 }),
      readLog: () => store.readLog(thread),
      readSnapshot: () => store.readSnapshot({ ...thread, atSeq: 1 }),
      listCheckpoints: () => store.listCheckpoints(thread),
      tag: () => store.tag({ ...thread, seq: 1, label: 'x' }),
      readOperation: () => store.readOperation({ owner: '', key: 'k' }),
      deleteThread: () => store.deleteThread({ ...thread, at: 1 }),
    }
    for (const [name, call] of Object.entries(calls)) expect([name, await codeThrownBy(call)]).toEqual([name, 'closed'])
  })

  test('closing twice is closing once', async (scene) => {
    await scene.store.close()
    await scene.store.close()
  })

  test('a subscriber hears of a commit and of a delivery until it ends', async (scene) => {
    if (scene.store.subscribe === undefined) return
    let hintCount = 0
    let heard = () => {}
    const end = scene.store.subscribe(() => {
      hintCount += 1
      heard()
    })
    const nextHint = () =>
      new Promise<void>((resolve) => {
        heard = resolve
      })
    let hint = nextHint()
    await scene.create({ id: 'r' })
    await hint
    hint = nextHint()
    await scene.deliver({ runId: 'r' })
    await hint
    end()
    expect(hintCount).toBeGreaterThanOrEqual(2)
  })

  test('a subscriber hears of mail that a change delivers, and of runs that it makes due', async (scene) => {
    const hints: Hint[] = []
    const claim = await scene.createAndClaim({ id: 'waiting' })
    await scene.leave(claim, 'waiting', { reason: 'signal', due: 'never' })
    const sender = await scene.createAndClaim({ id: 'r' })
    const end = scene.store.subscribe?.((hint) => hints.push(hint))
    await scene.write(sender, { events: [stepCompleted('a')], delivers: [newMessage({ runId: 'waiting' })] })
    end?.()
    const mail = hints.filter(({ runId, hasMail }) => runId === 'waiting' && hasMail === true)
    expect(mail).toMatchObject(scene.store.subscribe === undefined ? [] : [{ owner: '', isClaimable: true }])
  })
}
