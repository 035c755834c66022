import type { QuestionData } from '../engine/question-runner.ts'
import { type Actions, actionsForPausedRun, actionsForQuestion, actionsForUnsureEffect } from '../model/actions.ts'
import type { Operation } from '../model/operation.ts'
import { isTerminal, type PauseReason, type Run } from '../model/run.ts'
import { allPages } from './all-pages.ts'
import type { Core } from './core.ts'
import { readEnd } from './read-events.ts'

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
  readonly name: string
  readonly question: unknown
  readonly to?: string
  /** Names what is shown: give it to `hf.answer`, and the answer counts for this and nothing else. */
  readonly shown: string
  /** Why an earlier answer was not taken. */
  readonly problem?: string
}

/** An effect of which nobody knows whether it happened. */
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

/** Everything of an owner that waits for a person, oldest first. */
export async function readInbox(core: Core, owner: string): Promise<InboxItem[]> {
  const operations = await allPages((from) => core.store.listUnsure({ owner, limit: pageSize, ...from }))
  const runs = await allPages((from) => core.store.listRuns({ owner, statuses: ['paused'], limit: pageSize, ...from }))
  const items = [
    ...(await Promise.all(operations.map((operation) => describeOperation(core, operation)))),
    ...(await Promise.all(runs.map((run) => describeRun(core, run)))),
  ]
  return items.filter((item) => item !== null).sort((a, b) => a.since - b.since)
}

async function describeOperation(core: Core, operation: Operation): Promise<OpenQuestion | UnsureEffect | null> {
  const { owner, key, name, runId, threadId, intendedAt: since } = operation
  const records = await core.store.readLog({ owner, threadId, runId, types: ['question_asked', 'effect_unsure'] })
  const said = records
    .map(({ payload }) => (payload === null ? {} : core.codec.decode(payload)) as Partial<QuestionData> & { message?: string })
    .findLast((data) => data.key === key)
  if (name.startsWith('ask[')) return describeQuestion(core, operation, said as QuestionData | undefined)
  return {
    ...{ kind: 'effect', name, key, runId, threadId, since },
    ...(said?.message !== undefined && { message: said.message }),
    ...(operation.evidence !== null && { evidence: core.codec.decode(operation.evidence) }),
    actions: actionsForUnsureEffect,
  }
}

/** Null for a question that a run left behind when it ended without being executed: nobody waits for the answer. */
async function describeQuestion(core: Core, operation: Operation, said: QuestionData | undefined): Promise<OpenQuestion | null> {
  const { owner, name, runId, threadId, intendedAt: since } = operation
  const run = await core.store.readRun({ owner, runId })
  if (said === undefined || run === null || isTerminal(run.status)) return null
  const { question, shown, to, problem } = said
  return {
    ...{ kind: 'question', name: name.slice('ask['.length, -1), question, shown, runId, threadId, since },
    ...(to !== undefined && { to }),
    ...(problem !== undefined && { problem }),
    actions: actionsForQuestion,
  }
}

async function describeRun(core: Core, run: Run): Promise<StoppedRun> {
  const end = await readEnd(core, run)
  const reason = (run.reason ?? 'asked') as PauseReason
  const step = end?.data?.['step'] ?? run.currentStep
  return {
    ...{ kind: 'run', runId: run.id, threadId: run.threadId, workflow: run.workflow, reason },
    since: end?.at ?? run.createdAt,
    ...(typeof step === 'string' && { step }),
    ...(end?.error !== undefined && { error: end.error }),
    actions: actionsForPausedRun[reason],
  }
}
