import { plan, state, type UndoInfo, workflow } from 'holdfast'
import { expect, it, vi } from 'vitest'
import type { Change } from '../../src/store/change.ts'
import type { Store } from '../../src/store/store.ts'
import { becomes, codeOfRejection, eventTypes, failureOf, gate, logged } from './runs.ts'
import { type Mortal, onEveryStore } from './stores.ts'

/** Named undos that note what they are called with. */
function notes() {
  const calls: { readonly given: unknown; readonly info: UndoInfo }[] = []
  const undos = { note: (given: unknown, info: UndoInfo) => void calls.push({ given, info }) }
  return { calls, undos, steps: () => calls.map(({ info }) => info.step) }
}

onEveryStore('a named undo', ({ open, openMortal, openWrapped, advance }) => {
  it('runs from the log: the function is not called for it', async () => {
    const { calls, undos } = notes()
    let entered = 0
    const work = workflow({ name: 'work', undos }, async (ctx) => {
      entered++
      await ctx.step('a', () => ({ n: 1 }), { undo: 'note' })
      await ctx.once('b', { key: 'key-of-b', run: () => ({ n: 2 }), undo: 'note' })
      await ctx.waitFor('never')
    })
    const first = await open({ workflows: [work] })
    const run = await first.start(work, undefined, { id: 'r' })
    await becomes(run, 'waiting')
    await first.close()
    const hf = await open({ workflows: [work] })
    await (await hf.runs.get('r')).cancel()
    expect(entered).toBe(1)
    expect(calls).toEqual([
      { given: { n: 2 }, info: { key: expect.any(String), step: 'b', effectKey: 'key-of-b' } },
      { given: { n: 1 }, info: { key: expect.any(String), step: 'a' } },
    ])
    expect(new Set(calls.map(({ info }) => info.key)).size).toBe(2)
  })

  it('and a function run in one order, the last result first, each with a copy of its result', async () => {
    const undone: unknown[] = []
    const undo = (given: unknown, { step }: UndoInfo) => void undone.push([step, given])
    const work = workflow({ name: 'work', undos: { undo } }, async (ctx) => {
      const results = [
        await ctx.step('a', () => ({ n: 1 }), { undo }),
        await ctx.step('b', () => ({ n: 2 }), { undo: 'undo' }),
        await ctx.once('c', { run: () => ({ n: 3 }), undo }),
        await ctx.section('d', () => ctx.step('inner', () => ({ n: 4 }), { undo: 'undo' }), { undo }),
      ]
      for (const result of results) result.n = 99
      await ctx.waitFor('never')
    })
    const hf = await open()
    const run = await hf.start(work)
    await becomes(run, 'waiting')
    await run.cancel()
    expect(undone).toEqual([
      ['d', { n: 4 }],
      ['d/inner', { n: 4 }],
      ['c', { n: 3 }],
      ['b', { n: 2 }],
      ['a', { n: 1 }],
    ])
  })

  it('runs for a step that succeeded after the section around it was resumed and failed once more', async () => {
    const { undos, steps } = notes()
    let isDown = true
    const work = workflow({ name: 'work', undos }, (ctx) =>
      ctx.section(
        'all',
        async () => {
          await ctx.step('a', () => (isDown ? Promise.reject(new Error('down')) : 1), { undo: 'note', retry: { attempts: 1 } })
          throw new Error('never enough')
        },
        { retry: { attempts: 2, minMs: 1 }, onFailure: 'pause' },
      ),
    )
    const hf = await open()
    const run = await hf.start(work)
    await becomes(run, 'paused')
    isDown = false
    await run.resume()
    await logged(run, 'step_completed')
    await becomes(run, 'paused')
    await run.cancel()
    expect(steps()).toEqual(['all/a'])
  })

  it('that is cut off by a crash runs again with the same key', async () => {
    const { calls, undos } = notes()
    const work = workflow({ name: 'work', undos }, async (ctx) => {
      await ctx.step('a', () => 1, { undo: 'note' })
      await ctx.waitFor('never')
    })
    const mortal = await openMortal({ workflows: [work] }, { before: 'step_undone' })
    const run = await mortal.hf.start(work, undefined, { id: 'r' })
    await becomes(run, 'waiting')
    run.cancel().catch(() => {})
    await mortal.dead
    advance(11_000)
    const hf = await open({ workflows: [work] })
    await becomes(await hf.runs.get('r'), 'cancelled')
    expect(calls).toHaveLength(2)
    expect(calls[0]).toEqual(calls[1])
  })

  it('runs on a run that no longer matches its code', async () => {
    const { undos, steps } = notes()
    const make = (name: string) =>
      workflow({ name: 'work', undos }, async (ctx) => {
        await ctx.step(name, () => 1, { undo: 'note' })
        await ctx.waitFor('go')
      })
    const first = await open({ workflows: [make('old')] })
    await becomes(await first.start('work', undefined, { id: 'r' }), 'waiting')
    await first.close()
    const hf = await open({ workflows: [make('new')] })
    await hf.signal('r', 'go')
    const run = await hf.runs.get('r')
    await becomes(run, 'paused')
    expect(await run.info()).toMatchObject({ reason: 'mismatch' })
    await run.cancel()
    expect((await run.info()).status).toBe('cancelled')
    expect(steps()).toEqual(['old'])
  })

  it('runs on a run that brings its workers down; a function can’t be found there, and says so', async () => {
    for (const hasFunction of [false, true]) {
      const { undos, steps } = notes()
      let mortal: Mortal | undefined
      let lives = 0
      const work = workflow({ name: `work-${hasFunction}`, undos }, async (ctx) => {
        lives++
        await ctx.step('f', () => 1, hasFunction ? { undo: undos.note } : {})
        await ctx.step('a', () => 1, { undo: 'note' })
        void mortal?.die()
        await new Promise(() => {})
      })
      const id = `r-${hasFunction}`
      for (let life = 0; life < 6; life++) {
        mortal = await openMortal({ workflows: [work] })
        if (life === 0) await mortal.hf.start(work, undefined, { id })
        await mortal.dead
        advance(11_000)
      }
      mortal = undefined
      const hf = await open({ workflows: [work] })
      const run = await hf.runs.get(id)
      await becomes(run, 'paused')
      expect(await run.info()).toMatchObject({ reason: 'poisoned' })
      const before = lives
      const refusal = await run.cancel().then(
        () => null,
        (error: Error) => error,
      )
      expect(lives).toBe(before)
      expect(steps()).toEqual(['a'])
      expect((await run.info()).status).toBe(hasFunction ? 'paused' : 'cancelled')
      if (!hasFunction) continue
      expect(refusal).toMatchObject({ code: 'conflict', details: { reason: 'undo' } })
      expect(refusal?.message).toMatch(/undo of "f".*brought its workers down.*Fix the function of .*, then run\.resume\(\)/)
      // Asked again, nothing else happens.
      await expect(run.cancel()).rejects.toMatchObject({ code: 'conflict' })
      expect(lives).toBe(before)
      // Repaired, which it is here by now, and resumed, the function is called and gives its undo.
      await run.resume()
      await becomes(run, 'cancelled')
      expect(lives).toBe(before + 1)
      expect(steps()).toEqual(['a', 'f'])
      await hf.close()
    }
  }, 60_000)

  it('outlives continueAs; a function ends with its tape', async () => {
    const undone: string[] = []
    const moved = gate()
    const undos = { note: (n: number) => void undone.push(`named ${n}`) }
    const work = workflow({ name: 'work', undos }, async (ctx, n: number): Promise<unknown> => {
      await ctx.step('named', () => n, { undo: 'note' })
      await ctx.step('given', () => n, { undo: (of) => void undone.push(`given ${of}`) })
      if (n < 3) return ctx.continueAs(n + 1)
      moved.open()
      return ctx.waitFor('never')
    })
    const hf = await open()
    const run = await hf.start(work, 1)
    await moved.promise
    await becomes(run, 'waiting')
    await run.cancel()
    expect(undone).toEqual(['given 3', 'named 3', 'named 2', 'named 1'])
    expect((await run.info()).status).toBe('cancelled')
  })

  it('of a step that is under way at continueAs is known on the next tape', async () => {
    const journal: string[] = []
    const [begun, continues, end] = [gate(), gate(), gate()]
    const undos = { free: (room: number) => void journal.push(`room ${room} freed`) }
    const work = workflow({ name: 'work', undos }, async (ctx, n: number): Promise<unknown> => {
      if (n === 2) return ctx.waitFor('never')
      const book = async () => {
        begun.open()
        await end.promise
        journal.push('booked')
        return 7
      }
      await Promise.race([ctx.step('book', book, { undo: 'free' }), ctx.waitFor('go')])
      continues.open()
      return ctx.continueAs(2)
    })
    const hf = await open()
    const run = await hf.start(work, 1)
    await begun.promise
    await hf.signal(run.id, 'go')
    await continues.promise
    await new Promise((resolve) => setImmediate(resolve))
    end.open()
    await vi.waitUntil(async () => (await eventTypes(run)).filter((type) => type === 'run_started').length === 2)
    await run.cancel()
    expect(journal).toEqual(['booked', 'room 7 freed'])
  })

  it('a rollback that needs no replay brings the state to the version that the workflow knows', async () => {
    const { undos, steps } = notes()
    const make = (version: 1 | 2) => {
      const definition = {
        version,
        initial: () => ({ n: 0, m: version === 1 ? undefined : 7 }),
        ...(version === 2 && { migrations: { 1: (old: unknown) => ({ ...(old as { n: number }), m: 7 }) } }),
      }
      return workflow({ name: 'work', undos, state: state(definition) }, async (ctx) => {
        await ctx.checkpoint('start')
        await ctx.step('a', (step) => step.update((draft) => void draft.n++), { undo: 'note' })
        await ctx.waitFor('go')
        return ctx.state
      })
    }
    const first = await open({ workflows: [make(1)] })
    await becomes(await first.start('work', undefined, { id: 'r' }), 'waiting')
    await first.close()
    const hf = await open({ workflows: [make(2)] })
    const run = await hf.runs.get('r')
    await run.rollback('start')
    expect(steps()).toEqual(['a'])
    expect(await hf.thread('r').state()).toEqual({ n: 0, m: 7 })
    await run.resume()
    await hf.signal('r', 'go')
    expect(await run.result()).toEqual({ n: 1, m: 7 })
  })

  it('that is not among the undos of the workflow is refused at the call', async () => {
    const hf = await open()
    for (const undo of ['other', 'toString', 7 as never]) {
      const work = workflow({ name: `work-${undo}`, undos: { note: () => {} } }, (ctx) => ctx.step('a', () => 1, { undo }))
      expect(await failureOf(await hf.start(work))).toMatchObject({ code: 'invalid_input' })
    }
    expect(() => plan('p', { undos: {} }).step('s', () => {}, { undo: 'note' })).toThrow(/undo "note"/)
    expect(() => workflow({ name: 'w', undos: { note: 'no' as never } }, () => {})).toThrow(/must be a function/)
  })

  it('that can’t be found later pauses the run as undo; resume tries again', async () => {
    const { undos, steps } = notes()
    const make = (known: typeof undos | Record<string, never>) =>
      workflow({ name: 'work', undos: known }, async (ctx) => {
        await ctx.step('a', () => 1, { undo: 'note' })
        await ctx.waitFor('never')
      })
    const first = await open({ workflows: [make(undos)] })
    await becomes(await first.start('work', undefined, { id: 'r' }), 'waiting')
    await first.close()
    const second = await open({ workflows: [make({})] })
    const run = await second.runs.get('r')
    const refusal = await run.cancel().catch((error: Error) => error)
    expect(String(refusal)).toMatch(/undo of "a".*"note" is not among the undos.*resume/)
    expect(await run.info()).toMatchObject({ status: 'paused', reason: 'undo' })
    await second.close()
    const hf = await open({ workflows: [make(undos)] })
    const again = await hf.runs.get('r')
    await again.resume()
    await becomes(again, 'cancelled')
    expect(steps()).toEqual(['a'])
  })

  it('a function inside a section or a plan’s step is refused at the call, and the error names the two ways out', async () => {
    const undo = () => {}
    const section = workflow('section', (ctx) =>
      ctx.section('whole', () => ctx.step('a', () => 1, { undo, retry: { attempts: 1 } })),
    )
    const steps = plan('steps').step('whole', async (_, ctx) => void (await ctx.once('a', { run: () => 1, undo })))
    const hf = await open()
    for (const work of [section, steps]) {
      const failure = await failureOf(await hf.start(work as never, undefined as never))
      expect(failure).toMatchObject({ code: 'invalid_input' })
      expect(failure.message).toMatch(/"whole\/a".*undo: 'name'.*undo as a whole/)
    }
  })

  it('a function that an earlier version took inside a section that has ended pauses the run as undo', async () => {
    const { undos, steps } = notes()
    const work = workflow({ name: 'work', undos }, async (ctx) => {
      await ctx.step('first', () => 1, { undo: 'note' })
      await ctx.section('whole', () => ctx.step('a', () => 1, { undo: 'note' }))
      await ctx.step('last', () => 1, { undo: 'note' })
      await ctx.waitFor('never')
    })
    const hf = await openWrapped(asOf01)
    const run = await hf.start(work)
    await becomes(run, 'waiting')
    const refusal = await run.cancel().catch((error: Error) => error)
    expect(String(refusal)).toMatch(/undo of "whole\/a".*inside section "whole"/)
    expect(await run.info()).toMatchObject({ status: 'paused', reason: 'undo' })
    await run.cancel({ undo: false })
    expect(steps()).toEqual(['last'])
  })
})

