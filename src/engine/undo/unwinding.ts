import { HoldfastError } from '../../model/errors.ts'
import type { NewMessage } from '../../store/store.ts'
import { type BookingRun, bookEndedChild, recordCompletedChild } from '../calls/child-end.ts'
import type { Activity } from '../execution/activity.ts'
import type { Phase } from '../execution/phase.ts'
import { openOn, readRunPast } from '../replay/run-past.ts'
import { endedSectionAround } from '../replay/section-around.ts'
import type { Order } from '../replay/tape.ts'
import type { RunInbox } from '../waiting/run-inbox.ts'
import { readTakenSignals } from '../waiting/taken-signals.ts'
import type { EndedChild, OpenDependents } from './open-dependents.ts'
import type { Undos } from './undos.ts'

/**
 * Carries an order out on a claimed run: takes back what the run did, all of it or what came after a position.
 *
 *   O1  What is under way is awaited, within the grace; what still comes is recorded, and undone too.
 *   O2  Children that are open end first, then questions are closed, then the undos run, the last result first.
 *   O3  The order is on record before its first undo: the execution after a crash continues it.
 *   O4  An order that ranks higher ends it after the undo under way: the run is read anew, and does that.
 *   O5  `finish` is called in the same turn in which nothing is under way and nothing is due.
 *   O6  What persons have decided about effects is read at the beginning, and again where something was undone since. What they decide after
 *       that is not overlooked: the end is written only if the log ends where it was read to, else the run is read anew. Where this run has
 *       written itself meanwhile, they are read once more.
 *   O7  A rollback does not go into a section with an undo that has ended: one that ends before its holder has heard of the rollback keeps the
 *       run from going back there, and one that would end later does not end (scope-runner).
 */
export class Unwinding {
  readonly #run: UnwoundRun
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

  constructor(run: UnwoundRun, order: Order, options: UnwindingOptions) {
    this.#run = run
    this.#order = order
    this.#graceEndsAt = performance.now() + options.graceMs
    this.#isFromLog = options.isFromLog
    this.#why = options.why
    this.#isRecorded = isSame(run.run.tape.order, order)
  }

