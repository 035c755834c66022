import { expect } from 'vitest'
import type { Change } from '../../store/change.ts'
import type { Claim } from '../../store/store.ts'
import { plainPayload } from '../store-contents.ts'
import {
  change,
  edit,
  event,
  guarded,
  leased,
  newMessage,
  newRun,
  ok,
  payloadsOf,
  refusalOf,
  type Scene,
  type StoreTest,
  stepCompleted,
} from './scene.ts'

const inboxOf = async (scene: Scene, runId: string, owner = '') => payloadsOf(await scene.store.readInbox({ owner, runId }))

async function lastMessageOf(scene: Scene, runId: string): Promise<number> {
  return (await scene.store.readInbox({ owner: '', runId })).at(-1)?.id ?? 0
}

/** Far in the future: there, but not in the way of a claim. */
const later = { inMs: 99_000_000_000 }

export function testInbox(test: StoreTest): void {
  testDeliveredOnce(test)
  testDelivery(test)
  testReadMessages(test)
  testDeliveringChanges(test)
  testMessagesSeen(test)
  testTimesOfMessages(test)
}

function testDeliveredOnce(test: StoreTest): void {
  test('of the messages to a run with one dedupe id the first is delivered, read since or not, also after the run has ended', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    await scene.create({ id: 'other', owner: 'ann' })
    const send = (fields: { payload: string; dedupeId: string; runId?: string; owner?: string }) =>
      scene.deliver({ runId: 'r', ...fields })
    expect(await send({ dedupeId: 'a', payload: '1' })).toEqual({ ok: true })
    expect(await send({ dedupeId: 'a', payload: '2' })).toEqual({ ok: true })
    await send({ dedupeId: 'b', payload: '3' })
    await send({ dedupeId: 'A', payload: '4' })
    await send({ owner: 'ann', runId: 'other', dedupeId: 'a', payload: '5' })
    expect(await inboxOf(scene, 'r')).toEqual(['text:1', 'text:3', 'text:4'])
    expect(await inboxOf(scene, 'other', 'ann')).toEqual(['text:5'])
    const read = (await scene.store.readInbox({ owner: '', runId: 'r' })).map(({ id }) => id)
    await scene.write(claim, { events: [stepCompleted('s')], readMessages: read })
    if (scene.canReopen) await scene.reopen()
    expect(await send({ dedupeId: 'a', payload: '6' })).toEqual({ ok: true })
    expect(await inboxOf(scene, 'r')).toEqual([])
    await scene.leave(claim, 'completed')
    expect(await send({ dedupeId: 'a', payload: '7' })).toEqual({ ok: true })
    expect(await send({ dedupeId: 'c', payload: '8' })).toEqual({ ok: false, refusal: 'conflict' })
    expect(await send({ runId: 'nobody', dedupeId: 'a', payload: '9' })).toEqual({ ok: false, refusal: 'run_not_found' })
  })

  test('a message that is not delivered again does not make its run due, and a new life of the thread gets it anew', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    await scene.deliver({ runId: 'r', dedupeId: 'a' })
    const read = (await scene.store.readInbox({ owner: '', runId: 'r' })).map(({ id }) => id)
    await scene.write(claim, { readMessages: read, run: { status: 'waiting', due: 'never' } })
    await scene.deliver({ runId: 'r', dedupeId: 'a' })
    expect(await scene.claim()).toEqual([])
    await scene.store.deleteThread({ owner: '', threadId: 'r', at: await scene.store.now() })
    await scene.create({ id: 'r' })
    await scene.deliver({ runId: 'r', dedupeId: 'a', payload: '"again"' })
    expect(await inboxOf(scene, 'r')).toEqual(['text:"again"'])
  })

  test('twenty senders of one dedupe id at once deliver one message', async (scene) => {
    await scene.create({ id: 'r' })
    await Promise.all(Array.from({ length: 20 }, () => scene.deliver({ runId: 'r', dedupeId: 'a', payload: '1' })))
    expect(await inboxOf(scene, 'r')).toEqual(['text:1'])
  })
}

