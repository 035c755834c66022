import assert from 'node:assert/strict'
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { open, state, workflow } from 'holdfast'
import { explore } from 'holdfast/testing'
import { describe, expect, onTestFinished, test } from 'vitest'
import { startProgram } from './programs.ts'

/** A provider that does what it is told as often as it is told, and can be asked. */
class Provider {
  readonly sent: string[] = []
  stock = 10
  #hours = 0
  #tosses = 0

  /** Of a day on which time passes whenever it is looked at. */
  hour(): number {
    this.#hours += 8
    return this.#hours
  }

  toss(): boolean {
    return this.#tosses++ % 2 === 0
  }

  send(key: string): string {
    this.sent.push(key)
    return `sent ${key}`
  }

  has(key: string): boolean {
    return this.sent.includes(key)
  }
}

const good = (provider: Provider) =>
  workflow('good', async (ctx, order: string) => {
    const price = await ctx.step('price', async () => 40)
    const mail = await ctx.once('send', {
      key: `mail:${order}`,
      run: async (key) => provider.send(key),
      check: (key) => (provider.has(key) ? { happened: true, result: `sent ${key}` } : { happened: false }),
    })
    return { price, mail }
  })

describe('explore', () => {
  test('plays every point of a workflow, told in the words of the log', async () => {
    const report = await explore({ world: () => new Provider(), workflow: good, input: '4711', faults: ['crash'] })
    expect(report.failures).toEqual([])
    expect(report.cases.map(({ point }) => point).toSorted()).toEqual(
      [
        'undisturbed',
        'after the claim of the run, before it did anything',
        'before step_completed price #1',
        'after step_completed price #1, before the process learned that it was written',
        'after step_completed price #1, before effect_intended send #1',
        'after effect_intended send #1, before the process learned that it was written',
        'after effect_intended send #1, before effect_completed send #1',
        'after effect_completed send #1, before the process learned that it was written',
        'after effect_completed send #1, before run_completed',
        'after run_completed, before the process learned that it was written',
      ].toSorted(),
    )
    expect(String(report)).toMatch(/^explore good: 10 cases, nothing went wrong \(\d+\.\d s\)$/)
  })

  test('loses answers and lets a process stall', async () => {
    const compare = ({ world }: { world: Provider }) => world.sent
    const report = await explore({ world: () => new Provider(), workflow: good, input: '4711', compare })
    expect(String(report)).toContain('nothing went wrong')
    const points = report.cases.map(({ point }) => point)
    expect(points).toContain('after effect_completed send #1, whose answer was lost')
    expect(points).toContain(
      'after effect_intended send #1, before effect_completed send #1, where the process stalled and another took over',
    )
    expect(points).toHaveLength(18)
  })

  test('a process that stalls between an intent and its effect sends it late', async () => {
    const report = await explore({ world: () => new Provider(), workflow: good, input: '4711', faults: ['slowCommit'] })
    expect(report.failures.map(({ point }) => point)).toEqual([
      'after effect_intended send #1, whose answer arrived after another process had taken over',
    ])
  })

  test('answers questions, sends signals, lets time pass', async () => {
    const leave = workflow({ name: 'leave', retry: { attempts: 2 } }, async (ctx) => {
      const { ok } = await ctx.ask<{ ok: boolean }>('approve', { question: 'May I?', timeoutMs: 60_000 })
      await ctx.sleep(7 * 86_400_000)
      const tries = await ctx.step('flaky', ({ attempt }) => {
        if (attempt === 1) throw new Error('not yet')
        return attempt
      })
      const back = await ctx.waitFor<string>('back')
      await ctx.sleep(50)
      return { ok, tries, back, at: ctx.now(), id: ctx.uuid() }
    })
    const report = await explore({
      workflow: leave,
      answers: { approve: { ok: true } },
      signals: { back: 'tanned' },
      faults: ['crash'],
    })
    expect(String(report)).toContain('nothing went wrong')
    const points = report.cases.map(({ point }) => point)
    expect(points).toContain('after timer_set sleep #1, before the run as waiting (timer)')
    expect(points).toContain('after the claim of the run with timer_set sleep #1 on record, before it did anything')
    expect(points).toContain('after step_failed flaky #1, before step_completed flaky #1 (attempt 2)')
  })

  test('an effect that only a person can decide about: the truth, unless the test says otherwise', async () => {
    const pay = (provider: Provider) =>
      workflow('pay', (ctx) => ctx.once('pay', { key: 'pay:1', run: async (key) => provider.send(key) }))
    const options = { world: () => new Provider(), workflow: pay, faults: ['crash'] as const }
    const paidOnce = ({ world }: { world: Provider }) => assert.equal(world.sent.length, 1)
    expect((await explore({ ...options, invariant: paidOnce })).failures).toEqual([])
    const denied = await explore({ ...options, invariant: paidOnce, unsure: 'not' })
    expect(denied.failures.map(({ point, findings }) => [point, findings[0]?.check])).toEqual([
      ['after effect_intended pay #1, before effect_completed pay #1', 'invariant'],
    ])
    // As declared, it waits there.
    expect((await explore({ ...options, unsure: 'ask' })).failures).toEqual([])
  })

  test('pairs of crashes are sampled', async () => {
    const report = await explore({ world: () => new Provider(), workflow: good, input: '4711', crashes: 2, pairs: 20 })
    expect(String(report)).toContain('nothing went wrong')
    expect(report.cases.filter(({ point }) => point.includes('; then ')).length).toBeGreaterThan(5)
  })

  test('the order in which bodies end that run at the same time', async () => {
    const fetch = (isSorted: boolean) =>
      workflow('fetch', async (ctx) => {
        const ended: string[] = []
        await Promise.all(
          ['a', 'b', 'c'].map(async (name) => {
            await ctx.step(name, async () => name)
            ended.push(name)
          }),
        )
        return isSorted ? ended.toSorted() : ended
      })
    expect((await explore({ workflow: fetch(true), faults: [], orders: 10 })).failures).toEqual([])
    const report = await explore({ workflow: fetch(false), faults: [], orders: 10 })
    expect(report.failures.length).toBeGreaterThan(0)
    const [failure] = report.failures
    expect(failure?.point).toMatch(/^undisturbed, bodies ending in order \d+$/)
    const again = await explore({ workflow: fetch(false), only: failure?.seed ?? '' })
    expect(again.failures).toMatchObject([{ seed: failure?.seed }])
  })

  test('on SQLite, with a new file for every case', async () => {
    const report = await explore({
      world: () => new Provider(),
      workflow: good,
      input: '4711',
      faults: ['crash'],
      store: 'sqlite:',
    })
    expect(String(report)).toContain('explore good: 10 cases, nothing went wrong')
  })

  test('a transaction takes effect once', async () => {
    const book = workflow('book', async (ctx) => {
      await ctx.step('price', () => 40)
      return ctx.transaction('row', async (tx) => {
        await tx.query('CREATE TABLE IF NOT EXISTS bookings (n INTEGER)')
        await tx.query('INSERT INTO bookings VALUES (1)')
        return tx.query('SELECT count(*) AS count FROM bookings')
      })
    })
    const bookedOnce = ({ output }: { output: { count: number }[] }) => assert.equal(output[0]?.count, 1)
    const report = await explore({ workflow: book, store: 'sqlite:', invariant: bookedOnce })
    expect(String(report)).toContain('nothing went wrong')
    expect(report.cases.map(({ point }) => point)).toContain('after step_completed price #1, before step_completed row #1')
  })

  test('children and undos of a cancelled run', async () => {
    const trip = (provider: Provider) => {
      const book = workflow('book', (ctx) => ctx.step('reserve', async () => 'reserved'))
      return workflow('trip', async (ctx) => {
        await ctx.call(book)
        await ctx.once('seat', {
          run: async (key) => provider.send(key),
          idempotent: true,
          undo: (_, { key }) => void provider.send(key),
        })
        await ctx.waitFor('confirmed')
      })
    }
    const compare = ({ world }: { world: Provider }) => new Set(world.sent).size
    const report = await explore({ world: () => new Provider(), workflow: trip, cancel: true, compare, faults: ['crash'] })
    expect(String(report)).toContain('nothing went wrong')
    const points = report.cases.map(({ point }) => point)
    expect(points.some((point) => point.includes('before step_undone seat #1'))).toBe(true)
    expect(points.some((point) => point.includes('step_completed reserve #1 of run "'))).toBe(true)
  })

  test('state and usage are those of the undisturbed run', async () => {
    const counted = state({ version: 1, initial: () => ({ count: 0 }) })
    const count = workflow({ name: 'count', state: counted, budget: { cost: 100 } }, async (ctx) => {
      for (let i = 0; i < 3; i++) {
        await ctx.step('add', (step) => {
          step.usage({ model: 'm', inputTokens: 5, cost: 1 })
          step.update((draft) => void draft.count++)
        })
        ctx.update((draft) => void draft.count++)
      }
    })
    const counts = ({ state, run }: { state: { count: number }; run: { usage: { cost: number } } }) =>
      assert.deepEqual({ count: state.count, cost: run.usage.cost }, { count: 6, cost: 3 })
    const report = await explore({ workflow: count, invariant: counts })
    expect(String(report)).toContain('nothing went wrong')
  })

  test('what two undisturbed runs do not have in common is not compared', async () => {
    let mails = 0
    const send = workflow('send', async (ctx) => ({ mail: await ctx.step('send', () => ++mails), to: 'alice' }))
    const report = await explore({ workflow: send, faults: ['crash'] })
    expect(report.failures).toEqual([])
    expect(report.ignored).toEqual(['$.output.mail'])
    expect(String(report)).toContain('Not compared, because it differs undisturbed: $.output.mail')
  })

  test('a case that went wrong leaves a seed that repeats it, and its thread as a file', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'holdfast-explore-'))
    onTestFinished(() => rm(folder, { recursive: true, force: true }))
    const twice = (provider: Provider) => workflow('twice', (ctx) => ctx.step('mail', () => provider.send('mail')))
    const options = { world: () => new Provider(), workflow: twice, compare: ({ world }: { world: Provider }) => world.sent }
    const report = await explore({ ...options, faults: ['crash'], bundles: folder })
    expect(report.failures).toHaveLength(1)
    const { seed, file = '' } = report.failures[0] as (typeof report.failures)[number]
    expect(seed).toBe('crash before step_completed mail #1')
    const again = await explore({ ...options, only: seed })
    expect(again.failures.map(({ findings }) => findings)).toEqual(report.failures.map(({ findings }) => findings))
    expect(await readdir(folder)).toHaveLength(1)
    const hf = await open('memory:', { worker: false, logger: false })
    await hf.debug.import(await readFile(file))
    expect((await (await hf.runs.get('explored')).info()).status).toBe('completed')
    await hf.close()
    await expect(explore({ ...options, only: 'crash 7' })).rejects.toMatchObject({ code: 'invalid_input' })
  })

  test('leaves nothing behind that keeps its process alive, also where others crashed in the middle of a wait', async () => {
    const program = startProgram('explore-and-exit')
    expect(await program.said('explored')).toEqual([expect.any(Number), 0])
    expect(await program.ended).toBe(0)
  })

  test('all single crash points of twenty steps', async () => {
    const twenty = workflow('twenty', async (ctx) => {
      let sum = 0
      for (let i = 0; i < 20; i++) sum += await ctx.step(`step${i}`, async () => i)
      return sum
    })
    const report = await explore({ workflow: twenty, faults: ['crash'] })
    expect(report.failures).toEqual([])
    expect(report.cases).toHaveLength(44)
  })
})

