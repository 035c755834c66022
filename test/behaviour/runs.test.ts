import { setTimeout as sleep } from 'node:timers/promises'
import { HoldfastError, type RunEvent, workflow } from 'holdfast'
import { type StoreAct, wrapStore } from 'holdfast/testing'
import { expect, it } from 'vitest'
import { z } from 'zod'
import { patience } from '../patience.ts'
import { becomes, codeOfRejection, eventTypes, failureOf, gate, logged, noting } from './runs.ts'
import { onEveryStore } from './stores.ts'

const echo = workflow('echo', (ctx, input: unknown) => ctx.step('echo', () => input))

onEveryStore('starting a run', ({ open }) => {
  it('twice with one id and the same input is one run, key order aside', async () => {
    let executions = 0
    const count = workflow('count', (ctx, input: { a: number; b: { c: number; d: Date } }) =>
      ctx.step('a', () => {
        executions++
        return input
      }),
    )
    const hf = await open()
    const first = await hf.start(count, { a: 1, b: { c: 2, d: new Date(0) } }, { id: 'r' })
    const second = await hf.start(count, { b: { d: new Date(0), c: 2 }, a: 1 }, { id: 'r' })
    expect(second.id).toBe(first.id)
    expect(await second.result()).toEqual(await first.result())
    const third = await hf.start(count, { a: 1, b: { c: 2, d: new Date(0) } }, { id: 'r' })
    await third.result()
    expect(executions).toBe(1)
    expect((await hf.runs.list()).items).toHaveLength(1)
  })

  it('a hundred times at once with one id, from two clients, is one run', async () => {
    let executions = 0
    const count = workflow('count', (ctx) => ctx.step('a', () => ++executions))
    const clients = [await open({ workflows: [count] }), await open({ workflows: [count] })]
    const runs = await Promise.all(Array.from({ length: 100 }, (_, i) => clients[i % 2]?.start(count, undefined, { id: 'r' })))
    expect(await Promise.all(runs.map((run) => run?.result()))).toEqual(Array(100).fill(1))
    expect(executions).toBe(1)
  })

  it('of a workflow that is passed with another version than it has is refused, and so is a schedule of it', async () => {
    const hf = await open()
    const work = workflow({ name: 'work', version: 2 }, () => 'done')
    for (const version of [1, 9]) {
      const refusal = {
        code: 'invalid_input',
        message: expect.stringContaining(`version is ${version}, but the workflow "work"`),
      }
      await expect(hf.start(work, undefined, { id: 'r', version })).rejects.toMatchObject(refusal)
      await expect(hf.schedules.set('s', { workflow: work, version, everyMs: 60_000 })).rejects.toMatchObject(refusal)
    }
    expect(await hf.schedules.list()).toEqual([])
    expect(await hf.run(work, undefined, { id: 'r', version: 2 })).toBe('done')
  })

  it('of a child whose workflow is passed with another version than it has is refused', async () => {
    const child = workflow({ name: 'child', version: 2 }, () => 'second')
    const parent = workflow('parent', async (ctx, input: { version: number; detached: boolean }) => {
      const options = input as { version: number; detached: false }
      return await ctx.call(child, undefined, options)
    })
    const hf = await open({ workflows: [parent, child] })
    for (const detached of [false, true]) {
      const run = await hf.start(parent, { version: 1, detached })
      expect(await failureOf(run)).toMatchObject({
        code: 'invalid_input',
        message: expect.stringMatching(
          /^version is 1, but the workflow "child" that was passed is version 2\. .* Nothing was started\.$/,
        ),
      })
    }
    expect((await hf.runs.list({ workflow: 'child' })).items).toEqual([])
    expect(await hf.run(parent, { version: 2, detached: false })).toBe('second')
  })

  it('with the id of a run that has another input, workflow or thread is input_mismatch, and nothing is started', async () => {
    const other = workflow('other', () => 'other')
    const hf = await open({ workflows: [other] })
    await hf.run(echo, { a: 1 }, { id: 'r', threadId: 't' })
    const error = await hf.start(echo, { a: 2 }, { id: 'r' }).catch((thrown: HoldfastError) => thrown)
    expect(error).toMatchObject({ code: 'input_mismatch' })
    expect((error as HoldfastError).message).toContain('another id')
    expect(await codeOfRejection(hf.start(other, { a: 1 } as never, { id: 'r' }))).toBe('input_mismatch')
    expect(await codeOfRejection(hf.start(echo, { a: 1 }, { id: 'r', threadId: 'other' }))).toBe('input_mismatch')
    expect(await hf.run(echo, { a: 1 }, { id: 'r' })).toEqual({ a: 1 })
    expect((await hf.runs.list()).items).toHaveLength(1)
  })

  it('tells inputs apart that JSON would not: 1 and 1n, a Date and its text, undefined and nothing, -0 and 0', async () => {
    const hf = await open()
    const pairs: [unknown, unknown][] = [
      [1, 1n],
      [new Date(0), new Date(0).toISOString()],
      [{ a: undefined }, {}],
      [-0, 0],
      [new Set([1]), [1]],
      [null, undefined],
    ]
    for (const [index, [one, other]] of pairs.entries()) {
      await hf.start(echo, one, { id: `r${index}` })
      expect(await codeOfRejection(hf.start(echo, other, { id: `r${index}` }))).toBe('input_mismatch')
    }
  })

  it("ifFailed: 'retry' takes a failed run up where it failed, and starts one that is not there", async () => {
    const ran: string[] = []
    let isDown = true
    const work = workflow({ name: 'work', retry: { attempts: 1 } }, async (ctx) => {
      await ctx.step('first', () => void ran.push('first'))
      return ctx.step('second', () => {
        ran.push('second')
        if (isDown) throw new Error('down')
        return 'done'
      })
    })
    const hf = await open()
    const run = await hf.start(work, undefined, { id: 'r', ifFailed: 'retry' })
    await failureOf(run)
    expect(await failureOf(await hf.start(work, undefined, { id: 'r' }))).toMatchObject({ message: 'down' })
    isDown = false
    expect(await hf.run(work, undefined, { id: 'r', ifFailed: 'retry' })).toBe('done')
    expect(await hf.run(work, undefined, { id: 'r', ifFailed: 'retry' })).toBe('done')
    expect(ran).toEqual(['first', 'second', 'second'])
  })

  it('of a bare name that nobody registered is workflow_not_registered, which says what to do', async () => {
    const hf = await open()
    const error = await hf.start('unknown').catch((thrown: HoldfastError) => thrown)
    expect(error).toMatchObject({ code: 'workflow_not_registered' })
    expect((error as HoldfastError).message).toContain('worker: false')
    expect((await hf.runs.list()).items).toEqual([])
  })

  it('with worker: false queues, also a name that is not known here, for another process', async () => {
    const client = await open({ worker: false })
    const run = await client.start('echo', 'hello', { id: 'r' })
    expect(await run.info()).toMatchObject({ status: 'pending', workflow: 'echo' })
    await open({ workflows: [echo] })
    expect(await run.result()).toBe('hello')
  })

  it('with delayMs or runAt waits until then', async () => {
    const hf = await open()
    const delayed = await hf.start(echo, 1, { delayMs: 60_000 })
    const dated = await hf.start(echo, 2, { runAt: Date.now() + 3_600_000 })
    const past = await hf.start(echo, 3, { runAt: 0 })
    expect(await past.result()).toBe(3)
    expect(await delayed.info()).toMatchObject({ status: 'pending' })
    expect(await dated.info()).toMatchObject({ status: 'pending' })
  })

  it('refuses options that make no sense with invalid_input, and starts nothing', async () => {
    const hf = await open()
    const wrong = [
      { delayMs: Number.NaN },
      { delayMs: -1 },
      { delayMs: Number.POSITIVE_INFINITY },
      { runAt: Date.parse('never') },
      { runAt: new Date() as never },
      { priority: Number.NaN },
      { priority: 1.5 },
      { version: 0 },
      { ifBusy: 'maybe' as never },
      { ifFailed: 'maybe' as never },
    ]
    for (const options of wrong) {
      expect([options, await codeOfRejection(hf.start(echo, 1, options))]).toEqual([options, 'invalid_input'])
    }
    expect(await codeOfRejection(hf.start(echo, 1, { queue: '' }))).toBe('invalid_id')
    expect((await hf.runs.list()).items).toEqual([])
    expect(await hf.run(echo, 'the next ordinary run')).toBe('the next ordinary run')
  })

  it('validates the input with the schema of the workflow, and the run gets what the schema returns', async () => {
    const typed = workflow({ name: 'typed', input: z.object({ n: z.coerce.number() }) }, async (_, input) => input)
    const hf = await open()
    expect(await hf.run(typed, { n: '5' } as never)).toEqual({ n: 5 })
    const error = await hf.start(typed, { n: 'five' } as never).catch((thrown: HoldfastError) => thrown)
    expect(error).toMatchObject({ code: 'invalid_input' })
    expect((error as HoldfastError).message).toContain('.n')
  })

  it('validates the output: what does not match fails the run', async () => {
    const typed = workflow(
      { name: 'typed', output: z.object({ n: z.number() }) },
      async (_, input: unknown) => input as { n: number },
    )
    const hf = await open()
    expect(await hf.run(typed, { n: 5 })).toEqual({ n: 5 })
    expect(await failureOf(await hf.start(typed, { n: 'five' }))).toMatchObject({ code: 'invalid_input' })
  })

  it('gives the output exactly, undefined included', async () => {
    const same = workflow('same', async (_, input: unknown) => input)
    const hf = await open()
    for (const value of [undefined, null, 0, '', [], new Map([[1, new Date(0)]]), { a: undefined }]) {
      expect(await hf.run(same, value)).toStrictEqual(value)
    }
  })

  it('higher priority goes first', async () => {
    const order: unknown[] = []
    const note = workflow('note', (_, input: number) => void order.push(input))
    const client = await open({ worker: false })
    const runs = []
    for (const priority of [0, 5, -1, 9]) runs.push(await client.start(note, priority, { priority }))
    await open({ workflows: [note], worker: { concurrency: 1 } })
    await Promise.all(runs.map((run) => run.result()))
    expect(order).toEqual([9, 5, 0, -1])
  })
})

