import type { AskOptions } from '../../define/context.ts'
import { tagSource } from '../../define/failure-source.ts'
import { type Asking, newAskingId } from '../../model/asking.ts'
import { fingerprint } from '../../model/codec.ts'
import { HoldfastError } from '../../model/errors.ts'
import { isOpen, type Operation } from '../../model/operation.ts'
import { toStorableError } from '../../model/stored-error.ts'
import type { CallHost } from '../execution/call-host.ts'
import { never } from '../execution/never.ts'
import { wakeUpKeyOf } from '../waiting/run-inbox.ts'
import type { Wait } from '../waiting/waits.ts'
import { isOutage } from '../writing/committer.ts'
import type { Call } from './calls.ts'
import { resultOf } from './recorded-result.ts'
import { timeLimit } from './time-limit.ts'
import { parkUnlessAborted, withdraw } from './withdrawal.ts'

/** How often a run in memory looks whether it was answered, besides being told. */
const lookAgainMs = 5_000

/** What the operation's result says. */
export interface Answer {
  readonly value?: unknown
  readonly by?: string
  readonly at: number
  /** It is the question's default: there was no answer in time. */
  readonly via?: 'default'
}

/**
 * Asks a person and waits. Each asking is an operation of its own, opened by the write that asks: the first to resolve it has
 * answered, everybody after gets `already_answered`, inside the store. A question that is put again is another asking.
 */
export async function askPerson<T>(host: CallHost, call: Call, options: AskOptions<T>): Promise<T> {
  const shown = fingerprint([options.question, options.to])
  const asked = call.history?.begun?.data as Asking | undefined
  if (asked !== undefined && asked.shown !== shown) return pauseOnOtherQuestion(host, call)
  const question = new Question<T>(host, call, options, shown)
  if (call.history?.outcome !== undefined) return resultOf<T>(host, call, await host.admission.recorded(call))
  // Before it waits for its turn: a run that is taken up to be cancelled never gets there.
  if (call.history?.begun !== undefined) question.open(call.history.begun.seq)
  if (!host.admission.isOpen) await host.admission.pass(call)
  return question.carryOut()
}

class Question<T> {
  readonly #host: CallHost
  readonly #call: Call
  readonly #options: AskOptions<T>
  readonly #shown: string
  /** Of the last asking; empty before the first. */
  #id: string

  constructor(host: CallHost, call: Call, options: AskOptions<T>, shown: string) {
    this.#host = host
    this.#call = call
    this.#options = options
    this.#shown = shown
    this.#id = (call.history?.begun?.data as Asking | undefined)?.key ?? ''
  }

