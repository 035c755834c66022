import type { EventType, LogRecord } from '../../model/event.ts'
import type { CallKey, CallKind, callKey } from './tape.ts'

/**
 * How many rollbacks went over each call: what was done before them is in the world under the old name, so that what is done after them
 * needs another. Only calls that have names of their own are counted.
 */
export function countRollbacks(
  records: readonly LogRecord[],
  runId: string,
  read: {
    readonly data: <T>(record: LogRecord) => T
    readonly callKey: typeof callKey
    /** How often a call was taken back in other ways. */
    readonly counts: ReadonlyMap<CallKey, number>
  },
): ReadonlyMap<CallKey, number> {
  const counts = new Map(read.counts)
  for (const rollback of records) {
    if (rollback.type !== 'run_rolled_back' || rollback.runId !== runId) continue
    const { to } = read.data<{ to: number }>(rollback)
    const over = new Set<CallKey>()
    for (const record of records) {
      const kind = kinds[record.type]
      const isOver = record.runId === runId && record.seq > to && record.seq < rollback.seq
      // What a child did stands, unless it was undone: the call then begins another.
      const isKept = record.type === 'child_completed' && read.data<{ undo?: unknown }>(record).undo === undefined
      if (isOver && kind !== undefined && !isKept) over.add(read.callKey(kind, record.step ?? '', record.count))
    }
    for (const key of over) counts.set(key, (counts.get(key) ?? 0) + 1)
  }
  return counts
}

const kinds: Partial<Record<EventType, CallKind>> = {
  step_started: 'step',
  step_completed: 'step',
  effect_intended: 'effect',
  effect_completed: 'effect',
  child_started: 'child',
  child_completed: 'child',
}