onEveryStore('runs.get and runs.list', ({ open }) => {
  it('get gives a handle, or run_not_found', async () => {
    const hf = await open()
    await hf.run(echo, 'x', { id: 'r' })
    expect(await (await hf.runs.get('r')).result()).toBe('x')
    expect(await codeOfRejection(hf.runs.get('other'))).toBe('run_not_found')
    expect(await codeOfRejection(hf.runs.get(''))).toBe('invalid_id')
  })

  it('list gives the newest first, page by page, without gaps or repeats while runs come and go', async () => {
    const hf = await open({ worker: false })
    for (let i = 0; i < 7; i++) await hf.start(echo, i, { id: `r${i}` })
    const seen: string[] = []
    let cursor: string | undefined
    do {
      const page = await hf.runs.list({ limit: 3, ...(cursor !== undefined && { cursor }) })
      seen.push(...page.items.map(({ id }) => id))
      if (cursor === undefined) {
        await hf.start(echo, 'late', { id: 'late' })
        await hf.thread('r3').delete()
      }
      cursor = page.cursor
    } while (cursor !== undefined)
    expect(seen).toEqual(['r6', 'r5', 'r4', 'r2', 'r1', 'r0'])
  })

  it('list filters by status, workflow, thread and queue', async () => {
    const fails = workflow({ name: 'fails', queue: 'slow', retry: { attempts: 1 } }, (ctx) =>
      ctx.step('a', () => {
        throw new Error('no')
      }),
    )
    const hf = await open()
    await hf.run(echo, 1, { id: 'e1', threadId: 't' })
    await hf.run(echo, 2, { id: 'e2' })
    await failureOf(await hf.start(fails, undefined, { id: 'f' }))
    const ids = async (filter: Parameters<typeof hf.runs.list>[0]) => (await hf.runs.list(filter)).items.map(({ id }) => id)
    expect(await ids({})).toEqual(['f', 'e2', 'e1'])
    expect(await ids({ status: 'failed' })).toEqual(['f'])
    expect(await ids({ status: ['failed', 'completed'] })).toEqual(['f', 'e2', 'e1'])
    expect(await ids({ status: 'pending' })).toEqual([])
    expect(await ids({ status: [] })).toEqual([])
    expect(await ids({ workflow: 'echo' })).toEqual(['e2', 'e1'])
    expect(await ids({ threadId: 't' })).toEqual(['e1'])
    expect(await ids({ queue: 'slow' })).toEqual(['f'])
    expect(await ids({ workflow: 'echo', status: 'failed' })).toEqual([])
    expect(await ids({ workflow: "' OR 1=1 --" })).toEqual([])
    expect((await hf.runs.list({ status: 'failed' })).items[0]).toMatchObject({ currentStep: 'a', error: { message: 'no' } })
  })

  it('list refuses a limit or a cursor that is none, rather than ignore it', async () => {
    const hf = await open()
    for (const limit of [0, -1, 1.5, Number.NaN, 1_001, Number.POSITIVE_INFINITY]) {
      expect([limit, await codeOfRejection(hf.runs.list({ limit }))]).toEqual([limit, 'invalid_input'])
    }
    for (const cursor of ['', 'x', "1' OR '1'='1", '{}', '99999999999999999999999']) {
      expect([cursor, await codeOfRejection(hf.runs.list({ cursor }))]).toEqual([cursor, 'invalid_input'])
    }
    expect(await codeOfRejection(hf.runs.list({ status: 'unknown' as never }))).toBe('invalid_input')
  })

  it('another owner’s runs are as good as absent', async () => {
    const hf = await open()
    const acme = hf.as('acme')
    await acme.run(echo, 'acme', { id: 'r' })
    expect(await codeOfRejection(hf.runs.get('r'))).toBe('run_not_found')
    expect((await hf.runs.list()).items).toEqual([])
    expect(await codeOfRejection(hf.as('acme1').runs.get('r'))).toBe('run_not_found')
    expect(await hf.run(echo, 'mine', { id: 'r' })).toBe('mine')
    expect((await acme.runs.list()).items).toMatchObject([{ id: 'r', owner: 'acme' }])
    expect(await (await acme.runs.get('r')).result()).toBe('acme')
    for (const owner of ['acm', 'acme ', 'ACME', '%', '*', 'acme/r']) expect((await hf.as(owner).runs.list()).items).toEqual([])
  })
})

