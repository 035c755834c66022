import { existsSync } from 'node:fs'
import {
  type AnyWorkflow,
  type Context,
  type EffectOptions,
  NotHappened,
  type StepHandle,
  type StepOptions,
  state,
  workflow,
} from 'holdfast'
import type { World } from './world.ts'

/** The state of the threads under test. */
export interface Diary {
  count: number
  /** In the order in which they reached the log. */
  entries: string[]
  values: Values | null
}

export interface Values {
  readonly uuid: string
  readonly at: number
  readonly chance: number
}

const diary = state<Diary>({ version: 1, initial: () => ({ count: 0, entries: [], values: null }) })

type Ctx = Context<Diary>

/** How an effect of each class is declared, and whether the provider helps. */
export const effectClasses = ['idempotent', 'check', 'neither'] as const
export type EffectClass = (typeof effectClasses)[number]

/** All workflows of the crash tests, bound to one process's world. */
export function workflowsOf(world: World): Record<string, AnyWorkflow> {
  const tools = toolsOf(world)
  const list = [
    everything(world, tools),
    reader(tools),
    ...windowWorkflows(world, tools),
    errand(world, tools),
    bystander(tools),
    ...deadlyWorkflows(tools),
    steady(tools),
    trifle(tools),
    traveller(world, tools),
    ...envoyWorkflows(world, tools),
    herald(tools),
  ]
  return Object.fromEntries(list.map((one) => [one.name, one]))
}

/** Steps and effects that count their bodies and note their acknowledgements. */
function toolsOf(world: World) {
  /** `tape` tells the calls of one continuation from those of the next. */
  function on(ctx: Ctx, tape = 1) {
    const body = (path: string, attempt: number) => world.body({ run: ctx.runId, tape, path, attempt })
    const ack = (path: string) => world.ack({ run: ctx.runId, tape, path })

    async function step<T>(
      path: string,
      run: (handle: StepHandle<Diary>) => Promise<T> | T,
      options?: StepOptions<T, 'fail' | 'pause'>,
    ): Promise<T> {
      const counted = (handle: StepHandle<Diary>) => {
        body(path, handle.attempt)
        return run(handle)
      }
      const value = await ctx.step(path.slice(path.lastIndexOf('/') + 1), counted, options)
      if (options?.checkpoint !== false) ack(path)
      return value
    }

    async function once<T>(name: string, options: EffectOptions<T>): Promise<T> {
      const run: EffectOptions<T>['run'] = (key, effect) => {
        body(name, effect.attempt)
        return options.run(key, effect)
      }
      const value = await ctx.once(name, { ...options, run })
      ack(name)
      return value
    }

    return { body, ack, step, once }
  }

  /** An effect of a class that sends to the provider. */
  function sending(name: string, effectClass: EffectClass, body?: unknown): EffectOptions<{ receipt: string }> {
    return {
      run: (key) => world.send({ name, key, body, dedupes: effectClass === 'idempotent' }),
      retry: { attempts: 3, minMs: 1, maxMs: 2 },
      ...(effectClass === 'idempotent' && { idempotent: true }),
      ...(effectClass === 'check' && {
        check: async (key: string) => {
          const { happened, receipt } = await world.provider.look(key)
          return happened ? { happened, result: { receipt: receipt as string } } : { happened: false }
        },
      }),
    }
  }

  return { on, sending }
}

type Tools = ReturnType<typeof toolsOf>
type Calls = ReturnType<Tools['on']>

export interface EverythingInput {
  readonly round: number
  readonly made?: readonly unknown[]
  readonly winners?: readonly string[]
}

export interface EverythingOutput {
  /** Those of the last round. */
  readonly values: Values
  readonly echoed: Values
  /** Of each round. */
  readonly winners: readonly string[]
  /** All else: the same after any number of kills. */
  readonly made: readonly unknown[]
}

