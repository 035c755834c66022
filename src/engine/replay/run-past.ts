import type { Codec } from '../../model/codec.ts'
import { type EventType, eventTypes, type LogRecord } from '../../model/event.ts'
import type { Run } from '../../model/run.ts'
import { addUsage, noUsage, type UsageTotal } from '../../model/usage.ts'
import type { Store } from '../../store/store.ts'
import { readAccount } from '../limits/account-on-tape.ts'
import { type RecordedUndo, type Undoable, undoablesOf } from '../undo/undoable.ts'
import type { CallKey } from './call-key.ts'
import { decidedEffects } from './decided-effects.ts'
import { readTape } from './read-tape.ts'
import type { Tape } from './tape.ts'

/** What a run has done that can be undone, and what it has begun that ends with it. */
export interface RunPast {
  readonly undoables: readonly Undoable[]
  readonly children: readonly OpenChild[]
  readonly questions: readonly OpenQuestion[]
  /** What it has used, and what its children have used of that on its current tape. */
  readonly usage: UsageTotal
  readonly usageOfChildren: ReadonlyMap<string, UsageTotal>
}

/** A child that the run waits for. */
export interface OpenChild {
  readonly call: CallKey
  /** Position of its start. */
  readonly seq: number
  readonly runId: string
  /** How its work is undone, if it has completed meanwhile. */
  readonly undo?: RecordedUndo
  /** The earlier tape of the run that called it, and what that has booked for it. */
  readonly tape?: number
  readonly booked?: UsageTotal
}

/** A question that was not answered. */
export interface OpenQuestion {
  readonly call: CallKey
  readonly seq: number
  readonly key: string
}

/** Says nothing about what was done, and is the bulk of most logs. */
const typesAside: ReadonlySet<EventType> = new Set([
  'run_queued',
  'run_completed',
  'state_updated',
  'state_migrated',
  'value_recorded',
  'progress_reported',
  'stream_opened',
])
const typesOfPast = eventTypes.filter((type) => !typesAside.has(type))

/** Reads it from the log: of all tapes of the run, or of those before the current one. */
export async function readRunPast(
  { store, codec }: { readonly store: Store; readonly codec: Codec },
  { owner, threadId, id: runId }: Run,
  which: 'all tapes' | 'earlier tapes',
): Promise<RunPast> {
  const records = await store.readLog({ owner, threadId, runId, types: typesOfPast })
  const tapes = splitAtTapes(records).map((part) => readTape(part, codec, runId))
  const undone = new Set(tapes.flatMap((tape) => [...tape.undone]))
  const current = tapes.at(-1)
  const past = {
    ...{ undoables: [] as Undoable[], children: [] as OpenChild[], questions: [] as OpenQuestion[] },
    usage: current === undefined ? noUsage : addUsage(current.usage, { steps: readAccount(current).steps }),
    usageOfChildren: current?.usageOfChildren ?? new Map(),
  }
  for (const tape of tapes) {
    if (tape === current && which === 'earlier tapes') continue
    // An undo that is a function can only be given by the current tape.
    const isThere = ({ seq, undo }: Undoable) => !undone.has(seq) && (tape === current || undo !== true)
    past.undoables.push(...undoablesOf(tape, codec).filter(isThere))
    const open = openOn(tape)
    past.children.push(...open.children.map((child) => (tape === current ? child : ofEarlier(tape, child))))
    past.questions.push(...open.questions.map((question) => ({ ...question, call: onTape(tape, question.call) })))
  }
  if (which === 'all tapes')
    past.undoables.push(...decidedEffects(records, codec).filter(({ tape, undo }) => tape === current?.number || undo !== true))
  return past
}

/** What is open on a tape. */
export function openOn(tape: Tape): Pick<RunPast, 'children' | 'questions'> {
  return { children: openChildrenOf(tape), questions: openQuestionsOf(tape) }
}

function ofEarlier(tape: Tape, { undo, ...child }: OpenChild): OpenChild {
  const booked = tape.usageOfChildren.get(child.runId)
  return {
    ...{ ...child, call: onTape(tape, child.call), tape: tape.number },
    ...(booked !== undefined && { booked }),
    ...(typeof undo === 'string' && { undo }),
  }
}

/** Calls of different tapes may have the same key. */
function onTape({ number }: Tape, call: CallKey): CallKey {
  return `${number}~${call}`
}

function openChildrenOf(tape: Tape): OpenChild[] {
  return [...tape.calls].flatMap(([call, { begun, outcome }]) => {
    if (begun === undefined || outcome !== undefined || !call.startsWith('child:')) return []
    const { runId, undo, isOther } = begun.data as { runId: string; undo?: RecordedUndo; isOther?: boolean }
    if (isOther === true) return []
    return [{ call, seq: begun.seq, runId, ...(undo !== undefined && { undo }) }]
  })
}

function openQuestionsOf(tape: Tape): OpenQuestion[] {
  return [...tape.calls].flatMap(([call, { begun, outcome }]) => {
    if (begun === undefined || outcome !== undefined || !call.startsWith('question:')) return []
    return [{ call, seq: begun.seq, key: (begun.data as { key: string }).key }]
  })
}

function splitAtTapes(records: readonly LogRecord[]): LogRecord[][] {
  const parts: LogRecord[][] = []
  for (const record of records) {
    if (record.type === 'run_started' || parts.length === 0) parts.push([])
    parts.at(-1)?.push(record)
  }
  return parts
}
