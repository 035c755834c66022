import { type Context, type HoldfastError, state, workflow } from 'holdfast'
import { expect, it } from 'vitest'
import { z } from 'zod'
import { patience } from '../patience.ts'
import { becomes, eventTypes, failureOf, gate, logged } from './runs.ts'
import { onEveryStore, onLocalStores } from './stores.ts'

const quick = { minMs: 1, jitter: false } as const

onEveryStore('attempts of a step', ({ open, openMortal, advance }) => {
  it('a step is tried three times by default, and each attempt logs its start and how it ended', async () => {
    const attempts: number[] = []
    const flaky = workflow({ name: 'flaky', retry: quick }, (ctx) =>
      ctx.step('call', (step) => {
        attempts.push(step.attempt)
        throw new Error(`attempt ${step.attempt}`)
      }),
    )
    const hf = await open()
    const run = await hf.start(flaky)
    expect((await failureOf(run)).message).toBe('attempt 3')
    expect(attempts).toEqual([1, 2, 3])
    const steps = (await run.events()).filter(({ type }) => type.startsWith('step_'))
    expect(steps.map(({ type, attempt, data }) => [type, attempt, data?.['final']])).toEqual([
      ['step_started', 1, undefined],
      ['step_failed', 1, false],
      ['step_started', 2, undefined],
      ['step_failed', 2, false],
      ['step_started', 3, undefined],
      ['step_failed', 3, true],
    ])
    expect(steps.map(({ error }) => error?.message)).toEqual([
      undefined,
      'attempt 1',
      undefined,
      'attempt 2',
      undefined,
      'attempt 3',
    ])
    expect((await run.info()).stepAttempts).toEqual({ call: 3 })
  })

  it('a step that succeeds at a later attempt gives its result, and the run goes on', async () => {
    const flaky = workflow('flaky', (ctx) =>
      ctx.step(
        'call',
        (step) => {
          if (step.attempt < 4) throw new Error('not yet')
          return step.attempt
        },
        { retry: { attempts: 4, ...quick } },
      ),
    )
    const hf = await open()
    expect(await hf.run(flaky)).toBe(4)
  })

  it('the delay grows by the factor up to the maximum, and the next attempt does not begin earlier', async () => {
    const flaky = workflow('flaky', (ctx) =>
      ctx.step(
        'call',
        () => {
          throw new Error('no')
        },
        { retry: { attempts: 5, minMs: 20, factor: 5, maxMs: 300, jitter: false } },
      ),
    )
    const hf = await open()
    const run = await hf.start(flaky)
    await failureOf(run)
    const events = await run.events()
    const failed = events.filter(({ type }) => type === 'step_failed')
    const started = events.filter(({ type }) => type === 'step_started')
    for (const [index, delayMs] of [20, 100, 300, 300].entries()) {
      const retryAt = failed[index]?.data?.['retryAt'] as number
      const delayedMs = retryAt - (failed[index]?.at as number)
      // The two are read from the clock one after the other.
      expect(Math.abs(delayedMs - delayMs)).toBeLessThan(patience(50))
      expect(started[index + 1]?.at).toBeGreaterThanOrEqual(retryAt)
    }
  })

  it('a delay of more than five seconds waits as a row, holds no worker and survives the process', async () => {
    const attempts: number[] = []
    const flaky = workflow('flaky', (ctx) =>
      ctx.step(
        'call',
        (step) => {
          attempts.push(step.attempt)
          if (step.attempt === 1) throw new Error('come back later')
          return 'done'
        },
        { retry: { minMs: 3_600_000, maxMs: 3_600_000, jitter: false } },
      ),
    )
    const first = await open({ workflows: [flaky] })
    const run = await first.start(flaky, undefined, { id: 'r' })
    await becomes(run, 'waiting')
    expect(await run.info()).toMatchObject({ reason: 'retry', currentStep: 'call', stepAttempts: { call: 1 } })
    await first.close()

    const second = await open({ workflows: [flaky] })
    const later = await second.runs.get('r')
    advance(3_000_000)
    // Another run, started and finished meanwhile, shows that the worker has looked and found nothing due.
    await second.run(workflow('other', () => 'done'))
    expect(attempts).toEqual([1])
    advance(601_000)
    expect(await later.result()).toBe('done')
    expect(attempts).toEqual([1, 2])
    expect(await eventTypes(later, 'step')).toEqual(['step_started', 'step_failed', 'step_started', 'step_completed'])
  })

  it('a retryIf that throws ends the attempts: its error is recorded, and thrown again on replay', async () => {
    let asked = 0
    let isDown = true
    const fetching = workflow({ name: 'fetching', retry: { attempts: 1 } }, async (ctx) => {
      const retryIf = () => {
        asked++
        throw new Error('a retryIf with a bug')
      }
      const fetch = () => {
        throw new Error('down')
      }
      const caught = await ctx
        .step('fetch', fetch, { retry: { attempts: 5, ...quick, retryIf } })
        .catch((error: Error) => error.message)
      await ctx.step('after', () => {
        if (isDown) throw new Error('later')
      })
      return caught
    })
    const hf = await open()
    const run = await hf.start(fetching)
    await failureOf(run)
    isDown = false
    await run.retry()
    expect(await run.result()).toBe('a retryIf with a bug')
    expect(asked).toBe(1)
    expect((await run.events()).find(({ type }) => type === 'step_failed')).toMatchObject({
      error: { message: 'a retryIf with a bug' },
    })
  })

  it('retryIf decides whether an error is worth another attempt', async () => {
    let calls = 0
    const flaky = workflow('flaky', (ctx) =>
      ctx.step(
        'call',
        () => {
          calls++
          throw Object.assign(new Error('bad request'), { status: calls === 1 ? 503 : 400 })
        },
        { retry: { attempts: 5, ...quick, retryIf: (error) => (error as { status: number }).status === 503 } },
      ),
    )
    const hf = await open()
    const failure = await failureOf(await hf.start(flaky))
    expect(failure).toMatchObject({ message: 'bad request', status: 400 })
    expect(calls).toBe(2)
  })

  it('a value that can not be stored is not retried, and the error names the path', async () => {
    let calls = 0
    const wrong = workflow('wrong', (ctx) =>
      ctx.step('make', () => {
        calls++
        return { list: [1, () => 2] }
      }),
    )
    const hf = await open()
    const failure = await failureOf(await hf.start(wrong))
    expect(failure).toMatchObject({ name: 'HoldfastError', code: 'value_not_storable' })
    expect(failure.message).toContain('list[1]')
    expect(calls).toBe(1)
  })

  it('a final failure is thrown into the function, and thrown again in the same form on replay', async () => {
    const seen: unknown[] = []
    let isModelDown = true
    const careful = workflow('careful', async (ctx) => {
      try {
        await ctx.step(
          'call',
          () => {
            throw Object.assign(new TypeError('no route'), { code: 'EHOSTUNREACH', cause: new Error('cable') })
          },
          { retry: { attempts: 1 } },
        )
      } catch (error) {
        const { name, message, code, cause } = error as Error & { code: string }
        seen.push({ name, message, code, cause: (cause as Error).message })
      }
      return ctx.step(
        'finish',
        () => {
          if (isModelDown) throw new Error('down')
          return 'caught'
        },
        { retry: { attempts: 1 } },
      )
    })
    const hf = await open()
    const run = await hf.start(careful)
    await failureOf(run)
    isModelDown = false
    await run.retry()
    expect(await run.result()).toBe('caught')
    expect(seen).toEqual([
      { name: 'TypeError', message: 'no route', code: 'EHOSTUNREACH', cause: 'cable' },
      { name: 'TypeError', message: 'no route', code: 'EHOSTUNREACH', cause: 'cable' },
    ])
    expect((await run.events()).filter(({ type, step }) => type === 'step_started' && step === 'call')).toHaveLength(1)
  })

  it('retry() reopens only the failures that failed the run, and gives them fresh attempts', async () => {
    const ran: string[] = []
    let isDown = true
    const two = workflow({ name: 'two', retry: { attempts: 2, ...quick } }, async (ctx) => {
      await ctx
        .step('optional', () => {
          ran.push('optional')
          throw new Error('never mind')
        })
        .catch(() => {})
      return ctx.step('needed', (step) => {
        ran.push(`needed ${step.attempt}`)
        if (isDown && step.attempt < 4) throw new Error('down')
        return step.attempt
      })
    })
    const hf = await open()
    const run = await hf.start(two)
    await failureOf(run)
    expect(ran).toEqual(['optional', 'optional', 'needed 1', 'needed 2'])
    await run.retry()
    expect(await run.result()).toBe(4)
    isDown = false
    expect(ran).toEqual(['optional', 'optional', 'needed 1', 'needed 2', 'needed 3', 'needed 4'])
    const retried = (await run.events()).find(({ type }) => type === 'run_retried')
    expect(retried?.data?.['reopened']).toEqual(['step:needed#1'])
  })

  it('retry() reopens a failure that the function wrapped in an error of its own', async () => {
    let isDown = true
    const wrapped = workflow({ name: 'wrapped', retry: { attempts: 1 } }, async (ctx) => {
      try {
        return await ctx.step('call', () => {
          if (isDown) throw new Error('down')
          return 'up'
        })
      } catch (cause) {
        throw new Error('the report could not be made', { cause })
      }
    })
    const hf = await open()
    const run = await hf.start(wrapped)
    expect((await failureOf(run)).message).toBe('the report could not be made')
    isDown = false
    await run.retry()
    expect(await run.result()).toBe('up')
  })

  it('a crash is not an attempt: the step that was running begins the same attempt again', async () => {
    const attempts: number[] = []
    const inBody = gate()
    const work = workflow('work', (ctx) =>
      ctx.step('call', async (step) => {
        attempts.push(step.attempt)
        if (attempts.length > 1) return 'done'
        inBody.open()
        return new Promise<string>(() => {})
      }),
    )
    const { hf, die } = await openMortal({ workflows: [work] })
    await hf.start(work, undefined, { id: 'r' })
    await inBody.promise
    await die()
    const heir = await open({ workflows: [work] })
    const run = await heir.runs.get('r')
    advance(11_000)
    expect(await run.result()).toBe('done')
    expect(attempts).toEqual([1, 1])
    const recovered = (await run.events()).find(({ type }) => type === 'run_recovered')
    expect(recovered?.data).toMatchObject({ why: 'lease_expired', holder: expect.any(String) })
  })
})