onEveryStore('pause and resume', ({ open, openWrapped, advance }) => {
  it('pause lets the running step finish and starts nothing new; a paused run survives a restart and says where it stands', async () => {
    const ran: string[] = []
    const inFirst = gate()
    const release = gate()
    const work = workflow('work', async (ctx) => {
      await ctx.step('first', async () => {
        inFirst.open()
        await release.promise
        ran.push('first')
      })
      await ctx.step('second', () => void ran.push('second'))
      return 'done'
    })
    const asked = gate()
    const hf = await openWrapped(noting('deliver', asked.open), { workflows: [work] })
    const run = await hf.start(work, undefined, { id: 'r' })
    await inFirst.promise
    const pausing = run.pause({ by: 'olga' })
    await asked.promise
    release.open()
    await pausing
    await becomes(run, 'paused')
    expect(ran).toEqual(['first'])
    expect(await run.info()).toMatchObject({ reason: 'asked', completedSteps: ['first'] })
    expect((await run.events()).at(-1)).toMatchObject({ type: 'run_paused', data: { reason: 'asked', by: 'olga' } })
    await hf.close()

    const second = await open({ workflows: [work] })
    advance(3_600_000)
    await second.run(echo, 'a run that shows that the worker has looked')
    const same = await second.runs.get('r')
    expect(await same.info()).toMatchObject({ status: 'paused', reason: 'asked', completedSteps: ['first'] })
    await same.resume()
    expect(await same.result()).toBe('done')
    expect(ran).toEqual(['first', 'second'])
  })

  it('reaches a run that another client executes', async () => {
    const inBody = gate()
    const release = gate()
    const work = workflow('work', async (ctx) => {
      await ctx.step('a', async () => {
        inBody.open()
        await release.promise
      })
      return ctx.step('b', () => 'b')
    })
    const worker = await open({ workflows: [work] })
    const asked = gate()
    const client = await openWrapped(noting('deliver', asked.open), { worker: false })
    await worker.start(work, undefined, { id: 'r' })
    await inBody.promise
    const run = await client.runs.get('r')
    const pausing = run.pause()
    await asked.promise
    release.open()
    await pausing
    await becomes(run, 'paused')
    expect(await run.info()).toMatchObject({ completedSteps: ['a'] })
    await run.resume()
    expect(await run.result()).toBe('b')
  })

  it('of a pending, a waiting and a retrying run holds at once', async () => {
    const sleeper = workflow('sleeper', async (ctx) => {
      await ctx.sleep(60_000)
      return 'awake'
    })
    const flaky = workflow('flaky', (ctx) =>
      ctx.step(
        'a',
        (step) => {
          if (step.attempt === 1) throw new Error('no')
          return 'second attempt'
        },
        { retry: { minMs: 4_000, jitter: false } },
      ),
    )
    const hf = await open()
    const pending = await hf.start(echo, 'x', { delayMs: 60_000 })
    await pending.pause()
    const waiting = await hf.start(sleeper)
    await becomes(waiting, 'waiting')
    await waiting.pause()
    const retrying = await hf.start(flaky)
    await logged(retrying, 'step_failed')
    await retrying.pause()
    // Its holder does it: a store that is slow may take longer than pause() waits.
    await becomes(retrying, 'paused')
    for (const run of [pending, waiting, retrying]) expect(await run.info()).toMatchObject({ status: 'paused', reason: 'asked' })
    advance(120_000)
    await hf.run(echo, 'a run that shows that the worker has looked')
    for (const run of [pending, waiting, retrying]) {
      expect(await run.info()).toMatchObject({ status: 'paused' })
      await run.resume()
    }
    expect(await Promise.all([pending.result(), waiting.result(), retrying.result()])).toEqual(['x', 'awake', 'second attempt'])
  })

  it('of a run that is paused already, and resume of one that is not paused, change nothing', async () => {
    const sleeper = workflow('sleeper', (ctx) => ctx.sleep(60_000))
    const hf = await open()
    const run = await hf.start(sleeper)
    await becomes(run, 'waiting')
    await run.resume()
    expect(await run.info()).toMatchObject({ status: 'waiting' })
    await run.pause()
    await run.pause()
    expect((await eventTypes(run)).filter((type) => type === 'run_paused')).toHaveLength(1)
  })

  it('a resumed timer that was due meanwhile fires at once, and one that was not waits on', async () => {
    const sleeper = workflow('sleeper', (ctx) => ctx.sleep(600_000))
    const hf = await open()
    const [due, notDue] = [await hf.start(sleeper), await hf.start(sleeper, undefined)]
    for (const run of [due, notDue]) {
      await becomes(run, 'waiting')
      await run.pause()
    }
    advance(60_000)
    await notDue.resume()
    await becomes(notDue, 'waiting')
    advance(600_000)
    await due.resume()
    await due.result()
    await notDue.result()
  })
})