function testDelivery(test: StoreTest): void {
  test('messages are kept in order, each once', async (scene) => {
    await scene.create({ id: 'r' })
    const before = await scene.store.now()
    expect(await scene.deliver({ runId: 'r', kind: 'signal', name: 'go', payload: '1' })).toEqual({ ok: true })
    await scene.deliver({ runId: 'r', kind: 'cancel', name: null, payload: null })
    await scene.deliver({ runId: 'r', kind: 'signal', name: 'go', payload: new Uint8Array([0, 255]) })
    const messages = await scene.store.readInbox({ owner: '', runId: 'r' })
    expect(messages.map(({ kind, name }) => [kind, name])).toEqual([
      ['signal', 'go'],
      ['cancel', null],
      ['signal', 'go'],
    ])
    expect(payloadsOf(messages)).toEqual(['text:1', null, 'bytes:00ff'])
    expect(new Set(messages.map(({ id }) => id)).size).toBe(3)
    for (const message of messages) {
      expect(message).toMatchObject({ owner: '', runId: 'r' })
      expect(message.at).toBeGreaterThanOrEqual(before)
    }
    expect(await scene.store.readInbox({ owner: '', runId: 'r' })).toEqual(messages)
  })

  test('a run without mail has an empty inbox, and so has one that does not exist', async (scene) => {
    await scene.create({ id: 'r' })
    expect(await scene.store.readInbox({ owner: '', runId: 'r' })).toEqual([])
    expect(await scene.store.readInbox({ owner: '', runId: 'nobody' })).toEqual([])
  })

  test('a message to a run that does not exist is refused with run_not_found', async (scene) => {
    expect(await scene.deliver({ runId: 'nobody' })).toEqual({ ok: false, refusal: 'run_not_found' })
    expect(await scene.store.readInbox({ owner: '', runId: 'nobody' })).toEqual([])
  })

  for (const status of ['completed', 'failed', 'cancelled'] as const) {
    test(`a ${status} run takes no message`, async (scene) => {
      await scene.leave(await scene.createAndClaim({ id: 'r' }), status)
      expect(await scene.deliver({ runId: 'r' })).toEqual({ ok: false, refusal: 'conflict' })
      expect(await scene.store.readInbox({ owner: '', runId: 'r' })).toEqual([])
    })
  }

  test('a message makes a waiting run due', async (scene) => {
    for (const due of ['never', { inMs: 3_600_000 }] as const) {
      const id = due === 'never' ? 'a' : 'b'
      await scene.leave(await scene.createAndClaim({ id }), 'waiting', { reason: 'signal', due })
      expect(await scene.claim()).toEqual([])
      await scene.deliver({ runId: id })
      const claim = await scene.claimOne({ leaseMs: 99_000_000 })
      expect(claim).toMatchObject({ hasMail: true, run: { id, epoch: 2 } })
    }
  })

  test('a message does not hurry a pending run, nor wake a paused one', async (scene) => {
    await scene.leave(await scene.createAndClaim({ id: 'paused' }), 'paused', { reason: 'asked' })
    await scene.create({ id: 'later', due: { inMs: 3_600_000 } })
    const before = [await scene.run('paused'), await scene.run('later')]
    await scene.deliver({ runId: 'paused' })
    await scene.deliver({ runId: 'later' })
    expect(await scene.claim()).toEqual([])
    expect([await scene.run('paused'), await scene.run('later')]).toEqual(before)
  })

  test('the holder learns of mail at its next commit and at its next renewal', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    expect((await scene.write(claim, { events: [stepCompleted('a')] })).hasMail).toBe(false)
    await scene.deliver({ runId: 'r' })
    expect((await scene.write(claim, { events: [stepCompleted('b')] })).hasMail).toBe(true)
    const lease = { owner: '', runId: 'r', epoch: claim.run.epoch, leaseId: claim.leaseId }
    expect(await scene.store.renew({ leaseMs: 10_000, leases: [lease] })).toMatchObject([{ isHeld: true, hasMail: true }])
  })

  test('a message does not fence the holder', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    await scene.deliver({ runId: 'r' })
    expect(await scene.run('r')).toEqual(claim.run)
    expect(await scene.claim()).toEqual([])
  })
}

