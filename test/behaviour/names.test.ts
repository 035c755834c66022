import { type Context, NotHappened, workflow } from 'holdfast'
import { expect, it, vi } from 'vitest'
import { becomes, eventTypes, failureOf, gate, logged, noting } from './runs.ts'
import { onEveryStore } from './stores.ts'

type Draft = { n?: number }

onEveryStore('the default id of a child', ({ open }) => {
  const child = workflow('child', (_ctx, n: number) => `made of ${n}`)
  const parent = workflow('parent', (ctx, n: number) => ctx.call(child, n))

  it('is another in a later life of the thread: the output of the old life is not taken', async () => {
    const hf = await open({ workflows: [child] })
    expect(await hf.run(parent, 1, { id: 'p' })).toBe('made of 1')
    await hf.thread('p').delete()
    expect(await hf.run(parent, 2, { id: 'p' })).toBe('made of 2')
    const ids = (await hf.runs.list({ workflow: 'child' })).items.map(({ id }) => id)
    expect(ids.sort()).toEqual(['p/child#1', 'p~~2/child#1'])
  })

  it('is another after a rollback over the call: the child is called with what the state says now', async () => {
    const wf = workflow('wf', async (ctx: Context<Draft>) => {
      if (ctx.state.n === undefined) ctx.update((draft) => void Object.assign(draft, { n: 1 }))
      await ctx.checkpoint('before')
      const out = await ctx.call(child, ctx.state.n as number)
      await ctx.waitFor('go')
      return out
    })
    const hf = await open({ workflows: [child] })
    const run = await hf.start(wf, undefined, { id: 'p' })
    await logged(run, 'child_completed')
    await becomes(run, 'waiting')
    await run.rollback('before')
    await hf.thread('p').update((draft) => void Object.assign(draft, { n: 2 }))
    await run.resume()
    await hf.signal('p', 'go', 1)
    expect(await run.result()).toBe('made of 2')
    const ids = (await hf.runs.list({ workflow: 'child' })).items.map(({ id }) => id)
    expect(ids.sort()).toEqual(['p/child#1', 'p/child#1~1'])
  })

  it('is another after a rollback over a child that was running: the old one is cancelled, a new one begins', async () => {
    const waiting = workflow('waiting', (ctx) => ctx.waitFor('go'))
    const wf = workflow('wf', async (ctx) => {
      await ctx.checkpoint('start')
      return ctx.call(waiting, undefined)
    })
    const hf = await open({ workflows: [waiting] })
    const run = await hf.start(wf, undefined, { id: 'p' })
    await logged(run, 'child_started')
    await becomes(run, 'waiting')
    await run.rollback('start')
    expect((await (await hf.runs.get('p/waiting#1')).info()).status).toBe('cancelled')
    await run.resume()
    await expect.poll(async () => (await eventTypes(run, 'child')).length).toBe(2)
    await hf.signal('p/waiting#1~1', 'go', 'gone')
    expect(await run.result()).toBe('gone')
  })

  it('is another when the run is retried after a failure that undid everything: what was cancelled or undone begins anew', async () => {
    let isDown = true
    const down = gate()
    const undone: string[] = []
    const waiting = workflow('waiting', (ctx) => ctx.waitFor('go'))
    const wf = workflow({ name: 'wf', undoOnFailure: true, retry: { attempts: 1 } }, async (ctx) => {
      const done = await ctx.call(child, 1, { undo: (output) => void undone.push(output) })
      const open = ctx.call(waiting, undefined)
      await ctx.step('down', async () => {
        await down.promise
        if (isDown) throw new Error('down')
      })
      return [done, await open]
    })
    const hf = await open({ workflows: [child, waiting] })
    const run = await hf.start(wf, undefined, { id: 'p' })
    await vi.waitUntil(async () => (await eventTypes(run, 'child')).length === 3, { timeout: 15_000 })
    down.open()
    await failureOf(run)
    expect(undone).toEqual(['made of 1'])
    expect((await (await hf.runs.get('p/waiting#1')).info()).status).toBe('cancelled')
    isDown = false
    await run.retry()
    await vi.waitUntil(async () => (await eventTypes(run, 'child')).length === 6, { timeout: 15_000 })
    await hf.signal('p/waiting#1~1', 'go', 'gone')
    expect(await run.result()).toEqual(['made of 1', 'gone'])
    const ids = (await hf.runs.list({ workflow: 'child' })).items.map(({ id }) => id)
    expect(ids.sort()).toEqual(['p/child#1', 'p/child#1~1'])
  })

  it.each(['rollback', 'retry'] as const)(
    'given by the function stands, and the next child gets one like it where the first was undone before a %s, or ended with it',
    async (way) => {
      const journal: string[] = []
      let isDown = true
      const book = workflow('book', (ctx) => ctx.step('book', () => void journal.push('book')))
      const waiting = workflow('waiting', (ctx) => ctx.waitFor('go'))
      const undos = { unbook: () => void journal.push('unbook') }
      const trip = workflow({ name: 'trip', undoOnFailure: true, retry: { attempts: 1 }, undos }, async (ctx) => {
        await ctx.checkpoint('before')
        await ctx.call(book, undefined, { id: 'booking', undo: 'unbook' })
        const open = ctx.call(waiting, undefined, { id: 'payment' })
        if (way === 'retry') {
          await ctx.waitFor('fail', { timeoutMs: 60_000 })
          await ctx.step('down', () => {
            if (isDown) throw new Error('down')
          })
        }
        return open
      })
      const hf = await open({ workflows: [book, waiting] })
      const run = await hf.start(trip, undefined, { id: 't' })
      await vi.waitUntil(async () => (await eventTypes(run, 'child')).length === 3, { timeout: 15_000 })
      if (way === 'rollback') {
        await run.rollback('before')
        await run.resume()
      } else {
        await hf.signal('t', 'fail', 1)
        await failureOf(run)
        isDown = false
        await run.retry()
      }
      await expect.poll(async () => (await hf.runs.list({ workflow: 'waiting', status: 'waiting' })).items.length).toBe(1)
      await hf.signal('payment~1', 'go', 'paid')
      expect(await run.result()).toBe('paid')
      expect(journal).toEqual(['book', 'unbook', 'book'])
      const ids = (await hf.runs.list({})).items.map(({ id, status }) => `${id} ${status}`)
      expect(ids.sort()).toEqual([
        ...['booking completed', 'booking~1 completed', 'payment cancelled', 'payment~1 completed', 't completed'],
      ])
    },
  )

  it('is left alone by a rollback to a point after the start of the child', async () => {
    const waiting = workflow('waiting', (ctx) => ctx.waitFor('go'))
    const wf = workflow('wf', async (ctx) => {
      const called = ctx.call(waiting, undefined)
      await ctx.waitFor('started')
      await ctx.checkpoint('running')
      return called
    })
    const hf = await open({ workflows: [waiting] })
    const run = await hf.start(wf, undefined, { id: 'p' })
    await logged(run, 'child_started')
    await hf.signal('p', 'started', 1)
    await logged(run, 'signal_received')
    await becomes(run, 'waiting')
    await run.rollback('running')
    await run.resume()
    await hf.signal('p/waiting#1', 'go', 'gone')
    expect(await run.result()).toBe('gone')
  })

  it('that a foreign run has is input_mismatch: it is never taken for the child', async () => {
    const other = workflow('other', () => 'something else')
    const hf = await open({ workflows: [child] })
    await hf.run(other, undefined, { id: 'p/child#1' })
    expect(await failureOf(await hf.start(parent, 3, { id: 'p' }))).toMatchObject({ code: 'input_mismatch' })
    await hf.run(child, 3, { id: 'q/child#1' })
    const failure = await failureOf(await hf.start(parent, 3, { id: 'q' }))
    expect(failure).toMatchObject({ code: 'input_mismatch' })
    expect(failure.message).toContain('was not started by it')
    const detached = workflow('detached', (ctx, n: number) => ctx.call(child, n, { detached: true }))
    await hf.run(child, 3, { id: 'r/child#1' })
    expect(await failureOf(await hf.start(detached, 3, { id: 'r' }))).toMatchObject({ code: 'input_mismatch' })
  })
})

