import type { Codec } from '../../model/codec.ts'
import type { EventType, LogRecord } from '../../model/event.ts'
import { type Budget, noUsage, type UsageTotal } from '../../model/usage.ts'
import { type CallKey, type CallKind, keyOfRecord, pathOf, type UpdateKey } from './call-key.ts'
import { around } from './scope-paths.ts'
import type { CallHistory, Order, Outcome, RecordedUpdate, Recovery, StatePatch, Tape } from './tape.ts'

/** What records of each type add to a tape. Types that are missing add nothing. */
export type TapeHandlers = { readonly [Type in EventType]?: (tape: TapeBuilder, record: LogRecord) => void }

/** A tape while it is being read. Its public fields are those of `Tape`, and what only the reading needs. */
export class TapeBuilder {
  readonly calls = new Map<CallKey, CallHistory>()
  readonly outcomes = new Map<CallKey, Outcome>()
  readonly values = new Map<CallKey, unknown>()
  readonly valuesAt = new Map<CallKey, number>()
  readonly patches: StatePatch[] = []
  readonly updates = new Map<UpdateKey, RecordedUpdate>()
  readonly streams = new Map<string, { isStale: boolean }>()
  readonly booked = new Set<CallKey>()
  readonly usageOfChildren = new Map<string, UsageTotal>()
  readonly undone = new Set<number>()
  readonly undoneChildren = new Set<string>()
  readonly recoveries: Recovery[] = []
  number = 1
  retriedAt: number | undefined
  renewedSeq = 0
  copiedUpTo = 0
  order: Order | undefined
  usage = noUsage
  raised: Budget = {}

  /** Recorded scopes, by the path of the calls inside. */
  readonly scopes = new Map<string, CallHistory>()
  readonly keysOfScopes = new Map<string, CallKey>()
  /** Recorded scopes, by the path of the calls inside and also by the path of the calls in their fallbacks. */
  readonly sites = new Map<string, CallHistory>()
  /** How often a call was taken back without a rollback. */
  readonly begunAnew = new Map<CallKey, number>()
  /** Runs of children, by the position of the record of their end. */
  readonly childEnds = new Map<number, string>()
  /** The last thing that happened to the run is a rollback. */
  isRolledBack = false
  /** The last thing that happened to the run is that it was forked: results from this position on were given for later calls. */
  givenFrom: number | undefined
  /** Position of the record that is being read: what it reopens is dropped by its decision. */
  here = 0
  readonly #codec: Codec

  constructor(codec: Codec) {
    this.#codec = codec
  }

  /** What a record says. */
  readonly data = <T>({ payload }: LogRecord): T => (payload === null ? {} : this.#codec.decode(payload)) as T

  /** The history of the call that a record is about. */
  call(kind: CallKind, record: LogRecord): CallHistory {
    return this.#history(keyOfRecord(kind, record), record)
  }

  #history(key: CallKey, record: LogRecord): CallHistory {
    const known = this.calls.get(key)
    if (known !== undefined) return known
    const history = { failures: 0, reopenedFailures: 0, deaths: 0, isRunning: false, begunAt: record.seq }
    this.calls.set(key, history)
    return history
  }

  /** The record is the outcome of its call. */
  settle(kind: CallKind, record: LogRecord, isFailure = false): void {
    const key = keyOfRecord(kind, record)
    const history = this.#history(key, record)
    history.isRunning = false
    const { type, seq, at, payload } = record
    const outcome: Mutable<Outcome> = { key, seq, at, payload, isFailure, patchCount: this.patches.length }
    if (record.durationMs !== null) outcome.durationMs = record.durationMs
    if (type === 'step_skipped' || type === 'effect_skipped') outcome.isSkip = true
    if (type === 'wait_withdrawn') outcome.isWithdrawn = true
    if (type === 'state_updated') outcome.isShowing = true
    const patch = this.patchOf(record)
    if (patch !== undefined) outcome.patch = patch
    history.outcome = outcome
    // Deleted first, so that it is the last in the map.
    this.outcomes.delete(key)
    this.outcomes.set(key, outcome)
    if (this.sites.size === 0) return
    // A scope in which something gets done is not what kills the worker, however often it dies in it.
    for (const scope of around(pathOf(key), this.sites)) scope.deaths = 0
  }

  /** Puts another outcome of the same call in the place of the one that it has. */
  replaceOutcome(outcome: Outcome): void {
    this.outcomes.set(outcome.key, outcome)
    const history = this.calls.get(outcome.key)
    if (history !== undefined) history.outcome = outcome
  }

  /** The change of the state that the record being read made. */
  patchOf(record: LogRecord): StatePatch | undefined {
    return record.patch === null ? undefined : this.patches.at(-1)
  }

  /** The patch will be made again. */
  drop(patch: StatePatch | undefined): void {
    if (patch !== undefined) patch.droppedAt ??= this.here
  }

  /** The tape, once every record was read. */
  build(rollbacks: Pick<Tape, 'rolledBack' | 'rollbacks'>): Tape {
    const { calls, values, valuesAt, patches, updates, streams, recoveries, number, renewedSeq, copiedUpTo } = this
    const { retriedAt, order, undone, undoneChildren, usage, booked, usageOfChildren, raised } = this
    return {
      outcomes: [...this.outcomes.values()].sort((a, b) => a.seq - b.seq),
      ...{ calls, values, valuesAt, patches, updates, streams, recoveries, number, renewedSeq, copiedUpTo },
      ...{ undone, undoneChildren, usage, booked, usageOfChildren, raised, ...rollbacks },
      ...(retriedAt !== undefined && { retriedAt }),
      ...(order !== undefined && { order }),
    }
  }
}

type Mutable<T> = { -readonly [K in keyof T]: T[K] }
