import { join } from 'node:path'
import { type Context, type EffectOptions, HoldfastError, NotHappened, workflow } from 'holdfast'
import { type StoreAct, wrapStore } from 'holdfast/testing'
import { expect, it, vi } from 'vitest'
import { patience } from '../patience.ts'
import { makeMailer, sentKeys } from './programs/mailer.ts'
import { startProgram } from './programs.ts'
import { becomes, codeOfRejection, eventTypes, failureOf, gate, logged } from './runs.ts'
import { onEverySharedStore, onEveryStore, onLocalStores } from './stores.ts'

const quick = { minMs: 1, jitter: false } as const

/** A workflow with one effect `send`, whose options are the input's business. */
function makeSend(options: EffectOptions<unknown>) {
  return workflow('send', (ctx) => ctx.once('send', options))
}

onEveryStore('an effect under one key', ({ open }) => {
  it('called twice in one run is sent once; the second call returns the recorded result and logs effect_skipped', async () => {
    const sent: string[] = []
    const mail = workflow('mail', async (ctx) => {
      const send = () =>
        ctx.once('send', {
          key: 'welcome:alice',
          run: (key) => {
            sent.push(key)
            return { id: sent.length, at: new Date(0) }
          },
        })
      return [await send(), await send()]
    })
    const hf = await open()
    const run = await hf.start(mail)
    expect(await run.result()).toEqual([
      { id: 1, at: new Date(0) },
      { id: 1, at: new Date(0) },
    ])
    expect(sent).toEqual(['welcome:alice'])
    expect(await eventTypes(run, 'effect')).toEqual(['effect_intended', 'effect_completed', 'effect_skipped'])
  })

  it('called at the same time in one run is sent once', async () => {
    let sent = 0
    const mail = workflow('mail', (ctx) => {
      const send = () => ctx.once('send', { key: 'k', run: async () => ++sent })
      return Promise.all([send(), send(), send()])
    })
    const hf = await open()
    expect(await hf.run(mail)).toEqual([1, 1, 1])
    expect(sent).toBe(1)
  })

  it('called in another run is not sent again, and effect_skipped names the run that sent it', async () => {
    let sent = 0
    const mail = makeSend({ key: 'welcome:alice', run: () => ++sent })
    const hf = await open()
    expect(await hf.run(mail, undefined, { id: 'first' })).toBe(1)
    const second = await hf.start(mail, undefined, { id: 'second' })
    expect(await second.result()).toBe(1)
    const events = await second.events()
    expect(events.filter(({ type }) => type.startsWith('effect_'))).toMatchObject([
      { type: 'effect_skipped', step: 'send', data: { key: 'welcome:alice', by: 'first', result: 1 } },
    ])
  })

  it('is sent by each owner for himself', async () => {
    const sent: string[] = []
    const mail = workflow('mail', (ctx) => ctx.once('send', { key: 'welcome', run: () => sent.push(ctx.owner) }))
    const hf = await open()
    await hf.run(mail)
    await hf.as('acme').run(mail)
    await hf.as('acme').run(mail)
    await hf.run(mail, undefined, { owner: 'globex' })
    expect(sent).toEqual(['', 'acme', 'globex'])
  })

  it('met under another effect name is input_mismatch, and nothing is sent', async () => {
    const sent: string[] = []
    const first = workflow('first', (ctx) => ctx.once('send_mail', { key: 'k', run: () => sent.push('mail') }))
    const second = workflow('second', (ctx) => ctx.once('send_letter', { key: 'k', run: () => sent.push('letter') }))
    const hf = await open()
    await hf.run(first)
    const run = await hf.start(second)
    const failure = await failureOf(run)
    expect(failure).toMatchObject({ code: 'input_mismatch' })
    expect(failure.message).toContain('send_mail')
    expect(sent).toEqual(['mail'])
  })

  it('open in another run makes this run wait for it, and skip it then', async () => {
    const sent: string[] = []
    const sending = gate()
    const answered = gate<string>()
    const mail = workflow('mail', (ctx) =>
      ctx.once('send', {
        key: 'k',
        run: () => {
          sent.push(ctx.runId)
          sending.open()
          return answered.promise
        },
      }),
    )
    const hf = await open()
    const first = await hf.start(mail, undefined, { id: 'first' })
    await sending.promise
    const second = await hf.start(mail, undefined, { id: 'second' })
    await becomes(second, 'waiting')
    expect(await second.info()).toMatchObject({ reason: 'effect' })
    answered.open('the answer')
    expect(await second.result()).toBe('the answer')
    expect(await first.result()).toBe('the answer')
    expect(sent).toEqual(['first'])
    expect(await eventTypes(second, 'effect')).toEqual(['effect_skipped'])
  })

  it('that another run gave up is sent by the run that waited for it', async () => {
    const sent: string[] = []
    const sending = gate()
    const refused = gate()
    const mail = workflow('mail', (ctx) =>
      ctx.once('send', {
        key: 'k',
        retry: { attempts: 1 },
        run: async () => {
          sent.push(ctx.runId)
          if (ctx.runId !== 'first') return 'sent'
          sending.open()
          await refused.promise
          throw new NotHappened(new Error('refused'))
        },
      }),
    )
    const hf = await open()
    const first = await hf.start(mail, undefined, { id: 'first' })
    await sending.promise
    const second = await hf.start(mail, undefined, { id: 'second' })
    await becomes(second, 'waiting')
    refused.open()
    expect((await failureOf(first)).message).toBe('refused')
    expect(await second.result()).toBe('sent')
    expect(sent).toEqual(['first', 'second'])
  })
})

