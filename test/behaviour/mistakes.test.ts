import { AsyncResource } from 'node:async_hooks'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { StandardSchemaV1 } from '@standard-schema/spec'
import { type Context, copyStore, type Holdfast, open as openHoldfast, plan, type RunHandle, state, workflow } from 'holdfast'
import { type StoreAct, wrapStore } from 'holdfast/testing'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import type { Change } from '../../src/store/change.ts'
import { startProgram } from './programs.ts'
import { becomes, eventTypes, failureOf, gate, logged } from './runs.ts'
import { onEverySharedStore, onEveryStore } from './stores.ts'

onEveryStore('a mistake', ({ open }) => {
  const refusalOf = (act: () => unknown): Promise<Error> =>
    new Promise((resolve, reject) =>
      Promise.resolve()
        .then(act)
        .then(() => reject(new Error('was not refused')), resolve),
    )

  it('in a call on ctx is told with what the call needs', async () => {
    const hf = await open()
    const mistakes: Readonly<Record<string, (ctx: Context) => unknown>> = {
      'ctx.ask("x") needs { question }': (ctx) => (ctx.ask as (name: string) => unknown)('x'),
      'ctx.once("x") needs { run }': (ctx) => ctx.once('x', { idempotent: true } as never),
      'was called in section "book"': (ctx) => ctx.section('book', () => ctx.stream('tokens')),
      'Did you mean "retry"?': (ctx) => ctx.step('x', () => 1, { retries: 3 } as never),
    }
    for (const [told, mistake] of Object.entries(mistakes)) {
      const error = await failureOf(await hf.start(workflow(`work ${told.length}`, async (ctx) => void (await mistake(ctx)))))
      expect(error).toMatchObject({
        code: expect.stringMatching(/^(invalid_input|nested_call)$/),
        message: expect.stringContaining(told),
      })
    }
    const options = await failureOf(await hf.start(workflow('calls', (ctx) => ctx.call('other', 1, { zzzzzz: 1 } as never))))
    expect(options.message).toMatch(/It has undo, .*, version\.$/)
  })

  it('that changes ctx.state in place is told of ctx.update', async () => {
    const counter = state({ version: 1, initial: () => ({ count: 0 }) })
    const work = workflow({ name: 'work', state: counter }, async (ctx) => {
      ;(ctx.state as { count: number }).count = 5
    })
    const hf = await open()
    expect((await refusalOf(() => hf.run(work))).message).toContain('use ctx.update((draft) => …) instead')
  })

  it('in a label names the label and the thread', async () => {
    const work = workflow('work', async (ctx) => {
      await ctx.checkpoint('start')
      await ctx.waitFor('go')
    })
    const hf = await open()
    const run = await hf.start(work, undefined, { id: 'r' })
    await becomes(run, 'waiting')
    for (const act of [() => run.rollback('nope'), () => hf.thread('r').stateAt('nope')])
      expect(await refusalOf(act)).toMatchObject({
        code: 'invalid_id',
        message: expect.stringContaining('Thread "r" has no checkpoint with the label "nope".'),
      })
  })

  it('in the name of a setting or a limit says which was meant', async () => {
    const hf = await open()
    expect((await refusalOf(() => hf.queues.set('mail', { concurency: 1 } as never))).message).toBe(
      'Queue "mail" has no setting "concurency"; nothing was changed. Did you mean "concurrency"?',
    )
    expect((await refusalOf(() => workflow({ name: 'work', budget: { token: 1 } as never }, () => 1))).message).toBe(
      'The budget of workflow "work" has no limit "token". Did you mean "tokens"?',
    )
  })

  it('of the call that continues a run names the one that does', async () => {
    const hf = await open()
    const failed = await hf.start(workflow('fails', () => Promise.reject(new Error('no'))))
    await failureOf(failed)
    expect((await refusalOf(() => failed.resume())).message).toContain('Use run.retry()')
    const spends = workflow({ name: 'spends', budget: { tokens: 100 } }, (ctx) =>
      ctx.step('a', (step) => step.usage({ inputTokens: 120 })),
    )
    const paused = await hf.start(spends)
    await becomes(paused, 'paused')
    expect(await refusalOf(() => paused.resume({ budget: { tokens: 50 } }))).toMatchObject({
      code: 'invalid_input',
      message: expect.stringContaining('has used 120 tokens; with a budget of 50 it would pause again immediately.'),
    })
    await paused.resume({ budget: { tokens: 200 } })
    await paused.result()
    expect((await refusalOf(() => hf.startMany([{ workflow: 'fails', options: { delayMs: -1 } }]))).message).toMatch(
      /^The run was not started: /,
    )
  })

  it('of forgetting to await ctx.call says that the child keeps running', async () => {
    const said: string[] = []
    const note = (message: string) => void said.push(message)
    const hf = await open({ logger: { debug() {}, info() {}, warn: note, error: note } })
    const child = workflow('child', (ctx) => ctx.waitFor('go'))
    await hf.run(
      workflow('parent', async (ctx) => {
        ctx.call(child, undefined)
        await ctx.step('a', () => 1)
      }),
      undefined,
    )
    expect(said.join()).toContain('A child that it has started keeps running.')
  })
})

