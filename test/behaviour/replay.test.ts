import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Context, type Holdfast, state, workflow } from 'holdfast'
import { expect, it, vi } from 'vitest'
import { makeRacer } from './programs/racer.ts'
import { startProgram } from './programs.ts'
import { becomes, eventTypes, failureOf, gate, logged } from './runs.ts'
import { onEverySharedStore, onEveryStore, onLocalStores } from './stores.ts'

const once = { attempts: 1 }

onEverySharedStore('parallel steps and a process that is killed', (scene) => {
  for (const first of ['a', 'b'] as const) {
    it(`Promise.race and Promise.all go the same way again when ${first} was first, and no step executes twice`, async () => {
      const file = join(scene.folder, 'marks')
      const program = startProgram('race-and-hang', scene.url, file, first)
      await program.said('at the end')
      await program.kill()
      const second = first === 'a' ? 'b' : 'a'
      const marks = `${first}\n${second}\nafter ${first}\n`
      expect(readFileSync(file, 'utf8')).toBe(marks)

      const why = scene.outlastKilled()
      const hf = await scene.open({ workflows: [makeRacer(file, async () => {})] })
      const run = await hf.runs.get('race')
      expect(await run.result()).toMatchObject({ winner: first, all: ['a', 'b'], order: [first, second] })
      expect(readFileSync(file, 'utf8')).toBe(marks)
      const recovered = (await run.events()).find(({ type }) => type === 'run_recovered')
      expect(recovered?.data).toMatchObject({ why, holder: expect.stringContaining(String(program.pid)) })
    })
  }
})

