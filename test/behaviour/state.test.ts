import { state, workflow } from 'holdfast'
import { expect, it } from 'vitest'
import { becomes, codeOfRejection, eventTypes, failureOf, gate } from './runs.ts'
import { onEveryStore } from './stores.ts'

interface Counter {
  n: number
  log: string[]
}
const counterState = state<Counter>({ version: 1, initial: () => ({ n: 0, log: [] }) })

onEveryStore('ctx.update', ({ open, openMortal, advance }) => {
  it('is visible at once, and committed with the next recorded result', async () => {
    const inStep = gate()
    const release = gate()
    const count = workflow({ name: 'count', state: counterState }, async (ctx) => {
      ctx.update((draft) => {
        draft.n = 1
      })
      const seen = [ctx.state.n]
      await ctx.step('first', () => {})
      ctx.update((draft) => {
        draft.n = 2
      })
      seen.push(ctx.state.n)
      await ctx.step('second', async () => {
        inStep.open()
        await release.promise
      })
      return seen
    })
    const hf = await open()
    const run = await hf.start(count)
    await inStep.promise
    const { n } = await hf.thread(run.threadId).state<Counter>()
    // The second update rides with the next commit, which the flush of what is under way may be.
    expect([1, 2]).toContain(n)
    release.open()
    expect(await run.result()).toEqual([1, 2])
    expect(await hf.thread(run.threadId).state()).toEqual({ n: 2, log: [] })
  })

  it('that no result follows is committed with the end of the run', async () => {
    const count = workflow({ name: 'count', state: counterState }, async (ctx) => {
      await ctx.step('only', () => {})
      ctx.update((draft) => {
        draft.n = 7
      })
    })
    const hf = await open()
    const run = await hf.start(count)
    await run.result()
    expect(await hf.thread(run.threadId).state()).toEqual({ n: 7, log: [] })
  })

  it('made before a failure stays, because the run goes on from there', async () => {
    const count = workflow({ name: 'count', retry: { attempts: 1 }, state: counterState }, async (ctx) => {
      ctx.update((draft) => {
        draft.n += 1
      })
      await ctx.step('fails', () => {
        throw new Error('no')
      })
    })
    const hf = await open()
    const run = await hf.start(count)
    await failureOf(run)
    expect(await hf.thread(run.threadId).state()).toMatchObject({ n: 1 })
    await run.retry()
    await run.result().catch(() => {})
    expect(await hf.thread(run.threadId).state()).toMatchObject({ n: 1 })
  })

  it('that was not committed yet is gone after a crash, and made again by the function', async () => {
    let executions = 0
    const count = workflow({ name: 'count', state: counterState }, async (ctx) => {
      const execution = ++executions
      await ctx.step('first', () => {})
      ctx.update((draft) => {
        draft.n += 1
        draft.log.push(`execution ${execution}`)
      })
      await ctx.step('second', () => {})
      return ctx.state
    })
    // The commit of the second step would have carried the update.
    const { hf, dead } = await openMortal({ workflows: [count] }, { before: 'state_updated' })
    await hf.start(count, undefined, { id: 'r' })
    await dead
    const heir = await open({ workflows: [count] })
    expect(await heir.thread('r').state()).toMatchObject({ n: 0 })
    advance(11_000)
    expect(await (await heir.runs.get('r')).result()).toEqual({ n: 1, log: ['execution 2'] })
  })

  it('that was committed is not made a second time after a crash', async () => {
    let recipes = 0
    const count = workflow({ name: 'count', state: counterState }, async (ctx) => {
      ctx.update((draft) => {
        recipes++
        draft.n += 1
      })
      await ctx.step('first', () => {})
      await ctx.step('second', () => {})
      return ctx.state.n
    })
    const { hf, dead } = await openMortal({ workflows: [count] }, { after: 'state_updated' })
    await hf.start(count, undefined, { id: 'r' })
    await dead
    const heir = await open({ workflows: [count] })
    advance(11_000)
    expect(await (await heir.runs.get('r')).result()).toBe(1)
    expect(recipes).toBe(1)
  })

  it('that changed nothing does not let a replay see what comes later', async () => {
    const seen: unknown[] = []
    let isDown = true
    const count = workflow({ name: 'count', retry: { attempts: 1 }, state: counterState }, async (ctx) => {
      ctx.update((draft) => {
        if (draft.n > 0) draft.log.push('the first update saw the future')
      })
      seen.push(ctx.state.n)
      await ctx.step('add', (step) =>
        step.update((draft) => {
          draft.n += 1
        }),
      )
      seen.push(ctx.state.n)
      await ctx.step('finish', () => {
        if (isDown) throw new Error('down')
      })
      return ctx.state
    })
    const hf = await open()
    const run = await hf.start(count)
    await failureOf(run)
    isDown = false
    await run.retry()
    expect(await run.result()).toEqual({ n: 1, log: [] })
    expect(seen).toEqual([0, 1, 0, 1])
  })

  it('sees, on replay, the same state after each call as the first time', async () => {
    const seen: string[] = []
    let isDown = true
    const count = workflow({ name: 'count', retry: { attempts: 1 }, state: counterState }, async (ctx) => {
      const look = (where: string) => seen.push(`${where}: ${JSON.stringify(ctx.state)}`)
      const add = (text: string) =>
        ctx.update((draft) => {
          draft.n += 1
          draft.log.push(text)
        })
      look('start')
      add('a')
      look('after a')
      await ctx.step('one', (step) =>
        step.update((draft) => {
          draft.log.push('one')
        }),
      )
      look('after one')
      add('b')
      await ctx.map('many', ['x', 'y'], (item, _, step) =>
        step.update((draft) => {
          draft.log.push(item)
        }),
      )
      look('after many')
      add('c')
      look('end')
      await ctx.step('finish', () => {
        if (isDown) throw new Error('down')
      })
      return ctx.state
    })
    const hf = await open()
    const run = await hf.start(count)
    await failureOf(run)
    isDown = false
    await run.retry()
    expect(await run.result()).toEqual({ n: 3, log: ['a', 'one', 'b', 'x', 'y', 'c'] })
    expect(seen.slice(seen.length / 2)).toEqual(seen.slice(0, seen.length / 2))
  })

  it('takes a recipe that returns a whole new state', async () => {
    const replace = workflow({ name: 'replace', state: counterState }, async (ctx) => {
      ctx.update(() => ({ n: 9, log: ['new'] }))
      return ctx.state
    })
    const hf = await open()
    const run = await hf.start(replace)
    expect(await run.result()).toEqual({ n: 9, log: ['new'] })
    expect(await hf.thread(run.threadId).state()).toEqual({ n: 9, log: ['new'] })
  })

  it('refuses what can not be stored, names the path and leaves the state as it was', async () => {
    const wrong = workflow({ name: 'wrong', state: counterState }, async (ctx) => {
      const thrown: unknown[] = []
      for (const value of [() => 1, Symbol('s'), new WeakMap()]) {
        try {
          ctx.update((draft) => {
            draft.log = [value as never]
          })
        } catch (error) {
          thrown.push((error as { code: string }).code, (error as Error).message.includes('log[0]'))
        }
      }
      return { thrown, state: ctx.state }
    })
    const hf = await open()
    expect(await hf.run(wrong)).toEqual({
      thrown: ['value_not_storable', true, 'value_not_storable', true, 'value_not_storable', true],
      state: { n: 0, log: [] },
    })
  })

  it('throws what its recipe throws, and the state stays as it was', async () => {
    const wrong = workflow({ name: 'wrong', state: counterState }, async (ctx) => {
      try {
        ctx.update((draft) => {
          draft.n = 5
          throw new Error('half way')
        })
      } catch (error) {
        return { message: (error as Error).message, state: ctx.state }
      }
      return null
    })
    const hf = await open()
    expect(await hf.run(wrong)).toEqual({ message: 'half way', state: { n: 0, log: [] } })
  })
})

