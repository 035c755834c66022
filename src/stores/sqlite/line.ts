import { type Database, prepare } from './connection.ts'
import type { RunRow } from './rows.ts'

/** The line of a thread: its unfinished runs in order of creation. Only the first has a `claim_at` (S6). */
export function prepareLine(db: Database) {
  const first = prepare(
    db,
    'SELECT id, status, due_at, lease_until FROM holdfast_runs INDEXED BY holdfast_runs_in_line WHERE thread = ? AND finished_at IS NULL ORDER BY id LIMIT 1',
  )
  const setClaimAt = prepare(db, 'UPDATE holdfast_runs SET claim_at = ? WHERE id = ?')
  const clearOthers = prepare(
    db,
    'UPDATE holdfast_runs INDEXED BY holdfast_runs_in_line SET claim_at = NULL WHERE thread = ? AND finished_at IS NULL AND id <> ? AND claim_at IS NOT NULL',
  )
  const firstOf = (thread: number) => first.get(thread) as FirstInLine | undefined

  return {
    firstOf,
    /** The claim_at of an unfinished run, given what the table says of the others. */
    claimAtOf(run: RunRow): number | null {
      const found = firstOf(run.thread)
      return found === undefined || found.id >= run.id ? naturalClaimAt(run) : null
    },
    /** After a run has ended: the next one gets its turn. */
    letNextGo(thread: number): void {
      const next = firstOf(thread)
      if (next !== undefined) setClaimAt.run(naturalClaimAt(next), next.id)
    },
    /** After a finished run came back to its old place: those behind it wait again. */
    holdOthersBack(run: RunRow): void {
      clearOthers.run(run.thread, (firstOf(run.thread) ?? run).id)
    },
  }
}

export type Line = ReturnType<typeof prepareLine>

type FirstInLine = Pick<RunRow, 'id' | 'status' | 'due_at' | 'lease_until'>

function naturalClaimAt({ status, due_at, lease_until }: Pick<RunRow, 'status' | 'due_at' | 'lease_until'>): number | null {
  if (status === 'running') return lease_until
  return status === 'pending' || status === 'waiting' ? due_at : null
}