onEveryStore('a child', ({ open, openMortal, advance }) => {
  it('of one run is not the child of another, also under an id that the function gives', async () => {
    const waiting = workflow('waiting', (ctx) => ctx.waitFor('go'))
    const wf = workflow('wf', (ctx) => ctx.call(waiting, undefined, { id: 'shared' }))
    const hf = await open({ workflows: [waiting] })
    const first = await hf.start(wf)
    await logged(first, 'child_started')
    const failure = await failureOf(await hf.start(wf))
    expect(failure).toMatchObject({ code: 'input_mismatch' })
    expect(failure.message).toContain(`is a child of run "${first.id}"`)
    await hf.signal('shared', 'go', 'gone')
    expect(await first.result()).toBe('gone')
  })

  it('that somebody else started is waited for and not cancelled with the run that called it', async () => {
    const waiting = workflow('waiting', (ctx) => ctx.waitFor('go'))
    const wf = workflow('wf', (ctx) => ctx.call(waiting, undefined, { id: 'shared' }))
    const hf = await open({ workflows: [waiting] })
    const shared = await hf.start(waiting, undefined, { id: 'shared' })
    const run = await hf.start(wf)
    await logged(run, 'child_started')
    await run.cancel()
    await hf.signal('shared', 'go', 'gone')
    expect(await shared.result()).toBe('gone')
  })

  it('on the thread of a run that waits for it is refused: each would wait for the other', async () => {
    const child = workflow('child', () => 'x')
    const own = workflow('own', (ctx) => ctx.call(child, undefined, { threadId: ctx.threadId }))
    const middle = workflow('middle', (ctx, threadId: string) => ctx.call(child, undefined, { threadId }))
    const outer = workflow('outer', (ctx) => ctx.call(middle, ctx.threadId))
    const detached = workflow('detached', (ctx) => ctx.call(child, undefined, { threadId: ctx.threadId, detached: true }))
    const hf = await open({ workflows: [child, middle] })
    expect(await failureOf(await hf.start(own))).toMatchObject({ code: 'invalid_input' })
    expect((await failureOf(await hf.start(outer))).message).toContain('each would wait for the other')
    const { id } = await hf.run(detached)
    expect(await (await hf.runs.get(id)).result()).toBe('x')
  })

  it('that is called with another input, or is another workflow, after a crash is a mismatch', async () => {
    const waiting = workflow('waiting', (ctx, n: number) => ctx.waitFor(`go ${n}`))
    const other = workflow('other', (ctx, n: number) => ctx.waitFor(`go ${n}`))
    const inputs = [1, 2]
    const changing = workflow('changing', (ctx) => ctx.call(waiting, inputs.shift() as number))
    const mortal = await openMortal({ workflows: [changing, waiting] }, { after: 'child_started' })
    const { id } = await mortal.hf.start(changing)
    await mortal.dead
    advance(11_000)
    const hf = await open({ workflows: [changing, waiting, other] })
    const run = await hf.runs.get(id)
    await becomes(run, 'paused')
    expect(await run.info()).toMatchObject({ reason: 'mismatch', error: { code: 'nondeterminism' } })
    expect((await run.info()).error?.message).toContain('calls it with another input now')
  })
})

