import type { AskOptions } from '../../define/context.ts'
import { tagSource } from '../../define/failure-source.ts'
import { type Asking, newAskingId } from '../../model/asking.ts'
import { fingerprint } from '../../model/codec.ts'
import { HoldfastError } from '../../model/errors.ts'
import { isOpen, type Operation } from '../../model/operation.ts'
import { toStorableError } from '../../model/stored-error.ts'
import { type Execution, never } from '../execution/execution.ts'
import { nudgeKey } from '../waiting/run-inbox.ts'
import type { Wait } from '../waiting/waits.ts'
import { isOutage } from '../writing/committer.ts'
import type { Call } from './calls.ts'
import { resultOf } from './step.ts'
import { timeLimit } from './time-limit.ts'
import { parkUnlessAborted, withdraw } from './withdrawal.ts'

/** How often a run in memory looks whether it was answered, besides being told. */
const lookAgainMs = 5_000

/** What the operation's result says. */
export interface Answer {
  readonly value?: unknown
  readonly by?: string
  readonly at: number
  /** It is the question's default: nobody answered in time. */
  readonly via?: 'default'
}

/**
 * Asks a person and waits. Each asking is an operation of its own, opened by the write that asks: whoever resolves it first has
 * answered, everybody after gets `already_answered`, inside the store. A question that is put again is another asking.
 */
export async function askPerson<T>(execution: Execution, call: Call, options: AskOptions<T>): Promise<T> {
  const shown = fingerprint([options.question, options.to])
  const asked = call.history?.begun?.data as Asking | undefined
  if (asked !== undefined && asked.shown !== shown) return pauseOnOtherQuestion(execution, call)
  const question = new Question<T>(execution, call, options, shown)
  if (call.history?.outcome !== undefined) return resultOf<T>(execution, call, await execution.recorded(call))
  // Before it waits for its turn: a run that is taken up to be cancelled never gets there.
  if (call.history?.begun !== undefined) question.open(call.history.begun.seq)
  if (!execution.isOpen) await execution.pass(call)
  return question.carryOut()
}

class Question<T> {
  readonly #execution: Execution
  readonly #call: Call
  readonly #options: AskOptions<T>
  readonly #shown: string
  /** Of the last asking; empty before the first. */
  #id: string

  constructor(execution: Execution, call: Call, options: AskOptions<T>, shown: string) {
    this.#execution = execution
    this.#call = call
    this.#options = options
    this.#shown = shown
    this.#id = (call.history?.begun?.data as Asking | undefined)?.key ?? ''
  }

