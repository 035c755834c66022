import type { StandardSchemaV1 } from '@standard-schema/spec'
import { validate } from '../../model/schema.ts'
import type { Call, Calls, Frame } from '../calls/calls.ts'
import type { CallKey } from '../replay/call-key.ts'
import { pathOf } from '../replay/call-key.ts'
import { isInside } from '../replay/scope-paths.ts'
import type { QuietTime } from '../waiting/quiet-time.ts'
import type { Phase } from './phase.ts'
import { RunningCalls } from './running-calls.ts'
import { UnderWay } from './under-way.ts'

/** How long a cancelled function may take to come to its end. */
export const cancelGraceMs = 5_000

/** What of a run is at work: bodies, writes, and what else the run must not be persisted under (E5). Reaches bodies through their signal. */
export class Activity {
  readonly #run: ActiveRun
  /** Bodies whose results are awaited, recorded and undone although the run is cancelled meanwhile. */
  readonly work = new UnderWay()
  /** Commits that the store has not answered for. */
  readonly writes = new UnderWay()
  #intents: UnderWay | undefined
  #isFinishing = false
  /** Of the work, bodies of steps with a named undo: it can run after the tape has ended, once the result is recorded. */
  #named: UnderWay | undefined
  readonly #running = new RunningCalls()
  #busy = 0
  /** Of these, steps that the function began and ends itself: they do not say that it is at work. */
  #openSteps: Set<CallKey> | undefined
  #abandoned: Set<CallKey> | undefined
  /** Until then the run is not persisted under what can be undone and took too long. */
  #abandonedUntil = 0
  #throwers: Set<(error: Error) => void> | undefined
  #abort: AbortController | undefined

  constructor(run: ActiveRun) {
    this.#run = run
  }

  /** How much is at work. A step that the function ends itself can't be ended while its calls are held back: a stop does not wait for it. */
  get atWork(): number {
    return this.#run.phase.isStopping ? this.#busy - this.openCount : this.#busy
  }

  /** Something is known to be at work, apart from steps that the function ends itself. */
  get isAtWork(): boolean {
    return this.#busy > this.openCount
  }

  isRunning(key: CallKey): boolean {
    return this.#running.has(key)
  }

  /**
   * How long the run stays as it is for what took too long and can be undone, so that it is recorded. Another attempt of its scope does it
   * again, and does not wait for it.
   */
  get abandonedMs(): number {
    const { stop } = this.#run.phase
    if (this.work.isIdle || (stop !== null && stop.kind !== 'pause')) return 0
    return this.#abandonedUntil - performance.now()
  }

