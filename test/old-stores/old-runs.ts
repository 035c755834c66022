import type { Holdfast, RunHandle } from 'holdfast'
import { patience } from '../patience.ts'

/** A run as 09549e1 left it, what makes it continue, and what has to come of it. */
export interface OldRun {
  readonly id: string
  readonly owner?: string
  /** Its status when the store was left. */
  readonly at: string
  /** What has to be done for it to come to its end. */
  readonly act?: (hf: Holdfast, run: RunHandle) => Promise<unknown>
  /** It ends only after hours. */
  readonly isLate?: true
  /** How it ends. Default completed. */
  readonly ends?: 'failed' | 'cancelled'
  readonly output?: unknown
  /** What its bodies and undos still do, in order: nothing that was recorded. */
  readonly did: readonly string[]
  /** The notes in the state of its thread in the end. */
  readonly notes?: readonly string[]
}

const signal =
  (name = 'go', value = 'went') =>
  (hf: Holdfast, run: RunHandle) =>
    hf.signal(run.id, name, value)

const answer = (hf: Holdfast, run: RunHandle) =>
  Promise.all([hf.answer(run.id, 'first', 'yes', { by: 'dana' }), hf.answer(run.id, 'second', 'no', { by: 'eve' })])

const resume = (_hf: Holdfast, run: RunHandle) => run.resume()
const retry = (_hf: Holdfast, run: RunHandle) => run.retry()

const resolve = (resolution: { happened: boolean; result?: unknown }) => async (hf: Holdfast, run: RunHandle) => {
  await reaches(run, 'waiting/person')
  const effect = (await hf.inbox()).find((item) => item.kind === 'effect' && item.runId === run.id)
  if (effect?.kind !== 'effect') throw new Error(`no effect of "${run.id}" is in the inbox`)
  await hf.resolve(effect.key, { ...resolution, by: 'dana' })
}

const growChild = async (hf: Holdfast, run: RunHandle) => {
  const { items } = await hf.runs.list({ workflow: 'kid', status: 'waiting' })
  const children = items.filter(({ id }) => id.startsWith(run.id))
  if (children.length !== 1) throw new Error(`run "${run.id}" has ${children.length} children that wait`)
  await hf.signal(children[0]!.id, 'grow', 'tall')
}

const undoneAll = ['undo three', 'undo two', 'undo one']
const found = { happened: true, result: 'found' }

