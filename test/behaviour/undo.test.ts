import { type Context, NotHappened, type UndoInfo, workflow } from 'holdfast'
import { wrapStore } from 'holdfast/testing'
import { expect, it } from 'vitest'
import type { Change } from '../../src/store/change.ts'
import { becomes, codeOfRejection, eventTypes, failing, failureOf, gate, logged, noting } from './runs.ts'
import { onEveryStore } from './stores.ts'

/** A trip of two steps and an effect, each of which can be taken back. */
function trip(journal: string[], then: 'wait' | 'fail' | 'end' = 'wait', undoOnFailure = then === 'fail') {
  return workflow({ name: 'trip', undoOnFailure, retry: { attempts: 1 } }, async (ctx) => {
    ctx.update((draft) => {
      draft['stage'] = 'begun'
    })
    await ctx.step('flight', () => void journal.push('flight'), { undo: () => void journal.push('undo flight') })
    await ctx.checkpoint('after-flight')
    const hotel = await ctx.once('hotel', {
      key: `hotel-of-${ctx.runId}`,
      idempotent: true,
      run: () => {
        journal.push('hotel')
        return { room: 7 }
      },
      undo: ({ room }) => void journal.push(`undo hotel ${room}`),
    })
    ctx.update((draft) => {
      draft['stage'] = 'booked'
    })
    await ctx.step('car', () => void journal.push('car'), { undo: () => void journal.push('undo car') })
    if (then === 'wait') await ctx.waitFor('go')
    if (then === 'fail') await ctx.step('pay', () => Promise.reject(new Error('declined')))
    return hotel.room
  })
}

onEveryStore('cancelling', ({ open, openMortal, advance }) => {
  it('undoes what the run did, the last thing first, and says so in its events', async () => {
    const journal: string[] = []
    const hf = await open()
    const run = await hf.start(trip(journal))
    await becomes(run, 'waiting')
    await run.cancel({ by: 'ann' })
    expect((await run.info()).status).toBe('cancelled')
    expect(journal.slice(3)).toEqual(['undo car', 'undo hotel 7', 'undo flight'])
    const events = await run.events()
    expect(events.filter(({ type }) => type === 'step_undone').map(({ step }) => step)).toEqual(['car', 'hotel', 'flight'])
    expect(events.at(-1)).toMatchObject({ type: 'run_cancelled', data: { by: 'ann' } })
  })

  it('frees the key of an effect that was undone', async () => {
    const journal: string[] = []
    const hf = await open()
    const book = trip(journal)
    const run = await hf.start(book)
    await becomes(run, 'waiting')
    await run.cancel()
    const again = await hf.start(book)
    await becomes(again, 'waiting')
    expect(journal.filter((entry) => entry === 'hotel')).toHaveLength(2)
  })

  it('reaches a step that runs, and undoes what came before it', async () => {
    const journal: string[] = []
    const started = gate()
    const work = workflow('work', async (ctx) => {
      await ctx.step('a', () => 1, { undo: (n) => void journal.push(`undo a ${n}`) })
      await ctx.step(
        'b',
        (step) => {
          started.open()
          return new Promise((_, reject) => step.signal.addEventListener('abort', () => reject(new Error('aborted'))))
        },
        { undo: () => void journal.push('undo b') },
      )
    })
    const hf = await open()
    const run = await hf.start(work)
    await started.promise
    await run.cancel()
    expect((await run.info()).status).toBe('cancelled')
    expect(journal).toEqual(['undo a 1'])
  })

  it('of a paused run undoes too; with undo: false nothing is undone', async () => {
    const journal: string[] = []
    const hf = await open()
    const book = trip(journal)
    const [a, b] = [await hf.start(book, undefined, { id: 'a' }), await hf.start(book, undefined, { id: 'b' })]
    for (const run of [a, b]) {
      await becomes(run, 'waiting')
      await run.pause()
    }
    await a.cancel()
    expect((await a.info()).status).toBe('cancelled')
    expect(journal).toContain('undo car')
    const before = journal.length
    await b.cancel({ undo: false })
    expect((await b.info()).status).toBe('cancelled')
    expect(journal).toHaveLength(before)
  })

  it('goes on where it was when a worker dies while undoing: no undo that is recorded runs again', async () => {
    const journal: string[] = []
    const book = trip(journal)
    const mortal = await openMortal({ workflows: [book] }, { after: 'step_undone' })
    const run = await mortal.hf.start(book)
    await becomes(run, 'waiting')
    void run.cancel().catch(() => {})
    await mortal.dead
    advance(11_000)
    const hf = await open({ workflows: [book] })
    await becomes(await hf.runs.get(run.id), 'cancelled')
    expect(journal.slice(3)).toEqual(['undo car', 'undo hotel 7', 'undo flight'])
  })

  it('an undo that keeps failing pauses the run, which goes on undoing when it is resumed', async () => {
    let isDown = true
    const journal: string[] = []
    const work = workflow('work', async (ctx) => {
      await ctx.step('a', () => 1, { undo: () => void journal.push('undo a') })
      await ctx.step('b', () => 2, {
        undo: () => {
          if (isDown) throw Object.assign(new Error('provider down'), { retryable: false })
          journal.push('undo b')
        },
      })
      await ctx.waitFor('go')
    })
    const hf = await open()
    const run = await hf.start(work)
    await becomes(run, 'waiting')
    const refusal = await run.cancel().catch((error: Error) => error)
    expect(refusal).toMatchObject({ code: 'conflict', details: { status: 'paused', reason: 'undo' } })
    expect(String(refusal)).toMatch(/undo of "b".*provider down.*resume/i)
    expect(await run.info()).toMatchObject({ status: 'paused', reason: 'undo' })
    expect((await run.info()).error?.message).toContain('provider down')
    expect(journal).toEqual([])
    isDown = false
    await run.resume()
    await becomes(run, 'cancelled')
    expect(journal).toEqual(['undo b', 'undo a'])
  })
})

