import { expect } from 'vitest'
import { plainPayload } from '../store-contents.ts'
import { leased, payloadsOf, refusalOf, type StoreTest, stepCompleted } from './scene.ts'

export function testInbox(test: StoreTest): void {
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

  test('S9: messages carry the time of the store', async (scene) => {
    await scene.create({ id: 'r' })
    scene.advance(7_200_000)
    const now = await scene.store.now()
    await scene.deliver({ runId: 'r' })
    const [message] = await scene.store.readInbox({ owner: '', runId: 'r' })
    expect(message?.at).toBeGreaterThanOrEqual(now)
  })
}