onEveryStore('a replay', ({ open, openMortal, openWrapped, advance }) => {
  it('gets the results of parallel steps in the order in which they were recorded, not in the order of the calls', async () => {
    const gates = { a: gate(), b: gate(), c: gate() }
    const orders: string[][] = []
    let isDown = true
    const work = workflow({ name: 'work', retry: once }, async (ctx) => {
      const order: string[] = []
      orders.push(order)
      await Promise.all(
        (['a', 'b', 'c'] as const).map(async (name) => {
          await ctx.step(name, () => gates[name].promise)
          order.push(name)
        }),
      )
      await ctx.step('end', () => {
        if (isDown) throw new Error('down')
      })
    })
    const hf = await open()
    const run = await hf.start(work)
    for (const name of ['c', 'a', 'b'] as const) {
      gates[name].open()
      await vi.waitUntil(async () => (await run.info()).completedSteps.includes(name), { interval: 5 })
    }
    await failureOf(run)
    isDown = false
    await run.retry()
    await run.result()
    expect(orders).toEqual([
      ['c', 'a', 'b'],
      ['c', 'a', 'b'],
    ])
  })

  it('lets the loser of a race that was not recorded execute again, and only that one', async () => {
    const ran: string[] = []
    const race = workflow('race', async (ctx) => {
      const winner = await Promise.race([
        ctx.step('fast', () => {
          ran.push('fast')
          return 'fast'
        }),
        ctx.step('slow', () => {
          ran.push('slow')
          return new Promise<string>(() => {})
        }),
      ])
      await ctx.step('next', () => void ran.push('next'))
      return winner
    })
    const { hf, dead } = await openMortal({ workflows: [race] }, { before: 'run_completed' })
    await hf.start(race, undefined, { id: 'r' })
    await dead
    const heir = await open({ workflows: [race] })
    advance(11_000)
    expect(await (await heir.runs.get('r')).result()).toBe('fast')
    expect(ran.slice(0, 3)).toEqual(['fast', 'slow', 'next'])
    // The heir has nothing to execute but the loser, if the function is still there when it may start.
    expect(ran.slice(3).filter((name) => name !== 'slow')).toEqual([])
  })

  it('sees a result that only rides in its place among the others', async () => {
    const orders: string[][] = []
    let isDown = true
    const committing = gate()
    const flush = gate()
    const work = workflow({ name: 'work', retry: once }, async (ctx) => {
      const order: string[] = []
      orders.push(order)
      const durable = ctx.step('durable', () => {}).then(() => order.push('durable'))
      const riding = ctx
        .step('riding', () => (orders.length === 1 ? committing.promise : undefined), { checkpoint: false })
        .then(() => {
          order.push('riding')
          flush.open()
        })
      await Promise.all([durable, riding])
      await ctx.step('end', () => {
        if (isDown) throw new Error('down')
      })
    })
    // The write of the durable result takes until the riding one has been made, or a little longer.
    const hf = await openWrapped((store) =>
      Object.assign(Object.create(store) as typeof store, {
        commit: async (changes: Parameters<typeof store.commit>[0]) => {
          const isDurable = changes.some(({ events }) =>
            events.some(({ type, step }) => type === 'step_completed' && step === 'durable'),
          )
          if (isDurable) {
            committing.open()
            await Promise.race([flush.promise, new Promise((resolve) => setTimeout(resolve, 50))])
          }
          return store.commit(changes)
        },
      }),
    )
    const run = await hf.start(work)
    await failureOf(run)
    isDown = false
    await run.retry()
    await run.result()
    expect(orders[1]).toEqual(orders[0])
  })

  it('gets the same now, random and uuid', async () => {
    const seen: unknown[][] = []
    let isDown = true
    const work = workflow({ name: 'work', retry: once }, async (ctx) => {
      const values = [ctx.now(), ctx.random(), ctx.uuid(), ctx.uuid()]
      await ctx.step('a', () => {})
      values.push(ctx.now(), await ctx.scope('inner', async () => ctx.uuid()))
      seen.push(values)
      await ctx.step('end', () => {
        if (isDown) throw new Error('down')
      })
      return values
    })
    const hf = await open()
    const run = await hf.start(work)
    await failureOf(run)
    isDown = false
    advance(3_600_000)
    await run.retry()
    expect(await run.result()).toEqual(seen[0])
    expect(seen[1]).toEqual(seen[0])
    const [now, random, uuid, other] = seen[0] as [number, number, string, string]
    expect(Math.abs(now - Date.now())).toBeLessThan(60_000)
    expect(random).toBeGreaterThanOrEqual(0)
    expect(random).toBeLessThan(1)
    expect(uuid).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/)
    expect(other).not.toBe(uuid)
  })

  it('and a suspension do not throw into the function: a finally block runs once, when the block really ends', async () => {
    const ran: string[] = []
    const work = workflow('work', async (ctx) => {
      try {
        await ctx.step('a', () => void ran.push('a'))
        await ctx.sleep(60_000)
        ran.push('awake')
      } catch {
        ran.push('caught')
      } finally {
        ran.push('finally')
      }
    })
    const hf = await open()
    const run = await hf.start(work)
    await becomes(run, 'waiting')
    await run.pause()
    await run.resume()
    await becomes(run, 'waiting')
    expect(ran).toEqual(['a'])
    advance(61_000)
    await run.result()
    expect(ran).toEqual(['a', 'awake', 'finally'])
  })

  it('of 300 steps reads the tape and executes none of them again', async () => {
    let bodies = 0
    let isDown = true
    const long = workflow({ name: 'long', retry: once }, async (ctx) => {
      let sum = 0
      for (let i = 0; i < 300; i++) {
        sum += await ctx.step('add', () => {
          bodies++
          return i
        })
      }
      await ctx.step('end', () => {
        if (isDown) throw new Error('down')
      })
      return sum
    })
    const hf = await open()
    const run = await hf.start(long)
    await failureOf(run)
    isDown = false
    await run.retry()
    expect(await run.result()).toBe((299 * 300) / 2)
    expect(bodies).toBe(300)
  })
})

