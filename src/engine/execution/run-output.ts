import type { NewChunks } from '../../model/stream.ts'
import type { Call, Calls } from '../calls/calls.ts'
import { Progress } from '../writing/progress.ts'
import { RunStreams } from '../writing/run-streams.ts'
import type { Activity } from './activity.ts'
import type { HeldRun } from './held-run.ts'
import type { RunJournal } from './run-journal.ts'

const noChunks: readonly NewChunks[] = []

/** What readers can follow while a run is executed: its streams and its progress. Both are made when first used, since most runs have neither. */
export class RunOutput {
  readonly #run: RunWithOutput
  /** How many chunks the function has written in this tape, by stream. */
  readonly #written: ReadonlyMap<string, number>
  #streams: RunStreams | undefined
  #progress: Progress | undefined
  #hasEnded = false

  constructor(run: RunWithOutput, written: ReadonlyMap<string, number>) {
    this.#run = run
    this.#written = written
  }

  get streams(): RunStreams {
    if (this.#streams !== undefined) return this.#streams
    const { run, activity, admission, calls, journal } = this.#run
    this.#streams = new RunStreams({
      ...{ runId: run.runId, codec: run.codec, tape: run.tape.number, written: this.#written },
      isRunning: (call) => activity.isRunning(call.key),
      beforeWrite: (name) => {
        if (admission.comesToNothing(name)) return
        admission.throwIfEnded()
        calls.refuseInBody('stream', name)
      },
      onOpen: (call, attempt, stream) => journal.defer(journal.event('stream_opened', call, { attempt, data: { stream } })),
      flush: () => journal.commit([], {}),
    })
    if (this.#hasEnded) this.#streams.end()
    return this.#streams
  }

  get progress(): Progress {
    const { journal } = this.#run
    this.#progress ??= new Progress({
      event: ({ step, ...data }) => journal.event('progress_reported', null, { scope: step, data }),
      defer: (event) => journal.defer(event),
    })
    return this.#progress
  }

  /** The call has its result, and the change with it is about to be made: its chunks hold. */
  settle(call: Call): void {
    this.#streams?.settle(call)
  }

  /** What was written to streams since the last change. */
  takeChunks(): readonly NewChunks[] {
    return this.#streams?.take() ?? noChunks
  }

  get hasPendingChunks(): boolean {
    return this.#streams?.hasPending === true
  }

  /** A change with chunks was answered for. */
  written(): void {
    this.#streams?.written()
  }

  /** Defers the report of progress that was held back to the next commit: something is about to be recorded. */
  deferProgress(): void {
    this.#progress?.deferHeld()
  }

  deferProgressIfDue(): void {
    this.#progress?.deferIfDue()
  }

  end(): void {
    this.#hasEnded = true
    this.#streams?.end()
  }

  /** A write failed: drops what was gathered, and answers with what says that attempts are void. */
  abandon(): readonly NewChunks[] {
    this.#hasEnded = true
    return this.#streams?.abandon() ?? noChunks
  }
}

interface RunWithOutput {
  readonly run: HeldRun
  readonly calls: Calls
  readonly activity: Activity
  readonly journal: RunJournal
  readonly admission: { comesToNothing(name: string): boolean; throwIfEnded(): void }
}
