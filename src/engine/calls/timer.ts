import { HoldfastError } from '../../model/errors.ts'
import { restoreAdvice } from '../../model/restore-advice.ts'
import type { CallHost } from '../execution/call-host.ts'
import { never } from '../execution/never.ts'
import type { CallHistory } from '../replay/tape.ts'
import type { Call } from './calls.ts'
import { resultOf } from './recorded-result.ts'
import { parkUnlessAborted, withdraw } from './withdrawal.ts'

/** `ctx.sleep`: waits until a time that is recorded first. */
export async function sleep(host: CallHost, call: Call, duration: number | Date, signal: AbortSignal | undefined): Promise<void> {
  // Refused before it waits for its turn: nothing of it is on the tape.
  fireTime(duration, host.clock.now())
  const history = call.history?.isOptional && isOtherSleep(call.history, duration) ? undefined : call.history
  const { ms } = history ?? {}
  if (ms !== undefined && ms !== duration) return pauseOnOtherSleep(host, call, ms, duration)
  if (history?.outcome !== undefined) return resultOf(host, call, await host.admission.recorded(call))
  if (!host.admission.isOpen) await host.admission.pass(call)
  if (signal?.aborted) return withdraw(host, call, signal)
  let fireAt = history?.fireAt
  if (fireAt === undefined) {
    fireAt = fireTime(duration, host.clock.now())
    await host.journal.commit(
      [host.journal.event('timer_set', call, { data: { fireAt, ...(typeof duration === 'number' && { ms: duration }) } })],
      { hasProgress: true },
    )
  }
  if (fireAt > host.clock.now()) await parkUnlessAborted(host, { dueAt: fireAt, reason: 'timer' }, signal)
  if (!host.admission.isOpen) await host.admission.pass(call)
  if (signal?.aborted && fireAt > host.clock.now()) return withdraw(host, call, signal)
  await host.journal.commitResult([host.journal.event('timer_fired', call)], {})
}

/** Earlier logs do not have the length. */
function isOtherSleep({ ms, fireAt }: CallHistory, duration: number | Date): boolean {
  return typeof duration === 'number' ? ms !== undefined && ms !== duration : ms !== undefined || fireAt !== duration.getTime()
}

function pauseOnOtherSleep(host: CallHost, call: Call, recordedMs: number, asked: number | Date): Promise<never> {
  const { runId } = host.run
  const shown = typeof asked === 'number' ? `${asked} ms` : `until ${asked.toISOString()}`
  host.stopping.mismatch(
    new HoldfastError(
      'nondeterminism',
      `Sleep ${call.count} ("${call.path}") of run "${runId}" was recorded as ${recordedMs} ms; the function sleeps ${shown} now. ` +
        `Use ctx.now() for the time. ${restoreAdvice(host.run.workflow)}`,
      {
        details: { runId, step: call.path, recorded: [recordedMs], asked: [typeof asked === 'number' ? asked : asked.getTime()] },
      },
    ),
  )
  return never()
}

function fireTime(duration: number | Date, now: number): number {
  const fireAt = duration instanceof Date ? duration.getTime() : now + duration
  // The range of Date, in ms.
  if (!Number.isFinite(fireAt) || Math.abs(fireAt) > 8.64e15) {
    throw new HoldfastError('invalid_input', `ctx.sleep takes milliseconds or a valid Date, not ${String(duration)}`)
  }
  return Math.round(fireAt)
}