onLocalStores('a function that no longer matches its log', ({ open, openMortal, advance }) => {
  /** Fails in its last step the first time, and does something else the second time. */
  const makeChanging = (name: string) => {
    const changing = { variant: 'as recorded', isDown: true, ran: [] as string[] }
    const variants: Record<string, readonly string[]> = {
      'as recorded': ['load', 'think', 'write', 'end'],
      'a renamed step': ['load', 'reflect', 'write', 'end'],
      'a removed step': ['load', 'write', 'end'],
      'an inserted step': ['load', 'look', 'think', 'write', 'end'],
      'an inserted first step': ['look', 'load', 'think', 'write', 'end'],
      'swapped steps': ['think', 'load', 'write', 'end'],
      'an earlier end': ['load'],
    }
    const work = workflow({ name, retry: once }, async (ctx) => {
      for (const step of variants[changing.variant] as readonly string[]) {
        await ctx.step(step, () => {
          if (step === 'end' && changing.isDown) throw new Error('down')
          changing.ran.push(step)
        })
      }
      return 'done'
    })
    return { changing, work }
  }

  async function removeBeforeWait(hf: Holdfast): Promise<void> {
    let isRemoved = false
    const wait = workflow('wait', async (ctx) => {
      await ctx.step('a', () => {})
      if (!isRemoved) await ctx.step('b', () => {})
      return ctx.waitFor('go')
    })
    const run = await hf.start(wait)
    await becomes(run, 'waiting')
    isRemoved = true
    await hf.signal(run.id, 'go', 1)
    await vi.waitUntil(async () => (await run.info()).status === 'paused', { timeout: 30_000 })
    expect(await run.info()).toMatchObject({ reason: 'mismatch' })
    isRemoved = false
    await run.resume()
    expect(await run.result()).toBe(1)
  }

  it('(a step renamed, removed, also before a wait, inserted, swapped, an earlier end) pauses once, shows both sides, and finishes with the code back', async () => {
    const hf = await open()
    const look = workflow('look', () => 'a run that shows that the worker has looked')
    // All at a time: a function is given some seconds to ask for what comes next.
    const variants = [
      ['a renamed step', 'think', 'reflect'],
      ['a removed step', 'think', 'write'],
      ['an inserted step', 'think', 'look'],
      ['an inserted first step', 'load', 'look'],
      ['swapped steps', 'load', 'think'],
      ['an earlier end', 'think', 'nothing'],
    ] as const
    const pauses = variants.map(async ([variant, recorded, asked]) => {
      const { changing, work } = makeChanging(variant)
      const run = await hf.start(work)
      await failureOf(run)
      changing.isDown = false
      changing.variant = variant
      await run.retry()
      await becomes(run, 'paused')
      const { reason, error } = await run.info()
      expect([variant, reason, (error as { code?: string }).code]).toEqual([variant, 'mismatch', 'nondeterminism'])
      expect(error?.message).toMatch(new RegExp(`log is .*${recorded}.*asked for .*${asked}`))
      expect([variant, changing.ran]).toEqual([variant, ['load', 'think', 'write']])
      return { run, changing }
    })
    const [paused] = await Promise.all([Promise.all(pauses), removeBeforeWait(hf)])
    advance(3_600_000)
    await hf.run(look)
    for (const { run, changing } of paused) {
      expect((await eventTypes(run)).filter((type) => type === 'run_paused')).toHaveLength(1)
      changing.variant = 'as recorded'
      await run.resume()
      expect(await run.result()).toBe('done')
      expect(changing.ran).toEqual(['load', 'think', 'write', 'end'])
    }
  })

  it('is given time when it only does something else in between', async () => {
    const pauseMs = 300
    let isDown = true
    const work = workflow({ name: 'work', retry: once }, async (ctx) => {
      await ctx.step('a', () => {})
      const free = (async () => {
        await new Promise((resolve) => setTimeout(resolve, pauseMs))
        return ctx.step('b', () => 'b')
      })()
      const parallel = ctx.step('c', () => free.then(() => 'c'))
      const results = await Promise.all([free, parallel])
      await ctx.step('end', () => {
        if (isDown) throw new Error('down')
      })
      return results
    })
    const hf = await open()
    const run = await hf.start(work)
    await failureOf(run)
    isDown = false
    await run.retry()
    expect(await run.result()).toEqual(['b', 'c'])
  })

  it('a step added behind everything that was recorded is simply executed', async () => {
    const ran: string[] = []
    let hasMore = false
    const work = workflow({ name: 'work', retry: once }, async (ctx) => {
      await ctx.step('a', () => void ran.push('a'))
      if (hasMore) await ctx.step('b', () => void ran.push('b'))
      await ctx.step('end', () => {
        if (!hasMore) throw new Error('down')
      })
    })
    const { hf, dead } = await openMortal({ workflows: [work] }, { after: 'run_failed' })
    await hf.start(work, undefined, { id: 'r' })
    await dead
    advance(11_000)
    hasMore = true
    const heir = await open({ workflows: [work] })
    const run = await heir.runs.get('r')
    await run.retry()
    await run.result()
    expect(ran).toEqual(['a', 'b'])
  })
})

