import { webcrypto } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import type { StandardSchemaV1 } from '@standard-schema/spec'
import { type Context, workflow } from 'holdfast'
import { wrapStore } from 'holdfast/testing'
import { expect, it, vi } from 'vitest'
import type { Change } from '../../src/store/change.ts'
import type { Store } from '../../src/store/store.ts'
import { patience } from '../patience.ts'
import { becomes, codeOfRejection, eventTypes, failing, gate, logged } from './runs.ts'
import { onEveryStore } from './stores.ts'

const pass = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms))

/** Longer than any test. */
const quietMs = 60_000

/** What a function may await besides calls on ctx. */
const foreign: Readonly<Record<string, () => Promise<unknown>>> = {
  immediate: () => new Promise((resolve) => setImmediate(resolve)),
  timer: () => pass(5),
  'longer timer': () => pass(50),
  digest: () => webcrypto.subtle.digest('SHA-256', new Uint8Array(1_000)),
  file: () => readFile(import.meta.filename),
}

/** For `openWrapped`: counts how often a run was persisted as waiting. */
function countWaiting(): { readonly wrap: (store: Store) => Store; readonly seen: { count: number } } {
  const seen = { count: 0 }
  const before = (act: string, _nth: number, [changes]: readonly unknown[]) => {
    if (act !== 'commit') return
    for (const { run } of changes as readonly Change[]) if (run?.status === 'waiting') seen.count++
  }
  return { wrap: (store) => wrapStore(store, { before }), seen }
}

/** A schema that takes its time. */
function slowSchema<T>(): StandardSchemaV1<unknown, T> {
  const validate = async (value: unknown) => {
    await pass(30)
    return { value: value as T }
  }
  return { '~standard': { version: 1, vendor: 'test', validate } }
}

