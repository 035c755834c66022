import { expect } from 'vitest'
import type { OperationChange } from '../../store/change.ts'
import type { Claim } from '../../store/store.ts'
import { change, event, leased, newRun, ok, refusalOf, type Scene, type StoreTest, stepCompleted } from './scene.ts'

const intend = (key: string, name = 'send'): OperationChange => ({ kind: 'intend', key, name })
const complete = (key: string, result = '1'): OperationChange => ({ kind: 'complete', key, result })
const fail = (key: string): OperationChange => ({ kind: 'fail', key })
const ask = (key: string, name = 'approve'): OperationChange => ({ kind: 'ask', key, name })
const doubt = (key: string): OperationChange => ({ kind: 'doubt', key })
const resolve = (key: string, hasHappened: boolean, result: string | null = null): OperationChange => ({
  ...{ kind: 'resolve', key, hasHappened, result, by: 'ann' },
})
const undo = (key: string): OperationChange => ({ kind: 'undo', key })
const note = (key: string, evidence: string): OperationChange => ({ kind: 'note', key, evidence })

async function claimTwo(scene: Scene): Promise<{ a: Claim; b: Claim }> {
  ok(await scene.commit(change({ threadId: 'a', creates: [newRun({ id: 'a' }), newRun({ id: 'b' })] })))
  const claims = await scene.claim()
  const [a, b] = ['a', 'b'].map((id) => claims.find(({ run }) => run.id === id)) as [Claim, Claim]
  return { a, b }
}

/** A person or a bystander: no lease, no events. */
const unguarded = (operation: OperationChange, runId = 'a') => change({ threadId: runId, runId, operation })

export function testOperations(test: StoreTest): void {
  testOneOperation(test)
  testUndoneOperations(test)
  testUnsureOperations(test)
  testWaitingForOperations(test)
  testEndsOfRuns(test)
  testQuestions(test)
  testListsOfOperations(test)
}