onLocalStores('when all attempts have failed', ({ open, openMortal, advance }) => {
  it('fallback makes the result from the last error, and its result is recorded like any other', async () => {
    const fallbacks: string[] = []
    let isDown = true
    const analyze = workflow({ name: 'analyze', retry: { attempts: 2, ...quick } }, async (ctx) => {
      const result = await ctx.step(
        'analyze',
        (step): string => {
          throw new Error(`no model at attempt ${step.attempt}`)
        },
        {
          fallback: (error) => {
            fallbacks.push(error.message)
            return `a sample, because: ${error.message}`
          },
        },
      )
      await ctx.step('finish', () => {
        if (isDown) throw new Error('down')
      })
      return result
    })
    const hf = await open()
    const run = await hf.start(analyze)
    await failureOf(run)
    isDown = false
    await run.retry()
    expect(await run.result()).toBe('a sample, because: no model at attempt 2')
    expect(fallbacks).toEqual(['no model at attempt 2'])
    const events = (await run.events()).filter(({ step }) => step === 'analyze')
    expect(events.map(({ type }) => type)).toEqual([
      'step_started',
      'step_failed',
      'step_started',
      'step_failed',
      'step_started',
      'step_completed',
    ])
    for (const event of events.slice(-2)) expect(event).toMatchObject({ attempt: 3, data: { via: 'fallback' } })
  })

  it('a fallback that throws is the failure of the step', async () => {
    const analyze = workflow({ name: 'analyze', retry: { attempts: 1 } }, (ctx) =>
      ctx.step(
        'analyze',
        (): string => {
          throw new Error('no model')
        },
        {
          fallback: () => {
            throw new Error('no sample either')
          },
        },
      ),
    )
    const hf = await open()
    expect((await failureOf(await hf.start(analyze))).message).toBe('no sample either')
  })

  it("onFailure: 'skip' goes on without a result and logs step_skipped", async () => {
    const charts = workflow({ name: 'charts', retry: { attempts: 1 } }, async (ctx) => {
      const chart = await ctx.step(
        'charts',
        (): string => {
          throw new Error('no renderer')
        },
        { onFailure: 'skip' },
      )
      return { chart: chart ?? 'none' }
    })
    const hf = await open()
    const run = await hf.start(charts)
    expect(await run.result()).toEqual({ chart: 'none' })
    expect(await eventTypes(run, 'step')).toEqual(['step_started', 'step_failed', 'step_skipped'])
    expect((await run.info()).completedSteps).toEqual([])
  })

  it("onFailure: 'pause' pauses the run with its error, and resume() gives the step fresh attempts", async () => {
    const ran: string[] = []
    let isDown = true
    const careful = workflow({ name: 'careful', retry: { attempts: 2, ...quick } }, async (ctx) => {
      await ctx.step('first', () => void ran.push('first'))
      return ctx.step(
        'second',
        (step) => {
          ran.push(`second ${step.attempt}`)
          if (isDown || step.attempt < 4) throw new Error('down')
          return 'done'
        },
        { onFailure: 'pause' },
      )
    })
    const hf = await open()
    const run = await hf.start(careful)
    await becomes(run, 'paused')
    const info = await run.info()
    expect(info).toMatchObject({ reason: 'retries', currentStep: 'second', completedSteps: ['first'] })
    expect(info.error?.message).toBe('down')
    isDown = false
    await run.resume()
    expect(await run.result()).toBe('done')
    expect(ran).toEqual(['first', 'second 1', 'second 2', 'second 3', 'second 4'])
  })

  it('a worker that dies between the last failure and the pause does not lead to another attempt', async () => {
    const attempts: number[] = []
    const work = workflow({ name: 'work', retry: { attempts: 1 } }, (ctx) =>
      ctx.step(
        'call',
        (step) => {
          attempts.push(step.attempt)
          throw new Error('down')
        },
        { onFailure: 'pause' },
      ),
    )
    const { hf, dead } = await openMortal({ workflows: [work] }, { after: 'step_failed' })
    await hf.start(work, undefined, { id: 'r' })
    await dead
    const heir = await open({ workflows: [work] })
    advance(11_000)
    const run = await heir.runs.get('r')
    await becomes(run, 'paused')
    expect(await run.info()).toMatchObject({ reason: 'retries' })
    expect(attempts).toEqual([1])
  })
})

