import { randomBytes } from 'node:crypto'
import { codeOf } from '../../model/errors.ts'
import type { NewEvent } from '../../model/event.ts'
import type { Payload } from '../../model/payload.ts'
import { suspicionLimit } from '../../model/run.ts'
import type { Claim, ClaimRequest, Renewed, RenewRequest } from '../../store/store.ts'
import type { Commit } from './commit.ts'
import { type Database, prepare } from './connection.ts'
import { describeHolder, isDead, parseHolder, thisProcess } from './holder.ts'
import { type LogRow, type NamedRunRow, type RunRow, selectRun, type ThreadRow, toRecord, toRun, toThread } from './rows.ts'

/** A run that can be claimed now. */
interface Candidate {
  readonly id: number
  readonly priority: number
  /** 1 if somebody held it, and left. */
  readonly is_held: number
  /** Since when it is due; of an abandoned run, when its lease ran out. */
  readonly claim_at: number
  readonly claims_without_progress: number
  readonly isOfTheDead: boolean
}

/**
 * Finds runs that can be claimed; used on the reader, to see whether the write lock is worth taking, and again under it.
 * The index keeps claimable runs in lanes of one workflow, version, queue and priority, held or not, each in order of time. A claim hops
 * from lane to lane and never passes over runs that are not due.
 */
export function prepareCandidates(db: Database) {
  const columns = 'workflow, version, queue, priority, is_held'
  const firstLane = prepare(
    db,
    `SELECT ${columns}, claim_at FROM holdfast_runs INDEXED BY holdfast_runs_to_claim
     WHERE claim_at IS NOT NULL ORDER BY ${columns}, claim_at LIMIT 1`,
  )
  // Past the end of time of a lane: with the lane alone the engine would step through all of its runs.
  const nextLane = prepare(
    db,
    `SELECT ${columns}, claim_at FROM holdfast_runs INDEXED BY holdfast_runs_to_claim
     WHERE claim_at IS NOT NULL AND (${columns}, claim_at) > (?, ?, ?, ?, ?, ?) ORDER BY ${columns}, claim_at LIMIT 1`,
  )
  const dueInLane = prepare(
    db,
    `SELECT r.id, r.priority, r.is_held, r.claim_at, r.claims_without_progress
     FROM holdfast_runs r INDEXED BY holdfast_runs_to_claim CROSS JOIN holdfast_threads t ON t.id = r.thread
     WHERE r.workflow = ? AND r.version = ? AND r.queue = ? AND r.priority = ? AND r.is_held = ? AND r.claim_at <= ? AND t.state_version <= ?
       AND r.claims_without_progress >= ? AND r.claims_without_progress < ?
     ORDER BY r.claim_at, r.id LIMIT ?`,
  )
  const ofHolder = prepare(
    db,
    `SELECT r.id, r.priority, r.is_held, r.claim_at, r.claims_without_progress, r.workflow, r.version, r.queue, t.state_version
     FROM holdfast_runs r INDEXED BY holdfast_runs_by_holder CROSS JOIN holdfast_threads t ON t.id = r.thread
     WHERE r.lease_holder = ? AND r.claim_at > ?`,
  )

  /** In the order in which they are to be taken: higher priority first, then abandoned ones, then what was due first. */
  function find(request: ClaimRequest, { now, limit, deadHolderIds }: Search): Candidate[] {
    const stateVersionOf = readExecutables(request)
    const found: Candidate[] = []
    for (const holderId of deadHolderIds) {
      for (const run of ofHolder.all(holderId, now) as (Lane & Candidate & { state_version: number })[]) {
        const stateVersion = stateVersionOf(run)
        if (stateVersion !== undefined && run.state_version <= stateVersion) found.push({ ...run, isOfTheDead: true })
      }
    }
    for (const lanes of dueLanes(now)) {
      for (const lane of lanes) {
        const stateVersion = stateVersionOf(lane)
        if (stateVersion !== undefined)
          found.push(...dueIn(lane, { now, stateVersion, limit, suspectLimit: request.suspectLimit }))
      }
      // Lanes of lower priority cannot change what is taken first.
      const taken = inTurn(found, request)
      if ((taken[limit - 1]?.priority ?? Number.NEGATIVE_INFINITY) >= (lanes[0]?.priority ?? 0)) break
    }
    return inTurn(found, request).slice(0, limit)
  }

  /** Suspects are looked for apart: however many of them are due, they do not hide the others behind them. */
  function dueIn(
    { workflow, version, queue, priority, is_held }: Lane,
    { now, stateVersion, limit, suspectLimit }: LaneSearch,
  ): Candidate[] {
    const look = (claims: { from: number; below: number }, count: number) =>
      dueInLane.all(
        workflow,
        version,
        queue,
        priority,
        is_held,
        now,
        stateVersion,
        claims.from,
        claims.below,
        count,
      ) as Candidate[]
    const all = { from: 0, below: Number.MAX_SAFE_INTEGER }
    const due =
      suspectLimit === undefined
        ? look(all, limit)
        : [
            ...look({ ...all, below: suspicionLimit }, limit),
            ...look({ ...all, from: suspicionLimit }, Math.min(suspectLimit, limit)),
          ]
    return due.map((run) => ({ ...run, isOfTheDead: false }))
  }

  /** Lanes whose first run is due, those of one priority together, the highest first. */
  function dueLanes(now: number): Lane[][] {
    const byPriority = new Map<number, Lane[]>()
    for (let lane = firstLane.get() as Lane | undefined; lane !== undefined; lane = nextLaneAfter(lane)) {
      if (lane.claim_at > now) continue
      const lanes = byPriority.get(lane.priority)
      if (lanes === undefined) byPriority.set(lane.priority, [lane])
      else lanes.push(lane)
    }
    return [...byPriority].sort(([a], [b]) => b - a).map(([, lanes]) => lanes)
  }

  function nextLaneAfter({ workflow, version, queue, priority, is_held }: Lane): Lane | undefined {
    return nextLane.get(workflow, version, queue, priority, is_held, Number.MAX_SAFE_INTEGER) as Lane | undefined
  }

  return { find }
}