onLocalStores('ctx.map', ({ open, openMortal, advance }) => {
  it('runs steps name[0], name[1], … and gives their results in the order of the items', async () => {
    const work = workflow('work', (ctx) =>
      ctx.map('double', [3, 1, 2], async (item, index) => {
        if (index === 0) await new Promise((resolve) => setImmediate(resolve))
        return item * 2
      }),
    )
    const hf = await open()
    const run = await hf.start(work)
    expect(await run.result()).toEqual([6, 2, 4])
    const { completedSteps } = await run.info()
    expect([...completedSteps].sort()).toEqual(['double[0]', 'double[1]', 'double[2]'])
    expect(new Set((await run.events()).flatMap(({ step }) => step ?? []))).toEqual(
      new Set(['double[0]', 'double[1]', 'double[2]']),
    )
  })

  it('keeps finished items if another fails; retry() executes only the failed and the unfinished ones', async () => {
    const ran: number[] = []
    let isDown = true
    const work = workflow({ name: 'work', retry: once }, (ctx) =>
      ctx.map(
        'item',
        [0, 1, 2, 3, 4, 5],
        (item) => {
          ran.push(item)
          if (item === 3 && isDown) throw new Error('item 3 is down')
          return item
        },
        { concurrency: 2 },
      ),
    )
    const hf = await open()
    const run = await hf.start(work)
    expect((await failureOf(run)).message).toBe('item 3 is down')
    const before = [...ran]
    const done = (await run.info()).completedSteps.map((name) => Number(name.slice(5, -1)))
    isDown = false
    await run.retry()
    expect(await run.result()).toEqual([0, 1, 2, 3, 4, 5])
    for (const item of done) expect(ran.filter((one) => one === item)).toHaveLength(1)
    expect(ran.slice(before.length).sort()).toEqual([0, 1, 2, 3, 4, 5].filter((item) => !done.includes(item)))
  })

  it('never has more items at work than concurrency says', async () => {
    let atWork = 0
    let most = 0
    const work = workflow('work', (ctx) =>
      ctx.map(
        'item',
        Array.from({ length: 20 }, (_, i) => i),
        async () => {
          most = Math.max(most, ++atWork)
          await new Promise((resolve) => setImmediate(resolve))
          atWork--
        },
        { concurrency: 3 },
      ),
    )
    const hf = await open()
    await hf.run(work)
    expect(most).toBe(3)
  })

  it('keeps finished items over a crash', async () => {
    const ran: number[] = []
    const hanging = gate()
    const work = workflow('work', (ctx) =>
      ctx.map(
        'item',
        [0, 1, 2, 3],
        (item) => {
          ran.push(item)
          if (item !== 3 || ran.filter((one) => one === 3).length > 1) return item * 10
          hanging.open()
          return new Promise<number>(() => {})
        },
        { concurrency: 1 },
      ),
    )
    const { hf, die } = await openMortal({ workflows: [work] })
    await hf.start(work, undefined, { id: 'r' })
    await hanging.promise
    await die()
    const heir = await open({ workflows: [work] })
    advance(11_000)
    expect(await (await heir.runs.get('r')).result()).toEqual([0, 10, 20, 30])
    expect(ran).toEqual([0, 1, 2, 3, 3])
  })

  it('of no items gives no results', async () => {
    const hf = await open()
    expect(await hf.run(workflow('work', (ctx) => ctx.map('item', [], () => 1)))).toEqual([])
  })
})