describe('explore finds', () => {
  const world = () => new Provider()
  const found = (report: Awaited<ReturnType<typeof explore>>) =>
    report.failures.map(({ point, findings }) => `${findings[0]?.check} ${point}`)
  const faults = ['crash'] as const

  test('a mail that is sent in a step', async () => {
    const wrong = (provider: Provider) =>
      workflow('wrong', async (ctx) => {
        await ctx.step('price', () => 40)
        await ctx.step('mail', () => provider.send('mail'))
      })
    const report = await explore({ world, workflow: wrong, compare: ({ world }) => world.sent, faults })
    expect(found(report)).toEqual(['compare after step_completed price #1, before step_completed mail #1'])
    expect(String(report)).toContain(
      "| after step_completed price #1, before step_completed mail #1 | price#1 (completed) | compare: What is compared differs at $: [ 'mail', 'mail' ]; undisturbed it is [ 'mail' ] |",
    )
  })

  test('a key that is made of the time', async () => {
    let time = 0
    const wrong = (provider: Provider) =>
      workflow('wrong', (ctx) =>
        ctx.once('send', { key: `mail:${time++}`, run: async (key) => provider.send(key), check: () => ({ happened: false }) }),
      )
    const report = await explore({ world, workflow: wrong, faults })
    expect(found(report)).toContain('replay after effect_intended send #1, before effect_completed send #1')
    expect(report.failures[0]?.findings[0]?.message).toContain('was recorded with key')
  })

  test('a way that depends on the time', async () => {
    const wrong = (provider: Provider) =>
      workflow('wrong', async (ctx) => {
        await ctx.step('first', async () => 1)
        await ctx.step(provider.hour() < 12 ? 'thorough' : 'quick', async () => 2)
        await ctx.step('last', async () => 3)
      })
    const report = await explore({ world, workflow: wrong, faults })
    expect(found(report).toSorted()).toEqual([
      'replay after step_completed last #1, before run_completed',
      'replay after step_completed last #1, before the process learned that it was written',
      'replay after step_completed thorough #1, before step_completed last #1',
      'replay after step_completed thorough #1, before the process learned that it was written',
    ])
    expect(String(report)).toContain('next in the log is step:thorough#1; the function asked for step:quick#1')
  })

  test('chance that decides and is not recorded', async () => {
    const wrong = (provider: Provider) =>
      workflow('wrong', async (ctx) => {
        if (provider.toss()) await ctx.step('heads', async () => 1)
        await ctx.step('last', async () => 2)
      })
    const report = await explore({ world, workflow: wrong, faults })
    expect(found(report)).toContain('replay after step_completed heads #1, before step_completed last #1')
  })

  test('a check that lies', async () => {
    const wrong = (happened: boolean) => (provider: Provider) =>
      workflow('wrong', (ctx) =>
        ctx.once('send', {
          key: 'mail:1',
          run: async (key) => provider.send(key),
          check: () => ({ happened, result: 'sent mail:1' }),
        }),
      )
    const denies = await explore({ world, workflow: wrong(false), faults })
    expect(denies.failures.map(({ point, findings }) => [point, findings[0]?.message])).toEqual([
      [
        'after effect_intended send #1, before effect_completed send #1',
        'Effect "send" acted twice under key "mail:1": its check said that it had not happened',
      ],
    ])
    const claims = await explore({ world, workflow: wrong(true), faults })
    expect(claims.failures.map(({ point, findings }) => [point, findings[0]?.message])).toEqual([
      [
        'after effect_intended send #1, before the process learned that it was written',
        'The check of effect "send" said that it had happened; it was never sent',
      ],
    ])
  })

  test('an effect that is not as idempotent as it is declared', async () => {
    const wrong = (provider: Provider) =>
      workflow('wrong', (ctx) => ctx.once('take', { idempotent: true, run: async () => --provider.stock }))
    expect(found(await explore({ world, workflow: wrong, faults }))).toEqual([
      'effect after effect_intended take #1, before effect_completed take #1',
    ])
  })

  test('an undo that can not be repeated', async () => {
    const wrong = (provider: Provider) =>
      workflow({ name: 'wrong', undoOnFailure: true, retry: { attempts: 1 } }, async (ctx) => {
        await ctx.step('take', () => void provider.stock--, { undo: () => void provider.stock++ })
        await ctx.step('pay', () => {
          throw new Error('declined')
        })
      })
    const report = await explore({ world, workflow: wrong, compare: ({ world }) => world.stock, faults })
    expect(found(report)).toContain('compare after undo_ordered, before step_undone take #1')
  })

  test('what the function does outside of any step', async () => {
    const wrong = (provider: Provider) =>
      workflow('wrong', async (ctx) => {
        await ctx.step('price', () => 40)
        provider.send('mail')
        await ctx.step('last', () => 3)
      })
    const report = await explore({ world, workflow: wrong, compare: ({ world }) => world.sent.length, faults })
    expect(found(report)).toContain('compare after step_completed price #1, before step_completed last #1')
  })

  test('a run that hangs, and says where one ends that nobody answered', async () => {
    const hangs = workflow('hangs', async (ctx) => {
      await ctx.step('forever', () => new Promise(() => {}))
    })
    const report = await explore({ workflow: hangs, stuckMs: 300, faults: [] })
    expect(report.failures).toMatchObject([{ point: 'undisturbed', findings: [{ check: 'end' }] }])
    const asks = workflow('asks', (ctx) => ctx.ask('sure', { question: 'Sure?' }))
    expect(String(await explore({ workflow: asks, faults }))).toContain('Undisturbed the run is waiting (person).')
  })

  test('what its invariant says, also undisturbed', async () => {
    const report = await explore({
      ...{ world, workflow: good, input: '4711', faults },
      invariant: ({ output }) => assert.equal(output.price, 41),
    })
    expect(report.failures[0]).toMatchObject({ point: 'undisturbed', seed: '' })
    expect(report.failures).toHaveLength(10)
  })
})
