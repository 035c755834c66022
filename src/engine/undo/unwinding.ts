import { HoldfastError } from '../../model/errors.ts'
import type { NewMessage } from '../../store/store.ts'
import { bookEndedChild, recordCompletedChild } from '../calls/child-end.ts'
import type { Execution } from '../execution/execution.ts'
import { openOn, readRunPast } from '../replay/run-past.ts'
import { endedSectionAround } from '../replay/section-around.ts'
import type { Order } from '../replay/tape.ts'
import { readTakenSignals } from '../waiting/taken-signals.ts'
import type { EndedChild } from './dependants.ts'

/**
 * Carries an order out on a claimed run: takes back what the run did, all of it or what came after a position.
 *
 *   O1  What is under way is awaited, within the grace; what still comes is recorded, and undone too.
 *   O2  Children that are open end first, then questions are closed, then the undos run, the last result first.
 *   O3  The order is on record before its first undo: whoever takes the run up after a crash continues it.
 *   O4  An order that ranks higher ends it after the undo under way: the run is read anew, and does that.
 *   O5  `finish` is called in the same turn in which nothing is under way and nothing is due.
 *   O6  What persons have decided about effects is read at the beginning, and again where something was undone since. What they decide after
 *       that is not overlooked: the end is written only if the log ends where it was read to, else the run is read anew. Where this run has
 *       written itself meanwhile, they are read once more.
 *   O7  A rollback does not go into a section with an undo that has ended: one that ends before its holder has heard of the rollback keeps the
 *       run from going back there, and one that would end later does not end (scope-runner).
 */
export class Unwinding {
  readonly #execution: Execution
  readonly #order: Order
  readonly #graceEndsAt: number
  /** The function was not called: when this began, all that was due could be undone without it. */
  readonly #isFromLog: boolean
  /** Why the function could not be replayed, where it could not. */
  readonly #why: Error | null
  #isRecorded: boolean
  /** Something was done since it was read what persons have decided. */
  #isBehind = true
  #taken: readonly NewMessage[] | undefined
  /** Where the log ended when that was read. */
  #headSeq: number | undefined

  constructor(execution: Execution, order: Order, options: UnwindingOptions) {
    this.#execution = execution
    this.#order = order
    this.#graceEndsAt = performance.now() + options.graceMs
    this.#isFromLog = options.isFromLog
    this.#why = options.why
    this.#isRecorded = isSame(execution.tape.order, order)
  }

