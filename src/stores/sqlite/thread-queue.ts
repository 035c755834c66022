import type { Run } from '../../model/run.ts'
import { type Database, prepare } from './connection.ts'

/** An unfinished run, as far as its place in the order of claims depends on it. */
export interface UnfinishedRun extends Pick<Run, 'status' | 'dueAt' | 'leaseUntil'> {
  /** holdfast_runs.id */
  readonly run: number
  /** holdfast_threads.id */
  readonly thread: number
}

/** A thread's unfinished runs in order of creation. Only the first has a `claim_at` (S6). */
export function prepareThreadQueue(db: Database) {
  const first = prepare(
    db,
    `SELECT id AS run, thread, status, due_at AS dueAt, lease_until AS leaseUntil FROM holdfast_runs INDEXED BY holdfast_runs_in_line
     WHERE thread = ? AND finished_at IS NULL ORDER BY id LIMIT 1`,
  )
  const setClaimAt = prepare(db, 'UPDATE holdfast_runs SET claim_at = ? WHERE id = ?')
  const makeDue = prepare(db, 'UPDATE holdfast_runs SET due_at = ?, claim_at = ? WHERE id = ?')
  const clearOthers = prepare(
    db,
    `UPDATE holdfast_runs INDEXED BY holdfast_runs_in_line SET claim_at = NULL
     WHERE thread = ? AND finished_at IS NULL AND id <> ? AND claim_at IS NOT NULL`,
  )
  const firstOf = (thread: number) => first.get(thread) as UnfinishedRun | undefined

  /** The claim_at of an unfinished run, given what the table says of the others. */
  function claimAtOf(run: UnfinishedRun): number | null {
    const claimAt = naturalClaimAt(run)
    if (claimAt === null) return null
    const found = firstOf(run.thread)
    return found === undefined || found.run >= run.run ? claimAt : null
  }

  return {
    claimAtOf,
    isEmpty: (thread: number) => firstOf(thread) === undefined,
    /** A waiting run becomes due. */
    makeDue(run: UnfinishedRun, dueAt: number): void {
      makeDue.run(dueAt, claimAtOf({ ...run, dueAt }), run.run)
    },
    /** After a run has ended: the next one can be claimed. */
    releaseNext(thread: number): void {
      const next = firstOf(thread)
      if (next !== undefined) setClaimAt.run(naturalClaimAt(next), next.run)
    },
    /** After a finished run came back to its old place: those behind it wait again. */
    holdOthersBack({ run, thread }: Pick<UnfinishedRun, 'run' | 'thread'>): void {
      clearOthers.run(thread, firstOf(thread)?.run ?? run)
    },
  }
}

export type ThreadQueue = ReturnType<typeof prepareThreadQueue>

function naturalClaimAt({ status, dueAt, leaseUntil }: UnfinishedRun): number | null {
  if (status === 'running') return leaseUntil
  return status === 'pending' || status === 'waiting' ? dueAt : null
}