onLocalStores('what a step can be told', ({ open, openMortal, advance }) => {
  it('timeoutMs ends an attempt with timeout and aborts its signal', async () => {
    const reasons: unknown[] = []
    const slow = workflow('slow', (ctx) =>
      ctx.step(
        'call',
        (step) => {
          if (step.attempt === 2) return 'quick'
          return new Promise<string>(() => {
            step.signal.addEventListener('abort', () => reasons.push((step.signal.reason as HoldfastError).code))
          })
        },
        { timeoutMs: 20, retry: quick },
      ),
    )
    const hf = await open()
    const run = await hf.start(slow)
    expect(await run.result()).toBe('quick')
    expect(reasons).toEqual(['timeout'])
    const failed = (await run.events()).find(({ type }) => type === 'step_failed')
    expect(failed?.error).toMatchObject({ code: 'timeout' })
  })

  it('what a body returns after its time-out is dropped', async () => {
    const late = gate<string>()
    const slow = workflow('slow', async (ctx) => {
      const result = await ctx.step(
        'call',
        (step) => {
          step.update((draft) => {
            draft['by'] = step.attempt
          })
          return step.attempt === 1 ? late.promise : 'second'
        },
        { timeoutMs: 20, retry: quick },
      )
      late.open('first, too late')
      await ctx.step('next', () => late.promise)
      return { result, by: ctx.state['by'] }
    })
    const hf = await open()
    const run = await hf.start(slow)
    expect(await run.result()).toEqual({ result: 'second', by: 2 })
    expect((await run.events()).filter(({ type, step }) => type === 'step_completed' && step === 'call')).toHaveLength(1)
  })

  it('input and kind are recorded with the step and shown in its event', async () => {
    const ask = workflow('ask', (ctx) =>
      ctx.step('reply', () => 'hello', { input: { prompt: 'hi', at: new Date(0) }, kind: 'model' }),
    )
    const hf = await open()
    const run = await hf.start(ask)
    await run.result()
    const started = (await run.events()).find(({ type }) => type === 'step_started')
    expect(started?.data).toMatchObject({ input: { prompt: 'hi', at: new Date(0) }, kind: 'model' })
  })

  it('a recorded step that is given another input on replay pauses the run as a mismatch and executes nothing', async () => {
    const ran: string[] = []
    let topic = 'refunds'
    let isDown = true
    const ask = workflow({ name: 'ask', retry: { attempts: 1 } }, async (ctx) => {
      const reply = await ctx.step('reply', () => `about ${topic}`, { input: { topic } })
      await ctx.step('send', () => {
        ran.push('send')
        if (isDown) throw new Error('down')
      })
      return reply
    })
    const hf = await open()
    const run = await hf.start(ask)
    await failureOf(run)
    isDown = false
    topic = 'returns'
    await run.retry()
    await becomes(run, 'paused')
    const info = await run.info()
    expect(info).toMatchObject({ reason: 'mismatch', error: { code: 'nondeterminism' } })
    expect(info.error?.message).toContain('"reply"')
    expect(ran).toEqual(['send'])
    topic = 'refunds'
    await run.resume()
    expect(await run.result()).toBe('about refunds')
    expect(ran).toEqual(['send', 'send'])
  })

  it('a step that waits for its next attempt is not executed with another input either', async () => {
    const ran: string[] = []
    let topic = 'refunds'
    const ask = workflow('ask', (ctx) =>
      ctx.step(
        'reply',
        (step) => {
          ran.push(topic)
          if (step.attempt === 1) throw new Error('later')
          return topic
        },
        { input: { topic }, retry: { minMs: 60_000, jitter: false } },
      ),
    )
    const hf = await open()
    const run = await hf.start(ask)
    await becomes(run, 'waiting')
    topic = 'returns'
    advance(61_000)
    await becomes(run, 'paused')
    expect(await run.info()).toMatchObject({ reason: 'mismatch' })
    expect(ran).toEqual(['refunds'])
    topic = 'refunds'
    await run.resume()
    expect(await run.result()).toBe('refunds')
  })

  it('schema validates the result: what it returns is recorded, and what it refuses is invalid_input without a retry', async () => {
    let calls = 0
    const answer = z.object({ score: z.coerce.number().min(0) })
    const judge = workflow('judge', (ctx, input: string) =>
      ctx.step(
        'judge',
        () => {
          calls++
          return { score: input } as never
        },
        { schema: answer },
      ),
    )
    const hf = await open()
    expect(await hf.run(judge, '7')).toEqual({ score: 7 })
    calls = 0
    const failure = await failureOf(await hf.start(judge, '-7'))
    expect(failure).toMatchObject({ code: 'invalid_input' })
    expect(failure.message).toContain('score')
    expect(calls).toBe(1)
  })

  it('the result is a copy: what the body does to its object afterwards changes nothing', async () => {
    const mine = { list: [1] }
    const copy = workflow('copy', async (ctx) => {
      const first = await ctx.step('make', () => mine)
      mine.list.push(2)
      const isCopy = first !== mine
      first.list.push(3)
      return { first, isCopy, second: await ctx.step('again', () => mine) }
    })
    const hf = await open()
    const run = await hf.start(copy)
    expect(await run.result()).toEqual({ first: { list: [1, 3] }, isCopy: true, second: { list: [1, 2] } })
    const recorded = (await run.events()).filter(({ type }) => type === 'step_completed').map(({ data }) => data?.['result'])
    expect(recorded).toEqual([{ list: [1] }, { list: [1, 2] }])
  })

  it('a result comes back exactly, live and on replay: Date, Map, Set, BigInt, bytes, undefined, NaN, -0, Infinity, Error', async () => {
    const make = () => ({
      date: new Date(1_700_000_000_000),
      map: new Map<unknown, unknown>([['a', { b: 1 }]]),
      set: new Set([1, 'two']),
      big: 2n ** 70n,
      bytes: new Uint8Array([0, 255, 7]),
      nothing: undefined,
      numbers: [Number.NaN, -0, Number.POSITIVE_INFINITY],
      error: new RangeError('out', { cause: new Error('in') }),
      text: 'a\0b \ud800 $hf',
      tag: { $hf: ['date', 'not mine'] },
    })
    const seen: unknown[] = []
    let isDown = true
    const exact = workflow({ name: 'exact', retry: { attempts: 1 } }, async (ctx) => {
      seen.push(await ctx.step('make', make))
      await ctx.step('next', () => {
        if (isDown) throw new Error('down')
      })
    })
    const hf = await open()
    const run = await hf.start(exact)
    await failureOf(run)
    isDown = false
    await run.retry()
    await run.result()
    const { error, ...rest } = make()
    for (const value of seen as ReturnType<typeof make>[]) {
      const { error: seenError, ...seenRest } = value
      expect(seenRest).toStrictEqual(rest)
      expect(Object.is(seenRest.numbers[1], -0)).toBe(true)
      expect(seenError).toMatchObject({ name: error.name, message: error.message, cause: { message: 'in' } })
    }
    expect(seen).toHaveLength(2)
  })

  it('checkpoint: false lets the result ride with the next commit: a crash before that executes the step again', async () => {
    const ran: string[] = []
    const inSecond = gate()
    const work = workflow('work', async (ctx) => {
      await ctx.step('first', () => void ran.push('first'))
      await ctx.step('cheap', () => void ran.push('cheap'), { checkpoint: false })
      return ctx.step('slow', () => {
        ran.push('slow')
        if (ran.filter((name) => name === 'slow').length > 1) return 'done'
        inSecond.open()
        return new Promise<string>(() => {})
      })
    })
    // Right before the write that would carry the result of "cheap" with it, be it the flush of what has been riding.
    const { hf, die } = await openMortal({ workflows: [work] })
    await hf.start(work, undefined, { id: 'r' })
    await inSecond.promise
    await die()
    const heir = await open({ workflows: [work] })
    advance(11_000)
    const run = await heir.runs.get('r')
    expect(await run.result()).toBe('done')
    expect(ran).toEqual(['first', 'cheap', 'slow', 'cheap', 'slow'])
    const completed = (await run.events()).filter(({ type }) => type === 'step_completed').map(({ step }) => step)
    expect(completed).toEqual(['first', 'cheap', 'slow'])
  })

  it('a step that runs for long shows up in info() while it runs', async () => {
    const release = gate()
    const work = workflow('work', (ctx) => ctx.step('slow', () => release.promise))
    const hf = await open()
    const run = await hf.start(work)
    await logged(run, 'step_started')
    expect(await run.info()).toMatchObject({
      status: 'running',
      currentStep: 'slow',
      completedSteps: [],
      stepAttempts: { slow: 1 },
    })
    release.open()
    await run.result()
  })
})

