import { type Due, dueAtOf, dueBy } from './due.ts'
import { extendedLease } from './lease.ts'
import { isTerminal, type PauseReason, type Run, type RunStatus, type WaitReason } from './run.ts'

/** What changes in the run's row. Absent fields stay as they are. */
export interface RunChange {
  /**
   * A status other than `running` gives the lease up. A terminal one sets finishedAt, makes the next run of the thread claimable,
   * and settles what the run left open: effects that are intended become unsure, since no other run could close them; questions
   * that are open are closed as failed, since no run waits for the answer. `pending` on a finished run clears finishedAt. `waiting` with mail (see `mailSeen`) is due at once, so that none is overlooked.
   */
  readonly status?: RunStatus
  readonly reason?: PauseReason | WaitReason | null
  /** When a pending or waiting run is due: a duration from the store's now, a date, or never by itself. */
  readonly due?: Due
  /** The run waits for this operation to close. If it is closed already the run is due at once. */
  readonly waitKey?: string
  readonly currentStep?: string | null
  /** A result was recorded: claimsWithoutProgress becomes 0. */
  readonly hasProgress?: boolean
  /** The claim did not end in a death (shutdown, outage): claimsWithoutProgress goes down by one, not below 0. */
  readonly uncountClaim?: boolean
  /** The current tape starts at the first event of this change. Sets startedAt if it is not set. */
  readonly startsTape?: boolean
  /** With startsTape: that first event's payload is the new input. What the old tape left open is settled as at the end of a run. */
  readonly hasNewInput?: boolean
  /** The last event of this change says how the run ended or why it stopped: endSeq points there. */
  readonly setsEnd?: boolean
  /** Under a lease that is kept: it lasts at least two thirds of this and at most all of it, from the store's now on. */
  readonly leaseMs?: number
}

/** The fields of a run's row that a change can write. */
export type ChangeableFields = Pick<
  Run,
  | ('status' | 'reason' | 'leaseId' | 'leaseUntil' | 'leaseHolder' | 'dueAt' | 'claimsWithoutProgress')
  | ('currentStep' | 'inputSeq' | 'tapeSeq' | 'endSeq' | 'startedAt' | 'finishedAt')
> & {
  /** The operation that it waits for, while it is waiting. */
  readonly waitKey: string | null
}

/** As much of the row before the change as the rule looks at. */
export type RunBefore = Pick<
  ChangeableFields,
  'leaseUntil' | 'dueAt' | 'waitKey' | 'claimsWithoutProgress' | 'currentStep' | 'startedAt' | 'finishedAt'
>

export interface RunChangeContext {
  /** Written under the run's lease. */
  readonly isLeased: boolean
  /** Positions of the change's first and last event; the head of the thread if it has none. */
  readonly firstSeq: number
  readonly lastSeq: number
  /** Messages later than `mailSeen` are in the inbox, apart from those that the change has read. */
  readonly hasMail: boolean
  /** Whether an operation is open after this change. */
  readonly isOpen: (key: string) => boolean
  readonly now: number
}

/**
 * What a change does to a run's row: the fields that get another value, with these values. Fields of `RunBefore` that stay the same are
 * left out: a store need not write them, nor the indexes that look at them.
 */
export function fieldsAfter(before: RunBefore, to: RunChange, context: RunChangeContext): Partial<ChangeableFields> {
  const { now } = context
  const after: { -readonly [Field in keyof ChangeableFields]?: ChangeableFields[Field] } = {}
  if (to.status !== undefined) {
    after.status = to.status
    if (isTerminal(to.status)) after.finishedAt = now
    else if (before.finishedAt !== null) after.finishedAt = null
    if (to.status !== 'waiting' && before.waitKey !== null) after.waitKey = null
    if (to.status !== 'running') after.leaseId = after.leaseUntil = after.leaseHolder = null
  }
  if (context.isLeased && to.leaseMs !== undefined && (to.status ?? 'running') === 'running') {
    const leaseUntil = extendedLease(before.leaseUntil, now, to.leaseMs)
    if (leaseUntil !== before.leaseUntil) after.leaseUntil = leaseUntil
  }
  if (to.reason !== undefined) after.reason = to.reason
  if (to.currentStep !== undefined && to.currentStep !== before.currentStep) after.currentStep = to.currentStep
  const claims = claimsAfter(before.claimsWithoutProgress, to)
  if (claims !== before.claimsWithoutProgress) after.claimsWithoutProgress = claims
  if (to.startsTape === true) {
    after.tapeSeq = context.firstSeq
    if (before.startedAt === null) after.startedAt = now
    if (to.hasNewInput === true) after.inputSeq = context.firstSeq
  }
  if (to.setsEnd === true) after.endSeq = context.lastSeq
  if (to.waitKey !== undefined) after.waitKey = to.waitKey
  const dueAt = dueAfter(before.dueAt, to, context)
  if (dueAt !== before.dueAt) after.dueAt = dueAt
  return after
}

function dueAfter(before: number | null, to: RunChange, { now, hasMail, isOpen }: RunChangeContext): number | null {
  let dueAt = to.due === undefined ? before : dueAtOf(to.due, now)
  if (to.waitKey !== undefined && !isOpen(to.waitKey)) dueAt = now
  return to.status === 'waiting' && hasMail ? dueBy(dueAt, now) : dueAt
}

/** Whether what the run left open is settled: the run is over after the change, or the tape that opened it. */
export function settlesWhatIsOpen(finishedAt: number | null, to: RunChange): boolean {
  return finishedAt !== null || takesNewInput(to)
}

/** Whether the first event of the change is the run's input from then on. */
export function takesNewInput({ startsTape, hasNewInput }: RunChange): boolean {
  return startsTape === true && hasNewInput === true
}

function claimsAfter(claims: number, { hasProgress, uncountClaim }: RunChange): number {
  if (hasProgress === true) return 0
  return uncountClaim === true ? Math.max(0, claims - 1) : claims
}
