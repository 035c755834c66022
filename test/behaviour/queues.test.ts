import { type Holdfast, type HoldfastError, type RunHandle, workflow } from 'holdfast'
import { expect, it, vi } from 'vitest'
import { becomes, codeOfRejection, gate } from './runs.ts'
import { onEveryStore } from './stores.ts'

const quick = workflow('quick', (ctx, n: number) => ctx.step('a', () => n))

/** A workflow whose runs stay in their step until they are let go, and how many do at a time. */
function slow() {
  const release = gate()
  const seen = { running: 0, most: 0, ids: [] as string[] }
  const work = workflow('slow', (ctx) =>
    ctx.step('wait', async () => {
      seen.running++
      seen.most = Math.max(seen.most, seen.running)
      seen.ids.push(ctx.runId)
      await release.promise
      seen.running--
    }),
  )
  return { work, release, seen }
}

async function errorOf(promise: Promise<unknown>): Promise<HoldfastError> {
  return promise.then(
    () => expect.fail('nothing was thrown'),
    (error: HoldfastError) => error,
  )
}

onEveryStore('queues', ({ open, advance }) => {
  it('exist as soon as a run uses them, and are counted by status over all owners', async () => {
    const { work, release, seen } = slow()
    const hf = await open({ workflows: [work], worker: { queues: ['mails'] } })
    expect(await hf.queues.list()).toEqual([])
    await hf.start(work, undefined, { queue: 'mails' })
    await vi.waitFor(() => expect(seen.running).toBe(1))
    await hf.as('acme').start(work, undefined, { queue: 'later', delayMs: 60_000 })
    await hf.as('acme').start(work, undefined, { queue: 'later' })
    const paused = await hf.start(work, undefined, { queue: 'later' })
    await paused.pause()
    const none = { pending: 0, delayed: 0, running: 0, waiting: 0, paused: 0 }
    expect(await hf.queues.list()).toMatchObject([
      { name: 'later', concurrency: null, counts: { ...none, pending: 1, delayed: 1, paused: 1 } },
      { name: 'mails', isPaused: false, counts: { ...none, running: 1 } },
    ])
    expect(await hf.as('acme').queues.get('mails')).toMatchObject({ counts: { ...none, running: 1 } })
    expect(await hf.queues.get('nobody')).toEqual({
      ...{ name: 'nobody', concurrency: null, rateLimit: null, maxQueued: null, isPaused: false, counts: none },
    })
    release.open()
  })

  it('run no more at a time than their concurrency, over all workers', async () => {
    const { work, release, seen } = slow()
    const first = await open({ workflows: [work] })
    await open({ workflows: [work] })
    await first.queues.set('mails', { concurrency: 3 })
    await first.startMany(Array.from({ length: 12 }, () => ({ workflow: work, options: { queue: 'mails' } })))
    const elsewhere = await first.start(work)
    await vi.waitFor(() => expect(seen.ids).toContain(elsewhere.id))
    await vi.waitFor(() => expect(seen.running).toBe(4))
    expect((await first.queues.get('mails')).counts).toMatchObject({ running: 3, pending: 9 })
    release.open()
    await first.queues.drain('mails')
    expect(seen.ids).toHaveLength(13)
    expect(seen.most).toBe(4)
  })

  it('that are paused start nothing while what runs goes on, until they are resumed', async () => {
    const { work, release, seen } = slow()
    const hf = await open({ workflows: [work], worker: { concurrency: 1 } })
    const running = await hf.start(work)
    await vi.waitFor(() => expect(seen.running).toBe(1))
    const queued = await hf.start(work)
    await hf.queues.pause('default')
    release.open()
    await running.result()
    // Whatever is claimed after the pause would be claimed before this one.
    await hf.run(quick, 1, { queue: 'other' })
    expect((await queued.info()).status).toBe('pending')
    expect(await codeOfRejection(hf.queues.drain('default', { timeoutMs: 20 }))).toBe('timeout')
    await hf.queues.resume('default')
    await queued.result()
    await hf.queues.drain('default')
  })

  it('start no more runs in a stretch of time than their rate limit allows', async () => {
    const hf = await open({ workflows: [quick] })
    await hf.queues.set('mails', { rateLimit: { count: 2, perMs: 60_000 } })
    const runs = await hf.startMany(
      Array.from({ length: 5 }, (_, n) => ({ workflow: quick, input: n, options: { queue: 'mails' } })),
    )
    const finished = async () => (await hf.runs.list({ status: 'completed', queue: 'mails' })).items.length
    for (const expected of [2, 4]) {
      await vi.waitFor(async () => expect(await finished()).toBe(expected))
      await hf.run(quick, 0)
      expect((await hf.queues.count('mails')).pending).toBe(5 - expected)
      advance(61_000)
    }
    await Promise.all(runs.map((run) => run.result()))
  })

  it('refuse a start beyond maxQueued with queue_full, and answer to an id that they have', async () => {
    const client = await open({ worker: false })
    await client.queues.set('mails', { maxQueued: 2 })
    const first = await client.start(quick, 1, { id: 'a', queue: 'mails' })
    await client.start(quick, 2, { id: 'b', queue: 'mails' })
    const error = await errorOf(client.start(quick, 3, { id: 'c', queue: 'mails' }))
    expect(error).toMatchObject({ code: 'queue_full', retryable: true, details: { queue: 'mails', maxQueued: 2 } })
    expect(error.message).toContain('"mails"')
    expect(error.message).toContain('"c"')
    expect((await client.start(quick, 1, { id: 'a', queue: 'mails' })).id).toBe(first.id)
    expect(await codeOfRejection(client.runs.get('c'))).toBe('run_not_found')
    await open({ workflows: [quick] })
    await first.result()
    await client.queues.drain('mails')
    await client.start(quick, 3, { id: 'c', queue: 'mails' })
  })

  it('say what is left when they could not be drained in time, and how it went on', async () => {
    const { work, release, seen } = slow()
    const hf = await open({ workflows: [work], worker: { concurrency: 1 } })
    await hf.startMany([{ workflow: work }, { workflow: work }, { workflow: work, options: { delayMs: 60_000 } }])
    await vi.waitFor(() => expect(seen.running).toBe(1))
    const error = await errorOf(hf.queues.drain('default', { timeoutMs: 30 }))
    expect(error).toMatchObject({ code: 'timeout', details: { counts: { pending: 1, running: 1, delayed: 1 } } })
    const left: number[] = []
    release.open()
    await hf.queues.drain('default', { onProgress: ({ pending, running }) => left.push(pending + running) })
    expect(left.at(-1)).toBe(0)
    expect((await hf.queues.get('default')).counts.delayed).toBe(1)
  })

  it('keep their settings for every process, and refuse what makes no sense', async () => {
    const hf = await open({ worker: false })
    await hf.queues.set('mails', { concurrency: 5, maxQueued: 100 })
    await hf.queues.set('mails', { rateLimit: { count: 1, perMs: 1_000 }, maxQueued: null })
    const other = await open({ worker: false })
    expect(await other.queues.get('mails')).toMatchObject({
      ...{ concurrency: 5, maxQueued: null, rateLimit: { count: 1, perMs: 1_000 }, isPaused: false },
    })
    const bad: unknown[] = [
      { concurrency: 0 },
      { concurrency: 1.5 },
      { maxQueued: -1 },
      { rateLimit: { count: 1 } },
      { rateLimit: 5 },
      { isPaused: 'yes' },
      { speed: 3 },
    ]
    for (const settings of bad)
      expect(await codeOfRejection(hf.queues.set('mails', settings as Parameters<Holdfast['queues']['set']>[1]))).toBe(
        'invalid_input',
      )
    expect(await codeOfRejection(hf.queues.set('', {}))).toBe('invalid_id')
    expect(await codeOfRejection(hf.queues.pause('holdfast'))).toBe('invalid_input')
    expect(await codeOfRejection(hf.queues.drain('mails', { timeoutMs: Number.NaN }))).toBe('invalid_input')
  })
})

