import { isTerminal, type RunStatus } from '../../model/run.ts'
import type { Change, Committed } from '../../store/change.ts'
import { isOfRunAlone } from '../../store/kinds-of-change.ts'
import type { Hint } from '../../store/store.ts'
import { type Database, prepare } from './connection.ts'
import type { Line } from './line.ts'
import type { Append, Head } from './log.ts'
import type { Operations } from './operations.ts'

/** A change that ends a held run and does nothing else besides: every run comes by here once. */
export interface PlainEnd extends Change {
  readonly guard: Extract<Change['guard'], { kind: 'lease' }>
  readonly runId: string
  readonly run: NonNullable<Change['run']> & { readonly status: RunStatus }
}

export function isPlainEnd(change: Change): change is PlainEnd {
  const { guard, runId, events, run } = change
  if (guard.kind !== 'lease' || runId === null || events.length === 0 || !isOfRunAlone(change)) return false
  if (run?.status === undefined || !isTerminal(run.status) || run.setsEnd !== true) return false
  if (run.reason !== null || run.currentStep !== null || run.due !== undefined) return false
  return run.waitKey === undefined && run.hasNewInput === undefined && run.uncountClaim === undefined
}

/** The end of a held run: one look, which also tells whether anybody else is concerned, the records, the new head, the row. */
export function prepareEnd(
  db: Database,
  acts: {
    readonly numberOf: (change: Change, leaseId: string) => number | undefined
    readonly forget: (run: number) => void
    readonly append: Append
    readonly line: Line
    readonly operations: Operations
  },
) {
  const { numberOf, forget, append, line, operations } = acts
  const findHeld = prepare(
    db,
    `SELECT r.last_message, t.id, t.head_seq, t.head_id, t.written_seq,
       EXISTS (SELECT 1 FROM holdfast_runs n INDEXED BY holdfast_runs_in_line
         WHERE n.thread = r.thread AND n.finished_at IS NULL AND n.id <> r.id) AS has_others,
       EXISTS (SELECT 1 FROM holdfast_operations o INDEXED BY holdfast_operations_intended
         WHERE o.owner = r.owner AND o.run_id = r.run_id
           AND (o.status = 'intended' OR (o.kind = 'question' AND o.status = 'unsure'))) AS has_left_open
     FROM holdfast_runs r CROSS JOIN holdfast_threads t ON t.id = r.thread
     WHERE r.id = ? AND r.epoch = ? AND r.lease_id = ?`,
  )
  // A held run waits for nothing and is not ready: these columns are as they have to be.
  const end = prepare(
    db,
    `UPDATE holdfast_runs SET status = ?, reason = NULL, current_step = NULL, lease_id = NULL, lease_until = NULL, lease_holder = NULL,
       claim_at = NULL, claims_without_progress = CASE WHEN ? THEN 0 ELSE claims_without_progress END, tape_seq = coalesce(?, tape_seq),
       started_at = coalesce(started_at, ?), end_seq = ?, finished_at = ?
     WHERE id = ?`,
  )

  return function apply(change: PlainEnd, now: number, hints: Hint[]): Committed {
    const { owner, threadId, runId, guard, events, run: to } = change
    const run = numberOf(change, guard.leaseId)
    const held = run === undefined ? undefined : (findHeld.get(run, guard.epoch, guard.leaseId) as HeldRow | undefined)
    if (run === undefined || held === undefined || held.written_seq < (guard.writtenSeq ?? 0))
      return { ok: false, refusal: 'lease_lost' }

    const { id, head_seq, head_id } = held
    const place = { id, owner, thread_id: threadId, head_seq, head_id }
    const { head_seq: lastSeq } = append(place, { run, runId, events, isCheckpoint: change.isCheckpoint, isLeased: true })
    const firstSeq = head_seq + 1
    const startsTape = to.startsTape === true
    end.run(to.status, to.hasProgress === true ? 1 : 0, startsTape ? firstSeq : null, startsTape ? now : null, lastSeq, now, run)
    forget(run)
    if (held.has_left_open === 1) operations.settleWhatIsOpen(owner, runId, now)
    if (held.has_others === 1) line.letNextGo(id)
    hints.push({ owner, threadId, runId, isClaimable: true })
    return { ok: true, firstSeq, lastSeq, now, created: [], hasMail: held.last_message > (change.mailSeen ?? 0) }
  }
}

interface HeldRow extends Head {
  readonly id: number
  readonly written_seq: number
  readonly last_message: number
  readonly has_others: number
  readonly has_left_open: number
}
