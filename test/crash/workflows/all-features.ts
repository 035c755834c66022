import { type AnyWorkflow, type Context, NotHappened, workflow } from 'holdfast'
import type { TestServices } from '../bed/test-services.ts'
import { type Diary, diary, type RecordedCalls, type Values, wait } from './recorded-calls.ts'

type Calls = ReturnType<RecordedCalls['on']>

export interface AllFeaturesInput {
  readonly round: number
  readonly made?: readonly unknown[]
  readonly winners?: readonly string[]
}

export interface AllFeaturesOutput {
  /** Those of the last round. */
  readonly values: Values
  readonly echoed: Values
  /** Of each round. */
  readonly winners: readonly string[]
  /** Everything else, which is the same after any number of kills. */
  readonly made: readonly unknown[]
}

/** One run that uses every feature that needs no one else: the crash tests kill it everywhere. */
export function allFeatures(services: TestServices, { on, sending }: RecordedCalls): AnyWorkflow {
  const write =
    (entry: string, by = 1) =>
    (draft: Diary) => {
      draft.count += by
      draft.entries.push(entry)
    }

  async function plainWork(ctx: Context<Diary>, { step, body, ack }: Calls, values: Values) {
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

  async function effects(ctx: Context<Diary>, { once }: Calls, values: Values) {
    const lost = await once('pay', {
      ...sending('pay', 'idempotent', values),
      // The answer to the first attempt is lost, so it is sent again under the same key.
      run: async (key, { attempt }) => {
        const answer = await services.send({ name: 'pay', key, body: values, dedupes: true })
        if (attempt === 1) throw new Error('connection lost')
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
        return services.send({ name: 'book', key, body: values })
      },
    })
    return { lost, mailed, posted, booked }
  }

  async function sharedWork(ctx: Context<Diary>, { once, body, ack }: Calls, round: number) {
    const shared = { ...sending('share', 'idempotent'), key: `shared of ${ctx.threadId}` }
    const shares = [await once('share', shared), await once('share', shared)]
    const { orders } = services
    if (orders === null) return { shares }
    const order = await ctx.transaction('order', async (tx) => {
      body('order', 1)
      await tx.query(orders.insert, [ctx.runId, round])
      return tx.query(orders.count, [ctx.runId])
    })
    ack('order')
    return { shares, order }
  }

  /** The winner is part of the output, and must not change on replay. */
  async function race({ step }: Calls): Promise<string> {
    const tortoise = step('tortoise', () => wait(3).then(() => 'tortoise'))
    const hare = step('hare', () => wait(1).then(() => 'hare'))
    const winner = await Promise.race([tortoise, hare])
    await Promise.all([tortoise, hare])
    return winner
  }

  return workflow<AllFeaturesInput, AllFeaturesOutput, Diary>({ name: 'allFeatures', state: diary }, async (ctx, input) => {
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

/** A second run on the same thread, which sees the state that the first left. */
export function reader({ on }: RecordedCalls): AnyWorkflow {
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

function failUntil(last: number, attempt: number): number {
  if (attempt < last) throw new Error(`attempt ${attempt} is not yet ${last}`)
  return attempt
}