  /**
   * Returns what kept it from being carried out: an error, that a child takes its time and this has to be tried again, that somebody
   * ordered something that ranks higher, that the function has to be replayed for it, or that there is nothing to go back to any more.
   */
  async run(finish: Finish): Promise<Error | 'later' | 'overruled' | 'unreplayed' | 'refused' | null> {
    const execution = this.#execution
    const afterSeq = this.#order.kind === 'rollback' ? this.#order.to : 0
    await this.#readLog()
    await this.#settle()
    if (await this.#isOutOfReach()) return 'refused'
    await this.#readDecisions()
    if (execution.hasEnded) return null
    for (;;) {
      await this.#settle()
      if (execution.mailUnderWay !== null) await execution.mailUnderWay
      if (execution.isOverruled) return 'overruled'
      const children = await execution.dependants.end(afterSeq, { undo: this.#undoes })
      if (execution.hasEnded) return null
      if (!children.isOver) {
        await this.#record()
        return children.obstacle === undefined ? 'later' : childStopped(execution, children.obstacle)
      }
      const isUndone = ({ child, isCompleted }: EndedChild) => isCompleted === true && child.undo !== undefined
      await Promise.all(children.ended.map((end) => !isUndone(end) && bookEndedChild(execution, end.child)))
      for (const end of children.ended) if (isUndone(end)) await recordCompletedChild(execution, end.child)
      if (children.ended.length > 0) this.#isBehind = true
      const next = this.#undoes ? execution.undos.next(execution, afterSeq) : undefined
      if (next !== undefined && !this.#isRecorded) {
        // What comes meanwhile is undone first.
        await this.#record()
        await this.#readDecisions()
      } else if (next?.undo === true && this.#isFromLog) {
        // It has happened since, by decision of a person.
        return 'unreplayed'
      } else if (next !== undefined) {
        this.#isBehind = true
        const failure = await Promise.race([execution.undos.run(execution, next, this.#why), execution.undoGivenUp])
        if (execution.isOverruled) return 'overruled'
        if (failure) return failure
      } else if (execution.writes.isIdle && execution.dependants.isEmpty(afterSeq)) {
        if (this.#order.kind === 'rollback' && this.#taken === undefined) {
          // What was answered since is asked anew, and what was taken from the inbox is put back.
          await execution.undos.freeAnswers(execution, afterSeq)
          this.#taken = await readTakenSignals(execution, afterSeq)
          // Nobody reads them once the run is paused.
          await execution.checkMail()
        } else if (this.#isBehind || execution.lastSeq > (this.#headSeq ?? execution.lastSeq)) {
          await this.#readDecisions()
        } else if (!execution.isOverruled) {
          await finish(this.#taken ?? [], this.#headSeq)
          return null
        }
      }
      if (execution.hasEnded) return null
    }
  }

  /** What the function has not come by is in the log: what this tape has left open, and what earlier ones did. */
  async #readLog(): Promise<void> {
    const { tape, dependants, undos, claim } = this.#execution
    dependants.add(openOn(tape))
    // A rollback does not go beyond the current tape.
    if (tape.number === 1 || this.#order.kind === 'rollback') return
    const past = await readRunPast(this.#execution, claim.run, 'earlier tapes')
    dependants.add(past)
    undos.addEarlier(past.undoables)
  }

  /** What is on record was asked for while nobody executed the run, and whoever asked has looked. */
  async #isOutOfReach(): Promise<boolean> {
    const execution = this.#execution
    if (this.#order.kind !== 'rollback' || this.#isRecorded || execution.hasEnded) return false
    return (await endedSectionAround(execution, execution.place, this.#order.to)) !== undefined
  }

  async #readDecisions(): Promise<void> {
    const execution = this.#execution
    if (this.#undoes) {
      const { lastSeq } = execution
      const { owner, threadId } = execution.claim.run
      this.#headSeq = (await execution.store.readThread({ owner, threadId }))?.headSeq
      // The store has lost what was acknowledged: the log would never end where this run has written to.
      if (this.#headSeq !== undefined && this.#headSeq < lastSeq) return execution.lose()
      await execution.undos.readDecisions(execution)
    }
    this.#isBehind = false
  }

  get #undoes(): boolean {
    return !(this.#order.kind === 'cancel' && this.#order.undo === false)
  }

  async #settle(): Promise<void> {
    const { work, writes } = this.#execution
    const leftMs = this.#graceEndsAt - performance.now()
    if (leftMs > 0) await work.idle(leftMs)
    while (!writes.isIdle) {
      await writes.idle()
      // Whoever wrote hears of it first.
      await new Promise((resolve) => setImmediate(resolve))
    }
  }

  async #record(): Promise<void> {
    if (this.#isRecorded) return
    const event = this.#execution.event('undo_ordered', null, { data: { order: this.#order } })
    await this.#execution.commit([event], { hasProgress: true })
    this.#isRecorded = true
  }
}

interface UnwindingOptions {
  readonly graceMs: number
  readonly isFromLog: boolean
  readonly why: Error | null
}

/** Writes how the order ends the run: with messages for its inbox, and only if the log still ends there. */
export type Finish = (taken: readonly NewMessage[], headSeq?: number) => Promise<void>

/** The request stays in the inbox until it is carried out, so that the next holder finds it there and in the log. */
function isSame(recorded: Order | undefined, order: Order): boolean {
  if (recorded?.kind === 'rollback') return order.kind === 'rollback' && recorded.to === order.to
  return recorded !== undefined && order.kind !== 'rollback' && recorded.kind === order.kind && recorded.undo === order.undo
}

function childStopped({ runId }: Execution, cause: HoldfastError): Error {
  return new HoldfastError(
    'conflict',
    `Run "${runId}" can't undo what it did before its child has ended: ${cause.message} Once the child has ended, resume run "${runId}".`,
    { cause, details: { runId } },
  )
}
