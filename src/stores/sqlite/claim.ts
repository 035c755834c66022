import { codeOf } from '../../model/errors.ts'
import type { NewEvent } from '../../model/event.ts'
import type { Payload } from '../../model/payload.ts'
import { suspicionLimit } from '../../model/run.ts'
import { type Contender, Turns } from '../../model/turns.ts'
import type { Claim, ClaimRequest, Renewed, RenewRequest } from '../../store/store.ts'
import type { Commit } from './commit.ts'
import { type Database, prepare } from './connection.ts'
import { describeHolder, isDead, parseHolder, thisProcess, workerOf } from './holder.ts'
import { newLeasePrefix } from './lease-id.ts'
import { bytewise, prepareNoteStarts, prepareRooms, type Rooms } from './queues.ts'
import { type LogRow, type NamedRunRow, type ThreadRow, toRecord } from './rows.ts'

/** A run that can be claimed now. */
interface Candidate extends Contender {
  readonly isOfTheDead: boolean
}

/**
 * Finds runs that can be claimed; used on the reader, to see whether the write lock is worth taking, and again under it.
 * Two indexes keep claimable runs in lanes of one workflow, version, queue and priority: those that are held or sleep in order of time,
 * the others by owner. A claim hops from lane to lane and from owner to owner, and never passes over runs that are not due.
 */
