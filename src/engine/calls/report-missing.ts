import type { Registry } from '../../define/workflow.ts'
import type { Logger } from '../../model/logger.ts'

/**
 * Tells the logger, once for each workflow and version, that something was started which this process can't execute: a mistyped name would
 * wait for ever without a word.
 */
export function reportMissing(
  { registry, log }: { readonly registry: Registry; readonly log: Logger },
  { needs, workflow, version }: { readonly needs: string; readonly workflow: string; readonly version: number },
): void {
  if (!registry.isMissedAnew(workflow, version)) return
  log.warn(
    `${needs} workflow "${workflow}" version ${version}, which this process does not have. Its runs stay pending until a process that has it takes them: ` +
      'list it in open(url, { workflows: [...] }), or correct the name or version.',
    { workflow, version },
  )
}