function testOneOperation(test: StoreTest): void {
  test('an intent opens the operation for its run', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    const answer = await scene.write(claim, { operation: intend('k', 'charge'), mustSync: true })
    expect(await scene.operation('k')).toEqual({
      ...{ owner: '', key: 'k', kind: 'effect', name: 'charge', runId: 'r', threadId: 'r', status: 'intended' },
      ...{ result: null, evidence: null, resolvedBy: null, intendedAt: answer.now, closedAt: null },
    })
    expect(await scene.store.readOperation({ owner: '', key: 'K' })).toBeNull()
  })

  test('S7: one key is one operation: a second intent is refused and shows the first', async (scene) => {
    const { a, b } = await claimTwo(scene)
    await scene.write(a, { operation: intend('k') })
    const taken = await scene.operation('k')
    for (const claim of [a, b]) {
      const refused = leased(claim, { events: [stepCompleted('s')], operation: intend('k', 'other name') })
      expect(await scene.commit(refused)).toEqual({ ok: false, refusal: 'operation_taken', operation: taken })
    }
    expect(await scene.operation('k')).toEqual(taken)
    expect((await scene.thread('b')).headSeq).toBe(1)
  })

  test('S7: of two intents in one batch the first wins', async (scene) => {
    const { a, b } = await claimTwo(scene)
    const answers = await scene.commitAll([leased(b, { operation: intend('k') }), leased(a, { operation: intend('k') })])
    expect(answers.map(refusalOf)).toEqual(['none', 'operation_taken'])
    expect((await scene.operation('k')).runId).toBe('b')
  })

  test('a completed operation keeps its result and its key', async (scene) => {
    const { a, b } = await claimTwo(scene)
    await scene.write(a, { operation: intend('k') })
    const answer = await scene.write(a, { operation: complete('k', '{"id":7}') })
    const completed = await scene.operation('k')
    expect(completed).toMatchObject({ status: 'completed', result: '{"id":7}', closedAt: answer.now, runId: 'a' })
    expect(await scene.commit(leased(b, { operation: intend('k') }))).toEqual({
      ok: false,
      refusal: 'operation_taken',
      operation: completed,
    })
  })

  test('a result may be absent', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    await scene.write(claim, { operation: intend('k') })
    await scene.write(claim, { operation: { kind: 'complete', key: 'k', result: null } })
    expect(await scene.operation('k')).toMatchObject({ status: 'completed', result: null })
  })

  test('a failed operation frees its key, and the next intent starts clean', async (scene) => {
    const { a, b } = await claimTwo(scene)
    await scene.write(a, { operation: intend('k', 'send') })
    ok(await scene.commit(unguarded(note('k', '"late"'))))
    await scene.write(a, { operation: fail('k') })
    expect((await scene.operation('k')).status).toBe('failed')
    const answer = await scene.write(b, { operation: intend('k', 'post') })
    expect(await scene.operation('k')).toMatchObject({
      ...{ name: 'post', runId: 'b', threadId: 'b', status: 'intended' },
      ...{ result: null, evidence: null, resolvedBy: null, intendedAt: answer.now, closedAt: null },
    })
  })

  test('only the run that opened an operation closes it or doubts it', async (scene) => {
    const { a, b } = await claimTwo(scene)
    await scene.write(a, { operation: intend('k') })
    const open = await scene.operation('k')
    for (const operation of [complete('k'), fail('k'), doubt('k')]) {
      expect(refusalOf(await scene.commit(leased(b, { events: [stepCompleted('s')], operation })))).toBe('conflict')
    }
    expect(await scene.operation('k')).toEqual(open)
    expect((await scene.thread('b')).headSeq).toBe(1)
  })

  test('an operation that was never opened is not closed', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    for (const operation of [complete('k'), fail('k'), doubt('k')]) {
      expect(refusalOf(await scene.commit(leased(claim, { operation })))).toBe('conflict')
    }
    expect(await scene.store.readOperation({ owner: '', key: 'k' })).toBeNull()
  })

  test('a closed operation is not closed again', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    for (const close of [complete, fail]) {
      await scene.write(claim, { operation: intend(close.name) })
      await scene.write(claim, { operation: close(close.name) })
      const closed = await scene.operation(close.name)
      for (const operation of [complete(close.name, '2'), fail(close.name), doubt(close.name)]) {
        expect(refusalOf(await scene.commit(leased(claim, { operation })))).toBe('conflict')
      }
      expect(await scene.operation(close.name)).toEqual(closed)
    }
  })
}