onLocalStores('the key of an effect', ({ open, openMortal, advance }) => {
  it('is by default the same for every attempt and after a crash, and another for every call and run', async () => {
    const keys: string[] = []
    const sending = gate()
    const mail = workflow('mail', async (ctx) => {
      const send = () =>
        ctx.once('send', {
          idempotent: true,
          retry: quick,
          run: (key, effect) => {
            keys.push(key)
            if (effect.attempt === 1) throw new Error('lost the answer')
            if (keys.length > 2) return 'sent'
            sending.open()
            return new Promise<string>(() => {})
          },
        })
      await send()
      await send()
      return ctx.scope('again', send)
    })
    const { hf, die } = await openMortal({ workflows: [mail] })
    await hf.start(mail, undefined, { id: 'r' })
    await sending.promise
    await die()
    const heir = await open({ workflows: [mail] })
    advance(11_000)
    await (await heir.runs.get('r')).result()
    await heir.run(mail, undefined, { id: 'r2' })
    const [first] = keys
    expect(keys.slice(0, 3)).toEqual([first, first, first])
    expect(new Set(keys).size).toBe(6)
  })

  it('never is the key of another run, whatever the ids look like', async () => {
    const keys: string[] = []
    const note = (key: string) => {
      keys.push(key)
      return key
    }
    const plain = workflow('plain', (ctx) => ctx.once('c', { run: note }))
    const scoped = workflow('scoped', (ctx) => ctx.scope('b', (inner) => inner.once('c', { run: note })))
    const continued = workflow('continued', async (ctx, tape: number) => {
      if (tape < 2) return ctx.continueAs(tape + 1)
      return ctx.once('c', { run: note })
    })
    const hf = await open({ workflows: [plain, scoped, continued] })
    await hf.run(plain, undefined, { id: 'a/b' })
    await hf.run(scoped, undefined, { id: 'a' })
    await hf.run(plain, undefined, { id: 'x~2' })
    await hf.run(continued, 1, { id: 'x' })
    await hf.run(plain, undefined, { id: '%' })
    await hf.run(plain, undefined, { id: '%25' })
    const long = 'r'.repeat(512)
    await hf.run(plain, undefined, { id: long })
    await hf.run(plain, undefined, { id: `${long.slice(1)}s` })
    expect(new Set(keys).size).toBe(8)
    for (const key of keys) expect(Buffer.byteLength(key)).toBeLessThanOrEqual(512)
  })

  it('is refused with invalid_id when it is not an id', async () => {
    const hf = await open()
    expect(await failureOf(await hf.start(makeSend({ key: 'a\nb', run: () => 1 })))).toMatchObject({ code: 'invalid_id' })
  })
})

