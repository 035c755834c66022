import type { Codec } from '../../model/codec.ts'
import type { EventType, NewEvent } from '../../model/event.ts'
import type { Payload } from '../../model/payload.ts'
import { joinChanges, type RecordChange } from '../../model/record.ts'
import type { NewChunks } from '../../model/stream.ts'
import type { Change, Guard, OperationChange, RunChange } from '../../store/change.ts'
import type { Claim } from '../../store/store.ts'
import type { Call } from '../calls/calls.ts'
import type { CallKey } from '../replay/call-key.ts'
import type { StateTimeline } from '../state/state-timeline.ts'
import type { Undoable } from '../undo/undoable.ts'
import type { RunInbox } from '../waiting/run-inbox.ts'
import type { Outbox } from './outbox.ts'
import type { RecordWrites } from './record-writes.ts'
import type { RunOrigin } from './run-origin.ts'

/** Deferred events that no commit has taken along are written after this long. */
const deferredMs = 100

/**
 * Makes the changes of one execution: the events in the order in which they were made, under the run's lease, with what
 * belongs into the same commit. Events that need no commit of their own are deferred: the next one writes them.
 */
export class RunWriter {
  readonly #run: Writing
  readonly #guard: Extract<Guard, { kind: 'lease' }>
  readonly #outbox: Outbox | undefined
  #deferred: NewEvent[] = []
  #deferredRecords: readonly RecordChange[] = []
  #deferredSince = 0
  #hasDeferredResult = false
  #hasDeferredProgress = false
  #startsTape: boolean
  #hasNewInput = false
  #stateVersion: number | undefined

  /** `startsTape`: the first change starts a tape. Without an outbox no target is told of anything. */
  constructor(run: Writing, options: { outbox: Outbox | undefined; startsTape: boolean }) {
    this.#run = run
    const { claim } = run.run
    this.#guard = { kind: 'lease', epoch: claim.run.epoch, leaseId: claim.leaseId }
    this.#outbox = options.outbox
    this.#startsTape = options.startsTape
  }

  event(type: EventType, call: Call | null, fields: EventFields = {}): NewEvent {
    return {
      type,
      step: call?.path ?? fields.scope ?? null,
      count: fields.count ?? call?.count ?? 0,
      attempt: fields.attempt ?? 0,
      at: fields.at ?? this.#run.clock.now(),
      durationMs: fields.durationMs ?? null,
      payload: fields.data === undefined ? null : this.#run.run.codec.encode(fields.data),
      patch: fields.patch ?? null,
    }
  }

  /** Buffers an event until the next commit. */
  defer(event: NewEvent, isResult = false, hasProgress = false): void {
    if (this.#deferred.length === 0) this.#deferredSince = performance.now()
    this.#deferred.push(event)
    if (isResult) this.#hasDeferredResult = true
    if (hasProgress) this.#hasDeferredProgress = true
  }

  /** Buffers what an event that is buffered has done to records. */
  deferRecords(records: readonly RecordChange[]): void {
    this.#deferredRecords = joinChanges(this.#deferredRecords, records)
  }

  get hasDeferred(): boolean {
    return this.#deferred.length > 0
  }

  /** Something has been deferred for long: it should be written now. */
  get hasStaleDeferred(): boolean {
    return this.#deferred.length > 0 && performance.now() - this.#deferredSince >= deferredMs
  }

  /** The change that writes everything deferred and, after it, these events. */
  change(events: readonly NewEvent[], options: ChangeOptions, isProgress = options.hasProgress === true): Change {
    const all = this.#behindDeferred(events)
    const isCheckpoint = options.isCheckpoint ?? (this.#hasDeferredResult || events.length > 0)
    const hasProgress = this.#hasDeferredProgress || isProgress
    this.#hasDeferredResult = false
    this.#hasDeferredProgress = false
    const chunks = this.#run.output.takeChunks()
    const change = this.#withRecords(this.#make(all, options, isCheckpoint, hasProgress), options.writes?.records ?? [])
    return chunks.length === 0 ? change : { ...change, chunks }
  }

  /** The change that writes these events and leaves what is deferred alone. */
  changeAlone(events: readonly NewEvent[], options: ChangeOptions): Change {
    return this.#make(events, options, options.isCheckpoint ?? true, options.hasProgress === true)
  }

  #withRecords(change: Change, written: readonly RecordChange[]): Change {
    const deferred = this.#deferredRecords
    if (deferred.length === 0 && written.length === 0) return change
    this.#deferredRecords = []
    return { ...change, records: joinChanges(deferred, written) }
  }

  #behindDeferred(events: readonly NewEvent[]): readonly NewEvent[] {
    const deferred = this.#deferred
    if (deferred.length === 0) return events
    this.#deferred = []
    for (const event of events) deferred.push(event)
    return deferred
  }