/** Results of the section's calls as version 0.1 wrote them: only their beginning says that they have an undo. */
function asOf01(store: Store): Store {
  const old = (change: Change): Change => ({
    ...change,
    events: change.events.map((event) => {
      if (event.type !== 'step_completed' || !event.step?.startsWith('whole/') || event.payload === null) return event
      const { undo: _, ...data } = JSON.parse(String(event.payload))
      return { ...event, payload: JSON.stringify(data) }
    }),
  })
  return new Proxy(store, {
    get: (target, name) => {
      if (name === 'commit') return (changes: readonly Change[]) => target.commit(changes.map(old))
      const member = Reflect.get(target, name) as unknown
      return typeof member === 'function' ? member.bind(target) : member
    },
  })
}

onEveryStore('a step with a named undo in a section that took too long', ({ open }) => {
  it('is recorded and undone, if it ends within 5 s', async () => {
    const { undos, steps } = notes()
    const end = gate()
    const book = workflow({ name: 'book', undos }, async (ctx) => {
      const options = { timeoutMs: 50, retry: { attempts: 1 }, onFailure: 'skip' } as const
      await ctx.section('trip', () => ctx.step('flight', () => end.promise, { undo: 'note' }), options)
      await ctx.waitFor('go')
    })
    const hf = await open({ worker: { quietMs: 20 } })
    const run = await hf.start(book)
    await logged(run, 'step_skipped')
    // It takes its time.
    setTimeout(end.open, 300)
    await logged(run, 'step_completed')
    await becomes(run, 'waiting')
    await run.cancel()
    expect(steps()).toEqual(['trip/flight'])
  })
})

