import type { EventType } from '../model/event.ts'
import { applyPatch } from '../model/patch.ts'
import { reviveError } from '../model/stored-error.ts'
import { allEvents } from './all-events.ts'
import type { History, HistoryEvent } from './history.ts'
import { returns } from './steps-in-force.ts'

export type ReplayedKind =
  | 'run'
  | 'step'
  /** Steps that were declared to be that, with the option `kind`. */
  | 'model'
  | 'tool'
  | 'effect'
  | 'timer'
  | 'signal'
  | 'question'
  | 'child'
  /** `ctx.now`, `ctx.random`, `ctx.uuid` and `ctx.checkpoint`. */
  | 'value'
  /** `ctx.update` of the function itself. */
  | 'update'
  /** `thread.update`, by hand. */
  | 'edit'
  | 'migration'
  | 'rollback'
  | 'rewind'
  /** With what a fork begins. */
  | 'fork'

/** One thing that happened, as the log has it, and the state after it. */
export interface ReplayedStep {
  readonly checkpoint: string
  readonly at: number
  /** What the log calls it. */
  readonly event: EventType
  readonly kind: ReplayedKind
  /** With its scopes; null for what the run itself or a person did. */
  readonly name: string | null
  /** Which call of that name, from 1; 0 where there is no name. */
  readonly call: number
  readonly attempt: number
  readonly runId: string | null
  readonly durationMs: number | null
  /**
   * Of a run, its input; of a step, its option `input`; of a question, what was asked; of an effect, its key; of a rollback, rewind or fork, the
   * checkpoint. Where recorded.
   */
  readonly input?: unknown
  /** Of a step of `ctx.map`, its item in at most 256 bytes. */
  readonly item?: string
  readonly output?: unknown
  /** Tool calls that the result asks for: its `toolCalls` or `tool_calls`. */
  readonly toolCalls?: readonly unknown[]
  readonly error?: Error
  /** Who answered, decided, edited, rolled back, rewound or forked. */
  readonly by?: string
  /** The state right after it. Read-only, and shared with the steps around it. */
  readonly state: unknown
  /** A later rollback or rewind took it back. */
  readonly isForgotten: boolean
}

/** The steps of a history, one by one with `for await`, or all of them with `await`. */
export class Replay implements AsyncIterable<ReplayedStep>, PromiseLike<ReplayedStep[]> {
  readonly #read: () => AsyncGenerator<ReplayedStep, void, void>

  constructor(read: () => AsyncGenerator<ReplayedStep, void, void>) {
    this.#read = read
  }

  [Symbol.asyncIterator](): AsyncGenerator<ReplayedStep, void, void> {
    return this.#read()
  }

  // biome-ignore lint/suspicious/noThenProperty: awaiting it reads all of it, as the type says
  then<Result1 = ReplayedStep[], Result2 = never>(
    onRead?: ((steps: ReplayedStep[]) => Result1 | PromiseLike<Result1>) | null,
    onError?: ((error: unknown) => Result2 | PromiseLike<Result2>) | null,
  ): Promise<Result1 | Result2> {
    return this.#all().then(onRead, onError)
  }

  async #all(): Promise<ReplayedStep[]> {
    const steps: ReplayedStep[] = []
    for await (const step of this.#read()) steps.push(step)
    return steps
  }
}

/** Reads in pages and keeps one state: what is read is not held. */
export async function* replayHistory(
  history: History,
  options: { readonly to?: string },
): AsyncGenerator<ReplayedStep, void, void> {
  const to = options.to === undefined ? {} : { to: await history.find(options.to) }
  const forgotten = await takenBack(history, to)
  const begun = new Map<string, Begun>()
  let state: unknown
  let isFirst = true
  for await (const event of allEvents(history, { ...to, withEdits: true })) {
    if (isFirst) state = await history.stateBefore(event.id)
    isFirst = false
    if (event.patch !== null) state = applyPatch(state, event.patch)
    const key = `${event.runId} ${event.step}#${event.count}`
    const start = beginningIn(event)
    if (start !== null) begun.set(key, { ...begun.get(key), ...start })
    const kind = kindOf(event, begun.get(key))
    if (kind === null) continue
    const place = placeIn(event, history)
    const given = place === undefined ? begun.get(key) : { input: place }
    yield describe(event, kind, given, { state, isForgotten: forgotten(event) })
  }
}

