import { tagSource } from '../../define/failure-source.ts'
import { reviveError } from '../../model/stored-error.ts'
import type { CallHost } from '../execution/call-host.ts'
import type { Outcome } from '../replay/tape.ts'
import type { Call } from './calls.ts'

/** The value of a recorded outcome, or the recorded failure thrown again. */
export function resultOf<T>(host: CallHost, call: Call, outcome: Outcome): T {
  const data = outcome.payload === null ? {} : (host.run.codec.decode(outcome.payload) as { result?: T; error?: Error })
  if (!outcome.isFailure) return data.result as T
  if (outcome.isWithdrawn === true) throw reviveError(data.error as Error)
  throw tagSource(reviveError(data.error as Error), [call.key])
}
