import { NotHappened, state, type UndoInfo, workflow } from 'holdfast'
import { wrapStore } from 'holdfast/testing'
import { expect, it, vi } from 'vitest'
import { becomes, codeOfRejection, eventTypes, gate } from './runs.ts'
import { onEveryStore } from './stores.ts'

const shopping = state({ version: 1, initial: () => ({ items: ['list'] }) })

/** Adds two items, each in a commit of its own, and waits. */
const shop = workflow({ name: 'shop', state: shopping }, async (ctx) => {
  for (const item of ['bread', 'milk']) {
    ctx.update((draft) => {
      draft.items.push(item)
    })
    await ctx.step('note', () => item)
  }
  await ctx.waitFor('done')
  return ctx.state.items
})

onEveryStore('rolling back', ({ open, openMortal, openWrapped, advance }) => {
  it('to before anything was written brings the initial state, not none', async () => {
    const hf = await open()
    const run = await hf.start(shop, undefined, { id: 'a' })
    await becomes(run, 'waiting')
    await run.rollback('a@1')
    expect(await hf.thread('a').state()).toEqual({ items: ['list'] })
    await run.resume()
    await hf.signal('a', 'done')
    expect(await run.result()).toEqual(['list', 'bread', 'milk'])
  })

  it.each([
    ['a step', 'step'],
    ['an effect', 'effect'],
  ] as const)('to where %s had failed for good, over the retry that did it, has its failure again', async (_, kind) => {
    let flaws = 1
    const make = () => {
      if (flaws-- > 0) throw kind === 'step' ? new Error('flaw') : new NotHappened(new Error('flaw'))
      return 'made'
    }
    const retry = { attempts: 1 }
    const work = workflow('work', async (ctx) => {
      if (kind === 'step') await ctx.step('make', make, { retry, undo: () => {} })
      else await ctx.once('make', { run: make, retry, undo: () => {} })
      await ctx.waitFor('done')
      return 'done'
    })
    const hf = await open()
    const run = await hf.start(work, undefined, { id: 'a' })
    await becomes(run, 'failed')
    const failed = (await run.events()).find(({ type }) => type === `${kind}_failed`)
    await run.retry()
    await becomes(run, 'waiting')
    await run.rollback(`a@${failed?.seq}`)
    await run.resume()
    await becomes(run, 'failed')
    expect((await run.info()).error?.message).toContain('flaw')
    await run.retry()
    await becomes(run, 'waiting')
    await hf.signal('a', 'done')
    expect(await run.result()).toBe('done')
  })

  it('takes what it took back out of info() as well, until it is done again', async () => {
    let flaws = 1
    const work = workflow('work', async (ctx) => {
      await ctx.step('a', () => {})
      ctx.progress(0.1)
      await ctx.checkpoint('here')
      await ctx.step(
        'b',
        () => {
          if (flaws-- > 0) throw new Error('a flaw')
        },
        { retry: { attempts: 2, minMs: 1 } },
      )
      ctx.progress(0.9)
      await ctx.once('c', { key: 'k', run: () => {} })
      await ctx.waitFor('done')
    })
    const hf = await open()
    const run = await hf.start(work, undefined, { id: 'r' })
    await becomes(run, 'waiting')
    expect(await run.info()).toMatchObject({
      completedSteps: ['a', 'b', 'c'],
      stepAttempts: { b: 2 },
      progress: { fraction: 0.9 },
    })
    for (let time = 0; time < 2; time++) {
      await run.rollback('here')
      const info = await run.info()
      expect(info).toMatchObject({ completedSteps: ['a'], stepAttempts: { a: 1 }, progress: { fraction: 0.1 } })
      expect(info).not.toHaveProperty('currentStep')
      await run.resume()
      await becomes(run, 'waiting')
      expect(await run.info()).toMatchObject({ completedSteps: ['a', 'b', 'c'], progress: { fraction: 0.9 } })
    }
    await hf.signal('r', 'done')
    await run.result()
    expect((await run.info()).completedSteps).toEqual(['a', 'b', 'c'])
  })

  it('to a checkpoint that was itself rolled back is refused, and names where it can go', async () => {
    const hf = await open()
    const run = await hf.start(shop, undefined, { id: 'a' })
    await becomes(run, 'waiting')
    const [first, ...later] = await hf.thread('a').checkpoints()
    const second = later.at(-1)?.checkpoint as string
    await run.rollback(first?.checkpoint as string)
    const refused = await run.rollback(second).catch((error: Error) => error)
    expect(refused).toMatchObject({ code: 'conflict', message: expect.stringContaining(first?.checkpoint as string) })
    await run.resume()
    await becomes(run, 'waiting')
    expect(await codeOfRejection(run.rollback(second))).toBe('conflict')
    await hf.signal('a', 'done')
    expect(await run.result()).toEqual(['list', 'bread', 'milk'])
  })

  it('to inside a section that is undone as a whole is refused, and names where it can go', async () => {
    const journal: string[] = []
    const trip = workflow('trip', async (ctx) => {
      await ctx.step('quote', () => {})
      await ctx.section(
        'book',
        async () => {
          await ctx.step('flight', () => void journal.push('+flight'))
          await ctx.step('hotel', () => void journal.push('+hotel'))
        },
        { undo: () => void journal.push('-both') },
      )
      await ctx.waitFor('go')
    })
    const hf = await open()
    const run = await hf.start(trip, undefined, { id: 't' })
    await becomes(run, 'waiting')
    const checkpoints = await hf.thread('t').checkpoints()
    const inside = checkpoints.find(({ step }) => step === 'book/flight')
    const refused = await run.rollback(inside?.checkpoint ?? '').then(
      () => null,
      (error: unknown) => error as Error,
    )
    expect(refused).toMatchObject({ code: 'conflict', details: { step: 'book' } })
    expect(journal).toEqual(['+flight', '+hotel'])
    await run.rollback(/t@\d+(?=\), or)/.exec(refused?.message ?? '')?.[0] ?? '')
    await run.resume()
    await hf.signal('t', 'go', 1)
    await run.result()
    expect(journal).toEqual(['+flight', '+hotel', '-both', '+flight', '+hotel'])
  })

  it('of a run that has not begun is refused: what came before it on its thread is not its to take back', async () => {
    const hf = await open()
    const first = await hf.start(shop, undefined, { id: 'a', threadId: 't' })
    await becomes(first, 'waiting')
    const queued = await hf.start(shop, undefined, { id: 'b', threadId: 't' })
    const checkpoint = (await hf.thread('t').checkpoints()).at(-1)?.checkpoint as string
    await hf.signal('a', 'done')
    await first.result()
    const early = await hf.start(shop, undefined, { id: 'c', threadId: 't', delayMs: 60_000 })
    expect(await codeOfRejection(early.rollback(checkpoint))).toBe('conflict')
    expect(await codeOfRejection(queued.rollback(checkpoint))).toBe('conflict')
    await becomes(queued, 'waiting')
    expect(await codeOfRejection(queued.rollback(checkpoint))).toBe('conflict')
    await hf.signal('b', 'done')
    expect(await queued.result()).toEqual(['list', 'bread', 'milk', 'bread', 'milk'])
  })

  it('to before continueAs is refused, also when the new tape begins while it is asked for', async () => {
    const laps = workflow({ name: 'laps', state: shopping }, async (ctx, lap: number): Promise<readonly string[]> => {
      ctx.update((draft) => {
        draft.items.push(`lap ${lap}`)
      })
      await ctx.step('note', () => lap)
      if (lap === 2) await ctx.waitFor('done')
      return lap === 2 ? ctx.state.items : await ctx.continueAs(lap + 1)
    })
    const hf = await open()
    const run = await hf.start(laps, 1, { id: 'a' })
    await becomes(run, 'waiting')
    expect(await codeOfRejection(run.rollback('a@1'))).toBe('conflict')
    await hf.signal('a', 'done')
    expect(await run.result()).toEqual(['list', 'lap 1', 'lap 2'])
  })

  it('is refused, and not carried out later, where the run has begun a new tape before it heard of it', async () => {
    const undone: number[] = []
    const gates = { begun: gate(), asked: gate(), mail: gate() }
    const work = workflow('work', async (ctx, tape: number) => {
      await ctx.step('a', () => tape, { undo: (result) => void undone.push(result) })
      await ctx.checkpoint()
      if (tape === 1) {
        gates.begun.open()
        await gates.asked.promise
        await ctx.continueAs(2)
      }
      const key = await ctx.step('b', (step) => step.key)
      await ctx.waitFor('done')
      return key
    })
    // Mail is read late; the first that is read is that of the second tape.
    const before = (act: string) => (act === 'readInbox' ? gates.mail.promise : undefined)
    const after = (act: string) => act === 'deliver' && gates.asked.open()
    const hf = await openWrapped((store) => wrapStore(store, { before, after }))
    const run = await hf.start(work, 1, { id: 'a' })
    await gates.begun.promise
    const [checkpoint] = await hf.thread('a').checkpoints()
    const rollback = codeOfRejection(run.rollback(checkpoint?.checkpoint as string))
    const begunTapes = async () => (await eventTypes(run)).filter((type) => type === 'run_started').length
    await vi.waitUntil(async () => (await begunTapes()) === 2, { timeout: 15_000 })
    gates.mail.open()
    expect(await rollback).toBe('conflict')
    await becomes(run, 'waiting')
    await hf.signal('a', 'done')
    expect(await run.result()).toBe('a~2/b#1')
    expect(undone).toEqual([])
  })

  it('to where the tape began leaves it the tape that it is: what earlier ones did is still undone', async () => {
    const journal: string[] = []
    const refund = (result: number, { effectKey }: UndoInfo) => void journal.push(`refund ${String(result)} of ${effectKey}`)
    const laps = workflow({ name: 'laps', undos: { refund } }, async (ctx, lap: number): Promise<void> => {
      await ctx.once('pay', { idempotent: true, undo: 'refund', run: () => lap })
      if (lap === 1) await ctx.continueAs(2)
      await ctx.waitFor('done')
    })
    const hf = await open()
    const run = await hf.start(laps, 1, { id: 'a' })
    await becomes(run, 'waiting')
    const begins = (await run.events()).filter(({ type }) => type === 'run_started').at(-1)?.seq as number
    expect(await codeOfRejection(run.rollback(`a@${begins - 1}`))).toBe('conflict')
    await run.rollback(`a@${begins}`)
    await run.resume()
    await becomes(run, 'waiting')
    await run.cancel()
    expect(journal).toEqual(['refund 2 of a~2/pay#1', 'refund 2 of a~2/pay#1~1', 'refund 1 of a/pay#1'])
  })

  it('is carried out once, although somebody resumes the run before whoever asked for it has looked again', async () => {
    for (const isCompleted of [false, true]) {
      const journal: string[] = []
      const work = workflow(`work-${isCompleted}`, async (ctx) => {
        await ctx.checkpoint('start')
        await ctx.step('a', () => void journal.push('done'), { undo: () => void journal.push('undone') })
        if (!isCompleted) await ctx.waitFor('go')
      })
      const resumed = gate()
      let isAsked = false
      const before = (act: string) => (act === 'readRun' && isAsked ? resumed.promise : undefined)
      const after = (act: string) => {
        isAsked ||= act === 'commit'
      }
      const client = await openWrapped((store) => wrapStore(store, { before, after }), { worker: false })
      const hf = await open({ workflows: [work] })
      const run = await hf.start(work, undefined, { id: work.name })
      await becomes(run, isCompleted ? 'completed' : 'waiting')
      const rollback = (await client.runs.get(run.id)).rollback('start')
      await becomes(run, 'paused')
      await run.resume()
      await becomes(run, isCompleted ? 'completed' : 'waiting')
      resumed.open()
      await rollback
      expect(await eventTypes(run).then((types) => types.filter((type) => type === 'run_rolled_back'))).toHaveLength(1)
      expect(journal).toEqual(['done', 'undone', 'done'])
    }
  })

  it('is refused where a failure undoes meanwhile what is at the checkpoint, also after a crash in between', async () => {
    for (const isCrashed of [false, true]) {
      const journal: string[] = []
      let isBroken = true
      const [begun, asked] = [gate(), gate()]
      const saga = workflow({ name: `saga-${isCrashed}`, undoOnFailure: true, retry: { attempts: 1 } }, async (ctx) => {
        const undo = async () => {
          begun.open()
          await asked.promise
          journal.push('released')
        }
        await ctx.step('reserve', () => void journal.push('reserved'), { undo })
        await ctx.checkpoint('reserved')
        await ctx.step('ship', () => (isBroken ? Promise.reject(new Error('no')) : void journal.push('shipped')))
      })
      const mortal = await openMortal({ workflows: [saga] }, isCrashed ? { after: 'step_undone' } : undefined)
      const started = await mortal.hf.start(saga, undefined, { id: saga.name })
      await begun.promise
      // It has looked, and found nothing undone.
      const before = (act: string) => {
        if (act === 'deliver') asked.open()
        return act === 'deliver' && isCrashed ? mortal.dead : undefined
      }
      const client = await openWrapped((store) => wrapStore(store, { before }), { worker: false })
      const run = await client.runs.get(started.id)
      const rollback = codeOfRejection(run.rollback('reserved'))
      if (isCrashed) {
        await mortal.dead
        advance(11_000)
        await open({ workflows: [saga] })
      }
      expect(await rollback).toBe('conflict')
      await becomes(run, 'failed')
      isBroken = false
      await run.retry()
      await run.result()
      expect(journal).toEqual(['reserved', 'released', 'reserved', 'shipped'])
    }
  })
})

onEveryStore('a rollback to where a failed run was retried', ({ open }) => {
  it('has the state without what was undone, also where the log’s own state there is the one that it leaves', async () => {
    const list = state({ version: 1, initial: () => ({ list: [] as string[] }) })
    let isBroken = true
    const work = workflow({ name: 'work', state: list, undoOnFailure: true, retry: { attempts: 1 } }, async (ctx) => {
      await ctx.step('a', (step) => step.update((draft) => void draft.list.push('a')), { undo: () => {} })
      await ctx.step('b', () => isBroken && Promise.reject(new Error('broken')))
      return ctx.state.list
    })
    const hf = await open()
    const run = await hf.start(work, undefined, { id: 'r' })
    await becomes(run, 'failed')
    await run.retry()
    await becomes(run, 'failed')
    const retried = (await run.events()).find(({ type }) => type === 'run_retried')
    await run.rollback(`r@${retried?.seq}`)
    isBroken = false
    await run.resume()
    expect(await run.result()).toEqual(['a'])
    expect(await (await hf.thread('r')).state()).toEqual({ list: ['a'] })
  })
})