describe('a mistake in what open is given', () => {
  it('is told with what was meant', async () => {
    const messageOf = (given: unknown, options?: object): Promise<string> =>
      openHoldfast(given as string, options).then(
        () => '',
        ({ message }: Error) => message,
      )
    expect(await messageOf('')).toContain('open() got an empty string as its URL: is an environment variable empty?')
    expect(await messageOf(null)).toContain('open() got null as its URL')
    expect(await messageOf('holdfast.db')).toContain('Did you mean sqlite:holdfast.db?')
    expect(await messageOf('memory:', { workflows: {} })).toContain('workflows of open must be an array')
    expect(await messageOf('memory:', { workflows: [undefined] })).toContain('workflows[0] of open is undefined')
  })
})

onEveryStore('an option that there is not', ({ open }) => {
  const calls: Readonly<
    Record<string, [wrong: string, near: string | undefined, call: (ctx: Context, option: object) => unknown]>
  > = {
    'ctx.step': ['timeout', 'timeoutMs', (ctx, option) => ctx.step('a', () => 1, option)],
    'ctx.once': ['idempotant', 'idempotent', (ctx, option) => ctx.once('a', { run: () => 1, ...option })],
    'ctx.map': ['concurency', 'concurrency', (ctx, option) => ctx.map('a', [1], (n) => n, option)],
    'ctx.section': ['onfailure', 'onFailure', (ctx, option) => ctx.section('a', () => 1, option)],
    'ctx.waitFor': ['timeoutMS', 'timeoutMs', (ctx, option) => ctx.waitFor('a', option)],
    'ctx.ask': ['zzz', undefined, (ctx, option) => ctx.ask('a', { question: '?', ...option })],
    'ctx.call': ['detach', 'detached', (ctx, option) => ctx.call('other', 1, option)],
    'ctx.usage': ['inputToken', 'inputTokens', (ctx, option) => ctx.usage(option)],
    'step.usage': ['input_tokens', 'inputTokens', (ctx, option) => ctx.step('a', (step) => step.usage(option))],
    'ctx.reserve': ['token', 'tokens', (ctx, option) => ctx.reserve(option)],
    'the retry of a step': ['attempt', 'attempts', (ctx, option) => ctx.step('a', () => 1, { retry: option })],
  }
  it.each(Object.entries(calls))('is refused by %s at once, with the nearest one', async (_, [wrong, near, call]) => {
    const work = workflow('work', (ctx) => call(ctx, { [wrong]: 5 }))
    const hf = await open()
    const error = await failureOf(await hf.start(work))
    expect(error).toMatchObject({
      code: 'invalid_input',
      details: { option: wrong, ...(near !== undefined && { nearest: near }) },
    })
    expect(error.message).toContain(near === undefined ? 'schema, timeoutMs' : `Did you mean "${near}"?`)
  })

  it('is refused by start, run, startMany and threads, and nothing is started', async () => {
    const work = workflow('work', () => 1)
    const hf = await open()
    const refused = { code: 'invalid_input', message: expect.stringContaining('has no option "delay". Did you mean "delayMs"?') }
    const wrong = { delay: 5 } as object
    await expect(hf.start(work, undefined, wrong)).rejects.toMatchObject(refused)
    await expect(hf.run(work, undefined, wrong)).rejects.toMatchObject(refused)
    await expect(hf.thread('t').start(work, undefined, wrong)).rejects.toMatchObject(refused)
    await expect(hf.startMany([{ workflow: work, options: wrong }])).rejects.toMatchObject({ code: 'invalid_input' })
    await expect(hf.startMany([{ workflow: work, id: 'r' } as never])).rejects.toMatchObject({ code: 'invalid_input' })
    expect((await hf.runs.list()).items).toEqual([])
  })

  const clientCalls: Readonly<
    Record<string, [wrong: string, near: string, call: (hf: Holdfast, run: RunHandle, option: object) => unknown]>
  > = {
    'run.cancel': ['undos', 'undo', (_, run, option) => run.cancel(option)],
    'run.result': ['timeout', 'timeoutMs', (_, run, option) => run.result(option)],
    'run.events': ['afer', 'after', (_, run, option) => run.events(option)],
    'run.watch': ['signals', 'signal', (_, run, option) => run.watch(option)],
    'run.stream': ['form', 'from', (_, run, option) => run.stream('s', option)],
    'run.pause': ['bye', 'by', (_, run, option) => run.pause(option)],
    'run.resume': ['budgets', 'budget', (_, run, option) => run.resume(option)],
    'run.rollback': ['bye', 'by', (_, run, option) => run.rollback('r@1', option)],
    'hf.answer': ['ID', 'id', (hf, run, option) => hf.answer(run.id, 'q', true, option)],
    'hf.resolve': ['results', 'result', (hf, _, option) => hf.resolve('key', { happened: true, ...option })],
    'hf.runs.list': ['state', 'status', (hf, _, option) => hf.runs.list(option)],
    'hf.runs.stuck': ['after', 'afterMs', (hf, _, option) => hf.runs.stuck(option)],
    'thread.update': ['ifat', 'ifAt', (hf, run, option) => hf.thread(run.threadId).update(() => ({ edited: true }), option)],
    'thread.checkpoints': ['limits', 'limit', (hf, run, option) => hf.thread(run.threadId).checkpoints(option)],
    'hf.schedules.set': [
      'timezone',
      'timeZone',
      (hf, _, option) => hf.schedules.set('s', { cron: '0 3 * * *', workflow: 'asks', ...option }),
    ],
    'hf.schedules.next': ['counts', 'count', (hf, _, option) => hf.schedules.next('s', option)],
    'hf.schedules.backfill': ['two', 'to', (hf, _, option) => hf.schedules.backfill('s', { from: 0, ...option })],
    'hf.queues.drain': ['timeout', 'timeoutMs', (hf, _, option) => hf.queues.drain('default', option)],
    'hf.debug.import': ['pause', 'paused', (hf, _, option) => hf.debug.import('{}', option)],
  }

  it('is refused by every call of a client that takes options, and nothing is done', async () => {
    const asks = workflow('asks', (ctx) => ctx.ask('q', { question: '?' }))
    const hf = await open()
    const run = await hf.start(asks)
    await logged(run, 'question_asked')
    const before = (await run.events()).length
    for (const [name, [wrong, near, call]] of Object.entries(clientCalls)) {
      const error = await (async () => call(hf, run, { [wrong]: 5 }))().then(
        () => undefined,
        (thrown: unknown) => thrown,
      )
      expect([name, error]).toMatchObject([name, { code: 'invalid_input', details: { option: wrong, nearest: near } }])
    }
    expect(await run.events()).toHaveLength(before)
    expect(await hf.inbox()).toHaveLength(1)
    expect(await hf.schedules.list()).toEqual([])
  })

  it('is a value that an option of a step or a section can not have', async () => {
    const hf = await open()
    const wrong: Readonly<Record<string, (ctx: Context) => unknown>> = {
      'onFailure of a step': (ctx) => ctx.step('a', () => 1, { onFailure: 'ignore' as never }),
      'kind of a step': (ctx) => ctx.step('a', () => 1, { kind: 'llm' as never }),
      'onFailure of a map': (ctx) => ctx.map('a', [1], (n) => n, { onFailure: 'ignore' as never }),
      'onFailure of a section': (ctx) => ctx.section('a', () => 1, { onFailure: 'ignore' as never }),
    }
    for (const [name, call] of Object.entries(wrong)) {
      const error = await failureOf(await hf.start(workflow(name, call)))
      expect([name, error]).toMatchObject([name, { code: 'invalid_input', message: expect.stringContaining('it must be') }])
    }
  })

  it('is told with one mark at the end of its sentence', async () => {
    const said: string[] = []
    const hf = await open({ logger: { debug() {}, info() {}, warn() {}, error: (message) => void said.push(message) } })
    const run = await hf.start(workflow('work', (ctx) => ctx.step('a', () => 1, { timeout: 5 } as object)))
    const message = expect.stringContaining('Did you mean "timeoutMs"? ')
    await expect(run.result()).rejects.toMatchObject({ code: 'run_failed', message })
    // The run has its end before it is told.
    await vi.waitUntil(() => said.length > 0)
    expect(said).toEqual([message])
  })

  it('is refused by the targets of notify and by pool', async () => {
    const target = { name: 'n', deliver: () => {} }
    const webhook = { url: 'http://localhost:1', secrets: 'whsec_x' } as never
    await expect(open({ notify: { ...target, only: ['failed'] } as never })).rejects.toMatchObject({
      details: { option: 'only' },
    })
    await expect(open({ notify: { name: 'n', webhook } })).rejects.toMatchObject({
      code: 'invalid_input',
      message: 'The webhook of notify target "n" has no option "secrets". Did you mean "secret"?',
    })
    await expect(open({ pool: { maximum: 3 } as never })).rejects.toMatchObject({ details: { option: 'maximum' } })
  })

  it('is refused by open and its worker', async () => {
    await expect(open({ worker: { concurency: 5 } as object })).rejects.toMatchObject({
      code: 'invalid_input',
      message: 'worker of open has no option "concurency". Did you mean "concurrency"?',
    })
    await expect(open({ workflow: [] } as object)).rejects.toMatchObject({ details: { nearest: 'workflows' } })
  })
})

