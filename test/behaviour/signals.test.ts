import { getEventListeners } from 'node:events'
import { type Context, workflow } from 'holdfast'
import { expect, it, vi } from 'vitest'
import { z } from 'zod'
import { patience } from '../patience.ts'
import { becomes, codeOfRejection, eventTypes, failureOf, gate, logged, noting } from './runs.ts'
import { onEveryStore } from './stores.ts'

const day = 86_400_000

onEveryStore('waiting for one of several signals', ({ open, openMortal, advance }) => {
  const next = workflow('next', async (ctx) => {
    const seen: unknown[] = []
    for (;;) {
      const got = await ctx.waitFor(['message', 'stop'])
      if (got.name === 'stop') return [...seen, got.value]
      seen.push(got.value)
    }
  })

  it('gives the name and the value of the first that comes', async () => {
    const hf = await open()
    const run = await hf.start(next)
    await becomes(run, 'waiting')
    await hf.signal(run.id, 'message', 'one')
    await vi.waitUntil(async () => (await eventTypes(run, 'signal')).length === 1)
    await hf.signal(run.id, 'message', 'two')
    await hf.signal(run.id, 'stop', 'for good')
    expect(await run.result()).toEqual(['one', 'two', 'for good'])
  })

  it('takes those that are there already in the order in which they were sent', async () => {
    const hf = await open({ worker: false })
    const run = await hf.start(next)
    await hf.signal(run.id, 'message', 1)
    await hf.signal(run.id, 'other', 'never asked for')
    await hf.signal(run.id, 'message', 2)
    await hf.signal(run.id, 'stop', 3)
    await open({ workflows: [next] })
    expect(await run.result()).toEqual([1, 2, 3])
  })

  it('goes the same way again after a crash', async () => {
    const replayed = workflow('replayed', async (ctx) => {
      const first = await ctx.waitFor(['a', 'b'])
      const second = await ctx.waitFor(['a', 'b'])
      return ctx.step('end', () => [first, second])
    })
    const mortal = await openMortal({ workflows: [replayed] }, { before: 'step_completed' })
    const run = await mortal.hf.start(replayed)
    const client = await open({ worker: false })
    await client.signal(run.id, 'b', 1)
    await client.signal(run.id, 'a', 2)
    await mortal.dead
    advance(11_000)
    const heir = await open({ workflows: [replayed] })
    expect(await (await heir.runs.get(run.id)).result()).toEqual([
      { name: 'b', value: 1 },
      { name: 'a', value: 2 },
    ])
  })

  it('has one time limit and one schema for all of them', async () => {
    const limited = workflow('limited', (ctx) => ctx.waitFor(['a', 'b'], { timeoutMs: 10 }))
    const checked = workflow('checked', (ctx) => ctx.waitFor(['a', 'b'], { schema: z.number() }))
    const hf = await open()
    expect(await failureOf(await hf.start(limited))).toMatchObject({ code: 'timeout', details: { signal: ['a', 'b'] } })
    const run = await hf.start(checked)
    await hf.signal(run.id, 'b', 'no number')
    expect(await failureOf(run)).toMatchObject({ code: 'invalid_input' })
  })

  it('refuses an empty list, and names that no signal can have', async () => {
    const bad = workflow('bad', async (ctx, names: string[]) => codeOfRejection(ctx.waitFor(names)))
    const hf = await open()
    expect(await hf.run(bad, [])).toBe('invalid_input')
    expect(await hf.run(bad, ['a', 'b/c'])).toBe('invalid_id')
    expect(await hf.run(bad, ['a', 7 as never])).toBe('invalid_id')
  })
})

