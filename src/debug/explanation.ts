import { actionsForFailedRun, actionsForPausedRun } from '../model/actions.ts'
import type { PauseReason, Run, RunStatus, WaitReason } from '../model/run.ts'
import { sentence } from '../model/sentence.ts'
import { helpForFailure, helpForPause } from '../model/standing.ts'

/** Something that a run waits for. */
export type AwaitedThing =
  | { readonly kind: 'timer'; readonly name: string; readonly until: number }
  /** Of a wait without a time limit the log does not have the name: it is absent then. */
  | { readonly kind: 'signal'; readonly name?: string; readonly until?: number }
  | {
      readonly kind: 'question'
      readonly name: string
      readonly id: string
      readonly question: unknown
      readonly to?: string
      readonly until?: number
    }
  /** It is not known whether it happened: a person decides. */
  | { readonly kind: 'unsure_effect'; readonly name: string; readonly key: string; readonly message?: string }
  /** An effect with the same key is open in another run. */
  | { readonly kind: 'effect'; readonly key: string; readonly runId: string; readonly status: string }
  | { readonly kind: 'child'; readonly name: string; readonly runId: string; readonly status?: RunStatus }
  | { readonly kind: 'retry'; readonly step: string; readonly attempt: number; readonly until: number; readonly error?: Error }

/** Why a run, or a part of it, was executed again. */
export interface Rerun {
  readonly why: 'taken_over' | 'resumed' | 'retried' | 'rolled_back' | 'continued' | 'step_failed'
  readonly at: number
  /** The checkpoint at which the log says so. */
  readonly checkpoint: string
  readonly step?: string
  readonly attempt?: number
  /** Of a takeover: the worker that it was taken from. */
  readonly holder?: string
  readonly by?: string
  readonly error?: Error
  readonly text: string
}

/** A call that a person can make about a run. */
export interface PossibleAction {
  /** The word that the inbox and notifications use. */
  readonly action: string
  readonly call: string
}

/** What is known of a run, for explaining it. */
export interface RunFacts {
  readonly run: Run
  /** The store's time. */
  readonly now: number
  /** The event that ended or paused it. */
  readonly end?: { readonly at: number; readonly error?: Error; readonly by?: string; readonly step?: string }
  readonly waitsFor: readonly AwaitedThing[]
  readonly reruns: readonly Rerun[]
  /** Requests in its inbox that no worker has dealt with, and signals that it has not taken. */
  readonly requests: readonly string[]
  readonly signals: readonly string[]
  /** The checkpoint that its thread was forked from, in the middle of another run. */
  readonly forkedFrom?: string
  /** The checkpoint at which its thread was rewound since it ended. */
  readonly rewoundAt?: string
  /** Why no worker takes it although it is due. */
  readonly obstacle?: string
}

/** Where a run stands and why, as fields and as text (`text`, `String(explanation)`). */
export class Explanation {
  readonly runId: string
  readonly threadId: string
  readonly workflow: string
  readonly version: number
  readonly status: RunStatus
  readonly reason: PauseReason | WaitReason | null
  /** The checkpoint that its thread was forked from, in the middle of another run; null where it is no copy. */
  readonly forkedFrom: string | null
  /** Why it is where it is. */
  readonly why: string
  /** The worker that executes it. After `leaseUntil` another may take it over. */
  readonly holder: { readonly worker: string; readonly leaseUntil: number; readonly isExpired: boolean } | null
  readonly waitsFor: readonly AwaitedThing[]
  /** Why it, or a step of it, was executed again: the latest, oldest first. */
  readonly reruns: readonly Rerun[]
  /** What happens next by itself, and when; `at` is null where that is not known, or nothing does. */
  readonly next: { readonly what: string; readonly at: number | null }
  /** What a person can do. */
  readonly actions: readonly PossibleAction[]
  /** All of it, for a person to read. */
  readonly text: string

