import type { Codec } from '../../model/codec.ts'
import { HoldfastError } from '../../model/errors.ts'
import type { EventType, LogRecord } from '../../model/event.ts'
import type { Payload } from '../../model/payload.ts'
import { type CallKey, type CallKind, keyOfRecord, pathOf } from './call-key.ts'
import { type ForkMark, forkMarkOf } from './fork-mark.ts'
import { readTape } from './read-tape.ts'
import type { Replacement } from './replaced-calls.ts'
import type { Outcome, Tape } from './tape.ts'

/** Whose tape is copied, for whom, and how far. */
export interface TapeCopy {
  readonly codec: Codec
  readonly runId: string
  readonly threadId: string
  /** The run that gets the copy, and its thread. */
  readonly copyId: string
  readonly copyThreadId: string
  /** The checkpoint at which it is copied, and who does it. */
  readonly forkedFrom: string
  readonly by: string | undefined
  /** The position that its first record gets. */
  readonly firstSeq: number
  readonly now: number
  /** Results that are others in the copy; the tape ends with the first of them. */
  readonly replacements: readonly Replacement[]
}

export interface CopiedTape {
  readonly records: readonly CopiedRecord[]
  /** Position of the first replaced result; absent where there is none, or all are optional. */
  readonly replacedSeq?: number
  /** Up to where the log is copied that a replaced result ends; absent like that. */
  readonly cutAt?: number
  /** Position of the first result that is there only if a call asks for it; absent where there is none. */
  readonly optionalFrom?: number
}

export interface CopiedRecord extends LogRecord {
  /** Where it is in the log that it was copied from. */
  readonly copyOf: number
  /** Where the log that it was copied from has the state that is there after it. */
  readonly source: number
}

/**
 * A copy of a run's tape, for a run of its own on another thread.
 *
 *   Y1  A call with a result keeps all of its records, and its result. Of one that was open only the start of a step is kept: the copy begins
 *       it anew, under a name of its own. An open section keeps what was done inside.
 *   Y2  Changes of the state are kept, whoever made them: the function sees the same states again.
 *   Y3  Positions inside of records are those of the copy.
 *   Y4  Orders to undo, deaths of workers and streams stay behind.
 *   Y5  What was written to the session of its thread is written to that of the other thread.
 */
export function copyTape(all: readonly LogRecord[], copy: TapeCopy): CopiedTape {
  const { firstSeq } = copy
  const { records, required, optional, given, remembered = 0 } = cutTape(all, copy)
  const writer = new CopyWriter(copy, records)
  const kept = records.filter((record) => writer.isKept(record))
  const positions = kept.map(({ seq }) => seq)
  const positionOf = (seq: number) => firstSeq + countUpTo(positions, seq) - 1
  const copied: CopiedRecord[] = kept.map((record, index) => ({
    ...writer.rewritten(record, positionOf),
    ...{ seq: firstSeq + index, copyOf: record.seq, source: record.seq },
  }))
  const source = required === undefined ? (records.at(-1)?.seq ?? 0) : cutBefore(required) - 1
  const byPosition = new Map(all.map((record) => [record.seq, record]))
  const replaced = [...(required === undefined ? [] : [required]), ...optional].map((one, index) => ({
    ...writer.replaced(byPosition.get(one.outcome.seq) as LogRecord, one),
    ...{ seq: firstSeq + copied.length + index, copyOf: one.outcome.seq, source },
    ...(one !== required && { isCheckpoint: false }),
  }))
  const replacedSeq = required === undefined ? {} : { replacedSeq: firstSeq + copied.length, cutAt: source - remembered }
  const firstOptional = firstSeq + copied.length + (required === undefined ? 0 : 1)
  const optionalFrom = given === undefined ? firstOptional : positionOf(given - 1) + 1
  return {
    ...{ records: [...copied, ...replaced], ...replacedSeq },
    ...((optional.length > 0 || given !== undefined) && { optionalFrom }),
  }
}

interface CutTape {
  readonly records: readonly LogRecord[]
  /** The replaced result with which it ends. */
  readonly required: Replacement | undefined
  /** Others, which come later in the function. */
  readonly optional: readonly Replacement[]
  /** So many records before that result say what its call remembered; they are left out, too. */
  readonly remembered?: number
  /** Position of the first result of an earlier fork that waits for its call, where the tape ends in the middle of those. */
  readonly given?: number
}

