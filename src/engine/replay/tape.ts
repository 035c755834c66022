import type { Payload } from '../../model/payload.ts'
import { type Budget, noUsage, type UsageTotal } from '../../model/usage.ts'
import { type CallKey, pathOf, type UpdateKey } from './call-key.ts'
import type { Stretch } from './rolled-back.ts'
import { isInScopeOrFallback } from './scope-paths.ts'

/**
 * What a run has already done, read from its log: the tape that a replay follows.
 *
 *   T1  Outcomes are in log order; a replay hands them out in that order.
 *   T2  A call is identified by kind, path and count, never by time or arrival.
 *   T3  A failure that was reopened (retry, resume) is not an outcome, but its attempts still count.
 *   T4  Whatever is reopened loses its patch. A patch that is not dropped belongs to something that does not run again.
 */
export interface Tape {
  readonly outcomes: readonly Outcome[]
  readonly calls: ReadonlyMap<CallKey, CallHistory>
  /** Values of ctx.now, ctx.random and ctx.uuid. */
  readonly values: ReadonlyMap<CallKey, unknown>
  /** Their positions in the log. */
  readonly valuesAt: ReadonlyMap<CallKey, number>
  /** All changes of the thread's state since the tape began, including edits by hand, in log order. */
  readonly patches: readonly StatePatch[]
  readonly updates: ReadonlyMap<UpdateKey, RecordedUpdate>
  /** Streams that the function itself writes to; `isStale` if it was retried or rolled back since: it will write all of it again. */
  readonly streams: ReadonlyMap<string, { readonly isStale: boolean }>
  /** Which continuation of the run this is, from 1. */
  readonly number: number
  /** When the run was last retried, by the store's clock. */
  readonly retriedAt?: number
  /** What the run has used so far, except its steps, which are counted as calls. */
  readonly usage: UsageTotal
  /** Calls of ctx.usage that are booked, except those of section attempts that are over: another attempt uses again. */
  readonly booked: ReadonlySet<CallKey>
  /** What was booked for children, by run. */
  readonly usageOfChildren: ReadonlyMap<string, UsageTotal>
  /** Limits that were raised since it began. */
  readonly raised: Budget
  /** Positions of results that were undone since. */
  readonly undone: ReadonlySet<number>
  readonly recoveries: readonly Recovery[]
  /** Position of the last retry or rollback: messages from children that were sent before it may be gone. */
  readonly renewedSeq: number
  /** Children whose work was undone, by the ids of their runs. */
  readonly undoneChildren: ReadonlySet<string>
  /** How many rollbacks went over a call, if any did. */
  readonly rollbacks: ReadonlyMap<CallKey, number>
  readonly rolledBack: readonly Stretch[]
  /** Up to this position it is a copy of the tape of another run: what is recorded there was done by that one. 0 where it is no copy. */
  readonly copiedUpTo: number
  /** What the run was told to do instead of continuing, and has not done yet. */
  readonly order?: Order
}

/** A takeover of the run from a holder that had gone silent: the epoch that it began, and what was running. */
export interface Recovery {
  readonly epoch: number
  readonly running: readonly CallKey[]
}

/** A change of the thread's state, as the log has it. */
export interface StatePatch {
  readonly patch: Payload
  /** The version of the state definition that it leads to; null if the version stays. */
  readonly version: number | null
  readonly seq: number
  /** The call that made it, for the error about one that no longer fits. */
  readonly step: string | null
  /** No call of the function shows it on replay: an edit by hand, a migration, what was rolled back. */
  readonly isPassedBy: boolean
  readonly isEdit?: true
  /** It will be made again, as decided by the record at this position. */
  droppedAt?: number
  /** It wrote the state without what was dropped before. */
  readonly isRebuild?: true
  /** It took the state back to where this many patches were applied. */
  readonly backTo?: number
}

/** To undo what was done: all of it and end, cancelled or failed, or what came after a position and pause there. */
export type Order =
  /** With `undo: false` nothing is undone; what depends on the run ends all the same. */
  | { readonly kind: 'cancel'; readonly by?: string | undefined; readonly undo?: false; readonly replays?: false }
  /** With `replays: false` the function is not called: it crashed its workers. */
  | { readonly kind: 'rollback'; readonly to: number; readonly by?: string | undefined; readonly replays?: false }
  /** The function threw, or the time limit of the workflow has passed; under `undoOnFailure` it undoes first. */
  | {
      readonly kind: 'fail'
      readonly error: Error
      readonly failed: readonly CallKey[]
      readonly undo?: false
      readonly replays?: never
    }

/** A recorded ctx.update. */
export interface RecordedUpdate {
  /** How many of the tape's patches are applied after it. */
  readonly position: number
  /** Its own patch; undefined if it changed nothing. */
  readonly patch?: StatePatch | undefined
  /** What its recipe threw. */
  readonly error?: Error
  readonly seq: number
}

/** A recorded result, waiting for the call that asks for it. */
export interface Outcome {
  readonly key: CallKey
  readonly seq: number
  readonly at: number
  readonly payload: Payload | null
  readonly isFailure: boolean
  /** How many of the tape's patches are applied once it is handed out. */
  readonly patchCount: number
  /** How long its last attempt took. */
  readonly durationMs?: number
  /** Its own patch, if it changed the state. */
  readonly patch?: StatePatch | undefined
  /** Recorded after a failure that was reopened: handed out if a call asks for it, and not missed otherwise. */
  readonly isOptional?: boolean
  /** A step that was skipped: it did nothing that could be undone. */
  readonly isSkip?: boolean
  /** Not the result of a call: here the function was shown edits by hand. */
  readonly isShowing?: boolean
  /** A wait that the function withdrew: it throws, but does not count as a failure. */
  readonly isWithdrawn?: boolean
}

