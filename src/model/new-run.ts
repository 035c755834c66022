import type { NewEvent } from './event.ts'
import { pairKey } from './ids.ts'
import type { Run } from './run.ts'

/** A run on its way in. Its run_queued event carries the input as payload. */
export interface NewRun {
  readonly owner: string
  readonly id: string
  readonly threadId: string
  readonly workflow: string
  readonly version: number
  readonly queue: string
  readonly priority: number
  readonly fingerprint: string
  readonly due: { readonly inMs: number } | { readonly at: number }
  /** What to do when an unfinished run holds the thread: queue up behind it, or refuse with `conflict`. */
  readonly ifBusy: 'queue' | 'reject'
  readonly queued: NewEvent
}

/** What the store adds. */
export interface NewRunPlace {
  /** The highest epoch that a deleted run of the thread had, 0 without any: the first claim raises it. */
  readonly epoch: number
  /** Position of its run_queued event. */
  readonly inputSeq: number
  readonly dueAt: number | null
  readonly now: number
}

/** A new run's row. */
export function newRun(create: NewRun, { epoch, inputSeq, dueAt, now }: NewRunPlace): Run {
  const { owner, id, threadId, workflow, version, queue, priority, fingerprint } = create
  return {
    owner,
    id,
    threadId,
    workflow,
    version,
    status: 'pending',
    reason: null,
    queue,
    priority,
    fingerprint,
    epoch,
    leaseId: null,
    leaseUntil: null,
    leaseHolder: null,
    dueAt,
    claimsWithoutProgress: 0,
    currentStep: null,
    inputSeq,
    tapeSeq: null,
    endSeq: null,
    createdAt: now,
    startedAt: null,
    finishedAt: null,
  }
}

/** How many runs each queue is to take. Of several with one id only the first is created. */
export function newRunsPerQueue(creates: readonly NewRun[], exists: (create: NewRun) => boolean): Map<string, number> {
  const created = new Set<string>()
  const added = new Map<string, number>()
  for (const create of creates) {
    const key = pairKey(create.owner, create.id)
    if (created.has(key) || exists(create)) continue
    created.add(key)
    added.set(create.queue, (added.get(create.queue) ?? 0) + 1)
  }
  return added
}