function testUndoneOperations(test: StoreTest): void {
  test('an undone operation frees its key, and the next intent starts clean', async (scene) => {
    const { a, b } = await claimTwo(scene)
    await scene.write(a, { operation: intend('k', 'send') })
    const completed = await scene.write(a, { operation: complete('k', '"sent"') })
    scene.advance(60_000)
    const undone = await scene.write(a, { events: [event('step_undone')], operation: undo('k') })
    expect(await scene.operation('k')).toMatchObject({ status: 'undone', runId: 'a', result: '"sent"', closedAt: undone.now })
    expect(undone.now).toBeGreaterThan(completed.now)
    const answer = await scene.write(b, { operation: intend('k', 'post') })
    expect(await scene.operation('k')).toMatchObject({
      ...{ name: 'post', runId: 'b', threadId: 'b', status: 'intended' },
      ...{ result: null, evidence: null, resolvedBy: null, intendedAt: answer.now, closedAt: null },
    })
  })

  test('only what is completed can be undone, and only once', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    const closings = { intended: [], unsure: [doubt], failed: [fail], undone: [complete, undo] }
    for (const [status, acts] of Object.entries(closings)) {
      await scene.write(claim, { operation: intend(status) })
      for (const act of acts) await scene.write(claim, { operation: act(status) })
      const before = await scene.operation(status)
      expect(before.status).toBe(status)
      expect(refusalOf(await scene.commit(leased(claim, { events: [stepCompleted('s')], operation: undo(status) })))).toBe(
        'conflict',
      )
      expect(await scene.operation(status)).toEqual(before)
    }
    expect(refusalOf(await scene.commit(leased(claim, { operation: undo('never opened') })))).toBe('conflict')
    expect(await scene.store.readOperation({ owner: '', key: 'never opened' })).toBeNull()
    expect((await scene.thread('r')).headSeq).toBe(1)
  })

  test('only the run that opened an operation undoes it, whoever said that it happened', async (scene) => {
    const { a, b } = await claimTwo(scene)
    await scene.write(a, { operation: intend('k') })
    await scene.write(a, { operation: doubt('k') })
    ok(await scene.commit(unguarded(resolve('k', true, '"yes"'))))
    const completed = await scene.operation('k')
    expect(refusalOf(await scene.commit(leased(b, { operation: undo('k') })))).toBe('conflict')
    expect(refusalOf(await scene.commit(change({ threadId: 'a', operation: undo('k') })))).toBe('conflict')
    expect(await scene.operation('k')).toEqual(completed)
    await scene.write(a, { operation: undo('k') })
    expect(await scene.operation('k')).toMatchObject({ status: 'undone', result: '"yes"', resolvedBy: 'ann' })
  })

  test('in one batch an operation is completed, undone and opened by another', async (scene) => {
    const { a, b } = await claimTwo(scene)
    await scene.write(a, { operation: intend('k') })
    const answers = await scene.commitAll([
      leased(b, { operation: intend('k') }),
      leased(a, { operation: complete('k') }),
      leased(b, { operation: intend('k') }),
      leased(a, { operation: undo('k') }),
      leased(b, { operation: intend('k') }),
    ])
    expect(answers.map(refusalOf)).toEqual(['operation_taken', 'none', 'operation_taken', 'none', 'none'])
    expect(await scene.operation('k')).toMatchObject({ status: 'intended', runId: 'b' })
  })

  test('a run that would wait for an undone operation is due at once', async (scene) => {
    const { a, b } = await claimTwo(scene)
    await scene.write(a, { operation: intend('k') })
    await scene.write(a, { operation: complete('k') })
    await scene.write(a, { operation: undo('k') })
    await scene.write(b, { run: { status: 'waiting', reason: 'effect', due: 'never', waitKey: 'k' } })
    expect(await scene.claimedIds()).toEqual(['b'])
  })

  test('a later holder of the same run closes what the earlier one opened', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    await scene.write(claim, { operation: intend('k') })
    const holder = await scene.takeOver(claim)
    expect(refusalOf(await scene.commit(leased(claim, { operation: complete('k', '"zombie"') })))).toBe('lease_lost')
    await scene.write(holder, { operation: complete('k', '"good"') })
    expect(await scene.operation('k')).toMatchObject({ status: 'completed', result: '"good"' })
  })
}

