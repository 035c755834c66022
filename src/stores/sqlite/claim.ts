import { codeOf } from '../../model/errors.ts'
import type { NewEvent } from '../../model/event.ts'
import { hasForgotten, holdsLease } from '../../model/guard.ts'
import type { Payload } from '../../model/payload.ts'
import { suspicionLimit } from '../../model/run.ts'
import type { Claim, ClaimRequest, Renewed, RenewRequest } from '../../store/store.ts'
import { Candidates, type Search } from './candidates.ts'
import { type ClaimableRow, selectClaimable, toClaim } from './claimable-row.ts'
import type { Commits } from './commit.ts'
import { type Database, prepare } from './connection.ts'
import { prepareLeaseHolders } from './lease-holders.ts'
import { newLeasePrefix } from './lease-id.ts'
import { prepareNoteStarts } from './queues.ts'
import { type LogRow, toRecord } from './rows.ts'

/** Takes runs inside an open write transaction, and extends leases. */
export class Claims {
  readonly #parts: Commits['parts']
  readonly #sql: ReturnType<typeof prepareStatements>
  readonly #candidates: Candidates
  readonly #holders: ReturnType<typeof prepareLeaseHolders>
  readonly #noteStarts: ReturnType<typeof prepareNoteStarts>

  constructor(db: Database, { parts }: Commits) {
    this.#parts = parts
    this.#sql = prepareStatements(db)
    this.#candidates = new Candidates(db)
    this.#holders = prepareLeaseHolders(db)
    this.#noteStarts = prepareNoteStarts(db)
  }

  claim(request: ClaimRequest, search: Search): Claim[] {
    const { now } = search
    const claims: Claim[] = []
    for (const { workflow, version, queue, priority } of this.#candidates.wokenLanes(request, now))
      this.#sql.makeReady.run(workflow, version, queue, priority, now)
    const { found, rooms } = this.#candidates.find(request, search)
    if (found.length === 0) return claims
    const holder = this.#holders.register(request.workerId)
    const leasePrefix = newLeasePrefix()
    const leaseUntil = now + request.leaseMs
    const taken: number[] = []
    for (const { number, holderIsDead } of found) {
      const before = this.#sql.find.get(number) as ClaimableRow
      const input = readInput(before)
      if (input === null) {
        this.#setAside(number, before, now)
        continue
      }
      taken.push(number)
      const lease = { leaseId: `${leasePrefix}${number}`, leaseUntil, holder: holder.text }
      claims.push(toClaim(before, { ...lease, input, now, holderIsDead, isQueueLimited: rooms.isLimited(before.queue) }))
    }
    this.#sql.take.run(leasePrefix, leaseUntil, leaseUntil, holder.id, JSON.stringify(taken))
    const newQueues = found.filter(({ isNew }) => isNew).map(({ queue }) => queue)
    this.#noteStarts(newQueues, rooms, now)
    this.#holders.forget(search.deadHolderIds)
    return claims
  }

  renew({ leaseMs, leases }: RenewRequest, now: number): Renewed[] {
    const { runs } = this.#parts
    const leaseUntil = now + leaseMs
    return leases.map((lease) => {
      const { owner, runId } = lease
      const found = runs.findLeased(lease, lease.leaseId)
      if (found === undefined || !holdsLease(found.run, lease) || hasForgotten(found.thread, lease))
        return { owner, runId, isHeld: false, hasMail: false }
      const { run, claimAt, unreadMessage } = found.run
      runs.save(run, claimAt === null ? { leaseUntil } : { leaseUntil, claimAt: leaseUntil })
      return { owner, runId, isHeld: true, hasMail: unreadMessage > 0 }
    })
  }

  #setAside(run: number, { owner, run_id: runId, thread_id: threadId }: ClaimableRow, now: number): void {
    const { log, threads } = this.#parts
    const found = threads.find({ owner, threadId })
    if (found === undefined) return
    const { thread, headSeq, headRecord } = found
    const appending = { run, runId, events: [pausedEvent(now)], isCheckpoint: false, isLeased: false }
    log.append({ thread, owner, threadId, headSeq, headRecord }, appending)
    this.#sql.quarantine.run(headSeq + 1, run)
  }
}

/** Null when the input is damaged: such a run cannot be executed, and must not keep others from being claimed. */
function readInput(row: ClaimableRow): Payload | null {
  if (row.seq === null) return null
  try {
    return toRecord(row as LogRow & ClaimableRow, row, row.run_id).payload
  } catch (error) {
    if (codeOf(error) === 'corrupt_record') return null
    throw error
  }
}

function prepareStatements(db: Database) {
  return {
    makeReady: prepare(
      db,
      `UPDATE holdfast_runs SET ready = CASE WHEN epoch = (SELECT t.epoch_floor FROM holdfast_threads t WHERE t.id = thread) THEN 2 ELSE 1 END
       WHERE id IN (SELECT r.id FROM holdfast_runs r INDEXED BY holdfast_runs_to_claim
         WHERE r.claim_at IS NOT NULL AND r.ready = 0 AND r.workflow = ? AND r.version = ? AND r.queue = ? AND r.priority = ? AND r.is_held = 0
           AND r.claim_at <= ? AND r.claims_without_progress < ${suspicionLimit})`,
    ),
    find: prepare(db, selectClaimable),
    take: prepare(
      db,
      `UPDATE holdfast_runs SET status = 'running', epoch = epoch + 1, lease_id = ? || id, lease_until = ?, claim_at = ?, ready = 0,
         lease_holder = ?, claims_without_progress = claims_without_progress + 1, end_seq = NULL, wait_key = NULL
       WHERE id IN (SELECT value FROM json_each(?))`,
    ),
    quarantine: prepare(
      db,
      `UPDATE holdfast_runs SET status = 'paused', reason = 'poisoned', lease_id = NULL, lease_until = NULL, lease_holder = NULL,
         claim_at = NULL, wait_key = NULL, end_seq = ? WHERE id = ?`,
    ),
  }
}

function pausedEvent(at: number): NewEvent {
  return { type: 'run_paused', step: null, count: 0, attempt: 0, at, durationMs: null, payload: null, patch: null }
}
