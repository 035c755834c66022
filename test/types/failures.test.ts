import type { Context, StepOptions } from 'holdfast'
import { expectTypeOf, test } from 'vitest'
import { z } from 'zod'

const load = async (): Promise<string> => 'text'

test("onFailure: 'skip' may give undefined, on a step, a section and a map", () => {
  void (async (ctx: Context) => {
    expectTypeOf(await ctx.step('a', load, { onFailure: 'skip' })).toEqualTypeOf<string | undefined>()
    expectTypeOf(await ctx.section('a', load, { onFailure: 'skip' })).toEqualTypeOf<string | undefined>()
    expectTypeOf(await ctx.map('a', [1], load, { onFailure: 'skip' })).toEqualTypeOf<(string | undefined)[]>()
    // @ts-expect-error it may be undefined
    await ctx.step('a', load, { onFailure: 'skip', retry: { attempts: 1 } }).then(({ length }) => length)
    // @ts-expect-error an explicit type says so as well: ctx.step<string, 'skip'>
    await ctx.step<string>('a', load, { onFailure: 'skip' })
    expectTypeOf(await ctx.step<string, 'skip'>('a', load, { onFailure: 'skip' })).toEqualTypeOf<string | undefined>()
  })
})

test('so may options that are not known to be others', () => {
  void (async (ctx: Context, options: StepOptions<string>, isOptional: boolean) => {
    expectTypeOf(await ctx.step('a', load, options)).toEqualTypeOf<string | undefined>()
    const onFailure = isOptional ? 'skip' : 'fail'
    expectTypeOf(await ctx.step('a', load, { onFailure })).toEqualTypeOf<string | undefined>()
  })
})

test('without it the result is what the body returns', () => {
  void (async (ctx: Context) => {
    expectTypeOf(await ctx.step('a', load)).toEqualTypeOf<string>()
    expectTypeOf(await ctx.step('a', load, { onFailure: 'pause' })).toEqualTypeOf<string>()
    expectTypeOf(await ctx.step('a', load, { retry: { attempts: 1 }, undo: (text) => text.length })).toEqualTypeOf<string>()
    expectTypeOf(await ctx.step<string>('a', load, { onFailure: 'fail' })).toEqualTypeOf<string>()
    expectTypeOf(await ctx.section('a', load, { onFailure: 'fail' })).toEqualTypeOf<string>()
    expectTypeOf(await ctx.map('a', [1], load, { concurrency: 2 })).toEqualTypeOf<string[]>()
    // @ts-expect-error there is no such policy
    await ctx.step('a', load, { onFailure: 'ignore' })
  })
})

test('a fallback returns what the body does, or nothing', () => {
  void (async (ctx: Context) => {
    expectTypeOf(await ctx.step('a', load, { fallback: () => null })).toEqualTypeOf<string | null>()
    expectTypeOf(await ctx.section('a', load, { fallback: () => undefined })).toEqualTypeOf<string | undefined>()
    // @ts-expect-error the result would be a string and a number
    await ctx.step('a', load, { fallback: () => 5 })
  })
})

test('a schema of a step takes what the body returns, and the result is what it makes of it', () => {
  void (async (ctx: Context, parsed: unknown) => {
    const length = z.string().transform((text) => text.length)
    expectTypeOf(await ctx.step('a', load, { schema: length })).toEqualTypeOf<number>()
    expectTypeOf(await ctx.map('a', [1], load, { schema: length })).toEqualTypeOf<number[]>()
    expectTypeOf(await ctx.step('a', () => parsed, { schema: z.object({ n: z.number() }) })).toEqualTypeOf<{ n: number }>()
    expectTypeOf(await ctx.step('a', () => ({}), { schema: z.object({ n: z.number().default(5) }) })).toEqualTypeOf<{
      n: number
    }>()
    expectTypeOf(await ctx.step('a', load, { schema: length, fallback: () => 0, onFailure: 'skip' })).toEqualTypeOf<
      number | undefined
    >()
    // @ts-expect-error it takes a string
    await ctx.step('a', () => 5, { schema: length })
  })
})
