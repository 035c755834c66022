import { type Holdfast, type RunEvent, type RunFilter, type RunInfo, workflow } from 'holdfast'
import { wrapStore } from 'holdfast/testing'
import { expect, it, vi } from 'vitest'
import type { Store } from '../../src/store/store.ts'
import { becomes, codeOfRejection, failureOf, gate } from './runs.ts'
import { onEveryStore } from './stores.ts'

/** Acts of the store while something is done. */
function counting(store: Store, acts: string[]): Store {
  return wrapStore(store, { before: (act) => void acts.push(act) })
}

async function allOf(hf: Holdfast, filter: RunFilter): Promise<RunInfo[]> {
  const items: RunInfo[] = []
  let cursor: string | undefined
  do {
    const page = await hf.runs.list({ ...filter, cursor })
    items.push(...page.items)
    cursor = page.cursor
  } while (cursor !== undefined)
  return items
}

async function collect<Item>(items: AsyncIterable<Item>): Promise<Item[]> {
  const all: Item[] = []
  for await (const item of items) all.push(item)
  return all
}

const idsOf = (items: readonly RunInfo[]) => items.map(({ id }) => id)

const child = workflow('child', async (ctx, input: { n: number }) => ctx.step('double', () => input.n * 2))
const mixed = workflow('mixed', async (ctx, input: { n: number }) => {
  ctx.progress(0.5, 'half')
  await ctx.step('one', () => 'x'.repeat(500))
  await ctx.checkpoint(`label-${input.n % 3}`)
  if (input.n % 5 === 4) throw new Error(`number ${input.n}`)
  if (input.n % 5 === 3) await ctx.waitFor('go')
  if (input.n % 5 === 2) return ctx.call(child, { n: input.n })
  return input.n
})

