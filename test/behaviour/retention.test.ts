import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Holdfast, type HoldfastError, type RetentionOptions, type RunHandle, workflow } from 'holdfast'
import { wrapStore } from 'holdfast/testing'
import { expect, it, vi } from 'vitest'
import type { CollectRequest } from '../../src/store/store.ts'
import { patience } from '../patience.ts'
import { startProgram } from './programs.ts'
import { becomes, codeOfRejection, gate } from './runs.ts'
import { onEverySharedStore, onEveryStore } from './stores.ts'

const day = 24 * 3_600_000
const all: RetentionOptions = {
  runs: { maxAgeMs: 2 * day },
  threads: { maxAgeMs: 2 * day },
  notifications: { maxAgeMs: 2 * day },
}

const greet = workflow('greet', async (ctx, name: string) => {
  await ctx.step('speak', async (step) => {
    await step.stream('words').write('Hello')
    return name
  })
  return `Hello ${name}`
})
const waits = workflow('waits', (ctx) => ctx.waitFor('go'))

const isThere = (run: RunHandle) =>
  run.info().then(
    () => true,
    (error: HoldfastError) => (error.code === 'run_not_found' ? false : Promise.reject(error)),
  )
const nothing = { unfinished: 0, operations: 0, tagged: 0, needed: 0, last: 0, changed: 0, damaged: 0 }

async function hasChunks(run: RunHandle): Promise<boolean> {
  try {
    for await (const _ of run.stream('words')) return true
    return false
  } catch (error) {
    expect(error).toMatchObject({ code: 'pruned' })
    return false
  }
}

