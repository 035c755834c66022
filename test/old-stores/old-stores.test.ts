import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Holdfast, type HoldfastError, open, type RunHandle } from 'holdfast'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { storeKinds } from '../behaviour/places.ts'
import { startProgram } from '../behaviour/programs.ts'
import { codeOfRejection } from '../behaviour/runs.ts'
import { patience } from '../patience.ts'
import { type OldRun, oldRuns, statusOf } from './old-runs.ts'
import { clockIn, openWorker, readJournal, setClock } from './open-worker.ts'
import { places } from './places.ts'
import { changesAPart, libraryText, makeWorkflows } from './workflows.ts'

const hourMs = 3_600_000
const deliveries = 'holdfast.notify/ops'

type StoreName = keyof typeof places

/** When each store was left. */
const times = JSON.parse(readFileSync(new URL('./written/times.json', import.meta.url), 'utf8')) as Record<StoreName, number>

const stores = (Object.keys(places) as StoreName[]).filter((name) => storeKinds.some((kind) => kind.name === name))

describe.each(stores)('a store that 09549e1 wrote, on %s', (store) => {
  test('is as it was left, and every run in it comes to its end', async () => {
    const { url, folder } = await prepare(store)
    const hf = await openClient(url, folder)
    await expectAsItWasLeft(hf)
    expect((await hf.verify()).damaged).toEqual([])
    const worker = await openWorker(url, folder)
    onTestFinished(() => worker.close())
    await finish(hf, folder)
    expect((await hf.verify()).damaged).toEqual([])
  })

  test('is read by the debugger, verified, forked and rewound', async () => {
    const { url, folder } = await prepare(store)
    const hf = await openClient(url, folder)
    expect(await hf.verify()).toMatchObject({ isSound: true, damaged: [] })
    const refused = await Promise.all(oldRuns.map(async (row) => expectForks(clientOf(hf, row), await handleOf(hf, row))))
    // What these had done was being undone when the store was left.
    expect(refused.filter((id) => id !== null).sort()).toEqual(['in-rollback', 'in-undo'])
    const library = hf.thread('library')
    await library.rewind('part 1', { by: 'dana' })
    expect(await library.state()).toEqual({ text: libraryText(changesAPart) })
    expect((await hf.debug.audit('library')).at(-1)).toMatchObject({ decision: 'rewound', by: 'dana' })
    expect(await hf.verify()).toMatchObject({ isSound: true, damaged: [] })

    const worker = await openWorker(url, folder)
    onTestFinished(() => worker.close())
    const signalled = hf.thread('signalled')
    const fork = await signalled.fork((await (await hf.runs.get('signalled')).info()).checkpoint as string)
    const copy = await fork.resume()
    await hf.signal(copy.id, 'go', 'forked')
    expect(await copy.result({ timeoutMs: patience(30_000) })).toBe('forked')
    expect(await library.run('noting')).toBe('noted')
  })

  test('is opened by two processes at once, which bring every run to its end', async () => {
    const { url, folder } = await prepare(store)
    const workers = [1, 2].map(() => startProgram('old-store-worker', url, folder))
    await Promise.all(workers.map((worker) => worker.said('opened')))
    await finish(await openClient(url, folder), folder)
    for (const worker of workers) worker.signal('SIGTERM')
    expect(await Promise.all(workers.map(({ ended }) => ended))).toEqual([0, 0])
  })
})

/** A copy of the store, 20 s after it was left: the leases of the process that was killed are over. */
async function prepare(store: StoreName): Promise<{ url: string; folder: string }> {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-old-stores-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  writeFileSync(join(folder, 'journal'), '')
  setClock(folder, times[store] - Date.now() + 20_000)
  return { url: await places[store](folder), folder }
}

async function openClient(url: string, folder: string): Promise<Holdfast> {
  const hf = await open(url, {
    workflows: makeWorkflows({ act: async (_runId, _what, result) => result, edition: 2 }),
    clock: clockIn(folder),
    worker: false,
    logger: false,
  })
  onTestFinished(() => hf.close())
  return hf
}

