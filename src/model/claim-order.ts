/**
 * Who is claimed next. Runs of a higher priority go first, and within a priority
 *
 *   1. abandoned runs and suspects, in order of the time since which they can be claimed;
 *   2. all others, in turns. Those of one queue and owner that were claimed before, and those that never were, are two sequences in
 *      order of time. The first turn takes the first of every sequence, the second turn the second, and so on. In a turn owners come
 *      in bytewise order, beginning after the one who had the last turn, and those that were claimed before come first.
 *
 * A run is passed over while its queue has no room for it: no place for this worker, no place at all unless it is abandoned (taking
 * it over does not raise the number), no start left in this time if it was never claimed, no more suspects.
 */
export interface Contender {
  readonly owner: string
  readonly queue: string
  /** Somebody held it, and left. */
  readonly isHeld: boolean
  readonly isSuspect: boolean
  /** Never claimed. */
  readonly isNew: boolean
  /** Since when it can be claimed. */
  readonly since: number
  /** In order of creation. */
  readonly number: number
}

/** How many more runs of a queue may be taken. */
export interface QueueRoom {
  /** By this claim. */
  takes: number
  /** So that no more than its concurrency are running. */
  places: number
  /** That were never claimed, by its rate limit. */
  starts: number
}

export interface ClaimOrderOptions {
  readonly limit: number
  readonly suspectLimit?: number
  /** For a priority: the owner who had the last turn. */
  readonly lastOwners?: readonly { readonly priority: number; readonly owner: string }[]
  /** Absent: there is no limit. */
  readonly roomOf: (queue: string) => QueueRoom | undefined
}

/** Chooses among contenders, one priority after the other, the highest first. */
export class ClaimOrder {
  left: number
  readonly #options: ClaimOrderOptions
  #suspectsLeft: number
  readonly #rooms = new Map<string, QueueRoom>()

  constructor(options: ClaimOrderOptions) {
    this.#options = options
    this.left = Math.max(0, options.limit)
    this.#suspectsLeft = Math.max(0, options.suspectLimit ?? Number.POSITIVE_INFINITY)
  }

  /** All that can be claimed of one priority, or of each sequence at least the first `left`. Those chosen, in order. */
  choose<One extends Contender>(priority: number, contenders: readonly One[]): One[] {
    const apart = contenders.filter(isApart).sort(byTime)
    const taken = apart.filter((one) => this.#takes(one))
    const lastOwner = this.#options.lastOwners?.find((last) => last.priority === priority)?.owner
    const others = contenders.filter((one) => !isApart(one))
    for (const { one } of inTurn(others, lastOwner)) {
      if (this.left === 0) break
      if (this.#takes(one)) taken.push(one)
    }
    return taken
  }

  #takes({ queue, isHeld, isSuspect, isNew }: Contender): boolean {
    const room = this.#roomOf(queue)
    if (this.left === 0 || (isSuspect && this.#suspectsLeft === 0) || room.takes <= 0) return false
    if ((!isHeld && room.places <= 0) || (isNew && room.starts <= 0)) return false
    this.left--
    room.takes--
    if (isSuspect) this.#suspectsLeft--
    if (!isHeld) room.places--
    if (isNew) room.starts--
    return true
  }

  #roomOf(queue: string): QueueRoom {
    const known = this.#rooms.get(queue)
    if (known !== undefined) return known
    const room = { ...(this.#options.roomOf(queue) ?? boundless) }
    this.#rooms.set(queue, room)
    return room
  }
}

const boundless: QueueRoom = {
  takes: Number.POSITIVE_INFINITY,
  places: Number.POSITIVE_INFINITY,
  starts: Number.POSITIVE_INFINITY,
}

function isApart({ isHeld, isSuspect }: Contender): boolean {
  return isHeld || isSuspect
}

function byTime(a: Contender, b: Contender): number {
  return a.since - b.since || a.number - b.number
}

function inTurn<One extends Contender>(contenders: readonly One[], lastOwner: string | undefined) {
  const counts = new Map<string, number>()
  const bytes = new Map<string, Buffer>()
  const bytesOf = (owner: string): Buffer => {
    const known = bytes.get(owner)
    if (known !== undefined) return known
    const made = Buffer.from(owner)
    bytes.set(owner, made)
    return made
  }
  const last = lastOwner === undefined ? undefined : Buffer.from(lastOwner)
  const placed = [...contenders].sort(byTime).map((one) => {
    const sequence = `${one.isNew ? 1 : 0}${one.queue.length}:${one.queue}${one.owner}`
    const turn = (counts.get(sequence) ?? 0) + 1
    counts.set(sequence, turn)
    return { one, turn, isWrapped: last !== undefined && Buffer.compare(bytesOf(one.owner), last) <= 0 }
  })
  return placed.sort(
    (a, b) =>
      a.turn - b.turn ||
      Number(a.isWrapped) - Number(b.isWrapped) ||
      Buffer.compare(bytesOf(a.one.owner), bytesOf(b.one.owner)) ||
      Number(a.one.isNew) - Number(b.one.isNew) ||
      byTime(a.one, b.one),
  )
}