export type Candidates = ReturnType<typeof prepareCandidates>

export interface Search {
  readonly now: number
  readonly limit: number
  readonly deadHolderIds: readonly number[]
}

const leaseIdBytes = 12

/** Takes runs inside an open write transaction, and extends leases. */
export function prepareClaim(db: Database, commit: Commit) {
  const candidates = prepareCandidates(db)
  const holders = prepareHolders(db)
  const findNamed = prepare(db, `${selectRun} WHERE r.id = ?`)
  const findThread = prepare(db, 'SELECT * FROM holdfast_threads WHERE id = ?')
  const findInput = prepare(db, 'SELECT * FROM holdfast_log WHERE id = ? AND thread = ? AND seq = ?')
  const take = prepare(
    db,
    `UPDATE holdfast_runs SET status = 'running', epoch = epoch + 1, lease_id = ?, lease_until = ?, claim_at = ?, lease_holder = ?,
       claims_without_progress = claims_without_progress + 1, end_seq = NULL, wait_key = NULL
     WHERE id = ?`,
  )
  const quarantine = prepare(
    db,
    `UPDATE holdfast_runs SET status = 'paused', reason = 'poisoned', lease_id = NULL, lease_until = NULL, lease_holder = NULL,
       claim_at = NULL, wait_key = NULL, end_seq = ? WHERE id = ?`,
  )
  const extend = prepare(
    db,
    `UPDATE holdfast_runs SET lease_until = ?, claim_at = CASE WHEN claim_at IS NULL THEN NULL ELSE ? END
     WHERE owner = ? AND run_id = ? AND epoch = ? AND lease_id = ? RETURNING last_message`,
  )

  // Asking for random bytes takes as long as taking a run does: they are fetched for many leases at a time, and used once.
  let random = Buffer.alloc(0)

  function claim(request: ClaimRequest, search: Search): Claim[] {
    const claims: Claim[] = []
    const found = candidates.find(request, search)
    if (found.length === 0) return claims
    const holder = holders.register(request.workerId)
    for (const candidate of found) {
      const before = findNamed.get(candidate.id) as NamedRunRow
      const thread = findThread.get(before.thread) as ThreadRow
      const input = readInput(before, thread)
      if (input === null) setAside(before, thread, search.now)
      else claims.push(takeRun(before, { request, thread, input, holder, now: search.now, isOfTheDead: candidate.isOfTheDead }))
    }
    holders.forget(search.deadHolderIds)
    return claims
  }

  function newLeaseId(): string {
    if (random.length < leaseIdBytes) random = randomBytes(leaseIdBytes * 64)
    const id = random.toString('base64url', 0, leaseIdBytes)
    random = random.subarray(leaseIdBytes)
    return id
  }

  function takeRun(before: NamedRunRow, { request, thread, input, holder, now, isOfTheDead }: Taking): Claim {
    const lease_id = newLeaseId()
    const lease_until = now + request.leaseMs
    take.run(lease_id, lease_until, lease_until, holder.id, before.id)
    const { owner, run_id: runId, thread_id: threadId } = before
    commit.rememberLease(lease_id, { run: before.id, owner, runId, threadId })
    const taken = {
      status: 'running',
      epoch: before.epoch + 1,
      claims_without_progress: before.claims_without_progress + 1,
      end_seq: null,
    } as const
    const why = isOfTheDead ? 'holder_died' : 'lease_expired'
    const isAbandoned = before.status === 'running'
    return {
      run: toRun({ ...before, ...taken, lease_id, lease_until, holder: holder.text }),
      leaseId: lease_id,
      input,
      thread: toThread(thread),
      takenFrom: isAbandoned ? { holder: before.holder ?? '', why, leaseUntil: before.lease_until ?? now } : null,
      hasMail: before.last_message > 0,
      now,
    }
  }

  /** Null when the input is damaged: such a run cannot be executed, and must not keep others from being claimed. */
  function readInput(run: RunRow & { readonly run_id: string }, thread: ThreadRow): Payload | null {
    const row = findInput.get(run.input_id, run.thread, run.input_seq) as LogRow | undefined
    if (row === undefined) return null
    try {
      return toRecord(row, thread, run.run_id).payload
    } catch (error) {
      if (codeOf(error) === 'corrupt_record') return null
      throw error
    }
  }

  function setAside(run: RunRow, thread: ThreadRow, now: number): void {
    const { head_seq: seq } = commit.log.append(thread, {
      run: run.id,
      runId: run.run_id,
      events: [pausedEvent(now)],
      isCheckpoint: false,
    })
    quarantine.run(seq, run.id)
  }

  function renew({ leaseMs, leases }: RenewRequest, now: number): Renewed[] {
    const leaseUntil = now + leaseMs
    return leases.map(({ owner, runId, epoch, leaseId }) => {
      const held = extend.get(leaseUntil, leaseUntil, owner, runId, epoch, leaseId) as { last_message: number } | undefined
      return { owner, runId, isHeld: held !== undefined, hasMail: held !== undefined && held.last_message > 0 }
    })
  }

  return { claim, renew }
}