onEveryStore('a signal for which several calls wait', ({ open, openMortal, advance }) => {
  it('is there for the next tape at once, where it came before that began', async () => {
    const gates = { begun: gate(), sent: gate() }
    const laps = workflow('laps', async (ctx, seen: readonly unknown[]): Promise<readonly unknown[]> => {
      if (seen.length === 0) {
        await ctx.step('first', () => {
          gates.begun.open()
          return gates.sent.promise
        })
      }
      const all = [...seen, await ctx.waitFor('lap')]
      return all.length === 3 ? all : ctx.continueAs(all)
    })
    // Longer than the test.
    const hf = await open({ worker: { quietMs: 60_000 } })
    const run = await hf.start(laps, [])
    await gates.begun.promise
    for (const lap of [1, 2, 3]) await hf.signal(run.id, 'lap', lap)
    gates.sent.open()
    expect(await run.result({ timeoutMs: patience(15_000) })).toEqual([1, 2, 3])
  })

  it('goes to the latest of them: the loser of a race does not take it', async () => {
    const laps = workflow('laps', async (ctx) => {
      for (let lap = 0; lap < 5; lap++) {
        const message = await Promise.race([ctx.waitFor('message'), ctx.waitFor('next').then(() => null)])
        if (message !== null) return `${message} in lap ${lap}`
        await ctx.step('lap', () => lap)
      }
      return 'nothing came'
    })
    const hf = await open()
    const run = await hf.start(laps)
    for (let lap = 0; lap < 2; lap++) {
      await hf.signal(run.id, 'next')
      await vi.waitUntil(async () => (await eventTypes(run, 'step')).length === 2 * (lap + 1))
      await becomes(run, 'waiting')
    }
    await hf.signal(run.id, 'message', 'hello')
    expect(await run.result()).toBe('hello in lap 2')
  })

  it('goes to the latest of them also where it came while nobody executed the run', async () => {
    const agent = workflow('agent', async (ctx) => {
      const seen: unknown[] = []
      for (;;) {
        const next = await Promise.race([
          ctx.waitFor('message').then((text) => ({ text })),
          ctx.waitFor('stop').then(() => 'stop' as const),
        ])
        if (next === 'stop') return seen
        seen.push(next.text)
      }
    })
    const first = await open({ workflows: [agent] })
    const run = await first.start(agent)
    await first.signal(run.id, 'message', 'one')
    await vi.waitUntil(async () => (await eventTypes(run, 'signal')).length === 1)
    await first.signal(run.id, 'message', 'two')
    await vi.waitUntil(async () => (await eventTypes(run, 'signal')).length === 2)
    await first.close()
    const client = await open({ worker: false })
    await client.signal(run.id, 'stop')
    await open({ workflows: [agent] })
    expect(await (await client.runs.get(run.id)).result()).toEqual(['one', 'two'])
  })

  it('and then to the one before it, until each has one', async () => {
    const both = workflow('both', async (ctx) => Promise.all([ctx.waitFor('a'), ctx.waitFor('a'), ctx.waitFor(['a', 'b'])]))
    const hf = await open()
    const run = await hf.start(both)
    await becomes(run, 'waiting')
    for (const value of [1, 2, 3]) await hf.signal(run.id, 'a', value)
    expect(await run.result()).toEqual([3, 2, { name: 'a', value: 1 }])
  })

  it('does not go to a call in a section that is over', async () => {
    const work = workflow('work', async (ctx) => {
      const outside = ctx.waitFor('a')
      await ctx.section('short', () => Promise.race([ctx.waitFor('a'), ctx.step('quick', () => 1)]))
      await ctx.checkpoint('after')
      return outside
    })
    const hf = await open()
    const run = await hf.start(work)
    await becomes(run, 'waiting')
    await hf.signal(run.id, 'a', 'for the one outside')
    expect(await run.result()).toBe('for the one outside')
  })

  it('is taken by the same call again after a crash', async () => {
    const work = workflow('work', async (ctx) => {
      const early = ctx.waitFor('a').then((value) => `early ${value}`)
      const late = ctx.waitFor('a').then((value) => `late ${value}`)
      const first = await Promise.race([early, late])
      await ctx.step('between', () => 1)
      return [first, await early]
    })
    const mortal = await openMortal({ workflows: [work] }, { before: 'step_completed' })
    const run = await mortal.hf.start(work)
    const client = await open({ worker: false })
    await logged(run, 'run_started')
    await client.signal(run.id, 'a', 1)
    await mortal.dead
    await client.signal(run.id, 'a', 2)
    advance(11_000)
    const heir = await open({ workflows: [work] })
    expect(await (await heir.runs.get(run.id)).result()).toEqual(['late 1', 'early 2'])
  })
})

