import type { Guard, Refusal } from '../../model/guard.ts'
import type { NewRun } from '../../model/new-run.ts'
import type { Operation, OperationChange } from '../../model/operation.ts'
import type { Run } from '../../model/run.ts'
import type { RunChange } from '../../model/run-change.ts'
import type { ClaimRequest } from '../../store/store.ts'

/**
 * The rules that each store applies to a row, as data: the row before, the change, the row after. Stores in TypeScript call the rules of
 * `model`; those that decide in SQL or Lua have them written again, and here a rule that differs is named. `rules.ts` tries all of them.
 */

/** A run's row. */
export type Row = Omit<Run, 'owner' | 'id' | 'threadId' | 'workflow' | 'version'> & { readonly waitKey: string | null }

/** A time by the store's clock at the change. */
export interface AfterNow {
  readonly afterNowMs: number
}

/** What is different after the change; everything else stays as it was. */
export type Difference<Noun> = { readonly [Field in keyof Noun]?: Noun[Field] | AfterNow }

const now: AfterNow = { afterNowMs: 0 }
const inMs = (afterNowMs: number): AfterNow => ({ afterNowMs })

/** Claimed for the third time, in the middle of its tape: the log has a run_queued, a run_started and a result. Its lease lasts `leaseMs`. */
export const heldRow: Row = {
  ...{ status: 'running', reason: null, queue: 'default', priority: 0, fingerprint: 'f', epoch: 3 },
  ...{
    leaseId: null,
    leaseUntil: null,
    leaseHolder: null,
    dueAt: 1_000,
    waitKey: null,
    claimsWithoutProgress: 2,
    currentStep: 'a',
  },
  ...{ inputSeq: 1, tapeSeq: 2, endSeq: null, createdAt: 1_000, startedAt: 2_000, finishedAt: null },
}
/** Id of the run, and of its thread. */
export const heldRunId = 'r'
export const headSeq = 3
export const leaseMs = 900_000
/** Key of the operation in these cases. */
export const key = 'k'

const failed = { status: 'failed', finishedAt: 3_000, endSeq: 3 } as const
const noLease = { leaseId: null, leaseUntil: null, leaseHolder: null }
const farAway = 9_000_000_000_000

export interface RunChangeCase {
  readonly rule: string
  /** Where it differs from `heldRow`. */
  readonly before?: Partial<Row>
  /** The operation `k` before; absent: there is none. */
  readonly operation?: Operation['status']
  /** A message in the inbox: not known to the writer, known, or read by the change. */
  readonly mail?: 'new' | 'seen' | 'read'
  /** Time between the claim and the change. */
  readonly waitMs?: number
  /** Events of the change, at positions 4 and following. */
  readonly eventCount: number
  readonly to: RunChange
  readonly after: Difference<Row>
}