onEveryStore('an effect whose outcome is hidden', ({ open, advance }) => {
  it('by a throw, and that is idempotent, is sent again with the same key', async () => {
    const keys: string[] = []
    const mail = makeSend({
      idempotent: true,
      retry: quick,
      run: (key) => {
        keys.push(key)
        if (keys.length < 3) throw new Error('connection reset')
        return 'sent'
      },
    })
    const hf = await open()
    const run = await hf.start(mail)
    expect(await run.result()).toBe('sent')
    expect(keys).toHaveLength(3)
    expect(new Set(keys).size).toBe(1)
    expect(await eventTypes(run, 'effect')).toEqual(['effect_intended', 'effect_failed', 'effect_failed', 'effect_completed'])
  })

  it('by a time-out, and that is idempotent, is sent again with the same key', async () => {
    const keys: string[] = []
    const mail = makeSend({
      idempotent: true,
      retry: quick,
      timeoutMs: 20,
      run: (key, { signal }) => {
        keys.push(key)
        if (keys.length > 1) return 'sent'
        return new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
      },
    })
    const hf = await open()
    expect(await hf.run(mail)).toBe('sent')
    expect(new Set(keys).size).toBe(1)
    expect(keys).toHaveLength(2)
  })

  it('by a throw, and that has check, is looked up first: what happened is completed via check', async () => {
    let sent = 0
    const mail = makeSend({
      run: () => {
        sent++
        throw new Error('connection reset')
      },
      check: (key) => ({ happened: true, result: `found ${key}` }),
      key: 'k',
    })
    const hf = await open()
    const run = await hf.start(mail)
    expect(await run.result()).toBe('found k')
    expect(sent).toBe(1)
    expect((await run.events()).find(({ type }) => type === 'effect_completed')?.data).toMatchObject({ via: 'check', key: 'k' })
  })

  it('by a throw, and that check finds not to have happened, is sent again as an ordinary retry', async () => {
    const order: string[] = []
    const mail = makeSend({
      retry: quick,
      run: (_, { attempt }) => {
        order.push(`send ${attempt}`)
        if (attempt === 1) throw new Error('connection refused')
        return 'sent'
      },
      check: () => {
        order.push('check')
        return { happened: false }
      },
    })
    const hf = await open()
    const run = await hf.start(mail)
    expect(await run.result()).toBe('sent')
    expect(order).toEqual(['send 1', 'check', 'send 2'])
    expect(await eventTypes(run, 'effect')).toEqual(['effect_intended', 'effect_failed', 'effect_intended', 'effect_completed'])
  })

  it('by a throw, with neither, is unsure: the run waits for a person, and nothing is repeated', async () => {
    let sent = 0
    const mail = makeSend({
      key: 'payment:7',
      run: () => {
        sent++
        throw new Error('connection reset')
      },
    })
    const hf = await open()
    const run = await hf.start(mail)
    await becomes(run, 'waiting')
    expect(await run.info()).toMatchObject({ reason: 'person', currentStep: 'send' })
    expect(await eventTypes(run, 'effect')).toEqual(['effect_intended', 'effect_unsure'])
    advance(7 * 24 * 3_600_000)
    await hf.run(workflow('other', () => 'a run that shows that the worker has looked'))
    expect(await run.info()).toMatchObject({ status: 'waiting', reason: 'person' })
    expect(sent).toBe(1)
  })

  it('by a time-out follows the declaration in the same way: check decides, and with neither a person does', async () => {
    const slow = (_: string, { signal }: { signal: AbortSignal }) =>
      new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
    const checked = workflow('checked', (ctx) =>
      ctx.once('send', { timeoutMs: 20, run: slow, check: () => ({ happened: true, result: 'it was only slow' }) }),
    )
    const unchecked = workflow('unchecked', (ctx) => ctx.once('send', { timeoutMs: 20, run: slow }))
    const hf = await open()
    expect(await hf.run(checked)).toBe('it was only slow')
    const run = await hf.start(unchecked)
    await becomes(run, 'waiting')
    expect(await run.info()).toMatchObject({ reason: 'person' })
    expect((await run.events()).find(({ type }) => type === 'effect_unsure')?.data?.['message']).toContain('20 ms')
  })

  it('is waited for in memory while another step of the run is at work', async () => {
    const release = gate()
    const both = workflow('both', (ctx) =>
      Promise.all([
        ctx.once('send', {
          key: 'k',
          run: () => {
            throw new Error('connection reset')
          },
        }),
        ctx.step('beside', () => release.promise.then(() => 'done')),
      ]),
    )
    const hf = await open()
    const run = await hf.start(both)
    await logged(run, 'effect_unsure')
    await hf.resolve('k', { happened: true, result: 'decided' })
    release.open()
    expect(await run.result()).toEqual(['decided', 'done'])
  })

  it('and whose run is paused can be decided meanwhile; the run takes the decision when it is resumed', async () => {
    const mail = makeSend({
      key: 'k',
      run: () => {
        throw new Error('connection reset')
      },
    })
    const hf = await open()
    const run = await hf.start(mail)
    await becomes(run, 'waiting')
    await run.pause()
    await hf.resolve('k', { happened: true, result: 'decided' })
    expect(await run.info()).toMatchObject({ status: 'paused' })
    await run.resume()
    expect(await run.result()).toBe('decided')
  })

  it('and whose run is cancelled stays for a person to decide, so that the key is not lost', async () => {
    let sent = 0
    const mail = makeSend({
      key: 'k',
      run: () => {
        if (++sent === 1) throw new Error('connection reset')
        return 'sent by the second'
      },
    })
    const hf = await open()
    const first = await hf.start(mail)
    await becomes(first, 'waiting')
    await first.cancel()
    const second = await hf.start(mail)
    await becomes(second, 'waiting')
    await hf.resolve('k', { happened: false })
    expect(await second.result()).toBe('sent by the second')
  })

  it('whose check can not tell is unsure as well', async () => {
    const mail = makeSend({
      key: 'k',
      retry: { attempts: 2, ...quick },
      run: () => {
        throw new Error('connection reset')
      },
      check: () => {
        throw new Error('no answer either')
      },
    })
    const hf = await open()
    const run = await hf.start(mail)
    await becomes(run, 'waiting')
    expect(await run.info()).toMatchObject({ reason: 'person' })
    await hf.resolve('k', { happened: true, result: 'found in the mailbox' })
    expect(await run.result()).toBe('found in the mailbox')
  })

  it('that is idempotent and fails at its last attempt is unsure, not failed', async () => {
    const mail = makeSend({
      key: 'k',
      idempotent: true,
      retry: { attempts: 2, ...quick },
      run: () => {
        throw new Error('connection reset')
      },
    })
    const hf = await open()
    const run = await hf.start(mail)
    await becomes(run, 'waiting')
    expect(await run.info()).toMatchObject({ reason: 'person' })
  })
})