onEveryStore('a wait that is withdrawn', ({ open, openMortal, openWrapped, advance }) => {
  it('leaves no listener on its signal for long when its run is persisted as waiting', async () => {
    const { signal } = new AbortController()
    const listen = workflow('listen', (ctx) =>
      Promise.race([
        ctx.waitFor(['go', 'stop'], { signal }),
        ctx.sleep(day, { signal }),
        ctx.ask('question', { question: 'Go?', signal }),
      ]),
    )
    const hf = await open()
    await becomes(await hf.start(listen), 'waiting')
    await vi.waitUntil(() => getEventListeners(signal, 'abort').length === 0, { timeout: 10_000 })
  })

  it('may be withdrawn by a timer of its own that is longer than the quiet time: the function was at work', async () => {
    const work = workflow('work', async (ctx, how: 'signal' | 'sleep' | 'question') => {
      const signal = AbortSignal.timeout(300)
      const waits = {
        signal: () => ctx.waitFor('never', { signal }),
        sleep: () => ctx.sleep(day, { signal }),
        question: () => ctx.ask('never', { question: '?', signal }),
      }
      return waits[how]().then(
        () => 'came',
        (error: Error) => error.name,
      )
    })
    const hf = await open()
    const outputs = (['signal', 'sleep', 'question'] as const).map((how) => hf.run(work, how))
    expect(await Promise.all(outputs)).toEqual(Array(3).fill('TimeoutError'))
    expect(await hf.inbox()).toEqual([])
  })

  const reason = new Error('no longer needed')

  /** Waits for a message, and withdraws that when `next` comes. */
  const messageOrNext = async (ctx: Context) => {
    const abort = new AbortController()
    const message = ctx.waitFor('message', { signal: abort.signal }).catch((error: Error) => error.message)
    await ctx.waitFor('next')
    abort.abort(reason)
    return message
  }

  it('rejects with the reason, and takes nothing any more: the signal is kept for whoever asks for it', async () => {
    const work = workflow('work', async (ctx) => [await messageOrNext(ctx), await ctx.waitFor('message')])
    const hf = await open()
    const run = await hf.start(work)
    await becomes(run, 'waiting')
    await hf.signal(run.id, 'next')
    await logged(run, 'wait_withdrawn')
    await hf.signal(run.id, 'message', 'for the second')
    expect(await run.result()).toEqual(['no longer needed', 'for the second'])
    const [withdrawn] = (await run.events()).filter(({ type }) => type === 'wait_withdrawn')
    expect(withdrawn).toMatchObject({ step: 'message', data: { for: 'signal' } })
  })

  it('leaves a signal to an earlier call that still waits', async () => {
    const work = workflow('work', async (ctx) => {
      const early = ctx.waitFor('message')
      await messageOrNext(ctx)
      return early
    })
    const hf = await open()
    const run = await hf.start(work)
    await becomes(run, 'waiting')
    await hf.signal(run.id, 'next')
    await logged(run, 'wait_withdrawn')
    await hf.signal(run.id, 'message', 'for the first')
    expect(await run.result()).toBe('for the first')
  })

  it('that had its signal before keeps it', async () => {
    const work = workflow('work', async (ctx) => {
      const abort = new AbortController()
      const got = await ctx.waitFor('message', { signal: abort.signal })
      abort.abort(reason)
      return ctx.step('after', () => got)
    })
    const hf = await open()
    const run = await hf.start(work)
    await hf.signal(run.id, 'message', 'in time')
    expect(await run.result()).toBe('in time')
    expect(await eventTypes(run, 'wait')).toEqual([])
  })

  it('is withdrawn again after a crash, on record or not, whatever came meanwhile', async () => {
    const work = workflow('work', async (ctx) => {
      const first = await messageOrNext(ctx)
      await ctx.step('between', () => 1)
      return [first, await ctx.waitFor('message')]
    })
    for (const death of [{ before: 'wait_withdrawn' }, { after: 'wait_withdrawn' }, { before: 'step_completed' }] as const) {
      const mortal = await openMortal({ workflows: [work] }, death)
      const run = await mortal.hf.start(work)
      const client = await open({ worker: false })
      await client.signal(run.id, 'next')
      await mortal.dead
      await client.signal(run.id, 'message', 'for the second')
      advance(11_000)
      const heir = await open({ workflows: [work] })
      expect(await (await heir.runs.get(run.id)).result()).toEqual(['no longer needed', 'for the second'])
      expect(await eventTypes(await heir.runs.get(run.id), 'wait')).toEqual(['wait_withdrawn'])
      await heir.close()
    }
  })

  it('before it began takes nothing either, and sets no timer', async () => {
    const work = workflow('work', async (ctx) => {
      const signal = AbortSignal.abort(reason)
      const waits = [
        ctx.waitFor('a', { signal, timeoutMs: day }),
        ctx.sleep(day, { signal }),
        ctx.waitFor(['a', 'b'], { signal }),
      ]
      return (await Promise.allSettled(waits)).map((one) => (one.status === 'rejected' ? one.reason.message : one.value))
    })
    const client = await open({ worker: false })
    const run = await client.start(work)
    await client.signal(run.id, 'a', 1)
    await open({ workflows: [work] })
    expect(await run.result()).toEqual(Array(3).fill('no longer needed'))
    expect(await eventTypes(run, 'timer')).toEqual([])
  })

  it('may be a sleep: nobody wakes up for it', async () => {
    const work = workflow('work', async (ctx) => {
      const abort = new AbortController()
      const sleep = ctx.sleep(day, { signal: abort.signal }).catch((error: Error) => error.name)
      await ctx.waitFor('go')
      abort.abort()
      const woken = await sleep
      await ctx.waitFor('end')
      return woken
    })
    const hf = await open()
    const run = await hf.start(work)
    await becomes(run, 'waiting')
    await hf.signal(run.id, 'go')
    await logged(run, 'wait_withdrawn')
    await becomes(run, 'waiting')
    advance(2 * day)
    await hf.signal(run.id, 'end')
    expect(await run.result()).toBe('AbortError')
    expect(await eventTypes(run, 'timer')).toEqual(['timer_set'])
  })

  it('may be a question: nobody is asked any more, and an answer comes too late', async () => {
    const work = workflow('work', async (ctx) => {
      const abort = new AbortController()
      const answer = ctx.ask('sure', { question: '?', signal: abort.signal }).catch((error: Error) => error.message)
      await ctx.waitFor('go')
      abort.abort(reason)
      const first = await answer
      await ctx.step('between', () => 1)
      return [first, await ctx.ask('sure', { question: '?' })]
    })
    for (const death of [{ before: 'wait_withdrawn' }, { before: 'step_completed' }] as const) {
      const mortal = await openMortal({ workflows: [work] }, death)
      const run = await mortal.hf.start(work)
      const client = await open({ worker: false })
      await logged(run, 'question_asked')
      const [asked] = (await client.inbox()).filter(({ runId }) => runId === run.id)
      await client.signal(run.id, 'go')
      await mortal.dead
      advance(11_000)
      const heir = await open({ workflows: [work] })
      const again = await heir.runs.get(run.id)
      await vi.waitUntil(async () => (await eventTypes(again, 'question')).length === 2)
      expect(await codeOfRejection(client.answer(run.id, 'sure', 'late', { id: (asked as { id: string }).id }))).toBe(
        'already_answered',
      )
      await client.answer(run.id, 'sure', 'yes')
      expect(await again.result()).toEqual(['no longer needed', 'yes'])
      expect(await eventTypes(again, 'wait')).toEqual(['wait_withdrawn'])
      await heir.close()
    }
  })

  it('is no failure: a run that fails for another reason is retried from there', async () => {
    let attempts = 0
    const work = workflow('work', async (ctx) => {
      const first = await messageOrNext(ctx)
      await ctx.step(
        'fragile',
        () => {
          if (++attempts === 1) throw new Error('not yet')
        },
        { retry: { attempts: 1 } },
      )
      return first
    })
    const hf = await open()
    const run = await hf.start(work)
    await hf.signal(run.id, 'next')
    expect(await failureOf(run)).toMatchObject({ message: 'not yet' })
    await run.retry()
    expect(await run.result()).toBe('no longer needed')
    expect(await eventTypes(run, 'wait')).toEqual(['wait_withdrawn'])
  })

  it('is withdrawn by an AbortSignal and nothing else', async () => {
    const bad = workflow('bad', async (ctx, signal: AbortSignal) => [
      await codeOfRejection(ctx.waitFor('a', { signal })),
      await codeOfRejection(ctx.sleep(1, { signal })),
    ])
    const hf = await open()
    for (const signal of ['yes', null, 1]) expect(await hf.run(bad, signal as never)).toEqual(['invalid_input', 'invalid_input'])
  })

  it('is not withdrawn in a run that is paused meanwhile, and is when it is resumed', async () => {
    const between = gate()
    const work = workflow('work', async (ctx) => {
      const abort = new AbortController()
      const message = ctx.waitFor('message', { signal: abort.signal }).catch((error: Error) => error.message)
      await ctx.step('slow', () => between.promise)
      abort.abort(reason)
      return message
    })
    const asked = gate()
    const hf = await openWrapped(noting('deliver', asked.open))
    const run = await hf.start(work)
    await logged(run, 'step_started')
    const pausing = run.pause()
    await asked.promise
    between.open()
    await pausing
    await becomes(run, 'paused')
    await run.resume()
    expect(await run.result()).toBe('no longer needed')
  })
})