function testUnsureOperations(test: StoreTest): void {
  test('a doubted operation stays open: its key is taken and its run may still close it', async (scene) => {
    const { a, b } = await claimTwo(scene)
    await scene.write(a, { operation: intend('k') })
    await scene.write(a, { operation: doubt('k') })
    expect(await scene.operation('k')).toMatchObject({ status: 'unsure', closedAt: null })
    expect(refusalOf(await scene.commit(leased(b, { operation: intend('k') })))).toBe('operation_taken')
    await scene.write(a, { operation: complete('k') })
    expect((await scene.operation('k')).status).toBe('completed')
  })

  test('a person resolves a doubt: it happened', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'a' })
    await scene.write(claim, { operation: intend('k') })
    await scene.write(claim, { operation: doubt('k') })
    const answer = ok(await scene.commit(unguarded(resolve('k', true, '"receipt"'))))
    expect(await scene.operation('k')).toMatchObject({
      status: 'completed',
      result: '"receipt"',
      resolvedBy: 'ann',
      closedAt: answer.now,
    })
  })

  test('a person resolves a doubt: it did not happen, and the key is free', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'a' })
    await scene.write(claim, { operation: intend('k') })
    await scene.write(claim, { operation: doubt('k') })
    const answer = ok(await scene.commit(unguarded(resolve('k', false))))
    expect(await scene.operation('k')).toMatchObject({ status: 'failed', resolvedBy: 'ann', closedAt: answer.now })
    await scene.write(claim, { operation: intend('k') })
    expect(await scene.operation('k')).toMatchObject({ status: 'intended', resolvedBy: null, closedAt: null })
  })

  test('only a doubt can be resolved, once; otherwise the answer shows the operation', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'a' })
    expect(refusalOf(await scene.commit(unguarded(resolve('k', true))))).toBe('already_answered')
    await scene.write(claim, { operation: intend('k') })
    const intended = await scene.operation('k')
    const early = await scene.commit(unguarded(resolve('k', true)))
    expect(early).toEqual({ ok: false, refusal: 'already_answered', operation: intended })
    await scene.write(claim, { operation: doubt('k') })
    ok(await scene.commit(unguarded(resolve('k', true, '"first"'))))
    const resolved = await scene.operation('k')
    const late = await scene.commit(unguarded(resolve('k', false)))
    expect(late).toEqual({ ok: false, refusal: 'already_answered', operation: resolved })
    expect(await scene.operation('k')).toEqual(resolved)
  })

  test('the late answer of a fenced holder is kept as evidence', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'a' })
    await scene.write(claim, { operation: intend('k') })
    const holder = await scene.takeOver(claim)
    ok(await scene.commit(unguarded(note('k', '"sent at 12:01"'))))
    expect(await scene.operation('k')).toMatchObject({
      status: 'intended',
      evidence: '"sent at 12:01"',
      result: null,
      closedAt: null,
    })
    await scene.write(holder, { operation: doubt('k') })
    expect(await scene.operation('k')).toMatchObject({ status: 'unsure', evidence: '"sent at 12:01"' })
  })

  test('evidence that comes after completion is ignored, and for an unknown key too', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'a' })
    await scene.write(claim, { operation: intend('k') })
    await scene.write(claim, { operation: complete('k') })
    const completed = await scene.operation('k')
    ok(await scene.commit(unguarded(note('k', '"late"'))))
    ok(await scene.commit(unguarded(note('unknown', '"late"'))))
    expect(await scene.operation('k')).toEqual(completed)
    expect(await scene.store.readOperation({ owner: '', key: 'unknown' })).toBeNull()
  })
}

