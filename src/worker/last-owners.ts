import { suspicionLimit } from '../model/run.ts'
import type { Claim, ClaimRequest } from '../store/store.ts'

/**
 * Remembers the owner that was served last at each priority, so that the next claim continues after it. Each worker keeps its own order:
 * nothing has to be written, and every owner gets an equal share of every worker.
 */
export class LastOwners {
  readonly #owners = new Map<number, string>()

  list(): NonNullable<ClaimRequest['lastOwners']> {
    return [...this.#owners].map(([priority, owner]) => ({ priority, owner }))
  }

  /** In the order of the claims. Abandoned runs and suspects do not count as a turn. */
  note(claims: readonly Claim[]): void {
    for (const { run, takenFrom } of claims) {
      if (takenFrom !== null || run.claimsWithoutProgress > suspicionLimit) continue
      // The most recent ones: with a thousand priorities, some of them start over.
      this.#owners.delete(run.priority)
      this.#owners.set(run.priority, run.owner)
      if (this.#owners.size > 100) this.#owners.delete(this.#owners.keys().next().value as number)
    }
  }
}
