import type { Codec } from '../../model/codec.ts'
import type { EventType, NewEvent } from '../../model/event.ts'
import type { Payload } from '../../model/payload.ts'
import type { NewChunks } from '../../model/stream.ts'
import type { Change, Guard, OperationChange, RunChange } from '../../store/change.ts'
import type { Claim } from '../../store/store.ts'
import type { Call } from '../calls/calls.ts'
import type { CallKey } from '../replay/tape.ts'
import type { StateLine } from '../state/state-line.ts'
import type { Undoable } from '../undo/undos.ts'
import type { RunInbox } from '../waiting/run-inbox.ts'
import type { Outbox } from './outbox.ts'
import type { RunOrigin } from './run-origin.ts'

/** Events that ride with the next commit are flushed by themselves after this long. */
const rideMs = 100

/**
 * Makes the changes of one execution: the events in the order in which they were made, under the run's lease, with what
 * belongs into the same commit. Events that need no commit of their own ride with the next one.
 */
export class RunWriter {
  readonly #execution: Writing
  readonly #guard: Extract<Guard, { kind: 'lease' }>
  readonly #outbox: Outbox | undefined
  #riding: NewEvent[] = []
  #ridingSince = 0
  #hasRidingResult = false
  #hasRidingProgress = false
  #startsTape: boolean
  #hasNewInput = false
  #stateVersion: number | undefined

  /** `startsTape`: the first change starts a tape. Without an outbox nobody is told of anything. */
  constructor(execution: Writing, options: { outbox: Outbox | undefined; startsTape: boolean }) {
    this.#execution = execution
    const { run, leaseId } = execution.claim
    this.#guard = { kind: 'lease', epoch: run.epoch, leaseId }
    this.#outbox = options.outbox
    this.#startsTape = options.startsTape
  }

  event(type: EventType, call: Call | null, fields: EventFields = {}): NewEvent {
    return {
      type,
      step: call?.path ?? fields.scope ?? null,
      count: fields.count ?? call?.count ?? 0,
      attempt: fields.attempt ?? 0,
      at: fields.at ?? this.#execution.now(),
      durationMs: fields.durationMs ?? null,
      payload: fields.data === undefined ? null : this.#execution.codec.encode(fields.data),
      patch: fields.patch ?? null,
    }
  }

  /** Lets an event ride with the next commit. */
  ride(event: NewEvent, isResult = false, hasProgress = false): void {
    if (this.#riding.length === 0) this.#ridingSince = performance.now()
    this.#riding.push(event)
    if (isResult) this.#hasRidingResult = true
    if (hasProgress) this.#hasRidingProgress = true
  }

  get hasRiding(): boolean {
    return this.#riding.length > 0
  }

  /** Something has been riding for long: it should be written by itself. */
  get hasOldRiding(): boolean {
    return this.#riding.length > 0 && performance.now() - this.#ridingSince >= rideMs
  }

  /** The change that writes everything that rides and, after it, these events. */
  change(events: readonly NewEvent[], options: ChangeOptions, isProgress = options.hasProgress === true): Change {
    const all = this.#behindRiding(events)
    const isCheckpoint = options.isCheckpoint ?? (this.#hasRidingResult || events.length > 0)
    const hasProgress = this.#hasRidingProgress || isProgress
    this.#hasRidingResult = false
    this.#hasRidingProgress = false
    const chunks = this.#execution.takeChunks()
    const change = this.#make(all, options, isCheckpoint, hasProgress)
    return chunks.length === 0 ? change : { ...change, chunks }
  }

  /** The change that writes these events and leaves alone what rides. */
  changeAlone(events: readonly NewEvent[], options: ChangeOptions): Change {
    return this.#make(events, options, options.isCheckpoint ?? true, options.hasProgress === true)
  }

  #behindRiding(events: readonly NewEvent[]): readonly NewEvent[] {
    const riding = this.#riding
    if (riding.length === 0) return events
    this.#riding = []
    for (const event of events) riding.push(event)
    return riding
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
    const { claim, origin, line, mailbox, leaseMs, currentStep } = this.#execution
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
    if (!mailbox.isEmpty || options.reads !== undefined)
      Object.assign(change, mailbox.forChange(options.run?.status, options.reads))
    if (events.some((event) => event.patch !== null)) {
      const snapshot = line.snapshot()
      if (snapshot !== undefined) change.snapshot = snapshot
    }
    return change
  }
}

/** The execution whose changes are made. */
interface Writing {
  readonly claim: Claim
  readonly codec: Codec
  readonly line: StateLine
  readonly mailbox: RunInbox
  readonly origin: RunOrigin
  /** How long each change extends the lease. */
  readonly leaseMs: number
  readonly currentStep: string | null
  now(): number
  takeChunks(): readonly NewChunks[]
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
  /** Somebody else may have changed the operation: a refusal is thrown, and whoever wrote this reads what is there. */
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
  /** Letters of the mailbox that these events record. */
  readonly reads?: readonly number[]
  /** The last of these events is a result that has an undo. */
  readonly undoable?: Pick<Undoable, 'key' | 'undo' | 'operationKey'>
  /** The call whose final failure this is. */
  readonly failureOf?: CallKey
  /** False: handing the result out does not show what the state has become. */
  readonly showsState?: false
}

type Mutable<T> = { -readonly [K in keyof T]: T[K] }
