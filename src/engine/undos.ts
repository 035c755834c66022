import { defaultRetryPolicy } from '../model/retry.ts'
import { toStorableError } from '../model/stored-error.ts'
import type { Call } from './calls.ts'
import type { Execution } from './execution.ts'
import { nextAttempt } from './next-attempt.ts'

/** How one step or effect is taken back. */
export interface Undo {
  readonly call: Call
  /** Where its result stands in the log. */
  readonly seq: number
  /** The effect's operation: undone, its key is free again. */
  readonly operationKey?: string
  /** Nothing is to be taken back, it is only free to come again: not worth an event, and of no use to a run that ends. */
  readonly isSilent?: boolean
  readonly run: () => unknown
}

/**
 * The undos of what a run has done, gathered as its results are handed to the function, on replay as the first time.
 *
 *   D1  The last result is undone first, one at a time.
 *   D2  Each undo is recorded as step_undone; a recorded one is not run again.
 *   D3  A crash between an undo and its record runs it again: an undo has to bear that.
 */
export class Undos {
  readonly #undos: Undo[] = []
  /** Paths of what was undone, in order. */
  readonly undone: string[] = []

  add(undo: Undo): void {
    this.#undos.push(undo)
  }

  /** Undoes what was recorded after a position. Returns the error of an undo that failed for good. */
  async run(execution: Execution, afterSeq: number): Promise<Error | null> {
    const isEnd = afterSeq === 0
    const due = this.#undos.filter(({ seq, isSilent }) => seq > afterSeq && !(isEnd && isSilent)).sort((a, b) => b.seq - a.seq)
    for (const undo of due) {
      if (undo.isSilent && undo.operationKey !== undefined) {
        await execution.tryOperation({ kind: 'undo', key: undo.operationKey })
        continue
      }
      if (!execution.tape.undone.has(undo.seq)) {
        const failure = await this.#undo(execution, undo)
        if (failure !== null) return failure
      }
      this.undone.push(undo.call.path)
    }
    return null
  }

  async #undo(execution: Execution, { call, seq, operationKey, run }: Undo): Promise<Error | null> {
    for (let tries = 1; ; tries++) {
      const started = performance.now()
      try {
        await execution.calls.inBody(call.path, run)
      } catch (thrown) {
        const { error, delayMs } = nextAttempt(defaultRetryPolicy, tries, thrown)
        if (delayMs === null || execution.hasEnded) return undoFailed(execution, call, error)
        execution.log.warn('an undo failed and is tried again', { runId: execution.runId, step: call.path, error })
        await new Promise((resolve) => setTimeout(resolve, delayMs))
        continue
      }
      const durationMs = Math.round(performance.now() - started)
      const event = execution.event('step_undone', call, { durationMs, data: { of: seq } })
      await execution.commit([event], {
        hasProgress: true,
        ...(operationKey !== undefined && { operation: { kind: 'undo', key: operationKey } }),
      })
      return null
    }
  }
}

function undoFailed({ runId }: Execution, call: Call, error: unknown): Error {
  const cause = toStorableError(error)
  return new Error(`The undo of "${call.path}" of run "${runId}" failed: ${cause.message}`, { cause })
}
