// Writes one part of an old store, in a process of its own. Arguments: URL, part. See make.ts.
import { type Holdfast, open, type RunHandle } from 'holdfast'
import { makeWorkflows } from './workflows.ts'

const hourMs = 3_600_000
const never = new Promise<never>(() => {})

/** Which bodies throw and which hang, by run and what they do. */
const throwing = new Set([
  ...['unsure pay', 'resolved pay', 'shared-holder pay', 'trying try', 'trying-section try', 'planned-again climb'],
  ...['pausing try', 'failing try', 'retried try', 'undoing-failure try', 'undo-failing undo three'],
  ...['updating-section try', 'second-attempt try', 'in-undo-failure try', 'updating-edited try'],
  ...['updating try', 'catching try', 'map-failed item 1'],
])
const hanging = new Set([
  ...[
    'in-step try',
    'in-effect-idempotent pay',
    'in-effect-check pay',
    'in-effect-plain pay',
    'in-effect-shared pay',
    'in-section second',
    'in-map item 2',
  ],
  ...['planned climb', 'streaming more', 'beginning loop', 'cancel-asked three', 'pause-asked try', 'narrow-1 note'],
  ...['second-attempt hang', 'in-undo-failure undo before', 'in-rollback undo two'],
  ...['in-undo undo two', 'poison swallow', 'rolled-pay pay', 'life-pay pay', 'taped-pay pay'],
])

const hung = new Set<string>()
async function act<T>(runId: string, what: string, result: T): Promise<T> {
  const name = `${runId} ${what}`.replace(/ pay .*/, ' pay')
  if (throwing.has(name)) {
    // The second attempt of a section succeeds.
    if (runId === 'second-attempt') throwing.delete(name)
    throw new Error(`${what} can't be done`)
  }
  if (hanging.has(name)) {
    hung.add(name)
    return never
  }
  return result
}

/** Messages that are not delivered: refused at first, and later not answered. */
const notify = (deliver: () => Promise<void>) => ({
  name: 'ops',
  on: ['failed', 'waiting_for_person'] as const,
  retry: { minMs: hourMs / 6, maxMs: hourMs / 6, jitter: false },
  deliver,
})
const refuse = async () => {
  throw new Error('the office is closed')
}

const [url, part] = process.argv.slice(2) as [string, string]
const parts: Readonly<Record<string, () => Promise<void>>> = { settle, mismatch, poison, poisoned, inFlight, leave }
await parts[part]?.()

