import { randomUUID } from 'node:crypto'
import { ClaimOrder, type Contender } from '../../model/claim-order.ts'
import { claimableAfterSetBack } from '../../model/clock-set-back.ts'
import { invariant } from '../../model/errors.ts'
import { hasForgotten, holdsLease } from '../../model/guard.ts'
import { isLimited } from '../../model/queue.ts'
import { isSuspect } from '../../model/run.ts'
import type { Claim, ClaimRequest, Renewed, RenewRequest } from '../../store/store.ts'
import { noteStart, roomOf } from './queues.ts'
import { copyPayload, findRun, findThread, type RunRow, setWaitKey, type Tables, type ThreadRow } from './tables.ts'

export function claim(tables: Tables, request: ClaimRequest, now: number): Claim[] {
  const byPriority = new Map<number, Candidate[]>()
  for (const thread of tables.busyThreads) {
    const row = thread.unfinished[0]
    if (row === undefined || !isDue(row, now) || !canExecute(request, thread, row)) continue
    const candidates = byPriority.get(row.run.priority)
    if (candidates === undefined) byPriority.set(row.run.priority, [candidateOf(thread, row)])
    else candidates.push(candidateOf(thread, row))
  }
  const turns = new ClaimOrder({ ...request, roomOf: roomOf(tables, request, now) })
  const priorities = [...byPriority].sort(([a], [b]) => b - a)
  const chosen = priorities.flatMap(([priority, candidates]) => turns.choose(priority, candidates))
  return chosen.map(({ thread, row, isNew }) => {
    if (isNew) noteStart(tables, row.run.queue, now)
    return take(tables, { thread, row, request, now })
  })
}

interface Candidate extends Contender {
  readonly thread: ThreadRow
  readonly row: RunRow
}

function candidateOf(thread: ThreadRow, row: RunRow): Candidate {
  const { owner, queue, status, epoch, leaseUntil, dueAt } = row.run
  const isHeld = status === 'running'
  return {
    ...{ thread, row, owner, queue, isHeld, number: row.number },
    isSuspect: isSuspect(row.run),
    isNew: epoch === thread.epochFloor,
    // An abandoned run is due since its lease ran out.
    since: (isHeld ? leaseUntil : dueAt) ?? 0,
  }
}

/** Extends leases that are still the latest, also one that ran out and that no other worker took. */
export function renew(tables: Tables, request: RenewRequest, now: number): Renewed[] {
  return request.leases.map((lease) => {
    const { owner, runId } = lease
    const row = findRun(tables, owner, runId)
    const isLatest = row !== undefined && holdsLease(row.run, lease)
    const isHeld = isLatest && !hasForgotten(findThread(tables, owner, row.run.threadId)?.thread, lease)
    if (isHeld) row.run.leaseUntil = now + request.leaseMs
    return { owner, runId, isHeld, hasMail: isHeld && row.inbox.length > 0 }
  })
}

/** Moves what a clock that was set back would hold up: model/clock-set-back.ts. */
export function heedSetBack(tables: Tables, { leaseMs }: ClaimRequest, now: number): void {
  for (const { unfinished } of tables.busyThreads) {
    for (const { run } of unfinished) {
      const at = claimableAfterSetBack(run, { now, leaseMs })
      if (at === null) continue
      if (run.status === 'running') run.leaseUntil = at
      else run.dueAt = at
    }
  }
  for (const queue of tables.queues.values()) queue.startedAt = queue.startedAt.filter((at) => at <= now)
}

function isDue({ run }: RunRow, now: number): boolean {
  if (run.status === 'running') return run.leaseUntil !== null && run.leaseUntil <= now
  return (run.status === 'pending' || run.status === 'waiting') && run.dueAt !== null && run.dueAt <= now
}

function canExecute({ workflows, queues }: ClaimRequest, { thread }: ThreadRow, { run }: RunRow): boolean {
  if (queues !== undefined && !queues.includes(run.queue)) return false
  return workflows.some(
    ({ name, version, stateVersion }) =>
      name === run.workflow && version === run.version && (stateVersion === undefined || thread.stateVersion <= stateVersion),
  )
}

interface Taking {
  readonly thread: ThreadRow
  readonly row: RunRow
  readonly request: ClaimRequest
  readonly now: number
}

function take(tables: Tables, { thread, row, request, now }: Taking): Claim {
  const { run } = row
  const { leaseHolder, leaseUntil } = run
  const isAbandoned = run.status === 'running'
  const leaseId = randomUUID()
  run.status = 'running'
  run.epoch += 1
  run.leaseId = leaseId
  run.leaseUntil = now + request.leaseMs
  run.leaseHolder = request.workerId
  run.claimsWithoutProgress += 1
  run.endSeq = null
  setWaitKey(tables, row, null)

  const input = thread.log[run.inputSeq - thread.thread.baseSeq - 1]?.payload
  invariant(input !== undefined && input !== null, `run ${run.id} has no input at position ${run.inputSeq}`)
  return {
    run: { ...run },
    leaseId,
    input: copyPayload(input),
    thread: { ...thread.thread },
    takenFrom: isAbandoned ? { holder: leaseHolder ?? '', why: 'lease_expired', leaseUntil: leaseUntil ?? now } : null,
    hasMail: row.inbox.length > 0,
    isQueueLimited: isLimited(tables.queues.get(run.queue)?.settings),
    now,
  }
}
