import { codeOf, HoldfastError } from './errors.ts'
import type { EventType, LogRecord } from './event.ts'
import type { Run, RunStatus } from './run.ts'

const endOf: Partial<Record<RunStatus, readonly EventType[]>> = {
  completed: ['run_completed'],
  failed: ['run_failed'],
  cancelled: ['run_cancelled'],
  paused: ['run_paused', 'run_rolled_back'],
}

/** Refuses with `corrupt_record` a record that can't be the one at which the run ended or stopped: the row or the log is damaged. */
export function refuseWrongEnd(run: Run, record: LogRecord | undefined): void {
  const types = endOf[run.status]
  if (types === undefined) return
  if (record !== undefined && record.runId === run.id && record.seq === run.endSeq && types.includes(record.type)) return
  // A run that its worker brought down again and again is paused without a word in the log.
  if (run.status === 'paused' && run.endSeq === null) return
  throw damagedRun(run, `it is ${run.status}, and the log does not say how it came to that`)
}

/** Whether a run that was read again still ends where it did: a store that has lost its last commits, or the thread, has another or none. */
export function endsAsBefore(run: Run, again: Run | null): boolean {
  return again !== null && again.status === run.status && again.endSeq === run.endSeq && again.epoch === run.epoch
}

/** Refuses with `corrupt_record` a record that can't be the one with the run's input. */
export function refuseWrongInput(run: Run, record: LogRecord | undefined): void {
  if (record?.runId === run.id && record.seq === run.inputSeq && (record.type === 'run_queued' || record.type === 'run_started'))
    return
  throw damagedRun(run, 'the log does not have its input where it should be')
}

/** The error of a run that has taken longer than its workflow allows. */
export function overtimeError(runId: string, timeoutMs: number): HoldfastError {
  return new HoldfastError('timeout', `${overtime(runId)} ${timeoutMs} ms its workflow allows.`)
}

/** Whether it was not its function that failed the run, but the time limit of its workflow. */
export function isOvertime(error: unknown, runId: string): boolean {
  return codeOf(error) === 'timeout' && (error as Error).message.startsWith(overtime(runId))
}

function overtime(runId: string): string {
  return `Run "${runId}" took longer than the`
}

function damagedRun(run: Run, why: string): HoldfastError {
  return new HoldfastError(
    'corrupt_record',
    `Run "${run.id}" is damaged: ${why}. Restore the store from a backup, or delete thread "${run.threadId}".`,
    { details: { runId: run.id, threadId: run.threadId } },
  )
}