onEveryStore(
  'a function that awaits something besides ctx while another branch waits',
  ({ open, openWrapped, openMortal, advance }) => {
    it('goes on', async () => {
      const agent = workflow('agent', async (ctx, what: string) => {
        const loop = async () => {
          for (let n = 0; n < 3; n++) {
            await ctx.step('think', () => n)
            await foreign[what]?.()
          }
          return what
        }
        return Promise.race([loop(), ctx.waitFor('stop')])
      })
      const hf = await open()
      const all = Object.keys(foreign)
      expect(await Promise.all(all.map((what) => hf.run(agent, what)))).toEqual(all)
    })

    it('between ctx.begin and its end, on a replay, for longer than its quiet time is caught at work as well', async () => {
      let workMs = 0
      const agent = workflow('agent', async (ctx) => {
        const work = async () => {
          const begun = await ctx.begin<string>('begun')
          await ctx.step('inside', () => 1)
          await pass(workMs)
          await begun.complete(begun.recorded ?? 'ended')
          await ctx.sleep(30_000)
          return 'done'
        }
        return Promise.race([work(), ctx.waitFor('stop')])
      })
      const hf = await open()
      const run = await hf.start(agent)
      await becomes(run, 'waiting')
      workMs = 100
      await advance(30_000)
      expect(await run.result()).toBe('done')
    })

    it('for longer than its quiet time is caught at work, executed again, and given more time', async () => {
      let bodies = 0
      const agent = workflow('agent', async (ctx) => {
        const work = async () => {
          await ctx.step('before', () => ++bodies)
          await pass(100)
          return ctx.step('after', () => 'done')
        }
        return Promise.race([work(), ctx.waitFor('stop')])
      })
      const { wrap, seen } = countWaiting()
      const hf = await openWrapped(wrap)
      const run = await hf.start(agent)
      expect(await run.result()).toBe('done')
      expect(bodies).toBe(1)
      // 20, 40 and 80 ms are too short.
      expect(seen.count).toBeGreaterThan(0)
      expect(seen.count).toBeLessThanOrEqual(3)
    })

    it('is given that time by whoever executes the run next, too', async () => {
      const { wrap, seen } = countWaiting()
      const waited: number[] = []
      const agent = workflow('agent', async (ctx) => {
        const work = async () => {
          for (let lap = 0; lap < 2; lap++) {
            // The first takes much longer than the second, which a busy machine makes longer as well.
            await pass(lap === 0 ? patience(300) : 50)
            await ctx.step('lap', () => waited.push(seen.count))
            await ctx.waitFor('next')
          }
          return 'done'
        }
        return Promise.race([work(), ctx.waitFor('stop')])
      })
      const first = await open({ workflows: [agent] })
      const run = await first.start(agent)
      await logged(run, 'step_completed')
      await becomes(run, 'waiting')
      await first.close()
      const second = await openWrapped(wrap, { workflows: [agent] })
      await second.signal(run.id, 'next')
      await vi.waitUntil(async () => (await eventTypes(await second.runs.get(run.id), 'step')).length === 4)
      // It was not persisted as waiting on the way to its second lap.
      expect(waited).toEqual([0, 0])
      await second.signal(run.id, 'next')
      expect(await (await second.runs.get(run.id)).result()).toBe('done')
    })

    it('and then ends without another call, ends the run', async () => {
      const ends = workflow('ends', async (ctx, how: string) => {
        const work = async () => {
          await pass(80)
          if (how === 'throws') throw new Error('as it should')
          return how
        }
        return Promise.race([work(), ctx.waitFor('stop')])
      })
      const inSection = workflow('in_section', (ctx) =>
        Promise.race([
          ctx.section('work', async () => {
            await Promise.race([ctx.waitFor('other'), pass(80)])
            return 'done'
          }),
          ctx.waitFor('stop'),
        ]),
      )
      const hf = await open()
      expect(await hf.run(ends, 'returns')).toBe('returns')
      await expect(hf.run(ends, 'throws')).rejects.toThrow('as it should')
      expect(await hf.run(inSection)).toBe('done')
    })

    it('is made due although the store is out of reach when it is caught', async () => {
      const agent = workflow('agent', (ctx) =>
        Promise.race([pass(60).then(() => ctx.step('after', () => 'done')), ctx.waitFor('stop')]),
      )
      const hf = await openWrapped(failing('deliver', { times: 3 }))
      expect(await hf.run(agent)).toBe('done')
    })

    it('finds its signal not aborted because the run was persisted as waiting', async () => {
      const seen: boolean[] = []
      const agent = workflow('agent', async (ctx) => {
        const { signal } = ctx
        const work = async () => {
          await pass(60)
          seen.push(signal.aborted, ctx.signal.aborted)
          return ctx.step('after', () => 'done')
        }
        return Promise.race([work(), ctx.waitFor('stop')])
      })
      const hf = await open()
      expect(await hf.run(agent)).toBe('done')
      expect(seen).not.toContain(true)
    })

    it('in a queue with a limit is caught, and from then on keeps its place while it is quiet', async () => {
      const { wrap, seen } = countWaiting()
      let executions = 0
      const agent = workflow({ name: 'agent', queue: 'one' }, async (ctx) => {
        executions++
        const work = async () => {
          while (seen.count === 0) await pass(5)
          await pass(30)
          return ctx.step('after', () => 'done')
        }
        return Promise.race([work(), ctx.waitFor('stop')])
      })
      const hf = await openWrapped(wrap, { worker: { quietMs: 10_000 } })
      await hf.queues.set('one', { concurrency: 1 })
      expect(await hf.run(agent)).toBe('done')
      // Persisted as waiting at once, and then no more.
      expect(seen.count).toBe(1)
      expect(executions).toBe(2)
    })

    it('dies with its process, and is executed by the next one', async () => {
      const agent = workflow('agent', (ctx) =>
        Promise.race([pass(5).then(() => ctx.step('after', () => 'done')), ctx.waitFor('stop')]),
      )
      const mortal = await openMortal({ workflows: [agent], worker: { quietMs } }, { before: 'step_completed' })
      const run = await mortal.hf.start(agent)
      await mortal.dead
      advance(11_000)
      const heir = await open({ workflows: [agent] })
      expect(await (await heir.runs.get(run.id)).result()).toBe('done')
    })
  },
)

