import { HoldfastError } from '../../model/errors.ts'
import { endError, expectRejections } from '../calls/expected-rejections.ts'
import type { HeldRun } from './held-run.ts'
import type { Phase } from './phase.ts'

/** What a call throws on the ctx of a run that was cancelled, fenced, or is not executed here any more. */
export function errorOfEnd({ runId }: HeldRun, phase: Phase): HoldfastError {
  const details = { runId }
  if (phase.isCancelled) return endError(new HoldfastError('run_cancelled', `Run "${runId}" was cancelled.`, { details }))
  const message = phase.isLost
    ? `The lease on run "${runId}" was lost to another worker or the thread was deleted; what this process did since was discarded.`
    : `Run "${runId}" is no longer executed by this process; the call on its ctx came too late.`
  return endError(new HoldfastError(phase.isLost ? 'lease_lost' : 'closed', message, { details }))
}

/** A call on the ctx of a run that has ended: told to the logger, and the error to throw. */
export function reportLateCall({ runId, workflow, log }: HeldRun, phase: Phase, name: string): HoldfastError {
  const how =
    phase.endedAs === 'continued'
      ? 'has continued with another input'
      : phase.isOver
        ? `is ${phase.endedAs}`
        : 'this process no longer executes'
  const message = `"${name}" was called on the ctx of run "${runId}", which ${how}: nothing was done. Await everything before the function ends.`
  log.warn(message, { runId, workflow: workflow.name, step: name, reason: 'closed' })
  // As a rule of a branch that its function began and does not await any more: the run has its end, and the others here continue.
  expectRejections()
  return endError(new HoldfastError('closed', message, { details: { runId, step: name } }))
}

/** What the body of a step writes after its end: told to the logger, and the error to throw. It is in no commit. */
export function reportLateWrite({ runId, workflow, log }: HeldRun, step: string, method: string): HoldfastError {
  const message = `${method} was called after the body of step "${step}" of run "${runId}" had ended: nothing was written. Await everything in the body.`
  log.warn(message, { runId, workflow: workflow.name, step, reason: 'closed' })
  // As a rule of something that the body began and does not await.
  expectRejections()
  return endError(new HoldfastError('closed', message, { details: { runId, step } }))
}