onEveryStore('a signal with an id', ({ open, openMortal, advance }) => {
  const collect = workflow('collect', async (ctx) => {
    const seen: unknown[] = []
    for (;;) {
      const { name, value } = await ctx.waitFor(['add', 'end'])
      if (name === 'end') return seen
      seen.push(value)
    }
  })

  it('is delivered once, however often and by whomever it is sent, also after the run has taken it', async () => {
    const hf = await open()
    const other = await open({ worker: false })
    const run = await hf.start(collect)
    await Promise.all([hf, other, hf, other].map((client) => client.signal(run.id, 'add', 1, { id: 'payment-1' })))
    await vi.waitUntil(async () => (await eventTypes(run, 'signal')).length === 1)
    await other.signal(run.id, 'add', 1, { id: 'payment-1' })
    await hf.signal(run.id, 'add', 2, { id: 'payment-2' })
    await hf.signal(run.id, 'add', 2)
    // The id counts for the run, whatever the name and the value.
    await hf.signal(run.id, 'end', 3, { id: 'payment-1' })
    await hf.signal(run.id, 'end', undefined, { id: 'end' })
    expect(await run.result()).toEqual([1, 2, 2])
    await hf.signal(run.id, 'end', undefined, { id: 'end' })
    expect(await codeOfRejection(hf.signal(run.id, 'end', undefined, { id: 'another' }))).toBe('conflict')
  })

  it('is delivered once also over a crash', async () => {
    const mortal = await openMortal({ workflows: [collect] }, { after: 'signal_received' })
    const run = await mortal.hf.start(collect)
    const client = await open({ worker: false })
    await client.signal(run.id, 'add', 1, { id: 'a' })
    await mortal.dead
    await client.signal(run.id, 'add', 1, { id: 'a' })
    await client.signal(run.id, 'end')
    advance(11_000)
    const heir = await open({ workflows: [collect] })
    expect(await (await heir.runs.get(run.id)).result()).toEqual([1])
  })

  it('is an id like any other, and an unknown option is refused', async () => {
    const hf = await open({ worker: false })
    const run = await hf.start(collect)
    expect(await codeOfRejection(hf.signal(run.id, 'add', 1, { id: '' }))).toBe('invalid_id')
    expect(await codeOfRejection(hf.signal(run.id, 'add', 1, { ids: 'a' } as never))).toBe('invalid_input')
  })
})