onLocalStores('the handle of a step', ({ open }) => {
  it('key is the same for every attempt, and another for every step, call and run', async () => {
    const keys: string[] = []
    const work = workflow({ name: 'work', retry: { attempts: 2, ...quick } }, async (ctx) => {
      const note = (step: { key: string; attempt: number }) => {
        keys.push(step.key)
        if (step.attempt === 1) throw new Error('again')
      }
      await ctx.step('a', note)
      await ctx.step('a', note)
      await ctx.step('b', note)
      await ctx.scope('b', (inner) => inner.step('a', note))
    })
    const hf = await open()
    await hf.run(work, undefined, { id: 'r1' })
    await hf.run(work, undefined, { id: 'r2' })
    const attempts = keys.filter((_, index) => index % 2 === 0)
    expect(keys.filter((_, index) => index % 2 === 1)).toEqual(attempts)
    expect(new Set(attempts).size).toBe(8)
  })

  it('update changes the state together with the result, and is dropped when the body throws', async () => {
    const seen: unknown[] = []
    const counter = workflow(
      {
        name: 'counter',
        retry: { attempts: 2, ...quick },
        state: state({ version: 1, initial: () => ({ n: 0, by: [] as number[] }) }),
      },
      async (ctx) => {
        const result = await ctx.step('add', (step) => {
          step.update((draft) => {
            draft.n += 1
            draft.by.push(step.attempt)
          })
          seen.push(ctx.state.n)
          if (step.attempt === 1) throw new Error('after the update')
          return ctx.state.n
        })
        return { result, state: ctx.state }
      },
    )
    const hf = await open()
    const run = await hf.start(counter)
    expect(await run.result()).toEqual({ result: 0, state: { n: 1, by: [2] } })
    expect(seen).toEqual([0, 0])
    expect(await hf.thread(run.threadId).state()).toEqual({ n: 1, by: [2] })
  })

  it('update is dropped when the result can not be stored', async () => {
    const counter = workflow({ name: 'counter', state: state({ version: 1, initial: () => ({ n: 0 }) }) }, async (ctx) => {
      const add = (result: unknown) =>
        ctx.step(
          'add',
          (step) => {
            step.update((draft) => {
              draft.n += 1
            })
            return result
          },
          { onFailure: 'skip' },
        )
      await add(() => 'not storable')
      const afterFirst = ctx.state.n
      await add('storable')
      return { afterFirst, afterSecond: ctx.state.n }
    })
    const hf = await open()
    const run = await hf.start(counter)
    expect(await run.result()).toEqual({ afterFirst: 0, afterSecond: 1 })
    expect(await hf.thread(run.threadId).state()).toEqual({ n: 1 })
  })

  it('a recipe that throws fails the attempt', async () => {
    const counter = workflow({ name: 'counter', retry: { attempts: 2, ...quick } }, (ctx) =>
      ctx.step('add', (step) => {
        step.update((draft) => {
          if (step.attempt === 1) throw new Error('bad recipe')
          draft['n'] = 1
        })
        return step.attempt
      }),
    )
    const hf = await open()
    const run = await hf.start(counter)
    expect(await run.result()).toBe(2)
    expect((await run.events()).find(({ type }) => type === 'step_failed')?.error?.message).toBe('bad recipe')
  })

  it('signal is aborted when the run is cancelled', async () => {
    const inBody = gate()
    const aborted = gate<unknown>()
    const work = workflow('work', (ctx) =>
      ctx.step('slow', (step) => {
        step.signal.addEventListener('abort', () => aborted.open((step.signal.reason as HoldfastError).code))
        inBody.open()
        return new Promise(() => {})
      }),
    )
    const hf = await open()
    const run = await hf.start(work)
    await inBody.promise
    await run.cancel()
    expect(await aborted.promise).toBe('run_cancelled')
    expect(await run.info()).toMatchObject({ status: 'cancelled' })
  })
})

