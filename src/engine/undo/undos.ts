import type { UndoInfo } from '../../define/context.ts'
import type { Codec } from '../../model/codec.ts'
import { codeOf } from '../../model/errors.ts'
import type { Payload } from '../../model/payload.ts'
import { restoreAdvice } from '../../model/restore-advice.ts'
import { defaultRetryPolicy } from '../../model/retry.ts'
import { sentence } from '../../model/sentence.ts'
import { toStorableError } from '../../model/stored-error.ts'
import { nextAttempt } from '../calls/next-attempt.ts'
import type { Execution } from '../execution/execution.ts'
import { type DecidedEffect, readDecidedEffects } from '../replay/decided-effects.ts'
import { isInside } from '../replay/scope-paths.ts'
import { type CallKey, parseCallKey, type Tape } from '../replay/tape.ts'
import { loadStateFor } from '../state/thread-state.ts'

/** A recorded result that can be taken back. */
export interface Undoable {
  readonly key: CallKey
  /** Where the result stands in the log. */
  readonly seq: number
  readonly undo: RecordedUndo
  readonly payload: Payload | null
  /** Effects: the operation's key. */
  readonly operationKey?: string
  /** Decided about an effect of an earlier tape: it was done before the current one. */
  readonly isOfEarlierTape?: boolean
}

/** How the log names an undo: true is a function, which only the workflow's function can give; a text is a name in its `undos`. */
export type RecordedUndo = true | string

/** What an undo is called with: the result, or the state as a plan's step left it. */
export type UndoFunction = (given: never, info: UndoInfo) => unknown

/** What the record of a result says about its undo. */
export interface UndoRecord {
  readonly undo?: RecordedUndo
  /** The undo is called with the state instead of the result. */
  readonly undoGets?: 'state'
}

/**
 * What a run has done that can be taken back: what its log says, and the functions that the calls have given for it, by call.
 *
 *   D1  What is due comes from the log: a result whose record says that it has an undo, and that has no step_undone. The last result is
 *       undone first, one after the other.
 *   D2  Each undo is recorded as step_undone; a recorded one is not run again.
 *   D3  A crash between an undo and its record runs it again, with the same key: an undo has to bear that.
 *   D4  One that can't be found stops there. None is passed over.
 */
export class Undos {
  /** Recorded by this execution. */
  readonly #recorded: Undoable[] = []
  /** Recorded by earlier tapes of the run. */
  readonly #earlier: Undoable[] = []
  #onTape: readonly Undoable[] | undefined
  #given: Map<CallKey, GivenUndo> | undefined
  /** Operations of answers that are free to come again after a rollback. */
  #answers: { readonly seq: number; readonly operationKey: string }[] | undefined
  #done: Set<number> | undefined
  /** What persons have decided, as last read. */
  #decided: readonly DecidedEffect[] = []
  /** What is due, the last one at the end, and how much was known when it was gathered. */
  #line: { readonly known: number; readonly due: Undoable[] } | undefined

  /** A call says how its result is taken back, now or in a replay. */
  give(call: CallKey, undo: UndoFunction, options: { readonly getsState?: boolean } = {}): void {
    this.#given ??= new Map()
    this.#given.set(call, { run: undo, getsState: options.getsState === true })
  }

  /** A result is durable. */
  add(undoable: Undoable): void {
    this.#recorded.push(undoable)
  }

  /** Named undos of earlier tapes. Functions end with their tape. */
  addEarlier(undoables: readonly Undoable[]): void {
    this.#earlier.push(...undoables)
  }

  /** A question was answered by this execution: after a rollback it is asked anew. */
  addAnswer(seq: number, operationKey: string): void {
    this.#answers ??= []
    this.#answers.push({ seq, operationKey })
  }

  /** Effects that have happened by decision of a person, and that the function has not come by since. */
  async readDecisions(execution: Execution): Promise<void> {
    this.#decided = await readDecidedEffects(execution, execution.claim.run)
    this.#line = undefined
  }

  /** What is to be undone of what was recorded after a position, the last first. */
  due(execution: Execution, afterSeq: number): Undoable[] {
    const { undone } = execution.tape
    return this.#all(execution, afterSeq).filter(({ seq }) => !undone.has(seq) && this.#done?.has(seq) !== true)
  }

