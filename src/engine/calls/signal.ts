import type { WaitForOptions } from '../../define/context.ts'
import { tagSource } from '../../define/failure-source.ts'
import { HoldfastError } from '../../model/errors.ts'
import type { Execution } from '../execution/execution.ts'
import { lastPartOf } from '../replay/scope-paths.ts'
import type { Outcome } from '../replay/tape.ts'
import type { Letter } from '../waiting/run-inbox.ts'
import type { SignalWaiter } from '../waiting/signal-waiters.ts'
import type { Wait } from '../waiting/waits.ts'
import type { Call } from './calls.ts'
import { resultOf } from './step.ts'
import { timeLimit } from './time-limit.ts'
import { parkUnlessAborted, whenAborted, withdraw } from './withdrawal.ts'

/** A signal that a call has got. */
export interface ReceivedSignal<T = unknown> {
  readonly name: string
  readonly value: T
}

/**
 * Waits for a signal of one of several names: the oldest one for which no later call waits. Until a call takes it, it stays in the run's inbox,
 * so one that was sent early or while the run was down is not lost.
 */
export async function waitForSignal<T>(
  execution: Execution,
  call: Call,
  names: readonly string[],
  options: WaitForOptions<T>,
): Promise<ReceivedSignal<T>> {
  if (call.history?.outcome !== undefined) {
    const outcome = await execution.recorded(call)
    resultOf(execution, call, outcome)
    return checked(execution, call, signalOf<T>(execution, outcome, names), options)
  }
  const waiter = new Waiter(execution, call, names, options.signal)
  // In the order of the calls, before it waits for its turn.
  execution.signals.add(waiter)
  try {
    if (!execution.isOpen) await execution.pass(call)
    const again = call.history?.refused && (await takeAfterAll(execution, call, call.history.refused, names, options))
    return again ?? (await receive(execution, call, waiter, options))
  } finally {
    waiter.end()
  }
}

/** What a recorded signal brought. */
function signalOf<T>({ codec }: Execution, { payload }: Outcome, names: readonly string[]): ReceivedSignal<T> {
  const { name, result } = (payload === null ? {} : codec.decode(payload)) as { name?: string; result?: T }
  return { name: name ?? (names[0] as string), value: result as T }
}

/** The run failed of a signal, and is retried: where the schema was repaired the signal counts after all, else another is waited for. */
async function takeAfterAll<T>(
  execution: Execution,
  call: Call,
  refused: Outcome,
  names: readonly string[],
  options: WaitForOptions<T>,
): Promise<ReceivedSignal<T> | undefined> {
  const received = signalOf<T>(execution, refused, names)
  const isRepaired = await validated(execution, call, received, options).then(
    () => true,
    () => false,
  )
  if (!isRepaired) return undefined
  if (!execution.isOpen) await execution.pass(call)
  const data = refused.payload === null ? {} : (execution.codec.decode(refused.payload) as Readonly<Record<string, unknown>>)
  const event = execution.event('signal_received', call, { data: { ...data, isAgain: true } })
  await execution.commitResult([event], {})
  return checked(execution, call, received, options)
}

async function receive<T>(
  execution: Execution,
  call: Call,
  waiter: Waiter,
  options: WaitForOptions<T>,
): Promise<ReceivedSignal<T>> {
  if (options.signal?.aborted) return withdraw(execution, call, options.signal)
  const fireAt = await timeLimit(execution, call, options.timeoutMs)
  for (let isMailRead = false; ; ) {
    const letter = execution.signals.take(waiter)
    if (letter !== undefined) return checked(execution, call, await record<T>(execution, call, letter), options)
    if (options.signal?.aborted) return withdraw(execution, call, options.signal)
    // One that came in time counts, also where word of it has not reached this process yet.
    if (fireAt <= execution.now() && !isMailRead) {
      await execution.working(execution.checkMail())
      isMailRead = true
      if (!execution.isOpen) await execution.pass(call)
    } else if (fireAt <= execution.now()) {
      return timeOut(execution, call, waiter, options.timeoutMs)
    } else {
      await waiter.wait(Number.isFinite(fireAt) ? fireAt : null)
      if (!execution.isOpen) await execution.pass(call)
    }
  }
}

async function record<T>(execution: Execution, call: Call, letter: Letter): Promise<ReceivedSignal<T>> {
  const { value: result, ...rest } = (letter.payload === null ? {} : execution.codec.decode(letter.payload)) as { value?: T }
  const name = letter.name as string
  const data = {
    sentAt: letter.at,
    // Of one that a rollback has put back: when it was sent.
    ...rest,
    // Where the path of the call does not end with it, as that of several names, of which two may be the same.
    ...(lastPartOf(call.path) !== name && { name }),
    ...(result !== undefined && { result }),
  }
  await execution.commitResult([execution.event('signal_received', call, { data })], { reads: [letter.id] })
  return { name, value: result as T }
}

async function timeOut(execution: Execution, call: Call, waiter: Waiter, timeoutMs: number | undefined): Promise<never> {
  waiter.end()
  const shown = waiter.names.map((name) => `"${name}"`).join(' or ')
  const error = new HoldfastError(
    'timeout',
    `Run "${execution.runId}" waited for signal ${shown} for ${timeoutMs} ms, and none came. Catch this to continue without one; run.retry() waits for the whole time again.`,
    { details: { runId: execution.runId, signal: waiter.names.length === 1 ? waiter.names[0] : waiter.names } },
  )
  const event = execution.event('timer_fired', call, { data: { for: 'signal', error } })
  await execution.commitResult([event], { failureOf: call.key })
  throw tagSource(error, [call.key])
}

/**
 * The value as the schema has it. It is recorded as it was sent, so a schema that was repaired can take it after all. One that does not match
 * is a failure of the call.
 */
async function checked<T>(
  execution: Execution,
  call: Call,
  received: ReceivedSignal<T>,
  options: WaitForOptions<T>,
): Promise<ReceivedSignal<T>> {
  try {
    return await validated(execution, call, received, options)
  } catch (error) {
    execution.failures.hear(call.key)
    throw tagSource(error as Error, [call.key])
  }
}

async function validated<T>(
  execution: Execution,
  call: Call,
  received: ReceivedSignal<T>,
  { schema }: WaitForOptions<T>,
): Promise<ReceivedSignal<T>> {
  if (schema === undefined) return received
  return { ...received, value: await execution.validate<T>(schema, received.value, `The value of signal "${call.path}"`) }
}

class Waiter implements SignalWaiter {
  readonly names: readonly string[]
  readonly #execution: Execution
  readonly #call: Call
  readonly #signal: AbortSignal | undefined
  readonly #stopListening: (() => void) | undefined
  #wait: Wait | undefined

  constructor(execution: Execution, call: Call, names: readonly string[], signal: AbortSignal | undefined) {
    this.#execution = execution
    this.#call = call
    this.names = names
    this.#signal = signal
    // At once, so that what comes next goes to another.
    if (signal !== undefined) this.#stopListening = whenAborted(execution, signal, () => execution.signals.remove(this))
  }

  get isOver(): boolean {
    return this.#call.within?.isOver === true || this.#signal?.aborted === true
  }

  async wait(dueAt: number | null): Promise<void> {
    this.#wait = { dueAt, reason: 'signal' }
    await parkUnlessAborted(this.#execution, this.#wait, this.#signal)
  }

  wake(): void {
    if (this.#wait !== undefined) this.#execution.wake(this.#wait)
  }

  end(): void {
    this.#stopListening?.()
    this.#execution.signals.remove(this)
  }
}
