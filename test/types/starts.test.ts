import { type AnyWorkflow, type Context, type Holdfast, plan, type RunHandle, type StartRequest, workflow } from 'holdfast'
import { expectTypeOf, test } from 'vitest'

// tsc checks these: what must not compile is under @ts-expect-error. The functions in the tests are never called.

const report = workflow('report', async (_ctx, input: { topic: string }) => input.topic.length)
const nightly = workflow('nightly', async (ctx) => ctx.runId)
const optional = workflow('optional', async (_ctx, input?: { limit: number }) => input?.limit)
const counting = plan<{ n: number }>('counting').step('count', ({ n }) => ({ n: n + 1 }))

test('a required input cannot be left out of start and run', () => {
  void (async (hf: Holdfast) => {
    expectTypeOf(await hf.start(report, { topic: 'a' }, { id: 'r' })).toEqualTypeOf<RunHandle<number>>()
    expectTypeOf(await hf.run(report, { topic: 'a' })).toEqualTypeOf<number>()
    // @ts-expect-error the input is missing
    await hf.start(report)
    // @ts-expect-error the input is missing
    await hf.run(report)
    // @ts-expect-error undefined is not a topic
    await hf.run(report, undefined, { id: 'r' })
    // @ts-expect-error the topic is missing
    await hf.run(report, {})
    // @ts-expect-error a topic is a string
    await hf.start(report, { topic: 5 })
    // @ts-expect-error there is no such option
    await hf.start(report, { topic: 'a' }, { name: 'r' })
  })
})

test('a workflow without an input, or with an optional one, needs none', () => {
  void (async (hf: Holdfast) => {
    expectTypeOf(await hf.run(nightly)).toEqualTypeOf<string>()
    await hf.start(nightly, undefined, { id: 'r' })
    // @ts-expect-error it takes no input
    await hf.run(nightly, 5)
    expectTypeOf(await hf.run(optional)).toEqualTypeOf<number | undefined>()
    await hf.run(optional, { limit: 5 })
    // @ts-expect-error a limit is a number
    await hf.run(optional, { limit: '5' })
    expectTypeOf(await hf.run(counting)).toEqualTypeOf<{ n: number }>()
    await hf.run(counting, { n: 5 })
    // @ts-expect-error what is merged into the state must fit it
    await hf.run(counting, { n: '5' })
  })
})

test('a bare name, and a workflow of any types, take anything', () => {
  void (async (hf: Holdfast, any: AnyWorkflow, either: AnyWorkflow | string) => {
    expectTypeOf(await hf.run('report')).toEqualTypeOf<unknown>()
    expectTypeOf(await hf.run<unknown, number>('report', { topic: 'a' })).toEqualTypeOf<number>()
    await hf.start('report', 5, { version: 2 })
    await hf.start(any)
    await hf.start(any, 5, { id: 'r' })
    await hf.start(either, 5)
  })
})

test('threads take what start takes', () => {
  void (async (hf: Holdfast) => {
    const thread = hf.thread('t')
    expectTypeOf(await thread.run(report, { topic: 'a' })).toEqualTypeOf<number>()
    expectTypeOf(await thread.start(nightly)).toEqualTypeOf<RunHandle<string>>()
    // @ts-expect-error the input is missing
    await thread.run(report)
    // @ts-expect-error the input is missing
    await thread.start(report)
    // @ts-expect-error a topic is a string
    await thread.run(report, { topic: 5 })
    // @ts-expect-error the thread is this one
    await thread.run(report, { topic: 'a' }, { threadId: 'other' })
  })
})

test('each request to startMany has the input of its own workflow, and each handle its output', () => {
  void (async (hf: Holdfast, untyped: StartRequest[]) => {
    const [first, second, third] = await hf.startMany([
      { workflow: report, input: { topic: 'a' }, options: { id: 'r' } },
      { workflow: nightly },
      { workflow: 'by name', input: 5 },
    ])
    expectTypeOf(first).toEqualTypeOf<RunHandle<number>>()
    expectTypeOf(second).toEqualTypeOf<RunHandle<string>>()
    expectTypeOf(third).toEqualTypeOf<RunHandle<unknown>>()
    const mapped = await hf.startMany(['a', 'b'].map((topic) => ({ workflow: report, input: { topic } })))
    expectTypeOf(mapped).toEqualTypeOf<RunHandle<number>[]>()
    await hf.startMany(untyped)
    await hf.startMany([])
    // @ts-expect-error the input is missing
    await hf.startMany([{ workflow: report }])
    // @ts-expect-error a topic is a string
    await hf.startMany([{ workflow: nightly }, { workflow: report, input: { topic: 5 } }])
    // @ts-expect-error an input is an object with a topic
    await hf.startMany(['a', 'b'].map((topic) => ({ workflow: report, input: topic })))
    // @ts-expect-error a transaction takes one start
    await hf.startMany([{ workflow: nightly, options: { tx: { query: async () => ({ rows: [] }) } } }])
  })
})

test('a schedule has the input of its workflow', () => {
  void (async (hf: Holdfast) => {
    const everyMs = 3_600_000
    await hf.schedules.set('s', { everyMs, workflow: report, input: { topic: 'a' } })
    await hf.schedules.set('s', { everyMs, workflow: nightly })
    await hf.schedules.set('s', { everyMs, workflow: 'by name', input: 5 })
    expectTypeOf((await hf.schedules.get('s')).settings.input).toEqualTypeOf<unknown>()
    expectTypeOf((await hf.schedules.get('s')).settings.workflow).toEqualTypeOf<string>()
    // @ts-expect-error the input is missing
    await hf.schedules.set('s', { everyMs, workflow: report })
    // @ts-expect-error a topic is a string
    await hf.schedules.set('s', { everyMs, workflow: report, input: { topic: 5 } })
  })
})

test('children take what start takes', () => {
  void (async (ctx: Context) => {
    expectTypeOf(await ctx.call(report, { topic: 'a' })).toEqualTypeOf<number>()
    expectTypeOf(await ctx.call(nightly)).toEqualTypeOf<string>()
    expectTypeOf(await ctx.call(report, { topic: 'a' }, { detached: true })).toEqualTypeOf<{
      readonly id: string
      readonly threadId: string
    }>()
    await ctx.call(report, { topic: 'a' }, { undo: (length) => length.toFixed() })
    await ctx.call('by name')
    // @ts-expect-error the input is missing
    await ctx.call(report)
    // @ts-expect-error the topic is missing
    await ctx.call(report, {})
    // @ts-expect-error the topic is missing
    await ctx.call(report, {}, { detached: true })
  })
})

test('continueAs takes what start takes', () => {
  workflow('loop', async (ctx, n: number): Promise<string> => {
    if (n < 3) await ctx.continueAs(n + 1)
    if (n < 9) await ctx.section('inner', (inner) => inner.continueAs(n + 1))
    // @ts-expect-error n is a number
    if (n === 9) await ctx.continueAs({ not: 'a number' })
    return 'done'
  })
  workflow('nothing', async (ctx) => ctx.continueAs(undefined))
})