onLocalStores('ctx.scope', ({ open }) => {
  it('prefixes the names inside, at any depth, and counts each path for itself', async () => {
    const work = workflow('work', async (ctx) => {
      await ctx.step('fetch', () => {})
      const both = await Promise.all(
        ['left', 'right'].map((side) =>
          ctx.scope(side, async (inner) => {
            await inner.step('fetch', () => {})
            // The outer ctx means the same scope inside.
            await ctx.step('fetch', () => {})
            return ctx.scope('deep', () => ctx.step('fetch', () => side))
          }),
        ),
      )
      await ctx.step('fetch', () => {})
      return both
    })
    const hf = await open()
    const run = await hf.start(work)
    expect(await run.result()).toEqual(['left', 'right'])
    const { completedSteps } = await run.info()
    expect([...completedSteps].sort()).toEqual(
      ['fetch', 'fetch', 'left/deep/fetch', 'left/fetch', 'left/fetch', 'right/deep/fetch', 'right/fetch', 'right/fetch'].sort(),
    )
  })

  it('retrying a run with a scope keeps inner successes and reopens inner failures', async () => {
    const ran: string[] = []
    let isDown = true
    const work = workflow({ name: 'work', retry: once }, (ctx) =>
      ctx.scope('gather', async () => {
        await ctx.step('fetch', () => void ran.push('fetch'))
        await ctx.step('parse', () => {
          ran.push('parse')
          if (isDown) throw new Error('down')
        })
        return 'gathered'
      }),
    )
    const hf = await open()
    const run = await hf.start(work)
    await failureOf(run)
    expect(await run.info()).toMatchObject({ currentStep: 'gather/parse', completedSteps: ['gather/fetch'] })
    isDown = false
    await run.retry()
    expect(await run.result()).toBe('gathered')
    expect(ran).toEqual(['fetch', 'parse', 'parse'])
  })

  it('and step names refuse / and [, which are ours', async () => {
    const hf = await open()
    for (const [index, name] of ['a/b', 'a[0]', '', 'a\u0000', 'x'.repeat(513)].entries()) {
      for (const method of ['step', 'scope'] as const) {
        const work = workflow(`work-${index}-${method}`, (ctx: Pick<Context, 'scope'>) => ctx[method as 'scope'](name, () => 1))
        expect(await failureOf(await hf.start(work))).toMatchObject({ code: 'invalid_id' })
      }
    }
  })
})

