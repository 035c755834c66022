import { HoldfastError } from '../../model/errors.ts'
import type { EventType, NewEvent } from '../../model/event.ts'
import type { Operation } from '../../model/operation.ts'
import type { Change, Committed, OperationChange } from '../../store/change.ts'
import type { SqlTransaction } from '../../store/store.ts'
import type { Call } from '../calls/calls.ts'
import type { Playback } from '../replay/playback.ts'
import { ResultTurns } from '../replay/result-turns.ts'
import type { StateView } from '../state/state-timeline.ts'
import type { RecordedUndo } from '../undo/undoable.ts'
import type { QuietTime } from '../waiting/quiet-time.ts'
import type { RecordWrites } from '../writing/record-writes.ts'
import { type ChangeOptions, type EventFields, RunWriter, type Writing } from '../writing/run-writer.ts'
import type { Activity } from './activity.ts'
import type { Failures } from './failures.ts'
import type { HeldLease } from './held-lease.ts'
import type { HeldRun } from './held-run.ts'
import { never } from './never.ts'
import type { RunClock } from './run-clock.ts'
import { RunWrites, type WrittenRun } from './run-writes.ts'
import { transactPatiently } from './transact-patiently.ts'

/**
 * What a run writes: its events, in commits under its lease, and the results that it hands to its function once they are durable.
 * Keeps E1 (every write is fenced), E2 (events in order) and E3 (one result per turn): the header of execution.ts.
 */
export class RunJournal {
  readonly #run: WritingRun
  readonly #writer: RunWriter
  readonly #writes: RunWrites
  readonly #turns: ResultTurns
  #resultsOnTheirWay = 0

  constructor(
    run: WritingRun,
    options: { readonly headSeq: number; readonly startsTape: boolean; readonly hasNewInput: boolean },
  ) {
    const { engine } = run.run
    this.#run = run
    this.#writes = new RunWrites(run, options.headSeq)
    this.#writer = new RunWriter(run, { outbox: engine.outbox, startsTape: options.startsTape })
    if (options.hasNewInput) this.#writer.startNextTape()
    this.#turns = new ResultTurns(engine.committer, run.playback)
  }

  /** Where the log ended after the last write that was answered for. */
  get lastSeq(): number {
    return this.#writes.lastSeq
  }

  set lastSeq(seq: number) {
    this.#writes.lastSeq = seq
  }

  event(type: EventType, call: Call | null, fields?: EventFields): NewEvent {
    return this.#writer.event(type, call, fields)
  }

  /** Buffers an event until the next commit. */
  defer(event: NewEvent, isResult = false): void {
    this.#writer.defer(event, isResult)
  }

  get hasDeferred(): boolean {
    return this.#writer.hasDeferred
  }

  /** Called every now and then by the worker: what has been deferred for long is written. */
  flushIfStale(): void {
    const { phase, output, run } = this.#run
    if (phase.hasEnded) return
    output.deferProgressIfDue()
    if (!this.#writer.hasStaleDeferred) return
    this.commit([], {}).catch((error: unknown) => run.log.debug('flush failed', { runId: run.runId, error }))
  }

  /** The next change brings the thread's state to this version. */
  setStateVersion(version: number): void {
    this.#writer.setStateVersion(version)
  }

  /** After a death it matters which step was running: until something is recorded, starts are durable before bodies begin. */
  get mustRecordStarts(): boolean {
    const { claim } = this.#run.run
    return (claim.takenFrom !== null || claim.run.claimsWithoutProgress > 1) && !this.#writes.hasProgress
  }

  /**
   * An attempt of a step begins: its start is deferred, and it counts as at work. After a death the start is durable before the body begins:
   * answers with the write then.
   */
  begin(call: Call, fields: EventFields): Promise<unknown> | null {
    this.#writer.defer(this.#writer.event('step_started', call, fields))
    this.#run.activity.begin(call)
    return this.mustRecordStarts ? this.commit([], {}) : null
  }

  /** Writes events, after everything that was deferred, and resolves when they are durable. Throws when the lease is lost. */
  async commit(events: readonly NewEvent[], options: ChangeOptions): Promise<Extract<Committed, { ok: true }>> {
    if (options.operation !== undefined) this.#writeDeferredFirst()
    const answer = await this.#writes.write(this.#writer.change(events, options), options)
    return answer.ok ? answer : this.#writes.refused(answer.refusal, options)
  }

  /** Records what a step came to, with what its recipes make of the state, and hands it to the function as a replay would. */
  async recordResult<T>(call: Call, value: T, made: MadeResult): Promise<T> {
    const run = this.#run
    const { writes, undo } = made
    // A cancelled or fenced run takes no result, unless it has to be undone.
    if (undo === undefined) run.admission.throwIfEnded()
    // It will never be written: it must not reach the state timeline either.
    if (run.phase.isDetached) return run.admission.cameTooLate()
    // Encoded first: a result that can't be stored must leave nothing on the state timeline.
    const completed = this.#writer.event('step_completed', call, made)
    if (writes.records?.isContested === true) await this.#recordInTurn(call, completed, made)
    else await this.#record(call, completed, made, {})
    // A copy that shares nothing with the body.
    return typeof value === 'object' && value !== null && completed.payload !== null
      ? (run.run.codec.decode(completed.payload) as { result: T }).result
      : value
  }

  #record(call: Call, completed: NewEvent, { writes, undo, isDeferred }: MadeResult, options: ChangeOptions): Promise<unknown> {
    const { state, activity, output } = this.#run
    const { recipes, records } = writes
    const event = recipes.length === 0 ? completed : { ...completed, patch: state.timeline.stage(recipes) }
    activity.leave(call)
    output.settle(call)
    const hasRecords = records !== undefined && !records.isEmpty
    // A deferred result would be handed out before one that is on its way and stands before it in the log (E3).
    if (isDeferred && !this.hasResultsOnTheirWay && (!hasRecords || records.canWait)) {
      if (hasRecords) {
        this.#writer.deferRecords(records.records)
        for (const read of records.events) this.#writer.defer(read)
      }
      return this.#deferResult(event)
    }
    const undoable = undo === undefined ? plainResult : { undoable: { key: call.key, undo } }
    if (!hasRecords) return this.commitResult([event], undoable, call)
    return this.commitResult([...records.events, event], { ...options, ...undoable, writes: records }, call)
  }