export const runChangeCases: readonly RunChangeCase[] = [
  { rule: 'what a change does not name stays as it is', eventCount: 2, to: {}, after: {} },
  { rule: 'currentStep is written', eventCount: 1, to: { currentStep: 'b' }, after: { currentStep: 'b' } },
  { rule: 'currentStep null clears it', eventCount: 1, to: { currentStep: null }, after: { currentStep: null } },
  { rule: 'reason is written', eventCount: 0, to: { reason: 'asked' }, after: { reason: 'asked' } },
  {
    ...{ rule: 'reason null clears it', before: { reason: 'timer' }, eventCount: 1 },
    ...{ to: { reason: null }, after: { reason: null } },
  },
  {
    ...{ rule: 'hasProgress makes the count of claims 0', eventCount: 1 },
    ...{ to: { hasProgress: true }, after: { claimsWithoutProgress: 0 } },
  },
  {
    ...{ rule: 'uncountClaim lowers the count of claims by one', eventCount: 1 },
    ...{ to: { uncountClaim: true }, after: { claimsWithoutProgress: 1 } },
  },
  {
    ...{ rule: 'uncountClaim does not lower the count of claims below 0', eventCount: 1 },
    ...{ before: { status: 'pending', claimsWithoutProgress: 0 }, to: { uncountClaim: true }, after: {} },
  },
  {
    ...{ rule: 'hasProgress counts before uncountClaim', eventCount: 1 },
    ...{ to: { hasProgress: true, uncountClaim: true }, after: { claimsWithoutProgress: 0 } },
  },
  {
    ...{ rule: 'startsTape: the tape starts at the first event, and so does the run', eventCount: 2 },
    ...{ before: { tapeSeq: null, startedAt: null }, to: { startsTape: true }, after: { tapeSeq: 4, startedAt: now } },
  },
  { rule: 'startsTape: startedAt is set once', eventCount: 2, to: { startsTape: true }, after: { tapeSeq: 4 } },
  {
    ...{ rule: 'hasNewInput: the first event is the input', eventCount: 2 },
    ...{ to: { startsTape: true, hasNewInput: true }, after: { tapeSeq: 4, inputSeq: 4 } },
  },
  { rule: 'setsEnd: the last event is the end', eventCount: 2, to: { setsEnd: true }, after: { endSeq: 5 } },
  {
    ...{ rule: 'the tape and the end of a change without events are at the head', eventCount: 0 },
    ...{ to: { startsTape: true, setsEnd: true }, after: { tapeSeq: 3, endSeq: 3 } },
  },
  ...(['completed', 'failed', 'cancelled'] as const).map((status) => ({
    ...{ rule: `${status} sets finishedAt and gives up the lease`, eventCount: 2 },
    to: { status, reason: null, currentStep: null, setsEnd: true, hasProgress: true },
    after: { status, ...noLease, finishedAt: now, currentStep: null, endSeq: 5, claimsWithoutProgress: 0 },
  })),
  {
    ...{ rule: 'the first write of a run may be its end', before: { tapeSeq: null, startedAt: null }, eventCount: 2 },
    to: { status: 'completed', reason: null, currentStep: null, startsTape: true, setsEnd: true },
    after: { status: 'completed', ...noLease, currentStep: null, tapeSeq: 4, startedAt: now, endSeq: 5, finishedAt: now },
  },
  {
    ...{ rule: 'paused gives up the lease, and the run is not finished', eventCount: 1 },
    to: { status: 'paused', reason: 'budget', setsEnd: true },
    after: { status: 'paused', reason: 'budget', ...noLease, endSeq: 4 },
  },
  {
    ...{ rule: 'pending after a delay', eventCount: 1, to: { status: 'pending', due: { inMs: 60_000 } } },
    after: { status: 'pending', ...noLease, dueAt: inMs(60_000) },
  },
  {
    ...{ rule: 'waiting until a date', eventCount: 1, to: { status: 'waiting', reason: 'timer', due: { at: farAway } } },
    after: { status: 'waiting', reason: 'timer', ...noLease, dueAt: farAway },
  },
  {
    ...{ rule: 'waiting, never due by itself', eventCount: 1, to: { status: 'waiting', reason: 'signal', due: 'never' } },
    after: { status: 'waiting', reason: 'signal', ...noLease, dueAt: null },
  },
  {
    ...{ rule: 'a status without due leaves dueAt as it is', eventCount: 1, to: { status: 'pending' } },
    after: { status: 'pending', ...noLease },
  },
  {
    ...{ rule: 'waiting for an operation that is open', operation: 'unsure', eventCount: 1 },
    to: { status: 'waiting', reason: 'effect', due: 'never', waitKey: key },
    after: { status: 'waiting', reason: 'effect', ...noLease, dueAt: null, waitKey: key },
  },
  ...(['completed', 'failed', 'undone', undefined] as const).map((operation) => ({
    rule: `waiting for an operation that is ${operation ?? 'not there'} is due at once`,
    ...(operation !== undefined && { operation }),
    eventCount: 1,
    to: { status: 'waiting', reason: 'effect', due: { at: farAway }, waitKey: key } as const,
    after: { status: 'waiting', reason: 'effect', ...noLease, dueAt: now, waitKey: key } as const,
  })),
  {
    ...{ rule: 'waiting with new mail is due at once', mail: 'new', eventCount: 1 },
    to: { status: 'waiting', reason: 'signal', due: { at: farAway } },
    after: { status: 'waiting', reason: 'signal', ...noLease, dueAt: now },
  },
  {
    ...{ rule: 'waiting with new mail and never due by itself is due at once', mail: 'new', eventCount: 0 },
    to: { status: 'waiting', reason: 'signal', due: 'never' },
    after: { status: 'waiting', reason: 'signal', ...noLease, dueAt: now },
  },
  {
    ...{ rule: 'waiting with new mail keeps a time that is over', mail: 'new', eventCount: 1 },
    to: { status: 'waiting', reason: 'timer', due: { at: 5_000 } },
    after: { status: 'waiting', reason: 'timer', ...noLease, dueAt: 5_000 },
  },
  ...(['seen', 'read'] as const).map((mail) => ({
    ...{ rule: `mail that was ${mail} makes no waiting run due`, mail, eventCount: 1 },
    to: { status: 'waiting', reason: 'signal', due: 'never' } as const,
    after: { status: 'waiting', reason: 'signal', ...noLease, dueAt: null } as const,
  })),
  {
    ...{ rule: 'mail makes no paused run due', mail: 'new', eventCount: 1 },
    to: { status: 'paused', reason: 'asked', due: 'never' },
    after: { status: 'paused', reason: 'asked', ...noLease, dueAt: null },
  },
  ...(['pending', 'paused', 'cancelled'] as const).map((status) => ({
    ...{ rule: `${status} ends the wait for an operation`, operation: 'unsure' as const, eventCount: 1 },
    before: { status: 'waiting', reason: 'effect', dueAt: null, waitKey: key } as const,
    to: { status, reason: null },
    after: { status, reason: null, waitKey: null, ...(status === 'cancelled' && { finishedAt: now }) },
  })),
  {
    ...{ rule: 'a finished run that is pending again is not finished', before: failed, eventCount: 1 },
    to: { status: 'pending', due: { inMs: 0 } },
    after: { status: 'pending', finishedAt: null, dueAt: now },
  },
  {
    ...{ rule: 'a lease with two thirds left stays', waitMs: 200_000, eventCount: 1 },
    ...{ to: { leaseMs }, after: {} },
  },
  {
    ...{ rule: 'a lease with less than two thirds left is extended', waitMs: 400_000, eventCount: 1 },
    ...{ to: { leaseMs }, after: { leaseUntil: inMs(leaseMs) } },
  },
  {
    ...{ rule: 'a lease that ran out and that no other worker took is extended', waitMs: 2 * leaseMs, eventCount: 1 },
    ...{ to: { leaseMs }, after: { leaseUntil: inMs(leaseMs) } },
  },
  {
    ...{ rule: 'a lease longer than asked for is shortened', eventCount: 1 },
    ...{ to: { leaseMs: leaseMs / 3 }, after: { leaseUntil: inMs(leaseMs / 3) } },
  },
  {
    ...{ rule: 'a lease that is given up is not extended', waitMs: 400_000, eventCount: 1 },
    to: { status: 'paused', reason: 'asked', leaseMs },
    after: { status: 'paused', reason: 'asked', ...noLease },
  },
]

