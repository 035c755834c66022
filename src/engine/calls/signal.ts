import type { WaitForOptions } from '../../define/context.ts'
import { tagSource } from '../../define/failure-source.ts'
import { HoldfastError } from '../../model/errors.ts'
import type { CallHost } from '../execution/call-host.ts'
import { lastPartOf } from '../replay/call-key.ts'
import type { Outcome } from '../replay/tape.ts'
import type { KeptMessage } from '../waiting/run-inbox.ts'
import type { SignalWaiter } from '../waiting/signal-waiters.ts'
import type { Wait } from '../waiting/waits.ts'
import type { Call } from './calls.ts'
import { resultOf } from './recorded-result.ts'
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
  host: CallHost,
  call: Call,
  names: readonly string[],
  options: WaitForOptions<T>,
): Promise<ReceivedSignal<T>> {
  if (call.history?.outcome !== undefined) {
    const outcome = await host.admission.recorded(call)
    resultOf(host, call, outcome)
    return checked(host, call, signalOf<T>(host, outcome, names), options)
  }
  const waiter = new Waiter(host, call, names, options.signal)
  // In the order of the calls, before it waits for its turn.
  host.inbox.signals.add(waiter)
  try {
    if (!host.admission.isOpen) await host.admission.pass(call)
    const again = call.history?.refused && (await takeAfterAll(host, call, call.history.refused, names, options))
    return again ?? (await receive(host, call, waiter, options))
  } finally {
    waiter.end()
  }
}

/** What a recorded signal brought. */
function signalOf<T>({ run: { codec } }: CallHost, { payload }: Outcome, names: readonly string[]): ReceivedSignal<T> {
  const { name, result } = (payload === null ? {} : codec.decode(payload)) as { name?: string; result?: T }
  return { name: name ?? (names[0] as string), value: result as T }
}

/** The run failed of a signal, and is retried: where the schema was repaired the signal counts after all, else another is waited for. */
async function takeAfterAll<T>(
  host: CallHost,
  call: Call,
  refused: Outcome,
  names: readonly string[],
  options: WaitForOptions<T>,
): Promise<ReceivedSignal<T> | undefined> {
  const received = signalOf<T>(host, refused, names)
  const isRepaired = await validated(host, call, received, options).then(
    () => true,
    () => false,
  )
  if (!isRepaired) return undefined
  if (!host.admission.isOpen) await host.admission.pass(call)
  const data = refused.payload === null ? {} : (host.run.codec.decode(refused.payload) as Readonly<Record<string, unknown>>)
  const event = host.journal.event('signal_received', call, { data: { ...data, isAgain: true } })
  await host.journal.commitResult([event], {})
  return checked(host, call, received, options)
}

async function receive<T>(host: CallHost, call: Call, waiter: Waiter, options: WaitForOptions<T>): Promise<ReceivedSignal<T>> {
  if (options.signal?.aborted) return withdraw(host, call, options.signal)
  const fireAt = await timeLimit(host, call, options.timeoutMs)
  for (let isInboxRead = false; ; ) {
    const message = host.inbox.signals.take(waiter)
    if (message !== undefined) return checked(host, call, await record<T>(host, call, message), options)
    if (options.signal?.aborted) return withdraw(host, call, options.signal)
    // One that came in time counts, also where this process was not told of it yet.
    if (fireAt <= host.clock.now() && !isInboxRead) {
      await host.activity.working(host.inbox.check())
      isInboxRead = true
      if (!host.admission.isOpen) await host.admission.pass(call)
    } else if (fireAt <= host.clock.now()) {
      return timeOut(host, call, waiter, options.timeoutMs)
    } else {
      await waiter.wait(Number.isFinite(fireAt) ? fireAt : null)
      if (!host.admission.isOpen) await host.admission.pass(call)
    }
  }
}

async function record<T>(host: CallHost, call: Call, message: KeptMessage): Promise<ReceivedSignal<T>> {
  const { value: result, ...rest } = (message.payload === null ? {} : host.run.codec.decode(message.payload)) as {
    value?: T
  }
  const name = message.name as string
  const data = {
    sentAt: message.at,
    // Of one that a rollback has put back: when it was sent.
    ...rest,
    // Where the path of the call does not end with it, as that of several names, of which two may be the same.
    ...(lastPartOf(call.path) !== name && { name }),
    ...(result !== undefined && { result }),
  }
  await host.journal.commitResult([host.journal.event('signal_received', call, { data })], { reads: [message.id] })
  return { name, value: result as T }
}

async function timeOut(host: CallHost, call: Call, waiter: Waiter, timeoutMs: number | undefined): Promise<never> {
  waiter.end()
  const shown = waiter.names.map((name) => `"${name}"`).join(' or ')
  const error = new HoldfastError(
    'timeout',
    `Run "${host.run.runId}" waited for signal ${shown} for ${timeoutMs} ms, and none came. Catch this to continue without one; run.retry() waits for the whole time again.`,
    { details: { runId: host.run.runId, signal: waiter.names.length === 1 ? waiter.names[0] : waiter.names } },
  )
  const event = host.journal.event('timer_fired', call, { data: { for: 'signal', error } })
  await host.journal.commitResult([event], { failureOf: call.key })
  throw tagSource(error, [call.key])
}

/**
 * The value as the schema has it. It is recorded as it was sent, so a schema that was repaired can take it after all. One that does not match
 * is a failure of the call.
 */
async function checked<T>(
  host: CallHost,
  call: Call,
  received: ReceivedSignal<T>,
  options: WaitForOptions<T>,
): Promise<ReceivedSignal<T>> {
  try {
    return await validated(host, call, received, options)
  } catch (error) {
    host.failures.hear(call.key)
    throw tagSource(error as Error, [call.key])
  }
}

async function validated<T>(
  host: CallHost,
  call: Call,
  received: ReceivedSignal<T>,
  { schema }: WaitForOptions<T>,
): Promise<ReceivedSignal<T>> {
  if (schema === undefined) return received
  return {
    ...received,
    value: await host.activity.validate<T>(schema, received.value, `The value of signal "${call.path}"`),
  }
}

class Waiter implements SignalWaiter {
  readonly names: readonly string[]
  readonly #host: CallHost
  readonly #call: Call
  readonly #signal: AbortSignal | undefined
  readonly #stopListening: (() => void) | undefined
  #wait: Wait | undefined

  constructor(host: CallHost, call: Call, names: readonly string[], signal: AbortSignal | undefined) {
    this.#host = host
    this.#call = call
    this.names = names
    this.#signal = signal
    // At once, so that what comes next goes to another.
    if (signal !== undefined) this.#stopListening = whenAborted(host, signal, () => host.inbox.signals.remove(this))
  }

  get isOver(): boolean {
    return this.#call.within?.isOver === true || this.#signal?.aborted === true
  }

  async wait(dueAt: number | null): Promise<void> {
    this.#wait = { dueAt, reason: 'signal' }
    await parkUnlessAborted(this.#host, this.#wait, this.#signal)
  }

  wake(): void {
    if (this.#wait !== undefined) this.#host.suspension.wake(this.#wait)
  }

  end(): void {
    this.#stopListening?.()
    this.#host.inbox.signals.remove(this)
  }
}
