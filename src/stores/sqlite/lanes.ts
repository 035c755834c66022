import { suspicionLimit } from '../../model/run.ts'
import { type Database, prepare } from './connection.ts'
import { bytewise } from './queues.ts'

/** Claimable runs of one workflow, version, queue and priority. */
export interface Lane {
  readonly workflow: string
  readonly version: number
  readonly queue: string
  readonly priority: number
}

/** Of those that are held or sleep, in order of time. */
export interface TimedLane extends Lane {
  readonly is_held: number
  /** Of its first run. */
  readonly claim_at: number
}

/** Of those that are due, by owner. */
export interface ReadyLane extends Lane {
  /** 2 where they were never claimed, 1 where they were. */
  readonly ready: number
}

export interface DueRow {
  readonly id: number
  readonly owner: string
  /** Since when it is due; of an abandoned run, when its lease ran out. */
  readonly claim_at: number
  readonly claims_without_progress: number
}

export interface LaneSearch {
  readonly now: number
  /** The highest that the worker understands. */
  readonly stateVersion: number
  readonly limit: number
}

/** Only those that are suspects, or only those that are not. */
export interface TimedSearch extends LaneSearch {
  readonly areSuspects: boolean
}

/**
 * Two indexes keep claimable runs in lanes: those that are held or sleep in order of time, the others by owner. A claim hops from lane to
 * lane and from owner to owner, and never passes over runs that are not due.
 */
export class Lanes {
  readonly #timed: ReturnType<typeof prepareTimed>
  readonly #ready: ReturnType<typeof prepareReady>

  constructor(db: Database) {
    this.#timed = prepareTimed(db)
    this.#ready = prepareReady(db)
  }

  *timed(): Generator<TimedLane> {
    const { first, next } = this.#timed
    for (let lane = first.get() as TimedLane | undefined; lane !== undefined; ) {
      yield lane
      const { workflow, version, queue, priority, is_held } = lane
      lane = next.get(workflow, version, queue, priority, is_held, Number.MAX_SAFE_INTEGER) as TimedLane | undefined
    }
  }

  *ready(): Generator<ReadyLane> {
    const { first, next } = this.#ready
    for (let lane = first.get() as ReadyLane | undefined; lane !== undefined; ) {
      yield lane
      const { workflow, version, queue, priority, ready } = lane
      lane = next.get(workflow, version, queue, priority, ready + 1) as ReadyLane | undefined
    }
  }

  dueIn(lane: TimedLane, { now, stateVersion, limit, areSuspects }: TimedSearch): DueRow[] {
    const { workflow, version, queue, priority, is_held } = lane
    const claims = areSuspects ? [suspicionLimit, Number.MAX_SAFE_INTEGER] : [0, suspicionLimit]
    return this.#timed.due.all(workflow, version, queue, priority, is_held, now, stateVersion, ...claims, limit) as DueRow[]
  }

  /**
   * The first `limit` runs of a lane in the order of turns: the first run of each owner, and with fewer owners than that as many
   * of each as there may be turns.
   */
  readyIn(
    lane: ReadyLane,
    { now, stateVersion, limit, lastOwner }: LaneSearch & { readonly lastOwner: string | undefined },
  ): DueRow[] {
    const { workflow, version, queue, priority, ready } = lane
    const dueOf = (owner: string, count: number) =>
      this.#ready.due.all(workflow, version, queue, priority, ready, owner, now, stateVersion, count) as DueRow[]
    let byOwner: DueRow[][] = []
    for (const owner of this.#ownersOf(lane, lastOwner)) {
      if (byOwner.length === limit) break
      const rows = dueOf(owner, 1)
      if (rows.length > 0) byOwner.push(rows)
    }
    // With one owner this is one more look, however many runs it has.
    for (let turns = 1, rest = true; rest && byOwner.flat().length < limit && byOwner.length > 0; ) {
      const asked = turns
      turns = Math.max(2 * turns, Math.ceil(limit / byOwner.length))
      byOwner = byOwner.map((rows) => (rows.length < asked ? rows : dueOf((rows[0] as DueRow).owner, turns)))
      rest = byOwner.some((rows) => rows.length === turns)
    }
    return byOwner.flat()
  }

