import { NotHappened, type OpenOptions, open as openHoldfast, type RunHandle, workflow } from 'holdfast'
import { wrapStore } from 'holdfast/testing'
import { afterEach, describe, expect, it, vi } from 'vitest'
import type { Change } from '../../src/store/change.ts'
import { becomes, failureOf, gate, logged } from './runs.ts'
import { onEveryStore, onLocalStores } from './stores.ts'

const once = { attempts: 1 }

type Said = { level: string; message: string; data: Readonly<Record<string, unknown>> | undefined }

/** A logger, and the warnings and errors that it was told. */
function createListener(): {
  said: Said[]
  logger: Exclude<OpenOptions['logger'], false | undefined>
  heard: (text: string) => Promise<Said>
} {
  const said: Said[] = []
  const note = (level: string) => (message: string, data?: Readonly<Record<string, unknown>>) =>
    void said.push({ level, message, data })
  const logger = { debug() {}, info() {}, warn: note('warn'), error: note('error') }
  const heard = async (text: string) => {
    await vi.waitUntil(() => said.some(({ message }) => message.includes(text)), { timeout: 15_000, interval: 5 })
    return said.find(({ message }) => message.includes(text)) as Said
  }
  return { said, logger, heard }
}

onEveryStore('the logger', ({ open, openMortal, openWrapped, advance }) => {
  it('hears when a run fails: run, step, reason, and the call that helps', async () => {
    const { said, logger, heard } = createListener()
    const hf = await open({ logger })
    const work = workflow('work', (ctx) => ctx.step('load', () => Promise.reject(new Error('no disk')), { retry: once }))
    await failureOf(await hf.start(work, undefined, { id: 'r' }))
    const { level, message, data } = await heard('failed')
    expect(level).toBe('error')
    expect(message).toBe('Run "r" of workflow "work" failed at "load": no disk. run.retry() continues it where it failed.')
    expect(data).toMatchObject({
      runId: 'r',
      workflow: 'work',
      step: 'load',
      error: expect.objectContaining({ message: 'no disk' }),
    })
    expect(said).toHaveLength(1)
  })

  it('hears when a run pauses because a step has no attempts left', async () => {
    const { logger, heard } = createListener()
    const hf = await open({ logger })
    const work = workflow('work', (ctx) =>
      ctx.step('load', () => Promise.reject(new Error('no disk')), { retry: once, onFailure: 'pause' }),
    )
    await hf.start(work, undefined, { id: 'r' })
    const { message, data } = await heard('paused')
    expect(message).toContain('Run "r" of workflow "work" is paused (retries) at "load": no disk. run.resume()')
    expect(data).toMatchObject({ runId: 'r', step: 'load', reason: 'retries' })
  })

  it('hears when a run has waited for over a minute for an effect that another one has under way', async () => {
    const { said, logger, heard } = createListener()
    const sending = gate()
    const answer = gate<string>()
    const send = workflow('send', (ctx) =>
      ctx.once('mail', {
        key: 'k',
        run: () => {
          sending.open()
          return answer.promise
        },
      }),
    )
    const hf = await open({ workflows: [send], logger, worker: { leaseMs: 600_000, pollMs: 20 } })
    await hf.start(send, undefined, { id: 'a' })
    await sending.promise
    const run = await hf.start(send, undefined, { id: 'b' })
    await becomes(run, 'waiting')
    expect(said).toEqual([])
    advance(61_000)
    const { level, message, data } = await heard('waits for effect')
    expect(level).toBe('warn')
    expect(message).toContain('Run "b" of workflow "send" waits for effect "mail" (key "k"), which run "a" has had under way')
    expect(message).toContain('(await hf.runs.get("a")).cancel()')
    expect(message).toContain('hf.resolve("k"')
    expect(data).toMatchObject({ runId: 'b', step: 'mail', effectKey: 'k', holder: 'a', reason: 'effect' })
    answer.open('sent')
    expect(await run.result()).toBe('sent')
    expect(said.filter((one) => one.message.includes('waits for effect'))).toHaveLength(1)
  })

  it('hears when a budget is used up', async () => {
    const { logger, heard } = createListener()
    const hf = await open({ logger })
    const work = workflow({ name: 'work', budget: { steps: 1 } }, async (ctx) => {
      await ctx.step('a', () => 1)
      await ctx.step('b', () => 1)
    })
    await hf.start(work, undefined, { id: 'r' })
    const { message } = await heard('paused (budget)')
    expect(message).toBe(
      'Run "r" of workflow "work" is paused (budget): Run "r" has used 1 steps of the 1 in its budget and is paused. ' +
        'run.resume({ budget }) with more steps continues it; run.cancel() ends it.',
    )
  })

  it('hears when an undo fails', async () => {
    const { logger, heard } = createListener()
    const hf = await open({ logger })
    const work = workflow({ name: 'work', retry: once }, async (ctx) => {
      await ctx.step('book', () => 1, { undo: () => Promise.reject(new Error('too late')), retry: once })
      await ctx.waitFor('go')
    })
    const run = await hf.start(work, undefined, { id: 'r' })
    await becomes(run, 'waiting')
    await expect(run.cancel()).rejects.toMatchObject({ code: 'conflict' })
    const { message } = await heard('paused (undo)')
    expect(message).toBe(
      'Run "r" of workflow "work" is paused (undo): The undo of "book" of run "r" failed: too late. run.resume() tries again; ' +
        'run.cancel({ undo: false }) ends it as it stands.',
    )
  })

  it('hears when nobody can know whether an effect happened', async () => {
    const { logger, heard } = createListener()
    const hf = await open({ logger })
    const work = workflow('work', (ctx) =>
      ctx.once('send', {
        key: 'mail-1',
        run: () => {
          throw new Error('connection reset')
        },
      }),
    )
    const run = await hf.start(work, undefined, { id: 'r' })
    const { level, message, data } = await heard('waits for a person')
    expect(level).toBe('warn')
    expect(message).toContain('"send" happened is not known (connection reset)')
    expect(message).toContain('hf.resolve("mail-1", { happened: true, result: <what the effect returns> })')
    expect(message).toContain('hf.resolve("mail-1", { happened: false }) to send it again.')
    expect(data).toMatchObject({ runId: 'r', step: 'send', effectKey: 'mail-1' })
    await run.cancel({ undo: false })
  })

  it('hears when a run is taken over, and what was running', async () => {
    const { logger, heard } = createListener()
    const work = workflow('work', (ctx) => ctx.step('long', ({ attempt }) => (attempt === 1 ? first() : 'done')))
    let calls = 0
    const first = () => (++calls === 1 ? new Promise<string>(() => {}) : 'done')
    const { hf, die } = await openMortal({ workflows: [work] })
    const run = await hf.start(work, undefined, { id: 'r' })
    await logged(run, 'step_started')
    await die()
    const heir = await open({ workflows: [work], logger })
    advance(11_000)
    expect(await (await heir.runs.get('r')).result()).toBe('done')
    const { level, message, data } = await heard('taken over')
    expect(level).toBe('warn')
    expect(message).toContain('Step "long" was running.')
    expect(data).toMatchObject({ runId: 'r', step: 'long' })
  })

  it('that throws does not keep a run from ending', async () => {
    const bad = () => {
      throw new Error('no log')
    }
    const hf = await open({ logger: { debug: bad, info: bad, warn: bad, error: bad } })
    const work = workflow('work', () => Promise.reject(new Error('boom')))
    expect((await failureOf(await hf.start(work))).message).toBe('boom')
  })

  it('that is asynchronous and rejects does not bring the process down', async () => {
    const unhandled: unknown[] = []
    const note = (reason: unknown) => void unhandled.push(reason)
    process.on('unhandledRejection', note)
    try {
      const bad = async () => Promise.reject(new Error('no log'))
      const hf = await open({ logger: { debug: bad, info: bad, warn: bad, error: bad } })
      const work = workflow('work', () => Promise.reject(new Error('boom')))
      expect((await failureOf(await hf.start(work))).message).toBe('boom')
      await hf.close()
      await new Promise((resolve) => setTimeout(resolve, 20))
    } finally {
      process.off('unhandledRejection', note)
    }
    expect(unhandled).toEqual([])
  })

  it('hears once that a child, a scheduled run or a run needs a workflow or version that this process does not have', async () => {
    const { said, logger } = createListener()
    const parent = workflow('parent', async (ctx) => {
      await ctx.call('leef', 1, { detached: true })
      await ctx.call('leef', 2, { detached: true })
      await ctx.call('leaf', 3, { detached: true })
    })
    const leaf = workflow('leaf', () => 1)
    const hf = await open({ logger, workflows: [parent, leaf] })
    await hf.run(parent, undefined, { id: 'p' })
    const version = 'leaf" version 9, which this process does not have'
    await hf.start('leaf', undefined, { id: 'r', version: 9 })
    await hf.start('leaf', undefined, { version: 9 })
    await hf.schedules.set('hourly', { workflow: 'tik', everyMs: 3_600_000 })
    await hf.schedules.set('hourly', { workflow: 'tik', everyMs: 7_200_000 })
    expect(said.map(({ level, message }) => [level, message])).toEqual([
      ['warn', expect.stringContaining('Run "p/leef#1" needs workflow "leef" version 1, which this process does not have.')],
      ['warn', expect.stringContaining(`Run "r" needs workflow "${version}`)],
      ['warn', expect.stringContaining('Schedule "hourly" starts workflow "tik" version 1, which this process does not have.')],
    ])
    const client = createListener()
    const sender = await open({ logger: client.logger, worker: false })
    await sender.start('elsewhere', undefined)
    await sender.schedules.set('nightly', { workflow: 'elsewhere', everyMs: 3_600_000 })
    expect(client.said).toEqual([])
  })

  it('hears nothing about a schedule that is deleted while a worker is at it', async () => {
    const { said, logger } = createListener()
    const [isHeld, isDeleted] = [gate(), gate()]
    const hf = await openWrapped(
      (store) =>
        wrapStore(store, {
          before: async (act, _, [changes]) => {
            if (act !== 'commit') return
            const isScheduling = (changes as readonly Change[]).some(({ events }) =>
              events.some(({ type }) => type === 'timer_set'),
            )
            if (!isScheduling) return
            isHeld.open()
            await isDeleted.promise
          },
        }),
      { logger, worker: { concurrency: 1 } },
    )
    const work = workflow('work', () => 1)
    await hf.schedules.set('hourly', { workflow: work, everyMs: 3_600_000 })
    await isHeld.promise
    expect(await hf.schedules.delete('hourly')).toBe(true)
    isDeleted.open()
    // The one place of the worker is free again: it has let the schedule go.
    expect(await hf.run(work)).toBe(1)
    expect(said).toEqual([])
  })

  it('hears nothing about a run that completes, is paused by a person or is cancelled', async () => {
    const { said, logger } = createListener()
    const hf = await open({ logger })
    const work = workflow('work', async (ctx, isLong: boolean) => {
      await ctx.step('a', () => Promise.reject(new NotHappened('x')), { retry: once }).catch(() => {})
      if (isLong) await ctx.waitFor('go')
    })
    await hf.run(work, false)
    const run = await hf.start(work, true)
    await becomes(run, 'waiting')
    await run.pause()
    await run.resume()
    await run.cancel()
    expect(said).toEqual([])
  })
})