onLocalStores('recording calls inside a body', ({ open }) => {
  const calls: Record<string, (ctx: Context<Record<string, unknown>>) => unknown> = {
    step: (ctx) => ctx.step('inner', () => 1),
    once: (ctx) => ctx.once('inner', { run: () => 1 }),
    map: (ctx) => ctx.map('inner', [1], (x) => x),
    scope: (ctx) => ctx.scope('inner', (scoped) => scoped.step('deep', () => 1)),
    section: (ctx) => ctx.section('inner', (inner) => inner.step('deep', () => 1)),
    begin: (ctx) => ctx.begin('inner'),
    update: (ctx) =>
      ctx.update((draft) => {
        draft['n'] = 1
      }),
    sleep: (ctx) => ctx.sleep(1),
    checkpoint: (ctx) => ctx.checkpoint(),
    continueAs: (ctx) => ctx.continueAs(undefined as never),
    now: (ctx) => ctx.now(),
    random: (ctx) => ctx.random(),
    uuid: (ctx) => ctx.uuid(),
  }
  for (const [name, call] of Object.entries(calls)) {
    it(`ctx.${name} inside the body of a step is refused with nested_call, which is not retried`, async () => {
      let tries = 0
      const nested = workflow('nested', (ctx) =>
        ctx.step('outer', async () => {
          tries++
          await call(ctx as never)
        }),
      )
      const hf = await open()
      const run = await hf.start(nested)
      const failure = await failureOf(run)
      expect(failure).toMatchObject({ code: 'nested_call' })
      expect(failure.message).toContain('"outer"')
      expect(tries).toBe(1)
      expect(await eventTypes(run, 'step')).toEqual(['step_started', 'step_failed'])
    })
  }

  it('a body that catches nested_call can still finish, and the run goes on', async () => {
    const nested = workflow('nested', async (ctx) => {
      const code = await ctx.step('outer', () => ctx.step('inner', () => 1).catch((error: HoldfastError) => error.code))
      return [code, await ctx.step('inner', () => 'outside')]
    })
    const hf = await open()
    expect(await hf.run(nested)).toEqual(['nested_call', 'outside'])
  })

  it('a run that is started and awaited inside a body is another run, whose calls are its own', async () => {
    const inner = workflow('inner', (ctx) => ctx.step('work', () => 'inner result'))
    const outer = workflow('outer', (ctx) => ctx.step('delegate', () => hf.run(inner)))
    const hf = await open()
    expect(await hf.run(outer)).toBe('inner result')
  })
})