onEveryStore('hf.resolve', ({ open }) => {
  const makeUnsure = () => {
    const sent: string[] = []
    const mail = workflow('mail', async (ctx) => {
      const mailed = await ctx.once('send', {
        key: 'k',
        run: () => {
          sent.push(ctx.runId)
          if (sent.length === 1) throw new Error('connection reset')
          return `sent at try ${sent.length}`
        },
      })
      return { mailed, after: await ctx.step('after', () => 'went on') }
    })
    return { mail, sent }
  }

  it('happened: the run goes on with the given result, and the log says who decided', async () => {
    const { mail, sent } = makeUnsure()
    const hf = await open()
    const run = await hf.start(mail)
    await becomes(run, 'waiting')
    await hf.resolve('k', { happened: true, result: { id: 7 }, by: 'olga' })
    expect(await run.result()).toEqual({ mailed: { id: 7 }, after: 'went on' })
    expect(sent).toHaveLength(1)
    const events = await run.events()
    expect(events.find(({ type }) => type === 'effect_resolved')).toMatchObject({
      step: 'send',
      data: { key: 'k', happened: true, by: 'olga', result: { id: 7 } },
    })
    expect(events.find(({ type }) => type === 'effect_completed')).toMatchObject({ data: { via: 'resolve' } })
  })

  it('not happened: it is sent again', async () => {
    const { mail, sent } = makeUnsure()
    const hf = await open()
    const run = await hf.start(mail)
    await becomes(run, 'waiting')
    await hf.resolve('k', { happened: false })
    expect(await run.result()).toEqual({ mailed: 'sent at try 2', after: 'went on' })
    expect(sent).toHaveLength(2)
  })

  it('a second decision is already_answered, also from another client at the same time', async () => {
    const { mail } = makeUnsure()
    const hf = await open()
    const other = await open({ worker: false })
    const run = await hf.start(mail)
    await becomes(run, 'waiting')
    const codes = await Promise.all([
      codeOfRejection(hf.resolve('k', { happened: true, result: 'a' })),
      codeOfRejection(other.resolve('k', { happened: true, result: 'b' })),
    ])
    expect(codes.sort()).toEqual(['already_answered', 'nothing was thrown'])
    expect(['a', 'b']).toContain((await run.result()).mailed)
    expect(await codeOfRejection(hf.resolve('k', { happened: false }))).toBe('already_answered')
  })

  it('wakes every run that waits for the key', async () => {
    const { mail, sent } = makeUnsure()
    const hf = await open()
    const first = await hf.start(mail, undefined, { id: 'first' })
    await becomes(first, 'waiting')
    const second = await hf.start(mail, undefined, { id: 'second' })
    await becomes(second, 'waiting')
    expect(await second.info()).toMatchObject({ reason: 'person' })
    await hf.resolve('k', { happened: true, result: 'decided' })
    expect((await first.result()).mailed).toBe('decided')
    expect((await second.result()).mailed).toBe('decided')
    expect(sent).toEqual(['first'])
  })

  it('refuses an unknown key, another owner’s key and a key that is no id', async () => {
    const { mail } = makeUnsure()
    const hf = await open()
    const run = await hf.start(mail)
    await becomes(run, 'waiting')
    expect(await codeOfRejection(hf.resolve('other', { happened: true }))).toBe('invalid_input')
    expect(await codeOfRejection(hf.as('acme').resolve('k', { happened: true }))).toBe('invalid_input')
    expect(await codeOfRejection(hf.resolve('', { happened: true }))).toBe('invalid_id')
    expect(await run.info()).toMatchObject({ status: 'waiting' })
  })

  it('decides about an effect that was under way when its run failed, and retry() does not send it again', async () => {
    let sent = 0
    let isDown = true
    const sending = gate()
    const both = workflow({ name: 'both', retry: { attempts: 1 } }, (ctx) =>
      Promise.all([
        ctx.once('send', {
          key: 'k',
          idempotent: true,
          run: () => {
            sent++
            sending.open()
            return new Promise<string>(() => {})
          },
        }),
        ctx.step('check', async () => {
          await sending.promise
          if (isDown) throw new Error('down')
          return 'checked'
        }),
      ]),
    )
    const hf = await open()
    const run = await hf.start(both)
    expect((await failureOf(run)).message).toBe('down')
    isDown = false
    await hf.resolve('k', { happened: true, result: 'it arrived' })
    await run.retry()
    expect(await run.result()).toEqual(['it arrived', 'checked'])
    expect(sent).toBe(1)
  })

  it('decides about an effect that was under way when its run continued or ended without it, with its late answer as evidence', async () => {
    const ways = { continues: gate<string>(), ends: gate<string>() }
    const pay = (ctx: Context, key: keyof typeof ways) => ctx.once('pay', { key, run: () => ways[key].promise })
    const continues = workflow('continues', async (ctx, tape: number): Promise<unknown> => {
      if (tape === 2) return ctx.waitFor('end')
      await Promise.race([pay(ctx, 'continues'), ctx.waitFor('go')])
      return ctx.continueAs(2)
    })
    const ends = workflow('ends', (ctx, _tape: number) => Promise.race([pay(ctx, 'ends'), ctx.waitFor('go')]))
    const other = workflow('other', (ctx, key: keyof typeof ways) => pay(ctx, key))
    const hf = await open()
    for (const [key, work] of Object.entries({ continues, ends } as Record<string, typeof continues>)) {
      const run = await hf.start(work, 1, { id: key })
      await logged(run, 'effect_intended')
      await hf.signal(key, 'go', 1)
      await vi.waitUntil(async () => (await hf.inbox()).some((item) => item.kind === 'effect' && item.key === key))
      ways[key as keyof typeof ways].open('paid')
      await vi.waitUntil(async () =>
        (await hf.inbox()).some((item) => item.kind === 'effect' && item.key === key && item.evidence !== undefined),
      )
      const [item] = await hf.inbox()
      expect(item).toMatchObject({ kind: 'effect', key, evidence: { result: 'paid' } })
      const waiting = await hf.start(other, key as keyof typeof ways, { id: `other ${key}` })
      await becomes(waiting, 'waiting')
      await hf.resolve(key, { happened: true, result: 'paid' })
      expect(await waiting.result()).toBe('paid')
      await hf.signal(key, 'end', 1).catch(() => {})
      await run.result()
    }
  })

  it('about an effect of an earlier tape says nothing of the call in its place on the next one', async () => {
    const sent: string[] = []
    const held = gate<string>()
    const work = workflow('work', async (ctx, tape: number): Promise<unknown> => {
      if (tape === 1) {
        await Promise.race([ctx.once('pay', { run: () => held.promise }), ctx.waitFor('go')])
        return ctx.continueAs(2)
      }
      await ctx.waitFor('pay again')
      return ctx.once('pay', {
        run: (key) => {
          sent.push(key)
          return 'second'
        },
      })
    })
    const hf = await open()
    const run = await hf.start(work, 1, { id: 'r' })
    await logged(run, 'effect_intended')
    await hf.signal('r', 'go', 1)
    await vi.waitUntil(async () => (await hf.inbox()).length === 1)
    await hf.resolve('r/pay#1', { happened: true, result: 'first' })
    await hf.signal('r', 'pay again', 1)
    expect(await run.result()).toBe('second')
    expect(sent).toEqual(['r~2/pay#1'])
    held.open('late')
  })

  it('decides about an effect of a thread that was deleted, so that other runs do not wait for ever', async () => {
    const { mail, sent } = makeUnsure()
    const hf = await open()
    const first = await hf.start(mail, undefined, { id: 'first' })
    await becomes(first, 'waiting')
    await hf.thread('first').delete()
    const second = await hf.start(mail, undefined, { id: 'second' })
    await becomes(second, 'waiting')
    await hf.resolve('k', { happened: true, result: 'decided' })
    expect((await second.result()).mailed).toBe('decided')
    expect(sent).toEqual(['first'])
  })
})