onEveryStore('a forgotten await', ({ open }) => {
  /** What is said about a run of a function, once it has completed. */
  async function saidAbout(
    fn: (ctx: Context, world: { stop: () => void; stopped: Promise<void> }) => Promise<unknown>,
  ): Promise<string[]> {
    const said: string[] = []
    const note = (message: string) => void said.push(message)
    const hf = await open({ logger: { debug() {}, info() {}, warn: note, error: note } })
    const { promise: stopped, open: stop } = gate()
    const work = workflow('work', (ctx) => fn(ctx, { stop, stopped }))
    await hf.run(work, undefined, { id: 'r' })
    stop()
    return said
  }

  it('is told when the function returns while the call is under way', async () => {
    const said = await saidAbout(async (ctx, { stopped }) => {
      ctx.step('audit', () => stopped)
      return 'done'
    })
    expect(said).toEqual([
      'The function of run "r" of workflow "work" returned while "audit" was still under way, and nothing awaits it: its result is not recorded. Await it before the function returns.',
    ])
  })

  it('is told when the call has failed', async () => {
    const said = await saidAbout(async (ctx) => {
      ctx.step('audit', () => Promise.reject(new Error('the log is down')), { retry: { attempts: 1 } })
      await ctx.step('other', () => 1)
      await ctx.step('another', () => 1)
      return 'done'
    })
    expect(said).toEqual([
      '"audit" of run "r" of workflow "work" failed, and nothing awaits it: the log is down. The run has not failed by it; await it, or catch its error.',
    ])
  })

  it('is not every call that is under way at the end: one that lost a race is listened to', async () => {
    const fine: Readonly<Record<string, (ctx: Context, stopped: Promise<void>) => Promise<unknown>>> = {
      race: (ctx, stopped) => Promise.race([ctx.step('slow', () => stopped), ctx.step('fast', () => 1)]),
      loop: (ctx, stopped) => {
        const loop = async () => {
          await ctx.step('slow', () => stopped)
        }
        return Promise.race([loop(), ctx.step('fast', () => 1)])
      },
      later: async (ctx) => {
        const early = ctx.step('early', () => Promise.reject(new Error('no')), { retry: { attempts: 1 } })
        await ctx.step('other', () => 1)
        await ctx.step('another', () => 1)
        await early.catch(() => {})
      },
      all: (ctx) => Promise.all([ctx.step('a', () => 1), ctx.map('b', [1, 2], (n) => n), ctx.scope('c', () => ctx.sleep(1))]),
      returned: (ctx) => ctx.section('a', () => ctx.step('b', () => 1)),
    }
    for (const [name, fn] of Object.entries(fine))
      expect([name, await saidAbout((ctx, { stopped }) => fn(ctx, stopped).then(() => 'done'))]).toEqual([name, []])
  })
})