/** Runs that come to rest: at a wait, a pause or an end. */
async function settle(): Promise<void> {
  const hf = await open(url, { workflows: makeWorkflows({ act, edition: 1 }), notify: notify(refuse) })
  const start = async (workflow: string, id: string, at: string, input?: unknown, options: object = {}) => {
    const run = await hf.start(workflow, input, { id, ...options })
    await reaches(run, at)
    return run
  }
  await start('noting', 'noted', 'completed')
  await Promise.all([
    start('sleeping', 'sleeping', 'waiting/timer'),
    start('signalled', 'signalled', 'waiting/signal'),
    start('signalled', 'signal-sent', 'waiting/signal'),
    start('signalled', 'line-1', 'waiting/signal', undefined, { threadId: 'line' }),
    start('racing', 'racing', 'waiting/timer'),
    start('asking', 'asking', 'waiting/person'),
    start('asking', 'answered', 'waiting/person'),
    start('asking_in_time', 'asking-in-time', 'waiting/person'),
    start('paying', 'unsure', 'waiting/person', {}),
    start('paying', 'resolved', 'waiting/person', {}),
    start('calling', 'calling', 'waiting/child', {}),
    start('calling', 'calling-heard', 'waiting/child', {}),
    start('calling', 'calling-detached', 'completed', { detached: true }),
    start('trying', 'trying', 'waiting/retry'),
    start('trying_section', 'trying-section', 'waiting/retry'),
    start('planned', 'planned-again', 'waiting/retry', { kind: 'again' }),
    start('undoing_section', 'undoing-section', 'waiting/signal'),
    start('undoing_section', 'undoing-section-go', 'waiting/signal'),
    start('continuing', 'continuing', 'waiting/signal', 1),
    start('budgeted', 'budgeted', 'paused/budget'),
    start('pausing', 'pausing', 'paused/retries'),
    start('mismatched', 'mismatched', 'waiting/signal'),
    start('mismatched', 'mismatched-for-good', 'waiting/signal'),
    start('undoable', 'undoable', 'waiting/signal'),
    start('undoable', 'undoable-go', 'waiting/signal'),
    start('undoable', 'cancel-ordered', 'waiting/signal'),
    start('undoable', 'rollback-ordered', 'waiting/signal'),
    start('failing', 'failing', 'failed'),
    start('failing', 'retried', 'failed'),
    start('undoing_failure', 'undoing-failure', 'failed'),
    start('valued', 'valued', 'waiting/signal'),
    start('limited', 'limited', 'waiting/signal'),
    start('versioned', 'versioned', 'waiting/signal'),
    start('remembering', 'remembering', 'waiting/signal', 'first'),
    start('growing', 'library', 'completed'),
    start('transacting', 'transacting', 'waiting/signal'),
    start('noting', 'gone', 'completed'),
    start('noting', 'second-life', 'completed'),
    start('updating', 'updating', 'failed'),
    start('updating', 'updating-edited', 'failed').then(() => hf.thread('updating-edited').update(addNote('by hand'))),
    start('updating_section', 'updating-section', 'waiting/retry'),
    start('losing', 'losing', 'waiting/signal').then(async (run) => {
      await hf.signal('losing', 'a')
      await until(async () => (await run.info()).completedSteps.includes('before'))
      await reaches(run, 'waiting/signal')
    }),
    start('asking_in_section', 'asking-in-section', 'waiting/person'),
    start('asking_twice', 'asking-twice', 'waiting/person'),
    start('asking', 'asking-paused', 'waiting/person').then((run) => run.pause()),
    start('undoing_plan', 'undoing-plan', 'waiting/signal', {}),
    start('continuing', 'continuing-cancel', 'waiting/signal', 1),
    start('calling', 'calling-cancel', 'waiting/child', {}),
    start('asking', 'asking-cancel', 'waiting/person'),
    start('catching', 'catching', 'waiting/signal'),
    start('mapping', 'map-failed', 'failed'),
    ...(['pay', 'call'] as const).flatMap((kind) => [
      start('acting_later', `rolled-${kind}`, 'waiting/signal', { kind }),
      start('acting_later', `taped-${kind}`, 'waiting/signal', { kind, tapes: 2 }),
      start('noting', `life-${kind}`, 'completed').then(async () => {
        await hf.thread(`life-${kind}`).delete()
        await start('acting_later', `life-${kind}`, 'waiting/signal', { kind })
      }),
    ]),
    halfAnswered(hf),
    sharing(hf),
    ownedByAcme(hf),
    start('signalled', 'cancelled', 'waiting/signal').then((run) => run.cancel()),
    start('signalled', 'paused', 'waiting/signal').then((run) => run.pause({ by: 'dana' })),
    start('undoable', 'rolled-back', 'waiting/signal').then((run) => run.rollback('middle', { by: 'dana' })),
    start('undoable', 'undo-failing', 'waiting/signal').then((run) => run.cancel()),
    start('signalled', 'edited', 'waiting/signal').then(() => hf.thread('edited').update(addNote('by hand'))),
    hf.schedules.set('hourly', { everyMs: hourMs, workflow: 'noting' }),
    hf.schedules.set('stopped', { cron: '0 3 * * *', workflow: 'noting' }).then(() => hf.schedules.pause('stopped')),
    hf.queues.set('narrow', { concurrency: 1 }),
    hf.queues.set('closed', { isPaused: true, rateLimit: { count: 100, perMs: 1_000 } }),
  ])
  const [first] = await hf.thread('library').checkpoints()
  await hf.thread('library').tag(first!.checkpoint, 'begun')
  await hf.thread('library').update(addNote('by hand'))
  await hf.thread('gone').delete()
  await hf.thread('second-life').delete()
  await start('signalled', 'second-life', 'waiting/signal')
  await reaches(await hf.runs.get('undo-failing'), 'paused/undo')
  await reaches(await hf.runs.get('rolled-back'), 'paused/asked')
  for (const id of ['rolled-pay', 'rolled-call']) {
    const run = await hf.runs.get(id)
    await run.rollback('middle')
    await run.resume()
    await reaches(run, 'waiting/signal')
  }
  for (const id of ['rolled-call', 'life-call', 'taped-call']) {
    await hf.signal(id, 'go')
    await reaches(await hf.runs.get(id), 'waiting/child')
  }
  await hf.close()
}

