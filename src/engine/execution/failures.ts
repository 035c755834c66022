import type { CallKey } from '../replay/call-key.ts'

/**
 * The final failures of an execution, as far as its function has dealt with them. They say what an error of the function's own may
 * have come from, when that names no cause.
 *
 *   F1  A failure is caught once the function has begun another call because of it: after it was handed out, and before anything else
 *       happened. Only what is not caught is blamed.
 */
export class Failures {
  /** Recorded, or about to be, and not thrown into the function before it ended. */
  get unthrown(): Set<CallKey> {
    this.#unthrown ??= new Set()
    return this.#unthrown
  }

  #unthrown: Set<CallKey> | undefined
  /** Thrown into the function, and nothing was begun because of it. */
  #open: Set<CallKey> | undefined
  #justHeard: CallKey | undefined

  /** Something is handed to the function: what it sets off is not because of an earlier failure. */
  handOut(): void {
    this.#justHeard = undefined
  }

  /** A failure is thrown into the function. What that sets off runs before the next turn of the event loop. */
  hear(key: CallKey): void {
    this.#unthrown?.delete(key)
    this.#open ??= new Set()
    this.#open.add(key)
    this.#justHeard = key
    setImmediate(() => {
      if (this.#justHeard === key) this.#justHeard = undefined
    })
  }

  /** The function has begun a call. */
  callBegan(): void {
    if (this.#justHeard !== undefined) this.#open?.delete(this.#justHeard)
  }

  /** What an error of the function's own is to be blamed on, of the failures that concern it. */
  behind(isMine: (key: CallKey) => boolean = () => true): CallKey[] {
    return [...(this.#open ?? [])].filter(isMine)
  }

  /** They were dealt with: the section that they belong to has an outcome of its own. */
  forget(isMine: (key: CallKey) => boolean): void {
    for (const failures of [this.#unthrown, this.#open]) for (const key of failures ?? []) if (isMine(key)) failures?.delete(key)
  }
}