  async carryOut(): Promise<T> {
    const execution = this.#execution
    const { signal } = this.#options
    if (this.#id === '') {
      if (signal?.aborted) return withdraw(execution, this.#call, signal)
      await this.#ask()
    }
    this.#tellSchema()
    const fireAt = await timeLimit(execution, this.#call, this.#options.timeoutMs)
    for (;;) {
      const mail = nudgeKey('answer', this.#id)
      const nudgeCount = execution.mailbox.nudgeCount(mail)
      execution.mailbox.settle(execution.mailbox.takeNudges(mail))
      const operation = await this.#read()
      // Version 0.1 asked in two writes: its holder died between them.
      if (operation?.status === 'intended') await execution.tryOperation({ kind: 'doubt', key: this.#id })
      else if (signal?.aborted && operation !== null && operation.status !== 'completed') {
        // One that was answered first has its answer.
        if (isOpen(operation.status) && !(await execution.tryOperation({ kind: 'fail', key: this.#id }))) continue
        this.#settled()
        return withdraw(execution, this.#call, signal)
      } else if (operation !== null && !isOpen(operation.status)) {
        const answer = await this.#take(operation)
        if (answer !== null) return answer.value
        continue
      } else if (operation !== null && fireAt <= execution.now()) {
        if (await this.#giveUp()) continue
      }
      // Answered while this looked: it looks again.
      if (execution.mailbox.nudgeCount(mail) !== nudgeCount) continue
      const lookAgainAt = execution.now() + lookAgainMs
      const wait: Wait = {
        dueAt: Math.min(fireAt, lookAgainAt),
        rowDueAt: operation === null ? Math.min(fireAt, lookAgainAt) : fireAt,
        reason: 'person',
        mail: [mail],
      }
      // One that could not be withdrawn yet, because the store is out of reach, is tried again in a while.
      await (operation === null ? execution.park(wait) : parkUnlessAborted(execution, wait, signal))
      if (!execution.isOpen) await execution.pass(this.#call)
    }
  }

  /** From here on it ends with the run. */
  open(seq: number): void {
    this.#execution.dependants.question(this.#call.key, this.#id, seq)
  }

  /** Asks, under an id of its own, in one write. */
  async #ask(problem?: string): Promise<void> {
    const { question, to } = this.#options
    const execution = this.#execution
    execution.questions.delete(execution.owner, this.#id)
    this.#id = newAskingId()
    const data: Asking = {
      key: this.#id,
      question,
      shown: this.#shown,
      ...(to !== undefined && { to }),
      ...(problem !== undefined && { problem }),
    }
    const event = execution.event('question_asked', this.#call, { data: { ...data } })
    // First, so that it also ends with a run that is cancelled while this is written.
    this.open(Number.MAX_SAFE_INTEGER)
    const operation = { kind: 'ask', key: this.#id, name: this.#call.path } as const
    const { lastSeq } = await execution.commit([event], { operation, hasProgress: true })
    this.open(lastSeq)
    execution.throwIfEnded()
    this.#tellSchema()
  }

  #tellSchema(): void {
    const { schema } = this.#options
    if (schema !== undefined) this.#execution.questions.add(this.#execution.owner, this.#id, schema)
  }

  async #read(): Promise<Operation | null> {
    const { store, owner } = this.#execution
    const reading = store.readOperation({ owner, key: this.#id }).catch((error: unknown) => {
      if (!isOutage(error)) throw error
      // Out of reach for now: it is looked at again.
      return null
    })
    return this.#execution.working(reading)
  }

  /** The answer, recorded; null when it does not fit and the question was put again. */
  async #take(operation: Operation): Promise<{ readonly value: T } | null> {
    const execution = this.#execution
    if (operation.status !== 'completed') {
      await this.#ask()
      return null
    }
    const answer = (operation.result === null ? { at: execution.now() } : execution.codec.decode(operation.result)) as Answer
    let value = answer.value as T
    try {
      if (this.#options.schema !== undefined && answer.via === undefined)
        value = await execution.validate<T>(this.#options.schema, value, `The answer to "${this.#call.path}"`)
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
    const event = execution.event('question_answered', this.#call, { data })
    this.#call.resultSeq = await execution.commitResult([event], {})
    this.#settled()
    execution.undos.addAnswer(this.#call.resultSeq, this.#id)
    return { value: (execution.codec.decode(event.payload ?? execution.codec.encode({})) as { result?: T }).result as T }
  }

  /** Nobody answered in time. False: somebody did, after all. */
  async #giveUp(): Promise<boolean> {
    const execution = this.#execution
    if ('default' in this.#options) {
      const answer: Answer = { value: this.#options.default, at: execution.now(), via: 'default' }
      await execution.tryOperation({ kind: 'complete', key: this.#id, result: execution.codec.encode(answer) })
      return true
    }
    if (!(await execution.tryOperation({ kind: 'fail', key: this.#id }))) return true
    const error = new HoldfastError(
      'timeout',
      `Nobody answered "${this.#call.path}" of run "${execution.runId}" within ${this.#options.timeoutMs} ms. Give the question a default, or catch this; run.retry() asks again.`,
      { details: { runId: execution.runId, step: this.#call.path } },
    )
    const event = execution.event('timer_fired', this.#call, { data: { for: 'question', error } })
    this.#settled()
    await execution.commitResult([event], { failureOf: this.#call.key })
    throw tagSource(error, [this.#call.key])
  }

  #settled(): void {
    this.#execution.dependants.settled(this.#call.key)
    this.#execution.questions.delete(this.#execution.owner, this.#id)
  }
}

/** An approval of something else is none. */
function pauseOnOtherQuestion(execution: Execution, call: Call): Promise<never> {
  execution.mismatch(
    new HoldfastError(
      'nondeterminism',
      `Question "${call.path}" of run "${execution.runId}" now shows something else than what was asked, so no answer to it counts. ` +
        'Bring the code or the data back, or roll the run back to before the question; then resume it.',
      { details: { runId: execution.runId, step: call.path } },
    ),
  )
  return never()
}