/** One run that uses all there is: the crash tests kill it everywhere. */
function everything(world: World, { on, sending }: Tools): AnyWorkflow {
  const write =
    (entry: string, by = 1) =>
    (draft: Diary) => {
      draft.count += by
      draft.entries.push(entry)
    }

  async function plainWork(ctx: Ctx, { step, body, ack }: Calls, values: Values) {
    ctx.update(write('begun'))
    const loaded = await step('load', () => ({ rows: [1, 2, 3], at: new Date(0) }))
    ctx.update((draft) => {
      draft.values = { ...values }
    })
    const grown = await step('grow', (handle) => {
      handle.update(write('grow', 10))
      return loaded.rows.length
    })
    const sides = await Promise.all(
      ['left', 'middle', 'right'].map((name, index) =>
        step(name, async (handle) => {
          await wait(index)
          handle.update(write(name, 100))
          return name
        }),
      ),
    )
    const squares = await ctx.map(
      'square',
      [1, 2, 3, 4],
      (item, index, handle) => {
        body(`square[${index}]`, handle.attempt)
        handle.update(write(`square[${index}]`, 1_000))
        return item * item
      },
      { concurrency: 2 },
    )
    ctx.update(write('squared'))
    const flaky = await step(
      'flaky',
      (handle) => {
        handle.update(write('flaky', 10_000))
        if (handle.attempt === 1) throw new Error('not yet')
        return handle.attempt
      },
      { retry: { attempts: 3, minMs: 2, maxMs: 4 } },
    )
    const inner = await ctx.scope('group', async () => [
      await step('group/one', () => 'one'),
      await step('group/two', (handle) => {
        handle.update(write('group/two'))
        return 'two'
      }),
    ])
    const tried = await ctx.section(
      'tried',
      async () => {
        ctx.update(write('tried'))
        const kept = await step('tried/kept', (handle) => {
          handle.update(write('tried/kept'))
          return 'kept'
        })
        const again = await step('tried/again', ({ attempt }) => failUntil(2, attempt), { retry: { attempts: 1 } })
        return { kept, again }
      },
      { retry: { attempts: 3, minMs: 2, maxMs: 4 } },
    )
    ack('tried')
    const light = await step('light', () => 'light', { checkpoint: false })
    await ctx.sleep(5)
    ack('sleep')
    return { loaded, grown, sides, squares, flaky, inner, tried, light }
  }

  async function effects(ctx: Ctx, { once }: Calls, values: Values) {
    const lost = await once('pay', {
      ...sending('pay', 'idempotent', values),
      // The answer to the first attempt is lost on the way: it is sent again under the same key.
      run: async (key, { attempt }) => {
        const answer = await world.send({ name: 'pay', key, body: values, dedupes: true })
        if (attempt === 1) throw new Error('the line went dead')
        return answer
      },
    })
    ctx.update(write('paid'))
    const mailed = await once('mail', sending('mail', 'check', values))
    const posted = await once('post', sending('post', 'neither', values))
    const booked = await once('book', {
      ...sending('book', 'neither', values),
      run: (key, { attempt }) => {
        if (attempt === 1) throw new NotHappened(new Error('sold out'))
        return world.send({ name: 'book', key, body: values })
      },
    })
    return { lost, mailed, posted, booked }
  }

  async function sharedWork(ctx: Ctx, { once, body, ack }: Calls, round: number) {
    const shared = { ...sending('share', 'idempotent'), key: `shared of ${ctx.threadId}` }
    const shares = [await once('share', shared), await once('share', shared)]
    const { orders } = world
    if (orders === null) return { shares }
    const order = await ctx.transaction('order', async (tx) => {
      body('order', 1)
      await tx.query(orders.insert, [ctx.runId, round])
      return tx.query(orders.count, [ctx.runId])
    })
    ack('order')
    return { shares, order }
  }

  /** Whichever is first goes into the output, and must stay the first. */
  async function race({ step }: Calls): Promise<string> {
    const tortoise = step('tortoise', () => wait(3).then(() => 'tortoise'))
    const hare = step('hare', () => wait(1).then(() => 'hare'))
    const winner = await Promise.race([tortoise, hare])
    await Promise.all([tortoise, hare])
    return winner
  }

  return workflow<EverythingInput, EverythingOutput, Diary>({ name: 'everything', state: diary }, async (ctx, input) => {
    const { round } = input
    const calls = on(ctx, round)
    const values = { uuid: ctx.uuid(), at: ctx.now(), chance: ctx.random() }
    const echoed = await calls.step('echo', () => values)
    const made: unknown[] = [...(input.made ?? [])]
    if (round === 1) made.push(await plainWork(ctx, calls, values), await effects(ctx, calls, values))
    const winners = [...(input.winners ?? []), await race(calls)]
    made.push(await sharedWork(ctx, calls, round))
    await ctx.checkpoint(`round ${round}`)
    ctx.update(write(`round ${round}`))
    made.push(ctx.state.count)
    if (round === 1) await ctx.continueAs({ round: 2, made, winners })
    return { values, echoed, winners, made }
  })
}