/** What can be read before anybody has executed anything. */
async function expectAsItWasLeft(hf: Holdfast): Promise<void> {
  const seen = await Promise.all(oldRuns.map(async (row) => [row.id, await statusOf(await handleOf(hf, row))]))
  expect(seen).toEqual(oldRuns.map(({ id, at }) => [id, at]))

  const inbox = await hf.inbox()
  const questions = inbox.flatMap((item) => (item.kind === 'question' ? [`${item.runId} ${item.name}`] : []))
  expect(questions.sort()).toEqual([
    ...['asked-last desk/second', 'asked-last first', 'asking desk/second', 'asking first', 'asking-cancel desk/second'],
    ...['asking-cancel first', 'asking-in-section part/third', 'asking-in-time quick', 'asking-paused desk/second'],
    ...['asking-paused first', 'asking-twice same', 'asking-twice same', 'half-answered desk/second'],
  ])
  const effects = inbox.flatMap((item) => (item.kind === 'effect' ? [item.runId] : []))
  expect(effects.sort()).toEqual(['shared-holder', 'unsure'])

  const library = hf.thread('library')
  expect(await library.state()).toEqual({ text: libraryText(4 * changesAPart), notes: ['by hand'] })
  expect(await library.stateAt('part 1')).toEqual({ text: libraryText(changesAPart) })
  expect((await library.checkpoints({ limit: 1_000 })).flatMap(({ label }) => label ?? [])).toEqual([
    ...['begun', 'part 1', 'part 2', 'part 3', 'part 4'],
  ])
  expect(await codeOfRejection(hf.thread('gone').state())).toBe('thread_deleted')

  const schedules = (await hf.schedules.list()).map(({ name, isPaused }) => [name, isPaused])
  expect(schedules).toEqual([
    ['hourly', false],
    ['stopped', true],
  ])
  expect(await hf.queues.get('narrow')).toMatchObject({ concurrency: 1 })
  expect(await hf.queues.get('closed')).toMatchObject({ isPaused: true, rateLimit: { count: 100, perMs: 1_000 } })
}

/** All that can be read of it, and a fork at its latest checkpoint with the state that is there. Says its id where that is refused. */
async function expectForks(hf: Holdfast, run: RunHandle): Promise<string | null> {
  const { checkpoint } = await run.info()
  const rows = await hf.debug.timeline(run.threadId)
  expect(rows.map((row) => row.checkpoint)).toEqual(
    (await hf.thread(run.threadId).checkpoints({ limit: 1_000 })).map((row) => row.checkpoint),
  )
  const steps = await hf.debug.replay(run.threadId)
  expect(steps.at(-1)?.state).toEqual(await hf.thread(run.threadId).stateAt(steps.at(-1)?.checkpoint as string))
  expect((await hf.debug.explain(run.id)).runId).toBe(run.id)
  await hf.debug.audit(run.threadId)
  await hf.debug.effects({ runId: run.id })
  if (checkpoint === undefined) return null
  const { isThere, last } = await hf.debug.blame(checkpoint, 'notes')
  expect(last === null).toBe(!isThere)
  const fork = await hf
    .thread(run.threadId)
    .fork(checkpoint)
    .catch((error: HoldfastError) => {
      expect(error.code).toBe('conflict')
      return null
    })
  if (fork === null) return run.id
  expect(await fork.state()).toEqual(await hf.thread(run.threadId).stateAt(checkpoint))
  return null
}

/** Does what the runs wait for, lets hours pass, and looks at what came of each. */
async function finish(hf: Holdfast, folder: string): Promise<void> {
  const undelivered = (await listRuns(hf, deliveries)).map(({ id }) => id.slice(deliveries.length + 1))
  expect(undelivered.length).toBeGreaterThan(10)

  const [late, soon] = [oldRuns.filter(({ isLate }) => isLate), oldRuns.filter(({ isLate }) => !isLate)]
  await Promise.all(soon.map((row) => bringToItsEnd(hf, row)))
  // With the hours that pass now every lease ends: nothing may be at work.
  const isAtRest = ({ status }: { readonly status: string }) => status === 'completed' || status === 'waiting'
  await vi.waitUntil(async () => (await listRuns(hf, deliveries)).every(isAtRest))
  setClock(folder, clockIn(folder)() + 3 * hourMs)
  await Promise.all(late.map((row) => bringToItsEnd(hf, row)))

  const tick = await vi.waitUntil(async () => (await hf.schedules.get('hourly')).last)
  expect(await (await hf.runs.get(tick.runId)).result()).toBe('noted')
  expect((await hf.schedules.get('stopped')).last).toBeUndefined()

  await vi.waitUntil(async () => (await listRuns(hf, deliveries)).every(({ status }) => status === 'completed'))
  const unfinished = await hf.runs.list({ status: ['pending', 'running', 'waiting', 'paused'] })
  expect(unfinished.items.map(({ id }) => id)).toEqual([])
  expect(await hf.inbox()).toEqual([])

  const journal = readJournal(folder)
  expectDone(journal)
  await expectNotes(hf)
  await expectKeysOnRecord(hf, journal)
  const delivered = journal.filter((line) => line.startsWith('delivered: ')).map((line) => line.slice('delivered: '.length))
  expect(delivered.filter((id) => undelivered.includes(id)).sort()).toEqual(undelivered.sort())

  expect(await validWords(hf)).toEqual(['one', 'two', 'between', 'three'])
  expect(await hf.thread('remembering').state()).toEqual({ notes: ['first', 'second'], loud: true })
  expect(await hf.thread('gone').run('noting')).toBe('noted')
  expect(await hf.thread('library').run('noting')).toBe('noted')
  expect(await hf.thread('library').state()).toEqual({ text: libraryText(4 * changesAPart), notes: ['by hand', 'note'] })
}

