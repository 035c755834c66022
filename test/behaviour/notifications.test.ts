import { randomBytes } from 'node:crypto'
import {
  type Notification,
  type NotifyFunction,
  type NotifyTarget,
  open as openHoldfast,
  verifyWebhook,
  workflow,
} from 'holdfast'
import { wrapStore } from 'holdfast/testing'
import { describe, expect, it, vi } from 'vitest'
import type { Change } from '../../src/store/change.ts'
import { startReceiver } from './receiver.ts'
import { becomes, codeOfRejection, failureOf, gate, logged } from './runs.ts'
import { onEveryStore, onLocalStores } from './stores.ts'

/** A target that keeps what it hears. */
function listener(): { readonly heard: Notification[]; readonly notify: NotifyFunction; until(count: number): Promise<void> } {
  const heard: Notification[] = []
  return {
    heard,
    notify: (message) => void heard.push(message),
    until: (count) => vi.waitUntil(() => heard.length >= count, { timeout: 15_000, interval: 5 }).then(() => {}),
  }
}

const greet = workflow('greet', (ctx, name: string) => `hello ${name} in ${ctx.runId}`)
const failing = workflow({ name: 'failing', retry: { attempts: 1 } }, (ctx) =>
  ctx.scope('outer', () => ctx.step('work', () => Promise.reject(Object.assign(new TypeError('broken'), { code: 'E_BROKEN' })))),
)
const asking = workflow('asking', (ctx, amount: bigint) =>
  ctx.ask('approve', { question: { text: 'Pay this?', amount, on: new Date(0) }, to: 'finance' }),
)
const hurried = { minMs: 1, maxMs: 1 }