onEveryStore('a run that fails with undoOnFailure', ({ open }) => {
  it('after ctx.continueAs can not be retried where something from before that was undone', async () => {
    const journal: string[] = []
    const options = { name: 'order', undoOnFailure: true, undos: { release: () => void journal.push('release') } }
    const order = workflow(options, async (ctx, part: number): Promise<string> => {
      if (part === 2) throw new Error('no stock')
      await ctx.step('reserve', () => void journal.push('reserve'), { undo: 'release' })
      return ctx.continueAs(2)
    })
    const hf = await open()
    const run = await hf.start(order, 1)
    await failureOf(run)
    await expect(run.retry()).rejects.toMatchObject({ code: 'conflict', message: expect.stringContaining('"reserve"') })
    expect((await run.info()).status).toBe('failed')
    expect(journal).toEqual(['reserve', 'release'])
  })

  it('again undoes an effect from before ctx.continueAs that a person said has happened, and can not be retried after that', async () => {
    const journal: unknown[] = []
    const pay = leavingUnsure(journal, () => Promise.reject(new Error('no parcel')), { undoOnFailure: true })
    const hf = await open({ workflows: [pay] })
    const run = await hf.start(pay, 1)
    await logged(run, 'effect_unsure')
    await hf.signal(run.id, 'next')
    await becomes(run, 'failed')
    await hf.resolve('pay', { happened: true, result: 'receipt' })
    expect(journal).toEqual([])
    await run.retry()
    await logged(run, 'step_undone')
    await becomes(run, 'failed')
    expect(journal).toEqual(['receipt'])
    expect(await codeOfRejection(run.retry())).toBe('conflict')
  })

  it('undoes what it did, then fails; retried it does it again', async () => {
    const journal: string[] = []
    const hf = await open()
    const run = await hf.start(trip(journal, 'fail'))
    expect(await failureOf(run)).toMatchObject({ message: 'declined' })
    expect(journal).toEqual(['flight', 'hotel', 'car', 'undo car', 'undo hotel 7', 'undo flight'])
    journal.length = 0
    await run.retry()
    expect(await failureOf(run)).toMatchObject({ message: 'declined' })
    expect(journal.slice(0, 3)).toEqual(['flight', 'hotel', 'car'])
  })
})

