import { HoldfastError } from '../model/errors.ts'
import { checkId } from '../model/ids.ts'
import { internalQueue, notifyQueue } from '../model/internal.ts'
import type { Claim, ClaimRequest } from '../store/store.ts'

/** Which queues a worker claims from, and how many more runs of each it may claim. */
export class QueuePlaces {
  readonly #queues: readonly string[] | undefined
  readonly #free = new Map<string, number>()

  /** `deliveries`: how many notifications are delivered in parallel; 0 if this process has no targets. */
  constructor(queues: readonly string[] | Readonly<Record<string, number>> | undefined, deliveries: number) {
    if (deliveries > 0) this.#free.set(notifyQueue, deliveries)
    if (queues === undefined) return
    const names: readonly string[] = Array.isArray(queues) ? queues : Object.keys(queues)
    // Every worker executes internal runs.
    this.#queues = [...names.map((name) => checkId('queue name', name)), internalQueue, notifyQueue]
    if (Array.isArray(queues)) return
    for (const [name, places] of Object.entries(queues as Readonly<Record<string, number>>)) {
      if (!Number.isSafeInteger(places) || places < 1) {
        throw new HoldfastError(
          'invalid_input',
          `worker.queues gives queue "${name}" ${String(places)} places; it must be a whole number from 1. Leave the queue out to claim nothing from it.`,
        )
      }
      this.#free.set(name, places)
    }
  }

  request(): Pick<ClaimRequest, 'queues' | 'queueLimits'> {
    return {
      ...(this.#queues !== undefined && { queues: this.#queues }),
      ...(this.#free.size > 0 && { queueLimits: [...this.#free].map(([queue, limit]) => ({ queue, limit })) }),
    }
  }

  /** Adds the limits of queues that have a number of places in this worker. */
  note(claim: Claim): Claim {
    return claim.isQueueLimited || !this.#free.has(claim.run.queue) ? claim : { ...claim, isQueueLimited: true }
  }

  take(queue: string): void {
    this.#change(queue, -1)
  }

  free(queue: string): void {
    this.#change(queue, 1)
  }

  #change(queue: string, by: number): void {
    const free = this.#free.get(queue)
    if (free !== undefined) this.#free.set(queue, free + by)
  }
}
