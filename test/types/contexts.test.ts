import { type Context, type StepHandle, state, workflow } from 'holdfast'
import { expectTypeOf, test } from 'vitest'

interface Chat {
  messages: string[]
  title: string
}
const chat = state<Chat>({ version: 1, initial: () => ({ messages: [], title: '' }) })

test('a function that takes a Context takes that of any workflow', () => {
  const greet = async (ctx: Context): Promise<string> => await ctx.step('greet', (step) => keyOf(step))
  const keyOf = (step: StepHandle): string => step.key
  workflow('untyped', async (ctx) => greet(ctx))
  workflow('with an input', async (ctx, _input: { topic: string }) => greet(ctx))
  workflow({ name: 'with a state', state: chat }, async (ctx) => {
    await ctx.step('a', (step) => keyOf(step))
    await ctx.scope('b', (scoped) => greet(scoped))
    await ctx.section('c', (inner) => greet(inner))
    return greet(ctx)
  })
})

test('it knows nothing of the state, unless it says what it needs', () => {
  void ((ctx: Context) => {
    expectTypeOf(ctx.state).toEqualTypeOf<Readonly<unknown>>()
    // @ts-expect-error any workflow may call it
    ctx.update((draft) => draft.title)
    // @ts-expect-error any workflow may call it
    void ctx.continueAs({})
  })
  const rename = (ctx: Context<{ title: string }>, title: string) =>
    ctx.update((draft) => {
      draft.title = title
    })
  workflow({ name: 'chat', state: chat }, async (ctx) => {
    expectTypeOf(ctx.state).toEqualTypeOf<Readonly<Chat>>()
    rename(ctx, 'new')
  })
  workflow({ name: 'other', state: state({ version: 1, initial: () => ({ total: 0 }) }) }, async (ctx) => {
    // @ts-expect-error its state has no title
    rename(ctx, 'new')
  })
  workflow('untyped', async (ctx) => {
    expectTypeOf(ctx.state).toEqualTypeOf<Readonly<Record<string, unknown>>>()
  })
})
