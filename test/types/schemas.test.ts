import { type Context, type Holdfast, plan, state, workflow } from 'holdfast'
import { expectTypeOf, test } from 'vitest'
import { z } from 'zod'

const length = z.string().transform((text) => text.length)

test('the caller gives what the input schema takes, the function gets what it returns', () => {
  const measure = workflow({ name: 'measure', input: length }, async (_ctx, n) => {
    expectTypeOf(n).toEqualTypeOf<number>()
    return n * 2
  })
  const limited = workflow({ name: 'limited', input: z.object({ limit: z.number().default(5) }) }, async (_ctx, input) => {
    expectTypeOf(input).toEqualTypeOf<{ limit: number }>()
    return input.limit
  })
  const wholly = workflow({ name: 'wholly', input: z.number().default(5) }, async (_ctx, n) => n)
  void (async (hf: Holdfast, ctx: Context) => {
    expectTypeOf(await hf.run(measure, 'hello')).toEqualTypeOf<number>()
    expectTypeOf(await hf.run(limited, {})).toEqualTypeOf<number>()
    await hf.run(wholly)
    await hf.thread('t').run(measure, 'hello')
    await hf.startMany([{ workflow: measure, input: 'hello' }, { workflow: limited, input: {} }, { workflow: wholly }])
    await hf.schedules.set('s', { everyMs: 1_000, workflow: measure, input: 'hello' })
    await ctx.call(measure, 'hello')
    // @ts-expect-error it takes a string
    await hf.run(measure, 5)
    // @ts-expect-error the object itself is required
    await hf.run(limited)
    // @ts-expect-error it takes a string
    await hf.startMany([{ workflow: measure, input: 5 }])
    // @ts-expect-error it takes a string
    await hf.schedules.set('s', { everyMs: 1_000, workflow: measure, input: 5 })
    // @ts-expect-error it takes a string
    await ctx.call(measure, 5)
  })
})

test('continueAs takes what the schema takes', () => {
  workflow({ name: 'loop', input: length }, async (ctx, n): Promise<number> => (n > 5 ? ctx.continueAs('short') : n))
  // @ts-expect-error it takes a string
  workflow({ name: 'loop', input: length }, async (ctx, n): Promise<number> => (n > 5 ? ctx.continueAs(5) : n))
})

test('the function returns what the output schema takes, result gives what it returns', () => {
  const shown = workflow({ name: 'shown', output: z.number().transform(String) }, async () => 5)
  const chosen = workflow({ name: 'chosen', output: z.object({ kind: z.enum(['a', 'b']) }) }, async () => ({ kind: 'a' }))
  void (async (hf: Holdfast) => {
    expectTypeOf(await hf.run(shown)).toEqualTypeOf<string>()
    expectTypeOf(await hf.run(chosen)).toEqualTypeOf<{ kind: 'a' | 'b' }>()
  })
  // @ts-expect-error it takes a number
  workflow({ name: 'shown', output: z.number().transform(String) }, async () => 'five')
})

test('a plan has an input schema like a workflow', () => {
  const input = z.object({ n: z.string().transform(Number) })
  const counting = plan({ name: 'counting', input, state: state({ version: 1, initial: () => ({ n: 0 }) }) })
  void (async (hf: Holdfast) => {
    expectTypeOf(await hf.run(counting, { n: '5' })).toEqualTypeOf<{ n: number }>()
    // @ts-expect-error it takes a string
    await hf.run(counting, { n: 5 })
    // @ts-expect-error the input is missing
    await hf.run(counting)
  })
})