/** Finds holders of leases whose process is gone, as far as this machine can tell. Verdicts on the living last a second. */
export function prepareDeadHolders(db: Database) {
  const all = prepare(db, 'SELECT id, holder FROM holdfast_holders')
  const seenAlive = new Map<number, number>()
  const here = thisProcess()

  return function findDead(): number[] {
    const dead: number[] = []
    for (const { id, holder: text } of all.all() as { id: number; holder: string }[]) {
      if (performance.now() - (seenAlive.get(id) ?? Number.NEGATIVE_INFINITY) < 1_000) continue
      const holder = parseHolder(text)
      if (holder !== null && isDead(holder, here)) dead.push(id)
      else seenAlive.set(id, performance.now())
    }
    return dead
  }
}

/** The names behind `lease_holder`, kept once instead of in every run. */
function prepareHolders(db: Database) {
  const here = thisProcess()
  const find = prepare(db, 'SELECT id FROM holdfast_holders WHERE holder = ?').pluck()
  const insert = prepare(db, 'INSERT INTO holdfast_holders (holder) VALUES (?)')
  const removeIdle = prepare(
    db,
    'DELETE FROM holdfast_holders WHERE id <> ? AND NOT EXISTS (SELECT 1 FROM holdfast_runs WHERE lease_holder = holdfast_holders.id)',
  )

  return {
    /** The row of this worker. A newcomer takes those away that hold nothing; one of them that claims again comes back. */
    register(workerId: string): { id: number; text: string } {
      const text = describeHolder(workerId, here)
      const found = find.get(text) as number | undefined
      if (found !== undefined) return { id: found, text }
      const id = Number(insert.run(text).lastInsertRowid)
      removeIdle.run(id)
      return { id, text }
    },
    forget(ids: readonly number[]): void {
      if (ids.length > 0) removeIdle.run(0)
    },
  }
}

interface Lane {
  readonly workflow: string
  readonly version: number
  readonly queue: string
  readonly priority: number
  readonly is_held: number
  readonly claim_at: number
}

interface LaneSearch {
  readonly now: number
  readonly stateVersion: number
  readonly limit: number
  readonly suspectLimit: number | undefined
}

interface Taking {
  readonly request: ClaimRequest
  readonly thread: ThreadRow
  readonly input: Payload
  readonly holder: { readonly id: number; readonly text: string }
  readonly now: number
  readonly isOfTheDead: boolean
}

/** For a lane that the worker can execute: the highest state version it understands there. */
function readExecutables({
  workflows,
  queues,
}: ClaimRequest): (lane: Pick<Lane, 'workflow' | 'version' | 'queue'>) => number | undefined {
  const versions = new Map<string, Map<number, number>>()
  for (const { name, version, stateVersion = Number.MAX_SAFE_INTEGER } of workflows) {
    const known = versions.get(name) ?? new Map<number, number>()
    known.set(version, Math.max(stateVersion, known.get(version) ?? 0))
    versions.set(name, known)
  }
  return ({ workflow, version, queue }) =>
    queues !== undefined && !queues.includes(queue) ? undefined : versions.get(workflow)?.get(version)
}

/** Higher priority first, then abandoned ones, then what was due first; without suspects that are too many. */
function inTurn(candidates: Candidate[], { suspectLimit = Number.POSITIVE_INFINITY }: ClaimRequest): Candidate[] {
  const sorted = candidates.sort(
    (a, b) => b.priority - a.priority || b.is_held - a.is_held || a.claim_at - b.claim_at || a.id - b.id,
  )
  let suspects = 0
  return sorted.filter((candidate) => candidate.claims_without_progress < suspicionLimit || ++suspects <= suspectLimit)
}

function pausedEvent(at: number): NewEvent {
  return { type: 'run_paused', step: null, count: 0, attempt: 0, at, durationMs: null, payload: null, patch: null }
}