onEveryStore('a sleep', ({ open, openMortal, advance }) => {
  it('of another length after a crash is a mismatch', async () => {
    const lengths = [3_600_000, 7_200_000]
    const sleeper = workflow('sleeper', (ctx) => ctx.sleep(lengths.shift() as number))
    const mortal = await openMortal({ workflows: [sleeper] }, { after: 'timer_set' })
    const { id } = await mortal.hf.start(sleeper)
    await mortal.dead
    advance(11_000)
    const hf = await open({ workflows: [sleeper] })
    const run = await hf.runs.get(id)
    await becomes(run, 'paused')
    expect((await run.info()).error?.message).toContain('was recorded as 3600000 ms; the function sleeps 7200000 ms now')
  })
})

onEveryStore('the key of an effect', ({ open, openMortal, openWrapped, advance }) => {
  it('that differs after a crash is a mismatch, and nothing is sent under the other one', async () => {
    const sent: string[] = []
    const keys = ['first', 'second']
    const pay = workflow('pay', (ctx) =>
      ctx.once('pay', { key: keys.shift() as string, idempotent: true, run: (key) => void sent.push(key) }),
    )
    const mortal = await openMortal({ workflows: [pay] }, { before: 'effect_completed' })
    const { id } = await mortal.hf.start(pay)
    await mortal.dead
    advance(11_000)
    const hf = await open({ workflows: [pay] })
    const run = await hf.runs.get(id)
    await becomes(run, 'paused')
    expect(await run.info()).toMatchObject({ reason: 'mismatch' })
    expect((await run.info()).error?.message).toContain('was recorded with key "first"; the function gives "second" now')
    expect(sent).toEqual(['first'])
  })

  it('is by default another in a later life of the thread and after a rollback that undid it, as is step.key', async () => {
    const effects: string[] = []
    const kept: string[] = []
    const steps: string[] = []
    const work = workflow('work', async (ctx) => {
      await ctx.checkpoint('start')
      await ctx.once('send', { run: (key) => void effects.push(key), undo: () => {} })
      await ctx.once('kept', { run: (key) => void kept.push(key) })
      await ctx.step('note', ({ key }) => void steps.push(key))
      await ctx.waitFor('go')
    })
    const hf = await open()
    const run = await hf.start(work, undefined, { id: 'r' })
    await becomes(run, 'waiting')
    await run.rollback('start')
    await run.resume()
    await becomes(run, 'waiting')
    await hf.signal('r', 'go', 1)
    await run.result()
    await hf.thread('r').delete()
    const again = await hf.start(work, undefined, { id: 'r' })
    await becomes(again, 'waiting')
    expect(effects).toEqual(['r/send#1', 'r/send#1~1', 'r~~2/send#1'])
    // One that was not undone is not sent again: the new call gets the recorded result.
    expect(kept).toEqual(['r/kept#1', 'r~~2/kept#1'])
    expect(steps).toEqual(['r/note#1', 'r/note#1~1', 'r~~2/note#1'])
  })

  it('is another each time it was undone by a failure and is retried, as is step.key, also of the steps in a section that was undone', async () => {
    const keys: Record<string, string[]> = { effect: [], step: [], inside: [], kept: [] }
    const note = (name: string, key: string) => void keys[name]?.push(key)
    let fails = 2
    const wf = workflow({ name: 'wf', undoOnFailure: true, retry: { attempts: 1 } }, async (ctx) => {
      await ctx.once('effect', { idempotent: true, run: (key) => note('effect', key), undo: () => {} })
      await ctx.step('step', ({ key }) => note('step', key), { undo: () => {} })
      await ctx.section('section', () => ctx.step('inside', ({ key }) => note('inside', key)), { undo: () => {} })
      await ctx.step('kept', ({ key }) => note('kept', key))
      await ctx.step('down', () => {
        if (fails-- > 0) throw new Error('down')
      })
    })
    const hf = await open()
    const run = await hf.start(wf, undefined, { id: 'r' })
    for (let times = 0; times < 2; times++) {
      await failureOf(run)
      await run.retry()
    }
    await run.result()
    expect(keys).toEqual({
      effect: ['r/effect#1', 'r/effect#1~1', 'r/effect#1~2'],
      step: ['r/step#1', 'r/step#1~1', 'r/step#1~2'],
      inside: ['r/section/inside#1', 'r/section/inside#1~1', 'r/section/inside#1~2'],
      kept: ['r/kept#1'],
    })
  })

  it('of a step that began before the checkpoint of a rollback, and was undone with it, is another', async () => {
    const keys: string[] = []
    const done = gate()
    const wf = workflow('wf', async (ctx) => {
      const charge = ctx.step(
        'charge',
        async ({ key }) => {
          keys.push(key)
          if (keys.length === 1) await done.promise
        },
        { undo: () => {} },
      )
      await ctx.step('first', () => {})
      await ctx.checkpoint('between')
      done.open()
      await charge
      await ctx.waitFor('go')
    })
    const hf = await open()
    const run = await hf.start(wf, undefined, { id: 'r' })
    await becomes(run, 'waiting')
    await run.rollback('between')
    await run.resume()
    await hf.signal('r', 'go', 1)
    await run.result()
    expect(keys).toEqual(['r/charge#1', 'r/charge#1~1'])
  })

  it('that stands after several rollbacks is on record as it is: a replay finds it again', async () => {
    const sent: string[] = []
    const work = workflow('work', async (ctx) => {
      await ctx.checkpoint('start')
      const send = (key: string) => {
        sent.push(key)
        if (sent.length === 1) throw new NotHappened('busy')
        return key
      }
      const key = await ctx.once('send', { run: send, retry: { attempts: 1 } }).catch(() => 'none')
      await ctx.waitFor('go')
      return ctx.step('after', () => key)
    })
    const hf = await open()
    const run = await hf.start(work, undefined, { id: 'r' })
    for (let rollbacks = 0; rollbacks < 2; rollbacks++) {
      await becomes(run, 'waiting')
      await run.rollback('start')
      await run.resume()
    }
    await becomes(run, 'waiting')
    await hf.signal('r', 'go')
    expect(await run.result()).toBe('r/send#1~1')
    expect(sent).toEqual(['r/send#1', 'r/send#1~1'])
  })

  it('that a rollback went over while nobody knew its outcome is not sent under another: a person decides', async () => {
    const sent: string[] = []
    const pay = workflow('pay', async (ctx) => {
      await ctx.checkpoint('start')
      return ctx.once('pay', {
        run: (key) => {
          sent.push(key)
          throw new Error('the line went dead')
        },
      })
    })
    const hf = await open()
    const run = await hf.start(pay, undefined, { id: 'r' })
    await logged(run, 'effect_unsure')
    await becomes(run, 'waiting')
    await run.rollback('start')
    await run.resume()
    await becomes(run, 'waiting')
    expect((await hf.inbox()).map((item) => item.kind === 'effect' && item.key)).toEqual(['r/pay#1'])
    await hf.resolve('r/pay#1', { happened: true, result: 'paid' })
    expect(await run.result()).toBe('paid')
    expect(sent).toEqual(['r/pay#1'])
  })

  it('that a rollback went over after a crash is not sent under another: check decides what became of it', async () => {
    const sent: string[] = []
    const checked: string[] = []
    const pay = workflow('pay', async (ctx) => {
      await ctx.checkpoint('start')
      await ctx.once('pay', {
        run: (key) => void sent.push(key),
        check: (key) => {
          checked.push(key)
          return { happened: true }
        },
      })
    })
    const mortal = await openMortal({ workflows: [pay] }, { before: 'effect_completed' })
    const { id } = await mortal.hf.start(pay, undefined, { id: 'r' })
    await mortal.dead
    const told = gate()
    const client = await openWrapped(noting('deliver', told.open), { worker: false })
    const run = await client.runs.get(id)
    const rolledBack = run.rollback('start')
    await told.promise
    advance(11_000)
    await open({ workflows: [pay] })
    await rolledBack
    expect(checked).toEqual([])
    await run.resume()
    await run.result()
    expect(sent).toEqual(['r/pay#1'])
    expect(checked).toEqual(['r/pay#1'])
  })

  it('of a step is the same at every attempt and after a crash, also in a later life', async () => {
    const keys: string[] = []
    const work = workflow('work', (ctx) =>
      ctx.step(
        'note',
        ({ key, attempt }) => {
          keys.push(key)
          if (attempt < 3) throw new Error('again')
        },
        { retry: { minMs: 1, maxMs: 1 } },
      ),
    )
    const first = await open({ workflows: [work] })
    await first.run(work, undefined, { id: 'r' })
    await first.thread('r').delete()
    await first.close()
    keys.length = 0
    const mortal = await openMortal({ workflows: [work] }, { after: 'step_failed' })
    await mortal.hf.start(work, undefined, { id: 'r' })
    await mortal.dead
    advance(11_000)
    const hf = await open({ workflows: [work] })
    await (await hf.runs.get('r')).result()
    expect(new Set(keys)).toEqual(new Set(['r~~2/note#1']))
  })
})