function cutTape(all: readonly LogRecord[], { codec, runId, replacements }: TapeCopy): CutTape {
  const sorted = replacements.toSorted((a, b) => cutBefore(a) - cutBefore(b))
  const [first, ...others] = sorted
  const whole = readTape(all, codec, runId)
  if (first === undefined) return { records: unlessUndone(all, whole), required: undefined, optional: [] }
  const mark = all.findLast((record) => forkMarkOf(record, codec)?.optionalFrom !== undefined)
  const given = mark === undefined ? undefined : forkMarkOf(mark, codec)?.optionalFrom
  const { seq } = first.outcome
  // Where the call asked for it is not on record: all that the fork did itself is done again.
  if (mark !== undefined && given !== undefined && seq >= given && seq < mark.seq) {
    const replaced = new Set(sorted.map(({ outcome }) => outcome.seq))
    const records = all.filter((record) => record.seq < mark.seq && !replaced.has(record.seq))
    return { records, required: undefined, optional: sorted, given }
  }
  const upToFirst = all.filter((record) => record.seq < cutBefore(first))
  const isOfFirst = (record: LogRecord) =>
    writtenWithResults.includes(record.type) && keyOfRecord('step', record) === first.outcome.key
  const before = upToFirst.slice(0, upToFirst.findLastIndex((record) => !isOfFirst(record)) + 1)
  const cut = readTape(before, codec, runId)
  // A failure that was tried again since, after the cut, is open here.
  const isReopened = ({ key, seq: at, isFailure }: Outcome) =>
    isFailure && whole.calls.get(key)?.wasReopened === true && whole.calls.get(key)?.outcome?.seq !== at
  const reopened = new Set(cut.outcomes.filter(isReopened).map((outcome) => outcome.seq))
  const records = before.filter((record) => !reopened.has(record.seq))
  const remembered = upToFirst.length - before.length
  return { records: unlessUndone(records, readTape(records, codec, runId)), required: first, optional: others, remembered }
}

/** Of a section that is replaced nothing is left: what was done inside would be in the state. */
function cutBefore({ outcome, begunAt }: Replacement): number {
  return begunAt ?? outcome.seq
}

/** What was undone must not count as done. */
function unlessUndone(records: readonly LogRecord[], { outcomes, undone }: Tape): readonly LogRecord[] {
  const lost = outcomes.filter(({ seq }) => undone.has(seq)).map(({ key }) => `"${pathOf(key)}"`)
  if (lost.length === 0) return records
  throw new HoldfastError(
    'conflict',
    `The thread can't be forked there: what the run had done was being undone (${lost.join(', ')}). Choose a checkpoint before that, or after the run's end.`,
  )
}

function positioned(mark: ForkMark, positionOf: (seq: number) => number): ForkMark {
  if (mark.optionalFrom === undefined) return mark
  // Those from it on are after the last record that comes before it.
  return { ...mark, optionalFrom: positionOf(mark.optionalFrom - 1) + 1 }
}

/** Positions in ascending order: how many of them are not after this one. */
function countUpTo(positions: readonly number[], seq: number): number {
  let [low, high] = [0, positions.length]
  while (low < high) {
    const middle = (low + high) >> 1
    if ((positions[middle] as number) <= seq) low = middle + 1
    else high = middle
  }
  return low
}

/** What a step has done besides its result, which is in the log before it. */
const writtenWithResults: readonly EventType[] = ['memory_written', 'memory_recalled', 'artifact_saved', 'artifact_deleted']

const leftBehind: ReadonlySet<EventType> = new Set(['run_recovered', 'undo_ordered', 'stream_opened'])
/** What says that a call has begun, or has failed and will be tried again. */
const beginnings: Partial<Record<EventType, CallKind>> = {
  step_started: 'step',
  step_failed: 'step',
  effect_intended: 'effect',
  effect_unsure: 'effect',
  effect_failed: 'effect',
  effect_resolved: 'effect',
  question_asked: 'question',
  child_started: 'child',
  timer_set: 'timer',
}
const completed: Partial<Record<CallKind, EventType>> = {
  step: 'step_completed',
  effect: 'effect_completed',
  child: 'child_completed',
  question: 'question_answered',
  signal: 'signal_received',
}

/** What a copied run was started with: nothing waits for it, and it knows where it is from. */
export function originOfCopy(given: Record<string, unknown>, forkedFrom: string): Record<string, unknown> {
  const { parent: _, startedBy: __, ...data } = given
  return { ...data, forkedFrom }
}

function keysOfEnd(record: LogRecord): CallKey[] {
  const kinds = Object.entries(completed) as [CallKind, EventType][]
  return kinds.flatMap(([kind, type]) => (type === record.type ? [keyOfRecord(kind, record)] : []))
}

class CopyWriter {
  readonly #copy: TapeCopy
  readonly #tape: Tape
  /** Where the tape begins: what was undone before it is not on it. */
  readonly #first: number
  /** Calls that had a result once. */
  readonly #ended: ReadonlySet<CallKey>

  constructor(copy: TapeCopy, records: readonly LogRecord[]) {
    this.#copy = copy
    this.#tape = readTape(records, copy.codec, copy.runId)
    this.#first = records[0]?.seq ?? 0
    this.#ended = new Set(records.flatMap((record) => keysOfEnd(record)))
  }