onEveryStore('owners', ({ open }) => {
  it('take turns: one with many queued runs does not keep another waiting', async () => {
    const order: string[] = []
    const work = workflow('work', async (ctx, owner: string) => {
      await ctx.step('a', () => void order.push(owner))
    })
    const client = await open({ worker: false })
    const many = Array.from({ length: 100 }, () => ({ workflow: work, input: 'big' }))
    await client.as('big').startMany(many)
    await client.as('small').start(work, 'small')
    await client.as('other').start(work, 'other')
    const hf = await open({ workflows: [work], worker: { concurrency: 2 } })
    await hf.queues.drain('default')
    expect(order).toHaveLength(102)
    expect(order.indexOf('small')).toBeLessThan(6)
    expect(order.indexOf('other')).toBeLessThan(6)
  })
})

onEveryStore('a worker', ({ open }) => {
  it('takes no more runs of a queue at a time than it gives it places', async () => {
    const { work, release, seen } = slow()
    const hf = await open({ workflows: [work, quick], worker: { queues: { mails: 2, default: 50 } } })
    await hf.startMany(Array.from({ length: 6 }, () => ({ workflow: work, options: { queue: 'mails' } })))
    await hf.run(quick, 1)
    await vi.waitFor(() => expect(seen.running).toBe(2))
    const elsewhere = await hf.start(quick, 1, { queue: 'elsewhere' })
    await hf.run(quick, 2)
    expect(seen.running).toBe(2)
    expect((await elsewhere.info()).status).toBe('pending')
    release.open()
    await hf.queues.drain('mails')
    expect(seen.most).toBe(2)
    expect(seen.ids).toHaveLength(6)
  })

  it('refuses places for a queue that are no number', async () => {
    expect(await codeOfRejection(open({ worker: { queues: { mails: 0 } } }))).toBe('invalid_input')
    expect(await codeOfRejection(open({ worker: { queues: [''] } }))).toBe('invalid_id')
  })
})

