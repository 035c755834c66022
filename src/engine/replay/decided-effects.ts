import type { Codec } from '../../model/codec.ts'
import type { EventType, LogRecord } from '../../model/event.ts'
import type { Run } from '../../model/run.ts'
import type { Store } from '../../store/store.ts'
import type { Undoable } from '../undo/undoable.ts'
import { keyOfRecord } from './call-key.ts'
import { forkMarkOf } from './fork-mark.ts'

/** An effect that a person decided has happened, and that no call has recorded as its result since. */
export interface DecidedEffect extends Undoable {
  readonly operationKey: string
  /** Number of the tape that intended it. */
  readonly tape: number
}

const typesOfDecisions: readonly EventType[] = [
  'run_started',
  'effect_intended',
  'effect_resolved',
  'effect_completed',
  'step_undone',
  'run_paused',
]

/** Reads the ones that have an undo and were not undone. */
export async function readDecidedEffects(
  { store, codec }: { readonly store: Store; readonly codec: Codec },
  { owner, threadId, id: runId }: Pick<Run, 'owner' | 'threadId' | 'id'>,
): Promise<readonly DecidedEffect[]> {
  const decisions = await store.readLog({ owner, threadId, runId, types: ['effect_resolved'] })
  if (decisions.length === 0) return []
  return decidedEffects(await store.readLog({ owner, threadId, runId, types: typesOfDecisions }), codec)
}

/**
 * A decision belongs to the effect's operation, not to its call: the call may have been rolled back, or be of an earlier tape. So all
 * records of the run are read, including those that were rolled back. The intent says which undo the effect has; the decision is its result.
 */
export function decidedEffects(records: readonly LogRecord[], codec: Codec): readonly DecidedEffect[] {
  const intents = new Map<string, { readonly undo: Undoable['undo']; readonly tape: number } | undefined>()
  const decided = new Map<string, DecidedEffect>()
  let tape = 1
  for (const record of records) {
    const { type, count, seq, payload } = record
    if (type === 'run_started') tape = count
    if (payload === null) continue
    // What was decided before it is about effects of another run.
    if (forkMarkOf(record, codec) !== undefined) decided.clear()
    if (type === 'step_undone') {
      const { of } = codec.decode(payload) as { of: number }
      for (const [key, one] of decided) if (one.seq === of) decided.delete(key)
    } else if (type === 'effect_intended' || type === 'effect_completed') {
      const { key, hasUndo, undo } = codec.decode(payload) as { key: string; hasUndo?: boolean; undo?: string }
      if (type === 'effect_intended') intents.set(key, hasUndo === true ? { undo: undo ?? true, tape } : undefined)
      decided.delete(key)
    } else if (type === 'effect_resolved') {
      const { key, happened } = codec.decode(payload) as { key: string; happened: boolean }
      const intent = intents.get(key)
      if (happened && intent !== undefined)
        decided.set(key, { key: keyOfRecord('effect', record), seq, payload, operationKey: key, ...intent })
    }
  }
  return [...decided.values()]
}