export function prepareCandidates(db: Database) {
  const readRooms = prepareRooms(db)
  const columns = 'workflow, version, queue, priority, is_held'
  const firstLane = prepare(
    db,
    `SELECT ${columns}, claim_at FROM holdfast_runs INDEXED BY holdfast_runs_to_claim
     WHERE claim_at IS NOT NULL AND ready = 0 ORDER BY ${columns}, claim_at LIMIT 1`,
  )
  // Past the end of time of a lane: with the lane alone the engine would step through all of its runs.
  const nextLane = prepare(
    db,
    `SELECT ${columns}, claim_at FROM holdfast_runs INDEXED BY holdfast_runs_to_claim
     WHERE claim_at IS NOT NULL AND ready = 0 AND (${columns}, claim_at) > (?, ?, ?, ?, ?, ?) ORDER BY ${columns}, claim_at LIMIT 1`,
  )
  const readyColumns = 'workflow, version, queue, priority, ready'
  const firstReadyLane = prepare(
    db,
    `SELECT ${readyColumns} FROM holdfast_runs INDEXED BY holdfast_runs_ready
     WHERE claim_at IS NOT NULL AND ready > 0 ORDER BY ${readyColumns} LIMIT 1`,
  )
  const nextReadyLane = prepare(
    db,
    `SELECT ${readyColumns} FROM holdfast_runs INDEXED BY holdfast_runs_ready
     WHERE claim_at IS NOT NULL AND ready > 0 AND (${readyColumns}) >= (?, ?, ?, ?, ?) ORDER BY ${readyColumns} LIMIT 1`,
  )
  const inReadyLane =
    'claim_at IS NOT NULL AND ready > 0 AND workflow = ? AND version = ? AND queue = ? AND priority = ? AND ready = ?'
  const ownerFrom = prepare(
    db,
    `SELECT owner FROM holdfast_runs INDEXED BY holdfast_runs_ready WHERE ${inReadyLane} AND owner >= ? ORDER BY owner LIMIT 1`,
  ).pluck()
  const ownerAfter = prepare(
    db,
    `SELECT owner FROM holdfast_runs INDEXED BY holdfast_runs_ready WHERE ${inReadyLane} AND owner > ? ORDER BY owner LIMIT 1`,
  ).pluck()
  const dueOfOwner = prepare(
    db,
    `SELECT r.id, r.owner, r.claim_at, r.claims_without_progress
     FROM holdfast_runs r INDEXED BY holdfast_runs_ready CROSS JOIN holdfast_threads t ON t.id = r.thread
     WHERE r.claim_at IS NOT NULL AND r.ready > 0 AND r.workflow = ? AND r.version = ? AND r.queue = ? AND r.priority = ? AND r.ready = ?
       AND r.owner = ? AND r.claim_at <= ? AND t.state_version <= ?
     ORDER BY r.claim_at, r.id LIMIT ?`,
  )
  const dueInLane = prepare(
    db,
    `SELECT r.id, r.owner, r.claim_at, r.claims_without_progress
     FROM holdfast_runs r INDEXED BY holdfast_runs_to_claim CROSS JOIN holdfast_threads t ON t.id = r.thread
     WHERE r.claim_at IS NOT NULL AND r.ready = 0 AND r.workflow = ? AND r.version = ? AND r.queue = ? AND r.priority = ? AND r.is_held = ?
       AND r.claim_at <= ? AND t.state_version <= ? AND r.claims_without_progress >= ? AND r.claims_without_progress < ?
     ORDER BY r.claim_at, r.id LIMIT ?`,
  )
  const ofHolder = prepare(
    db,
    `SELECT r.id, r.owner, r.priority, r.claim_at, r.claims_without_progress, r.workflow, r.version, r.queue, t.state_version
     FROM holdfast_runs r INDEXED BY holdfast_runs_by_holder CROSS JOIN holdfast_threads t ON t.id = r.thread
     WHERE r.lease_holder = ? AND r.claim_at > ?`,
  )

  /** In the order in which they are to be taken. Runs that have woken up are found once they are ready. */
  function find(
    request: ClaimRequest,
    { now, limit, deadHolderIds }: Search,
  ): { readonly found: Candidate[]; readonly rooms: Rooms } {
    const stateVersionOf = readExecutables(request)
    const rooms = readRooms(request, now)
    const turns = new Turns({ ...request, limit, roomOf: rooms.roomOf })
    const lookers = new Map<number, (() => Candidate[])[]>()
    const lookAt = (priority: number, look: () => Candidate[]) => {
      const others = lookers.get(priority)
      if (others === undefined) lookers.set(priority, [look])
      else others.push(look)
    }
    for (const holderId of deadHolderIds) {
      for (const run of ofHolder.all(holderId, now) as (Lane & DueRow & { state_version: number })[]) {
        const stateVersion = stateVersionOf(run)
        if (stateVersion === undefined || run.state_version > stateVersion) continue
        lookAt(run.priority, () => [toCandidate(run, { queue: run.queue, isHeld: true, isNew: false, isOfTheDead: true })])
      }
    }
    for (const lane of lanesInTime()) {
      const stateVersion = stateVersionOf(lane)
      if (stateVersion === undefined || lane.claim_at > now || rooms.isPaused(lane.queue)) continue
      lookAt(lane.priority, () => dueIn(lane, { now, stateVersion, limit: turns.left, suspectLimit: request.suspectLimit }))
    }
    for (const lane of readyLanes()) {
      const stateVersion = stateVersionOf(lane)
      if (stateVersion === undefined || rooms.isPaused(lane.queue)) continue
      const lastOwner = request.lastOwners?.find(({ priority }) => priority === lane.priority)?.owner
      lookAt(lane.priority, () => readyIn(lane, { now, stateVersion, limit: turns.left, lastOwner }))
    }
    const found: Candidate[] = []
    for (const [priority, looks] of [...lookers].sort(([a], [b]) => b - a)) {
      if (turns.left === 0) break
      found.push(
        ...turns.choose(
          priority,
          looks.flatMap((look) => look()),
        ),
      )
    }
    return { found, rooms }
  }

  /** Lanes of runs that sleep and have become due. */
  function wokenLanes(request: ClaimRequest, now: number): Lane[] {
    const stateVersionOf = readExecutables(request)
    const { isPaused } = readRooms(request, now)
    return [...lanesInTime()].filter(
      (lane) =>
        lane.is_held === 0 &&
        lane.claim_at <= now &&
        stateVersionOf(lane) !== undefined &&
        !isPaused(lane.queue) &&
        lookInLane(lane, { now, stateVersion: Number.MAX_SAFE_INTEGER, from: 0, below: suspicionLimit, limit: 1 }).length > 0,
    )
  }

  /**
   * Abandoned runs, and of those that nobody holds the suspects. Suspects are looked for apart: however many of them are due, they do
   * not hide the others behind them.
   */
  function dueIn(lane: Lane, { now, stateVersion, limit, suspectLimit = Number.POSITIVE_INFINITY }: LaneSearch): Candidate[] {
    const isHeld = lane.is_held === 1
    const held = isHeld ? lookInLane(lane, { now, stateVersion, from: 0, below: suspicionLimit, limit }) : []
    const count = Math.min(Math.max(0, suspectLimit), limit)
    const suspects = lookInLane(lane, { now, stateVersion, from: suspicionLimit, below: Number.MAX_SAFE_INTEGER, limit: count })
    return [...held, ...suspects].map((row) => toCandidate(row, { queue: lane.queue, isHeld, isNew: false, isOfTheDead: false }))
  }

  function lookInLane(
    { workflow, version, queue, priority, is_held }: Lane,
    search: { now: number; stateVersion: number; from: number; below: number; limit: number },
  ): DueRow[] {
    const { now, stateVersion, from, below, limit } = search
    return dueInLane.all(workflow, version, queue, priority, is_held, now, stateVersion, from, below, limit) as DueRow[]
  }

  /**
   * The first `limit` runs of a lane in the order of turns: the first run of each owner, and with fewer owners than that as many
   * of each as there may be turns.
   */
  function readyIn(lane: ReadyLane, { now, stateVersion, limit, lastOwner }: ReadySearch): Candidate[] {
    const { workflow, version, queue, priority, ready } = lane
    const dueOf = (owner: string, count: number) =>
      dueOfOwner.all(workflow, version, queue, priority, ready, owner, now, stateVersion, count) as DueRow[]
    let lines: DueRow[][] = []
    for (const owner of ownersOf(lane, lastOwner)) {
      if (lines.length === limit) break
      const line = dueOf(owner, 1)
      if (line.length > 0) lines.push(line)
    }
    // With one owner this is one more look, however many runs it has.
    for (let turns = 1, rest = true; rest && lines.flat().length < limit && lines.length > 0; ) {
      const asked = turns
      turns = Math.max(2 * turns, Math.ceil(limit / lines.length))
      lines = lines.map((line) => (line.length < asked ? line : dueOf((line[0] as DueRow).owner, turns)))
      rest = lines.some((line) => line.length === turns)
    }
    return lines.flat().map((row) => toCandidate(row, { queue, isHeld: false, isNew: ready === 2, isOfTheDead: false }))
  }

  /** In bytewise order, beginning after the one who had the last turn. */
  function* ownersOf({ workflow, version, queue, priority, ready }: ReadyLane, lastOwner: string | undefined): Generator<string> {
    const lane = [workflow, version, queue, priority, ready] as const
    const next = (owner: string) => ownerAfter.get(...lane, owner) as string | undefined
    const first = ownerFrom.get(...lane, '') as string | undefined
    if (lastOwner !== undefined) for (let owner = next(lastOwner); owner !== undefined; owner = next(owner)) yield owner
    for (let owner = first; owner !== undefined; owner = next(owner)) {
      if (lastOwner !== undefined && bytewise(owner, lastOwner) > 0) return
      yield owner
    }
  }

  function* lanesInTime(): Generator<Lane> {
    for (let lane = firstLane.get() as Lane | undefined; lane !== undefined; ) {
      yield lane
      const { workflow, version, queue, priority, is_held } = lane
      lane = nextLane.get(workflow, version, queue, priority, is_held, Number.MAX_SAFE_INTEGER) as Lane | undefined
    }
  }

  function* readyLanes(): Generator<ReadyLane> {
    for (let lane = firstReadyLane.get() as ReadyLane | undefined; lane !== undefined; ) {
      yield lane
      const { workflow, version, queue, priority, ready } = lane
      lane = nextReadyLane.get(workflow, version, queue, priority, ready + 1) as ReadyLane | undefined
    }
  }

  return { find, wokenLanes }
}