/** Whether a later rollback or rewind took an event back. */
async function takenBack(history: History, range: { readonly to?: string }): Promise<(event: HistoryEvent) => boolean> {
  const all: HistoryEvent[] = []
  for await (const event of allEvents(history, { ...range, types: returns })) if (event.backTo !== null) all.push(event)
  return ({ runId, position }) => {
    // A rewind brings back what was in force at its checkpoint, so only what went back before that checkpoint still counts.
    let end = Number.POSITIVE_INFINITY
    for (const { runId: of, position: at, backTo } of all.toReversed()) {
      if (at >= end || at <= position || backTo === null || (of !== null && of !== runId)) continue
      if (position > backTo) return true
      end = of === null ? backTo + 1 : at
    }
    return false
  }
}

/** The checkpoint that it went back to, or that it was forked from. */
function placeIn({ type, backTo, data }: HistoryEvent, history: History): unknown {
  return type === 'thread_forked' ? data['from'] : backTo === null ? undefined : history.idAt(backTo)
}

/** What the beginning of a call says about it. */
interface Begun {
  readonly kind?: 'model' | 'tool'
  readonly input?: unknown
  readonly item?: string
}

function beginningIn({ type, data }: HistoryEvent): Begun | null {
  switch (type) {
    case 'step_started': {
      const { kind, input, item } = data as Begun
      return { ...(kind !== undefined && { kind }), ...(input !== undefined && { input }), ...(item !== undefined && { item }) }
    }
    case 'effect_intended':
      return { input: data['key'] }
    case 'question_asked':
      return { input: data['question'] }
    case 'child_started':
      return { input: { runId: data['runId'], workflow: data['workflow'] } }
    case 'timer_set':
      return data['for'] === undefined ? { input: data['ms'] ?? data['fireAt'] } : null
    default:
      return null
  }
}

const kinds: Partial<Record<EventType, ReplayedKind>> = {
  run_queued: 'run',
  run_completed: 'run',
  run_failed: 'run',
  run_cancelled: 'run',
  run_rolled_back: 'rollback',
  thread_rewound: 'rewind',
  thread_forked: 'fork',
  step_completed: 'step',
  step_failed: 'step',
  step_skipped: 'step',
  step_undone: 'step',
  state_migrated: 'migration',
  value_recorded: 'value',
  effect_completed: 'effect',
  effect_failed: 'effect',
  effect_skipped: 'effect',
  effect_unsure: 'effect',
  effect_resolved: 'effect',
  question_answered: 'question',
  signal_received: 'signal',
  child_completed: 'child',
}

/** Null for events that are no step of their own: beginnings, reports, what the run was told. */
function kindOf({ type, runId, count, data }: HistoryEvent, begun: Begun | undefined): ReplayedKind | null {
  if (type === 'state_updated') return runId === null ? 'edit' : 'update'
  if (type === 'run_started') return count > 1 ? 'run' : null
  if (type === 'timer_fired' || type === 'wait_withdrawn')
    return ((data['for'] as ReplayedKind | undefined) ?? 'timer') as ReplayedKind
  if (type === 'child_started') return data['isDetached'] === true ? 'child' : null
  const kind = kinds[type] ?? null
  return kind === 'step' ? (begun?.kind ?? kind) : kind
}

function describe(
  event: HistoryEvent,
  kind: ReplayedKind,
  begun: Begun | undefined,
  { state, isForgotten }: Pick<ReplayedStep, 'state' | 'isForgotten'>,
): ReplayedStep {
  const { id, at, type, step, count, attempt, runId, durationMs, data } = event
  const input = kind === 'run' ? data['input'] : begun?.input
  const output = data['result'] ?? data['output'] ?? data['value']
  const { error, by } = data as { error?: Error; by?: unknown }
  const toolCalls = toolCallsIn(output)
  return {
    ...{ checkpoint: id, at, event: type, kind, name: step, call: count, attempt, runId, durationMs },
    ...(input !== undefined && { input }),
    ...(begun?.item !== undefined && { item: begun.item }),
    ...(output !== undefined && { output }),
    ...(toolCalls !== undefined && { toolCalls }),
    ...(error !== undefined && { error: reviveError(error) }),
    ...(typeof by === 'string' && { by }),
    ...{ state, isForgotten },
  }
}

function toolCallsIn(output: unknown): readonly unknown[] | undefined {
  if (typeof output !== 'object' || output === null) return undefined
  const { toolCalls, tool_calls: snake } = output as { toolCalls?: unknown; tool_calls?: unknown }
  const calls = toolCalls ?? snake
  return Array.isArray(calls) ? calls : undefined
}
