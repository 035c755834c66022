import { suspicionLimit } from '../model/run.ts'
import type { Claim, ClaimRequest } from '../store/store.ts'

/**
 * Remembers who had the last turn at each priority, so that the next claim goes on after them. Each worker has turns of its own:
 * nothing has to be written, and every owner gets as much of every worker.
 */
export class LastOwners {
  readonly #owners = new Map<number, string>()

  list(): NonNullable<ClaimRequest['lastOwners']> {
    return [...this.#owners].map(([priority, owner]) => ({ priority, owner }))
  }

  /** Claims in the order in which they were made; abandoned runs and suspects take no turn. */
  note(claims: readonly Claim[]): void {
    for (const { run, takenFrom } of claims) {
      if (takenFrom !== null || run.claimsWithoutProgress > suspicionLimit) continue
      // Those of late: whoever uses a thousand priorities begins anew with some of them.
      this.#owners.delete(run.priority)
      this.#owners.set(run.priority, run.owner)
      if (this.#owners.size > 100) this.#owners.delete(this.#owners.keys().next().value as number)
    }
  }
}
