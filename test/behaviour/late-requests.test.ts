import { HoldfastError, type RunStatus, workflow } from 'holdfast'
import { type StoreAct, wrapStore } from 'holdfast/testing'
import { expect, it } from 'vitest'
import type { Change } from '../../src/store/change.ts'
import type { Store } from '../../src/store/store.ts'
import { patience } from '../patience.ts'
import { becomes, codeOfRejection, eventTypes, gate, noting } from './runs.ts'
import { onEveryStore } from './stores.ts'

/**
 * For the client that executes: the first write that gives a run this status waits until a request has been put into the inbox. Whoever asked
 * then looks again.
 */
function requestBefore(status: RunStatus, request: () => Promise<unknown>, looksAgain = Promise.resolve()) {
  const delivered = gate()
  let [isAsked, isDelivered] = [false, false]
  const outcome = gate<unknown>()
  const before = async (act: StoreAct, _nth: number, [changes]: readonly unknown[]) => {
    if (act !== 'commit' || isAsked || !(changes as readonly Change[]).some(({ run }) => run?.status === status)) return
    isAsked = true
    outcome.open(codeOfRejection(request()))
    await delivered.promise
  }
  return {
    holder: (store: Store) => wrapStore(store, { before }),
    client: (store: Store) =>
      wrapStore(store, {
        before: (act) => (act === 'readRun' && isDelivered ? looksAgain : undefined),
        after: (act) => {
          if (act !== 'deliver') return
          isDelivered = true
          delivered.open()
        },
      }),
    /** What became of the request. */
    outcome: outcome.promise,
  }
}

onEveryStore('a request that comes while its run is about to end', ({ openWrapped }) => {
  for (const call of ['cancel', 'pause'] as const) {
    it(`is refused and does nothing when the run is retried: ${call}`, async () => {
      let isBroken = true
      const work = workflow({ name: 'work', retry: { attempts: 1 } }, async (ctx) => {
        await ctx.step('a', () => isBroken && Promise.reject(new Error('broken')))
        return await ctx.step('b', () => 'done')
      })
      const late = requestBefore('failed', async () => (await client.runs.get('r'))[call]())
      const client = await openWrapped(late.client, { worker: false })
      const hf = await openWrapped(late.holder, { workflows: [work] })
      const run = await hf.start(work, undefined, { id: 'r' })
      expect(await late.outcome).toBe('conflict')
      isBroken = false
      await run.retry()
      expect(await run.result({ timeoutMs: patience(5_000) })).toBe('done')
    })

    it(`is refused and does nothing when the run is rolled back: ${call}`, async () => {
      const work = workflow('work', async (ctx) => {
        await ctx.checkpoint('start')
        return await ctx.step('a', () => 'done', { undo: () => {} })
      })
      const late = requestBefore('completed', async () => (await client.runs.get('r'))[call]())
      const client = await openWrapped(late.client, { worker: false })
      const hf = await openWrapped(late.holder, { workflows: [work] })
      const run = await hf.start(work, undefined, { id: 'r' })
      expect(await late.outcome).toBe('conflict')
      await run.rollback('start')
      expect(await run.info()).toMatchObject({ status: 'paused', reason: 'asked' })
      await run.resume()
      expect(await run.result({ timeoutMs: patience(5_000) })).toBe('done')
    })
  }
})

onEveryStore('a cancel that comes while its run is about to fail', ({ openWrapped }) => {
  it('is carried out where the run is retried before whoever asked for it has looked again', async () => {
    let isBroken = true
    const [begun, retried] = [gate(), gate()]
    const work = workflow({ name: 'work', retry: { attempts: 1 } }, async (ctx) => {
      await ctx.step('a', () => isBroken && Promise.reject(new Error('broken')))
      await ctx.step('b', ({ signal }) => {
        begun.open()
        return new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()))
      })
    })
    const late = requestBefore('failed', async () => (await client.runs.get('r')).cancel(), retried.promise)
    const client = await openWrapped(late.client, { worker: false })
    const hf = await openWrapped(late.holder, { workflows: [work] })
    const run = await hf.start(work, undefined, { id: 'r' })
    await becomes(run, 'failed')
    isBroken = false
    await run.retry()
    await begun.promise
    retried.open()
    expect(await late.outcome).toBe('nothing was thrown')
    expect((await run.info()).status).toBe('cancelled')
  })
})

