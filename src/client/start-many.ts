import type { Core } from '../control/core.ts'
import type { AnyWorkflow, GivenTo, InputProperty } from '../define/workflow.ts'
import { refuseStartInFunction } from '../engine/calls/calls.ts'
import { codeOf, HoldfastError } from '../model/errors.ts'
import { checkOwner } from '../model/ids.ts'
import { refuseUnknownOptions } from '../model/known-options.ts'
import type { Run } from '../model/run.ts'
import type { NewRun } from '../store/change.ts'
import { acceptStart, prepareStart, type StartOptions, startChange } from './start-run.ts'

/** One of many runs to start: what `start` takes. */
export type StartRequest<W extends AnyWorkflow | string = AnyWorkflow | string> = {
  readonly workflow: W
  readonly options?: Omit<StartOptions, 'tx'> & { readonly owner?: string }
} & InputProperty<GivenTo<W>>

/** A request for each of the workflows, in order. */
export type StartRequests<Workflows extends readonly (AnyWorkflow | string)[]> = {
  readonly [Index in keyof Workflows]: StartRequest<Workflows[Index]>
}

/** Runs that are prepared in one go, before the event loop continues. */
const partSize = 250

/**
 * Starts many runs in few writes, each independently of the others. If some could not be started, one error says which, with the code of
 * the first; the others were started.
 */
export async function startMany(core: Core, owner: string, requests: readonly StartRequest[]): Promise<Run[]> {
  refuseStartInFunction()
  if (!Array.isArray(requests))
    throw new HoldfastError('invalid_input', 'startMany takes an array of { workflow, input, options }.')
  const at = requests.length === 0 ? 0 : await core.now()
  const starts: Promise<Run>[] = []
  for (const [index, request] of requests.entries()) {
    const start = startOne(core, owner, request, at)
    // Awaited below, with all others.
    start.catch(() => {})
    starts.push(start)
    if (index % partSize === partSize - 1) {
      await core.committer.room()
      await new Promise((resolve) => setImmediate(resolve))
    }
  }
  const outcomes = await Promise.allSettled(starts)
  const failures = outcomes.flatMap((outcome, index) => (outcome.status === 'rejected' ? [{ index, error: outcome.reason }] : []))
  const runs = outcomes.flatMap((outcome) => (outcome.status === 'fulfilled' ? [outcome.value] : []))
  if (failures.length > 0) throw notAll(failures, runs, requests.length)
  return runs
}

async function startOne(core: Core, owner: string, request: StartRequest, at: number): Promise<Run> {
  refuseUnknownOptions('A request to startMany', request, { workflow: true, input: true, options: true })
  const { workflow, input, options = {} } = request
  if ('tx' in options)
    throw new HoldfastError('invalid_input', 'startMany takes no tx. Inside your own transaction, start runs one by one.')
  const whose = options.owner === undefined ? owner : checkOwner(options.owner)
  const newRun: NewRun = await prepareStart(core, whose, workflow, input, options, at)
  return acceptStart(core, newRun, await core.committer.commit(startChange(newRun)), options)
}

function whichNot(failed: number, count: number): string {
  if (failed === count) return count === 1 ? 'The run was not started' : `None of the ${count} runs was started`
  return `${failed} of ${count} runs ${failed === 1 ? 'was' : 'were'} not started, the others were`
}

function notAll(failures: readonly { index: number; error: unknown }[], runs: readonly Run[], count: number): HoldfastError {
  const [first] = failures
  const shown = failures.slice(0, 5).map(({ index, error }) => `[${index}] ${messageOf(error)}`)
  const more = failures.length > shown.length ? ` And ${failures.length - shown.length} more, in details.failures.` : ''
  return new HoldfastError(
    codeOf(first?.error) ?? 'invalid_input',
    `${whichNot(failures.length, count)}: ${shown.join(' ')}${more}`,
    {
      cause: first?.error,
      retryable: failures.every(({ error }) => error instanceof HoldfastError && error.retryable),
      details: {
        failures: failures.map(({ index, error }) => ({ index, code: codeOf(error) ?? null, message: messageOf(error) })),
        startedIds: runs.map(({ id }) => id),
      },
    },
  )
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