onEveryStore('a notification', ({ open, openMortal, openWrapped, advance }) => {
  it('says that a run has completed', async () => {
    const { heard, notify, until } = listener()
    const hf = await open({ notify })
    await hf.start(greet, 'ann', { id: 'r', threadId: 't', owner: 'acme' }).then((run) => run.result())
    await until(1)
    const about = { runId: 'r', threadId: 't', owner: 'acme', workflow: 'greet' }
    expect(heard).toEqual([
      { ...about, id: expect.stringMatching(/^msg_/), kind: 'completed', at: expect.any(Number), actions: [] },
    ])
  })

  it('says that a run has failed, at which step and why, each time that it does', async () => {
    const { heard, notify, until } = listener()
    const hf = await open({ notify })
    const run = await hf.start(failing, undefined, { id: 'r' })
    await until(1)
    expect(heard[0]).toMatchObject({ kind: 'failed', runId: 'r', step: 'outer/work', actions: ['retry', 'rollback'] })
    expect(heard[0]?.error).toEqual({ name: 'TypeError', message: 'broken', code: 'E_BROKEN' })
    await run.retry()
    await until(2)
    expect(heard[1]?.id).not.toBe(heard[0]?.id)
  })

  it('is made of every event: in a later tape, and after another attempt of a section, under an id of its own', async () => {
    const { heard, notify, until } = listener()
    const hf = await open({ notify })
    const answered = (id: string) => hf.answer(id, 'first', true)
    const tapes = workflow('tapes', async (ctx, tape: number): Promise<unknown> => {
      if (tape === 2) return 'out'
      // Something is at work all the time: the run asks, goes on and ends under one claim.
      const busy = gate()
      await Promise.all([ctx.ask('first', { question: 'one' }).then(() => busy.open()), ctx.step('busy', () => busy.promise)])
      return ctx.continueAs(2)
    })
    const attempts = workflow('attempts', async (ctx) => {
      const busy = gate()
      await Promise.all([ctx.ask('first', { question: 'one' }).then(() => busy.open()), ctx.step('busy', () => busy.promise)])
      const step = ({ attempt }: { attempt: number }) => {
        if (attempt === 1) throw new Error('once')
      }
      await ctx.section('s', () => ctx.step('x', step, { retry: { attempts: 1 } }), { retry: { attempts: 2, ...hurried } })
    })
    for (const [work, id] of [
      [tapes, 'a'],
      [attempts, 'b'],
    ] as const) {
      const run = await hf.start(work as typeof tapes, 1, { id })
      await logged(run, 'question_asked')
      await answered(id)
      await run.result()
    }
    await until(4)
    expect(heard.map(({ kind, runId }) => `${runId} ${kind}`).sort()).toEqual([
      'a completed',
      'a waiting_for_person',
      'b completed',
      'b waiting_for_person',
    ])
    expect(new Set(heard.map(({ id }) => id)).size).toBe(4)
  })

  it('says what a person is asked, in plain JSON, with all that an answer needs', async () => {
    const { heard, notify, until } = listener()
    const hf = await open({ notify })
    const run = await hf.start(asking, 100n, { id: 'r' })
    await until(1)
    const [message] = heard
    expect(message).toMatchObject({
      ...{ kind: 'waiting_for_person', step: 'approve', to: 'finance', actions: ['answer', 'cancel'] },
      question: { text: 'Pay this?', amount: '100', on: '1970-01-01T00:00:00.000Z' },
    })
    await hf.answer(message?.runId ?? '', message?.step ?? '', 'yes', { shown: message?.shown ?? '' })
    expect(await run.result()).toBe('yes')
    await until(2)
    expect(heard.map(({ kind }) => kind)).toEqual(['waiting_for_person', 'completed'])
  })

  it('leaves a question out that is large or deep, and the run asks all the same', async () => {
    const { heard, notify, until } = listener()
    const hf = await open({ notify })
    let deep: unknown = 'bottom'
    for (let level = 0; level < 199; level++) deep = [deep]
    const ask = workflow('ask', (ctx, question: unknown) => ctx.ask('q', { question }))
    for (const question of ['x'.repeat(100_000), deep]) {
      const run = await hf.start(ask, question)
      await logged(run, 'question_asked')
    }
    await until(2)
    expect(heard.map((message) => [message.kind, 'question' in message])).toEqual([
      ['waiting_for_person', false],
      ['waiting_for_person', false],
    ])
  })

  it('says of which effect nobody knows whether it happened', async () => {
    const { heard, notify, until } = listener()
    const pay = workflow('pay', (ctx) => ctx.once('send', { key: 'k', run: () => Promise.reject(new Error('line cut')) }))
    const hf = await open({ notify })
    const run = await hf.start(pay)
    await until(1)
    expect(heard[0]).toMatchObject({ kind: 'waiting_for_person', step: 'send', effectKey: 'k', actions: ['resolve'] })
    expect(heard[0]?.error?.message).toBe('line cut')
    await hf.resolve(heard[0]?.effectKey ?? '', { happened: true, result: 7 })
    expect(await run.result()).toBe(7)
  })

  it('says that a run is paused, why, and what can be done', async () => {
    const { heard, notify, until } = listener()
    const hf = await open({ notify })
    const stubborn = workflow('stubborn', (ctx) =>
      ctx.step('work', () => Promise.reject(new Error('no')), { retry: { attempts: 1 }, onFailure: 'pause' }),
    )
    const run = await hf.start(stubborn)
    await until(1)
    const pause = { kind: 'paused', reason: 'retries', step: 'work', actions: ['resume', 'cancel', 'rollback'] }
    expect(heard[0]).toMatchObject({ ...pause, error: { message: 'no' } })
    expect(await hf.inbox()).toMatchObject([{ runId: run.id, step: 'work', actions: pause.actions }])
  })

  it('says that an undo failed, and that the run waits for somebody', async () => {
    const { heard, notify, until } = listener()
    const hf = await open({ notify })
    const trip = workflow('trip', async (ctx) => {
      await ctx.step('book', () => 1, { undo: () => Promise.reject(new Error('too late')) })
      await ctx.waitFor('go')
    })
    const run = await hf.start(trip)
    await becomes(run, 'waiting')
    run.cancel().catch(() => {})
    await until(1)
    expect(heard[0]).toMatchObject({ kind: 'paused', reason: 'undo', actions: ['resume', 'cancel with undo: false'] })
    expect(heard[0]?.error?.message).toContain('book')
  })

  it('says that a run no longer matches its code', async () => {
    const { heard, notify, until } = listener()
    const one = workflow('flow', async (ctx) => {
      await ctx.step('a', () => 1)
      return ctx.step('b', () => new Promise(() => {}))
    })
    const first = await openMortal({ workflows: [one] }, { after: 'step_completed' })
    await first.hf.start(one, undefined, { id: 'r' })
    await first.dead
    advance(11_000)
    await open({ workflows: [workflow('flow', (ctx) => ctx.step('other', () => 1))], notify })
    await until(1)
    expect(heard[0]).toMatchObject({ kind: 'paused', reason: 'mismatch', error: { code: 'nondeterminism' } })
  })

  it('says that a run brings its workers down', async () => {
    const { heard, notify, until } = listener()
    const claimed = { next: gate() }
    const poison = workflow('poison', () => {
      claimed.next.open()
      return new Promise<never>(() => {})
    })
    const client = await open({ worker: false })
    await client.start(poison, undefined, { id: 'r' })
    for (let death = 1; death <= 5; death++) {
      const { die } = await openMortal({ workflows: [poison], notify })
      await claimed.next.promise
      claimed.next = gate()
      await die()
      advance(11_000)
    }
    await open({ workflows: [poison], notify })
    await until(1)
    expect(heard).toMatchObject([{ kind: 'poisoned', reason: 'poisoned', runId: 'r', actions: ['resume', 'cancel'] }])
  })

  it('says that a run has used up its budget', async () => {
    const { heard, notify, until } = listener()
    const hf = await open({ notify })
    const spending = workflow({ name: 'spending', budget: { tokens: 10 } }, async (ctx) => {
      for (let call = 1; call <= 3; call++) await ctx.step('think', (step) => step.usage({ inputTokens: 6 }))
    })
    const run = await hf.start(spending)
    await until(1)
    expect(heard[0]).toMatchObject({ kind: 'budget_exceeded', reason: 'budget', error: { code: 'budget_exceeded' } })
    expect(heard[0]?.actions).toContain('resume with a higher budget')
    await run.resume({ budget: { tokens: 100 } })
    await run.result()
  })

  it('is not made of what somebody did: a pause, a cancel, a rollback', async () => {
    const { heard, notify, until } = listener()
    const hf = await open({ notify })
    const slow = workflow('slow', (ctx) => ctx.waitFor('go'))
    const [paused, cancelled] = [await hf.start(slow), await hf.start(slow)]
    await becomes(paused, 'waiting')
    await paused.pause()
    await cancelled.cancel()
    const busy = gate()
    const working = workflow('working', async (ctx) => {
      await ctx.step('work', () => busy.promise)
      return ctx.step('more', () => 1)
    })
    const run = await hf.start(working)
    await logged(run, 'step_started')
    await run.pause()
    busy.open()
    await becomes(run, 'paused')
    const [first] = await hf.thread(run.threadId).checkpoints()
    await run.rollback(first?.checkpoint ?? '')
    await logged(run, 'run_rolled_back')
    await hf.run(greet, 'ann')
    await until(1)
    expect(heard.map(({ workflow: name }) => name)).toEqual(['greet'])
  })

  it('is about the runs that nobody waits for: a parent hears of the end of its child itself', async () => {
    const { heard, notify, until } = listener()
    const hf = await open({ notify })
    const parent = workflow('parent', async (ctx) => {
      await ctx.call(greet, 'ann')
      await ctx.call(failing, undefined).catch(() => {})
      return ctx.call(asking, 1n)
    })
    const run = await hf.start(parent)
    await until(1)
    await hf.answer(heard[0]?.runId ?? '', 'approve', true)
    await run.result()
    await until(2)
    expect(heard.map(({ workflow: name, kind }) => [name, kind])).toEqual([
      ['asking', 'waiting_for_person'],
      ['parent', 'completed'],
    ])
  })

  it('goes to each target that asked for its kind', async () => {
    const [all, failures] = [listener(), listener()]
    const hf = await open({ notify: [all.notify, { name: 'failures', on: ['failed', 'poisoned'], deliver: failures.notify }] })
    await hf.run(greet, 'ann')
    await failureOf(await hf.start(failing))
    await all.until(2)
    await failures.until(1)
    expect(all.heard.map(({ kind }) => kind).sort()).toEqual(['completed', 'failed'])
    expect(failures.heard).toEqual(all.heard.filter(({ kind }) => kind === 'failed'))
  })

  it('costs nothing where nobody asked for it: no run, no row', async () => {
    const changes: Change[] = []
    const note = (act: string, _: number, [batch]: readonly unknown[]) => {
      if (act === 'commit') changes.push(...(batch as readonly Change[]))
    }
    const hf = await openWrapped((store) => wrapStore(store, { before: note }), { workflows: [greet, failing] })
    await hf.run('greet', 'ann')
    await failureOf(await hf.start('failing'))
    expect(changes.flatMap(({ creates = [] }) => creates.map((run) => run.workflow))).toEqual(['greet', 'failing'])
  })

  it('is delivered by a run of its own, which lists of runs leave out unless they are asked for it', async () => {
    const { heard, notify, until } = listener()
    const hf = await open({ notify: { name: 'ops', deliver: notify }, worker: { queues: ['slow'] } })
    await hf.start(greet, 'ann', { id: 'r', queue: 'slow' })
    await until(1)
    expect((await hf.runs.list()).items.map(({ id }) => id)).toEqual(['r'])
    const { items } = await hf.runs.list({ workflow: 'holdfast.notify/ops' })
    expect(items).toMatchObject([{ id: `holdfast.notify/ops/${heard[0]?.id}` }])
    expect(await hf.inbox()).toEqual([])
  })

  it('waits for a process that has its target', async () => {
    const [ops, other] = [listener(), listener()]
    const first = await openMortal({ notify: { name: 'ops', deliver: ops.notify } }, { after: 'run_completed' })
    await first.hf.start(greet, 'ann')
    await first.dead
    advance(11_000)
    const hf = await open({ notify: { name: 'other', deliver: other.notify } })
    await hf.run(greet, 'bob')
    await other.until(1)
    expect(ops.heard).toEqual([])
    await open({ notify: { name: 'ops', deliver: ops.notify } })
    await ops.until(1)
    expect(ops.heard).toMatchObject([{ kind: 'completed' }])
    expect(other.heard).toHaveLength(1)
  })

  // The greeting has no step: the first step_completed is that of the delivery.
  it.each([
    ['before the run has ended', { before: 'run_completed' }, 1],
    ['after the run has ended', { after: 'run_completed' }, 1],
    ['after it was delivered, before that is recorded', { before: 'step_completed' }, 2],
    ['after it was delivered and that is recorded', { after: 'step_completed' }, 1],
  ] as const)('is not lost with a process that dies %s; what is delivered twice has one id', async (_, death, deliveries) => {
    const { heard, notify, until } = listener()
    const options = { workflows: [greet], notify }
    const mortal = await openMortal(options, death)
    await mortal.hf.start(greet, 'ann', { id: 'r' })
    await mortal.dead
    advance(11_000)
    const hf = await open(options)
    await until(deliveries)
    const { items } = await hf.runs.list({ workflow: 'holdfast.notify/default' })
    expect(items).toHaveLength(1)
    await (await hf.runs.get(items[0]?.id ?? '')).result()
    expect(heard).toHaveLength(deliveries)
    expect(new Set(heard.map(({ id }) => id)).size).toBe(1)
  })

  it.each([{ before: 'question_asked' }, { after: 'question_asked' }] as const)(
    'of a question is not lost with a process that dies, nor said twice: %o',
    async (death) => {
      const { heard, notify, until } = listener()
      const options = { workflows: [asking], notify }
      const mortal = await openMortal(options, death)
      await mortal.hf.start(asking, 1n, { id: 'r' })
      await mortal.dead
      advance(11_000)
      const hf = await open(options)
      await until(1)
      await hf.answer('r', 'approve', true)
      await (await hf.runs.get('r')).result()
      await until(2)
      expect(heard.map(({ kind }) => kind)).toEqual(['waiting_for_person', 'completed'])
    },
  )

  it('that a function throws at is told again', async () => {
    const attempts: number[] = []
    const done = gate()
    const deliver: NotifyFunction = (_, { attempt }) => {
      attempts.push(attempt)
      if (attempt < 3) throw new Error('not now')
      done.open()
    }
    const hf = await open({ notify: { name: 'ops', deliver, retry: hurried } })
    await hf.run(greet, 'ann')
    await done.promise
    expect(attempts).toEqual([1, 2, 3])
  })
})

