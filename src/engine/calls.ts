import { AsyncLocalStorage } from 'node:async_hooks'
import { createHash } from 'node:crypto'
import { HoldfastError } from '../model/errors.ts'
import { checkStepName, maxIdBytes } from '../model/ids.ts'
import { type CallHistory, type CallKey, type CallKind, callKey, type Tape } from './tape.ts'

/** A recording call of the function: where it stands, and what the tape knows of it. */
export interface Call {
  readonly key: CallKey
  readonly kind: CallKind
  readonly path: string
  readonly count: number
  readonly history: CallHistory | undefined
  /** Where the result that was handed out stands in the log. */
  resultSeq?: number
}

/**
 * Gives the calls of one execution their paths and counts. Scopes and bodies are followed through async code, so that the
 * one `ctx` knows in which of them it is used.
 */
export class Calls {
  readonly #owner: string
  readonly #runId: string
  readonly #tape: Tape
  readonly #counts = new Map<string, number>()

  constructor(owner: string, runId: string, tape: Tape) {
    this.#owner = owner
    this.#runId = runId
    this.#tape = tape
  }

  /** Registers a call. Refused with `nested_call` inside a body. */
  enter(kind: CallKind, name: string, isOurName = false): Call {
    const frame = this.#frame()
    if (frame !== undefined && frame.body !== null) throw this.#nestedCall(kind, name, frame.body)
    if (!isOurName) checkStepName(name)
    const path = frame === undefined || frame.scope === '' ? name : `${frame.scope}/${name}`
    const counter = `${kind}:${path}`
    const count = (this.#counts.get(counter) ?? 0) + 1
    this.#counts.set(counter, count)
    const key = callKey(kind, path, count)
    return { key, kind, path, count, history: this.#tape.calls.get(key) }
  }

  /** Runs `fn` with inner names prefixed. */
  inScope<T>(name: string, fn: () => T, method = 'scope'): T {
    const frame = this.#frame()
    if (frame !== undefined && frame.body !== null) throw this.#nestedCall('value', method, frame.body)
    checkStepName(name)
    const outer = frame?.scope ?? ''
    return frames.run({ calls: this, scope: outer === '' ? name : `${outer}/${name}`, body: null }, fn)
  }

  /** Refuses what belongs to the function itself inside a body. */
  refuseInBody(method: string, name: string): void {
    const body = this.#frame()?.body ?? null
    if (body !== null) throw this.#nestedCall('value', method, body, name)
  }

  /** Runs a step's body: recording calls on ctx are refused inside. */
  inBody<T>(path: string, fn: () => T): T {
    return frames.run({ calls: this, scope: '', body: path }, fn)
  }

  /**
   * The operation or step key of a call: from run, path and count; never from attempt, time or chance. What separates them
   * is escaped in the run's id, so that no two calls share a key.
   */
  defaultKey(call: Call): string {
    const tape = this.#tape.number === 1 ? '' : `~${this.#tape.number}`
    const escaped = (id: string) => id.replace(/[%/~:]/g, (mark) => `%${mark.charCodeAt(0).toString(16)}`)
    const owner = this.#owner === '' ? '' : `${escaped(this.#owner)}:`
    const key = `${owner}${escaped(this.#runId)}${tape}/${call.path}#${call.count}`
    return Buffer.byteLength(key) <= maxIdBytes ? key : createHash('sha256').update(key).digest('base64url')
  }

  /** A frame of another run is none of ours: a body may start runs that are executed in its own async context. */
  #frame(): Frame | undefined {
    const frame = frames.getStore()
    return frame?.calls === this ? frame : undefined
  }

  #nestedCall(kind: CallKind, name: string, body: string, shown = name): HoldfastError {
    const method = methods[kind] ?? name
    return new HoldfastError(
      'nested_call',
      `ctx.${method}("${shown}") was called inside the body of step "${body}" of run "${this.#runId}". ` +
        'A body can use its step handle; move recording calls on ctx out of it, or use ctx.scope to group steps.',
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

interface Frame {
  readonly calls: Calls
  readonly scope: string
  /** Path of the step whose body this is. */
  readonly body: string | null
}

const frames = new AsyncLocalStorage<Frame>()