function testWaitingForOperations(test: StoreTest): void {
  const closings: Record<string, (scene: Scene, holder: Claim) => Promise<unknown>> = {
    completing: (scene, holder) => scene.write(holder, { operation: complete('k') }),
    failing: (scene, holder) => scene.write(holder, { operation: fail('k') }),
    resolving: async (scene, holder) => {
      await scene.write(holder, { operation: doubt('k') })
      expect(await scene.claim()).toEqual([])
      return ok(await scene.commit(unguarded(resolve('k', true))))
    },
  }
  for (const [closing, close] of Object.entries(closings)) {
    test(`${closing} an operation wakes the run that waits for its key`, async (scene) => {
      const { a, b } = await claimTwo(scene)
      await scene.write(a, { operation: intend('k') })
      await scene.write(a, { operation: intend('other'), run: { leaseMs: 99_000_000 } })
      await scene.leave(b, 'waiting', { reason: 'effect', due: 'never', waitKey: 'k' })
      expect((await scene.run('b')).dueAt).toBeNull()
      ok(await scene.commit(unguarded(note('k', '"late"'))))
      await scene.write(a, { operation: complete('other') })
      expect(await scene.claim()).toEqual([])
      await close(scene, a)
      expect((await scene.claimOne()).run).toMatchObject({ id: 'b', epoch: 2 })
    })
  }

  test('closing an operation wakes all who wait for it, and nobody who is paused', async (scene) => {
    const ids = ['opener', 'w1', 'w2', 'asleep', 'stopped']
    ok(await scene.commit(change({ threadId: 'opener', creates: ids.map((id) => newRun({ id })) })))
    const claims = new Map((await scene.claim({ leaseMs: 99_000_000 })).map((claim) => [claim.run.id, claim]))
    const claimOf = (id: string) => claims.get(id) as Claim
    await scene.write(claimOf('opener'), { operation: intend('k') })
    await scene.leave(claimOf('w1'), 'waiting', { reason: 'effect', due: 'never', waitKey: 'k' })
    await scene.leave(claimOf('w2'), 'waiting', { reason: 'effect', due: { inMs: 3_600_000 }, waitKey: 'k' })
    await scene.leave(claimOf('asleep'), 'waiting', { reason: 'signal', due: 'never' })
    await scene.leave(claimOf('stopped'), 'paused', { reason: 'asked', due: 'never' })
    await scene.write(claimOf('opener'), { operation: complete('k') })
    expect((await scene.claimedIds()).sort()).toEqual(['w1', 'w2'])
  })

  test('a run that begins to wait for a closed operation is due at once', async (scene) => {
    const { a, b } = await claimTwo(scene)
    await scene.write(a, { operation: intend('k'), run: { leaseMs: 99_000_000 } })
    await scene.write(a, { operation: complete('k') })
    await scene.leave(b, 'waiting', { reason: 'effect', due: 'never', waitKey: 'k' })
    expect((await scene.claimOne()).run.id).toBe('b')
  })

  test('a run that doubts its own effect waits for it until a person resolves', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'a' })
    await scene.write(claim, { operation: intend('k') })
    await scene.write(claim, { operation: doubt('k'), run: { status: 'waiting', reason: 'effect', due: 'never', waitKey: 'k' } })
    scene.advance(10_000_000)
    expect(await scene.claim()).toEqual([])
    ok(await scene.commit(unguarded(resolve('k', true, '1'))))
    expect(await scene.claimedIds()).toEqual(['a'])
  })
}

function testEndsOfRuns(test: StoreTest): void {
  test('operations outlive their thread', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'a' })
    await scene.write(claim, { operation: intend('done') })
    await scene.write(claim, { operation: complete('done', '"paid"') })
    await scene.store.deleteThread({ owner: '', threadId: 'a', at: await scene.store.now() })
    expect(await scene.operation('done')).toMatchObject({ status: 'completed', result: '"paid"' })
    const again = await scene.createAndClaim({ id: 'a' })
    expect(refusalOf(await scene.commit(leased(again, { operation: intend('done') })))).toBe('operation_taken')
  })

  test('an operation that a deleted thread left intended becomes unsure, and a person can resolve it', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'a' })
    await scene.write(claim, { operation: intend('k') })
    await scene.store.deleteThread({ owner: '', threadId: 'a', at: await scene.store.now() })
    expect(await scene.operation('k')).toMatchObject({ status: 'unsure' })
    ok(await scene.commit(unguarded(resolve('k', true, '1'))))
    expect(await scene.operation('k')).toMatchObject({ status: 'completed', result: '1' })
  })

  for (const status of ['completed', 'failed', 'cancelled'] as const) {
    test(`an operation that a ${status} run left intended becomes unsure; closed ones stay`, async (scene) => {
      const claim = await scene.createAndClaim({ id: 'a' })
      const other = await scene.createAndClaim({ id: 'b' })
      await scene.write(claim, { operation: intend('open') })
      await scene.write(claim, { operation: intend('done') })
      await scene.write(claim, { operation: complete('done', '1') })
      await scene.write(other, { operation: intend('of another') })
      await scene.leave(claim, status)
      expect(await scene.operation('open')).toMatchObject({ status: 'unsure' })
      expect(await scene.operation('done')).toMatchObject({ status: 'completed', result: '1' })
      expect(await scene.operation('of another')).toMatchObject({ status: 'intended' })
    })
  }
}