export interface GuardCase {
  readonly rule: string
  readonly before?: Partial<Row>
  /** A later run of the thread. */
  readonly later?: Partial<Row>
  readonly isDeleted?: boolean
  /** Of a lease guard: `epoch` is counted from the run's, and `leaseId` '' is the latest. */
  readonly guard: Guard
  /** The change names another run, or another thread, than those that are there. */
  readonly names?: 'other run' | 'other thread'
  /** Notes evidence instead of writing an event. */
  readonly onlyNotes?: true
  readonly refusal: Refusal | 'none'
}

const lease = { kind: 'lease', epoch: 0, leaseId: '' } as const
const ofFailed = { kind: 'run', epoch: 3, status: 'failed' } as const
const started = { status: 'pending', startedAt: 3_000 } as const
const unstarted = { status: 'pending', startedAt: null, tapeSeq: null } as const

export const guardCases: readonly GuardCase[] = [
  { rule: 'the latest lease writes', guard: lease, refusal: 'none' },
  { rule: 'another lease id is lease_lost', guard: { ...lease, leaseId: 'other' }, refusal: 'lease_lost' },
  { rule: 'a lower epoch is lease_lost', guard: { ...lease, epoch: -1 }, refusal: 'lease_lost' },
  { rule: 'a higher epoch is lease_lost', guard: { ...lease, epoch: 1 }, refusal: 'lease_lost' },
  { rule: 'a lease on a run that is not there is lease_lost', guard: lease, names: 'other run', refusal: 'lease_lost' },
  { rule: 'a lease on a run of another thread is lease_lost', guard: lease, names: 'other thread', refusal: 'lease_lost' },
  { rule: 'a lease on a paused run is lease_lost', before: { status: 'paused' }, guard: lease, refusal: 'lease_lost' },
  { rule: 'a lease with the writtenSeq of the thread writes', guard: { ...lease, writtenSeq: 3 }, refusal: 'none' },
  { rule: 'a lease that has seen more than was kept is lease_lost', guard: { ...lease, writtenSeq: 4 }, refusal: 'lease_lost' },
  { rule: 'a lease with the head of the log writes', guard: { ...lease, headSeq: 3 }, refusal: 'none' },
  { rule: 'a lease with another head is a conflict', guard: { ...lease, headSeq: 2 }, refusal: 'conflict' },
  {
    rule: 'a lost lease with another head is lease_lost',
    ...{ guard: { ...lease, leaseId: 'other', headSeq: 2 }, refusal: 'lease_lost' },
  },
  { rule: 'a run with the epoch and status that were read is written', before: failed, guard: ofFailed, refusal: 'none' },
  { rule: 'a run with another epoch is a conflict', before: failed, guard: { ...ofFailed, epoch: 2 }, refusal: 'conflict' },
  {
    rule: 'a run with another status is a conflict',
    ...{ before: failed, guard: { ...ofFailed, status: 'paused' }, refusal: 'conflict' },
  },
  {
    rule: 'a run that is not there is run_not_found',
    ...{ before: failed, guard: ofFailed, names: 'other run', refusal: 'run_not_found' },
  },
  {
    rule: 'a run of another thread is run_not_found',
    ...{ before: failed, guard: ofFailed, names: 'other thread', refusal: 'run_not_found' },
  },
  { rule: 'a run and the head of the log', before: failed, guard: { ...ofFailed, headSeq: 3 }, refusal: 'none' },
  { rule: 'a run and another head is a conflict', before: failed, guard: { ...ofFailed, headSeq: 2 }, refusal: 'conflict' },
  {
    rule: 'undisturbed: a later run that was not started is no conflict',
    ...{ before: failed, later: unstarted, guard: { ...ofFailed, undisturbed: true }, refusal: 'none' },
  },
  {
    rule: 'undisturbed: a later run that was started is a conflict',
    ...{ before: failed, later: started, guard: { ...ofFailed, undisturbed: true }, refusal: 'conflict' },
  },
  {
    rule: 'a later run that was started is no conflict unless the guard says undisturbed',
    ...{ before: failed, later: started, guard: ofFailed, refusal: 'none' },
  },
  { rule: 'an edit at the head of a thread', before: failed, guard: { kind: 'thread', headSeq: 3 }, refusal: 'none' },
  { rule: 'an edit at another head is a conflict', before: failed, guard: { kind: 'thread', headSeq: 2 }, refusal: 'conflict' },
  { rule: 'an edit while a run is held is a conflict', guard: { kind: 'thread', headSeq: 3 }, refusal: 'conflict' },
  {
    rule: 'an edit of a deleted thread is thread_deleted',
    ...{ before: failed, isDeleted: true, guard: { kind: 'thread', headSeq: 3 }, refusal: 'thread_deleted' },
  },
  {
    rule: 'an edit at 0 makes a thread',
    ...{ before: failed, guard: { kind: 'thread', headSeq: 0 }, names: 'other thread', refusal: 'none' },
  },
  {
    rule: 'an edit at the head of a thread that is not there is a conflict',
    ...{ before: failed, guard: { kind: 'thread', headSeq: 3 }, names: 'other thread', refusal: 'conflict' },
  },
  { rule: 'without a guard an event is written', before: failed, guard: { kind: 'none' }, refusal: 'none' },
  {
    rule: 'without a guard an event for a run that is not there is run_not_found',
    ...{ before: failed, guard: { kind: 'none' }, names: 'other run', refusal: 'run_not_found' },
  },
  {
    rule: 'without a guard an event to a deleted thread is thread_deleted',
    ...{ before: failed, isDeleted: true, guard: { kind: 'none' }, refusal: 'thread_deleted' },
  },
  {
    rule: 'without a guard evidence is noted though the thread is deleted',
    ...{ before: failed, isDeleted: true, guard: { kind: 'none' }, onlyNotes: true, refusal: 'none' },
  },
]

