import { randomBytes } from 'node:crypto'
import { existsSync } from 'node:fs'
import { setTimeout as wait } from 'node:timers/promises'
import type { AnyWorkflow, Context, EffectOptions, StepHandle } from 'holdfast'
import type { ProviderClient } from '../crash/bed/provider.ts'
import type { Journal } from './journal.ts'
import type { Target } from './target.ts'

/** The state of a thread: what each call of its run returned, by name. */
export interface Made {
  tokens: Record<string, string>
  count: number
}

export interface AgentInput {
  /** How long a step takes at most. */
  readonly paceMs: number
  readonly round?: number
  readonly made?: Readonly<Record<string, string>>
}

/** What an agent returns: the same tokens that its state has. */
export interface AgentOutput {
  readonly made: Readonly<Record<string, string>>
  readonly count: number
}

const effectClasses = { plain: 'plain', repeated: 'idempotent', checked: 'check' } as const

/** How an effect is declared; undefined for what is no effect. */
export function classOf(name: string): 'plain' | 'idempotent' | 'check' | undefined {
  return effectClasses[name.split('-')[0] as keyof typeof effectClasses]
}

const roundCount = 2
const errands = ['work', 'plain', 'checked', 'repeated'].flatMap((name) => [1, 2, 3, 4].map((n) => `${name}-${n}`))

const strolls = Array.from({ length: 12 }, (_, index) => `work-${index + 1}`)

/** Everything that a run makes, in all rounds. */
export function namesOf(workflow: 'agent' | 'errand' | 'stroll', hasSql: boolean): string[] {
  if (workflow === 'stroll') return strolls.map((name) => `1.${name}`)
  if (workflow === 'errand') return errands.map((name) => `1.${name}`)
  const names = ['work-1', 'work-2', 'plain', 'work-3', 'repeated', 'checked', 'left', 'right', 'helped', 'work-4']
  const rounds = Array.from({ length: roundCount }, (_, index) => index + 1)
  return ['1.permit', ...rounds.flatMap((round) => [...names, ...(hasSql ? ['order'] : [])].map((name) => `${round}.${name}`))]
}

/** The signal that an agent waits for. */
export function permitOf(runId: string): string {
  return `permit of ${runId}`
}

export interface World {
  readonly journal: Journal
  readonly provider: ProviderClient
  readonly hasSql: boolean
  /** While there is this file, effects take their time. */
  readonly slowEffects: string
}

/**
 * The work that is under way when the store forgets. Every result is a token that no other execution of the same body returns, and goes
 * both into the state and into what the function returns: if the two differ, one of them is of a history that is gone.
 */