onEveryStore('ctx.state', ({ open }) => {
  it('is read-only', async () => {
    const write = workflow({ name: 'write', state: counterState }, async (ctx) => {
      ctx.update((draft) => {
        draft.log.push('a')
      })
      const attempts = [
        () => Object.assign(ctx.state as Counter, { n: 5 }),
        () => (ctx.state as Counter).log.push('b'),
        () => {
          ;(ctx as { state: unknown }).state = {}
        },
      ]
      const thrown = attempts.map((attempt) => {
        try {
          attempt()
          return 'nothing'
        } catch (error) {
          return (error as Error).name
        }
      })
      return { thrown, state: ctx.state }
    })
    const hf = await open()
    expect(await hf.run(write)).toEqual({ thrown: ['TypeError', 'TypeError', 'HoldfastError'], state: { n: 0, log: ['a'] } })
  })

  const inPlace: Readonly<Record<string, (counter: Counter) => unknown>> = {
    'sets a key': (counter) => Object.assign(counter, { n: 5 }),
    'adds a key': (counter) => Object.assign(counter, { extra: 5 }),
    'deletes a key': (counter) => Reflect.set(counter, 'n', 5) || delete (counter as Partial<Counter>).n,
    'appends to a list': (counter) => counter.log.push('b'),
  }
  it.each(Object.entries(inPlace))(
    'fails a run that changes it in place with invalid_input, which says what to use: one that %s',
    async (_, change) => {
      let attempts = 0
      const write = workflow({ name: 'write', state: counterState }, async (ctx, where: 'function' | 'step' | 'section') => {
        ctx.update((draft) => {
          draft.log.push('a')
        })
        const body = () => {
          attempts++
          change(ctx.state as Counter)
        }
        if (where === 'step') await ctx.step('write', body)
        else if (where === 'section') await ctx.section('write', body)
        else body()
      })
      const hf = await open()
      for (const where of ['function', 'step', 'section'] as const) {
        const run = await hf.start(write, where)
        expect(await failureOf(run), where).toMatchObject({
          code: 'invalid_input',
          message: expect.stringContaining('ctx.update((draft) => …)'),
          details: { runId: run.id, ...(where !== 'function' && { step: 'write' }) },
        })
        expect(await hf.thread(run.threadId).state()).toEqual({ n: 0, log: ['a'] })
      }
      expect(attempts).toBe(3)
    },
  )

  it('is not blamed for something else that is frozen', async () => {
    const write = workflow({ name: 'write', state: counterState, retry: { attempts: 1 } }, async (ctx) => {
      await ctx.step('write', () => Object.assign(Object.freeze({ own: 1 }), { own: 2 }))
    })
    expect(await failureOf(await (await open()).start(write))).toMatchObject({ name: 'TypeError' })
  })

  const shelfState = state({
    version: 1,
    initial: () => ({
      stock: new Map([['apples', 1]]),
      tags: new Set(['fresh']),
      since: new Date(1_000),
      bytes: new Uint8Array([1, 2, 3]),
      total: 0,
    }),
  })
  type Shelf = ReturnType<typeof shelfState.initial>
  const changes: Readonly<Record<string, (shelf: Shelf) => unknown>> = {
    'a Map': (shelf) => shelf.stock.set('phantom', 99),
    'a Set': (shelf) => shelf.tags.add('phantom'),
    'a Date': (shelf) => shelf.since.setTime(99),
    bytes: (shelf) => {
      shelf.bytes[0] = 99
    },
  }
  it.each(Object.entries(changes))(
    'keeps %s in it from being changed in place, and nobody sees the change',
    async (_, change) => {
      const fill = workflow({ name: 'fill', state: shelfState }, async (ctx) => {
        ctx.update((draft) => {
          draft.stock.set('pears', 2)
        })
        await ctx.step('x', () => 1)
      })
      const spoil = workflow({ name: 'spoil', state: shelfState }, async (ctx) => {
        const shelf = ctx.state as Shelf
        const codes: unknown[] = []
        const attempt = (fn: () => unknown) => {
          try {
            fn()
          } catch (error) {
            codes.push((error as { code?: unknown }).code)
          }
        }
        attempt(() => change(shelf))
        // Bytes can't be frozen: they are refused when they are used.
        attempt(() =>
          ctx.update((draft) => {
            draft.total = shelf.stock.size + shelf.bytes[0]! + shelf.since.getTime() + shelf.tags.size
          }),
        )
        await ctx.step('y', () => 1)
        return codes
      })
      const read = workflow({ name: 'read', state: shelfState }, async (ctx) => ctx.state)
      const hf = await open({ workflows: [fill, spoil, read] })
      const thread = hf.thread('t')
      await thread.run(fill)
      const stored = await thread.state(shelfState)
      expect(await thread.run(spoil)).toEqual(['invalid_input'])
      const isRefusedLate = change === changes['bytes']
      const expected = { ...(stored as Shelf), total: isRefusedLate ? 0 : 2 + 1 + 1_000 + 1 }
      expect(await thread.run(read)).toEqual(expected)
      expect(await thread.state(shelfState)).toEqual(expected)
      const other = await open({ workflows: [read] })
      expect(await other.thread('t').run(read)).toEqual(expected)
    },
  )

  it('can be cloned, and the clone is free to change', async () => {
    const clone = workflow({ name: 'clone', state: shelfState }, async (ctx) => {
      const copy = structuredClone(ctx.state) as Shelf
      for (const change of Object.values(changes)) change(copy)
      ctx.update((draft) => {
        draft.stock = new Map(ctx.state.stock).set('copied', 3)
        draft.since = new Date(ctx.state.since)
      })
      return { copy, state: ctx.state }
    })
    const hf = await open()
    const { copy, state: seen } = await hf.run(clone)
    expect(copy.stock).toEqual(
      new Map([
        ['apples', 1],
        ['phantom', 99],
      ]),
    )
    expect(copy.bytes[0]).toBe(99)
    expect(seen).toMatchObject({
      stock: new Map([
        ['apples', 1],
        ['copied', 3],
      ]),
      since: new Date(1_000),
      bytes: new Uint8Array([1, 2, 3]),
    })
  })

  it('is {} at first in a workflow without a state definition, which takes what is there', async () => {
    const plain = workflow('plain', async (ctx) => {
      const before = { ...ctx.state }
      ctx.update((draft) => {
        draft['n'] = ((draft['n'] as number) ?? 0) + 1
      })
      return before
    })
    const hf = await open()
    expect(await hf.thread('t').run(plain)).toEqual({})
    expect(await hf.thread('t').run(plain)).toEqual({ n: 1 })
    expect(await hf.thread('t').state()).toEqual({ n: 2 })
  })

  it('keeps Date, Map, Set, BigInt and bytes exactly, also through updates of their insides', async () => {
    const rich = state({
      version: 1,
      initial: () => ({
        at: new Date(0),
        map: new Map<string, { n: number }>(),
        set: new Set<string>(),
        big: 1n,
        bytes: new Uint8Array([1, 2, 3]),
        nothing: undefined as undefined | string,
        numbers: [Number.NaN, -0],
      }),
    })
    const use = workflow({ name: 'use', state: rich }, async (ctx) => {
      ctx.update((draft) => {
        draft.map.set('a', { n: 1 })
        draft.set.add('x')
        draft.at = new Date(1_000)
      })
      await ctx.step('first', () => {})
      ctx.update((draft) => {
        const entry = draft.map.get('a')
        if (entry) entry.n += 1
        draft.map.set('b', { n: 5 })
        draft.set.delete('x')
        draft.set.add('y')
        draft.big *= 2n ** 80n
        draft.bytes = new Uint8Array([9])
      })
    })
    const expected = {
      at: new Date(1_000),
      map: new Map([
        ['a', { n: 2 }],
        ['b', { n: 5 }],
      ]),
      set: new Set(['y']),
      big: 2n ** 80n,
      bytes: new Uint8Array([9]),
      nothing: undefined,
      numbers: [Number.NaN, -0],
    }
    const hf = await open({ workflows: [use] })
    await hf.thread('t').run(use)
    expect(await hf.thread('t').state()).toStrictEqual(expected)
    await hf.close()
    const again = await open({ workflows: [use] })
    expect(await again.thread('t').state()).toStrictEqual(expected)
  })

  it('of 2,000 updates on one thread is right at every look, whatever was snapshotted', async () => {
    const grow = workflow(
      { name: 'grow', state: state({ version: 1, initial: () => ({ items: [] as string[] }) }) },
      async (ctx, n: number) => {
        for (let i = 0; i < n; i++) {
          ctx.update((draft) => {
            draft.items.push(`${draft.items.length}:${'x'.repeat(100)}`)
            if (draft.items.length > 50) draft.items.shift()
          })
          if (i % 10 === 0) await ctx.checkpoint()
        }
        return ctx.state.items.length
      },
    )
    const hf = await open()
    await hf.thread('t').run(grow, 2_000)
    const { items } = await hf.thread('t').state<{ items: string[] }>()
    expect(items).toHaveLength(50)
    const checkpoints = await hf.thread('t').checkpoints()
    for (const index of [0, 1, 3, 50, 100, 199]) {
      const { checkpoint } = checkpoints[index] as { checkpoint: string }
      const at = await hf.thread('t').stateAt<{ items: string[] } | undefined>(checkpoint)
      expect(at?.items.length ?? 0).toBe(Math.min(50, Math.max(0, (index - 1) * 10 + 1)))
    }
  })
})