onEveryStore('a start inside a workflow', ({ open, openWrapped }) => {
  const mail = workflow('mail', (_, to: string) => `sent to ${to}`)

  it('is refused in its function, which every replay calls again', async () => {
    const starts: Readonly<Record<string, (hf: Holdfast) => Promise<unknown>>> = {
      start: (hf) => hf.start(mail, 'ann'),
      run: (hf) => hf.run(mail, 'ann'),
      startMany: (hf) => hf.startMany([{ workflow: mail, input: 'ann' }]),
      'thread.start': (hf) => hf.thread('t').start(mail, 'ann'),
      'thread.run': (hf) => hf.as('someone').thread('t').run(mail, 'ann'),
      'schedules.trigger': (hf) => hf.schedules.trigger('s'),
      'schedules.backfill': (hf) => hf.schedules.backfill('s', { from: Date.now() - 7_200_000 }),
    }
    const hf = await open()
    await hf.schedules.set('s', { everyMs: 3_600_000, workflow: mail, input: 'ann' })
    for (const [name, start] of Object.entries(starts)) {
      const order = workflow(`order ${name}`, async (ctx) => {
        await ctx.step('pay', () => 1)
        await start(hf)
      })
      const error = await failureOf(await hf.start(order))
      expect([name, error.code]).toEqual([name, 'nested_call'])
      expect(error.message).toContain('ctx.call')
      const scoped = workflow(`scoped ${name}`, (ctx) => ctx.section('all', () => start(hf)))
      expect((await failureOf(await hf.start(scoped))).code).toBe('nested_call')
    }
    expect((await hf.runs.list({ workflow: 'mail' })).items).toEqual([])
  })

  it('is also the retry of another run', async () => {
    const hf = await open()
    const failing = await hf.start(workflow({ name: 'failing', retry: { attempts: 1 } }, () => Promise.reject(new Error('no'))))
    await failureOf(failing)
    const before = (await failing.events()).length
    const error = await failureOf(await hf.start(workflow('retries', () => failing.retry())))
    expect(error).toMatchObject({ code: 'nested_call', message: expect.stringContaining('Retry it in a step.') })
    expect(await failing.events()).toHaveLength(before)
    await hf.run(workflow('retries in a step', (ctx) => ctx.step('retry', () => failing.retry())))
    await failureOf(failing)
    expect(await eventTypes(failing, 'run')).toContain('run_retried')
  })

  it('is work like any other in the body of a step, and outside once the run has ended', async () => {
    const hf = await open()
    let later: (() => Promise<unknown>) | undefined
    const order = workflow('order', async (ctx) => {
      later = AsyncResource.bind(() => hf.run(mail, 'ben'))
      return await ctx.step('mail', () => hf.run(mail, 'ann'))
    })
    expect(await hf.run(order)).toBe('sent to ann')
    expect(await later?.()).toBe('sent to ben')
  })

  it('is work like any other from when others see that the run has ended', async () => {
    const started = gate()
    const after = async (act: StoreAct, _: number, [changes]: readonly unknown[]) => {
      const isEnd =
        act === 'commit' && (changes as readonly Change[]).some(({ runId, run }) => runId === 'o' && run?.status === 'completed')
      if (isEnd) await started.promise
    }
    const hf = await openWrapped((store) => wrapStore(store, { after }))
    let later: (() => Promise<unknown>) | undefined
    const order = workflow('order', async () => {
      later = AsyncResource.bind(() =>
        hf.start(mail, 'ben').then(
          ({ id }) => id,
          (error: Error) => error.message,
        ),
      )
    })
    const run = await hf.start(order, undefined, { id: 'o' })
    await becomes(run, 'completed')
    const said = later?.()
    started.open()
    expect(await said).toMatch(/^[0-9a-f-]{36}$/)
  })
})

