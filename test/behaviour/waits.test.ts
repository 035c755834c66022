import { workflow } from 'holdfast'
import { expect, it, vi } from 'vitest'
import { z } from 'zod'
import type { RenewRequest, Store } from '../../src/store/store.ts'
import { patience } from '../patience.ts'
import { becomes, codeOfRejection, eventTypes, failing, failureOf, gate, logged } from './runs.ts'
import { onEveryStore } from './stores.ts'

const day = 86_400_000

/** For `openWrapped`: nobody tells the client that messages have come. */
function deaf(store: Store): Store {
  return new Proxy(store, {
    get(target, name) {
      if (name === 'subscribe') return undefined
      const member = Reflect.get(target, name) as unknown
      if (typeof member !== 'function') return member
      if (name !== 'renew') return member.bind(target)
      return async (request: RenewRequest) => (await target.renew(request)).map((one) => ({ ...one, hasMail: false }))
    },
  })
}

onEveryStore('a signal', ({ open, openMortal, openWrapped, advance }) => {
  const wait = workflow('wait', async (ctx) => {
    await ctx.step('before', () => 1)
    const value = await ctx.waitFor<{ n: number }>('go')
    return ctx.step('after', () => value)
  })

  it('wakes the run that waits for it, and brings a value', async () => {
    const hf = await open()
    const run = await hf.start(wait)
    await becomes(run, 'waiting')
    expect(await run.info()).toMatchObject({ status: 'waiting', reason: 'signal' })
    await hf.signal(run.id, 'go', { n: 7, at: new Date(5) })
    expect(await run.result()).toEqual({ n: 7, at: new Date(5) })
    expect(await eventTypes(run, 'signal')).toEqual(['signal_received'])
  })

  it('sent before anybody waits is kept, in the order of sending, and one of another name does not count', async () => {
    const ready = gate()
    const early = workflow('early', async (ctx) => {
      await ctx.step('slow', () => ready.promise)
      return [await ctx.waitFor('a'), await ctx.waitFor('b'), await ctx.waitFor('a')]
    })
    const hf = await open()
    const run = await hf.start(early)
    await hf.signal(run.id, 'a', 1)
    await hf.signal(run.id, 'c', 'never asked for')
    await hf.signal(run.id, 'a', 2)
    ready.open()
    await becomes(run, 'waiting')
    await hf.signal(run.id, 'b', 3)
    expect(await run.result()).toEqual([1, 3, 2])
  })

  it('of another name leaves the run waiting as a row that nobody executes', async () => {
    const hf = await open()
    const run = await hf.start(wait)
    await becomes(run, 'waiting')
    await hf.signal(run.id, 'stop')
    await new Promise((resolve) => setTimeout(resolve, 300))
    await becomes(run, 'waiting')
    await hf.signal(run.id, 'go', { n: 1 })
    expect(await run.result()).toEqual({ n: 1 })
  })

  it('that does not come in time is a timeout in the function, which can catch it, once and for all', async () => {
    const patient = workflow('patient', async (ctx) => {
      const value = await ctx.waitFor('go', { timeoutMs: 30 * day }).catch((error: { code: string }) => error.code)
      await ctx.sleep(day)
      return [value, await ctx.waitFor('go')]
    })
    const hf = await open()
    const run = await hf.start(patient)
    await becomes(run, 'waiting')
    advance(29 * day)
    await new Promise((resolve) => setTimeout(resolve, 250))
    expect((await run.info()).status).toBe('waiting')
    advance(day + 1_000)
    await logged(run, 'timer_fired')
    await vi.waitUntil(async () => (await eventTypes(run, 'timer')).length === 3)
    await hf.signal(run.id, 'go', 'late')
    advance(day + 1_000)
    expect(await run.result()).toEqual(['timeout', 'late'])
  })

  it('that never comes fails a run that does not catch the timeout, and retry waits anew', async () => {
    const strict = workflow('strict', (ctx) => ctx.waitFor('go', { timeoutMs: 10 }))
    const hf = await open()
    const run = await hf.start(strict)
    expect(await failureOf(run)).toMatchObject({ code: 'timeout' })
    await hf.signal(run.id, 'go').catch(() => {})
    expect(await codeOfRejection(hf.signal(run.id, 'go'))).toBe('conflict')
  })

  it('sent while no worker lives is there when one comes', async () => {
    const mortal = await openMortal({ workflows: [wait] }, { after: 'step_completed' })
    const run = await mortal.hf.start(wait)
    await mortal.dead
    const client = await open({ worker: false })
    await client.signal(run.id, 'go', { n: 9 })
    advance(11_000)
    const hf = await open({ workflows: [wait] })
    expect(await (await hf.runs.get(run.id)).result()).toEqual({ n: 9 })
  })

  it('that came in time counts, also where nobody has told the process that waits', async () => {
    const wrapped = await openWrapped(deaf)
    const run = await wrapped.start(workflow('patient', (ctx) => ctx.waitFor('go', { timeoutMs: patience(1_000) })))
    await logged(run, 'timer_set')
    const client = await open({ worker: false })
    await client.signal(run.id, 'go', 'in time')
    expect(await run.result()).toBe('in time')
  })

  it('whose record is cut off by a crash is received once', async () => {
    const mortal = await openMortal({ workflows: [wait] }, { before: 'signal_received' })
    const run = await mortal.hf.start(wait)
    const client = await open({ worker: false })
    await becomes(await client.runs.get(run.id), 'waiting')
    await client.signal(run.id, 'go', { n: 2 })
    await mortal.dead
    advance(11_000)
    const hf = await open({ workflows: [wait] })
    const again = await hf.runs.get(run.id)
    expect(await again.result()).toEqual({ n: 2 })
    expect(await eventTypes(again, 'signal')).toEqual(['signal_received'])
  })

  it('is checked by a schema, if there is one', async () => {
    const strict = workflow('strict', (ctx) => ctx.waitFor('go', { schema: z.object({ n: z.number() }) }))
    const hf = await open()
    const run = await hf.start(strict)
    await hf.signal(run.id, 'go', { n: 'one' })
    expect(await failureOf(run)).toMatchObject({ code: 'invalid_input' })
  })

  it('that does not match its schema fails the run; a retry waits for another one', async () => {
    let seen = 0
    const strict = workflow('strict', async (ctx) => {
      const { n } = await ctx.waitFor('go', { schema: z.object({ n: z.number() }) })
      ctx.update((draft: { sum?: number }) => {
        draft.sum = n
      })
      await ctx.step('see', () => void seen++)
      return [n, (await ctx.waitFor(['a', 'b'], { schema: z.number() })).value]
    })
    const hf = await open()
    const run = await hf.start(strict, undefined, { id: 'r' })
    for (const bad of ['one', 'two']) {
      await hf.signal('r', 'go', { n: bad })
      expect(await failureOf(run)).toMatchObject({ code: 'invalid_input' })
      await run.retry()
      await becomes(run, 'waiting')
    }
    await hf.signal('r', 'go', { n: 1 })
    await hf.signal('r', 'b', 'none')
    expect(await failureOf(run)).toMatchObject({ code: 'invalid_input' })
    await run.retry()
    await hf.signal('r', 'a', 2)
    expect(await run.result()).toEqual([1, 2])
    expect(seen).toBe(1)
  })

  it('that did not come in time has its whole time again after a retry; a question, too', async () => {
    const wait = workflow('wait', async (ctx) => {
      const value = await ctx.waitFor('go', { timeoutMs: day })
      return [value, await ctx.ask('ok', { question: '?', timeoutMs: day })]
    })
    const hf = await open()
    const run = await hf.start(wait, undefined, { id: 'r' })
    await becomes(run, 'waiting')
    advance(day + 1)
    expect(await failureOf(run)).toMatchObject({ code: 'timeout' })
    await run.retry()
    await becomes(run, 'waiting')
    advance(day - 1_000)
    await hf.signal('r', 'go', 1)
    await logged(run, 'question_asked')
    await becomes(run, 'waiting')
    advance(day + 1)
    expect(await failureOf(run)).toMatchObject({ code: 'timeout' })
    await run.retry()
    await becomes(run, 'waiting')
    await hf.answer('r', 'ok', true)
    expect(await run.result()).toEqual([1, true])
  })

  it('that did not match its schema counts after all once the schema is repaired, and a rollback puts it back once', async () => {
    const wait = (schema: z.ZodType) =>
      workflow('wait', async (ctx) => {
        await ctx.checkpoint('before')
        const value = await ctx.waitFor('go', { schema })
        await ctx.waitFor('end')
        return value
      })
    const first = await open({ workflows: [wait(z.number())] })
    const { id } = await first.start('wait', undefined, { id: 'r' })
    await first.signal(id, 'go', 'paid')
    expect(await failureOf(await first.runs.get(id))).toMatchObject({ code: 'invalid_input' })
    await first.close()
    const hf = await open({ workflows: [wait(z.string())] })
    const run = await hf.runs.get(id)
    await run.retry()
    await becomes(run, 'waiting')
    expect(await eventTypes(run, 'signal')).toEqual(['signal_received', 'signal_received'])
    await run.rollback('before')
    await run.resume()
    await hf.signal(id, 'end')
    expect(await run.result()).toBe('paid')
    expect(await eventTypes(run, 'signal')).toHaveLength(4)
  })

  it('that does not match its schema in a section that pauses is replaced by another when the run is resumed', async () => {
    const work = workflow('work', (ctx) =>
      ctx.section('part', () => ctx.waitFor('go', { schema: z.number() }), { onFailure: 'pause' }),
    )
    const hf = await open()
    const run = await hf.start(work, undefined, { id: 'r' })
    await hf.signal('r', 'go', 'no number')
    await becomes(run, 'paused')
    await run.resume()
    await hf.signal('r', 'go', 3)
    expect(await run.result()).toBe(3)
  })

  it('to a run that is not there is run_not_found, and a bad name is refused', async () => {
    const hf = await open()
    expect(await codeOfRejection(hf.signal('nobody', 'go'))).toBe('run_not_found')
    expect(await codeOfRejection(hf.signal('nobody', 'a/b'))).toBe('invalid_id')
  })

  it('and a step that race go the same way again after a crash', async () => {
    const race = workflow('race', async (ctx) => {
      const first = await Promise.race([ctx.waitFor('go').then(() => 'signal'), ctx.step('slow', () => slow.promise)])
      await ctx.step('note', () => first)
      await ctx.sleep(10_000)
      return first
    })
    const slow = gate<string>()
    const mortal = await openMortal({ workflows: [race] }, { after: 'timer_set' })
    const run = await mortal.hf.start(race)
    await logged(run, 'step_started')
    await mortal.hf.signal(run.id, 'go')
    await mortal.dead
    slow.open('step')
    advance(25_000)
    const hf = await open({ workflows: [race] })
    expect(await (await hf.runs.get(run.id)).result()).toBe('signal')
  })
})

