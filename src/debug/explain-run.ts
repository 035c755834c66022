import type { Core } from '../control/core.ts'
import { readEnd } from '../control/read-events.ts'
import { rewoundSince } from '../control/rewind-thread.ts'
import { whereRunStands } from '../control/where-run-stands.ts'
import { type CallKey, parseCallKey } from '../engine/replay/call-key.ts'
import { forkMarkOf } from '../engine/replay/fork-mark.ts'
import { readTape } from '../engine/replay/read-tape.ts'
import type { CallHistory, Tape } from '../engine/replay/tape.ts'
import { readOrigin } from '../engine/writing/run-origin.ts'
import type { Asking } from '../model/asking.ts'
import { HoldfastError } from '../model/errors.ts'
import type { LogRecord } from '../model/event.ts'
import { checkId, formatCheckpoint } from '../model/ids.ts'
import { isTerminal, type Run } from '../model/run.ts'
import { standingOf } from '../model/standing.ts'
import { reviveError } from '../model/stored-error.ts'
import { type AwaitedThing, Explanation, type Rerun, type RunFacts } from './explanation.ts'

/** Why a run stands where it does. Reads its row, its inbox and the log of its current tape. */
export async function explainRun(core: Core, owner: string, runId: string): Promise<Explanation> {
  const run = await core.store.readRun({ owner, runId: checkId('run id', runId) })
  if (run === null) throw await missingRun(core, owner, runId)
  return new Explanation(await gatherFacts(core, run))
}

/** A run has the id of its thread unless told otherwise: one that was deleted is told from one that never was. */
async function missingRun(core: Core, owner: string, runId: string): Promise<HoldfastError> {
  const thread = await core.store.readThread({ owner, threadId: runId })
  if (thread?.deletedAt != null)
    return new HoldfastError('thread_deleted', `Thread "${runId}" was deleted, and its runs with it.`, { details: { runId } })
  return new HoldfastError('run_not_found', `There is no run "${runId}".`, { details: { runId } })
}

async function gatherFacts(core: Core, run: Run): Promise<RunFacts> {
  const { owner, threadId, id: runId, inputSeq, status } = run
  const isOver = isTerminal(status)
  const [now, records, messages, end] = await Promise.all([
    core.now(),
    core.store.readLog({ owner, threadId, runId, afterSeq: inputSeq - 1 }),
    isOver ? [] : core.store.readInbox({ owner, runId }),
    isOver || status === 'paused' ? readEnd(core, run) : null,
  ])
  const waitsFor = isOver || status === 'paused' ? [] : await awaitedBy(core, run, readTape(records, core.codec, runId))
  const obstacle = status === 'pending' || status === 'waiting' ? await obstacleOf(core, run, now) : undefined
  const rewound = status === 'completed' || status === 'failed' ? (await rewoundSince(core.store, run)).rewound : undefined
  const input = records[0]?.payload
  const forkedFrom = input == null ? undefined : readOrigin(core.codec, input).origin.forkedFrom
  const { by, step } = (end?.data ?? {}) as { by?: string; step?: string }
  const requests = messages
    .filter(({ kind }) => requestKinds.includes(kind))
    .map(({ kind }) => (kind === 'rollback' ? 'roll back' : kind))
  return {
    ...{ run, now, waitsFor, requests },
    reruns: rerunsOf(core, run, records).slice(-maxReruns),
    signals: messages.flatMap(({ kind, name }) => (kind === 'signal' && name !== null ? [name] : [])),
    ...(forkedFrom !== undefined && { forkedFrom }),
    ...(rewound !== undefined && { rewoundAt: formatCheckpoint(threadId, rewound.seq) }),
    ...(obstacle !== undefined && { obstacle }),
    ...(end !== null && {
      end: {
        at: end.at,
        ...(end.error && { error: end.error }),
        ...(by !== undefined && { by }),
        ...(step !== undefined && { step }),
      },
    }),
  }
}

const requestKinds: readonly string[] = ['pause', 'cancel', 'resume', 'rollback']
/** So many are told; a run that lives for months has more. */
const maxReruns = 20

/** Why no worker takes a run that is due; undefined where nothing is known to be in the way. */
async function obstacleOf(core: Core, run: Run, now: number): Promise<string | undefined> {
  if (run.dueAt === null || run.dueAt > now) return undefined
  const { help } = await whereRunStands(core, run)
  if (help !== standingOf(run).help && run.reason !== 'child') return help
  const { owner, threadId, workflow, version } = run
  const definition = core.registry.get(workflow, version)?.options.state
  const thread = await core.store.readThread({ owner, threadId })
  if (definition === undefined || thread === null || thread.stateVersion <= definition.version) return undefined
  return (
    `The state of thread "${threadId}" is of version ${thread.stateVersion}, and the code here knows version ${definition.version}: ` +
    'only a worker with the newer code takes it.'
  )
}

async function awaitedBy(core: Core, run: Run, tape: Tape): Promise<AwaitedThing[]> {
  const found: AwaitedThing[] = []
  for (const [key, history] of tape.calls) {
    if (history.outcome !== undefined) continue
    const awaited = await awaitedIn(core, run, key, history)
    if (awaited !== null) found.push(awaited)
  }
  // A run whose effect is unsure in another run waits for the person who decides about that one.
  if (run.status === 'waiting' && (run.reason === 'effect' || run.reason === 'person') && found.length === 0) {
    const other = await effectElsewhere(core, run)
    if (other !== null) found.push(other)
  }
  const isOnlySignal = run.status === 'waiting' && run.reason === 'signal' && !found.some(({ kind }) => kind === 'signal')
  if (isOnlySignal) found.push({ kind: 'signal' })
  return found
}