onEveryStore('cancel', ({ open, openWrapped }) => {
  it('reaches the running step, and nothing of the run executes afterwards', async () => {
    const ran: string[] = []
    const inBody = gate()
    const work = workflow('work', async (ctx) => {
      await ctx.step('a', () => void ran.push('a'))
      try {
        await ctx.step('b', async (step) => {
          inBody.open()
          await new Promise((_, reject) => step.signal.addEventListener('abort', () => reject(step.signal.reason)))
        })
      } finally {
        ran.push('cleaned up')
        await ctx.step('c', () => void ran.push('c')).catch((error: HoldfastError) => ran.push(error.code))
      }
    })
    const hf = await open()
    const run = await hf.start(work)
    await inBody.promise
    await run.cancel({ by: 'olga' })
    expect(await run.info()).toMatchObject({ status: 'cancelled', completedSteps: ['a'] })
    expect(await codeOfRejection(run.result())).toBe('run_cancelled')
    expect(ran).toEqual(['a', 'cleaned up', 'run_cancelled'])
    expect((await run.events()).at(-1)).toMatchObject({ type: 'run_cancelled', data: { by: 'olga' } })
  })

  it('of a run that another client executes reaches it', async () => {
    const inBody = gate()
    const work = workflow('work', (ctx) =>
      ctx.step('a', () => {
        inBody.open()
        return new Promise(() => {})
      }),
    )
    const worker = await open({ workflows: [work] })
    const client = await open({ worker: false })
    await worker.start(work, undefined, { id: 'r' })
    await inBody.promise
    const run = await client.runs.get('r')
    await run.cancel()
    expect(await run.info()).toMatchObject({ status: 'cancelled' })
  })

  it('of a pending, a waiting, a paused and a retrying run ends them at once, without executing anything', async () => {
    const ran: string[] = []
    const sleeper = workflow('sleeper', async (ctx) => {
      await ctx.sleep(60_000)
      ran.push('awake')
    })
    const flaky = workflow('flaky', (ctx) =>
      ctx.step(
        'a',
        (step) => {
          ran.push(`attempt ${step.attempt}`)
          throw new Error('no')
        },
        { retry: { minMs: 4_000, jitter: false } },
      ),
    )
    const hf = await open()
    const pending = await hf.start(echo, 'x', { delayMs: 60_000 })
    const waiting = await hf.start(sleeper)
    await becomes(waiting, 'waiting')
    const paused = await hf.start(sleeper)
    await becomes(paused, 'waiting')
    await paused.pause()
    const retrying = await hf.start(flaky)
    await logged(retrying, 'step_failed')
    for (const run of [pending, waiting, paused, retrying]) {
      await run.cancel()
      expect(await run.info()).toMatchObject({ status: 'cancelled' })
      expect((await eventTypes(run)).at(-1)).toBe('run_cancelled')
    }
    expect(ran).toEqual(['attempt 1'])
  })

  it('while an effect is under way keeps its result: it happened', async () => {
    const sending = gate()
    const release = gate()
    const mail = workflow('mail', (ctx) =>
      ctx.once('send', {
        key: 'k',
        run: async () => {
          sending.open()
          await release.promise
          return 'sent'
        },
      }),
    )
    const asked = gate()
    const hf = await openWrapped(noting('deliver', asked.open))
    const run = await hf.start(mail)
    await sending.promise
    const cancelling = run.cancel()
    await asked.promise
    release.open()
    await cancelling
    expect(await run.info()).toMatchObject({ status: 'cancelled' })
    expect(await eventTypes(run, 'effect')).toEqual(['effect_intended', 'effect_completed'])
    expect(await hf.run(mail, undefined, { id: 'second' })).toBe('sent')
  })

  it('twice is no error; pause, resume and retry of a cancelled run are conflicts', async () => {
    const sleeper = workflow('sleeper', (ctx) => ctx.sleep(60_000))
    const hf = await open()
    const run = await hf.start(sleeper)
    await becomes(run, 'waiting')
    await run.cancel()
    await run.cancel()
    expect(await codeOfRejection(run.pause())).toBe('conflict')
    expect(await codeOfRejection(run.resume())).toBe('conflict')
    expect(await codeOfRejection(run.retry())).toBe('conflict')
  })
})

