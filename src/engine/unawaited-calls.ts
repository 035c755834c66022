import type { Logger } from '../model/logger.ts'
import type { Claim } from '../store/store.ts'

/**
 * Knows which promises of a function's calls nothing waits for. `await`, `then` and `Promise.all` and its like all read the constructor of a
 * promise: one whose constructor was never read is one that nobody listens to.
 */
export class UnawaitedCalls {
  /** Calls under way, and calls that failed before anybody listened. */
  readonly #calls = new Map<Promise<unknown>, { readonly name: string; failure?: { readonly error: unknown } }>()

  /** The promise as the function gets it. Its failure brings no process down: it is in the log. */
  watch<T>(promise: Promise<T>, name: string): Promise<T> {
    const call: { name: string; failure?: { error: unknown } } = { name }
    promise.then(
      () => this.#calls.delete(promise),
      (error: unknown) => {
        if (unheard.has(promise)) call.failure = { error }
        else this.#calls.delete(promise)
      },
    )
    Object.setPrototypeOf(promise, listening)
    unheard.add(promise)
    this.#calls.set(promise, call)
    return promise
  }

  /** The function has returned: tells the logger of calls that it forgot to await. */
  report({ claim: { run }, log }: { readonly claim: Claim; readonly log: Logger }): void {
    for (const [promise, { name, failure }] of this.#calls) {
      if (!unheard.has(promise)) continue
      const about = { runId: run.id, threadId: run.threadId, workflow: run.workflow, step: name }
      const where = `run "${run.id}" of workflow "${run.workflow}"`
      if (failure === undefined)
        log.warn(
          `The function of ${where} returned while "${name}" was still under way, and nothing awaits it: its result is not recorded. Await it before the function returns.`,
          { ...about, reason: 'not_awaited' },
        )
      else
        log.warn(
          `"${name}" of ${where} failed, and nothing awaits it: ${messageOf(failure.error)}. The run has not failed by it; await it, or catch its error.`,
          { ...about, reason: 'not_awaited', error: failure.error },
        )
    }
  }
}

const unheard = new WeakSet<object>()

/** What promises of calls inherit from. On a prototype, since an own `constructor` makes V8 slow for every promise there is. */
const listening: object = Object.create(Promise.prototype, {
  constructor: {
    get(this: object) {
      unheard.delete(this)
      return Promise
    },
  },
})

function messageOf(error: unknown): string {
  return (error instanceof Error ? error.message : String(error)).replace(/\.$/, '')
}
