import type { Codec } from '../../model/codec.ts'
import type { EventType, LogRecord } from '../../model/event.ts'
import type { Run } from '../../model/run.ts'
import type { Store } from '../../store/store.ts'
import type { Undoable } from '../undo/undos.ts'
import { callKey } from './tape.ts'

/** An effect that has happened by decision of a person, and that no call has recorded as its result. */
export interface DecidedEffect extends Undoable {
  readonly operationKey: string
  /** Of the tape that intended it. */
  readonly tape: number
}

const typesOfDecisions: readonly EventType[] = [
  'run_started',
  'effect_intended',
  'effect_resolved',
  'effect_completed',
  'step_undone',
]

/** Reads those that have an undo and are not undone. */
export async function readDecidedEffects(
  { store, codec }: { readonly store: Store; readonly codec: Codec },
  { owner, threadId, id: runId }: Pick<Run, 'owner' | 'threadId' | 'id'>,
): Promise<readonly DecidedEffect[]> {
  const decisions = await store.readLog({ owner, threadId, runId, types: ['effect_resolved'] })
  if (decisions.length === 0) return []
  return decidedEffects(await store.readLog({ owner, threadId, runId, types: typesOfDecisions }), codec)
}

/**
 * What was decided is known by the effect's operation, not by its call: the call may have been rolled back, or be of an earlier tape. So all
 * records of the run are read, whatever was rolled back. The intent says which undo the effect has, the decision is the result that it gets.
 */
export function decidedEffects(records: readonly LogRecord[], codec: Codec): readonly DecidedEffect[] {
  const intents = new Map<string, { readonly undo: Undoable['undo']; readonly tape: number } | undefined>()
  const decided = new Map<string, DecidedEffect>()
  let tape = 1
  for (const record of records) {
    const { type, step, count, seq, payload } = record
    if (type === 'run_started') tape = count
    if (payload === null) continue
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
        decided.set(key, { key: callKey('effect', step ?? '', count), seq, payload, operationKey: key, ...intent })
    }
  }
  return [...decided.values()]
}
