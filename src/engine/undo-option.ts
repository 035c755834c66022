import { HoldfastError } from '../model/errors.ts'
import type { Call } from './calls.ts'
import type { Undo } from './context.ts'
import type { Execution } from './execution.ts'
import type { RecordedUndo, UndoFunction } from './undos.ts'

/**
 * Takes the `undo` that a call was given: a function is kept for as long as the tape, a name must be one of the workflow's. Refused before the call waits for its turn: nothing of it is on the tape.
 */
export function takeUndo<T>(
  execution: Execution,
  call: Call,
  undo: Undo<T>,
  options: { readonly getsState?: boolean } = {},
): void {
  if (typeof undo === 'function') execution.undos.give(call.key, undo as UndoFunction, options)
  // What was accepted once is looked for when it is to be undone.
  else if (call.history === undefined) checkName(execution, call, undo)
}

/** How the record of a result names its undo. */
export function recordedUndo(undo: Undo<never>): RecordedUndo {
  return typeof undo === 'function' ? true : undo
}

function checkName({ workflow, runId }: Execution, call: Call, undo: unknown): void {
  if (typeof undo === 'string' && workflow.options.undos !== undefined && Object.hasOwn(workflow.options.undos, undo)) return
  const given = typeof undo === 'string' ? `"${undo}", which is not one of them` : `a value of type ${typeof undo}`
  throw new HoldfastError(
    'invalid_input',
    `The undo of "${call.path}" must be a function or a name in the undos of workflow "${workflow.name}"; it is ${given}.`,
    { details: { runId, step: call.path } },
  )
}