onEveryStore('ctx.begin', ({ open }) => {
  it('gives the two halves of a step; what was completed is recorded and not begun again', async () => {
    const begun: string[] = []
    let isDown = true
    const work = workflow({ name: 'work', retry: once }, async (ctx) => {
      const results: unknown[] = []
      for (const name of ['first', 'second']) {
        const step = await ctx.begin<{ of: string }>(name)
        if ('recorded' in step) {
          results.push(step.recorded)
          continue
        }
        begun.push(name)
        results.push(await step.complete({ of: name }))
      }
      await ctx.step('end', () => {
        if (isDown) throw new Error('down')
      })
      return results
    })
    const hf = await open()
    const run = await hf.start(work)
    await failureOf(run)
    isDown = false
    await run.retry()
    expect(await run.result()).toEqual([{ of: 'first' }, { of: 'second' }])
    expect(begun).toEqual(['first', 'second'])
    expect((await eventTypes(run, 'step')).slice(0, 4)).toEqual([
      'step_started',
      'step_completed',
      'step_started',
      'step_completed',
    ])
  })

  it('fail() records a final failure, which begin throws on replay and retry() reopens', async () => {
    let isDown = true
    const work = workflow('work', async (ctx) => {
      const step = await ctx.begin<string>('call')
      const error = new Error('down')
      if (isDown) {
        await step.fail(error)
        throw error
      }
      return step.complete('up')
    })
    const hf = await open()
    const run = await hf.start(work)
    expect((await failureOf(run)).message).toBe('down')
    expect(await eventTypes(run, 'step')).toEqual(['step_started', 'step_failed'])
    expect(await run.info()).toMatchObject({ currentStep: 'call' })
    isDown = false
    await run.retry()
    expect(await run.result()).toBe('up')
  })

  it('does not hold up another attempt of a section beside it, whose stop holds its own calls back', async () => {
    const work = workflow('work', async (ctx) => {
      const section = ctx.section(
        'section',
        () =>
          ctx.step(
            'once',
            ({ attempt }) => {
              if (attempt === 1) throw new Error('first')
              return attempt
            },
            { retry: { attempts: 1 } },
          ),
        { retry: { attempts: 2, minMs: 1 } },
      )
      const begun = (async () => {
        const step = await ctx.begin<number>('begun')
        await ctx.waitFor('go')
        return step.recorded ?? (await step.complete(await ctx.step('inside', () => 3)))
      })()
      return await Promise.all([section, begun])
    })
    const hf = await open({ workflows: [work], worker: { quietMs: 20 } })
    const run = await hf.start(work, undefined, { id: 'r' })
    await vi.waitUntil(async () => (await run.info()).completedSteps.includes('section'))
    await hf.signal('r', 'go')
    expect(await run.result()).toEqual([2, 3])
  })

  it('completed twice is refused with conflict', async () => {
    const work = workflow('work', async (ctx) => {
      const step = await ctx.begin<number>('call')
      await step.complete(1)
      return step.complete(2).catch((error: { code?: string }) => error.code)
    })
    const hf = await open()
    expect(await hf.run(work)).toBe('conflict')
  })

  it('lets the function continue as early as on a replay, beside branches that only read the state', async () => {
    const list = state({ version: 1, initial: () => ({ words: [] as string[] }) })
    const work = workflow({ name: 'work', state: list }, async (ctx, ticks: number) => {
      const reads = async () => {
        ctx.update((draft) => void draft.words.push('read'))
        for (let tick = 0; tick < ticks; tick++) await null
        await ctx.step(`saw ${ctx.state.words.length}`, () => {})
      }
      const begins = async () => {
        const step = await ctx.begin('begun')
        ctx.update((draft) => void draft.words.push('begun'))
        await step.complete(undefined)
      }
      await Promise.all([reads(), begins()])
      await ctx.waitFor('go')
    })
    const hf = await open({ workflows: [work] })
    for (let ticks = 0; ticks < 12; ticks++) {
      const run = await hf.start(work, ticks)
      await becomes(run, 'waiting')
      await hf.signal(run.id, 'go')
      await run.result()
    }
  })
})