  /** What awaits a body through `orThrow` throws. */
  throw(error: Error): void {
    for (const reject of [...(this.#throwers ?? [])]) reject(error)
  }

  /** Aborts the signal of the run, if its function has asked for it. */
  abort(error: () => Error): void {
    this.#abort?.abort(error())
  }

  /** Marks a body as running: it shows as the current step, and the run does not stop to wait under it. */
  begin(call: Call): void {
    this.#running.add(call.key, call.path)
    this.beginWork()
  }

  /** The same for a step that the function itself ends. */
  beginOpen(call: Call): void {
    this.#openSteps ??= new Set()
    this.#openSteps.add(call.key)
    this.begin(call)
  }

  endOpen(call: Call): void {
    this.#openSteps?.delete(call.key)
    this.end(call)
  }

  /** The function that was to end them is over: nothing waits for them any more. */
  abandonOpenInside(scope: string): void {
    for (const key of this.#openSteps ?? []) {
      if (!isInside(pathOf(key), scope)) continue
      this.#openSteps?.delete(key)
      this.#abandoned ??= new Set()
      if (this.#abandoned.has(key)) continue
      this.#abandoned.add(key)
      this.#running.delete(key)
      this.endWork()
    }
  }

  /** Its body is over and its result on the way: it is no longer the current step, which few rows then have to be written for. */
  leave(call: Call): void {
    this.#running.delete(call.key)
  }

  end(call: Call): void {
    this.#running.delete(call.key)
    if (this.#abandoned?.delete(call.key) !== true) this.endWork()
  }

  /** Bodies in a scope that took too long are not waited for: they may never end. What they still bring is recorded all the same. */
  abandonInside(scope: string): void {
    this.#abandonedUntil = performance.now() + cancelGraceMs
    for (const [key, path] of this.#running.all()) {
      this.#abandoned ??= new Set()
      if (!isInside(path, scope) || this.#abandoned.has(key)) continue
      this.#abandoned.add(key)
      this.endWork()
    }
  }

  /** Counts as work while it lasts: the run does not stop to wait under it. */
  async working<T>(work: Promise<T>): Promise<T> {
    this.beginWork()
    try {
      return await work
    } finally {
      this.endWork()
    }
  }

  /** Validates what the function is about to get. A schema may take its time: that counts as work. */
  async validate<T>(schema: StandardSchemaV1, value: unknown, what: string): Promise<T> {
    const checked = validate(schema, value, what)
    if (!(checked instanceof Promise)) return checked as T
    try {
      return (await this.working(checked)) as T
    } finally {
      this.#run.quiet.heard()
    }
  }

  /** Runs the body of a step: recording calls on ctx are refused inside, and a cancelled run does not wait for one that ignores its signal. */
  runBody<T, Given>(call: Call, body: (given: Given) => Promise<T> | T, given: Given): Promise<T> | T {
    const { calls } = this.#run
    const frame = calls.openBody(call.path)
    const made = calls.inOpenBody(frame, body, given)
    // Only promises that are still open need watching.
    return made instanceof Promise ? this.orThrow(made, frame) : made
  }

  /** The promise's outcome, or the error of a run that was cancelled or fenced meanwhile. The body that it is of is over then. */
  orThrow<T>(promise: Promise<T>, body?: Frame): Promise<T> {
    this.#throwers ??= new Set()
    const throwers = this.#throwers
    return new Promise((resolve, reject) => {
      throwers.add(reject)
      promise.then(
        (value) => {
          if (body !== undefined) body.isOver = true
          throwers.delete(reject)
          resolve(value)
        },
        (error: unknown) => {
          if (body !== undefined) body.isOver = true
          throwers.delete(reject)
          reject(error)
        },
      )
    })
  }

  /** Counts an effect's intent while it is written. */
  followIntent<T>(writing: Promise<T>): Promise<T> {
    this.#intents ??= new UnderWay()
    return this.#intents.follow(writing)
  }

  /**
   * The last commit of the run, or of its tape, is next, and waits for intents that are being written. After it a person may decide about what
   * is open, so nothing may be sent that was not sent by then.
   */
  async endIntents(): Promise<void> {
    this.#isFinishing = true
    await this.#intents?.idle(cancelGraceMs)
  }

  /** An effect that was not sent by now is not sent any more. */
  get isFinishing(): boolean {
    return this.#isFinishing
  }

  /** Counts work that `continueAs` waits for. */
  followNamed(work: Promise<unknown>): void {
    this.#named ??= new UnderWay()
    this.#named.follow(work)
  }

  /** What is under way and can be undone on a later tape has a while to end: only what is recorded on this one is known there. */
  async endNamed(): Promise<void> {
    await this.#named?.idle(cancelGraceMs)
  }

  beginWork(): void {
    this.#busy++
    this.#run.quiet.work()
  }

  endWork(): void {
    this.#busy--
    if (this.#busy <= this.openCount) this.#run.suspension.considerStopping()
  }

  get openCount(): number {
    return this.#openSteps?.size ?? 0
  }

  /** The step that began first of those that run. */
  get currentStep(): string | null {
    return this.#running.first
  }

  get signal(): AbortSignal {
    if (this.#abort === undefined) {
      this.#abort = new AbortController()
      if (this.#run.phase.isAborted) this.#abort.abort(this.#run.admission.endError())
    }
    return this.#abort.signal
  }
}

/** The run whose activity this is. */
interface ActiveRun {
  readonly phase: Phase
  readonly calls: Calls
  readonly quiet: QuietTime
  readonly suspension: { considerStopping(): void }
  readonly admission: { endError(): Error }
}
