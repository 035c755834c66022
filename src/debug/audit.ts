import { shownPath } from '../model/container.ts'
import type { EventType } from '../model/event.ts'
import { allEvents } from './all-events.ts'
import type { History, HistoryEvent } from './history.ts'

/** Something that a person, or code outside of the runs, decided. */
export interface Decision {
  readonly checkpoint: string
  readonly at: number
  readonly decision:
    | 'answered'
    | 'resolved'
    | 'edited'
    | 'paused'
    | 'resumed'
    | 'retried'
    | 'told_to_cancel'
    | 'cancelled'
    | 'told_to_roll_back'
    | 'rolled_back'
    | 'raised_budget'
    | 'rewound'
    | 'forked'
    | 'changed_memory'
  /** Who, as they said; null where no name was given. */
  readonly by: string | null
  /** Null: about the thread. */
  readonly runId: string | null
  /** The question or effect that it was about. */
  readonly name: string | null
  /** Of an answer, what was asked. */
  readonly question?: unknown
  /** The answer; the result that an effect is said to have; the budget; what was done to memory. */
  readonly value?: unknown
  /** Of an effect: whether it is said to have happened. */
  readonly happened?: boolean
  /** Of an effect: its key. */
  readonly key?: string
  /** Of an edit: what it changed. */
  readonly paths?: readonly string[]
  /** Where it was rolled back or rewound to. */
  readonly to?: string
  /** The checkpoint that it was forked from. */
  readonly from?: string
  /** Of a fork: the calls that were given other results. */
  readonly replaced?: readonly string[]
  /** When it was answered: the log has it once the run took it. */
  readonly answeredAt?: number
}

export interface AuditOptions {
  /** Decisions after this checkpoint. */
  readonly after?: string
  /** 1 to 10,000, default 1,000. */
  readonly limit?: number
}

const types: readonly EventType[] = [
  ...(['question_asked', 'question_answered', 'effect_resolved', 'state_updated', 'state_migrated'] as const),
  ...(['run_paused', 'run_resumed', 'run_retried', 'run_cancelled', 'run_rolled_back', 'budget_raised'] as const),
  ...(['thread_rewound', 'thread_forked', 'memory_written'] as const),
]

/** Who decided what in a history, oldest first. */
export async function readAudit(
  history: History,
  { after, limit }: { readonly after?: string; readonly limit: number },
): Promise<Decision[]> {
  const decisions: Decision[] = []
  const asked = new Map<unknown, unknown>()
  for await (const event of allEvents(history, { ...(after !== undefined && { after: await history.find(after) }), types })) {
    if (event.type === 'question_asked') asked.set(event.data['key'], event.data['question'])
    const decision = decisionOf(event, history, asked)
    if (decision !== null) decisions.push(decision)
    if (decisions.length === limit) break
  }
  return decisions
}

interface DecisionData {
  readonly by?: string
  readonly key?: string
  readonly via?: string
  readonly result?: unknown
  readonly happened?: boolean
  readonly budget?: unknown
  readonly to?: number
  readonly from?: string
  readonly replaced?: readonly string[]
  readonly fork?: unknown
  readonly reason?: string
  readonly answeredAt?: number
  readonly order?: { readonly kind: string; readonly by?: string; readonly to?: number }
}

/** Null for what was not decided by a person: a run that paused by itself, a question that was not answered in time. */
function decisionOf(event: HistoryEvent, history: History, asked: ReadonlyMap<unknown, unknown>): Decision | null {
  const data = event.data as DecisionData
  const { key, via, result, happened, budget, to, reason, answeredAt, order } = data
  const about = { checkpoint: event.id, at: event.at, by: data.by ?? order?.by ?? null, runId: event.runId, name: event.step }
  const value = result === undefined ? {} : { value: result }
  switch (event.type) {
    case 'question_answered':
      if (via !== undefined) return null
      return {
        ...about,
        decision: 'answered',
        question: asked.get(key),
        ...value,
        ...(answeredAt !== undefined && { answeredAt }),
      }
    case 'effect_resolved':
      return { ...about, decision: 'resolved', ...(key !== undefined && { key }), happened: happened === true, ...value }
    case 'state_updated':
    case 'state_migrated':
      return event.runId === null ? { ...about, decision: 'edited', paths: pathsOf(event) } : null
    case 'run_paused':
      // That a fork's copy of a run is paused is part of the fork.
      if (data.fork !== undefined) return null
      if (order?.kind === 'cancel') return { ...about, decision: 'told_to_cancel' }
      return reason === 'asked' ? { ...about, decision: 'paused' } : null
    case 'run_resumed': {
      if (order === undefined) return { ...about, decision: 'resumed' }
      const where = order.to === undefined ? {} : { to: history.idAt(order.to) }
      return { ...about, decision: order.kind === 'rollback' ? 'told_to_roll_back' : 'told_to_cancel', ...where }
    }
    case 'run_retried':
      return { ...about, decision: 'retried' }
    case 'run_cancelled':
      return { ...about, decision: 'cancelled' }
    case 'run_rolled_back':
      return { ...about, decision: 'rolled_back', ...(to !== undefined && { to: history.idAt(to) }) }
    case 'thread_rewound':
      return { ...about, decision: 'rewound', ...(to !== undefined && { to: history.idAt(to) }) }
    case 'thread_forked': {
      const { from, replaced } = data
      return { ...about, decision: 'forked', ...(from !== undefined && { from }), ...(replaced !== undefined && { replaced }) }
    }
    case 'memory_written': {
      // What a run remembered by itself nobody decided, and what a rewind took back is part of the rewind.
      const { by, ...memory } = event.data as Readonly<Record<string, unknown>>
      return by === undefined || memory['act'] === 'take_back' ? null : { ...about, decision: 'changed_memory', value: memory }
    }
    case 'budget_raised':
      return { ...about, decision: 'raised_budget', value: budget }
    default:
      return null
  }
}

function pathsOf({ patch }: HistoryEvent): string[] {
  return [...new Set((patch ?? []).map(([, path]) => shownPath(path)))]
}