function testQuestions(test: StoreTest): void {
  test('a question is open from the write that asks it: it is listed, and a person answers it at once', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'a' })
    const asked = await scene.write(claim, { events: [event('question_asked')], operation: ask('q', 'scope/approve') })
    const question = {
      ...{ owner: '', key: 'q', kind: 'question', name: 'scope/approve', runId: 'a', threadId: 'a', status: 'unsure' },
      ...{ result: null, evidence: null, resolvedBy: null, intendedAt: asked.now, closedAt: null },
    }
    expect(await scene.operation('q')).toEqual(question)
    expect((await scene.store.listUnsure({ owner: '', limit: 10 })).items).toEqual([question])
    const answered = ok(await scene.commit(unguarded(resolve('q', true, '"yes"'))))
    expect(await scene.operation('q')).toMatchObject({
      ...{ kind: 'question', status: 'completed', result: '"yes"', resolvedBy: 'ann', closedAt: answered.now },
    })
    expect(refusalOf(await scene.commit(unguarded(resolve('q', true, '"again"'))))).toBe('already_answered')
    expect((await scene.store.listUnsure({ owner: '', limit: 10 })).items).toEqual([])
  })

  test('S7: a question and an effect of one key are one operation, and the kind is that of whoever opened it last', async (scene) => {
    const { a, b } = await claimTwo(scene)
    await scene.write(a, { operation: ask('q') })
    for (const operation of [ask('q'), intend('q')])
      expect(refusalOf(await scene.commit(leased(b, { operation })))).toBe('operation_taken')
    await scene.write(a, { operation: fail('q') })
    await scene.write(b, { operation: intend('q', 'send') })
    expect(await scene.operation('q')).toMatchObject({ kind: 'effect', status: 'intended', name: 'send', runId: 'b' })
    await scene.write(b, { operation: fail('q') })
    await scene.write(a, { operation: ask('q') })
    expect(await scene.operation('q')).toMatchObject({ kind: 'question', status: 'unsure', name: 'approve', closedAt: null })
  })

  const ends: Record<string, (scene: Scene, claim: Claim) => Promise<unknown>> = {
    'a run that ends': (scene, claim) => scene.leave(claim, 'completed'),
    'a run that ends beside other changes': (scene, claim) =>
      scene.commitAll([
        leased(claim, { events: [event('run_completed')], run: { status: 'completed', setsEnd: true } }),
        change({ threadId: 'new', creates: [newRun({ id: 'new' })] }),
      ]),
    'a plain end': (scene, claim) =>
      scene.write(claim, {
        events: [event('run_completed')],
        run: { status: 'completed', reason: null, currentStep: null, setsEnd: true, hasProgress: true },
      }),
    'a new tape': (scene, claim) =>
      scene.write(claim, { events: [event('run_started')], run: { startsTape: true, hasNewInput: true } }),
    'a deleted thread': async (scene) => {
      await scene.store.deleteThread({ owner: '', threadId: 'a', at: await scene.store.now() })
    },
  }
  for (const [what, end] of Object.entries(ends)) {
    test(`${what} leaves no question open and no effect intended; what is closed stays`, async (scene) => {
      const { a, b } = await claimTwo(scene)
      for (const key of ['open', 'answered']) await scene.write(a, { operation: ask(key) })
      await scene.write(a, { operation: intend('sent') })
      ok(await scene.commit(unguarded(resolve('answered', true, '"yes"'))))
      await scene.write(b, { operation: ask('of another') })
      scene.advance(1_000)
      await end(scene, a)
      const closed = await scene.operation('open')
      expect(closed).toMatchObject({ kind: 'question', status: 'failed', resolvedBy: null })
      expect(closed.closedAt).toBeGreaterThanOrEqual(closed.intendedAt + 1_000)
      expect(await scene.operation('answered')).toMatchObject({ status: 'completed', result: '"yes"' })
      expect(await scene.operation('sent')).toMatchObject({ kind: 'effect', status: 'unsure', closedAt: null })
      const { items } = await scene.store.listUnsure({ owner: '', limit: 10 })
      expect(items.map(({ key }) => key).sort()).toEqual(['of another', 'sent'])
      expect(refusalOf(await scene.commit(unguarded(resolve('open', true))))).toBe('already_answered')
    })
  }

  test('a question and the end of its run in one batch: who is first decides whether it is answered', async (scene) => {
    const { a, b } = await claimTwo(scene)
    for (const [claim, key] of [
      [a, 'qa'],
      [b, 'qb'],
    ] as const)
      await scene.write(claim, { operation: ask(key) })
    const endOf = (claim: Claim) =>
      leased(claim, {
        events: [event('run_completed')],
        run: { status: 'completed', reason: null, currentStep: null, setsEnd: true },
      })
    const answers = await scene.commitAll([
      unguarded(resolve('qa', true)),
      endOf(a),
      endOf(b),
      unguarded(resolve('qb', true), 'b'),
    ])
    expect(answers.map(refusalOf)).toEqual(['none', 'none', 'none', 'already_answered'])
  })
}

