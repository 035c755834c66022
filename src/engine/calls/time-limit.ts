import { checkMs } from '../../model/duration.ts'
import { HoldfastError } from '../../model/errors.ts'
import type { CallHost } from '../execution/call-host.ts'
import type { Call } from './calls.ts'

/** Store time at which a wait is over. Recorded when it is first set, so that it does not begin anew with every execution. */
export async function timeLimit(host: CallHost, call: Call, timeoutMs: number | undefined): Promise<number> {
  if (call.history?.fireAt !== undefined) return call.history.fireAt
  if (timeoutMs === undefined) return Number.POSITIVE_INFINITY
  checkMs(`timeoutMs of "${call.path}"`, timeoutMs)
  if (!(timeoutMs <= 8.64e15)) {
    throw new HoldfastError(
      'invalid_input',
      `timeoutMs of "${call.path}" is ${String(timeoutMs)}; it must be a number of milliseconds from 0.`,
    )
  }
  const fireAt = Math.round(host.clock.now() + timeoutMs)
  await host.journal.commit([host.journal.event('timer_set', call, { data: { fireAt, for: call.kind } })], { hasProgress: true })
  return fireAt
}
