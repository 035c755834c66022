import type { Context } from '../../index.ts'

/**
 * What model calls set aside of a run's budget for their longest answers. The account keeps what was set aside until it is used, and most
 * answers are shorter: the next call takes over what the one before has left, and sets aside only what is missing.
 */
export class Room {
  /** Set aside by this execution, and not used. */
  #standing = 0
  /** For the longest answers of all calls that are under way. */
  #needed = 0

  /** What to set aside for a call that begins. */
  begin(longest: number): number {
    this.#needed += longest
    const missing = Math.max(0, this.#needed - this.#standing)
    this.#standing += missing
    return missing
  }

  use(amount: number): void {
    this.#standing = Math.max(0, this.#standing - amount)
  }

  /** `unmade`: what was not set aside after all, because a recorded answer was returned. */
  end(longest: number, unmade: number): void {
    this.#needed -= longest
    this.#standing = Math.max(0, this.#standing - unmade)
  }
}

export interface Rooms {
  readonly tokens: Room
  readonly cost: Room
}

const rooms = new WeakMap<Context, Rooms>()

/** Of one execution: another one has a context of its own. */
export function roomsOf(ctx: Context): Rooms {
  const known = rooms.get(ctx) ?? { tokens: new Room(), cost: new Room() }
  rooms.set(ctx, known)
  return known
}
