import type { EventType, LogRecord } from '../../model/event.ts'
import { type CallKey, type CallKind, keyOfRecord } from './call-key.ts'

/** Decodes what a record says. */
type ReadData = <T>(record: LogRecord) => T

/** Records between two positions, neither of which is part of it. */
export interface Stretch {
  readonly from: number
  readonly to: number
}

/** What rollbacks have taken back: everything between the position that each went to and its own record. */
export function rolledBackStretches(records: readonly LogRecord[], runId: string, data: ReadData): readonly Stretch[] {
  return records
    .filter((record) => record.type === 'run_rolled_back' && record.runId === runId)
    .map((record) => ({ from: data<{ to: number }>(record).to, to: record.seq }))
}

export function isIn(stretches: readonly Stretch[], seq: number): boolean {
  return stretches.some(({ from, to }) => seq > from && seq < to)
}

/** Where a rollback to a position ends. A position that was itself rolled back no longer exists: the run goes to where that rollback went. */
export function whereToRollBack(stretches: readonly Stretch[], to: number): number {
  return stretches.reduceRight((at, stretch) => (isIn([stretch], at) ? stretch.from : at), to)
}

/**
 * How many rollbacks went over each call, added to `counts`: how often it was taken back in other ways. What was done before is in the
 * world under the old name, so what is done after needs another. Only calls that have names of their own are counted.
 */
export function countRollbacks(
  records: readonly LogRecord[],
  stretches: readonly Stretch[],
  read: { readonly runId: string; readonly data: ReadData; readonly counts: ReadonlyMap<CallKey, number> },
): ReadonlyMap<CallKey, number> {
  const counts = new Map(read.counts)
  for (const stretch of stretches) {
    const keys = new Set<CallKey>()
    for (const record of records) {
      const kind = namedKinds[record.type]
      if (kind === undefined || record.runId !== read.runId || !isIn([stretch], record.seq)) continue
      // What a child did stands, unless it was undone: the call then begins another.
      const isKept = record.type === 'child_completed' && read.data<{ undo?: unknown }>(record).undo === undefined
      if (!isKept) keys.add(keyOfRecord(kind, record))
    }
    for (const key of keys) counts.set(key, (counts.get(key) ?? 0) + 1)
  }
  return counts
}

const namedKinds: Partial<Record<EventType, CallKind>> = {
  step_started: 'step',
  step_completed: 'step',
  effect_intended: 'effect',
  effect_completed: 'effect',
  child_started: 'child',
  child_completed: 'child',
}