onEveryStore('a rollback', ({ open, openMortal, openWrapped, advance }) => {
  it('undoes what came after the checkpoint, brings the state back and leaves the run paused there', async () => {
    const journal: string[] = []
    const hf = await open()
    const run = await hf.start(trip(journal))
    await becomes(run, 'waiting')
    await run.rollback('after-flight', { by: 'ann' })
    expect(await run.info()).toMatchObject({ status: 'paused', reason: 'asked' })
    expect(journal.slice(3)).toEqual(['undo car', 'undo hotel 7'])
    expect(await hf.thread(run.threadId).state()).toEqual({ stage: 'begun' })
    const last = (await run.events()).at(-1)
    expect(last).toMatchObject({ type: 'run_rolled_back', data: { undone: ['car', 'hotel'], by: 'ann' } })
    journal.length = 0
    await run.resume()
    await becomes(run, 'waiting')
    expect(journal).toEqual(['hotel', 'car'])
    expect(await hf.thread(run.threadId).state()).toEqual({ stage: 'booked' })
    await hf.signal(run.id, 'go')
    expect(await run.result()).toBe(7)
  })

  it('that can’t read the state for a moment is carried out all the same, and undoes nothing twice', async () => {
    const journal: string[] = []
    const hf = await openWrapped(failing('readSnapshot', { times: 2 }))
    const run = await hf.start(trip(journal))
    await becomes(run, 'waiting')
    await run.rollback('after-flight')
    expect(await run.info()).toMatchObject({ status: 'paused', reason: 'asked' })
    expect(journal.slice(3)).toEqual(['undo car', 'undo hotel 7'])
    expect(await hf.thread(run.threadId).state()).toEqual({ stage: 'begun' })
  })

  it('puts signals back before one that is sent just before it is written, as often as it comes to that', async () => {
    const work = workflow('work', async (ctx) => {
      await ctx.checkpoint('before')
      const taken = [await ctx.waitFor('n')]
      await ctx.waitFor('go')
      return [...taken, await ctx.waitFor('n'), await ctx.waitFor('n')]
    })
    const client = await open({ worker: false })
    let sent = 1
    const before = async (act: string, _nth: number, [changes]: readonly unknown[]) => {
      if (act !== 'commit') return
      if (!(changes as readonly Change[]).some(({ events }) => events.some(({ type }) => type === 'run_rolled_back'))) return
      await client.signal('r', 'n', ++sent)
    }
    const hf = await openWrapped((store) => wrapStore(store, { before }))
    const run = await hf.start(work, undefined, { id: 'r' })
    await client.signal('r', 'n', 1)
    await becomes(run, 'waiting')
    for (let times = 0; times < 2; times++) {
      await run.rollback('before')
      await run.resume()
      await becomes(run, 'waiting')
    }
    await client.signal('r', 'go')
    expect(await run.result()).toEqual([1, 2, 3])
  })

  it('of a run that failed or completed takes it up again from the checkpoint', async () => {
    for (const then of ['fail', 'end'] as const) {
      const journal: string[] = []
      const hf = await open()
      const run = await hf.start(trip(journal, then, false), undefined, { id: then })
      if (then === 'fail') await failureOf(run)
      else await run.result()
      await run.rollback('after-flight')
      expect((await run.info()).status).toBe('paused')
      expect(journal.slice(3)).toEqual(['undo car', 'undo hotel 7'])
      await hf.close()
    }
  })

  it('to where something stands that was undone since is refused: nobody may continue as if it were there', async () => {
    const journal: string[] = []
    const hf = await open()
    const run = await hf.start(trip(journal, 'fail'))
    await failureOf(run)
    const before = journal.length
    const refusal = await run.rollback('after-flight').catch((error: Error) => error)
    expect(refusal).toMatchObject({ code: 'conflict' })
    expect(String(refusal)).toMatch(/"flight".*retry\(\)/)
    expect((await run.info()).status).toBe('failed')
    const [start] = await hf.thread(run.threadId).checkpoints()
    await run.rollback(start?.checkpoint as string)
    expect((await run.info()).status).toBe('paused')
    expect(journal).toHaveLength(before)
  })

  it('stays whole when the worker dies in the middle of it', async () => {
    const journal: string[] = []
    const book = trip(journal)
    const mortal = await openMortal({ workflows: [book] }, { before: 'run_rolled_back' })
    const run = await mortal.hf.start(book)
    await becomes(run, 'waiting')
    void run.rollback('after-flight').catch(() => {})
    await mortal.dead
    advance(11_000)
    const hf = await open({ workflows: [book] })
    const again = await hf.runs.get(run.id)
    await becomes(again, 'paused')
    expect(journal.slice(3)).toEqual(['undo car', 'undo hotel 7'])
    expect(await hf.thread(run.threadId).state()).toEqual({ stage: 'begun' })
    expect(await eventTypes(again, 'step')).toContain('step_undone')
  })

  it('reaches a running step at its next safe point', async () => {
    const slow = gate()
    const journal: string[] = []
    const work = workflow('work', async (ctx) => {
      await ctx.checkpoint('start')
      await ctx.step('a', () => slow.promise, { undo: () => void journal.push('undo a') })
      await ctx.step('b', () => void journal.push('b'))
    })
    const ordered = gate()
    const hf = await openWrapped(noting('deliver', ordered.open))
    const run = await hf.start(work)
    await logged(run, 'step_started')
    const rolled = run.rollback('start')
    await ordered.promise
    slow.open()
    await rolled
    await becomes(run, 'paused')
    expect(journal).toEqual(['undo a'])
  })

  it('to where the run was not yet, or to no checkpoint, is refused and changes nothing', async () => {
    const journal: string[] = []
    const hf = await open()
    await hf.thread('t').update((draft) => {
      draft['n'] = 1
    })
    const run = await hf.start(trip(journal), undefined, { threadId: 't' })
    await becomes(run, 'waiting')
    expect(await codeOfRejection(run.rollback('t@1'))).toBe('conflict')
    expect(await codeOfRejection(run.rollback('t@999'))).toBe('invalid_id')
    expect(await codeOfRejection(run.rollback('no such label'))).toBe('invalid_id')
    expect((await run.info()).status).toBe('waiting')
  })

  it('keeps an effect that has no undo: it is not sent again', async () => {
    const sent: string[] = []
    const work = workflow('work', async (ctx) => {
      await ctx.checkpoint('start')
      const mail = await ctx.once('mail', {
        run: () => {
          if (sent.length > 5) throw new NotHappened('never')
          return sent.push('mail')
        },
      })
      await ctx.waitFor('go')
      return mail
    })
    const hf = await open()
    const run = await hf.start(work)
    await becomes(run, 'waiting')
    await run.rollback('start')
    await run.resume()
    await becomes(run, 'waiting')
    await hf.signal(run.id, 'go')
    expect(await run.result()).toBe(1)
    expect(sent).toEqual(['mail'])
    expect(await eventTypes(run, 'effect')).toEqual(['effect_intended', 'effect_completed', 'effect_skipped'])
  })

  it('to between the intent of an effect and its result lets the effect begin anew, with an intent of its own', async () => {
    for (const hasUndo of [true, false]) {
      const journal: string[] = []
      const [sent, middle] = [gate(), gate()]
      const work = workflow('work', async (ctx) => {
        const pay = ctx.once('pay', {
          run: async () => {
            journal.push('sent')
            sent.open()
            await middle.promise
            return journal.length
          },
          ...(hasUndo && { undo: () => void journal.push('undone') }),
        })
        await ctx.step('b', () => sent.promise)
        await ctx.checkpoint('middle')
        middle.open()
        const paid = await pay
        await ctx.waitFor('go')
        return paid
      })
      const hf = await open()
      const run = await hf.start(work, undefined, { id: `undo-${hasUndo}` })
      await becomes(run, 'waiting')
      await run.rollback('middle')
      await run.resume()
      await becomes(run, 'waiting')
      await hf.signal(run.id, 'go')
      expect(await run.result()).toBe(hasUndo ? 3 : 1)
      expect(journal).toEqual(hasUndo ? ['sent', 'undone', 'sent'] : ['sent'])
      const again = hasUndo ? ['effect_intended', 'effect_completed'] : ['effect_skipped']
      expect(await eventTypes(run, 'effect')).toEqual(['effect_intended', 'effect_completed', ...again])
      await hf.close()
    }
  })

  it('or a cancel undoes an effect that a person said has happened, whether or not its run has come by since', async () => {
    for (const how of ['executes', 'waits', 'paused', 'was rolled back', 'is rolled back'] as const) {
      for (const kind of ['function', 'name'] as const) {
        const journal: unknown[] = []
        const refund = (receipt: unknown, { effectKey }: UndoInfo) => void journal.push(receipt, effectKey)
        const name = `${how} ${kind}`.replaceAll(' ', '-')
        const pay = workflow({ name, undos: { refund } }, async (ctx) => {
          await ctx.checkpoint('start')
          await ctx.once('pay', {
            ...{ key: name, run: () => Promise.reject(new Error('no answer')) },
            undo: kind === 'name' ? 'refund' : refund,
          })
          await ctx.waitFor('go')
        })
        const hf = await open({ workflows: [pay] })
        const run = await hf.start(pay, undefined, { id: name })
        await logged(run, 'effect_unsure')
        if (how !== 'executes') await becomes(run, 'waiting')
        if (how === 'paused') await run.pause()
        if (how === 'was rolled back') await run.rollback('start')
        await hf.resolve(name, { happened: true, result: 'receipt' })
        if (how === 'was rolled back') {
          await run.resume()
          await logged(run, 'effect_completed')
        }
        if (how === 'is rolled back') await run.rollback('start')
        await run.cancel()
        expect((await run.info()).status).toBe('cancelled')
        expect(journal, name).toEqual(['receipt', name])
        await hf.close()
      }
    }
  })

  it('to between a question and its answer asks anew, whether or not the function is called for it', async () => {
    for (const undo of ['nothing', 'name', 'function'] as const) {
      const free = () => {}
      const work = workflow({ name: 'work', undos: { free } }, async (ctx) => {
        const answer = ctx.ask('ok', { question: '?' })
        await ctx.checkpoint('middle')
        const first = await answer
        await ctx.step('a', () => {}, undo === 'nothing' ? {} : { undo: undo === 'name' ? 'free' : free })
        await ctx.waitFor('go')
        return first
      })
      const hf = await open()
      const run = await hf.start(work, undefined, { id: undo })
      await logged(run, 'question_asked')
      await hf.answer(run.id, 'ok', 1)
      await logged(run, 'step_completed')
      await becomes(run, 'waiting')
      await run.rollback('middle')
      await run.resume()
      await becomes(run, 'waiting')
      expect(await hf.inbox(), undo).toMatchObject([{ kind: 'question', runId: undo }])
      await hf.answer(run.id, 'ok', 2)
      await hf.signal(run.id, 'go')
      expect(await run.result()).toBe(2)
      await hf.close()
    }
  })

  it('or a cancel undoes what a person decided after a rollback over it, before its call is made again', async () => {
    for (const order of ['cancel', 'rollback'] as const) {
      for (const kind of ['function', 'name'] as const) {
        const journal: unknown[] = []
        const refund = (receipt: unknown, { effectKey }: UndoInfo) => void journal.push(receipt, effectKey)
        const name = `${order}-${kind}`
        const pay = workflow({ name, undos: { refund } }, async (ctx) => {
          await ctx.checkpoint('start')
          await ctx.once('pay', {
            ...{ key: name, run: () => Promise.reject(new Error('no answer')) },
            undo: kind === 'name' ? 'refund' : refund,
          })
        })
        const hf = await open({ workflows: [pay] })
        const run = await hf.start(pay, undefined, { id: name })
        await logged(run, 'effect_unsure')
        await becomes(run, 'waiting')
        await run.rollback('start')
        await hf.resolve(name, { happened: true, result: 'receipt' })
        if (order === 'rollback') await run.rollback('start')
        else await run.cancel()
        expect((await run.info()).status).toBe(order === 'cancel' ? 'cancelled' : 'paused')
        expect(journal, name).toEqual(['receipt', name])
        await run.cancel()
        expect(journal, name).toEqual(['receipt', name])
        await hf.close()
      }
    }
  })

  it('or a cancel says so where a person decided after a rollback, and only the call that was rolled back has the undo', async () => {
    const journal: unknown[] = []
    const pay = workflow('pay', async (ctx) => {
      await ctx.checkpoint('start')
      await ctx.step('order', () => journal.push('order'))
      await ctx.once('pay', {
        ...{ key: 'pay', run: () => Promise.reject(new Error('no answer')) },
        undo: () => void journal.push('refund'),
      })
    })
    const hf = await open({ workflows: [pay] })
    const run = await hf.start(pay)
    await logged(run, 'effect_unsure')
    await becomes(run, 'waiting')
    await run.rollback('start')
    await hf.resolve('pay', { happened: true, result: 'receipt' })
    await expect(run.cancel()).rejects.toMatchObject({
      code: 'conflict',
      message: expect.stringMatching(/undo of "pay" of run .* can't be found: it is a function, and its call was rolled back/),
    })
    expect(await run.info()).toMatchObject({ status: 'paused', reason: 'undo' })
    await run.cancel({ undo: false })
    expect((await run.info()).status).toBe('cancelled')
    expect(journal).toEqual(['order'])
  })

  it('of what came after ctx.continueAs leaves an effect from before it, which a cancel undoes once a person said it has happened', async () => {
    const journal: unknown[] = []
    const pay = leavingUnsure(journal, async (ctx) => {
      await ctx.checkpoint('second')
      await ctx.step('ship', () => 'parcel', { undo: () => void journal.push('ship') })
      await ctx.waitFor('go')
    })
    const hf = await open({ workflows: [pay] })
    const run = await hf.start(pay, 1)
    await logged(run, 'effect_unsure')
    await hf.signal(run.id, 'next')
    await logged(run, 'step_completed')
    await hf.resolve('pay', { happened: true, result: 'receipt' })
    await run.rollback('second')
    expect(journal).toEqual(['ship'])
    await run.resume()
    await run.cancel()
    expect((await run.info()).status).toBe('cancelled')
    expect(journal.filter((entry) => entry === 'receipt')).toEqual(['receipt'])
  })

  it('over signals that were taken puts them back, in their order', async () => {
    const work = workflow('work', async (ctx) => {
      await ctx.checkpoint('before')
      const taken = [await ctx.waitFor('n'), (await ctx.waitFor(['n', 'n'])).value]
      await ctx.waitFor('go')
      return [...taken, await ctx.waitFor('n')]
    })
    const hf = await open()
    const run = await hf.start(work)
    for (const n of [1, 2, 3]) await hf.signal(run.id, 'n', n)
    await becomes(run, 'waiting')
    for (let times = 0; times < 2; times++) {
      await run.rollback('before')
      await run.resume()
      await becomes(run, 'waiting')
    }
    await hf.signal(run.id, 'go')
    expect(await run.result()).toEqual([1, 2, 3])
  })
})

/** The first tape ends with an effect that nobody is sure of; the second one continues as given. */
function leavingUnsure(
  journal: unknown[],
  second: (ctx: Context) => Promise<void>,
  options: { readonly undoOnFailure?: boolean } = {},
) {
  const undos = { refund: (receipt: unknown) => void journal.push(receipt) }
  return workflow({ name: 'pay', undos, ...options }, async (ctx, tape: number): Promise<void> => {
    if (tape === 2) return second(ctx)
    const run = () => Promise.reject(new Error('no answer'))
    await Promise.race([ctx.once('pay', { key: 'pay', run, undo: 'refund' }), ctx.waitFor('next')])
    return ctx.continueAs(2)
  })
}