export interface OperationCase {
  readonly rule: string
  /** Where it differs from an intended effect of the run; absent: there is none. */
  readonly before?: Partial<Operation>
  readonly to?: OperationChange
  /** What the change does to the run besides. */
  readonly run?: RunChange
  readonly refusal?: Refusal
  /** Null: there is none. */
  readonly after: Difference<Operation> | null
}

const intend = { kind: 'intend', key, name: 'send' } as const
const ask = { kind: 'ask', key, name: 'approve' } as const
const resolved = { kind: 'resolve', key, hasHappened: true, result: '2', by: 'ann' } as const
const ofOther = { runId: 'another-run' }
const question = { kind: 'question', name: 'approve', status: 'unsure' } as const
const completed = { status: 'completed', result: '1', closedAt: 2_000 } as const
const fresh = { status: 'intended', result: null, evidence: null, resolvedBy: null, intendedAt: now, closedAt: null } as const
const freed = { resolvedBy: 'ann', evidence: '"late"', closedAt: 2_000, ...ofOther } as const

export const operationCases: readonly OperationCase[] = [
  { rule: 'intend opens an operation', to: intend, after: fresh },
  { rule: 'ask opens a question, unsure at once', to: ask, after: { ...fresh, ...question } },
  ...(['failed', 'undone'] as const).map((status) => ({
    ...{ rule: `intend opens an operation that was ${status} anew`, before: { ...freed, status }, to: intend },
    after: { ...fresh, runId: heldRunId },
  })),
  ...(['intended', 'unsure', 'completed'] as const).map((status) => ({
    rule: `intend is operation_taken while the key is ${status}`,
    ...{ before: { status }, to: intend, refusal: 'operation_taken' as const, after: {} },
  })),
  ...(['intended', 'unsure'] as const).flatMap((status) => [
    {
      ...{ rule: `complete closes what is ${status}`, before: { status } },
      to: { kind: 'complete' as const, key, result: '1' },
      after: { status: 'completed' as const, result: '1', closedAt: now },
    },
    {
      ...{ rule: `fail closes what is ${status}`, before: { status }, to: { kind: 'fail' as const, key } },
      after: { status: 'failed' as const, closedAt: now },
    },
    {
      ...{ rule: `doubt makes what is ${status} unsure`, before: { status }, to: { kind: 'doubt' as const, key } },
      after: { status: 'unsure' as const },
    },
  ]),
  ...(['complete', 'fail', 'doubt', 'undo'] as const).flatMap((kind) => {
    const to = kind === 'complete' ? { kind, key, result: '1' } : { kind, key }
    const status = kind === 'undo' ? 'completed' : 'intended'
    return [
      { rule: `${kind} of a key that is not there is a conflict`, to, refusal: 'conflict' as const, after: null },
      {
        ...{ rule: `${kind} of another run's operation is a conflict`, before: { ...ofOther, status } as const, to },
        ...{ refusal: 'conflict' as const, after: {} },
      },
      {
        ...{ rule: `${kind} of an operation that failed is a conflict`, before: { status: 'failed' } as const, to },
        ...{ refusal: 'conflict' as const, after: {} },
      },
    ]
  }),
  {
    ...{ rule: 'complete of what is completed is a conflict', before: completed, to: { kind: 'complete', key, result: '2' } },
    ...{ refusal: 'conflict', after: {} },
  },
  {
    rule: 'undo frees a completed key',
    before: completed,
    to: { kind: 'undo', key },
    after: { status: 'undone', closedAt: now },
  },
  {
    ...{ rule: 'undo of what is intended is a conflict', before: {}, to: { kind: 'undo', key } },
    ...{ refusal: 'conflict', after: {} },
  },
  {
    ...{ rule: 'resolve: it happened, whoever opened it', before: { ...ofOther, status: 'unsure' }, to: resolved },
    after: { status: 'completed', result: '2', resolvedBy: 'ann', closedAt: now },
  },
  {
    rule: 'resolve: it did not happen',
    ...{ before: { status: 'unsure' }, to: { ...resolved, hasHappened: false, result: null } },
    after: { status: 'failed', resolvedBy: 'ann', closedAt: now },
  },
  ...(['intended', 'completed', 'failed', 'undone'] as const).map((status) => ({
    rule: `resolve of what is ${status} is already_answered`,
    ...{ before: { status }, to: resolved, refusal: 'already_answered' as const, after: {} },
  })),
  { rule: 'resolve of a key that is not there is already_answered', to: resolved, refusal: 'already_answered', after: null },
  ...(['intended', 'unsure', 'failed'] as const).map((status) => ({
    ...{ rule: `note keeps evidence on what is ${status}`, before: { status } },
    ...{ to: { kind: 'note' as const, key, evidence: '"late"' }, after: { evidence: '"late"' } },
  })),
  {
    ...{ rule: 'note leaves what is completed alone', before: completed },
    ...{ to: { kind: 'note', key, evidence: '"late"' }, after: {} },
  },
  { rule: 'note of a key that is not there writes nothing', to: { kind: 'note', key, evidence: '"late"' }, after: null },
  ...(['completed', 'failed', 'cancelled'] as const).flatMap((status) => [
    {
      rule: `a ${status} run leaves its intended effect unsure`,
      before: {},
      run: { status },
      after: { status: 'unsure' as const },
    },
    {
      ...{ rule: `a ${status} run closes its open question as failed`, before: question, run: { status } },
      after: { status: 'failed' as const, closedAt: now },
    },
  ]),
  {
    ...{ rule: 'a new input leaves an intended effect of the old tape unsure', before: {} },
    ...{ run: { startsTape: true, hasNewInput: true }, after: { status: 'unsure' } },
  },
  { rule: 'a new tape with the same input leaves effects alone', before: {}, run: { startsTape: true }, after: {} },
  { rule: 'a paused run leaves its intended effect alone', before: {}, run: { status: 'paused' }, after: {} },
  { rule: 'a paused run leaves its question open', before: question, run: { status: 'paused' }, after: {} },
  { rule: "a run's end leaves effects of other runs alone", before: ofOther, run: { status: 'completed' }, after: {} },
  {
    ...{ rule: 'an effect that is intended with the end of its run is unsure', to: intend, run: { status: 'completed' } },
    after: { ...fresh, status: 'unsure' },
  },
]