  constructor(facts: RunFacts) {
    const { run, waitsFor, reruns } = facts
    this.runId = run.id
    this.threadId = run.threadId
    this.workflow = run.workflow
    this.version = run.version
    this.status = run.status
    this.reason = run.status === 'waiting' || run.status === 'paused' ? run.reason : null
    this.forkedFrom = facts.forkedFrom ?? null
    this.why = whyOf(facts)
    this.holder = holderOf(facts)
    this.waitsFor = waitsFor
    this.reruns = reruns
    this.next = nextOf(facts)
    this.actions = actionsOf(facts)
    this.text = textOf(this, facts)
  }

  toString(): string {
    return this.text
  }
}

function whyOf(facts: RunFacts): string {
  const { run, end } = facts
  const by = end?.by === undefined ? '' : ` by ${end.by}`
  switch (run.status) {
    case 'pending':
      return whyPending(facts)
    case 'running':
      return whyRunning(facts)
    case 'waiting':
      return whyWaiting(facts)
    case 'paused':
      return whyPaused(facts)
    case 'completed':
      return `It completed${at(run.finishedAt)}.`
    case 'failed':
      return `It failed${at(run.finishedAt)}: ${sentence(end?.error?.message ?? 'no reason is recorded')}`
    case 'cancelled':
      return `It was cancelled${by}${at(run.finishedAt)}.`
  }
}

function whyPending({ run, now }: RunFacts): string {
  if (run.dueAt !== null && run.dueAt > now) return `It was started with a delay, and is due ${moment(run.dueAt, now)}.`
  if (run.tapeSeq === null) return `It is due${at(run.dueAt ?? run.createdAt)}, and no worker has taken it yet.`
  return 'It is to be continued, and no worker has taken it yet.'
}

function whyRunning(facts: RunFacts): string {
  const { run, now } = facts
  const holder = holderOf(facts)
  const step = run.currentStep === null ? 'is between two steps' : `executes step "${run.currentStep}"`
  if (holder === null) return 'A worker has it.'
  if (!holder.isExpired) return `Worker ${holder.worker} ${step}.`
  return `Worker ${holder.worker} ${step}, and has not been heard of: its lease ran out ${moment(holder.leaseUntil, now)}.`
}

function whyWaiting({ run, now, waitsFor }: RunFacts): string {
  if (waitsFor.length > 0) return waitsFor.map((one) => describeAwaited(one, now)).join(' ')
  return withoutDetails[(run.reason ?? 'timer') as WaitReason]
}

/** What is said of a wait of which nothing else is on record. */
const withoutDetails: Readonly<Record<WaitReason, string>> = {
  timer: 'It sleeps.',
  retry: 'A step has failed, and waits for its next attempt.',
  signal: 'It waits for a signal.',
  person: 'It waits for a person.',
  child: 'It waits for a child.',
  effect: 'An effect with the same key is open in another run.',
}

function describeAwaited(awaited: AwaitedThing, now: number): string {
  const limit = 'until' in awaited && awaited.until !== undefined ? `, until ${shown(awaited.until)}` : ''
  switch (awaited.kind) {
    case 'timer':
      return `It sleeps until ${moment(awaited.until, now)}.`
    case 'signal':
      return `It waits for ${awaited.name === undefined ? 'a signal' : `signal "${awaited.name}"`}${limit}.`
    case 'question':
      return `Its question "${awaited.name}"${awaited.to === undefined ? '' : ` to ${awaited.to}`} has not been answered${limit}.`
    case 'unsure_effect':
      return `It is not known whether effect "${awaited.name}" (key "${awaited.key}") happened: ${sentence(awaited.message ?? 'its outcome is hidden')}`
    case 'effect':
      return `The effect with key "${awaited.key}" is open in run "${awaited.runId}" (${awaited.status}).`
    case 'child':
      return `It waits for child "${awaited.runId}"${awaited.status === undefined ? ', which is gone' : `, which is ${awaited.status}`}.`
    case 'retry': {
      const error = awaited.error === undefined ? '' : `, last with: ${sentence(awaited.error.message).slice(0, -1)}`
      return `Step "${awaited.step}" has failed${error}. Attempt ${awaited.attempt} is due ${moment(awaited.until, now)}.`
    }
  }
}

