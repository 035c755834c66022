import { type Context, HoldfastError, type RunHandle, workflow } from 'holdfast'
import { wrapStore } from 'holdfast/testing'
import { expect, it } from 'vitest'
import type { Change } from '../../src/store/change.ts'
import { patience } from '../patience.ts'
import { becomes, codeOfRejection, eventTypes, failureOf, gate, logged, noting } from './runs.ts'
import { onEveryStore, onLocalStores } from './stores.ts'

/** What of the log of a busy run has an undo and was not undone, and what was undone more often than once. */
async function leftOver(run: RunHandle, undone: readonly string[]): Promise<string[]> {
  const recorded = (await run.events())
    .filter(({ type, step }) => (type === 'step_completed' || type === 'effect_completed') && step !== 'whole/inner')
    .map(({ step }) => step as string)
  const count = (name: string) => undone.filter((one) => one === name).length
  return recorded.filter((name) => count(name) !== 1).map((name) => `${name}: undone ${count(name)} times`)
}

/** Steps, effects and parallel items, one of which says when the moment has come. */
function busy(undone: string[], tick: () => Promise<void>) {
  const undo = (name: string) => () => void undone.push(name)
  return workflow('busy', async (ctx) => {
    for (let i = 0; i < 3; i++) {
      await ctx.step(`step${i}`, tick, { undo: undo(`step${i}`) })
      await ctx.step(`quick${i}`, () => void tick(), { undo: undo(`quick${i}`) })
      await ctx.once(`effect${i}`, { run: tick, undo: undo(`effect${i}`) })
    }
    const items = [...Array(12).keys()]
    await ctx.map('item', items, (item) => tick().then(() => item), { undo: (item) => undo(`item[${item}]`)(), concurrency: 4 })
    await ctx.section('whole', () => ctx.step('inner', tick), { undo: undo('whole') })
    await ctx.waitFor('never')
  })
}

onEveryStore('a cancel from another client', ({ open }) => {
  it('undoes everything that is on record, each once, whenever it comes', async () => {
    const undone: string[] = []
    let moment = async () => {}
    const book = busy(undone, () => moment())
    await open({ workflows: [book] })
    const client = await open({ worker: false })
    for (let nth = 1; nth <= 22; nth += 1) {
      undone.length = 0
      let ticks = 0
      const id = `run-${nth}`
      const cancelled = gate<Promise<void>>()
      moment = async () => {
        if (++ticks === nth) cancelled.open(client.runs.get(id).then((found) => found.cancel()))
        // The cancel is on its way while bodies end and results are written.
        for (let turn = 0; turn < nth % 4; turn++) await new Promise((resolve) => setImmediate(resolve))
      }
      const run = await client.start(book, undefined, { id })
      await await cancelled.promise
      expect((await run.info()).status).toBe('cancelled')
      expect(await leftOver(run, undone), `cancelled at body ${nth}`).toEqual([])
    }
  })
})

onEveryStore('what is under way at a cancel', ({ open, openWrapped }) => {
  it('is recorded and undone too, if it ends within the grace: the body of a step, an effect, a section', async () => {
    for (const kind of ['step', 'effect', 'limited', 'section'] as const) {
      const journal: string[] = []
      const [begun, end] = [gate(), gate()]
      const undo = () => void journal.push('undone')
      const body = async () => {
        begun.open()
        await end.promise
        journal.push('done')
      }
      const carryOut = (ctx: Context): Promise<unknown> => {
        if (kind === 'step') return ctx.step('work', body, { undo })
        if (kind === 'limited') return ctx.step('work', body, { undo, timeoutMs: 60_000 })
        if (kind === 'effect') return ctx.once('work', { run: body, undo })
        return ctx.section('work', body, { undo })
      }
      const ordered = gate()
      const hf = await openWrapped(noting('deliver', ordered.open))
      const run = await hf.start(workflow(`work-${kind}`, carryOut), undefined, { id: kind })
      await begun.promise
      const cancelled = run.cancel()
      await ordered.promise
      end.open()
      await cancelled
      expect((await run.info()).status).toBe('cancelled')
      expect(journal, kind).toEqual(['done', 'undone'])
      await hf.close()
    }
  })

  it('a body without an undo that ignores its signal is not waited for', async () => {
    const begun = gate()
    const hang = () => {
      begun.open()
      return new Promise<never>(() => {})
    }
    const work = workflow('work', async (ctx) => {
      await ctx.step('hang', hang)
    })
    const hf = await open()
    const run = await hf.start(work)
    await begun.promise
    const startedAt = performance.now()
    await run.cancel()
    expect((await run.info()).status).toBe('cancelled')
    expect(performance.now() - startedAt).toBeLessThan(patience(4_000))
  })
})