onEveryStore('lists of runs', ({ open, openWrapped, advance }) => {
  it('take two reads a page, however many runs are on it and whatever they have done', async () => {
    const hf = await open({ workflows: [mixed, child] })
    const runs = await hf.startMany(
      Array.from({ length: 30 }, (_, n) => ({ workflow: mixed, input: { n }, options: { id: `m-${n}` } })),
    )
    for (const [n, run] of runs.entries()) {
      if (n % 5 === 3) await becomes(run, 'waiting')
      else if (n % 5 === 4) await failureOf(run)
      else await run.result()
    }
    const acts: string[] = []
    const reader = await openWrapped((store) => counting(store, acts), { worker: false })
    for (const limit of [1, 7, 36, 1_000]) {
      acts.length = 0
      const { items } = await reader.runs.list({ limit })
      expect(acts, `a page of ${limit}`).toEqual(['listRuns', 'readLogs'])
      expect(items).toHaveLength(Math.min(36, limit))
    }
    acts.length = 0
    const one = await reader.runs.get('m-4')
    expect((await one.info()).error?.message).toBe('number 4')
    expect(acts).toEqual(['readRun', 'readRun', 'readLogs'])
    // Each is described as by itself.
    for (const listed of await allOf(reader, { limit: 10 })) {
      const { input, output, ...info } = await (await reader.runs.get(listed.id)).info()
      expect(listed).toEqual(info)
      if (listed.workflow === 'mixed') expect(input).toEqual({ n: Number(listed.id.slice(2)) })
      expect(output).toEqual(
        listed.status !== 'completed'
          ? undefined
          : listed.workflow === 'child' || Number(listed.id.slice(2)) % 5 === 2
            ? (input as { n: number }).n * 2
            : (input as { n: number }).n,
      )
    }
  })

  it('say the queue, when a run is due, its parent, who holds it, and its latest checkpoint', async () => {
    const [entered, go] = [gate(), gate()]
    const held = workflow('held', async (ctx) =>
      ctx.step('hold', async () => {
        entered.open()
        await go.promise
      }),
    )
    const sleeper = workflow('sleeper', (ctx) => ctx.sleep(3_600_000))
    const parent = workflow('parent', async (ctx) => ctx.call(child, { n: 4 }, { id: 'the-child' }))
    const hf = await open({ workflows: [held, sleeper, parent, child] })
    const now = Date.now()
    const later = await hf.start(child, { n: 1 }, { id: 'later', queue: 'slow', delayMs: 3_600_000 })
    const laterInfo = await later.info()
    expect(laterInfo).toMatchObject({ queue: 'slow', status: 'pending', input: { n: 1 }, checkpoint: 'later@1' })
    expect(laterInfo.dueAt).toBeGreaterThanOrEqual(now + 3_500_000)
    for (const field of ['output', 'holder', 'parent', 'startedAt', 'error']) expect(laterInfo).not.toHaveProperty(field)

    const asleep = await hf.start(sleeper, undefined, { id: 'asleep' })
    await becomes(asleep, 'waiting')
    expect((await asleep.info()).dueAt).toBeGreaterThanOrEqual(now + 3_500_000)

    expect(await hf.run(parent)).toBe(8)
    const childInfo = await (await hf.runs.get('the-child')).info()
    expect(childInfo).toMatchObject({ status: 'completed', input: { n: 4 }, output: 8, queue: 'default' })
    expect(childInfo.parent).toBe((await hf.runs.list({ workflow: 'parent' })).items[0]?.id)
    expect(childInfo).not.toHaveProperty('dueAt')
    const last = (await hf.thread('the-child').checkpoints()).at(-1)
    expect(childInfo.checkpoint).toBe(last?.checkpoint)

    const run = await hf.start(held)
    await entered.promise
    const holder = (await run.info()).holder
    expect(holder).toContain(`:${process.pid}:`)
    expect((await hf.runs.list({ status: 'running' })).items).toMatchObject([{ id: run.id, holder }])
    go.open()
    await run.result()
    expect(await run.info()).not.toHaveProperty('holder')
    for (const listed of (await hf.runs.list()).items) {
      expect(listed).not.toHaveProperty('input')
      expect(listed).not.toHaveProperty('output')
    }
  })

  it('say the input of the tape that a run is on, and an output that is undefined or null', async () => {
    const counter = workflow('counter', (ctx, input: { n: number }) => (input.n < 3 ? ctx.continueAs({ n: input.n + 1 }) : null))
    const nothing = workflow('nothing', () => undefined)
    const hf = await open({ workflows: [counter, nothing] })
    const run = await hf.start(counter, { n: 0 })
    await run.result()
    expect(await run.info()).toMatchObject({ input: { n: 3 }, output: null })
    const empty = await hf.start(nothing)
    await empty.result()
    expect((await empty.info()).output).toBeUndefined()
    expect((await empty.info()).input).toBeUndefined()
  })

  it('are filtered by label and by time, with other filters and with cursors', async () => {
    const hf = await open({ workflows: [mixed, child] })
    const times: number[] = []
    for (let n = 0; n < 8; n++) {
      const run = await hf.start(mixed, { n: n * 5 }, { id: `m-${n}`, queue: n % 2 === 0 ? 'even' : 'odd' })
      await run.result()
      times.push((await run.info()).createdAt)
      advance(1_000)
    }
    for (const limit of [1, 3, 100]) {
      expect(idsOf(await allOf(hf, { limit, label: 'label-0' }))).toEqual(['m-6', 'm-3', 'm-0'])
      expect(idsOf(await allOf(hf, { limit, label: 'label-0', queue: 'even', status: 'completed' }))).toEqual(['m-6', 'm-0'])
      expect(idsOf(await allOf(hf, { limit, createdAfter: times[4] as number }))).toEqual(['m-7', 'm-6', 'm-5'])
      expect(idsOf(await allOf(hf, { limit, createdBefore: times[2] as number }))).toEqual(['m-1', 'm-0'])
      const between = { createdAfter: (times[1] as number) - 0.5, createdBefore: (times[4] as number) + 0.5 }
      expect(idsOf(await allOf(hf, { limit, ...between }))).toEqual(['m-4', 'm-3', 'm-2', 'm-1'])
      expect(idsOf(await allOf(hf, { limit, ...between, queue: 'odd', workflow: 'mixed' }))).toEqual(['m-3', 'm-1'])
    }
    await hf.thread('m-7').tag('m-7@1', 'label-0')
    expect(idsOf(await allOf(hf, { label: 'label-0' }))).toEqual(['m-7', 'm-6', 'm-3', 'm-0'])
    expect(idsOf(await allOf(hf.as('other'), { label: 'label-0' }))).toEqual([])
  })

  it('refuse filters that make no sense, and find nothing by names that nothing has', async () => {
    const hf = await open({ worker: false })
    await hf.start('any', undefined, { id: 'r' })
    const refused: object[] = [
      ...[{ createdafter: 1 }, { labels: 'x' }, { createdAfter: 'yesterday' }, { createdBefore: new Date() }],
      ...[{ createdAfter: Number.NaN }, { createdBefore: null }, { label: 7 }, { workflow: null }, { queue: ['a'] }],
      ...[{ cursor: 'n1' }, { cursor: "n1.1'; DROP TABLE runs" }, { cursor: 3 }, { limit: 0 }, { status: 'done' }],
      ...[{ status: null }, { status: 5 }, { status: {} }, { status: new Set(['failed']) }, { status: [undefined] }],
    ]
    for (const filter of refused)
      expect(await codeOfRejection(hf.runs.list(filter as RunFilter)), JSON.stringify(filter)).toBe('invalid_input')
    for (const name of ['\u0000', 'any\u0000', "any' OR '1'='1", 'any\u0000%', '\ud800', '']) {
      for (const field of ['workflow', 'threadId', 'queue', 'label'] as const)
        expect((await hf.runs.list({ [field]: name })).items, `${field} ${JSON.stringify(name)}`).toEqual([])
    }
    expect(idsOf(await allOf(hf, { createdAfter: -8.64e15, createdBefore: 8.64e15 }))).toEqual(['r'])
  })

  it('leave out what is deleted while they are read', async () => {
    const hf = await open({ workflows: [child] })
    for (const id of ['a', 'b', 'c']) await hf.run(child, { n: 1 }, { id })
    let deleted = false
    const reader = await openWrapped(
      (store) =>
        wrapStore(store, {
          before: async (act) => {
            if (act !== 'readLogs' || deleted) return
            deleted = true
            await hf.thread('b').delete()
          },
        }),
      { worker: false },
    )
    expect(idsOf((await reader.runs.list()).items)).toEqual(['c', 'a'])
    const handle = await reader.runs.get('a')
    deleted = false
    const gone = await reader.runs.get('c')
    const deleting = openWrapped(
      (store) => wrapStore(store, { before: async (act) => void (act === 'readLog' && (await hf.thread('c').delete())) }),
      { worker: false },
    )
    const late = await (await deleting).runs.get('c')
    expect(await codeOfRejection(late.result())).toBe('thread_deleted')
    expect(await codeOfRejection(gone.info())).toBe('thread_deleted')
    expect((await handle.info()).status).toBe('completed')
  })
})

