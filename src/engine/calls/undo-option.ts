import type { Undo } from '../../define/context.ts'
import { HoldfastError } from '../../model/errors.ts'
import type { CallHost } from '../execution/call-host.ts'
import type { RecordedUndo, UndoFunction } from '../undo/undoable.ts'
import type { Call } from './calls.ts'

/**
 * Takes the `undo` that a call was given: a function is kept for as long as the tape, a name must be one of the workflow's. Refused before the call waits for its turn: nothing of it is on the tape.
 */
export function takeUndo<T>(host: CallHost, call: Call, undo: Undo<T>, options: { readonly getsState?: boolean } = {}): void {
  if (typeof undo === 'function') {
    // One that is on the tape was accepted by a version that looked for it inside.
    if (call.within !== undefined && call.history === undefined) throw insideSection(host, call)
    host.undos.give(call.key, undo as UndoFunction, options)
    // What has its result is looked for when it is to be undone.
  } else if (call.history?.outcome === undefined) checkName(host, call, undo)
}

/** How the record of a result names its undo. */
export function recordedUndo(undo: Undo<never>): RecordedUndo {
  return typeof undo === 'function' ? true : undo
}

/** A section that has its result is not entered again, so the function could not be found. */
function insideSection({ run: { runId, workflow } }: CallHost, call: Call): HoldfastError {
  const scope = call.path.slice(0, call.path.lastIndexOf('/'))
  return new HoldfastError(
    'invalid_input',
    `The undo of "${call.path}" of run "${runId}" is a function inside section "${scope}", which is not entered again once it has its ` +
      `result. Name one of the undos of workflow "${workflow.name}" instead (undo: 'name'), or give the section an undo as a whole.`,
    { details: { runId, step: call.path } },
  )
}

function checkName({ run: { workflow, runId } }: CallHost, call: Call, undo: unknown): void {
  if (typeof undo === 'string' && workflow.options.undos !== undefined && Object.hasOwn(workflow.options.undos, undo)) return
  const given = typeof undo === 'string' ? `"${undo}", which is not one of them` : `a value of type ${typeof undo}`
  throw new HoldfastError(
    'invalid_input',
    `The undo of "${call.path}" must be a function or a name in the undos of workflow "${workflow.name}"; it is ${given}.`,
    { details: { runId, step: call.path } },
  )
}
