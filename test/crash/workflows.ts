import { type AnyWorkflow, type Context, type EffectOptions, NotHappened, type StepHandle, type StepOptions, state, workflow } from 'holdfast'
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

export const diary = state<Diary>({ version: 1, initial: () => ({ count: 0, entries: [], values: null }) })

type Ctx = Context<Diary>

/** How an effect of each class is declared, and whether the provider helps. */
export const effectClasses = ['idempotent', 'check', 'neither'] as const
export type EffectClass = (typeof effectClasses)[number]

/** All workflows of the crash tests, bound to one process's world. */
export function workflowsOf(world: World): Record<string, AnyWorkflow> {
  const tools = toolsOf(world)
  const list = [everything(world, tools), reader(tools), ...windowWorkflows(world, tools)]
  return Object.fromEntries(list.map((one) => [one.name, one]))
}

/** Steps and effects that count their bodies and note their acknowledgements. */
function toolsOf(world: World) {
  async function step<T>(ctx: Ctx, path: string, body: (handle: StepHandle<Diary>) => Promise<T> | T, options?: StepOptions<T>): Promise<T> {
    const counted = (handle: StepHandle<Diary>) => {
      world.body(ctx.runId, path, handle.attempt)
      return body(handle)
    }
    const value = await ctx.step(path.slice(path.lastIndexOf('/') + 1), counted, options)
    if (options?.checkpoint !== false) world.ack(ctx.runId, path)
    return value
  }

  async function once<T>(ctx: Ctx, name: string, options: EffectOptions<T>): Promise<T> {
    const run: EffectOptions<T>['run'] = (key, effect) => {
      world.body(ctx.runId, name, effect.attempt)
      return options.run(key, effect)
    }
    const value = await ctx.once(name, { ...options, run })
    world.ack(ctx.runId, name)
    return value
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

  return { step, once, sending }
}

type Tools = ReturnType<typeof toolsOf>

export interface EverythingInput {
  readonly round: number
}

export interface EverythingOutput {
  readonly round: number
  readonly values: Values
  readonly echoed: Values
  readonly winner: string
  /** All else: the same after any number of kills. */
  readonly made: unknown
}

/** One run that uses all there is: the crash tests kill it everywhere. */
function everything(world: World, { step, once, sending }: Tools): AnyWorkflow {
  const write = (entry: string, by = 1) => (draft: Diary) => {
    draft.count += by
    draft.entries.push(entry)
  }

  async function first(ctx: Ctx, values: Values) {
    ctx.update(write('begun'))
    const loaded = await step(ctx, 'load', () => ({ rows: [1, 2, 3], at: new Date(0) }))
    ctx.update((draft) => {
      draft.values = { ...values }
    })
    const grown = await step(ctx, 'grow', (handle) => {
      handle.update(write('grow', 10))
      return loaded.rows.length
    })
    const sides = await Promise.all(
      ['left', 'middle', 'right'].map((name, index) =>
        step(ctx, name, async (handle) => {
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
        world.body(ctx.runId, `square[${index}]`, handle.attempt)
        handle.update(write(`square[${index}]`, 1_000))
        return item * item
      },
      { concurrency: 2 },
    )
    ctx.update(write('squared'))
    const flaky = await step(
      ctx,
      'flaky',
      (handle) => {
        handle.update(write('flaky', 10_000))
        if (handle.attempt === 1) throw new Error('not yet')
        return handle.attempt
      },
      { retry: { attempts: 3, minMs: 2, maxMs: 4 } },
    )
    const inner = await ctx.scope('group', async () => [
      await step(ctx, 'group/one', () => 'one'),
      await step(ctx, 'group/two', (handle) => {
        handle.update(write('group/two'))
        return 'two'
      }),
    ])
    const light = await step(ctx, 'light', () => 'light', { checkpoint: false })
    await ctx.sleep(5)
    world.ack(ctx.runId, 'sleep')
    return { loaded, grown, sides, squares, flaky, inner, light }
  }

  async function second(ctx: Ctx, values: Values) {
    const lost = await once(ctx, 'pay', {
      ...sending('pay', 'idempotent', values),
      // The answer to the first attempt is lost on the way: it is sent again under the same key.
      run: async (key, { attempt }) => {
        const answer = await world.send({ name: 'pay', key, body: values, dedupes: true })
        if (attempt === 1) throw new Error('the line went dead')
        return answer
      },
    })
    ctx.update(write('paid'))
    const mailed = await once(ctx, 'mail', sending('mail', 'check', values))
    const posted = await once(ctx, 'post', sending('post', 'neither', values))
    const refused = await once(ctx, 'book', {
      ...sending('book', 'neither', values),
      run: (key, { attempt }) => {
        if (attempt === 1) throw new NotHappened(new Error('sold out'))
        return world.send({ name: 'book', key, body: values })
      },
    })
    return { lost, mailed, posted, refused }
  }

  async function third(ctx: Ctx, round: number) {
    const shared = { ...sending('share', 'idempotent'), key: `shared of ${ctx.threadId}` }
    const shares = [await once(ctx, 'share', shared), await once(ctx, 'share', shared)]
    const order = await ctx.transaction('order', async (tx) => {
      world.body(ctx.runId, 'order', 1)
      await tx.query('INSERT INTO orders (run, round) VALUES (?, ?)', [ctx.runId, round])
      return tx.query('SELECT count(*) AS orders FROM orders WHERE run = ?', [ctx.runId])
    })
    world.ack(ctx.runId, 'order')
    return { shares, order }
  }

  /** Whichever is first goes into the output, and must stay the first. */
  async function race(ctx: Ctx): Promise<string> {
    const tortoise = step(ctx, 'tortoise', () => wait(3).then(() => 'tortoise'))
    const hare = step(ctx, 'hare', () => wait(1).then(() => 'hare'))
    const winner = await Promise.race([tortoise, hare])
    await Promise.all([tortoise, hare])
    return winner
  }

  return workflow<EverythingInput, EverythingOutput, Diary>({ name: 'everything', state: diary }, async (ctx, { round }) => {
    const values = { uuid: ctx.uuid(), at: ctx.now(), chance: ctx.random() }
    const echoed = await step(ctx, 'echo', () => values)
    const made: unknown[] = []
    if (round === 1) made.push(await first(ctx, values), await second(ctx, values))
    const winner = await race(ctx)
    made.push(await third(ctx, round))
    await ctx.checkpoint(`round ${round}`)
    ctx.update(write(`round ${round}`))
    if (round === 1) await ctx.continueAs({ round: 2 })
    return { round, values, echoed, winner, made: [...made, ctx.state.count] }
  })
}

/** A second run on the same thread: it sees what the first has left. */
function reader({ step }: Tools): AnyWorkflow {
  return workflow<undefined, unknown, Diary>({ name: 'reader', state: diary }, async (ctx) => {
    const before = ctx.state.count
    await step(ctx, 'reread', (handle) => {
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

/** Five operations of one class after each other. `blind` calls the provider from a plain step: at least once. */
function windowWorkflows(world: World, { step, once, sending }: Tools): AnyWorkflow[] {
  const effects = effectClasses.map((effectClass) =>
    workflow<undefined, unknown, Diary>(`windows-${effectClass}`, async (ctx) => {
      const receipts = []
      for (let n = 1; n <= operationCount; n++) receipts.push(await once(ctx as never, `op${n}`, sending(`op${n}`, effectClass)))
      return receipts
    }),
  )
  const steps = workflow<undefined, unknown, Diary>('windows-step', async (ctx) => {
    const receipts = []
    for (let n = 1; n <= operationCount; n++) {
      receipts.push(await step(ctx as never, `op${n}`, ({ key }) => world.send({ name: `op${n}`, key })))
    }
    return receipts
  })
  return [...effects, steps] as AnyWorkflow[]
}

function wait(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms))
}