function testReadMessages(test: StoreTest): void {
  test('S1: a change deletes the messages that it dealt with, and no others', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    for (const payload of ['1', '2', '3']) await scene.deliver({ runId: 'r', payload })
    const [first, second, third] = (await scene.store.readInbox({ owner: '', runId: 'r' })).map(({ id }) => id) as [
      number,
      number,
      number,
    ]
    const some = await scene.write(claim, { events: [stepCompleted('a')], readMessages: [first, third] })
    expect(some.hasMail).toBe(true)
    const rest = await scene.store.readInbox({ owner: '', runId: 'r' })
    expect(rest.map(({ payload }) => plainPayload(payload))).toEqual(['text:2'])
    const all = await scene.write(claim, { events: [stepCompleted('b')], readMessages: [second] })
    expect(all.hasMail).toBe(false)
    expect(await scene.store.readInbox({ owner: '', runId: 'r' })).toEqual([])
    expect((await scene.takeOver(claim)).hasMail).toBe(false)
  })

  test('mail that came after the reading is still there', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    await scene.deliver({ runId: 'r', payload: '"seen"' })
    const seen = await scene.store.readInbox({ owner: '', runId: 'r' })
    await scene.deliver({ runId: 'r', payload: '"new"' })
    const answer = await scene.write(claim, { events: [stepCompleted('a')], readMessages: seen.map(({ id }) => id) })
    expect(answer.hasMail).toBe(true)
    expect(payloadsOf(await scene.store.readInbox({ owner: '', runId: 'r' }))).toEqual(['text:"new"'])
  })

  test('S1: a refused change leaves the mail where it is', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    await scene.deliver({ runId: 'r' })
    const mail = await scene.store.readInbox({ owner: '', runId: 'r' })
    const readMessages = mail.map(({ id }) => id)
    expect(refusalOf(await scene.commit(leased({ ...claim, leaseId: 'wrong' }, { readMessages })))).toBe('lease_lost')
    const operation = { kind: 'fail', key: 'unknown' } as const
    expect(refusalOf(await scene.commit(leased(claim, { readMessages, operation })))).toBe('conflict')
    expect(await scene.store.readInbox({ owner: '', runId: 'r' })).toEqual(mail)
  })

  test("a run cannot read another run's mail away", async (scene) => {
    await scene.create({ id: 'other', due: { inMs: 99_000_000 } })
    const claim = await scene.createAndClaim({ id: 'r' })
    await scene.deliver({ runId: 'other' })
    const mail = await scene.store.readInbox({ owner: '', runId: 'other' })
    await scene.write(claim, { events: [stepCompleted('a')], readMessages: mail.map(({ id }) => id) })
    expect(await scene.store.readInbox({ owner: '', runId: 'other' })).toEqual(mail)
    expect((await scene.write(claim, { events: [stepCompleted('b')] })).hasMail).toBe(false)
  })

  test('a run that begins to wait with unread mail is due at once; one that has read it is not', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    await scene.deliver({ runId: 'r' })
    await scene.leave(claim, 'waiting', { reason: 'person', due: 'never' })
    const again = await scene.claimOne()
    const mail = await scene.store.readInbox({ owner: '', runId: 'r' })
    await scene.write(again, {
      run: { status: 'waiting', reason: 'person', due: 'never' },
      readMessages: mail.map(({ id }) => id),
    })
    expect(await scene.claim()).toEqual([])
  })

  test('whoever takes up a run that has ended takes out mail that was left; the rest stays', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    for (const payload of ['1', '2']) await scene.deliver({ runId: 'r', payload })
    await scene.leave(claim, 'failed')
    const run = await scene.run('r')
    const [left] = await scene.store.readInbox({ owner: '', runId: 'r' })
    const readMessages = [left?.id ?? 0]
    const pending = { events: [event('run_retried')], run: { status: 'pending', due: { inMs: 0 } }, readMessages } as const
    expect(refusalOf(await scene.commit(guarded(run, { epoch: run.epoch + 1 }, pending)))).toBe('conflict')
    expect(await inboxOf(scene, 'r')).toEqual(['text:1', 'text:2'])
    ok(await scene.commit(guarded(run, {}, pending)))
    expect(await inboxOf(scene, 'r')).toEqual(['text:2'])
    expect((await scene.claimOne()).hasMail).toBe(true)
  })

  test('mail survives a change of holder', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    await scene.deliver({ runId: 'r', payload: '"keep"' })
    expect((await scene.takeOver(claim)).hasMail).toBe(true)
    expect(payloadsOf(await scene.store.readInbox({ owner: '', runId: 'r' }))).toEqual(['text:"keep"'])
  })

  test('mail goes with its thread and does not reach the next life', async (scene) => {
    await scene.create({ id: 'r' })
    await scene.deliver({ runId: 'r' })
    await scene.store.deleteThread({ owner: '', threadId: 'r', at: await scene.store.now() })
    expect(await scene.store.readInbox({ owner: '', runId: 'r' })).toEqual([])
    expect(await scene.deliver({ runId: 'r' })).toEqual({ ok: false, refusal: 'run_not_found' })
    const claim = await scene.createAndClaim({ id: 'r' })
    expect(claim.hasMail).toBe(false)
  })
}