  /**
   * Returns what kept it from being carried out: an error, that a child takes its time and this has to be tried again, that a client
   * ordered something that ranks higher, that the function has to be replayed for it, or that there is nothing to go back to any more.
   */
  async run(finish: Finish): Promise<Error | 'later' | 'overruled' | 'unreplayed' | 'refused' | null> {
    const unwound = this.#run
    const afterSeq = this.#order.kind === 'rollback' ? this.#order.to : 0
    await this.#readLog()
    await this.#settle()
    if (await this.#isOutOfReach()) return 'refused'
    await this.#readDecisions()
    if (unwound.phase.hasEnded) return null
    for (;;) {
      await this.#settle()
      if (unwound.inbox.underWay !== null) await unwound.inbox.underWay
      if (unwound.stopping.isOverruled) return 'overruled'
      const children = await unwound.dependents.end(afterSeq, { undo: this.#undoes })
      if (unwound.phase.hasEnded) return null
      if (!children.isOver) {
        await this.#record()
        return children.obstacle === undefined ? 'later' : childStopped(unwound, children.obstacle)
      }
      const isUndone = ({ child, isCompleted }: EndedChild) => isCompleted === true && child.undo !== undefined
      await Promise.all(children.ended.map((end) => !isUndone(end) && bookEndedChild(unwound, end.child)))
      for (const end of children.ended) if (isUndone(end)) await recordCompletedChild(unwound, end.child)
      if (children.ended.length > 0) this.#isBehind = true
      const next = this.#undoes ? unwound.undos.next(afterSeq) : undefined
      if (next !== undefined && !this.#isRecorded) {
        // What comes meanwhile is undone first.
        await this.#record()
        await this.#readDecisions()
      } else if (next?.undo === true && this.#isFromLog) {
        // It has happened since, by decision of a person.
        return 'unreplayed'
      } else if (next !== undefined) {
        this.#isBehind = true
        const failure = await Promise.race([unwound.undos.run(next, this.#why), unwound.stopping.undoGivenUp])
        if (unwound.stopping.isOverruled) return 'overruled'
        if (failure) return failure
      } else if (unwound.activity.writes.isIdle && unwound.dependents.isEmpty(afterSeq)) {
        if (this.#order.kind === 'rollback' && this.#taken === undefined) {
          // What was answered since is asked anew, and what was taken from the inbox is put back.
          await unwound.undos.freeAnswers(afterSeq)
          this.#taken = await readTakenSignals(unwound.run, afterSeq)
          // They are not read once the run is paused.
          await unwound.inbox.check()
        } else if (this.#isBehind || unwound.journal.lastSeq > (this.#headSeq ?? unwound.journal.lastSeq)) {
          await this.#readDecisions()
        } else if (!unwound.stopping.isOverruled) {
          await finish(this.#taken ?? [], this.#headSeq)
          return null
        }
      }
      if (unwound.phase.hasEnded) return null
    }
  }

  /** What the function has not reached is in the log: what this tape has left open, and what earlier ones did. */
  async #readLog(): Promise<void> {
    const { dependents, undos, run } = this.#run
    const { tape, claim } = run
    dependents.add(openOn(tape))
    // A rollback does not go beyond the current tape.
    if (tape.number === 1 || this.#order.kind === 'rollback') return
    const past = await readRunPast(this.#run.run, claim.run, 'earlier tapes')
    dependents.add(past)
    undos.addEarlier(past.undoables)
  }

  /** What is on record was asked for while the run was not executed, and the client that asked has looked. */
  async #isOutOfReach(): Promise<boolean> {
    const unwound = this.#run
    if (this.#order.kind !== 'rollback' || this.#isRecorded || unwound.phase.hasEnded) return false
    return (await endedSectionAround(unwound.run, unwound.run.place, this.#order.to)) !== undefined
  }

  async #readDecisions(): Promise<void> {
    const unwound = this.#run
    if (this.#undoes) {
      const { lastSeq } = unwound.journal
      const { owner, threadId } = unwound.run.claim.run
      this.#headSeq = (await unwound.run.store.readThread({ owner, threadId }))?.headSeq
      // The store has lost what was acknowledged: the log would never end where this run has written to.
      if (this.#headSeq !== undefined && this.#headSeq < lastSeq) return unwound.ending.lose()
      await unwound.undos.readDecisions()
    }
    this.#isBehind = false
  }

  get #undoes(): boolean {
    return !(this.#order.kind === 'cancel' && this.#order.undo === false)
  }

  async #settle(): Promise<void> {
    const { work, writes } = this.#run.activity
    const leftMs = this.#graceEndsAt - performance.now()
    if (leftMs > 0) await work.idle(leftMs)
    while (!writes.isIdle) {
      await writes.idle()
      // The call that wrote is told first.
      await new Promise((resolve) => setImmediate(resolve))
    }
  }

  async #record(): Promise<void> {
    if (this.#isRecorded) return
    const event = this.#run.journal.event('undo_ordered', null, { data: { order: this.#order } })
    await this.#run.journal.commit([event], { hasProgress: true })
    this.#isRecorded = true
  }
}

/** The parts of the run that is unwound. */
export interface UnwoundRun extends BookingRun {
  readonly phase: Phase
  readonly activity: Activity
  readonly undos: Undos
  readonly dependents: OpenDependents
  readonly inbox: { readonly underWay: Promise<void> | null; readonly messages: RunInbox; check(): Promise<void> }
  readonly admission: { endError(): Error }
  readonly stopping: { readonly isOverruled: boolean; readonly undoGivenUp: Promise<void> }
  readonly ending: { lose(): void }
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

function childStopped({ run: { runId } }: UnwoundRun, cause: HoldfastError): Error {
  return new HoldfastError(
    'conflict',
    `Run "${runId}" can't undo what it did before its child has ended: ${cause.message} Once the child has ended, resume run "${runId}".`,
    { cause, details: { runId } },
  )
}