onLocalStores('a webhook', ({ open }) => {
  const secret = `whsec_${randomBytes(32).toString('base64')}`
  const deliveries = async (hf: Awaited<ReturnType<typeof open>>) => {
    await vi.waitUntil(async () => (await hf.runs.list({ workflow: 'holdfast.notify/ops' })).items.length > 0, {
      timeout: 15_000,
    })
    const { items } = await hf.runs.list({ workflow: 'holdfast.notify/ops' })
    return hf.runs.get(items[0]?.id ?? '')
  }
  const target = (webhook: Partial<NonNullable<NotifyTarget['webhook']>> & { url: string }): NotifyTarget => ({
    ...{ name: 'ops', retry: hurried, webhook },
  })

  it('is posted again until it is taken: one id, signed each time', async () => {
    const { url, received } = await startReceiver(500, 302, 204)
    const hf = await open({ notify: target({ url, secret, headers: { authorization: 'Bearer x', 'webhook-id': 'mine' } }) })
    await hf.run(greet, 'ann', { id: 'r' })
    await (await deliveries(hf)).result()
    expect(received).toHaveLength(3)
    const messages = received.map(({ headers, body }) => verifyWebhook(headers, body, secret))
    expect(messages[0]).toMatchObject({ kind: 'completed', runId: 'r' })
    expect(messages).toEqual([messages[0], messages[0], messages[0]])
    expect(received.map(({ headers }) => headers['webhook-id'])).toEqual(messages.map(({ id }) => id))
    expect(received[0]?.headers).toMatchObject({ authorization: 'Bearer x', 'content-type': 'application/json' })
    const [one] = received
    expect(() => verifyWebhook(one?.headers ?? {}, `${one?.body} `, secret)).toThrow("can't be trusted")
  })

  it('that refuses a message is not asked again until its run is retried', async () => {
    const { url, received } = await startReceiver(410, 200)
    const hf = await open({ notify: target({ url, secret }) })
    await hf.run(greet, 'ann')
    const delivery = await deliveries(hf)
    expect(await failureOf(delivery)).toMatchObject({ name: 'WebhookRefused', status: 410 })
    expect(received).toHaveLength(1)
    await delivery.retry()
    await delivery.result()
    expect(new Set(received.map(({ headers }) => headers['webhook-id'])).size).toBe(1)
  })

  it.each([408, 429])('that answers %i is asked again', async (status) => {
    const { url, received } = await startReceiver(status, 200)
    const hf = await open({ notify: target({ url }) })
    await hf.run(greet, 'ann')
    await (await deliveries(hf)).result()
    expect(received).toHaveLength(2)
    expect(received[0]?.headers['webhook-signature']).toBeUndefined()
  })

  it('that does not answer in time is asked again', async () => {
    const { url, received } = await startReceiver(0, 200)
    const hf = await open({ notify: target({ url, timeoutMs: 50 }) })
    await hf.run(greet, 'ann')
    const delivery = await deliveries(hf)
    await delivery.result()
    // On a busy machine more than one answer may be late, and a post may be given up before it arrives.
    const failures = (await delivery.events()).filter(({ type }) => type === 'step_failed')
    expect(failures.length).toBeGreaterThan(0)
    expect(received.length).toBeGreaterThan(1)
    expect(received.length).toBeLessThanOrEqual(failures.length + 1)
  })

  it('that does not answer holds up neither runs nor schedules, however many messages there are for it', async () => {
    const { url, received } = await startReceiver(0)
    const notify = target({ url, timeoutMs: 600_000 })
    const hf = await open({ notify, worker: { concurrency: 10, closeGraceMs: 0 } })
    await Promise.all(Array.from({ length: 30 }, () => hf.run(greet, 'ann')))
    await vi.waitUntil(() => received.length > 0)
    expect(await hf.run(greet, 'bob', { id: 'r' })).toBe('hello bob in r')
    await hf.schedules.set('often', { everyMs: 1_000, workflow: greet, input: 'eve' })
    await vi.waitUntil(async () => (await hf.schedules.get('often')).last !== undefined, { timeout: 15_000 })
    expect(received.length).toBeLessThan(10)
  })

  it('leaves neither its URL nor its secret in the store', async () => {
    const { url } = await startReceiver(500)
    const gone = 'http://127.0.0.1:9/hook?token=hush'
    const hf = await open({
      notify: [
        { ...target({ url, secret, headers: { authorization: 'hush' } }), retry: { ...hurried, attempts: 2 } },
        { name: 'gone', webhook: { url: gone, secret }, retry: { ...hurried, attempts: 2 } },
      ],
    })
    await hf.run(greet, 'ann')
    for (const name of ['ops', 'gone']) {
      await vi.waitUntil(
        async () => (await hf.runs.list({ workflow: `holdfast.notify/${name}`, status: 'failed' })).items.length > 0,
      )
      const { items } = await hf.runs.list({ workflow: `holdfast.notify/${name}` })
      const bundle = JSON.stringify(await hf.debug.export(items[0]?.id ?? ''))
      expect(bundle).toContain('step_failed')
      for (const word of ['hush', '127.0.0.1', secret.slice(10)]) expect(bundle).not.toContain(word)
    }
  })
})