onEveryStore('a run that fails with undoOnFailure beside others at work', ({ open }) => {
  it('waits for them and undoes them too, the last result first; nothing new begins', async () => {
    const journal: string[] = []
    const [failed, hotel] = [gate(), gate()]
    const saga = workflow({ name: 'saga', undoOnFailure: true, retry: { attempts: 1 } }, async (ctx) => {
      const book = async () => {
        await ctx.step('hotel', () => hotel.promise, { undo: () => void journal.push('undo hotel') })
        await ctx.step('late', () => void journal.push('late'))
      }
      const fly = async () => {
        await ctx.step('car', () => {}, { undo: () => void journal.push('undo car') })
        await ctx.step('flight', () => Promise.reject(new Error('full')))
      }
      await Promise.all([book(), fly().finally(() => failed.open())])
    })
    const hf = await open()
    const run = await hf.start(saga)
    await failed.promise
    await logged(run, 'step_failed')
    hotel.open()
    expect(await failureOf(run)).toMatchObject({ message: 'full' })
    expect(journal).toEqual(['undo hotel', 'undo car'])
    const types = await eventTypes(run)
    expect(types.indexOf('undo_ordered')).toBeLessThan(types.indexOf('step_undone'))
  })

  it('undoes a section under way too, also at the time limit; not one that only waits, nor what would begin in one', async () => {
    for (const how of ['fail', 'limit'] as const) {
      const journal: string[] = []
      const [begun, isFailing, end] = [gate(), gate(), gate()]
      const options = { undoOnFailure: true, retry: { attempts: 1 }, ...(how === 'limit' && { timeoutMs: 300 }) }
      const saga = workflow({ name: `saga-${how}`, ...options }, async (ctx) => {
        ctx.signal.addEventListener('abort', () => isFailing.open())
        const undo = (name: string) => ({ undo: () => void journal.push(`undo ${name}`) })
        const hotel = () => {
          begun.open()
          return end.promise
        }
        const book = async () => {
          await ctx.section('inner', () => ctx.step('hotel', hotel), { timeoutMs: 60_000 })
          journal.push('booked')
        }
        const wait = () => ctx.section('inner', () => ctx.waitFor('never'))
        const begin = async () => {
          await end.promise
          await ctx.step('late', () => void journal.push('late'))
        }
        const sections = [
          ctx.section('booking', book, undo('booking')),
          ctx.section('waiting', wait, undo('waiting')),
          ctx.section('beginning', begin, undo('beginning')),
        ]
        await begun.promise
        if (how === 'fail') throw new Error('full')
        await Promise.all(sections)
      })
      const hf = await open()
      const run = await hf.start(saga, undefined, { id: how })
      await isFailing.promise
      const since = performance.now()
      // It takes its time.
      setTimeout(end.open, 200)
      await failureOf(run)
      expect(journal, how).toEqual(['booked', 'undo booking'])
      // What is under way has 5 s.
      expect(performance.now() - since).toBeLessThan(5_000)
      await hf.close()
    }
  })

  it('says in its log what it undoes for', async () => {
    const saga = workflow({ name: 'saga', undoOnFailure: true, retry: { attempts: 1 } }, async (ctx) => {
      await ctx.step('car', () => 1, { undo: () => {} })
      await ctx.step('flight', () => Promise.reject(new Error('full')))
    })
    const hf = await open()
    const run = await hf.start(saga)
    await failureOf(run)
    const [order] = (await run.events()).filter(({ type }) => type === 'undo_ordered')
    expect(order?.data?.['order']).toMatchObject({ kind: 'fail', failed: ['step:flight#1'] })
  })
})