  async carryOut(): Promise<T> {
    const host = this.#host
    const { signal } = this.#options
    if (this.#id === '') {
      if (signal?.aborted) return withdraw(host, this.#call, signal)
      await this.#ask()
    }
    this.#tellSchema()
    const fireAt = await timeLimit(host, this.#call, this.#options.timeoutMs)
    for (;;) {
      const wakeUpKey = wakeUpKeyOf('answer', this.#id)
      const wakeUpCount = host.inbox.messages.wakeUpCount(wakeUpKey)
      host.inbox.messages.settle(host.inbox.messages.takeWakeUps(wakeUpKey))
      const operation = await this.#read()
      // Version 0.1 asked in two writes: its holder died between them.
      if (operation?.status === 'intended') await host.journal.tryOperation({ kind: 'doubt', key: this.#id })
      else if (signal?.aborted && operation !== null && operation.status !== 'completed') {
        // One that was answered first has its answer.
        if (isOpen(operation.status) && !(await host.journal.tryOperation({ kind: 'fail', key: this.#id }))) continue
        this.#settled()
        return withdraw(host, this.#call, signal)
      } else if (operation !== null && !isOpen(operation.status)) {
        const answer = await this.#take(operation)
        if (answer !== null) return answer.value
        continue
      } else if (operation !== null && fireAt <= host.clock.now()) {
        if (await this.#giveUp()) continue
      }
      // Answered while this looked: it looks again.
      if (host.inbox.messages.wakeUpCount(wakeUpKey) !== wakeUpCount) continue
      const lookAgainAt = host.clock.now() + lookAgainMs
      const wait: Wait = {
        dueAt: Math.min(fireAt, lookAgainAt),
        rowDueAt: operation === null ? Math.min(fireAt, lookAgainAt) : fireAt,
        reason: 'person',
        wakeUpKeys: [wakeUpKey],
      }
      // One that could not be withdrawn yet, because the store is out of reach, is tried again in a while.
      await (operation === null ? host.suspension.park(wait) : parkUnlessAborted(host, wait, signal))
      if (!host.admission.isOpen) await host.admission.pass(this.#call)
    }
  }

  /** From here on it ends with the run. */
  open(seq: number): void {
    this.#host.dependents.question(this.#call.key, this.#id, seq)
  }

  /** Asks, under an id of its own, in one write. */
  async #ask(problem?: string): Promise<void> {
    const { question, to } = this.#options
    const host = this.#host
    host.run.engine.questions.delete(host.run.owner, this.#id)
    this.#id = newAskingId()
    const data: Asking = {
      key: this.#id,
      question,
      shown: this.#shown,
      ...(to !== undefined && { to }),
      ...(problem !== undefined && { problem }),
    }
    const event = host.journal.event('question_asked', this.#call, { data: { ...data } })
    // First, so that it also ends with a run that is cancelled while this is written.
    this.open(Number.MAX_SAFE_INTEGER)
    const operation = { kind: 'ask', key: this.#id, name: this.#call.path } as const
    const { lastSeq } = await host.journal.commit([event], { operation, hasProgress: true })
    this.open(lastSeq)
    host.admission.throwIfEnded()
    this.#tellSchema()
  }

  #tellSchema(): void {
    const { schema } = this.#options
    if (schema !== undefined) this.#host.run.engine.questions.add(this.#host.run.owner, this.#id, schema)
  }

  async #read(): Promise<Operation | null> {
    const { store, owner } = this.#host.run
    const reading = store.readOperation({ owner, key: this.#id }).catch((error: unknown) => {
      if (!isOutage(error)) throw error
      // Out of reach for now: it is looked at again.
      return null
    })
    return this.#host.activity.working(reading)
  }

  /** The answer, recorded; null when it does not fit and the question was put again. */
  async #take(operation: Operation): Promise<{ readonly value: T } | null> {
    const host = this.#host
    if (operation.status !== 'completed') {
      await this.#ask()
      return null
    }
    const answer = (operation.result === null ? { at: host.clock.now() } : host.run.codec.decode(operation.result)) as Answer
    let value = answer.value as T
    try {
      if (this.#options.schema !== undefined && answer.via === undefined)
        value = await host.activity.validate<T>(this.#options.schema, value, `The answer to "${this.#call.path}"`)
    } catch (error) {
      await this.#ask(toStorableError(error).message)
      return null
    }
    const { at, by, via } = answer
    const data = {
      ...{ key: this.#id, answeredAt: at, shown: this.#shown },
      ...(value !== undefined && { result: value }),
      ...(by !== undefined && { by }),
      ...(via !== undefined && { via }),
    }
    const event = host.journal.event('question_answered', this.#call, { data })
    this.#call.resultSeq = await host.journal.commitResult([event], {})
    this.#settled()
    host.undos.addAnswer(this.#call.resultSeq, this.#id)
    return { value: (host.run.codec.decode(event.payload ?? host.run.codec.encode({})) as { result?: T }).result as T }
  }

  /** There was no answer in time. False: there was one after all. */
  async #giveUp(): Promise<boolean> {
    const host = this.#host
    if ('default' in this.#options) {
      const answer: Answer = { value: this.#options.default, at: host.clock.now(), via: 'default' }
      await host.journal.tryOperation({ kind: 'complete', key: this.#id, result: host.run.codec.encode(answer) })
      return true
    }
    if (!(await host.journal.tryOperation({ kind: 'fail', key: this.#id }))) return true
    const error = new HoldfastError(
      'timeout',
      `Question "${this.#call.path}" of run "${host.run.runId}" was not answered within ${this.#options.timeoutMs} ms. Give it a default, or catch this error; run.retry() asks again.`,
      { details: { runId: host.run.runId, step: this.#call.path } },
    )
    const event = host.journal.event('timer_fired', this.#call, { data: { for: 'question', error } })
    this.#settled()
    await host.journal.commitResult([event], { failureOf: this.#call.key })
    throw tagSource(error, [this.#call.key])
  }

  #settled(): void {
    this.#host.dependents.settled(this.#call.key)
    this.#host.run.engine.questions.delete(this.#host.run.owner, this.#id)
  }
}

/** An approval of something else is none. */
function pauseOnOtherQuestion(host: CallHost, call: Call): Promise<never> {
  host.stopping.mismatch(
    new HoldfastError(
      'nondeterminism',
      `Question "${call.path}" of run "${host.run.runId}" now shows something else than what was asked, so no answer to it counts. ` +
        'Bring the code or the data back, or roll the run back to before the question; then resume it.',
      { details: { runId: host.run.runId, step: call.path } },
    ),
  )
  return never()
}