onEveryStore('a finished run', ({ open }) => {
  it('can not be paused, resumed, cancelled or retried: conflict', async () => {
    const hf = await open()
    const run = await hf.start(echo, 'x')
    await run.result()
    const acts = [run.pause(), run.resume(), run.cancel(), run.retry()]
    expect(new Set(await Promise.all(acts.map(codeOfRejection)))).toEqual(new Set(['conflict']))
    expect(await run.info()).toMatchObject({ status: 'completed' })
  })

  it('that failed can be retried, not resumed, paused or cancelled', async () => {
    const fails = workflow({ name: 'fails', retry: { attempts: 1 } }, (ctx) =>
      ctx.step('a', () => {
        throw new Error('no')
      }),
    )
    const hf = await open()
    const run = await hf.start(fails)
    await failureOf(run)
    const acts = [run.pause(), run.resume(), run.cancel()]
    expect(new Set(await Promise.all(acts.map(codeOfRejection)))).toEqual(new Set(['conflict']))
    await run.retry()
    await failureOf(run)
    expect((await eventTypes(run)).filter((type) => type === 'run_failed')).toHaveLength(2)
  })

  it('retried by two clients at once is retried once', async () => {
    let isDown = true
    let attempts = 0
    const flaky = workflow({ name: 'flaky', retry: { attempts: 1 } }, (ctx) =>
      ctx.step('a', () => {
        attempts++
        if (isDown) throw new Error('down')
      }),
    )
    const hf = await open({ workflows: [flaky] })
    const other = await open({ worker: false })
    const run = await hf.start(flaky, undefined, { id: 'r' })
    await failureOf(run)
    isDown = false
    await Promise.allSettled([run.retry(), (await other.runs.get('r')).retry()])
    await run.result()
    expect(attempts).toBe(2)
    expect((await eventTypes(run)).filter((type) => type === 'run_retried')).toHaveLength(1)
  })
})