async function bringToItsEnd(hf: Holdfast, row: OldRun): Promise<void> {
  const run = await handleOf(hf, row)
  const client = clientOf(hf, row)
  await row.act?.(client, run)
  const result = await run.result({ timeoutMs: patience(30_000) }).catch((error: { code?: unknown }) => error)
  const { status } = await run.info()
  const expected = row.ends === undefined ? row.output : { code: row.ends === 'failed' ? 'run_failed' : 'run_cancelled' }
  expect({ id: row.id, status, result }).toMatchObject({ id: row.id, status: row.ends ?? 'completed', result: expected })
}

/** Nothing was executed that had a result, and nothing more often than once. */
function expectDone(journal: readonly string[]): void {
  const ids = [...new Set(oldRuns.map(({ id }) => id))]
  const did = (id: string) =>
    journal.filter((line) => line.startsWith(`${id}: `)).map((line) => line.slice(id.length + 2).replace(/^(pay|check) .*/, '$1'))
  expect(ids.map((id) => [id, did(id)])).toEqual(
    ids.map((id) => [id, oldRuns.filter((row) => row.id === id).flatMap((row) => row.did)]),
  )
}

/** The state of each thread has what its runs did, each thing once. */
async function expectNotes(hf: Holdfast): Promise<void> {
  const rows = oldRuns.filter(({ notes }) => notes !== undefined)
  const seen = rows.map(async (row) => {
    const { threadId } = await handleOf(hf, row)
    const { notes } = await clientOf(hf, row).thread(threadId).state<{ notes: string[] }>()
    return [row.id, notes]
  })
  expect(await Promise.all(seen)).toEqual(rows.map(({ id, notes }) => [id, notes]))
}

/** An effect whose intent was written by the old version is looked up, and sent again, under the key of that intent. */
async function expectKeysOnRecord(hf: Holdfast, journal: readonly string[]): Promise<void> {
  const acts = { unsure: 'pay', 'in-effect-idempotent': 'pay', 'in-effect-check': 'check' }
  for (const [id, act] of Object.entries({ ...acts, 'rolled-pay': 'pay', 'life-pay': 'pay', 'taped-pay': 'pay' })) {
    const intent = (await (await hf.runs.get(id)).events()).find(({ type }) => type === 'effect_intended')
    expect(journal).toContain(`${id}: ${act} ${String(intent?.data?.['key'])}`)
  }
}

/** Of a stream what readers are to show: without the chunks of an attempt that was void. */
async function validWords(hf: Holdfast): Promise<unknown[]> {
  let items: { readonly part: string; readonly chunk?: unknown }[] = []
  for await (const item of (await hf.runs.get('streaming')).stream('words')) {
    if (item.isAborted) items = items.filter(({ part }) => part !== item.part)
    if (item.chunk !== undefined) items.push(item)
  }
  return items.map(({ chunk }) => chunk)
}

async function listRuns(hf: Holdfast, workflow: string) {
  return (await hf.runs.list({ workflow, limit: 1_000 })).items
}

function clientOf(hf: Holdfast, { owner }: OldRun): Holdfast {
  return owner === undefined ? hf : hf.as(owner)
}

function handleOf(hf: Holdfast, row: OldRun) {
  return clientOf(hf, row).runs.get(row.id)
}