onEveryStore('ctx.sleep', ({ open, advance }) => {
  const dayMs = 24 * 3_600_000

  it('of sixty days waits as a row, does not fire early, and fires once', async () => {
    const ran: string[] = []
    const work = workflow('work', async (ctx) => {
      await ctx.step('before', () => void ran.push('before'))
      await ctx.sleep(60 * dayMs)
      await ctx.step('after', () => void ran.push('after'))
      return 'awake'
    })
    const first = await open({ workflows: [work] })
    const run = await first.start(work, undefined, { id: 'r' })
    await becomes(run, 'waiting')
    expect(await run.info()).toMatchObject({ reason: 'timer', completedSteps: ['before'] })
    await first.close()

    const hf = await open({ workflows: [work] })
    const later = await hf.runs.get('r')
    const look = workflow('look', () => 'a run that shows that the worker has looked')
    for (const days of [1, 24, 34]) {
      advance(days * dayMs)
      await hf.run(look)
      expect(await later.info()).toMatchObject({ status: 'waiting' })
    }
    advance(dayMs - 60_000)
    await hf.run(look)
    expect(await later.info()).toMatchObject({ status: 'waiting' })
    advance(70_000)
    expect(await later.result()).toBe('awake')
    expect(ran).toEqual(['before', 'after'])
    expect(await eventTypes(later, 'timer')).toEqual(['timer_set', 'timer_fired'])
  })

  it('frees its worker also when the last results beside it set nothing off', async () => {
    const work = workflow('work', (ctx) =>
      Promise.all([ctx.sleep(dayMs), ...Array.from({ length: 12 }, (_, index) => ctx.checkpoint(`beside ${index}`))]),
    )
    const hf = await open()
    await becomes(await hf.start(work), 'waiting')
  })

  it('takes a Date', async () => {
    const work = workflow('work', async (ctx, until: Date) => {
      await ctx.sleep(until)
      return ctx.now() >= until.getTime()
    })
    const hf = await open()
    const run = await hf.start(work, new Date(Date.now() + dayMs))
    await becomes(run, 'waiting')
    advance(dayMs + 1_000)
    expect(await run.result()).toBe(true)
  })

  it('until a time that is past goes on at once', async () => {
    const work = workflow('work', async (ctx) => {
      await ctx.sleep(new Date(0))
      await ctx.sleep(0)
      await ctx.sleep(-5)
      return 'awake'
    })
    const hf = await open()
    expect(await hf.run(work)).toBe('awake')
  })

  it('that is short keeps the run in memory, and is not slept a second time after a failure', async () => {
    let isDown = true
    const work = workflow({ name: 'work', retry: once }, async (ctx) => {
      await ctx.sleep(30)
      await ctx.step('end', () => {
        if (isDown) throw new Error('down')
      })
    })
    const hf = await open()
    const run = await hf.start(work)
    await failureOf(run)
    isDown = false
    await run.retry()
    await run.result()
    expect(await eventTypes(run, 'timer')).toEqual(['timer_set', 'timer_fired'])
  })

  it('refuses what is no time with invalid_input', async () => {
    const hf = await open()
    const wrongs = [Number.NaN, new Date('never'), Number.POSITIVE_INFINITY, 1e300, '5' as never, undefined as never]
    for (const [index, wrong] of wrongs.entries()) {
      const work = workflow(`work-${index}`, (ctx) => ctx.sleep(wrong))
      expect(await failureOf(await hf.start(work))).toMatchObject({ code: 'invalid_input' })
    }
  })

  it('beside a step at work does not stop that step, and the run waits as a row once it is done', async () => {
    const ran: string[] = []
    const work = workflow('work', async (ctx) => {
      await Promise.all([
        ctx.sleep(dayMs),
        ctx.step('beside', async () => {
          await new Promise((resolve) => setTimeout(resolve, 20))
          ran.push('beside')
        }),
      ])
      return ran.length
    })
    const hf = await open()
    const run = await hf.start(work)
    await becomes(run, 'waiting')
    expect(ran).toEqual(['beside'])
    advance(dayMs + 1_000)
    expect(await run.result()).toBe(1)
  })

  it('raced against a step goes the same way again after the process was closed', async () => {
    const ran: string[] = []
    const never = gate()
    const work = workflow('work', async (ctx) => {
      const winner = await Promise.race([
        ctx.sleep(60_000).then(() => 'timer'),
        ctx
          .step('slow', async (step) => {
            ran.push('slow')
            step.signal.addEventListener('abort', () => never.open())
            await never.promise
            throw new Error('aborted')
          })
          .then(() => 'step'),
      ])
      await ctx.step(`after ${winner}`, () => void ran.push(winner))
      await ctx.sleep(60_000)
      return winner
    })
    const hf = await open({ workflows: [work], worker: { closeGraceMs: 0 } })
    const run = await hf.start(work, undefined, { id: 'r' })
    await logged(run, 'timer_set')
    await hf.close()
    advance(61_000)
    const second = await open({ workflows: [work] })
    expect(await (await second.runs.get('r')).info()).toMatchObject({ status: expect.stringMatching(/pending|running|waiting/) })
    await becomes(await second.runs.get('r'), 'waiting')
    advance(61_000)
    expect(await (await second.runs.get('r')).result()).toBe('timer')
    expect(ran.filter((name) => name === 'timer')).toHaveLength(1)
  })
})