describe('the option notify', () => {
  const deliver = () => {}
  const webhook = { url: 'https://example.com/hook' }
  it.each<[string, unknown]>([
    ['a target without a name', { deliver }],
    ['a target with an endless name', { name: 'x'.repeat(300), deliver }],
    ['two targets of one name', [deliver, { name: 'default', deliver }]],
    ['neither a webhook nor a function', { name: 'a' }],
    ['a webhook and a function', { name: 'a', deliver, webhook }],
    ['a function that is none', { name: 'a', deliver: 'me' }],
    ['a kind that there is not', { name: 'a', on: ['started'], deliver }],
    ['kinds that are no list', { name: 'a', on: 'failed', deliver }],
    ['an URL that is none', { name: 'a', webhook: { url: 'example.com' } }],
    ['another scheme', { name: 'a', webhook: { url: 'file:///etc/passwd' } }],
    ['a password in the URL', { name: 'a', webhook: { url: 'https://me:hush@example.com' } }],
    ['a secret that is too short', { name: 'a', webhook: { ...webhook, secret: 'hush' } }],
    ['headers that can not be sent', { name: 'a', webhook: { ...webhook, headers: { 'a b': 'hush\n' } } }],
    ['a secret that is a number', { name: 'a', webhook: { ...webhook, secret: 7 } }],
    ['a webhook that is null', { name: 'a', webhook: null }],
    ['no time to answer', { name: 'a', webhook: { ...webhook, timeoutMs: 0 } }],
    ['no attempt', { name: 'a', deliver, retry: { attempts: 0 } }],
    ['nothing', null],
  ])('with %s is refused, and nothing secret is repeated', async (_, notify) => {
    const error = await openHoldfast('memory:', { notify: notify as never }).catch((thrown: unknown) => thrown)
    expect(error).toMatchObject({ code: expect.stringMatching(/^invalid_(input|id)$/) })
    expect((error as Error).message).not.toContain('hush')
  })

  it('and names that begin with holdfast. belong to Holdfast', async () => {
    expect(() => workflow('holdfast.notify/mine', () => 1)).toThrow(expect.objectContaining({ code: 'invalid_input' }))
    expect(await codeOfRejection(Promise.resolve().then(() => workflow({ name: 'holdfast.' }, () => 1)))).toBe('invalid_input')
    expect(workflow('holdfasting', () => 1).name).toBe('holdfasting')
  })
})