  /**
   * With records that another client may have changed first: the state's patch is made in the turn of the write, and nothing that is made after
   * it is sent before it is written (E2).
   */
  async #recordInTurn(call: Call, completed: NewEvent, made: MadeResult): Promise<void> {
    const turn = this.#writes.order.take()
    if (turn !== null) await turn
    const release = this.#writes.order.hold()
    const writes = made.writes.records as RecordWrites
    try {
      if (made.undo === undefined) this.#run.admission.throwIfEnded()
      await this.#record(call, completed, made, { contest: { writes, release } })
    } finally {
      release()
      writes.answered?.()
    }
  }

  /**
   * Like `commit` for a result that is handed to the function: resolves in its turn, with its patch shown, to its position. The call says whose
   * view that is; without one it is that of the function that asks.
   */
  async commitResult(events: readonly NewEvent[], options: ChangeOptions, call?: Call): Promise<number> {
    const { state, output, failures, inbox, playback, suspension, phase } = this.#run
    const { mark } = state.timeline
    const view = call === undefined ? state.view : state.viewOf(call.within)
    output.deferProgress()
    this.#resultsOnTheirWay++
    if (options.failureOf !== undefined) failures.unthrown.add(options.failureOf)
    let seq: number
    try {
      // `commit` and `#turn` spelled out: two fewer promises for every step.
      if (options.operation !== undefined) this.#writeDeferredFirst()
      const change = this.#writer.change(events, options, true)
      const answer = await this.#writes.write(change, options)
      if (!answer.ok) return await this.#writes.refused(answer.refusal, options)
      seq = answer.lastSeq
      if (answer.hasMail || inbox.holdsResults) await inbox.beforeResult(answer.hasMail)
      if (playback.isAwaited) await playback.idle()
      if (!this.#turns.takeTurn()) await this.#turns.next()
    } finally {
      this.#resultsOnTheirWay--
      suspension.considerStopping()
    }
    if (phase.isDetached) return never()
    this.#run.admission.throwIfEnded()
    if (options.failureOf === undefined) failures.handOut()
    else failures.hear(options.failureOf)
    if (options.showsState !== false) view.advance(mark)
    this.#run.quiet.heard()
    return seq
  }

  /** A result that is written with the next commit: handed out in a turn of its own all the same (E3). */
  async #deferResult(event: NewEvent): Promise<void> {
    const { state, playback } = this.#run
    const { mark } = state.timeline
    const { view } = state
    this.#writer.defer(event, true, true)
    if (playback.isAwaited) await playback.idle()
    await this.#turns.next()
    if (this.#run.phase.isDetached) return never()
    this.#run.admission.throwIfEnded()
    this.#run.failures.handOut()
    view.advance(mark)
    this.#run.quiet.heard()
  }

  get hasResultsOnTheirWay(): boolean {
    return this.#resultsOnTheirWay > 0
  }

  /** Results are durable that wait for their turn. */
  get hasResultsWaiting(): boolean {
    return !this.#turns.isEmpty || this.#run.playback.isAwaited
  }

  /** Makes an effect's intent durable, after what was deferred. It may be refused because the key is taken: answers with the operation then. */
  async intend(event: NewEvent, operation: Extract<OperationChange, { kind: 'intend' }>): Promise<Operation | null> {
    const before = this.#writeDeferred()
    const intent = this.#writes.write(this.#writer.change([event], { isCheckpoint: false, operation, mustSync: true }))
    const [first, answer] = await Promise.all([before, intent])
    if (first !== null && !first.ok) return this.#writes.refused(first.refusal)
    if (answer.ok) {
      const { key, name } = operation
      this.#run.run.history.effects.intended(key, { name, event, at: answer.now })
      return null
    }
    if (answer.refusal === 'operation_taken' && answer.operation !== undefined) return answer.operation
    return this.#writes.refused(answer.refusal)
  }

  /** Changes an operation that another client may have changed first; says whether it was done. What was deferred is written before. */
  async tryOperation(operation: OperationChange): Promise<boolean> {
    const before = this.#writeDeferred()
    const answers = await Promise.all([before, this.#writes.write(this.#writer.change([], { operation }))])
    for (const answer of answers)
      if (answer !== null && !answer.ok && this.#run.phase.hasEnded) return this.#writes.refused(answer.refusal)
    return answers[1]?.ok === true
  }

  /** Runs `body` in one database transaction with the events it returns; what was deferred is written before. */
  async transact(timeoutMs: number, body: (tx: SqlTransaction) => Promise<readonly NewEvent[]>): Promise<void> {
    const { phase, ending, admission, suspension, run } = this.#run
    if (run.store.transact === undefined)
      throw new HoldfastError('invalid_input', `ctx.transaction needs SQLite or Postgres; this store is ${run.store.kind}.`)
    this.#resultsOnTheirWay++
    const throwIfOver = async () => {
      if (phase.isDetached) return never<void>()
      admission.throwIfEnded()
    }
    try {
      const answer = await this.#writes.order.alone(
        () => (this.#writer.hasDeferred ? this.commit([], {}) : null),
        async () => {
          await throwIfOver()
          // What is deferred meanwhile is written with the next commit.
          const change = async (tx: SqlTransaction) => this.#writer.changeAlone(await body(tx), { hasProgress: true })
          return transactPatiently(run, { timeoutMs, change, throwIfOver, startOver: (error) => ending.startOver(error) })
        },
      )
      if (!this.#writes.answered(answer).ok)
        return await this.#writes.refused((answer as Extract<Committed, { ok: false }>).refusal)
      this.#writes.hasProgress = true
      await this.#turn()
    } finally {
      this.#resultsOnTheirWay--
      suspension.considerStopping()
    }
  }

  /** Hands in the commit that ends the execution, made at that moment: when a transaction under way has ended. */
  addEnd<T>(handIn: () => Promise<T>): Promise<T> {
    return this.#writes.order.addEnd(handIn)
  }

  /** The change that writes everything deferred and, after it, these events. For what ends the execution. */
  lastChange(events: readonly NewEvent[], options: ChangeOptions): Change {
    return this.#writer.change(events, options)
  }

  /** The next change starts a new tape; its first event brings the input. */
  startNextTape(): void {
    this.#writer.startNextTape()
  }

  /**
   * Writes what was deferred or written to streams in a change of its own: the one after it may be refused because of its operation, which
   * another client has changed. Null where there is nothing.
   */
  #writeDeferred(): Promise<Committed> | null {
    const hasMore = this.#writer.hasDeferred || this.#run.output.hasPendingChunks
    return hasMore ? this.#writes.write(this.#writer.change([], {})) : null
  }

  /** The same where the change after it is awaited, which comes to nothing with it. */
  #writeDeferredFirst(): void {
    this.#writeDeferred()?.catch(() => {})
  }

  /** One result per turn of the event loop, in order (E3). */
  async #turn(): Promise<void> {
    const { playback, phase, admission, failures, quiet } = this.#run
    if (playback.isAwaited) await playback.idle()
    if (!this.#turns.takeTurn()) await this.#turns.next()
    if (phase.isDetached) return never()
    admission.throwIfEnded()
    failures.handOut()
    quiet.heard()
  }
}

const plainResult = {}

/** What a step came to. */
interface MadeResult {
  readonly attempt: number
  readonly durationMs: number
  readonly data: EventFields['data']
  readonly writes: {
    readonly recipes: readonly ((draft: never) => unknown)[]
    readonly records: RecordWrites | undefined
  }
  readonly undo: RecordedUndo | undefined
  /** It needs no commit of its own. */
  readonly isDeferred: boolean
}

/** The parts of the run that its journal works with. */
interface WritingRun extends Writing, WrittenRun {
  readonly run: HeldRun
  readonly clock: RunClock
  readonly lease: HeldLease
  readonly activity: Activity
  readonly playback: Playback
  readonly failures: Failures
  readonly quiet: QuietTime
  readonly state: Writing['state'] & { readonly view: StateView; viewOf(attempt: Call['within']): StateView }
  readonly output: Writing['output'] &
    WrittenRun['output'] & {
      readonly hasPendingChunks: boolean
      deferProgress(): void
      deferProgressIfDue(): void
      settle(call: Call): void
    }
  readonly inbox: Writing['inbox'] &
    WrittenRun['inbox'] & { readonly holdsResults: boolean; beforeResult(hasMail: boolean): Promise<void> }
  readonly suspension: WrittenRun['suspension'] & { considerStopping(): void }
  readonly admission: WrittenRun['admission'] & { throwIfEnded(): void }
}