/** What the log says about one call. */
export interface CallHistory {
  outcome?: Outcome
  /** Position of its first record. */
  readonly begunAt: number
  /** All failures ever recorded: the number of the next attempt is one more. */
  failures: number
  /** Of these, the ones before the call was last reopened: they no longer use up attempts. */
  reopenedFailures: number
  /** Its failure was reopened. */
  wasReopened?: boolean
  /** It has its result from the run that the tape was copied from. */
  isCopied?: true
  /** Children: position, in the child's log, of the failure that last failed the call. */
  childEndSeq?: number
  /** How often the worker died while it was running. */
  deaths: number
  /** Its last attempt began and has not ended. */
  isRunning: boolean
  /** Streams that attempts wrote to, except attempts that have failed. Void unless the call has an outcome. */
  opened?: { readonly attempt: number; readonly stream: string }[]
  /** Store time before which the next attempt must not begin. */
  retryAt?: number
  /** What was decided after the last failure, if it was not another attempt. */
  next?: 'fallback' | 'pause'
  lastError?: Error
  inputFingerprint?: string
  /** Its start says that it has an undo. Since 0.2 the record of the result says which. */
  hasUndo?: boolean
  /** Effects: the name of their undo, if it has one. */
  undo?: string
  /** Begun steps: position of their start, if it was recorded before the function got the step. */
  begunFirstAt?: number
  /** Effects: the operation's key. Steps: their key, if it is not the plain name of the call. */
  key?: string
  /** What it did was undone, and it has not begun again since: it will begin under a new key. */
  isDueAnew?: true
  /** Effects: how far the operation got. */
  effect?: 'intended' | 'unsure' | 'happened' | 'not_happened'
  resolution?: unknown
  /** Effects: the record of a person's decision that it has happened. */
  decided?: { readonly seq: number; readonly payload: Payload | null }
  /** Timers, and waits that have a time limit: when it fires, by the store's clock. */
  fireAt?: number
  /** Signals: one that was taken and did not match its schema, which failed the run. */
  refused?: Outcome
  /** Sleeps: the length that was asked for; undefined if it was a date. */
  ms?: number
  /** Sleeps: position of the record that set the timer. */
  setSeq?: number
  /** Sleeps: begun after a failure that was reopened, and perhaps because of it: one of another length begins again. */
  isOptional?: true
  /** Recorded scopes: the path of the calls inside, the start of the attempt, and which failures inside failed it. */
  scope?: string
  started?: { readonly seq: number; readonly at: number; readonly patchCount: number }
  failed?: readonly CallKey[]
  /** Children and questions: what the child was started as, what was asked. */
  begun?: { readonly seq: number; readonly data: Readonly<Record<string, unknown>> }
}

/** What step_failed and effect_failed say. */
export interface FailureData {
  readonly error?: Error
  /** No further attempt follows by itself. */
  readonly final: boolean
  /** What follows. Only `throw` reaches the function, now and at every replay. */
  readonly next: 'retry' | 'fallback' | 'skip' | 'pause' | 'throw'
  readonly retryAt?: number
  /** False if the failure is not a failed attempt: a look-up after a crash found that nothing had happened. */
  readonly counts?: boolean
  /** The operation stays open: the same key will be sent again. */
  readonly open?: boolean
  /** Recorded scopes: the failures that failed it. */
  readonly failed?: readonly CallKey[]
}

export const emptyTape: Tape = {
  outcomes: [],
  calls: new Map(),
  values: new Map(),
  valuesAt: new Map(),
  patches: [],
  updates: new Map(),
  streams: new Map(),
  number: 1,
  usage: noUsage,
  booked: new Set(),
  usageOfChildren: new Map(),
  raised: {},
  undone: new Set(),
  undoneChildren: new Set(),
  renewedSeq: 0,
  recoveries: [],
  rollbacks: new Map(),
  rolledBack: [],
  copiedUpTo: 0,
}

/**
 * Calls that had begun and not ended where the tape stops: what was running when the worker died. A scope is among them only if nothing
 * inside it was running.
 */
export function runningCalls(tape: Tape): CallKey[] {
  const running: [CallKey, CallHistory][] = []
  tape.calls.forEach((history, key) => {
    if (history.isRunning && history.outcome === undefined) running.push([key, history])
  })
  const isBusyInside = ({ scope }: CallHistory) =>
    scope !== undefined && running.some(([key]) => isInScopeOrFallback(pathOf(key), scope))
  return running.filter(([, history]) => !isBusyInside(history)).map(([key]) => key)
}

export function hasRunningScope(tape: Tape): boolean {
  for (const { scope, isRunning } of tape.calls.values()) if (scope !== undefined && isRunning) return true
  return false
}

export function countDeath(tape: Pick<Tape, 'calls'>, key: CallKey): void {
  const history = tape.calls.get(key)
  if (history !== undefined) history.deaths++
}

/** The holder turned out to be alive: its takeover does not count as a death. */
export function forgiveDeaths(tape: Tape, { running }: Recovery): void {
  for (const key of running) {
    const history = tape.calls.get(key)
    if (history !== undefined && history.deaths > 0) history.deaths--
  }
}
