import { HoldfastError } from '../../model/errors.ts'
import type { Change, Committed } from '../../store/change.ts'
import type { Undoable } from '../undo/undoable.ts'
import type { ChangeOptions } from '../writing/run-writer.ts'
import { WriteOrder } from '../writing/write-order.ts'
import type { Activity } from './activity.ts'
import type { HeldLease } from './held-lease.ts'
import type { HeldRun } from './held-run.ts'
import { never } from './never.ts'
import type { Phase } from './phase.ts'
import type { RunClock } from './run-clock.ts'

/** The writes of a run on their way to the store, and what their answers mean for the execution. */
export class RunWrites {
  readonly #run: WrittenRun
  readonly order: WriteOrder
  /** Something was recorded. */
  hasProgress = false
  /** Where the log ended after the last write that was answered for. */
  lastSeq: number

  constructor(run: WrittenRun, headSeq: number) {
    const { engine, history } = run.run
    this.#run = run
    this.order = new WriteOrder(engine.committer, history)
    this.lastSeq = headSeq
  }

  /** Under way it counts as work; whatever fails ends or reloads the execution. */
  async write(change: Change, { undoable, contest }: ChangeOptions = {}): Promise<Committed> {
    const { phase, activity } = this.#run
    if (phase.isDetached) return this.#run.admission.cameTooLate()
    if (phase.hasEnded) throw this.#run.admission.endError()
    activity.beginWork()
    activity.writes.begin()
    try {
      const answer = await (contest === undefined ? this.order.add(change) : this.order.addContested(change, contest.writes))
      if (answer.ok && change.run?.hasProgress === true) this.hasProgress = true
      // From here on it belongs to what the run has done, whatever becomes of the function.
      if (undoable !== undefined && answer.ok)
        this.#run.undos.add({ ...undoable, seq: answer.lastSeq, payload: change.events.at(-1)?.payload ?? null })
      return this.answered(answer)
    } catch (error) {
      return await this.#run.ending.startOver(error)
    } finally {
      contest?.release()
      activity.writes.end()
      if (change.chunks !== undefined) this.#run.output.written()
      activity.endWork()
    }
  }

  /** Takes from an answer what concerns the execution as a whole. */
  answered(answer: Committed): Committed {
    const run = this.#run
    if (answer.ok) {
      this.lastSeq = answer.lastSeq
      run.lease.keptAlive()
      if (run.clock.follow(answer.now)) run.suspension.clockMoved()
      if (answer.hasMail) void run.inbox.check()
    } else if (answer.refusal === 'lease_lost' || answer.refusal === 'thread_deleted' || answer.refusal === 'run_not_found')
      run.ending.lose()
    return answer
  }

  /**
   * A change was refused that no other client had a right to stand in the way of: what the store has is not what this execution was told. The
   * run is read anew; its function does not hear of it.
   */
  async refused(refusal: string, { canBeOverruled }: ChangeOptions = {}): Promise<never> {
    const { phase, admission, ending, run } = this.#run
    if (phase.isDetached) return never()
    if (phase.hasEnded) throw admission.endError()
    const { runId } = run
    const error = new HoldfastError('conflict', `A write of run "${runId}" was refused: ${refusal}.`, {
      details: { runId, refusal },
    })
    if (canBeOverruled === true) throw error
    return ending.startOver(error)
  }
}

/** The parts of the run that are told of its writes. */
export interface WrittenRun {
  readonly run: HeldRun
  readonly phase: Phase
  readonly clock: RunClock
  readonly lease: HeldLease
  readonly activity: Activity
  readonly undos: { add(undoable: Undoable): void }
  readonly output: { written(): void }
  readonly inbox: { check(): Promise<void> }
  readonly suspension: { clockMoved(): void }
  readonly admission: { endError(): Error; cameTooLate(): Promise<never> }
  readonly ending: { startOver(error: unknown): Promise<never>; lose(): void }
}