  /** Something is due of which no call has said how it is undone. */
  lacksGiven(execution: Execution, afterSeq: number): boolean {
    return this.due(execution, afterSeq).some(({ key, undo }) => undo === true && this.#given?.has(key) !== true)
  }

  /** The last result that is to be undone. What has become durable since the last time comes first. */
  next(execution: Execution, afterSeq: number): Undoable | undefined {
    const known = this.#recorded.length + this.#earlier.length
    if (this.#line === undefined || this.#line.known !== known)
      this.#line = { known, due: this.due(execution, afterSeq).reverse() }
    const { due } = this.#line
    while (due.length > 0 && this.#done?.has(due.at(-1)?.seq ?? 0)) due.pop()
    return due.at(-1)
  }

  /** Paths of what was undone after a position, in order. */
  undone(execution: Execution, afterSeq: number): string[] {
    return this.#all(execution, afterSeq).map(({ key }) => parseCallKey(key).path)
  }

  async freeAnswers(execution: Execution, afterSeq: number): Promise<void> {
    for (const { seq, operationKey } of [...answersOn(execution.tape), ...(this.#answers ?? [])])
      if (seq > afterSeq) await execution.tryOperation({ kind: 'undo', key: operationKey })
  }

  /** Undoes one result. Returns the error of an undo that failed for good, or can't be found. */
  async run(execution: Execution, undoable: Undoable, why: Error | null): Promise<Error | null> {
    const { key, seq, undo, payload, isOfEarlierTape } = undoable
    const { path, count } = parseCallKey(key)
    const recorded = (payload === null ? {} : execution.codec.decode(payload)) as UndoRecord & { key?: string }
    const given = typeof undo === 'string' ? namedUndo(execution, undo) : this.#given?.get(key)
    if (given === undefined && undo === true && !isStillOnTape(execution, undoable)) return callRolledBack(execution, path)
    if (given === undefined) return notFound(execution, path, undo, endedSectionAround(execution, path) ?? why)
    const effectKey = key.startsWith('effect:') ? recorded.key : undefined
    const info: UndoInfo = {
      ...{ key: execution.calls.undoKey(seq), step: path },
      ...(effectKey !== undefined && { effectKey }),
    }
    for (let tries = 1; ; tries++) {
      const started = performance.now()
      try {
        // A copy for each: what the function or an earlier try did to its own does not count.
        const value =
          given.getsState || recorded.undoGets === 'state' ? await stateAfter(execution, seq) : resultOf(execution, payload)
        await execution.calls.inBody(path, () => given.run(value as never, info))
      } catch (thrown) {
        const { error, delayMs } = nextAttempt(defaultRetryPolicy, tries, thrown)
        if (delayMs === null || execution.hasEnded) return undoFailed(execution, path, error)
        const { runId, log } = execution
        log.warn(`The undo of "${path}" of run "${runId}" failed and is tried again: ${sentence(messageOf(error))}`, {
          ...{ runId, step: path, error },
        })
        await new Promise((resolve) => setTimeout(resolve, delayMs))
        if (execution.hasEnded) return undoFailed(execution, path, error)
        continue
      }
      const durationMs = Math.round(performance.now() - started)
      const data = { of: seq, ...(isOfEarlierTape === true && { isOfEarlierTape }) }
      const event = execution.event('step_undone', null, { scope: path, count, durationMs, data })
      await execution.commit([event], {
        hasProgress: true,
        ...(effectKey !== undefined && { operation: { kind: 'undo', key: effectKey } }),
      })
      if (effectKey !== undefined) execution.history.effects.closed(effectKey)
      this.#done ??= new Set()
      this.#done.add(seq)
      return null
    }
  }

  #all(execution: Execution, afterSeq: number): Undoable[] {
    this.#onTape ??= undoablesOf(execution.tape, execution.codec)
    const all = [...this.#earlier, ...this.#onTape, ...this.#recorded, ...this.#decidedOf(execution, afterSeq > 0)]
    return all.filter(({ seq }) => seq > afterSeq).sort((a, b) => b.seq - a.seq)
  }

  /** A rollback does not go beyond the current tape. */
  #decidedOf({ tape }: Execution, isRollback: boolean): Undoable[] {
    return this.#decided.flatMap(({ tape: own, ...decided }) => {
      const isOfEarlierTape = own !== tape.number
      // A function ends with its tape.
      if (isOfEarlierTape && (isRollback || decided.undo === true)) return []
      // It may be recorded as the effect's result since.
      if (this.#recorded.some(({ seq, operationKey }) => operationKey === decided.operationKey && seq > decided.seq)) return []
      return [{ ...decided, ...(isOfEarlierTape && { isOfEarlierTape }) }]
    })
  }
}

interface GivenUndo {
  readonly run: UndoFunction
  readonly getsState: boolean
}

/** The results on a tape that have an undo. */
export function undoablesOf(tape: Tape, codec: Codec): Undoable[] {
  return tape.outcomes.flatMap(({ key, seq, payload, isFailure, isSkip }) => {
    if (isFailure || isSkip === true || !/^(?:step|effect|child):/.test(key)) return []
    const { undo } = (payload === null ? {} : codec.decode(payload)) as UndoRecord
    // Records of 0.1 said so when the step began.
    const recorded = undo ?? (tape.calls.get(key)?.hasUndo === true ? true : undefined)
    return recorded === undefined ? [] : [{ key, seq, undo: recorded, payload }]
  })
}

/** The answers on a tape, whether or not the function has come by them. */
function answersOn({ outcomes, calls }: Tape): { readonly seq: number; readonly operationKey: string }[] {
  return outcomes.flatMap(({ key, seq, isFailure }) => {
    const asked = key.startsWith('question:') && !isFailure ? calls.get(key)?.begun?.data : undefined
    return asked === undefined ? [] : [{ seq, operationKey: String(asked['key']) }]
  })
}

function namedUndo({ workflow }: Execution, name: string): GivenUndo | undefined {
  const { undos } = workflow.options
  return undos !== undefined && Object.hasOwn(undos, name) ? { run: undos[name] as UndoFunction, getsState: false } : undefined
}

function resultOf({ codec }: Execution, payload: Payload | null): unknown {
  return payload === null ? undefined : (codec.decode(payload) as { result?: unknown }).result
}

/** The state as a step left it. */
function stateAfter({ store, codec, claim, workflow }: Execution, seq: number): Promise<unknown> {
  return loadStateFor(workflow.options.state, store, codec, claim.thread, seq)
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}

function undoFailed({ runId }: Execution, path: string, error: unknown): Error {
  const cause = toStorableError(error)
  return new Error(
    `The undo of "${path}" of run "${runId}" failed: ${sentence(cause.message)} run.resume() tries again; ` +
      'run.cancel({ undo: false }) ends it as it stands.',
    { cause },
  )
}

/** Where a version before this one took a function inside a section that has ended since. */
function endedSectionAround({ tape }: Execution, path: string): Error | null {
  for (const { scope, outcome } of tape.calls.values()) {
    if (scope !== undefined && outcome !== undefined && isInside(path, scope))
      return new Error(`it is a function inside section "${scope}", which has ended and is not entered again`)
  }
  return null
}

function isStillOnTape({ tape }: Execution, { key, operationKey }: Undoable): boolean {
  return operationKey === undefined || tape.calls.has(key)
}

/** A replay of what is left does not come to the call that would give it. */
function callRolledBack({ runId }: Execution, path: string): Error {
  return new Error(
    `The undo of "${path}" of run "${runId}" can't be found: it is a function, and its call was rolled back before somebody decided that the ` +
      'effect has happened. Take the effect back by hand, then run.cancel({ undo: false }) ends the run as it stands.',
  )
}

function notFound({ runId, workflow }: Execution, path: string, undo: RecordedUndo, why: Error | null): Error {
  const name = `workflow "${workflow.name}" version ${workflow.version}`
  const [what, help] =
    typeof undo === 'string'
      ? [`"${undo}" is not among the undos of ${name}`, 'Add it']
      : [
          why?.message.replace(` ${restoreAdvice(workflow)}`, '').replace(/\.$/, '') ?? `the function of ${name} gives none`,
          `${codeOf(why) === 'worker_died' ? 'Fix the function' : 'Restore the function'} of ${name}`,
        ]
  return new Error(
    `The undo of "${path}" of run "${runId}" can't be found: ${what}. ${help}, then run.resume() tries again; ` +
      'run.cancel({ undo: false }) ends it as it stands.',
    why === null ? {} : { cause: toStorableError(why) },
  )
}