onEveryStore('result and watch', ({ open, openWrapped, advance }) => {
  it('result gives up with timeout after timeoutMs, and the run goes on', async () => {
    const release = gate()
    const work = workflow('work', (ctx) => ctx.step('a', () => release.promise.then(() => 'done')))
    const hf = await open()
    const run = await hf.start(work)
    const error = await run.result({ timeoutMs: 20 }).catch((thrown: HoldfastError) => thrown)
    expect(error).toMatchObject({ code: 'timeout' })
    release.open()
    expect(await run.result({ timeoutMs: patience(10_000) })).toBe('done')
    expect(await run.result({ timeoutMs: 0 })).toBe('done')
  })

  it('result gives up when its signal is aborted, with the reason of the signal', async () => {
    const release = gate()
    const work = workflow('work', (ctx) => ctx.step('a', () => release.promise.then(() => 'done')))
    const hf = await open()
    const run = await hf.start(work)
    const abort = new AbortController()
    const waiting = run.result({ signal: abort.signal })
    abort.abort(new Error('no longer interested'))
    await expect(waiting).rejects.toThrow('no longer interested')
    await expect(run.result({ signal: AbortSignal.abort(new Error('from the start')) })).rejects.toThrow('from the start')
    release.open()
    expect(await run.result()).toBe('done')
  })

  it('watch gives what happens from now on, from another client, until the run has ended', async () => {
    const inFirst = gate()
    const release = gate()
    const work = workflow('work', async (ctx) => {
      await ctx.step('before', () => {})
      await ctx.step('first', async () => {
        inFirst.open()
        await release.promise
      })
      await ctx.step('second', () => {})
    })
    const worker = await open({ workflows: [work] })
    const hasBegun = gate()
    const client = await openWrapped(noting('readThread', hasBegun.open), { worker: false })
    await worker.start(work, undefined, { id: 'r' })
    await inFirst.promise
    const watch = (await client.runs.get('r')).watch()
    const first = watch.next()
    // The first event that the watcher sees comes after everything that was in the log when it began.
    await hasBegun.promise
    release.open()
    const seen: RunEvent[] = []
    const { value, done } = await first
    if (done !== true && value !== undefined) seen.push(value)
    for await (const event of watch) seen.push(event)
    const completed = seen.filter(({ type }) => type === 'step_completed').map(({ step }) => step)
    expect(completed).toEqual(['first', 'second'])
    expect(seen.at(-1)?.type).toBe('run_completed')
    expect(seen.map(({ seq }) => seq)).toEqual([...seen.map(({ seq }) => seq)].sort((a, b) => a - b))
  })

  it('watch begins when it is called, not when it is first read', async () => {
    const fails = workflow({ name: 'fails', retry: { attempts: 1 } }, (ctx) =>
      ctx.step('a', () => {
        throw new Error('no')
      }),
    )
    const hf = await open()
    const run = await hf.start(fails)
    await failureOf(run)
    const watch = run.watch()
    await run.retry()
    await failureOf(run)
    const seen: string[] = []
    for await (const { type } of watch) seen.push(type)
    expect(seen[0]).toBe('run_retried')
    expect(seen.at(-1)).toBe('run_failed')
  })

  it('watch sees what its client does to the run next, though the store answers the read with which it begins later', async () => {
    const fails = workflow({ name: 'fails', retry: { attempts: 1 } }, async (ctx) => {
      await ctx.waitFor('go')
      await ctx.step('a', () => {
        throw new Error('no')
      })
    })
    const before = async (act: StoreAct) => {
      if (act === 'readThread') await sleep(200)
    }
    const hf = await openWrapped((store) => wrapStore(store, { before }))
    const run = await hf.start(fails)
    const signalled = run.watch()
    await hf.signal(run.id, 'go')
    await failureOf(run)
    const retried = run.watch()
    await run.retry()
    await failureOf(run)
    const typesOf = async (watch: AsyncIterable<RunEvent>) => {
      const types: string[] = []
      for await (const { type } of watch) types.push(type)
      return types
    }
    expect(await typesOf(signalled)).toContain('signal_received')
    expect((await typesOf(retried))[0]).toBe('run_retried')
  })

  it('watch of a run that has ended ends', async () => {
    const hf = await open()
    const run = await hf.start(echo, 'x')
    await run.result()
    for await (const event of run.watch()) expect(event).toBeUndefined()
  })

  it('a watch that is given up before it is read leaves no failure of the store that nobody handles', async () => {
    const unhandled: unknown[] = []
    const note = (error: unknown) => unhandled.push(error)
    process.on('unhandledRejection', note)
    try {
      let isDown = false
      const before = (act: StoreAct) => {
        if (isDown && act === 'readThread') throw new HoldfastError('store_unavailable', 'Down.', { retryable: true })
      }
      const hf = await openWrapped((store) => wrapStore(store, { before }))
      const run = await hf.start(echo, 'x')
      await run.result()
      isDown = true
      await run.watch().return()
      await sleep(20)
      expect(unhandled).toEqual([])
      await expect(run.watch().next()).rejects.toMatchObject({ code: 'store_unavailable' })
    } finally {
      process.off('unhandledRejection', note)
    }
  })

  it('watch is left when its signal is aborted, and the run goes on', async () => {
    const release = gate()
    const sleeper = workflow('sleeper', async (ctx) => {
      await ctx.step('a', () => release.promise)
      await ctx.sleep(60_000)
    })
    const hasBegun = gate()
    const watcher = await openWrapped(noting('readThread', hasBegun.open), { worker: false })
    const hf = await open({ workflows: [sleeper] })
    await hf.start(sleeper, undefined, { id: 'r' })
    const run = await watcher.runs.get('r')
    const leaving = new AbortController()
    const watching = run.watch({ signal: leaving.signal })
    await hasBegun.promise
    release.open()
    const types: string[] = []
    for await (const { type } of watching) {
      types.push(type)
      if (type === 'timer_set') setTimeout(() => leaving.abort(), 20)
    }
    expect(types.at(-1)).toBe('timer_set')
    for await (const event of run.watch({ signal: AbortSignal.abort() })) expect(event).toBeUndefined()
    await becomes(run, 'waiting')
  })

  it('watch of a run that waits goes on until it is over', async () => {
    const sleeper = workflow('sleeper', async (ctx) => {
      await ctx.sleep(60_000)
    })
    const hasBegun = gate()
    const watcher = await openWrapped(noting('readThread', hasBegun.open), { worker: false })
    const hf = await open({ workflows: [sleeper] })
    await hf.start(sleeper, undefined, { id: 'r' })
    const run = await watcher.runs.get('r')
    await becomes(run, 'waiting')
    const types: string[] = []
    const watching = (async () => {
      for await (const { type } of run.watch()) types.push(type)
    })()
    await hasBegun.promise
    advance(61_000)
    await watching
    expect(types).toEqual(['timer_fired', 'run_completed'])
  })
})