onEveryStore('what helps a run that failed', ({ open }) => {
  it('of a cancelled child is to go back to before the call: it starts another', async () => {
    const { logger, heard } = createListener()
    const hf = await open({ logger })
    const child = workflow('child', (ctx) => ctx.waitFor('go'))
    const parent = workflow('parent', async (ctx) => {
      await ctx.step('before', () => 1)
      return ctx.call(child, undefined)
    })
    const run = await hf.start(parent, undefined, { id: 'p' })
    await becomes(run, 'waiting')
    await (await hf.runs.get('p/child#1')).cancel()
    const told = 'to start another, roll the run back to before the call with run.rollback(checkpoint), then run.resume().'
    await expect(run.result()).rejects.toMatchObject({ code: 'run_failed', message: expect.stringContaining(told) })
    expect((await heard('failed')).message).toContain(told)
    const before = (await hf.thread('p').checkpoints()).find(({ step }) => step === 'before')
    await run.rollback(before?.checkpoint as string)
    await run.resume()
    await becomes(run, 'waiting')
    const second = (await hf.runs.list({ workflow: 'child' })).items.find(({ status }) => status !== 'cancelled')
    await hf.signal(second?.id as string, 'go', 'other')
    expect(await run.result()).toBe('other')
  })

  it('is told once where its error says it', async () => {
    const hf = await open()
    const work = workflow('work', (ctx) => ctx.waitFor('go', { timeoutMs: 1 }))
    const { message } = (await hf.run(work).catch((caught: Error) => caught)) as Error
    expect(message.match(/run\.retry\(\)/g)).toHaveLength(1)
  })

  it('of a mistake in its code is to fix that first', async () => {
    const { logger, heard } = createListener()
    const hf = await open({ logger })
    const work = workflow('work', (ctx) => ctx.step('a', () => 1, { retrys: 2 } as never))
    const error = await hf.run(work).catch((caught: Error) => caught)
    expect((error as Error).message).toContain('Fix it, then run.retry() continues it where it failed.')
    expect((await heard('failed')).message).toContain('Fix it, then run.retry() continues it where it failed.')
  })
})

