import { actionsForFailedRun, actionsForPausedRun, actionsForQuestion, actionsForUnsureEffect } from '../../model/actions.ts'
import { shownOf } from '../../model/asking.ts'
import type { Codec } from '../../model/codec.ts'
import { codeOf, type HoldfastError } from '../../model/errors.ts'
import type { EventType, NewEvent } from '../../model/event.ts'
import { isInternal, notifyQueue } from '../../model/internal.ts'
import { newRunId } from '../../model/new-run-id.ts'
import type { Notification, NotificationKind } from '../../model/notification.ts'
import type { PauseReason } from '../../model/run.ts'
import type { NewRun } from '../../store/change.ts'
import type { Claim } from '../../store/store.ts'
import { newRun } from './new-run.ts'
import type { RunOrigin } from './run-origin.ts'

/** They are short, and a person may be waiting: they go before ordinary runs. */
const notifyPriority = 1_000
/** The most of a question that a message repeats. */
const maxQuestionLength = 32 * 1024

/** The workflow that delivers to a target: only processes that have the target claim its messages. */
export function notifyWorkflowName(target: string): string {
  return `${notifyQueue}/${target}`
}

/** Whom to tell, and of what. */
export interface OutboxTarget {
  readonly name: string
  readonly on: ReadonlySet<NotificationKind>
}

/**
 * Messages about runs, on their way to targets. A message is a run that delivers it, made by the commit that writes what it is
 * about: both are there or neither, and what runs survive it survives.
 *
 *   N1  An event that was written has its messages, one a target; one that was not has none.
 *   N2  A message has an id of its own, recorded in the commit that makes it: one id, however often its run delivers it.
 *   N3  Runs of Holdfast's own say nothing: a message about a message would have no end.
 */
export class Outbox {
  readonly #codec: Codec
  readonly #targets: readonly OutboxTarget[]

  constructor(codec: Codec, targets: readonly OutboxTarget[]) {
    this.#codec = codec
    this.#targets = targets
  }