const pausedBecause: Readonly<Record<PauseReason, string>> = {
  asked: 'It was paused',
  retries: 'A step of it ran out of attempts',
  budget: 'It is past its budget',
  undo: 'An undo of it failed, or could not be found',
  poisoned: 'Its workers died again and again without a result',
  mismatch: 'Its code no longer does what its log says',
}

function whyPaused({ run, end }: RunFacts): string {
  const by = end?.by === undefined ? '' : ` by ${end.by}`
  const error = end?.error === undefined ? '.' : `: ${sentence(end.error.message)}`
  return `${pausedBecause[(run.reason ?? 'asked') as PauseReason]}${by}${at(end?.at ?? null)}${error}`
}

function holderOf({ run, now }: RunFacts): Explanation['holder'] {
  const { status, leaseHolder, leaseUntil } = run
  if (status !== 'running' || leaseHolder === null || leaseUntil === null) return null
  return { worker: leaseHolder, leaseUntil, isExpired: leaseUntil <= now }
}

function nextOf(facts: RunFacts): Explanation['next'] {
  const { run, now, obstacle } = facts
  const { status, dueAt } = run
  if (status === 'completed' || status === 'cancelled') return { what: 'Nothing: it has ended.', at: null }
  if (facts.rewoundAt !== undefined) return { what: 'Nothing: it has ended, and its thread was rewound since.', at: null }
  if (status === 'failed') return { what: 'Nothing, until it is retried or rolled back.', at: null }
  if (status === 'paused') return { what: 'Nothing, until it is resumed or cancelled.', at: null }
  if (status === 'running') {
    const holder = holderOf(facts)
    if (holder?.isExpired !== true) return { what: 'Its worker continues.', at: null }
    return { what: 'The next worker that looks for work takes it over and continues from its last recorded result.', at: now }
  }
  if (obstacle !== undefined) return { what: obstacle, at: dueAt !== null && dueAt > now ? dueAt : null }
  if (dueAt !== null) return { what: nextWhenDue(facts), at: Math.max(now, dueAt) }
  const what = isForOthers(run) ? 'It continues when that has ended.' : 'Nothing, until what it waits for comes.'
  return { what, at: null }
}

function isForOthers({ reason }: Run): boolean {
  return reason === 'child' || reason === 'effect'
}

function nextWhenDue({ run, waitsFor }: RunFacts): string {
  if (run.status === 'waiting' && isForOthers(run)) return 'It continues when that has ended, and looks whether it has.'
  if (run.status === 'pending') return run.tapeSeq === null ? 'A worker begins it.' : 'A worker continues it.'
  const retry = waitsFor.find(({ kind }) => kind === 'retry')
  if (retry?.kind === 'retry') return `A worker takes it, and step "${retry.step}" makes attempt ${retry.attempt}.`
  const isLimit = run.reason === 'signal' || run.reason === 'person'
  return isLimit ? 'Its wait ends without an answer, and it continues with that.' : 'A worker takes it and continues it.'
}

const cancel: PossibleAction = { action: 'cancel', call: 'run.cancel()' }
const callOf: Readonly<Record<string, string>> = {
  resume: 'run.resume()',
  'resume with a higher budget': 'run.resume({ budget })',
  cancel: 'run.cancel()',
  'cancel with undo: false': 'run.cancel({ undo: false })',
  rollback: 'run.rollback(checkpoint)',
  retry: 'run.retry()',
}