function testListsOfOperations(test: StoreTest): void {
  test('evidence can be noted even when the thread is gone', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'a' })
    await scene.write(claim, { operation: intend('k') })
    await scene.store.deleteThread({ owner: '', threadId: 'a', at: await scene.store.now() })
    ok(await scene.commit(unguarded(note('k', '"sent"'))))
    expect(await scene.operation('k')).toMatchObject({ status: 'unsure', evidence: '"sent"' })
    expect((await scene.thread('a')).deletedAt).not.toBeNull()
  })

  test('unsure operations are listed in the order in which they were opened, page by page, of one owner', async (scene) => {
    const { a, b } = await claimTwo(scene)
    for (const key of ['k2', 'k1', 'é', 'k3', 'k4']) {
      await scene.write(a, { operation: intend(key) })
      scene.advance(1_000)
    }
    for (const key of ['é', 'k1', 'k2', 'k3']) await scene.write(a, { operation: doubt(key) })
    const keysOf = async (query: { limit: number; cursor?: string }) => {
      const { items, cursor } = await scene.store.listUnsure({ owner: '', ...query })
      return { keys: items.map(({ key }) => key), ...(cursor !== undefined && { cursor }) }
    }
    expect(await keysOf({ limit: 10 })).toEqual({ keys: ['k2', 'k1', 'é', 'k3'] })
    const first = await keysOf({ limit: 3 })
    expect(first.keys).toEqual(['k2', 'k1', 'é'])
    expect(await keysOf({ limit: 3, cursor: first.cursor as string })).toEqual({ keys: ['k3'] })
    expect(await keysOf({ limit: 0 })).toEqual({ keys: [] })
    ok(await scene.commit(unguarded(resolve('k1', true))))
    await scene.write(a, { operation: complete('k2') })
    await scene.write(b, { operation: intend('b') })
    // What a run that ends leaves intended is unsure from then on.
    await scene.write(b, { run: { status: 'cancelled' } })
    expect(await keysOf({ limit: 10 })).toEqual({ keys: ['é', 'k3', 'b'] })
    const [listed] = (await scene.store.listUnsure({ owner: '', limit: 1 })).items
    expect(listed).toEqual(await scene.operation('é'))
    expect(await scene.store.listUnsure({ owner: 'ann', limit: 10 })).toEqual({ items: [] })
    await expect(scene.store.listUnsure({ owner: '', limit: 10, cursor: 'n7' })).rejects.toMatchObject({ code: 'invalid_input' })
  })
}
