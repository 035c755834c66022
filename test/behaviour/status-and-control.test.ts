import { readFileSync } from 'node:fs'
import { type Context, type Holdfast, HoldfastError, type RunHandle, workflow } from 'holdfast'
import { expect, test } from 'vitest'
import { poisonLimit } from '../../src/model/run.ts'
import type { Store } from '../../src/store/store.ts'
import { patience } from '../patience.ts'
import { type ControlCall, type ControlledStatus, calls, outcomes, outcomesAsMarkdown, statuses } from './control-outcomes.ts'
import { gate } from './runs.ts'
import { onEveryStore, type Scene } from './stores.ts'

const hourMs = 3_600_000
/** Calls that let the step of a running run come to its end, and how long that still takes here. */
const isHeededAfterAStep: ReadonlySet<ControlCall> = new Set(['pause()', 'rollback(checkpoint)'])
const workMs = 100
/**
 * These resolve when it is done. A run that was resumed or retried has yet to be taken up, a signal wakes a run for a moment, and `pause`
 * does not wait for a step for longer than a second.
 */
const isKept = (status: ControlledStatus, call: ControlCall) =>
  /^(pause|cancel|rollback)/.test(call) && !(status === 'running' && call === 'pause()')

test('the guide shows what control calls do to runs in each status', () => {
  const guide = readFileSync(new URL('../../docs/guides/waiting-and-control.md', import.meta.url), 'utf8')
  expect(guide).toContain(outcomesAsMarkdown())
})

onEveryStore('statuses and control calls', (scene) => {
  test('each call does to a run in each status what the table says', async () => {
    const play = makePlay()
    const cells = statuses.flatMap((status) =>
      calls.map((call, index) => ({ id: `${status} × ${call}`, status, call, expected: outcomes[status][index]! })),
    )
    await poison(
      scene,
      play,
      cells.flatMap(({ id, status }) => (status === 'paused/poisoned' ? [id] : [])),
    )
    const hf = await scene.open({ workflows: play.workflows, logger: false, worker: { pollMs: 50, concurrency: 500 } })
    const tried = await Promise.all(
      cells.map(async ({ id, status, call, expected }) => {
        const run = await play.bring(hf, id, status)
        const before = await look(run)
        const answered = carryOut(hf, run, call)
        if (status === 'running' && isHeededAfterAStep.has(call)) setTimeout(() => play.letWork(run.id), workMs)
        const code = await answered.then(
          () => null,
          (error: { code?: string }) => error.code ?? String(error),
        )
        const describe = async () => describeOutcome(before, await look(run), code)
        const atOnce = isKept(status, call) ? await describe() : expected
        await seenInTime(describe, expected)
        return { atOnce, describe }
      }),
    )
    // Looked at once more when what the calls set off has had time to go wrong.
    await hf.run('done', undefined, { id: 'last' })
    const named = (outcomeOf: (index: number) => string) => cells.map(({ id }, index) => `${id}: ${outcomeOf(index)}`)
    const later = await Promise.all(tried.map(({ describe }) => describe()))
    expect(named((index) => tried[index]!.atOnce)).toEqual(named((index) => cells[index]!.expected))
    expect(named((index) => later[index]!)).toEqual(named((index) => cells[index]!.expected))
    for (const { id } of (await hf.runs.list({ status: 'running' })).items) play.letWork(id)
  })
})

/** Runs that were claimed five times by workers that were not heard of again. */
async function poison(scene: Scene, play: ReturnType<typeof makePlay>, ids: readonly string[]): Promise<void> {
  const before = await scene.open({ workflows: play.workflows, logger: false })
  await Promise.all(ids.map((id) => play.bring(before, id, 'waiting/signal')))
  await before.close()
  let store: Store | undefined
  const hf = await scene.openWrapped(
    (given) => {
      store = given
      return given
    },
    { worker: false },
  )
  await Promise.all(ids.map((id) => hf.signal(id, 'unasked', 1)))
  const workflows = [{ name: 'listening', version: 1 }]
  for (let claims = 0; claims < poisonLimit; claims++) {
    const taken = await store?.claim({ workerId: `worker-${claims}`, leaseMs: 1_000, limit: 100, workflows })
    expect(taken?.length).toBe(ids.length)
    scene.advance(2_000)
  }
  await hf.close()
}

interface Sight {
  readonly status: string
  readonly ends: number
  readonly undos: number
}

async function look(run: RunHandle): Promise<Sight> {
  const { status, reason } = await run.info()
  const types = (await run.events()).map(({ type }) => type)
  const count = (...meant: string[]) => types.filter((type) => meant.includes(type)).length
  return {
    status: reason === undefined ? status : `${status}/${reason}`,
    ends: count('run_paused', 'run_failed', 'run_cancelled', 'run_completed'),
    undos: count('step_undone'),
  }
}

function describeOutcome(before: Sight, after: Sight, code: string | null): string {
  const undone = after.undos - before.undos
  const isUnchanged = after.status === before.status && undone === 0
  const change = isUnchanged && after.ends === before.ends ? '–' : isUnchanged ? `${after.status} again` : after.status
  const whole = `${change}${undone === 0 ? '' : undone === 1 ? ', undone' : `, undone ${undone} times`}`
  if (code === null) return whole
  return whole === '–' ? code : isUnchanged ? `${code}, again` : `${code}, ${whole}`
}

async function seenInTime(describe: () => Promise<string>, expected: string): Promise<void> {
  for (const deadline = Date.now() + patience(15_000); Date.now() < deadline && (await describe()) !== expected; )
    await new Promise((resolve) => setTimeout(resolve, 20))
}