onEveryStore('a sleep', ({ open, advance }) => {
  it('and the time go on from where they were in the next tape of a run', async () => {
    const twice = workflow('twice', async (ctx, before: number | undefined) => {
      const now = ctx.now()
      if (before !== undefined) return now - before
      await ctx.sleep(300)
      return ctx.continueAs(now)
    })
    const hf = await open()
    expect(await hf.run(twice)).toBeGreaterThanOrEqual(300)
  })

  it('of sixty days does not fire early, and fires once', async () => {
    const long = workflow('long', async (ctx) => {
      await ctx.sleep(60 * day)
      return 'awake'
    })
    const hf = await open()
    const run = await hf.start(long)
    await becomes(run, 'waiting')
    advance(59 * day)
    await new Promise((resolve) => setTimeout(resolve, 300))
    expect(await run.info()).toMatchObject({ status: 'waiting', reason: 'timer' })
    advance(day + 1_000)
    expect(await run.result()).toBe('awake')
    expect(await eventTypes(run, 'timer')).toEqual(['timer_set', 'timer_fired'])
  })

  it('after a failure that is retried is another one than the sleep that the failure had led to', async () => {
    let isDown = true
    const patient = workflow('patient', async (ctx) => {
      const ask = () => ctx.step('ask', down, { retry: { attempts: 1 } })
      const down = () => {
        if (isDown) throw new Error('down')
      }
      await ask().catch(async (error) => {
        await ctx.sleep(5)
        throw error
      })
      await ctx.sleep(day)
      await ctx.sleep(new Date(ctx.now() + day))
      return 'awake'
    })
    const hf = await open()
    const run = await hf.start(patient)
    await failureOf(run)
    isDown = false
    await run.retry()
    await becomes(run, 'waiting')
    expect(await run.info()).toMatchObject({ status: 'waiting', reason: 'timer' })
    advance(day + 1_000)
    await vi.waitUntil(async () => (await eventTypes(run, 'timer')).length === 5, { timeout: patience(15_000) })
    await becomes(run, 'waiting')
    advance(day + 1_000)
    expect(await run.result()).toBe('awake')
    expect(await eventTypes(run, 'timer')).toEqual([
      ...['timer_set', 'timer_fired'],
      ...['timer_set', 'timer_fired', 'timer_set', 'timer_fired'],
    ])
  })

  it('in another attempt of a section is another one than the sleep that a failure in it had led to', async () => {
    const patient = workflow('patient', (ctx) =>
      ctx.section(
        'section',
        async () => {
          const ask = ctx.step(
            'ask',
            ({ attempt }) => {
              if (attempt === 1) throw new Error('down')
            },
            { retry: { attempts: 1 } },
          )
          await ask.catch(async (error) => {
            await ctx.sleep(5)
            throw error
          })
          await ctx.sleep(day)
          return 'awake'
        },
        { retry: { attempts: 2, minMs: 1 } },
      ),
    )
    const hf = await open()
    const run = await hf.start(patient)
    await becomes(run, 'waiting')
    expect(await run.info()).toMatchObject({ status: 'waiting', reason: 'timer' })
    advance(day + 1_000)
    expect(await run.result()).toBe('awake')
  })

  it('of one branch is not taken for that of another, whichever of them comes first after what was undone is done again', async () => {
    let isDown = true
    const saga = workflow({ name: 'saga', undoOnFailure: true }, async (ctx) => {
      const isFirst = gate()
      const left = async () => {
        await ctx.step('undone', () => {}, { undo: () => {} })
        isFirst.open()
        await ctx.sleep(day)
      }
      const right = async () => {
        await ctx.step('kept', () => isFirst.promise)
        await ctx.sleep(2 * day)
      }
      const bad = async () => {
        await ctx.step('kept as well', () => isFirst.promise)
        await ctx.step(
          'bad',
          () => {
            if (isDown) throw new Error('down')
          },
          { retry: { attempts: 1 } },
        )
      }
      await Promise.all([left(), right(), bad()])
      return 'awake'
    })
    const hf = await open()
    const run = await hf.start(saga)
    await failureOf(run)
    isDown = false
    await run.retry()
    await becomes(run, 'waiting')
    advance(2 * day + 1_000)
    expect(await run.result()).toBe('awake')
  })
})

