import { randomUUID } from 'node:crypto'
import { invariant } from '../../model/errors.ts'
import { suspicionLimit } from '../../model/run.ts'
import type { Claim, ClaimRequest, Renewed, RenewRequest } from '../../store/store.ts'
import { copyPayload, findRun, type RunRow, setWaitKey, type Tables, type ThreadRow } from './tables.ts'

export function claim(tables: Tables, request: ClaimRequest, now: number): Claim[] {
  const candidates: { thread: ThreadRow; row: RunRow }[] = []
  for (const thread of tables.busyThreads) {
    const row = thread.line[0]
    if (row !== undefined && isDue(row, now) && canExecute(request, thread, row)) candidates.push({ thread, row })
  }
  candidates.sort((a, b) => inTurn(a.row, b.row))
  const allowed = withoutSurplusSuspects(candidates, request)
  return allowed.slice(0, Math.max(0, request.limit)).map(({ thread, row }) => take(tables, { thread, row, request, now }))
}

function withoutSurplusSuspects<Candidate extends { row: RunRow }>(
  candidates: Candidate[],
  { suspectLimit }: ClaimRequest,
): Candidate[] {
  if (suspectLimit === undefined) return candidates
  let suspects = 0
  return candidates.filter(({ row }) => row.run.claimsWithoutProgress < suspicionLimit || ++suspects <= suspectLimit)
}

/** Extends leases that are still the latest, also one that ran out and that nobody took. */
export function renew(tables: Tables, request: RenewRequest, now: number): Renewed[] {
  return request.leases.map(({ owner, runId, epoch, leaseId }) => {
    const row = findRun(tables, owner, runId)
    const isHeld = row !== undefined && row.run.epoch === epoch && row.run.leaseId === leaseId
    if (isHeld) row.run.leaseUntil = now + request.leaseMs
    return { owner, runId, isHeld, hasMail: isHeld && row.inbox.length > 0 }
  })
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

function inTurn(a: RunRow, b: RunRow): number {
  return (
    b.run.priority - a.run.priority ||
    isAbandoned(b) - isAbandoned(a) ||
    claimableSince(a) - claimableSince(b) ||
    a.number - b.number
  )
}

/** Of runs that can be claimed, those that are running are abandoned. */
function isAbandoned({ run }: RunRow): number {
  return run.status === 'running' ? 1 : 0
}

/** An abandoned run is due since its lease ran out. */
function claimableSince({ run }: RunRow): number {
  return (run.status === 'running' ? run.leaseUntil : run.dueAt) ?? 0
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
    now,
  }
}