onEveryStore('a cancel that comes while its run is about to pause, by a client that dies then', ({ openWrapped }) => {
  const died = Promise.reject(new HoldfastError('closed', 'The client ends here.'))
  died.catch(() => {})

  for (const options of [{}, { undo: false }]) {
    it(`is carried out by a worker: cancel(${'undo' in options ? '{ undo: false }' : ''}) while it pauses because it was asked to`, async () => {
      const undone: string[] = []
      const [begun, body, asked] = [gate(), gate(), gate()]
      const work = workflow('work', async (ctx) => {
        await ctx.step('a', () => 1, { undo: () => void undone.push('a') })
        await ctx.step('b', () => begun.open() ?? body.promise)
        await ctx.waitFor('go')
      })
      const late = requestBefore('paused', async () => (await client.runs.get('r')).cancel(options), died)
      const client = await openWrapped(late.client, { worker: false })
      const hf = await openWrapped((store) => noting('deliver', asked.open)(late.holder(store)), { workflows: [work] })
      const run = await hf.start(work, undefined, { id: 'r' })
      await begun.promise
      const paused = codeOfRejection(run.pause())
      await asked.promise
      body.open()
      expect(await late.outcome).toBe('closed')
      await becomes(run, 'cancelled')
      await paused
      expect(undone).toEqual('undo' in options ? [] : ['a'])
    })
  }

  it('is carried out by a worker, also where whoever asked for the pause looks again only then', async () => {
    const [begun, body, asked, taken, looked] = [gate(), gate(), gate(), gate(), gate()]
    const work = workflow('work', async (ctx) => {
      await ctx.step('a', () => begun.open() ?? body.promise)
      await ctx.waitFor('go')
    })
    const late = requestBefore('paused', async () => (await client.runs.get('r')).cancel(), died)
    const client = await openWrapped(late.client, { worker: false })
    let isHeldBack = false
    const takesUp = (store: Store) =>
      wrapStore(store, {
        before: (act) => (act === 'claim' && isHeldBack ? looked.promise : undefined),
        after: (act, _, [changes]) => {
          if (act !== 'commit' || !(changes as readonly Change[]).some(({ events }) => events[0]?.type === 'run_resumed')) return
          taken.open()
        },
      })
    const before = (act: StoreAct) => (act === 'readRun' && isAsked ? taken.promise : undefined)
    let isAsked = false
    const after = (act: StoreAct) => {
      if (act !== 'deliver') return
      isAsked = true
      asked.open()
    }
    const pauser = await openWrapped((store) => wrapStore(store, { before, after }), { worker: false })
    const hf = await openWrapped((store) => takesUp(late.holder(store)), { workflows: [work] })
    const run = await hf.start(work, undefined, { id: 'r' })
    await begun.promise
    isHeldBack = true
    const paused = codeOfRejection((await pauser.runs.get('r')).pause())
    await asked.promise
    body.open()
    await paused
    looked.open()
    await becomes(run, 'cancelled')
  })

  it('is carried out by a worker while it pauses because its attempts are used up', async () => {
    const undone: string[] = []
    const work = workflow('work', async (ctx) => {
      await ctx.step('a', () => 1, { undo: () => void undone.push('a') })
      await ctx.step('b', () => Promise.reject(new Error('broken')), { retry: { attempts: 1 }, onFailure: 'pause' })
    })
    const late = requestBefore('paused', async () => (await client.runs.get('r')).cancel(), died)
    const client = await openWrapped(late.client, { worker: false })
    const hf = await openWrapped(late.holder, { workflows: [work] })
    const run = await hf.start(work, undefined, { id: 'r' })
    expect(await late.outcome).toBe('closed')
    await becomes(run, 'cancelled')
    expect(undone).toEqual(['a'])
  })
})

onEveryStore('a pause that comes while its run is about to pause', ({ openWrapped }) => {
  it('does nothing once the run is resumed', async () => {
    const begun = gate()
    const body = gate()
    const work = workflow('work', async (ctx) => {
      await ctx.step('a', () => {
        begun.open()
        return body.promise
      })
      await ctx.step('b', () => {})
      await ctx.waitFor('go')
    })
    const late = requestBefore('paused', async () => (await client.runs.get('r')).pause())
    const client = await openWrapped(late.client, { worker: false })
    const asked = gate()
    const hf = await openWrapped((store) => noting('deliver', asked.open)(late.holder(store)), { workflows: [work] })
    const run = await hf.start(work, undefined, { id: 'r' })
    await begun.promise
    const paused = run.pause()
    await asked.promise
    body.open()
    await paused
    expect(await late.outcome).toBe('nothing was thrown')
    await run.resume()
    await becomes(run, 'waiting')
  })
})

onEveryStore('a pause that was carried out', ({ open, openWrapped }) => {
  it('is not asked for again where somebody resumes the run before whoever asked for it has looked again', async () => {
    const [begun, body, asked, resumed] = [gate(), gate(), gate(), gate()]
    const work = workflow('work', async (ctx) => {
      await ctx.step('a', () => begun.open() ?? body.promise)
      await ctx.waitFor('go')
    })
    let isAsked = false
    const client = await openWrapped(
      (store) =>
        wrapStore(store, {
          before: (act) => (act === 'readRun' && isAsked ? resumed.promise : undefined),
          after: (act) => {
            if (act !== 'deliver') return
            isAsked = true
            asked.open()
          },
        }),
      { worker: false },
    )
    const hf = await open({ workflows: [work] })
    const run = await hf.start(work, undefined, { id: 'r' })
    await begun.promise
    const paused = (await client.runs.get('r')).pause()
    await asked.promise
    body.open()
    await becomes(run, 'paused')
    await run.resume()
    await becomes(run, 'waiting')
    resumed.open()
    await paused
    expect((await run.info()).status).toBe('waiting')
  })
})