onEveryStore('a child', ({ open, openMortal, openWrapped, advance }) => {
  it('that fails again after its parent was retried fails it again: it is retried once, however often the parent is taken up', async () => {
    let attempts = 0
    const child = workflow({ name: 'child', retry: { attempts: 1 } }, async (ctx) => {
      await ctx.step('try', () => {
        attempts++
        throw new Error('down')
      })
    })
    // Its parent is persisted as waiting before it fails, and taken up again by the message of its end.
    const slow = workflow({ name: 'slow', retry: { attempts: 1 } }, async (ctx) => {
      await ctx.waitFor('begin')
      await ctx.call(child, undefined, { id: 'grandchild' })
    })
    const parent = workflow('parent', (ctx) => ctx.call(slow, undefined, { id: 'child' }))
    const hf = await open()
    const run = await hf.start(parent, undefined, { id: 'parent' })
    await becomes(run, 'waiting')
    await hf.signal('child', 'begin')
    await becomes(run, 'failed')
    await run.retry()
    await becomes(run, 'failed')
    expect(attempts).toBe(2)
    await run.retry()
    await becomes(run, 'failed')
    expect(attempts).toBe(3)
  })

  const double = workflow('double', (ctx, n: number) => ctx.step('double', () => n * 2))

  it('runs on a thread of its own, and its output is the result of the call', async () => {
    const parent = workflow('parent', async (ctx, n: number) => (await ctx.call(double, n)) + (await ctx.call(double, n + 1)))
    const hf = await open({ workflows: [parent] })
    const run = await hf.start(parent, 5, { id: 'p' })
    expect(await run.result()).toBe(22)
    expect(await eventTypes(run, 'child')).toEqual(['child_started', 'child_completed', 'child_started', 'child_completed'])
    const children = (await hf.runs.list({ workflow: 'double' })).items
    expect(children.map(({ id }) => id).sort()).toEqual(['p/double#1', 'p/double#2'])
    expect(children.every(({ threadId, id }) => threadId === id)).toBe(true)
  })

  it('can be called by name, in a process that does not have it', async () => {
    const parent = workflow('parent', async (ctx, n: number) => {
      const { id } = await ctx.call('double', n, { detached: true, version: 1, queue: 'far', priority: 2 })
      return [id, await ctx.call<number>('double', n, { queue: 'far' })]
    })
    const hf = await open({ workflows: [parent] })
    const run = await hf.start(parent, 4, { id: 'p' })
    await becomes(run, 'waiting')
    expect((await hf.runs.list({ queue: 'far' })).items.length).toBe(2)
    await open({ workflows: [double], worker: { queues: ['far'] } })
    expect(await run.result()).toEqual(['p/double#1', 8])
    const wrong = workflow('wrong', (ctx) => ctx.call('double', 1, { version: 0 }).catch((error: { code: string }) => error.code))
    expect(await hf.run(wrong)).toBe('invalid_input')
  })

  it('that waits for a place in its parent’s queue does not deadlock: who waits holds no worker', async () => {
    const parent = workflow('parent', async (ctx, n: number) =>
      (await Promise.all([1, 2, 3].map((i) => ctx.call(double, n + i)))).reduce((sum, x) => sum + x, 0),
    )
    const hf = await open({ workflows: [parent], worker: { concurrency: 1 } })
    expect(await hf.run(parent, 1)).toBe(18)
  })

  it('that fails fails the call, with its error as cause; retrying the parent retries it', async () => {
    let isDown = true
    const child = workflow({ name: 'child', retry: { attempts: 1 } }, (ctx) =>
      ctx.step('s', () => {
        if (isDown) throw new Error('down')
        return 'up'
      }),
    )
    const parent = workflow('parent', (ctx) => ctx.call(child, undefined))
    const hf = await open()
    const run = await hf.start(parent)
    const failure = await failureOf(run)
    expect(failure).toMatchObject({ code: 'run_failed' })
    expect((failure.cause as Error).message).toBe('down')
    isDown = false
    await run.retry()
    expect(await run.result()).toBe('up')
  })

  it('whose end is out of reach for a moment is asked for again: its parent does not fail', async () => {
    const parent = workflow('parent', (ctx) => ctx.call(double, 21))
    const isMeant = ({ threadId }: Record<string, unknown>) => threadId === 'p/double#1'
    const hf = await openWrapped(failing('readLog', { times: 2, isMeant }), { workflows: [double] })
    expect(await hf.run(parent, undefined, { id: 'p' })).toBe(42)
  })

  it('is started once and ends once although its parent’s worker dies at every boundary', async () => {
    const ran: number[] = []
    const child = workflow('child', (ctx, n: number) => ctx.step('s', () => ran.push(n)))
    const parent = workflow('parent', async (ctx, n: number) => {
      await ctx.call(child, n)
      return ctx.step('after', () => n)
    })
    const deaths = [
      { before: 'child_started' },
      { after: 'child_started' },
      { before: 'child_completed' },
      { after: 'child_completed' },
    ] as const
    for (const [index, death] of deaths.entries()) {
      const mortal = await openMortal({ workflows: [parent, child] }, death)
      const { id } = await mortal.hf.start(parent, index)
      await mortal.dead
      advance(11_000)
      const hf = await open({ workflows: [parent, child] })
      const run = await hf.runs.get(id)
      expect(await run.result()).toBe(index)
      expect(await eventTypes(run, 'child')).toEqual(['child_started', 'child_completed'])
      await hf.close()
    }
    expect(ran).toEqual([0, 1, 2, 3])
  })

  it('is cancelled with its parent; a detached one lives on', async () => {
    const child = workflow('child', (ctx) => ctx.waitFor('go'))
    const parent = workflow('parent', async (ctx) => {
      const { id } = await ctx.call(child, undefined, { detached: true })
      await ctx.step('note', () => id)
      await ctx.call(child, undefined)
    })
    const hf = await open({ workflows: [child] })
    const run = await hf.start(parent, undefined, { id: 'p' })
    await becomes(run, 'waiting')
    const [detached, awaited] = [await hf.runs.get('p/child#1'), await hf.runs.get('p/child#2')]
    await becomes(awaited, 'waiting')
    await run.cancel()
    expect((await run.info()).status).toBe('cancelled')
    expect((await awaited.info()).status).toBe('cancelled')
    expect((await detached.info()).status).toBe('waiting')
    await hf.signal(detached.id, 'go', 1)
    expect(await detached.result()).toBe(1)
  })

  it('that somebody cancels is run_cancelled to its parent', async () => {
    const child = workflow('child', (ctx) => ctx.waitFor('go'))
    const parent = workflow('parent', (ctx) => ctx.call(child, undefined).catch((error: { code: string }) => error.code))
    const hf = await open({ workflows: [child] })
    const run = await hf.start(parent, undefined, { id: 'p' })
    await becomes(run, 'waiting')
    const handle = await hf.runs.get('p/child#1')
    await becomes(handle, 'waiting')
    await handle.cancel()
    expect(await run.result()).toBe('run_cancelled')
  })

  it('under the id of another input is input_mismatch; under that of the same run it is that run', async () => {
    const parent = workflow('parent', async (ctx, n: number) => ctx.call(double, n, { id: 'shared' }))
    const hf = await open({ workflows: [double] })
    await hf.run(double, 4, { id: 'shared' })
    expect(await hf.run(parent, 4)).toBe(8)
    expect(await failureOf(await hf.start(parent, 5))).toMatchObject({ code: 'input_mismatch' })
  })
})