onEveryStore('the undo of a plan’s step', ({ open }) => {
  it('gets the state as the step left it, as a function or by name, and the finished step is not called again', async () => {
    const undone: unknown[] = []
    const charged: string[] = []
    const trip = plan<{ a?: number; b?: number; c?: number }>('trip', {
      undos: { back: (state, { step }) => void undone.push([step, state]) },
    })
      .step('a', () => ({ a: charged.push('a') }), { undo: 'back' })
      .step('b', () => ({ b: charged.push('b') }), { undo: (state, { step }) => void undone.push([step, state]) })
      .step('c', async (_, ctx) => {
        await ctx.step('inner', () => 1, { undo: 'back' })
        return { c: 3 }
      })
      .step('wait', async (_, ctx) => void (await ctx.waitFor('never')))
    const hf = await open()
    const run = await hf.start(trip, {})
    await becomes(run, 'waiting')
    await run.cancel()
    expect(undone).toEqual([
      ['c/inner', 1],
      ['b', { a: 1, b: 2 }],
      ['a', { a: 1 }],
    ])
    expect(charged).toEqual(['a', 'b'])
  })

  it('gets what the step changed after its run was cancelled, too', async () => {
    const undone: unknown[] = []
    const entered = gate()
    const trip = plan<{ payment?: string; paid?: boolean }>('trip').step(
      'pay',
      async (_, ctx) => {
        entered.open()
        if (!ctx.signal.aborted) await new Promise((resolve) => ctx.signal.addEventListener('abort', resolve, { once: true }))
        await new Promise(setImmediate)
        ctx.update((draft) => {
          draft.payment = 'p1'
        })
        return { paid: ctx.state.payment === 'p1' }
      },
      { undo: (left) => void undone.push(left) },
    )
    const hf = await open()
    const run = await hf.start(trip, {})
    await entered.promise
    await run.cancel()
    expect(undone).toEqual([{ payment: 'p1', paid: true }])
    expect(await hf.thread(run.id).state()).toEqual({ payment: 'p1', paid: true })
  })
})

