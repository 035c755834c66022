import { HoldfastError } from '../model/errors.ts'
import { blame } from './blame.ts'
import type { Call } from './calls.ts'
import type { WaitForOptions } from './context.ts'
import type { Execution } from './execution.ts'
import { resultOf } from './step-runner.ts'
import { timeLimit } from './time-limit.ts'

/**
 * Waits for a signal: the oldest one of its name that no earlier call took. Until a call takes it, it stays in the run's inbox,
 * so one that was sent early or while the run was down is not lost.
 */
export async function waitForSignal<T>(execution: Execution, call: Call, name: string, options: WaitForOptions<T>): Promise<T> {
  if (call.history?.outcome !== undefined)
    return checked(execution, resultOf<T>(execution, call, await execution.recorded(call)), call, options)
  if (!execution.isOpen) await execution.pass(call)
  const fireAt = await timeLimit(execution, call, options.timeoutMs)
  for (let isMailRead = false; ; ) {
    const letter = execution.mailbox.takeSignal(name)
    if (letter !== undefined) {
      const { value: result, ...rest } = (letter.payload === null ? {} : execution.codec.decode(letter.payload)) as { value?: T }
      const data = { ...rest, ...(result !== undefined && { result }), sentAt: letter.at }
      await execution.commitResult([execution.event('signal_received', call, { data })], { reads: [letter.id] })
      return checked(execution, result as T, call, options)
    }
    // One that came in time counts, also where word of it has not reached this process yet.
    if (fireAt <= execution.now() && !isMailRead) {
      await execution.working(execution.checkMail())
      isMailRead = true
      if (!execution.isOpen) await execution.pass(call)
    } else if (fireAt <= execution.now()) {
      const error = new HoldfastError(
        'timeout',
        `Run "${execution.runId}" waited for signal "${name}" for ${options.timeoutMs} ms, and none came. Send one with hf.signal, or catch this.`,
        { details: { runId: execution.runId, signal: name } },
      )
      const event = execution.event('timer_fired', call, { data: { for: 'signal', error } })
      await execution.commitResult([event], { failureOf: call.key })
      throw blame(error, [call.key])
    } else {
      await execution.park({ dueAt: Number.isFinite(fireAt) ? fireAt : null, reason: 'signal', wakesOnMail: true })
      if (!execution.isOpen) await execution.pass(call)
    }
  }
}

/** The value as the schema has it. It is recorded as it was sent, so a schema that was repaired can take it after all. */
async function checked<T>(execution: Execution, value: T, call: Call, { schema }: WaitForOptions<T>): Promise<T> {
  return schema === undefined ? value : execution.validate<T>(schema, value, `The value of signal "${call.path}"`)
}
