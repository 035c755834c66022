import { type Context, state, workflow } from 'holdfast'
import { expect, it } from 'vitest'
import { createRandom, type Random } from '../../src/testing/random.ts'
import { onLocalStores } from './stores.ts'

/** What a function does: calls one after the other, at a time, or raced, in any nesting. */
type Plan =
  | { readonly kind: 'in turn' | 'at a time' | 'raced'; readonly parts: readonly Plan[] }
  | { readonly kind: 'scope'; readonly name: string; readonly part: Plan }
  | { readonly kind: 'tried'; readonly name: string; readonly part: Plan; readonly failures: number }
  | { readonly kind: 'step'; readonly name: string; readonly turns: number; readonly updates: boolean; readonly fails: boolean }
  | { readonly kind: 'update'; readonly changes: boolean }
  | { readonly kind: 'sleep'; readonly ms: number }
  | { readonly kind: 'effect'; readonly name: string }

function makePlan(random: Random, depth: number, hasTries = false): Plan {
  const part = () => makePlan(random, depth - 1, hasTries)
  const parts = (least: number) => Array.from({ length: least + random.integer(0, 2) }, part)
  if (hasTries && depth > 0 && random.chance(0.25))
    return { kind: 'tried', name: `scope ${random.integer(0, 1)}`, part: part(), failures: random.integer(0, 3) }
  const dice = random.integer(0, 99)
  if (depth > 0 && dice < 25) return { kind: 'in turn', parts: parts(1) }
  if (depth > 0 && dice < 50) return { kind: 'at a time', parts: parts(2) }
  if (depth > 0 && dice < 58) return { kind: 'raced', parts: parts(2) }
  if (depth > 0 && dice < 63) return { kind: 'scope', name: `scope ${random.integer(0, 1)}`, part: part() }
  if (dice < 85) {
    const [updates, fails] = [random.chance(0.4), random.chance(0.1)]
    return { kind: 'step', name: `step ${random.integer(0, 3)}`, turns: random.integer(0, 4), updates, fails }
  }
  if (dice < 93) return { kind: 'update', changes: random.chance(0.7) }
  if (dice < 96) return { kind: 'sleep', ms: random.integer(0, 3) }
  return { kind: 'effect', name: `effect ${random.integer(0, 1)}` }
}

interface Notes {
  readonly marks: string[]
}

/** Carries a plan out, and writes down in which order its calls came back. */
async function carryOut(plan: Plan, ctx: Context<Notes>, path: string, seen: string[]): Promise<void> {
  const part = (inner: Plan, index: number) => carryOut(inner, ctx, `${path}.${index}`, seen)
  switch (plan.kind) {
    case 'in turn':
      for (const [index, inner] of plan.parts.entries()) await part(inner, index)
      return
    case 'at a time':
      await Promise.all(plan.parts.map(part))
      seen.push(`${path} all`)
      return
    case 'raced':
      seen.push(`${path} won by ${await Promise.race(plan.parts.map((inner, index) => part(inner, index).then(() => index)))}`)
      return
    case 'scope':
      return ctx.scope(plan.name, () => carryOut(plan.part, ctx, path, seen))
    case 'tried': {
      // What it sees inside counts once it is recorded: a section with a result is not entered again.
      const inside = async (part: string) => {
        const found: string[] = []
        await carryOut(plan.part, ctx, `${path}.${part}`, found)
        return found
      }
      const found = await ctx.section(
        plan.name,
        async () => {
          const seenInside = await inside('tried')
          await ctx.step('gate', ({ attempt }) => refuseUntil(attempt, plan.failures), { retry: { attempts: 1 } })
          return seenInside
        },
        { retry: { attempts: 3, minMs: 1 }, fallback: () => inside('fallback') },
      )
      seen.push(`${path} [${found.join(', ')}]`)
      return
    }
    case 'step': {
      const result = await ctx
        .step(plan.name, async (step) => {
          for (let turn = 0; turn < plan.turns + Math.floor(Math.random() * 3); turn++)
            await new Promise((resolve) => setImmediate(resolve))
          if (plan.updates) step.update((draft) => void draft.marks.push(path))
          if (plan.fails) throw new Error(`${path} failed`)
          return `${path} done`
        })
        .catch((error: Error) => error.message)
      seen.push(result)
      return
    }
    case 'update':
      ctx.update((draft) => {
        if (plan.changes) draft.marks.push(path)
      })
      return
    case 'sleep':
      await ctx.sleep(plan.ms)
      seen.push(`${path} slept`)
      return
    case 'effect':
      seen.push(await ctx.once(plan.name, { idempotent: true, run: async () => `${path} sent` }))
  }
}

function refuseUntil(attempt: number, failures: number): void {
  if (attempt <= failures) throw new Error(`attempt ${attempt} of ${failures} that fail`)
}

onLocalStores('any function', ({ open, openMortal, advance }) => {
  /** Carries a plan out until its process dies, and then to its end in another process. */
  const dieAndGoOn = async (plan: Plan, beforeWrite: number) => {
    const executions: string[][] = []
    const work = workflow(
      { name: 'work', retry: { attempts: 2, minMs: 1 }, state: state<Notes>({ version: 1, initial: () => ({ marks: [] }) }) },
      async (ctx) => {
        const seen: string[] = []
        executions.push(seen)
        await carryOut(plan, ctx, 'r', seen)
      },
    )
    const { hf, die, dead } = await openMortal({ workflows: [work] }, { beforeWrite })
    const mortalRun = await hf.start(work, undefined, { id: 'r' })
    // A short plan may end before its process does.
    await Promise.race([dead, mortalRun.result()])
    await die()
    const before = [...(executions.at(-1) as string[])]
    const count = executions.length
    const heir = await open({ workflows: [work] })
    advance(11_000)
    const run = await heir.runs.get('r')
    await run.result()
    const after = executions[count]
    if (after !== undefined) expect(after.slice(0, before.length)).toEqual(before)
    const events = await run.events()
    expect(events.map(({ seq }) => seq)).toEqual(events.map((_, index) => index + 1))
    const results = events.filter(({ type }) => type === 'step_completed' || type === 'effect_completed')
    const values = results.flatMap(({ data }) => (typeof data?.['result'] === 'string' ? [data['result']] : []))
    expect(new Set(values).size).toBe(values.length)
  }

  for (let seed = 1; seed <= 15; seed++) {
    it(`of steps, updates, timers and effects in any nesting goes the same way again after a crash (seed ${seed})`, async () => {
      const random = createRandom(seed)
      const plan: Plan = { kind: 'in turn', parts: [makePlan(random, 4), makePlan(random, 4), makePlan(random, 3)] }
      await dieAndGoOn(plan, random.integer(3, 27))
    })
  }

  for (let seed = 1; seed <= 15; seed++) {
    it(`with sections that are tried again and fall back does so too (seed ${seed})`, async () => {
      const random = createRandom(1_000 + seed)
      const plan: Plan = { kind: 'in turn', parts: [makePlan(random, 4, true), makePlan(random, 4, true)] }
      await dieAndGoOn(plan, random.integer(3, 40))
    })
  }
})