onEveryStore('versions of a workflow', ({ open, advance }) => {
  it('live side by side: start takes the highest, a run finishes on the version it began with', async () => {
    const v1 = workflow({ name: 'flow', version: 1 }, async (ctx) => {
      await ctx.sleep(60_000)
      return ctx.step('old', () => 'finished on version 1')
    })
    const v2 = workflow({ name: 'flow', version: 2 }, async () => 'version 2')
    const first = await open({ workflows: [v1] })
    const old = await first.start(v1, undefined, { id: 'old' })
    await becomes(old, 'waiting')
    await first.close()

    const hf = await open({ workflows: [v1, v2] })
    expect(await hf.run('flow')).toBe('version 2')
    advance(61_000)
    const run = await hf.runs.get('old')
    expect(await run.result()).toBe('finished on version 1')
    expect(await run.info()).toMatchObject({ version: 1 })
  })

  it('a worker claims only versions that it has', async () => {
    const v1 = workflow({ name: 'flow', version: 1 }, async () => 'version 1')
    const v2 = workflow({ name: 'flow', version: 2 }, async () => 'version 2')
    const client = await open({ worker: false })
    const run = await client.start(v1)
    const worker = await open({ workflows: [v2] })
    expect(await worker.run(v2)).toBe('version 2')
    expect(await run.info()).toMatchObject({ status: 'pending', version: 1 })
    worker.register(v1)
    expect(await run.result()).toBe('version 1')
  })

  it('two different functions under one name and version are refused', async () => {
    const one = workflow('flow', () => 1)
    const other = workflow('flow', () => 2)
    const hf = await open({ workflows: [one] })
    expect(await codeOfRejection(hf.start(other))).toBe('conflict')
    expect(await codeOfRejection(open({ workflows: [one, other] }))).toBe('conflict')
  })
})

