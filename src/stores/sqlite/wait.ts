import type { Change, Committed, Due } from '../../store/change.ts'
import { isOfRunAlone } from '../../store/kinds-of-change.ts'
import type { Hint } from '../../store/store.ts'
import { type Database, prepare } from './connection.ts'
import type { Append, Head } from './log.ts'
import { dueBy } from './operations.ts'

/** A change by which a held run begins to wait, and nothing else: every run that sleeps comes by here. */
export interface PlainWait extends Change {
  readonly guard: Extract<Change['guard'], { kind: 'lease' }>
  readonly runId: string
  readonly run: NonNullable<Change['run']> & { readonly due: Due }
}

export function isPlainWait(change: Change): change is PlainWait {
  const { guard, runId, run } = change
  if (guard.kind !== 'lease' || runId === null || run?.status !== 'waiting' || !isOfRunAlone(change)) return false
  if (run.due === undefined || run.reason === undefined || run.currentStep === undefined) return false
  return run.waitKey === undefined && run.hasNewInput === undefined && run.setsEnd === undefined
}

/** A held run begins to wait: one look, the records, the row. */
export function prepareWait(
  db: Database,
  acts: {
    readonly numberOf: (change: Change, leaseId: string) => number | undefined
    readonly forget: (run: number) => void
    readonly append: Append
    readonly claimsAfter: (claims: number, to: PlainWait['run']) => number
    readonly dueAtOf: (due: Due, now: number) => number | null
  },
) {
  const { numberOf, forget, append, claimsAfter, dueAtOf } = acts
  const findHeld = prepare(
    db,
    `SELECT r.last_message, r.claims_without_progress, t.id, t.head_seq, t.head_id, t.written_seq,
       EXISTS (SELECT 1 FROM holdfast_runs n INDEXED BY holdfast_runs_in_line
         WHERE n.thread = r.thread AND n.finished_at IS NULL AND n.id < r.id) AS is_behind
     FROM holdfast_runs r CROSS JOIN holdfast_threads t ON t.id = r.thread
     WHERE r.id = ? AND r.epoch = ? AND r.lease_id = ?`,
  )
  const wait = prepare(
    db,
    `UPDATE holdfast_runs SET status = 'waiting', reason = ?, current_step = ?, lease_id = NULL, lease_until = NULL, lease_holder = NULL,
       due_at = ?, claim_at = ?, claims_without_progress = ?, tape_seq = coalesce(?, tape_seq), started_at = coalesce(started_at, ?)
     WHERE id = ?`,
  )

  return function apply(change: PlainWait, now: number, hints: Hint[]): Committed {
    const { owner, threadId, runId, guard, events, run: to } = change
    const run = numberOf(change, guard.leaseId)
    const held = run === undefined ? undefined : (findHeld.get(run, guard.epoch, guard.leaseId) as HeldRow | undefined)
    if (run === undefined || held === undefined || held.written_seq < (guard.writtenSeq ?? 0))
      return { ok: false, refusal: 'lease_lost' }

    const { id, head_seq, head_id } = held
    const place = { id, owner, thread_id: threadId, head_seq, head_id }
    const { head_seq: lastSeq } = append(place, { run, runId, events, isCheckpoint: change.isCheckpoint, isLeased: true })
    const firstSeq = events.length > 0 ? head_seq + 1 : lastSeq
    const hasMail = held.last_message > (change.mailSeen ?? 0)
    const dueAt = hasMail ? dueBy(dueAtOf(to.due, now), now) : dueAtOf(to.due, now)
    const claimAt = held.is_behind === 1 ? null : dueAt
    const claims = claimsAfter(held.claims_without_progress, to)
    const startsTape = to.startsTape === true
    wait.run(to.reason, to.currentStep, dueAt, claimAt, claims, startsTape ? firstSeq : null, startsTape ? now : null, run)
    forget(run)
    hints.push({ owner, threadId, runId, isClaimable: true })
    return { ok: true, firstSeq, lastSeq, now, created: [], hasMail }
  }
}

interface HeldRow extends Head {
  readonly id: number
  readonly written_seq: number
  readonly last_message: number
  readonly claims_without_progress: number
  readonly is_behind: number
}