onLocalStores('a run that no longer matches its log', ({ open }) => {
  it('is helped by both versions side by side; one whose undo is not found says each piece of advice once', async () => {
    const { logger, heard } = createListener()
    const before = workflow('work', async (ctx) => {
      await ctx.step('book', () => 1, { undo: () => {} })
      return ctx.waitFor('go')
    })
    const first = await open({ workflows: [before] })
    await becomes(await first.start('work', undefined, { id: 'r' }), 'waiting')
    await first.close()
    const after = workflow('work', async (ctx) => {
      await ctx.step('reserve', () => 1)
      return ctx.waitFor('go')
    })
    const hf = await open({ workflows: [after], logger })
    const run = await hf.runs.get('r')
    await hf.signal('r', 'go')
    const { message } = await heard('paused (mismatch)')
    expect(message).toContain(
      'Restore what version 1 of workflow "work" did and call run.resume(). To change the code, add it as version 2 and keep version 1 registered: open(url, { workflows: [v1, v2] }).',
    )
    expect(message).toContain('run.cancel() ends the run if its undos can be found, run.cancel({ undo: false }) without undoing.')
    const refused = await run.cancel().catch((caught: Error) => caught)
    expect(refused).toMatchObject({ code: 'conflict', details: { status: 'paused', reason: 'undo' } })
    expect((refused as Error).message).not.toContain('To change the code')
    expect((refused as Error).message).toContain('cancel({ undo: false })')
    await run.cancel({ undo: false })
  })
})