onLocalStores('NotHappened', ({ open }) => {
  it('is an ordinary failure that is retried, each time with an intent of its own', async () => {
    const keys: string[] = []
    const mail = makeSend({
      retry: quick,
      run: (key, { attempt }) => {
        keys.push(key)
        if (attempt < 3) throw new NotHappened(new Error('mailbox full'))
        return 'sent'
      },
    })
    const hf = await open()
    const run = await hf.start(mail)
    expect(await run.result()).toBe('sent')
    expect(new Set(keys).size).toBe(1)
    const events = (await run.events()).filter(({ type }) => type.startsWith('effect_'))
    expect(events.map(({ type, attempt }) => [type, attempt])).toEqual([
      ['effect_intended', 1],
      ['effect_failed', 1],
      ['effect_intended', 2],
      ['effect_failed', 2],
      ['effect_intended', 3],
      ['effect_completed', 3],
    ])
    expect(events[1]?.error?.message).toBe('mailbox full')
  })

  it('at the last attempt fails the effect with its cause, and retry() sends it again', async () => {
    let isFull = true
    const mail = makeSend({
      retry: { attempts: 1 },
      run: () => {
        if (isFull) throw new NotHappened(Object.assign(new Error('mailbox full'), { code: 'EFULL' }))
        return 'sent'
      },
    })
    const hf = await open()
    const run = await hf.start(mail)
    expect(await failureOf(run)).toMatchObject({ message: 'mailbox full', code: 'EFULL' })
    expect(await run.info()).toMatchObject({ currentStep: 'send' })
    isFull = false
    await run.retry()
    expect(await run.result()).toBe('sent')
  })

  it('caught by the function lets the run go on, and the key is free', async () => {
    const sent: string[] = []
    const mail = workflow('mail', async (ctx) => {
      const first = await ctx
        .once('send', {
          key: 'k',
          retry: { attempts: 1 },
          run: () => {
            throw new NotHappened('no address')
          },
        })
        .catch((error: Error) => error.message)
      const second = await ctx.once('send', { key: 'k', run: () => sent.push('second') })
      return { first, second }
    })
    const hf = await open()
    expect(await hf.run(mail)).toEqual({ first: 'The effect did not happen: no address', second: 1 })
  })
})

