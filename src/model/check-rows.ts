import { HoldfastError } from './errors.ts'
import { pauseReasons, type Run, runStatuses, waitReasons } from './run.ts'

/**
 * Rows have no checksum: they change at every step. What they say is refused with `corrupt_record` where it is impossible. A damaged value that
 * is possible, a name or a time with another letter or digit, is not noticed.
 */

const statuses: ReadonlySet<string> = new Set(runStatuses)
const reasons: ReadonlySet<string | null> = new Set([null, ...pauseReasons, ...waitReasons])

/** A row of runs, as a store has read it. */
export function verifyRun(run: Run): Run {
  const { inputSeq, tapeSeq, endSeq, epoch, claimsWithoutProgress, version, priority, createdAt, startedAt, finishedAt, dueAt } =
    run
  const isSound =
    statuses.has(run.status) &&
    reasons.has(run.reason) &&
    isCount(inputSeq) &&
    (tapeSeq === null || isCount(tapeSeq)) &&
    (endSeq === null || isCount(endSeq)) &&
    isCount(epoch) &&
    isCount(claimsWithoutProgress) &&
    isCount(version) &&
    Number.isSafeInteger(priority) &&
    Number.isFinite(createdAt) &&
    isTimeOrNone(startedAt) &&
    isTimeOrNone(finishedAt) &&
    isTimeOrNone(dueAt) &&
    isTimeOrNone(run.leaseUntil)
  if (!isSound) throw damaged(`The row of run ${JSON.stringify(run.id)}`, { runId: run.id })
  return run
}

/** A row of threads, as a store has read it. */
export function verifyThread<Row extends ThreadNumbers>(thread: Row): Row {
  const { headSeq, baseSeq, writtenSeq, patchSeq, stateVersion, incarnation, createdAt, deletedAt } = thread
  const isSound =
    isCount(baseSeq) &&
    (incarnation > 1 || baseSeq === 0) &&
    isCount(headSeq) &&
    headSeq >= baseSeq &&
    isCount(writtenSeq) &&
    writtenSeq <= headSeq &&
    isCount(patchSeq) &&
    patchSeq <= headSeq &&
    (patchSeq === 0 || patchSeq > baseSeq) &&
    isCount(stateVersion) &&
    isCount(incarnation) &&
    incarnation >= 1 &&
    Number.isFinite(createdAt) &&
    isTimeOrNone(deletedAt)
  if (!isSound)
    throw damaged(`The row of thread ${JSON.stringify(thread.threadId)}`, { owner: thread.owner, threadId: thread.threadId })
  return thread
}

interface ThreadNumbers {
  readonly owner: string
  readonly threadId: string
  readonly headSeq: number
  readonly baseSeq: number
  readonly writtenSeq: number
  readonly patchSeq: number
  readonly stateVersion: number
  readonly incarnation: number
  readonly createdAt: number
  readonly deletedAt: number | null
}

function isCount(value: number): boolean {
  return Number.isSafeInteger(value) && value >= 0
}

function isTimeOrNone(value: number | null): boolean {
  return value === null || Number.isFinite(value)
}

function damaged(what: string, details: Readonly<Record<string, unknown>>): HoldfastError {
  return new HoldfastError(
    'corrupt_record',
    `${what} is damaged: it says something that can't be. Restore it from a backup, or delete the thread; nothing of it was used.`,
    { details },
  )
}