onEveryStore('result()', ({ open }) => {
  const stop = async (run: RunHandle) =>
    run.result().then(
      () => ({}),
      (error: Error) => error,
    )

  it('of a run that no longer matches its log rejects with nondeterminism, also for who waits already', async () => {
    let input = 'a'
    const work = workflow('work', async (ctx) => {
      await ctx.step('load', () => 1, { input })
      await ctx.waitFor('go')
    })
    const hf = await open()
    const run = await hf.start(work, undefined, { id: 'r' })
    await becomes(run, 'waiting')
    const waiting = stop(run)
    input = 'b'
    await hf.signal('r', 'go')
    const error = await waiting
    expect(error).toMatchObject({
      code: 'nondeterminism',
      // What helps is said once.
      message: expect.stringMatching(/^Run "r" of workflow "work" is paused \(mismatch\): (?!.*resume.*resume).*resume/),
      details: { runId: 'r', status: 'paused', reason: 'mismatch' },
      cause: expect.objectContaining({ code: 'nondeterminism' }),
    })
    expect(await stop(run)).toMatchObject({ code: 'nondeterminism' })
    // Repaired, it continues and has a result again.
    input = 'a'
    await run.resume()
    await run.result()
  })

  it('names the status as it is when its time is over, and what helps', async () => {
    const hf = await open()
    const cases = {
      'waiting (timer)': workflow('sleeps', (ctx) => ctx.sleep(3_600_000)),
      'waiting (signal)': workflow('listens', (ctx) => ctx.waitFor('go')),
      'waiting (person)': workflow('asks', (ctx) => ctx.ask('name', { question: 'Who?' })),
      'paused (retries)': workflow('fails', (ctx) =>
        ctx.step('a', () => Promise.reject(new Error('no')), { retry: once, onFailure: 'pause' }),
      ),
    }
    const helps = { timer: 'timer', signal: 'hf.signal', person: 'hf.inbox()', retries: 'run.resume()' }
    for (const [status, work] of Object.entries(cases)) {
      const run = await hf.start(work)
      const [is, reason] = status.slice(0, -1).split(' (') as ['waiting' | 'paused', keyof typeof helps]
      await becomes(run, is)
      const error = await run.result({ timeoutMs: 1 }).catch((caught: Error) => caught)
      expect(error).toMatchObject({ code: 'timeout', details: { status: is, reason } })
      expect((error as Error).message).toContain(`was still ${status} after 1 ms. `)
      expect((error as Error).message).toContain(helps[reason])
    }
  })
})