function carryOut(hf: Holdfast, run: RunHandle, call: ControlCall): Promise<void> {
  switch (call) {
    case 'pause()':
      return run.pause()
    case 'resume()':
      return run.resume()
    case 'cancel()':
      return run.cancel()
    case 'cancel({ undo: false })':
      return run.cancel({ undo: false })
    case 'retry()':
      return run.retry()
    case 'rollback(checkpoint)':
      return run.rollback('begun')
    case 'hf.signal()':
      return hf.signal(run.id, 'unasked', 1)
    case 'thread.update()':
      return hf.thread(run.threadId).update((draft) => {
        draft['edited'] = true
      })
  }
}

/** Workflows whose runs can be brought into every status. */
function makePlay() {
  const failingUndos = new Set<string>()
  const changedCode = new Set<string>()
  const atWork = new Map<string, ReturnType<typeof gate<void>>>()
  const workOf = (id: string) => {
    const work = atWork.get(id) ?? gate()
    atWork.set(id, work)
    return work
  }
  const once = { retry: { attempts: 1 } }
  const bad = () => {
    throw new Error('bad')
  }
  const begin = async (ctx: Context) => {
    await ctx.checkpoint('begun')
    await ctx.step('act', () => ctx.runId, {
      ...once,
      undo: (id) => {
        // Of a kind that is not tried again.
        if (failingUndos.has(id)) throw new HoldfastError('invalid_input', 'It cannot be undone.')
      },
    })
  }
  const begun = (name: string, fn: (ctx: Context) => Promise<unknown>, options: object = {}) =>
    workflow({ name, ...options }, async (ctx) => {
      await begin(ctx)
      return fn(ctx)
    })
  const kid = workflow('kid', (ctx) => ctx.waitFor('grow'))
  const untilLetOn = (ctx: Context, signal: AbortSignal) =>
    new Promise<void>((resolve, reject) => {
      signal.addEventListener('abort', () => reject(signal.reason))
      void workOf(ctx.runId).promise.then(resolve)
    })

  const workflows = [
    kid,
    begun('done', async () => 'done'),
    begun('working', async (ctx) => {
      await ctx.step('work', ({ signal }) => untilLetOn(ctx, signal), once)
      await ctx.waitFor('go')
    }),
    begun('sleeping', (ctx) => ctx.sleep(hourMs)),
    begun('listening', (ctx) => ctx.waitFor('go')),
    begun('asking', (ctx) => ctx.ask('sure', { question: 'sure?' })),
    begun('unsure', (ctx) => ctx.once('send', { run: bad })),
    begun('calling', (ctx) => ctx.call(kid, undefined)),
    begun('pausing', (ctx) => ctx.step('bad', bad, { ...once, onFailure: 'pause' })),
    begun('spending', (ctx) => ctx.step('more', () => 1), { budget: { steps: 1 } }),
    begun('changed', async (ctx) => {
      await ctx.step('see', () => 1, { input: changedCode.has(ctx.runId) ? 'new' : 'old' })
      await ctx.waitFor('go')
    }),
    begun('failing', (ctx) => ctx.step('bad', bad, once)),
  ]

  const reach = async (run: RunHandle, status: string) => {
    await seenInTime(async () => (await look(run)).status, status)
    return run
  }
  const bringers: Record<ControlledStatus, (hf: Holdfast, id: string) => Promise<RunHandle>> = {
    pending: (hf, id) => hf.start('done', undefined, { id, delayMs: hourMs }),
    running: async (hf, id) => {
      const run = await hf.start('working', undefined, { id })
      await seenInTime(async () => (await run.info()).currentStep ?? '', 'work')
      return run
    },
    'waiting/timer': async (hf, id) => reach(await hf.start('sleeping', undefined, { id }), 'waiting/timer'),
    'waiting/signal': async (hf, id) => reach(await hf.start('listening', undefined, { id }), 'waiting/signal'),
    'waiting/person, a question': async (hf, id) => reach(await hf.start('asking', undefined, { id }), 'waiting/person'),
    'waiting/person, an effect': async (hf, id) => reach(await hf.start('unsure', undefined, { id }), 'waiting/person'),
    'waiting/child': async (hf, id) => reach(await hf.start('calling', undefined, { id }), 'waiting/child'),
    'paused/asked': async (hf, id) => {
      const run = await reach(await hf.start('listening', undefined, { id }), 'waiting/signal')
      await run.pause()
      return run
    },
    'paused/retries': async (hf, id) => reach(await hf.start('pausing', undefined, { id }), 'paused/retries'),
    'paused/budget': async (hf, id) => reach(await hf.start('spending', undefined, { id }), 'paused/budget'),
    'paused/mismatch': async (hf, id) => {
      const run = await reach(await hf.start('changed', undefined, { id }), 'waiting/signal')
      changedCode.add(id)
      await hf.signal(id, 'go', 1)
      return reach(run, 'paused/mismatch')
    },
    'paused/poisoned': async (hf, id) => reach(await hf.runs.get(id), 'paused/poisoned'),
    'paused/undo': async (hf, id) => {
      failingUndos.add(id)
      const run = await reach(await hf.start('listening', undefined, { id }), 'waiting/signal')
      await run.cancel().catch(() => {})
      return reach(run, 'paused/undo')
    },
    completed: async (hf, id) => reach(await hf.start('done', undefined, { id }), 'completed'),
    failed: async (hf, id) => reach(await hf.start('failing', undefined, { id }), 'failed'),
    cancelled: async (hf, id) => {
      const run = await reach(await hf.start('listening', undefined, { id }), 'waiting/signal')
      await run.cancel()
      return run
    },
  }
  return {
    workflows,
    bring: (hf: Holdfast, id: string, status: ControlledStatus) => bringers[status](hf, id),
    letWork: (id: string) => workOf(id).open(),
  }
}
