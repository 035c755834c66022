import type { UndoInfo } from '../../define/context.ts'
import { codeOf } from '../../model/errors.ts'
import type { Payload } from '../../model/payload.ts'
import { restoreAdvice } from '../../model/restore-advice.ts'
import { defaultRetryPolicy } from '../../model/retry.ts'
import { sentence } from '../../model/sentence.ts'
import { toStorableError } from '../../model/stored-error.ts'
import type { Calls } from '../calls/calls.ts'
import { nextAttempt } from '../calls/next-attempt.ts'
import type { HeldRun } from '../execution/held-run.ts'
import type { Phase } from '../execution/phase.ts'
import type { RunJournal } from '../execution/run-journal.ts'
import { type CallKey, parseCallKey } from '../replay/call-key.ts'
import { type DecidedEffect, readDecidedEffects } from '../replay/decided-effects.ts'
import { isInside } from '../replay/scope-paths.ts'
import type { Tape } from '../replay/tape.ts'
import { loadStateFor } from '../state/thread-state.ts'
import { isOfCopy, type RecordedUndo, type Undoable, type UndoFunction, type UndoRecord, undoablesOf } from './undoable.ts'

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
  readonly #run: UndoingRun
  /** Recorded by this this.#run. */
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

  constructor(run: UndoingRun) {
    this.#run = run
  }

  /** A call says how its result is taken back, now or in a replay. */
  give(call: CallKey, undo: UndoFunction, options: { readonly getsState?: boolean } = {}): void {
    this.#given ??= new Map()
    this.#given.set(call, { run: undo, getsState: options.getsState === true })
  }

  /** A result is durable. */
  add(undoable: Undoable): void {
    if (!isOfCopy(this.#run.run.tape, undoable.key, undoable.seq)) this.#recorded.push(undoable)
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

  /** Effects that have happened by decision of a person, and that the function has not reached since. */
  async readDecisions(): Promise<void> {
    this.#decided = await readDecidedEffects(this.#run.run, this.#run.run.claim.run)
    this.#line = undefined
  }

  /** What is to be undone of what was recorded after a position, the last first. */
  due(afterSeq: number): Undoable[] {
    const { undone } = this.#run.run.tape
    return this.#all(afterSeq).filter(({ seq }) => !undone.has(seq) && this.#done?.has(seq) !== true)
  }

  /** Something is due of which no call has said how it is undone. */
  lacksGiven(afterSeq: number): boolean {
    return this.due(afterSeq).some(({ key, undo }) => undo === true && this.#given?.has(key) !== true)
  }

  /** The last result that is to be undone. What has become durable since the last time comes first. */
  next(afterSeq: number): Undoable | undefined {
    const known = this.#recorded.length + this.#earlier.length
    if (this.#line === undefined || this.#line.known !== known) this.#line = { known, due: this.due(afterSeq).reverse() }
    const { due } = this.#line
    while (due.length > 0 && this.#done?.has(due.at(-1)?.seq ?? 0)) due.pop()
    return due.at(-1)
  }

  /** Paths of what was undone after a position, in order. */
  undone(afterSeq: number): string[] {
    return this.#all(afterSeq).map(({ key }) => parseCallKey(key).path)
  }

  async freeAnswers(afterSeq: number): Promise<void> {
    for (const { seq, operationKey } of [...answersOn(this.#run.run.tape), ...(this.#answers ?? [])])
      if (seq > afterSeq) await this.#run.journal.tryOperation({ kind: 'undo', key: operationKey })
  }

  /** Undoes one result. Returns the error of an undo that failed for good, or can't be found. */
  async run(undoable: Undoable, why: Error | null): Promise<Error | null> {
    const { key, seq, undo, payload, isOfEarlierTape } = undoable
    const { path, count } = parseCallKey(key)
    const recorded = (payload === null ? {} : this.#run.run.codec.decode(payload)) as UndoRecord & { key?: string }
    const given = typeof undo === 'string' ? namedUndo(this.#run, undo) : this.#given?.get(key)
    if (given === undefined && undo === true && !isStillOnTape(this.#run, undoable)) return callRolledBack(this.#run, path)
    if (given === undefined) return notFound(this.#run, path, undo, endedSectionAround(this.#run, path) ?? why)
    const effectKey = key.startsWith('effect:') ? recorded.key : undefined
    const info: UndoInfo = {
      ...{ key: this.#run.calls.undoKey(seq), step: path },
      ...(effectKey !== undefined && { effectKey }),
    }
    for (let tries = 1; ; tries++) {
      const started = performance.now()
      try {
        // A copy for each: what the function or an earlier try did to its own does not count.
        const value =
          given.getsState || recorded.undoGets === 'state' ? await stateAfter(this.#run, seq) : resultOf(this.#run, payload)
        await this.#run.calls.inBody(path, () => given.run(value as never, info))
      } catch (thrown) {
        const { error, delayMs } = nextAttempt(defaultRetryPolicy, tries, thrown)
        if (delayMs === null || this.#run.phase.hasEnded) return undoFailed(this.#run, path, error)
        const { runId, log } = this.#run.run
        const cause = toStorableError(error)
        log.warn(`The undo of "${path}" of run "${runId}" failed and will be retried: ${sentence(cause.message)}`, {
          ...{ runId, step: path, error: cause },
        })
        await new Promise((resolve) => setTimeout(resolve, delayMs))
        if (this.#run.phase.hasEnded) return undoFailed(this.#run, path, error)
        continue
      }
      const durationMs = Math.round(performance.now() - started)
      const data = { of: seq, ...(isOfEarlierTape === true && { isOfEarlierTape }) }
      const event = this.#run.journal.event('step_undone', null, { scope: path, count, durationMs, data })
      await this.#run.journal.commit([event], {
        hasProgress: true,
        ...(effectKey !== undefined && { operation: { kind: 'undo', key: effectKey } }),
      })
      if (effectKey !== undefined) this.#run.run.history.effects.closed(effectKey)
      this.#done ??= new Set()
      this.#done.add(seq)
      return null
    }
  }

  #all(afterSeq: number): Undoable[] {
    this.#onTape ??= undoablesOf(this.#run.run.tape, this.#run.run.codec)
    const all = [...this.#earlier, ...this.#onTape, ...this.#recorded, ...this.#decidedOf(afterSeq > 0)]
    return all.filter(({ seq }) => seq > afterSeq).sort((a, b) => b.seq - a.seq)
  }

  /** A rollback does not go beyond the current tape. */
  #decidedOf(isRollback: boolean): Undoable[] {
    return this.#decided.flatMap(({ tape: own, ...decided }) => {
      const isOfEarlierTape = own !== this.#run.run.tape.number
      // A function ends with its tape.
      if (isOfEarlierTape && (isRollback || decided.undo === true)) return []
      // It may be recorded as the effect's result since.
      if (this.#recorded.some(({ seq, operationKey }) => operationKey === decided.operationKey && seq > decided.seq)) return []
      return [{ ...decided, ...(isOfEarlierTape && { isOfEarlierTape }) }]
    })
  }
}

/** The parts of the run whose results are taken back. */
interface UndoingRun {
  readonly run: HeldRun
  readonly calls: Calls
  readonly phase: Phase
  readonly journal: RunJournal
}

interface GivenUndo {
  readonly run: UndoFunction
  readonly getsState: boolean
}

/** The answers on a tape, whether or not the function has reached them. */
function answersOn({ outcomes, calls, copiedUpTo }: Tape): { readonly seq: number; readonly operationKey: string }[] {
  return outcomes.flatMap(({ key, seq, isFailure }) => {
    if (seq <= copiedUpTo) return []
    const asked = key.startsWith('question:') && !isFailure ? calls.get(key)?.begun?.data : undefined
    return asked === undefined ? [] : [{ seq, operationKey: String(asked['key']) }]
  })
}

function namedUndo({ run: { workflow } }: UndoingRun, name: string): GivenUndo | undefined {
  const { undos } = workflow.options
  return undos !== undefined && Object.hasOwn(undos, name) ? { run: undos[name] as UndoFunction, getsState: false } : undefined
}

function resultOf({ run: { codec } }: UndoingRun, payload: Payload | null): unknown {
  return payload === null ? undefined : (codec.decode(payload) as { result?: unknown }).result
}

/** The state as a step left it. */
function stateAfter({ run: { store, codec, claim, workflow } }: UndoingRun, seq: number): Promise<unknown> {
  return loadStateFor(workflow.options.state, store, codec, claim.thread, seq)
}

function undoFailed({ run: { runId } }: UndoingRun, path: string, error: unknown): Error {
  const cause = toStorableError(error)
  return new Error(
    `The undo of "${path}" of run "${runId}" failed: ${sentence(cause.message)} run.resume() tries again; ` +
      'run.cancel({ undo: false }) ends it as it stands.',
    { cause },
  )
}

/** Where a version before this one took a function inside a section that has ended since. */
function endedSectionAround({ run: { tape } }: UndoingRun, path: string): Error | null {
  for (const { scope, outcome } of tape.calls.values()) {
    if (scope !== undefined && outcome !== undefined && isInside(path, scope))
      return new Error(`it is a function inside section "${scope}", which has ended and is not entered again`)
  }
  return null
}

function isStillOnTape({ run: { tape } }: UndoingRun, { key, operationKey }: Undoable): boolean {
  return operationKey === undefined || tape.calls.has(key)
}

/** A replay of what is left does not come to the call that would give it. */
function callRolledBack({ run: { runId } }: UndoingRun, path: string): Error {
  return new Error(
    `The undo of "${path}" of run "${runId}" can't be found: it is a function, and its call was rolled back before a person decided that the ` +
      'effect has happened. Take the effect back by hand, then run.cancel({ undo: false }) ends the run as it stands.',
  )
}

function notFound({ run: { runId, workflow } }: UndoingRun, path: string, undo: RecordedUndo, why: Error | null): Error {
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
