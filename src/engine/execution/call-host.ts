import type { HoldfastError } from '../../model/errors.ts'
import type { PauseReason } from '../../model/run.ts'
import type { Calls } from '../calls/calls.ts'
import type { BudgetGuard } from '../limits/budget-guard.ts'
import type { OpenDependents } from '../undo/open-dependents.ts'
import type { Undos } from '../undo/undos.ts'
import type { Activity } from './activity.ts'
import type { Admission } from './admission.ts'
import type { Failures } from './failures.ts'
import type { HeldRun } from './held-run.ts'
import type { InboxCommands } from './inbox-commands.ts'
import type { RunClock } from './run-clock.ts'
import type { RunJournal } from './run-journal.ts'
import type { RunOutput } from './run-output.ts'
import type { StateUpdates } from './state-updates.ts'
import type { Suspension } from './suspension.ts'

/** What a call (a step, an effect, a question …) may ask of the run that it belongs to. */
export interface CallHost {
  /** What is executed: ids, workflow, tape, store, codec, logger. */
  readonly run: HeldRun
  readonly clock: RunClock
  /** Names and places of calls. */
  readonly calls: Calls
  /** Recorded results in their turn, and leave to begin something new. */
  readonly admission: Admission
  /** Events and commits; results that are handed to the function. */
  readonly journal: RunJournal
  /** What is at work, and the signal that ends it. */
  readonly activity: Activity
  /** Waits. */
  readonly suspension: Suspension
  readonly state: StateUpdates
  readonly budget: BudgetGuard
  /** How results are taken back. */
  readonly undos: Undos
  /** Children and questions that end with the run. */
  readonly dependents: OpenDependents
  /** Streams and progress. */
  readonly output: RunOutput
  readonly inbox: InboxCommands
  /** Which failures the function has not caught. */
  readonly failures: Failures
  readonly stopping: StopRequests
}

/** What a call may ask of the end of its run. */
export interface StopRequests {
  /** The run pauses at the next safe point. */
  pauseBecause(reason: PauseReason, error: Error, step?: string): void
  /** The tape is read anew at the next safe point. */
  requestReload(): void
  /** The function does something else than its log says. */
  mismatch(error: HoldfastError): void
  /** The position that the run was told to go back to. */
  readonly rollbackTo: number | undefined
  /** The run starts its next tape with this input. */
  continueWith(input: unknown): Promise<void>
  /** What the store has is not what this execution was told: the run is read anew. */
  startOver(error: unknown): Promise<never>
  /** Resolves when the execution has ended. */
  readonly ended: Promise<unknown>
}
