import { setTimeout as delay, setImmediate } from 'node:timers/promises'
import { type Context, HoldfastError, type RunHandle, state, workflow } from 'holdfast'
import { wrapStore } from 'holdfast/testing'
import { expect, it } from 'vitest'
import type { Change } from '../../src/store/change.ts'
import { patience } from '../patience.ts'
import { becomes, codeOfRejection, eventTypes, failureOf, gate, logged } from './runs.ts'
import { onEveryStore } from './stores.ts'

const once = { attempts: 1 }
const twice = { attempts: 2, minMs: 1 }

/** What happened to a step or section, in order, with what came next after a failure. */
async function storyOf(run: RunHandle, step: string): Promise<string[]> {
  const events = (await run.events()).filter((event) => event.step === step)
  return events.map(({ type, data }) => [type, data?.['next'], data?.['via']].filter((part) => part !== undefined).join(' '))
}

onEveryStore('a section', ({ open, openMortal, openWrapped, advance }) => {
  it('inside an attempt that has failed does not keep the next attempt from beginning', async () => {
    const late = gate()
    let tries = 0
    const work = workflow({ name: 'work', retry: { attempts: 1 } }, (ctx) =>
      ctx.section(
        'outer',
        () =>
          Promise.race([
            ctx.step('first', () => {
              if (++tries === 1) throw new Error('down')
              return 'second attempt'
            }),
            ctx.section('inner', async () => {
              await late.promise
              return await ctx.step('late', () => 'late')
            }),
          ]),
        { retry: { attempts: 2, minMs: 1 } },
      ),
    )
    const hf = await open()
    const run = await hf.start(work)
    await logged(run, 'step_failed')
    late.open()
    expect(['second attempt', 'late']).toContain(await run.result())
    expect(tries).toBe(2)
  })

  it('is recorded as a whole, and not entered again on a replay', async () => {
    const entered: string[] = []
    const work = workflow('work', async (ctx) => {
      const parts = await ctx.section(
        'gather',
        async () => {
          entered.push('gather')
          ctx.update((draft) => Object.assign(draft, { gathered: true }))
          return [await ctx.step('a', () => 'a'), await ctx.step('b', () => 'b'), ctx.now() > 0]
        },
        {},
      )
      ctx.update((draft) => Object.assign(draft, { parts }))
      await ctx.step('after', () => entered.push('after'))
      return ctx.state
    })
    const { hf, dead } = await openMortal({ workflows: [work] }, { before: 'run_completed' })
    await hf.start(work, undefined, { id: 'r' })
    await dead
    const heir = await open({ workflows: [work] })
    advance(11_000)
    const run = await heir.runs.get('r')
    expect(await run.result()).toEqual({ gathered: true, parts: ['a', 'b', true] })
    expect(entered).toEqual(['gather', 'after'])
    expect(await storyOf(run, 'gather')).toEqual(['step_started', 'state_updated', 'step_completed'])
    expect((await run.info()).completedSteps).toEqual(['gather/a', 'gather/b', 'gather', 'after'])
  })

  it('is entered again after a crash in the middle, and its recorded calls are not executed again', async () => {
    const ran: string[] = []
    const work = workflow('work', (ctx) =>
      ctx.section(
        'gather',
        async () => {
          for (const name of ['a', 'b', 'c']) await ctx.step(name, () => void ran.push(name))
          return ran.length
        },
        {},
      ),
    )
    const { hf, dead } = await openMortal({ workflows: [work] }, { beforeWrite: 4 })
    await hf.start(work, undefined, { id: 'r' })
    await dead
    const before = [...ran]
    const heir = await open({ workflows: [work] })
    advance(11_000)
    const run = await heir.runs.get('r')
    await run.result()
    expect((await run.info()).completedSteps).toEqual(['gather/a', 'gather/b', 'gather/c', 'gather'])
    // Only what was running at the crash ran twice.
    expect(ran).toEqual([...before, ...['a', 'b', 'c'].slice(before.length - 1)])
    expect((await storyOf(run, 'gather')).filter((type) => type === 'step_started')).toHaveLength(1)
  })

  it('that is tried again keeps inner successes and reopens inner failures', async () => {
    const ran: string[] = []
    const work = workflow({ name: 'work', retry: once }, (ctx) =>
      ctx.section(
        'gather',
        async () => {
          ctx.update((draft) => Object.assign(draft, { tries: Number(draft['tries'] ?? 0) + 1 }))
          const a = await ctx.step('a', () => ran.push('a'))
          const b = await ctx.step('b', (step) => {
            ran.push(`b${step.attempt}`)
            if (step.attempt < 3) throw new Error('down')
            return 'b'
          })
          return { a, b, tries: ctx.state['tries'] }
        },
        { retry: { attempts: 3, minMs: 1 } },
      ),
    )
    const hf = await open()
    const run = await hf.start(work)
    expect(await run.result()).toEqual({ a: 1, b: 'b', tries: 1 })
    expect(ran).toEqual(['a', 'b1', 'b2', 'b3'])
    expect(await storyOf(run, 'gather')).toEqual([
      ...['step_started', 'state_updated', 'step_failed retry'],
      ...['step_started', 'step_failed retry'],
      ...['step_started', 'step_completed'],
    ])
    expect((await run.info()).stepAttempts).toMatchObject({ gather: 3, 'gather/a': 1, 'gather/b': 3 })
    expect((await eventTypes(run)).filter((type) => type === 'run_recovered')).toEqual([])
  })

  it('keeps every item of a map that succeeded', async () => {
    const asked: string[] = []
    const work = workflow('work', (ctx) =>
      ctx.section(
        'gather',
        (inner) =>
          inner.map(
            'source',
            ['a', 'b', 'c', 'd', 'e'],
            (name, _, step) => {
              asked.push(name)
              if (step.attempt === 1 && (name === 'b' || name === 'd')) throw new Error(`${name} is down`)
              return name.toUpperCase()
            },
            { retry: once },
          ),
        { retry: twice },
      ),
    )
    const hf = await open()
    expect(await hf.run(work)).toEqual(['A', 'B', 'C', 'D', 'E'])
    expect(asked.slice(0, 5).sort()).toEqual(['a', 'b', 'c', 'd', 'e'])
    expect(asked.slice(5).sort()).toEqual(['b', 'd'])
  })

  it('retries what its own function threw like a step, and what a call inside has retried in vain only when told to', async () => {
    const tries: string[] = []
    const work = workflow({ name: 'work', retry: twice }, async (ctx) => {
      await ctx
        .section(
          'own',
          () => {
            tries.push('own')
            throw new Error('own')
          },
          {},
        )
        .catch(() => {})
      await ctx
        .section('inner', () => ctx.step('deep', () => Promise.reject(new Error(String(tries.push('deep'))))), {})
        .catch(() => {})
    })
    const hf = await open()
    await hf.run(work)
    expect(tries).toEqual(['own', 'own', 'deep', 'deep'])
  })

  it('may take another way on another attempt', async () => {
    let tries = 0
    const work = workflow('work', (ctx) =>
      ctx.section(
        'search',
        async () => {
          tries++
          if (tries === 1) {
            await ctx.step('first way', () => 1)
            throw new Error('a dead end')
          }
          return ctx.step('second way', () => 2)
        },
        { retry: twice },
      ),
    )
    const hf = await open()
    const run = await hf.start(work)
    expect(await run.result()).toBe(2)
    expect((await run.info()).completedSteps).toEqual(['search/first way', 'search/second way', 'search'])
  })

  it('waits for its next attempt as a row when that is far off, and goes on in another process', async () => {
    const ran: string[] = []
    const work = workflow({ name: 'work', retry: once }, (ctx) =>
      ctx.section(
        'gather',
        async () => {
          await ctx.step('a', () => ran.push('a'))
          return ctx.step('b', (step) => {
            ran.push('b')
            if (step.attempt === 1) throw new Error('down')
            return 'done'
          })
        },
        { retry: { attempts: 2, minMs: 60_000, jitter: false } },
      ),
    )
    const first = await open({ workflows: [work] })
    await becomes(await first.start(work, undefined, { id: 'r' }), 'waiting')
    await first.close()
    const second = await open({ workflows: [work] })
    const run = await second.runs.get('r')
    expect(await run.info()).toMatchObject({ status: 'waiting', reason: 'retry' })
    advance(61_000)
    expect(await run.result()).toBe('done')
    expect(ran).toEqual(['a', 'b', 'b'])
  })

  it('falls back when all attempts have failed; the calls of the fallback are recorded too', async () => {
    const ran: string[] = []
    const work = workflow({ name: 'work', retry: once }, async (ctx) => {
      const result = await ctx.section(
        'analyze',
        async () => {
          await ctx.step('load', () => ran.push('load'))
          return ctx.step('crunch', () => Promise.reject(new Error('too much')))
        },
        {
          fallback: async (error, inner) => {
            const load = await inner.step('load', () => `a sample, because of ${error.message}`)
            return `${load}, crunched`
          },
        },
      )
      await ctx.step('after', () => ran.push('after'))
      return result
    })
    const { hf, dead } = await openMortal({ workflows: [work] }, { before: 'run_completed' })
    await hf.start(work, undefined, { id: 'r' })
    await dead
    const heir = await open({ workflows: [work] })
    advance(11_000)
    const run = await heir.runs.get('r')
    expect(await run.result()).toBe('a sample, because of too much, crunched')
    expect(ran).toEqual(['load', 'after'])
    expect(await storyOf(run, 'analyze')).toEqual([
      ...['step_started', 'step_failed fallback', 'step_started fallback', 'step_completed fallback'],
    ])
    expect((await run.info()).completedSteps).toEqual(['analyze/load', 'analyze[fallback]/load', 'analyze', 'after'])
  })

  it('goes on in the middle of its fallback after a crash', async () => {
    const ran: string[] = []
    const work = workflow({ name: 'work', retry: once }, (ctx) =>
      ctx.section('analyze', () => ctx.step('crunch', () => Promise.reject(new Error(String(ran.push('crunch'))))), {
        fallback: async () => {
          await ctx.step('sample', () => void ran.push('sample'))
          return ctx.step('draw', () => ran.push('draw'))
        },
      }),
    )
    const { hf, dead } = await openMortal({ workflows: [work] }, { after: 'step_completed' })
    await hf.start(work, undefined, { id: 'r' })
    await dead
    const heir = await open({ workflows: [work] })
    advance(11_000)
    expect(await (await heir.runs.get('r')).result()).toBe(3)
    expect(ran).toEqual(['crunch', 'sample', 'draw'])
  })

  it('is skipped, with undefined as its result', async () => {
    const work = workflow({ name: 'work', retry: once }, async (ctx) => [
      await ctx.section('charts', () => ctx.step('draw', () => Promise.reject(new Error('no ink'))), { onFailure: 'skip' }),
      await ctx.step('after', () => 'after'),
    ])
    const hf = await open()
    const run = await hf.start(work)
    expect(await run.result()).toEqual([undefined, 'after'])
    expect(await storyOf(run, 'charts')).toEqual(['step_started', 'step_failed skip', 'step_skipped'])
  })

  it('pauses the run, and resuming it tries again what failed inside', async () => {
    const ran: string[] = []
    let isDown = true
    const work = workflow({ name: 'work', retry: once }, (ctx) =>
      ctx.section(
        'gather',
        async () => {
          await ctx.step('a', () => ran.push('a'))
          return ctx.step('b', () => {
            ran.push('b')
            if (isDown) throw new Error('down')
            return 'done'
          })
        },
        { onFailure: 'pause' },
      ),
    )
    const hf = await open()
    const run = await hf.start(work)
    await becomes(run, 'paused')
    expect(await run.info()).toMatchObject({ reason: 'retries', error: { message: 'down' } })
    isDown = false
    await run.resume()
    expect(await run.result()).toBe('done')
    expect(ran).toEqual(['a', 'b', 'b'])
  })

  it('throws into the function, the same again on a replay; run.retry() reopens it and what failed it, and nothing else', async () => {
    const ran: string[] = []
    let isDown = true
    const work = workflow({ name: 'work', retry: once }, async (ctx) => {
      const charts = await ctx.section(
        'charts',
        () => ctx.step('draw', () => Promise.reject(new Error(String(ran.push('draw'))))),
        {
          onFailure: 'skip',
        },
      )
      const gathered = await ctx
        .section(
          'gather',
          async () => {
            await ctx.step('a', () => ran.push('a'))
            await ctx.section(
              'deep',
              () =>
                ctx.step('b', () => {
                  ran.push('b')
                  if (isDown) throw new Error('down')
                }),
              { onFailure: 'fail' },
            )
            return 'gathered'
          },
          { retry: once },
        )
        .catch((error: Error) => {
          // An error of the function's own, which does not name its cause.
          throw new Error(`could not gather: ${error.message}`)
        })
      return [charts, gathered]
    })
    const hf = await open()
    const run = await hf.start(work)
    expect(await failureOf(run)).toMatchObject({ message: 'could not gather: down' })
    isDown = false
    await run.retry()
    expect(await run.result()).toEqual([undefined, 'gathered'])
    expect(ran).toEqual(['draw', 'a', 'b', 'b'])
  })

  it('reaches what runs inside through its signal when it takes too long, and does not wait for what ignores it', async () => {
    const seen: string[] = []
    const work = workflow({ name: 'work', retry: once }, async (ctx) => {
      const slow = await ctx.section<unknown>(
        'slow',
        async () => {
          await ctx.step('hangs', async (step) => {
            step.signal.addEventListener('abort', () => seen.push('aborted'))
            await new Promise(() => {})
          })
        },
        { timeoutMs: patience(100), fallback: (error) => (error as HoldfastError).code },
      )
      return [slow, await ctx.step('after', () => 'after')]
    })
    const hf = await open()
    const run = await hf.start(work)
    expect(await run.result()).toEqual(['timeout', 'after'])
    expect(seen).toEqual(['aborted'])
  })

  it('that took too long is tried again although something of it still hangs', async () => {
    let tries = 0
    const work = workflow({ name: 'work', retry: once }, (ctx) =>
      ctx.section(
        'slow',
        () =>
          ctx.step('fetch', async () => {
            tries++
            if (tries === 1) await new Promise(() => {})
            return tries
          }),
        { timeoutMs: patience(1_000), retry: twice },
      ),
    )
    const hf = await open()
    expect(await hf.run(work)).toBe(2)
  })

  it('counts its time limit over waits and restarts', async () => {
    const work = workflow({ name: 'work', retry: once }, (ctx) =>
      ctx.section('patient', () => ctx.sleep(7_200_000), { timeoutMs: 3_600_000, retry: once }),
    )
    const first = await open({ workflows: [work] })
    await becomes(await first.start(work, undefined, { id: 'r' }), 'waiting')
    await first.close()
    const second = await open({ workflows: [work] })
    advance(3_601_000)
    expect(await failureOf(await second.runs.get('r'))).toMatchObject({ code: 'timeout' })
  })

  it('whose own function brings its worker down three times falls back', async () => {
    let deaths = 0
    const doors: (() => void)[] = []
    const work = workflow({ name: 'work', retry: once }, (ctx) =>
      ctx.section<unknown>(
        'analyze',
        async () => {
          deaths++
          doors.shift()?.()
          await new Promise(() => {})
        },
        { fallback: (error) => (error as HoldfastError).code },
      ),
    )
    for (let death = 0; death < 3; death++) {
      const entered = gate()
      doors.push(entered.open)
      const { hf, die } = await openMortal({ workflows: [work] })
      if (death === 0) await logged(await hf.start(work, undefined, { id: 'r' }), 'step_started')
      await entered.promise
      await die()
      advance(11_000)
    }
    const heir = await open({ workflows: [work] })
    expect(await (await heir.runs.get('r')).result()).toBe('worker_died')
    expect(deaths).toBe(3)
  })

  it('goes on however often its worker dies, as long as something inside is recorded between the deaths', async () => {
    const pages = [1, 2, 3, 4, 5]
    const copy = (inner: Context, name: string) =>
      inner.section<number>(
        name,
        async () => {
          let sum = 0
          for (const page of pages) sum += await inner.step(`page ${page}`, () => page)
          return sum
        },
        { retry: once },
      )
    const work = workflow('work', (ctx) =>
      ctx.section<number>(
        'outer',
        async () => {
          await copy(ctx, 'inner')
          throw new Error('no')
        },
        { retry: once, fallback: (_, inner) => copy(inner, 'again') },
      ),
    )
    // Each process gets as far as the end of one page.
    for (let death = 0; death < 2 * pages.length; death++) {
      const { hf, dead } = await openMortal({ workflows: [work] }, { after: 'step_completed' })
      if (death === 0) await hf.start(work, undefined, { id: 'r' })
      await dead
      advance(11_000)
    }
    const heir = await open({ workflows: [work] })
    expect(await (await heir.runs.get('r')).result()).toBe(15)
  })

  it('falls back when a step inside was running at three deaths of its worker', async () => {
    let deaths = 0
    const doors: (() => void)[] = []
    const work = workflow('work', (ctx) =>
      ctx.section<unknown>(
        'analyze',
        () =>
          ctx.step('crunch', async () => {
            deaths++
            doors.shift()?.()
            await new Promise(() => {})
          }),
        { fallback: (error, inner) => inner.step('sample', () => (error as HoldfastError).code) },
      ),
    )
    for (let death = 0; death < 3; death++) {
      const entered = gate()
      doors.push(entered.open)
      const { hf, die } = await openMortal({ workflows: [work] })
      if (death === 0) await logged(await hf.start(work, undefined, { id: 'r' }), 'step_started')
      await entered.promise
      await die()
      advance(11_000)
    }
    const heir = await open({ workflows: [work] })
    expect(await (await heir.runs.get('r')).result()).toBe('worker_died')
    expect(deaths).toBe(3)
  })

  it('does not keep others from their work while it waits for its next attempt', async () => {
    const order: string[] = []
    const work = workflow({ name: 'work', retry: once }, (ctx) =>
      Promise.all([
        ctx.section(
          'flaky',
          () =>
            ctx.step('fetch', (step) => {
              order.push(`fetch ${step.attempt}`)
              if (step.attempt === 1) throw new Error('down')
              return 'fetched'
            }),
          { retry: { attempts: 2, minMs: 200, jitter: false } },
        ),
        (async () => {
          for (const name of ['a', 'b', 'c']) await ctx.step(name, () => order.push(name))
          return 'steady'
        })(),
      ]),
    )
    const hf = await open()
    expect(await hf.run(work)).toEqual(['fetched', 'steady'])
    expect(order.at(-1)).toBe('fetch 2')
    expect(order.filter((name) => name.length === 1)).toEqual(['a', 'b', 'c'])
  })

  it('can be paused and cancelled like any other work', async () => {
    const inside = gate()
    const work = workflow('work', (ctx) =>
      ctx.section(
        'gather',
        async () => {
          await ctx.step('a', () => inside.open())
          await ctx.sleep(3_600_000)
        },
        { onFailure: 'skip', fallback: () => {} },
      ),
    )
    const hf = await open()
    const run = await hf.start(work)
    await inside.promise
    await run.pause()
    await becomes(run, 'paused')
    await run.resume()
    await becomes(run, 'waiting')
    await run.cancel()
    expect(await codeOfRejection(run.result())).toBe('run_cancelled')
    expect(await storyOf(run, 'gather')).toEqual(['step_started'])
  })

  it('of a name that another scope has gets paths of its own', async () => {
    const work = workflow('work', async (ctx) => {
      const visit = (fails: boolean) =>
        ctx.section(
          'visit',
          async () => {
            const n = await ctx.step('look', (step) => step.key)
            if (fails) throw new Error('not again')
            return n
          },
          { retry: once, onFailure: 'skip' },
        )
      const visits = [await visit(false), await visit(true), await visit(false)]
      const plain = await ctx.scope('visit', () => ctx.step('look', (step) => step.key))
      return [...visits, plain]
    })
    const { hf, dead } = await openMortal({ workflows: [work] }, { before: 'run_completed' })
    await hf.start(work, undefined, { id: 'r' })
    await dead
    const heir = await open({ workflows: [work] })
    advance(11_000)
    const run = await heir.runs.get('r')
    expect(await run.result()).toEqual(['r/visit/look#1', undefined, 'r/visit[3]/look#1', 'r/visit[4]/look#1'])
  })

  it('does not return to what it left behind', async () => {
    const ran: string[] = []
    const inner = gate()
    const work = workflow('work', async (ctx) => {
      await ctx.section(
        'quick',
        async () => {
          void (async () => {
            await inner.promise
            ctx.update((draft) => Object.assign(draft, { late: true }))
            await ctx.step('late', () => ran.push('late'))
          })()
          return 1
        },
        {},
      )
      inner.open()
      await ctx.step('after', () => ran.push('after'))
      return ctx.state
    })
    const hf = await open()
    expect(await hf.run(work)).toEqual({})
    expect(ran).toEqual(['after'])
  })

  it('shows another attempt the state as the last one left it, and shows it again after a crash', async () => {
    const seen: unknown[] = []
    const counted = state<{ n: number }>({ version: 1, initial: () => ({ n: 0 }) })
    const work = workflow<undefined, unknown, { n: number }>({ name: 'work', state: counted, retry: once }, async (ctx) =>
      ctx.section(
        'count',
        async () => {
          seen.push(ctx.state.n)
          const tries = seen.length
          await ctx.step('up', (step) => step.update((draft) => void draft.n++))
          if (tries === 1) throw new Error('once more')
          await ctx.step('down', () => 1)
          return ctx.state.n
        },
        { retry: twice },
      ),
    )
    const { hf, dead } = await openMortal({ workflows: [work] }, { before: 'run_completed' })
    await hf.start(work, undefined, { id: 'r' })
    await dead
    const heir = await open({ workflows: [work] })
    advance(11_000)
    expect(await (await heir.runs.get('r')).result()).toBe(1)
    expect(seen).toEqual([0, 1])
  })

  it('refuses options that mean nothing', async () => {
    const hf = await open()
    const wrong: Record<string, unknown>[] = [
      { timeoutMs: 0 },
      { timeoutMs: Number.NaN },
      { retry: { attempts: 0 } },
      { onFailure: 'explode' },
      { fallback: 'none' },
      { undo: 'none' },
    ]
    for (const [index, options] of wrong.entries()) {
      const work = workflow(`work-${index}`, (ctx) => ctx.section('part', () => 1, options))
      expect(await failureOf(await hf.start(work))).toMatchObject({ code: 'invalid_input' })
    }
    const noFunction = workflow('none', (ctx) => ctx.section('part', undefined as never, {}))
    expect(await failureOf(await hf.start(noFunction))).toMatchObject({ code: 'invalid_input' })
    const nested = workflow('nested', (ctx) => ctx.step('body', () => ctx.section('part', () => 1, {})))
    expect(await failureOf(await hf.start(nested))).toMatchObject({ code: 'nested_call' })
  })

  it('needs no options to be recorded', async () => {
    let entered = 0
    const work = workflow('work', (ctx) => ctx.section('part', () => ctx.step('inner', () => ++entered)))
    const hf = await open()
    const run = await hf.start(work)
    expect(await run.result()).toBe(1)
    expect(await storyOf(run, 'part')).toEqual(['step_started', 'step_completed'])
  })

  it('is not a scope, which takes no options and says so', async () => {
    const hf = await open()
    for (const [index, options] of [{}, { retry: once }, null].entries()) {
      const work = workflow(`work-${index}`, (ctx) =>
        (ctx as { scope: Context['section'] }).scope('part', () => 1, options as object),
      )
      expect(await failureOf(await hf.start(work))).toMatchObject({
        code: 'invalid_input',
        message: expect.stringContaining('ctx.section'),
      })
    }
    const grouped = workflow('grouped', (ctx) => ctx.scope('part', () => ctx.step('inner', () => 1)))
    const run = await hf.start(grouped)
    expect(await run.result()).toBe(1)
    expect(await storyOf(run, 'part')).toEqual([])
  })

  it('keeps an effect inside from being sent twice', async () => {
    const sent: string[] = []
    const work = workflow({ name: 'work', retry: once }, (ctx) =>
      ctx.section(
        'deliver',
        async () => {
          await ctx.once('mail', { run: (key) => sent.push(key) })
          await ctx.step('note', (step) => {
            if (step.attempt === 1) throw new HoldfastError('store_unavailable', 'not now')
          })
          return sent.length
        },
        { retry: twice },
      ),
    )
    const hf = await open()
    expect(await hf.run(work, undefined, { id: 'r' })).toBe(1)
    expect(sent).toEqual(['r/deliver/mail#1'])
  })

  it('that was not entered again is undone all the same: what it did as a whole first, then what its calls did, the last first', async () => {
    const undone: string[] = []
    const entered: string[] = []
    const undos = { note: (_: unknown, { step }: { step: string }) => void undone.push(step) }
    const work = workflow({ name: 'work', retry: once, undos }, async (ctx) => {
      await ctx.section(
        'book',
        async () => {
          entered.push('book')
          await ctx.step('flight', () => 1, { undo: 'note' })
          await ctx.section('deep', () => ctx.once('hotel', { run: () => 2, undo: 'note' }), { undo: 'note' })
          await ctx.step('car', () => Promise.reject(new Error('no car')))
        },
        {
          fallback: async () => {
            await ctx.step('train', () => 3, { undo: 'note' })
          },
          undo: undos.note,
        },
      )
      await ctx.sleep(3_600_000)
    })
    const first = await open({ workflows: [work] })
    await becomes(await first.start(work, undefined, { id: 'r' }), 'waiting')
    await first.close()
    const second = await open({ workflows: [work] })
    const run = await second.runs.get('r')
    await run.cancel()
    expect(await codeOfRejection(run.result())).toBe('run_cancelled')
    expect(undone).toEqual(['book', 'book[fallback]/train', 'book/deep', 'book/deep/hotel', 'book/flight'])
    expect(entered).toEqual(['book'])
    const events = (await run.events()).filter(({ type }) => type === 'step_undone')
    expect(events.map(({ step }) => step)).toEqual([
      ...['book', 'book[fallback]/train', 'book/deep', 'book/deep/hotel', 'book/flight'],
    ])
  })

  it('in which something was undone is entered again when the run is retried', async () => {
    const ran: string[] = []
    let isDown = true
    const undos = { leave: () => ran.push('undo flight') }
    const work = workflow({ name: 'work', retry: once, undoOnFailure: true, undos }, async (ctx) => {
      await ctx.section(
        'book',
        async () => {
          await ctx.step('flight', () => ran.push('flight'), { undo: 'leave' })
          await ctx.step('seat', () => ran.push('seat'))
        },
        {},
      )
      await ctx.step('pay', () => {
        ran.push('pay')
        if (isDown) throw new Error('no money')
      })
    })
    const hf = await open()
    const run = await hf.start(work)
    await failureOf(run)
    isDown = false
    await run.retry()
    await run.result()
    expect(ran).toEqual(['flight', 'seat', 'pay', 'undo flight', 'flight', 'pay'])
  })

  it('is entered again after a rollback into it', async () => {
    const ran: string[] = []
    const work = workflow({ name: 'work', retry: once }, async (ctx) => {
      const booked = await ctx.section(
        'book',
        async () => [await ctx.step('flight', () => ran.push('flight')), await ctx.step('hotel', () => ran.push('hotel'))],
        {},
      )
      await ctx.sleep(3_600_000)
      return booked
    })
    const hf = await open({ workflows: [work] })
    const run = await hf.start(work, undefined, { id: 'r' })
    await becomes(run, 'waiting')
    const [flight] = (await hf.thread('r').checkpoints()).filter(({ step }) => step === 'book/flight')
    await run.rollback(flight?.checkpoint as string)
    await becomes(run, 'paused')
    await run.resume()
    await becomes(run, 'waiting')
    advance(3_601_000)
    expect(await run.result()).toEqual([1, 3])
    expect(ran).toEqual(['flight', 'hotel', 'hotel'])
  })

  it('writes to streams through its steps only', async () => {
    const hf = await open()
    const work = workflow({ name: 'work', retry: once }, (ctx) => ctx.section('talk', () => ctx.stream('tokens').write('a'), {}))
    expect(await failureOf(await hf.start(work))).toMatchObject({ code: 'nested_call' })
  })

  it('that fails, or ends, with a step of ctx.begin open inside does not wait for it', async () => {
    const hf = await open()
    let tries = 0
    const work = workflow('work', async (ctx) => {
      await ctx.section(
        'p',
        async () => {
          const begun = await ctx.begin<string>('open')
          await ctx.step(
            's',
            () => {
              if (++tries < 2) throw new Error('once')
            },
            { retry: { attempts: 1 } },
          )
          if (tries > 5) await begun.complete('never')
        },
        { retry: { attempts: 2, minMs: 1 } },
      )
      await ctx.waitFor('go')
      return tries
    })
    const run = await hf.start(work, undefined, { id: 'r' })
    await becomes(run, 'waiting')
    await hf.signal('r', 'go')
    expect(await run.result()).toBe(2)
  })

  it('that has failed takes on a replay what a slower branch of it had recorded by then', async () => {
    const [hasFailed, hasEnded] = [gate(), gate()]
    let attempts = 0
    const work = workflow('work', async (ctx) => {
      const section = ctx.section(
        'p',
        async () => {
          const slowMs = attempts++ === 0 ? 0 : 50
          await Promise.all([
            ctx.step('fails', () => Promise.reject(new Error('down')), { retry: once }),
            ctx.scope('slow', async () => {
              // Of its own: on a replay it is over after the failure was handed out.
              await delay(slowMs)
              const around = await ctx.section('inner', async () => {
                const kept = await ctx.step('kept', () => hasFailed.promise.finally(hasEnded.open))
                return ctx.step('more', () => kept)
              })
              return ctx.step('never', () => around)
            }),
          ])
        },
        { retry: once, onFailure: 'skip' },
      )
      await section
      return 'skipped'
    })
    // The result of `kept` comes into the log between the failure and what becomes of the section.
    const hf = await openWrapped(
      (store) =>
        wrapStore(store, {
          before: async (act, _, [changes]) => {
            if (act !== 'commit' || !(changes as Change[]).some(({ events }) => events.some(isFailure))) return
            hasFailed.open()
            await hasEnded.promise
            await setImmediate()
          },
        }),
      { workflows: [work] },
    )
    const isFailure = ({ type, step }: { type: string; step?: string | null }) => type === 'step_failed' && step === 'p/fails'
    const run = await hf.start(work, undefined, { id: 'original' })
    expect(await run.result()).toBe('skipped')
    const checkpoints = await hf.thread('original').checkpoints()
    const kept = checkpoints.find(({ step }) => step === 'p/slow/inner/kept')
    const failed = (await run.events()).find(({ type, step }) => type === 'step_failed' && step === 'p')
    expect(kept?.seq).toBeLessThan(failed?.seq as number)
    const copy = await (await hf.thread('original').fork(kept?.checkpoint as string)).resume()
    expect(await copy.result({ timeoutMs: patience(10_000) })).toBe('skipped')
    expect(await storyOf(copy, 'p/slow/inner/kept')).toEqual(['step_started', 'step_completed'])
    expect(await storyOf(copy, 'p/slow/never')).toEqual([])
  })

  it('that is tried again after continueAs gets the input of the tape that it is on', async () => {
    const hf = await open()
    const seen: number[] = []
    const work = workflow('work', async (ctx, { round }: { round: number }): Promise<number> => {
      seen.push(round)
      if (round < 2) return ctx.continueAs({ round: round + 1 })
      await ctx.section(
        'flaky',
        () =>
          ctx.step(
            's',
            ({ attempt }) => {
              if (attempt < 2) throw new Error('once')
            },
            { retry: { attempts: 1 } },
          ),
        { retry: { attempts: 3, minMs: 1 } },
      )
      return round
    })
    expect(await hf.run(work, { round: 0 })).toBe(2)
    expect(seen).toEqual([0, 1, 2, 2])
  })
})
