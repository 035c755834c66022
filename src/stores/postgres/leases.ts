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
 * lease is held is never remembered here. Lease ids are never used again; numbers are, when a server takes over that had not heard of
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

  find(leaseId: string): LeasePlace | undefined {
    return this.#places.get(leaseId)
  }

  forget(leaseId: string): void {
    this.#places.delete(leaseId)
  }
}
