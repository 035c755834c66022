import type { Core } from '../control/core.ts'
import { readEnd } from '../control/read-events.ts'
import { type Actions, actionsForPausedRun, actionsForQuestion, actionsForUnsureEffect } from '../model/actions.ts'
import { type Asking, shownOf } from '../model/asking.ts'
import type { EventType } from '../model/event.ts'
import type { Operation } from '../model/operation.ts'
import { isTerminal, type PauseReason, type Run } from '../model/run.ts'
import { allPages } from './all-pages.ts'

/** Something that waits for a person. `actions` are the calls that deal with it. */
export type InboxItem = OpenQuestion | UnsureEffect | StoppedRun

interface Waiting {
  readonly runId: string
  readonly threadId: string
  /** Since when, by the store's clock. */
  readonly since: number
  readonly actions: Actions
}

/** A question of `ctx.ask`. */
export interface OpenQuestion extends Waiting {
  readonly kind: 'question'
  /** Pass it to `hf.answer`. The same question asked again has another id. */
  readonly id: string
  /** Including scopes, as in the path of a step. */
  readonly name: string
  readonly question: unknown
  readonly to?: string
  /** Identifies what the question shows. Pass it to `hf.answer` to bind the answer to exactly this. */
  readonly shown: string
  /** Why an earlier answer was invalid. */
  readonly problem?: string
}

/** An effect whose outcome is unknown. */
export interface UnsureEffect extends Waiting {
  readonly kind: 'effect'
  readonly name: string
  readonly key: string
  /** What is known: an error, or what a worker reported after it had lost the run. */
  readonly message?: string
  readonly evidence?: unknown
}

/** A paused run. */
export interface StoppedRun extends Waiting {
  readonly kind: 'run'
  readonly workflow: string
  readonly reason: PauseReason
  readonly step?: string
  readonly error?: Error
}

const pageSize = 200

/** Everything of an owner that waits for a person, oldest first; of equal age, in the order of the log. */
export async function readInbox(core: Core, owner: string): Promise<InboxItem[]> {
  const operations = await allPages((from) => core.store.listUnsure({ owner, limit: pageSize, ...from }))
  const runs = await allPages((from) => core.store.listRuns({ owner, statuses: ['paused'], limit: pageSize, ...from }))
  const listed = [
    ...(await Promise.all(operations.map((operation) => describeOperation(core, operation)))),
    ...(await Promise.all(runs.map((run) => describeRun(core, run)))),
  ]
  return listed
    .filter((one) => one !== null)
    .sort((a, b) => a.item.since - b.item.since || a.seq - b.seq)
    .map(({ item }) => item)
}

/** `seq` is its position in the log. */
interface Listed<Item extends InboxItem> {
  readonly item: Item
  readonly seq: number
}

async function describeOperation(core: Core, operation: Operation): Promise<Listed<OpenQuestion | UnsureEffect> | null> {
  return operation.kind === 'question' ? describeQuestion(core, operation) : describeEffect(core, operation)
}

async function describeEffect(core: Core, operation: Operation): Promise<Listed<UnsureEffect>> {
  const { key, name, runId, threadId, intendedAt: since } = operation
  const doubt = await lastSaid<{ message?: string }>(core, operation, 'effect_unsure')
  const message = doubt?.said.message
  const item: UnsureEffect = {
    ...{ kind: 'effect', name, key, runId, threadId, since },
    ...(message !== undefined && { message }),
    ...(operation.evidence !== null && { evidence: core.codec.decode(operation.evidence) }),
    actions: actionsForUnsureEffect,
  }
  return { item, seq: doubt?.record.seq ?? 0 }
}

/** Null for a question that version 0.1 left open when its run ended. */
async function describeQuestion(core: Core, operation: Operation): Promise<Listed<OpenQuestion> | null> {
  const { owner, key, runId, threadId, intendedAt: since } = operation
  const [run, asked] = await Promise.all([
    core.store.readRun({ owner, runId }),
    lastSaid<Asking>(core, operation, 'question_asked'),
  ])
  if (asked === undefined || run === null || isTerminal(run.status)) return null
  const { question, to, problem } = asked.said
  const item: OpenQuestion = {
    ...{ kind: 'question', id: key, name: asked.record.step ?? operation.name, question, shown: shownOf(asked.said) },
    ...{ runId, threadId, since },
    ...(to !== undefined && { to }),
    ...(problem !== undefined && { problem }),
    actions: actionsForQuestion,
  }
  return { item, seq: asked.record.seq }
}

/** The last event of a type about an operation, and what it says. */
async function lastSaid<Said>(core: Core, { owner, threadId, runId, key }: Operation, type: EventType) {
  const records = await core.store.readLog({ owner, threadId, runId, types: [type] })
  for (const record of records.toReversed()) {
    const said = (record.payload === null ? {} : core.codec.decode(record.payload)) as Said & { readonly key?: string }
    if (said.key === key) return { record, said }
  }
  return undefined
}

async function describeRun(core: Core, run: Run): Promise<Listed<StoppedRun>> {
  const end = await readEnd(core, run)
  const reason = (run.reason ?? 'asked') as PauseReason
  const step = end?.data?.['step'] ?? run.currentStep
  const item: StoppedRun = {
    ...{ kind: 'run', runId: run.id, threadId: run.threadId, workflow: run.workflow, reason },
    since: end?.at ?? run.createdAt,
    ...(typeof step === 'string' && { step }),
    ...(end?.error !== undefined && { error: end.error }),
    actions: actionsForPausedRun[reason],
  }
  return { item, seq: end?.seq ?? 0 }
}