/** For the client that executes: the first write that pauses a run waits until the request was answered. */
function answeredBeforePause(request: () => Promise<unknown>) {
  let isAsked = false
  const before = async (act: StoreAct, _nth: number, [changes]: readonly unknown[]) => {
    if (act !== 'commit' || isAsked || !(changes as readonly Change[]).some(({ run }) => run?.status === 'paused')) return
    isAsked = true
    await request()
  }
  return (store: Store) => wrapStore(store, { before })
}

onEveryStore('a resume that is answered while its run is about to pause', ({ open, openWrapped }) => {
  it('lets the run continue where somebody had asked for the pause', async () => {
    const [begun, body, asked] = [gate(), gate(), gate()]
    const work = workflow('work', async (ctx) => {
      await ctx.step('a', () => begun.open() ?? body.promise)
      return ctx.step('b', () => 'done')
    })
    const client = await open({ worker: false })
    const holder = answeredBeforePause(async () => (await client.runs.get('r')).resume({ by: 'ada' }))
    const hf = await openWrapped((store) => noting('deliver', asked.open)(holder(store)), { workflows: [work] })
    const run = await hf.start(work, undefined, { id: 'r' })
    await begun.promise
    // It may find the run completed.
    const paused = codeOfRejection(run.pause())
    await asked.promise
    body.open()
    expect(await run.result({ timeoutMs: patience(5_000) })).toBe('done')
    await paused
    const resumed = (await run.events()).filter(({ type }) => type === 'run_resumed')
    expect(resumed.map(({ data }) => data)).toEqual([{ by: 'ada' }])
  })

  it('and is followed by another pause leaves it paused', async () => {
    const [begun, body, asked] = [gate(), gate(), gate()]
    const work = workflow('work', async (ctx) => {
      await ctx.step('a', () => begun.open() ?? body.promise)
      return ctx.step('b', () => 'done')
    })
    const client = await open({ worker: false })
    const holder = answeredBeforePause(async () => {
      const run = await client.runs.get('r')
      await run.resume()
      await run.pause()
    })
    const hf = await openWrapped((store) => noting('deliver', asked.open)(holder(store)), { workflows: [work] })
    const run = await hf.start(work, undefined, { id: 'r' })
    await begun.promise
    const paused = run.pause()
    await asked.promise
    body.open()
    await paused
    await becomes(run, 'paused')
    await run.resume()
    expect(await run.result({ timeoutMs: patience(5_000) })).toBe('done')
    expect((await eventTypes(run)).filter((type) => type === 'run_paused')).toHaveLength(1)
  })

  it('and raises the budget that it pauses for lets the run continue', async () => {
    const work = workflow({ name: 'work', budget: { cost: 10 } }, async (ctx) => {
      for (const cost of [6, 6, 6]) await ctx.step('spend', (step) => step.usage({ cost }))
      return 'done'
    })
    const client = await open({ worker: false })
    const holder = answeredBeforePause(async () => (await client.runs.get('r')).resume({ budget: { cost: 100 } }))
    const hf = await openWrapped(holder, { workflows: [work] })
    const run = await hf.start(work, undefined, { id: 'r' })
    expect(await run.result({ timeoutMs: patience(5_000) })).toBe('done')
    expect((await eventTypes(run)).filter((type) => type === 'budget_raised')).toHaveLength(1)
  })
})

onEveryStore('a second rollback to the same place that comes while the first is about to be done', ({ openWrapped }) => {
  it('is done with it, and does nothing once the run is resumed', async () => {
    const journal: string[] = []
    const [begun, body] = [gate(), gate()]
    const work = workflow('work', async (ctx) => {
      await ctx.checkpoint('start')
      await ctx.step('a', () => void journal.push('done'), { undo: () => void journal.push('undone') })
      await ctx.step('b', () => {
        begun.open()
        return body.promise
      })
      await ctx.waitFor('go')
    })
    const late = requestBefore('paused', async () => (await client.runs.get('r')).rollback('start'))
    const client = await openWrapped(late.client, { worker: false })
    const asked = gate()
    const hf = await openWrapped((store) => noting('deliver', asked.open)(late.holder(store)), { workflows: [work] })
    const run = await hf.start(work, undefined, { id: 'r' })
    await begun.promise
    const rolledBack = run.rollback('start')
    await asked.promise
    body.open()
    await rolledBack
    expect(await late.outcome).toBe('nothing was thrown')
    await run.resume()
    await becomes(run, 'waiting')
    expect((await eventTypes(run)).filter((type) => type === 'run_rolled_back')).toHaveLength(1)
    expect(journal).toEqual(['done', 'undone', 'done'])
  })
})
