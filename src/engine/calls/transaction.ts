import { HoldfastError } from '../../model/errors.ts'
import type { Payload } from '../../model/payload.ts'
import type { SqlTransaction } from '../../store/store.ts'
import type { CallHost } from '../execution/call-host.ts'
import type { Call } from './calls.ts'
import { failureEvent, throwFailure } from './failure-policy.ts'
import { resultOf } from './recorded-result.ts'
import { refuseDeadly } from './step-deaths.ts'

const transactionMs = 5_000

/**
 * A step whose body writes the user's own tables, in the same transaction as its checkpoint: it takes effect exactly once.
 * A throw rolls everything back and is the step's final failure.
 */
export async function runTransaction<T>(host: CallHost, call: Call, body: (tx: SqlTransaction) => Promise<T> | T): Promise<T> {
  if (call.history?.outcome !== undefined) return resultOf<T>(host, call, await host.admission.recorded(call))
  if (!host.admission.isOpen) await host.admission.pass(call)
  await refuseDeadly(host, call)
  const attempt = (call.history?.failures ?? 0) + 1
  const started = performance.now()
  const elapsed = () => Math.round(performance.now() - started)
  const start = host.journal.event('step_started', call, { attempt })
  // After a death it is durable before the body begins; otherwise it belongs to the transaction.
  const begun = host.journal.mustRecordStarts ? [] : [start]
  let result: { value: T; payload: Payload | null } | undefined
  host.activity.begin(call)
  try {
    if (begun.length === 0) {
      host.journal.defer(start)
      await host.journal.commit([], {})
    }
    await host.journal.transact(transactionMs, async (tx) => {
      const value = await host.calls.inBody(call.path, async () => body(tx))
      const data = value === undefined ? {} : { data: { result: value } }
      const completed = host.journal.event('step_completed', call, { attempt, durationMs: elapsed(), ...data })
      result = { value, payload: completed.payload }
      return [...begun, completed]
    })
  } catch (error) {
    host.admission.throwIfEnded()
    const failed = failureEvent(host, call, { error, final: true, next: 'throw' }, attempt, elapsed())
    return await throwFailure(host, call, [...begun, failed])
  } finally {
    host.activity.end(call)
  }
  if (result === undefined)
    throw new HoldfastError('conflict', `Transaction "${call.path}" of run "${host.run.runId}" left no result.`)
  return result.payload === null ? result.value : (host.run.codec.decode(result.payload) as { result: T }).result
}