onEveryStore('watching a run', ({ open, openMortal, advance }) => {
  it('continues after a position: nothing is missed and nothing comes twice', async () => {
    const steps = 40
    const long = workflow('long', async (ctx) => {
      for (let n = 0; n < steps; n++) await ctx.step(`s${n}`, () => n)
    })
    const hf = await open({ workflows: [long] })
    const run = await hf.start(long, undefined, { delayMs: 0 })
    const seen: RunEvent[] = []
    // A reader that is cut off again and again.
    for (let cut = 0; ; cut++) {
      const stop = new AbortController()
      let count = 0
      for await (const event of run.watch({ after: seen.at(-1)?.seq ?? 0, signal: stop.signal })) {
        seen.push(event)
        if (++count > cut % 7) stop.abort()
      }
      if (!stop.signal.aborted) break
    }
    expect(seen).toEqual(await run.events())
    expect(seen.filter(({ type }) => type === 'step_completed')).toHaveLength(steps)
    expect(await collect(run.watch({ after: (seen.at(-1)?.seq ?? 0) - 2 }))).toEqual(seen.slice(-2))
    expect(await collect(run.watch({ after: 1_000_000 }))).toEqual([])
  })

  it('after a position continues from another process when the first is dead', async () => {
    const [entered, go] = [gate(), gate()]
    const long = workflow('long', async (ctx) => {
      await ctx.step('a', () => 1)
      entered.open()
      await ctx.step('b', () => go.promise)
    })
    const { hf: first, die } = await openMortal({ workflows: [long], worker: false })
    const hf = await open({ workflows: [long], worker: { pollMs: 50 } })
    const run = await first.start(long, undefined, { id: 'r' })
    await entered.promise
    const seen: RunEvent[] = []
    for await (const event of run.watch({ after: 0 })) {
      seen.push(event)
      if (event.type === 'step_completed') break
    }
    await die()
    // Past the leases of the dead, which may have claimed the run.
    advance(11_000)
    const rest = collect((await hf.runs.get('r')).watch({ after: seen.at(-1)?.seq as number }))
    go.open()
    expect([...seen, ...(await rest)]).toEqual(await (await hf.runs.get('r')).events())
  })

  it('refuses a position that is none', async () => {
    const hf = await open({ worker: false })
    const run = await hf.start('any')
    for (const after of [-1, 0.5, Number.NaN, '1', null] as number[]) {
      expect(() => run.watch({ after })).toThrow(expect.objectContaining({ code: 'invalid_input' }))
      expect(await codeOfRejection(run.events({ after }))).toBe('invalid_input')
    }
    await vi.waitFor(async () => expect(await run.events({ after: 0 })).toHaveLength(1))
  })
})
