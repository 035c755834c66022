import type { Codec } from '../../model/codec.ts'
import type { LogRecord } from '../../model/event.ts'
import type { Run } from '../../model/run.ts'
import type { Store } from '../../store/store.ts'
import { forkMarkOf } from './fork-mark.ts'
import { isIn, rolledBackStretches } from './rolled-back.ts'

/** The current tape of a run: its records after this position of its thread's log. */
export interface TapePlace extends Pick<Run, 'owner' | 'threadId'> {
  readonly runId: string
  readonly afterSeq: number
}

interface Reading {
  readonly store: Store
  readonly codec: Codec
}

/**
 * The section around a position, if it has ended since and has an undo. A run can't go back into it: the undo takes back all of the section,
 * including what was done before the position and would not be done again.
 */
export async function endedSectionAround(reading: Reading, place: TapePlace, to: number): Promise<LogRecord | undefined> {
  const { store, codec } = reading
  const { owner, threadId, runId } = place
  const undoable = ({ payload }: LogRecord) =>
    payload !== null && (codec.decode(payload) as { undo?: unknown }).undo !== undefined
  const records = await store.readLog({ owner, threadId, runId, afterSeq: to, types: ['step_completed', 'run_paused'] })
  // What another run did is not undone by this one.
  const own = records.slice(records.findLastIndex((record) => forkMarkOf(record, codec) !== undefined) + 1)
  const ended = own.filter((record) => record.type === 'step_completed' && undoable(record))
  if (ended.length === 0) return undefined
  const begun = await sectionsBegun(reading, place, to)
  return begun.find((start) => ended.some(({ step, count }) => step === start.step && count === start.count))
}

/** The starts of sections up to a position, except those that were rolled back since. */
export async function sectionsBegun({ store, codec }: Reading, place: TapePlace, to: number): Promise<LogRecord[]> {
  const { owner, threadId, runId, afterSeq } = place
  const records = await store.readLog({ owner, threadId, runId, afterSeq, types: ['step_started', 'run_rolled_back'] })
  const data = <T>({ payload }: LogRecord) => (payload === null ? {} : codec.decode(payload)) as T
  const rolledBack = rolledBackStretches(records, runId, data)
  return records.filter((record) => {
    if (record.type !== 'step_started' || record.seq > to || isIn(rolledBack, record.seq)) return false
    return data<{ scope?: string }>(record).scope !== undefined
  })
}