onEveryStore('a call on ctx inside the body of a step', ({ open }) => {
  it('is nested_call, which names the method and what the user called it', async () => {
    const nested: Readonly<Record<string, (ctx: Context) => unknown>> = {
      'ctx.step("x")': (ctx) => ctx.step('x', () => 1),
      'ctx.once("x")': (ctx) => ctx.once('x', { run: () => 1 }),
      'ctx.begin("x")': (ctx) => ctx.begin('x'),
      'ctx.transaction("x")': (ctx) => ctx.transaction('x', () => 1),
      'ctx.map("x")': (ctx) => ctx.map('x', [1], () => 1),
      'ctx.scope("x")': (ctx) => ctx.scope('x', () => 1),
      'ctx.section("x")': (ctx) => ctx.section('x', () => 1),
      'ctx.waitFor("x")': (ctx) => ctx.waitFor('x'),
      'ctx.ask("x")': (ctx) => ctx.ask('x', { question: '?' }),
      'ctx.call("x")': (ctx) => ctx.call('x'),
      'ctx.stream("x")': (ctx) => ctx.stream('x'),
      'ctx.continueAs()': (ctx) => ctx.continueAs(1 as never),
      'ctx.sleep()': (ctx) => ctx.sleep(1),
      'ctx.now()': (ctx) => ctx.now(),
      'ctx.update()': (ctx) => ctx.update(() => {}),
    }
    const hf = await open()
    const work = workflow('work', (ctx, call: string) => ctx.step('body', async () => void (await nested[call]?.(ctx))))
    for (const call of Object.keys(nested)) {
      const error = await failureOf(await hf.start(work, call))
      expect(error).toMatchObject({ code: 'nested_call', message: expect.stringContaining(`${call} was called inside the body`) })
    }
  })
})