onEveryStore('ctx.continueAs', ({ open, openMortal, advance }) => {
  it('goes on with a fresh tape under the same run id, on the same thread and state', async () => {
    const ran: string[] = []
    const agent = workflow(
      { name: 'agent', state: state({ version: 1, initial: () => ({ days: 0 }) }) },
      async (ctx, day: number) => {
        await ctx.step('work', (step) => {
          ran.push(`day ${day}`)
          step.update((draft) => {
            draft.days += 1
          })
        })
        if (day < 4) return ctx.continueAs(day + 1)
        return { day, days: ctx.state.days }
      },
    )
    const hf = await open()
    const run = await hf.start(agent, 1, { id: 'r' })
    expect(await run.result()).toEqual({ day: 4, days: 4 })
    expect(ran).toEqual(['day 1', 'day 2', 'day 3', 'day 4'])
    expect(await run.info()).toMatchObject({ id: 'r', status: 'completed', completedSteps: ['work'] })
    expect((await eventTypes(run, 'run')).filter((type) => type === 'run_started')).toHaveLength(4)
  })

  it('after a crash replays the last tape only', async () => {
    const ran: string[] = []
    const hanging = gate()
    const agent = workflow('agent', async (ctx, day: number) => {
      await ctx.step('work', () => void ran.push(`day ${day}`))
      if (day < 3) return ctx.continueAs(day + 1)
      return ctx.step('last', () => {
        if (ran.push('last') > 4) return 'done'
        hanging.open()
        return new Promise<string>(() => {})
      })
    })
    const { hf, die } = await openMortal({ workflows: [agent] })
    await hf.start(agent, 1, { id: 'r' })
    await hanging.promise
    await die()
    const heir = await open({ workflows: [agent] })
    advance(11_000)
    expect(await (await heir.runs.get('r')).result()).toBe('done')
    expect(ran).toEqual(['day 1', 'day 2', 'day 3', 'last', 'last'])
  })

  it('carries the changes of the state that were not committed yet into the new tape', async () => {
    const agent = workflow('agent', async (ctx, n: number) => {
      ctx.update((draft) => {
        draft['n'] = n
      })
      return n < 3 ? ctx.continueAs(n + 1) : ctx.state
    })
    const hf = await open()
    const run = await hf.start(agent, 1)
    expect(await run.result()).toEqual({ n: 3 })
    expect(await hf.thread(run.threadId).state()).toEqual({ n: 3 })
  })

  it('gives start with the first input the same run, and another input is input_mismatch', async () => {
    const agent = workflow('agent', async (ctx, n: number): Promise<number> => (n < 2 ? ctx.continueAs(n + 1) : n))
    const hf = await open()
    await hf.run(agent, 1, { id: 'r' })
    expect(await hf.run(agent, 1, { id: 'r' })).toBe(2)
    await expect(hf.start(agent, 2, { id: 'r' })).rejects.toMatchObject({ code: 'input_mismatch' })
  })
})

onLocalStores('ctx.checkpoint', ({ open }) => {
  it('is a checkpoint by hand, with a label or without, that a replay does not make again', async () => {
    let isDown = true
    const work = workflow({ name: 'work', retry: once }, async (ctx) => {
      ctx.update((draft) => {
        draft['n'] = 1
      })
      await ctx.checkpoint('one')
      ctx.update((draft) => {
        draft['n'] = 2
      })
      await ctx.checkpoint()
      await ctx.step('end', () => {
        if (isDown) throw new Error('down')
      })
    })
    const hf = await open()
    const run = await hf.start(work, undefined, { id: 'r' })
    await failureOf(run)
    isDown = false
    await run.retry()
    await run.result()
    const byHand = (await hf.thread('r').checkpoints()).filter(({ step }) => step === 'checkpoint')
    expect(byHand.map(({ label }) => label)).toEqual(['one', undefined])
    expect(await hf.thread('r').stateAt('one')).toEqual({ n: 1 })
    expect(await hf.thread('r').stateAt(byHand[1]?.checkpoint as string)).toEqual({ n: 2 })
  })

  it('refuses a label that is no id with invalid_id', async () => {
    const hf = await open()
    for (const [index, label] of ['', 'a\nb', 'x'.repeat(513)].entries()) {
      const work = workflow(`work-${index}`, (ctx) => ctx.checkpoint(label))
      expect(await failureOf(await hf.start(work))).toMatchObject({ code: 'invalid_id' })
    }
  })
})