onEveryStore('the time-out of result()', ({ open }) => {
  const messageOf = (run: RunHandle) =>
    run.result({ timeoutMs: 1 }).then(
      () => '',
      ({ message }: Error) => message,
    )

  it('names the child that is waited for, and where that stands', async () => {
    const hf = await open()
    const child = workflow('child', (ctx) =>
      ctx.step('a', () => Promise.reject(new Error('no')), { retry: once, onFailure: 'pause' }),
    )
    const parent = workflow('parent', (ctx) => ctx.call(child, undefined))
    const run = await hf.start(parent, undefined, { id: 'p' })
    await becomes(run, 'waiting')
    await becomes(await hf.runs.get('p/child#1'), 'paused')
    expect(await messageOf(run)).toContain(
      'It waits for child "p/child#1", which is paused (retries): resume or cancel that run.',
    )
  })

  it('says what keeps the child that is waited for from being claimed', async () => {
    const hf = await open()
    const parent = workflow('parent', (ctx) => ctx.call('elsewhere', undefined))
    const run = await hf.start(parent, undefined, { id: 'p' })
    await becomes(run, 'waiting')
    expect(await messageOf(run)).toContain(
      'It waits for child "p/elsewhere#1", which is pending. No worker here has workflow "elsewhere" version 1',
    )
  })

  it('says what keeps a pending run from being claimed: its queue, its workflow, its turn or its time', async () => {
    const hf = await open()
    const work = workflow('work', (ctx) => ctx.waitFor('go'))
    await hf.queues.pause('mail')
    expect(await messageOf(await hf.start(work, undefined, { queue: 'mail' }))).toContain(
      'Queue "mail" is paused: hf.queues.resume("mail") continues it.',
    )
    expect(await messageOf(await hf.start('work', undefined, { version: 9 }))).toContain(
      'No worker here has workflow "work" version 9 (this process has 1)',
    )
    const first = await hf.start(work, undefined, { id: 'first' })
    await becomes(first, 'waiting')
    expect(await messageOf(await hf.thread('first').start(work))).toContain(
      'Run "first" of the same thread executes before it, and is waiting (signal).',
    )
    expect(await messageOf(await hf.start(work, undefined, { delayMs: 60_000 }))).toMatch(/It is due at \d{4}-/)
  })

  it('of a waiting run that has got its signal says that no worker here has its workflow', async () => {
    const other = await open({ workflows: [workflow('work', (ctx) => ctx.waitFor('go'))] })
    await becomes(await other.start('work', undefined, { id: 'r' }), 'waiting')
    await other.close()
    const hf = await open({ workflows: [workflow({ name: 'work', version: 2 }, () => 1)] })
    await hf.signal('r', 'go')
    expect(await messageOf(await hf.runs.get('r'))).toContain(
      'was still waiting (signal) after 1 ms. No worker here has workflow "work" version 1 (this process has 2)',
    )
  })

  it('says that a person is waited for also while the run is held, before it is persisted as waiting', async () => {
    const hf = await open({ worker: { quietMs: 60_000 } })
    const unsure = workflow('unsure', (ctx) =>
      ctx.once('send', {
        run: () => {
          throw new Error('connection reset')
        },
      }),
    )
    const asks = workflow('asks', (ctx) => ctx.ask('name', { question: 'Who?' }))
    for (const [work, type] of [
      [unsure, 'effect_unsure'],
      [asks, 'question_asked'],
    ] as const) {
      const run = await hf.start(work)
      await logged(run, type)
      const error = await run.result({ timeoutMs: 1 }).catch((caught: Error) => caught)
      expect(error).toMatchObject({
        code: 'timeout',
        message: expect.stringContaining('was still waiting (person) after 1 ms. hf.inbox()'),
      })
    }
  })
})

describe('without a logger', () => {
  afterEach(() => void vi.restoreAllMocks())
  const failing = workflow('failing', () => Promise.reject(new Error('boom')))

  it('a line on stderr says that a run failed', async () => {
    const written = vi.spyOn(process.stderr, 'write').mockReturnValue(true)
    const hf = await openHoldfast('memory:')
    await failureOf(await hf.start(failing, undefined, { id: 'r' }))
    await hf.close()
    expect(written.mock.calls.map(([line]) => line)).toEqual([
      'holdfast: Run "r" of workflow "failing" failed: boom. run.retry() continues it where it failed.\n',
    ])
  })

  it('logger: false switches it off', async () => {
    const written = vi.spyOn(process.stderr, 'write').mockReturnValue(true)
    const hf = await openHoldfast('memory:', { logger: false })
    await failureOf(await hf.start(failing))
    await hf.close()
    expect(written).not.toHaveBeenCalled()
  })

  it('a logger that lacks a function is refused', async () => {
    await expect(openHoldfast('memory:', { logger: { warn() {} } as never })).rejects.toMatchObject({ code: 'invalid_input' })
    await expect(openHoldfast('memory:', { logger: true as never })).rejects.toMatchObject({ code: 'invalid_input' })
  })
})