/** A second run on the same thread: it sees what the first has left. */
function reader({ on }: Tools): AnyWorkflow {
  return workflow<undefined, unknown, Diary>({ name: 'reader', state: diary }, async (ctx) => {
    const before = ctx.state.count
    await on(ctx).step('reread', (handle) => {
      handle.update((draft) => {
        draft.count += 1
        draft.entries.push('reread')
      })
    })
    return { before, after: ctx.state.count }
  })
}

/** How many operations a run of the windows test has. */
export const operationCount = 5

/** Five operations of one class after each other. `windows-step` calls the provider from a plain step: at least once. */
function windowWorkflows(world: World, { on, sending }: Tools): AnyWorkflow[] {
  const names = Array.from({ length: operationCount }, (_, index) => `op${index + 1}`)
  const ofEffects = effectClasses.map((effectClass) =>
    workflow<undefined, unknown, Diary>({ name: `windows-${effectClass}`, state: diary }, async (ctx) => {
      const receipts = []
      for (const name of names) receipts.push(await on(ctx).once(name, sending(name, effectClass)))
      return receipts
    }),
  )
  const ofSteps = workflow<undefined, unknown, Diary>({ name: 'windows-step', state: diary }, async (ctx) => {
    const receipts = []
    for (const name of names) receipts.push(await on(ctx).step(name, ({ key }) => world.send({ name, key })))
    return receipts
  })
  return [...ofEffects, ofSteps]
}

export interface ErrandInput {
  readonly effect: EffectClass
  /** How long the step `inside` takes. */
  readonly insideMs?: number
}

/** Every way in which a run writes, one after another: its holder is stopped at each. */
function errand(world: World, { on, sending }: Tools): AnyWorkflow {
  return workflow<ErrandInput, unknown, Diary>({ name: 'errand', state: diary }, async (ctx, { effect, insideMs = 0 }) => {
    const { step, once, body } = on(ctx)
    const enter = (entry: string) => (draft: Diary) => void draft.entries.push(`${entry} by life ${world.life}`)
    try {
      ctx.update(enter('begun'))
      await step('before', (handle) => handle.update(enter('before')))
      await step('inside', () => (insideMs === 0 ? undefined : wait(insideMs)))
      const { receipt } = await once('send', sending('send', effect))
      ctx.update(enter('sent'))
      await ctx.sleep(1)
      const { orders } = world
      if (orders !== null) {
        await ctx.transaction('order', async (tx) => {
          body('order', 1)
          await tx.query(orders.insert, [ctx.runId, 1])
        })
      }
      await ctx.checkpoint('done')
      return { receipt, life: world.life }
    } catch (error) {
      world.journal.write({ kind: 'thrown', run: ctx.runId, code: String((error as { code?: unknown }).code) })
      throw error
    }
  })
}

/** Goes on, step by step, until a file says that it is enough. */
function bystander({ on }: Tools): AnyWorkflow {
  return workflow<{ until: string }, unknown, Diary>({ name: 'bystander', state: diary }, async (ctx, { until }) => {
    const { step } = on(ctx)
    for (let looks = 1; ; looks++) {
      const isEnough = await step('look', async () => {
        await wait(20)
        return existsSync(until)
      })
      if (isEnough) return looks
    }
  })
}

/** Workflows that bring their process down. */
function deadlyWorkflows({ on }: Tools): AnyWorkflow[] {
  const poison = workflow<undefined, unknown, Diary>({ name: 'poison', state: diary }, () => process.exit(70))
  const killer = workflow<{ by: 'kill' | 'memory'; afterMs: number }, unknown, Diary>(
    { name: 'killer', state: diary },
    async (ctx, { by, afterMs }) => {
      const { step } = on(ctx)
      await step('harmless', () => 'harmless')
      const deadly = async () => {
        await wait(afterMs)
        if (by === 'kill') process.kill(process.pid, 'SIGKILL')
        const hoard: unknown[] = []
        for (;;) hoard.push(new Array(100_000).fill(hoard.length))
      }
      const made = await step('deadly', deadly, { fallback: (error) => `fallback after ${(error as { code?: string }).code}` })
      return made
    },
  )
  return [poison, killer]
}

/** Short steps, one of a length to choose, and a short wait. */
function steady({ on }: Tools): AnyWorkflow {
  return workflow<{ longMs: number; isLongFirst?: boolean }, unknown, Diary>(
    { name: 'steady', state: diary },
    async (ctx, { longMs, isLongFirst = false }) => {
      const { step } = on(ctx)
      for (let n = isLongFirst ? 6 : 1; n <= 5; n++) await step(`short${n}`, () => wait(10))
      await step('long', (handle) => {
        handle.update((draft) => void draft.entries.push('long'))
        return wait(longMs)
      })
      await ctx.sleep(20)
      for (let n = 6; n <= 8; n++) await step(`short${n}`, () => wait(10))
      return 'done'
    },
  )
}