  isKept(record: LogRecord): boolean {
    const { type, patch, runId } = record
    if (patch !== null) return true
    if (runId !== this.#copy.runId || leftBehind.has(type)) return false
    if (type === 'run_resumed') return this.#data<{ order?: unknown }>(record).order === undefined
    if (type === 'run_paused') return this.#data<{ fork?: ForkMark }>(record).fork !== undefined
    if (type === 'step_undone') return this.#data<{ of: number }>(record).of >= this.#first
    const kind = beginnings[type]
    if (kind === undefined) return true
    const data = this.#data<{ for?: CallKind; next?: string; key?: string; happened?: boolean }>(record)
    // A failure that was thrown into the function is a result, also where it was reopened since.
    if (data.next === 'throw') return true
    const call = this.#tape.calls.get(keyOfRecord(data.for ?? kind, record))
    // Rolled back since: a fork of the copy may go back to before that.
    if (call === undefined) return type === 'step_started' || this.#ended.has(keyOfRecord(data.for ?? kind, record))
    // A step of ctx.begin may have results of others after it, and has to come before them.
    if (call.outcome !== undefined || call.scope !== undefined || type === 'step_started') return true
    return type === 'effect_resolved' && data.happened === true && call.effect === 'happened' && call.key === data.key
  }

  /** A record of the copy, with the positions that it names. */
  rewritten(record: LogRecord, positionOf: (seq: number) => number): LogRecord {
    const { copyId, threadId, copyThreadId } = this.#copy
    const own = record.runId === null ? record : { ...record, runId: copyId }
    if (record.payload === null)
      return record.type === 'step_started' && this.#isOpen('step', record) ? { ...own, at: this.#copy.now } : own
    switch (record.type) {
      case 'run_started':
        return this.#with(own, (data) => originOfCopy(data, this.#copy.forkedFrom))
      case 'run_rolled_back':
        return this.#with(own, (data) => ({ ...data, to: positionOf(data['to'] as number) }))
      case 'step_undone':
        return this.#with(own, (data) => ({ ...data, of: positionOf(data['of'] as number) }))
      case 'run_paused':
        return this.#with(own, (data) => ({ ...data, fork: positioned(data['fork'] as ForkMark, positionOf) }))
      case 'artifact_saved':
        return this.#with(own, (data) => (data['threadId'] === threadId ? { ...data, threadId: copyThreadId } : data))
      case 'memory_written':
        return this.#with(own, (data) => (data['session'] === threadId ? { ...data, session: copyThreadId } : data))
      case 'state_updated':
        return this.#rebuiltFrom(own, positionOf)
      case 'step_started':
        return this.#isOpen('step', record) ? this.#startedNow(own) : own
      case 'child_completed':
        // Of a child that will be another one.
        return this.#isOpen('child', record) ? this.#with(own, ({ endSeq: _, ...data }) => data) : own
      case 'effect_resolved':
        return this.#isOpen('effect', record) && this.#data<{ happened: boolean }>(record).happened ? this.#decided(own) : own
      default:
        return own
    }
  }

  /** The record of a result, with another value and without what it did to the state. */
  replaced(record: LogRecord, { outcome, kind, value, isMerged }: Replacement): LogRecord {
    const recorded = this.#data<Record<string, unknown>>(record)
    const data: Record<string, unknown> = { key: this.#tape.calls.get(outcome.key)?.key }
    for (const name of ['key', 'runId', 'shown', 'name', 'sentAt', 'answeredAt'])
      if (recorded[name] !== undefined) data[name] = recorded[name]
    if (data['key'] === undefined) delete data['key']
    const { by } = this.#copy
    if (value !== undefined && isMerged !== true) data['result'] = value
    return {
      ...record,
      ...{ runId: this.#copy.copyId, type: completed[kind] as EventType, patch: null },
      payload: this.#copy.codec.encode({ ...data, isReplaced: true, ...(by !== undefined && { by }) }),
    }
  }

  /** A person has decided that it happened: that is its result. */
  #decided(record: LogRecord): LogRecord {
    const { key, result } = this.#data<{ key: string; result?: unknown }>(record)
    const data = { key, via: 'resolve', ...(result !== undefined && { result }) }
    return { ...record, type: 'effect_completed', payload: this.#copy.codec.encode(data) }
  }

  #rebuiltFrom(record: LogRecord, positionOf: (seq: number) => number): LogRecord {
    const { rebuilt } = this.#data<{ rebuilt?: { from: number } }>(record)
    if (rebuilt === undefined) return record
    return this.#with(record, (data) => ({ ...data, rebuilt: { ...rebuilt, from: positionOf(rebuilt.from) } }))
  }

  #isOpen(kind: CallKind, record: LogRecord): boolean {
    return this.#tape.calls.get(keyOfRecord(kind, record))?.outcome === undefined
  }

  /** Time limits count from here. */
  #startedNow(record: LogRecord): LogRecord {
    return { ...this.#with(record, ({ key: _, ...data }) => data), at: this.#copy.now }
  }

  #data<T>({ payload }: LogRecord): T {
    return (payload === null ? {} : this.#copy.codec.decode(payload)) as T
  }

  #with(record: LogRecord, change: (data: Record<string, unknown>) => Record<string, unknown>): LogRecord {
    return { ...record, payload: this.#copy.codec.encode(change(this.#data(record))) as Payload }
  }
}