onEveryStore('retention', (scene) => {
  it('deletes nothing unless a policy says so', async () => {
    const hf = await scene.open({ workflows: [greet] })
    const run = await hf.start(greet, 'Ann')
    await run.result()
    scene.advance(1_000 * day)
    expect(await hf.gc()).toMatchObject({ dryRun: false, scanned: 0, runs: 0, threads: 0, streams: 0, kept: nothing })
    expect(await hasChunks(run)).toBe(true)
  })

  it('deletes runs and threads in which nothing has happened for long enough, of all owners, and says what', async () => {
    const hf = await scene.open({ workflows: [greet, waits], retention: all })
    const old = await hf.start(greet, 'Ann')
    const others = await hf.as('bob').start(greet, 'Ann')
    const chat = await hf.thread('t').start(greet, 'Ann')
    for (const run of [old, others, chat]) await run.result()
    const waiting = await hf.start(waits)
    await becomes(waiting, 'waiting')
    const touched = await hf.thread('touched').start(greet, 'Ann')
    await touched.result()
    await hf.thread('edited').update((draft) => void Object.assign(draft, { a: 1 }))
    scene.advance(2 * day)
    await hf.thread('touched').update((draft) => void Object.assign(draft, { a: 1 }))
    const young = await hf.start(greet, 'Cid')
    await young.result()
    const dry = await hf.gc({ dryRun: true })
    expect(dry).toMatchObject({ dryRun: true, scanned: 7, runs: 2, threads: 2, kept: { ...nothing, unfinished: 1 } })
    expect(await isThere(old)).toBe(true)
    const told: unknown[] = []
    const report = await hf.gc({ onProgress: (one) => told.push(one) })
    expect(report).toMatchObject({ dryRun: false, runs: 2, threads: 2, kept: dry.kept })
    expect(told.at(-1)).toEqual(report)
    for (const run of [old, others, chat]) expect(await isThere(run)).toBe(false)
    for (const run of [waiting, touched, young]) expect(await isThere(run)).toBe(true)
    expect(await hf.thread('edited').state()).toBeUndefined()
    await hf.signal(waiting.id, 'go', 1)
    expect(await waiting.result()).toBe(1)
    expect(await hf.gc()).toMatchObject({ runs: 0, threads: 0, kept: nothing })
    const again = await hf.start(greet, 'Bob', { id: old.id })
    expect(await again.result()).toBe('Hello Bob')
    expect((await hf.verify()).isSound).toBe(true)
  })

  it('keeps the latest runs of each workflow and owner, and what has a label', async () => {
    const other = workflow('other', async () => 1)
    const hf = await scene.open({ workflows: [greet, other], retention: { runs: { maxAgeMs: day, keepLast: 2 } } })
    const runs: RunHandle[] = []
    for (const name of ['a', 'b', 'c', 'd']) {
      runs.push(await hf.start(greet, name))
      await runs.at(-1)?.result()
    }
    const [first, labelled] = runs as [RunHandle, RunHandle]
    const alone = await hf.start(other)
    await alone.result()
    await hf.thread(labelled.id).tag((await hf.thread(labelled.id).info()).checkpoint as string, 'gold')
    scene.advance(day)
    expect(await hf.gc()).toMatchObject({ runs: 1, kept: { ...nothing, last: 3, tagged: 1 } })
    expect(await Promise.all(runs.map(isThere))).toEqual([false, true, true, true])
    expect(await isThere(alone)).toBe(true)
    expect(await codeOfRejection(first.result())).toBe('run_not_found')
  })

  it('never deletes what somebody has to decide, or may still need', async () => {
    const hidden = workflow('hidden', (ctx) =>
      ctx.once('pay', {
        run: async () => {
          throw new Error('no answer')
        },
      }),
    )
    const child = workflow('child', async () => 'done')
    const parent = workflow('parent', async (ctx) => {
      await ctx.call(child)
      await ctx.waitFor('go')
      return 1
    })
    const hf = await scene.open({ workflows: [hidden, child, parent, waits], retention: all })
    const unsure = await hf.start(hidden)
    await becomes(unsure, 'waiting')
    await unsure.cancel()
    const calling = await hf.start(parent)
    await becomes(calling, 'waiting')
    const paused = await hf.start(waits)
    await paused.pause()
    const children = await hf.runs.list({ workflow: 'child' })
    scene.advance(3 * day)
    expect(await hf.gc()).toMatchObject({ runs: 0, kept: { ...nothing, operations: 1, needed: 1, unfinished: 2 } })
    expect(children.items).toHaveLength(1)
    const [item] = await hf.inbox()
    await hf.resolve(item?.kind === 'effect' ? item.key : '', { happened: true, by: 'ann' })
    await hf.signal(calling.id, 'go')
    expect(await calling.result()).toBe(1)
    await paused.cancel()
    // Something has just happened in all others.
    expect(await hf.gc()).toMatchObject({ runs: 1, kept: nothing })
    expect(await isThere(unsure)).toBe(true)
    scene.advance(3 * day)
    expect(await hf.gc()).toMatchObject({ runs: 3, kept: nothing })
    expect((await hf.runs.list()).items).toEqual([])
  })

  it('removes the content of artifacts that went with their thread or were deleted, a day after it was used', async () => {
    const saves = workflow('saves', async (ctx) => {
      await ctx.artifacts.save({ name: 'note', type: 'message_content', content: `of ${ctx.runId}` })
      await ctx.artifacts.save({ name: 'report', type: 'analysis_result', content: 'equal' })
    })
    const hf = await scene.open({ workflows: [saves], retention: { runs: { maxAgeMs: 2 * day } } })
    await hf.run(saves, undefined, { id: 'first' })
    expect(await hf.gc()).toMatchObject({ artifacts: 0 })
    scene.advance(3 * day)
    await hf.run(saves, undefined, { id: 'second' })
    expect(await hf.gc()).toMatchObject({ runs: 1, artifacts: 1, artifactBytes: 'of first'.length })
    const [report] = (await hf.artifacts.list({ name: 'report' })).items
    expect(await (await hf.artifacts.open(report?.id ?? '')).text()).toBe('equal')
    for (const { id } of (await hf.artifacts.list()).items) await hf.artifacts.delete(id)
    expect(await hf.gc()).toMatchObject({ artifacts: 0 })
    scene.advance(3 * day)
    expect(await hf.gc({ dryRun: true })).toMatchObject({ runs: 1, artifacts: 1 })
    expect(await hf.gc()).toMatchObject({ runs: 1, artifacts: 2 })
    expect(await hf.gc()).toMatchObject({ artifacts: 0 })
  })

  it('drops the chunks of runs that ended long enough ago, and of no others', async () => {
    const open = gate()
    const writes = workflow('writes', async (ctx) => {
      await ctx.step('speak', async (step) => {
        await step.stream('words').write('Hello')
      })
      await ctx.step('wait', () => open.promise)
    })
    const hf = await scene.open({ workflows: [greet, writes], retention: { streams: { maxAgeMs: 60_000 } } })
    const [ended, later] = [await hf.thread('t').start(greet, 'a'), await hf.start(greet, 'b')]
    await Promise.all([ended.result(), later.result()])
    const second = await hf.thread('t').start(writes)
    await becomes(second, 'running')
    await vi.waitUntil(() => hasChunks(second), { timeout: 15_000 })
    expect(await hf.gc()).toMatchObject({ streams: 0 })
    scene.advance(60_000)
    const young = await hf.thread(later.id).start(greet, 'c')
    await young.result()
    expect(await hf.gc({ dryRun: true })).toMatchObject({ streams: 2 })
    expect(await hf.gc()).toMatchObject({ streams: 2, runs: 0, threads: 0 })
    expect(await hf.gc()).toMatchObject({ streams: 0 })
    expect(await Promise.all([ended, later, second, young].map(hasChunks))).toEqual([false, false, true, true])
    open.open()
    await second.result()
  })

  it('is done by the worker from time to time', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'], shouldAdvanceTime: true })
    try {
      const hf = await scene.open({ workflows: [greet], retention: { ...all, everyMs: 1_000 } })
      const runs = await Promise.all(Array.from({ length: 5 }, () => hf.start(greet, 'Ann', { id: randomUUID() })))
      for (const run of runs) await run.result()
      scene.advance(2 * day)
      await vi.advanceTimersByTimeAsync(80_000)
      await vi.waitUntil(async () => !(await Promise.all(runs.map(isThere))).includes(true), { timeout: patience(15_000) })
    } finally {
      vi.useRealTimers()
    }
  })

  it('begins again where it was ended early, and deletes each thread whole or not at all', async () => {
    const hf = await scene.open({ workflows: [greet], retention: all })
    const runs = await hf.startMany(Array.from({ length: 120 }, () => ({ workflow: greet, input: 'Ann' })))
    await Promise.all(runs.map((run) => run.result()))
    scene.advance(2 * day)
    const ending = new AbortController()
    const ended = hf.gc({ signal: ending.signal, onProgress: () => ending.abort(new Error('enough')) })
    await expect(ended).rejects.toThrow('enough')
    const left = await Promise.all(runs.map(isThere))
    expect(left.filter((one) => !one).length).toBe(100)
    expect((await hf.verify()).isSound).toBe(true)
    const [one, two] = await Promise.all([hf.gc(), hf.gc()])
    expect(one.runs + two.runs).toBe(20)
    expect(await hf.runs.list()).toEqual({ items: [] })
    await expect(hf.gc({ signal: AbortSignal.abort(new Error('never')) })).rejects.toThrow('never')
  })

  it('beside another one, never deletes a run that was started again under the id of one that was deleted', async () => {
    const hf = await scene.open({ workflows: [greet], retention: all })
    const greetAnn = async () => (await hf.start(greet, 'Ann', { id: 'r' })).result()
    let isFirst = true
    const slow = await scene.openWrapped(
      (store) => ({
        ...wrapStore(store, {}),
        collectThreads: async (request: CollectRequest) => {
          if (isFirst) {
            isFirst = false
            expect(await hf.gc()).toMatchObject({ runs: 1 })
            await greetAnn()
          }
          return store.collectThreads(request)
        },
      }),
      { worker: false, retention: all },
    )
    await greetAnn()
    scene.advance(2 * day)
    expect(await slow.gc()).toMatchObject({ runs: 0, kept: { ...nothing, changed: 1 } })
    expect(await (await slow.runs.get('r')).result()).toBe('Hello Ann')
  })

  it('refuses policies that are none', async () => {
    const refused = async (retention: unknown) => codeOfRejection(scene.open({ retention: retention as RetentionOptions }))
    for (const retention of [
      ...[
        { runs: {} },
        { runs: { maxAgeMs: day - 1 } },
        { threads: { maxAgeMs: '90d' } },
        { notifications: { maxAgeMs: Number.NaN } },
      ],
      ...[{ streams: { maxAgeMs: -1 } }, { runs: { maxAgeMs: day, keepLast: 0 } }, { threads: { maxAgeMs: day, keepLast: 5 } }],
      ...[{ checkpoints: { maxAgeMs: day } }, { everyMs: 0 }, { keepTagged: 'yes' }],
    ])
      expect([retention, await refused(retention)]).toEqual([retention, 'invalid_input'])
    const hf: Holdfast = await scene.open()
    expect(await codeOfRejection(hf.gc({ dry: true } as never))).toBe('invalid_input')
  })
})