onEveryStore('the time limit of a workflow', ({ open, advance }) => {
  it('fails the run with timeout and aborts what is running', async () => {
    const aborted = gate<unknown>()
    const slow = workflow({ name: 'slow', timeoutMs: 30 }, (ctx) =>
      ctx.step('a', (step) => {
        step.signal.addEventListener('abort', () => aborted.open('aborted'))
        return new Promise(() => {})
      }),
    )
    const hf = await open()
    const run = await hf.start(slow)
    expect(await failureOf(run)).toMatchObject({ code: 'timeout' })
    expect(await aborted.promise).toBe('aborted')
  })

  it('counts the time in which it waits: a long sleep ends when the limit is reached', async () => {
    const sleeper = workflow({ name: 'sleeper', timeoutMs: 60_000 }, (ctx) => ctx.sleep(3_600_000))
    const hf = await open()
    const run = await hf.start(sleeper)
    await becomes(run, 'waiting')
    advance(61_000)
    expect(await failureOf(run)).toMatchObject({ code: 'timeout' })
  })

  it('of sixty days is not over at once', async () => {
    const patient = workflow({ name: 'patient', timeoutMs: 60 * 24 * 3_600_000 }, async (ctx) => {
      await ctx.step('a', () => new Promise((resolve) => setTimeout(resolve, 20)))
      return 'done'
    })
    const hf = await open()
    expect(await hf.run(patient)).toBe('done')
  })

  it('begins anew with retry()', async () => {
    let isSlow = true
    const slow = workflow({ name: 'slow', timeoutMs: patience(1_000) }, (ctx) =>
      ctx.step('a', () => new Promise<string>((resolve) => isSlow || setTimeout(() => resolve('done'), 50))),
    )
    const hf = await open()
    const run = await hf.start(slow)
    expect(await failureOf(run)).toMatchObject({ code: 'timeout' })
    isSlow = false
    advance(60_000)
    await run.retry()
    expect(await run.result()).toBe('done')
  })
})
