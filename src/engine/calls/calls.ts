import { AsyncLocalStorage } from 'node:async_hooks'
import { createHash } from 'node:crypto'
import { HoldfastError } from '../../model/errors.ts'
import { checkStepName, maxIdBytes } from '../../model/ids.ts'
import { type CallKey, type CallKind, callKey } from '../replay/call-key.ts'
import type { CallHistory, Tape } from '../replay/tape.ts'
import type { StateView } from '../state/state-timeline.ts'

/** A recording call of the function: where it stands, and what the tape knows of it. */
export interface Call {
  readonly key: CallKey
  readonly kind: CallKind
  readonly path: string
  readonly count: number
  readonly history: CallHistory | undefined
  /** The attempt of a recorded scope that it belongs to. */
  readonly within: ScopeAttempt | undefined
  /** Where the result that was handed out stands in the log. */
  resultSeq: number | undefined
}

/** One attempt of a recorded scope, while its function runs. */
export interface ScopeAttempt {
  /** Its outcome is decided: what its function still calls does not return. */
  readonly isOver: boolean
  /** If its run is stopped now, its function is awaited so that it can be undone: what it still changes belongs to what it did. */
  readonly isAwaited?: boolean
  /** What its function sees of the state; undefined where it sees what the run's function does. */
  readonly view?: StateView
  /** Aborted when the attempt takes too long; undefined where it has no limit of its own. */
  readonly signal: AbortSignal | undefined
  /** Hears of a call that its function made. */
  follow(call: Promise<unknown>): void
  /** One of its calls waits, for time to pass or for something else, or no longer does. */
  rest(isResting: boolean): void
  /** Its result is recorded also where an attempt around it is over, so that it can be undone, and with it what it changes. */
  readonly isRecordedAnyway: boolean
  /** Something that its function does came too late: what was made with it must not be recorded, and kept by another attempt, without it. */
  miss(): void
}

/**
 * Gives the calls of one execution their paths and counts. Scopes and bodies are followed through async code, so that the
 * one `ctx` knows in which of them it is used.
 */
export class Calls {
  readonly #owner: string
  readonly #runId: string
  readonly #life: number
  readonly #tape: Tape
  /** The execution has ended: what its function still does is its own business. */
  hasEnded = false
  #counts: Map<string, number> | undefined
  #scopes: Map<string, { count: number; isRecorded: boolean }> | undefined

  constructor(options: {
    owner: string
    runId: string
    /** Which life of the thread this is, from 1. */
    life: number
    tape: Tape
  }) {
    this.#owner = options.owner
    this.#runId = options.runId
    this.#life = options.life
    this.#tape = options.tape
  }