onEveryStore('startMany', ({ open }) => {
  it('starts many runs at once and returns their handles in order', async () => {
    const hf = await open({ workflows: [quick] })
    const runs = await hf.startMany(
      Array.from({ length: 600 }, (_, n) => ({ workflow: 'quick', input: n, options: { id: `r${n}` } })),
    )
    expect(runs.map(({ id }) => id)).toEqual(Array.from({ length: 600 }, (_, n) => `r${n}`))
    expect(await Promise.all(runs.map((run) => run.result()))).toEqual(Array.from({ length: 600 }, (_, n) => n))
    expect(await hf.startMany([])).toEqual([])
  })

  it('starts an id once, also when it is there twice', async () => {
    const hf = await open({ workflows: [quick] })
    const again = { workflow: quick, input: 1, options: { id: 'r' } }
    const [first, second] = (await hf.startMany([again, again])) as [RunHandle, RunHandle]
    expect(first.id).toBe(second.id)
    await becomes(first, 'completed')
    expect((await hf.startMany([again]))[0]?.id).toBe('r')
    expect((await hf.runs.list()).items).toHaveLength(1)
  })

  it('starts the others when some cannot be, and says which and why', async () => {
    const hf = await open({ worker: false })
    await hf.queues.set('small', { maxQueued: 1 })
    const error = await errorOf(
      hf.startMany([
        { workflow: quick, input: 1, options: { id: 'a', queue: 'small' } },
        { workflow: quick, input: 2, options: { id: 'b', queue: 'small' } },
        { workflow: quick, input: 3, options: { id: 'c', owner: 'acme' } },
        { workflow: quick, input: 4, options: { id: 'a' } },
        { workflow: quick, input: 5, options: { id: '' } },
        { workflow: quick, input: (() => {}) as never, options: { id: 'd' } },
      ]),
    )
    expect(error).toMatchObject({ code: 'queue_full', retryable: false })
    expect(error.message).toContain('4 of 6 runs were not started')
    expect(error.details['startedIds']).toEqual(['a', 'c'])
    const failures = error.details['failures'] as { index: number; code: string }[]
    expect(failures.map(({ index, code }) => [index, code])).toEqual([
      [1, 'queue_full'],
      [3, 'input_mismatch'],
      [4, 'invalid_id'],
      [5, 'value_not_storable'],
    ])
    expect((await (await hf.as('acme').runs.get('c')).info()).status).toBe('pending')
    expect(await codeOfRejection(hf.startMany('quick' as never))).toBe('invalid_input')
    expect(await codeOfRejection(hf.startMany([{ workflow: quick, input: 1, options: { tx: {} } as never }]))).toBe(
      'invalid_input',
    )
  })
})