export const oldRuns: readonly OldRun[] = [
  { id: 'noted', at: 'completed', output: 'noted', did: [], notes: ['note'] },
  { id: 'cancelled', at: 'cancelled', ends: 'cancelled', did: [] },
  { id: 'pending', at: 'pending', output: 'noted', did: ['note'] },
  { id: 'delayed', at: 'pending', isLate: true, output: 'noted', did: ['note'] },
  { id: 'shut-out', at: 'pending', act: (hf) => hf.queues.resume('closed'), output: 'noted', did: ['note'] },

  { id: 'sleeping', at: 'waiting/timer', isLate: true, output: 'slept', did: ['after'], notes: ['before', 'after'] },
  { id: 'signalled', at: 'waiting/signal', act: signal(), output: 'went', did: ['after'], notes: ['before', 'after'] },
  { id: 'signal-sent', at: 'waiting/signal', output: 'sent', did: ['after'] },
  { id: 'line-1', at: 'waiting/signal', act: signal(), output: 'went', did: ['after'] },
  { id: 'line-2', at: 'pending', output: 'noted', did: ['note'], notes: ['before', 'after', 'note'] },
  { id: 'racing', at: 'waiting/timer', act: signal('stop', 'stopped'), output: 'stopped', did: [] },
  { id: 'losing', at: 'waiting/signal', act: signal('b', 'second'), output: 'second', did: [], notes: ['before'] },
  { id: 'transacting', at: 'waiting/signal', act: signal(), output: 'went', did: [] },
  { id: 'valued', at: 'waiting/signal', act: signal(), output: true, did: [] },
  { id: 'versioned', at: 'waiting/signal', act: signal(), output: 'went in 1', did: ['after in 1'] },
  { id: 'remembering', at: 'waiting/signal', act: signal('go', 'second'), output: 2, did: [], notes: ['first', 'second'] },
  { id: 'edited', at: 'waiting/signal', act: signal(), output: 'went', did: ['after'], notes: ['before', 'by hand', 'after'] },
  { id: 'second-life', at: 'waiting/signal', act: signal(), output: 'went', did: ['after'], notes: ['before', 'after'] },
  {
    ...{ id: 'continuing', at: 'waiting/signal', act: signal(), output: 'went', did: ['after'] },
    notes: ['visit 1', 'visit 2', 'visit 3', 'after'],
  },
  // Undos that are functions end with their tape.
  {
    ...{ id: 'continuing-cancel', at: 'waiting/signal', ends: 'cancelled', did: ['undo visit 3'] },
    act: (_hf, run) => run.cancel(),
  },
  { id: 'limited', at: 'waiting/signal', isLate: true, ends: 'failed', did: [] },

  { id: 'asking', at: 'waiting/person', act: answer, output: 'yes no', did: ['after'] },
  { id: 'asking', owner: 'acme', at: 'waiting/person', act: answer, output: 'yes no', did: ['after'] },
  { id: 'asked-last', at: 'waiting/person', act: answer, output: 'yes no', did: ['after'] },
  { id: 'answered', at: 'waiting/person', output: 'yes no', did: ['after'] },
  {
    ...{ id: 'half-answered', at: 'waiting/person', output: 'yes no', did: ['after'] },
    act: (hf, run) => hf.answer(run.id, 'second', 'no', { by: 'eve' }),
  },
  {
    ...{ id: 'asking-in-section', at: 'waiting/person', output: 'yes', did: ['after'] },
    act: (hf, run) => hf.answer(run.id, 'third', 'yes', { by: 'dana' }),
  },
  {
    ...{ id: 'asking-paused', at: 'paused/asked', output: 'yes no', did: ['after'] },
    act: (hf, run) => answer(hf, run).then(() => run.resume()),
  },
  // 09549e1 could not tell the two questions from each other.
  {
    ...{ id: 'asking-twice', at: 'waiting/person', output: 'to left? to right?', did: ['after'] },
    act: async (hf, run) => {
      await refused(hf.answer(run.id, 'same', 'to whom?'), 'conflict')
      for (const item of await hf.inbox()) {
        if (item.kind !== 'question' || item.runId !== run.id) continue
        await hf.answer(run.id, item.name, `to ${String(item.question)}`, { id: item.id })
      }
    },
  },
  { id: 'asking-cancel', at: 'waiting/person', act: (_hf, run) => run.cancel(), ends: 'cancelled', did: [] },
  { id: 'asking-in-time', at: 'waiting/person', isLate: true, output: 'nobody', did: [] },

  { id: 'unsure', at: 'waiting/person', act: resolve({ happened: false }), output: 'paid', did: ['pay', 'after'] },
  { id: 'resolved', at: 'waiting/person', output: 'found', did: ['after'] },
  { id: 'shared-holder', at: 'waiting/person', act: resolve(found), output: 'found', did: ['after'] },
  { id: 'shared-waiter', at: 'waiting/person', output: 'found', did: ['after'] },
  { id: 'in-effect-idempotent', at: 'running', output: 'paid', did: ['pay', 'after'], notes: ['before', 'after'] },
  { id: 'in-effect-check', at: 'running', output: 'paid', did: ['check', 'after'] },
  { id: 'in-effect-plain', at: 'running', act: resolve(found), output: 'found', did: ['after'] },
  { id: 'in-effect-shared', at: 'running', act: resolve(found), output: 'found', did: ['after'] },
  { id: 'in-effect-waiter', at: 'waiting/effect', output: 'found', did: ['after'] },

  {
    ...{ id: 'calling', at: 'waiting/child', output: 'bound tall', did: ['after'] },
    act: (hf) => hf.signal('calling/kid#1', 'grow', 'tall'),
  },
  { id: 'calling/kid#1', at: 'waiting/signal', output: 'bound tall', did: ['grown'] },
  { id: 'calling-cancel', at: 'waiting/child', act: (_hf, run) => run.cancel(), ends: 'cancelled', did: [] },
  { id: 'calling-cancel/kid#1', at: 'waiting/signal', ends: 'cancelled', did: [] },
  { id: 'calling-heard', at: 'waiting/child', output: 'bound tall', did: ['after'] },
  { id: 'calling-heard/kid#1', at: 'completed', output: 'bound tall', did: [] },
  { id: 'calling-detached', at: 'completed', output: 'calling-detached/kid#1', did: [] },
  { id: 'calling-detached/kid#1', at: 'waiting/signal', act: signal('grow', 'tall'), output: 'free tall', did: ['grown'] },

  ...['rolled', 'life', 'taped'].flatMap((after): OldRun[] => [
    { id: `${after}-pay`, at: 'running', output: 'paid', did: ['pay'] },
    { id: `${after}-call`, at: 'waiting/child', act: growChild, output: 'late tall', did: [] },
  ]),

  { id: 'trying', at: 'waiting/retry', isLate: true, output: 'tried', did: ['try'] },
  {
    ...{ id: 'trying-section', at: 'waiting/retry', isLate: true, output: 'tried', did: ['try', 'after'] },
    notes: ['kept', 'try', 'after'],
  },
  {
    ...{ id: 'updating-section', at: 'waiting/retry', isLate: true, output: 'tried', did: ['try'] },
    notes: ['begun', 'inside', 'kept', 'try', 'ended'],
  },
  { id: 'second-attempt', at: 'running', output: 'tried', did: ['hang'], notes: ['inside', 'kept', 'hang'] },
  {
    ...{ id: 'planned-again', at: 'waiting/retry', isLate: true, did: ['climb', 'wrap'] },
    output: planned('again'),
  },
  { id: 'planned', at: 'running', did: ['climb', 'wrap'], output: planned('once') },

  { id: 'in-step', at: 'running', output: 'tried', did: ['try'], notes: ['before', 'try'] },
  { id: 'in-section', at: 'running', output: 'second', did: ['second', 'after'], notes: ['first', 'second', 'after'] },
  { id: 'in-map', at: 'running', output: [0, 10, 20], did: ['item 2'] },
  { id: 'beginning', at: 'running', output: 'looped', did: ['loop'] },
  { id: 'streaming', at: 'running', output: 'said', did: ['more'] },
  { id: 'narrow-1', at: 'running', output: 'noted', did: ['note'] },
  { id: 'narrow-2', at: 'pending', output: 'noted', did: ['note'] },
  {
    ...{ id: 'pause-asked', at: 'running', output: 'tried', did: ['try'] },
    act: (_hf, run) => reaches(run, 'paused/asked').then(() => run.resume()),
  },
  { id: 'cancel-asked', at: 'running', ends: 'cancelled', did: ['undo two', 'undo one'] },
  { id: 'in-undo-failure', at: 'running', ends: 'failed', did: ['undo before'] },
  {
    ...{ id: 'in-rollback', at: 'running', ends: 'cancelled', did: ['undo two', 'undo one'] },
    act: (_hf, run) => reaches(run, 'paused/asked').then(() => run.cancel()),
  },
  { id: 'in-undo', at: 'running', ends: 'cancelled', did: ['undo two', 'undo one'] },

  {
    ...{ id: 'paused', at: 'paused/asked', output: 'went', did: ['after'] },
    act: (hf, run) => run.resume().then(() => signal()(hf, run)),
  },
  {
    id: 'budgeted',
    at: 'paused/budget',
    act: (_hf, run) => run.resume({ budget: { steps: 10 } }),
    output: 'within',
    did: ['after'],
  },
  { id: 'pausing', at: 'paused/retries', act: resume, output: 'tried', did: ['try'], notes: ['before', 'try'] },
  { id: 'mismatched', at: 'paused/mismatch', act: resume, output: 'went', did: ['after'], notes: ['before', 'after'] },
  {
    ...{ id: 'mismatched-for-good', at: 'paused/mismatch', ends: 'cancelled', did: [] },
    act: (_hf, run) => run.cancel({ undo: false }),
  },
  { id: 'poison', at: 'paused/poisoned', act: resume, output: 'survived', did: ['swallow', 'after'] },
  { id: 'undo-failing', at: 'paused/undo', act: resume, ends: 'cancelled', did: undoneAll },

  { id: 'failing', at: 'failed', act: retry, output: 'tried', did: ['try'], notes: ['before', 'try'] },
  { id: 'retried', at: 'pending', output: 'tried', did: ['try'] },
  {
    ...{ id: 'updating', at: 'failed', act: retry, output: 'tried', did: ['try'] },
    notes: ['begun', 'before', 'between', 'try'],
  },
  {
    ...{ id: 'updating-edited', at: 'failed', act: retry, output: 'tried', did: ['try'] },
    notes: ['begun', 'before', 'between', 'by hand', 'try'],
  },
  { id: 'map-failed', at: 'failed', act: retry, output: [0, 10, 20], did: ['item 1'] },
  {
    ...{ id: 'catching', at: 'waiting/signal', act: signal(), output: "try can't be done", did: ['after'] },
    notes: ["try can't be done", 'after'],
  },
  { id: 'undoing-failure', at: 'failed', act: retry, output: 'tried', did: ['before', 'try'], notes: ['before', 'try'] },

  { id: 'undoable', at: 'waiting/signal', act: (_hf, run) => run.cancel(), ends: 'cancelled', did: undoneAll },
  { id: 'undoable-go', at: 'waiting/signal', act: signal(), output: 'went', did: ['after'] },
  { id: 'cancel-ordered', at: 'pending', ends: 'cancelled', did: undoneAll },
  {
    ...{ id: 'rollback-ordered', at: 'pending', output: 'went', did: ['undo three', 'undo two', 'two', 'three', 'after'] },
    act: async (hf, run) => {
      await reaches(run, 'paused/asked')
      await run.resume()
      await hf.signal(run.id, 'go', 'went')
    },
    notes: ['one', 'three', 'after'],
  },
  {
    ...{ id: 'rolled-back', at: 'paused/asked', output: 'went', did: ['two', 'three', 'after'] },
    act: (hf, run) => run.resume().then(() => signal()(hf, run)),
    notes: ['one', 'three', 'after'],
  },
  { id: 'undoing-plan', at: 'waiting/signal', act: (_hf, run) => run.cancel(), ends: 'cancelled', did: ['undo gather fetch'] },
  // The function of a finished section is not called again, so the undo inside is not found: only what is before it is undone.
  {
    ...{ id: 'undoing-section', at: 'waiting/signal', ends: 'cancelled', did: ['undo part inner'] },
    act: async (_hf, run) => {
      await refused(run.cancel(), 'conflict')
      await reaches(run, 'paused/undo')
      await run.resume()
      await refused(run.cancel(), 'conflict')
      await run.cancel({ undo: false })
    },
  },
  { id: 'undoing-section-go', at: 'waiting/signal', act: signal(), output: 'went', did: [] },
]

function planned(kind: string): Record<string, unknown> {
  return {
    kind,
    gathered: 'fetch',
    left: 'walk',
    right: 'climb',
    wrapped: 'wrap fetch',
    notes: ['fetch', 'walk', 'climb', 'wrap'],
  }
}

async function refused(promise: Promise<unknown>, code: string): Promise<void> {
  const error = await promise.then(
    () => undefined,
    (thrown: { code?: string }) => thrown,
  )
  if (error?.code !== code) throw new Error(`not refused with ${code}, but ${String(error)}`)
}

/** Waits until the run has a status, written `paused/asked`. */
async function reaches(run: RunHandle, at: string): Promise<void> {
  for (const deadline = Date.now() + patience(20_000); ; ) {
    const seen = await statusOf(run)
    if (seen === at) return
    if (Date.now() > deadline) throw new Error(`run "${run.id}" is ${seen}, not ${at}`)
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
}

export async function statusOf(run: RunHandle): Promise<string> {
  const { status, reason } = await run.info()
  return reason === undefined ? status : `${status}/${reason}`
}
