import { codeOf, HoldfastError } from '../../model/errors.ts'
import { stepDeathLimit } from '../../model/run.ts'
import type { CallHost } from '../execution/call-host.ts'
import type { Outcome } from '../replay/tape.ts'
import type { Call } from './calls.ts'
import { settleFailure } from './failure-policy.ts'

/** The error of a step that was running at too many deaths of its worker; null if it may be tried. */
export function deathOf({ run: { runId } }: CallHost, call: Call): HoldfastError | null {
  if ((call.history?.deaths ?? 0) < stepDeathLimit) return null
  return new HoldfastError(
    'worker_died',
    `Step "${call.path}" of run "${runId}" lost its worker ${stepDeathLimit} times and is not executed again. ` +
      'Give it a fallback, or find out why the process dies (out of memory?).',
    { details: { runId, step: call.path } },
  )
}

/** Whether a recorded failure says that: its body was not entered for it. */
export function isOwnDeath({ run: { codec, runId } }: CallHost, call: Call, { payload }: Outcome): boolean {
  const { error } = (payload === null ? {} : codec.decode(payload)) as { error?: Partial<HoldfastError> }
  return codeOf(error) === 'worker_died' && error?.details?.['runId'] === runId && error.details['step'] === call.path
}

/** For a step without policies of its own: fails it for good when it was running at too many deaths of its worker. */
export async function refuseDeadly(host: CallHost, call: Call): Promise<void> {
  const error = deathOf(host, call)
  if (error === null) return
  const attempt = (call.history?.failures ?? 0) + 1
  await settleFailure(host, call, { error, attempt, durationMs: null }, { delayMs: null, hasFallback: false })
}