onLocalStores('what an effect returns', ({ open }) => {
  it('is recorded exactly, undefined included', async () => {
    const results = [undefined, null, 0, '', new Date(5), { big: 1n, bytes: new Uint8Array([1]) }]
    const sendAll = workflow('send_all', async (ctx) => {
      const answers: unknown[] = []
      for (const result of results) answers.push(await ctx.once('send', { run: () => result }))
      return answers
    })
    const hf = await open()
    expect(await hf.run(sendAll)).toStrictEqual(results)
  })

  it('and can not be stored fails the run, but the effect counts as done and is not sent again', async () => {
    let sent = 0
    const mail = makeSend({
      key: 'k',
      run: () => {
        sent++
        return () => 'not storable'
      },
    })
    const hf = await open()
    const run = await hf.start(mail)
    expect(await failureOf(run)).toMatchObject({ code: 'value_not_storable' })
    await run.retry()
    await run.result().catch(() => {})
    expect(sent).toBe(1)
  })

  it('a recording call on ctx inside an effect is refused with nested_call, and what can be looked up is looked up', async () => {
    const mail = workflow('mail', (ctx) =>
      ctx.once('send', {
        key: 'k',
        run: (): Promise<unknown> => ctx.step('inner', () => 1),
        check: () => ({ happened: true, result: 'checked' }),
      }),
    )
    const hf = await open()
    expect(await hf.run(mail)).toBe('checked')
  })
})

