import { dueAtOf } from '../../model/due.ts'
import { pairKey } from '../../model/ids.ts'
import { type NewRun, newRun, newRunsPerQueue } from '../../model/new-run.ts'
import { isTerminal, type Run } from '../../model/run.ts'
import type { Change } from '../../store/change.ts'
import { hintOfNewRun } from '../../store/hints.ts'
import type { Hint } from '../../store/store.ts'
import type { LogWriter } from './log-writer.ts'
import type { QueueSpace } from './queues.ts'
import type { Runs } from './runs.ts'
import type { ThreadQueue } from './thread-queue.ts'
import type { Threads } from './thread-rows.ts'

/** Judges and creates the new runs of a change, inside an open write transaction. */
export class NewRuns {
  readonly #runs: Runs
  readonly #threads: Threads
  readonly #threadQueue: ThreadQueue
  readonly #space: QueueSpace
  readonly #log: LogWriter

  constructor(parts: { runs: Runs; threads: Threads; threadQueue: ThreadQueue; space: QueueSpace; log: LogWriter }) {
    this.#runs = parts.runs
    this.#threads = parts.threads
    this.#threadQueue = parts.threadQueue
    this.#space = parts.space
    this.#log = parts.log
  }

  refuse(change: Change): 'conflict' | 'queue_full' | null {
    const { creates, guard } = change
    if (creates === undefined) return null
    if (creates.some(({ ifBusy }) => ifBusy === 'reject') && this.#isBusy(creates, change)) return 'conflict'
    return guard.kind === 'none' && this.#isFull(creates) ? 'queue_full' : null
  }

  create(create: NewRun, now: number, hints: Hint[]): { readonly run: Run; readonly isNew: boolean } {
    const { owner, threadId, id } = create
    if (this.#runs.has(owner, id)) return { run: this.#runs.read(owner, id), isNew: false }
    const inputId = this.#log.nextId()
    const begun = this.#threads.begin(create, inputId, now)
    const { thread, headSeq, headRecord, epochFloor } = begun ?? this.#threads.open(this.#threads.find(create), create, now)
    const dueAt = dueAtOf(create.due, now)
    const run = newRun(create, { epoch: epochFloor, inputSeq: headSeq + 1, dueAt, now })
    const isFirst = begun !== null || this.#threadQueue.isEmpty(thread)
    // A new run takes turns as soon as it is due.
    const ready = isFirst && dueAt !== null && dueAt <= now ? 2 : 0
    const number = this.#runs.insertNew(run, { thread, inputId, claimAt: isFirst ? dueAt : null, ready })
    const end = { thread, owner, threadId, headSeq, headRecord }
    const appending = { run: number, runId: id, events: [create.queued], isCheckpoint: true, isLeased: false }
    if (begun === null) this.#log.append(end, appending)
    else this.#log.begin(end, appending)
    hints.push(hintOfNewRun(run))
    return { run, isNew: true }
  }

  /** Whether a run to be created refuses to wait behind others and would have to. */
  #isBusy(creates: readonly NewRun[], change: Change): boolean {
    const created = new Set<string>()
    const taken = new Set<string>()
    for (const create of creates) {
      const { owner, id, threadId, ifBusy } = create
      const key = pairKey(owner, id)
      if (created.has(key) || this.#runs.has(owner, id)) continue
      const threadKey = pairKey(owner, threadId)
      if (ifBusy === 'reject' && (taken.has(threadKey) || this.#isTakenAfter(change, create))) return true
      created.add(key)
      taken.add(threadKey)
    }
    return false
  }

  #isTakenAfter(change: Change, create: NewRun): boolean {
    const found = this.#threads.find(create)
    if (found === undefined) return false
    const endsRun = change.owner === create.owner && change.run?.status !== undefined && isTerminal(change.run.status)
    return this.#runs.hasUnfinished(found.thread, endsRun ? change.runId : null)
  }

  /** Whether a queue has no room for the runs to be created. */
  #isFull(creates: readonly NewRun[]): boolean {
    // As a rule none has a limit.
    if (creates.every(({ queue }) => this.#space.spaceIn(queue) === undefined)) return false
    const added = newRunsPerQueue(creates, ({ owner, id }) => this.#runs.has(owner, id))
    return [...added].some(([queue, count]) => {
      const space = this.#space.spaceIn(queue)
      return space !== undefined && count > Math.max(0, space)
    })
  }
}