onEveryStore('a call on ctx inside the run of an effect', ({ open }) => {
  it.each([
    ['with nothing declared', {}],
    ['that is idempotent', { idempotent: true }],
    ['that can be looked up and has not happened', { check: () => ({ happened: false }) }],
  ])('is nested_call, and leaves nothing for a person to decide: an effect %s', async (_, declared) => {
    const hf = await open()
    let sent = 0
    const work = workflow('work', (ctx, isRight: boolean) =>
      ctx.once('send', { key: 'k', run: () => (isRight ? ++sent : ctx.step('x', () => 1)), ...declared }),
    )
    const run = await hf.start(work, false)
    expect(await failureOf(run)).toMatchObject({ code: 'nested_call', details: { step: 'send' } })
    expect(await hf.inbox()).toEqual([])
    expect(await eventTypes(run, 'effect')).toEqual(['effect_intended', 'effect_failed'])
    // Its key is free for code that is right.
    expect(await hf.run(work, true)).toBe(1)
  })
})

onEveryStore('the schema of an input', ({ open, openMortal, advance }) => {
  /** Text that becomes a number; says how often it was asked. */
  function createWorkflow(fn: (ctx: Context, n: number) => unknown = (_, n) => n) {
    const asked: unknown[] = []
    const input: StandardSchemaV1<unknown, number> = {
      '~standard': {
        version: 1,
        vendor: 'test',
        validate: (value) => {
          asked.push(value)
          return typeof value === 'string' && /^\d+$/.test(value)
            ? { value: Number(value) }
            : { issues: [{ message: 'not digits' }] }
        },
      },
    }
    return { asked, work: workflow({ name: 'work', input, retry: { attempts: 1 } }, fn as (ctx: Context, n: number) => unknown) }
  }
  const wrong = { code: 'invalid_input', message: 'The input of workflow "work" does not match its schema. $: not digits' }

  it('holds for a run that was started by name where nobody has the workflow, and transforms once', async () => {
    const { asked, work } = createWorkflow(async (ctx, n) => {
      await ctx.step('a', () => 1)
      await ctx.waitFor('go')
      return typeof n === 'number' ? n + 1 : 'not a number'
    })
    const web = await open({ worker: false })
    await open({ workflows: [work] })
    const run = await web.start('work', '41', { id: 'r' })
    await becomes(run, 'waiting')
    await web.signal('r', 'go')
    expect(await run.result()).toBe(42)
    expect(asked).toEqual(['41'])
    expect(await eventTypes(run, 'run')).toEqual(['run_queued', 'run_started', 'run_completed'])
    expect(await web.start('work', '41', { id: 'r' })).toMatchObject({ id: 'r' })
    const failing = await web.start('work', 'many', { id: 'wrong' })
    expect(await failureOf(failing)).toMatchObject(wrong)
    // It is still the input that it was started with, and is checked again.
    await failing.retry()
    expect(await failureOf(failing)).toMatchObject(wrong)
    expect(asked).toEqual(['41', 'many', 'many'])
  })

  it('is asked again after a crash only while its answer is not recorded', async () => {
    const { asked, work } = createWorkflow(async (ctx, n) => {
      await ctx.step('a', () => 1)
      await ctx.step('b', () => 1)
      return n
    })
    const web = await open({ worker: false })
    const run = await web.start('work', '7')
    const first = await openMortal({ workflows: [work] }, { beforeWrite: 1 })
    await first.dead
    advance(11_000)
    const second = await openMortal({ workflows: [work] }, { after: 'step_completed' })
    await second.dead
    advance(11_000)
    await open({ workflows: [work] })
    expect(await run.result()).toBe(7)
    expect(asked).toEqual(['7', '7'])
  })

  it('holds for the section of such a run that is tried again', async () => {
    const { asked, work } = createWorkflow((ctx, n) =>
      ctx.section(
        'part',
        () => ctx.step('a', ({ attempt }) => (attempt === 1 ? Promise.reject(new Error('no')) : n), { retry: { attempts: 1 } }),
        {
          retry: { attempts: 2, minMs: 1 },
        },
      ),
    )
    const web = await open({ worker: false })
    await open({ workflows: [work] })
    expect(await web.run('work', '7')).toBe(7)
    expect(asked).toEqual(['7'])
  })

  it('holds for a schedule that was set by name', async () => {
    const { asked, work } = createWorkflow()
    const web = await open({ worker: false })
    await open({ workflows: [work] })
    await web.schedules.set('right', { everyMs: 3_600_000, workflow: 'work', input: '3' })
    await web.schedules.set('right', { everyMs: 3_600_000, workflow: 'work', input: '3' })
    await web.schedules.set('wrong', { everyMs: 3_600_000, workflow: 'work', input: 3 })
    expect((await web.schedules.get('right')).settings).not.toHaveProperty('unchecked')
    expect(await (await web.schedules.trigger('right')).result()).toBe(3)
    expect(await failureOf(await web.schedules.trigger('wrong'))).toMatchObject(wrong)
    advance(3_600_000)
    await vi.waitUntil(
      async () => (await web.runs.list({ workflow: 'work' })).items.filter(({ finishedAt }) => finishedAt).length === 4,
      {
        timeout: 15_000,
      },
    )
    const { items } = await web.runs.list({ workflow: 'work' })
    expect(items.map(({ status }) => status).toSorted()).toEqual(['completed', 'completed', 'failed', 'failed'])
    expect(asked.filter((value) => value === 3)).toHaveLength(2)
    expect(asked.filter((value) => value === '3')).toHaveLength(2)
  })

  it('holds for a child that is called by name where nobody has it', async () => {
    const { asked, work } = createWorkflow()
    const parent = workflow('parent', (ctx, input: unknown) => ctx.call('work', input))
    const hf = await open({ workflows: [parent] })
    const right = await hf.start(parent, '5')
    const failing = await hf.start(parent, 'five')
    await Promise.all([becomes(right, 'waiting'), becomes(failing, 'waiting')])
    await open({ workflows: [work] })
    expect(await right.result()).toBe(5)
    expect(await failureOf(failing)).toMatchObject({ cause: wrong })
    expect(asked.toSorted()).toEqual(['5', 'five'])
  })

  it('holds for ctx.continueAs', async () => {
    const { asked, work } = createWorkflow(async (ctx, n) => {
      if (n === 9) await ctx.continueAs(n as never)
      return n < 3 ? await ctx.continueAs(String(n + 1) as never) : n
    })
    const hf = await open()
    expect(await hf.run(work, '1' as never)).toBe(3)
    expect(asked).toEqual(['1', '2', '3'])
    expect(await failureOf(await hf.start(work, '9' as never))).toMatchObject(wrong)
  })

  it('is that of the version that is meant', async () => {
    const { work } = createWorkflow()
    const next = workflow({ name: 'work', version: 2 }, (_, input: unknown) => input)
    const hf = await open({ workflows: [work, next] })
    expect(await hf.run('work', 'any')).toBe('any')
    expect(await hf.run('work', '8', { version: 1 })).toBe(8)
    await expect(hf.start('work', 'any', { version: 1 })).rejects.toMatchObject(wrong)
  })
})