onEveryStore('a schema that takes its time counts as work', ({ open }) => {
  /** Beside a branch that would have the run persisted as waiting. */
  const beside = (work: (ctx: Context) => Promise<unknown>) => (ctx: Context) => Promise.race([work(ctx), ctx.waitFor('stop')])
  const echo = workflow({ name: 'echo', input: slowSchema<string>() }, (_ctx, input) => input)

  it('of a signal, of an answer, of what a child is given, of what a step gives and of the output', async () => {
    const signal = workflow(
      'signal',
      beside((ctx) => ctx.waitFor('go', { schema: slowSchema() })),
    )
    const ask = workflow(
      'ask',
      beside((ctx) => ctx.ask('sure', { question: '?', schema: slowSchema() })),
    )
    const child = workflow(
      'child',
      beside((ctx) => ctx.call(echo, 'from the child')),
    )
    const step = workflow(
      'step',
      beside((ctx) => ctx.step('a', () => 'from the step', { schema: slowSchema() })),
    )
    const output = workflow(
      { name: 'output', output: slowSchema() },
      beside((ctx) => ctx.step('a', () => 'the output')),
    )
    // Without a quiet time, so that nothing but the count of work keeps the run in memory.
    const hf = await open({ workflows: [echo], worker: { quietMs: 0 } })
    const signalled = await hf.start(signal)
    await becomes(signalled, 'waiting')
    await hf.signal(signalled.id, 'go', 'from outside')
    const asked = await hf.start(ask)
    await becomes(asked, 'waiting')
    await hf.answer(asked.id, 'sure', 'yes')
    expect(await signalled.result()).toBe('from outside')
    expect(await asked.result()).toBe('yes')
    expect(await hf.run(child)).toBe('from the child')
    expect(await hf.run(step)).toBe('from the step')
    expect(await hf.run(output)).toBe('the output')
  })
})