function actionsOf({ run, waitsFor, rewoundAt }: RunFacts): PossibleAction[] {
  if (rewoundAt !== undefined) return []
  const named = (actions: readonly string[]) => actions.map((action) => ({ action, call: callOf[action] ?? action }))
  switch (run.status) {
    case 'completed':
      return named(['rollback'])
    case 'cancelled':
      return []
    case 'failed':
      return named(actionsForFailedRun)
    case 'paused':
      return named(actionsForPausedRun[(run.reason ?? 'asked') as PauseReason])
    default:
      return [...waitsFor.flatMap((one) => actionsAbout(run, one)), { action: 'pause', call: 'run.pause()' }, cancel]
  }
}

function actionsAbout(run: Run, awaited: AwaitedThing): PossibleAction[] {
  const id = JSON.stringify(run.id)
  switch (awaited.kind) {
    case 'signal':
      return [
        {
          action: 'signal',
          call: `hf.signal(${id}, ${awaited.name === undefined ? 'name' : JSON.stringify(awaited.name)}, value)`,
        },
      ]
    case 'question':
      return [
        {
          action: 'answer',
          call: `hf.answer(${id}, ${JSON.stringify(awaited.name)}, value, { id: ${JSON.stringify(awaited.id)} })`,
        },
      ]
    case 'unsure_effect':
      return [{ action: 'resolve', call: `hf.resolve(${JSON.stringify(awaited.key)}, { happened, result })` }]
    case 'child':
      return [{ action: 'explain', call: `hf.debug.explain(${JSON.stringify(awaited.runId)})` }]
    case 'effect':
      return [{ action: 'explain', call: `hf.debug.explain(${JSON.stringify(awaited.runId)})` }]
    default:
      return []
  }
}

function textOf(told: Explanation, { run, end, requests, signals, rewoundAt, now }: RunFacts): string {
  const is = told.reason === null ? told.status : `${told.status} (${told.reason})`
  const help =
    run.status === 'paused'
      ? helpForPause[(run.reason ?? 'asked') as PauseReason]
      : run.status === 'failed' && rewoundAt === undefined
        ? helpForFailure(end?.error)
        : ''
  const lines = [`Run "${told.runId}" of workflow "${told.workflow}" version ${told.version} is ${is}. ${told.why}`]
  if (told.forkedFrom !== null)
    lines.push(`Its thread was forked from ${told.forkedFrom}: up to there it is a copy of another run.`)
  if (rewoundAt !== undefined) lines.push(`Its thread was rewound at ${rewoundAt}: it can't be retried or rolled back any more.`)
  if (requests.length > 0) lines.push(`It was asked to ${requests.join(' and to ')}, and has not come to that yet.`)
  if (signals.length > 0) lines.push(`It has not taken these signals: ${signals.map((name) => `"${name}"`).join(', ')}.`)
  lines.push(`Next: ${told.next.what}${told.next.at === null ? '' : ` When: ${moment(told.next.at, now)}.`}`)
  if (told.reruns.length > 0)
    lines.push('Executed again:', ...told.reruns.map(({ text, at: when }) => `  ${shown(when)}  ${text}`))
  if (help !== '') lines.push(help)
  if (told.actions.length > 0) lines.push('What can be done:', ...told.actions.map(({ call }) => `  ${call}`))
  return lines.join('\n')
}

function at(ms: number | null): string {
  return ms === null ? '' : ` at ${shown(ms)}`
}

function shown(ms: number): string {
  return new Date(ms).toISOString()
}

/** `2026-11-18T10:00:00.000Z (in 5 min)`. */
function moment(ms: number, now: number): string {
  const distance = Math.abs(ms - now)
  const [unit, size] = units.find(([, length]) => distance >= 2 * length) ?? (['ms', 1] as const)
  if (distance < 1) return `${shown(ms)} (now)`
  const amount = `${Math.round(distance / size)} ${unit}`
  return `${shown(ms)} (${ms > now ? `in ${amount}` : `${amount} ago`})`
}

const units: readonly (readonly [string, number])[] = [
  ['days', 86_400_000],
  ['h', 3_600_000],
  ['min', 60_000],
  ['s', 1_000],
]