async function halfAnswered(hf: Holdfast): Promise<void> {
  const run = await hf.start('asking', undefined, { id: 'half-answered' })
  await reaches(run, 'waiting/person')
  await hf.answer('half-answered', 'first', 'yes', { by: 'dana' })
  await until(async () => (await run.events()).some(({ type }) => type === 'question_answered'))
  await reaches(run, 'waiting/person')
}

async function sharing(hf: Holdfast): Promise<void> {
  await reaches(await hf.start('paying', { key: 'shared' }, { id: 'shared-holder' }), 'waiting/person')
  await reaches(await hf.start('paying', { key: 'shared' }, { id: 'shared-waiter' }), 'waiting/person')
}

async function ownedByAcme(hf: Holdfast): Promise<void> {
  await reaches(await hf.as('acme').start('asking', undefined, { id: 'asking' }), 'waiting/person')
}

function addNote(text: string): (draft: Record<string, unknown>) => void {
  return (draft) => {
    draft['notes'] = [...((draft['notes'] as string[] | undefined) ?? []), text]
  }
}

/** Code that was changed under its runs. */
async function mismatch(): Promise<void> {
  const changed = makeWorkflows({ act, edition: 1, hasChangedCode: true }).filter(({ name }) => name === 'mismatched')
  const hf = await open(url, { workflows: changed })
  for (const id of ['mismatched', 'mismatched-for-good']) {
    await hf.signal(id, 'go', 'went')
    await reaches(await hf.runs.get(id), 'paused/mismatch')
  }
  await hf.close()
}

/** A worker that is killed by what it executes. */
async function poison(): Promise<void> {
  const hf = await open(url, { workflows: poisonous(), worker: { leaseMs: 300 } })
  await hf.start('poison', undefined, { id: 'poison' })
  await until(async () => hung.size === 1)
  process.kill(process.pid, 'SIGKILL')
}

async function poisoned(): Promise<void> {
  const hf = await open(url, { workflows: poisonous() })
  await reaches(await hf.runs.get('poison'), 'paused/poisoned')
  await hf.close()
}

function poisonous() {
  return makeWorkflows({ act, edition: 1 }).filter(({ name }) => name === 'poison')
}

