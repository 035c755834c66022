import type { Codec } from '../../model/codec.ts'
import type { NewEvent } from '../../model/event.ts'
import { isInternal, notifyQueue } from '../../model/internal.ts'
import type { Logger } from '../../model/logger.ts'
import type { PauseReason, Run } from '../../model/run.ts'
import { helpForFailure, helpForPause, helpForUnsureEffect, whyAndHelp } from '../../model/standing.ts'
import type { Claim } from '../../store/store.ts'
import type { RunOrigin } from '../writing/run-origin.ts'

/** Whose stop is reported, and to whom. */
interface Reported {
  readonly claim: Claim
  readonly origin: RunOrigin
  readonly codec: Codec
  readonly log: Logger
}

/** Tells the logger that a run failed or stopped by itself, once that is on record. Other ends are as they should be. */
export function reportEnd({ claim: { run }, origin, codec, log }: Reported, events: readonly NewEvent[]): void {
  const end = events.find(({ type }) => type === 'run_failed' || type === 'run_paused')
  // What delivers messages reports by itself, with the target.
  if (end === undefined || run.queue === notifyQueue) return
  const data = (end.payload === null ? {} : codec.decode(end.payload)) as EndData
  const { error, reason } = data
  if (end.type === 'run_paused' && (reason === undefined || reason === 'asked')) return
  const step = data.step ?? pathOf(data.failed?.[0]) ?? stepOf(error)
  const help = end.type === 'run_failed' ? helpForFailed(origin, error) : helpForPause[reason as PauseReason]
  const what = end.type === 'run_failed' ? 'failed' : `is paused (${reason})`
  const why = error === undefined ? `. ${help}` : `: ${whyAndHelp(error, reason, help)}`
  const at = step === undefined ? '' : ` at "${step}"`
  log.error(`${nameOf(run)} ${what}${at}${why}`, { ...aboutRun(run, step), ...(reason && { reason }), error, help })
}

/** Tells the logger that it can't be known whether an effect happened. */
export function reportUnsureEffect(
  { claim: { run }, log }: Reported,
  { step, key, message }: { readonly step: string; readonly key: string; readonly message: string },
): void {
  const help = helpForUnsureEffect(key)
  const why = message.replace(/\.$/, '')
  log.warn(`${nameOf(run)} waits for a person: whether effect "${step}" happened is not known (${why}). ${help}`, {
    ...aboutRun(run, step),
    ...{ reason: 'person', effectKey: key, message, help },
  })
}

/** Tells the logger that a run has waited long for an effect that another one has under way. */
export function reportHangingEffect(
  { claim: { run }, log }: Reported,
  { step, key, holder }: { readonly step: string; readonly key: string; readonly holder: string },
): void {
  const help =
    `If it hangs there, (await hf.runs.get(${JSON.stringify(holder)})).cancel() leaves it unsure, and hf.resolve(${JSON.stringify(key)}, { happened }) decides; ` +
    'timeoutMs of the effect limits it.'
  log.warn(
    `${nameOf(run)} waits for effect "${step}" (key "${key}"), which run "${holder}" has had under way for over a minute. ${help}`,
    {
      ...aboutRun(run, step),
      ...{ reason: 'effect', effectKey: key, holder, help },
    },
  )
}

/** Tells the logger that a run was taken from a holder that is gone. */
export function reportTakeover({ claim: { run, takenFrom }, log }: Reported, running: readonly string[]): void {
  if (takenFrom === null || isInternal(run.workflow)) return
  const { holder, why } = takenFrom
  const steps = running.map((key) => `"${pathOf(key)}"`).join(', ')
  const because = why === 'holder_died' ? 'which is dead' : 'whose lease was over'
  const atWork =
    steps === ''
      ? 'No running step was on record.'
      : running.length === 1
        ? `Step ${steps} was running.`
        : `Steps ${steps} were running.`
  log.warn(`${nameOf(run)} was taken over from worker "${holder}", ${because}; it continues here. ${atWork}`, {
    ...aboutRun(run, pathOf(running[0])),
    ...{ reason: why, holder: holder },
  })
}

/** Tells the logger that this process lost a run that it was executing. A schedule loses nothing by it, and is lost where it is deleted. */
export function reportLoss({ claim: { run }, log }: Reported): void {
  if (isInternal(run.workflow)) return
  log.warn(
    `${nameOf(run)} is no longer held by this process: its lease was lost to another worker, or its thread was deleted. What this process did since is discarded.`,
    { ...aboutRun(run, undefined), reason: 'lease_lost' },
  )
}

/** Tells the logger that the store no longer has what it acknowledged to this process. */
export function reportForgotten({ claim: { run }, log }: Reported): void {
  log.warn(
    `${nameOf(run)} is read anew: the store has lost commits that it had acknowledged, as after a failover or a restore. Steps whose results are missing run again.`,
    { ...aboutRun(run, undefined), reason: 'commits_lost' },
  )
}

interface EndData {
  readonly reason?: PauseReason
  readonly error?: Error
  readonly step?: string
  readonly failed?: readonly string[]
}

function helpForFailed({ parent }: RunOrigin, error: Error | undefined): string {
  return parent === undefined ? helpForFailure(error) : `The error was passed to its parent, run "${parent}".`
}

function nameOf({ id, workflow, owner }: Run): string {
  return `Run "${id}"${owner === '' ? '' : ` of owner "${owner}"`} of workflow "${workflow}"`
}

function aboutRun(run: Run, step: string | undefined): Readonly<Record<string, unknown>> {
  const { id: runId, threadId, workflow, owner } = run
  return { runId, threadId, workflow, ...(owner !== '' && { owner }), ...(step !== undefined && { step }) }
}

function stepOf(error: Error | undefined): string | undefined {
  const step = (error as { details?: { step?: unknown } } | undefined)?.details?.step
  return typeof step === 'string' ? step : undefined
}

/** The path in `step:gather/fetch#2`. */
function pathOf(callKey: string | undefined): string | undefined {
  return callKey?.slice(callKey.indexOf(':') + 1, callKey.lastIndexOf('#'))
}