onEveryStore('the undo of a child', ({ open }) => {
  it('runs with its output once it has completed, as a function or by name', async () => {
    const booked = new Set<string>()
    const book = workflow('book', (ctx, what: string) => ctx.step('do', () => void booked.add(what)).then(() => what))
    const trip = workflow({ name: 'trip', undos: { release: (what: string) => booked.delete(what) } }, async (ctx) => {
      await ctx.call(book, 'flight', { undo: (what) => booked.delete(what) })
      await ctx.call(book, 'hotel', { undo: 'release' })
      await ctx.call(book, 'guide')
      await ctx.waitFor('never')
    })
    const hf = await open({ workflows: [book, trip] })
    const run = await hf.start(trip)
    await vi.waitUntil(async () => (await run.info()).reason === 'signal', { timeout: 15_000 })
    await run.cancel()
    expect([...booked]).toEqual(['guide'])
    const undone = (await run.events()).filter(({ type }) => type === 'step_undone').map(({ step }) => step)
    expect(undone).toEqual(['book', 'book'])
  })

  it('also of one that completes while its parent is not executed, and is cancelled before it hears of it', async () => {
    const undone: string[] = []
    const go = gate()
    const back = (output: string) => void undone.push(output)
    const slow = workflow('slow', (ctx, name: string) => ctx.step('do', () => go.promise).then(() => name))
    const parent = workflow({ name: 'parent', undos: { back } }, async (ctx) => {
      await Promise.all([ctx.call(slow, 'named', { undo: 'back' }), ctx.call(slow, 'given', { undo: back })])
    })
    const parents = await open({ workflows: [parent] })
    const run = await parents.start(parent, undefined, { id: 'p' })
    await becomes(run, 'waiting')
    await run.pause()
    const children = await open({ workflows: [slow] })
    go.open()
    for (const id of ['p/slow#1', 'p/slow#2']) await (await children.runs.get(id)).result()
    await run.cancel()
    expect((await run.info()).status).toBe('cancelled')
    expect(undone.sort()).toEqual(['given', 'named'])
  })

  it('is refused for a detached one', async () => {
    const child = workflow('child', () => 1)
    const work = workflow('work', (ctx) => ctx.call(child, undefined, { detached: true, undo: () => {} } as never))
    const hf = await open({ workflows: [child] })
    expect(await codeOfRejection((await hf.start(work)).result().catch((error) => Promise.reject(error.cause)))).toBe(
      'invalid_input',
    )
  })
})