onEveryStore('an effect and a crash', ({ open, openMortal, openWrapped, advance }) => {
  it('that died before the intent was durable sends for the first time', async () => {
    let sent = 0
    const mail = makeSend({ key: 'k', run: () => ++sent })
    const { hf, dead } = await openMortal({ workflows: [mail] }, { before: 'effect_intended' })
    await hf.start(mail, undefined, { id: 'r' })
    await dead
    const heir = await open({ workflows: [mail] })
    advance(11_000)
    expect(await (await heir.runs.get('r')).result()).toBe(1)
    expect(sent).toBe(1)
  })

  for (const [declaration, options] of Object.entries({
    idempotent: { idempotent: true },
    check: { check: () => ({ happened: true, result: 'found' }) },
    neither: {},
  })) {
    it(`that died after the result was durable does not send again (${declaration})`, async () => {
      let sent = 0
      const mail = makeSend({ key: 'k', run: () => ++sent, ...options })
      const { hf, dead } = await openMortal({ workflows: [mail] }, { after: 'effect_completed' })
      await hf.start(mail, undefined, { id: 'r' })
      await dead
      const heir = await open({ workflows: [mail] })
      advance(11_000)
      expect(await (await heir.runs.get('r')).result()).toBe(1)
      expect(sent).toBe(1)
    })
  }

  it('a late answer of a holder that lost its run changes nothing; the person’s decision stands', async () => {
    let sent = 0
    const sending = gate()
    const late = gate<string>()
    const mail = makeSend({
      key: 'k',
      run: () => {
        sent++
        sending.open()
        return late.promise
      },
    })
    // A worker whose lease runs out before it has renewed it: paused, seen from outside.
    let isPaused = false
    let claimsUnderWay = 0
    const before = (act: StoreAct) => {
      if (act !== 'claim') return
      if (isPaused) throw new HoldfastError('store_unavailable', 'Paused.', { retryable: true })
      claimsUnderWay++
    }
    const after = (act: StoreAct) => {
      if (act === 'claim') claimsUnderWay--
    }
    const paused = await openWrapped((store) => wrapStore(store, { before, after }), {
      workflows: [mail],
      worker: { leaseMs: 600_000 },
    })
    await paused.start(mail, undefined, { id: 'r' })
    await sending.promise
    isPaused = true
    // One of them would take the run from the worker that holds it, for itself.
    await vi.waitUntil(() => claimsUnderWay === 0)
    advance(601_000)
    const heir = await open({ workflows: [mail] })
    const run = await heir.runs.get('r')
    await becomes(run, 'waiting')
    late.open('the late answer')
    await heir.resolve('k', { happened: true, result: 'decided' })
    expect(await run.result()).toBe('decided')
    expect(sent).toBe(1)
    expect(await eventTypes(run, 'effect')).toEqual(['effect_intended', 'effect_unsure', 'effect_resolved', 'effect_completed'])
  })
})

