import { type Context, plan, state, workflow } from 'holdfast'
import { expect, it } from 'vitest'
import { becomes, eventTypes, gate } from './runs.ts'
import { onEveryStore } from './stores.ts'

const flagged = state({ version: 1, initial: () => ({ flag: false, x: 0 }) })

onEveryStore('what a function sees of the state', (scene) => {
  const { open, openMortal, advance } = scene
  type Seen = { now: number; recorded: number }
  const look = async (ctx: Context<{ flag: boolean; x: number }>): Promise<Seen> => {
    const now = ctx.state.x
    return { now, recorded: await ctx.step('saw', () => now) }
  }

  it('beside a plan step that updates it is the same on a replay, on which that step is not entered', async () => {
    const hf = await open()
    const names: string[] = []
    const work = plan('work', { state: flagged }).parallel([
      [
        'writer',
        async (_, ctx) => {
          await ctx.step('w', () => {})
          ctx.update((draft) => void Object.assign(draft, { flag: true }))
        },
      ],
      [
        'reader',
        async (_, ctx) => {
          await ctx.step('r', () => {})
          await ctx.step(ctx.state.flag ? 'seen' : 'unseen', () => void names.push('looked'))
          await ctx.waitFor('go')
        },
      ],
    ])
    const run = await hf.start(work, {}, { id: 'r' })
    await becomes(run, 'waiting')
    await hf.signal('r', 'go')
    expect(await run.result()).toMatchObject({ flag: true })
    expect(names).toEqual(['looked'])
  })

  it('does not show what a section beside it saw when it was entered', async () => {
    const hf = await open()
    const work = workflow({ name: 'work', state: flagged }, async (ctx) => {
      const { promise, open: letGo } = gate()
      // Three bodies end in the same turn: one batch, in the order a, c, b.
      const all = Promise.all([
        (async () => {
          await ctx.step('a', () => promise)
          await ctx.section('p', () => ctx.step('in', () => 1))
        })(),
        (async () => {
          await ctx.step('c', () => promise)
          return look(ctx)
        })(),
        ctx.step('b', async (step) => {
          await promise
          step.update((draft: { x: number }) => void Object.assign(draft, { x: 1 }))
        }),
      ])
      setImmediate(letGo)
      const [, seen] = await all
      await ctx.waitFor('go')
      return seen
    })
    const run = await hf.start(work, undefined, { id: 'r' })
    await becomes(run, 'waiting')
    await hf.signal('r', 'go')
    const { now, recorded } = await run.result()
    expect(now).toBe(recorded)
  })

  it('does not show an update in a section earlier on a later replay', async () => {
    const alive = { first: gate(), isFirst: true }
    const work = workflow({ name: 'work', state: flagged }, async (ctx) => {
      const section = (async () => {
        await ctx.step('a', () => 1)
        await ctx.section('p', async () => {
          ctx.update((draft) => void Object.assign(draft, { x: 1 }))
          await ctx.waitFor('go')
        })
      })()
      const beside = (async () => {
        await ctx.step('b', () => 1)
        if (alive.isFirst) {
          alive.isFirst = false
          alive.first.open()
          await new Promise(() => {})
        }
        return look(ctx)
      })()
      await section
      return beside
    })
    const { hf, die } = await openMortal({ workflows: [work] })
    await hf.start(work, undefined, { id: 'r' })
    await alive.first.promise
    await die()
    advance(11_000)
    const heir = await open({ workflows: [work] })
    const run = await heir.runs.get('r')
    await expect.poll(async () => (await eventTypes(run)).filter((type) => type === 'step_completed').length).toBe(3)
    await becomes(run, 'waiting')
    await heir.signal('r', 'go')
    const { now, recorded } = (await run.result()) as Seen
    expect(now).toBe(recorded)
  })

  it('after an update whose recipe throws is what the recipe met, and the error is the same on a replay', async () => {
    const hf = await open()
    class Full extends Error {}
    const ways: string[] = []
    const work = workflow({ name: 'work', state: flagged }, async (ctx) => {
      let way = 'none'
      try {
        ctx.update(() => {
          throw Object.assign(new Full('x'), { size: 3 })
        })
      } catch (error) {
        way = `${error instanceof Full ? 'full' : 'other'} ${(error as { size?: number }).size} ${(error as Error).message}`
      }
      ways.push(way)
      await ctx.step(way, () => {})
      await ctx.waitFor('go')
      return way
    })
    const run = await hf.start(work, undefined, { id: 'r' })
    await becomes(run, 'waiting')
    await hf.signal('r', 'go')
    expect(await run.result()).toBe('other 3 x')
    expect(ways).toEqual(['other 3 x', 'other 3 x'])
  })

  it('shows an edit by hand from where the run was taken up, on later replays too', async () => {
    const seen: string[] = []
    const first = { is: true, hasA: gate() }
    const work = workflow({ name: 'work', state: flagged }, async (ctx) => {
      const start = ctx.state.x
      await ctx.step('a', () => {})
      first.hasA.open()
      if (first.is) await new Promise(() => {})
      // Own work between two calls: the edit is shown meanwhile.
      await new Promise((resolve) => setTimeout(resolve, 30))
      const before = ctx.state.x
      seen.push(`${start} ${before}`)
      const name = await ctx.step(`edited-${before}`, () => before)
      await ctx.waitFor('go')
      return name
    })
    const client = await open({ worker: false })
    const run = await client.start(work, undefined, { id: 'r' })
    const closing = await open({ workflows: [work], worker: { closeGraceMs: 0 } })
    await first.hasA.promise
    await closing.close()
    first.is = false
    await client.thread('r').update<{ x: number }>((draft) => {
      draft.x = 7
    })
    await open({ workflows: [work] })
    await becomes(run, 'waiting')
    await client.signal('r', 'go')
    expect(await run.result()).toBe(7)
    expect(seen).toEqual(['0 7', '0 7'])
  })
})