onEveryStore('info().startedAt', ({ open }) => {
  it('is when the function was called, however long its first step takes', async () => {
    const { promise: held, open: release } = gate()
    const work = workflow('work', (ctx) => ctx.step('slow', () => held))
    const hf = await open({ workflows: [work] })
    const run = await hf.start(work)
    await logged(run, 'step_started')
    release()
    await run.result()
    const { createdAt, startedAt = 0, finishedAt = 0 } = await run.info()
    const begun = (await run.events()).find(({ type }) => type === 'step_started')
    expect(startedAt).toBeGreaterThanOrEqual(createdAt)
    expect(startedAt).toBeLessThanOrEqual(begun?.at ?? 0)
    expect(finishedAt).toBeGreaterThanOrEqual(startedAt)
  })
})

onEveryStore('a worker whose event loop is blocked for longer than the lease', ({ open, openWrapped, advance }) => {
  it('is no death of its step, which gets a lease as long as it takes', async () => {
    const bodies: (() => void)[] = []
    const begun = { next: gate() }
    const work = workflow({ name: 'work', retry: { attempts: 1 } }, (ctx) =>
      ctx.step('crunch', async () => {
        const { promise, open: end } = gate()
        bodies.push(end)
        begun.next.open()
        await promise
        return 'done'
      }),
    )
    const nextBody = async () => {
      await begun.next.promise
      begun.next = gate()
    }
    /** A client that neither claims, renews nor writes while it is blocked. */
    const openBlockable = async () => {
      let blocked = gate()
      blocked.open()
      const told = gate()
      const seen = { claims: 0 }
      const hooks = {
        before: async (act: StoreAct) => {
          if (act === 'renew' || act === 'commit' || act === 'claim') await blocked.promise
        },
        after: (act: StoreAct) => {
          if (act === 'deliver') told.open()
          if (act === 'claim') seen.claims++
        },
      }
      await openWrapped((store) => wrapStore(store, hooks), { workflows: [work], worker: { pollMs: 10 } })
      const block = () => {
        blocked = gate()
      }
      return { block, release: () => blocked.open(), told: told.promise, seen }
    }
    const client = await open({ worker: false })
    const run = await client.start('work')
    const one = await openBlockable()
    await nextBody()
    one.block()
    advance(11_000)
    const other = await openBlockable()
    await nextBody()
    other.block()
    // The first comes back, learns that it was taken over, and says that it lives.
    bodies[0]?.()
    one.release()
    await one.told
    advance(11_000)
    await nextBody()
    one.block()
    bodies[1]?.()
    other.release()
    await other.told
    advance(11_000)
    // Nobody takes it any more: its lease is long enough now.
    const before = other.seen.claims
    await vi.waitUntil(() => other.seen.claims > before + 2, { timeout: 15_000, interval: 5 })
    bodies[2]?.()
    one.release()
    expect(await run.result()).toBe('done')
    expect(bodies).toHaveLength(3)
  })
})

