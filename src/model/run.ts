/**
 * A run: one execution of a workflow over a thread.
 *
 *            start                claim                    function returned
 *   (none) ────────▶ pending ───────────────▶ running ───────────────────────▶ completed
 *                     ▲  ▲                    │ │ │ │   function threw
 *                     │  │ release, retry     │ │ │ └──────────────────────────▶ failed ──retry──▶ pending
 *                     │  └────────────────────┘ │ │     cancel
 *              resume │        suspend (timer,  │ └────────────────────────────▶ cancelled
 *                     │        effect, …)       ▼
 *                   paused ◀──pause── … ◀── waiting ──due, resolved, message──▶ (claimable again)
 *
 * Each transition and the function behind it:
 *
 *   (none)  → pending      startRun                         client/start-run.ts      run_queued
 *   pending, waiting, abandoned running
 *           → running      store.claim                      stores/<store>/claim.ts  run_started or run_recovered, with the first commit
 *   running → running      RunJournal.commit                engine/execution/run-journal.ts   steps, effects, state
 *                          Stopping.requestReload           engine/execution/stopping.ts      step_failed of a section that is tried again
 *   running → waiting      Suspension.park, #stopIfIdle     engine/execution/suspension.ts    timer_set, effect_unsure, step_failed with a long delay
 *   running → pending      Stopping.requestRelease          engine/execution/stopping.ts      shutdown: not counted as a death
 *   running → paused       Stopping.requestPause, pauseBecause, Ending.pauseNow
 *                                                           engine/execution/stopping.ts, ending.ts   run_paused: asked, retries, mismatch, poisoned
 *   running → completed, failed
 *                          callFunction, Ending.finish      engine/execute-run.ts    run_completed, run_failed
 *   running → cancelled    Stopping.order, carryOut, Unwinding   engine/undo/unwinding.ts      undo_ordered, step_undone, then run_cancelled
 *   running → failed       the same, with undoOnFailure or past the time limit       undo_ordered, step_undone, then run_failed
 *   running → paused       the same, for a rollback         engine/undo/unwinding.ts      undo_ordered, step_undone, then run_rolled_back
 *   running → paused       the same, where an undo fails or can't be found           run_paused: undo
 *   pending, waiting → paused
 *                          pauseRun                         control/control-run.ts    run_paused
 *   pending, waiting, paused → cancelled
 *                          cancelRun, with nothing to undo  control/undo-run.ts       run_cancelled; where others depend on it, run_paused before
 *   waiting, paused, completed, failed → pending
 *                          cancelRun, rollbackRun           control/undo-run.ts       run_resumed with an order: a worker undoes
 *   paused  → pending      takeUpLateRequest                engine/waiting/late-request.ts   run_resumed, for a cancel with an order: it came while it paused
 *   paused  → pending      resumeRun                        control/control-run.ts    run_resumed
 *   failed  → pending      retryRun                         control/control-run.ts    run_retried
 */

export const runStatuses = ['pending', 'running', 'waiting', 'paused', 'completed', 'failed', 'cancelled'] as const
export type RunStatus = (typeof runStatuses)[number]

export const pauseReasons = ['asked', 'poisoned', 'mismatch', 'budget', 'retries', 'undo'] as const
export type PauseReason = (typeof pauseReasons)[number]
/** What a waiting run waits for. */
export const waitReasons = ['timer', 'retry', 'signal', 'person', 'child', 'effect'] as const
export type WaitReason = (typeof waitReasons)[number]

/** A run's row as every store returns it. Times are ms since 1970 by the store's clock. */
export interface Run {
  readonly owner: string
  readonly id: string
  readonly threadId: string
  readonly workflow: string
  readonly version: number
  readonly status: RunStatus
  readonly reason: PauseReason | WaitReason | null
  readonly queue: string
  readonly priority: number
  /** Fingerprint of workflow name and input: tells a repeated start from another one under the same id. */
  readonly fingerprint: string
  /** Rises by one at every claim. */
  readonly epoch: number
  readonly leaseId: string | null
  readonly leaseUntil: number | null
  readonly leaseHolder: string | null
  /** When a pending or waiting run becomes due; null when only something from outside can wake it. */
  readonly dueAt: number | null
  /** Claims since the last recorded result; counted before the work begins. */
  readonly claimsWithoutProgress: number
  /** The step that was last seen running; null between steps. */
  readonly currentStep: string | null
  /** Log position whose payload is the input of the current tape. */
  readonly inputSeq: number
  /** Log position at which the current tape starts; null until the run wrote something. */
  readonly tapeSeq: number | null
  /** Log position of run_completed, run_failed, run_cancelled or the last run_paused; null while it runs. */
  readonly endSeq: number | null
  readonly createdAt: number
  readonly startedAt: number | null
  readonly finishedAt: number | null
}

export function isTerminal(status: RunStatus): boolean {
  return status === 'completed' || status === 'failed' || status === 'cancelled'
}

/** Claims without a recorded result after which a run is paused as poisoned. */
export const poisonLimit = 5

/**
 * Claims without a recorded result after which a run is a suspect: it may be what brings its workers down, so a worker
 * executes suspects one at a time, and the innocent among them are cleared by their first result.
 */
export const suspicionLimit = 2

/** Whether a run that can be claimed is a suspect. A claim counts itself: claimed, a suspect has one more. */
export function isSuspect({ claimsWithoutProgress }: Pick<Run, 'claimsWithoutProgress'>): boolean {
  return claimsWithoutProgress >= suspicionLimit
}

/** Deaths of its worker after which a step that was running each time fails with worker_died. */
export const stepDeathLimit = 3