onEveryStore('the checkpoints of a thread', ({ open }) => {
  const steps = workflow({ name: 'steps', state: counterState }, async (ctx) => {
    for (const name of ['a', 'b', 'c']) {
      await ctx.step(name, (step) =>
        step.update((draft) => {
          draft.n += 1
          draft.log.push(name)
        }),
      )
      if (name === 'b') await ctx.checkpoint('halfway')
    }
  })

  it('mean what they say, also where a label is written like one of them', async () => {
    const hf = await open()
    const thread = hf.thread('t')
    await thread.run(steps)
    const [first, second] = (await thread.checkpoints()).filter(({ step }) => step === 'a' || step === 'b')
    await thread.tag(second?.checkpoint as string, first?.checkpoint as string)
    expect(await thread.stateAt(first?.checkpoint as string)).toMatchObject({ n: 1 })
    await thread.tag(second?.checkpoint as string, 'u@1')
    expect(await thread.stateAt('u@1')).toMatchObject({ n: 2 })
  })

  it('say where commits ended, with time, run, step, label and bytes; the state at each can be read', async () => {
    const hf = await open()
    const thread = hf.thread('t')
    const run = await thread.start(steps, undefined, { id: 'r' })
    await run.result()
    const checkpoints = await thread.checkpoints()
    expect(checkpoints.filter(({ step }) => step !== undefined).map(({ step, label }) => [step, label])).toEqual([
      ['a', undefined],
      ['b', undefined],
      ['checkpoint', 'halfway'],
      ['c', undefined],
    ])
    for (const { checkpoint, seq, at, runId, bytes } of checkpoints) {
      expect(checkpoint).toBe(`t@${seq}`)
      expect(runId).toBe('r')
      expect(at).toBeGreaterThan(1_700_000_000_000)
      expect(bytes).toBeGreaterThanOrEqual(0)
    }
    const states = await Promise.all(checkpoints.map(({ checkpoint }) => thread.stateAt<Counter>(checkpoint)))
    const counts = states.map((at) => at?.n ?? 0)
    expect(counts).toEqual([...counts].sort())
    expect(counts.at(-1)).toBe(3)
    expect(await thread.stateAt('halfway')).toEqual({ n: 2, log: ['a', 'b'] })
  })

  it('come page by page with after and limit', async () => {
    const hf = await open()
    const thread = hf.thread('t')
    await thread.run(steps)
    const all = await thread.checkpoints()
    const first = await thread.checkpoints({ limit: 2 })
    expect(first).toEqual(all.slice(0, 2))
    expect(await thread.checkpoints({ after: first.at(-1)?.seq as number })).toEqual(all.slice(2))
  })

  it("an effect's intent is not one", async () => {
    const mail = workflow('mail', (ctx) => ctx.once('send', { run: () => 1 }))
    const hf = await open()
    const run = await hf.start(mail, undefined, { id: 'r' })
    await run.result()
    const intent = (await run.events()).find(({ type }) => type === 'effect_intended')
    expect((await hf.thread('r').checkpoints()).map(({ seq }) => seq)).not.toContain(intent?.seq)
  })

  it('can be tagged; the label names the checkpoint, and moves when it is given again', async () => {
    const hf = await open()
    const thread = hf.thread('t')
    await thread.run(steps)
    const all = await thread.checkpoints()
    const byStep = (name: string) => all.find(({ step }) => step === name)?.checkpoint as string
    await thread.tag(byStep('a'), 'good')
    expect(await thread.stateAt('good')).toMatchObject({ n: 1 })
    await thread.tag(byStep('c'), 'good')
    expect(await thread.stateAt('good')).toMatchObject({ n: 3 })
    expect((await thread.checkpoints()).filter(({ label }) => label === 'good')).toHaveLength(1)
  })

  it('that do not exist are refused', async () => {
    const hf = await open()
    const thread = hf.thread('t')
    await thread.run(steps)
    const head = (await thread.checkpoints()).at(-1)?.seq as number
    for (const wrong of [`t@${head + 1}`, 't@-1', 't@1.5', 't', 'other@1', '', 't@', '@1', `t@${'9'.repeat(30)}`]) {
      expect([wrong, await codeOfRejection(thread.stateAt(wrong))]).toEqual([wrong, 'invalid_id'])
    }
    expect(await codeOfRejection(thread.tag(`t@${head}`, ''))).toBe('invalid_id')
  })

  it('split at the last @ of a thread id that has one', async () => {
    const hf = await open()
    const thread = hf.thread('alice@example.com')
    await thread.run(steps)
    const { checkpoint } = (await thread.checkpoints()).at(-1) as { checkpoint: string }
    expect(await thread.stateAt(checkpoint)).toMatchObject({ n: 3 })
  })
})