export interface ClaimCase {
  readonly rule: string
  readonly before: Partial<Row>
  readonly request?: Partial<ClaimRequest>
  /** Null: it is not claimed. */
  readonly after: Difference<Row> | null
}

const pending = { status: 'pending', claimsWithoutProgress: 0 } as const

export const claimCases: readonly ClaimCase[] = [
  {
    ...{ rule: 'a claim raises epoch and count, and clears the end', before: { ...pending, endSeq: 3 } },
    after: { epoch: 4, claimsWithoutProgress: 1, endSeq: null },
  },
  {
    rule: 'a claim ends the wait for an operation and leaves reason and dueAt',
    before: { status: 'waiting', reason: 'effect', waitKey: key, claimsWithoutProgress: 0 },
    after: { epoch: 4, claimsWithoutProgress: 1, waitKey: null },
  },
  ...[0, 1].map((claimsWithoutProgress) => ({
    ...{ rule: `a run with ${claimsWithoutProgress} claims without progress is no suspect`, request: { suspectLimit: 0 } },
    ...{ before: { ...pending, claimsWithoutProgress } },
    after: { epoch: 4, claimsWithoutProgress: claimsWithoutProgress + 1 },
  })),
  ...[2, 3].map((claimsWithoutProgress) => ({
    rule: `a run with ${claimsWithoutProgress} claims without progress is a suspect`,
    ...{ before: { ...pending, claimsWithoutProgress }, request: { suspectLimit: 0 }, after: null },
  })),
  {
    ...{ rule: 'a suspect is claimed where suspects are asked for', before: { ...pending, claimsWithoutProgress: 2 } },
    ...{ request: { suspectLimit: 1 }, after: { epoch: 4, claimsWithoutProgress: 3 } },
  },
  { rule: 'a run that is due later is not claimed', before: { ...pending, status: 'waiting', dueAt: farAway }, after: null },
  { rule: 'a run that is never due by itself is not claimed', before: { ...pending, dueAt: null }, after: null },
  { rule: 'a paused run is not claimed', before: { ...pending, status: 'paused' }, after: null },
  { rule: 'a finished run is not claimed', before: failed, after: null },
]