onEverySharedStore('retention in a process that is killed', (scene) => {
  it('leaves every thread whole or gone, whenever it dies, and the next one finishes', async () => {
    const hf = await scene.open({ workflows: [greet], retention: { ...all, streams: { maxAgeMs: 0 } } })
    const runs = await hf.startMany(Array.from({ length: 150 }, () => ({ workflow: greet, input: 'Ann' })))
    await Promise.all(runs.map((run) => run.result()))
    const chat = await hf.thread('t').start(greet, 'Bob')
    await chat.result()
    await hf.thread('t').tag((await hf.thread('t').info()).checkpoint as string, 'gold')
    for (const afterMs of [0, 20]) {
      const program = startProgram('gc-slowly', scene.url, String(3 * day))
      await program.said('begun')
      await sleep(afterMs)
      await program.kill()
      expect((await hf.verify()).damaged).toEqual([])
      const results = await Promise.all(runs.map((run) => run.result().catch((error: HoldfastError) => error.code)))
      expect(results.filter((result) => result !== 'Hello Ann' && result !== 'run_not_found')).toEqual([])
    }
    scene.advance(3 * day)
    await hf.gc()
    expect((await hf.runs.list()).items.map(({ id }) => id)).toEqual([chat.id])
    expect([await chat.result(), await hasChunks(chat)]).toEqual(['Hello Bob', false])
    expect((await hf.verify()).damaged).toEqual([])
  })
})