onEveryStore('a run in its quiet time', ({ open, openWrapped, advance }) => {
  const wait = workflow('wait', async (ctx) => {
    const value = await ctx.waitFor('go')
    return ctx.step('after', () => value)
  })

  it('is running, and takes a signal without ever being persisted as waiting', async () => {
    const { wrap, seen } = countWaiting()
    const hf = await openWrapped(wrap, { worker: { quietMs } })
    const run = await hf.start(wait)
    await becomes(run, 'running')
    expect((await run.info()).status).toBe('running')
    await hf.signal(run.id, 'go', 7)
    expect(await run.result()).toBe(7)
    expect(seen.count).toBe(0)
  })

  it('leaves its place to others: a parent does not keep its child from being executed', async () => {
    const child = workflow('child', (ctx) => ctx.step('a', () => 'from the child'))
    const parent = workflow('parent', (ctx) => ctx.call(child, undefined))
    const hf = await open({ workflows: [child, parent], worker: { concurrency: 1, quietMs } })
    expect(await hf.run(parent)).toBe('from the child')
  })

  it('may exceed the concurrency when it continues, and nothing is claimed until there are fewer', async () => {
    const gates = { quiet: gate(), busy: gate() }
    const began: string[] = []
    const body = (name: keyof typeof gates) => () => {
      began.push(name)
      return gates[name].promise
    }
    const quiet = workflow('quiet', async (ctx) => {
      await ctx.waitFor('go')
      await ctx.step('a', body('quiet'))
    })
    const busy = workflow('busy', (ctx) => ctx.step('a', body('busy')))
    const last = workflow('last', (ctx) => ctx.step('a', () => began.push('last')))
    const hf = await open({ workflows: [quiet, busy, last], worker: { concurrency: 1, quietMs } })
    const quietRun = await hf.start(quiet)
    const busyRun = await hf.start(busy)
    await vi.waitUntil(() => began.length === 1)
    await hf.signal(quietRun.id, 'go')
    await vi.waitUntil(() => began.length === 2)
    const lastRun = await hf.start(last)
    gates.busy.open()
    await busyRun.result()
    // Time for a claim that must not be.
    await pass(300)
    expect(began).toEqual(['busy', 'quiet'])
    gates.quiet.open()
    await lastRun.result()
    expect(began).toEqual(['busy', 'quiet', 'last'])
  })

  it('has no place to take once it is persisted, whatever its function still does', async () => {
    const gates = [gate(), gate()]
    let calls = 0
    const work = workflow('work', async (ctx, n: number) => {
      calls++
      const beside = gates[n]?.promise.then(() => ctx.now())
      await Promise.all([ctx.waitFor('go'), beside])
    })
    const next = workflow('next', (ctx) => ctx.step('a', () => 'done'))
    const hf = await open({ workflows: [work, next], worker: { concurrency: 2 } })
    for (const [n, { open }] of gates.entries()) {
      const run = await hf.start(work, n)
      await becomes(run, 'waiting')
      open()
      // It is caught at work, and executed again.
      await vi.waitUntil(() => calls === 2 * (n + 1), { timeout: 15_000 })
      await becomes(run, 'waiting')
    }
    expect(await hf.run(next)).toBe('done')
  })

  it('leaves its place once: another attempt of a section, for which its tape is read anew, begins with one', async () => {
    let tries = 0
    const agent = workflow('agent', async (ctx) => {
      const open = await ctx.begin('session')
      const flaky = () => (tries++ === 0 ? Promise.reject(new Error('flaky')) : undefined)
      await ctx.section('work', () => ctx.step('a', flaky, { retry: { attempts: 1 } }), { retry: { attempts: 2, minMs: 1 } })
      await open.complete(undefined)
      await ctx.waitFor('go')
    })
    const began: number[] = []
    const end = gate()
    const busy = workflow('busy', (ctx, n: number) => {
      return ctx.step('a', () => {
        began.push(n)
        return end.promise
      })
    })
    const hf = await open({ workflows: [agent, busy], worker: { concurrency: 1 } })
    await becomes(await hf.start(agent), 'waiting')
    const runs = [await hf.start(busy, 1), await hf.start(busy, 2)]
    await vi.waitUntil(() => began.length > 0)
    // Time for a claim that must not be.
    await pass(300)
    expect(began).toEqual([1])
    end.open()
    for (const run of runs) await run.result()
  })

  it('leaves its place again when its function ends a step that is on record, and does nothing else', async () => {
    const gates = [gate(), gate()]
    let calls = 0
    const agent = workflow('agent', async (ctx) => {
      const own = gates[calls++]?.promise
      const session = async () => {
        const step = await ctx.begin('session')
        await own
        await step.complete(1)
      }
      await Promise.all([session(), ctx.waitFor('go')])
    })
    const next = workflow('next', (ctx) => ctx.step('a', () => 'done'))
    const hf = await open({ workflows: [agent, next], worker: { concurrency: 1, quietMs } })
    const run = await hf.start(agent)
    gates[0]?.open()
    await logged(run, 'step_completed')
    await run.pause()
    await becomes(run, 'paused')
    await run.resume()
    expect(await hf.run(next)).toBe('done')
    await vi.waitUntil(() => calls === 2)
    expect(await hf.run(next)).toBe('done')
    gates[1]?.open()
    expect(await hf.run(next)).toBe('done')
    await hf.signal(run.id, 'go')
    await run.result()
    expect(calls).toBe(2)
  })

  it('is none in a queue with a limit: the next run has its place at once', async () => {
    const sleep = workflow('sleep', (ctx) => ctx.sleep(86_400_000))
    const hf = await open({
      workflows: [sleep],
      worker: { quietMs, queues: { limited: 100, rated: 100, mine: 1, default: 100 } },
    })
    await hf.queues.set('limited', { concurrency: 1 })
    await hf.queues.set('rated', { rateLimit: { count: 100, perMs: 60_000 } })
    for (const queue of ['limited', 'rated', 'mine']) {
      const runs = await Promise.all([1, 2, 3].map(() => hf.start(sleep, undefined, { queue })))
      for (const run of runs) await becomes(run, 'waiting')
    }
  })

  it('is paused, cancelled and rolled back at once', async () => {
    let undone = 0
    const work = workflow('work', async (ctx) => {
      await ctx.step('a', () => 1, { undo: () => void undone++ })
      await ctx.waitFor('go')
    })
    const hf = await open({ worker: { quietMs } })
    const [paused, cancelled, rolledBack] = await Promise.all([hf.start(work), hf.start(work), hf.start(work)])
    for (const run of [paused, cancelled, rolledBack]) await logged(run, 'step_completed')
    await paused.pause()
    await becomes(paused, 'paused')
    await paused.resume()
    await hf.signal(paused.id, 'go')
    await paused.result()
    await cancelled.cancel()
    expect((await cancelled.info()).status).toBe('cancelled')
    expect(undone).toBe(1)
    const [first] = await hf.thread(rolledBack.threadId).checkpoints()
    await rolledBack.rollback(first!.checkpoint)
    expect((await rolledBack.info()).status).toBe('paused')
    expect(undone).toBe(2)
  })

  it.each(['a step', 'an effect'])(
    'is persisted as waiting when the retry of %s comes that a section which is over has left behind',
    async (kind) => {
      const hf = await open({ worker: { quietMs: 20 } })
      const failed = gate()
      const retry = { attempts: 2, minMs: patience(200), jitter: false }
      let attempts = 0
      const fail = () => {
        attempts++
        failed.open()
        throw new Error('down')
      }
      const work = workflow('work', async (ctx) => {
        const left = () =>
          kind === 'a step' ? ctx.step('left', fail, { retry }) : ctx.once('left', { idempotent: true, retry, run: fail })
        await ctx.section('part', () => Promise.race([left(), ctx.step('quick', () => failed.promise)]))
        await ctx.waitFor('go')
      })
      const run = await hf.start(work, undefined, { id: 'r' })
      await becomes(run, 'waiting')
      await hf.signal('r', 'go')
      await run.result({ timeoutMs: patience(10_000) })
      expect(attempts).toBe(1)
    },
  )

  it('is handed back when its process closes, and goes on in the next one', async () => {
    const first = await open({ workflows: [wait], worker: { quietMs } })
    const run = await first.start(wait)
    await becomes(run, 'running')
    const began = performance.now()
    await first.close()
    expect(performance.now() - began).toBeLessThan(patience(4_000))
    const second = await open({ workflows: [wait], worker: false })
    const again = await second.runs.get(run.id)
    expect((await again.info()).status).toBe('pending')
    await second.signal(run.id, 'go', 1)
    await open({ workflows: [wait] })
    expect(await again.result()).toBe(1)
  })

  it('that another worker has taken writes nothing any more', async () => {
    const late: unknown[] = []
    const work = workflow('work', async (ctx) => {
      await ctx.waitFor('go').catch(async (error: unknown) => {
        late.push(await codeOfRejection(ctx.step('late', () => 1)))
        throw error
      })
      return ctx.step('after', () => 'done')
    })
    const first = await openWrapped(failing('renew', { times: Number.POSITIVE_INFINITY }), {
      workflows: [work],
      worker: { quietMs },
    })
    const run = await first.start(work)
    await becomes(run, 'running')
    advance(11_000)
    const second = await open({ workflows: [work] })
    await second.signal(run.id, 'go')
    expect(await (await second.runs.get(run.id)).result()).toBe('done')
    expect((await eventTypes(run, 'run')).filter((type) => type === 'run_completed')).toHaveLength(1)
    for (const code of late) expect(code).toBe('lease_lost')
  })

  it('is not over while a signal is being recorded, which the function has not got yet', async () => {
    const slow = (store: Store) =>
      wrapStore(store, {
        before: async (act, _nth, [changes]) => {
          if (act !== 'commit') return
          const events = (changes as readonly Change[]).flatMap((change) => change.events)
          if (events.some(({ type }) => type === 'signal_received')) await pass(150)
        },
      })
    const child = workflow('child', (ctx) => ctx.waitFor('never'))
    const work = workflow('work', async (ctx) => {
      ctx.call(child, undefined).catch(() => {})
      await ctx.waitFor('go')
      await ctx.step('after', () => 'done')
      return ctx.waitFor('mail')
    })
    const hf = await openWrapped(slow, { workflows: [child], worker: { quietMs: 40 } })
    for (let n = 0; n < 5; n++) {
      const run = await hf.start(work)
      await logged(run, 'child_started')
      await pass(8 * n)
      await hf.signal(run.id, 'go')
      await hf.signal(run.id, 'mail', n)
      expect(await run.result({ timeoutMs: patience(10_000) })).toBe(n)
    }
  })

  it('begins anew with a value that a replay finds on its tape, which writes nothing', async () => {
    const { wrap, seen } = countWaiting()
    const glance = workflow('glance', async (ctx) => {
      await Promise.all([ctx.waitFor('go'), pass(10).then(() => ctx.now())])
    })
    const hf = await openWrapped(wrap, { worker: { quietMs: 40 } })
    const run = await hf.start(glance)
    await vi.waitUntil(() => seen.count > 0)
    const before = seen.count
    await hf.signal(run.id, 'another')
    await vi.waitUntil(() => seen.count > before)
    await hf.signal(run.id, 'go')
    await run.result()
  })
})

onEveryStore('the quiet time', ({ open }) => {
  it('is a number of milliseconds up to a minute', async () => {
    for (const quietMs of [Number.NaN, -1, 60_001, '20' as never, null as never])
      expect(await codeOfRejection(open({ worker: { quietMs } }))).toBe('invalid_input')
  })
})