onEveryStore('thread.update', ({ open, openMortal, advance }) => {
  it('edits the state by hand, and the log says so', async () => {
    const look = workflow({ name: 'look', state: counterState }, async (ctx) => ctx.state.n)
    const hf = await open()
    const thread = hf.thread('t')
    await thread.run(look)
    await thread.update<Counter>((draft) => {
      draft.n = 42
    })
    expect(await thread.run(look)).toBe(42)
    const edit = (await thread.checkpoints()).find(({ runId }) => runId === null)
    expect(edit).toBeDefined()
    expect(await thread.stateAt(edit?.checkpoint as string)).toMatchObject({ n: 42 })
  })

  it('makes a thread that was not there', async () => {
    const hf = await open()
    await hf.thread('new').update((draft) => {
      draft['n'] = 1
    })
    expect(await hf.thread('new').state()).toEqual({ n: 1 })
  })

  it('with ifAt is refused with conflict when the thread has moved on', async () => {
    const hf = await open()
    const thread = hf.thread('t')
    await thread.update((draft) => {
      draft['n'] = 1
    })
    const { checkpoint } = (await thread.checkpoints()).at(-1) as { checkpoint: string }
    await thread.update((draft) => {
      draft['n'] = 2
    })
    const late = thread.update(
      (draft) => {
        draft['n'] = 3
      },
      { ifAt: checkpoint },
    )
    expect(await codeOfRejection(late)).toBe('conflict')
    expect(await thread.state()).toEqual({ n: 2 })
    const head = (await thread.checkpoints()).at(-1) as { checkpoint: string }
    await thread.update(
      (draft) => {
        draft['n'] = 4
      },
      { ifAt: head.checkpoint },
    )
    expect(await thread.state()).toEqual({ n: 4 })
  })

  it('fifty at once, from two clients, lose none', async () => {
    const clients = [await open({ worker: false }), await open({ worker: false })]
    const edits = Array.from({ length: 50 }, (_, i) =>
      clients[i % 2]?.thread('t').update((draft) => {
        draft['n'] = ((draft['n'] as number) ?? 0) + 1
      }),
    )
    await Promise.all(edits)
    expect(await clients[0]?.thread('t').state()).toEqual({ n: 50 })
  })

  it('that changes nothing writes nothing', async () => {
    const hf = await open()
    await hf.thread('t').update((draft) => {
      draft['n'] = 1
    })
    await hf.thread('t').update((draft) => {
      draft['n'] = 1
    })
    expect(await hf.thread('t').checkpoints()).toHaveLength(1)
  })

  it('is a conflict while a run executes on the thread', async () => {
    const inStep = gate()
    const release = gate()
    const work = workflow('work', (ctx) =>
      ctx.step('slow', async () => {
        inStep.open()
        await release.promise
      }),
    )
    const hf = await open()
    const run = await hf.thread('t').start(work)
    await inStep.promise
    const edit = hf.thread('t').update((draft) => {
      draft['n'] = 1
    })
    expect(await codeOfRejection(edit)).toBe('conflict')
    release.open()
    await run.result()
  })

  it('while a run waits is seen by that run when it goes on, and by its replay after a crash', async () => {
    const seen: unknown[] = []
    const work = workflow({ name: 'work', state: counterState }, async (ctx) => {
      ctx.update((draft) => {
        draft.log.push('first')
      })
      await ctx.step('before', () => {})
      seen.push(ctx.state.n)
      await ctx.sleep(60_000)
      seen.push(ctx.state.n)
      ctx.update((draft) => {
        draft.log.push(`n is ${draft.n}`)
      })
      await ctx.step('after', () => {})
      return ctx.state
    })
    const { hf, dead } = await openMortal({ workflows: [work] }, { after: 'timer_fired' })
    const run = await hf.start(work, undefined, { id: 'r' })
    await becomes(run, 'waiting')
    await hf.thread('r').update<Counter>((draft) => {
      draft.n = 5
      draft.log.push('by hand')
    })
    advance(61_000)
    await dead
    advance(11_000)
    const heir = await open({ workflows: [work] })
    expect(await (await heir.runs.get('r')).result()).toEqual({ n: 5, log: ['first', 'by hand', 'n is 5'] })
    // Once at first, once when the timer was due (and the process died), once in the heir.
    expect(seen).toEqual([0, 0, 0, 5])
  })

  it('of a deleted thread is refused with thread_deleted', async () => {
    const hf = await open()
    await hf.thread('t').update((draft) => {
      draft['n'] = 1
    })
    await hf.thread('t').delete()
    const edit = hf.thread('t').update((draft) => {
      draft['n'] = 2
    })
    expect(await codeOfRejection(edit)).toBe('thread_deleted')
  })

  it('and the run on the thread write one log without gaps', async () => {
    const work = workflow({ name: 'work', state: counterState }, async (ctx) => {
      for (let i = 0; i < 5; i++) {
        ctx.update((draft) => {
          draft.n += 1
        })
        await ctx.step('tick', () => {})
      }
    })
    const hf = await open()
    await hf.thread('t').run(work, undefined, { id: 'r1' })
    await hf.thread('t').update<Counter>((draft) => {
      draft.n += 100
    })
    const second = await hf.thread('t').start(work, undefined, { id: 'r2' })
    await second.result()
    expect(await hf.thread('t').state()).toMatchObject({ n: 110 })
    const first = await hf.runs.get('r1')
    const events = [...(await first.events()), ...(await second.events())].map(({ seq }) => seq)
    const head = Math.max(...events)
    // The one position that belongs to no run is the edit.
    expect(head - events.length).toBe(1)
    expect(await eventTypes(second, 'state')).toEqual(Array(5).fill('state_updated'))
  })
})