  /** In bytewise order, beginning after the one who had the last turn. */
  *#ownersOf({ workflow, version, queue, priority, ready }: ReadyLane, lastOwner: string | undefined): Generator<string> {
    const lane = [workflow, version, queue, priority, ready] as const
    const next = (owner: string) => this.#ready.ownerAfter.get(...lane, owner) as string | undefined
    const first = this.#ready.ownerFrom.get(...lane, '') as string | undefined
    if (lastOwner !== undefined) for (let owner = next(lastOwner); owner !== undefined; owner = next(owner)) yield owner
    for (let owner = first; owner !== undefined; owner = next(owner)) {
      if (lastOwner !== undefined && bytewise(owner, lastOwner) > 0) return
      yield owner
    }
  }
}

function prepareTimed(db: Database) {
  const columns = 'workflow, version, queue, priority, is_held'
  return {
    first: prepare(
      db,
      `SELECT ${columns}, claim_at FROM holdfast_runs INDEXED BY holdfast_runs_to_claim
       WHERE claim_at IS NOT NULL AND ready = 0 ORDER BY ${columns}, claim_at LIMIT 1`,
    ),
    // Past the end of time of a lane: with the lane alone the engine would step through all of its runs.
    next: prepare(
      db,
      `SELECT ${columns}, claim_at FROM holdfast_runs INDEXED BY holdfast_runs_to_claim
       WHERE claim_at IS NOT NULL AND ready = 0 AND (${columns}, claim_at) > (?, ?, ?, ?, ?, ?) ORDER BY ${columns}, claim_at LIMIT 1`,
    ),
    due: prepare(
      db,
      `SELECT r.id, r.owner, r.claim_at, r.claims_without_progress
       FROM holdfast_runs r INDEXED BY holdfast_runs_to_claim CROSS JOIN holdfast_threads t ON t.id = r.thread
       WHERE r.claim_at IS NOT NULL AND r.ready = 0 AND r.workflow = ? AND r.version = ? AND r.queue = ? AND r.priority = ? AND r.is_held = ?
         AND r.claim_at <= ? AND t.state_version <= ? AND r.claims_without_progress >= ? AND r.claims_without_progress < ?
       ORDER BY r.claim_at, r.id LIMIT ?`,
    ),
  }
}

function prepareReady(db: Database) {
  const columns = 'workflow, version, queue, priority, ready'
  const inLane =
    'claim_at IS NOT NULL AND ready > 0 AND workflow = ? AND version = ? AND queue = ? AND priority = ? AND ready = ?'
  return {
    first: prepare(
      db,
      `SELECT ${columns} FROM holdfast_runs INDEXED BY holdfast_runs_ready
       WHERE claim_at IS NOT NULL AND ready > 0 ORDER BY ${columns} LIMIT 1`,
    ),
    next: prepare(
      db,
      `SELECT ${columns} FROM holdfast_runs INDEXED BY holdfast_runs_ready
       WHERE claim_at IS NOT NULL AND ready > 0 AND (${columns}) >= (?, ?, ?, ?, ?) ORDER BY ${columns} LIMIT 1`,
    ),
    ownerFrom: prepare(
      db,
      `SELECT owner FROM holdfast_runs INDEXED BY holdfast_runs_ready WHERE ${inLane} AND owner >= ? ORDER BY owner LIMIT 1`,
    ).pluck(),
    ownerAfter: prepare(
      db,
      `SELECT owner FROM holdfast_runs INDEXED BY holdfast_runs_ready WHERE ${inLane} AND owner > ? ORDER BY owner LIMIT 1`,
    ).pluck(),
    due: prepare(
      db,
      `SELECT r.id, r.owner, r.claim_at, r.claims_without_progress
       FROM holdfast_runs r INDEXED BY holdfast_runs_ready CROSS JOIN holdfast_threads t ON t.id = r.thread
       WHERE r.claim_at IS NOT NULL AND r.ready > 0 AND r.workflow = ? AND r.version = ? AND r.queue = ? AND r.priority = ? AND r.ready = ?
         AND r.owner = ? AND r.claim_at <= ? AND t.state_version <= ?
       ORDER BY r.claim_at, r.id LIMIT ?`,
    ),
  }
}
