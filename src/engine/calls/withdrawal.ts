import type { Withdrawable } from '../../define/context.ts'
import { HoldfastError } from '../../model/errors.ts'
import type { Payload } from '../../model/payload.ts'
import { reviveError, toStorableError } from '../../model/stored-error.ts'
import type { CallHost } from '../execution/call-host.ts'
import { defaultQuietMs, longestQuietMs } from '../waiting/quiet-times.ts'
import type { Wait } from '../waiting/waits.ts'
import type { Call } from './calls.ts'

/**
 * A wait may be withdrawn through an abort signal of the function's own. It takes nothing from the moment on at which the signal is aborted, and
 * rejects with the signal's reason. That is an outcome on the tape: a replay hands it out in its turn, whether the signal is aborted by then or not.
 * After a crash before the record the function aborts the signal again, or did not come to it: then the call waits as before.
 */

/** Waits until the wait is over or the signal is aborted. */
export function parkUnlessAborted(host: CallHost, wait: Wait, signal: AbortSignal | undefined): Promise<void> {
  return signal === undefined ? host.suspension.park(wait) : parkUntilAborted(host, wait, signal)
}

async function parkUntilAborted(host: CallHost, wait: Wait, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return
  const stop = whenAborted(host, signal, () => host.suspension.wake(wait))
  try {
    await host.suspension.park(wait)
  } finally {
    stop()
  }
}

/**
 * Calls back when the signal is aborted, until that is stopped or the execution has ended: a wait of a run that was persisted never ends, and the
 * signal may be one that lives as long as the process.
 */
export function whenAborted(host: CallHost, signal: AbortSignal, callBack: () => void): () => void {
  const stops = listening.get(host) ?? stopAtEnd(host)
  const stop = () => {
    stops.delete(stop)
    signal.removeEventListener('abort', callBack)
  }
  stops.set(stop, signal)
  signal.addEventListener('abort', callBack, { once: true })
  return stop
}

/** For how many quiet times the function of a run that was persisted is listened to. */
const lateQuietTimes = 60

/** What ends listening, and to which signal, of executions whose functions have given signals. */
const listening = new WeakMap<CallHost, Map<() => void, AbortSignal>>()

function stopAtEnd(host: CallHost): Map<() => void, AbortSignal> {
  const stops = new Map<() => void, AbortSignal>()
  listening.set(host, stops)
  void host.stopping.ended.then(() => {
    const signals = new Set(stops.values())
    for (const stop of [...stops.keys()]) stop()
    if (host.admission.isSuspended) for (const signal of signals) hearLate(host, signal)
  })
  return stops
}

/**
 * The function of a run that was persisted as waiting aborts the signal of a wait: it was at work (E6). It is not listened to for ever: the signal
 * may be one that lives as long as the process, and past the longest quiet time no other execution would hear it either.
 */
function hearLate(host: CallHost, signal: AbortSignal): void {
  const notice = () => {
    clearTimeout(timer)
    void host.admission.cameTooLate()
  }
  const quietMs = host.run.engine.quietTimes.quietMs || defaultQuietMs
  const timer = setTimeout(
    () => signal.removeEventListener('abort', notice),
    Math.min(longestQuietMs, lateQuietTimes * quietMs),
  ).unref()
  if (signal.aborted) notice()
  else signal.addEventListener('abort', notice, { once: true })
}

/** Records that a call was withdrawn, and throws the reason. */
export async function withdraw(host: CallHost, call: Call, signal: AbortSignal): Promise<never> {
  const error = toStorableError(signal.reason)
  const event = host.journal.event('wait_withdrawn', call, { data: { for: call.kind, error } })
  // No failure of the run's: the function asked for it, and a retry has nothing to reopen.
  await host.journal.commitResult([event], {})
  throw reviveError((host.run.codec.decode(event.payload as Payload) as { error: Error }).error)
}

export function checkWithdrawable(what: string, options: Withdrawable): void {
  const { signal } = options ?? {}
  if (signal === undefined || (typeof signal === 'object' && signal !== null && 'aborted' in signal)) return
  throw new HoldfastError('invalid_input', `The signal of ${what} must be an AbortSignal, as an AbortController has it.`)
}
