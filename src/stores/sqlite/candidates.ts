import { ClaimOrder, type Contender } from '../../model/claim-order.ts'
import { isSuspect } from '../../model/run.ts'
import type { ClaimRequest } from '../../store/store.ts'
import { type Database, prepare, type Statement } from './connection.ts'
import { type DueRow, type Lane, type LaneSearch, Lanes, type TimedLane } from './lanes.ts'
import { prepareRooms, type Rooms } from './queues.ts'

/** A run that can be claimed now. */
export interface Candidate extends Contender {
  readonly holderIsDead: boolean
}

export interface Search {
  readonly now: number
  readonly limit: number
  readonly deadHolderIds: readonly number[]
}

/** Finds runs that can be claimed; used on the reader, to see whether the write lock is worth taking, and again under it. */
export class Candidates {
  readonly #lanes: Lanes
  readonly #readRooms: ReturnType<typeof prepareRooms>
  readonly #ofHolder: Statement

  constructor(db: Database) {
    this.#lanes = new Lanes(db)
    this.#readRooms = prepareRooms(db)
    this.#ofHolder = prepare(
      db,
      `SELECT r.id, r.owner, r.priority, r.claim_at, r.claims_without_progress, r.workflow, r.version, r.queue, t.state_version
       FROM holdfast_runs r INDEXED BY holdfast_runs_by_holder CROSS JOIN holdfast_threads t ON t.id = r.thread
       WHERE r.lease_holder = ? AND r.claim_at > ?`,
    )
  }

  /** In the order in which they are to be taken. Runs that have woken up are found once they are ready. */
  find(request: ClaimRequest, search: Search): { readonly found: Candidate[]; readonly rooms: Rooms } {
    const rooms = this.#readRooms(request, search.now)
    const order = new ClaimOrder({ ...request, limit: search.limit, roomOf: rooms.roomOf })
    const lookers = new Map<number, (() => Candidate[])[]>()
    for (const { priority, look } of this.#lookers(request, search, { rooms, order })) {
      const others = lookers.get(priority)
      if (others === undefined) lookers.set(priority, [look])
      else others.push(look)
    }
    const found: Candidate[] = []
    for (const [priority, looks] of [...lookers].sort(([a], [b]) => b - a)) {
      if (order.left === 0) break
      const candidates = looks.flatMap((look) => look())
      found.push(...order.choose(priority, candidates))
    }
    return { found, rooms }
  }

  /** Lanes of runs that sleep and have become due. */
  wokenLanes(request: ClaimRequest, now: number): TimedLane[] {
    const stateVersionOf = readExecutables(request)
    const { isPaused } = this.#readRooms(request, now)
    const first = { now, stateVersion: Number.MAX_SAFE_INTEGER, limit: 1, areSuspects: false }
    return [...this.#lanes.timed()].filter(
      (lane) =>
        lane.is_held === 0 &&
        lane.claim_at <= now &&
        stateVersionOf(lane) !== undefined &&
        !isPaused(lane.queue) &&
        this.#lanes.dueIn(lane, first).length > 0,
    )
  }

  /** Where candidates of a priority can be found. A look is taken only if the higher priorities leave room. */
  *#lookers(
    request: ClaimRequest,
    { now, deadHolderIds }: Search,
    { rooms, order }: { readonly rooms: Rooms; readonly order: ClaimOrder },
  ): Generator<{ readonly priority: number; readonly look: () => Candidate[] }> {
    const stateVersionOf = readExecutables(request)
    for (const holderId of deadHolderIds) {
      for (const run of this.#ofHolder.all(holderId, now) as (Lane & DueRow & { state_version: number })[]) {
        const stateVersion = stateVersionOf(run)
        if (stateVersion === undefined || run.state_version > stateVersion) continue
        const { priority, queue } = run
        yield { priority, look: () => [toCandidate(run, { queue, isHeld: true, isNew: false, holderIsDead: true })] }
      }
    }
    for (const lane of this.#lanes.timed()) {
      const stateVersion = stateVersionOf(lane)
      if (stateVersion === undefined || lane.claim_at > now || rooms.isPaused(lane.queue)) continue
      const look = () => this.#dueIn(lane, { now, stateVersion, limit: order.left }, request.suspectLimit)
      yield { priority: lane.priority, look }
    }
    for (const lane of this.#lanes.ready()) {
      const stateVersion = stateVersionOf(lane)
      if (stateVersion === undefined || rooms.isPaused(lane.queue)) continue
      const { priority, queue, ready } = lane
      const lastOwner = request.lastOwners?.find((last) => last.priority === priority)?.owner
      const look = () =>
        this.#lanes
          .readyIn(lane, { now, stateVersion, limit: order.left, lastOwner })
          .map((row) => toCandidate(row, { queue, isHeld: false, isNew: ready === 2, holderIsDead: false }))
      yield { priority, look }
    }
  }

  /**
   * Abandoned runs, and of those that no worker holds the suspects. Suspects are looked for apart: however many of them are due, they do
   * not hide the others behind them.
   */
  #dueIn(lane: TimedLane, search: LaneSearch, suspectLimit = Number.POSITIVE_INFINITY): Candidate[] {
    const isHeld = lane.is_held === 1
    const held = isHeld ? this.#lanes.dueIn(lane, { ...search, areSuspects: false }) : []
    const limit = Math.min(Math.max(0, suspectLimit), search.limit)
    const suspects = this.#lanes.dueIn(lane, { ...search, areSuspects: true, limit })
    return [...held, ...suspects].map((row) => toCandidate(row, { queue: lane.queue, isHeld, isNew: false, holderIsDead: false }))
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
  fields: Pick<Candidate, 'queue' | 'isHeld' | 'isNew' | 'holderIsDead'>,
): Candidate {
  return {
    ...{ ...fields, owner, since: claim_at, number: id },
    isSuspect: isSuspect({ claimsWithoutProgress: claims_without_progress }),
  }
}