  /** Registers a call. Refused with `nested_call` inside a body. `method` is what users call it, where its kind and name do not say that. */
  enter(kind: CallKind, name: string, isOurName = false, method?: string): Call {
    const frame = this.#frame()
    if (frame !== undefined && frame.body !== null)
      throw this.#nestedCall(method ?? methods[kind] ?? name, frame.body, isOurName && kind !== 'child' ? undefined : name)
    if (!isOurName) checkStepName(name)
    const path = frame === undefined || frame.scope === '' ? name : `${frame.scope}/${name}`
    const counter = `${kind}:${path}`
    this.#counts ??= new Map()
    const count = (this.#counts.get(counter) ?? 0) + 1
    this.#counts.set(counter, count)
    const key = callKey(kind, path, count)
    return { key, kind, path, count, history: this.#tape.calls.get(key), within: frame?.attempt, resultSeq: undefined }
  }

  /** How many calls of a kind the function has made under a path so far. */
  countOf(kind: CallKind, path: string): number {
    return this.#counts?.get(`${kind}:${path}`) ?? 0
  }

  /** Refuses a name that no group of calls can have, and any group inside a body. */
  checkGroup(name: string, method: 'scope' | 'section' | 'map'): void {
    const frame = this.#frame()
    if (frame !== undefined && frame.body !== null) throw this.#nestedCall(method, frame.body, name)
    checkStepName(name)
  }

  /**
   * The path under which the calls of a scope stand. A scope that was recorded is not entered again, so that its calls are not
   * counted: no other scope may share their paths.
   */
  scopePath(name: string, isRecorded: boolean): string {
    const outer = this.#frame()?.scope ?? ''
    const path = outer === '' ? name : `${outer}/${name}`
    this.#scopes ??= new Map()
    const seen = this.#scopes.get(path) ?? { count: 0, isRecorded: false }
    this.#scopes.set(path, seen)
    seen.count++
    const isShared = seen.isRecorded || (isRecorded && seen.count > 1)
    seen.isRecorded ||= isRecorded
    return isShared ? `${path}[${seen.count}]` : path
  }

  /** Runs `fn` with inner names prefixed; in an attempt of a recorded scope if there is one, else in the one around it. */
  inScope<T>(path: string, fn: () => T, attempt: ScopeAttempt | undefined = this.attempt): T {
    return frames.run({ calls: this, scope: path, body: null, attempt, around: undefined, isOver: false }, fn)
  }

  /**
   * Refuses what belongs to the function itself inside a body, and in a recorded scope: one that is not entered again would not be
   * counted again.
   */
  refuseInBody(method: string, name: string): void {
    const frame = this.#frame()
    if (frame?.body != null) throw this.#nestedCall(method, frame.body, name)
    if (frame?.attempt === undefined) return
    throw new HoldfastError(
      'nested_call',
      `ctx.${method}("${name}") was called in section "${frame.scope}" of run "${this.#runId}", which is recorded as a whole. ` +
        `Use step.${method} in a step inside.`,
      { details: { runId: this.#runId, step: frame.scope } },
    )
  }

  /** Runs the workflow's function. */
  inFunction<T>(fn: () => T): T {
    return frames.run({ calls: this, scope: '', body: null, attempt: undefined, around: undefined, isOver: false }, fn)
  }

  get runId(): string {
    return this.#runId
  }

  /** Runs a step's body: recording calls on ctx are refused inside. What it leaves behind, an emitter or a timer, calls from where the step stood. */
  inBody<T>(path: string, fn: () => T): T
  inBody<T, Given>(path: string, fn: (given: Given) => T, given: Given): T
  inBody<T>(path: string, fn: (given: unknown) => T, given?: unknown): T {
    const frame = this.openBody(path)
    const result = this.inOpenBody(frame, fn, given)
    if (result instanceof Promise) markWhenOver(frame, result)
    return result
  }

  /** For a caller that learns of the end of a body anyway, and marks it as over then. */
  openBody(path: string): Frame {
    const around = this.#frame()
    return { calls: this, scope: '', body: path, attempt: around?.attempt, around, isOver: false }
  }

  /** Runs a body that was opened. One that returns no promise is over at once. */
  inOpenBody<T, Given>(frame: Frame, fn: (given: Given) => T, given: Given): T {
    const result = frames.run(frame, fn, given)
    if (!(result instanceof Promise)) frame.isOver = true
    return result
  }

  /** The attempt of a recorded scope in which this is called. */
  get attempt(): ScopeAttempt | undefined {
    return this.#frame()?.attempt
  }

  /** The step or scope in which this is called; null outside of any. */
  get place(): string | null {
    const frame = this.#frame()
    return frame?.body ?? (frame?.scope || null)
  }

  /**
   * The key of a step, or of an effect that was given none. One that is on record stays; a call that was begun without a record of
   * its key was given the plain one.
   */
  keyOf(call: Call): string {
    if (call.history === undefined || call.history.isDueAnew === true) return this.newName(call)
    return call.history.key ?? this.plainName(call)
  }

  /**
   * A name that no call had before: from owner, run, tape, path and count and, only where there was one, the later life of the thread
   * and the number of rollbacks over the call; never from attempt, time or chance.
   */
  newName(call: Call): string {
    return this.#name(call, this.#life, this.#tape.rollbacks.get(call.key) ?? 0)
  }

  /** The names that the call had before the rollbacks over it, the latest first. */
  namesBefore(call: Call): string[] {
    const rollbacks = this.#tape.rollbacks.get(call.key) ?? 0
    return Array.from({ length: rollbacks }, (_, index) => this.#name(call, this.#life, rollbacks - 1 - index))
  }

  /** Every name is the plain one: a step's need not be recorded. */
  get hasPlainNames(): boolean {
    return this.#life === 1 && this.#tape.rollbacks.size === 0
  }

  /** The name of the call in the first life of its thread, with no rollback over it. */
  plainName(call: Call): string {
    return this.#name(call, 1, 0)
  }

  /** Whether a recorded name has the form of a default one of the call: of this run, or of the run that an imported thread had elsewhere. */
  isDefaultName(call: Call, name: string): boolean {
    if ([this.plainName(call), this.newName(call), ...this.namesBefore(call)].includes(name)) return true
    const place = `/${call.path}#${call.count}`
    const at = name.lastIndexOf(place)
    return at > 0 && /^(?:~\d+)?$/.test(name.slice(at + place.length))
  }

  /** What separates the parts is escaped in ids, so that no two calls share a name. */
  #name(call: Call, life: number, rollbacks: number): string {
    const lifeMark = life === 1 ? '' : `~~${life}`
    const rollbackMark = rollbacks === 0 ? '' : `~${rollbacks}`
    const tape = this.#tape.number === 1 ? '' : `~${this.#tape.number}`
    const escaped = (id: string) => id.replace(/[%/~:]/g, (mark) => `%${mark.charCodeAt(0).toString(16)}`)
    const owner = this.#owner === '' ? '' : `${escaped(this.#owner)}:`
    const name = `${owner}${escaped(this.#runId)}${tape}${lifeMark}/${call.path}#${call.count}${rollbackMark}`
    return Buffer.byteLength(name) <= maxIdBytes ? name : createHash('sha256').update(name).digest('base64url')
  }

  /** The key of the undo of a result. A position of a thread's log is given twice only by a store that has lost what was there. */
  undoKey(seq: number): string {
    const escaped = (id: string) => id.replace(/[%/~:]/g, (mark) => `%${mark.charCodeAt(0).toString(16)}`)
    const owner = this.#owner === '' ? '' : `${escaped(this.#owner)}:`
    const key = `${owner}${escaped(this.#runId)}/undo@${seq}`
    return Buffer.byteLength(key) <= maxIdBytes ? key : createHash('sha256').update(key).digest('base64url')
  }

  /** A frame of another run is none of ours: a body may start runs that are executed in its own async context. */
  #frame(): Frame | undefined {
    let frame = frames.getStore()
    if (frame?.calls !== this) return undefined
    while (frame?.isOver === true) frame = frame.around
    return frame
  }

  #nestedCall(method: string, body: string, name: string | undefined): HoldfastError {
    const shown = name === undefined ? '' : `"${name}"`
    return new HoldfastError(
      'nested_call',
      `ctx.${method}(${shown}) was called inside the body of step "${body}" of run "${this.#runId}". ` +
        (method.startsWith('memory.')
          ? 'The body of a step has step.memory; an effect has none: call ctx.memory before or after it.'
          : 'A body can use its step handle; move recording calls on ctx out of it, or group steps with ctx.scope or ctx.section.'),
      { details: { runId: this.#runId, step: body } },
    )
  }
}

/** What users call the calls of a kind, where it is not the name. */
const methods: Partial<Record<CallKind, string>> = {
  effect: 'once',
  step: 'step',
  signal: 'waitFor',
  question: 'ask',
  child: 'call',
}

export interface Frame {
  readonly calls: Calls
  readonly scope: string
  /** Path of the step whose body this is. */
  readonly body: string | null
  readonly attempt: ScopeAttempt | undefined
  /** Of a body: where its step was called. */
  readonly around: Frame | undefined
  /** The body has come to its end. */
  isOver: boolean
}

function markWhenOver(frame: Frame, body: Promise<unknown>): void {
  const over = () => {
    frame.isOver = true
  }
  body.then(over, over)
}

const frames = new AsyncLocalStorage<Frame>()

/**
 * Refuses to start a run from a workflow's function: every replay would start one more. In a step's body it is work like any other, and
 * what outlives its run is not the function any more.
 */
export function refuseStartInFunction(): void {
  refuseInFunction(
    'started',
    'Use ctx.call(workflow, input), with { detached: true } if nothing waits for it, or start it in a step, with an id.',
  )
}

/** Refuses to retry a run from a workflow's function, as a start is refused. */
export function refuseRetryInFunction(): void {
  refuseInFunction('retried', 'Retry it in a step.')
}

function refuseInFunction(done: 'started' | 'retried', advice: string): void {
  const frame = frames.getStore()
  if (frame === undefined || frame.body !== null || frame.calls.hasEnded) return
  const again = done === 'started' ? 'start' : 'retry'
  throw new HoldfastError(
    'nested_call',
    `A run was to be ${done} in the function of run "${frame.calls.runId}", outside of any step: every replay would ${again} it again. ${advice}`,
    { details: { runId: frame.calls.runId } },
  )
}