/** As little as a run can be. */
function trifle({ on }: Tools): AnyWorkflow {
  return workflow<undefined, unknown, Diary>({ name: 'trifle', state: diary }, (ctx) => on(ctx).step('only', () => 'done'))
}

/** The effects of a traveller, by class. */
export const travellerEffects: Readonly<Record<string, EffectClass>> = { fare: 'idempotent', hotel: 'check', letter: 'neither' }

/** What a run may be doing when its store goes away: steps, parallel ones, effects of each class, state, waiting. */
function traveller(world: World, { on, sending }: Tools): AnyWorkflow {
  return workflow<{ waitMs: number }, unknown, Diary>({ name: 'traveller', state: diary }, async (ctx, { waitMs }) => {
    const { step, once, ack } = on(ctx)
    const enter = (entry: string) => (draft: Diary) => {
      draft.count += 1
      draft.entries.push(entry)
    }
    await step('pack', (handle) => handle.update(enter('pack')))
    for (const [name, effectClass] of Object.entries(travellerEffects)) {
      await once(name, sending(name, effectClass))
      ctx.update(enter(name))
    }
    await ctx.sleep(waitMs)
    ack('sleep')
    await Promise.all(['left', 'right'].map((name) => step(name, (handle) => wait(5).then(() => handle.update(enter(name))))))
    const { orders } = world
    if (orders !== null) {
      await ctx.transaction('order', (tx) => tx.query(orders.insert, [ctx.runId, 1]))
      ack('order')
    }
    return ctx.state.count
  })
}

/** Waits for others in every way there is, and is rolled back once on its way. What the others do is in envoy-others.ts. */
function envoyWorkflows(world: World, { on }: Tools): AnyWorkflow[] {
  const clerk = workflow<number, number, Diary>({ name: 'clerk', state: diary }, (ctx, n) => on(ctx).step('stamp', () => n * 2))
  const enter = (entry: string) => (draft: Diary) => {
    draft.count += 1
    draft.entries.push(entry)
  }
  const envoy = workflow<undefined, unknown, Diary>({ name: 'envoy', state: diary }, async (ctx) => {
    await on(ctx).step('pack', (handle) => handle.update(enter('pack')))
    const stamps = await Promise.all([ctx.call(clerk, 1), ctx.call(clerk, 2)])
    const permit = await ctx.waitFor<string>('permit')
    const name = await ctx.ask('name', { question: 'Who goes there?' })
    await ctx.checkpoint('gate')
    // Made twice, because it is undone once: no business of those who count bodies.
    await ctx.step('cross', (handle) => handle.update(enter('cross')), {
      undo: async () => {
        await wait(1)
        world.journal.write({ kind: 'undone', run: ctx.runId, path: 'cross' })
      },
    })
    const turn = await ctx.waitFor<string>('turn', { timeoutMs: 86_400_000 })
    await ctx.sleep(5)
    return { stamps, permit, name, turn, entries: ctx.state.entries }
  })
  return [clerk, envoy]
}

/** What a herald says aloud, by who says it: the function itself, and its step. */
export const speech = { name: 'speech', ofFunction: ['hear', 'heard'], ofStep: ['the', 'king', 'is', 'well'] } as const

/** Others hear of it twice: when it asks, and when it is over. Who listens hears its speech. */
function herald({ on }: Tools): AnyWorkflow {
  return workflow<undefined, unknown, Diary>({ name: 'herald', state: diary }, async (ctx) => {
    const [first, last] = speech.ofFunction
    await ctx.stream(speech.name).write(first)
    const speak = async (handle: StepHandle<Diary>) => {
      for (const [index, word] of speech.ofStep.entries()) {
        await handle.stream(speech.name).write(word)
        // Longer than chunks are gathered: some are there before the result, or before the failure.
        if (index === 1) await wait(60)
        if (index === 2 && handle.attempt === 1) throw new Error('lost for words')
      }
      return speech.ofStep.length
    }
    const words = await on(ctx).step('speak', speak, { retry: { attempts: 3, minMs: 1, maxMs: 2 } })
    await ctx.stream(speech.name).write(last)
    return { words, name: await ctx.ask('name', { question: 'Who speaks?' }) }
  })
}

function wait(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms))
}

function failUntil(last: number, attempt: number): number {
  if (attempt < last) throw new Error(`attempt ${attempt} is not yet ${last}`)
  return attempt
}
