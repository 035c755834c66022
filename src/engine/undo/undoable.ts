import type { UndoInfo } from '../../define/context.ts'
import type { Codec } from '../../model/codec.ts'
import type { Payload } from '../../model/payload.ts'
import { type CallKey, pathOf } from '../replay/call-key.ts'
import { isInScopeOrFallback } from '../replay/scope-paths.ts'
import type { Outcome, Tape } from '../replay/tape.ts'

/** A recorded result that can be taken back. */
export interface Undoable {
  readonly key: CallKey
  /** Position of the result in the log. */
  readonly seq: number
  readonly undo: RecordedUndo
  readonly payload: Payload | null
  /** Effects: the operation's key. */
  readonly operationKey?: string
  /** Decided about an effect of an earlier tape: it was done before the current one. */
  readonly isOfEarlierTape?: boolean
}

/** How the log names an undo: true is a function, which only the workflow's function can give; a text is a name in its `undos`. */
export type RecordedUndo = true | string

/** What an undo is called with: the result, or the state as a plan's step left it. */
export type UndoFunction = (given: never, info: UndoInfo) => unknown

/** What the record of a result says about its undo. */
export interface UndoRecord {
  readonly undo?: RecordedUndo
  /** The undo is called with the state instead of the result. */
  readonly undoGets?: 'state'
}

/** The results on a tape that have an undo. What another run did is that run's to undo. */
export function undoablesOf(tape: Tape, codec: Codec): Undoable[] {
  return tape.outcomes.filter(isDone).flatMap(({ key, seq, payload }) => {
    if (isOfCopy(tape, key, seq)) return []
    const { undo } = (payload === null ? {} : codec.decode(payload)) as UndoRecord
    // Records of 0.1 said so when the step began.
    const recorded = undo ?? (tape.calls.get(key)?.hasUndo === true ? true : undefined)
    return recorded === undefined ? [] : [{ key, seq, undo: recorded, payload }]
  })
}

/** Whether a result is, or has in it, what another run has done: that is not taken back by this one. */
export function isOfCopy({ copiedUpTo, calls, outcomes }: Tape, key: CallKey, seq: number): boolean {
  if (seq <= copiedUpTo) return true
  const call = copiedUpTo === 0 ? undefined : calls.get(key)
  if (call?.scope === undefined || call.begunAt > copiedUpTo) return false
  const { scope } = call
  return outcomes.some((one) => one.seq <= copiedUpTo && isDone(one) && isInScopeOrFallback(pathOf(one.key), scope))
}

/** What failed, was waited for, asked or noted is nothing that could be taken back. */
function isDone({ key, isFailure, isSkip }: Outcome): boolean {
  return !isFailure && isSkip !== true && /^(?:step|effect|child):/.test(key)
}