function testDeliveringChanges(test: StoreTest): void {
  test('S1: a change delivers messages to other runs, in order, at its own time', async (scene) => {
    await scene.create({ id: 'a', due: later })
    await scene.create({ id: 'b', due: later, owner: 'ann' })
    const claim = await scene.createAndClaim({ id: 'r' })
    const answer = await scene.write(claim, {
      events: [stepCompleted('s')],
      delivers: [
        newMessage({ runId: 'a', kind: 'child', name: 'r', payload: '1' }),
        newMessage({ runId: 'b', owner: 'ann', payload: new Uint8Array([0, 255]) }),
        newMessage({ runId: 'a', payload: null }),
      ],
    })
    expect(answer.hasMail).toBe(false)
    const messages = await scene.store.readInbox({ owner: '', runId: 'a' })
    expect(messages).toMatchObject([
      { owner: '', runId: 'a', kind: 'child', name: 'r', payload: '1', at: answer.now },
      { owner: '', runId: 'a', kind: 'signal', name: null, payload: null, at: answer.now },
    ])
    expect(messages[1]?.id).toBeGreaterThan(messages[0]?.id ?? Number.NaN)
    expect(await inboxOf(scene, 'b', 'ann')).toEqual(['bytes:00ff'])
  })

  test('S1: a refused change delivers nothing', async (scene) => {
    await scene.create({ id: 'a', due: later })
    const claim = await scene.createAndClaim({ id: 'r' })
    const delivers = [newMessage({ runId: 'a' })]
    const refused = [
      leased({ ...claim, leaseId: 'wrong' }, { delivers }),
      leased(claim, { delivers, operation: { kind: 'fail', key: 'unknown' } }),
      leased(claim, { delivers, creates: [newRun({ id: 'b', threadId: 'a', ifBusy: 'reject' })] }),
      guarded({ ...claim.run, status: 'paused' }, {}, { delivers }),
      edit('r', 7, { delivers }),
    ]
    for (const one of refused) expect((await scene.commit(one)).ok).toBe(false)
    expect((await scene.commitAll(refused)).map(({ ok }) => ok)).toEqual(refused.map(() => false))
    expect(await inboxOf(scene, 'a')).toEqual([])
    expect((await scene.write(claim, { delivers })).ok).toBe(true)
    expect(await inboxOf(scene, 'a')).toEqual([null])
  })

  test('a change is written although one that it delivers to is gone or has ended: that message is dropped', async (scene) => {
    for (const status of ['completed', 'failed', 'cancelled'] as const)
      await scene.leave(await scene.createAndClaim({ id: status }), status)
    await scene.create({ id: 'deleted' })
    await scene.store.deleteThread({ owner: '', threadId: 'deleted', at: await scene.store.now() })
    await scene.create({ id: 'alive', due: later })
    const claim = await scene.createAndClaim({ id: 'r' })
    const dropped = ['completed', 'failed', 'cancelled', 'deleted', 'nobody']
    const delivers = [...dropped, 'alive'].map((runId) => newMessage({ runId, payload: '1' }))
    await scene.write(claim, {
      events: [stepCompleted('s')],
      delivers: [...delivers, newMessage({ runId: 'alive', owner: 'ann' })],
    })
    for (const runId of dropped) expect(await inboxOf(scene, runId)).toEqual([])
    expect(await inboxOf(scene, 'alive')).toEqual(['text:1'])
    expect((await scene.thread('r')).headSeq).toBe(2)
  })

  test('a message of a change makes a waiting run due, does not hurry a pending one, nor wake a paused one', async (scene) => {
    await scene.leave(await scene.createAndClaim({ id: 'waiting' }), 'waiting', { reason: 'child', due: later })
    await scene.leave(await scene.createAndClaim({ id: 'paused' }), 'paused', { reason: 'asked' })
    await scene.create({ id: 'pending', due: later })
    const claim = await scene.createAndClaim({ id: 'r' })
    const delivers = ['waiting', 'paused', 'pending'].map((runId) => newMessage({ runId }))
    await scene.write(claim, { events: [event('run_completed')], run: { status: 'completed' }, delivers })
    expect(await scene.claim()).toMatchObject([{ hasMail: true, run: { id: 'waiting', epoch: 2 } }])
  })

  test('a change may deliver to a run that it creates, and not to one that it ends', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    const delivers = [newMessage({ runId: 'child', payload: '1' }), newMessage({ runId: 'r' })]
    const answer = await scene.write(claim, {
      events: [event('run_completed')],
      run: { status: 'completed' },
      creates: [newRun({ id: 'child' })],
      delivers,
    })
    expect(answer.hasMail).toBe(false)
    expect(await inboxOf(scene, 'r')).toEqual([])
    expect(await scene.claim()).toMatchObject([{ hasMail: true, run: { id: 'child' } }])
    expect(await inboxOf(scene, 'child')).toEqual(['text:1'])
  })

  test('a run that delivers to itself has mail, and does not come to wait', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    const delivers = [newMessage({ runId: 'r' })]
    expect((await scene.write(claim, { events: [stepCompleted('s')], delivers })).hasMail).toBe(true)
    const mailSeen = await lastMessageOf(scene, 'r')
    await scene.write(claim, { run: { status: 'waiting', reason: 'signal', due: 'never' }, mailSeen, delivers })
    expect((await scene.claimOne()).hasMail).toBe(true)
  })

  test('somebody without a lease delivers with a change, too: by hand, under a guard, or with none', async (scene) => {
    await scene.create({ id: 'a', due: later })
    const paused = await scene.createAndClaim({ id: 'r' })
    await scene.leave(paused, 'paused', { reason: 'asked' })
    const to = (payload: string) => [newMessage({ runId: 'a', payload })]
    ok(await scene.commit(guarded(await scene.run('r'), {}, { run: { status: 'cancelled' }, delivers: to('1') })))
    ok(await scene.commit(edit('t', 0, { delivers: to('2') })))
    ok(await scene.commit(change({ threadId: 'u', creates: [newRun({ id: 'u', due: later })], delivers: to('3') })))
    ok(await scene.commit(change({ threadId: 'nowhere', delivers: to('4') })))
    expect(await inboxOf(scene, 'a')).toEqual(['text:1', 'text:2', 'text:3', 'text:4'])
    expect(await scene.store.readThread({ owner: '', threadId: 'nowhere' })).toBeNull()
  })

  test('changes of one batch deliver in their order, and later ones see it', async (scene) => {
    ok(await scene.commit(change({ threadId: 'a', creates: [newRun({ id: 'a' }), newRun({ id: 'b' }), newRun({ id: 'c' })] })))
    const [a, b, c] = (await scene.claim()) as [Claim, Claim, Claim]
    const to = (runId: string, payload: string) => [newMessage({ runId, payload })]
    const answers = await scene.commitAll([
      leased(b, { events: [stepCompleted('before')] }),
      leased(a, { events: [stepCompleted('s')], delivers: to('b', '1') }),
      leased(c, { events: [stepCompleted('beside')] }),
      leased(b, { events: [stepCompleted('after')] }),
      leased(a, { delivers: to('b', '2') }),
      leased(b, { events: [event('run_paused')], run: { status: 'waiting', reason: 'signal', due: 'never' } }),
      leased(c, { events: [event('run_completed')], run: { status: 'completed' } }),
      leased(a, { delivers: [...to('c', '3'), ...to('b', '4')] }),
    ])
    expect(answers.map((answer) => answer.ok && answer.hasMail)).toEqual([false, false, false, true, false, true, false, false])
    expect(await inboxOf(scene, 'b')).toEqual(['text:1', 'text:2', 'text:4'])
    expect(await inboxOf(scene, 'c')).toEqual([])
    expect(await scene.claimedIds()).toEqual(['b'])
  })

  test('two changes of one batch deliver to the run that waits first in line, and it becomes due once', async (scene) => {
    await scene.leave(await scene.createAndClaim({ id: 'parent' }), 'waiting', { reason: 'child', due: 'never' })
    ok(await scene.commit(change({ threadId: 'a', creates: [newRun({ id: 'a' }), newRun({ id: 'b' })] })))
    const ends = (await scene.claim()).map((claim) =>
      leased(claim, {
        events: [event('run_completed')],
        run: { status: 'completed', setsEnd: true },
        delivers: [newMessage({ runId: 'parent', kind: 'child', name: claim.run.id })],
      }),
    )
    expect((await scene.commitAll(ends)).map(refusalOf)).toEqual(['none', 'none'])
    const messages = await scene.store.readInbox({ owner: '', runId: 'parent' })
    expect(messages.map(({ name }) => name)).toEqual(['a', 'b'])
    expect(await scene.claimedIds()).toEqual(['parent'])
  })

  test('the holder learns at its next commit and renewal of what another run delivered', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    const sender = await scene.createAndClaim({ id: 'sender' })
    await scene.write(sender, { delivers: [newMessage({ runId: 'r' })] })
    expect((await scene.write(claim, { events: [stepCompleted('a')] })).hasMail).toBe(true)
    const lease = { owner: '', runId: 'r', epoch: claim.run.epoch, leaseId: claim.leaseId }
    expect(await scene.store.renew({ leaseMs: 10_000, leases: [lease] })).toMatchObject([{ isHeld: true, hasMail: true }])
  })

  /** Several shapes of change, because stores write the usual ones on paths of their own. */
}