onEveryStore('an order', ({ open, openMortal, openWrapped, advance }) => {
  it('that is carried out from the log frees the place of its run when the outcome of a write is not known', async () => {
    const undone: number[] = []
    const book = workflow({ name: 'book', undos: { free: (n: number) => void undone.push(n) } }, async (ctx) => {
      await ctx.step('a', () => 1, { undo: 'free' })
      await ctx.waitFor('go')
    })
    const next = workflow('next', (ctx) => ctx.step('a', () => 'done'))
    let isLost = false
    const after = (act: string, _nth: number, [changes]: readonly unknown[]) => {
      if (act !== 'commit' || isLost) return
      if (!(changes as readonly Change[]).some(({ events }) => events.some(({ type }) => type === 'step_undone'))) return
      isLost = true
      throw new HoldfastError('outcome_unknown', 'The answer was lost.')
    }
    const hf = await openWrapped((store) => wrapStore(store, { after }), { workflows: [book, next], worker: { concurrency: 1 } })
    const run = await hf.start(book)
    await becomes(run, 'waiting')
    await run.cancel()
    expect(await hf.run(next)).toBe('done')
    expect(undone).toEqual([1])
  })

  it('does not wait for an effect that waits for a person itself', async () => {
    const undone: string[] = []
    const pay = workflow({ name: 'pay', undoOnFailure: true }, async (ctx, isRolledBack: boolean) => {
      await ctx.step('a', () => 1, { undo: () => void undone.push('a') })
      const unsure = ctx.once('charge', { run: () => Promise.reject(new Error('no answer')) })
      if (isRolledBack) return unsure
      await ctx.waitFor('fail')
      throw new Error('on purpose')
    })
    const hf = await open()
    const [rolledBack, failed] = [await hf.start(pay, true), await hf.start(pay, false)]
    for (const run of [rolledBack, failed]) await logged(run, 'effect_unsure')
    const since = performance.now()
    await Promise.all([rolledBack.rollback(`${rolledBack.threadId}@1`), hf.signal(failed.id, 'fail')])
    await becomes(failed, 'failed')
    // What is under way has 5 s.
    expect(performance.now() - since).toBeLessThan(5_000)
    expect(undone).toEqual(['a', 'a'])
  })

  it('is on record before its first undo: whoever takes the run up after a crash continues it', async () => {
    for (const kind of ['cancel', 'fail', 'limit'] as const) {
      const undone: string[] = []
      const begun = gate()
      const options = { undoOnFailure: true, retry: { attempts: 1 }, ...(kind === 'limit' && { timeoutMs: 30_000 }) }
      const work = workflow({ name: `work-${kind}`, ...options }, async (ctx) => {
        await ctx.step('a', () => 1, { undo: () => void undone.push('a') })
        await ctx.step('b', () => 2, { undo: () => void undone.push('b') })
        if (kind === 'fail') await ctx.step('c', () => Promise.reject(new Error('no')))
        // At work, so that the order reaches a run that is executed.
        if (kind === 'cancel') await ctx.step('long', ({ signal }) => aborted(signal, begun.open))
        await ctx.waitFor('never')
      })
      const mortal = await openMortal({ workflows: [work] }, { after: 'step_undone' })
      const run = await mortal.hf.start(work, undefined, { id: kind })
      if (kind === 'cancel') {
        await begun.promise
        void run.cancel().catch(() => {})
      }
      if (kind === 'limit') {
        await becomes(run, 'waiting')
        advance(31_000)
      }
      await mortal.dead
      advance(11_000)
      const hf = await open({ workflows: [work] })
      const again = await hf.runs.get(run.id)
      await becomes(again, kind === 'cancel' ? 'cancelled' : 'failed')
      expect(undone, kind).toEqual(['b', 'a'])
      if (kind === 'limit') expect(await failureOf(again)).toMatchObject({ code: 'timeout' })
    }
  })
})

/** Two steps with an undo and a checkpoint before each. The undo of the second takes its time. */
function slowToUndo(name: string) {
  const undone: string[] = []
  const [undoing, end] = [gate(), gate()]
  const work = workflow({ name, undoOnFailure: true, retry: { attempts: 1 } }, async (ctx, isFailing: boolean) => {
    await ctx.checkpoint('first')
    await ctx.step('a', () => {}, { undo: () => void undone.push('a') })
    await ctx.checkpoint('second')
    const undo = async () => {
      undoing.open()
      await end.promise
      undone.push('b')
    }
    await ctx.step('b', () => {}, { undo })
    if (isFailing) throw new Error('on purpose')
    await ctx.waitFor('go')
  })
  return { work, undone, undoing, end }
}

