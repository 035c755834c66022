import type { Change } from '../../store/change.ts'

/** Where the rows of a claimed run are. */
export interface LeasePlace {
  readonly run: number
  readonly thread: number
  readonly owner: string
  readonly runId: string
  readonly threadId: string
}

const maxPlaces = 50_000

/**
 * Row numbers of the runs that this store has claimed, by lease id, so that a step is written without looking them up. Whether a
 * lease is held is never remembered here. Lease ids are never used again; numbers are, when a server takes over that does not know
 * them, so they are only believed together with epoch and lease id (P4 in commit-sql.ts).
 */
export class Leases {
  readonly #places = new Map<string, LeasePlace>()

  add(leaseId: string, place: LeasePlace): void {
    if (this.#places.size >= maxPlaces) {
      const [oldest] = this.#places.keys()
      this.#places.delete(oldest as string)
    }
    this.#places.set(leaseId, place)
  }

  /** Of the run that a change under a lease is about; undefined where the lease was not claimed here, or for another run. */
  placeOf({ guard, owner, threadId, runId }: Change): LeasePlace | undefined {
    const place = guard.kind === 'lease' ? this.#places.get(guard.leaseId) : undefined
    return place?.runId === runId && place?.threadId === threadId && place?.owner === owner ? place : undefined
  }

  forget(leaseId: string): void {
    this.#places.delete(leaseId)
  }
}