  /** The next change starts a new tape; its first event brings the input. */
  startNextTape(): void {
    this.#startsTape = true
    this.#hasNewInput = true
  }

  /** The next change brings the thread's state to this version. */
  setStateVersion(version: number): void {
    this.#stateVersion = version
  }

  #make(events: readonly NewEvent[], options: ChangeOptions, isCheckpoint: boolean, hasProgress: boolean): Change {
    const { timeline } = this.#run.state
    const inbox = this.#run.inbox.messages
    const { currentStep } = this.#run.activity
    const { claim, origin } = this.#run.run
    const { leaseMs } = this.#run.lease
    const { owner, id, threadId } = claim.run
    const run: Mutable<RunChange> =
      options.run === undefined ? { currentStep, leaseMs } : { currentStep, leaseMs, ...options.run }
    if (hasProgress) run.hasProgress = true
    if (this.#startsTape && events.length > 0) {
      run.startsTape = true
      if (this.#hasNewInput) run.hasNewInput = true
      this.#startsTape = false
    }
    const change: Mutable<Change> = {
      owner,
      threadId,
      runId: id,
      guard: options.headSeq === undefined ? this.#guard : { ...this.#guard, headSeq: options.headSeq },
      events,
      run,
      isCheckpoint,
    }
    if (options.operation !== undefined) change.operation = options.operation
    if (options.mustSync !== undefined) change.mustSync = options.mustSync
    if (options.label !== undefined) change.label = options.label
    if (this.#stateVersion !== undefined && events.some((event) => event.type === 'state_migrated')) {
      change.stateVersion = this.#stateVersion
      this.#stateVersion = undefined
    }
    if (options.creates !== undefined) change.creates = options.creates
    if (this.#outbox !== undefined) {
      const messages = this.#outbox.messagesFor(claim, origin, events, currentStep)
      if (messages.length > 0) change.creates = [...(options.creates ?? []), ...messages]
    }
    if (options.delivers !== undefined) change.delivers = options.delivers
    if (!inbox.isEmpty || options.reads !== undefined) Object.assign(change, inbox.forChange(options.run?.status, options.reads))
    if (events.some((event) => event.patch !== null)) {
      const snapshot = timeline.snapshot()
      if (snapshot !== undefined) change.snapshot = snapshot
    }
    return change
  }
}

/** The parts of the run whose changes are made. */
export interface Writing {
  readonly run: { readonly claim: Claim; readonly codec: Codec; readonly origin: RunOrigin }
  readonly clock: { now(): number }
  /** How long each change extends the lease. */
  readonly lease: { readonly leaseMs: number }
  readonly activity: { readonly currentStep: string | null }
  readonly state: { readonly timeline: StateTimeline }
  readonly inbox: { readonly messages: RunInbox }
  readonly output: { takeChunks(): readonly NewChunks[] }
}

export interface EventFields {
  /** For what has no call: the scope it belongs to. */
  readonly scope?: string | null
  readonly attempt?: number
  readonly count?: number
  readonly at?: number
  readonly durationMs?: number
  readonly data?: Readonly<Record<string, unknown>> | undefined
  readonly patch?: Payload | null
}

export interface ChangeOptions {
  readonly operation?: OperationChange
  /** Another client may have changed the operation: a refusal is thrown, and the caller reads what is there. */
  readonly canBeOverruled?: true
  readonly label?: string
  readonly hasProgress?: boolean
  /** Default: when there is more than starts of steps in it. */
  readonly isCheckpoint?: boolean
  readonly mustSync?: boolean
  readonly run?: RunChange
  readonly creates?: Change['creates']
  readonly delivers?: Change['delivers']
  /** Refused where the log does not end there. */
  readonly headSeq?: number | undefined
  /** Letters of the inbox that these events record. */
  readonly reads?: readonly number[]
  /** The last of these events is a result that has an undo. */
  readonly undoable?: Pick<Undoable, 'key' | 'undo' | 'operationKey'>
  /** Records that are written with these events. */
  readonly writes?: Pick<RecordWrites, 'records'> | undefined
  /** Records of which another client may be faster: how they are made again, and what lets later changes be sent. */
  readonly contest?: { readonly writes: RecordWrites; readonly release: () => void }
  /** The call whose final failure this is. */
  readonly failureOf?: CallKey
  /** False: handing the result out does not show what the state has become. */
  readonly showsState?: false
}

type Mutable<T> = { -readonly [K in keyof T]: T[K] }