function testMessagesSeen(test: StoreTest): void {
  const shapes: Record<string, Partial<Change>> = {
    'a step': { events: [stepCompleted('a')] },
    'a change without events': {},
    'a step with a new state': { events: [stepCompleted('a')], snapshot: '{}', stateVersion: 1 },
    'a labelled checkpoint': { events: [stepCompleted('a')], label: 'here' },
    'a step of bytes': { events: [stepCompleted('a', new Uint8Array([1]))] },
  }
  for (const [shape, fields] of Object.entries(shapes)) {
    test(`for ${shape}, messages up to mailSeen are no mail, later ones are`, async (scene) => {
      const claim = await scene.createAndClaim({ id: 'r' })
      expect((await scene.write(claim, { ...fields, mailSeen: 0 })).hasMail).toBe(false)
      for (const payload of ['1', '2']) await scene.deliver({ runId: 'r', payload })
      const [first, second] = (await scene.store.readInbox({ owner: '', runId: 'r' })).map(({ id }) => id) as [number, number]
      expect((await scene.write(claim, fields)).hasMail).toBe(true)
      expect((await scene.write(claim, { ...fields, mailSeen: first })).hasMail).toBe(true)
      expect((await scene.write(claim, { ...fields, mailSeen: second })).hasMail).toBe(false)
      await scene.deliver({ runId: 'r', payload: '3' })
      expect((await scene.write(claim, { ...fields, mailSeen: second })).hasMail).toBe(true)
      const third = await lastMessageOf(scene, 'r')
      expect((await scene.write(claim, { ...fields, mailSeen: second, readMessages: [third] })).hasMail).toBe(false)
      expect((await scene.write(claim, { ...fields, mailSeen: first })).hasMail).toBe(true)
      expect(await inboxOf(scene, 'r')).toEqual(['text:1', 'text:2'])
      expect((await scene.takeOver(claim)).hasMail).toBe(true)
    })
  }

  test('in a batch every change has its own mailSeen', async (scene) => {
    const claim = await scene.createAndClaim({ id: 'r' })
    await scene.deliver({ runId: 'r' })
    const mailSeen = await lastMessageOf(scene, 'r')
    const answers = await scene.commitAll([
      leased(claim, { events: [stepCompleted('a')], mailSeen }),
      leased(claim, { events: [stepCompleted('b')] }),
      leased(claim, { events: [stepCompleted('c')], mailSeen }),
    ])
    expect(answers.map((answer) => answer.ok && answer.hasMail)).toEqual([false, true, false])
  })

  const waits: Record<string, Partial<Change>> = {
    'with its last event': { events: [event('timer_set')] },
    'without events': {},
    'at a label': { events: [event('timer_set')], label: 'here' },
  }
  for (const [manner, fields] of Object.entries(waits)) {
    test(`a run that begins to wait ${manner} is due at once for mail later than mailSeen, and for no other`, async (scene) => {
      const run = { status: 'waiting', reason: 'signal', due: { inMs: 3_600_000 } } as const
      const first = await scene.createAndClaim({ id: 'r' })
      await scene.deliver({ runId: 'r', payload: '"for later"' })
      const mailSeen = await lastMessageOf(scene, 'r')
      expect((await scene.write(first, { ...fields, run, mailSeen })).hasMail).toBe(false)
      expect(await scene.claim()).toEqual([])
      await scene.deliver({ runId: 'r', payload: '"new"' })
      const second = await scene.claimOne()
      expect(second.hasMail).toBe(true)
      expect((await scene.write(second, { ...fields, run, mailSeen })).hasMail).toBe(true)
      const third = await scene.claimOne()
      const readMessages = [await lastMessageOf(scene, 'r')]
      expect((await scene.write(third, { ...fields, run, mailSeen, readMessages })).hasMail).toBe(false)
      expect(await scene.claim()).toEqual([])
      expect(await inboxOf(scene, 'r')).toEqual(['text:"for later"'])
      scene.advance(3_600_001)
      const fourth = await scene.claimOne()
      await scene.write(fourth, { ...fields, run })
      expect(await scene.claimedIds()).toEqual(['r'])
    })
  }
}

function testTimesOfMessages(test: StoreTest): void {
  test('S9: messages carry the time of the store', async (scene) => {
    await scene.create({ id: 'r' })
    scene.advance(7_200_000)
    const now = await scene.store.now()
    await scene.deliver({ runId: 'r' })
    const [message] = await scene.store.readInbox({ owner: '', runId: 'r' })
    expect(message?.at).toBeGreaterThanOrEqual(now)
  })
}