export interface Search {
  readonly now: number
  readonly limit: number
  readonly deadHolderIds: readonly number[]
}

/** Takes runs inside an open write transaction, and extends leases. */
export function prepareClaim(db: Database, commit: Commit) {
  const candidates = prepareCandidates(db)
  const holders = prepareHolders(db)
  const noteStarts = prepareNoteStarts(db)
  const makeReady = prepare(
    db,
    `UPDATE holdfast_runs SET ready = CASE WHEN epoch = (SELECT t.epoch_floor FROM holdfast_threads t WHERE t.id = thread) THEN 2 ELSE 1 END
     WHERE id IN (SELECT r.id FROM holdfast_runs r INDEXED BY holdfast_runs_to_claim
       WHERE r.claim_at IS NOT NULL AND r.ready = 0 AND r.workflow = ? AND r.version = ? AND r.queue = ? AND r.priority = ? AND r.is_held = 0
         AND r.claim_at <= ? AND r.claims_without_progress < ${suspicionLimit})`,
  )
  const find = prepare(
    db,
    `SELECT r.owner, r.run_id, r.thread, r.workflow, r.version, r.status, r.reason, r.queue, r.priority, r.fingerprint, r.epoch, r.lease_until,
       r.due_at, r.claims_without_progress, r.current_step, r.input_seq, r.tape_seq, r.created_at, r.started_at, r.unread_message, h.holder,
       t.thread_id, t.head_seq, t.written_seq, t.patch_seq, t.patch_checksum, t.state_version, t.incarnation, t.base_seq, t.created_at AS began_at,
       l.seq, l.type, l.step, l.count, l.attempt, l.at, l.duration_ms, l.payload, l.patch, l.checkpoint_bytes, l.checksum
     FROM holdfast_runs r CROSS JOIN holdfast_threads t ON t.id = r.thread
       LEFT JOIN holdfast_log l ON l.id = r.input_id AND l.thread = r.thread AND l.seq = r.input_seq
       LEFT JOIN holdfast_holders h ON h.id = r.lease_holder
     WHERE r.id = ?`,
  )
  const findThread = prepare(db, 'SELECT * FROM holdfast_threads WHERE id = ?')
  const take = prepare(
    db,
    `UPDATE holdfast_runs SET status = 'running', epoch = epoch + 1, lease_id = ? || id, lease_until = ?, claim_at = ?, ready = 0,
       lease_holder = ?, claims_without_progress = claims_without_progress + 1, end_seq = NULL, wait_key = NULL
     WHERE id IN (SELECT value FROM json_each(?))`,
  )
  const quarantine = prepare(
    db,
    `UPDATE holdfast_runs SET status = 'paused', reason = 'poisoned', lease_id = NULL, lease_until = NULL, lease_holder = NULL,
       claim_at = NULL, wait_key = NULL, end_seq = ? WHERE id = ?`,
  )
  const extend = prepare(
    db,
    `UPDATE holdfast_runs SET lease_until = ?, claim_at = CASE WHEN claim_at IS NULL THEN NULL ELSE ? END
     WHERE owner = ? AND run_id = ? AND epoch = ? AND lease_id = ?
       AND (SELECT t.written_seq FROM holdfast_threads t WHERE t.id = holdfast_runs.thread) >= ? RETURNING unread_message`,
  )

  function claim(request: ClaimRequest, search: Search): Claim[] {
    const claims: Claim[] = []
    for (const { workflow, version, queue, priority } of candidates.wokenLanes(request, search.now))
      makeReady.run(workflow, version, queue, priority, search.now)
    const { found, rooms } = candidates.find(request, search)
    if (found.length === 0) return claims
    const holder = holders.register(request.workerId)
    const leasePrefix = newLeasePrefix()
    const leaseUntil = search.now + request.leaseMs
    const taken: number[] = []
    for (const { number, isOfTheDead } of found) {
      const before = find.get(number) as ClaimableRow
      const input = readInput(before)
      if (input === null) {
        setAside(number, before, search.now)
        continue
      }
      const leaseId = `${leasePrefix}${number}`
      taken.push(number)
      commit.rememberLease(number, { leaseId, owner: before.owner, runId: before.run_id, threadId: before.thread_id })
      const isQueueLimited = rooms.isLimited(before.queue)
      claims.push(
        toClaim(before, { leaseId, leaseUntil, input, holder: holder.text, now: search.now, isOfTheDead, isQueueLimited }),
      )
    }
    take.run(leasePrefix, leaseUntil, leaseUntil, holder.id, JSON.stringify(taken))
    noteStarts(
      found.filter(({ isNew }) => isNew).map(({ queue }) => queue),
      rooms,
      search.now,
    )
    holders.forget(search.deadHolderIds)
    return claims
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

  function setAside(run: number, { run_id: runId, thread }: ClaimableRow, now: number): void {
    const place = findThread.get(thread) as ThreadRow
    const { head_seq: seq } = commit.log.append(place, {
      run,
      runId,
      events: [pausedEvent(now)],
      isCheckpoint: false,
      isLeased: false,
    })
    quarantine.run(seq, run)
  }

  function renew({ leaseMs, leases }: RenewRequest, now: number): Renewed[] {
    const leaseUntil = now + leaseMs
    return leases.map(({ owner, runId, epoch, leaseId, writtenSeq = 0 }) => {
      const held = extend.get(leaseUntil, leaseUntil, owner, runId, epoch, leaseId, writtenSeq) as
        | { unread_message: number }
        | undefined
      return { owner, runId, isHeld: held !== undefined, hasMail: held !== undefined && held.unread_message > 0 }
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

interface DueRow {
  readonly id: number
  readonly owner: string
  /** Since when it is due; of an abandoned run, when its lease ran out. */
  readonly claim_at: number
  readonly claims_without_progress: number
}

interface Lane {
  readonly workflow: string
  readonly version: number
  readonly queue: string
  readonly priority: number
  readonly is_held: number
  readonly claim_at: number
}

interface ReadyLane extends Omit<Lane, 'is_held' | 'claim_at'> {
  readonly ready: number
}

interface LaneSearch {
  readonly now: number
  readonly stateVersion: number
  readonly limit: number
  readonly suspectLimit: number | undefined
}

interface ReadySearch extends Omit<LaneSearch, 'suspectLimit'> {
  readonly lastOwner: string | undefined
}

/** An unfinished run, its thread, and the record that brings its input, as far as a claim tells of them; the record's columns are null where it is missing. */
interface ClaimableRow extends Omit<NamedRunRow, UnreadColumn> {
  readonly head_seq: number
  readonly written_seq: number
  readonly patch_seq: number
  readonly patch_checksum: number
  readonly state_version: number
  readonly incarnation: number
  readonly base_seq: number
  readonly began_at: number
  readonly seq: number | null
}

type UnreadColumn =
  | 'id'
  | 'lease_id'
  | 'lease_holder'
  | 'claim_at'
  | 'ready'
  | 'wait_key'
  | 'end_seq'
  | 'input_id'
  | 'finished_at'

interface Taking {
  readonly leaseId: string
  readonly leaseUntil: number
  readonly input: Payload
  readonly holder: string
  readonly now: number
  readonly isOfTheDead: boolean
  readonly isQueueLimited: boolean
}

/** The claim of a run, as it is once taken. */
function toClaim(before: ClaimableRow, taking: Taking): Claim {
  const { leaseId, leaseUntil, input, holder, now, isOfTheDead, isQueueLimited } = taking
  const { owner, thread_id: threadId } = before
  const why = isOfTheDead ? 'holder_died' : 'lease_expired'
  const isAbandoned = before.status === 'running'
  return {
    run: {
      owner,
      id: before.run_id,
      threadId,
      workflow: before.workflow,
      version: before.version,
      status: 'running',
      reason: before.reason,
      queue: before.queue,
      priority: before.priority,
      fingerprint: before.fingerprint,
      epoch: before.epoch + 1,
      leaseId,
      leaseUntil,
      leaseHolder: workerOf(holder),
      dueAt: before.due_at,
      claimsWithoutProgress: before.claims_without_progress + 1,
      currentStep: before.current_step,
      inputSeq: before.input_seq,
      tapeSeq: before.tape_seq,
      endSeq: null,
      createdAt: before.created_at,
      startedAt: before.started_at,
      finishedAt: null,
    },
    leaseId,
    input,
    thread: {
      owner,
      threadId,
      headSeq: before.head_seq,
      writtenSeq: before.written_seq,
      patchSeq: before.patch_seq,
      patchChecksum: before.patch_checksum,
      stateVersion: before.state_version,
      incarnation: before.incarnation,
      baseSeq: before.base_seq,
      createdAt: before.began_at,
      deletedAt: null,
    },
    takenFrom: isAbandoned ? { holder: workerOf(before.holder) ?? '', why, leaseUntil: before.lease_until ?? now } : null,
    hasMail: before.unread_message > 0,
    isQueueLimited,
    now,
  }
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

function toCandidate(
  { id, owner, claim_at, claims_without_progress }: DueRow,
  fields: Pick<Candidate, 'queue' | 'isHeld' | 'isNew' | 'isOfTheDead'>,
): Candidate {
  return { ...fields, owner, isSuspect: claims_without_progress >= suspicionLimit, since: claim_at, number: id }
}

function pausedEvent(at: number): NewEvent {
  return { type: 'run_paused', step: null, count: 0, attempt: 0, at, durationMs: null, payload: null, patch: null }
}