async function awaitedIn(core: Core, run: Run, key: CallKey, history: CallHistory): Promise<AwaitedThing | null> {
  const kind = key.slice(0, key.indexOf(':'))
  const { path: name } = parseCallKey(key)
  const until = history.fireAt === undefined ? {} : { until: history.fireAt }
  switch (kind) {
    case 'timer':
      return history.fireAt === undefined ? null : { kind, name, until: history.fireAt }
    case 'signal':
      return { kind, name, ...until }
    case 'question': {
      if (history.begun === undefined) return null
      const { key: id, question, to } = history.begun.data as unknown as Asking
      return { kind, name, id, question, ...(to !== undefined && { to }), ...until }
    }
    case 'child': {
      const childId = history.begun?.data['runId']
      if (typeof childId !== 'string') return null
      const child = await core.store.readRun({ owner: run.owner, runId: childId })
      return { kind, name, runId: childId, ...(child !== null && { status: child.status }) }
    }
    default:
      return awaitedOfStep(core, run, name, history)
  }
}

async function awaitedOfStep(core: Core, run: Run, step: string, history: CallHistory): Promise<AwaitedThing | null> {
  const { effect, key, retryAt, failures, lastError } = history
  if (effect === 'unsure' && key !== undefined) {
    const operation = await core.store.readOperation({ owner: run.owner, key })
    if (operation?.status === 'unsure') return { kind: 'unsure_effect', name: step, key, ...(await doubtAbout(core, run, key)) }
  }
  if (retryAt === undefined || history.isRunning) return null
  return {
    ...{ kind: 'retry', step, attempt: failures + 1, until: retryAt },
    ...(lastError !== undefined && { error: reviveError(lastError) }),
  }
}

async function doubtAbout({ store, codec }: Core, run: Run, key: string): Promise<{ message?: string }> {
  const { owner, threadId, id: runId, inputSeq } = run
  const records = await store.readLog({ owner, threadId, runId, afterSeq: inputSeq - 1, types: ['effect_unsure'] })
  const said = records.map(({ payload }) => (payload === null ? {} : codec.decode(payload)) as { key?: string; message?: string })
  const message = said.findLast((one) => one.key === key)?.message
  return message === undefined ? {} : { message }
}

/** Only the run's own row says which key it waits for, and only the image of its thread shows that. */
async function effectElsewhere({ store }: Core, { owner, threadId, id }: Run): Promise<AwaitedThing | null> {
  const image = await store.readThreadImage({ owner, threadId })
  const key = image?.runs.find(({ run }) => run.id === id)?.waitKey
  const operation = key == null ? null : await store.readOperation({ owner, key })
  return operation === null ? null : { kind: 'effect', key: operation.key, runId: operation.runId, status: operation.status }
}

interface RerunData {
  readonly by?: string
  readonly holder?: string
  readonly why?: string
  readonly running?: readonly CallKey[]
  readonly error?: Error
  readonly next?: string
  readonly to?: number
  readonly order?: { readonly kind: string; readonly by?: string }
}

function rerunsOf({ codec }: Core, run: Run, all: readonly LogRecord[]): Rerun[] {
  const reruns: Rerun[] = []
  // What comes before the mark of a fork happened to another run.
  const records = all.slice(all.findLastIndex((record) => forkMarkOf(record, codec) !== undefined) + 1)
  for (const record of records) {
    const why = whyAgain(record)
    if (why === null) continue
    const data = (record.payload === null ? {} : codec.decode(record.payload)) as RerunData
    if (why === 'step_failed' && data.next !== 'retry' && data.next !== 'fallback') continue
    const by = data.by ?? data.order?.by
    reruns.push({
      ...{ why, at: record.at, checkpoint: formatCheckpoint(run.threadId, record.seq), text: rerunText(run, why, record, data) },
      ...(record.step !== null && { step: record.step, attempt: record.attempt }),
      ...(data.holder !== undefined && { holder: data.holder }),
      ...(by !== undefined && { by }),
      ...(data.error !== undefined && { error: reviveError(data.error) }),
    })
  }
  return reruns
}

function whyAgain({ type, count }: LogRecord): Rerun['why'] | null {
  switch (type) {
    case 'run_recovered':
      return 'taken_over'
    case 'run_resumed':
      return 'resumed'
    case 'run_retried':
      return 'retried'
    case 'run_rolled_back':
      return 'rolled_back'
    case 'run_started':
      return count > 1 ? 'continued' : null
    case 'step_failed':
    case 'effect_failed':
      return 'step_failed'
    default:
      return null
  }
}

function rerunText(run: Run, why: Rerun['why'], { step, attempt }: LogRecord, data: RerunData): string {
  const by = data.by ?? data.order?.by
  const who = by === undefined ? '' : ` by ${by}`
  switch (why) {
    case 'taken_over': {
      const how = data.why === 'holder_died' ? 'which had died' : 'whose lease had run out'
      const running = (data.running ?? []).map((key) => `"${parseCallKey(key).path}"`).join(', ')
      return `Taken over from worker ${data.holder ?? 'unknown'}, ${how}${running === '' ? '' : `; ${running} was running`}.`
    }
    case 'resumed':
      return data.order === undefined ? `Resumed${who}.` : `Taken up${who} for a ${data.order.kind}.`
    case 'retried':
      return `Retried${who}: what had failed it was tried again.`
    case 'rolled_back':
      return `Rolled back${who} to ${formatCheckpoint(run.threadId, data.to ?? 0)}.`
    case 'continued':
      return 'Continued with a fresh tape (ctx.continueAs).'
    case 'step_failed':
      return `Step "${step}" failed at attempt ${attempt}, then came ${data.next === 'retry' ? 'another attempt' : 'its fallback'}: ${data.error?.message ?? 'no reason is recorded'}`
  }
}