onEverySharedStore('a process without a worker', (scene) => {
  it('ends when it has nothing left to do, although it closed nothing; while it waits for a run it lives', async () => {
    const program = startProgram('leave-open', scene.url)
    expect(await program.said('waited')).toBe('timeout')
    expect(await program.ended).toBe(0)
  })
})

describe('an option that there is not', () => {
  it('is refused by workflow, plan and the step of a plan', () => {
    const refused = (near: string) =>
      expect.objectContaining({ code: 'invalid_input', details: expect.objectContaining({ nearest: near }) })
    expect(() => workflow({ name: 'w', timeout: 1 } as never, () => 1)).toThrow(refused('timeoutMs'))
    expect(() => state({ version: 1, initial: () => 1, migration: {} } as never)).toThrow(refused('migrations'))
    expect(() => plan('p', { states: 1 } as never)).toThrow(refused('state'))
    expect(() => plan('p').step('a', () => {}, { wieght: 1 } as never)).toThrow(refused('weight'))
  })

  it('is refused by copyStore', async () => {
    const copied = copyStore('memory:', 'memory:', { onprogress: () => {} } as object)
    await expect(copied).rejects.toMatchObject({ code: 'invalid_input', details: { nearest: 'onProgress' } })
  })

  it('may be undefined', () => {
    expect(workflow({ name: 'w', timeout: undefined } as never, () => 1).name).toBe('w')
  })
})

describe('open without a URL', () => {
  let folder: string
  const folderBefore = process.cwd()
  const urlBefore = process.env['HOLDFAST_URL']
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'holdfast-mistakes-'))
    process.chdir(folder)
    delete process.env['HOLDFAST_URL']
  })
  afterEach(() => {
    process.chdir(folderBefore)
    if (urlBefore !== undefined) process.env['HOLDFAST_URL'] = urlBefore
    else delete process.env['HOLDFAST_URL']
    rmSync(folder, { recursive: true, force: true })
  })
  const work = workflow('work', () => 1)

  it('is refused where a variable was meant that is not set', async () => {
    const url: string | undefined = process.env['A_DATABASE_THAT_NOBODY_SET']
    await expect(openHoldfast(url)).rejects.toMatchObject({ code: 'invalid_url', message: expect.stringContaining('undefined') })
    await expect(openHoldfast(url, { workflows: [work] })).rejects.toMatchObject({ code: 'invalid_url' })
    process.env['HOLDFAST_URL'] = 'memory:'
    const hf = await openHoldfast(url)
    expect(await hf.run(work)).toBe(1)
    await hf.close()
  })

  it('takes the default where nothing was meant, also with options', async () => {
    for (const open of [() => openHoldfast(), () => openHoldfast({ workflows: [work] })]) {
      const hf = await open()
      expect(await hf.run(work)).toBe(1)
      await hf.close()
    }
  })
})