onEveryStore('an order that comes while undos run', ({ open, openWrapped }) => {
  /** Asks for something and is gone before it is done. */
  const ask = async (runId: string, request: (run: RunHandle) => Promise<void>) => {
    const asked = gate()
    const client = await openWrapped(noting('deliver', asked.open), { worker: false })
    const asking = request(await client.runs.get(runId)).catch(() => {})
    await asked.promise
    await client.close()
    await asking
  }

  it('is carried out though whoever asked for it is gone: a cancel, or a rollback that goes further, after a rollback', async () => {
    for (const kind of ['cancel', 'rollback'] as const) {
      const { work, undone, undoing, end } = slowToUndo(`work-${kind}`)
      const hf = await open({ workflows: [work] })
      const run = await hf.start(work, false)
      await becomes(run, 'waiting')
      const rollback = codeOfRejection(run.rollback('second'))
      await undoing.promise
      await ask(run.id, (asked) => (kind === 'cancel' ? asked.cancel() : asked.rollback('first')))
      end.open()
      expect(await rollback).toBe('conflict')
      expect(undone, kind).toEqual(['b', 'a'])
      expect((await run.info()).status).toBe(kind === 'cancel' ? 'cancelled' : 'paused')
      if (kind === 'rollback') await run.resume().then(() => becomes(run, 'waiting'))
    }
  })

  it('cancels a run that is about to fail', async () => {
    const { work, undone, undoing, end } = slowToUndo('work')
    const hf = await open({ workflows: [work] })
    const run = await hf.start(work, true)
    await undoing.promise
    await ask(run.id, (asked) => asked.cancel())
    end.open()
    await becomes(run, 'cancelled')
    expect(undone).toEqual(['b', 'a'])
  })

  it('undoes nothing more, with undo: false: the undo under way is recorded, the others do not run', async () => {
    for (const kind of ['cancel', 'rollback', 'fail'] as const) {
      const { work, undone, undoing, end } = slowToUndo(`work-${kind}`)
      const hf = await open({ workflows: [work] })
      const run = await hf.start(work, kind === 'fail')
      if (kind !== 'fail') {
        await becomes(run, 'waiting')
        void (kind === 'cancel' ? run.cancel() : run.rollback('first')).catch(() => {})
      }
      await undoing.promise
      await ask(run.id, (asked) => asked.cancel({ undo: false }))
      end.open()
      await becomes(run, 'cancelled')
      expect(undone, kind).toEqual(['b'])
      const steps = (await run.events()).filter(({ type }) => type === 'step_undone').map(({ step }) => step)
      expect(steps).toEqual(['b'])
    }
  })
})

onLocalStores('an undo that hangs', ({ open }) => {
  it('is waited for 5 s once the run is cancelled with undo: false', async () => {
    const { work, undone, undoing } = slowToUndo('work')
    const hf = await open({ workflows: [work] })
    const run = await hf.start(work, false)
    await becomes(run, 'waiting')
    const first = run.cancel()
    await undoing.promise
    await run.cancel({ undo: false })
    await first
    expect((await run.info()).status).toBe('cancelled')
    expect(undone).toEqual([])
  })
})

onEveryStore('a time limit of a workflow', ({ open, advance }) => {
  const limited = (journal: string[], undoOnFailure: boolean) =>
    workflow({ name: 'limited', timeoutMs: 60_000, undoOnFailure }, async (ctx) => {
      await ctx.checkpoint('start')
      for (let i = 0; i < 20; i++) await ctx.step(`s${i}`, () => i, { undo: (n) => void journal.push(`undo ${n}`) })
      await ctx.waitFor('go')
      return 'out'
    })

  it('that passes while the run waits undoes everything on its tape, with undoOnFailure', async () => {
    const journal: string[] = []
    const hf = await open()
    const run = await hf.start(limited(journal, true))
    await becomes(run, 'waiting')
    advance(61_000)
    expect(await failureOf(run)).toMatchObject({ code: 'timeout' })
    expect(journal).toEqual(Array.from({ length: 20 }, (_, i) => `undo ${19 - i}`))
  })

  it('is none for a run that is rolled back or cancelled after it', async () => {
    const journal: string[] = []
    const hf = await open()
    const book = limited(journal, false)
    const done = await hf.start(book, undefined, { id: 'done' })
    await hf.signal(done.id, 'go')
    await done.result()
    const paused = await hf.start(book, undefined, { id: 'paused' })
    await becomes(paused, 'waiting')
    await paused.pause()
    advance(61_000)
    await done.rollback('start')
    expect(await done.info()).toMatchObject({ status: 'paused', reason: 'asked' })
    await paused.cancel()
    expect((await paused.info()).status).toBe('cancelled')
    expect(journal).toHaveLength(40)
  })

  it('lets nothing new begin while it undoes, and the run fails however its function ends', async () => {
    const journal: string[] = []
    const work = workflow({ name: 'work', timeoutMs: patience(600), undoOnFailure: true }, async (ctx) => {
      await ctx.step('a', () => {}, { undo: () => void journal.push('undo a') })
      await ctx.step('b', ({ signal }) => aborted(signal), { undo: () => void journal.push('undo b') })
      await ctx.step('c', () => void journal.push('c'))
      return 'out'
    })
    const hf = await open()
    const run = await hf.start(work)
    expect(await failureOf(run)).toMatchObject({ code: 'timeout' })
    expect(journal).toEqual(['undo b', 'undo a'])
  })
})

/** Resolves when the signal is aborted, after it has told that it is watched. */
function aborted(signal: AbortSignal, tell: () => void = () => {}): Promise<void> {
  return new Promise((resolve) => {
    signal.addEventListener('abort', () => resolve(), { once: true })
    tell()
  })
}