/** Runs in the middle of something when their process is killed. */
async function inFlight(): Promise<void> {
  const hf = await open(url, { workflows: makeWorkflows({ act, edition: 1 }), notify: notify(() => never) })
  const start = (workflow: string, id: string, input?: unknown, options: object = {}) =>
    hf.start(workflow, input, { id, ...options })
  await Promise.all([
    start('failing', 'in-step'),
    start('paying', 'in-effect-idempotent', { kind: 'idempotent' }),
    start('paying', 'in-effect-check', { kind: 'check' }),
    start('paying', 'in-effect-plain', {}),
    start('inside_section', 'in-section'),
    start('mapping', 'in-map'),
    start('planned', 'planned', { kind: 'once' }),
    start('streaming', 'streaming'),
    start('beginning', 'beginning'),
    start('undoable', 'cancel-asked'),
    start('failing', 'pause-asked'),
    start('noting', 'narrow-1', undefined, { queue: 'narrow' }),
    start('undoable', 'in-undo').then(async (run) => {
      await reaches(run, 'waiting/signal')
      void run.cancel()
    }),
    start('second_attempt', 'second-attempt'),
    start('undoing_failure', 'in-undo-failure'),
    start('undoable', 'in-rollback').then(async (run) => {
      await reaches(run, 'waiting/signal')
      void run.rollback('middle')
    }),
    start('asking', 'asked-last'),
    ...['rolled-pay', 'life-pay', 'taped-pay'].map((id) => hf.signal(id, 'go')),
    start('paying', 'in-effect-shared', { key: 'common' }),
  ])
  await until(
    async () => hung.size === hanging.size - 1,
    () => `only these hang: ${[...hung].join()}`,
  )
  await reaches(await start('paying', 'in-effect-waiter', { key: 'common' }), 'waiting/effect')
  await reaches(await hf.runs.get('asked-last'), 'waiting/person')
  // Starts of steps and chunks of streams are written a moment later.
  const wrote = async (id: string, step: string) =>
    (await (await hf.runs.get(id)).events()).some((event) => event.type.endsWith('_started') && event.step === step)
  await until(
    async () => (await wrote('streaming', 'more')) && (await wrote('in-step', 'try')) && (await wrote('in-map', 'item[2]')),
  )
  await until(async () => {
    const { items } = await hf.runs.list({ workflow: 'holdfast.notify/ops', status: 'running' })
    return items.length > 0
  })
  process.kill(process.pid, 'SIGKILL')
}

/** What was done last, with no worker there to hear of it. */
async function leave(): Promise<void> {
  const kids = await open(url, { workflows: makeWorkflows({ act, edition: 1 }), worker: { queues: ['kids'] } })
  await kids.signal('calling-heard/kid#1', 'grow', 'tall')
  await reaches(await kids.runs.get('calling-heard/kid#1'), 'completed')
  await kids.close()

  const hf = await open(url, { workflows: makeWorkflows({ act, edition: 1 }), worker: false })
  const run = (id: string) => hf.runs.get(id)
  await hf.start('noting', undefined, { id: 'pending' })
  await hf.start('noting', undefined, { id: 'delayed', delayMs: hourMs })
  await hf.start('noting', undefined, { id: 'line-2', threadId: 'line' })
  await hf.start('noting', undefined, { id: 'narrow-2', queue: 'narrow' })
  await hf.start('noting', undefined, { id: 'shut-out', queue: 'closed' })
  await hf.signal('signal-sent', 'go', 'sent')
  await hf.answer('answered', 'first', 'yes', { by: 'dana' })
  await hf.answer('answered', 'second', 'no', { by: 'eve' })
  const unsure = (await hf.inbox()).find((item) => item.kind === 'effect' && item.runId === 'resolved')
  if (unsure?.kind !== 'effect') throw new Error('the effect of "resolved" is not in the inbox')
  await hf.resolve(unsure.key, { happened: true, result: 'found', by: 'dana' })
  await (await run('retried')).retry()
  // Nobody is there to carry these out: each would wait.
  const unheard = [(await run('cancel-ordered')).cancel(), (await run('rollback-ordered')).rollback('middle')]
  unheard.push((await run('cancel-asked')).cancel(), (await run('pause-asked')).pause())
  for (const promise of unheard) promise.catch(() => {})
  await reaches(await run('cancel-ordered'), 'pending')
  await reaches(await run('rollback-ordered'), 'pending')
  await new Promise((resolve) => setTimeout(resolve, 500))
  await hf.close()
  process.exit(0)
}

async function reaches(run: RunHandle, at: string): Promise<void> {
  let seen = ''
  await until(
    async () => {
      const { status, reason } = await run.info()
      seen = reason === undefined ? status : `${status}/${reason}`
      return seen === at
    },
    () => `${run.id} is ${seen}, not ${at}`,
  )
}

async function until(isSo: () => Promise<boolean>, shown: () => string = () => `${part} stands still`): Promise<void> {
  for (const deadline = Date.now() + 30_000; Date.now() < deadline; ) {
    if (await isSo()) return
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
  throw new Error(shown())
}