onEveryStore('an effect that a failed run left under way', ({ open }) => {
  it.each([
    ['happened', { happened: true, result: 'decided' } as const, 'decided', 1],
    ['did not happen', { happened: false } as const, 'sent', 2],
  ])('may be decided by a person while the retried run looks it up: %s', async (_, decision, expected, times) => {
    const isSending = gate()
    const late = gate()
    let sent = 0
    let isFailing = true
    const mail = workflow('mail', async (ctx) => {
      const send = ctx.once('send', {
        key: 'k',
        run: async () => {
          sent++
          isSending.open()
          await late.promise
          return 'sent'
        },
        check: async (key) => {
          await hf.resolve(key, decision)
          return { happened: true, result: 'found' }
        },
      })
      const beside = ctx.step('beside', () => isSending.promise.then(() => isFailing && Promise.reject(new Error('no'))), {
        retry: { attempts: 1 },
      })
      const [made] = await Promise.all([send, beside])
      return made
    })
    const hf = await open({ workflows: [mail] })
    const run = await hf.start(mail)
    await becomes(run, 'failed')
    late.open()
    isFailing = false
    await vi.waitUntil(async () => (await hf.inbox()).some((item) => item.kind === 'effect' && item.evidence !== undefined))
    await run.retry()
    expect(await run.result({ timeoutMs: patience(10_000) })).toBe(expected)
    expect(sent).toBe(times)
  })
})

onEveryStore('an effect whose intent is being written', ({ open }) => {
  /** Its own branch does not wait for the effect. */
  const withEffect = (end: (ctx: Context) => unknown) => {
    const sent: string[] = []
    const work = workflow('work', async (ctx, tape: number): Promise<unknown> => {
      const send = ctx.once('send', { key: 'k', run: (key) => sent.push(key) })
      if (tape === 2) return send
      await Promise.race([send, Promise.resolve()])
      return end(ctx)
    })
    return { work, sent }
  }

  it('when its run fails is not sent after that and asks no person; retry() sends it', async () => {
    let isFailing = true
    const { work, sent } = withEffect(async (ctx) => {
      if (isFailing) throw new Error('no')
      await ctx.sleep(20)
    })
    const hf = await open({ workflows: [work] })
    const run = await hf.start(work, 1)
    await becomes(run, 'failed')
    expect(await eventTypes(run, 'effect')).toEqual(['effect_intended', 'effect_failed'])
    expect(await hf.inbox()).toEqual([])
    expect(sent).toEqual([])
    isFailing = false
    await run.retry()
    await run.result()
    expect(sent).toEqual(['k'])
  })

  it('when its run ends is not sent after that, and another run can send it', async () => {
    const { work, sent } = withEffect(() => 'done')
    const hf = await open({ workflows: [work] })
    expect(await hf.run(work, 1)).toBe('done')
    expect(await hf.inbox()).toEqual([])
    expect(sent).toEqual([])
    await hf.run(work, 2)
    expect(sent).toEqual(['k'])
  })

  it('when its run continues with another input is sent by the next tape alone', async () => {
    const { work, sent } = withEffect((ctx) => ctx.continueAs(2 as never))
    const hf = await open({ workflows: [work] })
    await hf.run(work, 1)
    expect(await hf.inbox()).toEqual([])
    expect(sent).toEqual(['k'])
  })
})

onEverySharedStore('a process that is killed between sending and recording', (scene) => {
  const sendAndDie = async (declaration: 'idempotent' | 'check' | 'neither') => {
    const file = join(scene.folder, 'provider')
    expect(await startProgram('send-and-die', scene.url, file, declaration).ended).toBe('SIGKILL')
    expect(sentKeys(file)).toHaveLength(1)
    scene.outlastKilled()
    const hf = await scene.open({ workflows: [makeMailer(file, declaration)] })
    return { file, hf, run: await hf.runs.get<string>('mail-run') }
  }

  it('sends again with the same key when the effect is idempotent', async () => {
    const { file, run } = await sendAndDie('idempotent')
    expect(await run.result()).toBe('sent: Dear alice')
    const keys = sentKeys(file)
    expect(keys).toHaveLength(2)
    expect(new Set(keys).size).toBe(1)
  })

  it('does not send again when check finds that it happened', async () => {
    const { file, run } = await sendAndDie('check')
    expect(await run.result()).toBe('found')
    expect(sentKeys(file)).toHaveLength(1)
    expect((await run.events()).find(({ type }) => type === 'effect_completed')?.data).toMatchObject({ via: 'check' })
  })

  it('waits for hf.resolve when the effect has neither', async () => {
    const { file, hf, run } = await sendAndDie('neither')
    await becomes(run, 'waiting')
    expect(await run.info()).toMatchObject({ reason: 'person', completedSteps: ['write'] })
    const [key] = sentKeys(file)
    await hf.resolve(key as string, { happened: true, result: 'seen in the outbox', by: 'olga' })
    expect(await run.result()).toBe('seen in the outbox')
    expect(sentKeys(file)).toHaveLength(1)
  })
})
