import { latestLeaseEnd, setBackToleranceMs } from '../../model/clock-set-back.ts'
import { type Database, prepare } from './connection.ts'
import { withQueuesInUse } from './queues.ts'

const heldTooLong = selectIn(`status = 'running' AND lease_until > :latestLeaseEnd`)
const heldUp = selectIn(`status = 'pending' AND due_at > :now AND (started_at IS NOT NULL OR due_at <= created_at)`)

function selectIn(condition: string): string {
  return `SELECT id FROM queues_in_use CROSS JOIN holdfast_runs INDEXED BY holdfast_runs_in_queue WHERE queue = name AND finished_at IS NULL AND ${condition}`
}

/** Whether a clock that was set back would hold up runs. */
export function prepareIsHeldUp(db: Database) {
  const find = prepare(
    db,
    `${withQueuesInUse} SELECT EXISTS (${heldTooLong}) OR EXISTS (${heldUp}) OR EXISTS (SELECT 1 FROM holdfast_queue_starts WHERE at > :now + ${setBackToleranceMs})`,
  ).pluck()
  return (now: number, leaseMs: number): boolean => find.get({ now, latestLeaseEnd: latestLeaseEnd({ now, leaseMs }) }) === 1
}

/** Moves runs that a clock which was set back would hold up, as model/clock-set-back.ts says. */
export function prepareHeedSetBack(db: Database) {
  const shortenLeases = prepare(
    db,
    `${withQueuesInUse} UPDATE holdfast_runs SET lease_until = :until, claim_at = :until WHERE id IN (${heldTooLong})`,
  )
  const makeDue = prepare(
    db,
    `${withQueuesInUse} UPDATE holdfast_runs SET due_at = :now, claim_at = iif(claim_at IS NULL, NULL, :now) WHERE id IN (${heldUp})`,
  )
  const forgetStarts = prepare(db, 'DELETE FROM holdfast_queue_starts WHERE at > ?')

  return function heedSetBack(now: number, leaseMs: number): void {
    shortenLeases.run({ until: now + leaseMs, latestLeaseEnd: latestLeaseEnd({ now, leaseMs }) })
    makeDue.run({ now })
    forgetStarts.run(now + setBackToleranceMs)
  }
}