  /** The runs that a commit with these events has to create. */
  messagesFor(claim: Claim, origin: RunOrigin, events: readonly NewEvent[], currentStep: string | null): NewRun[] {
    if (!events.some(({ type }) => telling.has(type)) || isInternal(claim.run.workflow)) return []
    return events.flatMap((event) => {
      const content = this.#describe(event, origin)
      if (content === null) return []
      const targets = this.#targets.filter(({ on }) => on.has(content.kind))
      if (targets.length === 0) return []
      const { id: runId, threadId, owner, workflow } = claim.run
      const suspect = content.kind === 'poisoned' ? runningBefore(this.#codec, events) : undefined
      const step = content.step ?? suspect ?? currentStep ?? undefined
      const message: Notification = {
        ...{ id: newMessageId(), kind: content.kind, at: event.at, runId, threadId, owner, workflow },
        ...content,
        ...(step !== undefined && content.kind !== 'completed' && { step }),
      }
      return targets.map(({ name }) => this.#runFor(message, name))
    })
  }

  /** Null: no target has to be told. */
  #describe(event: NewEvent, origin: RunOrigin): Content | null {
    if (!telling.has(event.type)) return null
    // Its parent hears of it, and decides what it means.
    if (origin.parent !== undefined && (event.type === 'run_completed' || event.type === 'run_failed')) return null
    if (event.type === 'run_completed') return { kind: 'completed', actions: [] }
    const data = (event.payload === null ? {} : this.#codec.decode(event.payload)) as EventData
    const step = event.step ?? data.step ?? pathOf(data.failed?.[0]) ?? (data.error as Partial<HoldfastError>)?.details?.['step']
    const about = {
      ...(typeof step === 'string' && { step }),
      ...(data.error instanceof Error && { error: shownError(data.error) }),
    }
    switch (event.type) {
      case 'run_failed':
        return { kind: 'failed', ...about, actions: actionsForFailedRun }
      case 'question_asked':
        return { kind: 'waiting_for_person', ...about, ...questionOf(data), actions: actionsForQuestion }
      case 'effect_unsure':
        return {
          ...{ kind: 'waiting_for_person', ...about, actions: actionsForUnsureEffect },
          ...(data.key !== undefined && { effectKey: data.key }),
          ...(data.message !== undefined && { error: { name: 'Error', message: data.message } }),
        }
      default: {
        const { reason = 'asked' } = data
        if (reason === 'asked') return null
        return { kind: kindOfPause[reason] ?? 'paused', reason, ...about, actions: actionsForPausedRun[reason] }
      }
    }
  }

  #runFor(message: Notification, target: string): NewRun {
    const workflow = notifyWorkflowName(target)
    const id = `${workflow}/${message.id}`
    const make = (input: Notification) =>
      newRun(
        this.#codec,
        input,
        {},
        {
          ...{ owner: message.owner, id, threadId: id, workflow, version: 1, queue: notifyQueue, priority: notifyPriority },
          ...{ due: { inMs: 0 }, ifBusy: 'queue', at: message.at },
        },
      )
    try {
      return make(message)
    } catch (error) {
      // A question as deep as values may be is too deep for a message about it. It must not keep the run from asking.
      if (codeOf(error) === undefined) throw error
      const { question: _, ...rest } = message
      return make(rest)
    }
  }
}

/** By chance: it is recorded with the event that it is about, so that a crash leaves both or neither, and a replay makes no other. */
function newMessageId(): string {
  return `msg_${newRunId()}`
}

type Content = Pick<Notification, 'kind' | 'actions'> & Partial<Notification>

/** What of the events' data is told. */
interface EventData {
  readonly reason?: PauseReason
  readonly error?: Error
  readonly step?: string
  readonly failed?: readonly string[]
  readonly running?: readonly string[]
  readonly key?: string
  readonly message?: string
  readonly question?: unknown
  readonly to?: string
  readonly shown?: string
  readonly problem?: string
}

const telling: ReadonlySet<EventType> = new Set(['run_completed', 'run_failed', 'run_paused', 'question_asked', 'effect_unsure'])

const kindOfPause: Partial<Record<PauseReason, NotificationKind>> = { poisoned: 'poisoned', budget: 'budget_exceeded' }

/** What was running when the last holder died: the likely reason why a run is poisoned. */
function runningBefore(codec: Codec, events: readonly NewEvent[]): string | undefined {
  const recovered = events.find(({ type }) => type === 'run_recovered')
  return recovered?.payload == null ? undefined : pathOf((codec.decode(recovered.payload) as EventData).running?.[0])
}

/** The path in `step:gather/fetch#2`. */
function pathOf(callKey: string | undefined): string | undefined {
  return callKey?.slice(callKey.indexOf(':') + 1, callKey.lastIndexOf('#'))
}

/** Without its stack: it is not for outside. */
function shownError(error: Error): NonNullable<Notification['error']> {
  const { code } = error as { code?: unknown }
  return { name: error.name, message: error.message, ...(typeof code === 'string' && { code }) }
}

function questionOf({ key, question, to, shown, problem }: EventData): Partial<Notification> {
  const text = JSON.stringify(question, asJson) ?? 'null'
  return {
    ...(text.length <= maxQuestionLength && { question: JSON.parse(text) as unknown }),
    ...(to !== undefined && { to }),
    ...(key !== undefined && { questionId: key }),
    ...(key !== undefined && shown !== undefined && { shown: shownOf({ key, shown }) }),
    ...(problem !== undefined && { problem }),
  }
}

/** What JSON lacks, in the nearest that it has. */
function asJson(_key: string, value: unknown): unknown {
  if (typeof value === 'bigint') return String(value)
  if (value instanceof Map || value instanceof Set) return [...value]
  if (value instanceof Error) return shownError(value)
  if (ArrayBuffer.isView(value)) return Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString('base64')
  return value
}
