import type { AnyWorkflow } from '../../define/workflow.ts'
import { HoldfastError } from '../../model/errors.ts'

/** A version is for a bare name: a workflow that is passed has its own. */
export function refuseOtherVersion(workflow: AnyWorkflow, version: number | undefined, done: 'started' | 'done'): void {
  if (version === undefined || version === workflow.version) return
  throw new HoldfastError(
    'invalid_input',
    `version is ${version}, but the workflow "${workflow.name}" that was passed is version ${workflow.version}. Leave version out, ` +
      `or pass the name "${workflow.name}" to mean another version. Nothing was ${done}.`,
    { details: { workflow: workflow.name, version: workflow.version } },
  )
}