export function workflowsOf({ holdfast }: Target, world: World): AnyWorkflow[] {
  const { state, workflow } = holdfast
  const { journal, provider } = world
  const made = state<Made>({ version: 1, initial: () => ({ tokens: {}, count: 0 }) })
  type Ctx = Context<Made>

  const enter = (name: string, token: string) => (draft: Made) => {
    draft.tokens[name] = token
    draft.count += 1
  }

  const on = (ctx: Ctx, tape: number) => {
    const run = ctx.runId
    const body = (path: string): string => {
      const token = randomBytes(6).toString('hex')
      journal.write({ of: 'body', run, tape, path, token })
      return token
    }
    const ack = (path: string) => journal.write({ of: 'ack', run, tape, path })

    async function step(path: string, ms: number): Promise<string> {
      const token = await ctx.step(path, async (handle: StepHandle<Made>) => {
        const mine = body(path)
        await wait(ms)
        handle.update(enter(`${tape}.${path}`, mine))
        return mine
      })
      ack(path)
      return token
    }

    async function effect(name: string, ms = 5): Promise<string> {
      const effectClass = classOf(name)
      const options: EffectOptions<{ receipt: string }> = {
        run: async (key) => {
          body(name)
          const answer = await provider.send({ name, key, body: { run }, dedupes: effectClass === 'idempotent' })
          do await wait(ms)
          while (existsSync(world.slowEffects))
          return answer
        },
        ...(effectClass === 'idempotent' && { idempotent: true }),
        ...(effectClass === 'check' && {
          check: async (key: string) => {
            const { happened, receipt } = await provider.look(key)
            journal.write({ of: 'looked', key, happened })
            return happened ? { happened, result: { receipt: receipt as string } } : { happened: false }
          },
        }),
      }
      const { receipt } = await ctx.once(name, options)
      ack(name)
      return receipt
    }

    return { body, ack, step, effect }
  }

  const helper = workflow<{ n: number }, string, Made>({ name: 'helper', state: made }, async (ctx, { n }) => {
    const { step, effect } = on(ctx, 1)
    const token = await step('add', n)
    return `${token} ${await effect('repeated')}`
  })

  const agent = workflow<AgentInput, AgentOutput, Made>({ name: 'agent', state: made }, async (ctx, input) => {
    const { paceMs, round = 1, made: before = {} } = input
    const { body, ack, step, effect } = on(ctx, round)
    const own: Record<string, string> = { ...before }
    const keep = (name: string, token: string) => {
      own[`${round}.${name}`] = token
    }
    const keepInState = (name: string, token: string) => {
      keep(name, token)
      ctx.update(enter(`${round}.${name}`, token))
    }
    for (const name of ['work-1', 'work-2']) keep(name, await step(name, paceMs))
    keepInState('plain', await effect('plain'))
    keep('work-3', await step('work-3', paceMs))
    keepInState('repeated', await effect('repeated'))
    if (round === 1) keepInState('permit', await ctx.waitFor<string>('permit'))
    keepInState('checked', await effect('checked'))
    if (world.hasSql) {
      const token = await ctx.transaction('order', async (tx) => {
        const mine = body('order')
        await tx.query('INSERT INTO public.orders (run, round, token) VALUES ($1, $2, $3)', [ctx.runId, round, mine])
        return mine
      })
      ack('order')
      keepInState('order', token)
    }
    const both = await Promise.all(['left', 'right'].map(async (name) => [name, await step(name, paceMs / 2)] as const))
    for (const [name, token] of both) keep(name, token)
    keepInState('helped', await ctx.call(helper, { n: round }))
    await ctx.sleep(paceMs)
    keep('work-4', await step('work-4', paceMs))
    if (round < roundCount) await ctx.continueAs({ paceMs, round: round + 1, made: own })
    return { made: own, count: ctx.state.count }
  })

  /** Effect after effect, without a wait at which its holder would let go of it. */
  const errand = workflow<AgentInput, AgentOutput, Made>({ name: 'errand', state: made }, async (ctx, { paceMs }) => {
    const { step, effect } = on(ctx, 1)
    const own: Record<string, string> = {}
    for (const name of errands.toSorted((a, b) => (a.slice(-1) < b.slice(-1) ? -1 : 1))) {
      const isEffect = classOf(name) !== undefined
      const token = await (isEffect ? effect(name, paceMs) : step(name, paceMs))
      own[`1.${name}`] = token
      if (isEffect) ctx.update(enter(`1.${name}`, token))
    }
    return { made: own, count: ctx.state.count }
  })

  /** Step after step, and no effect. */
  const stroll = workflow<AgentInput, AgentOutput, Made>({ name: 'stroll', state: made }, async (ctx, { paceMs }) => {
    const { step } = on(ctx, 1)
    const own: Record<string, string> = {}
    for (const name of strolls) own[`1.${name}`] = await step(name, paceMs)
    return { made: own, count: ctx.state.count }
  })

  /** A later run of the same thread: shows the state that its worker believes in. */
  const reader = workflow<undefined, Made, Made>({ name: 'reader', state: made }, async (ctx) => {
    await ctx.step('read', () => null)
    return ctx.state
  })

  /** As little as a run can be. */
  const trifle = workflow<undefined, string, Made>({ name: 'trifle', state: made }, (ctx) => on(ctx, 1).step('only', 1))

  return [agent, errand, stroll, helper, reader, trifle]
}