export interface NewRunCase {
  readonly rule: string
  readonly create: Partial<NewRun>
  /** The thread has a run with the id of the case, is deleted, or is not there. */
  readonly thread: 'used' | 'deleted' | 'new'
  readonly after: Difference<Row>
}

/** A new run; the cases say where it differs. */
export const newRow: Difference<Row> = {
  ...{ status: 'pending', reason: null, queue: 'default', priority: 0, fingerprint: 'f', epoch: 0, ...noLease, dueAt: now },
  ...{ waitKey: null, claimsWithoutProgress: 0, currentStep: null, inputSeq: 1, tapeSeq: null, endSeq: null },
  ...{ createdAt: now, startedAt: null, finishedAt: null },
}

export const newRunCases: readonly NewRunCase[] = [
  { rule: 'a new run on a new thread', create: {}, thread: 'new', after: {} },
  { rule: 'a new run after a delay', create: { due: { inMs: 60_000 } }, thread: 'new', after: { dueAt: inMs(60_000) } },
  { rule: 'a new run at a date', create: { due: { at: farAway } }, thread: 'new', after: { dueAt: farAway } },
  {
    ...{
      rule: 'a new run in a queue, with a priority',
      create: { queue: 'slow', priority: -7, fingerprint: 'g' },
      thread: 'new',
    },
    after: { queue: 'slow', priority: -7, fingerprint: 'g' },
  },
  { rule: 'a new run on a used thread begins after its head', create: {}, thread: 'used', after: { inputSeq: 4 } },
  {
    ...{ rule: 'a new run on a deleted thread continues its positions and epochs', create: {}, thread: 'deleted' },
    after: { inputSeq: 4, epoch: 3 },
  },
]
