import { tagSource } from '../../define/failure-source.ts'
import { HoldfastError } from '../../model/errors.ts'
import type { Payload } from '../../model/payload.ts'
import { reviveError } from '../../model/stored-error.ts'
import type { SqlTransaction } from '../../store/store.ts'
import type { Execution } from '../execution/execution.ts'
import type { Call } from './calls.ts'
import { failureEvent, refuseDeadly, resultOf } from './step.ts'

const transactionMs = 5_000

/**
 * A step whose body writes the user's own tables, in the same transaction as its checkpoint: it takes effect exactly once.
 * A throw rolls everything back and is the step's final failure.
 */
export async function runTransaction<T>(
  execution: Execution,
  call: Call,
  body: (tx: SqlTransaction) => Promise<T> | T,
): Promise<T> {
  if (call.history?.outcome !== undefined) return resultOf<T>(execution, call, await execution.recorded(call))
  if (!execution.isOpen) await execution.pass(call)
  await refuseDeadly(execution, call)
  const attempt = (call.history?.failures ?? 0) + 1
  const started = performance.now()
  const elapsed = () => Math.round(performance.now() - started)
  const start = execution.event('step_started', call, { attempt })
  // After a death it is durable before the body begins; otherwise it belongs to the transaction.
  const begun = execution.mustRecordStarts ? [] : [start]
  let result: { value: T; payload: Payload | null } | undefined
  execution.begin(call)
  try {
    if (begun.length === 0) {
      execution.ride(start)
      await execution.commit([], {})
    }
    await execution.transact(transactionMs, async (tx) => {
      const value = await execution.calls.inBody(call.path, async () => body(tx))
      const data = value === undefined ? {} : { data: { result: value } }
      const completed = execution.event('step_completed', call, { attempt, durationMs: elapsed(), ...data })
      result = { value, payload: completed.payload }
      return [...begun, completed]
    })
  } catch (error) {
    execution.throwIfEnded()
    const failed = failureEvent(execution, call, { error, final: true, next: 'throw' }, attempt, elapsed())
    await execution.commitResult([...begun, failed], { failureOf: call.key })
    throw tagSource(reviveError((execution.codec.decode(failed.payload as Payload) as { error: Error }).error), [call.key])
  } finally {
    execution.end(call)
  }
  if (result === undefined)
    throw new HoldfastError('conflict', `Transaction "${call.path}" of run "${execution.runId}" left no result.`)
  return result.payload === null ? result.value : (execution.codec.decode(result.payload) as { result: T }).result
}
